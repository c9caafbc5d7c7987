//! Flows that a worker spreads: dealt out in chunks, collected in the same order.
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
//!
//! How chunks get to helpers and back is somebody else's ([`ChunkExchange`]): rings between
//! threads, or queues of a simulation.

mod chunk;
mod fence;
mod stock;
mod told;

pub use chunk::{AHEAD, CHUNK, Chunk};
pub use fence::{FenceOrder, Held, LONGEST_HELD_MS, MOST_HELD, Way};
pub use told::{Ended, MOST, Refused, SpreadOrder, Spreading};

use crate::fib::PortId;
use crate::frame::Frame;
use crate::path::{BURST, Dealt, FlowName, FlowRewrite, NotSpreadable, Path, Round, View};
use crate::spec::NetworkId;
use crate::time::Time;
use arrayvec::ArrayVec;
use fence::Fence;
use std::collections::VecDeque;
use std::sync::Arc;
use stock::{Dealing, Next, Stock, Tally, WAITING};

/// Chunks of a flow that the owner may rewrite itself while others are late.
const OWN: usize = 8;
/// How often it is looked whether the session of a flow without packets is still there.
const LOOK_MS: u64 = 1000;

/// The ways between a flow's owner and its helpers. A helper gives chunks back in the order in
/// which it got them, so the owner, who knows whom it gave each to, needs no numbers to put them in
/// order again.
pub trait ChunkExchange<F> {
    /// How many of the owner's chunks a helper has.
    fn out(&self, helper: u16) -> usize;

    /// Gives a helper a chunk to work on.
    ///
    /// # Errors
    /// The chunk, if the helper has [`AHEAD`].
    fn give(&mut self, helper: u16, chunk: Box<Chunk<F>>) -> Result<(), Box<Chunk<F>>>;

    /// The first of the owner's chunks that a helper is done with.
    fn collect(&mut self, helper: u16) -> Option<Box<Chunk<F>>>;

    /// A frame that any worker may rewrite was tracked and counted, and has its place in the order.
    #[inline(always)]
    fn dealt(&mut self, frame: &mut F) {
        let _ = frame;
    }

    /// A frame that there is no room for, or that has lost its turn behind a fence. What is plain
    /// has been tracked by then.
    fn late(&mut self, frame: F, dealt: Dealt) {
        drop((frame, dealt));
    }
}

/// Where and when a burst is dealt.
pub struct Table<'a> {
    /// The owner's path in the network that the burst is of.
    pub path: &'a mut Path,
    /// What that network runs with.
    pub view: View<'a>,
    /// Which it is.
    pub network: NetworkId,
    /// The time.
    pub now: Time,
    /// The port that the burst came by.
    pub port: PortId,
    /// Whether somebody looks at packets, who sees those that go through the path.
    pub watched: bool,
}

/// What comes out of the order next.
pub enum Through<F> {
    /// A chunk that is done, of a flow of this network: its frames leave by the port of its
    /// rewrite. The empty box goes [back](Spreads::put_back).
    Chunk(NetworkId, Box<Chunk<F>>),
    /// Frames for the owner's path: [`Spreads::take_owners`].
    Owners,
}

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
    /// Whether some of its packets went through more than one worker on their way here.
    goes_round: bool,
    stock: Stock<F>,
}

/// A worker's flows that are spread.
pub struct Spreads<F> {
    /// Whether there is neither a flow nor a fence.
    idle: bool,
    flows: Vec<Spread<F>>,
    fences: Vec<Fence<F>>,
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
            idle: true,
            flows: Vec::new(),
            fences: Vec::new(),
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
    /// Whether no flow is spread and none has a fence.
    #[inline(always)]
    pub const fn is_idle(&self) -> bool {
        self.idle
    }

    const fn note_whether_idle(&mut self) {
        self.idle = self.flows.is_empty() && self.fences.is_empty();
    }

    /// Whether none is spread.
    pub const fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// How many flows are spread.
    pub const fn len(&self) -> usize {
        self.flows.len()
    }

    /// How many packets were dealt since the start.
    pub fn dealt(&self) -> u64 {
        let now: u64 = self.flows.iter().map(|flow| flow.stock.tally.dealt).sum();
        self.dealt_before + now
    }

    /// Plan or routes are new.
    pub const fn renew(&mut self) {
        self.renewed = true;
    }

    fn find(&mut self, network: NetworkId, name: &FlowName) -> Option<&mut Spread<F>> {
        self.flows.iter_mut().find(|flow| flow.network == network && flow.name == *name)
    }

