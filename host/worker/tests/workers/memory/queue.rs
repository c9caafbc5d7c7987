//! A queue in memory.

use super::MemFrame;
use sluice_worker::{Burst, Queue};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

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

    /// The far side, for as long as nobody else needs it.
    pub fn far(&self) -> MutexGuard<'_, Far> {
        self.0.lock().unwrap()
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
