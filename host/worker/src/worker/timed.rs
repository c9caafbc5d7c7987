//! A burst whose stages are timed.

use super::Worker;
use crate::queue::{Burst, Queue};
use crate::ring::Rounds;
use crate::stages::Watch;
use sluice_director::Time;
use sluice_director::fib::PortId;
use sluice_director::path::{Probe, Stage};

impl<Q: Queue> Worker<Q> {
    /// Serves a port's queue as others are served, and sends at once, so that sending is timed too.
    #[cold]
    #[inline(never)]
    pub(super) fn serve_line_timed(
        &mut self,
        now: Time,
        (port, queue): (usize, usize),
        mut watch: Watch,
    ) -> usize {
        let mut burst = Burst::new();
        let came = self.ports[port].lines[queue].queue.receive(&mut burst);
        watch.mark(Stage::Receive);
        self.tally.bursts += u64::from(came > 0);
        let of = PortId(port as u16);
        let rounds = if self.has_others { self.gather(of, &mut burst) } else { Rounds::new() };
        if !burst.is_empty() {
            watch.counts.packets = burst.len() as u64;
            self.process(now, of, (&mut burst, &rounds), &mut watch);
            self.flush();
            watch.mark(Stage::Send);
            self.stages.add(&watch);
        }
        came + rounds.len()
    }
}
