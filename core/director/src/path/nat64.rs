//! Full NAT from one IP version to the other: the header is translated by RFC 7915, and with it
//! go new addresses and ports. Of fragments each by itself: only the first has ports and a
//! checksum, and the difference to that is the same whoever carries it.

use super::burst::Lane;
use super::{Shared, exception, rewrite};
use crate::family::{Tuple, unmapped};
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::checksum::{self, Delta};
use sluice_wire::translate::{self, Untranslatable, piece};
use sluice_wire::{ethernet, ipv4, ipv6, tcp, udp};

/// Bytes by which the longer header is longer.
const DIFFERENCE: u16 = (ipv6::HEADER - ipv4::HEADER) as u16;

/// The largest packet, as it comes, that is at most `mtu` bytes long when it leaves. One that may
/// be cut becomes no IPv6 that any link might be too narrow for.
pub(super) fn room(mtu: u16, old: &Tuple<u128>, packet: &[u8]) -> u16 {
    let is_cut = unmapped(old.src).is_some() && is_to_be_cut(packet);
    whole_room(if is_cut { cut_mtu(mtu) } else { mtu }, old)
}

/// The MTU that IPv4 without DF is cut for when it becomes IPv6: its sender would not be told of a
/// narrower link further on, where IPv6 is not cut any more (RFC 7915 4.1).
pub(super) fn cut_mtu(mtu: u16) -> u16 {
    mtu.min(ipv6::MIN_MTU as u16)
}

/// The same of packets that may not be cut, from a sender with this tuple.
pub(super) fn whole_room(mtu: u16, old: &Tuple<u128>) -> u16 {
    match unmapped(old.src) {
        None => mtu.saturating_add(DIFFERENCE),
        Some(_) => mtu.saturating_sub(DIFFERENCE),
    }
}

fn is_to_be_cut(packet: &[u8]) -> bool {
    packet.first_chunk().is_some_and(|header| !ipv4::Header(header).dont_fragment())
}

/// The same for a fragment, exactly: `None` for any other packet, and one whose version stays.
/// With its fragment header the longer one is 28 bytes longer, and what it came with besides goes.
#[cold]
pub(super) fn piece_room(mtu: u16, lane: &Lane<u128>, bytes: &[u8]) -> Option<u16> {
    let packet = bytes.get(usize::from(lane.parsed.l3)..)?;
    if exception::is_fragment(packet) != Some(true) {
        return None;
    }
    let came_with = lane.parsed.l4.checked_sub(lane.parsed.l3.into())?;
    let six = unmapped(lane.new.src).is_none();
    let leaves_with = if six { piece::HEADERS_V6 } else { ipv4::HEADER };
    let mtu = if six && is_to_be_cut(packet) { cut_mtu(mtu) } else { mtu };
    Some(mtu.saturating_add(came_with).saturating_sub(leaves_with as u16))
}

/// Whether a fragment has a like in the other IP version. A datagram without a checksum has none in
/// IPv6 (RFC 7915 4.5), nor in IPv4 one that is too long for it.
#[cold]
pub(super) fn piece_has_like(lane: &Lane<u128>, bytes: &[u8]) -> bool {
    let Some(packet) = bytes.get(usize::from(lane.parsed.l3)..) else { return false };
    let six = unmapped(lane.new.src).is_none();
    let made = if six {
        headers_v6(&mut [0; piece::HEADERS_V6], packet, lane).map(|(from, _)| from)
    } else {
        header_v4(&mut [0; ipv4::HEADER], packet, lane, 0)
    };
    let Some(from) = made else { return false };
    if lane.new.protocol != ipv4::UDP {
        return true;
    }
    let Some(header) = packet.get(from..).and_then(|data| data.first_chunk()) else { return false };
    let header = udp::Header(header);
    if six { header.checksum() != 0 } else { header.length() <= MOST_V4 }
}

/// The most bytes that an IPv4 packet may carry.
const MOST_V4: usize = u16::MAX as usize - ipv4::HEADER;

