//! A port in memory: frames in buffers of their own, and queues that hand them over.
//!
//! Buffers are laid out as DPDK's default packet pools have them: 2,368 bytes from one to the next
//! (an odd number of cache lines, so that headers do not all fall into the same few sets of a
//! cache), the frame 128 bytes into its buffer and on a line of its own. A frame is handled by an
//! exclusive reference, so moving it between queues moves sixteen bytes and never its content.
//!
//! Unsafe: where the bytes of a frame are is read without a check of its bounds, as in a DPDK
//! buffer: a check for each access would be cost that only the benchmark has. The handles of a
//! burst are copied as a whole, as pointers in a ring are, for the same reason.

use crate::schedule::Timed;
use bytemuck::Zeroable;
use sluice_director::Frame;
use sluice_lanes::prefetch;
use sluice_table::{PagePolicy, Region, RegionError};
use sluice_worker::{Burst, Queue};
use std::ops::Range;

/// Bytes from one buffer to the next.
pub const STRIDE: usize = 2368;
const HEADROOM: u16 = 128;

/// The memory of one frame.
#[repr(C, align(64))]
#[derive(Clone, Copy, Zeroable)]
pub struct Buffer([u8; STRIDE]);

const _: () = assert!(size_of::<Buffer>() == STRIDE && (STRIDE / 64) % 2 == 1);

/// A frame: the one handle to its buffer.
pub struct MemFrame {
    buffer: &'static mut Buffer,
    start: u16,
    len: u16,
}

/// Makes `count` frames. Their memory is theirs until the process ends.
pub fn frames(count: usize, pages: PagePolicy) -> Result<Vec<MemFrame>, RegionError> {
    let region: &'static mut Region<Buffer> = Box::leak(Box::new(Region::new(count, pages)?));
    let frame = |buffer: &'static mut Buffer| {
        // So that the memory is there before anything is measured.
        buffer.0.fill(0);
        MemFrame { buffer, start: HEADROOM, len: 0 }
    };
    Ok(region.iter_mut().map(frame).collect())
}

impl MemFrame {
    #[inline(always)]
    fn range(&self) -> Range<usize> {
        let start = usize::from(self.start);
        start..start + usize::from(self.len)
    }

    /// Makes it a frame of `content.len()` bytes at its first place, and gives them to be changed.
    pub fn write(&mut self, content: &[u8]) -> &mut [u8] {
        assert!(content.len() <= STRIDE - usize::from(HEADROOM));
        (self.start, self.len) = (HEADROOM, content.len() as u16);
        let bytes = self.bytes_mut();
        bytes.copy_from_slice(content);
        bytes
    }
}

impl Frame for MemFrame {
    #[inline(always)]
    #[expect(unsafe_code)]
    fn bytes(&self) -> &[u8] {
        // SAFETY: `start + len <= STRIDE` whenever either changes. A packet buffer of DPDK's is
        // not checked again at every access either.
        unsafe { self.buffer.0.get_unchecked(self.range()) }
    }

    #[inline(always)]
    #[expect(unsafe_code)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        // SAFETY: as in `bytes`.
        unsafe { self.buffer.0.get_unchecked_mut(range) }
    }

    fn push_front(&mut self, count: usize) -> bool {
        let fits = count <= usize::from(self.start);
        if fits {
            self.start -= count as u16;
            self.len += count as u16;
        }
        fits
    }

    fn pull_front(&mut self, count: usize) -> bool {
        let fits = count <= usize::from(self.len);
        if fits {
            self.start += count as u16;
            self.len -= count as u16;
        }
        fits
    }

    fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= STRIDE - usize::from(self.start);
        if fits {
            self.len = len as u16;
        }
        fits
    }

    #[inline(always)]
    fn prefetch(&self) {
        prefetch::element(&self.buffer.0, usize::from(self.start));
    }
}

/// One worker's end of a port: what it will receive and what it has sent. A burst is handed over by
/// copying its handles, as little as it can cost (what a real port costs is no part of the
/// director).
pub struct MemQueue {
    /// The next burst to be received is the last one, its frames in their order.
    received: Vec<MemFrame>,
    sent: Vec<MemFrame>,
    burst: usize,
    /// Frames that come on a schedule, where that is wanted.
    timed: Option<Timed>,
}

impl MemQueue {
    /// An empty queue that gives `burst` frames at a time and has room for `frames`, all of which
    /// have been in it once, so that its memory is there.
    pub fn new(burst: usize, frames: &mut Vec<MemFrame>) -> Self {
        let room = || Vec::with_capacity(frames.len());
        let mut queue = Self { received: room(), sent: room(), burst, timed: None };
        queue.load(frames);
        let mut pass = Burst::new();
        while queue.receive(&mut pass) > 0 {
            queue.transmit(&mut pass);
        }
        frames.extend(queue.take_sent());
        queue
    }

