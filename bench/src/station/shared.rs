//! A round of several workers at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A round whose frames may come out at any worker: it is over when all have come out somewhere.
pub struct Shared<'a> {
    /// Frames that came out, of all rounds so far.
    pub out: &'a AtomicU64,
    /// What it will be when this round is over.
    pub target: u64,
    /// When the round counts as stuck.
    pub deadline: Instant,
}

impl Shared<'_> {
    /// Adds frames; whether the round is over.
    pub(super) fn add(&self, frames: usize) -> bool {
        if frames > 0 {
            self.out.fetch_add(frames as u64, Ordering::SeqCst);
        }
        self.out.load(Ordering::SeqCst) >= self.target
    }

    pub(super) fn is_late(&self) -> bool {
        Instant::now() > self.deadline
    }
}
