//! The steering rules of open ports, by back-end.
//!
//! What is taken from a port is one list of rules. Where an XDP program takes it, `ports.rs` fills
//! its maps. A DPDK device's rules are put into the NIC's table as far as it has them, a little at
//! a time: drivers may take milliseconds for each, and the control loop has other work. All other
//! rules, and all rules of other devices, are the director's own lookup, which does not depend on
//! what a NIC did before it.

use sluice_director::plan::Plan;
use sluice_dpdk::{FlowId, Port};
use sluice_rules::{Limits, Owned, Placed, Ports, Row, Rule, RuleTable, Totals};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;
use tracing::{info, warn};

/// The rules of an open port.
#[derive(Debug)]
pub struct PortRules {
    /// What is taken from the port.
    rules: Vec<Rule>,
    /// Flows that a NIC is to bring to their owners.
    flows: Vec<Rule>,
    place: Place,
}

/// Where they are.
#[derive(Debug)]
enum Place {
    /// In an XDP program's maps; all of them, or not for this reason.
    Xdp(Option<String>),
    /// In the NIC, as far as it has them.
    Nic(Box<Nic>),
    /// In the director, as the device has no rules.
    Software,
    /// In the director, as the configuration says.
    Off,
}

#[derive(Debug)]
struct Nic {
    table: RuleTable<FlowId>,
    /// What was said of it in the log.
    said: Totals,
}

/// Whether a port brings a flow to its owner's queue; the better one is the greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Redirected {
    /// A port of this kind cannot.
    Never(&'static str),
    /// It does not, for this reason.
    No(String),
    /// It does.
    Yes,
}

