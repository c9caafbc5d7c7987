//! What comes before a stream's first byte, where a PROXY header will: it must not take the
//! header's place.

use super::header::segment_len;
use super::{NO_ROOM, is_piece, lengthen, segment_of};
use crate::frame::Frame;
use crate::path::burst::Lane;
use crate::path::turn::Outcome;
use crate::path::{Verdict, super_packet};
use crate::reason::Reason;
use sluice_wire::checksum::{self, Delta};
use sluice_wire::{tcp, tcp_options};

/// Takes out of a client's SYN what asks for Fast Open, and its data. The real server acknowledges
/// the SYN alone, and the client sends its data again behind the handshake.
pub(super) fn postpone<B: Frame>(lane: &mut Lane<u128>, frame: &mut B) -> Result<(), Outcome> {
    // The rest of its data would follow.
    if is_piece(lane, frame.bytes()) {
        return Err(Outcome::Is(Verdict::Drop(Reason::Fragment)));
    }
    decline(lane, frame).and_then(|()| cut_data(lane, frame)).ok_or(NO_ROOM)
}

/// Takes what is about Fast Open out of a SYN's options.
pub(super) fn decline<B: Frame>(lane: &Lane<u128>, frame: &mut B) -> Option<()> {
    tcp_options::erase_if(segment_of(lane, frame)?, tcp_options::is_fast_open);
    Some(())
}

/// A segment that begins so many bytes before the stream keeps its number, so that the real server
/// takes its data for old. What would reach into the stream goes: there is no room for the header.
pub(super) fn keep_before<B: Frame>(
    lane: &mut Lane<u128>,
    frame: &mut B,
    before: u32,
) -> Result<(), Outcome> {
    let l4 = usize::from(lane.parsed.l4);
    let header = frame.bytes().get(l4..).and_then(tcp::Header::parse).ok_or(NO_ROOM)?;
    let data = usize::from(segment_len(lane)).saturating_sub(header.header_len());
    if data as u64 <= u64::from(before) {
        return Ok(());
    }
    if is_piece(lane, frame.bytes()) {
        return Err(Outcome::Is(Verdict::Drop(Reason::Fragment)));
    }
    cut_data(lane, frame).ok_or(NO_ROOM)
}

/// Takes the data out of a segment.
fn cut_data<B: Frame>(lane: &mut Lane<u128>, frame: &mut B) -> Option<()> {
    if frame.segment_size() != 0 {
        super_packet::keep_first(frame);
        let l3 = usize::from(lane.parsed.l3);
        lane.parsed.length = u16::try_from(frame.bytes().len().checked_sub(l3)?).ok()?;
    }
    let segment = segment_of(lane, frame)?;
    let length = tcp::Header::parse(segment)?.header_len();
    let data = segment.get(length..).filter(|data| !data.is_empty());
    let Some(data) = data else { return Some(()) };
    let (gone, sum) = (data.len() as u16, checksum::sum(data));
    let delta = Delta::NONE.word16(sum, 0).word16(gone, 0);
    let field = u16::from_be_bytes([segment[tcp::CHECKSUM], segment[tcp::CHECKSUM + 1]]);
    segment[tcp::CHECKSUM..tcp::CHECKSUM + 2].copy_from_slice(&delta.apply(field).to_be_bytes());
    lengthen(lane, frame.bytes_mut(), gone.wrapping_neg());
    lane.parsed.segment.end = lane.parsed.segment.end.wrapping_sub(gone.into());
    frame.set_len(usize::from(lane.parsed.l3) + usize::from(lane.parsed.length)).then_some(())
}

/// Moves the urgent pointer of a segment that so many bytes are put in front of the data of: they
/// come before what is urgent.
pub(super) fn move_urgent(segment: &mut [u8], by: u16) {
    if segment.get(tcp::FLAGS).is_none_or(|flags| flags & tcp::URG == 0) {
        return;
    }
    if let Some([high, low]) = segment.get_mut(tcp::URGENT..tcp::URGENT + 2) {
        [*high, *low] = u16::from_be_bytes([*high, *low]).saturating_add(by).to_be_bytes();
    }
}
