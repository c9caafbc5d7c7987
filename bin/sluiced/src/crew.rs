//! The workers' threads: started, spoken to, ended together.

use crate::errors::{Error, system};
use crate::kept::{self, Kept};
use crate::queues::PortQueue;
use crate::wiring;
use sluice_config::{Config, Idle};
use sluice_director::fib::PortId;
use sluice_director::path::{
    Batch, Elephant, FlowName, NotSpreadable, PathConfig, RegionError, Restored,
};
use sluice_director::spec::NetworkId;
use sluice_dpdk::{Eal, Mbuf, WorkerThread};
use sluice_worker::spread::{FenceOrder, Refused, SpreadOrder, SpreadRequest, Spreading, Way};
use sluice_worker::{
    Clock, Event, Inbox, Message, Published, Report, Rings, Wake, Worker, WorkerConfig,
};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long a worker may take to answer. A turn takes microseconds; this is for a machine that is
/// badly overloaded.
const PATIENCE: Duration = Duration::from_secs(2);

/// The workers.
pub struct Crew {
    members: Vec<Member>,
    /// What workers ask of the control side.
    pub events: Receiver<Event>,
    /// Readable when there are events.
    pub events_wake: Wake,
    zero_boot_ms: u64,
}

/// What the workers' session tables are made with.
pub struct Tables<'a> {
    /// Secret of the session hash.
    pub seed: u64,
    /// Where the sessions lie that are to outlive the process.
    pub kept: Option<&'a Kept>,
}

impl Tables<'_> {
    /// A secret that nobody can foresee.
    pub fn new_seed() -> u64 {
        RandomState::new().build_hasher().finish()
    }
}

struct Member {
    core: u16,
    inbox: Inbox<PortQueue>,
    thread: Option<JoinHandle<()>>,
}

/// A worker's queues of several ports, with those of their twins.
pub type Share = Vec<(PortId, PortQueue, Option<PortQueue>)>;

/// What a worker's thread starts with.
struct Outfit {
    config: WorkerConfig,
    core: u16,
    idle: sluice_worker::Idle,
    published: Arc<Published>,
    rings: Rings<Mbuf>,
    wakes: Vec<Wake>,
    events: (Sender<Event>, Wake),
    mailbox: Receiver<Message<PortQueue>>,
    wake: Wake,
    start: Instant,
}

