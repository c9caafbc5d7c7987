//! Networks as they are shown.

use crate::lister::network_id;
use crate::networks;
use sluice_api::model;
use sluice_config::{Config, Prefix};
use sluice_director::plan::Plan;
use sluice_director::reason::{Fate, Reason};
use sluice_director::spec::NetworkId;
use sluice_worker::{NetworkReport, Report};

/// All networks, the default one first.
pub fn networks(config: &Config, plan: &Plan, reports: &[Report]) -> model::Networks {
    let ids = (0..plan.network_count()).map(NetworkId);
    let of_port = networks::of_ports(config);
    let network = |id: NetworkId| {
        let configured = usize::from(id.0).checked_sub(1).and_then(|at| config.networks.get(at));
        let ports = config.ports.iter().zip(&of_port).filter(|(_, network)| **network == id);
        let sum = sum(id, reports);
        let dropped = Reason::ALL.iter().filter(|reason| reason.fate() == Fate::Dropped);
        model::Network {
            name: name_of(plan, id),
            table: configured.and_then(|network| network.table),
            vrf: configured.and_then(|network| network.vrf.clone()),
            cidr: configured
                .map(|network| network.cidr.iter().map(Prefix::to_string).collect())
                .unwrap_or_default(),
            ports: ports.map(|(port, _)| port.name.clone()).collect(),
            sessions: sum.sessions,
            session_capacity: sum.session_capacity,
            half_open: sum.half_open,
            services: plan.live_services().filter(|(_, service)| service.network == id).count()
                as u64,
            dropped: dropped.map(|reason| sum.reasons[*reason as usize]).sum(),
            pressed: sum.pressed,
        }
    };
    model::Networks { networks: ids.map(network).collect() }
}

/// Why packets were dropped in the network with this name; or the names of all.
pub fn drops_in(plan: &Plan, reports: &[Report], name: &str) -> Result<model::Drops, Vec<String>> {
    let Some(id) = network_id(plan, name) else {
        return Err((0..plan.network_count()).map(|id| name_of(plan, NetworkId(id))).collect());
    };
    Ok(model::Drops::from_counts(&sum(id, reports).reasons))
}

fn name_of(plan: &Plan, id: NetworkId) -> String {
    plan.network_name(id).unwrap_or(model::Network::DEFAULT).to_owned()
}

/// A network at all workers together.
struct Sum {
    sessions: u64,
    session_capacity: u64,
    half_open: u64,
    pressed: bool,
    reasons: [u64; Reason::COUNT],
}

impl Sum {
    fn add(&mut self, said: &NetworkReport) {
        self.sessions += u64::from(said.sessions);
        self.session_capacity += u64::from(said.session_capacity);
        self.half_open += u64::from(said.half_open);
        self.pressed |= said.pressed;
        self.reasons.iter_mut().zip(said.reasons).for_each(|(sum, count)| *sum += count);
    }
}

fn sum(id: NetworkId, reports: &[Report]) -> Sum {
    let reasons = [0; Reason::COUNT];
    let (sessions, session_capacity, half_open, pressed) = (0, 0, 0, false);
    let mut sum = Sum { sessions, session_capacity, half_open, pressed, reasons };
    for report in reports {
        // Without isolated networks all is the default one's.
        let whole = NetworkReport {
            network: NetworkId::DEFAULT,
            sessions: report.sessions,
            session_capacity: report.session_capacity,
            half_open: report.half_open,
            pressed: report.pressed,
            reasons: report.counters.reasons,
        };
        let all = if report.networks.is_empty() { &[whole][..] } else { &report.networks };
        all.iter().filter(|said| said.network == id).for_each(|said| sum.add(said));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::counters::Counters;
    use sluice_director::plan::Retired;

    const ISOLATED: &str = "[[network]]\nname = \"blue\"\ntable = 1001\nsessions = 1000\n\
                            cidr = [\"192.0.2.0/24\"]\n\
                            [[port]]\nname = \"inside\"\ndevice = \"vxlan:vx42\"\n\
                            network = \"blue\"\n";
    const FRONT: &str = "[[port]]\nname = \"front\"\ndevice = \"af_xdp:eth0\"\n";

    fn configured(text: &str) -> (Config, Plan) {
        let config = Config::parse("file", text).expect("a configuration").config;
        let plan = Plan::compile(&config.spec(), None, &Retired::default()).expect("a plan");
        (config, plan)
    }

    fn reasons(too_big: u64) -> [u64; Reason::COUNT] {
        let mut reasons = [0; Reason::COUNT];
        reasons[Reason::TooBig as usize] = too_big;
        reasons
    }

    /// What two workers say of a network each, and of the default one if there is another.
    fn reports(isolated: bool) -> Vec<Report> {
        let said = |network: u16, sessions| NetworkReport {
            network: NetworkId(network),
            sessions,
            session_capacity: 500,
            half_open: 1,
            pressed: network == 1 && sessions == 3,
            reasons: reasons(u64::from(sessions)),
        };
        let report = |worker: u16, sessions: u32| Report {
            worker,
            sessions: 10 + sessions,
            session_capacity: 1000,
            counters: Counters { reasons: reasons(99), ..Counters::default() },
            networks: match isolated {
                true => vec![said(0, 10), said(1, sessions)],
                false => Vec::new(),
            },
            ..Report::default()
        };
        vec![report(0, 3), report(1, 4)]
    }

    #[test]
    fn each_network_has_its_own() {
        let (config, plan) = configured(&[FRONT, ISOLATED].concat());
        let model::Networks { networks } = networks(&config, &plan, &reports(true));
        let [default, blue] = &networks[..] else { panic!("{networks:?}") };
        assert_eq!((&*default.name, &*blue.name), ("default", "blue"));
        assert_eq!(
            (&default.ports[..], &blue.ports[..]),
            (&["front".into()][..], &["inside".into()][..])
        );
        assert_eq!((default.table, blue.table), (None, Some(1001)));
        assert_eq!(blue.cidr, ["192.0.2.0/24"]);
        assert_eq!((default.sessions, default.dropped, default.pressed), (20, 20, false));
        assert_eq!((blue.sessions, blue.session_capacity, blue.half_open), (7, 1000, 2));
        assert_eq!((blue.dropped, blue.pressed), (7, true));
        let drops = |name| drops_in(&plan, &reports(true), name);
        assert_eq!(drops("blue"), Ok(model::Drops::from_counts(&reasons(7))));
        assert_eq!(drops("default"), Ok(model::Drops::from_counts(&reasons(20))));
        assert_eq!(drops("bleu"), Err(vec!["default".to_owned(), "blue".to_owned()]));
    }

    #[test]
    fn without_isolated_networks_all_is_the_default_ones() {
        let (config, plan) = configured(FRONT);
        let model::Networks { networks } = networks(&config, &plan, &reports(false));
        let [default] = &networks[..] else { panic!("{networks:?}") };
        assert_eq!((default.sessions, default.session_capacity, default.dropped), (27, 2000, 198));
        let drops = drops_in(&plan, &reports(false), "default");
        assert_eq!(drops, Ok(model::Drops::from_counts(&reasons(198))));
    }
}
