//! How a worker stands, for whoever asks.

use super::Worker;
use crate::mailbox::Report;
use crate::queue::Queue;

impl<Q: Queue> Worker<Q> {
    /// How things stand.
    pub(super) fn report(&self) -> Report {
        let (table_bytes, table_pages) = self.path.memory();
        Report {
            worker: self.number,
            epoch: self.snapshot.plan.epoch,
            counters: self.path.counters().clone(),
            full: self.path.full_reals().collect(),
            sessions: self.path.live_sessions(),
            session_capacity: self.path.session_capacity(),
            half_open: self.path.half_open_sessions(),
            pressed: self.path.is_pressed(),
            table_bytes,
            table_pages,
            kept: self.path.is_kept(),
            untold: self.path.untold_ends(),
            held: self.held.len(),
            turns: self.tally.turns,
            empty_turns: self.tally.empty_turns,
            sleeps: self.tally.sleeps,
            packets: self.tally.packets,
            bursts: self.tally.bursts,
            stages: self.stages.counts,
            ticks_per_s: self.stages.ticks_per_s(),
            busy_ms: self.tally.busy_us / 1000,
            life_ms: self.tally.life_ms,
        }
    }
}
