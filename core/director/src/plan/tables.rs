//! Which of the two tables a service's sessions are in.
//!
//! Services that can take each other's packets are in the same one: else the more specific one
//! would not be found where the wider one is, and sessions of one that was changed would be looked
//! for in the table of the other. So a service is in the wide table if it needs the room, or
//! overlaps one that is, or that was and may still have sessions.

use super::Plan;
use super::ids::Retired;
use crate::blueprint::{
    Blueprint, ClientAddress, Mode, Ports, Protocol, RealServer, VirtualService,
};
use std::collections::HashMap;
use std::net::IpAddr;

/// What a service takes packets of.
type Span = (Protocol, Ports);

/// Whether each service of a blueprint is in the wide table. `before` is the plan that is
/// replaced, without what is `retired`.
pub(super) fn wide(blueprint: &Blueprint, before: &Plan, retired: &Retired) -> Vec<bool> {
    let mut wide: Vec<bool> = blueprint.services.iter().map(needs_room).collect();
    let mut spans: HashMap<IpAddr, Vec<Span>> = HashMap::new();
    for (id, service) in before.services.iter().enumerate() {
        let gone = retired.services.iter().any(|retired| usize::from(retired.0) == id);
        if service.wide && service.snat.is_none() && !gone {
            spans.entry(service.vip).or_default().push((service.protocol, service.ports));
        }
    }
    for (service, _) in blueprint.services.iter().zip(&wide).filter(|(_, wide)| **wide) {
        spans.entry(service.vip).or_default().push((service.protocol, service.ports));
    }
    // One that joins may draw others with it.
    let mut grows = true;
    while grows {
        grows = false;
        for (service, wide) in blueprint.services.iter().zip(&mut wide).filter(|(_, wide)| !**wide)
        {
            let Some(spans) = spans.get_mut(&service.vip) else { continue };
            let span = (service.protocol, service.ports);
            if spans.iter().any(|other| overlap(*other, span)) {
                spans.push(span);
                (*wide, grows) = (true, true);
            }
        }
    }
    wide
}

fn overlap((protocol, ports): Span, (other_protocol, others): Span) -> bool {
    let any = Protocol::Any;
    (protocol == other_protocol || protocol == any || other_protocol == any)
        && ports.first <= others.last
        && others.first <= ports.last
}

/// Whether a service's sessions need the room of the wide table.
fn needs_room(service: &VirtualService) -> bool {
    let crosses = |real: &RealServer| {
        let mode = real.mode.unwrap_or(service.mode);
        mode == Mode::Fnat && real.address.is_ipv6() != service.vip.is_ipv6()
    };
    service.vip.is_ipv6()
        || service.client_address != ClientAddress::Hidden
        || service.reals.iter().any(crosses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ServiceId;

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
        let blueprint = Blueprint { services: services.to_vec(), ..Blueprint::default() };
        wide(&blueprint, before, retired)
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
    fn who_was_wide_stays_so_until_nobody_uses_it() {
        let was =
            Blueprint { services: vec![service(Ports::one(80), &[V6])], ..Blueprint::default() };
        let before = Plan::compile(&was, None, &Retired::default()).unwrap();
        let now = [service(Ports::one(80), &[V4]), service(Ports::one(81), &[V4])];
        assert_eq!(tables(&now, &before, &Retired::default()), [true, false]);
        let retired = Retired { services: [ServiceId(0)].into(), ..Retired::default() };
        assert_eq!(tables(&now, &before, &retired), [false, false]);
    }
}
