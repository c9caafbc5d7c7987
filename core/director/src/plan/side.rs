//! The addresses of a plan as the packet path of one table reads them: by id, and by address.
//!
//! There are two: of the IPv4 table, and of the wide one, whose addresses are IPv6 and IPv4 as
//! `::ffff:a.b.c.d` (RFC 4291 2.5.5.2).

use super::{LocalId, Plan, RealId, ServiceId};
use crate::blueprint::{Mode, Ports, Protocol};
use crate::family::Family;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// A real server as the packet path reads it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RealEntry<A> {
    /// The address that packets to it carry: its own, or where they keep theirs (`dr`, `ipip`) its
    /// service's. In network byte order.
    pub wire_address: A,
    /// Its service's address, in network byte order.
    pub wire_vip: A,
    /// Its port, in network byte order; 0 for the one that the client sent to.
    wire_port: u16,
    /// Forwarding mode.
    pub mode: Mode,
    flags: u8,
}

const _: () = assert!(size_of::<RealEntry<u32>>() == 12);

impl<A> RealEntry<A> {
    const KNOWN: u8 = 1;
    const ENDS: u8 = 2;
    const ANSWERS: u8 = 4;

    /// Whether it is one of this table's, its sessions go on, and have packets in a direction: of
    /// some modes only the inbound ones come by.
    #[inline(always)]
    pub const fn goes_on(&self, inbound: bool) -> bool {
        (self.flags | (inbound as u8 * Self::ANSWERS)) == Self::KNOWN | Self::ANSWERS
    }

    /// Whether it is one of this table's.
    pub const fn is_known(&self) -> bool {
        self.flags & Self::KNOWN != 0
    }

    /// The port that packets reach it by which were sent to `port`.
    #[inline(always)]
    pub const fn port_for(&self, port: u16) -> u16 {
        u16::from_be(self.port_for_wire(port.to_be()))
    }

    /// The same in network byte order.
    #[inline(always)]
    pub const fn port_for_wire(&self, port: u16) -> u16 {
        if self.wire_port == 0 { port } else { self.wire_port }
    }
}

/// The addresses of one table.
#[derive(Clone, Debug, Default)]
pub struct Side<A> {
    vips: Vec<Option<A>>,
    reals: Vec<RealEntry<A>>,
    locals: Vec<Option<A>>,
    /// The same in network byte order.
    locals_wire: Vec<Option<A>>,
    /// Services of one port.
    exact: FxHashMap<(u8, A, u16), ServiceId>,
    /// Services of several ports, the narrowest first.
    ranges: FxHashMap<(u8, A), Vec<(Ports, ServiceId)>>,
    /// Services of any protocol.
    any: FxHashMap<A, ServiceId>,
    /// Services, former ones too, whose sessions belong to a worker that the client says: by
    /// protocol (0 for any) and address.
    owned: FxHashMap<(u8, A), Vec<(Ports, ServiceId)>>,
    vip_set: FxHashMap<A, ()>,
    pub(super) pool_of: FxHashMap<A, u32>,
    /// Real servers that are reached by NAT, by protocol, address and port; 0 for any.
    nat: FxHashMap<(u8, A, u16), ServiceId>,
    /// Addresses of such real servers, of either table.
    nat_set: FxHashMap<A, ()>,
}

impl<A: Copy + Eq + Hash> Side<A> {
    /// Virtual address of a service.
    #[inline(always)]
    pub fn vip(&self, id: ServiceId) -> Option<A> {
        self.vips.get(usize::from(id.0)).copied().flatten()
    }

    /// A real server.
    #[inline(always)]
    pub(crate) fn real(&self, id: RealId) -> Option<&RealEntry<A>> {
        self.reals.get(id.0 as usize)
    }

    /// Virtual addresses of all services, former ones too.
    pub(super) fn vips(&self) -> impl Iterator<Item = A> + '_ {
        self.vips.iter().copied().flatten()
    }

    /// All real servers, former ones too.
    pub(super) fn reals(&self) -> impl Iterator<Item = &RealEntry<A>> {
        self.reals.iter()
    }

    /// A local address.
    #[inline(always)]
    pub fn local(&self, id: LocalId) -> Option<A> {
        self.locals.get(usize::from(id.0)).copied().flatten()
    }

    /// A local address in network byte order.
    #[inline(always)]
    pub fn local_wire(&self, id: LocalId) -> Option<A> {
        self.locals_wire.get(usize::from(id.0)).copied().flatten()
    }

    /// The service at an endpoint: the most specific of those that are there.
    pub fn service_at(&self, protocol: u8, address: A, port: u16) -> Option<ServiceId> {
        if let Some(id) = self.exact.get(&(protocol, address, port)) {
            return Some(*id);
        }
        let ranges = self.ranges.get(&(protocol, address)).map_or(&[][..], Vec::as_slice);
        if let Some((_, id)) = ranges.iter().find(|(ports, _)| ports.contains(port)) {
            return Some(*id);
        }
        self.any.get(&address).copied().filter(|_| !is_icmp(protocol))
    }

    /// The services, former ones too, that may have had sessions with an endpoint which belong to
    /// a worker that the client says.
    pub fn owned_at(
        &self,
        protocol: u8,
        address: A,
        port: u16,
    ) -> impl Iterator<Item = ServiceId> + '_ {
        let all = [protocol, 0].into_iter().filter_map(move |key| self.owned.get(&(key, address)));
        all.flatten().filter(move |(ports, _)| ports.contains(port)).map(|(_, id)| *id)
    }

    /// Whether the address is a VIP or a local address.
    pub fn owns(&self, address: A) -> bool {
        self.vip_set.contains_key(&address) || self.pool_of.contains_key(&address)
    }

    /// Whether the address is a VIP.
    pub fn is_vip(&self, address: A) -> bool {
        self.vip_set.contains_key(&address)
    }

    /// Whether a real server with this address is reached by NAT.
    pub fn has_nat_real(&self, address: A) -> bool {
        self.nat_set.contains_key(&address)
    }

    /// The service whose real server, reached by NAT, a packet comes from.
    pub fn nat_service(&self, protocol: u8, address: A, port: u16) -> Option<ServiceId> {
        if self.nat.is_empty() {
            return None;
        }
        let keys = [(protocol, address, port), (protocol, address, 0), (0, address, 0)];
        keys.iter().find_map(|key| self.nat.get(key)).copied()
    }
}

