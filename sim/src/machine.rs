//! The machine that the director runs on: workers with their queues, the rings between them, the
//! frames that wait for neighbours. It does what `sluice-worker` does around a path, but in
//! virtual time and in an order that the seed decides.

mod nic;
mod spreading;

use crate::check::{Checker, Scene, Violation};
use crate::cut;
use crate::frame::{Buffer, Pool};
use crate::parked::Parked;
use crate::rng::Rng;
use crate::saboteur::Saboteur;
use crate::status::Snapshot;
use crate::trace::Trace;
use crate::universe::Universe;
use crate::wire::{Seen, from_ip, read, read_error, read_piece};
use nic::Nic;
use sluice_director::counters::RealCounters;
use sluice_director::dealing::Spreads;
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, PagePolicy, Path, PathConfig, Round, Verdict, Waiting};
use sluice_director::plan::{Plan, RealId, Retired, ServiceId};
use sluice_director::{Frame, Reason, Time};
use spreading::Away;
pub(crate) use spreading::SpreadCounts;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

const PORTS: usize = 2;
/// How long a frame may wait for its neighbour, and how many may wait for one.
const PATIENCE_MS: u64 = 3000;
const PER_NEIGHBOUR: usize = 64;

struct Held {
    frame: Buffer,
    waiting: Waiting,
    since: u64,
}

pub(crate) struct Worker {
    pub path: Path,
    pub snapshot: Rc<Snapshot>,
    /// Snapshots that were published and reach it later.
    coming: VecDeque<(u64, Rc<Snapshot>)>,
    received: Vec<VecDeque<Buffer>>,
    /// Frames handed over, by the worker that did.
    rings: Vec<VecDeque<Buffer>>,
    held: VecDeque<Held>,
    /// Fragments that wait for their datagram's first.
    parked: Parked,
    /// Flows that others help with, and what those have, by their numbers.
    spreads: Spreads<Buffer>,
    away: Vec<Away>,
}

/// What a machine needs while it works.
pub(crate) struct Desk<'a> {
    pub universe: &'a Universe,
    pub checker: &'a mut Checker,
    pub pool: &'a mut Pool,
    pub trace: &'a mut Trace,
    pub saboteur: &'a mut Saboteur,
    /// Frames that leave.
    pub out: &'a mut Vec<Buffer>,
    pub now: u64,
}

pub(crate) struct Machine {
    pub workers: Vec<Worker>,
    burst: Vec<Buffer>,
    rounds: Vec<Round>,
    /// Frames that ports have received.
    arrived: u64,
    pub spread_counts: SpreadCounts,
    nic: Nic,
    /// Whether nobody is late any more.
    pub hurries: bool,
}

impl Machine {
    pub fn new(universe: &Universe, snapshot: &Rc<Snapshot>) -> Result<Self, String> {
        let mut workers = Vec::new();
        for worker in 0..universe.workers {
            let config = PathConfig {
                worker,
                workers: universe.workers,
                sessions: universe.capacity,
                fragments: universe.fragments,
                seed: universe.seed,
                pages: PagePolicy::Ordinary,
            };
            let mut path = Path::new(&config).map_err(|error| format!("{error:?}"))?;
            path.adopt(&snapshot.plan);
            workers.push(Worker {
                path,
                snapshot: Rc::clone(snapshot),
                coming: VecDeque::new(),
                received: (0..PORTS).map(|_| VecDeque::new()).collect(),
                rings: (0..universe.workers).map(|_| VecDeque::new()).collect(),
                held: VecDeque::new(),
                parked: Parked::default(),
                spreads: Spreads::default(),
                away: (0..universe.workers).map(|_| Away::default()).collect(),
            });
        }
        let (burst, rounds) = (Vec::with_capacity(BURST), Vec::new());
        let (spread_counts, hurries) = (SpreadCounts::default(), false);
        let nic = Nic::default();
        Ok(Self { workers, burst, rounds, arrived: 0, spread_counts, nic, hurries })
    }

    /// Gives every worker a snapshot, each when it gets to it.
    pub fn publish(&mut self, snapshot: &Rc<Snapshot>, now: u64, rng: &mut Rng) {
        for worker in &mut self.workers {
            let soonest = worker.coming.back().map_or(now, |(at, _)| *at);
            let at = soonest.max(now + rng.below(12));
            worker.coming.push_back((at, Rc::clone(snapshot)));
        }
    }

