//! One worker with its ports and its traffic: opens its sessions, runs its rounds, and accounts
//! for every frame.
//!
//! The worker's clock is the time that it worked: it stands still while traffic is written, so
//! that the sweep does as much for each packet as it would under load.

pub mod alone;
mod shared;
pub mod timed;
mod told;

use crate::args::{MIX_SETTLED_S, Protocol, Throughput};
use crate::clock::ticks;
use crate::error::BenchError;
use crate::port::{self, MemFrame, MemQueue};
use crate::scene::{BACK, FRONT};
use crate::template::Kind;
use crate::traffic::{Local, Traffic, Way};
use rtrb::Consumer;
pub use shared::Shared;
use sluice_director::fib::PortId;
use sluice_director::path::{PagePolicy, PathConfig};
use sluice_director::{Reason, Time};
use sluice_worker::{Clock, Event, Published, Rings, Told, Wake, Worker, WorkerConfig};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Where the worker's clock begins: a while after zero, which sessions store as "never".
const START_MS: u64 = 1000;
/// Of each batch or round that is judged, this many frames of each direction are.
const JUDGED: usize = 8;

/// Where sessions are waited for to time out: time that passes between turns, and turns. The sweep
/// looks at some thousands of slots in each.
const EXPIRY_MS: u64 = 5;
const EXPIRY_TURNS: u32 = 20_000;

/// What the benchmark itself needs, made, and its memory touched, before the director's memory is
/// measured.
pub struct Yard {
    traffic: Traffic,
    frames: Vec<MemFrame>,
    /// Room to sort frames by port.
    sorted: [Vec<MemFrame>; 2],
    queues: [MemQueue; 2],
}

impl Yard {
    pub fn new(args: &Throughput, number: u16) -> Result<Self, BenchError> {
        // Whoever insists on huge pages means the tables.
        let pages = match args.pages.policy() {
            PagePolicy::HugeOnly => PagePolicy::Auto,
            other => other,
        };
        let count = args.frames as usize;
        let mut frames = port::frames(count, pages)?;
        let mut sorted = [Vec::with_capacity(count), Vec::with_capacity(count)];
        for room in &mut sorted {
            room.append(&mut frames);
            frames.append(room);
        }
        let queues = [(); 2].map(|()| MemQueue::new(usize::from(args.burst), &mut frames));
        Ok(Self { traffic: Traffic::new(args, usize::from(number)), frames, sorted, queues })
    }
}

/// Room for the local endpoints of a worker's sessions.
pub fn untold(args: &Throughput) -> Vec<Local> {
    // Not zero, so that its pages are there.
    let untold = Local { far: u16::MAX, ..Local::default() };
    vec![untold; args.sessions_each() as usize]
}

/// What a worker is connected with.
pub struct Cables {
    pub snapshot: Arc<Published>,
    pub rings: Rings<MemFrame>,
    pub wakes: Vec<Wake>,
    pub events: (Sender<Event>, Wake),
}

/// One worker and its surroundings.
pub struct Station {
    number: u16,
    args: Throughput,
    worker: Worker<MemQueue>,
    pub traffic: Traffic,
    /// Frames at rest.
    pub idle: Vec<MemFrame>,
    /// Room to sort frames by port.
    sorted: [Vec<MemFrame>; 2],
    worked_ticks: u64,
    ticks_per_ms: u64,
    /// Packets that the worker's sessions were given, by direction.
    given: [u64; 2],
    /// Sessions that were opened and that ended, besides those that stay.
    pub passed: u64,
    strayed: u64,
    /// Frames that were judged.
    pub judged: u64,
    /// What the worker tells other directors, if it does.
    told: Option<Consumer<Told>>,
}

impl Station {
    pub fn new(
        args: &Throughput,
        number: u16,
        cables: Cables,
        yard: Yard,
        ticks_per_s: f64,
    ) -> Result<Self, BenchError> {
        let path = PathConfig {
            worker: number,
            workers: args.workers,
            sessions: args.capacity_each(),
            fragments: 4096,
            seed: args.seed,
            pages: args.pages.policy(),
        };
        let clock = Some(Clock { ticks, ticks_per_s: ticks_per_s as u64 });
        let config = WorkerConfig { clock, ..WorkerConfig::of(path) };
        let Cables { snapshot, rings, wakes, events } = cables;
        let mut worker = Worker::new(config, &snapshot, rings, wakes, events)?;
        for (port, queue) in [FRONT, BACK].into_iter().zip(yard.queues) {
            worker.attach(port, queue, None);
        }
        Ok(Self {
            number,
            args: args.clone(),
            worker,
            traffic: yard.traffic,
            sorted: yard.sorted,
            idle: yard.frames,
            worked_ticks: 0,
            ticks_per_ms: (ticks_per_s / 1000.0) as u64,
            given: [0; 2],
            passed: 0,
            strayed: 0,
            told: None,
            judged: 0,
        })
    }

