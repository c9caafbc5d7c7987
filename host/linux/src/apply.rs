//! What an event does to the mirrored state.
//!
//! Invariant: applying the announcements of the kernel in their order to a picture that is as old
//! as the first of them, or newer, ends in the kernel's present state. So a fresh dump may be
//! followed by announcements that the dump already contains: every operation here is safe to
//! repeat.
//!
//! Some things vanish without an announcement: IPv4 routes and next-hop objects through a link
//! that goes down or away, IPv4 routes whose preferred source or whose link's last address goes,
//! IPv6 preferred sources. Those events ask for the routes to be read again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::event::{Event, Placement};
use crate::nexthop::{self, Object};
use crate::routes::{add_ipv4, add_ipv6, remove_ipv4, remove_ipv6, replacement_is_unclear};
use crate::state::{Address, Changed, Kernel, Link, Neighbour, Route, RouteKey, RouteKind};

/// What an event did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Which kinds of state changed in effect.
    pub changed: Changed,
    /// Routes and next-hop objects may have vanished in silence and must be read again.
    pub reread_routes: bool,
}

impl Kernel {
    /// Applies one event.
    pub(crate) fn apply(&mut self, event: Event) -> Effect {
        match event {
            Event::Link(link) => self.link_seen(link),
            Event::LinkGone(index) => self.link_gone(index),
            Event::Address(address) => self.address_seen(address),
            Event::AddressGone(address) => self.address_gone(&address),
            Event::Neighbour(neighbour) => self.neighbour_seen(neighbour),
            Event::NeighbourGone(neighbour) => {
                let gone = self.neighbours.remove(&(neighbour.ifindex, neighbour.ip));
                neighbours_changed(gone.is_some_and(|gone| gone.usable_mac().is_some()))
            }
            Event::Fdb(row) => self.fdb_seen(row),
            Event::FdbGone(row) => self.fdb_gone(row),
            Event::Route(route, placement) => self.route_seen(route, placement),
            Event::RouteGone(route) => self.route_gone(&route),
            Event::NextHop(object) => self.nexthop_seen(object),
            Event::NextHopGone(id) => self.nexthop_gone(id),
        }
    }

    fn link_seen(&mut self, link: Link) -> Effect {
        let index = link.index;
        let up = link.is_up();
        let before = self.links.get(&index);
        if before == Some(&link) {
            return Effect::default();
        }
        let went_down = before.is_some_and(Link::is_up) && !up;
        self.links.insert(index, link);
        Effect {
            changed: Changed { links: true, ..Changed::default() },
            reread_routes: went_down && self.routes_depend_on(index),
        }
    }

    fn link_gone(&mut self, index: u32) -> Effect {
        let (addresses, neighbours) = (self.addresses.len(), self.usable_neighbours());
        let fdb = self.fdb.len();
        self.addresses.retain(|address| address.ifindex != index);
        self.neighbours.retain(|key, _| key.0 != index);
        self.fdb.retain(|key, _| key.0 != index);
        Effect {
            changed: Changed {
                links: self.links.remove(&index).is_some(),
                addresses: self.addresses.len() != addresses,
                neighbours: self.usable_neighbours() != neighbours,
                fdb: self.fdb.len() != fdb,
                ..Changed::default()
            },
            reread_routes: self.routes_depend_on(index),
        }
    }

    fn usable_neighbours(&self) -> usize {
        self.neighbours.values().filter(|neighbour| neighbour.usable_mac().is_some()).count()
    }

    fn address_seen(&mut self, address: Address) -> Effect {
        let known = self.addresses.contains(&address);
        self.addresses.remove(&Address { tentative: !address.tentative, ..address });
        self.addresses.insert(address);
        Effect { changed: Changed { addresses: !known, ..Changed::default() }, ..Effect::default() }
    }

    fn address_gone(&mut self, address: &Address) -> Effect {
        let mut known = false;
        for tentative in [false, true] {
            known |= self.addresses.remove(&Address { tentative, ..*address });
        }
        let last_of_link = address.ip.is_ipv4()
            && !self
                .addresses
                .iter()
                .any(|other| other.ifindex == address.ifindex && other.ip.is_ipv4());
        let source = self.routes().any(|route| route.source == Some(address.ip));
        Effect {
            changed: Changed { addresses: known, ..Changed::default() },
            reread_routes: source || last_of_link && self.routes_depend_on(address.ifindex),
        }
    }

    /// Whether a route or a next-hop object may be flushed with a link.
    fn routes_depend_on(&self, index: u32) -> bool {
        !self.nexthops.is_empty()
            || self.routes().any(|route| route.hops.iter().any(|hop| hop.ifindex == index))
    }

    fn neighbour_seen(&mut self, neighbour: Neighbour) -> Effect {
        let before = self.neighbours.insert((neighbour.ifindex, neighbour.ip), neighbour);
        let before = before.and_then(|before| before.usable_mac());
        neighbours_changed(before != neighbour.usable_mac())
    }

