//! Packets that the director itself sends: the reset for TCP without a session, the refusal of a
//! new connection, and the ICMP errors of a router, in place of the packet that they are about.

use super::burst::{Lane, Parsed};
use super::parse::Parse;
use super::table::Table;
use super::turn::Turn;
use super::{Shared, Verdict, View, cut, exception, super_packet};
use crate::family::{Family, Ipv4, Ipv6};
use crate::fib::PortId;
use crate::frame::Frame;
use crate::plan::Plan;
use crate::reason::Reason;
use crate::session::Flow;
use crate::spec::{NoSession, Refusal};
use sluice_wire::tcp::{ACK, FIN, RST, SYN};
use sluice_wire::{checksum, ethernet, icmp, ipv4, ipv6, tcp};
use std::net::IpAddr;

/// Time to live of what the director sends.
const TTL: u8 = 64;

/// The verdict on a packet that belongs to no session and may not open one; turns it into the
/// reset that answers it, if the plan says so. A fragment is not answered: cards choose its worker
/// without its ports, so another one may have its session.
pub(super) fn no_session<A, B: Frame>(
    plan: &Plan,
    parsed: &Parsed<A>,
    port: PortId,
    frame: &mut B,
) -> Verdict {
    let wanted = plan.no_session == NoSession::Reset
        && parsed.tuple.protocol == ipv4::TCP
        && parsed.segment.flags & RST == 0;
    let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
    let whole =
        || exception::is_fragment(frame.bytes().get(l3..).unwrap_or_default()) == Some(false);
    if wanted && whole() && reset(frame, l3, l4, usize::from(parsed.length)) {
        return Verdict::Answer(port, Reason::NoSessionReset);
    }
    Verdict::Drop(Reason::NoSession)
}

/// The verdict on a packet of a session that ended because its real server is gone; TCP of a
/// client is answered with a reset.
pub(super) fn real_gone<A, B: Frame>(parsed: &Parsed<A>, port: PortId, frame: &mut B) -> Verdict {
    let wanted = parsed.tuple.protocol == ipv4::TCP && parsed.segment.flags & RST == 0;
    let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
    if wanted && reset(frame, l3, l4, usize::from(parsed.length)) {
        return Verdict::Answer(port, Reason::RealGone);
    }
    Verdict::Drop(Reason::RealGone)
}

/// The verdict on a first packet whose session was not opened; turns it into the answer that
/// a host gives where nobody listens, if the service has nobody for it or is full, and the
/// plan says so. An answer counts under the reason too.
#[cold]
pub(super) fn refuse_connection<F: Parse, B: Frame>(
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    verdict: Verdict,
) -> Verdict {
    let View { plan, .. } = turn.view;
    let Verdict::Drop(why) = verdict else { return verdict };
    let told = matches!(why, Reason::NoReal | Reason::RealsFull | Reason::ServiceFull);
    let per_s = plan.icmp_errors_per_s;
    if !told || plan.refused == Refusal::Drop || !shared.answers.refusals.allows(per_s, turn.now) {
        return verdict;
    }
    let parsed = &lane.parsed;
    let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
    let packet = frame.bytes().get(l3..).unwrap_or_default();
    let answered = match parsed.tuple.protocol {
        // Where the rest of a segment is, only its first fragment cannot say.
        ipv4::TCP if exception::is_fragment(packet) == Some(false) => {
            reset(frame, l3, l4, usize::from(parsed.length))
        }
        ipv4::UDP | ipv4::SCTP if icmp::may_answer(packet) => {
            let vip = F::to_ip(parsed.tuple.dst);
            super_packet::keep_first(frame);
            error(frame, l3, vip, Trouble::PortUnreachable)
        }
        _ => false,
    };
    if !answered {
        return Verdict::Drop(why);
    }
    shared.answers.refusals.take();
    Verdict::Answer(turn.port, why)
}

/// The verdict on a packet that may not go on; its sender is told if it is a router's to say.
#[cold]
pub(super) fn refuse<F: Parse, B: Frame>(
    table: &Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    why: Reason,
) -> Verdict {
    if why != Reason::TtlExpired {
        return Verdict::Drop(why);
    }
    tell(table, lane, shared, turn, frame, (Trouble::TimeExceeded, why))
}

