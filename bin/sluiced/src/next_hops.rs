//! From the kernel's tables to the path's: links, routes, neighbours, and which neighbours are to
//! be kept fresh.

use sluice_director::fib::{Fib, FibBuilder, Link, LinkId, PortId, Target};
use sluice_director::plan::Plan;
use sluice_linux::{Kernel, RouteKind, RouteResult, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The tag that the path writes (IEEE 802.1Q). A link of service tags (802.1ad) is not the path's.
const CUSTOMER_VLAN: u16 = 0x8100;

/// The path's tables and how their links are called by the kernel.
#[derive(Debug, Default)]
pub struct NextHops {
    /// The kernel's interface of each link.
    ifindexes: Vec<u32>,
    /// Neighbours that the path needs: next hops of real servers, and gateways.
    wanted: BTreeSet<(u32, IpAddr)>,
}

impl NextHops {
    /// Compiles the kernel's tables. `interfaces` names the kernel interface of each port, which
    /// carries its addresses; VLANs on such an interface are links of the same port.
    pub fn build(
        &mut self,
        kernel: &Kernel,
        plan: &Plan,
        interfaces: &[(PortId, String)],
        before: &Fib,
    ) -> Fib {
        let mut builder = FibBuilder::default();
        let links = self.links(kernel, interfaces, &mut builder);
        for route in sorted_routes(kernel) {
            // The kernel goes on to the next metric when no link of a route is set up.
            if route.kind == RouteKind::Unicast && !route.hops.iter().any(|h| usable(kernel, h)) {
                continue;
            }
            let target = match route.kind {
                RouteKind::Unicast => unicast(kernel, route, &links),
                _ => Target::Nowhere,
            };
            builder.route(route.prefix, route.prefix_len, target);
        }
        for neighbour in kernel.neighbours() {
            let link = links.get(&neighbour.ifindex);
            if let (Some(link), Some(mac)) = (link, neighbour.usable_mac()) {
                builder.neighbour(*link, neighbour.ip, mac);
            }
        }
        self.wanted = wanted(kernel, plan, &links);
        builder.build(plan, Some(before))
    }

    fn links(
        &mut self,
        kernel: &Kernel,
        interfaces: &[(PortId, String)],
        builder: &mut FibBuilder,
    ) -> BTreeMap<u32, LinkId> {
        self.ifindexes.clear();
        let mut links = BTreeMap::new();
        for (port, name) in interfaces {
            let Some(parent) = kernel.link_by_name(name) else { continue };
            let vlans = kernel
                .links()
                .filter(|link| link.parent == Some(parent.index))
                .filter_map(|link| link.vlan.map(|vlan| (link, vlan)))
                .filter(|(_, vlan)| vlan.ethertype == CUSTOMER_VLAN)
                .map(|(link, vlan)| (link, vlan.id));
            for (link, vlan) in std::iter::once((parent, 0)).chain(vlans) {
                let id = builder.link(Link {
                    port: *port,
                    mac: link.mac.unwrap_or_default(),
                    vlan,
                    mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
                });
                links.insert(link.index, id);
                self.ifindexes.push(link.index);
            }
        }
        links
    }

    /// The kernel's interface of a link.
    pub fn ifindex(&self, link: LinkId) -> Option<u32> {
        self.ifindexes.get(usize::from(link.0)).copied()
    }

    /// Neighbours that the path needs, by the kernel's interface.
    pub fn wanted(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.wanted.iter().copied()
    }
}

/// Routes of the tables that forward, those that count first.
fn sorted_routes(kernel: &Kernel) -> Vec<&sluice_linux::Route> {
    let mut routes: Vec<_> = kernel
        .routes()
        .filter(|route| matches!(route.table, Table::Main | Table::Default))
        .collect();
    routes.sort_by_key(|route| (route.table == Table::Default, route.metric));
    routes
}

/// Whether the link of a next hop is set up.
fn usable(kernel: &Kernel, hop: &sluice_linux::NextHop) -> bool {
    kernel.link(hop.ifindex).is_some_and(|link| link.admin_up)
}

/// Of several next hops the first that is on a port of the director, whose link is set up.
fn unicast(kernel: &Kernel, route: &sluice_linux::Route, links: &BTreeMap<u32, LinkId>) -> Target {
    let hop = route
        .hops
        .iter()
        .filter(|hop| usable(kernel, hop))
        .find_map(|hop| links.get(&hop.ifindex).map(|link| (hop, *link)));
    match hop {
        Some((hop, link)) => match hop.gateway {
            Some(gateway) => Target::Via(link, gateway),
            None => Target::OnLink(link),
        },
        None => Target::Nowhere,
    }
}

fn wanted(kernel: &Kernel, plan: &Plan, links: &BTreeMap<u32, LinkId>) -> BTreeSet<(u32, IpAddr)> {
    let reals = plan.reals.iter().filter(|real| real.live).map(|real| real.address);
    let to_reals = reals.collect::<BTreeSet<_>>().into_iter().flat_map(|address| {
        match sluice_linux::lookup(kernel, address) {
            RouteResult::NextHops(targets) => {
                targets.into_iter().map(|target| (target.ifindex, target.ip)).collect()
            }
            _ => Vec::new(),
        }
    });
    let gateways = kernel.routes().flat_map(|route| {
        route.hops.iter().filter_map(|hop| hop.gateway.map(|gateway| (hop.ifindex, gateway)))
    });
    to_reals.chain(gateways).filter(|(ifindex, _)| links.contains_key(ifindex)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_linux::{Neighbour, NeighbourState, NextHop, Route};

    const PORT: PortId = PortId(3);

    fn link(index: u32, name: &str, up: bool) -> sluice_linux::Link {
        sluice_linux::Link {
            index,
            name: name.into(),
            mac: Some([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            admin_up: up,
            carrier: up,
            kind: None,
            parent: None,
            vlan: None,
            master: None,
            num_rx_queues: None,
            loopback: false,
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn route(prefix: &str, len: u8, metric: u32, via: Option<&str>, ifindex: u32) -> Route {
        Route {
            prefix: ip(prefix),
            prefix_len: len,
            table: Table::Main,
            metric,
            kind: RouteKind::Unicast,
            hops: vec![NextHop { gateway: via.map(ip), ifindex, weight: 1, onlink: false }],
            source: None,
            nexthop_id: None,
            protocol: 4,
        }
    }

    fn neighbour(ifindex: u32, address: &str) -> Neighbour {
        let state = NeighbourState::Reachable;
        Neighbour { ifindex, ip: ip(address), mac: Some([4; 6]), state }
    }

    fn build(kernel: &Kernel) -> (Fib, NextHops) {
        let mut hops = NextHops::default();
        let interfaces = [(PORT, "eth0".to_owned())];
        let fib = hops.build(kernel, &Plan::default(), &interfaces, &Fib::default());
        (fib, hops)
    }

    #[test]
    fn the_kernels_choice_is_the_paths() {
        let mut kernel = Kernel::default();
        kernel.insert_link(link(1, "eth0", true));
        kernel.insert_link(link(2, "eth1", true));
        kernel.insert_route(route("198.51.100.0", 24, 0, None, 1));
        kernel.insert_route(route("0.0.0.0", 0, 20, Some("198.51.100.9"), 1));
        kernel.insert_route(route("0.0.0.0", 0, 10, Some("198.51.100.1"), 1));
        kernel.insert_route(route("203.0.113.0", 24, 0, None, 2));
        kernel.insert_neighbour(neighbour(1, "198.51.100.1"));
        kernel.insert_neighbour(neighbour(1, "198.51.100.48"));
        let (fib, hops) = build(&kernel);
        for address in ["198.51.100.48", "192.0.2.1"] {
            let hop = fib.hop(fib.lookup(ip(address)).unwrap()).unwrap();
            assert_eq!((hop.port, hop.source), (PORT, [2, 0, 0, 0, 0, 1]), "{address}");
        }
        let elsewhere = fib.lookup(ip("203.0.113.5"));
        assert_eq!(elsewhere, Err(sluice_director::fib::NoHop::NoRoute), "no port of ours");
        assert_eq!(hops.ifindex(LinkId(0)), Some(1));
        let gateways: Vec<_> = hops.wanted().collect();
        assert_eq!(gateways, [(1, ip("198.51.100.1")), (1, ip("198.51.100.9"))]);
    }

    #[test]
    fn a_link_that_is_down_gives_way() {
        let mut kernel = Kernel::default();
        kernel.insert_link(link(1, "eth0", true));
        kernel.insert_link(link(2, "eth1", false));
        kernel.insert_route(route("0.0.0.0", 0, 10, Some("203.0.113.1"), 2));
        kernel.insert_route(route("0.0.0.0", 0, 20, Some("198.51.100.9"), 1));
        kernel.insert_neighbour(neighbour(1, "198.51.100.9"));
        assert!(build(&kernel).0.lookup(ip("192.0.2.1")).is_ok());
    }

    #[test]
    fn a_vlan_is_a_link_of_its_port() {
        let mut kernel = Kernel::default();
        kernel.insert_link(link(1, "eth0", true));
        let mut vlan = link(5, "eth0.12", true);
        vlan.parent = Some(1);
        vlan.vlan = Some(sluice_linux::Vlan { id: 12, ethertype: 0x8100 });
        kernel.insert_link(vlan);
        kernel.insert_route(route("192.0.2.0", 24, 0, None, 5));
        kernel.insert_neighbour(neighbour(5, "192.0.2.11"));
        let (fib, _) = build(&kernel);
        let hop = fib.hop(fib.lookup(ip("192.0.2.11")).unwrap()).unwrap();
        assert_eq!((hop.port, hop.vlan), (PORT, 12));
    }
}