    fn route_seen(&mut self, mut route: Route, placement: Placement) -> Effect {
        resolve_route(&self.nexthops, &mut route);
        let routes = self.routes.entry(RouteKey::of(&route)).or_default();
        match route.prefix {
            IpAddr::V4(_) => routes_changed(add_ipv4(routes, route, placement)),
            IpAddr::V6(_) => {
                let replace = placement == Placement::Replace;
                let reread_routes = replace && replacement_is_unclear(routes, route.metric);
                let changed = add_ipv6(routes, route, replace);
                Effect { reread_routes, ..routes_changed(changed) }
            }
        }
    }

    fn route_gone(&mut self, route: &Route) -> Effect {
        let key = RouteKey::of(route);
        let Some(routes) = self.routes.get_mut(&key) else { return Effect::default() };
        let before = routes.clone();
        let found = match route.prefix {
            IpAddr::V4(_) => remove_ipv4(routes, route),
            IpAddr::V6(_) => remove_ipv6(routes, route),
        };
        let changed = *routes != before;
        if routes.is_empty() {
            self.routes.remove(&key);
        }
        Effect { reread_routes: !found, ..routes_changed(changed) }
    }

    fn nexthop_seen(&mut self, object: Object) -> Effect {
        let before = self.nexthops.insert(object.id, object.clone());
        if before == Some(object) {
            return Effect::default();
        }
        let mut effect = routes_changed(self.resolve_routes());
        effect.changed.fdb = self.resolve_fdb();
        effect
    }

    fn nexthop_gone(&mut self, id: u32) -> Effect {
        let dropped = Changed { fdb: self.drop_fdb_by_nexthop(id), ..Changed::default() };
        if self.nexthops.remove(&id).is_none() {
            return Effect { changed: dropped, ..Effect::default() };
        }
        let mut changed = false;
        self.routes.retain(|_, routes| {
            let before = routes.len();
            routes.retain(|route| route.nexthop_id != Some(id));
            changed |= routes.len() != before;
            !routes.is_empty()
        });
        let mut effect = routes_changed(changed | self.resolve_routes());
        effect.changed.fdb = self.resolve_fdb();
        effect.changed |= dropped;
        effect
    }

    /// Takes the next hops of all routes that refer to an object from the objects again.
    fn resolve_routes(&mut self) -> bool {
        let mut changed = false;
        let referring = self.routes.values_mut().flatten().filter(|r| r.nexthop_id.is_some());
        for route in referring {
            let before = (route.kind, route.hops.clone());
            resolve_route(&self.nexthops, route);
            changed |= before != (route.kind, route.hops.clone());
        }
        changed
    }

    /// Takes routes and next-hop objects from a fresh picture.
    pub(crate) fn take_routes(&mut self, fresh: &mut Self) -> Changed {
        let routes = self.routes != fresh.routes;
        self.nexthops = std::mem::take(&mut fresh.nexthops);
        self.routes = std::mem::take(&mut fresh.routes);
        Changed { routes, fdb: self.resolve_fdb(), ..Changed::default() }
    }

    /// Takes everything from a fresh picture.
    pub(crate) fn take_all(&mut self, mut fresh: Self) -> Changed {
        let usable = |kernel: &Self| -> Vec<_> {
            let usable = kernel.neighbours.iter();
            usable.filter_map(|(&key, n)| n.usable_mac().map(|mac| (key, mac))).collect()
        };
        let mut changed = Changed {
            links: self.links != fresh.links,
            addresses: self.addresses != fresh.addresses,
            neighbours: usable(self) != usable(&fresh),
            fdb: self.fdb != fresh.fdb,
            ..Changed::default()
        };
        self.fdb = std::mem::take(&mut fresh.fdb);
        changed |= self.take_routes(&mut fresh);
        self.links = fresh.links;
        self.addresses = fresh.addresses;
        self.neighbours = fresh.neighbours;
        changed
    }
}

fn neighbours_changed(neighbours: bool) -> Effect {
    Effect { changed: Changed { neighbours, ..Changed::default() }, ..Effect::default() }
}

fn routes_changed(routes: bool) -> Effect {
    Effect { changed: Changed { routes, ..Changed::default() }, ..Effect::default() }
}

/// Gives a route that refers to a next-hop object what the object says. As long as the object is
/// unknown, the content that the kernel wrote into the route itself stands.
fn resolve_route(objects: &BTreeMap<u32, Object>, route: &mut Route) {
    let Some(id) = route.nexthop_id else { return };
    if objects.contains_key(&id) {
        (route.kind, route.hops) = nexthop::resolve(objects, id);
    } else if route.hops.is_empty() && route.kind == RouteKind::Unicast {
        route.kind = RouteKind::Foreign;
    }
}
