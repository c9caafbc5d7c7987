//! The kernel's tables as a person asks for them: once, in full, in the kernel's order.
//!
//! Beside the mirror (`state.rs`), which keeps what packets need, because what is shown to people
//! has more to it (scopes, lifetimes, who made a route) and no life beyond the answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_sys::protocols::NETLINK_ROUTE;

use crate::attributes::{
    Attributes, Message, Request, attributes_after, ip, mac, text, u8_at, u16_at, u16_be_at, u32_at,
};
use crate::error::Error;
use crate::event::{ADDRESS_HEADER_LEN, LINK_HEADER_LEN, NEIGHBOUR_HEADER_LEN};
use crate::event_route::ROUTE_HEADER_LEN;
use crate::request::{Dump, Requester};
use crate::state::Vlan;
use crate::tunnel::Tunnel;
use crate::uapi;

/// How often a table is read that changes meanwhile, before what came is shown.
const ATTEMPTS: usize = 8;

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedAddress {
    /// Its link.
    pub ifindex: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of the connected prefix.
    pub prefix_len: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// Seconds that it is still valid; for ever without.
    pub valid_s: Option<u32>,
    /// Seconds that it is still preferred; for ever without.
    pub preferred_s: Option<u32>,
}

/// A route's next hop, of the tables `main` and `local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRoute {
    /// First address of the destinations.
    pub prefix: IpAddr,
    /// Length of their prefix.
    pub prefix_len: u8,
    /// Whether it leads to this machine itself.
    pub local: bool,
    /// The next hop.
    pub via: Option<IpAddr>,
    /// Source address of this machine's own packets.
    pub source: Option<IpAddr>,
    /// The link; 0 for none.
    pub ifindex: u32,
    /// MTU in bytes, where the route has one of its own.
    pub mtu: Option<u32>,
    /// Type of service.
    pub tos: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// Of several routes to a prefix the one with the least counts.
    pub metric: u32,
    /// `RTPROT_*`: who made it.
    pub protocol: u8,
}

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedNeighbour {
    /// Its link.
    pub ifindex: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its MAC address, where it is known.
    pub mac: Option<[u8; 6]>,
    /// `NUD_*`.
    pub state: u16,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedLink {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `IFF_*`.
    pub flags: u32,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// Receive queues that are allocated.
    pub rx_queues: u32,
    /// Transmit queues that are allocated.
    pub tx_queues: u32,
    /// `veth`, `vlan`, …; `None` for hardware and loopback.
    pub kind: Option<String>,
    /// Index of the interface below.
    pub parent: Option<u32>,
    /// The tag of a VLAN sub-interface.
    pub vlan: Option<Vlan>,
    /// What a tunnel over IPv4 is like.
    pub tunnel: Option<Tunnel>,
    /// How often the kernel was asked for promiscuity.
    pub promiscuity: u32,
}

/// Reads tables, for the network namespace of the thread that opened it. Needs no privilege.
#[derive(Debug)]
pub struct Listing {
    requester: Requester,
}

impl Listing {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { requester: Requester::open(NETLINK_ROUTE)? })
    }

    /// All links.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn links(&mut self) -> Result<Vec<ListedLink>, Error> {
        self.read(libc::RTM_GETLINK, LINK_HEADER_LEN, "list links", |message| {
            link(message).into_iter().collect()
        })
    }

    /// All addresses.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn addresses(&mut self) -> Result<Vec<ListedAddress>, Error> {
        self.read(libc::RTM_GETADDR, ADDRESS_HEADER_LEN, "list addresses", |message| {
            address(message).into_iter().collect()
        })
    }

    /// All routes that lead somewhere, one entry for each next hop.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn routes(&mut self) -> Result<Vec<ListedRoute>, Error> {
        self.read(libc::RTM_GETROUTE, ROUTE_HEADER_LEN, "list routes", |message| {
            route(message).unwrap_or_default()
        })
    }

    /// All neighbours but those of interfaces that need none.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn neighbours(&mut self) -> Result<Vec<ListedNeighbour>, Error> {
        self.read(libc::RTM_GETNEIGH, NEIGHBOUR_HEADER_LEN, "list neighbours", |message| {
            neighbour(message).into_iter().collect()
        })
    }

    fn read<T>(
        &mut self,
        kind: u16,
        header_len: usize,
        action: &str,
        decode: impl Fn(Message<'_>) -> Vec<T>,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for _ in 0..ATTEMPTS {
            all.clear();
            let request = Request::new(kind, libc::NLM_F_DUMP, &vec![0; header_len]);
            let seen = |message: Message<'_>| all.extend(decode(message));
            if self.requester.dump(request, action, seen)? == Dump::Whole {
                break;
            }
        }
        Ok(all)
    }
}

pub(crate) fn link(message: Message<'_>) -> Option<ListedLink> {
    let body = message.body;
    let mut link =
        ListedLink { index: u32_at(body, 4)?, flags: u32_at(body, 8)?, ..ListedLink::default() };
    for (kind, value) in attributes_after(body, LINK_HEADER_LEN) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value)?,
            libc::IFLA_ADDRESS => link.mac = mac(value),
            libc::IFLA_MTU => link.mtu = u32_at(value, 0)?,
            libc::IFLA_LINK => link.parent = u32_at(value, 0).filter(|&index| index != 0),
            libc::IFLA_NUM_RX_QUEUES => link.rx_queues = u32_at(value, 0)?,
            libc::IFLA_NUM_TX_QUEUES => link.tx_queues = u32_at(value, 0)?,
            libc::IFLA_PROMISCUITY => link.promiscuity = u32_at(value, 0)?,
            libc::IFLA_LINKINFO => link_info(value, &mut link),
            _ => {}
        }
    }
    Some(link).filter(|link| !link.name.is_empty())
}