/// Whether a packet of `length` bytes, which is no fragment, becomes the same whoever translates
/// it, and may be as long as any of its flow. Not so one that may be cut: it is cut for another
/// MTU, or gets an identification from a sequence. Nor a datagram without a checksum.
pub(super) fn is_plain(packet: &[u8], (protocol, length): (u8, u16)) -> bool {
    let six = packet.first().is_some_and(|first| first >> 4 == 6);
    let (from, is_whole) = match six {
        true => (ipv6::HEADER, length - DIFFERENCE > translate::MAY_FRAGMENT),
        false => (ipv4::HEADER, !is_to_be_cut(packet)),
    };
    let header = packet.get(from..).and_then(|data| data.first_chunk());
    let is_bare = protocol == ipv4::UDP && header.is_none_or(|d| udp::Header(d).checksum() == 0);
    is_whole && !is_bare
}

/// Turns a packet into one of the other IP version. Gives the reason why it cannot be one.
#[cold]
pub(super) fn translate<B: Frame>(
    shared: &mut Shared,
    frame: &mut B,
    lane: &Lane<u128>,
) -> Option<Reason> {
    if !cut_padding(frame, lane) {
        return Some(Reason::Truncated);
    }
    if unmapped(lane.new.src).is_some() {
        shared.answers.nat64_id = shared.answers.nat64_id.wrapping_add(1);
    }
    let done = change(shared.answers.nat64_id, frame, lane);
    if done.is_some() { None } else { Some(Reason::Untranslatable) }
}

/// Padding behind a packet is no part of it, and must not become one.
fn cut_padding<B: Frame>(frame: &mut B, lane: &Lane<u128>) -> bool {
    frame.set_len(usize::from(lane.parsed.l3) + usize::from(lane.parsed.length))
}

/// Translates a packet that is [plain](is_plain); `None` if there is no room for it.
pub(super) fn translate_plain<B: Frame>(frame: &mut B, lane: &Lane<u128>) -> Option<()> {
    if cut_padding(frame, lane) { change(0, frame, lane) } else { None }
}

/// Translates a packet without padding, with this identification if it gets one of its own.
fn change<B: Frame>(id: u16, frame: &mut B, lane: &Lane<u128>) -> Option<()> {
    match unmapped(lane.new.src) {
        Some(_) => to_v4(frame, lane, id),
        None => to_v6(frame, lane),
    }
}

/// Whether a datagram that is to become `new` comes as IPv6 without a checksum, and leaves as IPv4;
/// or the first fragment of one. Nothing would say any more that it may be damaged.
#[cold]
pub(super) fn lacks_checksum(lane: &Lane<u128>, new: &Tuple<u128>, bytes: &[u8]) -> bool {
    let (l3, l4) = (usize::from(lane.parsed.l3), usize::from(lane.parsed.l4));
    let six = bytes.get(l3).is_some_and(|first| first >> 4 == 6);
    let header = bytes.get(l4..).and_then(|data| data.first_chunk());
    six && unmapped(new.src).is_some()
        && header.is_some_and(|data| udp::Header(data).checksum() == 0)
}

fn to_v4<B: Frame>(frame: &mut B, lane: &Lane<u128>, id: u16) -> Option<()> {
    let (l3, old, new) = (usize::from(lane.parsed.l3), &lane.parsed.tuple, &lane.new);
    let mut header = [0; ipv4::HEADER];
    let from = header_v4(&mut header, frame.bytes().get(l3..)?, lane, id)?;
    replace(frame, l3, from, &header, ethernet::IPV4)?;
    let ends = (new.src as u32, new.dst as u32);
    let changed = translate::to_v4(Delta::NONE, (old.src, old.dst), ends);
    transport(frame.bytes_mut().get_mut(l3 + header.len()..)?, changed, lane);
    Some(())
}

/// The header of IPv4 for a packet, and where in that its data begins.
fn header_v4(
    out: &mut [u8; ipv4::HEADER],
    packet: &[u8],
    lane: &Lane<u128>,
    id: u16,
) -> Option<usize> {
    let (src, dst) = (unmapped(lane.new.src)?, unmapped(lane.new.dst)?);
    let hops = lane.parsed.ttl.wrapping_sub(1);
    match translate::header_to_v4(out, packet, src, dst, hops, id) {
        Err(Untranslatable::Fragment) => {
            piece::to_v4(out, packet, (src, dst), hops, lane.parsed.tuple.protocol).ok()
        }
        from => from.ok(),
    }
}

