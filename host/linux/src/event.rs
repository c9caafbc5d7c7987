//! From a netlink message to one event in plain types: links, addresses, neighbours. (Routes and
//! next-hop objects: `event_route`; VXLAN devices and their forwarding entries: `vxlan`, `fdb`.)
//!
//! A message is read in full or not at all: what is not about the director (a bridge's own
//! forwarding entries, proxy neighbours, routing tables that nobody named) is no event, and what
//! should be one but makes no sense is [`Malformed`].

use std::collections::BTreeSet;

use crate::attributes::{
    Attributes, Message, attributes_after, ip, mac, text, u8_at, u16_at, u16_be_at, u32_at,
};
use crate::event_route::{nexthop_event, route_event};
use crate::fdb::{FdbRow, fdb_event};
use crate::nexthop::Object;
use crate::state::{Address, Link, Neighbour, NeighbourState, Route, Vlan};
use crate::uapi;
use crate::vxlan::Vxlan;

/// Bytes of `ifinfomsg`.
pub(crate) const LINK_HEADER_LEN: usize = 16;
/// Bytes of `ifaddrmsg`.
pub(crate) const ADDRESS_HEADER_LEN: usize = 8;
/// Bytes of `ndmsg`.
pub(crate) const NEIGHBOUR_HEADER_LEN: usize = 12;

/// Something that happened, or one entry of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Link(Link),
    LinkGone(u32),
    Address(Address),
    AddressGone(Address),
    Neighbour(Neighbour),
    NeighbourGone(Neighbour),
    Fdb(FdbRow),
    FdbGone(FdbRow),
    Route(Route, Placement),
    RouteGone(Route),
    NextHop(Object),
    NextHopGone(u32),
}

/// Where a new route goes among the routes of the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// There are no others.
    Only,
    /// Before the others.
    First,
    /// Behind the others.
    Last,
    /// In the place of the first.
    Replace,
}

/// A message of a kind that is mirrored, but that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads a message. `None`: nothing the mirror keeps; of the routes, those of tables other than
/// `main`, `default` and the ones named in `tables`.
pub(crate) fn decode(
    message: &Message<'_>,
    tables: &BTreeSet<u32>,
) -> Result<Option<Event>, Malformed> {
    match message.kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => link_event(message).ok_or(Malformed),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => address_event(message).ok_or(Malformed),
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => neighbour_event(message).ok_or(Malformed),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => route_event(message, tables).ok_or(Malformed),
        uapi::RTM_NEWNEXTHOP | uapi::RTM_DELNEXTHOP => nexthop_event(message).ok_or(Malformed),
        _ => Ok(None),
    }
}

/// Whether a family is one of the two that are mirrored.
pub(crate) fn is_ip(family: u8) -> bool {
    let family = i32::from(family);
    family == libc::AF_INET || family == libc::AF_INET6
}

fn link_event(message: &Message<'_>) -> Option<Option<Event>> {
    let body = message.body;
    // A bridge announces that a port left it as the deletion of a link, in its own family.
    if i32::from(u8_at(body, 0)?) != libc::AF_UNSPEC {
        return Some(None);
    }
    let index = u32_at(body, 4)?;
    if message.kind == libc::RTM_DELLINK {
        return Some(Some(Event::LinkGone(index)));
    }
    let flags = u32_at(body, 8)?;
    let has = |flag: i32| flags & flag.cast_unsigned() != 0;
    let mut link = Link {
        index,
        admin_up: has(libc::IFF_UP),
        carrier: has(libc::IFF_LOWER_UP),
        loopback: has(libc::IFF_LOOPBACK),
        ..Link::default()
    };
    let (mut below, mut below_elsewhere, mut mtu) = (None, false, None);
    for (kind, value) in attributes_after(body, LINK_HEADER_LEN) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value)?,
            libc::IFLA_ADDRESS => link.mac = mac(value),
            libc::IFLA_MTU => mtu = Some(u32_at(value, 0)?),
            libc::IFLA_MASTER => link.master = Some(u32_at(value, 0)?),
            libc::IFLA_LINK => below = Some(u32_at(value, 0)?),
            libc::IFLA_LINK_NETNSID => below_elsewhere = true,
            libc::IFLA_NUM_RX_QUEUES => link.num_rx_queues = Some(u32_at(value, 0)?),
            libc::IFLA_LINKINFO => link_info(value, &mut link)?,
            _ => {}
        }
    }
    // Wireless drivers announce radio events as links with a name and nothing else.
    let Some(mtu) = mtu.filter(|_| !link.name.is_empty()) else { return Some(None) };
    link.mtu = mtu;
    // Its packets leave from another network namespace, where nothing here can send.
    if below_elsewhere {
        link.vxlan = None;
    }
    let stacked = !below_elsewhere && link.kind.as_deref() != Some("veth");
    link.parent = below.filter(|&below| stacked && below != 0 && below != index);
    Some(Some(Event::Link(link)))
}