    /// Lets frames wait to be received, in their order, behind none.
    pub fn load(&mut self, frames: &mut Vec<MemFrame>) {
        frames.reverse();
        for burst in frames.rchunks_mut(self.burst) {
            burst.reverse();
        }
        self.received.append(frames);
    }

    /// From now on frames come on a schedule, or, with `None`, at once.
    pub fn set_timed(&mut self, timed: Option<Timed>) {
        self.timed = timed;
    }

    /// What comes on a schedule.
    pub const fn timed(&mut self) -> Option<&mut Timed> {
        self.timed.as_mut()
    }

    /// Frames that wait to be received.
    pub fn waiting(&self) -> usize {
        let timed = self.timed.as_ref().map_or(0, Timed::waiting);
        self.received.len() + timed
    }

    /// How many frames were sent.
    pub fn sent_count(&self) -> usize {
        let timed = self.timed.as_ref().map_or(0, Timed::sent_count);
        self.sent.len() + timed
    }

    /// Takes what was sent.
    pub fn take_sent(&mut self) -> impl Iterator<Item = MemFrame> {
        let timed = self.timed.as_mut().map(Timed::take_sent);
        self.sent.drain(..).chain(timed.into_iter().flatten())
    }
}

impl Queue for MemQueue {
    type Frame = MemFrame;

    #[inline]
    #[expect(unsafe_code)]
    fn receive(&mut self, frames: &mut Burst<MemFrame>) -> usize {
        if let Some(timed) = &mut self.timed {
            return timed.receive(frames, self.burst);
        }
        let count = self.burst.min(self.received.len()).min(frames.remaining_capacity());
        let (from, at) = (self.received.len() - count, frames.len());
        // SAFETY: so many handles from `from` on are there, and there is room for them behind `at`;
        // they are the burst's from here on and no more the queue's.
        unsafe {
            self.received.set_len(from);
            let source = self.received.as_ptr().add(from);
            std::ptr::copy_nonoverlapping(source, frames.as_mut_ptr().add(at), count);
            frames.set_len(at + count);
        }
        frames.len()
    }

    #[inline]
    #[expect(unsafe_code)]
    fn transmit(&mut self, frames: &mut Burst<MemFrame>) -> usize {
        if let Some(timed) = &mut self.timed {
            return timed.transmit(frames);
        }
        let (count, at) = (frames.len(), self.sent.len());
        self.sent.reserve(count);
        // SAFETY: so many handles are in the burst, and there is room for them behind `at`; they
        // are the queue's from here on and no more the burst's.
        unsafe {
            frames.set_len(0);
            std::ptr::copy_nonoverlapping(frames.as_ptr(), self.sent.as_mut_ptr().add(at), count);
            self.sent.set_len(at + count);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn frames_are_apart_and_keep_their_order() {
        let mut all = frames(300, PagePolicy::Ordinary).unwrap();
        for (number, frame) in all.iter_mut().enumerate() {
            frame.write(&(number as u64).to_ne_bytes());
        }
        let places: HashSet<_> = all.iter().map(|f| f.bytes().as_ptr() as usize).collect();
        assert_eq!(places.len(), 300);
        assert!(places.iter().all(|place| place % 64 == 0), "each begins a cache line");
        let mut queue = MemQueue::new(32, &mut all);
        assert_eq!(all.len(), 300);
        queue.load(&mut all);
        let mut burst = Burst::new();
        while queue.waiting() > 0 {
            assert!(queue.receive(&mut burst) <= 32);
            queue.transmit(&mut burst);
        }
        let numbers =
            queue.sent.iter().map(|f| u64::from_ne_bytes(*f.bytes().first_chunk().unwrap()));
        assert!(numbers.eq(0..300));
    }

    #[test]
    fn a_frame_grows_and_shrinks_within_its_buffer() {
        let mut all = frames(1, PagePolicy::Ordinary).unwrap();
        let frame = &mut all[0];
        frame.write(b"content");
        assert!(frame.push_front(4) && frame.bytes()[4..] == *b"content");
        assert!(frame.pull_front(5) && frame.bytes() == b"ontent");
        assert!(!frame.pull_front(7) && !frame.push_front(4000) && !frame.set_len(STRIDE));
        assert!(frame.set_len(2) && frame.bytes() == b"on");
    }
}
