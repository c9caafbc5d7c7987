//! From a netlink message to an event: routes and next-hop objects.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::attributes::{Attributes, Message, attributes_after, ip, u8_at, u16_at, u32_at};
use crate::event::{Event, Placement, is_ip};
use crate::nexthop::{Content, Object};
use crate::state::{NextHop, Route, RouteKind, Table, masked};
use crate::uapi;

/// Bytes of `rtmsg`.
pub(crate) const ROUTE_HEADER_LEN: usize = 12;
/// Bytes of `nhmsg`.
pub(crate) const NEXTHOP_HEADER_LEN: usize = 8;
/// Bytes of `rtnexthop`.
const HOP_HEADER_LEN: usize = 8;
/// Bytes of `nexthop_grp`.
const GROUP_ENTRY_LEN: usize = 8;

/// A next hop as its attributes are read.
#[derive(Default)]
struct Hop {
    gateway: Option<IpAddr>,
    ifindex: u32,
    weight: u32,
    onlink: bool,
    tunnel: bool,
}

impl Hop {
    /// Takes an attribute that describes a next hop, in a route or inside its multipath list.
    fn take(&mut self, kind: u16, value: &[u8]) -> Option<()> {
        match kind {
            libc::RTA_GATEWAY => self.gateway = Some(ip(value)?),
            // Two bytes of address family, then the address.
            libc::RTA_VIA => self.gateway = Some(ip(value.get(2..)?)?),
            libc::RTA_OIF => self.ifindex = u32_at(value, 0)?,
            libc::RTA_ENCAP_TYPE => self.tunnel |= u16_at(value, 0)? != 0,
            _ => {}
        }
        Some(())
    }

    fn next_hop(&self) -> NextHop {
        NextHop {
            gateway: self.gateway.filter(|gateway| !gateway.is_unspecified()),
            ifindex: self.ifindex,
            weight: self.weight,
            onlink: self.onlink,
        }
    }
}

/// Reads a route. The outer `None` is a malformed message, the inner one nothing to keep.
/// `tables`: which are kept beside `main` and `default`.
pub(crate) fn route_event(message: &Message<'_>, tables: &BTreeSet<u32>) -> Option<Option<Event>> {
    let body = message.body;
    let (family, prefix_len, source_len) = (u8_at(body, 0)?, u8_at(body, 1)?, u8_at(body, 2)?);
    let (service, short_table) = (u8_at(body, 3)?, u8_at(body, 4)?);
    let (protocol, action) = (u8_at(body, 5)?, u8_at(body, 7)?);
    let flags = u32_at(body, 8)?;
    let cached = flags & libc::RTM_F_CLONED != 0;
    if !is_ip(family) || source_len != 0 || service != 0 || cached {
        return Some(None);
    }
    let Some(kind) = route_kind(action) else { return Some(None) };
    let mut parts = RouteParts::default();
    parts.hop.onlink = flags & uapi::RTNH_F_ONLINK != 0;
    for (kind, value) in attributes_after(body, ROUTE_HEADER_LEN) {
        parts.take(kind, value)?;
    }
    let number = parts.table.unwrap_or(short_table.into());
    let kept = |table: &Table| !matches!(table, Table::Other(_)) || tables.contains(&number);
    let Some(table) = Table::of(number).filter(kept) else { return Some(None) };
    let is_ipv4 = i32::from(family) == libc::AF_INET;
    let any: IpAddr = if is_ipv4 { [0; 4].into() } else { [0; 16].into() };
    let prefix = parts.prefix.unwrap_or(any);
    if prefix.is_ipv4() != is_ipv4 || prefix_len > if is_ipv4 { 32 } else { 128 } {
        return None;
    }
    let mut route = Route {
        prefix: masked(prefix, prefix_len),
        prefix_len,
        table,
        metric: parts.metric,
        kind,
        hops: Vec::new(),
        source: parts.source,
        nexthop_id: parts.nexthop_id,
        protocol,
    };
    if kind == RouteKind::Unicast {
        parts.finish(&mut route);
    }
    Some(Some(match message.kind {
        libc::RTM_NEWROUTE => Event::Route(route, placement(message.flags)),
        _ => Event::RouteGone(route),
    }))
}

/// The attributes of a route.
#[derive(Default)]
struct RouteParts {
    prefix: Option<IpAddr>,
    table: Option<u32>,
    metric: u32,
    source: Option<IpAddr>,
    nexthop_id: Option<u32>,
    hop: Hop,
    multipath: Vec<Hop>,
}

impl RouteParts {
    fn take(&mut self, kind: u16, value: &[u8]) -> Option<()> {
        match kind {
            libc::RTA_DST => self.prefix = Some(ip(value)?),
            libc::RTA_TABLE => self.table = Some(u32_at(value, 0)?),
            libc::RTA_PRIORITY => self.metric = u32_at(value, 0)?,
            libc::RTA_PREFSRC => self.source = Some(ip(value)?),
            uapi::RTA_NH_ID => self.nexthop_id = Some(u32_at(value, 0)?),
            libc::RTA_MULTIPATH => self.multipath = multipath(value)?,
            _ => self.hop.take(kind, value)?,
        }
        Some(())
    }

