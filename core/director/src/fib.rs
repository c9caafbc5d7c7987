//! Where packets go: the routes, the neighbours and the links of the kernel, compiled for the path.
//!
//! A next hop is a small number that leads to everything a frame needs to leave: port, MAC
//! addresses, VLAN tag, MTU. Sessions keep the number of the hop towards their client together
//! with the table's generation; the generation changes when a number may have become wrong (a
//! route changed, a neighbour went), not when a neighbour merely got another MAC.

pub mod macs;
pub(crate) mod ranges;

use crate::plan::{Plan, Real, RealId};
use bytemuck::{Pod, Zeroable};
use macs::OwnMacs;
use ranges::Ranges;
use rustc_hash::FxHashMap;
use sluice_wire::ethernet::Mac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Index of a `[[port]]`, in the configuration's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub struct PortId(pub u16);

/// Index of a link: a port, or a VLAN on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u16);

/// Index of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HopId(pub u16);

impl HopId {
    /// No hop, or one whose MAC is not known.
    pub const NONE: Self = Self(u16::MAX);
}

/// A port, or a VLAN on it, as the kernel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The port that its frames leave by.
    pub port: PortId,
    /// Its MAC address: the source of its frames.
    pub mac: Mac,
    /// Its 802.1Q VLAN, 1 to 4094; 0 for untagged.
    pub vlan: u16,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// The interface's own IPv4 address: the source of ICMP errors to what it received.
    pub v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub v6: Option<Ipv6Addr>,
}

/// All that a frame needs to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(32))]
pub struct Hop {
    /// Destination and source MAC, as they lie in a frame.
    pub macs: [Mac; 2],
    /// Port to leave by.
    pub port: PortId,
    /// 802.1Q VLAN; 0 for untagged.
    pub vlan: u16,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    rest: [u16; 7],
}

impl Hop {
    /// Four words: the last two of the MAC addresses, the port and above it the VLAN, the MTU.
    #[inline(always)]
    pub(crate) fn row(&self) -> &[u8; 16] {
        bytemuck::bytes_of(self)[4..].first_chunk().unwrap_or(&[0; 16])
    }
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a gateway on a link.
    Via(LinkId, IpAddr),
    /// To the destination itself, on a link.
    OnLink(LinkId),
    /// Nowhere (blackhole, unreachable, prohibit, or a link that is no port of the director).
    Nowhere,
}

/// Why there is no hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHop {
    /// No route, or one that leads nowhere.
    NoRoute,
    /// The neighbour's MAC is not known (yet).
    Unresolved(LinkId, IpAddr),
}

/// Where a route leads, and the hop to its gateway if it has one whose MAC is known.
type Way = (Target, HopId);

/// The routes and neighbours, compiled.
#[derive(Clone, Debug, Default)]
pub struct Fib {
    generation: u16,
    links: Vec<Link>,
    hops: Vec<Hop>,
    hop_of: FxHashMap<(LinkId, IpAddr), HopId>,
    routes: Vec<(IpAddr, u8, Target)>,
    v4: Ranges<u32, Way>,
    v6: Ranges<u128, Way>,
    real_hops: Vec<HopId>,
    /// By port.
    own_macs: Vec<OwnMacs>,
}

impl Fib {
    /// Changes when hop numbers may have become wrong.
    #[inline(always)]
    pub const fn generation(&self) -> u16 {
        self.generation
    }

    /// All hops, by their numbers.
    #[inline(always)]
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// A hop by its number.
    #[inline(always)]
    pub fn hop(&self, id: HopId) -> Option<&Hop> {
        self.hops.get(usize::from(id.0))
    }

    /// The hops towards all real servers, by their ids.
    #[inline(always)]
    pub(crate) fn real_hops(&self) -> &[HopId] {
        &self.real_hops
    }

    /// The hop towards a real server, or [`HopId::NONE`].
    #[inline(always)]
    pub fn real_hop(&self, real: RealId) -> HopId {
        self.real_hops.get(real.0 as usize).copied().unwrap_or(HopId::NONE)
    }

