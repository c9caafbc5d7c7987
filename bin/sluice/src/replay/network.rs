//! The configuration's static `[[route]]` and `[[neighbour]]` sections as the path's routes and
//! neighbours: what the kernel says in a running director.
//!
//! A port is one link untagged, and one more for each VLAN that a neighbour on it names. Routes
//! name ports only, so the link a route leads to is the one on which its gateway is known; and a
//! neighbour on a VLAN that an on-link route of its port covers gets a host route to its VLAN.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_config::{Config, Neighbour, Route};
use sluice_director::fib::{Fib, FibBuilder, Link, LinkId, PortId, Target};
use sluice_director::plan::Plan;
use sluice_director::spec::NetworkId;

/// MTU of a port whose configuration names none, bytes.
const MTU: u16 = 1500;

/// MAC address of a port: the configured one, or 02:00:00:00 and the port's number from 1.
fn mac(config: &Config, port: usize) -> [u8; 6] {
    let [high, low] = (port as u16 + 1).to_be_bytes();
    config.ports[port].mac.map_or([2, 0, 0, 0, high, low], |mac| mac.bytes())
}

/// Compiles the static routes and neighbours of a plan's network: those by its ports.
pub(super) fn fib(config: &Config, plan: &Plan) -> Fib {
    let mut builder = FibBuilder::default();
    let links = links(config, plan.network, &mut builder);
    let link = |port: &str, vlan: Option<u16>| -> Option<LinkId> {
        links.get(&(config.port_id(port)?, vlan.unwrap_or(0))).copied()
    };
    for neighbour in &config.neighbours {
        if let Some(link) = link(&neighbour.port, neighbour.vlan) {
            builder.neighbour(link, neighbour.address, neighbour.mac.bytes());
        }
    }
    for route in &config.routes {
        let vlan = route.via.and_then(|via| neighbour(config, via, &route.port)?.vlan);
        if let Some(link) = link(&route.port, vlan) {
            let target = route.via.map_or(Target::OnLink(link), |via| Target::Via(link, via));
            builder.route(route.prefix.address(), route.prefix.length(), target);
        }
    }
    for there in config.neighbours.iter().filter(|there| there.vlan.is_some()) {
        let route = longest(config, there.address);
        let covered = route.is_some_and(|r| r.via.is_none() && r.port == there.port);
        if let Some(link) = link(&there.port, there.vlan).filter(|_| covered) {
            let length = if there.address.is_ipv4() { 32 } else { 128 };
            builder.route(there.address, length, Target::OnLink(link));
        }
    }
    builder.build(plan, None)
}

/// One link for each port of a network and each VLAN that a neighbour names.
fn links(
    config: &Config,
    network: NetworkId,
    builder: &mut FibBuilder,
) -> BTreeMap<(u16, u16), LinkId> {
    for (port, configured) in (0..).zip(&config.ports) {
        // Captures of one whose address is not named may have any.
        if let Some(mac) = configured.mac {
            builder.own_mac(PortId(port), mac.bytes());
        }
    }
    let mut links = BTreeMap::new();
    let untagged = (0..config.ports.len()).map(|port| (port as u16, 0));
    let tagged = config.neighbours.iter().filter_map(|n| Some((config.port_id(&n.port)?, n.vlan?)));
    let is_ours = |(port, _): &(u16, u16)| {
        config.network_id(&config.ports[usize::from(*port)].network) == Some(network)
    };
    for (port, vlan) in untagged.chain(tagged).filter(is_ours) {
        let at = usize::from(port);
        let mtu = config.ports[at].mtu.unwrap_or(MTU);
        links.entry((port, vlan)).or_insert_with(|| {
            builder.link(Link {
                port: PortId(port),
                mac: mac(config, at),
                vlan,
                mtu,
                ..Link::default()
            })
        });
    }
    links
}

fn neighbour<'a>(config: &'a Config, address: IpAddr, port: &str) -> Option<&'a Neighbour> {
    config.neighbours.iter().find(|n| n.address == address && n.port == port)
}

/// The route to an address: of those with the longest prefix the first.
fn longest(config: &Config, to: IpAddr) -> Option<&Route> {
    let covering = config.routes.iter().filter(|route| route.prefix.range().contains(to));
    covering.rev().max_by_key(|route| route.prefix.length())
}
