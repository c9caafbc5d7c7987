//! Frames into and out of a ring, by copy.
//!
//! The peer's memory is hostile: a descriptor is read once, checked, and never looked at again;
//! our own index is private; what the peer's index can say is bounded by the ring. A descriptor
//! that names what is not there costs the frame ([`Came::errors`]) where frames are received; an
//! index that cannot be is a [`Lie`], which ends the link.
//!
//! The client owns all buffers. It lends empty ones to the server in the ring that the server
//! sends by, all of them always; so there head and tail differ by the ring's size in its own view.

mod ahead;
mod piece;

use arrayvec::ArrayVec;
use sluice_lanes::copy::copy;
use sluice_lanes::prefetch;

pub use ahead::{Fit, Parts};

use self::piece::{Piece, Window};
use crate::ring::{Descriptor, NEXT, Ring};

/// Descriptors that are looked at in one go, and the most that a frame may be spread over.
const WINDOW: usize = 64;
/// Descriptors in a cache line.
const LINE: u16 = 4;
/// So many frames ahead of the one that is received, whole frames are prefetched.
const FRAMES_AHEAD: u16 = 2;

/// A peer said what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lie {
    /// Its index is further than the ring is long.
    #[error("the peer's index is out of the ring")]
    Index,
    /// A frame that never ends.
    #[error("the peer's frame has no end")]
    Chain,
    /// It lends a buffer that is not in its memory.
    #[error("the peer lends a buffer that is not in its memory")]
    Buffer,
}

/// Where received frames go.
pub trait Landing {
    /// The room for the next frame, the same until [`Self::landed`] is called. `None` when there
    /// is no more: the frame stays in the ring.
    fn room(&mut self) -> Option<&mut [u8]>;

    /// The next frame lies at the beginning of the room and has so many bytes. `false` if it is of
    /// no use: the room is then the next one's.
    fn landed(&mut self, length: usize) -> bool;
}

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// Frames that landed.
    pub frames: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that were bad or too long.
    pub errors: u64,
    /// Whether frames stay in the ring for want of room.
    pub no_room: bool,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames from the front that need not be offered again: sent or refused.
    pub taken: usize,
    /// Bytes of those that were sent.
    pub bytes: u64,
    /// Frames that no ring of this size could ever carry.
    pub errors: u64,
}

/// A client's own buffers in region 0, one for each descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Where the first begins.
    pub first: u32,
    /// Bytes of each.
    pub bytes: u32,
}

impl Buffers {
    /// Bytes from the beginning of a buffer to that of the next: an odd number of cache lines, so
    /// that headers lie in all sets of the caches. At 2,048 bytes they would lie in two of the
    /// first level's, for both processes.
    pub const fn stride(bytes: u32) -> u32 {
        (bytes.div_ceil(64) | 1) * 64
    }

    /// Says in each descriptor where its buffer lies.
    fn describe(self, ring: &Ring) {
        (0..ring.size()).for_each(|index| ring.set_descriptor(index, self.of(index)));
    }

    fn of(self, slot: u16) -> Descriptor {
        let offset = self.first + u32::from(slot) * Self::stride(self.bytes);
        Descriptor { flags: 0, region: 0, length: self.bytes, offset }
    }
}

/// A ring that frames come from.
#[derive(Debug)]
pub struct RxRing {
    ring: Ring,
    /// The next descriptor to be read.
    next: u16,
    /// Descriptors from there on that were read already, whose frames are not copied yet.
    taken: u16,
    /// The peer's index when it was last looked at.
    seen: u16,
    window: Window,
    /// Ours, if we are the client.
    buffers: Option<Buffers>,
}

impl RxRing {
    /// A fresh ring, of a client with its buffers, or of a server.
    pub fn new(ring: Ring, buffers: Option<Buffers>) -> Self {
        let new = Self { ring, next: 0, taken: 0, seen: 0, window: Window::new(), buffers };
        new.ring.want_interrupts(false);
        match buffers {
            Some(buffers) => {
                buffers.describe(&new.ring);
                new.ring.set_head(new.ring.size());
            }
            None => new.ring.set_tail(0),
        }
        new
    }

    /// Lends the buffers of so many descriptors again. Where each lies its descriptor says still;
    /// a server that wrote something else there misleads itself alone.
    fn lend(&self, from: u16, count: u16) {
        let Some(buffers) = self.buffers else { return };
        for index in 0..count {
            let index = from.wrapping_add(index);
            self.ring.set_length(index, buffers.of(self.ring.slot(index)));
        }
        self.ring.set_head(from.wrapping_add(count));
    }

    /// Descriptors that are known to be filled. The peer's index is looked at when they are fewer
    /// than are looked at in one go: it lies in a line that the peer writes.
    #[inline]
    fn known(&mut self) -> Result<u16, Lie> {
        if self.seen.wrapping_sub(self.next) < WINDOW as u16 {
            self.seen = self.next.wrapping_add(self.waiting()?);
        }
        Ok(self.seen.wrapping_sub(self.next))
    }

