//! From the kernel's tables to the path's: links, routes, neighbours, and which neighbours are to
//! be kept fresh.

use crate::tunnels;
use sluice_director::fib::{Fib, FibBuilder, Link, LinkId, PortId, Target};
use sluice_director::plan::Plan;
use sluice_linux::{Kernel, RouteKind, RouteResult, Table};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The tag that the path writes (IEEE 802.1Q). A link of service tags (802.1ad) is not the path's.
const CUSTOMER_VLAN: u16 = 0x8100;

/// The path's tables and how their links are called by the kernel.
#[derive(Debug, Default)]
pub struct NextHops {
    /// The kernel's interface of each link.
    ifindexes: Vec<u32>,
    /// Neighbours that the path needs: next hops of real servers, and gateways.
    wanted: BTreeSet<(u32, IpAddr)>,
    /// The machine's addresses that are balanced, with one of the same interface that is not.
    stand_ins: HashMap<IpAddr, IpAddr>,
    /// MTUs of links where these are below the interface's own, by its index.
    mtus: BTreeMap<u32, u16>,
}

/// Which of the kernel's tables and addresses are a network's.
#[derive(Clone, Debug)]
pub enum Scope {
    /// Those of the default network: the main and default tables, and all addresses but those of
    /// other networks' interfaces.
    Default {
        /// These.
        foreign: BTreeSet<u32>,
    },
    /// Those of an isolated network: the table with this number, and the addresses of its links.
    Table(u32),
}

impl Scope {
    /// Whether a route is one of the network's; and its place among those of its prefix.
    const fn rank(&self, table: Table) -> Option<u8> {
        match (self, table) {
            (Self::Default { .. }, Table::Main) => Some(0),
            (Self::Default { .. }, Table::Default) => Some(1),
            (Self::Table(own), Table::Other(number)) if *own == number => Some(0),
            _ => None,
        }
    }

    fn lookup(
        &self,
        kernel: &Kernel,
        address: IpAddr,
        links: &BTreeMap<u32, LinkId>,
    ) -> RouteResult {
        match *self {
            Self::Default { .. } => sluice_linux::lookup(kernel, address),
            Self::Table(number) => {
                let is_ours = |ifindex| links.contains_key(&ifindex);
                sluice_linux::lookup_in(kernel, Table::Other(number), address, is_ours)
            }
        }
    }

    /// Whether the addresses of an interface are the network's own.
    fn has(&self, ifindex: u32, links: &BTreeMap<u32, LinkId>) -> bool {
        match self {
            Self::Default { foreign } => !foreign.contains(&ifindex),
            Self::Table(_) => links.contains_key(&ifindex),
        }
    }
}

