//! What differs between IPv4 and IPv6, so that everything else is written once.

use crate::fib::{Fib, HopId};
use crate::hash::Seed;
use crate::key::{self, Key};
use crate::plan::{Plan, Side};
use crate::session::{Extra, SessionOf};
use bytemuck::Pod;
use std::fmt::Debug;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The endpoints and protocol of a packet, as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuple<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// IP protocol number.
    pub protocol: u8,
}

impl<A: Copy> Tuple<A> {
    /// The tuple of what answers a packet with this one.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            protocol: self.protocol,
        }
    }

    /// The same endpoints in another form.
    pub(crate) fn map<B>(&self, form: impl Fn(A) -> B) -> Tuple<B> {
        Tuple {
            src: form(self.src),
            dst: form(self.dst),
            sport: self.sport,
            dport: self.dport,
            protocol: self.protocol,
        }
    }
}

/// The addresses that a session table works with.
pub trait Family: Sized + 'static {
    /// An address in host byte order.
    type Addr: Copy + Eq + Hash + Debug + Default + Pod;

    /// What its sessions have besides.
    type Extra: Copy + Debug + Default + Pod;

    /// Whether its sessions have room for more than plain IPv4 ones need.
    const WIDE: bool;

    /// An address in network byte order, or back in the host's.
    fn wire(address: Self::Addr) -> Self::Addr;

    /// An address that is one word.
    fn word(address: Self::Addr) -> Option<u32>;

    /// The words of an address as it lies in memory, zeros behind that of one word.
    fn words(address: Self::Addr) -> [u32; 4];

    /// A tuple in network byte order.
    #[inline(always)]
    fn key(tuple: &Tuple<Self::Addr>) -> Key<Self::Addr> {
        Key {
            src: Self::wire(tuple.src),
            dst: Self::wire(tuple.dst),
            ports: key::ports(tuple.sport, tuple.dport),
            protocol: tuple.protocol,
        }
    }

    /// A key in host byte order.
    #[inline(always)]
    fn tuple(key: &Key<Self::Addr>) -> Tuple<Self::Addr> {
        let (sport, dport) = key::split(key.ports);
        let (src, dst) = (Self::wire(key.src), Self::wire(key.dst));
        Tuple { src, dst, sport, dport, protocol: key.protocol }
    }

    /// The session hash of a key: its upper half chooses the bucket, its lower half the tag.
    fn hash_key(key: &Key<Self::Addr>, seed: &Seed) -> u64;

    /// The session hash of a tuple.
    fn hash(tuple: &Tuple<Self::Addr>, seed: &Seed) -> u64 {
        Self::hash_key(&Self::key(tuple), seed)
    }

    /// This family's addresses of a plan.
    fn side(plan: &Plan) -> &Side<Self::Addr>;

    /// The address in the general form.
    fn to_ip(address: Self::Addr) -> IpAddr;

    /// The address in this family's form, if it is of this family.
    fn from_ip(address: IpAddr) -> Option<Self::Addr>;

    /// The first `prefix` bits of an address, counted in its own family.
    fn masked(address: Self::Addr, prefix: u8) -> Self::Addr;

    /// Whether a packet leaves as another IP version than it came as.
    fn crosses(old: &Tuple<Self::Addr>, new: &Tuple<Self::Addr>) -> bool;

    /// The same of keys.
    fn keys_cross(old: &Key<Self::Addr>, new: &Key<Self::Addr>) -> bool;

    /// What a session of source NAT towards an outside address has besides.
    fn towards(far: Self::Addr) -> Self::Extra;

    /// The next hop towards the outside that a session of source NAT remembers.
    fn far_hop(session: &SessionOf<Self>, fib: &Fib) -> HopId;

    /// Remembers a session's next hop towards the outside, if it is one of source NAT.
    fn remember_far_hop(session: &mut SessionOf<Self>, fib: &Fib, hop: HopId);

    /// The outside address of a session of source NAT.
    fn far(session: &SessionOf<Self>) -> Self::Addr;

    /// The client's initial sequence number; 0 where there is no place for it.
    fn isn(session: &SessionOf<Self>) -> u32;

    /// What a session whose client began with this sequence number has besides.
    fn beginning_at(isn: u32) -> Self::Extra;

    /// Rewrites addresses and ports of a packet from `old` to `new`, both of the packet's own
    /// family; its network and transport headers are where `at` says. Takes one hop off its time
    /// to live, which is not zero, and updates checksums.
    fn rewrite(
        frame: &mut [u8],
        at: (usize, usize),
        old: &Tuple<Self::Addr>,
        new: &Tuple<Self::Addr>,
    );

    /// Whether a packet from this address can have come over a network.
    fn is_unicast_source(address: Self::Addr) -> bool;

    /// Whether an address means something on its own link only.
    fn is_link_local(address: Self::Addr) -> bool;
}

