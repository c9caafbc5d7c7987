//! `fo` and `ovf`: the real server with the highest weight that takes sessions now.
//!
//! Under `fo` that is all: the next one takes over while it is drained, down or full. Under `ovf`
//! a weight is also how many open sessions its real server takes before the next one gets them.
//! Among equals the first in the configured order wins, at every worker.

use super::Share;
use super::roster::FULL_STEP;
use super::tournament::{Contestant, Tournament};

/// What a real server's weight counts now, in sixteenths; 0 for one that gets nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Rank(u32);

impl Contestant for Rank {
    #[inline(always)]
    fn beats(&self, other: &Self) -> bool {
        self.0 > other.0
    }
}

/// Who has the highest weight.
#[derive(Clone, Debug)]
pub(super) struct Top {
    ranks: Tournament<Rank>,
    share: Share,
}

impl Top {
    /// For so many real servers, none of which takes anything yet.
    pub(super) fn new(count: usize, share: Share) -> Self {
        Self { ranks: Tournament::new(vec![Rank::default(); count]), share }
    }

    /// The first of all.
    #[inline]
    pub(super) fn pick(&self) -> Option<u32> {
        let position = self.ranks.winner()?;
        (self.ranks.get(position)?.0 > 0).then_some(position)
    }

    /// Sets a real server's weight in sixteenths; 0 takes it out.
    #[inline]
    pub(super) fn set(&mut self, position: u32, weight: u32) {
        if self.ranks.get(position).is_some_and(|rank| rank.0 != weight) {
            self.ranks.replace(position, Rank(weight));
        }
    }

    /// The same of one whose open sessions at this worker may not be more than this worker's part
    /// of the weight, rounded up.
    #[inline]
    pub(super) fn set_bounded(&mut self, position: u32, active: u32, weight: u32) {
        let most = self.share.part(weight.div_ceil(FULL_STEP.into()));
        self.set(position, if active < most { weight } else { 0 });
    }
}
