//! `lc` and `wlc`: the real server with the least sessions, or the least for its weight; and `sed`
//! and `nq`, which only count otherwise: see [`Measure`].
//!
//! Among equals the one goes next whose turn it would be if they took turns by weight, so that
//! sessions too short to add up are spread by weight as well. A worker counts its own sessions;
//! since each gets a fair sample of the clients, the sums are nearly as even as the parts.

use super::Share;
use super::scheduler::{Ask, Change, Scheduler};
use super::seat::{FULL_STEP, Seat};
use super::tournament::{Contestant, Tournament};
use std::marker::PhantomData;

/// A real server's sessions and its turn among equals.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Never 0 without weight: something by nothing is infinitely much.
    active: u32,
    /// 0 for one that gets nothing.
    weight: u32,
    /// Number of the pick, in `PICK`s, that its turn is at if they all have as many sessions.
    turn: u64,
}

impl Load {
    fn new(active: u32, weight: u32, turn: u64) -> Self {
        Self { active: active.max(u32::from(weight == 0)), weight, turn }
    }
}

/// One pick: turns are counted in 256ths of it.
const PICK: u64 = 256;

impl Contestant for Load {
    #[inline(always)]
    fn beats(&self, other: &Self) -> bool {
        // Cross-multiplied, with the turn below it: one comparison and no branch, since which of
        // two loads is less nobody can predict.
        let key = |load: &Self, factor: u32| {
            u128::from(u64::from(load.active) * u64::from(factor)) << 64 | u128::from(load.turn)
        };
        key(self, other.weight) < key(other, self.weight)
    }
}

/// Sessions of all real servers of a service.
#[derive(Clone, Debug)]
pub(super) struct Least {
    loads: Tournament<Load>,
    /// Sum of the weights.
    total: u64,
    /// Picks until now, in `PICK`s.
    picks: u64,
    /// Who was picked last: its new turn is put in order together with its new session.
    pending: Option<u32>,
}

impl Least {
    /// For the real servers of a change, each as far from its turn as it was.
    pub(super) fn adopt(to: &Change<'_>, weights: bool) -> Self {
        let weight = |seat: &Seat| match weights {
            true => seat.whole_weight(),
            false => u32::from(seat.available) * u32::from(FULL_STEP),
        };
        let loads = to.seats.iter().zip(to.left);
        let loads = loads.map(|(seat, left)| (seat.active, weight(seat), *left));
        Self::new(&loads.collect::<Vec<_>>(), to.share)
    }

    /// For sessions and weights by position, with what is left until the turn of those who were
    /// here before. Each worker begins at another position.
    pub(super) fn new(seats: &[(u32, u32, Option<u64>)], share: Share) -> Self {
        let total = seats.iter().map(|(_, weight, _)| u64::from(*weight)).sum();
        let count = seats.len() as u64;
        let start = share.of(count);
        let load = |(position, &(active, weight, left)): (u64, &(u32, u32, Option<u64>))| {
            let interval = interval(total, weight);
            let rank = (position + count - start) % count;
            let turn = left.unwrap_or(rank * interval / count).min(interval);
            Load::new(active, weight, turn)
        };
        let loads = (0u64..).zip(seats).map(load).collect();
        Self { loads: Tournament::new(loads), total, picks: 0, pending: None }
    }

    /// The next one.
    #[inline]
    pub(super) fn pick(&mut self) -> Option<u32> {
        let position = self.least()?;
        self.pending = Some(position);
        Some(position)
    }

    /// Who would be picked next.
    #[inline]
    pub(super) fn least(&mut self) -> Option<u32> {
        self.settle();
        let position = self.loads.winner()?;
        (self.loads.get(position)?.weight > 0).then_some(position)
    }

    /// A real server's sessions and weight.
    #[inline]
    pub(super) fn load(&self, position: u32) -> Option<(u32, u32)> {
        self.loads.get(position).map(|load| (load.active, load.weight))
    }

    /// Sets a real server's sessions and weight; weight 0 takes it out.
    #[inline]
    pub(super) fn set(&mut self, position: u32, active: u32, weight: u32) {
        if self.pending != Some(position) {
            self.settle();
        }
        let Some(load) = self.loads.get(position).copied() else { return };
        // A turn belongs to the weights that it was picked by.
        let turn = if self.pending.take().is_some() { self.turn_after(&load) } else { load.turn };
        self.total = self.total + u64::from(weight) - u64::from(load.weight);
        self.loads.replace(position, Load::new(active, weight, turn));
    }

    /// How far a real server's turn is away, for those who come after a change of the plan.
    pub(super) fn left(&mut self, position: u32) -> Option<u64> {
        self.settle();
        self.loads.get(position).map(|load| load.turn.saturating_sub(self.picks))
    }

    /// Puts the turn of who was picked last in order, if no session came of it yet.
    #[inline]
    fn settle(&mut self) {
        let Some(position) = self.pending.take() else { return };
        let Some(load) = self.loads.get(position).copied() else { return };
        let turn = self.turn_after(&load);
        self.loads.replace(position, Load { turn, ..load });
    }

    /// Counts a pick, and says when the turn of who got it is again. Who could not take its turns
    /// catches up on one of them at most.
    #[inline]
    fn turn_after(&mut self, load: &Load) -> u64 {
        let interval = interval(self.total, load.weight);
        let turn = load.turn.max(self.picks.saturating_sub(interval)) + interval;
        self.picks += PICK;
        turn
    }
}

/// Picks between two turns, in `PICK`s.
fn interval(total: u64, weight: u32) -> u64 {
    total * PICK / u64::from(weight.max(1))
}

