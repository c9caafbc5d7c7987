//! Schedulers: which real server gets a new session. What each does, and what it costs, is in
//! `docs/schedulers.md`.
//!
//! A worker has its own [`Schedulers`] and knows its own sessions only: nothing is shared between
//! workers but the hash tables, which are part of the plan. What a session costs is constant or
//! logarithmic in the number of real servers. Structures are made when a plan is adopted, and
//! from then on nothing is allocated.

mod hash;
mod hashed;
mod lc;
mod local;
pub mod mh;
mod p2c;
mod positions;
mod roster;
mod rr;
mod scheduler;
mod seat;
mod shares;
mod top;
mod tournament;
mod wrr;

#[cfg(test)]
mod tests;

pub use hash::stable_hash;

use crate::counters::RealCounters;
use crate::plan::{HealthState, Plan, Real, RealId, Service, ServiceId};
use crate::time::Time;
use p2c::Random;
use roster::{Beginning, Roster};
use seat::Seat;

/// Why a new session gets no real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// None is alive and has a weight.
    NoReal,
    /// Those there are have all reached their limits.
    AllFull,
}

/// Which worker this is, of how many.
#[derive(Clone, Copy, Debug)]
struct Share {
    worker: u16,
    workers: u16,
}

impl Share {
    /// How far along `whole` this worker begins, so that workers do not all begin with the same
    /// real server.
    fn of(self, whole: u64) -> u64 {
        whole * u64::from(self.worker) / u64::from(self.workers)
    }

    /// The position that this worker begins at.
    fn start(self, count: usize) -> u32 {
        self.of(count as u64) as u32
    }

    /// A limit's part for one worker, rounded up: 0, no limit, stays so.
    fn part(self, limit: u32) -> u32 {
        limit.div_ceil(self.workers.into())
    }
}

/// Where a real server is: its service, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    service: u16,
    position: u32,
}

/// Of a real server that no service has any more.
const NOWHERE: Place = Place { service: u16::MAX, position: u32::MAX };

/// The schedulers of one worker, for all services.
#[derive(Clone, Debug)]
pub struct Schedulers {
    share: Share,
    random: Random,
    /// By service id.
    rosters: Vec<Roster>,
    /// By real server's id.
    places: Vec<Place>,
    /// Epoch and revision of the plan that was adopted last; 0 before the first.
    adopted: (u64, u64),
}

impl Schedulers {
    /// For one worker of so many. `seed` is for the random choices of `p2c`.
    pub fn new(worker: u16, workers: u16, seed: u64) -> Self {
        Self {
            share: Share { worker, workers: workers.max(1) },
            random: Random::new(seed, worker),
            rosters: Vec::new(),
            places: Vec::new(),
            adopted: (0, 0),
        }
    }

    /// Takes over a plan, the first or another one. `counters` are this worker's, by real server's
    /// id; the sessions open now are taken from them. Whose turn it was, who is full and who is in
    /// slow start stays, for all that are still there. Called between turns; it allocates, and its
    /// time grows with the number of real servers.
    pub fn adopt(&mut self, plan: &Plan, now: Time, counters: &[RealCounters]) {
        if self.is_next_revision(plan) {
            self.revise(plan, now, counters);
            return;
        }
        let slowly = self.adopted.0 > 0;
        self.adopted = (plan.epoch, plan.revision);
        let mut rosters = std::mem::take(&mut self.rosters);
        let places = std::mem::replace(&mut self.places, vec![NOWHERE; plan.reals.len()]);
        rosters.resize_with(plan.services.len().max(rosters.len()), Roster::default);
        for (id, (service, before)) in (0u16..).zip(plan.services.iter().zip(&mut rosters)) {
            let seats = self.seats(plan, (id, service), (before, &places), counters);
            for (position, (seat, _)) in (0u32..).zip(&seats) {
                self.places[seat.real.0 as usize] = Place { service: id, position };
            }
            let beginning = Beginning {
                scheduler: service.scheduler,
                slow_start_ms: u64::from(service.slow_start_s) * 1000,
                seats,
                before,
                slowly,
                now: now.0,
            };
            self.rosters.push(Roster::new(beginning, self.share));
        }
    }

    /// Whether a plan is the next revision of the one that was adopted: see [`Plan::with_health`].
    pub fn is_next_revision(&self, plan: &Plan) -> bool {
        self.adopted.0 == plan.epoch && self.adopted.1 + 1 == plan.revision
    }

