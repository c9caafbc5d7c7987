//! Which frames of a turn are whose.

use sluice_lanes::level::{LANES, Lanes};
use std::ops::Range;

/// Which of a turn's frames a table looks at.
pub(super) trait Picks {
    fn count(&self) -> usize;
    fn frame(&self, at: usize) -> usize;
    /// The frame of a place; `None` behind the last.
    fn pick<'a, B>(&self, frames: &'a [B], at: usize) -> Option<&'a B>;
    /// The frames of these places, which are not beyond the last.
    fn part<'a, B>(&self, frames: &'a [B], places: Range<usize>) -> impl Iterator<Item = &'a B>;
    /// Eight frames that lie behind each other from a place on, if there are so many.
    fn eight<'a, B>(&self, frames: &'a [B], at: usize) -> Option<&'a Lanes<B>>;
    /// Whether so many from a place on are frames behind each other.
    fn are_together(&self, at: usize, count: usize) -> bool;
}

/// All of them.
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
    fn pick<'a, B>(&self, frames: &'a [B], at: usize) -> Option<&'a B> {
        frames.get(at)
    }

    #[inline(always)]
    fn part<'a, B>(&self, frames: &'a [B], places: Range<usize>) -> impl Iterator<Item = &'a B> {
        frames[places].iter()
    }

    #[inline(always)]
    fn eight<'a, B>(&self, frames: &'a [B], at: usize) -> Option<&'a Lanes<B>> {
        frames.get(at..)?.first_chunk()
    }

    #[inline(always)]
    fn are_together(&self, _: usize, _: usize) -> bool {
        true
    }
}

/// These, in their order.
impl Picks for &[u8] {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn frame(&self, at: usize) -> usize {
        usize::from(self[at])
    }

    #[inline(always)]
    fn pick<'a, B>(&self, frames: &'a [B], at: usize) -> Option<&'a B> {
        self.get(at).and_then(|frame| frames.get(usize::from(*frame)))
    }

    #[inline(always)]
    fn part<'a, B>(&self, frames: &'a [B], places: Range<usize>) -> impl Iterator<Item = &'a B> {
        self[places].iter().map(|frame| &frames[usize::from(*frame)])
    }

    #[inline(always)]
    fn eight<'a, B>(&self, frames: &'a [B], at: usize) -> Option<&'a Lanes<B>> {
        let (first, last) = (self.get(at)?, self.get(at + LANES - 1)?);
        let first = usize::from(*first);
        if first + LANES - 1 != usize::from(*last) {
            return None;
        }
        frames.get(first..)?.first_chunk()
    }

    #[inline(always)]
    fn are_together(&self, at: usize, count: usize) -> bool {
        self.frame(at) + count - 1 == self.frame(at + count - 1)
    }
}