/// Where a rule is shown to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown<'r> {
    /// The XDP program takes it, or would if it were not for this reason.
    Xdp(Option<&'r str>),
    /// It has a row in a NIC's table, or waits for one.
    Nic(Option<&'r Row<FlowId>>),
    /// The port has neither.
    Software,
    /// The configuration leaves the NIC without rules.
    Off,
}

impl PortRules {
    /// None yet, of a port that was just opened. A NIC only gets rules if it `may`.
    pub fn new(port: &Port, has_program: bool, may: bool) -> Self {
        let place = match port.flows() {
            _ if has_program => Place::Xdp(None),
            Some(_) if !may => Place::Off,
            Some(_) => {
                let table = RuleTable::new(Limits::of(port.driver()), port.queues());
                Place::Nic(Box::new(Nic { table, said: Totals::default() }))
            }
            None => Place::Software,
        };
        Self { rules: Vec::new(), flows: Vec::new(), place }
    }

    /// These are the rules from now on. A NIC gets them by [`Self::work`].
    pub fn follow(&mut self, rules: &[Rule], trouble: Option<String>) {
        if let Place::Xdp(known) = &mut self.place {
            *known = trouble;
        }
        if self.rules != rules {
            self.rules = rules.to_vec();
            self.want();
        }
    }

    /// A flow is to come to the queue of its owner, or not any more. Only a NIC with rules can do
    /// that.
    pub fn redirect(&mut self, flow: &Rule, wanted: bool) {
        let at = self.flows.binary_search(flow);
        match (at, wanted) {
            (Err(at), true) => self.flows.insert(at, flow.clone()),
            (Ok(at), false) => _ = self.flows.remove(at),
            _ => return,
        }
        self.want();
    }

    /// Whether a NIC has got a flow's rule, or has refused it, if it is wanted, and else whether it
    /// has it no more.
    pub fn is_settled(&self, flow: &Rule, wanted: bool) -> bool {
        match &self.place {
            Place::Nic(nic) => nic.table.row(flow).is_some() == wanted,
            _ => true,
        }
    }

    /// Whether a NIC gets the rules.
    pub const fn is_of_nic(&self) -> bool {
        matches!(self.place, Place::Nic(_))
    }

    fn want(&mut self) {
        if let Place::Nic(nic) = &mut self.place {
            nic.table.want([&self.rules[..], &self.flows].concat());
        }
    }

    /// Whether a flow comes to its owner's queue by a rule, and why not.
    pub fn redirected(&self, flow: &Rule) -> Redirected {
        let nic = match &self.place {
            Place::Nic(nic) => nic,
            Place::Off => return Redirected::No("`flow_rules` of the port is false".to_owned()),
            Place::Xdp(_) => {
                let why = "the kernel chooses the queues of AF_XDP ports (ethtool -N)";
                return Redirected::Never(why);
            }
            Place::Software => return Redirected::Never("no port has flow rules"),
        };
        match nic.table.row(flow).map(|row| &row.placed) {
            Some(Placed::Hardware(_)) => Redirected::Yes,
            Some(Placed::Software { reason, .. }) => Redirected::No(reason.clone()),
            None => Redirected::No("it waits for its turn".to_owned()),
        }
    }

    /// Goes on with what a NIC has not got yet, until then.
    pub fn work(&mut self, port: &Port, until: Instant) {
        let Place::Nic(nic) = &mut self.place else { return };
        let Some(mut flows) = port.flows().filter(|_| nic.table.is_behind()) else { return };
        nic.table.work(&mut flows, || Instant::now() < until);
        if !nic.table.is_behind() {
            nic.tell(port.name());
        }
    }

    /// Each rule, in order, with its place.
    pub fn listed(&self) -> Vec<(&Rule, Shown<'_>)> {
        match &self.place {
            Place::Nic(nic) => {
                nic.table.listed().map(|(rule, row)| (rule, Shown::Nic(row))).collect()
            }
            Place::Xdp(trouble) => {
                let each = |rule| (rule, Shown::Xdp(trouble.as_deref()));
                self.rules.iter().map(each).collect()
            }
            Place::Software => self.rules.iter().map(|rule| (rule, Shown::Software)).collect(),
            Place::Off => self.rules.iter().map(|rule| (rule, Shown::Off)).collect(),
        }
    }

    /// How many are where in a NIC; `None` of a port without.
    pub fn totals(&self) -> Option<Totals> {
        match &self.place {
            Place::Nic(nic) => Some(nic.table.totals()),
            _ => None,
        }
    }
}

impl Nic {
    /// Says what has become of the rules, if it is something else than before.
    fn tell(&mut self, port: &str) {
        let (totals, said) = (self.table.totals(), self.said);
        if totals == said {
            return;
        }
        let Totals { hardware, software, no_room, .. } = totals;
        info!(port, hardware, software, "steering rules are in place");
        if no_room > 0 && said.no_room == 0 {
            warn!(
                port,
                no_room,
                "the NIC has no room for some steering rules: they are looked up in \
                software, see `sluice ports --rules`"
            );
        }
        if totals.stuck > said.stuck {
            warn!(port, stuck = totals.stuck, "the NIC's driver kept rules that were to go");
        }
        self.said = totals;
    }
}

/// Which ports of local addresses belong to which worker, where there are several.
pub fn owners(plan: &Plan, workers: u16) -> HashMap<IpAddr, Vec<Owned>> {
    let mut owners = HashMap::new();
    if workers < 2 {
        return owners;
    }
    for pool in &plan.pools {
        let owned = |worker| {
            let (start, count) = pool.share(worker, workers);
            let first = u32::from(pool.first_port) + start;
            let last = first.checked_add(count)?.checked_sub(1)?;
            let (first, last) = (u16::try_from(first).ok()?, u16::try_from(last).ok()?);
            (count > 0).then_some(Owned { ports: Ports { first, last }, worker })
        };
        let of_pool: Vec<Owned> = (0..workers).filter_map(owned).collect();
        let addresses = pool.all_locals().filter_map(|id| plan.locals.get(usize::from(id.0)));
        owners.extend(addresses.map(|address| (*address, of_pool.clone())));
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::plan::Retired;
    use sluice_director::spec::{LocalPool, Spec};

    #[test]
    fn each_worker_owns_its_block_of_a_pool() {
        let address: IpAddr = [192, 0, 2, 10].into();
        let pool = LocalPool {
            name: "lan".to_owned(),
            network: String::new(),
            addresses: vec![address],
            peer_addresses: Vec::new(),
            ports: 1024..=65535,
        };
        let spec = Spec { pools: vec![pool], ..Spec::default() };
        let plan = Plan::compile(&spec, None, &Retired::default()).expect("a plan");
        let of = |workers| owners(&plan, workers).remove(&address);
        assert_eq!(of(1), None, "one has all");
        let owned = of(3).expect("blocks");
        assert_eq!(owned.iter().map(|it| it.worker).collect::<Vec<_>>(), [0, 1, 2]);
        let pool = &plan.pools[0];
        for port in [1024, 22_527, 22_528, 44_031, 65_535_u16] {
            let by_pool = pool.owner(port, 3);
            let by_rule = owned.iter().find(|it| it.ports.range().contains(&port));
            assert_eq!(by_rule.map(|it| it.worker), by_pool, "port {port}");
        }
        assert!(owned.windows(2).all(|two| two[0].ports.last + 1 == two[1].ports.first));
    }
}
