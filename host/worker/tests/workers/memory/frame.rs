//! A frame in memory, with room before it.

use sluice_director::Frame;

/// Room before each frame.
const HEADROOM: usize = 128;

/// A frame in memory.
#[derive(Clone, Debug)]
pub struct MemFrame {
    all: Vec<u8>,
    start: usize,
}

impl PartialEq for MemFrame {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for MemFrame {}

impl MemFrame {
    pub fn new(bytes: &[u8]) -> Self {
        let mut all = vec![0; HEADROOM];
        all.extend(bytes);
        Self { all, start: HEADROOM }
    }

    /// An empty one with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut all = Vec::with_capacity(HEADROOM + bytes);
        all.resize(HEADROOM, 0);
        Self { all, start: HEADROOM }
    }
}

impl Frame for MemFrame {
    fn bytes(&self) -> &[u8] {
        &self.all[self.start..]
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.all[self.start..]
    }
    fn push_front(&mut self, count: usize) -> bool {
        let fits = count <= self.start;
        if fits {
            self.start -= count;
        }
        fits
    }
    fn pull_front(&mut self, count: usize) -> bool {
        let fits = count <= self.bytes().len();
        if fits {
            self.start += count;
        }
        fits
    }
    fn set_len(&mut self, len: usize) -> bool {
        let fits = self.start + len <= self.all.capacity();
        if fits {
            self.all.resize(self.start + len, 0);
        }
        fits
    }
}
