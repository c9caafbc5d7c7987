//! One director: all its workers, with what a worker's loop does beside turns: frames are handed to
//! other workers, fragments wait for their first.

use sluice::replay::CaptureFrame;
use sluice_director::Frame;
use sluice_director::Time;
use sluice_director::counters::Counters;
use sluice_director::fib::PortId;
use sluice_director::path::{
    PagePolicy, Parked, Parking, Path, PathConfig, Round, SessionFilter, SessionInfo, Verdict,
    View, Waiting,
};
use sluice_director::plan::Plan;
use sluice_director::reason::Reason;
use sluice_testkit::describe;

use super::world::World;

/// Where and when a frame comes in: worker, port, and when it first came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub worker: u16,
    pub port: PortId,
    pub since: Time,
}

/// What became of a frame, and of one that waits, what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub verdict: Verdict,
    /// How many times it was given to another worker.
    pub handed: u64,
    pub waiting: Option<Waiting>,
}

/// What a worker has decided about a frame that arrived there, and its round if it is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub outcome: Outcome,
    round: Round,
}

impl Step {
    pub const fn is_handed(&self) -> bool {
        matches!(self.outcome.verdict, Verdict::HandOff(_))
    }
}

/// All workers of one director.
pub struct Director {
    pub workers: Vec<Path>,
    parking: Vec<Parking<CaptureFrame>>,
    /// Datagrams whose first fragment came, by worker.
    joined: Vec<Vec<u32>>,
}

impl Director {
    pub fn new(world: &World, plan: &Plan) -> Self {
        let workers = (0..world.workers).map(|worker| {
            let config = PathConfig {
                worker,
                workers: world.workers,
                sessions: world.sessions,
                fragments: 16,
                seed: 1,
                pages: PagePolicy::Ordinary,
            };
            let mut path = Path::new(&config).expect("a small table fits");
            path.adopt(plan);
            path
        });
        let workers: Vec<_> = workers.collect();
        let parking = workers.iter().map(|_| Parking::new()).collect();
        let joined = workers.iter().map(|_| Vec::new()).collect();
        Self { workers, parking, joined }
    }

    /// One turn of the worker where frames arrive. What it hands over goes nowhere yet.
    pub fn turn(
        &mut self,
        view: View<'_>,
        now: Time,
        arrivals: &[Arrival],
        frames: &mut [CaptureFrame],
    ) -> Vec<Step> {
        let Some(Arrival { worker, port, .. }) = arrivals.first().copied() else {
            return Vec::new();
        };
        let mut verdicts = vec![Verdict::Wait; frames.len()];
        let path = &mut self.workers[usize::from(worker)];
        path.turn(view, now, port, frames, &mut verdicts);
        self.joined[usize::from(worker)].extend(path.joined());
        let waits = verdicts.iter().filter(|verdict| **verdict == Verdict::Wait).count();
        let waiting = path.waiting().to_vec();
        assert_eq!(waiting.len(), waits, "each waiting frame is listed");
        let step = |(lane, verdict)| {
            let waiting = waiting.iter().find(|waiting| waiting.lane == lane).copied();
            Step { outcome: Outcome { verdict, handed: 0, waiting }, round: path.round(lane) }
        };
        let steps: Vec<_> = verdicts.into_iter().enumerate().map(step).collect();
        for (lane, step) in steps.iter().enumerate().filter(|(_, step)| !step.is_handed()) {
            self.park(worker, arrivals[lane], (step.outcome.verdict, &frames[lane]));
        }
        steps
    }

    /// The whole way of a frame that the worker where it arrived hands over.
    pub fn follow(
        &mut self,
        view: View<'_>,
        now: Time,
        arrival: Arrival,
        (step, frame): (Step, &mut CaptureFrame),
    ) -> Outcome {
        let Step { mut outcome, mut round } = step;
        let mut owner = arrival.worker;
        while let Verdict::HandOff(to) = outcome.verdict {
            assert_ne!(to, owner, "handed to itself");
            owner = to;
            let (verdict, waiting) = self.take_over(view, now, (to, arrival.port), (frame, round));
            round = self.workers[usize::from(to)].round(0);
            outcome = Outcome { verdict, handed: outcome.handed + 1, waiting };
            // Once to every other, and back to who would open a session.
            let most = self.workers.len() as u64;
            assert!(outcome.handed <= most, "handed around: {}", describe(frame.bytes()));
        }
        self.park(owner, arrival, (outcome.verdict, frame));
        outcome
    }

    /// Keeps a later fragment whose first has not come.
    fn park(&mut self, owner: u16, arrival: Arrival, (verdict, frame): (Verdict, &CaptureFrame)) {
        let Verdict::Park(datagram) = verdict else { return };
        let Arrival { port, since, .. } = arrival;
        let parked = Parked { frame: frame.clone(), port, datagram, since };
        if let Err(reason) = self.parking[usize::from(owner)].park(parked) {
            self.workers[usize::from(owner)].count(reason);
        }
    }

    /// A frame at the worker that another one gave it to.
    fn take_over(
        &mut self,
        view: View<'_>,
        now: Time,
        (owner, port): (u16, PortId),
        (frame, round): (&mut CaptureFrame, Round),
    ) -> (Verdict, Option<Waiting>) {
        let mut verdict = [Verdict::Wait];
        let path = &mut self.workers[usize::from(owner)];
        let frames = (std::slice::from_mut(frame), &[round][..]);
        path.turn_handed(view, now, port, frames, &mut verdict);
        self.joined[usize::from(owner)].extend(path.joined());
        (verdict[0], path.waiting().first().copied())
    }

    /// Fragments at a worker, all of one port, whose first has come.
    pub fn joined(&mut self, worker: u16, most: usize) -> Vec<Parked<CaptureFrame>> {
        let at = usize::from(worker);
        let mut out: Vec<Parked<CaptureFrame>> = Vec::new();
        while out.len() < most {
            let port = out.first().map(|parked| parked.port);
            let Some(parked) = self.parking[at].take(&self.joined[at], port) else { break };
            out.push(parked);
        }
        if out.is_empty() {
            self.joined[at].clear();
        }
        out
    }

    /// Lets time do its work.
    pub fn pass(&mut self, plan: &Plan, now: Time) {
        for (path, parking) in self.workers.iter_mut().zip(&mut self.parking) {
            path.sweep(plan, now);
            while parking.give_up(now).is_some() {
                path.count(Reason::FragmentOrphan);
            }
        }
    }

    pub fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for path in &self.workers {
            all.add(path.counters());
        }
        all
    }

    /// The sessions of each worker, in an order that does not depend on their history.
    pub fn sessions(&self, plan: &Plan, now: Time) -> Vec<Vec<SessionInfo>> {
        let of_worker = |path: &Path| {
            let (mut all, mut cursor) = (Vec::new(), Some(0));
            while let Some(from) = cursor {
                cursor = path.list(plan, now, &SessionFilter::default(), (from, 16), &mut all);
            }
            all.sort_by_key(|s| (s.client, s.virtual_, s.protocol, s.real, s.local));
            all
        };
        self.workers.iter().map(of_worker).collect()
    }
}