fn to_v6<B: Frame>(frame: &mut B, lane: &Lane<u128>) -> Option<()> {
    let (l3, old, new) = (usize::from(lane.parsed.l3), &lane.parsed.tuple, &lane.new);
    let mut headers = [0; piece::HEADERS_V6];
    let (from, length) = headers_v6(&mut headers, frame.bytes().get(l3..)?, lane)?;
    replace(frame, l3, from, &headers[..length], ethernet::IPV6)?;
    let ends = (old.src as u32, old.dst as u32);
    let changed = translate::to_v6(Delta::NONE, ends, (new.src, new.dst));
    let segment = frame.bytes_mut().get_mut(l3 + length..)?;
    transport(segment, changed, lane);
    // IPv6 has no datagrams without a checksum (RFC 8200 8.1); fragments have one.
    let bare = new.protocol == ipv4::UDP
        && length == ipv6::HEADER
        && segment.get(udp::CHECKSUM..udp::HEADER) == Some(&[0, 0]);
    if bare {
        // Not what lies behind the datagram (RFC 9868 4).
        let length = udp::Header::parse(segment)?.length();
        let datagram = segment.get(..length)?;
        let sum = checksum::transport_v6(new.src, new.dst, ipv4::UDP, datagram);
        let sum = if sum == 0 { u16::MAX } else { sum };
        segment[udp::CHECKSUM..udp::HEADER].copy_from_slice(&sum.to_be_bytes());
    }
    Some(())
}

/// The headers of IPv6 for a packet: where in that its data begins, and their length.
fn headers_v6(
    out: &mut [u8; piece::HEADERS_V6],
    packet: &[u8],
    lane: &Lane<u128>,
) -> Option<(usize, usize)> {
    let (src, dst) = (lane.new.src, lane.new.dst);
    let hops = lane.parsed.ttl.wrapping_sub(1);
    let fixed = out.first_chunk_mut()?;
    match translate::header_to_v6(fixed, packet, src, dst, hops) {
        Err(Untranslatable::Fragment) => {
            let from = piece::to_v6(out, packet, (src, dst), hops).ok()?;
            Some((from, piece::HEADERS_V6))
        }
        from => Some((from.ok()?, ipv6::HEADER)),
    }
}

/// Puts `header` in place of the `from` bytes of headers at `l3`; the link-layer header moves
/// along, and names the new version.
fn replace<B: Frame>(
    frame: &mut B,
    l3: usize,
    from: usize,
    header: &[u8],
    ethertype: u16,
) -> Option<()> {
    if header.len() > from {
        let more = header.len() - from;
        if !frame.push_front(more) {
            return None;
        }
        frame.bytes_mut().copy_within(more..more + l3, 0);
    } else {
        let less = from - header.len();
        frame.bytes_mut().copy_within(..l3, less);
        if !frame.pull_front(less) {
            return None;
        }
    }
    let bytes = frame.bytes_mut();
    bytes.get_mut(l3..l3 + header.len())?.copy_from_slice(header);
    bytes.get_mut(l3.checked_sub(2)?..l3)?.copy_from_slice(&ethertype.to_be_bytes());
    Some(())
}

/// Writes ports and checksum of a TCP or UDP header whose packet's addresses have changed.
fn transport(segment: &mut [u8], addresses: Delta, lane: &Lane<u128>) {
    let (old, new) = (&lane.parsed.tuple, &lane.new);
    let all = addresses.word16(old.sport, new.sport).word16(old.dport, new.dport);
    match new.protocol {
        ipv4::TCP => rewrite::transport(segment, all, new, tcp::CHECKSUM, Delta::apply),
        ipv4::UDP => rewrite::transport(segment, all, new, udp::CHECKSUM, Delta::apply_udp_v6),
        _ => {}
    }
}