/// `IFLA_LINKINFO`: the kind, and what there is to know of that kind. The kind comes first.
fn link_info(value: &[u8], link: &mut Link) -> Option<()> {
    for (kind, value) in Attributes(value) {
        match kind {
            libc::IFLA_INFO_KIND => link.kind = Some(text(value)?),
            libc::IFLA_INFO_DATA => match link.kind.as_deref() {
                Some("vlan") => link.vlan = Some(vlan(value)?),
                Some("vrf") => link.vrf_table = vrf_table(value),
                Some("vxlan") => link.vxlan = Vxlan::read(value),
                _ => {}
            },
            _ => {}
        }
    }
    Some(())
}

fn vlan(data: &[u8]) -> Option<Vlan> {
    let mut vlan = Vlan { id: 0, ethertype: 0x8100 };
    for (kind, value) in Attributes(data) {
        match kind {
            uapi::IFLA_VLAN_ID => vlan.id = u16_at(value, 0)?,
            uapi::IFLA_VLAN_PROTOCOL => vlan.ethertype = u16_be_at(value, 0)?,
            _ => {}
        }
    }
    Some(vlan)
}

fn vrf_table(data: &[u8]) -> Option<u32> {
    let (_, value) = Attributes(data).find(|&(kind, _)| kind == uapi::IFLA_VRF_TABLE)?;
    u32_at(value, 0)
}

fn address_event(message: &Message<'_>) -> Option<Option<Event>> {
    let body = message.body;
    if !is_ip(u8_at(body, 0)?) {
        return Some(None);
    }
    let prefix_len = u8_at(body, 1)?;
    let mut flags = u32::from(u8_at(body, 2)?);
    let ifindex = u32_at(body, 4)?;
    let (mut local, mut far) = (None, None);
    for (kind, value) in attributes_after(body, ADDRESS_HEADER_LEN) {
        match kind {
            libc::IFA_LOCAL => local = Some(ip(value)?),
            libc::IFA_ADDRESS => far = Some(ip(value)?),
            uapi::IFA_FLAGS => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    // IPv4 always has both, equal unless the link is point to point; IPv6 has IFA_ADDRESS alone
    // unless it is.
    let address = Address {
        ifindex,
        ip: local.or(far)?,
        prefix_len,
        peer: far.filter(|_| local.is_some() && local != far),
        tentative: flags & libc::IFA_F_TENTATIVE != 0 || flags & libc::IFA_F_DADFAILED != 0,
    };
    let width = if address.ip.is_ipv4() { 32 } else { 128 };
    if prefix_len > width {
        return None;
    }
    Some(Some(match message.kind {
        libc::RTM_NEWADDR => Event::Address(address),
        _ => Event::AddressGone(address),
    }))
}

fn neighbour_event(message: &Message<'_>) -> Option<Option<Event>> {
    let body = message.body;
    let family = u8_at(body, 0)?;
    if i32::from(family) == libc::AF_BRIDGE {
        return fdb_event(message);
    }
    if !is_ip(family) {
        return Some(None);
    }
    let ifindex = u32_at(body, 4)?;
    let state = neighbour_state(u16_at(body, 8)?);
    if u8_at(body, 10)? & libc::NTF_PROXY != 0 {
        return Some(None);
    }
    let (mut to, mut hardware) = (None, None);
    for (kind, value) in attributes_after(body, NEIGHBOUR_HEADER_LEN) {
        match kind {
            libc::NDA_DST => to = Some(ip(value)?),
            libc::NDA_LLADDR => hardware = mac(value),
            _ => {}
        }
    }
    let neighbour = Neighbour { ifindex, ip: to?, mac: hardware, state };
    // What the kernel notes for multicast groups is no neighbour.
    if neighbour.ip.is_multicast() {
        return Some(None);
    }
    Some(Some(match message.kind {
        libc::RTM_NEWNEIGH => Event::Neighbour(neighbour),
        _ => Event::NeighbourGone(neighbour),
    }))
}

fn neighbour_state(state: u16) -> NeighbourState {
    match state {
        libc::NUD_INCOMPLETE => NeighbourState::Incomplete,
        libc::NUD_REACHABLE => NeighbourState::Reachable,
        libc::NUD_STALE => NeighbourState::Stale,
        libc::NUD_DELAY => NeighbourState::Delay,
        libc::NUD_PROBE => NeighbourState::Probe,
        libc::NUD_FAILED => NeighbourState::Failed,
        libc::NUD_NOARP => NeighbourState::NoArp,
        libc::NUD_PERMANENT => NeighbourState::Permanent,
        _ => NeighbourState::None,
    }
}
