//! Tunnels: what one leaves of an MTU, what routers on its way said about theirs, and the way
//! into it.

mod prepared;

use super::errors::Received;
use super::others::Others;
use super::sweep::expired;
use super::turn::Turn;
use super::{Shared, Verdict, answer, quote, rewrite};
use crate::counters::Direction;
use crate::encap::{self, Encap};
use crate::family::{Family, Ipv4, Ipv6, Tuple};
use crate::fib::Hop;
use crate::frame::Frame;
use crate::plan::{Plan, RealId};
use crate::reason::Reason;
use crate::session::Sessions;
use crate::spec::Network;
use crate::time::Time;
pub(super) use prepared::{Four, Six, Tunnel};
use rustc_hash::FxHashMap;
use sluice_wire::{ethernet, icmp, ipip, ipv4, ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How long a path MTU is believed (RFC 1191 6.3, RFC 8201 4).
const BELIEVED_MS: u64 = 10 * 60 * 1000;
/// The least path MTU of IPv4 that is believed: less would be a way to be kept from sending by
/// forged errors, and no link has it.
const LEAST_V4: u16 = 576;
/// The least that is believed of a router which quotes so little that nobody can tell whether the
/// packet was one of the director's (RFC 792 asks for no more than eight bytes behind the outer
/// header, which name no addresses): enough for IPv6's least MTU in the tunnel.
const fn unproven(encap: Encap) -> u16 {
    ipv6::MIN_MTU as u16 + encap.overhead
}
/// Likely path MTUs (RFC 1191 7.1), for routers that do not tell theirs.
const PLATEAUS: [u16; 7] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006];

/// What is known of the paths to the real servers of one plan: one entry each, so that a packet
/// finds it without a search.
#[derive(Default)]
pub(super) struct Paths {
    learned: Vec<Learned>,
    /// What is prepared of tunnels over IPv4 and over IPv6, by their real servers' ids.
    pub fours: Vec<Four>,
    pub sixes: Vec<Six>,
    /// Real servers at the far ends of tunnels, in the order of their addresses.
    ends: Vec<(IpAddr, RealId)>,
    /// The encapsulations that packets to each of these addresses have.
    encaps: FxHashMap<IpAddr, Vec<Encap>>,
}

#[derive(Clone, Copy)]
struct Learned {
    /// The real server's, to notice that an id was given anew.
    address: IpAddr,
    /// Path MTU; 0 for none.
    mtu: u16,
    at: Time,
}

impl Paths {
    /// Makes room for the real servers of a plan.
    pub fn adopt(&mut self, plan: &Plan) {
        let unknown = |address| Learned { address, mtu: 0, at: Time::default() };
        for (real, learned) in plan.reals.iter().zip(&mut self.learned) {
            if real.address != learned.address {
                *learned = unknown(real.address);
            }
        }
        self.learned.truncate(plan.reals.len());
        let more = plan.reals.iter().skip(self.learned.len());
        self.learned.extend(more.map(|real| unknown(real.address)));
        let rooms = || self.learned.iter().map(|learned| (learned.address, learned.most()));
        prepared::all(&mut self.fours, plan.tunnel.v4, rooms());
        prepared::all(&mut self.sixes, plan.tunnel.v6, rooms());
        self.ends.clear();
        let tunnels = plan.reals.iter().zip(0..).filter(|(real, _)| real.forwarding.has_tunnel());
        self.ends.extend(tunnels.map(|(real, id)| (real.address, RealId(id))));
        self.ends.sort_unstable();
        self.encaps.clear();
        for (address, encap) in plan.reals.iter().filter_map(|r| Some((r.address, r.encap?))) {
            let known = self.encaps.entry(address).or_default();
            if !known.contains(&encap) {
                known.push(encap);
            }
        }
    }

    /// How an outer packet was encapsulated, and where the packet inside begins behind its outer
    /// header, as far as it is quoted.
    fn encap_of(&self, outer: &Outer, quote: &[u8]) -> Option<(Encap, usize)> {
        let behind = quote.get(outer.behind..)?;
        let encaps = self.encaps.get(&outer.to)?;
        let fit = || encaps.iter().filter_map(|it| Some((*it, it.inside(outer.protocol, behind)?)));
        fit().find(|(encap, _)| encap.has_like_checksum(behind)).or_else(|| fit().next())
    }

