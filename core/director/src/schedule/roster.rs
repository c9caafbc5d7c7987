//! The real servers of one service as one worker sees them: who takes sessions, and who is next.
//!
//! A session costs a lookup, the steps of its scheduler's structure, and a few bounded ones: what
//! real servers in slow start need is done a few at a time. Nothing here goes through all real
//! servers but [`Roster::new`], which runs when the plan changes.

use super::mh::Table;
use super::p2c::Random;
use super::positions::Positions;
use super::scheduler::{Ask, Change, Scheduler};
use super::seat::{FULL_STEP, Seat};
use super::{Refused, Share, hashed, lc, local, p2c, rr, top, wrr};
use crate::plan::RealId;
use crate::spec::{Scheduling, schedulers};
use std::collections::VecDeque;

/// Real servers whose slow start is looked at for one session.
const RISES: usize = 4;

macro_rules! order {
    ($($name:ident $word:literal $about:literal, hashes $hashes:ident, $kept:ty;)+) => {
        /// What the service's scheduler keeps.
        #[derive(Clone, Debug)]
        enum Order {
            $($name($kept),)+
        }

        impl Order {
            /// What a scheduler keeps of these, as far as possible from what was kept before.
            fn adopt(scheduler: Scheduling, known: Self, to: &Change<'_>) -> Self {
                match (scheduler, known) {
                    $((Scheduling::$name, Self::$name(known)) => {
                        Self::$name(Scheduler::adopt(Some(known), to))
                    })+
                    $((Scheduling::$name, _) => Self::$name(Scheduler::adopt(None, to)),)+
                }
            }

            #[inline(always)]
            fn pick(&mut self, ask: Ask<'_>) -> Option<u32> {
                match self {
                    $(Self::$name(kept) => kept.pick(ask),)+
                }
            }

            fn set(&mut self, position: u32, seat: &Seat) {
                match self {
                    $(Self::$name(kept) => kept.set(position, seat),)+
                }
            }

            fn left(&mut self, position: u32) -> Option<u64> {
                match self {
                    $(Self::$name(kept) => kept.left(position),)+
                }
            }

            #[inline]
            const fn counts(&self) -> bool {
                match self {
                    $(Self::$name(_) => <$kept as Scheduler>::COUNTS,)+
                }
            }
        }
    };
}
schedulers!(order);

/// The real servers of one service at one worker, by their positions.
#[derive(Clone, Debug)]
pub(super) struct Roster {
    seats: Vec<Seat>,
    /// Positions of those that take sessions now.
    open: Positions,
    /// How many are alive and have a weight.
    available: u32,
    slow_start_ms: u64,
    /// Those in slow start: when the weight rises next, and the position.
    rising: VecDeque<(u64, u32)>,
    order: Order,
}

impl Default for Roster {
    fn default() -> Self {
        Self {
            seats: Vec::new(),
            open: Positions::default(),
            available: 0,
            slow_start_ms: 0,
            rising: VecDeque::new(),
            order: Order::Sh(hashed::Hashed),
        }
    }
}

/// What a roster begins with.
pub(super) struct Beginning<'a> {
    /// The service's scheduler.
    pub(super) scheduler: Scheduling,
    /// Milliseconds that a slow start takes; 0 for none.
    pub(super) slow_start_ms: u64,
    /// Its real servers in the configured order, their sessions counted, all else to be found
    /// out; and the position that each had before.
    pub(super) seats: Vec<(Seat, Option<u32>)>,
    /// The roster that this one takes over from.
    pub(super) before: &'a mut Roster,
    /// Whether new real servers start slowly: not when the director itself starts.
    pub(super) slowly: bool,
    /// Milliseconds now.
    pub(super) now: u64,
}

