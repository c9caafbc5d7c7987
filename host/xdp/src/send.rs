//! The sending end of a queue.
//!
//! The kernel sends what is in the ring when it is told to (always in copy mode, by `sendto`, which
//! works on the caller's processor and takes a number of frames at a time). It is told once a
//! burst, and again while it says that frames are left. What stays for want of room further on is
//! sent by the next call.

use std::sync::{Arc, PoisonError};

use sluice_lanes::copy::copy;

use crate::frames::Frames;
use crate::ring::{CONTINUES, Consumer, Descriptor, Producer};
use crate::socket::{Shared, Told, add};

/// Smallest frame: an Ethernet header. The kernel drops shorter ones, and may forget them.
const SHORTEST: usize = 14;
/// The most frames that a packet may be spread over: fragments of the kernel's and a head.
const PARTS: usize = 17;
/// Frames start at changing places, so that their headers do not all lie in the same sets of the
/// caches: so many places of 64 bytes.
const PLACES: u64 = 4;
const PLACE: u64 = 64;

/// The sending end of a queue.
#[derive(Debug)]
pub struct Sender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tx: Producer<Descriptor>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) frames: Frames,
    /// Whether a packet may be spread over several frames.
    pub(crate) spreads: bool,
    /// Whether frames lie in the ring that the kernel has to be told of.
    pub(crate) owes: bool,
}

impl Drop for Sender {
    /// Leaves word of the frames that are not lent, for whoever goes on with the queue.
    fn drop(&mut self) {
        let left = self.frames.at_hand().to_vec();
        *self.shared.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
    }
}

impl Sender {
    /// Sends frames from the front. Returns how many need not be offered again.
    #[inline]
    pub fn send<'a>(&mut self, frames: impl ExactSizeIterator<Item = &'a [u8]>) -> usize {
        // What was sent last is still in the caches, and is written again first.
        self.reclaim();
        let room = self.tx.room(frames.len() as u32);
        let (mut taken, mut put, mut bytes, mut errors) = (0, 0, 0, 0);
        for frame in frames {
            if !self.fits(frame) {
                errors += 1;
                taken += 1;
                continue;
            }
            let parts = frame.len().div_ceil(self.part()) as u32;
            if put + parts > room || self.frames.free() < parts as usize {
                break;
            }
            self.put(frame, &mut put);
            taken += 1;
            bytes += frame.len() as u64;
        }
        let counters = &self.shared.counters;
        add(&counters.tx_frames, taken as u64 - errors);
        add(&counters.tx_bytes, bytes);
        if errors > 0 {
            add(&counters.tx_errors, errors);
        }
        if put > 0 {
            self.tx.submit(put);
            self.owes = true;
        }
        self.tell();
        taken
    }

    /// Whether the kernel has not taken all that was sent: what goes past the rings now would be
    /// ahead of it.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.owes
    }

    /// Counts frames that were sent past the rings.
    pub fn count(&self, frames: u64, bytes: u64) {
        add(&self.shared.counters.tx_frames, frames);
        add(&self.shared.counters.tx_bytes, bytes);
    }

    /// Bytes of a packet that one frame carries.
    #[inline]
    fn part(&self) -> usize {
        (u64::from(self.frames.bytes()) - (PLACES - 1) * PLACE) as usize
    }

    #[inline]
    fn fits(&self, frame: &[u8]) -> bool {
        let most = if self.spreads { PARTS } else { 1 };
        (SHORTEST..=most * self.part()).contains(&frame.len())
    }

    /// Copies a packet into frames behind the `put` ones that are in the ring already.
    #[inline]
    fn put(&mut self, frame: &[u8], put: &mut u32) {
        let mut left = frame;
        while !left.is_empty()
            && let Some((address, start)) = self.frames.lend()
        {
            let (now, then) = left.split_at(left.len().min(self.part()));
            let shift = (address >> self.frames.bytes().ilog2()) % PLACES * PLACE;
            // SAFETY: the frame was ours, is as long as `part` and the largest shift together,
            // and the packet lies elsewhere.
            unsafe { copy(now.as_ptr(), start.add(shift as usize), now.len()) };
            let options = if then.is_empty() { 0 } else { CONTINUES };
            let length = now.len() as u32;
            self.tx.put(*put, Descriptor { address: address + shift, length, options });
            *put += 1;
            left = then;
        }
    }

    /// Has the kernel send what is still in the ring; to be called now and then where nothing is
    /// sent.
    #[inline]
    pub fn refresh(&mut self) {
        if self.owes {
            self.tell();
        }
    }

    /// Tells the kernel to send, if it has to be told, until it has taken all or takes no more.
    #[inline]
    fn tell(&mut self) {
        if !self.owes {
            return;
        }
        if !self.tx.wants_wakeup() {
            self.owes = false;
            return;
        }
        let mut left = self.tx.waiting();
        while left > 0 {
            let told = self.shared.socket.send_now();
            let before = left;
            left = self.tx.waiting();
            match told {
                Told::Done => break,
                Told::Again if left < before => {}
                // The completion ring may be full.
                Told::Again if self.reclaim() > 0 => {}
                Told::Again | Told::Never => break,
            }
        }
        self.owes = left > 0;
    }

    /// Takes back the frames that were sent.
    #[inline]
    fn reclaim(&mut self) -> u32 {
        let all = self.completion.size();
        let count = self.completion.available(all);
        let mut bad = 0;
        for at in 0..count {
            if !self.frames.take_back(self.completion.get(at)) {
                bad += 1;
            }
        }
        self.completion.release(count);
        if bad > 0 {
            add(&self.shared.counters.tx_errors, bad);
        }
        count
    }

    /// Frames, those at hand, and those that lie in the transmit and the completion ring: the
    /// first is the sum of the others once the kernel has sent all.
    pub fn account(&mut self) -> (usize, usize, usize) {
        let all = self.completion.size();
        let in_rings = self.tx.waiting() + self.completion.available(all);
        (self.frames.count(), self.frames.free(), in_rings as usize)
    }
}
