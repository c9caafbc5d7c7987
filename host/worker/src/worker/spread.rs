//! Flows of this worker's that others help with: chunks travel in rings, and what comes out of the
//! order leaves by the worker's ports. What is dealt to whom, and in which order it comes back, is
//! [`Spreads`]'s.

use super::{Net, Worker};
use crate::mailbox::Event;
use crate::queue::{Burst, Queue};
use crate::ring::{Rings, Rounds, Sender};
use crate::spread::{Refused, SpreadOrder, SpreadRequest, Spreading};
use sluice_director::dealing::{Chunk, Table, Through};
use sluice_director::fib::PortId;
use sluice_director::path::{FlowName, FlowRewrite, NotSpreadable, Unprobed, View};
use sluice_director::spec::NetworkId;
use sluice_director::{Reason, Time};

impl<Q: Queue> Worker<Q> {
    /// Acts on a request. Whoever asked may have gone.
    pub(super) fn obey_about_spreading(&mut self, now: Time, request: SpreadRequest) {
        match request {
            SpreadRequest::Begin(order, reply) => {
                let _ = reply.send((self.number, self.spread(now, &order)));
            }
            SpreadRequest::End(network, flow, reply) => {
                let _ = reply.send(self.gather_in(network, &flow));
            }
            SpreadRequest::List(reply) => {
                let _ = reply.send((self.number, self.spreading(now)));
            }
            SpreadRequest::Fence(order, reply) => {
                let _ = reply.send(self.fence(&order));
            }
            SpreadRequest::Mark { fence, owner } => self.owe_mark(fence, owner),
            SpreadRequest::TakeDown(fence) => self.take_down(fence),
        }
    }

    /// Spreads a flow from now on.
    ///
    /// # Errors
    /// Why it does not.
    pub fn spread(&mut self, now: Time, order: &SpreadOrder) -> Result<(), Refused> {
        let (workers, before) = ((self.number, self.rings.help.len()), self.spreads.len());
        let mut spreads = std::mem::take(&mut self.spreads);
        let freeze = || self.freeze(now, (order.network, &order.flow));
        let begun = spreads.begin(order, now, workers, freeze);
        self.spreads = spreads;
        if self.spreads.len() > before {
            self.rings.note_spread(true);
        }
        begun
    }

    /// Spreads a flow no more, once what was dealt of it is through. `false` if it is not spread
    /// here.
    pub fn gather_in(&mut self, network: NetworkId, flow: &FlowName) -> bool {
        self.spreads.gather_in(network, flow)
    }

    /// The flows that are spread.
    pub fn spreading(&self, now: Time) -> Vec<Spreading> {
        self.spreads.list(now)
    }

    /// Takes the packets of spread flows out of a burst and deals them. `rounds` is what the last
    /// of the burst have behind them.
    #[cold]
    #[inline(never)]
    pub(super) fn deal(
        &mut self,
        now: Time,
        port: PortId,
        burst: &mut Burst<Q::Frame>,
        rounds: &mut Rounds,
    ) {
        // Who looks at packets sees those that go through the path.
        let watched = self.capture_points.is_some();
        let Net { id: network, path, snapshot, .. } = &mut *self.net;
        let (network, view) = (*network, View { plan: &snapshot.plan, fib: &snapshot.fib });
        let mut table = Table { path, view, network, now, port, watched };
        let late = self.spreads.deal(&mut table, burst, rounds, &mut self.rings);
        self.owes_wakes |= std::mem::take(&mut self.rings.gave);
        self.count(late, Reason::SpreadLate);
    }

    /// Works on what other workers have dealt; gives how many frames that were.
    #[cold]
    #[inline(never)]
    pub(super) fn help(&mut self) -> usize {
        let Rings { help, to, .. } = &mut self.rings;
        let mut frames = 0;
        for (helping, ring) in help.iter_mut().zip(to) {
            let helped = helping.as_mut().map_or(0, |helping| helping.help());
            if helped > 0 {
                ring.iter_mut().for_each(Sender::call);
                self.owes_wakes = true;
            }
            frames += helped;
        }
        frames
    }

    /// Looks whether the flows still are what was frozen, if that may not be so.
    pub(super) fn review_spreads(&mut self, now: Time) {
        if self.spreads.is_review_due(now) {
            for at in 0..self.spreads.len() {
                let Some((network, name)) = self.spreads.name(at) else { break };
                let fresh = self.freeze(now, (network, &name));
                self.spreads.review(at, fresh);
            }
        }
    }

    /// Sends what is done, in the order in which it was dealt; gives how many frames that were.
    #[cold]
    #[inline(never)]
    pub(super) fn collect(&mut self, now: Time) -> usize {
        let mut frames = if self.spreads.fences() > 0 { self.release(now) } else { 0 };
        self.spreads.close(&mut self.rings);
        self.owes_wakes |= std::mem::take(&mut self.rings.gave);
        while let Some(through) = self.spreads.next(&mut self.rings) {
            frames += match through {
                Through::Chunk(network, chunk) => self.send_chunk(network, chunk),
                Through::Owners => self.process_owners(now),
            };
        }
        while let Some(at) = self.spreads.first_through() {
            self.settle(now, at);
        }
        frames
    }

    /// Sends a chunk that is done; gives how many frames it had.
    fn send_chunk(&mut self, network: NetworkId, mut chunk: Box<Chunk<Q::Frame>>) -> usize {
        self.enter_network(network);
        let (frames, port) = (chunk.frames.len(), chunk.rewrite().port());
        let mut dropped = 0;
        if let Some(line) = self.line(port) {
            dropped = chunk.frames.drain(..).map(|frame| line.push(frame)).sum();
        } else {
            chunk.frames.drain(..).for_each(|frame| self.send(port, frame, false));
        }
        self.count(dropped, Reason::TxFull);
        self.count(std::mem::take(&mut chunk.dropped), Reason::Headroom);
        self.spreads.put_back(chunk);
        frames
    }

    /// Runs frames through the path that the order has next, as many as make one burst; gives how
    /// many.
    fn process_owners(&mut self, now: Time) -> usize {
        let (mut burst, mut rounds) = (Burst::new(), Rounds::new());
        let port = self.spreads.take_owners(&mut burst, &mut rounds);
        let frames = burst.len();
        if let Some(port) = port {
            self.enter(port);
            self.process(now, port, (&mut burst, &rounds), &mut Unprobed);
        }
        frames
    }

    /// All of a flow is through: it is frozen anew, or spread no more.
    fn settle(&mut self, now: Time, at: usize) {
        let Some((network, name)) = self.spreads.name(at) else { return };
        let fresh = self.freeze(now, (network, &name));
        let Some((network, name, why)) = self.spreads.settle(at, fresh) else { return };
        self.rings.note_spread(false);
        // Without a control side nobody needs to know.
        if self.events.send(Event::SpreadEnded(network, name, why)).is_ok() {
            self.events_wake.wake();
        }
    }

    /// What a network's flow is now.
    fn freeze(
        &self,
        now: Time,
        (network, name): (NetworkId, &FlowName),
    ) -> Result<FlowRewrite, NotSpreadable> {
        let net = self.nets().find(|net| net.id == network).ok_or(NotSpreadable::NoSession)?;
        let view = View { plan: &net.snapshot.plan, fib: &net.snapshot.fib };
        net.path.freeze(view, now, name)
    }
}
