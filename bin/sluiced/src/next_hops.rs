//! From the kernel's tables to the path's: links, routes, neighbours, and which neighbours are to
//! be kept fresh.

use sluice_director::fib::{Fib, FibBuilder, Link, LinkId, PortId, Target};
use sluice_director::plan::Plan;
use sluice_linux::{Kernel, RouteKind, RouteResult, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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
            let target = match route.kind {
                RouteKind::Unicast => unicast(route, &links),
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
                .filter_map(|link| link.vlan.map(|vlan| (link, vlan.id)));
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

/// Of several next hops the first that is on a port of the director.
fn unicast(route: &sluice_linux::Route, links: &BTreeMap<u32, LinkId>) -> Target {
    let hop = route.hops.iter().find_map(|hop| links.get(&hop.ifindex).map(|link| (hop, *link)));
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