impl NextHops {
    /// Compiles the kernel's tables for a network. `interfaces` names the kernel interface of each
    /// of its ports, which carries addresses; VLANs on it are links of the same port. Of a VXLAN
    /// device in a bridge it is the bridge that carries them.
    pub fn build(
        &mut self,
        (kernel, scope): (&Kernel, &Scope),
        plan: &Plan,
        interfaces: &[(PortId, String)],
        before: &Fib,
    ) -> Fib {
        let mut builder = FibBuilder::default();
        let own = OwnAddresses::of(kernel, plan);
        let links = self.links(kernel, &own, interfaces, &mut builder);
        self.stand_ins = own.stand_ins(kernel, |ifindex| scope.has(ifindex, &links));
        crate::prober::route(plan, kernel, &links, &mut builder);
        // As in the kernel, what is to the machine itself is routed nowhere, whatever routes say.
        let own = kernel.addresses().filter(|own| scope.has(own.ifindex, &links));
        for own in own.filter(|own| !is_link_local(own.ip)) {
            builder.route(own.ip, if own.ip.is_ipv4() { 32 } else { 128 }, Target::Nowhere);
        }
        for route in sorted_routes(kernel, scope) {
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
        let gateways: BTreeSet<(u32, IpAddr)> = gateways(kernel).collect();
        for neighbour in kernel.neighbours() {
            // Of link-local neighbours only routers matter; others come and go without news for
            // any session.
            let place = (neighbour.ifindex, neighbour.ip);
            if is_link_local(neighbour.ip) && !gateways.contains(&place) {
                continue;
            }
            let link = links.get(&neighbour.ifindex);
            if let (Some(link), Some(mac)) = (link, neighbour.usable_mac()) {
                builder.neighbour(*link, neighbour.ip, mac);
            }
        }
        self.wanted = wanted((kernel, scope), plan, gateways, &links);
        builder.build(plan, Some(before))
    }

    fn links(
        &mut self,
        kernel: &Kernel,
        own: &OwnAddresses,
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
            own_macs(kernel, (*port, parent), builder);
            let face = tunnels::face(kernel, parent);
            let limit = self.mtus.get(&parent.index).copied();
            for (link, vlan) in std::iter::once((face, 0)).chain(vlans) {
                let (v4, v6) = own.on(link.index);
                let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
                let limit = if link.index == face.index { limit } else { None };
                let id = builder.link(Link {
                    port: *port,
                    mac: link.mac.unwrap_or_default(),
                    vlan,
                    mtu: limit.map_or(mtu, |limit| limit.min(mtu)),
                    v4,
                    v6,
                });
                links.insert(link.index, id);
                self.ifindexes.push(link.index);
            }
        }
        links
    }

    /// From the next build on these interfaces have these MTUs, by index.
    pub fn limit(&mut self, mtus: &BTreeMap<u32, u16>) {
        self.mtus.clone_from(mtus);
    }

    /// Has the neighbours kept fresh, too, by which these addresses of the default network are
    /// reached.
    pub fn want(&mut self, kernel: &Kernel, addresses: impl IntoIterator<Item = IpAddr>) {
        for address in addresses {
            let RouteResult::NextHops(targets) = sluice_linux::lookup(kernel, address) else {
                continue;
            };
            let targets = targets.into_iter().map(|target| (target.ifindex, target.ip));
            self.wanted.extend(targets.filter(|(ifindex, _)| self.ifindexes.contains(ifindex)));
        }
    }

    /// Whether one of the kernel's interfaces is a link.
    pub fn has(&self, ifindex: u32) -> bool {
        self.ifindexes.contains(&ifindex)
    }

    /// The kernel's interface of a link.
    pub fn ifindex(&self, link: LinkId) -> Option<u32> {
        self.ifindexes.get(usize::from(link.0)).copied()
    }

    /// What the machine may say in place of its virtual, local and probes' addresses.
    pub const fn stand_ins(&self) -> &HashMap<IpAddr, IpAddr> {
        &self.stand_ins
    }

    /// Neighbours that the path needs, by the kernel's interface.
    pub fn wanted(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.wanted.iter().copied()
    }
}

/// The link-layer addresses that a port takes frames for: its interface's, those of the bond or
/// bridge that this one is part of, and those of VLANs and of MACVLANs on it (VRRP's virtual ones
/// are such).
fn own_macs(
    kernel: &Kernel,
    (port, parent): (PortId, &sluice_linux::Link),
    builder: &mut FibBuilder,
) {
    let is_on = |link: &sluice_linux::Link, below: u32| {
        let stacked = link.vlan.is_some()
            || matches!(link.kind.as_deref(), Some("macvlan" | "macvtap" | "ipvlan"));
        stacked && link.parent == Some(below)
    };
    let above = || kernel.links().filter(|link| is_on(link, parent.index));
    let further = kernel
        .links()
        .filter(|link| above().any(|vlan| vlan.vlan.is_some() && is_on(link, vlan.index)));
    let master = parent.master.and_then(|index| kernel.link(index));
    let own = std::iter::once(parent).chain(master);
    for mac in own.chain(above()).chain(further).filter_map(|link| link.mac) {
        if mac != [0; 6] {
            builder.own_mac(port, mac);
        }
    }
}

