//! Whether a scheduler's choices keep to the weights.

use super::allowance::Allowance;
use super::session::Session;
use super::{Checker, Scene, Violation};
use crate::universe::Service;
use crate::wire::{Addr, Tuple};
use sluice_director::spec::{HashKey, Orphans, Scheduling};

/// Of so many choices by the number of sessions one is looked at closely.
const SAMPLE: u32 = 16;

/// What hashing depends on: the service, its real servers' weights (hashed), and the client.
pub(crate) type Hashed = (usize, u64, Addr, u16);

/// Where a client's sessions of a service go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remembered {
    real: usize,
    pub(super) at: u64,
    /// Whether the director certainly had room to remember it.
    sure: bool,
}

/// What one worker chose for a service since its configuration last changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    epoch: u64,
    /// By the real server's place in the service.
    chosen: Vec<u32>,
    /// Turns that may have been taken without a session to show for it.
    lost: u32,
}

impl Checker {
    fn turns(&mut self, scene: Scene<'_>, service: usize) -> &mut Turns {
        let turns = self.turns.entry((scene.worker, service)).or_default();
        if turns.epoch != scene.snapshot.epoch {
            let reals = scene.universe.services[service].reals.len();
            *turns = Turns { epoch: scene.snapshot.epoch, chosen: vec![0; reals], lost: 0 };
        }
        turns
    }

    /// A session could not be opened after its real server was chosen.
    pub(super) fn turn_lost(&mut self, scene: Scene<'_>, service: usize) {
        self.turns(scene, service).lost += 1;
    }

    /// A real server was chosen for a client's new session.
    pub(super) fn chosen(
        &mut self,
        scene: Scene<'_>,
        number: usize,
        real: usize,
        client: &Tuple,
    ) -> Result<(), Violation> {
        let eligible = &scene.snapshot.eligible[number];
        if !eligible.contains(&real) {
            return Err(format!("real server {real} of service {number} takes no new sessions"));
        }
        let service = &scene.universe.services[number];
        if self.remembers(scene, number, real, client)? {
            return Ok(());
        }
        // Whoever could not be told from another session's was passed over.
        for _ in 0..self.conflicts(scene, number, client) {
            self.turn_lost(scene, number);
        }
        let turns = self.turns(scene, number);
        turns.chosen[real] += 1;
        let right = match service.scheduler {
            _ if service.limits.bend_weights() => true,
            Scheduling::Rr => turns.are_even(eligible),
            Scheduling::Wrr => turns.are_fair(scene, number),
            Scheduling::Lc => self.is_least(scene, number, real, |_| 1),
            Scheduling::Wlc => {
                let weights = &scene.snapshot.status.services[number].reals;
                self.is_least(scene, number, real, |at| weights[at].weight.into())
            }
            Scheduling::Sh | Scheduling::Mh => self.is_same(scene, (number, service), real, client),
            Scheduling::Fo => {
                let weights = &scene.snapshot.status.services[number].reals;
                eligible.iter().all(|other| weights[*other].weight <= weights[real].weight)
            }
            // What the others choose is random, or theirs to keep.
            _ => true,
        };
        if right {
            return Ok(());
        }
        let turns = &self.turns[&(scene.worker, number)];
        let name = service.scheduler.name();
        Err(format!("{name} chose {real} of {eligible:?}, after {:?}", turns.chosen))
    }

    /// Whether a client went where it went before, by persistence, and remembers that.
    fn remembers(
        &mut self,
        scene: Scene<'_>,
        number: usize,
        real: usize,
        client: &Tuple,
    ) -> Result<bool, Violation> {
        let Scene { universe, snapshot, worker, now, .. } = scene;
        let service = &universe.services[number];
        let Some(persistence) = service.persistence else { return Ok(false) };
        let key = (worker, number, service.masked(client.src));
        let full = self.places(worker) + universe.burst as u32 >= universe.capacity;
        let timeout = u64::from(persistence.timeout_s) * 1000;
        let known = self.remembered.get(&key).copied().filter(|known| {
            let there = snapshot.rule(universe, number, known.real) == Orphans::Keep;
            now - known.at <= timeout && there && snapshot.eligible[number].contains(&known.real)
        });
        let sure = known.is_some_and(|known| known.sure);
        let same = known.is_some_and(|known| known.real == real);
        // A real server that is full is not gone back to.
        if sure && !same && service.limits.upper == 0 {
            return Err(format!("persistence went to {real}, after {known:?}"));
        }
        let sure = same && sure || !full && service.limits.upper == 0;
        let known = self.remembered.insert(key, Remembered { real, at: now, sure });
        self.counts.remembered[usize::from(worker)] += u32::from(known.is_none());
        Ok(same)
    }

    /// A client was refused: whoever was remembered for it may be forgotten.
    pub(super) fn unsure(&mut self, scene: Scene<'_>, number: usize, client: Addr) {
        let key = (scene.worker, number, scene.universe.services[number].masked(client));
        if let Some(known) = self.remembered.get_mut(&key) {
            known.sure = false;
        }
    }

