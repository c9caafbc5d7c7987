//! Frames among workers: what others have handed over, and what is to be handed to them before
//! anything else is done with it.
//!
//! Frames from other workers join the next burst of the port that they came by, since a burst costs
//! much that does not depend on how many frames it has. While bursts are full they wait in their
//! ring, for a few turns at most. Frames of one flow keep their order.

use super::Worker;
use crate::queue::{Burst, Queue};
use crate::ring::{Handoff, HandoffMessage, Rounds};
use arrayvec::ArrayVec;
use sluice_director::fib::PortId;
use sluice_director::path::{Marked, Probe, Stage, Unprobed};
use sluice_director::{Reason, Time};

/// Bursts that are not searched for misdirected packets after one that was searched for nothing.
const REST: u8 = 32;

/// Whether bursts of a port are searched for misdirected packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    on: bool,
    rest: u8,
}

impl Search {
    /// One was found without.
    pub fn found_one(&mut self) {
        self.on = self.rest == 0;
    }

    /// Whether a burst is to be searched.
    const fn begin(&mut self) -> bool {
        self.rest = self.rest.saturating_sub(1);
        self.on
    }

    const fn end(&mut self, found: usize) {
        if found == 0 {
            *self = Self { on: false, rest: REST };
        }
    }
}

impl<Q: Queue> Worker<Q> {
    /// Notes which workers have handed something over.
    pub(super) fn note_senders(&mut self) {
        self.senders.clear();
        let rings = self.rings.from.iter().enumerate();
        let sending = rings.filter(|(_, ring)| ring.as_ref().is_some_and(|ring| !ring.is_empty()));
        self.senders.extend(sending.map(|(sender, _)| sender));
    }

    /// Takes out of a burst that a port received what is another worker's, adds what others have
    /// handed over of the port, and deals what is of spread flows. `rounds` is empty, and gets what
    /// the handed ones have behind them: it is the caller's, since what was just written in pieces
    /// takes long to copy as a whole. Gives how many were added.
    pub(super) fn gather<T: Probe>(
        &mut self,
        now: Time,
        port: PortId,
        (burst, rounds): (&mut Burst<Q::Frame>, &mut Rounds),
        probe: &mut T,
    ) -> usize {
        let Self { net, ports, rings, capture_points, senders, owes_wakes, .. } = self;
        let search = &mut ports[usize::from(port.0)].search;
        let mut dropped = 0;
        if !burst.is_empty() && search.begin() && capture_points.is_none() {
            let give = |workers: &[u16], round, frames: &mut Marked<'_, Q::Frame>| {
                let handoff = Handoff::Process(round);
                let messages = frames.map(|frame| HandoffMessage::of(frame, port, handoff));
                dropped = rings.hand_over_all(workers, messages);
            };
            let found = net.path.take_misdirected(&net.snapshot.plan, burst, give, probe);
            search.end(found);
            *owes_wakes |= found > 0;
        }
        for sender in senders {
            if let Some(ring) = &mut rings.from[*sender] {
                ring.join(port, burst, rounds);
            }
        }
        self.count(dropped, Reason::HandOffFull);
        let joined = rounds.len();
        probe.mark(Stage::Join);
        if !self.spreads.is_idle() {
            self.deal(now, port, burst, rounds);
        }
        joined
    }

    /// Serves those senders whose frames have no burst to join here, or have waited for one long
    /// enough.
    pub(super) fn serve_senders(&mut self, now: Time) -> usize {
        let mut came = 0;
        for at in 0..self.senders.len() {
            let sender = self.senders[at];
            let Some(ring) = &mut self.rings.from[sender] else { continue };
            let ports = &self.ports;
            let has_line = |port: PortId| {
                ports.get(usize::from(port.0)).is_some_and(|home| !home.lines.is_empty())
            };
            if !ring.may_wait(has_line) {
                came += self.serve_worker(now, sender);
            }
        }
        came
    }

    /// Takes what another worker handed over, a burst at most, and makes bursts of it.
    fn serve_worker(&mut self, now: Time, sender: usize) -> usize {
        let Some(ring) = &mut self.rings.from[sender] else { return 0 };
        let mut messages = ArrayVec::new();
        ring.take(&mut messages);
        let came = messages.len();
        let mut port = None;
        let (mut burst, mut rounds) = (Burst::new(), Rounds::new());
        for HandoffMessage { frame, port: from, handoff } in messages {
            let Some(frame) = frame else {
                self.take_mark(handoff, sender);
                continue;
            };
            match handoff {
                Handoff::Process(round) => {
                    if let Some(before) = port.filter(|before| *before != from) {
                        self.process_handed(now, before, &mut burst, &mut rounds);
                    }
                    port = Some(from);
                    burst.push(frame);
                    rounds.push(round);
                }
                Handoff::Send => {
                    self.enter(from);
                    self.send(from, frame, true);
                }
                Handoff::Cut(mtu) => {
                    self.enter(from);
                    self.send_cut(from, &frame, mtu);
                }
                Handoff::Kernel => {
                    self.enter(from);
                    self.pass_to_kernel(now, from, frame, true);
                }
                // It has no frame.
                Handoff::Mark(_) => drop(frame),
            }
        }
        if let Some(port) = port {
            self.process_handed(now, port, &mut burst, &mut rounds);
        }
        came
    }

    /// Runs a burst of handed frames alone through the path.
    pub(super) fn process_handed(
        &mut self,
        now: Time,
        port: PortId,
        burst: &mut Burst<Q::Frame>,
        rounds: &mut Rounds,
    ) {
        self.enter(port);
        if !self.spreads.is_idle() {
            self.deal(now, port, burst, rounds);
        }
        if !burst.is_empty() {
            self.process(now, port, (burst, rounds), &mut Unprobed);
        }
        rounds.clear();
    }
}
