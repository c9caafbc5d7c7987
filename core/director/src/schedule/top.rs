//! `fo` and `ovf`: the real server with the highest weight that takes sessions now.
//!
//! Under `fo` that is all: the next one takes over while it is drained, down or full. Under `ovf`
//! a weight is also how many open sessions its real server takes before the next one gets them.
//! Among equals the first in the configured order wins, at every worker.

use super::Share;
use super::scheduler::{Ask, Change, Scheduler};
use super::seat::{FULL_STEP, Seat};
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

/// Who has the highest weight. Under a bound, a real server's open sessions at this worker may not
/// be more than this worker's part of the weight, rounded up.
#[derive(Clone, Debug)]
pub(super) struct Top<const BOUNDED: bool> {
    ranks: Tournament<Rank>,
    share: Share,
}

/// Failover.
pub(super) type Fo = Top<false>;
/// Overflow.
pub(super) type Ovf = Top<true>;

impl<const BOUNDED: bool> Scheduler for Top<BOUNDED> {
    const COUNTS: bool = BOUNDED;

    fn adopt(_: Option<Self>, to: &Change<'_>) -> Self {
        let ranks = Tournament::new(vec![Rank::default(); to.seats.len()]);
        Self { ranks, share: to.share }
    }

    #[inline]
    fn set(&mut self, position: u32, seat: &Seat) {
        let weight = seat.weight_now();
        let most = self.share.part(weight.div_ceil(FULL_STEP.into()));
        let rank = if BOUNDED && seat.active >= most { 0 } else { weight };
        if self.ranks.get(position).is_some_and(|known| known.0 != rank) {
            self.ranks.replace(position, Rank(rank));
        }
    }

    /// The first of all.
    #[inline(always)]
    fn pick(&mut self, _: Ask<'_>) -> Option<u32> {
        let position = self.ranks.winner()?;
        (self.ranks.get(position)?.0 > 0).then_some(position)
    }
}
