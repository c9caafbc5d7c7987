//! Packets without a tuple of their own: fragments, and ICMP errors.

use super::burst::Lane;
use super::parse::Parse;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{Shared, Verdict, errors, fragments};
use crate::family::{Family, Ipv4, Ipv6, Tuple};
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::fragment::FragmentInfo;
use sluice_wire::{ipv4, ipv6};

/// Decides on an ICMP error or a fragment.
#[cold]
pub(super) fn odd<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Outcome {
    let l3 = usize::from(lane.parsed.l3);
    let packet = frame.bytes().get(l3..).unwrap_or_default();
    match is_fragment(packet) {
        // It was parsed.
        None => Outcome::Is(Verdict::Drop(Reason::Truncated)),
        Some(true) => fragments::fragment(table, lane, shared, turn, frame),
        Some(false) => errors::error(table, lane, shared, turn, frame),
    }
}

/// Whether a packet is a part of a datagram; `None` when it is no packet.
pub(super) fn is_fragment(packet: &[u8]) -> Option<bool> {
    if packet.first()? >> 4 == 6 {
        let fragment = ipv6::walk(packet).ok()?.fragment;
        return Some(fragment.is_some_and(|f| f.offset != 0 || f.more));
    }
    ipv4::Header::parse(packet).ok().map(ipv4::Header::is_fragment)
}

/// Where a packet comes from and goes to and its protocol, without ports.
pub(super) fn ends<F: Family>(packet: &[u8]) -> Option<Tuple<F::Addr>> {
    if packet.first()? >> 4 == 6 {
        let header = ipv6::Header::parse(packet).ok()?;
        let form = |address| F::from_ip(Ipv6::to_ip(address));
        return Some(Tuple {
            src: form(header.source())?,
            dst: form(header.destination())?,
            protocol: header.next_header(),
            ..Tuple::default()
        });
    }
    let header = ipv4::Header::parse(packet).ok()?;
    let form = |address| F::from_ip(Ipv4::to_ip(address));
    Some(Tuple {
        src: form(header.source())?,
        dst: form(header.destination())?,
        protocol: header.protocol(),
        ..Tuple::default()
    })
}

/// Whether a packet is a fragment but its datagram's first.
pub(super) fn is_later(packet: &[u8]) -> bool {
    match packet.first() {
        Some(first) if first >> 4 == 6 => {
            let upper = ipv6::walk(packet).ok();
            upper.and_then(|upper| upper.fragment).is_some_and(|fragment| fragment.offset != 0)
        }
        _ => ipv4::Header::parse(packet).is_ok_and(|h| FragmentInfo::of(h).is_later()),
    }
}
