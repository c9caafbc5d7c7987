//! What it costs to spread one flow over workers: cycles a packet of the owner that deals and of
//! the one that rewrites, each alone on one core, and the rate that follows from them.
//!
//! Two workers run by turns on the thread that measures, so each is timed by itself and none waits
//! for another. What passes between cores, the lines of headers and rings, costs nothing here: the
//! figures are what spreading costs at least. With a second core the owner and one helper also run
//! at once ([`cores`]), which says how far the rate that follows from them is true.

mod cores;
mod events;
mod flow;

use crate::args::{Elephant, Family, Stage, Throughput, Work, word};
use crate::clock::{ticks, ticks_per_s};
use crate::error::BenchError;
use crate::machine::{Machine, usable_cores};
use crate::port::MemQueue;
use crate::report::{quantile, round};
use crate::runs;
use crate::scene::{self, BACK, FRONT, Scene};
use crate::station::alone;
use events::Events;
use flow::{Bed, Flow, Steps};
use serde_json::{Value, json};
use sluice_director::Time;
use sluice_director::dealing::CHUNK;
use sluice_director::fib::PortId;
use sluice_director::path::{PagePolicy, PathConfig};
use sluice_director::spec::{NetworkId, Timeouts};
use sluice_dpdk::{Eal, EalConfig};
use sluice_worker::spread::SpreadOrder;
use sluice_worker::{Published, Wake, Worker, WorkerConfig};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Datagrams from one side that make a flow that is meant.
const MEANT: usize = 70;
const NOW: Time = Time(5000);

/// Memory for the environment layer: an event device takes megabytes.
const MEMORY_MB: u32 = 256;
/// The most helpers of a stage of DPDK's that are there while it is measured.
const HELPERS: u16 = 8;

/// Cycles a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Cycles {
    /// Of the ordinary path of one worker.
    ordinary: f64,
    /// To receive and deal, to schedule, to rewrite, and to collect and send.
    steps: Steps<f64>,
}

impl Cycles {
    /// The least cycles a packet with so many helpers when dealing and collecting were two cores'
    /// work, or one's, as they are. A scheduler has a core of its own.
    fn models(&self, helpers: u16) -> [f64; 2] {
        let [deal, schedule, rewrite, collect] = self.steps;
        let others = (rewrite / f64::from(helpers)).max(schedule);
        [deal.max(collect).max(others), (deal + collect).max(others)]
    }
}

struct Row {
    work: Work,
    size: u16,
    stage: Stage,
    cycles: Cycles,
    /// With the owner and one helper on two cores at once.
    at_once: Option<f64>,
}

/// What was measured.
pub struct Report {
    args: Elephant,
    machine: Machine,
    hz: f64,
    rows: Vec<Row>,
}

/// Measures: each stage once, then all again, so that what disturbs the machine hits all alike.
pub fn run(args: &Elephant) -> Result<Report, BenchError> {
    let cores = usable_cores()?;
    let core = alone::pin(None)?;
    let (machine, hz) = (Machine::look(core), ticks_per_s());
    let eal = match args.stage.iter().any(|stage| *stage != Stage::Own) {
        true => {
            let memory_mb = Some(MEMORY_MB);
            Some(Eal::init(&EalConfig { frames: 1024, memory_mb, ..EalConfig::default() })?)
        }
        false => None,
    };
    // The environment layer may have moved the thread.
    alone::pin(Some(core))?;
    let other = match args.two_cores {
        true => Some(other_than(core, cores)?),
        false => None,
    };
    let mut rows = Vec::new();
    for work in &args.work {
        for size in &args.size {
            rows.extend(measure(args, (*work, *size), (eal.as_ref(), other))?);
        }
    }
    Ok(Report { args: args.clone(), machine, hz, rows })
}

/// A core besides the one that the process has.
fn other_than(core: usize, cores: Vec<usize>) -> Result<usize, BenchError> {
    let mut others = cores.into_iter().filter(|other| *other != core);
    others.next().ok_or(BenchError::Usage("--two-cores needs two cores".into()))
}

