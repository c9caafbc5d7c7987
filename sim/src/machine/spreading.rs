//! Flows that a worker spreads over others: what `sluice-worker` does with rings and threads is
//! done with queues here, and the seed decides who helps when. What is dealt to whom, and in which
//! order it comes back, is the director's own.

use super::{Desk, Machine, Worker};
use crate::check::{Checker, Scene, Violation};
use crate::frame::{Buffer, Pool};
use crate::rng::Rng;
use crate::saboteur::Saboteur;
use crate::status::Snapshot;
use crate::universe::Spreading;
use crate::wire::{Tuple, to_ip};
use arrayvec::ArrayVec;
use sluice_director::counters::Direction;
use sluice_director::dealing::{
    AHEAD, Chunk, ChunkExchange, Refused, SpreadOrder, Spreading as Stand, Table, Through,
};
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, Dealt, FlowName, FlowRewrite, NotSpreadable, Round, View};
use sluice_director::spec::NetworkId;
use sluice_director::{Reason, Time};
use std::collections::VecDeque;
use std::rc::Rc;

/// Chunks of an owner that one helper has: to be worked on, and done.
#[derive(Default)]
pub(super) struct Away {
    given: VecDeque<Box<Chunk<Buffer>>>,
    done: VecDeque<Box<Chunk<Buffer>>>,
}

impl Away {
    pub fn frames(&self) -> usize {
        self.given.iter().chain(&self.done).map(|chunk| chunk.frames.len()).sum()
    }
}

/// Frames by what became of them, of all flows that were spread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpreadCounts {
    pub flows: u64,
    pub dealt: u64,
    pub own: u64,
    pub kept: u64,
    pub late: u64,
}

/// The ways to an owner's helpers, while its model looks on.
struct Ways<'a> {
    away: &'a mut [Away],
    saboteur: &'a mut Saboteur,
    /// What judges frames that are dealt; none while nothing is.
    judge: Option<(&'a mut Checker, Scene<'a>, &'a Rc<Snapshot>)>,
    pool: &'a mut Pool,
    wrong: Option<Violation>,
}

impl Ways<'_> {
    fn note(&mut self, frame: &Buffer, judged: Result<(), Violation>) {
        if let (None, Err(wrong)) = (&self.wrong, judged) {
            self.wrong = Some(format!("{}: {wrong}", frame.packet));
        }
    }
}

impl ChunkExchange<Buffer> for Ways<'_> {
    fn out(&self, helper: u16) -> usize {
        let Away { given, done } = &self.away[usize::from(helper)];
        given.len() + done.len()
    }

    fn give(
        &mut self,
        helper: u16,
        mut chunk: Box<Chunk<Buffer>>,
    ) -> Result<(), Box<Chunk<Buffer>>> {
        if self.out(helper) >= AHEAD {
            return Err(chunk);
        }
        if self.saboteur.mislays()
            && let Some(frame) = chunk.frames.pop()
        {
            self.pool.put(frame);
        }
        self.away[usize::from(helper)].given.push_back(chunk);
        Ok(())
    }

    fn collect(&mut self, helper: u16) -> Option<Box<Chunk<Buffer>>> {
        let done = &mut self.away[usize::from(helper)].done;
        if done.len() > 1 && self.saboteur.overtakes() {
            return done.pop_back();
        }
        done.pop_front()
    }

    fn dealt(&mut self, frame: &mut Buffer) {
        if let Some((checker, scene, snapshot)) = &mut self.judge {
            let judged = checker.dealt(*scene, snapshot, frame);
            self.note(frame, judged);
        }
    }

    fn late(&mut self, frame: Buffer, dealt: Dealt) {
        if let Some((checker, scene, snapshot)) = &mut self.judge {
            checker.tally(scene.worker).reasons[Reason::SpreadLate as usize] += 1;
            if dealt == Dealt::Plain {
                let judged = checker.dealt_late(*scene, snapshot, &frame);
                self.note(&frame, judged);
            }
        }
        self.pool.put(frame);
    }
}

impl Worker {
    /// What a flow is now.
    fn freeze(&self, now: u64, name: &FlowName) -> Result<FlowRewrite, NotSpreadable> {
        let view = View { plan: &self.snapshot.plan, fib: &self.snapshot.fib };
        self.path.freeze(view, Time(now), name)
    }

    /// Frames of spread flows that are in the machine.
    pub(super) fn spread_frames(&self) -> usize {
        self.spreads.frames() + self.away.iter().map(Away::frames).sum::<usize>()
    }
}

