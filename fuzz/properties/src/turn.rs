//! Whole turns of the packet path over any frames, ports and times.
//!
//! The bytes are a script ([`script`]): which network ([`world`]), then frames (raw, or built and
//! spoilt, or answers to what the director sent), turns, clock steps, reloads. The script is played
//! by two directors: one takes the frames in bursts, one takes them one at a time. They must agree
//! in every verdict, byte, counter and session; and what they do is judged by `etherparse`
//! ([`judge`]).

mod judge;
mod script;
mod world;

pub use script::{Op, encode};

use sluice::replay::CaptureFrame;
use sluice_director::counters::Counters;
use sluice_director::fib::{Fib, PortId};
use sluice_director::path::{BURST, Path, PathConfig, SessionFilter, SessionInfo, Verdict, View};
use sluice_director::plan::{Plan, Retired};
use sluice_director::{Frame, Time};
use sluice_table::PagePolicy;

use crate::bytes::Bytes;
use script::Script;
use world::World;

/// Frames that were sent and may be answered.
const REMEMBERED: usize = 64;

/// Plays a script.
///
/// # Panics
/// When the two directors disagree, or one of them breaks a rule.
pub fn turn(data: &[u8]) {
    let mut script = Script(Bytes(data));
    let mut stage = Stage::new(World::new(script.0.u8()), script.0.u8());
    while let Some(op) = script.next_op(&stage.sent) {
        stage.play(op);
    }
    stage.turn(0, 0);
    stage.settle();
}

/// One director: all its workers.
struct Director {
    workers: Vec<Path>,
}

impl Director {
    fn new(world: &World, plan: &Plan, sessions: u32) -> Self {
        let workers = (0..world.workers).map(|worker| {
            let config = PathConfig {
                worker,
                workers: world.workers,
                sessions,
                fragments: 16,
                seed: 1,
                pages: PagePolicy::Ordinary,
            };
            let mut path = Path::new(&config).expect("a small table fits");
            path.adopt(plan);
            path
        });
        Self { workers: workers.collect() }
    }

    /// One turn, with what is handed to other workers.
    fn turn(
        &mut self,
        view: View<'_>,
        now: Time,
        (worker, port): (u16, PortId),
        frames: &mut [CaptureFrame],
    ) -> Vec<Verdict> {
        let mut verdicts = vec![Verdict::Wait; frames.len()];
        let path = &mut self.workers[usize::from(worker)];
        path.turn(view, now, port, frames, &mut verdicts);
        let waits = verdicts.iter().filter(|verdict| **verdict == Verdict::Wait).count();
        assert_eq!(path.waiting().len(), waits, "each waiting frame is listed");
        for (frame, verdict) in frames.iter_mut().zip(&mut verdicts) {
            if let Verdict::HandOff(owner) = *verdict {
                assert_ne!(owner, worker, "handed to itself");
                let owner = &mut self.workers[usize::from(owner)];
                let one = std::slice::from_mut(verdict);
                owner.turn(view, now, port, std::slice::from_mut(frame), one);
                assert!(!matches!(one[0], Verdict::HandOff(_)), "handed on by its owner");
            }
        }
        verdicts
    }

    fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for path in &self.workers {
            all.add(path.counters());
        }
        all
    }

    /// The sessions of each worker, in an order that does not depend on their history.
    fn sessions(&self, plan: &Plan, now: Time) -> Vec<Vec<SessionInfo>> {
        let of_worker = |path: &Path| {
            let (mut all, mut cursor) = (Vec::new(), Some(0));
            while let Some(from) = cursor {
                cursor = path.list(plan, now, &SessionFilter::default(), (from, 16), &mut all);
            }
            all.sort_by_key(|s| (s.client, s.virtual_, s.protocol));
            all
        };
        self.workers.iter().map(of_worker).collect()
    }
}

struct Stage {
    world: World,
    plan: Plan,
    fib: Fib,
    staged: Director,
    single: Director,
    now: Time,
    waiting: Vec<Vec<u8>>,
    /// What was sent lately: port and bytes.
    sent: Vec<(u16, Vec<u8>)>,
}

impl Stage {
    fn new(world: World, sessions: u8) -> Self {
        let plan = Plan::compile(&world.blueprint(0), None, &Retired::default());
        let plan = plan.expect("the world can be compiled");
        let sessions = u32::from(sessions % 64) + 1;
        Self {
            staged: Director::new(&world, &plan, sessions),
            single: Director::new(&world, &plan, sessions),
            fib: world.fib(&plan, None),
            world,
            plan,
            now: Time(1_000_000),
            waiting: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Frame(bytes) => {
                self.waiting.push(bytes);
                if self.waiting.len() == BURST {
                    self.turn(0, 0);
                }
            }
            Op::Turn { port, after_ms } => self.turn(port, after_ms),
            Op::Reload(variant) => {
                self.turn(0, 0);
                let blueprint = self.world.blueprint(variant);
                let plan = Plan::compile(&blueprint, Some(&self.plan), &Retired::default());
                self.plan = plan.expect("the world can be compiled");
                self.fib = self.world.fib(&self.plan, Some(&self.fib));
                for path in self.staged.workers.iter_mut().chain(&mut self.single.workers) {
                    path.adopt(&self.plan);
                }
            }
            Op::Settle => {
                self.turn(0, 0);
                self.settle();
            }
        }
    }

    /// All waiting frames arrive at a port (the worker by the port's upper bits), then time
    /// passes.
    fn turn(&mut self, port: u8, after_ms: u64) {
        let worker = u16::from(port >> 1) % self.world.workers;
        let port = PortId(u16::from(port & 1));
        let view = View { plan: &self.plan, fib: &self.fib };
        let before = std::mem::take(&mut self.waiting);
        let mut burst: Vec<_> = before.iter().map(|bytes| CaptureFrame::new(bytes)).collect();
        let mut alone = burst.clone();
        let verdicts = self.staged.turn(view, self.now, (worker, port), &mut burst);
        for (lane, frame) in alone.iter_mut().enumerate() {
            let one = std::slice::from_mut(frame);
            let known = self.single.sessions(&self.plan, self.now);
            let created = self.single.counters().created;
            let verdict = self.single.turn(view, self.now, (worker, port), one)[0];
            let created = self.single.counters().created - created;
            judge::session(&known, worker, &before[lane], verdict, created);
            assert_eq!(verdicts[lane], verdict, "lane {lane}: a burst changes the verdict");
            assert_eq!(burst[lane].bytes(), frame.bytes(), "lane {lane}: a burst changes bytes");
            judge::frame(&self.world, port, &before[lane], verdict, frame.bytes());
            if let Verdict::Tx(to) | Verdict::Answer(to, _) = verdict {
                self.sent.push((to.0, frame.bytes().to_vec()));
            }
        }
        let surplus = self.sent.len().saturating_sub(REMEMBERED);
        self.sent.drain(..surplus);
        assert_eq!(self.staged.counters(), self.single.counters(), "a burst changes counters");
        self.now.0 += after_ms;
        for path in self.staged.workers.iter_mut().chain(&mut self.single.workers) {
            path.sweep(&self.plan, self.now);
        }
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