/// ICMP stays with the kernel whatever services there are.
const fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, 1 | 58)
}

/// The addresses that the table of family `F` works with; `is_ours` says whose services are its.
pub(super) fn side<F: Family>(plan: &Plan, is_ours: impl Fn(ServiceId) -> bool) -> Side<F::Addr> {
    let service_ids = || (0..plan.services.len()).map(|id| ServiceId(id as u16));
    let mut side = Side {
        vips: service_ids()
            .map(|id| {
                let vip = plan.services[usize::from(id.0)].vip;
                F::from_ip(vip).filter(|_| is_ours(id))
            })
            .collect(),
        reals: plan.reals.iter().map(|r| entry::<F>(plan, r, is_ours(r.service))).collect(),
        locals: plan.locals.iter().map(|local| F::from_ip(*local)).collect(),
        locals_wire: plan.locals.iter().map(|local| F::from_ip(*local).map(F::wire)).collect(),
        ..Side::default()
    };
    for (id, service) in plan.live_services() {
        let Some(vip) = F::from_ip(service.vip) else { continue };
        side.vip_set.insert(vip, ());
        if !is_ours(id) {
            continue;
        }
        let protocol = service.protocol.number();
        match (service.protocol, service.ports.single()) {
            (Protocol::Any, _) => {
                side.any.insert(vip, id);
            }
            (_, Some(port)) => {
                side.exact.insert((protocol, vip, port), id);
            }
            (_, None) => {
                side.ranges.entry((protocol, vip)).or_default().push((service.ports, id));
            }
        }
    }
    for ranges in side.ranges.values_mut() {
        ranges.sort_by_key(|(ports, id)| (ports.last - ports.first, id.0));
    }
    side.add_nat::<F>(plan, &is_ours);
    for id in service_ids().filter(|id| is_ours(*id)) {
        let service = &plan.services[usize::from(id.0)];
        let vip = F::from_ip(service.vip).filter(|_| service.owned && service.snat.is_none());
        if let Some(vip) = vip {
            let key = (service.protocol.number(), vip);
            side.owned.entry(key).or_default().push((service.ports, id));
        }
    }
    for (number, pool) in plan.pools.iter().enumerate() {
        for local in pool.locals.iter().flatten() {
            let Some(address) = side.local(*local) else { continue };
            side.pool_of.entry(address).or_insert(number as u32);
        }
    }
    side
}

impl<A: Copy + Eq + Hash + Default> Side<A> {
    fn add_nat<F: Family<Addr = A>>(&mut self, plan: &Plan, is_ours: &impl Fn(ServiceId) -> bool) {
        // Those of tombstones too: their sessions go on.
        for real in plan.reals.iter().filter(|r| r.mode == Mode::Nat) {
            let Some(address) = F::from_ip(real.address) else { continue };
            self.nat_set.insert(address, ());
            if !is_ours(real.service) {
                continue;
            }
            let protocol = plan.services[usize::from(real.service.0)].protocol.number();
            let key = (protocol, address, real.port);
            if real.live || !self.nat.contains_key(&key) {
                self.nat.insert(key, real.service);
            }
        }
    }
}

fn entry<F: Family>(plan: &Plan, real: &super::Real, ours: bool) -> RealEntry<F::Addr> {
    type Entry<F> = RealEntry<<F as Family>::Addr>;
    let none = RealEntry::default();
    let vip = plan.services.get(usize::from(real.service.0)).and_then(|s| F::from_ip(s.vip));
    // Tunnels and direct routing do not write the real server's address, so it may be of
    // either family.
    let (address, port, answers) = match real.mode {
        Mode::Fnat | Mode::Nat => (F::from_ip(real.address), real.port, Entry::<F>::ANSWERS),
        Mode::Dr | Mode::Ipip => (vip, 0, 0),
        // Each session has its own.
        Mode::Snat => (Some(F::Addr::default()), 0, Entry::<F>::ANSWERS),
    };
    let vip = if real.mode == Mode::Snat { address } else { vip };
    let (Some(address), Some(vip), true) = (address, vip, ours) else { return none };
    let ends = real.orphans != crate::blueprint::Orphans::Keep;
    let flags = Entry::<F>::KNOWN | answers | if ends { Entry::<F>::ENDS } else { 0 };
    RealEntry {
        wire_address: F::wire(address),
        wire_vip: F::wire(vip),
        wire_port: port.to_be(),
        mode: real.mode,
        flags,
    }
}
