//! Next-hop objects (`ip nexthop`), which routes may refer to by number.
//!
//! By default the kernel also writes a next-hop object's content into every route that refers to
//! it, but not with `net.ipv4.nexthop_compat_mode=0`, and it announces a changed group without
//! announcing the routes. So the objects are mirrored too, and the routes' next hops are taken
//! from them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::state::{NextHop, RouteKind};

/// A next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// Its number.
    pub id: u32,
    /// What it is.
    pub content: Content,
}

/// What a next-hop object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// One next hop.
    Single {
        /// The router, if any.
        gateway: Option<IpAddr>,
        /// Out of this link.
        ifindex: u32,
        /// The router is on the link although no prefix covers it.
        onlink: bool,
    },
    /// Members by number, with weights.
    Group(Vec<(u32, u32)>),
    /// Drops.
    Blackhole,
    /// Something only the kernel can follow: a tunnel, or a bridge forwarding entry.
    Foreign,
}

/// What a route that refers to object `id` does, and its next hops. An object that is unknown, or
/// has no member left, makes the route foreign: nothing may be guessed.
pub(crate) fn resolve(objects: &BTreeMap<u32, Object>, id: u32) -> (RouteKind, Vec<NextHop>) {
    let Some(object) = objects.get(&id) else { return (RouteKind::Foreign, Vec::new()) };
    let mut hops = Vec::new();
    match &object.content {
        Content::Blackhole => return (RouteKind::Blackhole, hops),
        Content::Foreign => return (RouteKind::Foreign, hops),
        Content::Single { .. } => hops.extend(single(object, 1)),
        Content::Group(members) => {
            for &(member, weight) in members {
                match objects.get(&member).map(|member| &member.content) {
                    // A group has only a blackhole as member when it has no other (the kernel
                    // refuses mixtures).
                    Some(Content::Blackhole) => return (RouteKind::Blackhole, Vec::new()),
                    Some(Content::Single { .. }) => {
                        hops.extend(objects.get(&member).and_then(|member| single(member, weight)));
                    }
                    // Gone; the kernel announces the group without it next.
                    None => {}
                    Some(_) => return (RouteKind::Foreign, Vec::new()),
                }
            }
        }
    }
    if hops.is_empty() { (RouteKind::Foreign, hops) } else { (RouteKind::Unicast, hops) }
}

fn single(object: &Object, weight: u32) -> Option<NextHop> {
    match object.content {
        Content::Single { gateway, ifindex, onlink } => {
            Some(NextHop { gateway, ifindex, weight, onlink })
        }
        _ => None,
    }
}
