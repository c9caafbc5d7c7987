//! The addresses of a plan as the packet path of one table reads them: by id, and by address.
//!
//! There are two: of the IPv4 table, and of the extended one, whose addresses are IPv6 and IPv4 as
//! `::ffff:a.b.c.d` (RFC 4291 2.5.5.2).

use super::addresses::Addresses;
use super::{Forwarding, LocalId, Owner, Plan, RealId, Service, ServiceId};
use crate::family::Family;
use crate::key::{self, Key};
use crate::spec::{Ports, Protocol};
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
    /// How packets to it are forwarded.
    pub forwarding: Forwarding,
    flags: u8,
}

const _: () = assert!(size_of::<RealEntry<u32>>() == 12);

const KNOWN: u8 = 1;
const ENDS: u8 = 2;
const ANSWERS: u8 = 4;

/// Of [`RealEntry::rest`]'s flags: what is added for inbound packets, and what they then are if
/// [`RealEntry::goes_on`].
pub(crate) const ANSWERS_INBOUND: u32 = ANSWERS as u32;
pub(crate) const GOES_ON: u32 = (KNOWN | ANSWERS) as u32;

impl<A> RealEntry<A> {
    /// Whether it is one of this table's, its sessions go on, and have packets in a direction: of
    /// some modes only the inbound ones come by.
    #[inline(always)]
    pub const fn goes_on(&self, inbound: bool) -> bool {
        (self.flags | (inbound as u8 * ANSWERS)) == KNOWN | ANSWERS
    }

    /// Whether it is one of this table's.
    pub const fn is_known(&self) -> bool {
        self.flags & KNOWN != 0
    }