    /// The most that a packet towards a real server may be long with its outer header, when its
    /// link takes so much.
    #[inline(always)]
    pub fn mtu(&self, real: RealId, link: u16, now: Time) -> u16 {
        match self.learned.get(real.0 as usize) {
            Some(learned) if learned.mtu != 0 => learned.limit(link, now),
            _ => link,
        }
    }

    /// Whether a packet of so many bytes surely fits into a tunnel, with its outer header into what
    /// the link takes.
    #[inline(always)]
    pub fn fits(&self, real: RealId, length: u32, link: u16) -> bool {
        let at = real.0 as usize;
        self.fours.get(at).is_some_and(|four| four.fits(length, link))
            || self.sixes.get(at).is_some_and(|six| six.fits(length, link))
    }

    /// Puts a written packet without tags into a tunnel over IPv4, and gives it the link-layer
    /// addresses of a hop; `None`, and nothing done, for another tunnel or hop.
    #[inline(always)]
    pub fn enter_plain<B: Frame>(
        &self,
        (real, hash): (RealId, u64),
        frame: &mut B,
        hop: &Hop,
    ) -> Option<Verdict> {
        let outer = self.fours.get(real.0 as usize)?;
        if !outer.is_one() || hop.vlan != 0 {
            return None;
        }
        if !frame.push_front(ipip::OVERHEAD_V4) {
            return Some(Verdict::Drop(Reason::Headroom));
        }
        Some(match outer.write(frame.bytes_mut(), hash, hop) {
            Some(()) => Verdict::Tx(hop.port),
            None => Verdict::Drop(Reason::Headroom),
        })
    }

    /// Believes what a router on the way to an address said its next link takes.
    pub fn learn(&mut self, address: IpAddr, told: u16, now: Time) {
        let least = least(address);
        let first = self.ends.partition_point(|(end, _)| *end < address);
        let ends = self.ends[first..].iter().take_while(|(end, _)| *end == address);
        for (_, id) in ends {
            let Some(learned) = self.learned.get_mut(id.0 as usize) else { continue };
            // An error never makes it larger: that is for time to tell.
            let mtu = learned.limit(told.max(least), now);
            (learned.mtu, learned.at) = (mtu, now);
            prepared::renew(&mut self.fours, *id, learned.most());
            prepared::renew(&mut self.sixes, *id, learned.most());
        }
    }

    /// Forgets what is no more believed of the path to a real server.
    #[inline(never)]
    pub fn forget(&mut self, real: RealId, now: Time) {
        let Some(learned) = self.learned.get_mut(real.0 as usize) else { return };
        if learned.mtu != 0 && !learned.is_fresh(now) {
            learned.mtu = 0;
            prepared::renew(&mut self.fours, real, learned.most());
            prepared::renew(&mut self.sixes, real, learned.most());
        }
    }
}

impl Learned {
    fn limit(&self, mtu: u16, now: Time) -> u16 {
        if self.is_fresh(now) { mtu.min(self.mtu) } else { mtu }
    }

    fn is_fresh(&self, now: Time) -> bool {
        self.mtu != 0 && now.0.saturating_sub(self.at.0) < BELIEVED_MS
    }

    /// The most that a packet may be long with its outer header, as far as the path is known.
    const fn most(&self) -> u16 {
        if self.mtu == 0 { u16::MAX } else { self.mtu }
    }
}

/// The largest packet that fits into a tunnel to a real server. A call, so that packets without a
/// tunnel keep their registers.
#[inline(never)]
pub(super) fn room(paths: &Paths, plan: &Plan, real: RealId, link: u16, now: Time) -> u16 {
    let encap = plan.real(real).and_then(|real| real.encap);
    paths.mtu(real, link, now).saturating_sub(encap.map_or(0, |encap| encap.overhead))
}

