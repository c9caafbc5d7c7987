//! Parsing of IPv6 frames on the general path.

use super::{Refused, malformed, transport};
use crate::family::Tuple;
use crate::frame::{Checked, Frame};
use crate::path::Verdict;
use crate::path::burst::Parsed;
use crate::reason::Reason;
use crate::track::Segment;
use sluice_wire::ipv6::{self, Unwalkable};
use sluice_wire::{ethernet, icmp};

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