    /// Ids that no session uses any more, as the daemon finds them: only when every worker runs
    /// with the latest plan.
    pub fn retired(&self, plan: &Plan) -> Retired {
        let mut retired = Retired::default();
        if self.workers.iter().any(|worker| worker.snapshot.epoch != plan.epoch) {
            return retired;
        }
        let active = |id: usize| {
            let counts = |worker: &Worker| {
                worker.path.counters().reals.get(id).is_some_and(RealCounters::is_used)
            };
            self.workers.iter().any(counts)
        };
        let mut busy = HashSet::new();
        for (id, real) in plan.reals.iter().enumerate() {
            if real.live || active(id) {
                busy.insert(real.service);
            } else {
                retired.reals.insert(RealId(id as u32));
            }
        }
        for (id, service) in plan.services.iter().enumerate() {
            let id = ServiceId(id as u16);
            if !service.live && !busy.contains(&id) {
                retired.services.insert(id);
            }
        }
        retired
    }

    /// One millisecond: every worker takes turns until nothing is left to do.
    pub fn step(&mut self, desk: &mut Desk<'_>) -> Result<(), Violation> {
        let count = self.workers.len();
        let first = Rng::of(&[desk.universe.seed, 6, desk.now]).below(count as u64) as usize;
        for number in 0..count {
            self.adopt(desk, number)?;
            self.give_up_parked(desk, number)?;
        }
        self.turn_rules(desk);
        let mut worked = true;
        while worked {
            worked = false;
            for number in 0..count {
                worked |= self.turn(desk, (first + number) % count)?;
            }
        }
        for number in 0..count {
            self.look_after(desk, number)?;
        }
        Ok(())
    }

    /// A turn of one worker: a burst of each port and each ring. Whether there was anything.
    fn turn(&mut self, desk: &mut Desk<'_>, number: usize) -> Result<bool, Violation> {
        let mut worked = self.help(desk, number);
        let limit = desk.universe.burst;
        let is_behind = self.is_behind(desk, number);
        for port in 0..PORTS {
            let queue = &mut self.workers[number].received[port];
            if queue.is_empty() || is_behind {
                continue;
            }
            worked = true;
            let mut burst = std::mem::take(&mut self.burst);
            let count = queue.len().min(limit);
            burst.extend(queue.drain(..count));
            self.process_dealt(desk, (number, false), port, &mut burst)?;
            self.burst = burst;
        }
        for sender in 0..self.workers.len() {
            if self.workers[number].rings[sender].is_empty() {
                continue;
            }
            let mut burst = std::mem::take(&mut self.burst);
            let links = &desk.universe.links;
            let mut port = None;
            for _ in 0..BURST {
                let ring = &mut self.workers[number].rings[sender];
                let Some(frame) = ring.pop_front() else { break };
                self.nic.popped(number, sender);
                let by = usize::from(links[frame.link].port);
                if let Some(before) = port.filter(|before| *before != by) {
                    self.process_dealt(desk, (number, true), before, &mut burst)?;
                }
                port = Some(by);
                burst.push(frame);
                worked = true;
            }
            if let Some(port) = port {
                self.process_dealt(desk, (number, true), port, &mut burst)?;
            }
            self.burst = burst;
        }
        worked |= self.give_marks(desk, number);
        Ok(worked | self.collect(desk, number)?)
    }

    /// Deals what is of spread flows, and runs the rest of a burst through a worker's path.
    fn process_dealt(
        &mut self,
        desk: &mut Desk<'_>,
        (number, handed): (usize, bool),
        port: usize,
        burst: &mut Vec<Buffer>,
    ) -> Result<(), Violation> {
        if !self.workers[number].spreads.is_idle() {
            self.deal(desk, (number, handed), port, burst)?;
        }
        self.process(desk, (number, handed), port, burst)
    }

    /// Runs a burst, maybe one that another worker handed over, through a worker's path, and then
    /// the fragments that waited for one of it.
    fn process(
        &mut self,
        desk: &mut Desk<'_>,
        (number, handed): (usize, bool),
        port: usize,
        burst: &mut Vec<Buffer>,
    ) -> Result<(), Violation> {
        if burst.is_empty() {
            return Ok(());
        }
        self.process_since(desk, (number, handed), port, burst, &[])?;
        let worker = &self.workers[number];
        let waits = worker.parked.len() > 0 && !worker.path.joined().is_empty();
        if waits && !desk.saboteur.is_deaf() { self.process_parked(desk, number) } else { Ok(()) }
    }