    /// All but the addresses: the port as it lies in memory, [`Forwarding`] (8 bits), and what
    /// [`Self::goes_on`] asks for (8 bits).
    #[inline(always)]
    pub const fn rest(&self) -> u32 {
        self.wire_port as u32 | self.forwarding.bits() << 16 | (self.flags as u32) << 24
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

/// So many local addresses are few: they fit registers.
const FEW: usize = 16;

/// The addresses of one table.
#[derive(Clone, Debug, Default)]
pub struct Side<A> {
    vips: Vec<Option<A>>,
    reals: Vec<RealEntry<A>>,
    /// Of IPv4 the same as rows: address, VIP, [`RealEntry::rest`], zero.
    real_rows: Vec<[u32; 4]>,
    locals: Vec<Option<A>>,
    /// The same in network byte order.
    locals_wire: Vec<Option<A>>,
    /// If they are few, the words that these have in memory, the same word of all beside each
    /// other; zeros for none.
    few_locals: Option<[[u32; FEW]; 4]>,
    /// Services of one port.
    exact: FxHashMap<(u8, A, u16), ServiceId>,
    /// Services of several ports, the narrowest first.
    ranges: FxHashMap<(u8, A), Vec<(Ports, ServiceId)>>,
    /// Services of any protocol.
    any: FxHashMap<A, ServiceId>,
    /// Where sessions may be of services that were there before the one that is there now: by
    /// protocol (0 for any) and address. See [`former`].
    former: FxHashMap<(u8, A), Vec<(Ports, Owner)>>,
    vip_set: FxHashMap<A, ()>,
    pub(super) pool_of: Addresses<A>,
    /// Where the sessions are of real servers that are reached by NAT: by protocol, address and
    /// port; 0 for any.
    nat: FxHashMap<(u8, A, u16), Vec<Owner>>,
    /// Addresses of such real servers, of either table.
    nat_set: FxHashMap<A, ()>,
}

impl<A: Copy> RealEntry<A> {
    /// The key of what answers a client's packet, as long as nothing stands for the client.
    #[inline(always)]
    pub const fn answers_to(&self, packet: &Key<A>) -> Key<A> {
        let (client_port, virtual_port) = key::halves(packet.ports);
        let ports = key::pair(self.port_for_wire(virtual_port), client_port);
        Key { src: self.wire_address, dst: packet.src, ports, protocol: packet.protocol }
    }
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

    /// Of IPv4 all real servers' rows: their addresses, those of their services,
    /// [`RealEntry::rest`], and zero.
    #[inline(always)]
    pub(crate) fn real_rows(&self) -> &[[u32; 4]] {
        &self.real_rows
    }

    /// All real servers by their ids.
    #[inline(always)]
    pub(crate) fn real_entries(&self) -> &[RealEntry<A>] {
        &self.reals
    }

    /// Says whether the sessions of a real server go on.
    pub(super) fn set_goes_on(&mut self, id: RealId, goes_on: bool) {
        let at = id.0 as usize;
        let Some(real) = self.reals.get_mut(at).filter(|real| real.is_known()) else { return };
        real.flags = if goes_on { real.flags & !ENDS } else { real.flags | ENDS };
        if let Some(row) = self.real_rows.get_mut(at) {
            row[2] = real.rest();
        }
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

    /// The words of all local addresses by their ids, if they are few; zeros for none.
    #[inline(always)]
    pub(crate) const fn few_locals(&self) -> Option<&[[u32; FEW]; 4]> {
        self.few_locals.as_ref()
    }

    /// Where a local address lies, in network byte order.
    #[inline(always)]
    pub(crate) fn local_wire_at(&self, id: LocalId) -> Option<&A> {
        self.locals_wire.get(usize::from(id.0)).and_then(Option::as_ref)
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
        self.any.get(&address).copied().filter(|_| !is_the_kernels(protocol))
    }

    /// Where sessions with an endpoint may be besides where those of the service that is there now
    /// belong: what says so of their clients.
    pub fn former_owners(
        &self,
        protocol: u8,
        address: A,
        port: u16,
    ) -> impl Iterator<Item = Owner> + '_ {
        let known = !self.former.is_empty();
        let keys = [protocol, if is_the_kernels(protocol) { protocol } else { 0 }];
        let all = keys.into_iter().filter(move |_| known);
        let all = all.filter_map(move |key| self.former.get(&(key, address))).flatten();
        all.filter(move |(ports, _)| ports.contains(port)).map(|(_, owner)| *owner)
    }

    /// Whether the address is a VIP or a local address.
    pub fn owns(&self, address: A) -> bool {
        self.vip_set.contains_key(&address) || self.pool_of.get(address).is_some()
    }

    /// Whether the address is a VIP.
    pub fn is_vip(&self, address: A) -> bool {
        self.vip_set.contains_key(&address)
    }

    /// Whether a real server with this address is reached by NAT.
    pub fn has_nat_real(&self, address: A) -> bool {
        self.nat_set.contains_key(&address)
    }

    /// Where the session may be of a packet that may come from a real server reached by NAT: what
    /// says so of its client.
    pub fn nat_owners(
        &self,
        protocol: u8,
        address: A,
        port: u16,
    ) -> impl Iterator<Item = Owner> + '_ {
        let known = !self.nat.is_empty();
        let keys = [(protocol, address, port), (protocol, address, 0), (0, address, 0)];
        let all = keys.into_iter().filter(move |_| known);
        all.filter_map(move |key| self.nat.get(&key)).flatten().copied()
    }
}

/// What a service of every protocol does not take, since the kernel and routing daemons live by it:
/// the same list as that of the XDP program.
const fn is_the_kernels(protocol: u8) -> bool {
    use sluice_wire::{ipv4, ipv6};
    matches!(
        protocol,
        ipv4::ICMP | ipv4::IGMP | ipv6::ICMPV6 | ipv4::OSPF | ipv4::VRRP | ipv6::NO_NEXT
    )
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
    let row = |real: &RealEntry<F::Addr>| {
        let (address, vip) = (F::word(real.wire_address)?, F::word(real.wire_vip)?);
        Some([address, vip, real.rest(), 0])
    };
    side.real_rows = side.reals.iter().map_while(row).collect();
    side.few_locals = (side.locals_wire.len() <= FEW).then(|| {
        let words: Vec<[u32; 4]> =
            side.locals_wire.iter().map(|local| local.map_or([0; 4], F::words)).collect();
        let word = |at: usize, id: usize| words.get(id).map_or(0, |words| words[at]);
        std::array::from_fn(|at| std::array::from_fn(|id| word(at, id)))
    });
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
    for (service, ports, owner) in former(plan, &is_ours) {
        let Some(vip) = F::from_ip(service.vip) else { continue };
        side.former.entry((service.protocol.number(), vip)).or_default().push((ports, owner));
    }
    for (number, pool) in plan.pools.iter().enumerate() {
        for local in pool.all_locals() {
            let Some(address) = side.local(local) else { continue };
            side.pool_of.add(address, number as u32);
        }
    }
    side
}

impl<A: Copy + Eq + Hash + Default> Side<A> {
    fn add_nat<F: Family<Addr = A>>(&mut self, plan: &Plan, is_ours: &impl Fn(ServiceId) -> bool) {
        // Those of tombstones too: their sessions go on.
        for real in plan.reals.iter().filter(|r| r.forwarding.answers_client()) {
            let Some(address) = F::from_ip(real.address) else { continue };
            self.nat_set.insert(address, ());
            if !is_ours(real.service) {
                continue;
            }
            let service = &plan.services[usize::from(real.service.0)];
            let owners = self.nat.entry((service.protocol.number(), address, real.port));
            let owners = owners.or_default();
            for owner in service.owners() {
                if !owners.contains(&owner) {
                    owners.push(owner);
                }
            }
        }
    }
}

/// Where sessions may be that are not where the service at their endpoint now has its own: those
/// of services that are gone, those from when a service had another owner, and those of a service
/// at whose ports a narrower one came later. Gives the service at whose address that is, which
/// ports, and what says where.
fn former<'a>(
    plan: &'a Plan,
    is_ours: &impl Fn(ServiceId) -> bool,
) -> Vec<(&'a Service, Ports, Owner)> {
    let numbered = plan.services.iter().enumerate();
    let ours =
        numbered.filter(|(id, service)| is_ours(ServiceId(*id as u16)) && service.snat.is_none());
    let ours: Vec<&Service> = ours.map(|(_, service)| service).collect();
    let mut found = Vec::new();
    for service in &ours {
        let owners =
            service.owners().filter(|owner| !service.live || Some(*owner) != service.owner);
        found.extend(owners.map(|owner| (*service, service.ports, owner)));
    }
    let has_range = |service: &&&Service| service.live && service.ports.single().is_none();
    for wider in ours.iter().filter(has_range) {
        let Some(owner) = wider.owner else { continue };
        let later = |s: &&&Service| {
            let other = !std::ptr::eq(**s, *wider);
            other && s.live && s.vip == wider.vip && s.born > wider.sessions_since
        };
        for service in ours.iter().filter(later) {
            let same = wider.protocol == service.protocol || wider.protocol == Protocol::Any;
            let ports = wider.ports.common(service.ports);
            found.extend(ports.filter(|_| same).map(|ports| (*service, ports, owner)));
        }
    }
    found
}

