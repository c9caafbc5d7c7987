//! Telling a real server of Full NAT who its client is: the TOA option, or a PROXY protocol header
//! at the front of the stream or of each datagram.
//!
//! A PROXY header in a TCP stream moves all that follows it: sequence numbers towards the real
//! server grow by its length, acknowledgements on the way back shrink by it. It goes with every
//! segment that begins where the client's stream begins, until the real server has acknowledged it;
//! the first is the acknowledgement that completes the handshake, so that also a real server that
//! speaks first gets it, and when that one is lost, both are sent again.
//!
//! What a client sends before the handshake is complete (data of a SYN, TCP Fast Open) would come
//! without a header: it is taken out, and with it the option that invites it, so that the client
//! sends it again behind the handshake (RFC 7413 4.2). What is before the stream's first byte, as a
//! keep-alive's octet is, stays there.
//!
//! A datagram or segment that comes in fragments is introduced in the first ([`piece`]).
//!
//! Changes are made to the packet as it came; addresses and ports are rewritten afterwards like
//! any other packet's. Checksums follow by difference, so that damage on the way here still shows.

mod early;
mod fragment;
mod header;
mod settled;

pub(super) use settled::Settled;

use super::burst::Lane;
use super::turn::Outcome;
use super::{Verdict, exception, super_packet};
use crate::counters::Direction;
use crate::family::{Ipv6, unmapped};
use crate::fib::Fib;
use crate::frame::Frame;
use crate::plan::{Plan, RealId};
use crate::reason::Reason;
use crate::session::{SessionOf, State};
use crate::spec::ClientAddress;
use sluice_wire::checksum::Delta;
use sluice_wire::proxy_protocol::{self as proxy, Ends};
use sluice_wire::tcp::{RST, SYN};
use sluice_wire::{ipv4, ipv6, tcp, tcp_options};

/// Bit of `Session::closing`: the client's initial sequence number is known.
pub(super) const BEGUN: u8 = 0x10;
/// Bit of `Session::closing`: the real server knows the client.
pub(super) const DONE: u8 = 0x20;

/// Offsets in a TCP header.
const SEQUENCE: usize = 4;
const ACKNOWLEDGEMENT: usize = 8;

/// How long packets may be, in bytes of the version that they came as.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Of this packet's way.
    pub here: u16,
    /// Of the way to the real server.
    pub real: u16,
}

impl Room {
    /// That of a packet that leaves by `hop`, of a session with `real`.
    pub fn of(fib: &Fib, mtu: u16, real: RealId, crosses: bool) -> Self {
        // Before the real server's neighbour is known, what any link must take (RFC 8200 5).
        let real = fib.hop(fib.real_hop(real)).map_or(ipv6::MIN_MTU as u16, |hop| hop.mtu);
        Self { here: Self::within(mtu, crosses), real: Self::within(real, crosses) }
    }

    /// How long packets may be whose way takes so many bytes.
    pub const fn within(mtu: u16, crosses: bool) -> u16 {
        // The longer header of the other version, whichever it is: a little room is left then.
        mtu.saturating_sub(if crosses { 20 } else { 0 })
    }
}

/// Introduces the client of a session, one of whose packets is on its way.
pub(super) fn introduce<B: Frame>(
    plan: &Plan,
    session: &mut SessionOf<Ipv6>,
    direction: Direction,
    lane: &mut Lane<u128>,
    frame: &mut B,
    room: Room,
) -> Result<(), Outcome> {
    let Some((how, ends)) = asked(plan, session) else { return Ok(()) };
    if lane.parsed.tuple.protocol == ipv4::TCP {
        return segment(how, &ends, session, direction, lane, frame, room);
    }
    if direction == Direction::Outbound || how != ClientAddress::ProxyV2 {
        return Ok(());
    }
    let piece = is_piece(lane, frame.bytes());
    let length = if piece { proxy::v2_padded_len(&ends) } else { proxy::v2_len(&ends) } as u16;
    let most = room.here.saturating_sub(length);
    if lane.parsed.length > most {
        return Err(Outcome::TooBig(most));
    }
    if piece && !fragment::has_room(lane, frame.bytes(), length) {
        return Err(Outcome::Is(Verdict::Drop(Reason::Fragment)));
    }
    header::in_datagram(&ends, lane, frame, piece).ok_or(NO_ROOM)
}

