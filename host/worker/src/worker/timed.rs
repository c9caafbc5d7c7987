//! A burst whose stages are timed, and a sweep.

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
        if came > 0 && self.tunnels.is_underlay(of) {
            self.take_tunnelled(now, of, &mut burst);
        }
        let others = self.has_others;
        let (mut rounds, mut joined) = (Rounds::new(), 0);
        if others {
            joined = self.gather(now, of, (&mut burst, &mut rounds), &mut watch);
        }
        if !burst.is_empty() {
            watch.counts.packets = burst.len() as u64;
            self.process(now, of, (&mut burst, &rounds), &mut watch);
            self.flush_lines();
            watch.mark(Stage::Send);
        }
        if others {
            self.flush_rings();
            watch.mark(Stage::HandOff);
        }
        if came + joined > 0 {
            self.stages.add(&watch);
        }
        came + joined
    }

    /// Ends sessions as otherwise.
    #[cold]
    #[inline(never)]
    pub(super) fn sweep_timed(&mut self, now: Time, mut watch: Watch) {
        watch.counts.bursts = 0;
        self.sweep_all(now);
        watch.mark(Stage::Expire);
        self.stages.add(&watch);
    }
}
