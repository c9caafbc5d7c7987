//! A frame in memory of its own, with room before and behind, as the path wants it.

use sluice_director::Frame;

/// Bytes before the frame: room for tags, outer headers and what is put in front of data.
const HEADROOM: usize = 128;
/// Bytes behind it: room for an answer that is longer than what it answers.
const TAILROOM: usize = 128;

/// A frame copied out of a capture.
#[derive(Clone, Debug)]
pub struct CaptureFrame {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl CaptureFrame {
    /// A frame of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut buffer = vec![0; HEADROOM + bytes.len() + TAILROOM];
        let end = HEADROOM + bytes.len();
        buffer[HEADROOM..end].copy_from_slice(bytes);
        Self { buffer, start: HEADROOM, end }
    }
}

impl Frame for CaptureFrame {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    fn push_front(&mut self, count: usize) -> bool {
        match self.start.checked_sub(count) {
            Some(start) => {
                self.start = start;
                true
            }
            None => false,
        }
    }

    fn pull_front(&mut self, count: usize) -> bool {
        let fits = count <= self.end - self.start;
        self.start += if fits { count } else { 0 };
        fits
    }

    fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.buffer.len() - self.start;
        self.end = if fits { self.start + len } else { self.end };
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks_at_both_ends_within_its_room() {
        let mut frame = CaptureFrame::new(b"abcdef");
        assert!(frame.pull_front(2) && frame.set_len(3));
        assert_eq!(frame.bytes(), b"cde");
        assert!(!frame.pull_front(4), "longer than the frame");
        assert!(frame.push_front(1));
        assert_eq!(frame.bytes(), b"bcde");
        assert!(!frame.push_front(HEADROOM + 2), "longer than the headroom");
        assert!(frame.set_len(5 + TAILROOM));
        assert!(!frame.set_len(6 + TAILROOM), "longer than the tailroom");
        assert_eq!(frame.bytes().len(), 5 + TAILROOM);
    }
}
