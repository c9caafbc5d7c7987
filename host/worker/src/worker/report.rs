//! How a worker stands, for whoever asks.

use super::{Net, Worker};
use crate::mailbox::Report;
use crate::queue::Queue;

impl<Q: Queue> Worker<Q> {
    /// How things stand.
    pub(super) fn report(&self) -> Report {
        let default = &self.net.path;
        let (spread_flows, spread_packets) = (self.spreads.len(), self.spreads.dealt());
        let mut report = Report {
            spread_flows,
            spread_packets,
            worker: self.number,
            epoch: self.net.snapshot.plan.epoch,
            networks: self.network_reports(),
            tunnels: self.carried(),
            table_pages: default.memory().1,
            kept: default.is_kept(),
            turns: self.tally.turns,
            empty_turns: self.tally.empty_turns,
            sleeps: self.tally.sleeps,
            packets: self.tally.packets,
            bursts: self.tally.bursts,
            stages: self.stages.counts,
            ticks_per_s: self.stages.ticks_per_s(),
            busy_ms: self.tally.busy_us / 1000,
            life_ms: self.tally.life_ms,
            untaken: self.untaken(),
            ..Report::default()
        };
        self.nets().for_each(|net| add(&mut report, net));
        report
    }
}

/// Adds what a network has.
fn add<F>(report: &mut Report, net: &Net<F>) {
    let path = &net.path;
    report.counters.add(path.counters());
    report.full.extend(path.full_reals());
    report.untold += path.untold_ends();
    report.sessions += path.live_sessions();
    report.session_capacity = report.session_capacity.saturating_add(path.session_capacity());
    report.half_open += path.half_open_sessions();
    report.pressed |= path.is_pressed();
    report.table_bytes += path.memory().0;
    report.held += net.held.len();
}
