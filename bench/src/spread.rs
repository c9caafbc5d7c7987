//! What it costs to spread one flow over workers: cycles a packet of the owner that deals and of
//! the one that rewrites, each alone on one core, and the rate that follows from them.
//!
//! Two workers run by turns on the thread that measures, so each is timed by itself and none waits
//! for another. What passes between cores, the lines of headers and rings, costs nothing here: the
//! figures are what spreading costs at least.

use crate::args::{Elephant, Family, Mode, Protocol, Throughput};
use crate::clients::{self, Endpoint};
use crate::clock::{ticks, ticks_per_s};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::port::{self, MemFrame, MemQueue};
use crate::report::{quantile, round};
use crate::runs;
use crate::scene::{self, BACK, FRONT, MACS, ROUTER_MAC, Scene};
use crate::station::alone;
use crate::template::{Kind, Template};
use serde_json::{Value, json};
use sluice_director::counters::Direction;
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, FlowName, PagePolicy, PathConfig};
use sluice_director::spec::{NetworkId, Timeouts};
use sluice_director::{Frame, Time};
use sluice_worker::spread::SpreadOrder;
use sluice_worker::{Wake, Worker, WorkerConfig};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::channel;

/// Frames that are written and then go through, burst by burst.
const FRAMES: usize = 4096;
/// Datagrams from one side that make a flow that is meant.
const MEANT: usize = 70;
/// The client's port.
const PORT: u16 = 4000;
const NOW: Time = Time(5000);

/// Cycles a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Cycles {
    /// Of the ordinary path of one worker.
    ordinary: f64,
    /// To receive and deal, to rewrite, and to collect and send.
    deal: f64,
    rewrite: f64,
    collect: f64,
}

impl Cycles {
    /// The least cycles a packet with so many helpers when dealing and collecting were two cores'
    /// work, or one's, as they are.
    fn models(&self, helpers: u16) -> [f64; 2] {
        let rewrite = self.rewrite / f64::from(helpers);
        [self.deal.max(self.collect).max(rewrite), (self.deal + self.collect).max(rewrite)]
    }
}

struct Row {
    work: Mode,
    size: u16,
    cycles: Cycles,
}

/// What was measured.
pub struct Report {
    args: Elephant,
    machine: Machine,
    hz: f64,
    rows: Vec<Row>,
}

/// Measures.
pub fn run(args: &Elephant) -> Result<Report, BenchError> {
    let core = alone::pin(None)?;
    let (machine, hz) = (Machine::look(core), ticks_per_s());
    let mut rows = Vec::new();
    for work in &args.work {
        for size in &args.size {
            let mut pair = Pair::new(args, *work, *size)?;
            rows.push(Row { work: *work, size: *size, cycles: pair.measure(args.turns.seconds)? });
        }
    }
    Ok(Report { args: args.clone(), machine, hz, rows })
}

/// An owner and a helper.
struct Pair {
    owner: Worker<MemQueue>,
    helper: Worker<MemQueue>,
    frames: Vec<MemFrame>,
    template: Template,
    ends: [Endpoint; 2],
}

impl Pair {
    /// With the flow open and meant, and not spread.
    fn new(args: &Elephant, work: Mode, size: u16) -> Result<Self, BenchError> {
        if !matches!(work, Mode::Fnat | Mode::Nat | Mode::Dr | Mode::Ipip) {
            return Err(BenchError::Usage(format!("--work: {} is not spread", work.name())));
        }
        let usual = Throughput::usual(work, Family::V4, &args.turns.conditions);
        let usual = Throughput { reals: 1, ..usual };
        let snapshot = scene::snapshot(&usual, Timeouts::default())?;
        let eventfd = |source| BenchError::Machine { what: "eventfd".into(), source };
        let wakes = vec![Wake::new().map_err(eventfd)?, Wake::new().map_err(eventfd)?];
        let mut frames = port::frames(FRAMES, PagePolicy::Auto).map_err(BenchError::Memory)?;
        let mut rings = sluice_worker::mesh(2).into_iter();
        let mut worker = |number| {
            let path = PathConfig {
                worker: number,
                workers: 2,
                sessions: 1000,
                fragments: 64,
                seed: args.turns.conditions.seed,
                pages: PagePolicy::Ordinary,
            };
            let (config, rings) = (WorkerConfig::of(path), rings.next().unwrap_or_default());
            let events = (channel().0, wakes[usize::from(number)].clone());
            let made = Worker::new(config, &snapshot, rings, wakes.clone(), events);
            let mut made = made.map_err(BenchError::Memory)?;
            for port in [FRONT, BACK] {
                made.attach(port, MemQueue::new(BURST, &mut frames), None);
            }
            Ok::<_, BenchError>(made)
        };
        let (owner, helper) = (worker(0)?, worker(1)?);
        let scene = Scene::new(&usual);
        let (address, _) = clients::prefix(Family::V4);
        let ends = [Endpoint { address: address + 1, port: PORT }, scene.target(0)];
        let content = Kind::Data.content(Family::V4, Protocol::Udp, size);
        let template = Template::new(Family::V4, content, [ROUTER_MAC, MACS[0]]);
        let mut pair = Self { owner, helper, frames, template, ends };
        pair.open(&scene, work)?;
        Ok(pair)
    }

