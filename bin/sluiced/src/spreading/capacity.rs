//! What each worker could process in a second: the packets of the last one, had it been busy for
//! all of it. And for how much of that second it was.

use sluice_meter::Work;
use sluice_worker::Report;

/// Milliseconds of work that are too few to tell by.
const LEAST_BUSY_MS: u64 = 50;

/// What each worker had done before, by its number.
#[derive(Debug, Default)]
pub struct Capacities(Vec<Done>);

#[derive(Clone, Copy, Debug, Default)]
struct Done {
    packets: u64,
    work: Work,
    per_s: u64,
    busy_share: f64,
}

impl Capacities {
    /// A window is over.
    pub fn window(&mut self, reports: &[Report]) {
        for report in reports {
            let (busy_ms, life_ms) = (report.busy_ms, report.life_ms);
            self.note(report.worker.into(), report.packets, Work { busy_ms, life_ms });
        }
    }

    fn note(&mut self, worker: usize, packets: u64, work: Work) {
        if self.0.len() <= worker {
            self.0.resize(worker + 1, Done::default());
        }
        let done = &mut self.0[worker];
        // A worker that was started anew counts from nothing.
        let more = packets.saturating_sub(done.packets);
        let busy_ms = work.busy_ms.saturating_sub(done.work.busy_ms);
        let per_s = if busy_ms < LEAST_BUSY_MS { 0 } else { more * 1000 / busy_ms };
        *done = Done { packets, work, per_s, busy_share: work.share_since(done.work) };
    }

    /// Packets a second that a worker can process; 0 while it has too little to do to tell.
    pub fn of(&self, worker: u16) -> u64 {
        self.0.get(usize::from(worker)).map_or(0, |done| done.per_s)
    }

    /// The share of the last second that a worker was busy, 0 to 1.
    pub fn busy_share(&self, worker: u16) -> f64 {
        self.0.get(usize::from(worker)).map_or(0.0, |done| done.busy_share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_half_busy_can_do_twice_as_much() {
        let mut capacities = Capacities::default();
        let work = |busy_ms, life_ms| Work { busy_ms, life_ms };
        capacities.note(1, 10_000, work(1000, 2000));
        capacities.note(1, 510_000, work(1500, 3000));
        assert_eq!([capacities.of(0), capacities.of(1), capacities.of(2)], [0, 1_000_000, 0]);
        assert_eq!([0, 1, 2].map(|worker| capacities.busy_share(worker)), [0.0, 0.5, 0.0]);
        // Too little to tell; and one that was started anew.
        capacities.note(1, 511_000, work(1549, 4000));
        assert_eq!(capacities.of(1), 0);
        assert_eq!(capacities.busy_share(1), 0.049);
        capacities.note(1, 100, work(10, 100));
        assert_eq!((capacities.of(1), capacities.busy_share(1)), (0, 0.0));
        capacities.note(1, 200_100, work(1010, 1100));
        assert_eq!((capacities.of(1), capacities.busy_share(1)), (200_000, 1.0));
    }
}
