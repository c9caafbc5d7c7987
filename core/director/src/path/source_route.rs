//! Packets whose senders chose the routers that they go by: dropped where they would be forwarded.
//!
//! A source route gets past filters that go by addresses, and its receiver may send answers back
//! along it, to whoever stands there. So hosts and routers refuse it by default (RFC 7126 4.3, 4.4,
//! RFC 5095). What the director would not forward is the kernel's, which judges by its own rules.

use super::burst::Parsed;
use crate::family::Family;
use crate::frame::Frame;
use sluice_wire::{ipv4, ipv6};

/// Whether a packet carries a source route. Most carry neither options nor extension headers, which
/// is all that is looked at then.
#[inline(always)]
pub(super) fn is_in<F: Family, B: Frame>(parsed: &Parsed<F::Addr>, frame: &B) -> bool {
    if F::WIDE {
        let first = frame.bytes().get(usize::from(parsed.l3)).copied().unwrap_or_default();
        let plain = first >> 4 == 6 && parsed.l4 == u16::from(parsed.l3) + ipv6::HEADER as u16;
        first != PLAIN_V4 && !plain && is_at(frame, parsed.l3.into())
    } else {
        parsed.l4 != u16::from(parsed.l3) + ipv4::HEADER as u16 && is_at(frame, parsed.l3.into())
    }
}

/// The first byte of an IPv4 header without options.
const PLAIN_V4: u8 = 0x45;

/// The same for the packet at `l3` of a frame.
#[cold]
#[inline(never)]
pub(super) fn is_at<B: Frame>(frame: &B, l3: usize) -> bool {
    let packet = frame.bytes().get(l3..).unwrap_or_default();
    match packet.first() {
        Some(first) if first >> 4 == 6 => ipv6::walk(packet).is_ok_and(|upper| upper.source_routed),
        _ => ipv4::is_source_routed(packet),
    }
}
