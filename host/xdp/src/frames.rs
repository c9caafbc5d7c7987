//! One end's frames in packet memory, and who has which.
//!
//! Invariant: a frame is either ours or lent to the kernel. An address that the kernel gives back
//! becomes a frame only if it is one of this end's, and lent; so each is ours once, whatever the
//! rings say, and two ends of one memory never touch the same.

use std::sync::Arc;

use crate::memory::Memory;

/// Frames of one end.
#[derive(Debug)]
pub struct Frames {
    memory: Arc<Memory>,
    /// Number of the first one.
    first: u32,
    /// Logarithm of their size in bytes.
    log2: u32,
    lent: Box<[bool]>,
    /// Frames that are ours.
    free: Vec<u32>,
}

impl Frames {
    /// `count` frames from the frame of number `first` on. Panics if memory has not so many.
    pub fn new(memory: &Arc<Memory>, first: u32, count: u32, bytes: u32) -> Self {
        let end = (first as usize + count as usize) * bytes as usize;
        assert!(bytes.is_power_of_two() && end <= memory.map.len(), "they lie in the memory");
        Self {
            memory: Arc::clone(memory),
            first,
            log2: bytes.ilog2(),
            lent: vec![false; count as usize].into(),
            free: (0..count).rev().collect(),
        }
    }

    /// The same, all lent but `left`, of which those that are no frames are none.
    pub fn lent_but(
        memory: &Arc<Memory>,
        first: u32,
        count: u32,
        (bytes, left): (u32, &[u32]),
    ) -> Self {
        let mut frames = Self::new(memory, first, count, bytes);
        frames.lent.fill(true);
        frames.free.clear();
        for index in left {
            if let Some(lent) = frames.lent.get_mut(*index as usize).filter(|lent| **lent) {
                *lent = false;
                frames.free.push(*index);
            }
        }
        frames
    }

    /// Those that are ours, by their place among this end's.
    pub fn at_hand(&self) -> &[u32] {
        &self.free
    }

    /// How many there are, lent or not.
    pub fn count(&self) -> usize {
        self.lent.len()
    }

    /// How many are ours.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Bytes of each.
    #[inline]
    pub fn bytes(&self) -> u32 {
        1 << self.log2
    }

    /// Lends a frame: its address in packet memory and its memory.
    #[inline]
    pub fn lend(&mut self) -> Option<(u64, *mut u8)> {
        let index = self.free.pop()?;
        self.lent[index as usize] = true;
        let address = u64::from(self.first + index) << self.log2;
        // SAFETY: the frame lies in the memory (`new`).
        Some((address, unsafe { self.memory.map.start().add(address as usize) }))
    }

    /// The frame that an address of the kernel's is in, if it is one that was lent.
    #[inline]
    fn lent(&self, address: u64) -> Option<u32> {
        let index = u32::try_from(address >> self.log2).ok()?.checked_sub(self.first)?;
        (self.lent.get(index as usize) == Some(&true)).then_some(index)
    }

    /// Takes a frame back. `false` for what was not lent.
    #[inline]
    pub fn take_back(&mut self, address: u64) -> bool {
        let Some(index) = self.lent(address) else { return false };
        self.lent[index as usize] = false;
        self.free.push(index);
        true
    }

    /// The memory of a run of bytes in a frame that was lent, if it lies in one.
    #[inline]
    pub fn at(&self, address: u64, length: u32) -> Option<*const u8> {
        self.lent(address)?;
        let within = (address & u64::from(self.bytes() - 1)) as u32;
        (length <= self.bytes() - within)
            // SAFETY: the frame lies in the memory (`new`), and the run in the frame.
            .then(|| unsafe { self.memory.map.start().add(address as usize) }.cast_const())
    }

    /// Asks for the first cache line at an address, wherever it is.
    #[inline]
    pub fn prefetch(&self, address: u64) {
        sluice_lanes::prefetch::at(self.memory.map.start().wrapping_add(address as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Frames {
        let memory = Arc::new(Memory::new(16 * 2048, false).unwrap());
        Frames::new(&memory, 8, 8, 2048)
    }

    #[test]
    fn a_frame_comes_back_once_and_only_if_it_was_lent() {
        let mut frames = frames();
        let (address, _) = frames.lend().unwrap();
        assert_eq!((address, frames.free()), (8 * 2048, 7));
        assert!(frames.take_back(address + 300), "anywhere in it");
        assert!(!frames.take_back(address), "once");
        for wrong in [0, 7 * 2048, 9 * 2048, 16 * 2048, u64::MAX, 1 << 40] {
            assert!(!frames.take_back(wrong), "{wrong} was not lent");
        }
        assert_eq!(frames.free(), 8);
    }

    #[test]
    fn bytes_beyond_a_frame_are_nowhere() {
        let mut frames = frames();
        let (address, start) = frames.lend().unwrap();
        assert_eq!(frames.at(address + 256, 1792), Some(start.wrapping_add(256).cast_const()));
        assert_eq!(frames.at(address + 256, 1793), None);
        assert_eq!(frames.at(address, u32::MAX), None);
        assert_eq!(frames.at(address + 2048, 1), None, "the next one is ours");
        assert_eq!(frames.at(0, 1), None, "another end's");
    }

    #[test]
    fn all_can_be_lent_and_no_more() {
        let mut frames = frames();
        let mut all: Vec<u64> = std::iter::from_fn(|| Some(frames.lend()?.0)).collect();
        all.sort_unstable();
        assert_eq!(all, (8..16).map(|frame| frame * 2048).collect::<Vec<u64>>());
        assert_eq!((frames.free(), frames.count()), (0, 8));
    }
}