    /// Its worker.
    pub const fn worker(&self) -> &Worker<MemQueue> {
        &self.worker
    }

    /// Sessions that ended so far.
    pub fn ended(&self) -> u64 {
        let counters = self.worker.path().counters();
        counters.closed + counters.expired
    }

    /// Whether as many sessions end as are opened, or nearly the time has passed that is measured.
    pub fn is_settled(&self, seconds: f64) -> bool {
        let worked_s = self.worked_ticks as f64 / (self.ticks_per_ms as f64 * 1000.0);
        !self.args.mix || worked_s >= MIX_SETTLED_S.min(seconds)
    }

    /// Sessions that are open.
    pub fn open_sessions(&self) -> u32 {
        self.worker.path().live_sessions()
    }

    /// Opens all sessions, in batches of as many first packets as there are frames. Tells where
    /// each session's real server is to answer to, and gives the cycles of a new session for each
    /// batch. `tell` is told how many are open.
    pub fn open(
        &mut self,
        locals: &mut [Local],
        mut tell: impl FnMut(u32),
    ) -> Result<Vec<f64>, BenchError> {
        let mut samples = Vec::new();
        let batch = self.idle.len() as u32;
        let mut first = 0;
        while first < locals.len() as u32 {
            let flows = first..(first + batch).min(locals.len() as u32);
            first = flows.end;
            let count = flows.len();
            let ticks = self.send_in(flows.clone(), Kind::Syn)?;
            samples.push(ticks as f64 / count as f64);
            self.learn(locals, count)?;
            // What is measured afterwards is sessions in use: the first answer moves one on.
            if self.args.mode.answers() {
                self.answer(flows.clone(), locals)?;
            }
            if self.args.protocol == Protocol::Tcp {
                self.send_in(flows, Kind::Data)?;
                self.rest();
            }
            tell(first);
        }
        Ok(samples)
    }

    /// Answers first packets, which are through.
    fn answer(&mut self, flows: Range<u32>, locals: &[Local]) -> Result<(), BenchError> {
        self.traffic.write_answers(flows.clone(), locals, &mut self.idle);
        self.load([0, flows.len()]);
        self.settle("opening sessions", flows.len(), None)?;
        self.rest();
        Ok(())
    }

    fn send_in(&mut self, flows: Range<u32>, kind: Kind) -> Result<u64, BenchError> {
        let count = flows.len();
        self.traffic.write_in(flows, kind, &mut self.idle);
        self.load([count, 0]);
        self.settle("opening sessions", count, None)
    }

    /// Reads the local endpoints of new sessions off their first packets.
    fn learn(&mut self, locals: &mut [Local], count: usize) -> Result<(), BenchError> {
        let number = self.number;
        let frames: Vec<_> = self.outlet(Way::In).take_sent().collect();
        let wrong = |(flow, what)| BenchError::Wrong { worker: number, flow, what };
        for frame in &frames {
            let (flow, local) = self
                .traffic
                .learn(frame, None)
                .filter(|(flow, _)| (*flow as usize) < locals.len())
                .ok_or_else(|| wrong((u32::MAX, "not a session's first packet".into())))?;
            locals[flow as usize] = local;
        }
        for frame in frames.iter().step_by((count / JUDGED).max(1)) {
            self.traffic.judge(Way::In, locals, frame).map_err(wrong)?;
            self.judged += 1;
        }
        self.idle.extend(frames);
        Ok(())
    }

    /// Writes and loads a round of random flows.
    pub fn write_round(&mut self, locals: &[&[Local]]) {
        self.traffic.write_round(locals, &mut self.idle);
        let mut frames = std::mem::take(&mut self.idle);
        for (at, frame) in frames.drain(..).enumerate() {
            self.sorted[self.traffic.way(at) as usize].push(frame);
        }
        self.idle = frames;
        self.load_sorted();
        self.passed += self.traffic.firsts_of(self.args.frames as usize) as u64;
        self.strayed +=
            (self.traffic.misdirected_each * (usize::from(self.args.workers) - 1)) as u64;
    }