    /// Spreads a flow from now on, by worker `own` of `workers`.
    ///
    /// # Errors
    /// Why it does not.
    pub fn begin(
        &mut self,
        order: &SpreadOrder,
        now: Time,
        (own, others): (u16, usize),
        freeze: impl FnOnce() -> Result<FlowRewrite, NotSpreadable>,
    ) -> Result<(), Refused> {
        let SpreadOrder { network, flow, workers, pinned } = *order;
        if others < 2 {
            return Err(Refused::OneWorker);
        }
        if let Some(known) = self.find(network, &flow) {
            if known.over.is_some() || known.pinned || !pinned {
                return Err(Refused::Already);
            }
            known.pinned = true;
            return Ok(());
        }
        let rewrite = Arc::new(freeze().map_err(Refused::Flow)?);
        if self.flows.len() >= MOST {
            return Err(Refused::TooMany);
        }
        let most = if workers == 0 { others } else { usize::from(workers).clamp(2, others) };
        let helpers: Vec<u16> =
            (1..most).map(|step| ((usize::from(own) + step) % others) as u16).collect();
        let id = self.last_id.wrapping_add(1);
        self.last_id = id;
        let chunk = || {
            let (rewrite, frames) = (Arc::clone(&rewrite), Default::default());
            Box::new(Chunk { flow: id, rewrite, frames, dropped: 0 })
        };
        let idle: Vec<_> = (0..helpers.len() * AHEAD + OWN).map(|_| chunk()).collect();
        self.order.reserve(WAITING + MOST * (others * AHEAD + OWN));
        let stock =
            Stock { id, helpers, turn: 0, idle, open: None, under_way: 0, tally: Tally::default() };
        let (hold, over) = (false, None);
        let (name, since, goes_round) = (flow, now, false);
        self.flows.push(Spread {
            network,
            name,
            rewrite,
            hold,
            over,
            pinned,
            since,
            goes_round,
            stock,
        });
        self.note_whether_idle();
        Ok(())
    }

    /// Spreads a flow no more, once what was dealt of it is through. `false` if it is not spread
    /// here.
    pub fn gather_in(&mut self, network: NetworkId, flow: &FlowName) -> bool {
        let Some(spread) = self.find(network, flow) else { return false };
        (spread.hold, spread.over) = (true, spread.over.or(Some(Ended::Asked)));
        true
    }

    /// The flows that are spread.
    pub fn list(&self, now: Time) -> Vec<Spreading> {
        let spreading = self.flows.iter().map(|flow| Spreading {
            network: flow.network,
            flow: flow.name,
            from: flow.rewrite.received().0,
            to: flow.rewrite.received().1,
            helpers: flow.stock.helpers.clone(),
            pinned: flow.pinned,
            age_ms: now.0.saturating_sub(flow.since.0),
            dealt: flow.stock.tally.dealt,
            own: flow.stock.tally.own,
            kept: flow.stock.tally.kept,
            late: flow.stock.tally.late,
            goes_round: flow.goes_round,
        });
        spreading.collect()
    }

    /// The network and the name of one of them.
    pub fn name(&self, at: usize) -> Option<(NetworkId, FlowName)> {
        self.flows.get(at).map(|flow| (flow.network, flow.name))
    }

    /// Whether it is to be looked whether flows still are what was frozen: each is then
    /// [reviewed](Self::review).
    pub fn is_review_due(&mut self, now: Time) -> bool {
        let due = now.0.saturating_sub(self.looked.0) >= LOOK_MS;
        let due = std::mem::take(&mut self.renewed) || due;
        if due {
            self.looked = now;
        }
        due
    }

    /// Says what one of them would be frozen as now. If that is not what it is, nothing is dealt.
    pub fn review(&mut self, at: usize, fresh: Result<FlowRewrite, NotSpreadable>) {
        let flow = &mut self.flows[at];
        flow.hold |= fresh.as_ref() != Ok(&*flow.rewrite);
    }

    /// The next that all is through of, and that nothing is dealt of until it is
    /// [settled](Self::settle).
    pub fn first_through(&self) -> Option<usize> {
        self.flows.iter().position(|flow| flow.hold && flow.stock.is_through())
    }

    /// All of a flow is through, and this is what it would be frozen as now: it is frozen anew, or
    /// spread no more, for this reason.
    pub fn settle(
        &mut self,
        at: usize,
        fresh: Result<FlowRewrite, NotSpreadable>,
    ) -> Option<(NetworkId, FlowName, Ended)> {
        let flow = &mut self.flows[at];
        let over = flow.over.or(fresh.as_ref().err().map(|why| Ended::Flow(*why)));
        if let (None, Ok(fresh)) = (over, fresh) {
            flow.hold = false;
            if *flow.rewrite == fresh {
                return None;
            }
            flow.rewrite = Arc::new(fresh);
            let rewrite = &flow.rewrite;
            flow.stock.idle.iter_mut().for_each(|chunk| chunk.rewrite = Arc::clone(rewrite));
            return None;
        }
        let flow = self.flows.swap_remove(at);
        self.note_whether_idle();
        self.dealt_before += flow.stock.tally.dealt;
        Some((flow.network, flow.name, over.unwrap_or(Ended::Asked)))
    }

