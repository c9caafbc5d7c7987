//! Frames whose bytes are copied by and by: descriptors are read or written at once, and the index
//! that tells the peer moves when the bytes are there.
//!
//! A ring is used either so or by the calls that copy themselves, never by both: nothing but
//! [`RxRing::take`] and [`TxRing::reserve`] makes it run ahead of what the peer was told.

use arrayvec::ArrayVec;

use super::{Lie, Piece, RxRing, TxRing, WINDOW};
use crate::ring::{Descriptor, NEXT};
use sluice_lanes::prefetch;

/// So many descriptors ahead, buffers are asked for: short frames the processor copies.
const AHEAD: u16 = 16;

/// A part of a frame in shared memory, checked to lie in it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it begins.
    pub at: *mut u8,
    /// Its bytes.
    pub length: u32,
}

/// The parts of a frame.
pub type Parts = ArrayVec<Part, WINDOW>;

/// A frame that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Its descriptors, to be released when it is copied.
    pub slots: u16,
    /// Its bytes.
    pub length: usize,
    /// It is malformed or too long: nothing of it is to be copied.
    pub bad: bool,
}

/// What became of a frame that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It has so many descriptors, to be published when it is copied.
    Placed(u16),
    /// There is no room now.
    Full,
    /// There never will be.
    Never,
}

impl RxRing {
    /// Takes the next whole frame, of `most` bytes at most.
    pub fn take(&mut self, most: usize, parts: &mut Parts) -> Result<Option<Taken>, Lie> {
        parts.clear();
        let ahead = self.next.wrapping_add(self.taken);
        let mut taken = Taken::default();
        prefetch::at(self.piece(ahead.wrapping_add(AHEAD)).at);
        let mut known = self.seen.wrapping_sub(ahead);
        let mut index = 0;
        loop {
            // The peer's index lies in a line that the peer writes: it is looked at when all that
            // is known is taken.
            if index == known {
                let waiting = self.waiting()?;
                let more = waiting.checked_sub(self.taken).filter(|more| *more >= known);
                let more = more.ok_or(Lie::Index)?;
                self.seen = self.next.wrapping_add(waiting);
                if more == known {
                    break;
                }
                known = more;
            }
            let piece = self.piece(ahead.wrapping_add(index));
            let end = taken.length + piece.said.length as usize;
            taken.bad |= piece.at.is_null() || end > most;
            if !taken.bad {
                parts.push(Part { at: piece.at, length: piece.said.length });
                taken.length = end;
            }
            index += 1;
            if piece.said.flags & NEXT == 0 {
                taken.bad |= taken.length == 0;
                taken.slots = index;
                self.taken += index;
                return Ok(Some(taken));
            }
            if usize::from(index) == WINDOW {
                return Err(Lie::Chain);
            }
        }
        // The rest of a frame may be on its way, unless there is no room for it.
        if known == self.ring.size() { Err(Lie::Chain) } else { Ok(None) }
    }

    /// Gives the oldest descriptors that were taken back to the peer.
    pub fn release(&mut self, slots: u16) {
        debug_assert!(slots <= self.taken);
        let before = self.next;
        self.next = before.wrapping_add(slots);
        self.window.until = self.next;
        self.taken -= slots;
        match self.buffers {
            Some(_) => self.lend(before.wrapping_add(self.ring.size()), slots),
            None => self.ring.set_tail(self.next),
        }
    }
}

impl TxRing {
    /// Finds room for a frame of so many bytes, and says there what it will be.
    pub fn reserve(&mut self, length: usize, parts: &mut Parts) -> Result<Fit, Lie> {
        parts.clear();
        if length == 0 {
            return Ok(Fit::Never);
        }
        let ahead = self.next.wrapping_add(self.reserved);
        prefetch::to_write(self.piece(ahead.wrapping_add(AHEAD)).at);
        let (mut room, mut pieces) = (0, ArrayVec::<Piece, WINDOW>::new());
        while room < length {
            let count = pieces.len() as u16;
            if count >= self.free {
                let again = self.free()?.checked_sub(self.reserved).ok_or(Lie::Index)?;
                if again < self.free {
                    return Err(Lie::Index);
                }
                self.free = again;
            }
            if count >= self.free || pieces.is_full() {
                let never = self.free == self.ring.size() || pieces.is_full();
                return Ok(if never { Fit::Never } else { Fit::Full });
            }
            let piece = self.piece(ahead.wrapping_add(count));
            if piece.at.is_null() || piece.said.length == 0 {
                return Err(Lie::Buffer);
            }
            room += piece.said.length as usize;
            pieces.push(piece);
        }
        // A server's descriptors say how large buffers are until they are written.
        let mut left = length;
        for (index, piece) in pieces.iter().enumerate() {
            let part = (piece.said.length as usize).min(left);
            left -= part;
            let flags = if left > 0 { NEXT } else { 0 };
            let said = Descriptor { flags, length: part as u32, ..piece.said };
            parts.push(Part { at: piece.at, length: part as u32 });
            self.ring.set_length(ahead.wrapping_add(index as u16), said);
        }
        let count = parts.len() as u16;
        self.reserved += count;
        self.free -= count;
        Ok(Fit::Placed(count))
    }

    /// Tells the peer of the oldest descriptors that were reserved.
    pub fn publish(&mut self, slots: u16) {
        debug_assert!(slots <= self.reserved);
        self.next = self.next.wrapping_add(slots);
        self.window.until = self.next;
        self.reserved -= slots;
        match self.buffers {
            Some(_) => self.ring.set_head(self.next),
            None => self.ring.set_tail(self.next),
        }
    }
}
