//! Writing what a packet becomes: network and transport headers with their checksums by
//! difference, then the link layer.

use super::Verdict;
use crate::family::Tuple;
use crate::fib::Hop;
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::checksum::Delta;
use sluice_wire::ethernet::{self, HEADER, TAG};
use sluice_wire::{ipv4, tcp, udp};

/// Bytes of a frame without tags and IP options, to the end of its transport header.
const PLAIN_UDP: usize = PLAIN_L4 + udp::HEADER;
const PLAIN_TCP: usize = PLAIN_L4 + tcp::HEADER;
const PLAIN_L4: usize = HEADER + ipv4::HEADER;

/// Rewrites addresses and ports of an IPv4 packet whose headers are at `l3` and `l4` of its frame,
/// takes one hop off its time to live, which is not zero, and updates the checksums.
#[inline(always)]
pub(crate) fn v4(frame: &mut [u8], (l3, l4): (usize, usize), old: &Tuple<u32>, new: &Tuple<u32>) {
    let addresses = Delta::NONE.word32(old.src, new.src).word32(old.dst, new.dst);
    let all = addresses.word16(old.sport, new.sport).word16(old.dport, new.dport);
    if (l3, l4) == (HEADER, PLAIN_L4) {
        // Everything is at a place that the compiler knows.
        if new.protocol == ipv4::UDP
            && let Some(frame) = frame.first_chunk_mut::<PLAIN_UDP>()
        {
            network(&mut frame[HEADER..], addresses, new);
            transport(&mut frame[PLAIN_L4..], all, new, udp::CHECKSUM, Delta::apply_udp);
            return;
        }
        if new.protocol == ipv4::TCP
            && let Some(frame) = frame.first_chunk_mut::<PLAIN_TCP>()
        {
            network(&mut frame[HEADER..], addresses, new);
            transport(&mut frame[PLAIN_L4..], all, new, tcp::CHECKSUM, Delta::apply);
            return;
        }
    }
    anywhere(frame, (l3, l4), (addresses, all), new);
}

#[cold]
fn anywhere(
    frame: &mut [u8],
    (l3, l4): (usize, usize),
    (addresses, all): (Delta, Delta),
    new: &Tuple<u32>,
) {
    if let Some(packet) = frame.get_mut(l3..) {
        network(packet, addresses, new);
    }
    let Some(segment) = frame.get_mut(l4..) else { return };
    if new.protocol == ipv4::TCP {
        transport(segment, all, new, tcp::CHECKSUM, Delta::apply);
    } else {
        transport(segment, all, new, udp::CHECKSUM, Delta::apply_udp);
    }
}

/// Writes the time to live, the addresses and the checksum of an IPv4 header.
#[inline(always)]
fn network(packet: &mut [u8], addresses: Delta, new: &Tuple<u32>) {
    let Some(header) = packet.first_chunk_mut::<{ ipv4::HEADER }>() else { return };
    // The time to live is the upper byte of its 16-bit word.
    header[ipv4::TTL] = header[ipv4::TTL].wrapping_sub(1);
    let checksum = u16::from_be_bytes([header[ipv4::CHECKSUM], header[ipv4::CHECKSUM + 1]]);
    let checksum = addresses.word16(1 << 8, 0).apply(checksum);
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    header[ipv4::SOURCE..][..4].copy_from_slice(&new.src.to_be_bytes());
    header[ipv4::DESTINATION..][..4].copy_from_slice(&new.dst.to_be_bytes());
}

/// Writes the ports and the checksum, which is at `at`, of a TCP or UDP header.
#[inline(always)]
fn transport<A>(
    segment: &mut [u8],
    delta: Delta,
    new: &Tuple<A>,
    at: usize,
    apply: impl Fn(Delta, u16) -> u16,
) {
    let Some(field) = segment.get_mut(at..at + 2) else { return };
    let checksum = apply(delta, u16::from_be_bytes([field[0], field[1]]));
    field.copy_from_slice(&checksum.to_be_bytes());
    segment[..2].copy_from_slice(&new.sport.to_be_bytes());
    segment[2..4].copy_from_slice(&new.dport.to_be_bytes());
}

/// Gives a frame whose IP header is at `l3` the link-layer addresses of a hop, if it carries no tag
/// and shall carry none; `false` if it is for [`link_layer`].
#[inline(always)]
pub(super) fn untagged<B: Frame>(frame: &mut B, l3: u8, hop: &Hop) -> bool {
    if usize::from(l3) != HEADER || hop.vlan != 0 {
        return false;
    }
    let Some(header) = frame.bytes_mut().first_chunk_mut::<HEADER>() else { return false };
    addresses(header, hop);
    true
}

#[inline(always)]
fn addresses(header: &mut [u8; HEADER], hop: &Hop) {
    header[..6].copy_from_slice(&hop.destination);
    header[6..12].copy_from_slice(&hop.source);
}

/// Gives a frame that carries an IPv4 packet the link-layer header of a hop; tags come and go as
/// the hop has it.
#[cold]
pub(super) fn link_layer<B: Frame>(frame: &mut B, hop: &Hop) -> Verdict {
    let tagged = hop.vlan != 0;
    let wanted = if tagged { HEADER + TAG } else { HEADER };
    let Some(payload) = ethernet::payload(frame.bytes()) else {
        return Verdict::Drop(Reason::Truncated);
    };
    let fits = match payload.offset {
        now if now == wanted => true,
        now if now > wanted => frame.pull_front(now - wanted),
        now => frame.push_front(wanted - now),
    };
    let Some(header) = frame.bytes_mut().first_chunk_mut::<HEADER>().filter(|_| fits) else {
        return Verdict::Drop(Reason::Headroom);
    };
    addresses(header, hop);
    header[12..].copy_from_slice(&payload.ethertype.to_be_bytes());
    if tagged {
        tag(frame.bytes_mut(), hop.vlan, payload.ethertype);
    }
    Verdict::Tx(hop.port)
}

fn tag(bytes: &mut [u8], vlan: u16, ethertype: u16) {
    let Some(header) = bytes.first_chunk_mut::<{ HEADER + TAG }>() else { return };
    header[12..14].copy_from_slice(&ethernet::VLAN.to_be_bytes());
    header[14..16].copy_from_slice(&vlan.to_be_bytes());
    header[16..].copy_from_slice(&ethertype.to_be_bytes());
}
