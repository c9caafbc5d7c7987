//! Two random choices: of two real servers the one with less sessions for its weight.
//!
//! With one random choice the fullest of n has about log n / log log n more than its share, with
//! the better of two only log log n (Azar et al. 1994; Mitzenmacher 1996); and unlike the least
//! loaded of all, a real server that has just come back is not flooded. The two are drawn in
//! proportion to the weights (Berenbrink et al., Balls into Non-uniform Bins, 2010): drawn evenly,
//! a real server with most of the weight would be offered only two of n sessions.

use super::hash::{GOLDEN, mix, scale};
use super::scheduler::{Ask, Change, Scheduler};
use super::seat::Seat;
use super::shares::Shares;

/// The weights of those that are open.
#[derive(Clone, Debug)]
pub(super) struct P2c(Shares);

impl Scheduler for P2c {
    /// Sessions are looked at when a choice is made.
    const COUNTS: bool = false;

    fn adopt(_: Option<Self>, to: &Change<'_>) -> Self {
        Self(Shares::new(vec![0; to.seats.len()]))
    }

    fn set(&mut self, position: u32, seat: &Seat) {
        self.0.set(position, seat.weight_now());
    }

    #[inline(always)]
    fn pick(&mut self, ask: Ask<'_>) -> Option<u32> {
        pick(&self.0, ask.seats, ask.random)
    }
}

/// A worker's random numbers: xorshift64* (Vigna, An experimental exploration of Marsaglia's
/// xorshift generators, scrambled, 2016).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Its own for each seed and worker.
    pub(super) fn new(seed: u64, worker: u16) -> Self {
        Self(mix(seed ^ mix(GOLDEN.wrapping_add(worker.into()))) | 1)
    }

    /// A number below `limit`.
    #[inline]
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        scale(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d), limit)
    }
}

/// The better of two. `shares` are the weights of those that are open.
#[inline]
fn pick(shares: &Shares, seats: &[Seat], random: &mut Random) -> Option<u32> {
    let total = shares.total();
    if total == 0 {
        return None;
    }
    let (one, start) = shares.at(random.below(total));
    // The other is drawn from what remains without the first.
    let weight = u64::from(shares.weight(one));
    if weight == total {
        return Some(one);
    }
    let point = random.below(total - weight);
    let (other, _) = shares.at(if point < start { point } else { point + weight });
    let sessions = |at: u32| seats.get(at as usize).map_or(0, |seat| u64::from(seat.active));
    let of_one = sessions(one) * u64::from(shares.weight(other));
    let of_other = sessions(other) * weight;
    Some(if of_other < of_one { other } else { one })
}
