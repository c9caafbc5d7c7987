//! Packets without a tuple of their own: fragments, and ICMP errors.

use super::engine::{Engine, Outcome, Turn};
use super::parse::Parse;
use super::{Shared, Verdict};
use crate::family::{Family, Ipv4, Ipv6, Tuple};
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::fragment::FragmentInfo;
use sluice_wire::{ipv4, ipv6};

impl<F: Parse> Engine<F> {
    /// Decides on an ICMP error or a fragment.
    #[cold]
    pub fn odd<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        lane: usize,
        frame: &mut B,
    ) -> Outcome {
        let l3 = usize::from(self.burst.lanes[lane].parsed.l3);
        let packet = frame.bytes().get(l3..).unwrap_or_default();
        match is_fragment(packet) {
            // It was parsed.
            None => Outcome::Is(Verdict::Drop(Reason::Truncated)),
            Some(true) => self.fragment(shared, turn, lane, frame),
            Some(false) => self.error(shared, turn, lane, frame),
        }
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