    /// Gives a unicast route its next hops. One that refers to a next-hop object may have none
    /// yet: they come from the object.
    fn finish(self, route: &mut Route) {
        let single = Hop { weight: 1, ..self.hop };
        let hops = if self.multipath.is_empty() { vec![single] } else { self.multipath };
        if hops.iter().any(|hop| hop.tunnel) {
            route.kind = RouteKind::Foreign;
        }
        route.hops.extend(hops.iter().map(Hop::next_hop).filter(|hop| hop.ifindex != 0));
        // IPv6 announces the same next hops starting with the newest, and dumps them starting with
        // the oldest: one order of our own keeps that from looking like a change.
        if route.prefix.is_ipv6() {
            route.hops.sort_by_key(|hop| (hop.ifindex, hop.gateway));
        }
        if route.hops.is_empty() && route.nexthop_id.is_none() {
            route.kind = RouteKind::Foreign;
        }
    }
}

/// `RTA_MULTIPATH`: a list of `rtnexthop`, each with its attributes.
fn multipath(mut value: &[u8]) -> Option<Vec<Hop>> {
    let mut hops = Vec::new();
    while !value.is_empty() {
        let len = usize::from(u16_at(value, 0)?);
        let attributes = value.get(HOP_HEADER_LEN..len)?;
        let flags = u32::from(u8_at(value, 2)?);
        let mut hop = Hop {
            ifindex: u32_at(value, 4)?,
            weight: u32::from(u8_at(value, 3)?) + 1,
            onlink: flags & uapi::RTNH_F_ONLINK != 0,
            ..Hop::default()
        };
        for (kind, value) in Attributes(attributes) {
            hop.take(kind, value)?;
        }
        hops.push(hop);
        value = value.get((len + 3) & !3..).unwrap_or_default();
    }
    Some(hops)
}

fn route_kind(action: u8) -> Option<RouteKind> {
    match action {
        libc::RTN_UNICAST => Some(RouteKind::Unicast),
        libc::RTN_BLACKHOLE => Some(RouteKind::Blackhole),
        libc::RTN_UNREACHABLE => Some(RouteKind::Unreachable),
        libc::RTN_PROHIBIT => Some(RouteKind::Prohibit),
        libc::RTN_THROW => Some(RouteKind::Throw),
        // A whole prefix that is the machine's own, put into an ordinary table; in a VRF's table,
        // each address of its links.
        libc::RTN_LOCAL => Some(RouteKind::Foreign),
        _ => None,
    }
}

/// What the flags of an IPv4 route's announcement say (the kernel repeats the request's there).
/// Entries of a dump come without any, in the kernel's order.
fn placement(flags: u16) -> Placement {
    let has = |flag: i32| i32::from(flags) & flag != 0;
    if has(libc::NLM_F_REPLACE) {
        Placement::Replace
    } else if has(libc::NLM_F_APPEND) || has(libc::NLM_F_MULTI) {
        Placement::Last
    } else if has(libc::NLM_F_EXCL) {
        Placement::Only
    } else if has(libc::NLM_F_CREATE) {
        Placement::First
    } else {
        Placement::Last
    }
}

/// Reads a next-hop object.
pub(crate) fn nexthop_event(message: &Message<'_>) -> Option<Option<Event>> {
    let flags = u32_at(message.body, 4)?;
    let (mut id, mut group, mut blackhole, mut foreign) = (None, None, false, false);
    let (mut gateway, mut ifindex, mut fdb) = (None, 0, false);
    for (kind, value) in attributes_after(message.body, NEXTHOP_HEADER_LEN) {
        match kind {
            uapi::NHA_ID => id = Some(u32_at(value, 0)?),
            uapi::NHA_GROUP => group = Some(members(value)?),
            uapi::NHA_BLACKHOLE => blackhole = true,
            uapi::NHA_OIF => ifindex = u32_at(value, 0)?,
            uapi::NHA_GATEWAY => gateway = Some(ip(value)?),
            uapi::NHA_ENCAP_TYPE => foreign |= u16_at(value, 0)? != 0,
            uapi::NHA_FDB => fdb = true,
            _ => {}
        }
    }
    let id = id?;
    if message.kind == uapi::RTM_DELNEXTHOP {
        return Some(Some(Event::NextHopGone(id)));
    }
    let content = match group {
        _ if foreign => Content::Foreign,
        Some(members) if fdb => Content::FdbGroup(members),
        Some(members) => Content::Group(members),
        None if fdb => gateway.map_or(Content::Foreign, Content::FdbHost),
        None if blackhole => Content::Blackhole,
        None if ifindex == 0 => Content::Foreign,
        None => {
            let onlink = flags & uapi::RTNH_F_ONLINK != 0;
            let gateway = gateway.filter(|gateway| !gateway.is_unspecified());
            Content::Single { gateway, ifindex, onlink }
        }
    };
    Some(Some(Event::NextHop(Object { id, content })))
}

/// `NHA_GROUP`: a list of `nexthop_grp`: number, weight less one in 16 bits (its upper half since
/// Linux 6.12, zero before).
fn members(value: &[u8]) -> Option<Vec<(u32, u32)>> {
    value
        .chunks(GROUP_ENTRY_LEN)
        .map(|entry| {
            let weight = u32::from(u8_at(entry, 4)?) | u32::from(u8_at(entry, 5)?) << 8;
            Some((u32_at(entry, 0)?, weight + 1))
        })
        .collect()
}