    /// Runs the fragments through the path whose datagrams' firsts came in the last turn.
    fn process_parked(&mut self, desk: &mut Desk<'_>, number: usize) -> Result<(), Violation> {
        let joined = self.workers[number].path.joined().to_vec();
        let mut tries = self.workers[number].parked.len();
        while tries > 0 {
            let (mut burst, mut since, mut port) = (Vec::new(), Vec::new(), None);
            while burst.len() < BURST {
                let parked = &mut self.workers[number].parked;
                let Some(taken) = parked.take(&joined, port) else { break };
                parked.check(desk.now, &taken)?;
                port = Some(taken.port);
                since.push(taken.since);
                burst.push(taken.frame);
            }
            let Some(port) = port else { break };
            tries = tries.saturating_sub(burst.len());
            self.process_since(desk, (number, false), usize::from(port.0), &mut burst, &since)?;
        }
        Ok(())
    }

    /// Runs a burst through a worker's path, has each frame judged and takes it where it belongs.
    /// `since` says when they came, if not now.
    fn process_since(
        &mut self,
        desk: &mut Desk<'_>,
        (number, handed): (usize, bool),
        port: usize,
        burst: &mut Vec<Buffer>,
        since: &[u64],
    ) -> Result<(), Violation> {
        let agreed = self.agree();
        let mut verdicts = [Verdict::Wait; BURST];
        self.rounds.clear();
        if handed {
            self.rounds.extend(burst.iter().map(|frame| frame.round));
        }
        let rounds = &self.rounds[..];
        let worker = &mut self.workers[number];
        let snapshot = Rc::clone(&worker.snapshot);
        let view = desk.saboteur.view(&snapshot);
        let now = Time(desk.now);
        let port = PortId(port as u16);
        worker.path.turn_handed(view, now, port, (burst, rounds), &mut verdicts);
        desk.saboteur.act(desk.universe, worker, burst, &mut verdicts, desk.now);
        let scene = Scene {
            universe: desk.universe,
            snapshot: &snapshot,
            worker: number as u16,
            now: desk.now,
            agreed,
        };
        desk.checker.check_joined(scene, burst, worker.path.joined())?;
        let path = &self.workers[number].path;
        desk.checker.foresee(burst, &verdicts);
        for (lane, frame) in burst.iter_mut().enumerate() {
            frame.round = path.round(lane);
            desk.trace.verdict(desk.now, number, frame, verdicts[lane]);
            desk.checker
                .judge(scene, frame, verdicts[lane], waiting_of(path, lane))
                .map_err(|violation| format!("{}: {violation}", frame.packet))?;
        }
        desk.checker.unmask(scene, path)?;
        for (lane, frame) in burst.drain(..).enumerate() {
            let waiting = waiting_of(&self.workers[number].path, lane);
            let since = since.get(lane).copied().unwrap_or(desk.now);
            self.carry(desk, number, frame, (verdicts[lane], waiting, since))?;
        }
        Ok(())
    }

    /// Whether all workers run with the same plan.
    pub fn agree(&self) -> bool {
        let mut epochs = self.workers.iter().map(|worker| worker.snapshot.epoch);
        let first = epochs.next();
        epochs.all(|epoch| Some(epoch) == first)
    }

    /// Takes a frame where its verdict says.
    fn carry(
        &mut self,
        desk: &mut Desk<'_>,
        number: usize,
        mut frame: Buffer,
        (verdict, waiting, since): (Verdict, Option<Waiting>, u64),
    ) -> Result<(), Violation> {
        if desk.saboteur.loses() {
            std::mem::forget(frame);
            return Ok(());
        }
        match verdict {
            Verdict::Tx(_) | Verdict::Answer(..) => desk.out.push(frame),
            Verdict::Fragment(_, mtu) => {
                cut::cut(desk.pool, &frame, mtu)?;
                desk.out.push(frame);
            }
            Verdict::Park(datagram) => {
                let port = PortId(desk.universe.links[frame.link].port);
                // It is turned again as if it had come here.
                (frame.handed, frame.home) = (0, number as u16);
                let parked = &mut self.workers[number].parked;
                if let Err((reason, frame)) = parked.park(frame, port, datagram, since) {
                    self.give_up(desk, number, frame, reason);
                }
            }
            Verdict::Kernel(_) | Verdict::Drop(_) => desk.pool.put(frame),
            Verdict::HandOff(to) => {
                let ring = &mut self.workers[usize::from(to)].rings[number];
                if ring.len() < desk.universe.ring {
                    ring.push_back(frame);
                } else {
                    self.give_up(desk, number, frame, Reason::HandOffFull);
                }
            }
            Verdict::Wait => {
                let held = &mut self.workers[number].held;
                let same = |held: &&Held| {
                    waiting
                        .is_some_and(|w| (w.link, w.next) == (held.waiting.link, held.waiting.next))
                };
                let place = held.len() < desk.universe.held
                    && held.iter().filter(same).count() < PER_NEIGHBOUR;
                match waiting.filter(|_| place) {
                    Some(waiting) => held.push_back(Held { frame, waiting, since: desk.now }),
                    None => self.give_up(desk, number, frame, Reason::Unresolved),
                }
            }
        }
        Ok(())
    }