/// The verdict on a packet that is larger than `mtu`, the most that may go its way: its sender
/// is told, or it goes on in pieces.
#[cold]
pub(super) fn too_big<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    mtu: u16,
) -> Verdict {
    if cut::may_cut::<F, B>(lane, frame) {
        if frame.segment_size() != 0 {
            return super_packet::shrink(table, lane, shared, turn, frame, mtu);
        }
        return cut::cut(table, lane, shared, turn, frame);
    }
    tell(table, lane, shared, turn, frame, (Trouble::TooBig(mtu), Reason::TooBig))
}

/// Turns a packet into the ICMP error about it if that may be sent; otherwise it is dropped.
fn tell<F: Parse, B: Frame>(
    table: &Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    (trouble, why): (Trouble, Reason),
) -> Verdict {
    let l3 = usize::from(lane.parsed.l3);
    // Its sender sent another packet than this one.
    if shared.is_hairpinned(lane.frame) {
        return Verdict::Drop(why);
    }
    super_packet::keep_first(frame);
    let may = shared.answers.errors.allows(turn.view.plan.icmp_errors_per_s, turn.now)
        && icmp::may_answer(frame.bytes().get(l3..).unwrap_or_default());
    let source = if may { own_address(table, lane, turn, frame) } else { None };
    if !source.is_some_and(|source| error(frame, l3, source, trouble)) {
        return Verdict::Drop(why);
    }
    shared.answers.errors.take();
    Verdict::Answer(turn.port, why)
}

/// The address that tells a packet's sender of trouble: that of the link which received it (RFC
/// 1812 4.3.2.4), or where it was sent to if that is the director's, or the service's.
fn own_address<F: Parse, B: Frame>(
    table: &Table<F>,
    lane: &Lane<F::Addr>,
    turn: Turn<'_>,
    frame: &B,
) -> Option<IpAddr> {
    let (plan, parsed) = (turn.view.plan, &lane.parsed);
    let packet = frame.bytes().get(usize::from(parsed.l3)..)?;
    let to = exception::ends::<F>(packet)?.dst;
    let six = F::to_ip(to).is_ipv6();
    let link = turn.view.fib.link_of(turn.port, vlan(frame.bytes()));
    let of_link = link.and_then(|link| match six {
        false => link.v4.map(IpAddr::V4),
        true => link.v6.map(IpAddr::V6),
    });
    if of_link.is_some() {
        return of_link;
    }
    let side = F::side(plan);
    if side.owns(to) {
        return Some(F::to_ip(to));
    }
    let flow = lane.flow;
    // A later fragment's lane names no session.
    if flow == Flow::NONE || exception::is_later(packet) {
        return None;
    }
    if !table.sessions.is_flow_of(plan, flow, &parsed.tuple) {
        return None;
    }
    let session = table.sessions.slab().at(flow.id());
    let known = match side.real(session.real())?.forwarding.has_remote() {
        // A rule has no virtual address.
        true => side.local(session.local),
        false => side.vip(plan.service_of(session)?),
    };
    known.map(F::to_ip).filter(|address| address.is_ipv6() == six)
}

/// What a packet's sender is told.
#[derive(Clone, Copy)]
enum Trouble {
    TimeExceeded,
    /// Nobody takes new connections there.
    PortUnreachable,
    /// And this much would not be, in bytes of its own headers and payload.
    TooBig(u16),
}

