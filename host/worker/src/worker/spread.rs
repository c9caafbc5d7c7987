//! Flows of this worker's that others help with: dealt out in chunks, collected in the same order.
//!
//! The worker that owns a flow's session takes the flow's packets out of its bursts, and deals them
//! to its helpers by turns. It notes whom it gave each chunk to, and takes them back in that order
//! and sends them, so that the order holds by construction. What has to go through the owner's path
//! itself (`Dealt::Owners`) has its place in the same queue.
//!
//! When a flow stops being spread, or its packets may be changed in another way from now on (a new
//! plan, a FIN), none is dealt any more: all wait in the queue until those before them have come
//! through, and then go the ordinary way. So no packet overtakes another there either. Beginning
//! needs nothing: what went before is with the port's queue by then.
//!
//! A helper that is late holds up its owner's spread flows, which share one order, and nothing
//! else. The owner deals to others meanwhile, and rewrites itself what none has room for, until
//! all chunks are under way; what comes then is dropped and counted.

mod dealing;

use super::{Net, Worker};
use crate::chunks::{AHEAD, CHUNK, Chunk};
use crate::mailbox::Event;
use crate::queue::{Burst, Queue};
use crate::ring::{Rings, Rounds, Sender};
use crate::spread::{Ended, MOST, Refused, SpreadOrder, SpreadRequest, Spreading};
use dealing::{Dealing, Next, Stock, Tally, WAITING};
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, Dealt, FlowName, FlowRewrite, NotSpreadable, Unprobed, View};
use sluice_director::spec::NetworkId;
use sluice_director::{Reason, Time};
use std::collections::VecDeque;
use std::sync::Arc;

/// Chunks of a flow that the owner may rewrite itself while others are late.
const OWN: usize = 8;
/// How often it is looked whether the session of a flow without packets is still there.
const LOOK_MS: u64 = 1000;

/// A flow that is spread.
struct Spread<F> {
    network: NetworkId,
    name: FlowName,
    rewrite: Arc<FlowRewrite>,
    /// Whether nothing is dealt until all is through.
    hold: bool,
    /// Why it ends then, if it does.
    over: Option<Ended>,
    pinned: bool,
    since: Time,
    stock: Stock<F>,
}

/// A worker's flows that are spread.
pub(super) struct Spreads<F> {
    flows: Vec<Spread<F>>,
    order: VecDeque<Next<F>>,
    /// Frames for the owner's path in the order.
    waiting: usize,
    /// Whether plan or routes are new.
    renewed: bool,
    looked: Time,
    last_id: u32,
    /// Packets dealt of flows that are spread no more.
    dealt_before: u64,
}

impl<F> Default for Spreads<F> {
    fn default() -> Self {
        Self {
            flows: Vec::new(),
            order: VecDeque::new(),
            waiting: 0,
            renewed: false,
            looked: Time::default(),
            last_id: 0,
            dealt_before: 0,
        }
    }
}

impl<F> Spreads<F> {
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// How many flows are spread, and how many packets were dealt since the start.
    pub fn counted(&self) -> (usize, u64) {
        let now: u64 = self.flows.iter().map(|flow| flow.stock.tally.dealt).sum();
        (self.flows.len(), self.dealt_before + now)
    }

    /// Plan or routes are new.
    pub const fn renew(&mut self) {
        self.renewed = true;
    }