    /// Sorts a frame that was written by its way.
    pub fn sort(&mut self, way: Way, frame: MemFrame) {
        self.sorted[way as usize].push(frame);
    }

    /// Loads what was sorted.
    pub fn load_sorted(&mut self) {
        for way in [Way::In, Way::Out] {
            let mut sorted = std::mem::take(&mut self.sorted[way as usize]);
            self.given[way as usize] += sorted.len() as u64;
            let port = self.traffic.scene().port(way);
            self.queue(port).load(&mut sorted);
            self.sorted[way as usize] = sorted;
        }
    }

    /// Runs the round that was written: the cycles that it took.
    pub fn run_round(&mut self, shared: Option<&Shared<'_>>) -> Result<u64, BenchError> {
        self.settle("measuring", self.args.frames as usize, shared)
    }

    /// Judges some frames of the round that was run, and takes all back.
    pub fn finish_round(&mut self, locals: &[Local], judge: bool) -> Result<(), BenchError> {
        if judge {
            let number = self.number;
            let wrong = |(flow, what)| BenchError::Wrong { worker: number, flow, what };
            for way in [Way::In, Way::Out] {
                let sent: Vec<_> = self.outlet(way).take_sent().collect();
                for frame in sent.iter().step_by((sent.len() / JUDGED).max(1)) {
                    self.traffic.judge(way, locals, frame).map_err(wrong)?;
                    self.judged += 1;
                }
                self.idle.extend(sent);
            }
        }
        self.rest();
        Ok(())
    }

    fn queue(&mut self, port: PortId) -> &mut MemQueue {
        self.worker.queue_mut(port).expect("both ports were attached")
    }

    /// The queue that packets of a way leave by.
    pub fn outlet(&mut self, way: Way) -> &mut MemQueue {
        let other = if way == Way::In { Way::Out } else { Way::In };
        let port = self.traffic.scene().port(other);
        self.queue(port)
    }

    /// Loads the first idle frames: so many inbound, so many outbound.
    fn load(&mut self, counts: [usize; 2]) {
        for (way, count) in [Way::In, Way::Out].into_iter().zip(counts) {
            let mut frames: Vec<_> = self.idle.drain(..count).collect();
            self.given[way as usize] += count as u64;
            let port = self.traffic.scene().port(way);
            self.queue(port).load(&mut frames);
        }
    }

    /// Takes all frames back.
    pub fn rest(&mut self) {
        let mut idle = std::mem::take(&mut self.idle);
        for port in [FRONT, BACK] {
            idle.extend(self.queue(port).take_sent());
        }
        self.idle = idle;
    }

    /// Turns the worker until all that was loaded has come out; the ticks of the turns in which
    /// there was something to do.
    pub fn settle(
        &mut self,
        doing: &'static str,
        frames: usize,
        shared: Option<&Shared<'_>>,
    ) -> Result<u64, BenchError> {
        let mut worked = 0;
        let mut before = ticks();
        let mut sent_before = 0;
        loop {
            // One reading serves as the worker's clock and as the stopwatch.
            let now = START_MS + (self.worked_ticks + worked) / self.ticks_per_ms;
            let came = self.worker.turn(Time(now));
            let after = ticks();
            if came > 0 {
                worked += after - before;
            }
            before = after;
            let over = match shared {
                None => came == 0,
                Some(shared) => {
                    let sent = self.sent();
                    let over = shared.add(sent - sent_before) || shared.is_late();
                    sent_before = sent;
                    before = ticks();
                    over
                }
            };
            if over {
                break;
            }
        }
        self.worked_ticks += worked;
        let got = self.sent();
        if got == frames { Ok(worked) } else { Err(self.lost(doing, frames, got)) }
    }

    fn sent(&mut self) -> usize {
        self.queue(FRONT).sent_count() + self.queue(BACK).sent_count()
    }

    fn lost(&mut self, doing: &'static str, expected: usize, got: usize) -> BenchError {
        let waiting = self.queue(FRONT).waiting() + self.queue(BACK).waiting();
        let reasons = format!("{waiting} were not even received; dropped: {}", self.reasons());
        BenchError::Lost { worker: self.number, doing, expected, got, reasons }
    }

    /// The reasons that were counted, as text.
    fn reasons(&self) -> String {
        let counters = self.worker.path().counters();
        let some = Reason::ALL.iter().filter(|reason| counters.of(**reason) > 0);
        let texts = some.map(|reason| format!("{} {}", counters.of(*reason), reason.name()));
        let texts: Vec<_> = texts.collect();
        if texts.is_empty() { "none".into() } else { texts.join(", ") }
    }