    /// The addresses that a port takes frames for.
    #[inline(always)]
    pub(crate) fn own_macs(&self, port: PortId) -> &OwnMacs {
        self.own_macs.get(usize::from(port.0)).unwrap_or(&OwnMacs::ANY)
    }

    /// A link by its number.
    pub fn link(&self, id: LinkId) -> Option<&Link> {
        self.links.get(usize::from(id.0))
    }

    /// The ports that have links, each with the addresses that it takes frames for; none where it
    /// takes what is to any single receiver.
    pub fn all_own_macs(&self) -> Vec<(PortId, Vec<Mac>)> {
        let mut ports: Vec<PortId> = self.links.iter().map(|link| link.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().map(|port| (port, self.own_macs(port).all())).collect()
    }

    /// The hop towards an address: longest prefix, then the neighbour.
    pub fn lookup(&self, to: IpAddr) -> Result<HopId, NoHop> {
        let way = match to {
            IpAddr::V4(v4) => self.v4.get(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.get(v6.to_bits()),
        };
        self.hop_by(way, to)
    }

    /// The same, sooner if it goes the way of the last one: `near` is what was found for that.
    #[inline(always)]
    pub(crate) fn lookup_near(&self, to: IpAddr, near: &mut u32) -> Result<HopId, NoHop> {
        let way = match to {
            IpAddr::V4(v4) => self.v4.get_near(v4.to_bits(), near),
            IpAddr::V6(v6) => self.v6.get_near(v6.to_bits(), near),
        };
        match way {
            Some((Target::Via(..), hop)) if *hop != HopId::NONE => Ok(*hop),
            _ => self.hop_by(way, to),
        }
    }

    fn hop_by(&self, way: Option<&Way>, to: IpAddr) -> Result<HopId, NoHop> {
        match way {
            Some((Target::Via(link, gateway), HopId::NONE)) => {
                Err(NoHop::Unresolved(*link, *gateway))
            }
            Some((Target::Via(..), hop)) => Ok(*hop),
            Some((Target::OnLink(link), _)) => {
                self.neighbour(*link, to).ok_or(NoHop::Unresolved(*link, to))
            }
            Some((Target::Nowhere, _)) | None => Err(NoHop::NoRoute),
        }
    }

    /// The largest IP packet in bytes that may go where [`Self::lookup`] says, whether the
    /// neighbour is known or not; `None` without a route.
    pub(crate) fn mtu(&self, found: Result<HopId, NoHop>) -> Option<u16> {
        match found {
            Ok(id) => self.hop(id).map(|hop| hop.mtu),
            Err(NoHop::Unresolved(link, _)) => self.link(link).map(|link| link.mtu),
            Err(NoHop::NoRoute) => None,
        }
    }

    /// Whether an address is an interface's own.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.links.iter().any(|link| match address {
            IpAddr::V4(v4) => link.v4 == Some(v4),
            IpAddr::V6(v6) => link.v6 == Some(v6),
        })
    }

    /// The link that frames of a port and a VLAN (0: untagged) come in by.
    pub fn link_of(&self, port: PortId, vlan: u16) -> Option<&Link> {
        self.links.iter().find(|link| (link.port, link.vlan) == (port, vlan))
    }

    /// All neighbours whose MAC is known, and the hops to them, in no order.
    pub fn neighbours(&self) -> impl Iterator<Item = (IpAddr, &Hop)> {
        self.hop_of.iter().filter_map(|((_, address), id)| Some((*address, self.hop(*id)?)))
    }

    /// The hop to a neighbour whose MAC is known.
    pub fn neighbour(&self, link: LinkId, next: IpAddr) -> Option<HopId> {
        self.hop_of.get(&(link, next)).copied()
    }
}

/// Collects links, routes and neighbours and compiles them.
#[derive(Clone, Debug, Default)]
pub struct FibBuilder {
    links: Vec<Link>,
    routes: Vec<(IpAddr, u8, Target)>,
    neighbours: Vec<(LinkId, IpAddr, Mac)>,
    own_macs: Vec<(PortId, Mac)>,
}

