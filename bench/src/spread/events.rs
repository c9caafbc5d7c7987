//! The flow dealt by DPDK's `event_sw` in place of the director's own stage: an ordered queue
//! between who deals and the helpers, and a single-link queue to who collects. What is dealt, how
//! it is rewritten and the ports are the same; only what carries packets and keeps their order
//! differs. The worker's loop around them is left out, which favours `event_sw` a little.

use super::flow::{Bed, Flow, Steps};
use super::{MEANT, NOW, lost};
use crate::args::{Elephant, Work};
use crate::clock::ticks;
use crate::error::BenchError;
use crate::port::{MemFrame, MemQueue};
use crate::scene::{BACK, FRONT, Scene};
use sluice_director::dealing::CHUNK;
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, FlowRewrite, PagePolicy, Path, PathConfig, Verdict, View};
use sluice_dpdk::{Eal, EventStage};
use sluice_worker::{Burst, Published, Queue};
use std::sync::Arc;

/// What one call of a helper takes.
const CALL: usize = 64;
/// Rounds of scheduler and helpers after which a burst has to be through.
const TRIES: usize = 1000;

/// Who deals and collects, the helpers, and the event device between them.
pub(super) struct Events {
    path: Path,
    published: Arc<Published>,
    flow: Flow,
    queues: [MemQueue; 2],
    rewrite: Option<FlowRewrite>,
    stage: EventStage,
    helpers: u16,
    /// Frames of an event.
    grain: usize,
    /// Frames that are under way, by the numbers that events carry.
    slots: Vec<Vec<MemFrame>>,
    dealt: Vec<u64>,
}

impl Events {
    /// With the flow open and frozen; `grain` frames go in an event.
    pub fn new(
        (args, published): (&Elephant, &Arc<Published>),
        (scene, work, size): (&Scene, Work, u16),
        (eal, helpers, grain): (&Eal, u16, usize),
    ) -> Result<Self, BenchError> {
        let config = PathConfig {
            worker: 0,
            workers: 1,
            sessions: 1000,
            fragments: 64,
            seed: args.turns.conditions.seed,
            pages: PagePolicy::Ordinary,
        };
        let mut path = Path::new(&config).map_err(BenchError::Memory)?;
        path.adopt(&published.default.plan);
        let mut flow = Flow::new(scene, (work, size), args.turns.conditions.seed)?;
        let queues = [flow.queue(), flow.queue()];
        let stage = EventStage::open(eal, helpers)?;
        let slots = (0..BURST).map(|_| Vec::with_capacity(CHUNK)).collect();
        let published = Arc::clone(published);
        let (rewrite, dealt) = (None, Vec::with_capacity(BURST));
        let mut events =
            Self { path, published, flow, queues, rewrite, stage, helpers, grain, slots, dealt };
        events.open(scene)?;
        let name = events.flow.name();
        let view =
            View { plan: &events.published.default.plan, fib: &events.published.default.fib };
        let frozen = events.path.freeze(view, NOW, &name);
        events.rewrite = Some(frozen.map_err(|why| BenchError::Usage(why.text().into()))?);
        Ok(events)
    }

    /// Medians of what a burst's steps took a packet.
    pub fn measure(&mut self, seconds: f64) -> Result<Steps<f64>, BenchError> {
        self.rounds(seconds, Self::step)
    }

    /// Takes a burst through.
    fn step(&mut self) -> Result<Steps<u64>, BenchError> {
        let mut steps = [0; 4];
        let mut last = ticks();
        let mut lap = |step: usize, steps: &mut Steps<u64>| {
            let now = ticks();
            steps[step] += now - last;
            last = now;
        };
        self.deal()?;
        lap(0, &mut steps);
        let mut left = self.dealt.len();
        for _ in 0..TRIES {
            if left == 0 {
                return Ok(steps);
            }
            self.stage.schedule()?;
            lap(1, &mut steps);
            for helper in 0..self.helpers {
                self.help(helper)?;
            }
            lap(2, &mut steps);
            self.stage.schedule()?;
            lap(1, &mut steps);
            left -= self.collect();
            lap(3, &mut steps);
        }
        Err(lost("spreading the flow by event_sw", self.dealt.len(), self.dealt.len() - left))
    }

    /// Receives a burst and deals it: new events, none of which is mixed with others.
    fn deal(&mut self) -> Result<(), BenchError> {
        let mut burst = Burst::new();
        let [from, _] = self.flow.ports();
        self.queues[usize::from(from.0)].receive(&mut burst);
        let view = View { plan: &self.published.default.plan, fib: &self.published.default.fib };
        let Some(rewrite) = &self.rewrite else { return Ok(()) };
        let (slots, grain) = (&mut self.slots, self.grain);
        let mut used = 0;
        let give = |_, _, frame| {
            if slots[used].len() == grain {
                used += 1;
            }
            slots[used].push(frame);
        };
        self.path.deal(view, NOW, from, (rewrite, false), &mut burst, give);
        used += usize::from(!slots[used].is_empty());
        self.dealt.clear();
        self.dealt.extend(0..used as u64);
        for part in self.dealt.chunks(EventStage::CREDITS) {
            let dealt = self.stage.deal(part);
            if dealt != part.len() {
                return Err(lost("dealing to event_sw", part.len(), dealt));
            }
        }
        Ok(())
    }

    /// A helper rewrites what it has, and gives it back in the same order.
    fn help(&mut self, helper: u16) -> Result<(), BenchError> {
        let Some(rewrite) = &self.rewrite else { return Ok(()) };
        let mut taken = [0; CALL];
        loop {
            let count = self.stage.take(helper, &mut taken);
            for payload in &taken[..count] {
                for frame in &mut self.slots[*payload as usize] {
                    if !matches!(rewrite.apply(frame), Verdict::Tx(_)) {
                        return Err(BenchError::Usage("a frame has no headroom".into()));
                    }
                }
            }
            let given = self.stage.give(helper, &taken[..count]);
            if given != count {
                return Err(lost("giving back to event_sw", count, given));
            }
            if count < CALL {
                return Ok(());
            }
        }
    }

    /// Sends what comes out; gives how many events that were.
    fn collect(&mut self) -> usize {
        let (mut taken, mut events) = ([0; EventStage::CREDITS], 0);
        let mut burst = Burst::new();
        loop {
            let count = self.stage.collect(&mut taken);
            events += count;
            for payload in &taken[..count] {
                burst.extend(self.slots[*payload as usize].drain(..));
            }
            if count < EventStage::CREDITS {
                let [_, to] = self.flow.ports();
                self.queues[usize::from(to.0)].transmit(&mut burst);
                return events;
            }
        }
    }
}

impl Bed for Events {
    fn flow(&mut self) -> &mut Flow {
        &mut self.flow
    }

    fn queue(&mut self, port: PortId) -> Option<&mut MemQueue> {
        self.queues.get_mut(usize::from(port.0))
    }

    fn turn(&mut self, port: PortId) {
        let mut burst = Burst::new();
        let from = usize::from(port != FRONT);
        self.queues[from].receive(&mut burst);
        let mut verdicts = [Verdict::Wait; BURST];
        let view = View { plan: &self.published.default.plan, fib: &self.published.default.fib };
        self.path.turn(view, NOW, port, &mut burst, &mut verdicts);
        let sent = verdicts.iter().take(burst.len());
        // The other end counts what comes.
        if sent.clone().all(|verdict| matches!(verdict, Verdict::Tx(_))) {
            self.queues[1 - from].transmit(&mut burst);
        }
    }
}

const _: () = assert!(MEANT <= BURST && BACK.0 == 1);
