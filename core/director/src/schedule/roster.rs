//! The real servers of one service as one worker sees them: who takes sessions, and who is next.
//!
//! A session costs a lookup, the steps of its scheduler's structure, and a few bounded ones: what
//! real servers in slow start need is done a few at a time. Nothing here goes through all real
//! servers but [`Roster::new`], which runs when the plan changes.

use super::hash::{GOLDEN, mix, scale};
use super::lc::{Least, delay, idle_or_delay};
use super::local::Local;
use super::mh::Table;
use super::p2c::{self, Random};
use super::positions::Positions;
use super::rr::Rr;
use super::shares::Shares;
use super::top::Top;
use super::wrr::Wrr;
use super::{Refused, Share};
use crate::blueprint::Scheduling;
use crate::plan::RealId;
use std::collections::VecDeque;

/// A weight is counted in sixteenths, so many of which a real server in slow start has.
pub(super) const FULL_STEP: u8 = 16;
/// Entries of a hash table that are tried before the next open real server is taken.
const TRIES: u32 = 32;
/// Real servers whose slow start is looked at for one session.
const RISES: usize = 4;

/// A real server at one worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) real: RealId,
    /// Tells it from another one that has its id after it.
    pub(super) identity: u64,
    /// This worker's sessions with it.
    pub(super) active: u32,
    /// This worker's part of its limits; an upper one of 0 is none.
    pub(super) upper: u32,
    pub(super) lower: u32,
    /// As configured.
    pub(super) weight: u32,
    /// Whether it is alive and has a weight.
    pub(super) available: bool,
    /// Whether it reached its upper limit and has not come below the lower one since.
    pub(super) full: bool,
    /// Sixteenths of its weight that count now.
    pub(super) step: u8,
    /// Sixteenths of a turn that it has saved under `rr`.
    pub(super) credit: u8,
    /// When its slow start began, in milliseconds.
    pub(super) since: u64,
}

impl Seat {
    fn is_open(&self) -> bool {
        self.available && !self.full
    }

    /// Whether it is full now, with hysteresis.
    fn fills(&self) -> bool {
        let from = if self.full { self.lower } else { self.upper };
        self.upper > 0 && self.active >= from
    }

    /// Begins, goes on with or ends its slow start.
    fn rise(&mut self, now: u64, duration_ms: u64) {
        let elapsed = now.saturating_sub(self.since);
        let sixteenths = (elapsed * u64::from(FULL_STEP)).checked_div(duration_ms);
        let full = u64::from(FULL_STEP);
        self.step = sixteenths.unwrap_or(full).clamp(1, full) as u8;
    }

    /// When its weight rises next.
    fn rises_at(&self, duration_ms: u64) -> u64 {
        self.since + (duration_ms * u64::from(self.step + 1)).div_ceil(FULL_STEP.into())
    }
}