impl Roster {
    /// A roster after a change of the plan. What is still there goes on where it was.
    pub(super) fn new(from: Beginning<'_>, share: Share) -> Self {
        let Beginning { scheduler, slow_start_ms, seats, before, slowly, now } = from;
        let origins: Vec<_> = seats.iter().map(|(_, origin)| *origin).collect();
        let mut seats: Vec<_> = seats.into_iter().map(|(seat, _)| seat).collect();
        for (seat, origin) in seats.iter_mut().zip(&origins) {
            let known = origin.and_then(|at| before.seats.get(at as usize));
            seat.full = known.is_some_and(|known| known.full);
            seat.full = seat.fills();
            seat.credit = known.map_or(0, |known| known.credit);
            (seat.step, seat.since) = match known.filter(|known| known.available) {
                Some(known) => (known.step, known.since),
                None if slowly => (1, now),
                None => (FULL_STEP, now),
            };
            if seat.step < FULL_STEP {
                seat.rise(now, slow_start_ms);
            }
        }
        let same = before.seats.len() == seats.len()
            && (0u32..).zip(&origins).all(|(position, origin)| *origin == Some(position));
        let mut known = std::mem::replace(&mut before.order, Order::Sh(hashed::Hashed));
        let left: Vec<_> = origins.iter().map(|origin| known.left((*origin)?)).collect();
        let to = Change { seats: &seats, origins: &origins, same, left: &left, share };
        let order = Order::adopt(scheduler, known, &to);
        let mut roster = Self {
            open: Positions::new(seats.len() as u32),
            available: seats.iter().filter(|seat| seat.available).count() as u32,
            rising: VecDeque::with_capacity(seats.len()),
            seats,
            slow_start_ms,
            order,
        };
        for position in 0..roster.seats.len() as u32 {
            roster.apply(position);
        }
        roster.queue_rising();
        roster
    }

    /// The real server for a session of a client with this hash.
    #[inline]
    pub(super) fn pick(
        &mut self,
        key: u64,
        table: Option<&Table>,
        now: u64,
        random: &mut Random,
    ) -> Result<RealId, Refused> {
        if !self.rising.is_empty() {
            self.rise(now);
        }
        let (open, seats) = (&self.open, &mut *self.seats);
        let position = self.order.pick(Ask { key, table, now, random, open, seats });
        let seat = position.and_then(|position| self.seats.get(position as usize));
        seat.map(|seat| seat.real).ok_or(match self.available {
            0 => Refused::NoReal,
            _ => Refused::AllFull,
        })
    }

    /// Which real server is at a position.
    pub(super) fn identity(&self, position: u32) -> Option<u64> {
        self.seats.get(position as usize).map(|seat| seat.identity)
    }

    /// Whether a real server takes new sessions.
    pub(super) fn is_open(&self, position: u32) -> bool {
        self.open.contains(position)
    }

    /// Those that reached their upper limit and have not come below the lower one since.
    pub(super) fn full(&self) -> impl Iterator<Item = RealId> + '_ {
        self.seats.iter().filter(|seat| seat.full).map(|seat| seat.real)
    }

    /// Whether nobody is in slow start.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.rising.is_empty()
    }

    /// A session with a real server was opened.
    #[inline]
    pub(super) fn opened(&mut self, position: u32) {
        self.recount(position, |active| active.saturating_add(1));
    }

    /// A session with a real server ended.
    #[inline]
    pub(super) fn closed(&mut self, position: u32) {
        self.recount(position, |active| active.saturating_sub(1));
    }

    /// Changes a number of sessions, and acts on that.
    #[inline(always)]
    fn recount(&mut self, position: u32, count: impl Fn(u32) -> u32) {
        let Some(seat) = self.seats.get_mut(position as usize) else { return };
        seat.active = count(seat.active);
        let full = seat.fills();
        let turned = full != seat.full;
        seat.full = full;
        if turned || self.order.counts() {
            self.apply(position);
        }
    }

    /// Puts a real server where it belongs by what its seat says.
    fn apply(&mut self, position: u32) {
        let Some(seat) = self.seats.get(position as usize) else { return };
        self.open.set(position, seat.is_open());
        self.order.set(position, seat);
    }

    /// Queues who is in slow start by when its weight rises next.
    fn queue_rising(&mut self) {
        let duration = self.slow_start_ms;
        let rising = (0u32..).zip(&self.seats);
        let rising = rising.filter(|(_, seat)| seat.available && seat.step < FULL_STEP);
        self.rising.extend(rising.map(|(position, seat)| (seat.rises_at(duration), position)));
        self.rising.make_contiguous().sort_unstable();
    }

    /// Raises the weights that are due, a few at a time. Each comes back one step later, so the
    /// queue stays in order but for those that were late.
    #[cold]
    fn rise(&mut self, now: u64) {
        for _ in 0..RISES {
            let Some((_, position)) = self.rising.front().filter(|(due, _)| *due <= now) else {
                return;
            };
            let position = *position;
            self.rising.pop_front();
            let Some(seat) = self.seats.get_mut(position as usize) else { continue };
            seat.rise(now, self.slow_start_ms);
            if seat.step < FULL_STEP {
                self.rising.push_back((seat.rises_at(self.slow_start_ms), position));
            }
            self.apply(position);
        }
    }
}