/// How a session's real server learns its client's address, and the ends that it is told of; `None`
/// if it does not.
fn asked(plan: &Plan, session: &SessionOf<Ipv6>) -> Option<(ClientAddress, Ends)> {
    let id = plan.service_of(session)?;
    let how = plan.service(id)?.client_address;
    if how == ClientAddress::Hidden {
        return None;
    }
    let vip = plan.extended.vip(id)?;
    Some((how, Ends::new((session.client, session.client_port), (vip, session.virtual_port))))
}

/// Whether a segment has room for so many bytes more before its data. The data of a super-packet is
/// cut anew behind it, so that there only the length of all of it is in the way.
fn has_room<B: Frame>(lane: &Lane<u128>, frame: &B, room: u16, more: u32) -> bool {
    let most = if frame.segment_size() == 0 { room } else { u16::MAX };
    u32::from(lane.parsed.length) + more <= u32::from(most)
}

/// The same for an option, which each segment of a super-packet gets.
fn has_room_for_option<B: Frame>(lane: &Lane<u128>, frame: &B, room: u16, more: u16) -> bool {
    let longest = super_packet::longest(&lane.parsed, frame);
    u32::from(longest) + u32::from(more) <= u32::from(room)
        && lane.parsed.length.checked_add(more).is_some()
}

/// What becomes of a frame that has no room for what is to be put in.
const NO_ROOM: Outcome = Outcome::Is(Verdict::Drop(Reason::Headroom));

/// Whether a packet that has a transport header is its datagram's first fragment.
fn is_piece(lane: &Lane<u128>, bytes: &[u8]) -> bool {
    let packet = bytes.get(usize::from(lane.parsed.l3)..).unwrap_or_default();
    exception::is_fragment(packet) == Some(true)
}

/// Bytes that go in front of a stream.
fn stream_len(how: ClientAddress, ends: &Ends) -> u32 {
    match how {
        ClientAddress::ProxyV1 => proxy::v1_len(ends) as u32,
        ClientAddress::ProxyV2 => proxy::v2_len(ends) as u32,
        ClientAddress::Toa | ClientAddress::Hidden => 0,
    }
}

fn segment<B: Frame>(
    how: ClientAddress,
    ends: &Ends,
    session: &mut SessionOf<Ipv6>,
    direction: Direction,
    lane: &mut Lane<u128>,
    frame: &mut B,
    room: Room,
) -> Result<(), Outcome> {
    let l4 = usize::from(lane.parsed.l4);
    let header = frame.bytes().get(l4..).and_then(tcp::Header::parse).ok_or(NO_ROOM)?;
    let (sequence, flags) = (header.sequence(), header.flags());
    let acknowledgement = header.acknowledgement();
    if how == ClientAddress::Toa && direction == Direction::Inbound {
        // Whatever a client says there, the real server would take for the director's word.
        tcp_options::erase(segment_of(lane, frame).ok_or(NO_ROOM)?, tcp_options::TOA);
    }
    if flags & SYN != 0 {
        if direction == Direction::Inbound {
            // One on an open connection is not its beginning, whoever sent it (RFC 5961, 4).
            if session.state == State::SynRecv {
                session.extra.isn = sequence;
                session.closing |= BEGUN;
            }
            return if how == ClientAddress::Toa { Ok(()) } else { early::postpone(lane, frame) };
        }
        if how != ClientAddress::Toa {
            early::decline(lane, frame).ok_or(NO_ROOM)?;
        }
        return clamp(how, ends, lane, frame, room).ok_or(NO_ROOM);
    }
    if session.closing & BEGUN == 0 {
        return Ok(());
    }
    match direction {
        Direction::Inbound => inbound(how, ends, session, (sequence, flags), lane, frame, room),
        Direction::Outbound => {
            outbound(how, ends, session, acknowledgement, lane, frame).ok_or(NO_ROOM)
        }
    }
}

/// Lowers the segment size that a real server announces, so that what is put in fits beside what
/// the client sends.
fn clamp<B: Frame>(
    how: ClientAddress,
    ends: &Ends,
    lane: &Lane<u128>,
    frame: &mut B,
    room: Room,
) -> Option<()> {
    let (l3, l4) = (usize::from(lane.parsed.l3), usize::from(lane.parsed.l4));
    let option = match how {
        ClientAddress::Toa => toa_len(ends),
        _ => stream_len(how, ends) as usize,
    };
    let headers = l4 - l3 + tcp::HEADER + option;
    let most = room.real.saturating_sub(headers as u16);
    let end = l3 + usize::from(lane.parsed.length);
    tcp_options::clamp_mss(frame.bytes_mut().get_mut(l4..end)?, most);
    Some(())
}