/// Turns a packet into the ICMP error about it, which goes back the way it came. `false`, and
/// nothing changed, when the frame's buffer cannot hold that.
fn error<B: Frame>(frame: &mut B, l3: usize, source: IpAddr, trouble: Trouble) -> bool {
    let mut quote = [0; icmp::MOST_V6];
    let Some(packet) = frame.bytes().get(l3..) else { return false };
    let (total, to, most) = match packet.first().map(|first| first >> 4) {
        Some(6) => match ipv6::Header::parse(packet) {
            Ok(h) => (h.total_len(), Ipv6::to_ip(h.source()), icmp::MOST_V6 - HEADERS_V6),
            Err(_) => return false,
        },
        _ => match ipv4::Header::parse(packet) {
            Ok(h) => (h.total_len(), Ipv4::to_ip(h.source()), icmp::MOST_V4 - HEADERS_V4),
            Err(_) => return false,
        },
    };
    let Some(packet) = packet.get(..total.min(most)) else { return false };
    let quote = &mut quote[..packet.len()];
    quote.copy_from_slice(packet);
    if !write_error(frame, l3, (source, to), trouble.message(to.is_ipv6()), quote) {
        return false;
    }
    swap_macs(frame.bytes_mut());
    true
}

impl Trouble {
    const fn message(self, six: bool) -> (u8, u8, u32) {
        match (self, six) {
            (Self::TimeExceeded, false) => (icmp::v4::TIME_EXCEEDED, icmp::v4::IN_TRANSIT, 0),
            (Self::TimeExceeded, true) => (icmp::v6::TIME_EXCEEDED, icmp::v6::IN_TRANSIT, 0),
            (Self::PortUnreachable, false) => (icmp::v4::UNREACHABLE, icmp::v4::PORT, 0),
            (Self::PortUnreachable, true) => (icmp::v6::UNREACHABLE, icmp::v6::PORT, 0),
            (Self::TooBig(mtu), false) => {
                (icmp::v4::UNREACHABLE, icmp::v4::FRAGMENTATION_NEEDED, mtu as u32)
            }
            (Self::TooBig(mtu), true) => {
                // No link has less, and no sender believes in one (RFC 8201 4).
                let least = ipv6::MIN_MTU as u16;
                let mtu = if mtu < least { least } else { mtu };
                (icmp::v6::PACKET_TOO_BIG, 0, mtu as u32)
            }
        }
    }
}

/// Bytes before the quote in an ICMPv4 error.
const HEADERS_V4: usize = ipv4::HEADER + icmp::HEADER;
/// Bytes before the quote in an ICMPv6 error.
const HEADERS_V6: usize = ipv6::HEADER + icmp::HEADER;

/// Makes a frame's packet, at `l3`, an ICMP error of this type, code and second word about `quote`,
/// which is no part of the frame. `false`, and nothing changed, when its buffer cannot hold that.
pub(super) fn write_error<B: Frame>(
    frame: &mut B,
    l3: usize,
    ends: (IpAddr, IpAddr),
    (kind, code, rest): (u8, u8, u32),
    quote: &[u8],
) -> bool {
    let (before, most) = match ends {
        (IpAddr::V6(_), _) => (HEADERS_V6, icmp::MOST_V6),
        (IpAddr::V4(_), _) => (HEADERS_V4, icmp::MOST_V4),
    };
    let length = (before + quote.len()).min(most);
    if !frame.set_len(l3 + length) {
        return false;
    }
    frame.set_finished();
    let Some(out) = frame.bytes_mut().get_mut(l3..) else { return false };
    let (from, to) = ends;
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            icmp::error_v4(out, from.to_bits(), to.to_bits(), kind, code, rest, quote).is_some()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            icmp::error_v6(out, from.to_bits(), to.to_bits(), kind, code, rest, quote).is_some()
        }
        _ => false,
    }
}

/// The VLAN that a frame came in by; 0 for none.
pub(super) fn vlan(frame: &[u8]) -> u16 {
    match frame.get(ethernet::HEADER - 2..ethernet::HEADER + 2) {
        Some(&[0x81, 0x00, high, low]) => u16::from_be_bytes([high & 0x0f, low]),
        _ => 0,
    }
}