/// Measures the stages with one work and size.
fn measure(
    args: &Elephant,
    (work, size): (Work, u16),
    (eal, other): (Option<&Eal>, Option<usize>),
) -> Result<Vec<Row>, BenchError> {
    let usual = Throughput::usual(work.like(), Family::V4, &args.turns.conditions);
    let usual = Throughput { reals: 1, protocol: work.protocol(), ..usual };
    let published = scene::snapshot_with(&usual, Timeouts::default(), |spec| {
        for service in &mut spec.services {
            service.mode = work.mode();
            service.client_address = work.client_address();
            service.tunnel.checksum = matches!(work, Work::Gue | Work::Gre).then_some(true);
        }
    })?;
    let scene = Scene::new(&usual);
    let mut pair = Pair::new((args, &published), (&scene, work, size))?;
    let mut events = Vec::new();
    let helpers = args.spread.iter().copied().max().unwrap_or(1).min(HELPERS);
    for (stage, grain) in [(Stage::EventSw, 1), (Stage::EventSwChunks, CHUNK)] {
        if let Some(eal) = eal.filter(|_| args.stage.contains(&stage)) {
            let through = (eal, helpers, grain);
            events.push((stage, Events::new((args, &published), (&scene, work, size), through)?));
        }
    }
    let mut runs: Vec<(Stage, Steps<Vec<f64>>)> =
        args.stage.iter().map(|stage| (*stage, Default::default())).collect();
    let (mut ordinary, mut at_once) = (Vec::new(), Vec::new());
    for _ in 0..args.turns.repeats {
        ordinary.push(pair.ordinary(args.turns.seconds)?);
        for (stage, runs) in &mut runs {
            let steps = match events.iter_mut().find(|(of, _)| of == stage) {
                Some((_, events)) => events.measure(args.turns.seconds)?,
                None => pair.measure(args.turns.seconds)?,
            };
            runs.iter_mut().zip(steps).for_each(|(all, one)| all.push(one));
        }
        if let Some(core) = other {
            at_once.push(pair.at_once(args.turns.seconds, core)?);
        }
    }
    let ordinary = quantile(&ordinary, 0.5);
    let at_once = other.map(|_| quantile(&at_once, 0.5));
    let row = |(stage, runs): (Stage, Steps<Vec<f64>>)| {
        let steps = runs.map(|runs| quantile(&runs, 0.5));
        let at_once = at_once.filter(|_| stage == Stage::Own);
        Row { work, size, stage, cycles: Cycles { ordinary, steps }, at_once }
    };
    Ok(runs.into_iter().map(row).collect())
}

/// An owner and a helper.
struct Pair {
    owner: Worker<MemQueue>,
    helper: Worker<MemQueue>,
    flow: Flow,
}

impl Pair {
    /// With the flow open and meant, and not spread.
    fn new(
        (args, published): (&Elephant, &Arc<Published>),
        (scene, work, size): (&Scene, Work, u16),
    ) -> Result<Self, BenchError> {
        let eventfd = |source| BenchError::Machine { what: "eventfd".into(), source };
        let wakes = vec![Wake::new().map_err(eventfd)?, Wake::new().map_err(eventfd)?];
        let mut flow = Flow::new(scene, (work, size), args.turns.conditions.seed)?;
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
            let made = Worker::new(config, published, rings, wakes.clone(), events);
            let mut made = made.map_err(BenchError::Memory)?;
            for port in [FRONT, BACK] {
                made.attach(port, flow.queue(), None);
            }
            Ok::<_, BenchError>(made)
        };
        let (owner, helper) = (worker(0)?, worker(1)?);
        let mut pair = Self { owner, helper, flow };
        pair.open(scene)?;
        Ok(pair)
    }

    /// Runs rounds by the ordinary path.
    fn ordinary(&mut self, seconds: f64) -> Result<f64, BenchError> {
        let [ordinary, ..] = self.rounds(seconds, |pair| {
            let start = ticks();
            pair.owner.turn(NOW);
            Ok([ticks() - start, 0, 0, 0])
        })?;
        Ok(ordinary)
    }

    /// Runs rounds with the flow spread.
    fn measure(&mut self, seconds: f64) -> Result<Steps<f64>, BenchError> {
        let (network, flow) = (NetworkId::DEFAULT, self.flow.name());
        let order = SpreadOrder { network, flow, workers: 0, pinned: true };
        let refused = |why: sluice_worker::spread::Refused| BenchError::Usage(why.text().into());
        self.owner.spread(NOW, &order).map_err(refused)?;
        let steps = self.rounds(seconds, |pair| {
            let start = ticks();
            pair.owner.turn(NOW);
            let dealt = ticks();
            pair.helper.turn(NOW);
            let rewritten = ticks();
            pair.owner.turn(NOW);
            Ok([dealt - start, 0, rewritten - dealt, ticks() - rewritten])
        })?;
        let all = self.owner.spreading(NOW);
        let own = all.first().map_or(0, |flow| flow.own + flow.kept + flow.late);
        if own != 0 {
            return Err(BenchError::Usage(format!("{own} packets were not dealt")));
        }
        self.owner.gather_in(network, &flow);
        self.owner.turn(NOW);
        Ok(steps)
    }
}

