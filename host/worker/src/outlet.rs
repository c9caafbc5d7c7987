//! Frames on their way out by one queue: collected over a turn, sent together.

use crate::queue::{Burst, Queue};
use arrayvec::ArrayVec;

/// How often a queue that is full is tried again before the rest is dropped. Queues in software
/// make room by being asked.
const TRIES: usize = 8;
/// So many frames are sent at once rather than collected.
const MANY: usize = 32;

/// A queue and what is to be sent by it.
pub(crate) struct Outlet<Q: Queue> {
    pub queue: Q,
    pending: Burst<Q::Frame>,
}

impl<Q: Queue> Outlet<Q> {
    pub fn new(queue: Q) -> Self {
        Self { queue, pending: ArrayVec::new() }
    }

    /// Adds a frame; returns how many had to be dropped for it.
    #[inline(always)]
    pub fn push(&mut self, frame: Q::Frame) -> usize {
        self.pending.push(frame);
        if self.pending.is_full() { self.flush() } else { 0 }
    }

    /// Adds a whole burst; returns how many frames had to be dropped for it. Many frames behind
    /// none are sent at once.
    #[inline(always)]
    pub fn push_all(&mut self, frames: &mut Burst<Q::Frame>) -> usize {
        if self.pending.is_empty() && frames.len() >= MANY {
            self.queue.transmit(frames);
        }
        frames.drain(..).map(|frame| self.push(frame)).sum()
    }

    /// Sends what was collected; returns how many frames had to be dropped.
    #[inline(always)]
    pub fn flush(&mut self) -> usize {
        if self.pending.is_empty() {
            return 0;
        }
        self.queue.transmit(&mut self.pending);
        if self.pending.is_empty() { 0 } else { self.flush_rest() }
    }

    #[cold]
    fn flush_rest(&mut self) -> usize {
        for _ in 0..TRIES {
            self.queue.transmit(&mut self.pending);
            if self.pending.is_empty() {
                return 0;
            }
            std::thread::yield_now();
        }
        let dropped = self.pending.len();
        self.pending.clear();
        dropped
    }
}
