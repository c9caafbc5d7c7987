//! ICMP errors about packets that left as another IP version than they came as (RFC 7915 4.2, 4.3,
//! 5.2, 5.3): the message is made anew, since its quote becomes longer or shorter.
//!
//! What the quoted packet's header lost on the way through the director, its identification say,
//! the sender is not told: a whole packet is quoted as one that was never to be fragmented. A first
//! fragment is quoted as one, with as much of its identification as both versions have. A later
//! one tells no ports, and so no session.

use super::{Received, outer_v4};
use crate::family::{Family, Tuple};
use crate::frame::Frame;
use crate::path::answer::write_error;
use crate::path::quote::{self, Quote};
use crate::reason::Reason;
use sluice_wire::checksum::Delta;
use sluice_wire::translate::{self, Links, Report, piece};
use sluice_wire::{ethernet, icmp, ipv4, ipv6};
use std::net::IpAddr;

/// Bytes of a quote that are looked at: what fits into the larger of the two errors, and a header.
const MOST: usize = icmp::MOST_V6;
/// Bytes of the headers that it may get.
const HEADERS: usize = piece::HEADERS_V6;

/// A quote in the making.
struct Made {
    bytes: [u8; MOST + HEADERS],
    len: usize,
}

/// Turns an error into one of the other IP version from and to `ends`, about a packet with the
/// tuple `about`; `came` and `leaves` are the MTUs of its links. Gives the reason why it cannot.
pub(super) fn rewrite<F: Family, B: Frame>(
    frame: &mut B,
    received: Received,
    quote: &Quote<F::Addr>,
    about: &Tuple<F::Addr>,
    ends: (IpAddr, IpAddr),
    (came, leaves): (u16, u16),
) -> Option<Reason> {
    let six = ends.1.is_ipv6();
    let links = if six { Links { v4: came, v6: leaves } } else { Links { v4: leaves, v6: came } };
    let report = Report { kind: received.kind, code: received.code, rest: received.rest };
    let report = if six {
        translate::error_to_v6(report, quote.total, links)
    } else {
        translate::error_to_v4(report, !quote.whole, links)
    };
    let made = make::<F>(received.quote(frame.bytes()), quote, about);
    let (Some(report), Some(made)) = (report, made) else { return Some(Reason::IcmpError) };
    let packet = frame.bytes().get(received.l3..)?;
    let class = traffic_class(packet);
    let message = (report.kind, report.code, report.rest);
    if !write_error(frame, received.l3, ends, message, &made.bytes[..made.len]) {
        return Some(Reason::Headroom);
    }
    let bytes = frame.bytes_mut();
    let ethertype = if six { ethernet::IPV6 } else { ethernet::IPV4 };
    bytes.get_mut(received.l3 - 2..received.l3)?.copy_from_slice(&ethertype.to_be_bytes());
    let packet = bytes.get_mut(received.l3..)?;
    // It is another's, and on its way.
    if six {
        packet[0] = 0x60 | class >> 4;
        packet[1] = class << 4;
        packet[ipv6::HOP_LIMIT] = received.ttl - 1;
    } else {
        packet[1] = class;
        outer_v4(packet, received.ttl - 1, None);
    }
    None
}

/// Type of service or traffic class of a packet.
fn traffic_class(packet: &[u8]) -> u8 {
    match *packet {
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        [_, second, ..] => second,
        _ => 0,
    }
}

/// The quote of the other IP version. `None` for a packet that has no like there.
fn make<F: Family>(quoted: &[u8], quote: &Quote<F::Addr>, about: &Tuple<F::Addr>) -> Option<Made> {
    // Behind the packet's end there may be padding (RFC 4884 5.5).
    let len = quoted.len().min(usize::from(quote.total)).min(MOST);
    let quoted = &quoted[..len];
    let mut made = Made { bytes: [0; MOST + HEADERS], len: 0 };
    let (header, changed) = match (F::to_ip(about.src), F::to_ip(about.dst)) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let new = (src.to_bits(), dst.to_bits());
            let out = made.bytes.first_chunk_mut()?;
            let (_, header) = translate::quote_to_v6(out, quoted, new.0, new.1).ok()?;
            let old = ipv4::Header::parse_quoted(quoted).ok()?;
            let old = (old.source(), old.destination());
            (header, translate::to_v6(Delta::NONE, old, new))
        }
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let new = (src.to_bits(), dst.to_bits());
            let out = made.bytes.first_chunk_mut()?;
            translate::quote_to_v4(out, quoted, new.0, new.1).ok()?;
            let old = ipv6::Header(quoted.first_chunk()?);
            let old = (old.source(), old.destination());
            (ipv4::HEADER, translate::to_v4(Delta::NONE, old, new))
        }
        _ => return None,
    };
    let rest = quoted.get(quote.upper..)?;
    made.len = header + rest.len();
    let upper = made.bytes.get_mut(header..made.len)?;
    upper.copy_from_slice(rest);
    quote::transport(upper, changed, &quote.tuple, about, None);
    Some(made)
}
