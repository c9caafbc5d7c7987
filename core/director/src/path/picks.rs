//! Which frames of a turn are whose.

/// Which of a turn's frames a table looks at.
pub(super) trait Picks {
    fn count(&self) -> usize;
    fn frame(&self, at: usize) -> usize;
    /// Whether each is the frame that it is counted as.
    fn are_all(&self) -> bool;
}

/// The first so many.
impl Picks for usize {
    #[inline(always)]
    fn count(&self) -> usize {
        *self
    }

    #[inline(always)]
    fn frame(&self, at: usize) -> usize {
        at
    }

    #[inline(always)]
    fn are_all(&self) -> bool {
        true
    }
}

/// These.
impl Picks for &[u8] {
    fn count(&self) -> usize {
        self.len()
    }

    fn frame(&self, at: usize) -> usize {
        usize::from(self[at])
    }

    fn are_all(&self) -> bool {
        false
    }
}
