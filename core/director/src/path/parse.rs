//! From bytes to a tuple: what may be ours goes on, everything else gets its verdict here.

mod link;
mod v6;

use super::burst::{Lane, Parsed};
use super::client_address::{Room, Settled};
use super::group::Together;
use super::owners::stays_here;
use super::turn::Outcome;
use super::{Shared, Verdict, client_address, nat64};
use crate::counters::Direction;
use crate::family::{Family, Ipv4, Ipv6, Tuple, mapped, unmapped};
use crate::frame::{Checked, Frame};
use crate::key::Key;
use crate::plan::Plan;
use crate::reason::Reason;
use crate::session::SessionOf;
use crate::track::{self, Segment};
use sluice_wire::ipv4::Malformed;
use sluice_wire::ipv6;
use sluice_wire::{checksum, ethernet, icmp, ipv4, sctp, tcp, udp};

/// Why a frame is no packet that a table looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It gets this verdict.
    Is(Verdict),
    /// It is for the extended table.
    Wide,
}

impl From<Verdict> for Refused {
    fn from(verdict: Verdict) -> Self {
        Self::Is(verdict)
    }
}

/// Whether a frame says that it carries IPv6, without a tag.
#[inline(always)]
pub(super) fn is_ipv6<B: Frame>(frame: &B) -> bool {
    frame.bytes().get(12..14) == Some(&ethernet::IPV6.to_be_bytes())
}

/// How the packets of a table are parsed.
pub(super) trait Parse: Together {
    /// Parses one frame, down to the transport header, into the lane's key and `parsed`. A packet
    /// without a tuple of its own, ICMP errors and fragments, has a transport header at 0 and a
    /// tuple of zeros.
    fn parse<B: Frame>(
        frame: &B,
        plan: &Plan,
        shared: &Shared,
        lane: &mut Lane<Self::Addr>,
    ) -> Result<(), Refused>;

    /// Whether no more than the other table may have anything for a packet with this tuple.
    #[inline(always)]
    fn is_others(_: &Plan, _: &Key<Self::Addr>) -> bool {
        false
    }

    /// Turns a packet into one of the other IP version; gives the reason why it cannot be one.
    fn translate<B: Frame>(
        shared: &mut Shared,
        frame: &mut B,
        lane: &Lane<Self::Addr>,
    ) -> Option<Reason>;

    /// Whether a packet may not become `new`, of another version, for want of a checksum.
    fn lacks_checksum<B: Frame>(_: &Lane<Self::Addr>, _new: &Tuple<Self::Addr>, _: &B) -> bool {
        false
    }

    /// Tells the real server of a session who its client is, if that is asked for.
    fn introduce<B: Frame>(
        plan: &Plan,
        session: &mut SessionOf<Self>,
        direction: Direction,
        lane: &mut Lane<Self::Addr>,
        frame: &mut B,
        room: Room,
    ) -> Result<(), Outcome>;

    /// What that still does to all packets of a session in a direction; `None` as long as it is not
    /// the same to each.
    fn settled(_: &Plan, _: &SessionOf<Self>, _: Direction) -> Option<Settled> {
        Some(Settled::Unchanged)
    }

    /// Takes out of a quoted packet of a session what introducing its client did to it.
    fn requote(_: &Plan, _: &SessionOf<Self>, _: Direction, _: &mut [u8]) -> u16 {
        0
    }

    /// The largest packet with this tuple that is at most `mtu` bytes long with that one, which
    /// may be of the other version; `packet` is it.
    fn room_across(
        mtu: u16,
        old: &Tuple<Self::Addr>,
        new: &Tuple<Self::Addr>,
        packet: &[u8],
    ) -> u16;

    /// The MTU that a packet that is to be cut is cut for, on a way with that one.
    fn cut_mtu(mtu: u16, _lane: &Lane<Self::Addr>) -> u16 {
        mtu
    }

    /// The same for a fragment that leaves as another version; `None` for anything else.
    fn piece_room<B: Frame>(_mtu: u16, _lane: &Lane<Self::Addr>, _frame: &B) -> Option<u16> {
        None
    }

    /// Either of them.
    fn room_for<B: Frame>(mtu: u16, lane: &Lane<Self::Addr>, frame: &B) -> u16 {
        let packet = frame.bytes().get(usize::from(lane.parsed.l3)..).unwrap_or_default();
        let whole = || Self::room_across(mtu, &lane.parsed.tuple, &lane.new, packet);
        Self::piece_room(mtu, lane, frame).unwrap_or_else(whole)
    }

    /// Whether a fragment that is to leave as another version has a like there.
    fn piece_has_like<B: Frame>(_lane: &Lane<Self::Addr>, _frame: &B) -> bool {
        false
    }
}

