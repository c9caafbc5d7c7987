//! Weighted round robin, interleaved: over each cycle of Σw / gcd(w) turns each real server has
//! exactly w / gcd(w), spread as evenly as they can be.
//!
//! Stride scheduling (Waldspurger, Weihl, 1995) with exact fractions: a real server's turns are
//! due at the times (φ + k) / w, k = 0, 1, …, and the earliest is next. A cycle is a span of
//! 1 / gcd(w), in which each has exactly its turns, wherever in its own interval its first one
//! lies. So φ may be chosen to interleave them: among those of equal weight it goes up evenly in
//! the configured order, which makes them one steady stream, and one stream begins at the golden
//! ratio's fraction of its interval after the other, so that streams do not come in step. Were φ
//! the same for all, 100 real servers of weight 1 would all come in a row between two halves of
//! the turns of one with weight 100.

use super::Share;
use super::hash::{GOLDEN, scale};
use super::scheduler::{Ask, Change, Scheduler};
use super::seat::Seat;
use super::tournament::{Contestant, Tournament};
use std::collections::BTreeMap;

/// A real server's interval between two turns, in which fractions of turns are counted.
const TURN: u64 = 1 << 16;

/// When a real server's next turn is: `due` / (`TURN` × `weight`) on the clock that all share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// In fractions of its own turns. Of one without weight: what is left of its turn. Never 0,
    /// so that without weight it is infinitely far. 2⁴⁸ turns fit, which is years.
    due: u64,
    weight: u32,
}

impl Contestant for Turn {
    #[inline(always)]
    fn beats(&self, other: &Self) -> bool {
        let one = u128::from(self.due) * u128::from(other.weight);
        one < u128::from(other.due) * u128::from(self.weight)
    }
}

/// Whose turn it is.
#[derive(Clone, Debug)]
pub(super) struct Wrr {
    turns: Tournament<Turn>,
    /// The clock: the last turn.
    clock: Option<Turn>,
}

impl Scheduler for Wrr {
    const COUNTS: bool = false;

    fn adopt(known: Option<Self>, to: &Change<'_>) -> Self {
        match known {
            Some(known) if to.same => known,
            known => {
                let left = |origin: Option<u32>| known.as_ref()?.left(origin?);
                let turns = to.seats.iter().zip(to.origins);
                let turns = turns.map(|(seat, origin)| (seat.whole_weight(), left(*origin)));
                Self::new(&turns.collect::<Vec<_>>(), to.share)
            }
        }
    }

    fn set(&mut self, position: u32, seat: &Seat) {
        self.weigh(position, seat.weight_now());
    }

    #[inline(always)]
    fn pick(&mut self, _: Ask<'_>) -> Option<u32> {
        self.next()
    }
}

impl Wrr {
    /// For weights by position, with what was left of a turn for those who were here before.
    /// Each worker begins in another part of the cycle.
    fn new(seats: &[(u32, Option<u64>)], share: Share) -> Self {
        let phases = phases(seats, share);
        let turn = |(&(weight, left), phase): (&(u32, Option<u64>), u64)| Turn {
            due: left.unwrap_or(phase).clamp(1, TURN - 1),
            weight,
        };
        let turns = seats.iter().zip(phases).map(turn).collect();
        Self { turns: Tournament::new(turns), clock: None }
    }

    /// The next one.
    #[inline]
    fn next(&mut self) -> Option<u32> {
        let position = self.turns.winner()?;
        let turn = *self.turns.get(position)?;
        if turn.weight == 0 {
            return None;
        }
        self.clock = Some(turn);
        self.turns.replace(position, Turn { due: turn.due + TURN, ..turn });
        Some(position)
    }

    /// Changes a weight; 0 takes the real server out. What is left until its turn stays the same
    /// part of its interval.
    #[inline]
    fn weigh(&mut self, position: u32, weight: u32) {
        let Some(turn) = self.turns.get(position).filter(|turn| turn.weight != weight) else {
            return;
        };
        let due = self.elapsed(weight) + self.left_of(turn);
        self.turns.replace(position, Turn { due, weight });
    }

    /// What is left of a real server's interval until its turn: 1 to `TURN` - 1, since two turns
    /// of one may not come within a cycle in which it has one.
    fn left(&self, position: u32) -> Option<u64> {
        self.turns.get(position).map(|turn| self.left_of(turn))
    }

    fn left_of(&self, turn: &Turn) -> u64 {
        turn.due.saturating_sub(self.elapsed(turn.weight)).clamp(1, TURN - 1)
    }

