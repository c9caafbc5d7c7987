//! Frames that leave in pieces: cut as the worker cuts them, and put together again by other means.

use crate::check::Violation;
use crate::frame::{Buffer, Pool};
use sluice_director::Frame;

/// Cuts a frame's packet for an MTU, and checks that the pieces are the packet. They are not sent:
/// the network goes on with the whole, as if the far end had put them together.
pub(crate) fn cut(_: &mut Pool, frame: &Buffer, mtu: u16) -> Result<(), Violation> {
    let bytes = frame.bytes();
    let at = if bytes[12..14] == [0x81, 0] { 18 } else { 14 };
    let packet = &bytes[at..];
    if packet[0] >> 4 != 4 {
        // Its sender is the director itself; whoever cuts it needs no more than the MTU.
        return Ok(());
    }
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let done = sluice_wire::fragment::cut_v4(packet, mtu, |header, payload| {
        pieces.push([header, payload].concat());
        true
    });
    done.map_err(|error| format!("not cut: {error:?}"))?;
    if pieces.len() < 2 || pieces.iter().any(|piece| piece.len() > usize::from(mtu)) {
        return Err(format!("cut into {} pieces for {mtu}", pieces.len()));
    }
    let mut whole = packet[..20].to_vec();
    for (number, piece) in pieces.iter().enumerate() {
        let slice = etherparse::Ipv4HeaderSlice::from_slice(piece).map_err(|e| e.to_string())?;
        let header = slice.to_header();
        let last = number + 1 == pieces.len();
        let right = header.header_checksum == header.calc_header_checksum()
            && usize::from(header.fragment_offset.value()) * 8 + 20 == whole.len()
            && header.more_fragments != last
            && usize::from(header.total_len) == piece.len()
            && slice.slice()[12..] == packet[12..20]
            && slice.slice()[4..6] == packet[4..6];
        if !right {
            return Err(format!("a piece is {header:?}"));
        }
        whole.extend(&piece[20..]);
    }
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    if whole == packet[..total] { Ok(()) } else { Err("the pieces are not the whole".into()) }
}