    fn find(&mut self, network: NetworkId, name: &FlowName) -> Option<&mut Spread<F>> {
        self.flows.iter_mut().find(|flow| flow.network == network && flow.name == *name)
    }
}

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
        }
    }

    /// Spreads a flow from now on.
    ///
    /// # Errors
    /// Why it does not.
    pub fn spread(&mut self, now: Time, order: &SpreadOrder) -> Result<(), Refused> {
        let SpreadOrder { network, flow, workers, pinned } = *order;
        let others = self.rings.help.len();
        if others < 2 {
            return Err(Refused::OneWorker);
        }
        if let Some(known) = self.spreads.find(network, &flow) {
            if known.over.is_some() || known.pinned || !pinned {
                return Err(Refused::Already);
            }
            known.pinned = true;
            return Ok(());
        }
        let Some(net) = self.nets().find(|net| net.id == network) else {
            return Err(Refused::Flow(NotSpreadable::NoSession));
        };
        let rewrite = freeze(net, now, &flow).map_err(Refused::Flow)?;
        if self.spreads.flows.len() >= MOST {
            return Err(Refused::TooMany);
        }
        let most = if workers == 0 { others } else { usize::from(workers).clamp(2, others) };
        let own = usize::from(self.number);
        let helpers: Vec<u16> = (1..most).map(|step| ((own + step) % others) as u16).collect();
        let (id, rewrite) = (self.spreads.last_id.wrapping_add(1), Arc::new(rewrite));
        self.spreads.last_id = id;
        let chunk = || {
            let (rewrite, frames) = (Arc::clone(&rewrite), Default::default());
            Box::new(Chunk { flow: id, rewrite, frames, dropped: 0 })
        };
        let idle: Vec<_> = (0..helpers.len() * AHEAD + OWN).map(|_| chunk()).collect();
        self.spreads.order.reserve(WAITING + MOST * (others * AHEAD + OWN));
        let stock =
            Stock { id, helpers, turn: 0, idle, open: None, under_way: 0, tally: Tally::default() };
        let (hold, over) = (false, None);
        let spread = Spread { network, name: flow, rewrite, hold, over, pinned, since: now, stock };
        self.spreads.flows.push(spread);
        self.rings.note_spread(true);
        Ok(())
    }

    /// Spreads a flow no more, once what was dealt of it is through. `false` if it is not spread
    /// here.
    pub fn gather_in(&mut self, network: NetworkId, flow: &FlowName) -> bool {
        let Some(spread) = self.spreads.find(network, flow) else { return false };
        (spread.hold, spread.over) = (true, spread.over.or(Some(Ended::Asked)));
        true
    }

    /// The flows that are spread.
    pub fn spreading(&self, now: Time) -> Vec<Spreading> {
        let flows = self.spreads.flows.iter();
        let spreading = flows.map(|flow| Spreading {
            network: flow.network,
            flow: flow.name,
            helpers: flow.stock.helpers.clone(),
            pinned: flow.pinned,
            age_ms: now.0.saturating_sub(flow.since.0),
            dealt: flow.stock.tally.dealt,
            own: flow.stock.tally.own,
            kept: flow.stock.tally.kept,
            late: flow.stock.tally.late,
        });
        spreading.collect()
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
        let mut late = 0;
        for at in 0..self.spreads.flows.len() {
            if !burst.is_empty() && self.spreads.flows[at].network == self.net.id {
                late += self.deal_flow(now, port, at, (burst, rounds));
            }
        }
        self.count(late, Reason::SpreadLate);
    }

    /// The same for one of them; gives how many had to be dropped.
    fn deal_flow(
        &mut self,
        now: Time,
        port: PortId,
        at: usize,
        (burst, rounds): (&mut Burst<Q::Frame>, &mut Rounds),
    ) -> usize {
        // Who looks at packets sees those that go through the path.
        let watched = self.capture_points.is_some();
        let Self { net, spreads, rings, owes_wakes, .. } = self;
        let Spreads { flows, order, waiting, .. } = spreads;
        let Spread { rewrite, hold, stock, .. } = &mut flows[at];
        let (own, before) = (burst.len() - rounds.len(), stock.tally.dealt);
        let mut taken = [false; BURST];
        let mut dealing = Dealing { stock, order, waiting, rings, late: 0 };
        let view = View { plan: &net.snapshot.plan, fib: &net.snapshot.fib };
        let give = |dealt, at: usize, frame| {
            let handed = at.checked_sub(own).filter(|at| *at < rounds.len());
            handed.into_iter().for_each(|at| taken[at] = true);
            match dealt {
                Dealt::Plain => dealing.plain(frame),
                Dealt::Owners => dealing.owners(port, handed.map(|at| rounds[at]), frame),
            }
        };
        let ends = net.path.deal(view, now, port, (rewrite, *hold || watched), burst, give);
        dealing.close_for_idle();
        let Dealing { stock, late, .. } = dealing;
        stock.tally.late += late as u64;
        *hold |= ends;
        *owes_wakes |= stock.tally.dealt != before;
        let mut at = 0;
        rounds.retain(|_| {
            at += 1;
            !taken[at - 1]
        });
        late
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
        let due = now.0.saturating_sub(self.spreads.looked.0) >= LOOK_MS;
        if std::mem::take(&mut self.spreads.renewed) || due {
            self.spreads.looked = now;
            for at in 0..self.spreads.flows.len() {
                let flow = &self.spreads.flows[at];
                let net = self.nets().find(|net| net.id == flow.network);
                let is = net
                    .is_some_and(|net| freeze(net, now, &flow.name).as_ref() == Ok(&flow.rewrite));
                self.spreads.flows[at].hold |= !is;
            }
        }
    }

    /// Sends what is done, in the order in which it was dealt; gives how many frames that were.
    #[cold]
    #[inline(never)]
    pub(super) fn collect(&mut self, now: Time) -> usize {
        let mut frames = 0;
        (0..self.spreads.flows.len()).for_each(|at| self.close_open(at));
        while let Some(next) = self.spreads.order.front() {
            let chunk = match next {
                Next::Helper(helper) => {
                    let helping = self.rings.help[usize::from(*helper)].as_mut();
                    let Some(chunk) = helping.and_then(|helping| helping.collect()) else { break };
                    self.spreads.order.pop_front();
                    chunk
                }
                Next::Owners { .. } => {
                    frames += self.process_owners(now);
                    continue;
                }
                Next::Done(_) => match self.spreads.order.pop_front() {
                    Some(Next::Done(chunk)) => chunk,
                    _ => break,
                },
            };
            frames += chunk.frames.len();
            self.send_chunk(chunk);
        }
        for at in (0..self.spreads.flows.len()).rev() {
            let flow = &self.spreads.flows[at];
            if flow.hold && flow.stock.is_through() {
                self.settle(now, at);
            }
        }
        frames
    }

    /// Deals a chunk that waits to be filled, if it has to wait no more.
    fn close_open(&mut self, at: usize) {
        let Self { spreads: Spreads { flows, order, waiting, .. }, rings, owes_wakes, .. } = self;
        let Spread { hold, stock, .. } = &mut flows[at];
        let before = stock.tally.dealt;
        let mut dealing = Dealing { stock, order, waiting, rings, late: 0 };
        match hold {
            true => dealing.close(),
            false => dealing.close_for_idle(),
        }
        *owes_wakes |= dealing.stock.tally.dealt != before;
    }

    /// Sends a chunk that is done.
    fn send_chunk(&mut self, mut chunk: Box<Chunk<Q::Frame>>) {
        let flow = self.spreads.flows.iter_mut().find(|flow| flow.stock.id == chunk.flow);
        let Some(network) = flow.map(|flow| (flow.stock.under_way -= 1, flow.network).1) else {
            return;
        };
        self.enter_network(network);
        let port = chunk.rewrite.port();
        let mut dropped = 0;
        if let Some(line) = self.line(port) {
            dropped = chunk.frames.drain(..).map(|frame| line.push(frame)).sum();
        } else {
            chunk.frames.drain(..).for_each(|frame| self.send(port, frame, false));
        }
        self.count(dropped, Reason::TxFull);
        self.count(std::mem::take(&mut chunk.dropped), Reason::Headroom);
        let flow = self.spreads.flows.iter_mut().find(|flow| flow.stock.id == chunk.flow);
        if let Some(flow) = flow {
            flow.stock.idle.push(chunk);
        }
    }

    /// Runs frames through the path that the order has next, as many as make one burst; gives how
    /// many.
    fn process_owners(&mut self, now: Time) -> usize {
        let (mut burst, mut rounds, mut alike) = (Burst::new(), Rounds::new(), None);
        while let Some(Next::Owners { port, round, .. }) = self.spreads.order.front() {
            let of = (*port, round.is_some());
            if burst.is_full() || alike.is_some_and(|before| before != of) {
                break;
            }
            alike = Some(of);
            let next = self.spreads.order.pop_front();
            let Some(Next::Owners { flow, round, frame, .. }) = next else { break };
            let flow = self.spreads.flows.iter_mut().find(|known| known.stock.id == flow);
            flow.into_iter().for_each(|flow| flow.stock.under_way -= 1);
            burst.push(frame);
            rounds.extend(round);
        }
        let frames = burst.len();
        self.spreads.waiting -= frames;
        if let Some((port, _)) = alike {
            self.enter(port);
            self.process(now, port, (&mut burst, &rounds), &mut Unprobed);
        }
        frames
    }

    /// All of a flow is through: it is frozen anew, or spread no more.
    fn settle(&mut self, now: Time, at: usize) {
        let flow = &self.spreads.flows[at];
        let net = self.nets().find(|net| net.id == flow.network);
        let fresh = net.map_or(Err(NotSpreadable::NoSession), |net| freeze(net, now, &flow.name));
        let over = flow.over.or(fresh.as_ref().err().map(|why| Ended::Flow(*why)));
        if let (None, Ok(fresh)) = (over, fresh) {
            let flow = &mut self.spreads.flows[at];
            flow.hold = false;
            if *flow.rewrite == fresh {
                return;
            }
            flow.rewrite = Arc::new(fresh);
            let rewrite = &flow.rewrite;
            flow.stock.idle.iter_mut().for_each(|chunk| chunk.rewrite = Arc::clone(rewrite));
            return;
        }
        let flow = self.spreads.flows.swap_remove(at);
        self.spreads.dealt_before += flow.stock.tally.dealt;
        self.rings.note_spread(false);
        let why = over.unwrap_or(Ended::Asked);
        // Without a control side nobody needs to know.
        if self.events.send(Event::SpreadEnded(flow.network, flow.name, why)).is_ok() {
            self.events_wake.wake();
        }
    }
}

/// What a network's flow is now.
fn freeze<F>(net: &Net<F>, now: Time, name: &FlowName) -> Result<FlowRewrite, NotSpreadable> {
    let view = View { plan: &net.snapshot.plan, fib: &net.snapshot.fib };
    net.path.freeze(view, now, name)
}

const _: () = assert!(CHUNK <= BURST);
