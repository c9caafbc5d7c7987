//! Next-hop objects (`ip nexthop`), which routes and forwarding entries may refer to by number.
//!
//! By default the kernel also writes a next-hop object's content into every route that refers to
//! it, but not with `net.ipv4.nexthop_compat_mode=0`, and it announces a changed group without
//! announcing the routes. So the objects are mirrored too, and the routes' next hops are taken
//! from them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::fdb::FdbDestination;
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
    /// A host that forwarding entries of VXLAN devices lead to.
    FdbHost(IpAddr),
    /// Such hosts by number, with weights.
    FdbGroup(Vec<(u32, u32)>),
    /// Something only the kernel can follow: a tunnel.
    Foreign,
}

/// What a route that refers to object `id` does, and its next hops. An object that is unknown, or
/// has no member left, makes the route foreign: nothing may be guessed.
pub(crate) fn resolve(objects: &BTreeMap<u32, Object>, id: u32) -> (RouteKind, Vec<NextHop>) {
    let Some(object) = objects.get(&id) else { return (RouteKind::Foreign, Vec::new()) };
    let mut hops = Vec::new();
    match &object.content {
        Content::Blackhole => return (RouteKind::Blackhole, hops),
        // The kernel lets no route refer to what is for forwarding entries.
        Content::Foreign | Content::FdbHost(_) | Content::FdbGroup(_) => {
            return (RouteKind::Foreign, hops);
        }
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

/// Where a forwarding entry that refers to object `id` leads; nowhere when the object is unknown
/// or not for forwarding entries.
pub(crate) fn hosts(objects: &BTreeMap<u32, Object>, id: u32) -> BTreeSet<FdbDestination> {
    let host = |id: u32, weight: u32| match objects.get(&id)?.content {
        Content::FdbHost(ip) => Some(FdbDestination { weight, ..FdbDestination::new(ip) }),
        _ => None,
    };
    match objects.get(&id).map(|object| &object.content) {
        Some(Content::FdbHost(_)) => host(id, 1).into_iter().collect(),
        Some(Content::FdbGroup(members)) => {
            members.iter().filter_map(|&(member, weight)| host(member, weight)).collect()
        }
        _ => BTreeSet::new(),
    }
}

fn single(object: &Object, weight: u32) -> Option<NextHop> {
    match object.content {
        Content::Single { gateway, ifindex, onlink } => {
            Some(NextHop { gateway, ifindex, weight, onlink })
        }
        _ => None,
    }
}