/// How packets of a flow whose key has this hash are encapsulated towards their real server, and
/// the ends of the tunnel; the reason why they cannot be.
pub(super) fn way_into(
    plan: &Plan,
    (real, hash): (RealId, u64),
) -> Result<(&Encap, IpAddr, IpAddr), Reason> {
    let real = plan.real(real).ok_or(Reason::NoReal)?;
    let encap = real.encap.as_ref().ok_or(Reason::NoReal)?;
    let source = match real.address {
        IpAddr::V4(_) => plan.tunnel.v4,
        IpAddr::V6(_) => plan.tunnel.v6,
    };
    let source = source.ok_or(Reason::NoTunnelSource)?;
    Ok((encap, one_of(&source, hash), real.address))
}

/// Encapsulates a packet, whose IP header is at `l3` and whose key has this hash, towards its real
/// server.
pub(super) fn enter<B: Frame>(
    plan: &Plan,
    (real, hash): (RealId, u64),
    l3: u8,
    frame: &mut B,
) -> Option<Reason> {
    let (encap, from, to) = match way_into(plan, (real, hash)) {
        Ok(way) => way,
        Err(reason) => return Some(reason),
    };
    match rewrite::encapsulate(frame, usize::from(l3), encap, (from, to, hash)) {
        Some(()) => None,
        None => Some(Reason::Headroom),
    }
}

/// Whether an error is about an outer packet of the director's own.
pub(super) fn is_about_own(paths: &Paths, plan: &Plan, received: Received, frame: &[u8]) -> bool {
    let quote = received.quote(frame);
    let Some(outer) = Outer::read(quote) else { return false };
    let source = match received.to {
        IpAddr::V4(_) => plan.tunnel.v4,
        IpAddr::V6(_) => plan.tunnel.v6,
    };
    outer.from == received.to
        && source.is_some_and(|source| source.contains(outer.from))
        && (encap::has_own_protocol(outer.protocol) || paths.encap_of(&outer, quote).is_some())
}

/// The outer header that an error quotes.
struct Outer {
    from: IpAddr,
    to: IpAddr,
    /// What it says is behind it.
    protocol: u8,
    /// Length of the whole packet in bytes.
    total: usize,
    /// Where it ends; of a later fragment, the end of what is quoted.
    behind: usize,
}

impl Outer {
    fn read(quote: &[u8]) -> Option<Self> {
        Some(if quote.first()? >> 4 == 6 {
            let header = ipv6::Header(quote.first_chunk()?);
            let found = ipv6::walk_quoted(quote).ok()?;
            let (from, to) = (Ipv6::to_ip(header.source()), Ipv6::to_ip(header.destination()));
            let first = found.fragment.is_none_or(|fragment| fragment.offset == 0);
            let behind = if first { found.offset } else { quote.len() };
            Self { from, to, protocol: found.protocol, total: header.total_len(), behind }
        } else {
            let header = ipv4::Header(quote.first_chunk()?);
            let (from, to) = (Ipv4::to_ip(header.source()), Ipv4::to_ip(header.destination()));
            let later = u16::from_be_bytes([header.0[6], header.0[7]]) & 0x1fff != 0;
            let behind = if later { quote.len() } else { header.header_len() };
            let (protocol, total) = (header.protocol(), header.total_len());
            Self { from, to, protocol, total, behind }
        })
    }
}

/// What an error about an outer packet means for who sent what is inside.
enum Meaning {
    /// It was larger than this, with its outer header.
    TooBig(u16),
    /// It did not arrive.
    Lost,
}

impl Meaning {
    fn of(received: Received, outer: &Outer) -> Option<Self> {
        let (told, is) = match received.to {
            IpAddr::V4(_) => {
                let is = (received.kind, received.code)
                    == (icmp::v4::UNREACHABLE, icmp::v4::FRAGMENTATION_NEEDED);
                let told = received.rest & 0xffff;
                let fits = |mtu: &u16| usize::from(*mtu) < outer.total;
                let likely = || PLATEAUS.into_iter().find(fits).unwrap_or(LEAST_V4);
                (if told == 0 { likely().into() } else { told }, is)
            }
            IpAddr::V6(_) => (received.rest, received.kind == icmp::v6::PACKET_TOO_BIG),
        };
        if !is {
            return Some(Self::Lost);
        }
        // One that was small enough was not too big.
        let told = u16::try_from(told).ok()?.max(least(outer.to));
        (usize::from(told) < outer.total).then_some(Self::TooBig(told))
    }
}

