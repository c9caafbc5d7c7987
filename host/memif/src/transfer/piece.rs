//! Descriptors that were read and checked.

use sluice_lanes::prefetch;

use super::WINDOW;
use crate::ring::{Descriptor, Ring};

const CACHE_LINE: usize = 64;
/// The most bytes of a frame that are prefetched.
const PREFETCHED: usize = 2048;

/// A checked descriptor: memory that may be accessed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Null if the descriptor named no memory.
    pub at: *mut u8,
    pub said: Descriptor,
}

impl Piece {
    /// Checks a copy of a descriptor.
    #[inline]
    pub fn of(ring: &Ring, said: Descriptor) -> Self {
        let region = ring.regions().get(usize::from(said.region));
        let at = region.and_then(|region| region.at(said.offset, said.length));
        Self { at: at.unwrap_or(std::ptr::null_mut()), said }
    }

    /// What a descriptor says that names no memory.
    pub fn nowhere(said: Descriptor) -> Self {
        Self { at: std::ptr::null_mut(), said }
    }

    /// Prefetches the cache lines of a received frame behind the first, which was prefetched
    /// before. They lie in another core's cache, and the hardware prefetcher begins anew with each
    /// frame.
    #[inline]
    pub fn prefetch_rest(&self) {
        for line in (CACHE_LINE..PREFETCHED.min(self.said.length as usize)).step_by(CACHE_LINE) {
            prefetch::at(self.at.wrapping_add(line));
        }
    }
}

/// The next descriptors, read before their frames are copied, and each once.
#[derive(Debug)]
pub(super) struct Window {
    /// The piece of an index is at its remainder by [`WINDOW`].
    pieces: [Piece; WINDOW],
    /// The index behind the last that was read.
    pub until: u16,
}

// SAFETY: the pieces' memory is shared with another process anyhow, and lives as long as the ring.
unsafe impl Send for Window {}

impl Window {
    pub fn new() -> Self {
        Self { pieces: [Piece::nowhere(Descriptor::default()); WINDOW], until: 0 }
    }

    /// The piece of an index that was read.
    #[inline]
    pub fn get(&self, index: u16) -> Piece {
        self.pieces[usize::from(index) % WINDOW]
    }

    /// Indexes that are to be read, so that `count` are from `next` on: [`WINDOW`] at most.
    #[inline]
    pub fn lacks(&self, next: u16, count: u16) -> impl Iterator<Item = u16> + use<> {
        let (first, have) = (self.until, self.until.wrapping_sub(next));
        (have..count).map(move |at| first.wrapping_add(at - have))
    }

    #[inline]
    pub fn put(&mut self, index: u16, piece: Piece) {
        self.pieces[usize::from(index) % WINDOW] = piece;
        self.until = index.wrapping_add(1);
    }
}
