//! Steering rules as they are shown, with what is known of their hits.

use super::named;
use crate::ports::{Open, PortSlot, Ports};
use crate::rules::Shown;
use sluice_api::model::{self, HitsBy, RuleBackend};
use sluice_director::counters::{Counters, Direction};
use sluice_director::plan::{Plan, ServiceId};
use sluice_director::spec::NetworkId;
use sluice_dpdk::Port;
use sluice_rules::{Kind, Placed, Protocol, Rule};
use sluice_steer::Steer;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long NICs and programs are asked for hits; some drivers ask the device for each rule.
const ASKING: Duration = Duration::from_millis(100);

/// Network, protocol, address and ports of a service.
type ServiceKey = (u16, u8, IpAddr, (u16, u16));

/// The rules of all ports.
pub fn ports_rules(ports: &Ports, plan: &Plan, counted: &Counters) -> model::PortsRules {
    let hits = ServiceHits::of(plan, counted);
    let until = Instant::now() + ASKING;
    let slots = ports.slots.iter().filter(|slot| !slot.is_tunnel());
    model::PortsRules { ports: slots.map(|slot| port(slot, plan, &hits, until)).collect() }
}

/// Packets to each service.
struct ServiceHits(HashMap<ServiceKey, u64>);

impl ServiceHits {
    fn of(plan: &Plan, counted: &Counters) -> Self {
        let mut of_service: HashMap<ServiceId, u64> = HashMap::new();
        for (real, counters) in plan.reals.iter().zip(&counted.reals) {
            *of_service.entry(real.service).or_default() +=
                counters.packets[Direction::Inbound as usize];
        }
        let keyed = plan.live_services().map(|(id, service)| {
            let ports = match service.protocol.number() {
                // As a rule has it: no ports are looked at.
                0 => (0, u16::MAX),
                _ => (service.ports.first, service.ports.last),
            };
            let key = (service.network.0, service.protocol.number(), service.vip, ports);
            (key, of_service.get(&id).copied().unwrap_or(0))
        });
        Self(keyed.collect())
    }

    /// Packets to the service of a rule; `None` of other rules.
    fn get(&self, rule: &Rule) -> Option<u64> {
        if rule.kind != Kind::Service {
            return None;
        }
        let protocol = match rule.protocol {
            Protocol::AllButControl => 0,
            Protocol::Number(number) => number,
        };
        let ports = (rule.destination_ports.first, rule.destination_ports.last);
        self.0.get(&(rule.network, protocol, rule.destination?.address, ports)).copied()
    }
}

fn port(slot: &PortSlot, plan: &Plan, hits: &ServiceHits, until: Instant) -> model::PortRules {
    let mut shown = model::PortRules {
        port: slot.config.name.clone(),
        driver: String::new(),
        backend: RuleBackend::Software,
        in_hardware: 0,
        no_room: 0,
        refused_full: 0,
        stuck: 0,
        rules: Vec::new(),
    };
    let Some(Open { port, rules, steer, .. }) = &slot.open else { return shown };
    shown.driver = port.driver().to_owned();
    if steer.is_some() {
        shown.backend = RuleBackend::Xdp;
    }
    if let Some(totals) = rules.totals() {
        shown.backend = RuleBackend::RteFlow;
        shown.in_hardware = totals.hardware;
        (shown.no_room, shown.refused_full) = (totals.no_room, totals.refused_full);
        shown.stuck = totals.stuck;
    }
    let counters = Sources { port, steer: steer.as_ref(), plan, services: hits, until };
    let each = |(listed, place): (&Rule, Shown<'_>)| rule(listed, &place, &counters);
    shown.rules = rules.listed().into_iter().map(each).collect();
    shown
}

/// Where hits come from.
struct Sources<'a> {
    port: &'a Port,
    steer: Option<&'a Steer>,
    plan: &'a Plan,
    services: &'a ServiceHits,
    /// How long NIC and program are asked.
    until: Instant,
}

