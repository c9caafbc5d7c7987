//! A queue in memory.

use super::MemFrame;
use sluice_worker::{Burst, Queue};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;

/// The far side of a queue.
#[derive(Debug)]
pub struct Far {
    pub arriving: VecDeque<MemFrame>,
    pub sent: Vec<MemFrame>,
    pub room: usize,
    pub spares: Vec<MemFrame>,
}

/// A queue in memory.
#[derive(Clone, Debug)]
pub struct MemQueue(Arc<Mutex<Far>>);

impl MemQueue {
    pub fn new() -> Self {
        let (arriving, sent) = (VecDeque::with_capacity(64), Vec::with_capacity(64));
        let (room, spares) = (usize::MAX, Vec::new());
        Self(Arc::new(Mutex::new(Far { arriving, sent, room, spares })))
    }

    /// The far side, once nobody else has it.
    ///
    /// Asks again instead of waiting: `lock` waits in the standard library, which comes compiled
    /// without ThreadSanitizer, so a lock that was waited for would look like none to it.
    pub fn far(&self) -> MutexGuard<'_, Far> {
        loop {
            match self.0.try_lock() {
                Ok(far) => return far,
                Err(TryLockError::WouldBlock) => thread::yield_now(),
                Err(TryLockError::Poisoned(panicked)) => panic!("{panicked}"),
            }
        }
    }

    pub fn put(&self, frame: MemFrame) {
        self.far().arriving.push_back(frame);
    }

    pub fn take_sent(&self) -> Vec<MemFrame> {
        std::mem::take(&mut self.far().sent)
    }
}

impl Queue for MemQueue {
    type Frame = MemFrame;

    fn receive(&mut self, frames: &mut Burst<MemFrame>) -> usize {
        let mut far = self.far();
        let count = far.arriving.len().min(frames.remaining_capacity());
        frames.extend(far.arriving.drain(..count));
        count
    }

    fn spare(&mut self) -> Option<MemFrame> {
        self.far().spares.pop()
    }

    fn transmit(&mut self, frames: &mut Burst<MemFrame>) -> usize {
        let mut far = self.far();
        let count = frames.len().min(far.room);
        far.sent.extend(frames.drain(..count));
        count
    }
}
