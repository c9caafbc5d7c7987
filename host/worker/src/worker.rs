//! One worker's turn: receive, run through the path, send.

mod attach;
mod fence;
mod handoff;
mod hold;
mod networks;
mod report;
mod send;
mod spread;
mod timed;
mod traced;
mod tunnels;

use crate::mailbox::{Carried, Event, Message, Wake};
use crate::outbox::Outbox;
use crate::outlet::Outlet;
use crate::queue::{Burst, Queue};
use crate::ring::{Handoff, HandoffMessage, Rings, Rounds};
use crate::stages::{Clock, StageCounts, Stages};
use arrayvec::ArrayVec;
use fence::Owed;
use handoff::Search;
pub(crate) use networks::Net;
pub use networks::{NetworksConfig, Published, Snapshot};
use sluice_director::dealing::Spreads;
use sluice_director::fib::PortId;
use sluice_director::path::{
    BURST, Parked, Path, PathConfig, Probe, RegionError, Round, TableFiles, Unprobed, Verdict,
    View, Waiting,
};
use sluice_director::spec::NetworkId;
use sluice_director::vxlan::Tunnels;
use sluice_director::{Reason, Time};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use traced::CapturePoints;

/// Bursts of so many frames or fewer are spared to prepare room for all that one may have.
const SHORT: usize = 32;
/// Slots that are looked at for one [`Message::Sessions`].
const LISTED_SLOTS: u32 = 4096;

/// How a worker is made.
#[derive(Debug)]
pub struct WorkerConfig {
    /// Its packet path in the default network.
    pub path: PathConfig,
    /// What it has besides.
    pub networks: NetworksConfig,
    /// Where its sessions lie, of each network by number, if they are to outlive the process.
    pub files: Vec<TableFiles>,
    /// The most frames that wait for neighbours.
    pub held_frames: usize,
    /// What the stages are timed by; without it they are not.
    pub clock: Option<Clock>,
    /// Where in each pool it begins to give out local ports.
    pub ports_from: u32,
}

impl WorkerConfig {
    /// That of a worker in the default network alone, whose sessions end with the process, whose
    /// frames do not wait, and that has no clock.
    pub fn of(path: PathConfig) -> Self {
        let networks = NetworksConfig::default();
        Self { path, networks, files: Vec::new(), held_frames: 0, clock: None, ports_from: 0 }
    }
}

/// A port as one worker has it: one queue as a rule, several of a port that has more queues than
/// there are workers, none of one that has fewer; another worker then sends for it. Frames leave
/// by the first.
struct Attached<Q: Queue> {
    lines: Vec<Outlet<Q>>,
    twins: Vec<Outlet<Q>>,
    search: Search,
    /// Of a virtual port.
    carried: Carried,
}

impl<Q: Queue> Default for Attached<Q> {
    fn default() -> Self {
        let (lines, twins) = (Vec::new(), Vec::new());
        Self { lines, twins, search: Search::default(), carried: Carried::default() }
    }
}

impl<Q: Queue> Attached<Q> {
    fn outlets(&mut self) -> impl Iterator<Item = &mut Outlet<Q>> {
        self.lines.iter_mut().chain(&mut self.twins)
    }
}

/// A worker. [`crate::run`] is its loop.
pub struct Worker<Q: Queue> {
    number: u16,
    /// Whether there are other workers.
    has_others: bool,
    /// The network whose packets it is at; the default one between turns.
    pub(crate) net: Box<Net<Q::Frame>>,
    /// The others, by their numbers.
    resting: Vec<Option<Box<Net<Q::Frame>>>>,
    /// The network of each port.
    of_port: Box<[NetworkId]>,
    /// Whether the underlay of virtual ports reaches the kernel.
    has_twins: bool,
    /// Virtual ports, whose frames travel by others.
    tunnels: Arc<Tunnels>,
    ports: Vec<Attached<Q>>,
    rings: Rings<Q::Frame>,
    /// Workers whose rings have something in this turn.
    senders: Vec<usize>,
    /// Whether some were handed something and may not have been woken.
    owes_wakes: bool,
    wakes: Vec<Wake>,
    /// Flows that other workers help with.
    spreads: Spreads<Q::Frame>,
    /// Marks that owners of flows wait for.
    owed: Vec<Owed>,
    events: Sender<Event>,
    events_wake: Wake,
    /// When a path MTU was last told.
    told_narrow: Option<Time>,
    stages: Stages,
    /// Who looks at packets; nobody as a rule.
    capture_points: Option<Box<CapturePoints>>,
    /// Who is over and was not taken back yet.
    retired: Option<Box<CapturePoints>>,
    /// Where changed sessions are told, if there are other directors.
    pub(crate) outbox: Option<Box<Outbox>>,
    pub(crate) tally: Tally,
}

