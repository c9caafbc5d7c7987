//! From bytes to a tuple: what may be ours goes on, everything else gets its verdict here.

use super::burst::Parsed;
use super::{Shared, Verdict};
use crate::family::Tuple;
use crate::frame::{Checked, Frame};
use crate::plan::Plan;
use crate::reason::Reason;
use crate::track::Segment;
use sluice_wire::ipv4::Malformed;
use sluice_wire::{checksum, ethernet, icmp, ipv4, tcp, udp};

/// Parses one frame, down to the transport header.
#[inline(always)]
pub(super) fn v4<F: Frame>(
    frame: &F,
    plan: &Plan,
    shared: &Shared,
) -> Result<Parsed<u32>, Verdict> {
    let bytes = frame.bytes();
    let Some(payload) = ethernet::payload(bytes) else {
        return Err(Verdict::Drop(Reason::Truncated));
    };
    if payload.ethertype != ethernet::IPV4 {
        let v6 = payload.ethertype == ethernet::IPV6;
        return Err(Verdict::Kernel(if v6 { Reason::Ipv6 } else { Reason::NotIp }));
    }
    if ethernet::is_group(bytes) {
        return Err(Verdict::Kernel(Reason::Group));
    }
    let packet = &bytes[payload.offset..];
    let header = ipv4::Header::parse(packet).map_err(malformed)?;
    let known = frame.rx_checksum();
    if known.ip != Checked::Good && !header_checksum_holds(header, packet) {
        return Err(Verdict::Drop(Reason::BadIpChecksum));
    }
    let protocol = header.protocol();
    if header.is_fragment() || !matches!(protocol, ipv4::TCP | ipv4::UDP) {
        return Err(odd(header, packet, plan));
    }
    let segment = &packet[header.header_len()..header.total_len()];
    let parsed = Parsed {
        tuple: Tuple {
            src: header.source(),
            dst: header.destination(),
            protocol,
            ..ports(segment)
        },
        l3: payload.offset as u8,
        l4: (payload.offset + header.header_len()) as u8,
        ttl: header.ttl(),
        length: header.total_len() as u16,
        segment: transport(protocol, segment)?,
    };
    if known.l4 == Checked::Bad {
        return Err(Verdict::Drop(Reason::BadL4Checksum));
    }
    if shared.workers > 1 {
        stays_here(&parsed.tuple, plan, shared)?;
    }
    Ok(parsed)
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

/// The ports of a segment of at least four bytes; zeros otherwise, since [`transport`] refuses
/// such a segment.
#[inline(always)]
fn ports(segment: &[u8]) -> Tuple<u32> {
    let [a, b, c, d] = segment.first_chunk().copied().unwrap_or_default();
    Tuple {
        sport: u16::from_be_bytes([a, b]),
        dport: u16::from_be_bytes([c, d]),
        ..Tuple::default()
    }
}

/// Checks the transport header and reads what session tracking needs of it.
#[inline(always)]
fn transport(protocol: u8, segment: &[u8]) -> Result<Segment, Verdict> {
    if protocol == ipv4::UDP {
        return match udp::Header::parse(segment) {
            Some(_) => Ok(Segment::default()),
            None => Err(l4_refused(segment.len() < udp::HEADER)),
        };
    }
    let Some(header) = tcp::Header::parse(segment) else {
        let whole = segment.get(12).is_none_or(|b| usize::from(b >> 4) * 4 > segment.len());
        return Err(l4_refused(segment.len() < tcp::HEADER || whole));
    };
    let data = (segment.len() - header.header_len()) as u32;
    Ok(Segment {
        flags: header.flags(),
        ack: header.acknowledgement() as u16,
        end: header.sequence().wrapping_add(data) as u16,
    })
}

const fn l4_refused(truncated: bool) -> Verdict {
    Verdict::Drop(if truncated { Reason::Truncated } else { Reason::BadL4Header })
}

/// Fragments and what is neither TCP nor UDP.
#[cold]
fn odd(header: ipv4::Header<'_>, packet: &[u8], plan: &Plan) -> Verdict {
    if !plan.v4.owns(header.destination()) {
        return Verdict::Kernel(Reason::NotOurs);
    }
    if header.is_fragment() {
        let ours = matches!(header.protocol(), ipv4::TCP | ipv4::UDP);
        return if ours {
            Verdict::Drop(Reason::Fragment)
        } else {
            Verdict::Kernel(Reason::NotOurs)
        };
    }
    let kind = packet.get(header.header_len()).filter(|_| header.protocol() == ipv4::ICMP);
    if kind.is_some_and(|kind| icmp::is_error(*kind)) {
        return Verdict::Drop(Reason::IcmpError);
    }
    Verdict::Kernel(Reason::NotOurs)
}

/// A packet for a local port of another worker goes there.
fn stays_here(tuple: &Tuple<u32>, plan: &Plan, shared: &Shared) -> Result<(), Verdict> {
    let pool = plan.pool_of(&plan.v4, tuple.dst);
    match pool.and_then(|pool| pool.owner(tuple.dport, shared.workers)) {
        Some(owner) if owner != shared.worker => Err(Verdict::HandOff(owner)),
        _ => Ok(()),
    }
}
