//! Whole turns of the packet path over any frames, ports and times.
//!
//! The bytes are a script ([`script`]): which network ([`world`]), then frames (raw, or built and
//! spoilt, or answers to what the director sent, or ICMP errors about it, or fragments), turns,
//! clock steps, reloads. The script is played by two directors ([`director`]): one takes the frames
//! in bursts, one takes them one at a time. They must agree in every verdict, byte, counter and
//! session; and what they do is judged ([`judge`]) by what `etherparse` makes of it ([`sight`]).

mod craft;
mod director;
mod frame;
mod judge;
pub mod scenes;
mod script;
mod world;

pub use script::{HEAD, encode};

use std::collections::BTreeSet;
use std::rc::Rc;

use sluice::replay::CaptureFrame;
use sluice_director::counters::Counters;
use sluice_director::fib::{Fib, PortId};
use sluice_director::path::{BURST, SessionInfo, Verdict, View};
use sluice_director::plan::{Plan, Retired};
use sluice_director::spec::Spec;
use sluice_director::{Frame, Time};

use crate::bytes::Bytes;
use director::{Arrival, Director, Outcome};
use judge::Case;
use script::{Op, Script};
use world::World;

/// Frames that were sent and may be answered.
const REMEMBERED: usize = 64;
/// Times that parked fragments are turned again after a turn: more than that in a chain is none.
const ROUNDS: usize = 4;

