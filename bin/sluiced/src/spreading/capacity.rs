//! What each worker could process in a second: the packets of the last one, had it been busy for
//! all of it.

use sluice_worker::Report;

/// Milliseconds of work that are too few to tell by.
const LEAST_BUSY_MS: u64 = 50;

/// What each worker had done before, by its number.
#[derive(Debug, Default)]
pub struct Capacities(Vec<Done>);

#[derive(Clone, Copy, Debug, Default)]
struct Done {
    packets: u64,
    busy_ms: u64,
    per_s: u64,
}

impl Capacities {
    /// A window is over.
    pub fn window(&mut self, reports: &[Report]) {
        for report in reports {
            self.note(report.worker.into(), report.packets, report.busy_ms);
        }
    }

    fn note(&mut self, worker: usize, packets: u64, busy_ms: u64) {
        if self.0.len() <= worker {
            self.0.resize(worker + 1, Done::default());
        }
        let done = &mut self.0[worker];
        // A worker that was started anew counts from nothing.
        let (more, busy) =
            (packets.saturating_sub(done.packets), busy_ms.saturating_sub(done.busy_ms));
        let per_s = if busy < LEAST_BUSY_MS { 0 } else { more * 1000 / busy };
        *done = Done { packets, busy_ms, per_s };
    }

    /// Packets a second that a worker can process; 0 while it has too little to do to tell.
    pub fn of(&self, worker: u16) -> u64 {
        self.0.get(usize::from(worker)).map_or(0, |done| done.per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_half_busy_can_do_twice_as_much() {
        let mut capacities = Capacities::default();
        capacities.note(1, 10_000, 1000);
        capacities.note(1, 510_000, 1500);
        assert_eq!([capacities.of(0), capacities.of(1), capacities.of(2)], [0, 1_000_000, 0]);
        // Too little to tell; and one that was started anew.
        capacities.note(1, 511_000, 1549);
        assert_eq!(capacities.of(1), 0);
        capacities.note(1, 100, 10);
        assert_eq!(capacities.of(1), 0);
        capacities.note(1, 200_100, 1010);
        assert_eq!(capacities.of(1), 200_000);
    }
}
