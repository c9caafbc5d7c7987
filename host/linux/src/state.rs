//! The mirrored state in plain types, and what changed in it.
//!
//! Invariants: a prefix is stored masked to its length; the routes of one prefix are ordered as
//! the kernel tries them (lowest metric first, then the kernel's own order); a link, an address
//! and a neighbour exist once per key. Ordered maps, because the state is read far more often by
//! people and tests than it is searched: the packet path has its own table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::fdb::{FdbEntry, FdbKey};
use crate::nexthop::Object;
use crate::vxlan::Vxlan;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's index; never reused for a different interface while this one lives.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; `None` for interfaces without one. Loopback has all zeros.
    pub mac: Option<[u8; 6]>,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Set up by the administrator (`IFF_UP`).
    pub admin_up: bool,
    /// The layer below is up (`IFF_LOWER_UP`: a carrier, an open TAP, a veth peer that is up).
    pub carrier: bool,
    /// `veth`, `vlan`, `bridge`, `tun`…; `None` for hardware and loopback.
    pub kind: Option<String>,
    /// Index of the interface below, for interfaces stacked on another one in the same network
    /// namespace (not the peer of a veth pair).
    pub parent: Option<u32>,
    /// The tag of a VLAN sub-interface.
    pub vlan: Option<Vlan>,
    /// The routing table of a VRF device: that of its own and of every link whose `master` it is.
    pub vrf_table: Option<u32>,
    /// What a VXLAN device wraps frames in. `None` also for one that was moved here from another
    /// network namespace, where its packets leave. The kernel announces a changed description of
    /// a device that is down only when it is set up.
    pub vxlan: Option<Vxlan>,
    /// Index of the bridge or bond it is enslaved to.
    pub master: Option<u32>,
    /// Receive queues that are allocated; how many are in use: [`crate::rx_queue_count`].
    pub num_rx_queues: Option<u32>,
    /// Whether it is a loopback interface.
    pub loopback: bool,
}

impl Link {
    /// Whether it can carry packets: set up, and the layer below is up.
    pub fn is_up(&self) -> bool {
        self.admin_up && self.carrier
    }
}

/// The tag of a VLAN sub-interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vlan {
    /// VLAN identifier, 0 to 4095.
    pub id: u16,
    /// EtherType of the tag: 0x8100 (IEEE 802.1Q) or 0x88a8 (802.1ad).
    pub ethertype: u16,
}

/// An address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The link.
    pub ifindex: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of the connected prefix.
    pub prefix_len: u8,
    /// The far end, on a point-to-point address.
    pub peer: Option<IpAddr>,
    /// IPv6 only: duplicate address detection has not finished, or found a duplicate, so the
    /// kernel does not answer for it (RFC 4862 5.4).
    pub tentative: bool,
}

/// Which routing table a route is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Table 254, looked up first.
    Main,
    /// Table 253, looked up when `main` has no answer.
    Default,
    /// Another one by its number, never 0 or one of 253 to 255: of a VRF, or for what a rule
    /// sends there. Mirrored when it is named ([`crate::Mirror::follow_tables`]).
    Other(u32),
}

impl Table {
    /// The table with a number; `None` for 0, which stands for no table, and for `local`, which
    /// is the addresses.
    pub fn of(number: u32) -> Option<Self> {
        const LOCAL: u32 = libc::RT_TABLE_LOCAL as u32;
        const MAIN: u32 = libc::RT_TABLE_MAIN as u32;
        const DEFAULT: u32 = libc::RT_TABLE_DEFAULT as u32;
        match number {
            0 | LOCAL => None,
            MAIN => Some(Self::Main),
            DEFAULT => Some(Self::Default),
            other => Some(Self::Other(other)),
        }
    }
}