    /// What is next in the order, if that is done. A chunk is through with that.
    pub fn next(&mut self, helpers: &mut impl ChunkExchange<F>) -> Option<Through<F>> {
        let chunk = match self.order.front()? {
            Next::Helper(helper) => {
                let chunk = helpers.collect(*helper)?;
                self.order.pop_front();
                chunk
            }
            Next::Owners { .. } => return Some(Through::Owners),
            Next::Done(_) => match self.order.pop_front() {
                Some(Next::Done(chunk)) => chunk,
                _ => return None,
            },
        };
        let flow = self.flows.iter_mut().find(|flow| flow.stock.id == chunk.flow)?;
        flow.stock.under_way -= 1;
        Some(Through::Chunk(flow.network, chunk))
    }

    /// Takes a chunk back whose frames are sent.
    pub fn put_back(&mut self, chunk: Box<Chunk<F>>) {
        if let Some(flow) = self.flows.iter_mut().find(|flow| flow.stock.id == chunk.flow) {
            flow.stock.idle.push(chunk);
        }
    }

    /// Takes frames for the owner's path that the order has next, as many as make one burst: those
    /// of one port, which this is, that all were handed over or none.
    pub fn take_owners(
        &mut self,
        burst: &mut ArrayVec<F, BURST>,
        rounds: &mut ArrayVec<Round, BURST>,
    ) -> Option<PortId> {
        let mut alike = None;
        while let Some(Next::Owners { port, round, .. }) = self.order.front() {
            let of = (*port, round.is_some());
            if burst.is_full() || alike.is_some_and(|before| before != of) {
                break;
            }
            alike = Some(of);
            let next = self.order.pop_front();
            let Some(Next::Owners { flow, round, frame, .. }) = next else { break };
            let flow = self.flows.iter_mut().find(|known| known.stock.id == flow);
            flow.into_iter().for_each(|flow| flow.stock.under_way -= 1);
            burst.push(frame);
            rounds.extend(round);
        }
        self.waiting -= burst.len();
        alike.map(|(port, _)| port)
    }

    /// Frames that wait here, without those of chunks that helpers have.
    pub fn frames(&self) -> usize {
        let done = self.order.iter().map(|next| match next {
            Next::Helper(_) => 0,
            Next::Done(chunk) => chunk.frames.len(),
            Next::Owners { .. } => 1,
        });
        let open = self.flows.iter().flat_map(|flow| &flow.stock.open);
        let open = open.map(|chunk| chunk.frames.len());
        done.chain(open).sum::<usize>() + self.held()
    }
}

impl<F: Frame> Spreads<F> {
    /// Takes the packets of spread flows out of a burst and deals them. `rounds` is what the last
    /// of the burst have behind them. Gives how many had to be dropped.
    pub fn deal(
        &mut self,
        table: &mut Table<'_>,
        burst: &mut ArrayVec<F, BURST>,
        rounds: &mut ArrayVec<Round, BURST>,
        helpers: &mut impl ChunkExchange<F>,
    ) -> usize {
        let mut late = 0;
        if !self.fences.is_empty() {
            let Table { network, now, port, .. } = *table;
            late += self.sift((network, now, port), (burst, rounds), helpers);
        }
        for at in 0..self.flows.len() {
            if !burst.is_empty() && self.flows[at].network == table.network {
                late += self.deal_flow(table, at, (burst, rounds), helpers);
            }
        }
        late
    }

    /// The same for one of them.
    fn deal_flow(
        &mut self,
        table: &mut Table<'_>,
        at: usize,
        (burst, rounds): (&mut ArrayVec<F, BURST>, &mut ArrayVec<Round, BURST>),
        helpers: &mut impl ChunkExchange<F>,
    ) -> usize {
        let Table { path, view, now, port, watched, .. } = table;
        let (now, port) = (*now, *port);
        let Self { flows, order, waiting, .. } = self;
        let Spread { rewrite, hold, stock, goes_round, .. } = &mut flows[at];
        let own = burst.len() - rounds.len();
        let mut taken = [false; BURST];
        let mut dealing = Dealing { stock, order, waiting, helpers, late: 0 };
        let give = |dealt, at: usize, frame| {
            let handed = at.checked_sub(own).filter(|at| *at < rounds.len());
            handed.into_iter().for_each(|at| taken[at] = true);
            match dealt {
                Dealt::Plain => dealing.plain(frame),
                Dealt::Owners => dealing.owners(port, handed.map(|at| rounds[at]), frame),
            }
        };
        let ends = path.deal(*view, now, port, (rewrite, *hold || *watched), burst, give);
        dealing.close_for_idle();
        let Dealing { stock, late, .. } = dealing;
        stock.tally.late += late as u64;
        *hold |= ends;
        let mut at = 0;
        rounds.retain(|round| {
            at += 1;
            *goes_round |= taken[at - 1] && !round.is_first();
            !taken[at - 1]
        });
        late
    }

    /// Deals chunks that wait to be filled, if they have to wait no more.
    pub fn close(&mut self, helpers: &mut impl ChunkExchange<F>) {
        let Self { flows, order, waiting, .. } = self;
        for Spread { hold, stock, .. } in flows {
            let mut dealing = Dealing { stock, order, waiting, helpers, late: 0 };
            match hold {
                true => dealing.close(),
                false => dealing.close_for_idle(),
            }
        }
    }
}

const _: () = assert!(CHUNK <= BURST);
