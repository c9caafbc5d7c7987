//! Where a packet to a destination would go: plain longest prefix, then metric, over the mirror.
//!
//! For tests, tools and checks; the packet path has its own table, built from the same state. It
//! follows the kernel's rules for the tables that are mirrored: a next hop through a link that is
//! gone or not set up does not count, and a route without any next hop left gives way to the next
//! metric and then to a shorter prefix. A link without a carrier still counts, as with the
//! kernel's default `ignore_routes_with_linkdown=0`.

use std::net::IpAddr;

use crate::state::{Kernel, Route, RouteKind, Table};

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Out of this link.
    pub ifindex: u32,
    /// To this neighbour: the gateway, or the destination itself when it is on the link.
    pub ip: IpAddr,
    /// Its share among all targets.
    pub weight: u32,
}

/// The answer to [`lookup`] and [`lookup_in`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteResult {
    /// One of these; never empty. More than one for a multipath route.
    NextHops(Vec<Target>),
    /// One of this machine's own addresses.
    Local,
    /// A route says: drop, with ICMP unreachable or prohibited.
    Unreachable,
    /// A route says: drop in silence.
    Blackhole,
    /// A route leads where only the kernel can send ([`RouteKind::Foreign`]).
    Foreign,
    /// No route.
    NoRoute,
}

/// Looks a destination up in the tables `main`, then `default`. Multicast and the unspecified
/// address have no route here. A link-local IPv6 destination is ambiguous without a link: the
/// first link's route is taken.
pub fn lookup(kernel: &Kernel, ip: IpAddr) -> RouteResult {
    search(kernel, &[Table::Main, Table::Default], ip, |_| true)
}

/// Looks a destination up in one table: that of a network that has its own links, as a VRF has.
/// `is_of_network` tells those by their indexes: only their addresses are [`RouteResult::Local`],
/// because other networks may use the same ones for other machines. Otherwise as [`lookup`].
pub fn lookup_in(
    kernel: &Kernel,
    table: Table,
    ip: IpAddr,
    is_of_network: impl Fn(u32) -> bool,
) -> RouteResult {
    search(kernel, &[table], ip, is_of_network)
}

fn search(
    kernel: &Kernel,
    tables: &[Table],
    ip: IpAddr,
    is_of_network: impl Fn(u32) -> bool,
) -> RouteResult {
    if ip.is_multicast() || ip.is_unspecified() {
        return RouteResult::NoRoute;
    }
    if kernel.is_local_on(ip, is_of_network) {
        return RouteResult::Local;
    }
    let answer = tables.iter().find_map(|&table| answer_of(kernel, table, ip));
    answer.unwrap_or(RouteResult::NoRoute)
}

/// What one table says; `None` when it leaves the answer to the next one.
fn answer_of(kernel: &Kernel, table: Table, ip: IpAddr) -> Option<RouteResult> {
    let longest: u8 = if ip.is_ipv4() { 32 } else { 128 };
    for prefix_len in (0..=longest).rev() {
        for route in kernel.routes_of(table, ip, prefix_len) {
            match route.kind {
                RouteKind::Unicast => {
                    let targets = targets(kernel, route, ip);
                    if !targets.is_empty() {
                        return Some(RouteResult::NextHops(targets));
                    }
                }
                RouteKind::Blackhole => return Some(RouteResult::Blackhole),
                RouteKind::Unreachable | RouteKind::Prohibit => {
                    return Some(RouteResult::Unreachable);
                }
                RouteKind::Foreign => return Some(RouteResult::Foreign),
                RouteKind::Throw => return None,
            }
        }
    }
    None
}

fn targets(kernel: &Kernel, route: &Route, ip: IpAddr) -> Vec<Target> {
    route
        .hops
        .iter()
        .filter(|hop| kernel.link(hop.ifindex).is_some_and(|link| link.admin_up))
        .map(|hop| Target {
            ifindex: hop.ifindex,
            ip: hop.gateway.unwrap_or(ip),
            weight: hop.weight,
        })
        .collect()
}