/// The address of each interface that answers in its name, as the source of ICMP errors: of its
/// addresses in use the one with the widest network around it, which a virtual or local address
/// is only if there is no other.
struct OwnAddresses {
    best: BTreeMap<(u32, bool), (bool, u8, IpAddr)>,
    balanced: BTreeSet<IpAddr>,
}

impl OwnAddresses {
    fn of(kernel: &Kernel, plan: &Plan) -> Self {
        let vips = plan.live_services().map(|(_, service)| service.vip);
        let probes = plan.probes_from.into_iter().flatten();
        let balanced: BTreeSet<IpAddr> =
            vips.chain(plan.locals.iter().copied()).chain(probes).collect();
        let mut best = BTreeMap::new();
        for address in kernel.addresses() {
            if address.tentative || is_link_local(address.ip) || address.ip.is_loopback() {
                continue;
            }
            let rank = (balanced.contains(&address.ip), address.prefix_len, address.ip);
            let known = best.entry((address.ifindex, address.ip.is_ipv6())).or_insert(rank);
            *known = rank.min(*known);
        }
        Self { best, balanced }
    }

    /// For each address of the network's links that is balanced the interface's own, if it has
    /// one.
    fn stand_ins(
        &self,
        kernel: &Kernel,
        is_of_network: impl Fn(u32) -> bool,
    ) -> HashMap<IpAddr, IpAddr> {
        let balanced = kernel.addresses().filter(|address| self.balanced.contains(&address.ip));
        let balanced = balanced.filter(|address| is_of_network(address.ifindex));
        let own = balanced.filter_map(|address| {
            let place = (address.ifindex, address.ip.is_ipv6());
            let (is_balanced, _, own) = *self.best.get(&place)?;
            (!is_balanced).then_some((address.ip, own))
        });
        own.collect()
    }

    fn on(&self, ifindex: u32) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let of = |v6| self.best.get(&(ifindex, v6)).map(|(_, _, ip)| *ip);
        let v4 = of(false).and_then(|ip| match ip {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        });
        let v6 = of(true).and_then(|ip| match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(v6),
        });
        (v4, v6)
    }
}

/// Whether an address means something on its link only (RFC 3927, RFC 4291 2.5.6).
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Routes of a network's tables, those that count first. Nothing is forwarded to link-local
/// addresses, and each link has a route of its own for the same ones.
fn sorted_routes<'a>(kernel: &'a Kernel, scope: &Scope) -> Vec<&'a sluice_linux::Route> {
    let mut routes: Vec<_> = kernel
        .routes()
        .filter(|route| scope.rank(route.table).is_some())
        .filter(|route| !is_link_local(route.prefix))
        .collect();
    routes.sort_by_key(|route| (scope.rank(route.table), route.metric));
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

/// The routers of all routes, with their links. Those of IPv6 are link-local as a rule, those of
/// IPv4 may be of IPv6 (RFC 8950).
fn gateways(kernel: &Kernel) -> impl Iterator<Item = (u32, IpAddr)> {
    kernel.routes().flat_map(|route| {
        route.hops.iter().filter_map(|hop| hop.gateway.map(|gateway| (hop.ifindex, gateway)))
    })
}

fn wanted(
    (kernel, scope): (&Kernel, &Scope),
    plan: &Plan,
    gateways: BTreeSet<(u32, IpAddr)>,
    links: &BTreeMap<u32, LinkId>,
) -> BTreeSet<(u32, IpAddr)> {
    let reals = plan.reals.iter().filter(|real| real.live).map(|real| real.address);
    let to_reals = reals.collect::<BTreeSet<_>>().into_iter().flat_map(|address| {
        match scope.lookup(kernel, address, links) {
            RouteResult::NextHops(targets) => {
                targets.into_iter().map(|target| (target.ifindex, target.ip)).collect()
            }
            _ => Vec::new(),
        }
    });
    to_reals.chain(gateways).filter(|(ifindex, _)| links.contains_key(ifindex)).collect()
}

#[cfg(test)]
mod tests;