/// A direction of a session, by its client's packets.
fn named(tuple: Tuple, outbound: bool) -> FlowName {
    FlowName {
        protocol: tuple.protocol,
        client: (to_ip(tuple.src), tuple.sport),
        virtual_: (to_ip(tuple.dst), tuple.dport),
        direction: if outbound { Direction::Outbound } else { Direction::Inbound },
    }
}

impl Machine {
    /// Spreads a flow of a worker over so many.
    pub fn spread(
        &mut self,
        now: u64,
        worker: u16,
        (tuple, outbound, workers): (Tuple, bool, u16),
    ) -> Result<(), Refused> {
        let count = self.workers.len();
        let worker_at = &mut self.workers[usize::from(worker)];
        let flow = named(tuple, outbound);
        let order = SpreadOrder { network: NetworkId::DEFAULT, flow, workers, pinned: true };
        let mut spreads = std::mem::take(&mut worker_at.spreads);
        let begun =
            spreads.begin(&order, Time(now), (worker, count), || worker_at.freeze(now, &flow));
        worker_at.spreads = spreads;
        self.spread_counts.flows += u64::from(begun.is_ok());
        begun
    }

    /// Spreads one of a worker's flows no more.
    pub fn gather_in(&mut self, worker: u16, pick: u32) {
        let spreads = &mut self.workers[usize::from(worker)].spreads;
        let at = pick as usize % spreads.len().max(1);
        if let Some((network, name)) = spreads.name(at) {
            spreads.gather_in(network, &name);
        }
    }

    /// Looks whether a worker's flows still are what was frozen, and works on what others have
    /// dealt it. Whether there was anything.
    pub(super) fn help(&mut self, desk: &mut Desk<'_>, number: usize) -> bool {
        let worker = &mut self.workers[number];
        if worker.spreads.is_review_due(Time(desk.now)) && !desk.saboteur.is_stale() {
            for at in 0..worker.spreads.len() {
                let Some((_, name)) = worker.spreads.name(at) else { break };
                let fresh = worker.freeze(desk.now, &name);
                worker.spreads.review(at, fresh);
            }
        }
        // For some milliseconds at a time it does not.
        let Spreading { late, late_ms, .. } = desk.universe.spreading;
        let time = desk.now.checked_div(late_ms).unwrap_or(0);
        let mut rng = Rng::of(&[desk.universe.seed, 43, number as u64, time]);
        if !self.hurries && rng.chance(late) {
            return false;
        }
        let mut rng = Rng::of(&[desk.universe.seed, 44, number as u64, desk.now]);
        let mut helped = false;
        for owner in 0..self.workers.len() {
            let Away { given, done } = &mut self.workers[owner].away[number];
            for _ in 0..rng.range(1, AHEAD as u64) {
                let Some(mut chunk) = given.pop_front() else { break };
                chunk.work();
                done.push_back(chunk);
                helped = true;
            }
        }
        helped
    }

    /// Takes the packets of a worker's spread flows out of a burst and deals them.
    pub(super) fn deal(
        &mut self,
        desk: &mut Desk<'_>,
        (number, handed): (usize, bool),
        port: usize,
        frames: &mut Vec<Buffer>,
    ) -> Result<(), Violation> {
        let agreed = self.agree();
        let worker = &mut self.workers[number];
        let snapshot = Rc::clone(&worker.snapshot);
        let (mut burst, mut rounds) =
            (ArrayVec::<_, BURST>::new(), ArrayVec::<Round, BURST>::new());
        rounds.extend(frames.iter().filter(|_| handed).map(|frame| frame.round));
        burst.extend(frames.drain(..));
        let mut rng = Rng::of(&[desk.universe.seed, 45, number as u64, desk.now >> 5]);
        let watched = rng.chance(desk.universe.spreading.watched);
        let view = View { plan: &snapshot.plan, fib: &snapshot.fib };
        let (network, now) = (NetworkId::DEFAULT, Time(desk.now));
        let port = PortId(port as u16);
        if desk.saboteur.counts_twice() {
            count_twice(desk, worker, (view, port), &burst);
        }
        let scene = Scene {
            universe: desk.universe,
            snapshot: &snapshot,
            worker: number as u16,
            now: desk.now,
            agreed,
        };
        let mut ways = Ways {
            away: &mut worker.away,
            saboteur: desk.saboteur,
            judge: Some((desk.checker, scene, &snapshot)),
            pool: desk.pool,
            wrong: None,
        };
        let path = &mut worker.path;
        let mut table = Table { path, view, network, now, port, watched };
        let late = worker.spreads.deal(&mut table, &mut burst, &mut rounds, &mut ways);
        let wrong = ways.wrong.take();
        (0..late).for_each(|_| worker.path.count(Reason::SpreadLate));
        frames.extend(burst);
        wrong.map_or(Ok(()), Err)
    }