/// What a route does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Sends it to a next hop.
    Unicast,
    /// Drops it in silence.
    Blackhole,
    /// Drops it with ICMP host unreachable.
    Unreachable,
    /// Drops it with ICMP administratively prohibited.
    Prohibit,
    /// Ends the lookup in this table; the next table is asked.
    Throw,
    /// Sends it in a way that only the kernel can (a lightweight tunnel, a next-hop object the
    /// mirror does not understand). The director must leave such packets alone.
    Foreign,
}

/// One next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The router, which may be IPv6 for an IPv4 route (RFC 8950); `None` when the destination
    /// itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The link it goes out of.
    pub ifindex: u32,
    /// Its share among the next hops of the route, 1 to 65,536.
    pub weight: u32,
    /// The gateway is on the link although no connected prefix covers it.
    pub onlink: bool,
}

/// A route of a table that is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Network address; bits beyond `prefix_len` are zero.
    pub prefix: IpAddr,
    /// 0 to 32 or 128.
    pub prefix_len: u8,
    /// Its table.
    pub table: Table,
    /// The kernel's priority: the lowest wins among routes of one prefix.
    pub metric: u32,
    /// What it does.
    pub kind: RouteKind,
    /// Its next hops, for [`RouteKind::Unicast`] at least one.
    pub hops: Vec<NextHop>,
    /// The preferred source address, if it has one.
    pub source: Option<IpAddr>,
    /// The next-hop object it refers to (`ip nexthop`); `hops` is what that object says.
    pub nexthop_id: Option<u32>,
    /// Who made it (`RTPROT_*`): 2 the kernel, 3 boot, 4 static, 12 BIRD, 186 BGP of FRR…
    pub protocol: u8,
}

/// The kernel's state of a neighbour (RFC 4861 7.3.2, used for ARP alike).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NeighbourState {
    /// Nothing known, nothing asked.
    None,
    /// Asked, not answered yet.
    Incomplete,
    /// Confirmed lately.
    Reachable,
    /// Not confirmed lately; usable.
    Stale,
    /// In use while stale, about to be asked; usable.
    Delay,
    /// Being asked again; usable.
    Probe,
    /// Did not answer.
    Failed,
    /// Needs no resolution.
    NoArp,
    /// Set by the administrator.
    Permanent,
}

impl NeighbourState {
    /// Whether the kernel would send to it (its `NUD_VALID`).
    pub fn is_usable(self) -> bool {
        !matches!(self, Self::None | Self::Incomplete | Self::Failed)
    }
}

/// A neighbour on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The link.
    pub ifindex: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its Ethernet address, if known.
    pub mac: Option<[u8; 6]>,
    /// What the kernel thinks of it. May lag: the kernel does not announce every step between
    /// usable states.
    pub state: NeighbourState,
}

impl Neighbour {
    /// The Ethernet address to send to; `None` while unresolved or failed.
    pub fn usable_mac(&self) -> Option<[u8; 6]> {
        self.mac.filter(|_| self.state.is_usable())
    }
}

/// Which kinds of state changed in effect. A neighbour that went from reachable to stale with the
/// same address, or an address whose lifetime was extended, is no change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// A link came, went, or has another name, address, MTU or state.
    pub links: bool,
    /// An address came, went, or became usable.
    pub addresses: bool,
    /// A route came, went, or has other next hops.
    pub routes: bool,
    /// A neighbour became usable or unusable, or has another Ethernet address.
    pub neighbours: bool,
    /// A forwarding entry of a VXLAN device came, went, or leads elsewhere.
    pub fdb: bool,
    /// Notifications were lost and everything was read afresh.
    pub overrun: bool,
}

impl Changed {
    /// Whether any kind of state changed.
    pub fn any(self) -> bool {
        self.links || self.addresses || self.routes || self.neighbours || self.fdb
    }
}

impl std::ops::BitOrAssign for Changed {
    fn bitor_assign(&mut self, other: Self) {
        self.links |= other.links;
        self.addresses |= other.addresses;
        self.routes |= other.routes;
        self.neighbours |= other.neighbours;
        self.fdb |= other.fdb;
        self.overrun |= other.overrun;
    }
}