impl Parse for Ipv4 {
    #[inline(always)]
    fn parse<B: Frame>(
        frame: &B,
        plan: &Plan,
        shared: &Shared,
        lane: &mut Lane<u32>,
    ) -> Result<(), Refused> {
        link::is_for_us(frame, shared)?;
        // Most of what the extended table gets.
        if is_ipv6(frame) {
            return Err(Refused::Wide);
        }
        general(frame, plan, &mut lane.parsed)?;
        if shared.workers > 1 {
            stays_here::<Self>(&lane.parsed.tuple, plan, shared)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn is_others(plan: &Plan, key: &Key<u32>) -> bool {
        let (src, dst) = (Self::wire(key.src), Self::wire(key.dst));
        plan.address_filter.as_ref().is_some_and(|address_filter| !address_filter.passes(src, dst))
    }

    fn translate<B: Frame>(_: &mut Shared, _: &mut B, _: &Lane<u32>) -> Option<Reason> {
        Some(Reason::Untranslatable)
    }

    fn introduce<B: Frame>(
        _: &Plan,
        _: &mut SessionOf<Self>,
        _: Direction,
        _: &mut Lane<u32>,
        _: &mut B,
        _: Room,
    ) -> Result<(), Outcome> {
        Ok(())
    }

    fn room_across(mtu: u16, _: &Tuple<u32>, _: &Tuple<u32>, _: &[u8]) -> u16 {
        mtu
    }
}

impl Parse for Ipv6 {
    #[inline(always)]
    fn parse<B: Frame>(
        frame: &B,
        plan: &Plan,
        shared: &Shared,
        lane: &mut Lane<u128>,
    ) -> Result<(), Refused> {
        link::is_for_us(frame, shared)?;
        if !v6::general(frame, &mut lane.parsed)? {
            let mut parsed = Parsed::default();
            general(frame, plan, &mut parsed)?;
            let tuple =
                if parsed.is_exception() { Tuple::default() } else { parsed.tuple.map(mapped) };
            lane.parsed = parsed.with(tuple);
        }
        if shared.workers > 1 {
            stays_here::<Self>(&lane.parsed.tuple, plan, shared)?;
        }
        Ok(())
    }

    fn translate<B: Frame>(
        shared: &mut Shared,
        frame: &mut B,
        lane: &Lane<u128>,
    ) -> Option<Reason> {
        nat64::translate(shared, frame, lane)
    }

    fn lacks_checksum<B: Frame>(lane: &Lane<u128>, new: &Tuple<u128>, frame: &B) -> bool {
        new.protocol == ipv4::UDP && nat64::lacks_checksum(lane, new, frame.bytes())
    }

    fn introduce<B: Frame>(
        plan: &Plan,
        session: &mut SessionOf<Self>,
        direction: Direction,
        lane: &mut Lane<u128>,
        frame: &mut B,
        room: Room,
    ) -> Result<(), Outcome> {
        client_address::introduce(plan, session, direction, lane, frame, room)
    }

    fn settled(plan: &Plan, session: &SessionOf<Self>, direction: Direction) -> Option<Settled> {
        Settled::of(plan, session, direction)
    }

    fn requote(
        plan: &Plan,
        session: &SessionOf<Self>,
        answers: Direction,
        upper: &mut [u8],
    ) -> u16 {
        client_address::requote(plan, session, answers, upper)
    }

    fn room_across(mtu: u16, old: &Tuple<u128>, new: &Tuple<u128>, packet: &[u8]) -> u16 {
        if Self::crosses(old, new) { nat64::room(mtu, old, packet) } else { mtu }
    }

    fn cut_mtu(mtu: u16, lane: &Lane<u128>) -> u16 {
        let to_six =
            Self::crosses(&lane.parsed.tuple, &lane.new) && unmapped(lane.new.src).is_none();
        if to_six { nat64::cut_mtu(mtu) } else { mtu }
    }

    fn piece_room<B: Frame>(mtu: u16, lane: &Lane<u128>, frame: &B) -> Option<u16> {
        if !Self::crosses(&lane.parsed.tuple, &lane.new) {
            return None;
        }
        nat64::piece_room(mtu, lane, frame.bytes())
    }

    fn piece_has_like<B: Frame>(lane: &Lane<u128>, frame: &B) -> bool {
        nat64::piece_has_like(lane, frame.bytes())
    }
}

/// Parses any frame.
#[inline(never)]
fn general<F: Frame>(frame: &F, plan: &Plan, parsed: &mut Parsed<u32>) -> Result<(), Refused> {
    let bytes = frame.bytes();
    let Some(payload) = ethernet::payload(bytes) else {
        return Err(Verdict::Drop(Reason::Truncated).into());
    };
    if payload.ethertype == ethernet::IPV6 {
        return Err(Refused::Wide);
    }
    if payload.ethertype != ethernet::IPV4 {
        return Err(Verdict::Kernel(Reason::NotIp).into());
    }
    if ethernet::is_group(bytes) {
        return Err(Verdict::Kernel(Reason::Group).into());
    }
    let packet = &bytes[payload.offset..];
    let header = ipv4::Header::parse(packet).map_err(malformed)?;
    let known = frame.rx_checksum();
    if known.ip != Checked::Good && !header_checksum_holds(header, packet) {
        return Err(Verdict::Drop(Reason::BadIpChecksum).into());
    }
    *parsed = Parsed {
        tuple: Tuple::default(),
        l3: payload.offset as u8,
        ttl: header.ttl(),
        l4: 0,
        length: header.total_len() as u16,
        segment: Segment::default(),
    };
    if header.is_fragment() {
        return Ok(());
    }
    let segment = &packet[header.header_len()..header.total_len()];
    let protocol = header.protocol();
    if protocol == ipv4::ICMP && !echo_is_ours(segment, plan, icmp::v4::ECHO, icmp::v4::ECHO_REPLY)
    {
        let error = segment.first().is_some_and(|kind| icmp::is_error(*kind));
        return if error { Ok(()) } else { Err(Verdict::Kernel(Reason::NotOurs).into()) };
    }
    if known.l4 == Checked::Bad {
        return Err(Verdict::Drop(Reason::BadL4Checksum).into());
    }
    let (sport, dport, segment) = transport(protocol, segment)?;
    parsed.l4 = (payload.offset + header.header_len()) as u16;
    parsed.segment = segment;
    let (src, dst) = (header.source(), header.destination());
    parsed.tuple = Tuple { src, dst, sport, dport, protocol };
    Ok(())
}

/// Whether an ICMP message is an echo that a rule of source NAT may be about.
fn echo_is_ours(message: &[u8], plan: &Plan, ask: u8, answer: u8) -> bool {
    plan.wide_v4 && message.first().is_some_and(|kind| *kind == ask || *kind == answer)
}

fn malformed(why: Malformed) -> Verdict {
    Verdict::Drop(match why {
        Malformed::Truncated => Reason::Truncated,
        Malformed::BadHeader => Reason::BadIpHeader,
        Malformed::BadLength => Reason::BadIpLength,
    })
}

#[inline(always)]
fn header_checksum_holds(header: ipv4::Header<'_>, packet: &[u8]) -> bool {
    if header.header_len() == ipv4::HEADER {
        return checksum::ipv4_header_ok(header.0);
    }
    checksum::sum(&packet[..header.header_len()]) == 0xffff
}

/// Checks the transport header and reads the ports and what session tracking needs of it. An echo
/// has its identifier as the port of the side that chose it; protocols without ports have zeros.
pub(super) fn transport(protocol: u8, bytes: &[u8]) -> Result<(u16, u16, Segment), Verdict> {
    let ports = || {
        let [a, b, c, d] = bytes.first_chunk().copied().unwrap_or_default();
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    };
    let segment = match protocol {
        ipv4::UDP => match udp::Header::parse(bytes) {
            Some(_) => Segment::default(),
            None => return Err(l4_refused(bytes.len() < udp::HEADER)),
        },
        ipv4::TCP => {
            let Some(header) = tcp::Header::parse(bytes) else {
                let whole = bytes.get(12).is_none_or(|b| usize::from(b >> 4) * 4 > bytes.len());
                return Err(l4_refused(bytes.len() < tcp::HEADER || whole));
            };
            tcp_segment(header, bytes.len() - header.header_len())
        }
        ipv4::SCTP => {
            if bytes.len() < sctp::HEADER {
                return Err(l4_refused(true));
            }
            track::sctp::segment(bytes)
        }
        ipv4::ICMP | ipv6::ICMPV6 => {
            let Some(message) = bytes.first_chunk::<{ icmp::HEADER }>() else {
                return Err(l4_refused(true));
            };
            let id = u16::from_be_bytes([message[icmp::ECHO_ID], message[icmp::ECHO_ID + 1]]);
            let asks = matches!(message[0], icmp::v4::ECHO | icmp::v6::ECHO);
            let (sport, dport) = if asks { (id, 0) } else { (0, id) };
            // What answers opens nothing: it is marked as the second segment of a stream is.
            let flags = if asks { 0 } else { tcp::ACK };
            return Ok((sport, dport, Segment { flags, ..Segment::default() }));
        }
        _ => return Ok((0, 0, Segment::default())),
    };
    let (sport, dport) = ports();
    Ok((sport, dport, segment))
}

/// What session tracking needs of a TCP header that `data` bytes follow.
#[inline(always)]
pub(super) fn tcp_segment(header: tcp::Header<'_>, data: usize) -> Segment {
    Segment {
        flags: header.flags(),
        ack: header.acknowledgement(),
        end: header.sequence().wrapping_add(data as u32),
    }
}

const fn l4_refused(truncated: bool) -> Verdict {
    Verdict::Drop(if truncated { Reason::Truncated } else { Reason::BadL4Header })
}