/// The verdict on an error about an outer packet (RFC 2003 4, RFC 2473 8): if the packet inside is
/// one of a session with the real server at the tunnel's end, the path's MTU is remembered and the
/// packet's sender is told. Anybody can send an error about a packet that never was; so that is
/// the proof, as it is for other errors (RFC 5927 4.1). Another worker may have the session: then
/// the error goes round.
pub(super) fn reported<F: Family, B: Frame>(
    shared: &mut Shared,
    turn: Turn<'_>,
    sessions: &Sessions<F>,
    (received, at): (Received, u8),
    frame: &mut B,
) -> Verdict {
    let (plan, fib) = (turn.view.plan, turn.view.fib);
    let quote = received.quote(frame.bytes());
    let Some(outer) = Outer::read(quote) else { return Verdict::Drop(Reason::IcmpError) };
    if !received.is_sound(frame.bytes()) {
        return Verdict::Drop(Reason::BadL4Checksum);
    }
    let meaning = Meaning::of(received, &outer).filter(|_| received.is_possible());
    let Some(meaning) = meaning else { return Verdict::Drop(Reason::IcmpError) };
    let mut copy = [0; icmp::MOST_V6];
    // To an address of no tunnel nothing was sent, whatever a quote says.
    let Some((encap, shim)) = shared.paths.encap_of(&outer, quote) else {
        return Verdict::Drop(Reason::IcmpError);
    };
    let inner = quote.get(outer.behind + shim..).unwrap_or_default();
    let inner = &inner[..inner.len().min(copy.len())];
    copy[..inner.len()].copy_from_slice(inner);
    let inner = &copy[..inner.len()];
    let (service, client) = match Inside::of(turn, sessions, (&outer, encap), inner) {
        Inside::Session(service, client) => (service, client),
        Inside::Unknown => {
            let next = shared.next_of_all(at);
            return next.map_or(Verdict::Drop(Reason::IcmpError), Verdict::HandOff);
        }
        Inside::Unclear => {
            if let (Meaning::TooBig(told), IpAddr::V4(_)) = (&meaning, outer.to) {
                shared.paths.learn(outer.to, (*told).max(unproven(encap)), turn.now);
            }
            return Verdict::Drop(Reason::IcmpError);
        }
    };
    if let Meaning::TooBig(told) = meaning {
        shared.paths.learn(outer.to, told, turn.now);
    }
    let Some(message) = meaning.message((&outer, encap), inner) else {
        return Verdict::Drop(Reason::IcmpError);
    };
    let may = shared.answers.errors.allows(plan.icmp_errors_per_s, turn.now);
    if !may || !answer::write_error(frame, received.l3, (service, client), message, inner) {
        return Verdict::Drop(Reason::IcmpError);
    }
    shared.answers.errors.take();
    let ethertype = if client.is_ipv6() { ethernet::IPV6 } else { ethernet::IPV4 };
    if let Some(field) = frame.bytes_mut().get_mut(received.l3 - 2..received.l3) {
        field.copy_from_slice(&ethertype.to_be_bytes());
    }
    match fib.lookup(client).ok().and_then(|id| fib.hop(id)) {
        Some(hop) => rewrite::link_layer(frame, hop),
        None => shared.scratch.unresolved(fib, at, client),
    }
}

/// Whose packet it is that a tunnel carried.
enum Inside {
    /// A session's: its virtual address, and its client.
    Session(IpAddr, IpAddr),
    /// None's that this worker has.
    Unknown,
    /// Too little of it is quoted to tell, or it is a later fragment.
    Unclear,
}

impl Inside {
    fn of<F: Family>(
        turn: Turn<'_>,
        sessions: &Sessions<F>,
        (outer, encap): (&Outer, Encap),
        inner: &[u8],
    ) -> Self {
        let Some(quote) = quote::read::<Ipv6>(inner) else { return Self::Unclear };
        let tuple = quote.tuple.map(Ipv6::to_ip);
        let real = real_of(sessions, turn, &tuple).or_else(|| match turn.others {
            Others::Compact(sessions) => real_of(sessions, turn, &tuple),
            Others::Extended(sessions) => real_of(sessions, turn, &tuple),
        });
        let real = real.and_then(|id| turn.view.plan.real(id));
        let is_there = real.is_some_and(|r| r.encap == Some(encap) && r.address == outer.to);
        if is_there { Self::Session(tuple.dst, tuple.src) } else { Self::Unknown }
    }
}

