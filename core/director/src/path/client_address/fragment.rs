//! Introducing a client in the first fragment of a datagram.
//!
//! What is put in front of its data moves that of all later fragments, and they tell their places
//! in units of eight bytes: so it is padded to a multiple of that. The header before a datagram's
//! data is, with a TLV that means nothing; the one in a stream must be the same whenever it is sent
//! again, so the segment's options are padded instead, which take no numbers of the stream. Where
//! that cannot be (a line of version 1 whose length is no multiple of four), the segment is
//! dropped, and the client sends it again when the real server has got the header, which went with
//! the handshake.
//!
//! A segment's length and checksum are those of the whole, of which only this is here: they change
//! by difference like everything else.

use super::{NO_ROOM, header, insert, stream_len};
use crate::family::unmapped;
use crate::frame::Frame;
use crate::path::Verdict;
use crate::path::burst::Lane;
use crate::path::fragments::most;
use crate::path::turn::Outcome;
use crate::reason::Reason;
use crate::spec::ClientAddress;
use sluice_wire::proxy_protocol::Ends;
use sluice_wire::tcp_options::{NOP, TOA_V6, room};
use sluice_wire::{tcp, udp};

/// A TOA option with an IPv6 address, and what makes it a multiple of eight bytes.
const TOA_V6_PADDED: usize = TOA_V6 + PADDING;
/// Bytes by which options are padded.
const PADDING: usize = 4;

pub(super) fn padded(option: [u8; TOA_V6]) -> [u8; TOA_V6_PADDED] {
    let mut padded = [NOP; TOA_V6_PADDED];
    padded[..TOA_V6].copy_from_slice(&option);
    padded
}

/// Whether a datagram, whose first fragment this is, can be `more` bytes longer.
pub(super) fn has_room(lane: &Lane<u128>, bytes: &[u8], more: u16) -> bool {
    let headers = usize::from(lane.parsed.l4) - usize::from(lane.parsed.l3);
    let v4 = |address| unmapped(address).is_some();
    let most = most(headers, v4(lane.parsed.tuple.src), v4(lane.new.src));
    let header = bytes.get(usize::from(lane.parsed.l4)..).and_then(|data| data.first_chunk());
    header.is_some_and(|header| udp::Header(header).length() + usize::from(more) <= most)
}

/// Puts a PROXY header in front of the data of a segment that begins where its stream does.
pub(super) fn header_in_stream<B: Frame>(
    how: ClientAddress,
    ends: &Ends,
    lane: &mut Lane<u128>,
    frame: &mut B,
    most: u16,
) -> Result<(), Outcome> {
    let length = stream_len(how, ends) as usize;
    let l4 = usize::from(lane.parsed.l4);
    let header = frame.bytes().get(l4..).and_then(tcp::Header::parse).ok_or(NO_ROOM)?;
    let padding = length.next_multiple_of(8) - length;
    let can = padding == 0 || padding == PADDING && room(header.header_len()) >= PADDING;
    if !can {
        return Err(Outcome::Is(Verdict::Drop(Reason::Fragment)));
    }
    let most = most.saturating_sub((length + padding) as u16);
    if lane.parsed.length > most {
        return Err(Outcome::TooBig(most));
    }
    if padding != 0 {
        insert(&[NOP; PADDING], lane, frame, u16::MAX).ok_or(NO_ROOM)?;
    }
    header::in_stream(how, ends, lane, frame).ok_or(NO_ROOM)
}