impl Bed for Pair {
    fn flow(&mut self) -> &mut Flow {
        &mut self.flow
    }

    fn queue(&mut self, port: PortId) -> Option<&mut MemQueue> {
        self.owner.queue_mut(port)
    }

    fn turn(&mut self, _: PortId) {
        self.owner.turn(NOW);
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
            let Cycles { ordinary, steps: [deal, schedule, rewrite, collect] } = row.cycles;
            let model = |helpers: &u16| {
                let [apart, together] = row.cycles.models(*helpers).map(mpps);
                json!({"helpers": helpers, "mpps_if_apart": apart, "mpps": together})
            };
            json!({
                "work": word(&row.work), "size": row.size, "stage": row.stage.name(),
                "ordinary_cycles": round(ordinary), "deal_cycles": round(deal),
                "schedule_cycles": round(schedule),
                "rewrite_cycles": round(rewrite), "collect_cycles": round(collect),
                "ordinary_mpps": mpps(ordinary),
                "one_helper_at_once_mpps": row.at_once.map(mpps),
                "models": self.args.spread.iter().map(model).collect::<Vec<_>>(),
            })
        };
        runs::merge([
            runs::about("elephant-spread", &self.machine, 2),
            json!({
                "tsc_ghz": round(self.hz / 1e9),
                "seconds": self.args.turns.seconds,
                "repeats": self.args.turns.repeats,
                "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            }),
        ])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let one = |value: f64| format!("{value:.1}");
        let mut lines = Vec::new();
        for row in &self.rows {
            let Cycles { ordinary, steps } = row.cycles;
            for helpers in &self.args.spread {
                let [apart, together] = row.cycles.models(*helpers);
                let mut line = vec![word(&row.work), row.size.to_string()];
                line.extend([row.stage.name().to_owned(), one(ordinary)]);
                line.extend(steps.map(one));
                line.push(helpers.to_string());
                line.extend([apart, together].map(|cycles| one(self.hz / cycles / 1e6)));
                line.push(format!("{:.2}", ordinary / together));
                let at_once = row.at_once.filter(|_| *helpers == 1);
                line.push(at_once.map_or("-".into(), |cycles| one(self.hz / cycles / 1e6)));
                lines.push(line);
            }
        }
        let head = [
            "work",
            "size",
            "stage",
            "ordinary",
            "deal",
            "schedule",
            "rewrite",
            "collect",
            "helpers",
            "apart Mpps",
            "Mpps",
            "gain",
            "at once",
        ];
        format!(
            "One flow over IPv4, cycles a packet, each step alone on one core, {} runs of {} s \
             each by turns; {}\n{}{}",
            self.args.turns.repeats,
            self.args.turns.seconds,
            self.machine.cpu_model,
            runs::table(&head, &lines),
            runs::footer(&self.machine, 1)
        )
    }
}