impl FibBuilder {
    /// Adds a link; its number counts from 0 in the order of the calls.
    pub fn link(&mut self, link: Link) -> LinkId {
        self.links.push(link);
        LinkId((self.links.len() - 1) as u16)
    }

    /// Adds a route; of two for one prefix the first counts.
    pub fn route(&mut self, prefix: IpAddr, len: u8, target: Target) {
        self.routes.push((prefix, len, target));
    }

    /// Adds a neighbour whose MAC is known.
    pub fn neighbour(&mut self, link: LinkId, address: IpAddr, mac: Mac) {
        self.neighbours.push((link, address, mac));
    }

    /// Adds an address that a port takes frames for: what is to any other single receiver it drops.
    /// A port that none is added for takes them all.
    pub fn own_mac(&mut self, port: PortId, mac: Mac) {
        self.own_macs.push((port, mac));
    }

    /// Compiles. Hops that `before` also has keep their numbers as long as nothing else that
    /// sessions rely on has changed; otherwise the generation does.
    pub fn build(self, plan: &Plan, before: Option<&Fib>) -> Fib {
        let empty = Fib::default();
        let before = before.unwrap_or(&empty);
        let has = |key: &(LinkId, IpAddr)| self.neighbours.iter().any(|n| (n.0, n.1) == *key);
        // A quadratic look is fine for few, a set is needed for many.
        let place = |link: &Link| (link.port, link.vlan);
        let stable = before.routes == self.routes
            && before.links.iter().map(place).eq(self.links.iter().map(place))
            && if self.neighbours.len() < 32 {
                before.hop_of.keys().all(has)
            } else {
                let now: std::collections::HashSet<_> =
                    self.neighbours.iter().map(|n| (n.0, n.1)).collect();
                before.hop_of.keys().all(|key| now.contains(key))
            };
        let ports = self.own_macs.iter().map(|(port, _)| port.0 + 1).max().unwrap_or_default();
        let mut fib = Fib {
            own_macs: (0..ports).map(|port| OwnMacs::of(PortId(port), &self.own_macs)).collect(),
            // Zero is none: no session's hop is of it.
            generation: before.generation.wrapping_add(u16::from(!stable)).max(1),
            links: self.links,
            routes: self.routes,
            ..Fib::default()
        };
        if stable {
            fib.hops.clone_from(&before.hops);
            fib.hop_of.clone_from(&before.hop_of);
        }
        for (link, address, mac) in self.neighbours {
            fib.add_hop(link, address, mac);
        }
        let ways: Vec<_> =
            fib.routes.iter().map(|route| (route.0, route.1, fib.way(route.2))).collect();
        fib.v4 = Ranges::of(ways.iter().filter_map(|(prefix, len, way)| match prefix {
            IpAddr::V4(v4) => Some((v4.to_bits(), *len, *way)),
            IpAddr::V6(_) => None,
        }));
        fib.v6 = Ranges::of(ways.iter().filter_map(|(prefix, len, way)| match prefix {
            IpAddr::V6(v6) => Some((v6.to_bits(), *len, *way)),
            IpAddr::V4(_) => None,
        }));
        fib.real_hops = plan.reals.iter().map(|real| fib.hop_of_real(real)).collect();
        fib
    }
}

impl Fib {
    fn way(&self, target: Target) -> Way {
        let hop = match target {
            Target::Via(link, gateway) => self.neighbour(link, gateway).unwrap_or(HopId::NONE),
            Target::OnLink(_) | Target::Nowhere => HopId::NONE,
        };
        (target, hop)
    }

    fn hop_of_real(&self, real: &Real) -> HopId {
        // The one that stands for the outside has as many as there are destinations.
        if real.forwarding.has_remote() {
            return HopId::NONE;
        }
        self.lookup(real.address).unwrap_or(HopId::NONE)
    }