/// A segment of the client's: with what it has to carry, or renumbered.
fn inbound<B: Frame>(
    how: ClientAddress,
    ends: &Ends,
    session: &SessionOf<Ipv6>,
    (sequence, flags): (u32, u8),
    lane: &mut Lane<u128>,
    frame: &mut B,
    room: Room,
) -> Result<(), Outcome> {
    let length = stream_len(how, ends);
    let first = session.extra.isn.wrapping_add(1);
    let begins = sequence == first && session.closing & DONE == 0;
    if how == ClientAddress::Toa {
        if begins && flags & RST == 0 {
            option(ends, lane, frame, room.here);
        }
        return Ok(());
    }
    // A reset of what nothing was sent of.
    if begins && flags & RST != 0 {
        return Ok(());
    }
    // Half of the numbers lie ahead, half behind, as long as the stream is short.
    if session.closing & DONE == 0 && sequence.wrapping_sub(first) >= 1 << 31 {
        return early::keep_before(lane, frame, first.wrapping_sub(sequence));
    }
    if begins && is_piece(lane, frame.bytes()) {
        return fragment::header_in_stream(how, ends, lane, frame, room.here);
    }
    if begins && has_room(lane, frame, room.here, length) {
        return header::in_stream(how, ends, lane, frame).ok_or(NO_ROOM);
    }
    let segment = segment_of(lane, frame).ok_or(NO_ROOM)?;
    renumber(segment, SEQUENCE, sequence, sequence.wrapping_add(length));
    Ok(())
}

/// A segment of the real server's: what it acknowledges is more than the client sent.
fn outbound<B: Frame>(
    how: ClientAddress,
    ends: &Ends,
    session: &mut SessionOf<Ipv6>,
    acknowledgement: u32,
    lane: &mut Lane<u128>,
    frame: &mut B,
) -> Option<()> {
    if how == ClientAddress::Toa {
        session.closing |= DONE;
        return Some(());
    }
    let length = stream_len(how, ends);
    let first = session.extra.isn.wrapping_add(1);
    let got = acknowledgement.wrapping_sub(first);
    // Half of the numbers lie ahead, half behind, until the header was acknowledged: a stream may
    // be longer than they reach.
    let all = session.closing & DONE != 0 || got >= length && got < 1 << 31;
    let seen = if all { acknowledgement.wrapping_sub(length) } else { first };
    if lane.parsed.segment.flags & tcp::ACK == 0 {
        return Some(());
    }
    if all {
        session.closing |= DONE;
    }
    let segment = segment_of(lane, frame)?;
    renumber(segment, ACKNOWLEDGEMENT, acknowledgement, seen);
    tcp_options::shift_sack(segment, length.wrapping_neg());
    // The session is tracked in the client's numbers.
    lane.parsed.segment.ack = seen;
    Some(())
}

/// A packet's TCP segment, without padding.
fn segment_of<'a, B: Frame>(lane: &Lane<u128>, frame: &'a mut B) -> Option<&'a mut [u8]> {
    let end = usize::from(lane.parsed.l3) + usize::from(lane.parsed.length);
    frame.bytes_mut().get_mut(usize::from(lane.parsed.l4)..end)
}

/// Takes out of a quoted packet of a session what the introduction did to its numbers, so that its
/// sender knows it for its own (RFC 5927 4.1): `upper` is what is quoted of its transport header,
/// and the packet went the way that `answers` to it do not. Gives by how much the packet had become
/// longer, as every one of its kind does.
pub(super) fn requote(
    plan: &Plan,
    session: &SessionOf<Ipv6>,
    answers: Direction,
    upper: &mut [u8],
) -> u16 {
    let Some(id) = plan.service_of(session) else { return 0 };
    let how = plan.service(id).map(|service| service.client_address);
    let (Some(how), Some(vip)) = (how, plan.extended.vip(id)) else { return 0 };
    let ends = Ends::new((session.client, session.client_port), (vip, session.virtual_port));
    if session.protocol() != ipv4::TCP {
        let longer = how == ClientAddress::ProxyV2 && answers == Direction::Outbound;
        return if longer { proxy::v2_len(&ends) as u16 } else { 0 };
    }
    let length = stream_len(how, &ends);
    if length == 0 || session.closing & BEGUN == 0 {
        return 0;
    }
    let at = if answers == Direction::Outbound { SEQUENCE } else { ACKNOWLEDGEMENT };
    let Some(field) = upper.get_mut(at..at + 4) else { return 0 };
    let old = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
    let after = old.wrapping_sub(session.extra.isn.wrapping_add(1));
    // What is before the stream begins was not moved.
    if after >= 1 << 31 {
        return 0;
    }
    let new = match answers {
        Direction::Outbound => old.wrapping_sub(after.min(length)),
        Direction::Inbound => old.wrapping_add(length),
    };
    field.copy_from_slice(&new.to_be_bytes());
    if let Some(field) = upper.get_mut(tcp::CHECKSUM..tcp::CHECKSUM + 2) {
        let sum = Delta::NONE.word32(old, new).apply(u16::from_be_bytes([field[0], field[1]]));
        field.copy_from_slice(&sum.to_be_bytes());
    }
    0
}