    /// Descriptors that the peer has filled.
    pub fn waiting(&self) -> Result<u16, Lie> {
        let peers = if self.buffers.is_some() { self.ring.tail() } else { self.ring.head() };
        let waiting = peers.wrapping_sub(self.next);
        if waiting > self.ring.size() { Err(Lie::Index) } else { Ok(waiting) }
    }

    #[inline]
    fn piece(&self, index: u16) -> Piece {
        let said = self.ring.descriptor(index);
        match self.buffers {
            None => Piece::of(&self.ring, said),
            // Where our buffers are we know; how much is in one the server says.
            Some(buffers) => {
                let own = buffers.of(self.ring.slot(index));
                let fits = said.length <= own.length;
                let said = Descriptor { flags: said.flags, length: said.length, ..own };
                if fits { Piece::of(&self.ring, said) } else { Piece::nowhere(said) }
            }
        }
    }

    /// Receives frames, `most` at most.
    #[inline]
    pub fn receive(&mut self, most: usize, landing: &mut impl Landing) -> Result<Came, Lie> {
        let waiting = self.known()?;
        let mut came = Came::default();
        if waiting == 0 {
            return Ok(came);
        }
        let window = waiting.min(WINDOW as u16);
        self.look(window);
        (0..window.min(FRAMES_AHEAD)).for_each(|index| self.prefetch_rest(index));
        let mut used = 0;
        let (mut length, mut bad) = (0, false);
        for index in 0..window {
            if index + FRAMES_AHEAD < window {
                self.prefetch_rest(index + FRAMES_AHEAD);
            }
            let piece = self.window.get(self.next.wrapping_add(index));
            if came.frames == most {
                break;
            }
            let Some(room) = landing.room() else {
                came.no_room = true;
                break;
            };
            let end = length + piece.said.length as usize;
            if piece.at.is_null() || end > room.len() {
                bad = true;
            } else if !bad {
                // SAFETY: the source was checked to lie in a region, which the ring keeps; the
                // room is at least `end` long, and private, so they do not overlap.
                unsafe {
                    let to = room.as_mut_ptr().add(length);
                    copy(piece.at, to, piece.said.length as usize);
                }
                length = end;
            }
            if piece.said.flags & NEXT != 0 {
                continue;
            }
            used = index + 1;
            if bad || length == 0 || !landing.landed(length) {
                came.errors += 1;
            } else {
                came.frames += 1;
                came.bytes += length as u64;
            }
            (length, bad) = (0, false);
        }
        if used == 0 && !came.no_room && most > 0 {
            // The rest of a frame may be on its way, unless there is no room for it.
            let full = usize::from(window) == WINDOW || waiting == self.ring.size();
            return if full { Err(Lie::Chain) } else { Ok(came) };
        }
        let before = self.next;
        self.next = before.wrapping_add(used);
        match self.buffers {
            Some(_) => self.lend(before.wrapping_add(self.ring.size()), used),
            None => self.ring.set_tail(self.next),
        }
        self.look_ahead(used, waiting - used);
        Ok(came)
    }

    /// Reads the next descriptors, as far as `count` of them, and asks for their data.
    #[inline]
    fn look(&mut self, count: u16) {
        for index in self.window.lacks(self.next, count) {
            let piece = self.piece(index);
            prefetch::at(piece.at);
            self.window.put(index, piece);
        }
    }

    /// Asks for the rest of the frame of a descriptor that was read.
    #[inline]
    fn prefetch_rest(&self, index: u16) {
        self.window.get(self.next.wrapping_add(index)).prefetch_rest();
    }

    /// Asks for what the next call will need, as much as this one did: data of the next
    /// descriptors, which the call before asked for, and the descriptors behind them.
    #[inline]
    fn look_ahead(&mut self, used: u16, waiting: u16) {
        self.look(used.min(waiting));
        for index in (used..waiting.min(2 * used)).step_by(usize::from(LINE)) {
            prefetch::at(self.ring.place(self.next.wrapping_add(index)));
        }
    }
}

/// A ring that frames go to.
#[derive(Debug)]
pub struct TxRing {
    ring: Ring,
    /// The next descriptor to be filled.
    next: u16,
    /// Descriptors from there on that have frames which are not copied yet.
    reserved: u16,
    /// Descriptors behind these that can be filled, as was last seen.
    free: u16,
    window: Window,
    /// Ours, if we are the client.
    buffers: Option<Buffers>,
}

impl TxRing {
    /// A fresh ring, of a client with its buffers, or of a server.
    pub fn new(ring: Ring, buffers: Option<Buffers>) -> Self {
        match buffers {
            Some(buffers) => {
                buffers.describe(&ring);
                ring.set_head(0);
            }
            None => ring.set_tail(0),
        }
        Self { ring, next: 0, reserved: 0, free: 0, window: Window::new(), buffers }
    }