    /// What may be in a worker's table: sessions, and what is remembered of clients.
    pub(super) fn places(&self, worker: u16) -> u32 {
        let mappings = self.mappings.of(worker);
        let worker = usize::from(worker);
        self.entries[worker] + self.counts.remembered[worker] + mappings
    }

    /// A new session may be: its service has not too many, nor too many new ones.
    pub(super) fn within_limits(
        &mut self,
        scene: Scene<'_>,
        number: usize,
    ) -> Result<(), Violation> {
        let Scene { universe, worker, now, .. } = scene;
        let limits = universe.services[number].limits;
        let share = |limit: u32| limit.div_ceil(universe.workers.into());
        if limits.sessions != 0 {
            let live = |s: &&Session| {
                !s.vacant && (s.worker, s.service) == (worker, number) && !s.is_over(universe, now)
            };
            if self.sessions.iter().filter(live).count() as u32 >= share(limits.sessions) {
                return Err(format!("service {number} has too many sessions"));
            }
        }
        if limits.new_per_s != 0 {
            let rate = self.rate(scene, number);
            if !rate.allows(now) {
                return Err(format!("service {number} has too many new sessions"));
            }
            rate.take();
        }
        Ok(())
    }

    /// What a service may have of new sessions.
    pub(super) fn rate(&mut self, scene: Scene<'_>, number: usize) -> &mut Allowance {
        let limit = scene.universe.services[number].limits.new_per_s;
        let share = limit.div_ceil(scene.universe.workers.into());
        let returns = scene.snapshot.status.services[number].returns;
        let known = self.rates.entry((scene.worker, number));
        let (seen, rate) = known.or_insert_with(|| (returns, Allowance::new(share)));
        // A service that was taken away and comes again is another one, unless sessions held it.
        if *seen != returns {
            *seen = returns;
            rate.forget();
        }
        rate
    }

    /// The same client has the same real server at every worker, as long as nobody's weight
    /// changes.
    fn is_same(
        &mut self,
        scene: Scene<'_>,
        (number, service): (usize, &Service),
        real: usize,
        client: &Tuple,
    ) -> bool {
        let reals = &scene.snapshot.status.services[number].reals;
        let weights = reals.iter().map(|real| {
            if real.present { u64::from(real.weight) + 1 + (u64::from(real.down) << 20) } else { 0 }
        });
        let weights = weights
            .fold(1, |all: u64, weight| crate::rng::scramble(all.wrapping_mul(0x1_0001) ^ weight));
        let port = if service.hash == HashKey::ClientPort { client.sport } else { 0 };
        *self.hashed.entry((number, weights, client.src, port)).or_insert(real) == real
    }

    /// No other real server had certainly less sessions for its weight. The session itself is
    /// counted already; sessions that timed out may or may not be gone.
    fn is_least(
        &self,
        scene: Scene<'_>,
        number: usize,
        real: usize,
        weight: impl Fn(usize) -> u64,
    ) -> bool {
        let opened: u32 = self.turns[&(scene.worker, number)].chosen.iter().sum();
        if !opened.is_multiple_of(SAMPLE) {
            return true;
        }
        let reals = scene.universe.services[number].reals.len();
        let (mut live, mut all, mut unknown) = (vec![0u64; reals], vec![0u64; reals], 0);
        for session in self.sessions.iter().filter(|s| !s.vacant) {
            if session.worker != scene.worker || session.service != number {
                continue;
            }
            let Some(at) = session.real else {
                unknown += 1;
                continue;
            };
            all[at] += 1;
            live[at] += u64::from(!session.is_over(scene.universe, scene.now));
        }
        live[real] -= 1;
        let eligible = &scene.snapshot.eligible[number];
        // By (sessions + 1) / weight, as every definition of it orders at least that far apart.
        eligible.iter().all(|other| {
            let theirs = (all[*other] + 1 + unknown) * weight(real);
            live[real] * weight(*other) <= theirs
        })
    }
}

impl Turns {
    /// Nobody is two turns ahead.
    fn are_even(&self, eligible: &[usize]) -> bool {
        let of = |real: &usize| self.chosen[*real];
        let least = eligible.iter().map(of).min().unwrap_or(0);
        let most = eligible.iter().map(of).max().unwrap_or(0);
        most - least <= 1 + self.lost
    }

    /// Nobody is further from its share than smooth weighted round robin lets it be.
    fn are_fair(&self, scene: Scene<'_>, number: usize) -> bool {
        let reals = &scene.snapshot.status.services[number].reals;
        let eligible = &scene.snapshot.eligible[number];
        let total: i64 = eligible.iter().map(|at| i64::from(reals[*at].weight)).sum();
        let all: i64 = eligible.iter().map(|at| i64::from(self.chosen[*at])).sum();
        // What was due when the weights last changed may still be.
        let bound = (2 + i64::from(self.lost) + eligible.len() as i64) * total;
        eligible.iter().all(|at| {
            let share = all * i64::from(reals[*at].weight);
            (i64::from(self.chosen[*at]) * total - share).abs() <= bound
        })
    }
}