impl Crew {
    /// Starts one worker on each configured core and waits until all have their tables.
    pub fn start(
        config: &Config,
        eal: &Eal,
        published: &Arc<Published>,
        tables: &Tables<'_>,
    ) -> Result<Self, Error> {
        let cores = cores(config)?;
        let (events_sender, events) = channel();
        let events_wake = Wake::new().map_err(system("make an eventfd"))?;
        let (start, zero_boot_ms) = (Instant::now(), kept::boot_ms());
        let mut ends = Vec::new();
        for core in &cores {
            ends.push((*core, Inbox::new().map_err(system("make an eventfd"))?));
        }
        let wakes: Vec<Wake> = ends.iter().map(|(_, (it, ..))| it.wake().clone()).collect();
        let mut rings = sluice_worker::mesh(cores.len()).into_iter();
        let (ready_sender, ready) = channel();
        let mut members = Vec::new();
        for (number, (core, (inbox, mailbox, wake))) in ends.into_iter().enumerate() {
            let path = PathConfig {
                worker: number as u16,
                workers: cores.len() as u16,
                sessions: config.sessions_per_worker(),
                fragments: config.limits.fragments,
                seed: tables.seed,
                pages: wiring::table_pages(config),
            };
            let held_frames = config.limits.held_frames as usize;
            // Another place with each start: see `Path::begin_ports_at`.
            let ports_from = (Tables::new_seed() >> 32) as u32;
            let files = tables.kept.and_then(|kept| kept.files(number as u16)).unwrap_or_default();
            let clock = Some(Clock { ticks: sluice_dpdk::ticks, ticks_per_s: eal.ticks_per_s() });
            let networks = crate::networks::of_worker(config, cores.len());
            let outfit = Outfit {
                config: WorkerConfig { path, networks, files, held_frames, clock, ports_from },
                core,
                idle: match config.director.idle {
                    Idle::Adaptive => sluice_worker::Idle::Adaptive,
                    Idle::Busy => sluice_worker::Idle::Busy,
                },
                published: Arc::clone(published),
                rings: rings.next().unwrap_or_default(),
                wakes: wakes.clone(),
                events: (events_sender.clone(), events_wake.clone()),
                mailbox,
                wake,
                start,
            };
            let (eal, ready) = (eal.clone(), ready_sender.clone());
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || outfit.work(&eal, &ready))
                .map_err(system("start a worker's thread"))?;
            members.push(Member { core, inbox, thread: Some(thread) });
        }
        drop(ready_sender);
        let crew = Self { members, events, events_wake, zero_boot_ms };
        for _ in 0..crew.members.len() {
            match ready.recv() {
                Ok((_, Ok(()))) => {}
                Ok((worker, Err(source))) => return Err(Error::Tables { worker, source }),
                Err(_) => return Err(Error::WorkerEnded(0)),
            }
        }
        info!(workers = crew.members.len(), ?cores, "workers are ready");
        Ok(crew)
    }

    /// When the workers' clock began: milliseconds after the machine.
    pub const fn zero_boot_ms(&self) -> u64 {
        self.zero_boot_ms
    }

    /// Gives each worker its batch of a network's sessions of a director that ran before, and waits
    /// until all are taken up. `scattered` is [`Former::scatters`].
    ///
    /// [`Former::scatters`]: sluice_director::path::Former::scatters
    pub fn restore(&self, network: NetworkId, batches: Vec<Batch>, scattered: bool) -> Restored {
        let (reply, answers) = channel();
        self.give(network, batches, scattered, &reply);
        drop(reply);
        let mut all = Restored::default();
        answers.iter().for_each(|one| all += one);
        all
    }

    /// As [`Self::restore`], without waiting: each worker sends its outcome by `reply`.
    pub fn give(
        &self,
        network: NetworkId,
        batches: Vec<Batch>,
        scattered: bool,
        reply: &Sender<Restored>,
    ) {
        for (member, batch) in self.members.iter().zip(batches) {
            let reply = reply.clone();
            member.inbox.send(Message::Restore { network, batch, scattered, reply });
        }
    }

    /// How many workers there are.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The core of a worker.
    pub fn core(&self, worker: u16) -> u16 {
        self.members.get(usize::from(worker)).map_or(0, |member| member.core)
    }

    /// The first worker that ended without having been told to.
    pub fn lost(&self) -> Option<u16> {
        let ended = |member: &Member| member.thread.as_ref().is_some_and(JoinHandle::is_finished);
        self.members.iter().position(ended).map(|number| number as u16)
    }

    /// Gives all workers what they run with from now on.
    pub fn publish(&self, published: &Arc<Published>) {
        for member in &self.members {
            member.inbox.send(Message::Publish(Arc::clone(published)));
        }
    }

    /// Gives a worker a port's queue and its twin's.
    pub fn attach(&self, worker: usize, port: PortId, line: PortQueue, twin: Option<PortQueue>) {
        if let Some(member) = self.members.get(worker) {
            member.inbox.send(Message::Attach(port, line, twin));
        }
    }

    /// Gives each worker its queues of several ports, and those of their twins, at once.
    pub fn attach_all(&self, shares: Vec<Share>) {
        for (member, share) in self.members.iter().zip(shares) {
            member.inbox.send(Message::AttachAll(share));
        }
    }

    /// Takes the queues of several ports away from all workers, each of which has all or none of
    /// them at any moment. `false` when one did not answer in time.
    pub fn detach_all(&self, ports: &[PortId]) -> bool {
        let (sender, done) = channel();
        for member in &self.members {
            for port in ports {
                member.inbox.send(Message::Detach(*port, sender.clone()));
            }
        }
        drop(sender);
        let expected = ports.len() * self.members.len();
        collect(&done, expected).len() == expected
    }

    /// Takes a port's queues away from all workers. `false` when one did not answer in time.
    pub fn detach(&self, port: PortId) -> bool {
        let (sender, done) = channel();
        for member in &self.members {
            member.inbox.send(Message::Detach(port, sender.clone()));
        }
        drop(sender);
        collect(&done, self.members.len()).len() == self.members.len()
    }

    /// How all workers stand, by number; without those that did not answer in time.
    pub fn reports(&self) -> Vec<Report> {
        let (sender, replies) = channel();
        for member in &self.members {
            member.inbox.send(Message::Report(sender.clone()));
        }
        drop(sender);
        let mut reports = collect(&replies, self.members.len());
        reports.sort_by_key(|report: &Report| report.worker);
        reports
    }

    /// The sessions with the most traffic of each worker, at most `limit` of each.
    pub fn elephants(&self, limit: usize) -> Vec<(u16, Elephant)> {
        let asked = self.members.iter().zip(0..).map(|(member, worker)| {
            let (reply, answer) = channel();
            member.inbox.send(Message::Elephants { limit, reply });
            (worker, answer)
        });
        let asked: Vec<_> = asked.collect();
        let found = asked.into_iter().flat_map(|(worker, answer)| {
            let all = answer.recv_timeout(PATIENCE).unwrap_or_default();
            all.into_iter().map(move |elephant| (worker, elephant))
        });
        found.collect()
    }

    /// Has the worker that owns a flow's session spread it; gives its number.
    ///
    /// # Errors
    /// Why none does: what the owner says, if there is one.
    pub fn spread(&self, order: SpreadOrder) -> Result<u16, Refused> {
        let (sender, answers) = channel();
        for member in &self.members {
            let request = SpreadRequest::Begin(order, sender.clone());
            member.inbox.send(Message::Spread(request));
        }
        drop(sender);
        let mut refused = Refused::Flow(NotSpreadable::NoSession);
        for (worker, answer) in collect(&answers, self.members.len()) {
            match answer {
                Ok(()) => return Ok(worker),
                Err(Refused::Flow(NotSpreadable::NoSession)) => {}
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    /// Has a flow spread no more. `false` if it was not.
    pub fn gather_in(&self, network: NetworkId, flow: FlowName) -> bool {
        let (sender, answers) = channel();
        for member in &self.members {
            let request = SpreadRequest::End(network, flow, sender.clone());
            member.inbox.send(Message::Spread(request));
        }
        drop(sender);
        collect(&answers, self.members.len()).contains(&true)
    }

    /// The flows that are spread, each with the worker that owns it.
    pub fn spreading(&self) -> Vec<(u16, Spreading)> {
        let (sender, answers) = channel();
        for member in &self.members {
            member.inbox.send(Message::Spread(SpreadRequest::List(sender.clone())));
        }
        drop(sender);
        let mut all = collect(&answers, self.members.len());
        all.sort_by_key(|(worker, _)| *worker);
        let of = |(worker, flows): (u16, Vec<Spreading>)| {
            flows.into_iter().map(move |flow| (worker, flow))
        };
        all.into_iter().flat_map(of).collect()
    }

    /// Has the owner of a flow put up a fence. `false` if it does not, or has not said so in time;
    /// then it is told to take it down.
    pub fn fence(&self, owner: u16, order: FenceOrder) -> bool {
        let (sender, answer) = channel();
        self.ask(owner, SpreadRequest::Fence(order, sender));
        let answer = answer.recv_timeout(PATIENCE);
        if answer.is_err() {
            self.take_down(owner, order.id);
        }
        answer.unwrap_or(false)
    }

    /// Has those give the owner of a fence their marks who may have packets of its flow.
    pub fn ask_for_marks(&self, owner: u16, order: &FenceOrder) {
        let FenceOrder { id: fence, to_way, .. } = *order;
        let asked = |worker: &u16| (*worker == owner) == (to_way == Way::Handed);
        for worker in (0..self.members.len() as u16).filter(asked) {
            self.ask(worker, SpreadRequest::Mark { fence, owner });
        }
    }

    /// Has a fence taken down.
    pub fn take_down(&self, owner: u16, fence: u32) {
        self.ask(owner, SpreadRequest::TakeDown(fence));
    }

    fn ask(&self, worker: u16, request: SpreadRequest) {
        if let Some(member) = self.members.get(usize::from(worker)) {
            member.inbox.send(Message::Spread(request));
        }
    }

    /// Ends of the workers' mailboxes, by number.
    pub fn inboxes(&self) -> Vec<Inbox<PortQueue>> {
        self.members.iter().map(|member| member.inbox.another()).collect()
    }
}

impl Drop for Crew {
    /// Tells all workers to stop and waits for them: their queues are closed then.
    fn drop(&mut self) {
        for member in &self.members {
            member.inbox.send(Message::Stop);
        }
        for member in &mut self.members {
            if member.thread.take().is_some_and(|thread| thread.join().is_err()) {
                warn!(core = member.core, "a worker had panicked");
            }
        }
    }
}

fn collect<T>(replies: &Receiver<T>, expected: usize) -> Vec<T> {
    let deadline = Instant::now() + PATIENCE;
    let next = || replies.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).take(expected).collect()
}

/// The cores to work on: those configured, or the last one that the process may use.
fn cores(config: &Config) -> Result<Vec<u16>, Error> {
    if let Some(cores) = &config.director.cores {
        return Ok(cores.clone());
    }
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| system("ask for the process's cores")(errno.into()))?;
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|core| allowed.is_set(*core));
    Ok(vec![last.unwrap_or(0) as u16])
}

impl Outfit {
    /// The life of a worker's thread.
    fn work(self, eal: &Eal, ready: &Sender<(u16, Result<(), RegionError>)>) {
        let number = self.config.path.worker;
        let mut only = rustix::thread::CpuSet::new();
        only.set(usize::from(self.core));
        if let Err(error) = rustix::thread::sched_setaffinity(None, &only) {
            warn!(worker = number, core = self.core, %error, "cannot pin the worker to its core");
        }
        let _registered = WorkerThread::register(eal)
            .inspect_err(|error| warn!(worker = number, %error, "no packet cache for the worker"));
        // The tables are made here, so that their memory is near the core.
        let worker = Worker::new(self.config, &self.published, self.rings, self.wakes, self.events);
        let (answer, worker) = match worker {
            Ok(worker) => (Ok(()), Some(worker)),
            Err(error) => (Err(error), None),
        };
        // The control side waits for it.
        let _ = ready.send((number, answer));
        if let Some(mut worker) = worker {
            sluice_worker::run(&mut worker, &self.mailbox, &self.wake, self.idle, self.start);
        }
    }
}
