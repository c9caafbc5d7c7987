//! What a link has carried: each end counts by itself, and whoever asks adds up.
//!
//! An atomic addition would be a full barrier, which waits until everything that was written into
//! the peer's cache lines is through: some hundred cycles a burst.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::link::lock;

/// Frames that a link has carried since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames received.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that were malformed, or too long for our buffers.
    pub rx_errors: u64,
    /// Times that frames were left in the ring for want of a buffer.
    pub rx_no_buffer: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that are too long for the peer's rings.
    pub tx_errors: u64,
    /// Times that a peer came.
    pub connects: u64,
    /// Copies that were left to a [`Copier`](crate::Copier); what follows is of these.
    pub copies_offloaded: u64,
    /// Copies that it had no room for, so that the processor did them.
    pub copies_full: u64,
    /// Copies that it failed to do, so that the processor did them.
    pub copies_failed: u64,
}

/// A number that one thread adds to and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Called by one thread only.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one end of a queue, or the hub, has counted. Cache lines of its own: each end is another
/// worker's, maybe.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    pub rx_frames: Counter,
    pub rx_bytes: Counter,
    pub rx_errors: Counter,
    pub rx_no_buffer: Counter,
    pub tx_frames: Counter,
    pub tx_bytes: Counter,
    pub tx_errors: Counter,
    pub connects: Counter,
    pub copies_offloaded: Counter,
    pub copies_full: Counter,
    pub copies_failed: Counter,
}

/// The counters of all who count for a link.
#[derive(Debug, Default)]
pub(crate) struct AllCounters(Mutex<Vec<Arc<Counters>>>);

impl AllCounters {
    /// Fresh ones, for a thread that counts.
    pub fn add(&self) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        lock(&self.0).push(Arc::clone(&counters));
        counters
    }

    /// What all have counted.
    pub fn sum(&self) -> Stats {
        let all = lock(&self.0);
        let of = |which: fn(&Counters) -> &Counter| all.iter().map(|one| which(one).get()).sum();
        Stats {
            rx_frames: of(|one| &one.rx_frames),
            rx_bytes: of(|one| &one.rx_bytes),
            rx_errors: of(|one| &one.rx_errors),
            rx_no_buffer: of(|one| &one.rx_no_buffer),
            tx_frames: of(|one| &one.tx_frames),
            tx_bytes: of(|one| &one.tx_bytes),
            tx_errors: of(|one| &one.tx_errors),
            connects: of(|one| &one.connects),
            copies_offloaded: of(|one| &one.copies_offloaded),
            copies_full: of(|one| &one.copies_full),
            copies_failed: of(|one| &one.copies_failed),
        }
    }
}