/// What the loop itself counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub turns: u64,
    pub empty_turns: u64,
    pub sleeps: u64,
    pub packets: u64,
    /// Times that a port had frames.
    pub bursts: u64,
    pub busy_us: u64,
    pub life_ms: u64,
}

impl<Q: Queue> Worker<Q> {
    /// A worker without ports. `wakes` wakes each worker, by number; `events` and `events_wake`
    /// lead to the control side.
    pub fn new(
        mut config: WorkerConfig,
        published: &Published,
        rings: Rings<Q::Frame>,
        wakes: Vec<Wake>,
        (events, events_wake): (Sender<Event>, Wake),
    ) -> Result<Self, RegionError> {
        let (net, resting) = networks::make(&mut config, published)?;
        let mut ports = Vec::new();
        ports.resize_with(config.networks.of_port.len(), Attached::default);
        Ok(Self {
            number: config.path.worker,
            has_others: config.path.workers > 1,
            net,
            resting,
            has_twins: config.networks.twins,
            of_port: config.networks.of_port.into(),
            tunnels: Arc::clone(&published.tunnels),
            ports,
            senders: Vec::with_capacity(rings.from.len()),
            owes_wakes: false,
            rings,
            wakes,
            spreads: Spreads::default(),
            owed: Vec::new(),
            events,
            events_wake,
            told_narrow: None,
            stages: Stages::new(config.clock, config.path.worker),
            capture_points: None,
            retired: None,
            outbox: None,
            tally: Tally::default(),
        })
    }

    /// Its packet path in the default network.
    pub const fn path(&self) -> &Path {
        &self.net.path
    }

    /// Where its cycles went.
    pub const fn stages(&self) -> &StageCounts {
        &self.stages.counts
    }

    /// A port's first queue, if this worker has one.
    pub fn queue_mut(&mut self, port: PortId) -> Option<&mut Q> {
        let line = self.ports.get_mut(usize::from(port.0))?.lines.first_mut();
        line.map(|outlet| &mut outlet.queue)
    }

