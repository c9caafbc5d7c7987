//! Which of the two tables a service's sessions are in.
//!
//! Services that can take each other's packets are in the same one: else the more specific one
//! would not be found where the wider one is, and sessions of one that was changed would be looked
//! for in the table of the other. So are services that share a real server's endpoint by NAT: what
//! it answers to a client is told from its other answers only by what the table says is taken. So
//! a service is in the extended table if it needs the room, or meets one that is, or that was and
//! may still have sessions.

use super::ids::Retired;
use super::{Forwarding, Plan, Service, ServiceId, networks};
use crate::spec::{ClientAddress, NetworkId, Ports, Protocol, RealServer, Spec, VirtualService};
use std::collections::HashMap;
use std::iter;
use std::net::IpAddr;

/// What packets of sessions are told by: those that clients send to an address (`to`), or those
/// that come from it.
#[derive(Clone, Copy)]
struct Span {
    to: bool,
    network: NetworkId,
    address: IpAddr,
    protocol: Protocol,
    ports: Ports,
}

impl Span {
    fn meets(&self, other: &Self) -> bool {
        let any = Protocol::Any;
        self.to == other.to
            && self.network == other.network
            && (self.protocol == other.protocol || self.protocol == any || other.protocol == any)
            && self.ports.common(other.ports).is_some()
    }
}

/// The spans of services of the extended table, by address.
#[derive(Default)]
struct Spans(HashMap<IpAddr, Vec<Span>>);

impl Spans {
    fn extend(&mut self, spans: impl Iterator<Item = Span>) {
        for span in spans {
            self.0.entry(span.address).or_default().push(span);
        }
    }

    fn meet(&self, span: &Span) -> bool {
        self.0.get(&span.address).is_some_and(|spans| spans.iter().any(|known| known.meets(span)))
    }
}

/// Whether each service of a spec is in the extended table. `before` is the plan that is
/// replaced, without what is `retired`.
pub(super) fn extended(spec: &Spec, before: &Plan, retired: &Retired) -> Vec<bool> {
    let mut extended: Vec<bool> = spec.services.iter().map(needs_room).collect();
    let mut spans = Spans::default();
    spans.extend(spans_before(before, retired));
    for (service, _) in spec.services.iter().zip(&extended).filter(|(_, extended)| **extended) {
        spans.extend(spans_of(service, &before.networks));
    }
    // One that joins may draw others with it.
    let mut grows = true;
    while grows {
        grows = false;
        for (service, extended) in
            spec.services.iter().zip(&mut extended).filter(|(_, extended)| !**extended)
        {
            if spans_of(service, &before.networks).any(|span| spans.meet(&span)) {
                spans.extend(spans_of(service, &before.networks));
                (*extended, grows) = (true, true);
            }
        }
    }
    extended
}

/// The spans of a service.
fn spans_of<'a>(
    service: &'a VirtualService,
    networks: &[String],
) -> impl Iterator<Item = Span> + use<'a> {
    let VirtualService { vip, protocol, ports, .. } = *service;
    // What names a network that is not there is refused later.
    let network = networks::number(networks, &service.network).unwrap_or_default();
    let nat =
        |real: &&RealServer| Forwarding::of(real.mode.unwrap_or(service.mode)).answers_client();
    let answers = service.reals.iter().filter(nat).map(move |real| Span {
        to: false,
        network,
        address: real.address,
        protocol,
        ports: answers_from(real.port, ports),
    });
    iter::once(Span { to: true, network, address: vip, protocol, ports }).chain(answers)
}

/// The spans of services that were in the extended table.
fn spans_before<'a>(before: &'a Plan, retired: &'a Retired) -> impl Iterator<Item = Span> + 'a {
    let kept = |id: usize| !retired.services.contains(&ServiceId(id as u16));
    let of = |service: &Service| service.extended && service.snat.is_none();
    let services = before.services.iter().enumerate().filter(move |(id, s)| of(s) && kept(*id));
    let to = services.map(|(_, service)| Span {
        to: true,
        network: service.network,
        address: service.vip,
        protocol: service.protocol,
        ports: service.ports,
    });
    let reals = before.reals.iter().filter(|real| real.forwarding.answers_client()).filter_map(
        move |real| {
            let id = usize::from(real.service.0);
            let service = before.services.get(id).filter(|service| of(service) && kept(id))?;
            let ports = answers_from(real.port, service.ports);
            let (network, protocol) = (service.network, service.protocol);
            Some(Span { to: false, network, address: real.address, protocol, ports })
        },
    );
    to.chain(reals)
}

