//! Packets that are cut into fragments on their way out (RFC 791 2.3), each in a buffer of its own.

use crate::queue::{Burst, Queue};
use sluice_director::{Frame, Reason};
use sluice_wire::{ethernet, fragment};

/// Cuts a frame's packet into pieces of at most `mtu` bytes, each behind the frame's own
/// link-layer header and in a buffer of the queue's. All of them or none, since what lacks a piece
/// is of no use to anybody: with an error nothing is to be sent, for this reason.
pub(crate) fn cut<Q: Queue>(
    frame: &Q::Frame,
    mtu: u16,
    queue: &mut Q,
) -> Result<Burst<Q::Frame>, Reason> {
    let bytes = frame.bytes();
    let at = ethernet::payload(bytes).map_or(0, |payload| payload.offset);
    let (link, packet) = bytes.split_at_checked(at).ok_or(Reason::TooBig)?;
    let mut pieces = Burst::new();
    let mut why = Reason::TooBig;
    let done = fragment::cut(packet, mtu, |header, payload| {
        if pieces.is_full() {
            return false;
        }
        let piece = queue.spare().and_then(|mut piece| {
            let (ip, data) = (link.len(), link.len() + header.len());
            if !piece.set_len(data + payload.len()) {
                return None;
            }
            let bytes = piece.bytes_mut();
            bytes[..ip].copy_from_slice(link);
            bytes[ip..data].copy_from_slice(header);
            bytes[data..].copy_from_slice(payload);
            Some(piece)
        });
        let Some(piece) = piece else {
            why = Reason::NoBuffer;
            return false;
        };
        pieces.push(piece);
        true
    });
    if done.is_ok() { Ok(pieces) } else { Err(why) }
}
