//! IPv6 frames: the quick way for nearly all, the long way for any.

use super::{Refused, malformed, tcp_segment, transport};
use crate::family::{Tuple, unmapped_wire};
use crate::frame::{Checked, Frame};
use crate::key::Key;
use crate::path::Verdict;
use crate::path::burst::Parsed;
use crate::reason::Reason;
use crate::track::Segment;
use sluice_wire::ipv6::{self, Unwalkable};
use sluice_wire::{ethernet, icmp, ipv4, tcp, udp};

/// Parses an IPv6 frame as nearly all are: untagged, whole, TCP or UDP without extension headers,
/// and nothing wrong with it; all but the tuple, which the key says.
#[inline(always)]
pub(super) fn plain<F: Frame>(frame: &F, key: &mut Key<u128>, parsed: &mut Parsed<u128>) -> bool {
    const L4: usize = ethernet::HEADER + ipv6::HEADER;
    let bytes = frame.bytes();
    if bytes.len() < L4 + udp::HEADER {
        return false;
    }
    let Some((link, packet)) = bytes.split_first_chunk::<{ ethernet::HEADER }>() else {
        return false;
    };
    let Some((header, rest)) = packet.split_first_chunk::<{ ipv6::HEADER }>() else {
        return false;
    };
    let Some(ports) = rest.first_chunk::<4>() else { return false };
    let Some([src, dst]) = header[ipv6::SOURCE..].as_chunks::<16>().0.first_chunk() else {
        return false;
    };
    let header = ipv6::Header(header);
    let (protocol, length) = (header.next_header(), header.payload_len());
    let fits = link[12..] == ethernet::IPV6.to_be_bytes()
        && link[0] & 1 == 0
        && header.0[0] >> 4 == 6
        && length <= rest.len()
        && frame.rx_checksum().l4 != Checked::Bad;
    if !fits {
        return false;
    }
    if protocol == ipv4::UDP {
        let Some(udp) = rest.first_chunk().map(udp::Header) else { return false };
        if udp.length() < udp::HEADER || udp.length() > length {
            return false;
        }
        parsed.segment = Segment::default();
    } else if protocol == ipv4::TCP {
        let Some(tcp) = tcp::Header::parse(rest) else { return false };
        let Some(data) = length.checked_sub(tcp.header_len()) else { return false };
        parsed.segment = tcp_segment(tcp, data);
    } else {
        return false;
    }
    let (src, dst) = (u128::from_ne_bytes(*src), u128::from_ne_bytes(*dst));
    *key = Key { src, dst, ports: u32::from_ne_bytes(*ports), protocol };
    (parsed.l3, parsed.l4) = (ethernet::HEADER as u8, L4 as u16);
    (parsed.ttl, parsed.length) = (header.hop_limit(), (ipv6::HEADER + length) as u16);
    unmapped_wire(src).is_none() && unmapped_wire(dst).is_none()
}

/// Addresses that stand for IPv4 are no addresses of packets (RFC 4291 2.5.5.2, RFC 6890), and
/// inside the director they mean IPv4.
const fn is_mapped(address: u128) -> bool {
    crate::family::unmapped(address).is_some()
}

/// Parses any IPv6 frame; `false` for one that is not IPv6.
#[inline(never)]
pub(super) fn general<F: Frame>(frame: &F, parsed: &mut Parsed<u128>) -> Result<bool, Refused> {
    let bytes = frame.bytes();
    let Some(payload) = ethernet::payload(bytes) else {
        return Err(Verdict::Drop(Reason::Truncated).into());
    };
    if payload.ethertype != ethernet::IPV6 {
        return Ok(false);
    }
    if ethernet::is_group(bytes) {
        return Err(Verdict::Kernel(Reason::Group).into());
    }
    let packet = &bytes[payload.offset..];
    let header = ipv6::Header::parse(packet).map_err(malformed)?;
    let (src, dst) = (header.source(), header.destination());
    if is_mapped(src) || is_mapped(dst) {
        return Err(Verdict::Drop(Reason::Martian).into());
    }
    let upper = ipv6::walk(packet).map_err(|why| match why {
        Unwalkable::Malformed(why) => malformed(why),
        Unwalkable::TooLong => Verdict::Drop(Reason::ExtensionHeaders),
    })?;
    *parsed = Parsed {
        tuple: Tuple::default(),
        l3: payload.offset as u8,
        ttl: header.hop_limit(),
        l4: 0,
        length: header.total_len() as u16,
        segment: Segment::default(),
    };
    if upper.routed {
        return Err(Verdict::Kernel(Reason::NotOurs).into());
    }
    if upper.fragment.is_some_and(|f| f.offset != 0 || f.more) {
        return Ok(true);
    }
    let segment = &packet[upper.offset..header.total_len()];
    if upper.protocol == ipv6::ICMPV6 {
        let error = segment.first().is_some_and(|kind| icmp::is_error_v6(*kind));
        let echo =
            segment.first().is_some_and(|k| matches!(*k, icmp::v6::ECHO | icmp::v6::ECHO_REPLY));
        if error {
            return Ok(true);
        }
        if !echo {
            return Err(Verdict::Kernel(Reason::NotOurs).into());
        }
    }
    if frame.rx_checksum().l4 == Checked::Bad {
        return Err(Verdict::Drop(Reason::BadL4Checksum).into());
    }
    let (sport, dport, segment) = transport(upper.protocol, segment)?;
    parsed.l4 = (payload.offset + upper.offset) as u16;
    parsed.segment = segment;
    parsed.tuple = Tuple { src, dst, sport, dport, protocol: upper.protocol };
    Ok(true)
}