/// The real server of the session that a client's packet with this tuple belongs to.
fn real_of<F: Family>(
    sessions: &Sessions<F>,
    turn: Turn<'_>,
    tuple: &Tuple<IpAddr>,
) -> Option<RealId> {
    let Tuple { sport, dport, protocol, .. } = *tuple;
    let (src, dst) = (F::from_ip(tuple.src)?, F::from_ip(tuple.dst)?);
    let tuple = Tuple { src, dst, sport, dport, protocol };
    let plan = turn.view.plan;
    let flow = sessions.find(plan, sessions.hash(&tuple), &tuple)?;
    let session = sessions.slab().at(flow.id());
    let is_its = flow.direction() == Direction::Inbound && !expired(session, plan, turn.now);
    is_its.then(|| session.real())
}

/// The least path MTU that is believed of a tunnel to an address.
const fn least(end: IpAddr) -> u16 {
    if end.is_ipv6() { ipv6::MIN_MTU as u16 } else { LEAST_V4 }
}

impl Meaning {
    /// Type, code and second word of the error about the packet inside; `None` if its sender can
    /// do nothing about it.
    fn message(&self, (outer, encap): (&Outer, Encap), inner: &[u8]) -> Option<(u8, u8, u32)> {
        let six = inner.first()? >> 4 == 6;
        Some(match (self, six) {
            (Self::Lost, false) => (icmp::v4::UNREACHABLE, icmp::v4::HOST, 0),
            (Self::Lost, true) => (icmp::v6::UNREACHABLE, icmp::v6::ADDRESS, 0),
            (Self::TooBig(told), false) => {
                let may_cut = inner.get(6)? & 0x40 == 0;
                let mtu = told.saturating_sub(encap.overhead);
                let code = icmp::v4::FRAGMENTATION_NEEDED;
                // What may be cut will be.
                (!may_cut).then_some((icmp::v4::UNREACHABLE, code, mtu.into()))?
            }
            (Self::TooBig(told), true) => {
                let least = ipv6::MIN_MTU as u16;
                let mtu = told.saturating_sub(encap.overhead).max(least);
                // One of the least MTU gets through in pieces.
                let larger = outer.total.saturating_sub(encap.overhead.into()) > usize::from(least);
                larger.then_some((icmp::v6::PACKET_TOO_BIG, 0, mtu.into()))?
            }
        })
    }
}

/// The address of a prefix that a hash chooses: a flow's packets always the same one, so that
/// they stay in order, and different flows different ones, so that the real server's NIC spreads
/// them over its queues.
fn one_of(network: &Network, hash: u64) -> IpAddr {
    let host = |bits: u32| chosen(hash) & hosts(bits);
    match network.address {
        IpAddr::V4(base) => {
            let bits = 32 - u32::from(network.prefix.min(32));
            IpAddr::V4(Ipv4Addr::from_bits(base.to_bits() | u32::from(host(bits))))
        }
        IpAddr::V6(base) => {
            let bits = 128 - u32::from(network.prefix.min(128));
            IpAddr::V6(Ipv6Addr::from_bits(base.to_bits() | u128::from(host(bits))))
        }
    }
}

/// What chooses an address of a prefix.
#[inline(always)]
const fn chosen(hash: u64) -> u16 {
    (hash >> 16) as u16
}

/// The bits of so many that are chosen: at most 16, more addresses than any NIC has queues.
fn hosts(bits: u32) -> u16 {
    (1u32 << bits.min(16)).wrapping_sub(1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_spreads_and_an_address_does_not() {
        let net = |address: &str, prefix| Network { address: address.parse().unwrap(), prefix };
        for (network, count) in [
            (net("192.0.2.64", 28), 16),
            (net("192.0.2.9", 32), 1),
            (net("2001:db8::", 124), 16),
            (net("2001:db8::", 64), 1000),
        ] {
            let of = |hash: u64| one_of(&network, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let all: std::collections::HashSet<_> = (1..2000).map(of).collect();
            assert!(all.len() >= count, "{network:?}: {}", all.len());
            assert!(all.iter().all(|address| network.contains(*address)), "{network:?}");
        }
    }
}