    /// Takes over a plan in which only some real servers' health or weight has changed: the rosters
    /// of their services are made again, the others stay as they are.
    fn revise(&mut self, plan: &Plan, now: Time, counters: &[RealCounters]) {
        self.adopted.1 = plan.revision;
        for id in &plan.turned {
            let at = usize::from(id.0);
            let (Some(service), Some(before)) = (plan.service(*id), self.rosters.get_mut(at))
            else {
                continue;
            };
            let mut before = std::mem::take(before);
            let seats = self.seats(plan, (id.0, service), (&before, &self.places), counters);
            let beginning = Beginning {
                scheduler: service.scheduler,
                slow_start_ms: u64::from(service.slow_start_s) * 1000,
                seats,
                before: &mut before,
                slowly: true,
                now: now.0,
            };
            self.rosters[at] = Roster::new(beginning, self.share);
        }
    }

    /// The real servers of a service, and where each was before.
    fn seats(
        &self,
        plan: &Plan,
        (id, service): (u16, &Service),
        (before, places): (&Roster, &[Place]),
        counters: &[RealCounters],
    ) -> Vec<(Seat, Option<u32>)> {
        let reals: &[RealId] = if service.live { &service.reals } else { &[] };
        let mut seats = Vec::with_capacity(reals.len());
        for real_id in reals {
            let at = real_id.0 as usize;
            let Some(real) = plan.reals.get(at) else { continue };
            let active = counters.get(at).map_or(0, |counts| counts.active);
            let seat = self.seat(*real_id, real, active.try_into().unwrap_or(u32::MAX));
            let known = places.get(at).filter(|place| place.service == id);
            let known =
                known.filter(|place| before.identity(place.position) == Some(seat.identity));
            seats.push((seat, known.map(|place| place.position)));
        }
        seats
    }

    fn seat(&self, id: RealId, real: &Real, active: u32) -> Seat {
        let upper = self.share.part(real.upper_sessions);
        let lower = match real.lower_sessions {
            // Less than three quarters, as IPVS has it.
            0 => (u64::from(upper) * 3).div_ceil(4) as u32,
            limit => self.share.part(limit).min(upper),
        };
        Seat {
            real: id,
            identity: stable_hash(real.address, real.port, 0),
            active,
            upper,
            lower,
            weight: real.weight.into(),
            available: real.live && real.health_state == HealthState::Serves && real.weight > 0,
            full: false,
            step: 0,
            credit: 0,
            since: 0,
        }
    }

    /// The real server for a new session. `plan` is the one that was adopted, `key` the
    /// [`stable_hash`] of the client for `sh` and `mh`. If a session comes of it, [`Self::opened`]
    /// must follow.
    #[inline]
    pub fn pick(
        &mut self,
        plan: &Plan,
        service: ServiceId,
        key: u64,
        now: Time,
    ) -> Result<RealId, Refused> {
        let id = usize::from(service.0);
        let roster = self.rosters.get_mut(id).ok_or(Refused::NoReal)?;
        let table = plan.services.get(id).and_then(|service| service.table.as_deref());
        roster.pick(key, table, now.0, &mut self.random)
    }

    /// A session with a real server was opened, whoever chose it.
    #[inline]
    pub fn opened(&mut self, real: RealId) {
        if let Some((roster, position)) = self.find(real) {
            roster.opened(position);
        }
    }

    /// A session with a real server ended.
    #[inline]
    pub fn closed(&mut self, real: RealId) {
        if let Some((roster, position)) = self.find(real) {
            roster.closed(position);
        }
    }

    /// Whether a real server takes new sessions: it is configured, alive, has a weight and is
    /// below its limit.
    pub fn is_eligible(&self, real: RealId) -> bool {
        let place = self.places.get(real.0 as usize).copied().unwrap_or(NOWHERE);
        let roster = self.rosters.get(usize::from(place.service));
        roster.is_some_and(|roster| roster.is_open(place.position))
    }

    /// The real servers that are full at this worker: each reached its upper limit and has not come
    /// below the lower one since.
    pub fn full(&self) -> impl Iterator<Item = RealId> + '_ {
        self.rosters.iter().flat_map(Roster::full)
    }

    #[inline]
    fn find(&mut self, real: RealId) -> Option<(&mut Roster, u32)> {
        let place = self.places.get(real.0 as usize)?;
        Some((self.rosters.get_mut(usize::from(place.service))?, place.position))
    }
}