/// IPv4.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4;

impl Family for Ipv4 {
    type Addr = u32;
    type Extra = ();
    const WIDE: bool = false;

    #[inline(always)]
    fn wire(address: u32) -> u32 {
        address.to_be()
    }

    fn word(address: u32) -> Option<u32> {
        Some(address)
    }

    fn words(address: u32) -> [u32; 4] {
        [address, 0, 0, 0]
    }

    #[inline(always)]
    fn hash_key(key: &Key<u32>, seed: &Seed) -> u64 {
        seed.hash([[key.src, key.dst], [key.ports, u32::from(key.protocol)]])
    }

    #[inline(always)]
    fn side(plan: &Plan) -> &Side<u32> {
        &plan.v4
    }

    fn to_ip(address: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(address))
    }

    fn from_ip(address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(v4) => Some(v4.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn masked(address: u32, prefix: u8) -> u32 {
        let free = 32 - u32::from(prefix.min(32));
        address & u32::MAX.checked_shl(free).unwrap_or(0)
    }

    fn crosses(_: &Tuple<u32>, _: &Tuple<u32>) -> bool {
        false
    }

    fn keys_cross(_: &Key<u32>, _: &Key<u32>) -> bool {
        false
    }

    fn towards(_: u32) {}

    fn far_hop(_: &SessionOf<Self>, _: &Fib) -> HopId {
        HopId::NONE
    }

    fn remember_far_hop(_: &mut SessionOf<Self>, _: &Fib, _: HopId) {}

    fn far(_: &SessionOf<Self>) -> u32 {
        0
    }

    fn isn(_: &SessionOf<Self>) -> u32 {
        0
    }

    fn beginning_at(_: u32) {}

    #[inline(always)]
    fn rewrite(frame: &mut [u8], at: (usize, usize), old: &Tuple<u32>, new: &Tuple<u32>) {
        crate::path::rewrite_v4(frame, at, old, new);
    }

    fn is_unicast_source(address: u32) -> bool {
        sluice_wire::ipv4::is_unicast_source(address)
    }

    fn is_link_local(address: u32) -> bool {
        sluice_wire::ipv4::is_link_local(address)
    }
}

/// IPv6, and IPv4 as `::ffff:a.b.c.d` (RFC 4291 2.5.5.2): the addresses of the extended table.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6;

/// The first 96 bits of an IPv4 address in IPv6's form.
const MAPPED: u128 = 0xffff << 32;

/// An IPv4 address in IPv6's form.
#[inline(always)]
pub(crate) const fn mapped(address: u32) -> u128 {
    MAPPED | address as u128
}

/// The IPv4 address that an IPv6 address stands for, if it does.
#[inline(always)]
pub(crate) const fn unmapped(address: u128) -> Option<u32> {
    if address >> 32 == MAPPED >> 32 { Some(address as u32) } else { None }
}

/// The same in network byte order: the address is in the last four bytes.
#[inline(always)]
pub(crate) const fn mapped_wire(address: u32) -> u128 {
    let [a, b, c, d] = address.to_ne_bytes();
    u128::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
}

/// See [`unmapped`]; both in network byte order.
#[inline(always)]
pub(crate) const fn unmapped_wire(address: u128) -> Option<u32> {
    let little = cfg!(target_endian = "little");
    let last = if little { address >> 96 } else { address } as u32;
    if address == mapped_wire(last) { Some(last) } else { None }
}

impl Family for Ipv6 {
    type Addr = u128;
    type Extra = Extra;
    const WIDE: bool = true;

    #[inline(always)]
    fn wire(address: u128) -> u128 {
        address.to_be()
    }

    fn word(_: u128) -> Option<u32> {
        None
    }

    fn words(address: u128) -> [u32; 4] {
        bytemuck::must_cast(address)
    }

    #[inline(always)]
    fn hash_key(key: &Key<u128>, seed: &Seed) -> u64 {
        let [src, dst] = [key.src, key.dst].map(Self::words);
        let pair = |at: usize| [src[at], dst[at]];
        seed.hash([pair(0), pair(1), pair(2), pair(3), [key.ports, u32::from(key.protocol)]])
    }

    #[inline(always)]
    fn side(plan: &Plan) -> &Side<u128> {
        &plan.extended
    }

    fn to_ip(address: u128) -> IpAddr {
        match unmapped(address) {
            Some(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4)),
            None => IpAddr::V6(Ipv6Addr::from_bits(address)),
        }
    }

    fn from_ip(address: IpAddr) -> Option<u128> {
        Some(match address {
            IpAddr::V4(v4) => mapped(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        })
    }

    fn masked(address: u128, prefix: u8) -> u128 {
        match unmapped(address) {
            Some(v4) => mapped(Ipv4::masked(v4, prefix)),
            None => {
                let free = 128 - u32::from(prefix.min(128));
                address & u128::MAX.checked_shl(free).unwrap_or(0)
            }
        }
    }

    #[inline(always)]
    fn crosses(old: &Tuple<u128>, new: &Tuple<u128>) -> bool {
        unmapped(old.src).is_some() != unmapped(new.src).is_some()
    }

    #[inline(always)]
    fn keys_cross(old: &Key<u128>, new: &Key<u128>) -> bool {
        unmapped_wire(old.src).is_some() != unmapped_wire(new.src).is_some()
    }

    fn towards(far: u128) -> Extra {
        Extra::towards(far)
    }

    #[inline(always)]
    fn far_hop(session: &SessionOf<Self>, fib: &Fib) -> HopId {
        let (hop, generation) = (session.extra.isn as u16, (session.extra.isn >> 16) as u16);
        if generation == fib.generation() { HopId(hop) } else { HopId::NONE }
    }

    fn remember_far_hop(session: &mut SessionOf<Self>, fib: &Fib, hop: HopId) {
        if session.extra.far() != 0 {
            session.extra.isn = u32::from(fib.generation()) << 16 | u32::from(hop.0);
        }
    }

    fn far(session: &SessionOf<Self>) -> u128 {
        session.extra.far()
    }

    fn isn(session: &SessionOf<Self>) -> u32 {
        session.extra.isn
    }

    fn beginning_at(isn: u32) -> Extra {
        Extra::beginning_at(isn)
    }

    #[inline(always)]
    fn rewrite(frame: &mut [u8], at: (usize, usize), old: &Tuple<u128>, new: &Tuple<u128>) {
        crate::path::rewrite_extended(frame, at, old, new);
    }

    fn is_unicast_source(address: u128) -> bool {
        match unmapped(address) {
            Some(v4) => sluice_wire::ipv4::is_unicast_source(v4),
            None => sluice_wire::ipv6::is_unicast_source(address),
        }
    }

    fn is_link_local(address: u128) -> bool {
        match unmapped(address) {
            Some(v4) => sluice_wire::ipv4::is_link_local(v4),
            None => sluice_wire::ipv6::is_link_local(address),
        }
    }
}
