//! Flows that a director of a cluster spreads. Its helpers are done at once: what is tried here is
//! what becomes of spread flows whose sessions come from other directors, go to them, and end
//! there.

use crate::frame::Buffer;
use arrayvec::ArrayVec;
use sluice_director::Time;
use sluice_director::counters::Direction;
use sluice_director::dealing::{Chunk, ChunkExchange, SpreadOrder, Spreads, Table, Through};
use sluice_director::fib::PortId;
use sluice_director::path::{FlowName, Path, Round, View};
use sluice_director::spec::NetworkId;
use std::collections::VecDeque;

/// Workers that a flow is spread over.
const WORKERS: u16 = 3;

/// Chunks that helpers are done with.
#[derive(Default)]
struct Done(VecDeque<Box<Chunk<Buffer>>>);

impl ChunkExchange<Buffer> for Done {
    fn out(&self, _: u16) -> usize {
        self.0.len()
    }

    fn give(&mut self, _: u16, mut chunk: Box<Chunk<Buffer>>) -> Result<(), Box<Chunk<Buffer>>> {
        chunk.work();
        self.0.push_back(chunk);
        Ok(())
    }

    fn collect(&mut self, _: u16) -> Option<Box<Chunk<Buffer>>> {
        self.0.pop_front()
    }
}

/// A worker's flows that are spread.
#[derive(Default)]
pub(super) struct SpreadFlows {
    spreads: Spreads<Buffer>,
    done: Done,
    /// Packets that helpers rewrote.
    pub dealt: u64,
}

/// What became of a frame.
pub(super) enum Dealt {
    /// It leaves by a port.
    Leaves(PortId, Buffer),
    /// It goes through the worker's path.
    Stays(Buffer),
}

impl SpreadFlows {
    /// The plan is new.
    pub const fn renew(&mut self) {
        self.spreads.renew();
    }

    /// Spreads a direction of a client's session, if that is possible.
    pub fn begin(
        &mut self,
        (path, view): (&Path, View<'_>),
        now: Time,
        (mut flow, inbound): (FlowName, bool),
    ) {
        flow.direction = if inbound { Direction::Inbound } else { Direction::Outbound };
        let network = NetworkId::DEFAULT;
        let order = SpreadOrder { network, flow, workers: 0, pinned: false };
        // It may be spread, or there may be too many: then nothing changes.
        let _ = self
            .spreads
            .begin(&order, now, (0, usize::from(WORKERS)), || path.freeze(view, now, &flow));
    }

    /// Deals a frame, if it is of a spread flow, and collects it.
    pub fn pass(
        &mut self,
        (path, view): (&mut Path, View<'_>),
        (now, port): (Time, PortId),
        (frame, rounds): (Buffer, &[Round]),
    ) -> Result<Dealt, String> {
        if self.spreads.is_empty() {
            return Ok(Dealt::Stays(frame));
        }
        if self.spreads.is_review_due(now) {
            for at in 0..self.spreads.len() {
                let Some((_, name)) = self.spreads.name(at) else { break };
                self.spreads.review(at, path.freeze(view, now, &name));
            }
        }
        let (mut burst, mut given) = (ArrayVec::new(), ArrayVec::new());
        burst.push(frame);
        given.extend(rounds.iter().copied());
        let network = NetworkId::DEFAULT;
        let mut table = Table { path, view, network, now, port, watched: false };
        let late = self.spreads.deal(&mut table, &mut burst, &mut given, &mut self.done);
        self.spreads.close(&mut self.done);
        let mut out = burst.pop().map(Dealt::Stays);
        while let Some(through) = self.spreads.next(&mut self.done) {
            let before = match through {
                Through::Chunk(_, mut chunk) => {
                    let (port, frame) = (chunk.rewrite().port(), chunk.frames.pop());
                    self.spreads.put_back(chunk);
                    self.dealt += 1;
                    out.replace(Dealt::Leaves(port, frame.ok_or("an empty chunk")?))
                }
                Through::Owners => {
                    let (mut burst, mut rounds) = (ArrayVec::new(), ArrayVec::new());
                    self.spreads.take_owners(&mut burst, &mut rounds);
                    out.replace(Dealt::Stays(burst.pop().ok_or("no frame waits")?))
                }
            };
            if before.is_some() {
                return Err("two frames came out for one".into());
            }
        }
        while let Some(at) = self.spreads.first_through() {
            let Some((_, name)) = self.spreads.name(at) else { break };
            self.spreads.settle(at, path.freeze(view, now, &name));
        }
        out.ok_or_else(|| format!("a frame was lost, and {late} counted"))
    }
}
