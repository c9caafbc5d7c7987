//! Two rings as memif has them, and nothing of a driver: no packet buffers, no checks, no link.
//!
//! What this takes is the copying and what two cores exchange: a descriptor and the cache lines of
//! a frame come from the other core's cache, are copied, and go back the same way. What a driver
//! takes beyond it is its own.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use sluice_dpdk::ticks;
use sluice_lanes::copy::copy;
use sluice_lanes::prefetch;

/// Bytes from one buffer to the next, as our driver lays them out.
const STRIDE: usize = 2112;
const LINE: usize = 64;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
const BURST: u64 = 64;
/// The most bytes of a frame: less than a buffer has.
const MOST: usize = 2048;
/// So many frames ahead of the one that is received, whole frames are prefetched.
const FRAMES_AHEAD: u64 = 2;

/// A cache line.
#[repr(align(64))]
struct Line([AtomicU64; LINE / 8]);

/// Frames copied out of a ring: one after the other, as they never leave the cache.
type Frames = [[u8; MOST]; BURST as usize];

/// A ring from one thread to another.
struct Ring {
    mask: u64,
    descriptors: Vec<Line>,
    buffers: Vec<Line>,
    /// Frames that were written, and frames that were read.
    indexes: [Line; 2],
}

/// An end of a ring: how far it is, and how far the other was when last looked at.
#[derive(Default)]
struct End {
    next: u64,
    seen: u64,
}

impl Ring {
    fn new(log2: u8) -> Self {
        let lines =
            |count: usize| (0..count).map(|_| Line([0; LINE / 8].map(AtomicU64::new))).collect();
        let size = 1_usize << log2;
        let index = || Line([0; LINE / 8].map(AtomicU64::new));
        Self {
            mask: size as u64 - 1,
            descriptors: lines(size * DESCRIPTOR / LINE),
            buffers: lines(size * STRIDE / LINE),
            indexes: [index(), index()],
        }
    }

    fn slot(&self, index: u64) -> usize {
        (index & self.mask) as usize
    }

    /// The word of a descriptor that has the length.
    fn length(&self, index: u64) -> &AtomicU64 {
        let at = self.slot(index) * DESCRIPTOR;
        &self.descriptors[at / LINE].0[at % LINE / 8]
    }

    fn buffer(&self, index: u64) -> *mut u8 {
        self.buffers.as_ptr().cast_mut().cast::<u8>().wrapping_add(self.slot(index) * STRIDE)
    }

    /// Prefetches all lines of a frame that was written.
    fn prefetch_frame(&self, index: u64) {
        let length = self.length(index).load(Ordering::Relaxed) as usize;
        for line in (0..length.min(STRIDE)).step_by(LINE) {
            prefetch::at(self.buffer(index).wrapping_add(line));
        }
    }

    /// Prefetches descriptors and buffers of the next burst, to be read or written.
    fn look_ahead(&self, from: u64, most: u64, ask: impl Fn(*const u8)) {
        for index in from..from + most.min(BURST) {
            ask(self.buffer(index));
        }
        for index in (from + BURST..from + 2 * BURST).step_by(LINE / DESCRIPTOR) {
            ask(self.length(index).as_ptr().cast_const().cast());
        }
    }

    /// Copies frames out. Returns how many.
    fn receive(&self, end: &mut End, frames: &mut Frames) -> usize {
        if end.seen - end.next < BURST {
            end.seen = self.indexes[0].0[0].load(Ordering::Acquire);
        }
        let count = (end.seen - end.next).min(BURST);
        if count == 0 {
            return 0;
        }
        (0..count).for_each(|at| prefetch::at(self.buffer(end.next + at)));
        (0..count.min(FRAMES_AHEAD)).for_each(|at| self.prefetch_frame(end.next + at));
        for (at, frame) in (0..count).zip(frames.iter_mut()) {
            if at + FRAMES_AHEAD < count {
                self.prefetch_frame(end.next + at + FRAMES_AHEAD);
            }
            let length = self.length(end.next + at).load(Ordering::Relaxed) as usize;
            // SAFETY: `measure` bounds the lengths that are sent by `MOST`, and the other end does
            // not touch a buffer that is filled.
            unsafe { copy(self.buffer(end.next + at), frame.as_mut_ptr(), length) };
        }
        end.next += count;
        self.indexes[1].0[0].store(end.next, Ordering::Release);
        self.look_ahead(end.next, end.seen - end.next, prefetch::at);
        count as usize
    }

    /// Copies frames of so many bytes in, as many as there is room for. Returns how many.
    fn send(&self, end: &mut End, frames: &[[u8; MOST]], size: usize) -> usize {
        let room = |end: &End| self.mask + 1 - (end.next - end.seen);
        if room(end) < BURST {
            end.seen = self.indexes[1].0[0].load(Ordering::Acquire);
        }
        let count = room(end).min(frames.len() as u64);
        if count == 0 {
            return 0;
        }
        (0..count).for_each(|at| prefetch::to_write(self.buffer(end.next + at)));
        for (at, frame) in (0..count).zip(frames) {
            // SAFETY: as in `receive`: the other end does not touch one that is empty.
            unsafe { copy(frame.as_ptr(), self.buffer(end.next + at), size) };
            self.length(end.next + at).store(size as u64, Ordering::Relaxed);
        }
        end.next += count;
        self.indexes[0].0[0].store(end.next, Ordering::Release);
        self.look_ahead(end.next, room(end), prefetch::to_write);
        count as usize
    }
}

/// Millions of frames a second that came back, ticks a frame for receiving and for sending.
///
/// # Panics
/// When frames are too long for its buffers.
pub fn measure(size: usize, log2: u8) -> [f64; 3] {
    assert!(size <= MOST, "frames of {size} bytes: at most {MOST}");
    let (there, back) = (Ring::new(log2), Ring::new(log2));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve([&there, &back], size, &over));
        let client = scope.spawn(|| generate([&there, &back], size, &over));
        let spent = server.join().unwrap_or([f64::NAN; 2]);
        [client.join().unwrap_or(f64::NAN), spent[0], spent[1]]
    })
}

/// Sends as fast as it can and takes what comes back.
fn generate([there, back]: [&Ring; 2], size: usize, over: &AtomicBool) -> f64 {
    super::pin(1);
    let mut frames = Box::new([[0; MOST]; BURST as usize]);
    let (mut out, mut home) = (End::default(), End::default());
    let start = Instant::now();
    while start.elapsed() < super::TURN {
        there.send(&mut out, &frames[..], size);
        while back.receive(&mut home, &mut frames) > 0 {}
    }
    over.store(true, Ordering::Relaxed);
    home.next as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// Sends back what comes. Ticks a frame for receiving and for sending.
fn serve([there, back]: [&Ring; 2], size: usize, over: &AtomicBool) -> [f64; 2] {
    super::pin(0);
    let mut frames = Box::new([[0; MOST]; BURST as usize]);
    let (mut came, mut out) = (End::default(), End::default());
    let (mut receive, mut send) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        let before = ticks();
        let count = there.receive(&mut came, &mut frames);
        let between = ticks();
        if count > 0 {
            back.send(&mut out, &frames[..count], size);
            receive += between - before;
            send += ticks() - between;
        } else {
            spin_loop();
        }
    }
    [receive, send].map(|ticks| ticks as f64 / came.next.max(1) as f64)
}