/// The ports that a real server answers from.
fn answers_from(port: u16, service: Ports) -> Ports {
    if port == 0 { service } else { Ports::one(port) }
}

/// Whether a service's sessions need the room of the extended table.
fn needs_room(service: &VirtualService) -> bool {
    let crosses = |real: &RealServer| {
        let mode = real.mode.unwrap_or(service.mode);
        Forwarding::of(mode).translates_both() && real.address.is_ipv6() != service.vip.is_ipv6()
    };
    service.vip.is_ipv6()
        || service.client_address != ClientAddress::Hidden
        || service.reals.iter().any(crosses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Mode;

    fn service(ports: Ports, reals: &[&str]) -> VirtualService {
        let reals = reals.iter().map(|address| RealServer {
            address: address.parse().unwrap(),
            port: 80,
            ..RealServer::default()
        });
        VirtualService {
            vip: [198, 51, 100, 200].into(),
            ports,
            reals: reals.collect(),
            ..VirtualService::default()
        }
    }

    const V4: &str = "192.0.2.11";
    const V6: &str = "2001:db8::11";

    fn tables(services: &[VirtualService], before: &Plan, retired: &Retired) -> Vec<bool> {
        let spec = Spec { services: services.to_vec(), ..Spec::default() };
        extended(&spec, before, retired)
    }

    #[test]
    fn who_overlaps_is_in_the_same_table() {
        let range = Ports { first: 70, last: 90 };
        let services = [
            service(range, &[V4]),
            service(Ports::one(80), &[V4]),
            service(Ports::one(70), &[V6]),
            service(Ports::one(443), &[V4]),
            VirtualService { protocol: Protocol::Udp, ..service(range, &[V4]) },
        ];
        let none = Retired::default();
        assert_eq!(tables(&services, &Plan::default(), &none), [true, true, true, false, false]);
        assert_eq!(tables(&services[3..], &Plan::default(), &none), [false, false]);
    }

    #[test]
    fn who_shares_what_answers_by_nat_is_in_the_same_table() {
        let at = |vip: u8, port, real: &str, real_port| {
            let mut service = service(Ports::one(port), &[real]);
            service.vip = [198, 51, 100, vip].into();
            service.reals[0].port = real_port;
            service.reals[0].mode = Some(Mode::Nat);
            service
        };
        let mut mixed = at(200, 80, V4, 8080);
        mixed.reals.push(RealServer { address: V6.parse().unwrap(), ..RealServer::default() });
        let own_port = at(203, 8080, V4, 0);
        let services = [
            mixed,
            at(201, 80, V4, 8080),
            at(202, 80, V4, 8081),
            own_port.clone(),
            VirtualService { protocol: Protocol::Udp, ..own_port },
            // By full NAT a local port tells them apart.
            service(Ports::one(8080), &[V4]),
        ];
        let none = Retired::default();
        let expected = [true, true, false, true, false, false];
        assert_eq!(tables(&services, &Plan::default(), &none), expected);
        assert_eq!(tables(&services[1..], &Plan::default(), &none), [false; 5]);
        // As long as the first may have sessions, who joins in its place has to see them.
        let was = Spec { services: services.to_vec(), ..Spec::default() };
        let before = Plan::compile(&was, None, &none).unwrap();
        assert_eq!(tables(&services[2..4], &before, &none), [false, true]);
    }

    #[test]
    fn who_was_wide_stays_so_until_nobody_uses_it() {
        let was = Spec { services: vec![service(Ports::one(80), &[V6])], ..Spec::default() };
        let before = Plan::compile(&was, None, &Retired::default()).unwrap();
        let now = [service(Ports::one(80), &[V4]), service(Ports::one(81), &[V4])];
        assert_eq!(tables(&now, &before, &Retired::default()), [true, false]);
        let retired = Retired { services: [ServiceId(0)].into(), ..Retired::default() };
        assert_eq!(tables(&now, &before, &retired), [false, false]);
    }
}