    pub(crate) fn queues_mut(&mut self) -> impl Iterator<Item = &mut Q> {
        self.ports.iter_mut().flat_map(Attached::outlets).map(|outlet| &mut outlet.queue)
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = &Q> {
        let outlets = self.ports.iter().flat_map(|port| port.lines.iter().chain(&port.twins));
        outlets.map(|outlet| &outlet.queue)
    }

    /// One turn: a burst from each queue and ring. Gives the number of frames that came.
    pub fn turn(&mut self, now: Time) -> usize {
        let (mut came, mut helped) = (0, 0);
        self.give_up_parked(now);
        if self.has_others {
            self.wake_called();
            self.note_senders();
            if self.rings.any_spread() {
                self.review_spreads(now);
                helped = self.help();
                if !self.owed.is_empty() {
                    helped += self.give_marks(now);
                }
            }
        }
        for at in 0..self.ports.len() {
            self.enter(PortId(at as u16));
            for queue in 0..self.ports[at].lines.len() {
                came += self.serve_line(now, at, queue);
            }
            for queue in 0..self.ports[at].twins.len() {
                came += self.serve_twin(at, queue);
            }
        }
        came += self.serve_senders(now);
        if !self.spreads.is_idle() {
            helped += self.collect(now);
        }
        self.leave();
        self.flush();
        self.sweep(now, came);
        if self.outbox.is_some() {
            self.tell(now, came);
        }
        self.look_after_held(now);
        self.tally.packets += came as u64;
        came + helped
    }

    /// Ends some of the sessions that have timed out.
    #[inline(always)]
    fn sweep(&mut self, now: Time, came: usize) {
        if came > 0
            && let Some(watch) = self.stages.watch()
        {
            return self.sweep_timed(now, watch);
        }
        self.sweep_all(now);
    }

    /// Sends what was collected, and hands over what is other workers'.
    fn flush(&mut self) {
        self.flush_lines();
        self.flush_rings();
    }

    fn flush_lines(&mut self) {
        for at in 0..self.ports.len() {
            for outlet in self.ports[at].outlets() {
                let dropped = outlet.flush();
                (0..dropped).for_each(|_| self.net.path.count(Reason::TxFull));
            }
        }
    }

    fn serve_line(&mut self, now: Time, port: usize, queue: usize) -> usize {
        if let Some(watch) = self.stages.watch() {
            return self.serve_line_timed(now, (port, queue), watch);
        }
        let (came, joined) = self.serve_line_untimed(now, port, queue);
        came + joined
    }

    /// The same, whatever is timed; tells apart how many came and how many were handed over.
    #[inline(always)]
    fn serve_line_untimed(&mut self, now: Time, port: usize, queue: usize) -> (usize, usize) {
        let mut burst = Burst::new();
        let came = self.ports[port].lines[queue].queue.receive(&mut burst);
        self.tally.bursts += u64::from(came > 0);
        let port = PortId(port as u16);
        if came > 0 && self.tunnels.is_underlay(port) {
            self.take_tunnelled(now, port, &mut burst);
        }
        if !self.has_others {
            if !burst.is_empty() {
                self.process(now, port, (&mut burst, &[]), &mut Unprobed);
            }
            return (came, 0);
        }
        let mut rounds = Rounds::new();
        let joined = self.gather(now, port, (&mut burst, &mut rounds), &mut Unprobed);
        if !burst.is_empty() {
            self.process(now, port, (&mut burst, &rounds), &mut Unprobed);
        }
        (came, joined)
    }

    /// The kernel's frames leave by the port as they are.
    fn serve_twin(&mut self, port: usize, queue: usize) -> usize {
        let mut burst = Burst::new();
        let came = self.ports[port].twins[queue].queue.receive(&mut burst);
        let mut dropped = 0;
        if self.capture_points.is_some() {
            self.watch_kernels(PortId(port as u16), &burst);
        }
        let Attached { lines, .. } = &mut self.ports[port];
        for frame in burst {
            dropped += lines.first_mut().map_or(1, |line| line.push(frame));
        }
        self.count(dropped, Reason::TxFull);
        came
    }

    /// Runs a burst through the path and sends its frames where they belong, and then those that
    /// waited for one of them. `rounds` is what those have behind them that were handed over: the
    /// last ones.
    fn process<T: Probe>(
        &mut self,
        now: Time,
        port: PortId,
        handed: (&mut Burst<Q::Frame>, &[Round]),
        probe: &mut T,
    ) {
        self.process_since(now, port, handed, &[], probe);
        if !self.net.parking.is_empty() && !self.net.path.joined().is_empty() {
            self.process_parked(now);
        }
    }

    /// Runs the fragments through the path whose datagrams' firsts came in the last turn.
    #[cold]
    fn process_parked(&mut self, now: Time) {
        let mut joined = ArrayVec::<u32, BURST>::new();
        joined.extend(self.net.path.joined().iter().copied());
        // Who is parked again is not tried for ever.
        let mut tries = self.net.parking.len();
        while tries > 0
            && let Some(first) = self.net.parking.take(&joined, None)
        {
            let (mut burst, mut since) = (Burst::new(), ArrayVec::<Time, BURST>::new());
            let port = first.port;
            let mut next = Some(first);
            while let Some(parked) = next {
                burst.push(parked.frame);
                since.push(parked.since);
                let full = burst.is_full();
                next = if full { None } else { self.net.parking.take(&joined, Some(port)) };
            }
            tries = tries.saturating_sub(burst.len());
            self.process_since(now, port, (&mut burst, &[]), &since, &mut Unprobed);
        }
    }

    /// Runs a burst through the path and sends its frames where they belong. `since` says when
    /// they came, if not now.
    fn process_since<T: Probe>(
        &mut self,
        now: Time,
        port: PortId,
        (burst, rounds): (&mut Burst<Q::Frame>, &[Round]),
        since: &[Time],
        probe: &mut T,
    ) {
        if self.capture_points.is_some() {
            return self.process_watched(now, port, (burst, rounds), since);
        }
        let handed = (burst, rounds);
        if handed.0.len() <= SHORT {
            self.process_into(now, port, handed, since, (&mut [Verdict::Wait; SHORT], probe));
        } else {
            self.process_into(now, port, handed, since, (&mut [Verdict::Wait; BURST], probe));
        }
    }

    /// The same with room for verdicts.
    fn process_into<T: Probe>(
        &mut self,
        now: Time,
        port: PortId,
        (burst, rounds): (&mut Burst<Q::Frame>, &[Round]),
        since: &[Time],
        (verdicts, probe): (&mut [Verdict], &mut T),
    ) {
        let view = View { plan: &self.net.snapshot.plan, fib: &self.net.snapshot.fib };
        self.net.path.turn_probed(view, now, port, (burst, rounds), (verdicts, probe));
        let verdicts = &verdicts[..burst.len()];
        // Nearly always all leave by the same port.
        let to = self.net.path.all_leave_by();
        if let Some(line) = to.and_then(|to| self.line(to)) {
            let dropped = line.push_all(burst);
            self.count(dropped, Reason::TxFull);
        } else if let Some(to) = to.filter(|to| self.tunnels.is_virtual(*to)) {
            self.send_all_tunnelled(to, burst);
        } else {
            self.part(now, port, burst, (verdicts, since));
        }
    }

    /// Sends each frame of a burst where it belongs.
    fn part(
        &mut self,
        now: Time,
        port: PortId,
        burst: &mut Burst<Q::Frame>,
        (verdicts, since): (&[Verdict], &[Time]),
    ) {
        let mut waiting = ArrayVec::<Waiting, BURST>::new();
        waiting.extend(self.net.path.waiting().iter().copied());
        let mut waiting = waiting.into_iter();
        for (lane, (verdict, frame)) in verdicts.iter().zip(burst.drain(..)).enumerate() {
            match *verdict {
                Verdict::Tx(port) | Verdict::Answer(port, _) => self.send(port, frame, false),
                Verdict::Drop(_) => drop(frame),
                Verdict::Fragment(to, mtu) => self.cut(to, frame, mtu),
                Verdict::Park(datagram) => {
                    let since = since.get(lane).copied().unwrap_or(now);
                    let parked = Parked { frame, port, datagram, since };
                    if let Err(reason) = self.net.parking.park(parked) {
                        self.net.path.count(reason);
                    }
                }
                Verdict::Kernel(_) => self.pass_to_kernel(now, port, frame, false),
                Verdict::HandOff(worker) => {
                    if let Some(home) = self.ports.get_mut(usize::from(port.0)) {
                        home.search.found_one();
                    }
                    let handoff = Handoff::Process(self.net.path.round(lane));
                    self.hand_off(worker, HandoffMessage::of(frame, port, handoff));
                }
                Verdict::Wait => self.wait(now, waiting.next(), frame),
            }
        }
    }

    /// Whether another worker's frames wait.
    pub(crate) fn has_messages(&self) -> bool {
        let frames = self.rings.from.iter().flatten().any(|ring| !ring.is_empty());
        frames || self.rings.has_chunks()
    }

    /// Acts on a message; `false` when it was the last one.
    pub(crate) fn obey(&mut self, now: Time, message: Message<Q>) -> bool {
        match message {
            Message::Publish(published) => self.publish(&published),
            Message::Attach(port, line, twin) => self.attach(port, line, twin),
            Message::AttachAll(all) => self.attach_all(all),
            Message::Detach(port, done) => {
                drop(self.detach(port));
                // Whoever asked may have gone.
                let _ = done.send(self.number);
            }
            Message::Report(reply) => {
                let _ = reply.send(self.report());
            }
            Message::Sessions { filter, cursor, reply } => {
                let _ = reply.send(self.list(now, &filter, cursor));
            }
            Message::Kill { filter, cursor, reply } => {
                let _ = reply.send(self.kill(now, &filter, cursor));
            }
            Message::Restore { network, batch, scattered, reply } => {
                let _ = reply.send(self.restore(now, network, (&batch, scattered)));
            }
            Message::Import { network, batch, reply } => {
                let _ = reply.send((self.number, self.import(now, network, &batch)));
            }
            Message::TellBy(outbox) => self.tell_by(outbox),
            Message::Walk(number) => self.begin_walk(number),
            Message::Elephants { limit, reply } => {
                let _ = reply.send(self.elephants(now, limit));
            }
            Message::Spread(request) => self.obey_about_spreading(now, request),
            Message::LookOut(capture_point, reply) => {
                let _ = reply.send(self.look_out(capture_point));
            }
            Message::LookAway(number, reply) => {
                let _ = reply.send(self.look_away(number));
            }
            Message::Stop => {
                self.wake_called();
                self.drop_parked();
                return false;
            }
        }
        true
    }
}