    /// Descriptors that can be filled.
    fn free(&self) -> Result<u16, Lie> {
        let size = self.ring.size();
        let free = match self.buffers {
            Some(_) => size.checked_sub(self.next.wrapping_sub(self.ring.tail())),
            None => Some(self.ring.head().wrapping_sub(self.next)).filter(|free| *free <= size),
        };
        free.ok_or(Lie::Index)
    }

    #[inline]
    fn piece(&self, index: u16) -> Piece {
        match self.buffers {
            None => Piece::of(&self.ring, self.ring.descriptor(index)),
            Some(buffers) => Piece::of(&self.ring, buffers.of(self.ring.slot(index))),
        }
    }

    /// Sends frames from the front, as many as there is room for.
    #[inline]
    pub fn send<'a>(
        &mut self,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<Sent, Lie> {
        // The peer's index lies in a line that the peer writes.
        if usize::from(self.free) < frames.len() {
            self.free = self.free()?;
        }
        let mut free = self.free;
        let mut sent = Sent::default();
        let all = frames.len();
        let mut used = 0_u16;
        for (index, frame) in frames.enumerate() {
            let first = self.next.wrapping_add(used);
            let left = (free - used).min((all - index).min(WINDOW) as u16);
            if first == self.window.until {
                self.look(first, left);
            }
            let one = self.window.get(first);
            if left == 0 || (one.said.length as usize) < frame.len() {
                let mut spread = self.spread(frame, first, free - used)?;
                if spread.is_none() {
                    // More may have been given back since; less is a lie, and some are filled.
                    let again = self.free()?;
                    if again < free {
                        return Err(Lie::Index);
                    }
                    free = again;
                    spread = self.spread(frame, first, free - used)?;
                }
                let Some(count) = spread else {
                    // An empty ring is all that there will ever be.
                    if free == self.ring.size() && used == 0 {
                        sent.errors += 1;
                        sent.taken += 1;
                        continue;
                    }
                    break;
                };
                used += count;
                self.window.until = first.wrapping_add(count);
                sent.taken += 1;
                sent.bytes += frame.len() as u64;
                continue;
            }
            if one.at.is_null() {
                return Err(Lie::Buffer);
            }
            // SAFETY: the buffer lies in a region, which the ring keeps, and is as long as the
            // frame at least; the frame is private, so they do not overlap.
            unsafe { copy(frame.as_ptr(), one.at, frame.len()) };
            let length = frame.len() as u32;
            self.ring.set_length(first, Descriptor { flags: 0, length, ..one.said });
            used += 1;
            sent.taken += 1;
            sent.bytes += frame.len() as u64;
        }
        if used > 0 {
            self.next = self.next.wrapping_add(used);
            self.free = free - used;
            match self.buffers {
                Some(_) => self.ring.set_head(self.next),
                None => self.ring.set_tail(self.next),
            }
            self.look_ahead(used);
        }
        Ok(sent)
    }

    /// Reads descriptors from `first` on, as far as `count` of them, and asks for their buffers.
    #[inline]
    fn look(&mut self, first: u16, count: u16) {
        for index in self.window.lacks(first, count) {
            let piece = self.piece(index);
            prefetch::to_write(piece.at);
            self.window.put(index, piece);
        }
    }

    /// Asks for what the next call will write, as much as this one did: the next buffers, whose
    /// descriptors the call before asked for, and the descriptors behind them.
    #[inline]
    fn look_ahead(&mut self, used: u16) {
        self.look(self.next, used.min(self.free).min(WINDOW as u16));
        for index in (used..self.free.min(2 * used)).step_by(usize::from(LINE)) {
            prefetch::to_write(self.ring.place(self.next.wrapping_add(index)));
        }
    }

    /// Spreads a frame over several buffers from a descriptor on. Returns how many; `None` when
    /// the `free` ones do not suffice.
    #[cold]
    fn spread(&self, frame: &[u8], first: u16, free: u16) -> Result<Option<u16>, Lie> {
        let mut pieces = ArrayVec::<Piece, WINDOW>::new();
        let mut room = 0;
        while room < frame.len() {
            if pieces.len() >= usize::from(free) || pieces.is_full() {
                return Ok(None);
            }
            let piece = self.piece(first.wrapping_add(pieces.len() as u16));
            if piece.at.is_null() || piece.said.length == 0 {
                return Err(Lie::Buffer);
            }
            room += piece.said.length as usize;
            pieces.push(piece);
        }
        let mut rest = frame;
        for (index, piece) in pieces.iter().enumerate() {
            let (part, after) = rest.split_at(rest.len().min(piece.said.length as usize));
            rest = after;
            // SAFETY: the buffer lies in a region, which the ring keeps, and is as long as the
            // part at least; the frame is private, so they do not overlap.
            unsafe { copy(part.as_ptr(), piece.at, part.len()) };
            let flags = if rest.is_empty() { 0 } else { NEXT };
            let length = part.len() as u32;
            let to = Descriptor { flags, length, ..piece.said };
            self.ring.set_length(first.wrapping_add(index as u16), to);
        }
        Ok(Some(pieces.len() as u16))
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
