//! The receiving end of a queue.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sluice_lanes::copy::copy;

use crate::frames::Frames;
use crate::ring::{CONTINUES, Consumer, Descriptor, Producer};
use crate::socket::{Shared, add};

/// How many descriptors ahead frames are asked for.
const AHEAD: u32 = 8;

/// Where received frames go.
pub trait Landing {
    /// The room for the next frame, the same until [`Self::landed`] is called. `None` when there
    /// is no more: the frame stays in the ring.
    fn room(&mut self) -> Option<&mut [u8]>;

    /// The next frame lies at the beginning of the room and has so many bytes. `false` if it is of
    /// no use: the room is then the next one's.
    fn landed(&mut self, length: usize) -> bool;
}

/// The receiving end of a queue.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rx: Consumer<Descriptor>,
    pub(crate) fill: Producer<u64>,
    pub(crate) frames: Frames,
    pub(crate) busy_poll: bool,
}

/// What a look at the ring found.
#[derive(Default)]
struct Found {
    frames: usize,
    bytes: u64,
    errors: u64,
    no_room: bool,
    /// Descriptors that are done with.
    done: u32,
}

impl Receiver {
    /// Receives the frames that wait, `most` at most. Returns how many.
    #[inline]
    pub fn receive(&mut self, most: usize, landing: &mut impl Landing) -> usize {
        let all = self.rx.size();
        let mut available = self.rx.available(all.min(most as u32));
        if available == 0 {
            self.nudge();
            return 0;
        }
        let mut found = self.read(available, most, landing);
        if found.done == 0 && !found.no_room {
            // The packet has more parts than were looked at.
            available = self.rx.available(all);
            found = self.read(available, most, landing);
            if found.done == 0 && available == all {
                // It has no end: the kernel cannot have meant that.
                found.done = all;
                found.errors = 1;
            }
        }
        self.give_back(found.done);
        let counters = &self.shared.counters;
        add(&counters.rx_frames, found.frames as u64);
        add(&counters.rx_bytes, found.bytes);
        if found.errors > 0 || found.no_room {
            add(&counters.rx_errors, found.errors);
            add(&counters.rx_no_buffer, u64::from(found.no_room));
        }
        found.frames
    }

    /// Copies the packets out of so many descriptors.
    #[inline]
    fn read(&self, available: u32, most: usize, landing: &mut impl Landing) -> Found {
        let mut found = Found::default();
        for early in 0..AHEAD.min(available) {
            self.frames.prefetch(self.rx.get(early).address);
        }
        // Bytes of the packet so far; none if it is of no use.
        let mut length = Some(0);
        for at in 0..available {
            if at + AHEAD < available {
                self.frames.prefetch(self.rx.get(at + AHEAD).address);
            }
            let part = self.rx.get(at);
            let Some(room) = landing.room() else {
                found.no_room = true;
                break;
            };
            length = length.and_then(|length| self.copy(part, room, length));
            if part.options & CONTINUES != 0 {
                continue;
            }
            found.done = at + 1;
            match length.take() {
                Some(length) if landing.landed(length) => {
                    found.frames += 1;
                    found.bytes += length as u64;
                }
                _ => found.errors += 1,
            }
            length = Some(0);
            if found.frames == most {
                break;
            }
        }
        found
    }

    /// Copies a part behind the `length` bytes that are there. Says how many there are then;
    /// nothing if the part is not in a frame of ours or does not fit.
    #[inline]
    fn copy(&self, part: Descriptor, room: &mut [u8], length: usize) -> Option<usize> {
        let from = self.frames.at(part.address, part.length)?;
        let to = room.get_mut(length..)?.get_mut(..part.length as usize)?;
        // SAFETY: both have so many bytes; the frame is lent to the kernel, which does not write
        // what it has received into before it gets it again by the fill ring, and a packet
        // buffer lies elsewhere.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
        Some(length + to.len())
    }

    /// Takes the frames of so many descriptors back and lends them again.
    #[inline]
    fn give_back(&mut self, count: u32) {
        let mut bad = 0;
        for at in 0..count {
            if !self.frames.take_back(self.rx.get(at).address) {
                bad += 1;
            }
        }
        self.rx.release(count);
        self.refill();
        if bad > 0 {
            add(&self.shared.counters.rx_errors, bad);
        }
    }

    /// Lends all frames that are ours: the fill ring has room for all there are.
    #[inline]
    pub(crate) fn refill(&mut self) {
        let room = self.fill.room(self.frames.free() as u32);
        let mut count = 0;
        while count < room
            && let Some((address, _)) = self.frames.lend()
        {
            self.fill.put(count, address);
            count += 1;
        }
        self.fill.submit(count);
        if self.fill.wants_wakeup() {
            self.shared.socket.receive_now();
        }
    }

    /// Has the driver look for frames where it does so only when told.
    #[inline]
    fn nudge(&self) {
        if self.busy_poll || self.fill.wants_wakeup() {
            self.shared.socket.receive_now();
        }
    }

    /// The descriptor that poll(2) and epoll(7), level-triggered, find readable while frames wait.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.socket.as_fd()
    }

    /// Called before sleeping. `false` when there is something to receive already.
    pub fn arm(&mut self) -> bool {
        self.rx.available(1) == 0
    }

    /// Frames, those at hand, and those that lie in the fill and the receive ring: the first is
    /// the sum of the others while the kernel is at rest.
    pub fn account(&mut self) -> (usize, usize, usize) {
        let all = self.rx.size();
        let in_rings = self.fill.waiting() + self.rx.available(all);
        (self.frames.count(), self.frames.free(), in_rings as usize)
    }
}