    /// The machine itself drops a frame.
    fn give_up(&mut self, desk: &mut Desk<'_>, number: usize, frame: Buffer, reason: Reason) {
        self.workers[number].path.count(reason);
        desk.checker.tally(number as u16).reasons[reason as usize] += 1;
        desk.pool.put(frame);
    }

    /// Drops fragments whose first did not come.
    fn give_up_parked(&mut self, desk: &mut Desk<'_>, number: usize) -> Result<(), Violation> {
        while let Some(taken) = self.workers[number].parked.give_up(desk.now) {
            desk.checker.orphaned(desk.universe, number as u16, &taken)?;
            self.give_up(desk, number, taken.frame, Reason::FragmentOrphan);
        }
        Ok(())
    }

    /// A worker runs with what was published and has reached it.
    fn adopt(&mut self, desk: &mut Desk<'_>, number: usize) -> Result<(), Violation> {
        while let Some((at, _)) = self.workers[number].coming.front()
            && *at <= desk.now
        {
            let worker = &mut self.workers[number];
            let Some((_, snapshot)) = worker.coming.pop_front() else { break };
            let place = (number as u16, &worker.snapshot.plan);
            desk.checker.check_passed(desk.universe, place, &worker.path)?;
            worker.path.adopt(&snapshot.plan);
            desk.checker.begin_passed(number as u16, &snapshot.plan, &worker.path);
            worker.snapshot = snapshot;
            worker.spreads.renew();
            desk.trace.adopts(desk.now, number, worker.snapshot.epoch);
            self.release(desk, number)?;
        }
        Ok(())
    }

    /// Sends held frames whose neighbours are known now.
    fn release(&mut self, desk: &mut Desk<'_>, number: usize) -> Result<(), Violation> {
        for mut held in std::mem::take(&mut self.workers[number].held) {
            let worker = &mut self.workers[number];
            let Waiting { link, next, cut, .. } = held.waiting;
            let verdict = worker.path.release(&worker.snapshot.fib, &mut held.frame, held.waiting);
            let place = (usize::from(link.0), from_ip(next));
            match verdict {
                Verdict::Tx(port) | Verdict::Fragment(port, _)
                    if matches!(verdict, Verdict::Fragment(..)) == cut.is_some() =>
                {
                    if let Some(mtu) = cut {
                        cut::cut(desk.pool, &held.frame, mtu)?;
                    }
                    held.frame.seen = match held.frame.place {
                        Some(_) => Seen { right: true, ..read_piece(held.frame.bytes())?.seen },
                        None if held.frame.about.is_some() => {
                            Seen { right: true, ..read_error(held.frame.bytes())?.seen }
                        }
                        None => read(held.frame.bytes())?,
                    };
                    let seen = &held.frame.seen;
                    worker.snapshot.check_release(desk.universe, place, seen, port.0)?;
                    desk.out.push(held.frame);
                }
                Verdict::Wait if !worker.snapshot.knows(desk.universe, place) => {
                    worker.held.push_back(held);
                }
                other => return Err(format!("{other:?} for a held frame to {next}")),
            }
        }
        Ok(())
    }

    /// The sweep, frames that have waited too long, and the worker's counters.
    fn look_after(&mut self, desk: &mut Desk<'_>, number: usize) -> Result<(), Violation> {
        let worker = &mut self.workers[number];
        if desk.saboteur.sweeps() {
            worker.path.sweep(&worker.snapshot.plan, Time(desk.now));
        }
        while let Some(held) = self.workers[number].held.front()
            && desk.now - held.since >= PATIENCE_MS
        {
            let Some(held) = self.workers[number].held.pop_front() else { break };
            self.give_up(desk, number, held.frame, Reason::Unresolved);
        }
        desk.checker.check_counters(number as u16, &self.workers[number].path)
    }

    /// Frames that are in the machine.
    pub fn frames(&self) -> usize {
        let inside = |worker: &Worker| {
            let queues = worker.received.iter().chain(&worker.rings);
            queues.map(VecDeque::len).sum::<usize>()
                + worker.held.len()
                + worker.parked.len()
                + worker.spread_frames()
        };
        self.workers.iter().map(inside).sum()
    }
}

/// What a frame of the last turn waits for.
fn waiting_of(path: &Path, lane: usize) -> Option<Waiting> {
    path.waiting().iter().find(|waiting| waiting.lane == lane).copied()
}