/// What a script has shown: a mode and direction or a kind of verdict, and whether of IPv6.
pub type Reached = BTreeSet<(&'static str, bool)>;

/// Plays a script.
///
/// # Panics
/// When the two directors disagree, or one of them breaks a rule.
pub fn turn(data: &[u8]) {
    reach(data);
}

/// Plays a script and says what it has shown.
///
/// # Panics
/// As [`turn`].
pub fn reach(data: &[u8]) -> Reached {
    let mut bytes = Bytes(data);
    let world = World::new([bytes.u8(), bytes.u8(), bytes.u8()]);
    let mut script = Script { bytes, places: world.places() };
    let mut stage = Stage::new(world);
    while let Some(op) = script.next_op(&stage.sent) {
        stage.play(op);
    }
    stage.turn(0, 0);
    stage.settle();
    stage.reached
}

struct Stage {
    world: World,
    /// As at first: sessions outlive their services.
    spec: Rc<Spec>,
    plan: Plan,
    fib: Fib,
    known: bool,
    /// Whether there was a reload.
    changed: bool,
    staged: Director,
    single: Director,
    now: Time,
    waiting: Vec<Vec<u8>>,
    /// What was sent lately: port and bytes.
    sent: Vec<(u16, Vec<u8>)>,
    reached: Reached,
}

impl Stage {
    fn new(world: World) -> Self {
        let spec = Rc::new(world.spec(0));
        let plan = Plan::compile(&spec, None, &Retired::default());
        let plan = plan.expect("the world can be compiled");
        Self {
            staged: Director::new(&world, &plan),
            single: Director::new(&world, &plan),
            fib: world.fib(&plan, None, false),
            known: false,
            changed: false,
            spec,
            world,
            plan,
            now: Time(1_000_000),
            waiting: Vec::new(),
            sent: Vec::new(),
            reached: Reached::new(),
        }
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Frame(bytes) => self.arrive(bytes),
            Op::Cut { size, order } => {
                let Some(whole) = self.waiting.pop() else { return };
                let mut pieces = craft::cut(&whole, usize::from(size));
                if order & 1 == 1 {
                    pieces.reverse();
                }
                if order & 2 == 2 && !pieces.is_empty() {
                    pieces.remove(0);
                }
                pieces.into_iter().for_each(|piece| self.arrive(piece));
            }
            Op::Turn { port, after_ms } => self.turn(port, after_ms),
            Op::Reload(variant) => {
                self.turn(0, 0);
                self.changed = true;
                let spec = self.world.spec(variant);
                let plan = Plan::compile(&spec, Some(&self.plan), &Retired::default());
                self.plan = plan.expect("the world can be compiled");
                self.route();
                for path in self.staged.workers.iter_mut().chain(&mut self.single.workers) {
                    path.adopt(&self.plan);
                }
            }
            Op::Neighbours(known) => {
                self.turn(0, 0);
                self.known = known;
                self.route();
            }
            Op::Settle => {
                self.turn(0, 0);
                self.settle();
            }
        }
    }

    fn route(&mut self) {
        self.fib = self.world.fib(&self.plan, Some(&self.fib), self.known);
    }

    fn arrive(&mut self, bytes: Vec<u8>) {
        self.waiting.push(bytes);
        if self.waiting.len() == BURST {
            self.turn(0, 0);
        }
    }

    /// All waiting frames arrive at a port (the worker by the port's upper bits), and fragments
    /// that have waited for one of them; then time passes.
    fn turn(&mut self, port: u8, after_ms: u64) {
        let worker = u16::from(port >> 1) % self.world.workers;
        let arrival = Arrival { worker, port: PortId(u16::from(port & 1)), since: self.now };
        let frames = std::mem::take(&mut self.waiting);
        let arrivals = vec![arrival; frames.len()];
        self.burst(&frames, &arrivals);
        for _ in 0..ROUNDS {
            for worker in 0..self.world.workers {
                let parked = self.staged.joined(worker, BURST);
                let same = self.single.joined(worker, BURST);
                let of = |parked: &sluice_director::path::Parked<CaptureFrame>| {
                    let frame = parked.frame.bytes().to_vec();
                    (frame, Arrival { worker, port: parked.port, since: parked.since })
                };
                let (frames, arrivals): (Vec<_>, Vec<_>) = parked.iter().map(of).unzip();
                let same: (Vec<_>, Vec<_>) = same.iter().map(of).unzip();
                assert_eq!((&frames, &arrivals), (&same.0, &same.1), "a burst changes parking");
                self.burst(&frames, &arrivals);
            }
        }
        self.now.0 += after_ms;
        self.staged.pass(&self.plan, self.now);
        self.single.pass(&self.plan, self.now);
    }

    /// One burst, and the same frames one at a time. What is handed over goes on, in the order of
    /// its lanes, when all have been where they arrived: what each worker sees is the same.
    fn burst(&mut self, frames: &[Vec<u8>], arrivals: &[Arrival]) {
        let view = View { plan: &self.plan, fib: &self.fib };
        let mut burst: Vec<_> = frames.iter().map(|bytes| CaptureFrame::new(bytes)).collect();
        let mut alone = burst.clone();
        let steps = self.staged.turn(view, self.now, arrivals, &mut burst);
        let mut handed = Vec::new();
        for (lane, frame) in alone.iter_mut().enumerate() {
            let before = self.state();
            let (arrival, view) = (arrivals[lane], View { plan: &self.plan, fib: &self.fib });
            let one = std::slice::from_mut(frame);
            let step = self.single.turn(view, self.now, &[arrival], one)[0];
            let same = (steps[lane].outcome.verdict, burst[lane].bytes());
            self.compare(lane, same, (step.outcome.verdict, frame.bytes()));
            if step.is_handed() {
                handed.push((lane, step));
            } else {
                self.judge((&frames[lane], frame), (arrival, step.outcome), before);
            }
        }
        for (lane, step) in handed {
            let (arrival, frame) = (arrivals[lane], &mut alone[lane]);
            let view = View { plan: &self.plan, fib: &self.fib };
            let together =
                self.staged.follow(view, self.now, arrival, (steps[lane], &mut burst[lane]));
            let mut before = self.state();
            // The first step of its way was counted before.
            before.1.handed_off -= 1;
            let outcome = self.single.follow(view, self.now, arrival, (step, frame));
            assert_eq!(together.handed, outcome.handed, "lane {lane}");
            let same = (together.verdict, burst[lane].bytes());
            self.compare(lane, same, (outcome.verdict, frame.bytes()));
            self.judge((&frames[lane], frame), (arrival, outcome), before);
        }
        assert_eq!(self.staged.counters(), self.single.counters(), "a burst changes counters");
    }

    /// Sessions and counters of the director that has frames one at a time.
    fn state(&self) -> (Vec<Vec<SessionInfo>>, Counters) {
        (self.single.sessions(&self.plan, self.now), self.single.counters())
    }

    fn compare(&self, lane: usize, burst: (Verdict, &[u8]), alone: (Verdict, &[u8])) {
        assert!(burst.0 == alone.0, "lane {lane}: {:?} in a burst, {:?} alone", burst.0, alone.0);
        assert_eq!(burst.1, alone.1, "lane {lane}: a burst changes bytes");
    }

    /// Judges a frame, as it came and as it is, and does what is to be done with it.
    fn judge(
        &mut self,
        (before, frame): (&[u8], &mut CaptureFrame),
        (arrival, outcome): (Arrival, Outcome),
        (known, counters): (Vec<Vec<SessionInfo>>, Counters),
    ) {
        let (world, spec) = (self.world, Rc::clone(&self.spec));
        let (since, counted) = self.state();
        let case = Case {
            world: &world,
            spec: &spec,
            arrival,
            before,
            outcome,
            known,
            since,
            counted: (counters, counted),
            changed: self.changed,
        };
        judge::frame(&case, frame.bytes(), &mut self.reached);
        self.send(&case, frame);
    }

    /// What is sent may be answered; what waits for a neighbour's address is sent once it is known.
    fn send(&mut self, case: &Case<'_>, frame: &mut CaptureFrame) {
        let mut verdict = case.outcome.verdict;
        if let Some(waiting) = case.outcome.waiting {
            let fib = self.world.fib(&self.plan, None, true);
            let path = &mut self.single.workers[0];
            verdict = path.release(&fib, frame, waiting);
            let outcome = Outcome { verdict, ..case.outcome };
            judge::released(&Case { outcome, ..case.clone() }, frame.bytes(), &mut self.reached);
        }
        if let Verdict::Tx(to) | Verdict::Answer(to, _) | Verdict::Fragment(to, _) = verdict {
            self.sent.push((to.0, frame.bytes().to_vec()));
        }
        let surplus = self.sent.len().saturating_sub(REMEMBERED);
        self.sent.drain(..surplus);
    }

    /// Ends what has timed out, and counts everything against everything.
    fn settle(&mut self) {
        for path in self.staged.workers.iter_mut().chain(&mut self.single.workers) {
            path.sweep_all(&self.plan, self.now);
            judge::counters(path);
        }
        let sessions = self.staged.sessions(&self.plan, self.now);
        assert_eq!(
            sessions,
            self.single.sessions(&self.plan, self.now),
            "a burst changes sessions"
        );
        assert_eq!(self.staged.counters(), self.single.counters(), "a burst changes counters");
        judge::sessions(&sessions);
    }
}