/// The scheduler's own structure.
#[derive(Clone, Debug)]
enum Order {
    Rr(Rr),
    Wrr(Wrr),
    Lc(Least),
    Wlc(Least),
    Sed(Least),
    Nq(Least),
    Fo(Top),
    Ovf(Top),
    Lblc(Local),
    Lblcr(Local),
    /// `sh`, `mh` and `dh`, whose tables are the plan's.
    Hash,
    P2c(Shares),
}

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
            order: Order::Hash,
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
        let order = Order::new(scheduler, &seats, &origins, before, share);
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
        let position = match &mut self.order {
            Order::Rr(rr) => rr.pick(&self.open, &mut self.seats),
            Order::Wrr(wrr) => wrr.pick(),
            Order::Lc(least) | Order::Wlc(least) | Order::Sed(least) | Order::Nq(least) => {
                least.pick()
            }
            Order::Fo(top) | Order::Ovf(top) => top.pick(),
            Order::Lblc(local) | Order::Lblcr(local) => local.pick(now),
            Order::Hash => self.hashed(key, table),
            Order::P2c(shares) => p2c::pick(shares, &self.seats, random),
        };
        let seat = position.and_then(|position| self.seats.get(position as usize));
        seat.map(|seat| seat.real).ok_or(match self.available {
            0 => Refused::NoReal,
            _ => Refused::AllFull,
        })
    }

    /// The table's choice, or, if that one takes nothing now, what its hash's hash finds, and so
    /// on: clients of one that is full are spread over all others, each always the same way.
    fn hashed(&self, key: u64, table: Option<&Table>) -> Option<u32> {
        let mut hash = key;
        for _ in 0..TRIES {
            let Some(position) = table.and_then(|table| table.lookup(hash)) else { break };
            if self.takes(position, key) {
                return Some(position);
            }
            hash = mix(hash.wrapping_add(GOLDEN));
        }
        self.open.next_around(scale(key, self.seats.len() as u64) as u32)
    }

    /// Whether a real server takes this client. One in slow start takes so many sixteenths of
    /// its clients, and those that it took stay as they become more.
    fn takes(&self, position: u32, key: u64) -> bool {
        let chance = |seat: &Seat| mix(key ^ seat.identity) % u64::from(FULL_STEP);
        self.open.contains(position)
            && self
                .seats
                .get(position as usize)
                .is_some_and(|seat| seat.step == FULL_STEP || chance(seat) < u64::from(seat.step))
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
        let open = seat.is_open();
        self.open.set(position, open);
        let step = if open { u32::from(seat.step) } else { 0 };
        let weight = seat.weight * step;
        match &mut self.order {
            Order::Rr(_) | Order::Hash => {}
            Order::Wrr(wrr) => wrr.set(position, weight),
            Order::Lc(least) => least.set(position, seat.active, step),
            Order::Wlc(least) => least.set(position, seat.active, weight),
            Order::Sed(least) => least.set(position, delay(seat.active), weight),
            Order::Nq(least) => least.set(position, idle_or_delay(seat.active), weight),
            Order::Fo(top) => top.set(position, weight),
            Order::Ovf(top) => top.set_bounded(position, seat.active, weight),
            Order::Lblc(local) | Order::Lblcr(local) => local.set(position, seat.active, weight),
            Order::P2c(shares) => shares.set(position, weight),
        }
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

impl Order {
    /// The structure for these real servers, as far as possible from the one before.
    fn new(
        scheduler: Scheduling,
        seats: &[Seat],
        origins: &[Option<u32>],
        before: &mut Roster,
        share: Share,
    ) -> Self {
        // As many, and each where it was: the structure can stay, whoever changed in itself.
        let same = before.seats.len() == seats.len()
            && (0u32..).zip(origins).all(|(position, origin)| *origin == Some(position));
        let known = std::mem::replace(&mut before.order, Self::Hash);
        let weight = |seat: &Seat| if seat.available { seat.weight } else { 0 };
        match (scheduler, known) {
            (Scheduling::Rr, Self::Rr(rr)) if same => Self::Rr(rr),
            (Scheduling::Rr, Self::Rr(rr)) => Self::Rr(Rr { cursor: moved(rr.cursor, origins) }),
            (Scheduling::Rr, _) => Self::Rr(Rr { cursor: share.start(seats.len()) }),
            (Scheduling::Wrr, Self::Wrr(wrr)) if same => Self::Wrr(wrr),
            (Scheduling::Wrr, known) => {
                let left = |origin: &Option<u32>| match (&known, origin) {
                    (Self::Wrr(wrr), Some(origin)) => wrr.left(*origin),
                    _ => None,
                };
                let full = |seat| weight(seat) * u32::from(FULL_STEP);
                let turns = seats.iter().zip(origins).map(|(s, origin)| (full(s), left(origin)));
                Self::Wrr(Wrr::new(&turns.collect::<Vec<_>>(), share))
            }
            (Scheduling::Lc, Self::Lc(least)) if same => Self::Lc(least),
            (Scheduling::Wlc, Self::Wlc(least)) if same => Self::Wlc(least),
            (Scheduling::Sed, Self::Sed(least)) if same => Self::Sed(least),
            (Scheduling::Nq, Self::Nq(least)) if same => Self::Nq(least),
            (Scheduling::Lblc, Self::Lblc(local)) if same => Self::Lblc(local),
            (Scheduling::Lblcr, Self::Lblcr(local)) if same => Self::Lblcr(local),
            (Scheduling::Lc, mut known) => {
                Self::Lc(least(&mut known, seats, origins, share, |s| u32::from(s.available)))
            }
            (Scheduling::Fo, _) => Self::Fo(Top::new(seats.len(), share)),
            (Scheduling::Ovf, _) => Self::Ovf(Top::new(seats.len(), share)),
            (Scheduling::Sh | Scheduling::Mh | Scheduling::Dh, _) => Self::Hash,
            (Scheduling::P2c, _) => Self::P2c(Shares::new(vec![0; seats.len()])),
            (scheduler, mut known) => {
                let all = least(&mut known, seats, origins, share, weight);
                match scheduler {
                    Scheduling::Sed => Self::Sed(all),
                    Scheduling::Nq => Self::Nq(all),
                    Scheduling::Lblc => Self::Lblc(local(all, &known, origins, false, share)),
                    Scheduling::Lblcr => Self::Lblcr(local(all, &known, origins, true, share)),
                    _ => Self::Wlc(all),
                }
            }
        }
    }

    /// Whether each session that begins or ends changes something.
    #[inline]
    const fn counts(&self) -> bool {
        !matches!(self, Self::Rr(_) | Self::Wrr(_) | Self::Fo(_) | Self::Hash | Self::P2c(_))
    }

    /// How far a real server's turn among equals was away.
    fn left(&mut self, origin: u32) -> Option<u64> {
        match self {
            Self::Lc(least) | Self::Wlc(least) | Self::Sed(least) | Self::Nq(least) => {
                least.left(origin)
            }
            Self::Lblc(local) | Self::Lblcr(local) => local.all.left(origin),
            _ => None,
        }
    }
}

/// The structure of all that go by the least sessions.
fn least(
    known: &mut Order,
    seats: &[Seat],
    origins: &[Option<u32>],
    share: Share,
    weight: impl Fn(&Seat) -> u32,
) -> Least {
    let mut left = |origin: &Option<u32>| origin.and_then(|origin| known.left(origin));
    let full = |seat: &Seat| weight(seat) * u32::from(FULL_STEP);
    let loads = seats.iter().zip(origins).map(|(s, origin)| (s.active, full(s), left(origin)));
    Least::new(&loads.collect::<Vec<_>>(), share)
}

/// The structure of `lblc` and `lblcr`.
fn local(
    all: Least,
    known: &Order,
    origins: &[Option<u32>],
    replicates: bool,
    share: Share,
) -> Local {
    let local = Local::new(all, origins.len(), replicates, share);
    match known {
        Order::Lblc(before) if !replicates => local.after(before, origins),
        Order::Lblcr(before) if replicates => local.after(before, origins),
        _ => local,
    }
}

/// Where the one at the cursor, or the first after it that is still there, is now.
fn moved(cursor: u32, origins: &[Option<u32>]) -> u32 {
    let now = (0u32..).zip(origins).filter_map(|(at, origin)| origin.map(|origin| (origin, at)));
    now.filter(|(origin, _)| *origin >= cursor).min().map_or(0, |(_, at)| at)
}