/// Turns a TCP segment into the reset that answers it (RFC 9293, 3.10.7.1): with the number the
/// peer expects where it said so, otherwise acknowledging all that it sent. It goes back the way
/// the segment came. `false` when the frame's buffer cannot hold it.
fn reset<B: Frame>(frame: &mut B, l3: usize, l4: usize, ip_length: usize) -> bool {
    let bytes = frame.bytes();
    let Some(segment) = bytes.get(l4..l3 + ip_length).and_then(tcp::Header::parse) else {
        return false;
    };
    let flags = segment.flags();
    let data = l3 + ip_length - l4 - segment.header_len();
    let control = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let (sequence, acknowledgement, answer) = if flags & ACK != 0 {
        (segment.acknowledgement(), 0, RST)
    } else {
        let next = segment.sequence().wrapping_add(data as u32).wrapping_add(control);
        (0, next, RST | ACK)
    };
    let version = bytes.get(l3).map_or(0, |first| first >> 4);
    let ends = match version {
        6 => bytes.get(l3..).and_then(|packet| ipv6::Header::parse(packet).ok()).map(Ends::v6),
        _ => bytes.get(l3..).and_then(|packet| ipv4::Header::parse(packet).ok()).map(Ends::v4),
    };
    let Some(ends) = ends else { return false };
    let ports = [segment.0[2], segment.0[3], segment.0[0], segment.0[1]];
    let l4 = l3 + ends.header_len();
    if !frame.set_len(l4 + tcp::HEADER) {
        return false;
    }
    frame.set_finished();
    let mut header = [0; tcp::HEADER];
    header[..4].copy_from_slice(&ports);
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
    header[12] = ((tcp::HEADER / 4) << 4) as u8;
    header[tcp::FLAGS] = answer;
    let bytes = frame.bytes_mut();
    swap_macs(bytes);
    let checksum = ends.write_back(&mut bytes[l3..l4], &header);
    header[tcp::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    bytes[l4..].copy_from_slice(&header);
    true
}

/// Where a packet came from and went to.
#[derive(Clone, Copy)]
enum Ends {
    V4(u32, u32),
    V6(u128, u128),
}

impl Ends {
    const fn v4(header: ipv4::Header<'_>) -> Self {
        Self::V4(header.source(), header.destination())
    }

    const fn v6(header: ipv6::Header<'_>) -> Self {
        Self::V6(header.source(), header.destination())
    }

    const fn header_len(self) -> usize {
        match self {
            Self::V4(..) => ipv4::HEADER,
            Self::V6(..) => ipv6::HEADER,
        }
    }

    /// Writes the header of a packet back that carries nothing but `segment`, whose checksum it
    /// gives.
    fn write_back(self, out: &mut [u8], segment: &[u8; tcp::HEADER]) -> u16 {
        match self {
            Self::V4(source, destination) => {
                ip_header(out, destination, source);
                checksum::transport_v4(destination, source, ipv4::TCP, segment)
            }
            Self::V6(source, destination) => {
                out.fill(0);
                out[0] = 0x60;
                out[ipv6::PAYLOAD_LEN..][..2].copy_from_slice(&(tcp::HEADER as u16).to_be_bytes());
                out[ipv6::NEXT_HEADER] = ipv4::TCP;
                out[ipv6::HOP_LIMIT] = TTL;
                out[ipv6::SOURCE..][..16].copy_from_slice(&destination.to_be_bytes());
                out[ipv6::DESTINATION..][..16].copy_from_slice(&source.to_be_bytes());
                checksum::transport_v6(destination, source, ipv4::TCP, segment)
            }
        }
    }
}

fn swap_macs(bytes: &mut [u8]) {
    let (destination, rest) = bytes.split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
}

/// Writes the header of a TCP packet without options and data. DF is set and the identification
/// is zero, as RFC 6864 allows for packets that are not fragmented.
fn ip_header(header: &mut [u8], source: u32, destination: u32) {
    header.fill(0);
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((ipv4::HEADER + tcp::HEADER) as u16).to_be_bytes());
    header[6] = 0x40;
    header[ipv4::TTL] = TTL;
    header[9] = ipv4::TCP;
    header[ipv4::SOURCE..][..4].copy_from_slice(&source.to_be_bytes());
    header[ipv4::DESTINATION..][..4].copy_from_slice(&destination.to_be_bytes());
    let checksum = checksum::full(header);
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
}