    fn add_hop(&mut self, link_id: LinkId, address: IpAddr, mac: Mac) {
        let Some(link) = self.links.get(usize::from(link_id.0)) else { return };
        let Link { port, vlan, mtu, .. } = *link;
        let hop = Hop { macs: [mac, link.mac], port, vlan, mtu, rest: [0; 7] };
        if let Some(known) = self.hop_of.get(&(link_id, address)) {
            self.hops[usize::from(known.0)] = hop;
        } else if self.hops.len() < usize::from(HopId::NONE.0) {
            self.hop_of.insert((link_id, address), HopId(self.hops.len() as u16));
            self.hops.push(hop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn builder() -> FibBuilder {
        let mut b = FibBuilder::default();
        let front =
            b.link(Link { port: PortId(0), mac: [2; 6], vlan: 0, mtu: 1500, ..Link::default() });
        let back =
            b.link(Link { port: PortId(1), mac: [4; 6], vlan: 7, mtu: 9000, ..Link::default() });
        b.route(ip("0.0.0.0"), 0, Target::Via(front, ip("198.51.100.1")));
        b.route(ip("192.0.2.0"), 24, Target::OnLink(back));
        b.route(ip("203.0.113.0"), 24, Target::Nowhere);
        b.route(ip("2001:db8:2::"), 64, Target::OnLink(back));
        b.route(ip("2001:db8:9::"), 48, Target::Via(front, ip("fe80::1")));
        b.neighbour(back, ip("2001:db8:2::11"), [8; 6]);
        b.neighbour(front, ip("198.51.100.1"), [6; 6]);
        b.neighbour(back, ip("192.0.2.11"), [8; 6]);
        b
    }

    #[test]
    fn the_longest_prefix_and_then_the_neighbour() {
        let fib = builder().build(&Plan::default(), None);
        let via = fib.lookup(ip("10.1.2.3")).unwrap();
        assert_eq!(fib.hop(via).unwrap().macs[0], [6; 6]);
        let direct = fib.hop(fib.lookup(ip("192.0.2.11")).unwrap()).unwrap();
        assert_eq!((direct.port, direct.vlan, direct.mtu), (PortId(1), 7, 9000));
        let other = ip("192.0.2.12");
        assert_eq!(fib.lookup(other), Err(NoHop::Unresolved(LinkId(1), other)));
        assert_eq!(fib.lookup(ip("203.0.113.9")), Err(NoHop::NoRoute));
        assert_eq!(fib.lookup(ip("2001:db8::1")), Err(NoHop::NoRoute));
        let six = fib.hop(fib.lookup(ip("2001:db8:2::11")).unwrap()).unwrap();
        assert_eq!(six.macs[0], [8; 6]);
        let via = fib.lookup(ip("2001:db8:9::1"));
        assert_eq!(via, Err(NoHop::Unresolved(LinkId(0), ip("fe80::1"))));
    }

    #[test]
    fn numbers_hold_until_a_route_or_neighbour_goes() {
        let first = builder().build(&Plan::default(), None);
        let id = first.lookup(ip("192.0.2.11")).unwrap();
        let mut more = builder();
        more.neighbour(LinkId(1), ip("192.0.2.12"), [9; 6]);
        more.neighbours[2].2 = [7; 6];
        let second = more.build(&Plan::default(), Some(&first));
        assert_eq!(second.generation(), first.generation());
        assert_eq!(second.lookup(ip("192.0.2.11")), Ok(id));
        assert_eq!(second.hop(id).unwrap().macs[0], [7; 6]);
        let third = builder().build(&Plan::default(), Some(&second));
        assert_ne!(third.generation(), second.generation());
        let mut renumbered = builder();
        renumbered.links.insert(0, Link { port: PortId(9), ..renumbered.links[0] });
        let other = renumbered.build(&Plan::default(), Some(&third));
        assert_ne!(other.generation(), third.generation());
        let mut rerouted = builder();
        rerouted.route(ip("100.64.0.0"), 10, Target::OnLink(LinkId(0)));
        let fourth = rerouted.build(&Plan::default(), Some(&third));
        assert_ne!(fourth.generation(), third.generation());
    }
}