/// How a scheduler counts.
pub(super) trait Measure {
    /// What it takes for so many sessions.
    fn sessions(active: u32) -> u32;
    /// Whether weights count; else all are alike.
    const WEIGHTS: bool = true;
}

/// The least by a measure.
#[derive(Clone, Debug)]
pub(super) struct By<M>(Least, PhantomData<M>);

/// As they are, all alike.
#[derive(Clone, Debug)]
pub(super) struct Sessions;
/// As they are.
#[derive(Clone, Debug)]
pub(super) struct PerWeight;
/// The new one is counted as if it were there, so that who is faster gets the first one, too.
#[derive(Clone, Debug)]
pub(super) struct Delay;
/// The same, but that nobody waits where another has nothing to do.
#[derive(Clone, Debug)]
pub(super) struct IdleOrDelay;

/// Least sessions.
pub(super) type Lc = By<Sessions>;
/// Least sessions for the weight.
pub(super) type Wlc = By<PerWeight>;
/// Shortest expected delay.
pub(super) type Sed = By<Delay>;
/// Never queue.
pub(super) type Nq = By<IdleOrDelay>;

impl Measure for Sessions {
    const WEIGHTS: bool = false;

    fn sessions(active: u32) -> u32 {
        active
    }
}

impl Measure for PerWeight {
    fn sessions(active: u32) -> u32 {
        active
    }
}

impl Measure for Delay {
    fn sessions(active: u32) -> u32 {
        active.saturating_add(1)
    }
}

impl Measure for IdleOrDelay {
    fn sessions(active: u32) -> u32 {
        if active == 0 { 0 } else { Delay::sessions(active) }
    }
}

impl<M: Measure> Scheduler for By<M> {
    const COUNTS: bool = true;

    fn adopt(known: Option<Self>, to: &Change<'_>) -> Self {
        match known {
            Some(known) if to.same => known,
            _ => Self(Least::adopt(to, M::WEIGHTS), PhantomData),
        }
    }

    #[inline]
    fn set(&mut self, position: u32, seat: &Seat) {
        let weight = if M::WEIGHTS { seat.weight_now() } else { seat.step_now() };
        self.0.set(position, M::sessions(seat.active), weight);
    }

    #[inline(always)]
    fn pick(&mut self, _: Ask<'_>) -> Option<u32> {
        self.0.pick()
    }

    fn left(&mut self, position: u32) -> Option<u64> {
        self.0.left(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// Sessions, weight, turn; looked through one by one.
    struct Model {
        all: Vec<(u32, u32, u64)>,
        picks: u64,
    }

    impl Model {
        fn pick(&mut self) -> Option<usize> {
            let order = |one: &(u32, u32, u64), other: &(u32, u32, u64)| -> Ordering {
                let loads = (one.0 * other.1).cmp(&(other.0 * one.1));
                loads.then(one.2.cmp(&other.2))
            };
            let open = (0..self.all.len()).filter(|at| self.all[*at].1 > 0);
            let best = open.min_by(|a, b| order(&self.all[*a], &self.all[*b]).then(a.cmp(b)))?;
            let total: u64 = self.all.iter().map(|seat| u64::from(seat.1)).sum();
            let seat = &mut self.all[best];
            let interval = total * PICK / u64::from(seat.1);
            seat.2 = seat.2.max(self.picks.saturating_sub(interval)) + interval;
            self.picks += PICK;
            Some(best)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A pick, of which a session comes or not.
        Pick(bool),
        /// A session ends.
        Close(prop::sample::Index),
        /// A session is opened without a pick: persistence.
        Open(prop::sample::Index),
        /// A weight changes.
        Weigh(prop::sample::Index, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop::bool::weighted(0.9).prop_map(Step::Pick),
            3 => any::<prop::sample::Index>().prop_map(Step::Close),
            1 => any::<prop::sample::Index>().prop_map(Step::Open),
            1 => (any::<prop::sample::Index>(), 0u32..6).prop_map(|(at, w)| Step::Weigh(at, w)),
        ]
    }

    proptest! {
        /// The same choices as going through all of them each time.
        #[test]
        fn the_least_is_next(
            weights in prop::collection::vec(0u32..6, 1..30),
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let seats: Vec<_> = weights.iter().map(|weight| (0, *weight, None)).collect();
            let mut least = Least::new(&seats, Share { worker: 1, workers: 3 });
            let turn = |at| least.loads.get(at).map_or(0, |load| load.turn);
            let all = (0u32..).zip(&weights).map(|(at, weight)| (0, *weight, turn(at))).collect();
            let mut model = Model { all, picks: 0 };
            for step in steps {
                let changed = match step {
                    Step::Pick(opens) => {
                        let picked = model.pick();
                        prop_assert_eq!(least.pick(), picked.map(|at| at as u32));
                        let opened = |at: usize| (at, model.all[at].0 + 1, model.all[at].1);
                        picked.filter(|_| opens).map(opened)
                    }
                    Step::Close(at) => {
                        let at = at.index(weights.len());
                        Some((at, model.all[at].0.saturating_sub(1), model.all[at].1))
                    }
                    Step::Open(at) => {
                        let at = at.index(weights.len());
                        Some((at, model.all[at].0 + 1, model.all[at].1))
                    }
                    Step::Weigh(at, weight) => {
                        let at = at.index(weights.len());
                        Some((at, model.all[at].0, weight))
                    }
                };
                if let Some((at, active, weight)) = changed {
                    (model.all[at].0, model.all[at].1) = (active, weight);
                    least.set(at as u32, active, weight);
                }
            }
        }
    }
}
