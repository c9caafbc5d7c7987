//! Full NAT from one IP version to the other: the header is translated by RFC 7915, and with it
//! go new addresses and ports.

use super::Shared;
use super::burst::Lane;
use super::rewrite;
use crate::family::{Tuple, unmapped};
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::checksum::{self, Delta};
use sluice_wire::{ethernet, ipv4, ipv6, tcp, translate, udp};

/// Bytes by which the longer header is longer.
const DIFFERENCE: u16 = (ipv6::HEADER - ipv4::HEADER) as u16;

/// The largest packet, as it comes, that is at most `mtu` bytes long when it leaves.
pub(super) const fn room(mtu: u16, old: &Tuple<u128>) -> u16 {
    if unmapped(old.src).is_some() {
        mtu.saturating_sub(DIFFERENCE)
    } else {
        mtu.saturating_add(DIFFERENCE)
    }
}

/// Turns a packet into one of the other IP version. Gives the reason why it cannot be one.
#[cold]
pub(super) fn translate<B: Frame>(
    shared: &mut Shared,
    frame: &mut B,
    lane: &Lane<u128>,
) -> Option<Reason> {
    let (l3, length) = (usize::from(lane.parsed.l3), usize::from(lane.parsed.length));
    let (old, new) = (&lane.parsed.tuple, &lane.new);
    let hops = lane.parsed.ttl.wrapping_sub(1);
    // Padding behind the packet is no part of it, and must not become one.
    if !frame.set_len(l3 + length) {
        return Some(Reason::Truncated);
    }
    let done = match (unmapped(new.src), unmapped(new.dst)) {
        (Some(src), Some(dst)) => {
            shared.across_id = shared.across_id.wrapping_add(1);
            let mut header = [0; ipv4::HEADER];
            let packet = &frame.bytes()[l3..];
            let id = shared.across_id;
            let from = translate::header_to_v4(&mut header, packet, src, dst, hops, id).ok();
            let changed = translate::to_v4(Delta::NONE, (old.src, old.dst), (src, dst));
            from.and_then(|from| {
                replace(frame, l3, from, &header, ethernet::IPV4)?;
                transport(frame.bytes_mut().get_mut(l3 + header.len()..)?, changed, lane);
                Some(())
            })
        }
        _ => {
            let mut header = [0; ipv6::HEADER];
            let packet = &frame.bytes()[l3..];
            let from = translate::header_to_v6(&mut header, packet, new.src, new.dst, hops).ok();
            let (src, dst) = (old.src as u32, old.dst as u32);
            let changed = translate::to_v6(Delta::NONE, (src, dst), (new.src, new.dst));
            from.and_then(|from| {
                replace(frame, l3, from, &header, ethernet::IPV6)?;
                transport(frame.bytes_mut().get_mut(l3 + header.len()..)?, changed, lane);
                Some(())
            })
        }
    };
    if done.is_some() { None } else { Some(Reason::Untranslatable) }
}

/// Puts `header` in place of the `from` bytes of headers at `l3`; the link-layer header moves
/// along, and names the new version.
fn replace<B: Frame>(
    frame: &mut B,
    l3: usize,
    from: usize,
    header: &[u8],
    ethertype: u16,
) -> Option<()> {
    if header.len() > from {
        let more = header.len() - from;
        if !frame.push_front(more) {
            return None;
        }
        frame.bytes_mut().copy_within(more..more + l3, 0);
    } else {
        let less = from - header.len();
        frame.bytes_mut().copy_within(..l3, less);
        if !frame.pull_front(less) {
            return None;
        }
    }
    let bytes = frame.bytes_mut();
    bytes.get_mut(l3..l3 + header.len())?.copy_from_slice(header);
    bytes.get_mut(l3.checked_sub(2)?..l3)?.copy_from_slice(&ethertype.to_be_bytes());
    Some(())
}

/// Writes ports and checksum of a TCP or UDP header whose packet's addresses have changed.
fn transport(segment: &mut [u8], addresses: Delta, lane: &Lane<u128>) {
    let (old, new) = (&lane.parsed.tuple, &lane.new);
    let all = addresses.word16(old.sport, new.sport).word16(old.dport, new.dport);
    match new.protocol {
        ipv4::TCP => rewrite::transport(segment, all, new, tcp::CHECKSUM, Delta::apply),
        ipv4::UDP => {
            rewrite::transport(segment, all, new, udp::CHECKSUM, Delta::apply_udp_v6);
            // IPv6 has no datagrams without a checksum (RFC 8200 8.1).
            if unmapped(new.src).is_none()
                && segment.get(udp::CHECKSUM..udp::HEADER) == Some(&[0, 0])
            {
                let sum = checksum::transport_v6(new.src, new.dst, ipv4::UDP, segment);
                let sum = if sum == 0 { u16::MAX } else { sum };
                segment[udp::CHECKSUM..udp::HEADER].copy_from_slice(&sum.to_be_bytes());
            }
        }
        _ => {}
    }
}