fn rule(rule: &Rule, place: &Shown<'_>, sources: &Sources<'_>) -> model::SteeringRule {
    let Sources { port, plan, until, .. } = sources;
    let counted = sources.services.get(rule);
    let in_time = Instant::now() < *until;
    let mut shown = model::SteeringRule {
        kind: rule.kind.name().to_owned(),
        network: named(plan.network_name(NetworkId(rule.network)).unwrap_or_default()),
        matches: rule.to_string(),
        protocol: rule.protocol_text(),
        source: rule.source_text(),
        destination: rule.destination_text(),
        backend: RuleBackend::Software,
        queues: Vec::new(),
        hits: counted,
        hits_by: counted.map(|_| HitsBy::Service),
        reason: None,
    };
    match place {
        Shown::Xdp(trouble) => {
            shown.backend = RuleBackend::Xdp;
            shown.reason = trouble.map(str::to_owned);
            let by_program = sources.steer.filter(|_| in_time);
            shown.hits = by_program.and_then(|steer| steer.hits(rule));
            shown.hits_by = shown.hits.map(|_| HitsBy::Rule);
        }
        Shown::Nic(None) => shown.reason = Some("it waits for its turn".to_owned()),
        Shown::Nic(Some(row)) => match &row.placed {
            Placed::Software { reason, .. } => shown.reason = Some(reason.clone()),
            Placed::Hardware(_) => {
                shown.backend = RuleBackend::RteFlow;
                shown.queues = row.queues();
                let by_nic = port.flows().filter(|_| in_time);
                if let Some(hits) = by_nic.and_then(|mut flows| row.hits(&mut flows)) {
                    (shown.hits, shown.hits_by) = (Some(hits), Some(HitsBy::Rule));
                }
            }
        },
        Shown::Off => shown.reason = Some("`flow_rules` of the port is false".to_owned()),
        Shown::Software => {
            let reason = format!("a port of the driver {} has no flow rules", port.driver());
            shown.reason = Some(reason);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::counters::RealCounters;
    use sluice_director::plan::Retired;
    use sluice_director::spec::{Mode, Ports, Protocol, RealServer, Spec, VirtualService};
    use sluice_rules::{EndpointMatch, Matches, rules_of};

    /// Two services with the same address and ports in different networks, and one of any protocol.
    fn plan() -> Plan {
        let service = |network: &str, protocol, ports| VirtualService {
            name: format!("{network}{ports:?}"),
            network: network.to_owned(),
            protocol,
            vip: [198, 51, 100, 200].into(),
            ports,
            mode: Mode::Dr,
            reals: vec![RealServer { address: [192, 0, 2, 11].into(), ..RealServer::default() }],
            ..VirtualService::default()
        };
        let spec = Spec {
            networks: vec!["blue".to_owned()],
            services: vec![
                service("", Protocol::Tcp, Ports::one(80)),
                service("blue", Protocol::Tcp, Ports::one(80)),
                service("blue", Protocol::Any, Ports::ALL),
            ],
            ..Spec::default()
        };
        Plan::compile(&spec, None, &Retired::default()).expect("a plan")
    }

    #[test]
    fn hits_of_a_service_are_those_of_its_real_servers() {
        let plan = plan();
        let mut counted = Counters::default();
        counted.reals.resize(plan.reals.len(), RealCounters::default());
        for (at, real) in plan.reals.iter().enumerate() {
            // By the service, so that each has its own.
            counted.reals[at].packets = [10 + u64::from(real.service.0), 1000];
        }
        let hits = ServiceHits::of(&plan, &counted);
        let find = |network: u16, protocol: u8| {
            let vip = IpAddr::from([198, 51, 100, 200]);
            let found = plan.live_services().find(|(_, service)| {
                (service.network.0, service.protocol.number()) == (network, protocol)
            });
            let (id, service) = found.expect("a service");
            let it = EndpointMatch {
                protocol,
                address: vip,
                ports: service.ports.first..=service.ports.last,
            };
            let matches = Matches { services: vec![it], ..Matches::default() };
            let rule = &rules_of(&matches, network, |_| Vec::new())[0];
            (hits.get(rule), 10 + u64::from(id.0))
        };
        for (network, protocol) in [(0, 6), (1, 6), (1, 0)] {
            let (got, wanted) = find(network, protocol);
            assert_eq!(got, Some(wanted), "network {network}, protocol {protocol}");
        }
    }
}