/// Where a prefix's routes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RouteKey {
    pub table: Table,
    pub prefix_len: u8,
    pub prefix: IpAddr,
}

impl RouteKey {
    pub fn of(route: &Route) -> Self {
        Self { table: route.table, prefix_len: route.prefix_len, prefix: route.prefix }
    }
}

/// The mirrored state. Also built by hand, for tests and tools, with the `insert_` methods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) addresses: BTreeSet<Address>,
    pub(crate) routes: BTreeMap<RouteKey, Vec<Route>>,
    pub(crate) neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    pub(crate) fdb: BTreeMap<FdbKey, FdbEntry>,
    pub(crate) nexthops: BTreeMap<u32, Object>,
}

impl Kernel {
    /// All links, by index.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The link with an index.
    pub fn link(&self, ifindex: u32) -> Option<&Link> {
        self.links.get(&ifindex)
    }

    /// The link with a name.
    pub fn link_by_name(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// All addresses, by link.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter()
    }

    /// Whether an address is one of this machine's own, on a link that is set up.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.is_local_on(ip, |_| true)
    }

    /// Whether an address is one of this machine's own in a network that has its own links, which
    /// `is_of_network` tells by their indexes: other networks may use the address elsewhere. A
    /// loopback address is the machine's own in every network.
    pub fn is_local_on(&self, ip: IpAddr, is_of_network: impl Fn(u32) -> bool) -> bool {
        let is_up = |ifindex| self.link(ifindex).is_some_and(|link| link.admin_up);
        ip.is_loopback()
            || self.addresses.iter().any(|address| {
                address.ip == ip && is_of_network(address.ifindex) && is_up(address.ifindex)
            })
    }

    /// All routes: by table, prefix length, prefix, then in the order the kernel tries them.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.values().flatten()
    }

    /// The routes of one prefix in the order the kernel tries them.
    pub fn routes_of(&self, table: Table, prefix: IpAddr, prefix_len: u8) -> &[Route] {
        self.routes
            .get(&RouteKey { table, prefix_len, prefix: masked(prefix, prefix_len) })
            .map_or(&[], Vec::as_slice)
    }

    /// All neighbours, by link and address; also the failed ones.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.values()
    }

    /// What is known of one neighbour.
    pub fn neighbour(&self, ifindex: u32, ip: IpAddr) -> Option<&Neighbour> {
        self.neighbours.get(&(ifindex, ip))
    }

    /// Adds a link, or replaces the one with its index.
    pub fn insert_link(&mut self, link: Link) {
        self.links.insert(link.index, link);
    }

    /// Adds an address.
    pub fn insert_address(&mut self, address: Address) {
        self.addresses.insert(address);
    }

    /// Adds a route behind those of the same prefix and metric.
    pub fn insert_route(&mut self, mut route: Route) {
        route.prefix = masked(route.prefix, route.prefix_len);
        let routes = self.routes.entry(RouteKey::of(&route)).or_default();
        let at = routes.partition_point(|other| other.metric <= route.metric);
        routes.insert(at, route);
    }

    /// Adds a neighbour, or replaces the one with its link and address.
    pub fn insert_neighbour(&mut self, neighbour: Neighbour) {
        self.neighbours.insert((neighbour.ifindex, neighbour.ip), neighbour);
    }
}

/// An address with all bits beyond `prefix_len` cleared. A length beyond the address's own is
/// taken as its own.
pub(crate) fn masked(ip: IpAddr, prefix_len: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let kept = u32::MAX.checked_shl(32u32.saturating_sub(prefix_len.into())).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & kept).into())
        }
        IpAddr::V6(ip) => {
            let kept = u128::MAX.checked_shl(128u32.saturating_sub(prefix_len.into())).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & kept).into())
        }
    }
}
