//! The routes of one prefix, and how an announced route joins or leaves them.
//!
//! The two families differ. IPv4 keeps a list for each metric, and an announcement's flags say
//! where in the list a route went. IPv6 merges routes of the same metric that have gateways into
//! one multipath route, announces it whole when it grows and by the lost next hops when it
//! shrinks, and keeps routes without a gateway side by side (`fe80::/64` on every link).
//!
//! Invariant: a list is ordered by metric; within a metric by the kernel's order (IPv4) or by
//! arrival (IPv6).

use crate::event::Placement;
use crate::state::{NextHop, Route, RouteKind};
use crate::uapi;

/// The part of a prefix's routes that have a metric.
fn group(routes: &[Route], metric: u32) -> std::ops::Range<usize> {
    let start = routes.partition_point(|route| route.metric < metric);
    start..routes.partition_point(|route| route.metric <= metric)
}

/// Adds an IPv4 route. Returns whether the list differs from before.
pub(crate) fn add_ipv4(routes: &mut Vec<Route>, route: Route, placement: Placement) -> bool {
    let group = group(routes, route.metric);
    let present = group.clone().find(|&at| routes[at] == route);
    // When a next-hop object is replaced, every route that refers to it is announced as
    // replaced, wherever it is in its list.
    let same_object =
        |at: &usize| route.nexthop_id.is_some() && routes[*at].nexthop_id == route.nexthop_id;
    let refreshed = group.clone().find(same_object).filter(|_| placement == Placement::Replace);
    if let Some(at) = refreshed {
        let changed = routes[at] != route;
        routes[at] = route;
        return changed;
    }
    match (placement, present) {
        (Placement::Only, Some(_)) if group.len() == 1 => return false,
        (Placement::Only, _) => {
            routes.splice(group, [route]);
        }
        (Placement::First | Placement::Replace, Some(at)) if at == group.start => return false,
        (Placement::Last, Some(_)) => return false,
        (Placement::First, Some(at)) => {
            let route = routes.remove(at);
            routes.insert(group.start, route);
        }
        (Placement::First, None) => routes.insert(group.start, route),
        (Placement::Last, None) => routes.insert(group.end, route),
        (Placement::Replace, present) => {
            if let Some(at) = present {
                routes.remove(at);
            }
            if group.is_empty() {
                routes.insert(group.start, route);
            } else {
                routes[group.start] = route;
            }
        }
    }
    true
}

/// Removes an IPv4 route. Returns whether it was clear which one was meant, or none was there.
pub(crate) fn remove_ipv4(routes: &mut Vec<Route>, gone: &Route) -> bool {
    let group = group(routes, gone.metric);
    let same_object =
        |route: &Route| gone.nexthop_id.is_some() && route.nexthop_id == gone.nexthop_id;
    let same = |route: &Route| route.kind == gone.kind && route.hops == gone.hops;
    let at = group.clone().find(|&at| same_object(&routes[at]) || same(&routes[at]));
    match at {
        Some(at) => {
            routes.remove(at);
            true
        }
        None if group.len() <= 1 => {
            routes.drain(group);
            true
        }
        None => false,
    }
}

/// Whether an IPv6 route is merged with others of its metric: it has gateways, and comes neither
/// from a router advertisement nor from a next-hop object.
fn merges(route: &Route) -> bool {
    route.kind == RouteKind::Unicast
        && route.protocol != uapi::RTPROT_RA
        && route.nexthop_id.is_none()
        && route.hops.iter().all(|hop| hop.gateway.is_some())
}

/// Whether two next hops are the same one; shares do not count.
fn same_hop(one: &NextHop, other: &NextHop) -> bool {
    one.gateway == other.gateway && one.ifindex == other.ifindex
}

/// Whether an announced IPv6 route is a new form of one that is known.
fn supersedes(new: &Route, known: &Route) -> bool {
    if merges(new) && merges(known) {
        return true;
    }
    if new.nexthop_id.is_some() || known.nexthop_id.is_some() {
        return new.nexthop_id == known.nexthop_id;
    }
    if new.kind != RouteKind::Unicast || known.kind != RouteKind::Unicast {
        return new.kind == known.kind;
    }
    known.hops.iter().any(|known| new.hops.iter().any(|new| same_hop(new, known)))
}

/// Whether an announced IPv6 replacement leaves open what it replaced: with several routes of one
/// metric the kernel takes away different ones, depending on their order and on whether the new
/// route has several next hops, and announces only the new one.
pub(crate) fn replacement_is_unclear(routes: &[Route], metric: u32) -> bool {
    group(routes, metric).len() > 1
}

/// Adds an IPv6 route. Returns whether the list differs from before.
pub(crate) fn add_ipv6(routes: &mut Vec<Route>, route: Route, replace: bool) -> bool {
    let group = group(routes, route.metric);
    let known = group.clone().find(|&at| supersedes(&route, &routes[at]));
    let alike = || group.clone().find(|&at| merges(&routes[at]) == merges(&route));
    let first = || group.clone().next();
    match known.or_else(|| if replace { alike().or_else(first) } else { None }) {
        Some(at) if routes[at] == route => false,
        Some(at) => {
            routes[at] = route;
            true
        }
        None => {
            routes.insert(group.end, route);
            true
        }
    }
}

/// Removes an IPv6 route, or the next hops it lists. Always clear: returns `true`.
pub(crate) fn remove_ipv6(routes: &mut Vec<Route>, gone: &Route) -> bool {
    let group = group(routes, gone.metric);
    let whole = group.clone().find(|&at| {
        let route = &routes[at];
        if gone.nexthop_id.is_some() || route.nexthop_id.is_some() {
            route.nexthop_id == gone.nexthop_id
        } else {
            route.kind == gone.kind && route.kind != RouteKind::Unicast
        }
    });
    if let Some(at) = whole {
        routes.remove(at);
        return true;
    }
    for hop in &gone.hops {
        let holder = group.clone().find(|&at| {
            let plain = routes[at].nexthop_id.is_none();
            plain && routes[at].hops.iter().any(|known| same_hop(known, hop))
        });
        if let Some(at) = holder {
            routes[at].hops.retain(|known| !same_hop(known, hop));
        }
    }
    routes.retain(|route| {
        route.kind != RouteKind::Unicast || route.nexthop_id.is_some() || !route.hops.is_empty()
    });
    true
}