    /// Opens the flow: the client's datagrams, and an answer where those come by.
    fn open(&mut self, scene: &Scene, work: Mode) -> Result<(), BenchError> {
        let mut few = self.frames.split_off(FRAMES - MEANT);
        self.write(&mut few, 0);
        self.load(FRONT, &mut few);
        self.owner.turn(NOW);
        let mut sent = self.sent(BACK);
        if sent.len() != MEANT {
            return Err(lost("opening the flow", MEANT, sent.len()));
        }
        if work.answers() {
            let content = Kind::Data.content(Family::V4, Protocol::Udp, 64);
            let macs = [scene.far_mac(0), MACS[1]];
            let answer = Template::new(Family::V4, content, macs);
            let mut frame = sent.pop().into_iter().collect::<Vec<_>>();
            for frame in &mut frame {
                let bytes = frame.bytes();
                let word =
                    |at: usize| bytes.get(at..at + 4).and_then(|it| it.first_chunk().copied());
                let address = u128::from(u32::from_be_bytes(word(26).unwrap_or_default()));
                let [a, b, ..] = word(34).unwrap_or_default();
                let local = Endpoint { address, port: u16::from_be_bytes([a, b]) };
                answer.write(frame, scene.far_endpoint(0), local, 0);
            }
            self.load(BACK, &mut frame);
            self.owner.turn(NOW);
            sent.extend(self.sent(FRONT));
        }
        self.frames.append(&mut sent);
        if self.frames.len() != FRAMES {
            return Err(lost("opening the flow", FRAMES, self.frames.len()));
        }
        Ok(())
    }

    /// Writes numbered frames of the flow.
    fn write(&self, frames: &mut [MemFrame], first: u32) {
        let [client, service] = self.ends;
        for (frame, number) in frames.iter_mut().zip(first..) {
            self.template.write(frame, client, service, number);
        }
    }

    fn load(&mut self, port: PortId, frames: &mut Vec<MemFrame>) {
        if let Some(queue) = self.owner.queue_mut(port) {
            queue.load(frames);
        }
    }

    fn sent(&mut self, port: PortId) -> Vec<MemFrame> {
        self.owner.queue_mut(port).map(|queue| queue.take_sent().collect()).unwrap_or_default()
    }

    /// Runs rounds for so many seconds each: the ordinary path, then the flow spread.
    fn measure(&mut self, seconds: f64) -> Result<Cycles, BenchError> {
        let [ordinary, ..] = self.rounds(seconds, |pair| {
            let start = ticks();
            pair.owner.turn(NOW);
            [ticks() - start, 0, 0]
        })?;
        let [client, service] =
            self.ends.map(|end| (IpAddr::V4(Ipv4Addr::from_bits(end.address as u32)), end.port));
        let direction = Direction::Inbound;
        let flow = FlowName { protocol: 17, client, virtual_: service, direction };
        let order = SpreadOrder { network: NetworkId::DEFAULT, flow, workers: 0, pinned: true };
        let refused = |why: sluice_worker::spread::Refused| BenchError::Usage(why.text().into());
        self.owner.spread(NOW, &order).map_err(refused)?;
        let [deal, rewrite, collect] = self.rounds(seconds, |pair| {
            let start = ticks();
            pair.owner.turn(NOW);
            let dealt = ticks();
            pair.helper.turn(NOW);
            let rewritten = ticks();
            pair.owner.turn(NOW);
            [dealt - start, rewritten - dealt, ticks() - rewritten]
        })?;
        let all = self.owner.spreading(NOW);
        let own = all.first().map_or(0, |flow| flow.own + flow.kept + flow.late);
        if own != 0 {
            return Err(BenchError::Usage(format!("{own} packets were not dealt")));
        }
        Ok(Cycles { ordinary, deal, rewrite, collect })
    }