    /// Sends what is done, in the order in which it was dealt. Whether there was anything.
    pub(super) fn collect(
        &mut self,
        desk: &mut Desk<'_>,
        number: usize,
    ) -> Result<bool, Violation> {
        let mut any = self.release_held(desk, number)?;
        while let Some(through) = self.next_through(desk, number) {
            any = true;
            match through {
                Through::Chunk(_, chunk) => self.send_chunk(desk, number, chunk)?,
                Through::Owners => self.process_owners(desk, number)?,
            }
        }
        while let Some(at) = self.workers[number].spreads.first_through() {
            self.settle(desk, number, at);
        }
        Ok(any)
    }

    fn next_through(&mut self, desk: &mut Desk<'_>, number: usize) -> Option<Through<Buffer>> {
        let Worker { spreads, away, .. } = &mut self.workers[number];
        let (saboteur, pool) = (&mut *desk.saboteur, &mut *desk.pool);
        let mut ways = Ways { away, saboteur, judge: None, pool, wrong: None };
        spreads.close(&mut ways);
        spreads.next(&mut ways)
    }

    fn send_chunk(
        &mut self,
        desk: &mut Desk<'_>,
        number: usize,
        mut chunk: Box<Chunk<Buffer>>,
    ) -> Result<(), Violation> {
        if std::mem::take(&mut chunk.dropped) > 0 {
            return Err("a chunk's frames had no headroom".into());
        }
        let port = chunk.rewrite().port().0;
        let place = (number as u16, desk.now);
        for mut frame in chunk.frames.drain(..) {
            desk.saboteur.spoil_dealt(&mut frame);
            desk.trace.note(desk.now, || format!("worker {number}: {} was dealt", frame.packet));
            desk.checker
                .collected(desk.universe, place, &mut frame, port)
                .map_err(|violation| format!("{}: {violation}", frame.packet))?;
            desk.out.push(frame);
        }
        self.workers[number].spreads.put_back(chunk);
        Ok(())
    }

    fn process_owners(&mut self, desk: &mut Desk<'_>, number: usize) -> Result<(), Violation> {
        let (mut burst, mut rounds) = (ArrayVec::new(), ArrayVec::new());
        let Some(port) = self.workers[number].spreads.take_owners(&mut burst, &mut rounds) else {
            return Ok(());
        };
        let handed = !rounds.is_empty();
        if handed && burst.iter().map(|frame: &Buffer| frame.round).ne(rounds.iter().copied()) {
            return Err("frames that wait in the order are told apart".into());
        }
        let mut frames: Vec<Buffer> = burst.into_iter().collect();
        self.process(desk, (number, handed), usize::from(port.0), &mut frames)
    }

    fn settle(&mut self, desk: &mut Desk<'_>, number: usize, at: usize) {
        let worker = &mut self.workers[number];
        let Some((_, name)) = worker.spreads.name(at) else { return };
        let fresh = worker.freeze(desk.now, &name);
        let before: Vec<Stand> = worker.spreads.list(Time(desk.now));
        if let Some((_, name, why)) = worker.spreads.settle(at, fresh) {
            desk.trace.note(desk.now, || format!("worker {number}: {name:?} ended: {why:?}"));
            let Stand { dealt, own, kept, late, .. } = before[at];
            let counts = &mut self.spread_counts;
            (counts.dealt, counts.own) = (counts.dealt + dealt, counts.own + own);
            (counts.kept, counts.late) = (counts.kept + kept, counts.late + late);
        }
    }
}

/// A burst's copies are dealt, too, and come to nothing.
fn count_twice(
    desk: &mut Desk<'_>,
    worker: &mut Worker,
    (view, port): (View<'_>, PortId),
    burst: &[Buffer],
) {
    let Some((_, name)) = worker.spreads.name(0) else { return };
    let Ok(rewrite) = worker.freeze(desk.now, &name) else { return };
    let mut copies: ArrayVec<_, BURST> = burst.iter().map(|frame| desk.pool.copy(frame)).collect();
    let mut out = Vec::new();
    let give = |_, _, frame| out.push(frame);
    worker.path.deal(view, Time(desk.now), port, (&rewrite, false), &mut copies, give);
    out.extend(copies);
    out.into_iter().for_each(|frame| desk.pool.put(frame));
}