fn entry<F: Family>(plan: &Plan, real: &super::Real, ours: bool) -> RealEntry<F::Addr> {
    let none = RealEntry::default();
    let vip = plan.services.get(usize::from(real.service.0)).and_then(|s| F::from_ip(s.vip));
    // Tunnels and direct routing do not write the real server's address, so it may be of
    // either family.
    let is = real.forwarding;
    // Each session has its own.
    let remote = is.has_remote().then(F::Addr::default);
    let vip = remote.or(vip);
    let (address, port) = match is.translates_destination() {
        true => (F::from_ip(real.address), real.port),
        false => (vip, 0),
    };
    let answers = if is.answers_past() { 0 } else { ANSWERS };
    let (Some(address), Some(vip), true) = (address, vip, ours) else { return none };
    let ends = real.orphans != crate::spec::Orphans::Keep;
    let flags = KNOWN | answers | if ends { ENDS } else { 0 };
    RealEntry {
        wire_address: F::wire(address),
        wire_vip: F::wire(vip),
        wire_port: port.to_be(),
        forwarding: is,
        flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Ipv4;
    use crate::plan::Retired;
    use crate::spec::{Mode, Persistence, RealServer, Spec, VirtualService};

    const VIP: u32 = 0xc633_64c8;

    fn service(ports: Ports, mode: Mode, prefix: Option<u8>) -> VirtualService {
        let real = RealServer { address: [192, 0, 2, 11].into(), ..RealServer::default() };
        VirtualService {
            vip: Ipv4::to_ip(VIP),
            ports,
            mode,
            reals: vec![real],
            persistence: prefix.map(|prefix| Persistence { timeout_s: 1, prefix }),
            ..VirtualService::default()
        }
    }

    fn compile(services: &[VirtualService], before: Option<&Plan>, retired: &Retired) -> Plan {
        let spec = Spec { services: services.to_vec(), ..Spec::default() };
        Plan::compile(&spec, before, retired).unwrap()
    }

    fn at(plan: &Plan, port: u16) -> Vec<Owner> {
        let mut owners: Vec<_> = plan.v4.former_owners(6, VIP, port).collect();
        owners.sort_unstable();
        owners
    }

    #[test]
    fn who_owned_a_client_is_remembered_as_long_as_it_matters() {
        let none = Retired::default();
        let all = |prefix| service(Ports::ALL, Mode::Nat, prefix);
        let over = |prefix| service(Ports::one(80), Mode::Dr, prefix);
        let first = compile(&[all(None), over(Some(24))], None, &none);
        assert!(at(&first, 80).is_empty(), "they came together");
        let same = compile(&[all(None), over(Some(24))], Some(&first), &none);
        assert!(at(&same, 80).is_empty());
        let other = compile(&[all(None), over(Some(28))], Some(&same), &none);
        assert_eq!((at(&other, 80), at(&other, 81)), (vec![Owner::Network(24)], vec![]));
        let gone = compile(&[all(None)], Some(&other), &none);
        assert_eq!(at(&gone, 80), [Owner::Network(24), Owner::Network(28)]);
        let back = compile(&[all(None), over(Some(28))], Some(&gone), &none);
        // In between the wider one had its clients.
        assert_eq!(at(&back, 80), [Owner::Endpoint, Owner::Network(24)]);
        // The wider one goes and comes back: its clients of then are where they were.
        let alone = compile(&[over(Some(28))], Some(&back), &none);
        let both = compile(&[all(None), over(Some(28))], Some(&alone), &none);
        assert_eq!(at(&both, 80), [Owner::Endpoint, Owner::Network(24)]);
        let retired = Retired { services: [ServiceId(1)].into(), ..Retired::default() };
        let forgotten = compile(&[all(None)], Some(&gone), &retired);
        assert!(at(&forgotten, 80).is_empty());
    }

    #[test]
    fn all_who_may_have_a_nat_session_are_known() {
        let mut other = service(Ports::one(443), Mode::Nat, Some(24));
        other.reals[0].port = 80;
        let services = [service(Ports::one(80), Mode::Nat, None), other];
        let plan = compile(&services, None, &Retired::default());
        let owners = |port| plan.v4.nat_owners(6, 0xc000_020b, port).collect::<Vec<_>>();
        assert_eq!(owners(80), [Owner::Network(24), Owner::Endpoint]);
        // A port of 0 is the client's, whichever that was.
        assert_eq!(owners(443), [Owner::Endpoint]);
    }
}
