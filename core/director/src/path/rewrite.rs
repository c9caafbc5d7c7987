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

/// Rewrites addresses and ports of an IPv4 packet whose transport header is `header_len` bytes
/// into it, takes one hop off its time to live, and updates the checksums.
#[inline(always)]
pub(crate) fn v4(packet: &mut [u8], header_len: usize, old: &Tuple<u32>, new: &Tuple<u32>) {
    let addresses = Delta::NONE.word32(old.src, new.src).word32(old.dst, new.dst);
    let Some(header) = packet.first_chunk_mut::<{ ipv4::HEADER }>() else { return };
    // The time to live is the upper byte of its 16-bit word.
    let ttl = header[ipv4::TTL].saturating_sub(1);
    let word = |ttl: u8| u16::from(ttl) << 8;
    let ip = addresses.word16(word(header[ipv4::TTL]), word(ttl));
    let checksum = ip.apply(u16::from_be_bytes([header[10], header[11]]));
    header[ipv4::TTL] = ttl;
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    header[ipv4::SOURCE..][..4].copy_from_slice(&new.src.to_be_bytes());
    header[ipv4::DESTINATION..][..4].copy_from_slice(&new.dst.to_be_bytes());
    let delta = addresses.word16(old.sport, new.sport).word16(old.dport, new.dport);
    let Some(segment) = packet.get_mut(header_len..) else { return };
    transport(segment, delta, new);
}

/// Writes the ports and the checksum of a TCP or UDP header.
#[inline(always)]
fn transport<A>(segment: &mut [u8], delta: Delta, new: &Tuple<A>) {
    let tcp = new.protocol == ipv4::TCP;
    let at = if tcp { tcp::CHECKSUM } else { udp::CHECKSUM };
    let Some(field) = segment.get_mut(at..at + 2) else { return };
    let old = u16::from_be_bytes([field[0], field[1]]);
    let checksum = if tcp { delta.apply(old) } else { delta.apply_udp(old) };
    field.copy_from_slice(&checksum.to_be_bytes());
    segment[..2].copy_from_slice(&new.sport.to_be_bytes());
    segment[2..4].copy_from_slice(&new.dport.to_be_bytes());
}

/// Gives a frame that carries an IPv4 packet the link-layer header of a hop; tags come and go as
/// the hop has it.
#[inline(always)]
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
    header[..6].copy_from_slice(&hop.destination);
    header[6..12].copy_from_slice(&hop.source);
    header[12..].copy_from_slice(&payload.ethertype.to_be_bytes());
    if tagged {
        tag(frame.bytes_mut(), hop.vlan, payload.ethertype);
    }
    Verdict::Tx(hop.port)
}

#[cold]
fn tag(bytes: &mut [u8], vlan: u16, ethertype: u16) {
    let Some(header) = bytes.first_chunk_mut::<{ HEADER + TAG }>() else { return };
    header[12..14].copy_from_slice(&ethernet::VLAN.to_be_bytes());
    header[14..16].copy_from_slice(&vlan.to_be_bytes());
    header[16..].copy_from_slice(&ethertype.to_be_bytes());
}