    /// Medians of what a burst's steps took a packet; every frame has to come out, in order.
    fn rounds(
        &mut self,
        seconds: f64,
        mut step: impl FnMut(&mut Self) -> [u64; 3],
    ) -> Result<[f64; 3], BenchError> {
        let mut taken: [Vec<f64>; 3] = Default::default();
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs_f64() < seconds {
            let mut frames = std::mem::take(&mut self.frames);
            self.write(&mut frames, 0);
            let mut waiting = frames.into_iter();
            for _ in 0..FRAMES / BURST {
                // Only what one turn takes: the next one of the owner is to collect, not to deal.
                self.load(FRONT, &mut waiting.by_ref().take(BURST).collect());
                let ticks = step(self);
                for (taken, ticks) in taken.iter_mut().zip(ticks) {
                    taken.push(ticks as f64 / BURST as f64);
                }
            }
            self.frames = self.sent(BACK);
            let number = |frame: &MemFrame| {
                let bytes = frame.bytes();
                // Behind an outer header, if there is one.
                let at = if bytes.get(23) == Some(&4) { 62 } else { 42 };
                bytes.get(at..).and_then(|it| it.first_chunk().copied()).map(u32::from_be_bytes)
            };
            let in_order = (0..).zip(&self.frames).all(|(at, frame)| number(frame) == Some(at));
            if self.frames.len() != FRAMES || !in_order {
                return Err(lost("spreading the flow", FRAMES, self.frames.len()));
            }
        }
        Ok(taken.map(|taken| quantile(&taken, 0.5)))
    }
}

fn lost(doing: &'static str, expected: usize, got: usize) -> BenchError {
    BenchError::Lost { worker: 0, doing, expected, got, reasons: "out of order, or dropped".into() }
}

impl Report {
    /// One object.
    pub fn json(&self) -> Value {
        let mpps = |cycles: f64| round(self.hz / cycles / 1e6);
        let row = |row: &Row| {
            let Cycles { ordinary, deal, rewrite, collect } = row.cycles;
            let model = |helpers: &u16| {
                let [apart, together] = row.cycles.models(*helpers).map(mpps);
                json!({"helpers": helpers, "mpps_if_apart": apart, "mpps": together})
            };
            json!({
                "work": row.work.name(), "size": row.size,
                "ordinary_cycles": round(ordinary), "deal_cycles": round(deal),
                "rewrite_cycles": round(rewrite), "collect_cycles": round(collect),
                "ordinary_mpps": mpps(ordinary),
                "models": self.args.spread.iter().map(model).collect::<Vec<_>>(),
            })
        };
        runs::merge([
            runs::about("elephant-spread", &self.machine, 2),
            json!({
                "tsc_ghz": round(self.hz / 1e9),
                "seconds": self.args.turns.seconds,
                "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            }),
        ])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let one = |value: f64| format!("{value:.1}");
        let mut lines = Vec::new();
        for row in &self.rows {
            let Cycles { ordinary, deal, rewrite, collect } = row.cycles;
            for helpers in &self.args.spread {
                let [apart, together] = row.cycles.models(*helpers);
                let mut line = vec![row.work.name().to_owned(), row.size.to_string()];
                line.extend([ordinary, deal, rewrite, collect].map(one));
                line.push(helpers.to_string());
                line.extend([apart, together].map(|cycles| one(self.hz / cycles / 1e6)));
                line.push(format!("{:.2}", ordinary / together));
                lines.push(line);
            }
        }
        let head = [
            "work",
            "size",
            "ordinary",
            "deal",
            "rewrite",
            "collect",
            "helpers",
            "apart Mpps",
            "Mpps",
            "gain",
        ];
        format!(
            "One UDP flow over IPv4, cycles a packet, each step alone on one core; {}\n{}{}",
            self.machine.cpu_model,
            runs::table(&head, &lines),
            runs::footer(&self.machine, 2)
        )
    }
}
