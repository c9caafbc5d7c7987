//! What goes wrong in a cluster, and what an operator does.

use super::world::{Later, World};
use crate::rng::Rng;

impl World {
    /// One trouble. What it does is taken back some time later.
    pub fn trouble(&mut self, rng: &mut Rng) -> Result<(), String> {
        let count = self.places.len() as u64;
        let number = rng.below(count) as usize;
        let span = match rng.weighted(&[3, 3, 2]) {
            0 => rng.range(100, 2500),
            1 => rng.range(2500, 8000),
            _ => rng.range(8000, 25_000),
        };
        match rng.weighted(&[20, 20, 20, 20, 10, 15, 25]) {
            0 => self.kill(self.master, span, rng),
            1 => self.kill(number, span, rng),
            2 => self.freeze(if rng.chance(600) { self.master } else { number }, span, rng),
            3 => self.move_to(number),
            4 => self.split(number, span),
            5 => return self.diverge(number, span, rng),
            _ => self.part(number, span, rng),
        }
        Ok(())
    }

    /// A director's memory is gone; later it returns.
    fn kill(&mut self, number: usize, span: u64, rng: &mut Rng) {
        if self.places[number].director.is_none() {
            return;
        }
        self.note(|| format!("kill {number} for {span} ms"));
        self.settle();
        let killed = self.places[number].director.take();
        self.outcome.dealt += killed.map_or(0, |director| director.dealt());
        self.flows.iter_mut().for_each(|flow| flow.knowledge.forget(number));
        self.graves.iter_mut().for_each(|flow| flow.knowledge.forget(number));
        self.judge.set_runs(number, false, self.now);
        self.quiet(number);
        self.later.push((self.now + span, Later::Start(number)));
        self.notice(rng);
    }

    /// A director stands still for a while.
    fn freeze(&mut self, number: usize, span: u64, rng: &mut Rng) {
        if !self.places[number].works() {
            return;
        }
        self.note(|| format!("freeze {number} for {span} ms"));
        self.settle();
        self.places[number].frozen = true;
        self.quiet(number);
        self.later.push((self.now + span, Later::Thaw(number)));
        if number == self.master {
            self.notice(rng);
            // For a moment after it goes on it takes itself for the master still.
            self.haunted(number, span, rng);
        }
    }

    /// A master that comes back to life sends and takes packets until it hears the other.
    fn haunted(&mut self, number: usize, span: u64, rng: &mut Rng) {
        if rng.chance(500) {
            self.rival = Some(number);
            self.later.push((self.now + span + rng.range(10, 1500), Later::Unite));
        }
    }

    /// Others notice some time later that the master is gone.
    fn notice(&mut self, rng: &mut Rng) {
        self.later.push((self.now + rng.range(50, 3500), Later::Elect));
    }

    /// A planned move, or the return of an old master.
    fn move_to(&mut self, number: usize) {
        if self.may_lead(number) {
            self.lead(number);
        }
    }

    /// Two directors take themselves for the master.
    fn split(&mut self, number: usize, span: u64) {
        if number != self.master && self.may_lead(number) {
            self.note(|| format!("split brain with {number} for {span} ms"));
            self.rival = Some(number);
            self.later.push((self.now + span, Later::Unite));
        }
    }

    /// A service, or a real server of one, is missing in a director's configuration.
    fn diverge(&mut self, number: usize, span: u64, rng: &mut Rng) -> Result<(), String> {
        if self.places[number].lacks.is_some() || !self.places[number].works() {
            return Ok(());
        }
        let service = rng.below(self.site.virtual_services() as u64) as usize;
        let reals = self.site.services[service].reals.len() as u64;
        let real = rng.chance(600).then(|| rng.below(reals) as usize);
        self.note(|| format!("{number} lacks service {service}, real server {real:?}: {span} ms"));
        self.configure(number, Some((service, real)))?;
        self.later.push((self.now + span, Later::Configure(number)));
        Ok(())
    }

    /// Directors do not reach each other; maybe one reaches nobody.
    fn part(&mut self, number: usize, span: u64, rng: &mut Rng) {
        let all = rng.chance(400);
        let first = rng.below(self.places.len() as u64) as usize;
        for other in 0..self.places.len() {
            if other != number && (all || other == first) {
                self.note(|| format!("cut {number} from {other} for {span} ms"));
                self.cut(number, other, true);
                self.later.push((self.now + span, Later::Mend(number, other)));
            }
        }
    }
}