fn link_info(value: &[u8], link: &mut ListedLink) {
    let inside = |wanted: u16| Attributes(value).find(|&(kind, _)| kind == wanted);
    link.kind = inside(libc::IFLA_INFO_KIND).and_then(|(_, value)| text(value));
    let (Some(kind), Some((_, data))) = (&link.kind, inside(libc::IFLA_INFO_DATA)) else { return };
    link.tunnel = Tunnel::read(kind, data);
    if kind != "vlan" {
        return;
    }
    let find = |wanted: u16| Attributes(data).find(|&(kind, _)| kind == wanted);
    let id = find(uapi::IFLA_VLAN_ID).and_then(|(_, value)| u16_at(value, 0));
    let ethertype = find(uapi::IFLA_VLAN_PROTOCOL).and_then(|(_, value)| u16_be_at(value, 0));
    link.vlan = id.map(|id| Vlan { id, ethertype: ethertype.unwrap_or(0x8100) });
}

fn address(message: Message<'_>) -> Option<ListedAddress> {
    let body = message.body;
    let (mut local, mut far) = (None, None);
    let (mut valid_s, mut preferred_s) = (None, None);
    for (kind, value) in attributes_after(body, ADDRESS_HEADER_LEN) {
        match kind {
            libc::IFA_LOCAL => local = ip(value),
            libc::IFA_ADDRESS => far = ip(value),
            libc::IFA_CACHEINFO => {
                let life = |at| u32_at(value, at).filter(|&seconds| seconds != u32::MAX);
                (preferred_s, valid_s) = (life(0), life(4));
            }
            _ => {}
        }
    }
    Some(ListedAddress {
        ifindex: u32_at(body, 4)?,
        ip: local.or(far)?,
        prefix_len: u8_at(body, 1)?,
        scope: u8_at(body, 3)?,
        valid_s,
        preferred_s,
    })
}

fn route(message: Message<'_>) -> Option<Vec<ListedRoute>> {
    let body = message.body;
    let any: IpAddr = match i32::from(u8_at(body, 0)?) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut table = u32::from(u8_at(body, 4)?);
    let local = u8_at(body, 7)? == libc::RTN_LOCAL;
    let cloned = u32_at(body, 8)? & libc::RTM_F_CLONED != 0;
    if cloned || !local && u8_at(body, 7)? != libc::RTN_UNICAST {
        return None;
    }
    let mut route = ListedRoute {
        prefix: any,
        prefix_len: u8_at(body, 1)?,
        local,
        via: None,
        source: None,
        ifindex: 0,
        mtu: None,
        tos: u8_at(body, 3)?,
        scope: u8_at(body, 6)?,
        metric: 0,
        protocol: u8_at(body, 5)?,
    };
    let mut hops = None;
    for (kind, value) in attributes_after(body, ROUTE_HEADER_LEN) {
        match kind {
            libc::RTA_TABLE => table = u32_at(value, 0)?,
            libc::RTA_DST => route.prefix = ip(value)?,
            libc::RTA_GATEWAY => route.via = ip(value),
            libc::RTA_VIA => route.via = value.get(2..).and_then(ip),
            libc::RTA_PREFSRC => route.source = ip(value),
            libc::RTA_OIF => route.ifindex = u32_at(value, 0)?,
            libc::RTA_PRIORITY => route.metric = u32_at(value, 0)?,
            libc::RTA_METRICS => {
                let mtu = Attributes(value).find(|&(kind, _)| kind == uapi::RTAX_MTU);
                route.mtu = mtu.and_then(|(_, value)| u32_at(value, 0)).filter(|&mtu| mtu != 0);
            }
            libc::RTA_MULTIPATH => hops = Some(multipath(value, &route)),
            _ => {}
        }
    }
    let of_ours = [libc::RT_TABLE_MAIN, libc::RT_TABLE_LOCAL].map(u32::from).contains(&table);
    of_ours.then(|| hops.unwrap_or_else(|| vec![route]))
}

/// The next hops of a route with several: `rtnexthop`, then attributes, each behind the other.
fn multipath(mut value: &[u8], route: &ListedRoute) -> Vec<ListedRoute> {
    const HOP_HEADER_LEN: usize = 8;
    let mut hops = Vec::new();
    while let Some(len) = u16_at(value, 0).map(usize::from) {
        let (Some(hop), Some(ifindex)) = (value.get(..len), u32_at(value, 4)) else { break };
        let attributes = hop.get(HOP_HEADER_LEN..).unwrap_or_default();
        let via = Attributes(attributes).find_map(|(kind, value)| match kind {
            libc::RTA_GATEWAY => ip(value),
            libc::RTA_VIA => value.get(2..).and_then(ip),
            _ => None,
        });
        hops.push(ListedRoute { via, ifindex, ..*route });
        value = value.get(len.max(HOP_HEADER_LEN).next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

fn neighbour(message: Message<'_>) -> Option<ListedNeighbour> {
    let body = message.body;
    let family = i32::from(u8_at(body, 0)?);
    let state = u16_at(body, 8)?;
    if ![libc::AF_INET, libc::AF_INET6].contains(&family) || state & libc::NUD_NOARP != 0 {
        return None;
    }
    let mut entry = ListedNeighbour {
        ifindex: u32_at(body, 4)?,
        ip: Ipv4Addr::UNSPECIFIED.into(),
        mac: None,
        state,
    };
    let mut known = false;
    for (kind, value) in attributes_after(body, NEIGHBOUR_HEADER_LEN) {
        match kind {
            libc::NDA_DST => (entry.ip, known) = (ip(value)?, true),
            libc::NDA_LLADDR => entry.mac = mac(value),
            _ => {}
        }
    }
    known.then_some(entry)
}