    /// Lets time pass until the sessions that do not stay have timed out, or clearly will not.
    pub fn let_expire(&mut self) {
        for _ in 0..EXPIRY_TURNS {
            if self.open_sessions() <= self.args.sessions_each() {
                break;
            }
            self.worked_ticks += EXPIRY_MS * self.ticks_per_ms;
            self.worker.turn(Time(START_MS + self.worked_ticks / self.ticks_per_ms));
        }
    }

    /// Compares the worker's counters with what it was given, to the packet.
    pub fn audit(&self) -> Result<(), BenchError> {
        let path = self.worker.path();
        let counters = path.counters();
        let packets = |way: usize| counters.reals.iter().map(|r| r.packets[way]).sum::<u64>();
        let stay = u64::from(self.args.sessions_each());
        let ended = self.ended();
        for (what, expected, got) in [
            ("inbound packets", self.given[0], packets(0)),
            ("outbound packets", self.given[1], packets(1)),
            ("sessions opened", stay + self.passed, counters.created),
            ("sessions that are open", counters.created - ended, path.live_sessions().into()),
            // Those of a mix end while it runs.
            ("sessions that ended", if self.args.mix { ended } else { self.passed }, ended),
            ("packets handed off", self.strayed, counters.handed_off),
            ("packets with a reason", 0, counters.reasons.iter().sum()),
        ] {
            if expected != got {
                return Err(BenchError::Counters { worker: self.number, what, expected, got });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::{clock, scene};
    use clap::Parser;

    /// A station whose sessions are open, and their local endpoints.
    fn open(line: &str) -> (Station, Vec<Local>) {
        let short = "sluice-bench throughput --frames 256 --sessions 300 --pages ordinary";
        let words = short.split_whitespace().chain(line.split_whitespace());
        let Command::Throughput(args) = Cli::parse_from(words).command else { panic!() };
        let wake = Wake::new().unwrap();
        let cables = Cables {
            snapshot: scene::snapshot(&args, Default::default()).unwrap(),
            rings: Rings::default(),
            wakes: vec![wake.clone()],
            events: (std::sync::mpsc::channel().0, wake),
        };
        let yard = Yard::new(&args, 0).unwrap();
        let hz = clock::ticks_per_s();
        let mut station = Station::new(&args, 0, cables, yard, hz).unwrap();
        let mut locals = untold(&args);
        assert_eq!(
            station.open(&mut locals, |_| {}).unwrap().len(),
            2,
            "300 sessions are two batches"
        );
        (station, locals)
    }

    #[test]
    fn all_is_accounted_for() {
        let modes = ["fnat", "nat", "dr", "ipip", "snat", "snat --mapping per_session"];
        let families = ["--family 4", "--family 6"];
        let protocols = ["--protocol udp", "--protocol tcp"];
        for (mode, (family, protocol)) in modes
            .iter()
            .flat_map(|mode| families.map(|family| (mode, family)))
            .flat_map(|(mode, family)| protocols.map(|protocol| (mode, (family, protocol))))
        {
            let (mut station, locals) = open(&format!("--mode {mode} {family} {protocol}"));
            station.audit().unwrap();
            for _ in 0..3 {
                station.write_round(&[&locals]);
                assert!(station.run_round(None).unwrap() > 0);
                station.finish_round(&locals, true).unwrap();
            }
            station.audit().unwrap();
        }
    }

    #[test]
    fn what_is_lost_is_no_result() {
        let (mut station, mut locals) = open("--protocol tcp");
        locals.iter_mut().for_each(|local| local.port ^= 0x8000);
        station.write_round(&[&locals]);
        let error = station.run_round(None).unwrap_err().to_string();
        assert!(error.contains("128 of 256 came out"), "{error}");
        assert!(error.contains("128 no_session"), "{error}");
        assert!(station.audit().unwrap_err().to_string().contains("outbound packets"));
    }

    #[test]
    fn what_is_wrong_is_no_result() {
        for line in ["--mode fnat", "--mode dr", "--mode ipip --family 6", "--mode nat"] {
            let (mut station, mut locals) = open(line);
            station.write_round(&[&locals]);
            station.run_round(None).unwrap();
            for local in &mut locals {
                (local.port, local.far) = (local.port ^ 1, local.far ^ 1);
            }
            let error = station.finish_round(&locals, true).unwrap_err().to_string();
            assert!(error.contains("came out wrong"), "{error}");
        }
    }
}
