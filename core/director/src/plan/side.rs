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
pub(crate) struct RealEntry<A> {
    /// Its address; zero where the path does not write it (`dr`, `ipip`, `snat`).
    pub address: A,
    /// Its port; 0 for the one that the client sent to.
    pub port: u16,
    /// Forwarding mode.
    pub mode: Mode,
    flags: u8,
}

const _: () = assert!(size_of::<RealEntry<u32>>() == 8);

impl<A> RealEntry<A> {
    const KNOWN: u8 = 1;
    const ENDS: u8 = 2;

    /// Whether it is one of this table's, and its sessions go on.
    #[inline(always)]
    pub const fn goes_on(&self) -> bool {
        self.flags == Self::KNOWN
    }

    /// Whether it is one of this table's.
    pub const fn is_known(&self) -> bool {
        self.flags & Self::KNOWN != 0
    }

    /// The port that packets reach it by which were sent to `port`.
    #[inline(always)]
    pub const fn port_for(&self, port: u16) -> u16 {
        if self.port == 0 { port } else { self.port }
    }
}

/// The addresses of one table.
#[derive(Clone, Debug, Default)]
pub struct Side<A> {
    vips: Vec<Option<A>>,
    reals: Vec<RealEntry<A>>,
    locals: Vec<Option<A>>,
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
        reals: plan.reals.iter().map(|real| entry::<F>(real, is_ours(real.service))).collect(),
        locals: plan.locals.iter().map(|local| F::from_ip(*local)).collect(),
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

fn entry<F: Family>(real: &super::Real, ours: bool) -> RealEntry<F::Addr> {
    // Tunnels and direct routing do not write the real server's address, so it may be of
    // either family.
    let address = match real.mode {
        Mode::Fnat | Mode::Nat => F::from_ip(real.address),
        Mode::Dr | Mode::Ipip | Mode::Snat => Some(F::Addr::default()),
    };
    let Some(address) = address.filter(|_| ours) else { return RealEntry::default() };
    let ends = real.orphans != crate::blueprint::Orphans::Keep;
    let flags = RealEntry::<F::Addr>::KNOWN | if ends { RealEntry::<F::Addr>::ENDS } else { 0 };
    RealEntry { address, port: real.port, mode: real.mode, flags }
}
