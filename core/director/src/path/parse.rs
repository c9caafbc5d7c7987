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

/// Parses one frame, down to the transport header, into `parsed`.
#[inline(always)]
pub(super) fn v4<F: Frame>(
    frame: &F,
    plan: &Plan,
    shared: &Shared,
    parsed: &mut Parsed<u32>,
) -> Result<(), Verdict> {
    if !plain(frame, parsed) {
        general(frame, plan, parsed)?;
    }
    if shared.workers > 1 {
        stays_here(&parsed.tuple, plan, shared)?;
    }
    Ok(())
}

/// Parses a frame as nearly all are: untagged IPv4 without options, whole, TCP or UDP, and nothing
/// wrong with it. `false` for any other; [`general`] then says what it is. Every field is where it
/// always is, so this is few bounds checks and comparisons.
#[inline(always)]
fn plain<F: Frame>(frame: &F, parsed: &mut Parsed<u32>) -> bool {
    const L4: usize = ethernet::HEADER + ipv4::HEADER;
    let bytes = frame.bytes();
    // One check for all: the shorter of the two transport headers is UDP's.
    if bytes.len() < L4 + udp::HEADER {
        return false;
    }
    let Some((link, packet)) = bytes.split_first_chunk::<{ ethernet::HEADER }>() else {
        return false;
    };
    let Some((header, rest)) = packet.split_first_chunk::<{ ipv4::HEADER }>() else {
        return false;
    };
    let Some(ports) = rest.first_chunk::<4>() else { return false };
    let (header, known) = (ipv4::Header(header), frame.rx_checksum());
    let (protocol, total) = (header.protocol(), header.total_len());
    let fits = link[12..] == ethernet::IPV4.to_be_bytes()
        && link[0] & 1 == 0
        && header.0[0] == 0x45
        && !header.is_fragment()
        && total <= packet.len()
        && known.l4 != Checked::Bad
        && (known.ip == Checked::Good || checksum::ipv4_header_ok(header.0));
    if !fits {
        return false;
    }
    if protocol == ipv4::UDP {
        let Some(udp) = rest.first_chunk().map(udp::Header) else { return false };
        if udp.length() < udp::HEADER || udp.length() + ipv4::HEADER > total {
            return false;
        }
        parsed.segment = Segment::default();
    } else if protocol == ipv4::TCP {
        let Some(tcp) = tcp::Header::parse(rest) else { return false };
        let Some(data) = total.checked_sub(ipv4::HEADER + tcp.header_len()) else { return false };
        parsed.segment = segment(tcp, data);
    } else {
        return false;
    }
    parsed.tuple.src = header.source();
    parsed.tuple.dst = header.destination();
    parsed.tuple.sport = u16::from_be_bytes([ports[0], ports[1]]);
    parsed.tuple.dport = u16::from_be_bytes([ports[2], ports[3]]);
    parsed.tuple.protocol = protocol;
    (parsed.l3, parsed.l4) = (ethernet::HEADER as u8, L4 as u8);
    (parsed.ttl, parsed.length) = (header.ttl(), total as u16);
    true
}

/// Parses any frame.
#[inline(never)]
fn general<F: Frame>(frame: &F, plan: &Plan, parsed: &mut Parsed<u32>) -> Result<(), Verdict> {
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
    *parsed = Parsed {
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
    Ok(())
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
fn transport(protocol: u8, bytes: &[u8]) -> Result<Segment, Verdict> {
    if protocol == ipv4::UDP {
        return match udp::Header::parse(bytes) {
            Some(_) => Ok(Segment::default()),
            None => Err(l4_refused(bytes.len() < udp::HEADER)),
        };
    }
    let Some(header) = tcp::Header::parse(bytes) else {
        let whole = bytes.get(12).is_none_or(|b| usize::from(b >> 4) * 4 > bytes.len());
        return Err(l4_refused(bytes.len() < tcp::HEADER || whole));
    };
    Ok(segment(header, bytes.len() - header.header_len()))
}

/// What session tracking needs of a TCP header that `data` bytes follow.
#[inline(always)]
fn segment(header: tcp::Header<'_>, data: usize) -> Segment {
    Segment {
        flags: header.flags(),
        ack: header.acknowledgement() as u16,
        end: header.sequence().wrapping_add(data as u32) as u16,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::lab::{self, MemFrame, VIP};
    use proptest::prelude::*;

    proptest! {
        /// The quick way takes nothing that the long way refuses, and finds the same.
        #[test]
        fn the_quick_way_is_the_long_way(
            tcp in any::<bool>(),
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            change in proptest::option::weighted(0.7, (0usize..70, any::<u8>())),
            cut in proptest::option::weighted(0.3, 0usize..100),
        ) {
            let from = ([198, 51, 100, 48], 4000);
            let frame = if tcp {
                lab::tcp(from, (VIP, 80), 0x10, (70_000, 80_000), &payload)
            } else {
                lab::udp(from, (VIP, 53), &payload)
            };
            let mut bytes = frame.bytes().to_vec();
            if let Some((at, value)) = change && at < bytes.len() {
                bytes[at] = value;
                // The header's checksum follows, or no change would get past it.
                bytes[24..26].fill(0);
                let checksum = checksum::full(&bytes[14..34]);
                bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
            bytes.truncate(cut.unwrap_or(usize::MAX));
            let frame = MemFrame::new(&bytes);
            let (mut quick, mut long) = (Parsed::default(), Parsed::default());
            let taken = plain(&frame, &mut quick);
            let verdict = general(&frame, &Plan::default(), &mut long);
            if taken {
                prop_assert_eq!((verdict, quick), (Ok(()), long));
            } else if change.is_none() && cut.is_none() {
                prop_assert!(false, "an ordinary packet goes the quick way");
            }
        }
    }
}
