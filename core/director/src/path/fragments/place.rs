//! Where fragments belong: how far a datagram may reach, and moving what lies behind something that
//! its first fragment was given.

use sluice_wire::checksum::Delta;
use sluice_wire::translate::piece::HEADERS_V6;
use sluice_wire::{ipv4, ipv6};

/// The most bytes that all fragments of a datagram may carry together, when this one's headers are
/// so long and it comes (and leaves) as IPv4: lengths are told in 16 bits.
pub(in super::super) fn most(headers: usize, comes_v4: bool, leaves_v4: bool) -> usize {
    let all = usize::from(u16::MAX);
    let most = all - if comes_v4 { headers } else { headers.saturating_sub(HEADERS_V6) };
    if leaves_v4 && !comes_v4 { most.min(all - ipv4::HEADER) } else { most }
}

/// Moves a later fragment back by so many bytes, a multiple of eight that does not put it beyond
/// the longest datagram.
pub(super) fn shift(packet: &mut [u8], by: u16) {
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        let place = ipv6::walk(packet).ok().and_then(|upper| upper.fragment);
        if let Some(field) = place.and_then(|place| packet.get_mut(place.at + 2..place.at + 4)) {
            let new = u16::from_be_bytes([field[0], field[1]]).wrapping_add(by);
            field.copy_from_slice(&new.to_be_bytes());
        }
        return;
    }
    let Some(header) = packet.first_chunk_mut::<{ ipv4::HEADER }>() else { return };
    let old = u16::from_be_bytes([header[6], header[7]]);
    let new = old.wrapping_add(by / 8);
    header[6..8].copy_from_slice(&new.to_be_bytes());
    let field = [header[ipv4::CHECKSUM], header[ipv4::CHECKSUM + 1]];
    let sum = Delta::NONE.word16(old, new).apply(u16::from_be_bytes(field));
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
}