    /// What the clock shows, in fractions of the turns of a weight.
    fn elapsed(&self, weight: u32) -> u64 {
        self.clock.map_or(0, |clock| {
            let product = u128::from(clock.due) * u128::from(weight);
            (product / u128::from(clock.weight)) as u64
        })
    }
}

/// When each has its first turn, as a part of its own interval.
fn phases(seats: &[(u32, Option<u64>)], share: Share) -> Vec<u64> {
    let mut sizes = BTreeMap::<u32, u64>::new();
    for (weight, _) in seats {
        *sizes.entry(*weight).or_default() += 1;
    }
    let common = sizes.keys().fold(0, |a, b| gcd(a, *b)).max(1);
    // The busiest stream first: it is the one that the others fit into.
    let mut streams: Vec<_> = sizes.iter().map(|(weight, size)| (*weight, *size)).collect();
    streams.sort_by_key(|&(weight, size)| std::cmp::Reverse((u64::from(weight) * size, weight)));
    let start = |(number, (weight, _)): (u64, (u32, u64))| {
        let fraction = number.wrapping_mul(GOLDEN).wrapping_add(1 << 63);
        (weight, (scale(fraction, TURN), 0u64))
    };
    let mut streams: BTreeMap<_, _> = (0u64..).zip(streams).map(start).collect();
    let phase = |(weight, _): &(u32, Option<u64>)| {
        let Some((start, rank)) = streams.get_mut(weight) else { return 0 };
        let phase = (*rank * TURN + *start) / sizes.get(weight).copied().unwrap_or(1);
        *rank += 1;
        // This worker's part of the cycle, in turns of this weight.
        let ahead = share.of(u64::from(weight / common) * TURN);
        phase.wrapping_sub(ahead) % TURN
    };
    seats.iter().map(phase).collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALONE: Share = Share { worker: 0, workers: 1 };

    /// Turns as fractions, looked through one by one.
    struct Model {
        /// Fractions of turns until the next one at the time 0, turns had since, and the weight.
        all: Vec<(u64, u64, u32)>,
    }

    impl Model {
        fn pick(&mut self) -> Option<u32> {
            let at = |&(phase, had, weight): &(u64, u64, u32)| {
                ((phase + had * TURN) as f64 / f64::from(weight), (phase + had * TURN, weight))
            };
            let mut best: Option<usize> = None;
            for (position, turn) in self.all.iter().enumerate().filter(|(_, turn)| turn.2 > 0) {
                let Some(known) = best else {
                    best = Some(position);
                    continue;
                };
                let ((about, (due, weight)), (least, (first, other))) =
                    (at(turn), at(&self.all[known]));
                // As floating point numbers where they differ clearly, else exactly.
                let close = (about - least).abs() < 1e-6 * least.abs();
                let before = u128::from(due) * u128::from(other);
                let exactly = before < u128::from(first) * u128::from(weight);
                if if close { exactly } else { about < least } {
                    best = Some(position);
                }
            }
            self.all[best?].1 += 1;
            best.map(|best| best as u32)
        }
    }

    proptest! {
        /// The same sequence as going through all of them each time.
        #[test]
        fn the_earliest_is_next(weights in prop::collection::vec(0u32..50, 1..40)) {
            let seats: Vec<_> = weights.iter().map(|weight| (*weight, None)).collect();
            let mut wrr = Wrr::new(&seats, ALONE);
            let first = |position| wrr.turns.get(position).map_or(0, |turn| turn.due);
            let all = (0u32..).zip(&weights).map(|(p, weight)| (first(p), 0, *weight)).collect();
            let mut model = Model { all };
            for turn in 0..500 {
                prop_assert_eq!(wrr.next(), model.pick(), "turn {}", turn);
            }
        }

        /// Whatever weights change between: from then on a cycle is exact.
        #[test]
        fn a_cycle_is_exact_from_anywhere(
            weights in prop::collection::vec(1u32..30, 1..20),
            worker in 0u16..8,
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0u32..30, 0..40), 0..8),
        ) {
            let seats: Vec<_> = weights.iter().map(|weight| (*weight, None)).collect();
            let mut wrr = Wrr::new(&seats, Share { worker, workers: 8 });
            let mut weights = weights;
            for (position, weight, turns) in changes {
                for _ in 0..turns {
                    wrr.next();
                }
                let position = position.index(weights.len());
                weights[position] = weight;
                wrr.weigh(position as u32, weight);
            }
            let mut counts = vec![0; weights.len()];
            for _ in 0..weights.iter().sum() {
                counts[wrr.next().unwrap() as usize] += 1;
            }
            prop_assert_eq!(counts, weights);
        }
    }
}