const fn toa_len(ends: &Ends) -> usize {
    match ends {
        Ends::V4 { .. } => tcp_options::TOA_V4,
        Ends::V6 { .. } => tcp_options::TOA_V6,
    }
}

/// Writes a sequence or acknowledgement number, which is at `at` of its segment.
fn renumber(segment: &mut [u8], at: usize, old: u32, new: u32) {
    let Some(header) = segment.first_chunk_mut::<{ tcp::HEADER }>() else { return };
    header[at..at + 4].copy_from_slice(&new.to_be_bytes());
    let field = &mut header[tcp::CHECKSUM..tcp::CHECKSUM + 2];
    let sum = Delta::NONE.word32(old, new).apply(u16::from_be_bytes([field[0], field[1]]));
    field.copy_from_slice(&sum.to_be_bytes());
}

/// Makes room for `count` bytes at `at` of a frame: what is before moves to the front.
fn widen<B: Frame>(frame: &mut B, at: usize, count: usize) -> Option<()> {
    if !frame.push_front(count) {
        return None;
    }
    frame.bytes_mut().copy_within(count..count + at, 0);
    Some(())
}

/// Adds to the length that an IP header says, which is at `l3`.
fn lengthen(lane: &mut Lane<u128>, bytes: &mut [u8], by: u16) {
    let packet = &mut bytes[usize::from(lane.parsed.l3)..];
    let v4 = unmapped(lane.parsed.tuple.src).is_some();
    let at = if v4 { 2 } else { ipv6::PAYLOAD_LEN };
    let old = u16::from_be_bytes([packet[at], packet[at + 1]]);
    let new = old.wrapping_add(by);
    packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
    if v4 {
        let field = [packet[ipv4::CHECKSUM], packet[ipv4::CHECKSUM + 1]];
        let sum = Delta::NONE.word16(old, new).apply(u16::from_be_bytes(field));
        packet[ipv4::CHECKSUM..ipv4::CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    }
    lane.parsed.length = lane.parsed.length.wrapping_add(by);
}

/// Puts the TOA option into a segment, if there is room.
fn option<B: Frame>(ends: &Ends, lane: &mut Lane<u128>, frame: &mut B, room: u16) {
    match *ends {
        Ends::V4 { source, source_port, .. } => {
            insert(&tcp_options::toa_v4(source, source_port), lane, frame, room);
        }
        Ends::V6 { source, source_port, .. } => {
            let option = tcp_options::toa_v6(source, source_port);
            if is_piece(lane, frame.bytes()) {
                insert(&fragment::padded(option), lane, frame, room);
            } else {
                insert(&option, lane, frame, room);
            }
        }
    }
}

/// Puts options into a segment whose packet may be `room` bytes long; `None`, and nothing changed,
/// when there is no room for them.
fn insert<B: Frame, const N: usize>(
    option: &[u8; N],
    lane: &mut Lane<u128>,
    frame: &mut B,
    room: u16,
) -> Option<()> {
    let (l3, l4) = (usize::from(lane.parsed.l3), usize::from(lane.parsed.l4));
    let header = frame.bytes().get(l4..).and_then(tcp::Header::parse)?;
    let fits = tcp_options::room(header.header_len()) >= N
        && has_room_for_option(lane, frame, room, N as u16);
    if !fits {
        return None;
    }
    widen(frame, l4, N)?;
    let end = l3 + usize::from(lane.parsed.length) + N;
    if !tcp_options::insert(frame.bytes_mut().get_mut(l4..end)?, option) {
        return None;
    }
    lengthen(lane, frame.bytes_mut(), N as u16);
    Some(())
}
