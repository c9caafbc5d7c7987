//! How long a frame spends in the worker's loop, by the share of the highest rate.
//!
//! Arrivals are open loop: their moments are fixed beforehand, and a frame's time begins at its
//! moment whether the loop looks then or not.

use crate::args::{Latency, Throughput};
use crate::clock;
use crate::error::BenchError;
use crate::floor;
use crate::histogram::Histogram;
use crate::machine::{self, Machine, Priority};
use crate::report::{quantile, round};
use crate::runs;
use crate::schedule::Schedule;
use crate::station::timed::{Booked, Polls};
use crate::station::{self, Station, alone};
use crate::traffic::Local;
use serde_json::{Value, json};
use sluice_director::path::BURST;
use sluice_director::spec::Timeouts;

/// Rounds at the beginning of each run that do not count.
const WARM_UP: u64 = 8;
/// The least rounds that count.
const LEAST: u64 = 4;
/// After a disturbance, more frames than this that have arrived and wait are its remains: some
/// bursts wait at a high load anyway.
const PILED_UP: usize = 4 * BURST;
/// What is told of the times, by name.
const PARTS: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999), ("p99_99", 0.9999), ("max", 1.0)];

/// One run.
#[derive(Clone, Debug, Default)]
struct Run {
    latencies: Histogram,
    /// Those of rounds in which nothing else ran on the core, and which did not begin with what
    /// had piled up in one.
    quiet: Histogram,
    polls: Polls,
    ticks: u64,
}

impl Run {
    /// Packets a tick, with everything that came between: the highest rate must be one that can
    /// be kept up.
    fn rate(&self) -> f64 {
        self.polls.frames as f64 / self.ticks as f64
    }
}

/// The runs at one load.
#[derive(Clone, Debug)]
struct Load {
    /// The share of the highest rate; `None`: all that the loop takes.
    share: Option<f64>,
    runs: Vec<Run>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    args: Latency,
    machine: Machine,
    tsc_hz: f64,
    core_ghz: Option<f64>,
    loads: Vec<Load>,
    table: (usize, &'static str),
    floor: f64,
    judged: u64,
    /// Of the seconds that it ran, those in which the core did something else.
    waited: Option<(f64, f64)>,
}

/// Measures.
pub fn run(args: &Latency) -> Result<Report, BenchError> {
    let conditions = &args.turns.conditions;
    let traffic = Throughput {
        sessions: args.sessions,
        burst: args.burst,
        frames: args.frames,
        ..Throughput::usual(args.mode, args.family, conditions)
    };
    let machine = Machine::look(args.core.unwrap_or(0));
    let _priority = Priority::set(conditions.nice)?;
    alone::pin(args.core)?;
    let tsc_hz = clock::ticks_per_s();
    let mut station = Station::alone(&traffic, Timeouts::default(), tsc_hz)?;
    let mut locals = station::untold(&traffic);
    station.open(&mut locals, |_| {})?;
    // Some rounds that are judged to the last field, before time is kept.
    for _ in 0..WARM_UP {
        station.write_round(&[&locals]);
        station.run_round(None)?;
        station.finish_round(&locals, true)?;
    }
    let core_ghz = clock::core_ghz();
    let before = machine::ran_and_waited_s();
    let loads = measure(args, &mut station, &locals, tsc_hz)?;
    let after = machine::ran_and_waited_s();
    station.audit()?;
    let (table, judged) = (station.worker().path().memory(), station.judged);
    drop(station);
    let floor = floor::measure(table.0, conditions.pages.policy(), conditions.seed)?.anywhere;
    let waited = before.zip(after).map(|(b, a)| (a.0 - b.0 + a.1 - b.1, a.1 - b.1));
    let args = args.clone();
    Ok(Report { args, machine, tsc_hz, core_ghz, loads, table, floor, judged, waited })
}

/// All loads in turns, each turn with a highest rate of its own.
fn measure(
    args: &Latency,
    station: &mut Station,
    locals: &[Local],
    tsc_hz: f64,
) -> Result<Vec<Load>, BenchError> {
    let shares = std::iter::once(None).chain(args.loads.iter().copied().map(Some));
    let mut loads: Vec<_> = shares.map(|share| Load { share, runs: Vec::new() }).collect();
    let bar = runs::bar(loads.len() as u64 * u64::from(args.turns.repeats), "runs");
    let ticks = (args.turns.seconds * tsc_hz) as u64;
    station.keep_time();
    for turn in 0..args.turns.repeats {
        let mut highest = 0.0;
        for load in &mut loads {
            // Without a share, all frames arrive at once.
            let distance = load.share.map_or(0.0, |share| 1.0 / (highest * share));
            let seed = args.turns.conditions.seed ^ u64::from(turn) << 32;
            let start = station.now();
            let schedule = Schedule::new(args.arrivals, distance, start, seed);
            let run = one(station, locals, schedule, ticks)?;
            if load.share.is_none() {
                highest = run.rate();
            }
            load.runs.push(run);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(loads)
}

/// One run of so many ticks.
fn one(
    station: &mut Station,
    locals: &[Local],
    mut schedule: Schedule,
    ticks: u64,
) -> Result<Run, BenchError> {
    let (mut run, mut booked) = (Run::default(), Booked::default());
    let waits = machine::Waits::open();
    let mut piled_up = false;
    for round in 0.. {
        if round >= WARM_UP + LEAST && run.ticks >= ticks {
            break;
        }
        let before = waits.read();
        station.book(locals, &mut schedule, &mut booked);
        let took = station.run_booked(&mut booked)?;
        let disturbed = piled_up || waits.read() != before;
        piled_up = disturbed && schedule.is_behind(station.stopped_at(&booked), PILED_UP);
        let mut latencies = Histogram::default();
        station.take_latencies(&booked, &mut latencies)?;
        let polls = station.take_polls();
        if round >= WARM_UP {
            run.latencies.merge(&latencies);
            if !disturbed {
                run.quiet.merge(&latencies);
            }
            run.ticks += took;
            run.polls.bursts += polls.bursts;
            run.polls.frames += polls.frames;
        }
    }
    Ok(run)
}

impl Load {
    fn over_runs(&self, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    /// Packets a tick of each run.
    fn rates(&self) -> Vec<f64> {
        self.over_runs(Run::rate)
    }

    /// Frames of a poll that gave any.
    fn burst_fill(&self) -> f64 {
        quantile(&self.over_runs(|run| run.polls.frames as f64 / run.polls.bursts as f64), 0.5)
    }

    /// Ticks that `part` of a run's frames took at most, of each run; of all frames, or of those
    /// in quiet rounds.
    fn times(&self, part: f64, quiet: bool) -> Vec<f64> {
        self.over_runs(|run| {
            let of = if quiet { &run.quiet } else { &run.latencies };
            of.quantile(part).map_or(f64::NAN, |ticks| ticks as f64)
        })
    }

    /// Median of the runs' times in nanoseconds, and all of them.
    fn ns(&self, part: f64, quiet: bool, tsc_hz: f64) -> (f64, Vec<f64>) {
        let ns = self.times(part, quiet).into_iter().filter(|ticks| !ticks.is_nan());
        let ns: Vec<_> = ns.map(|ticks| round(ticks / tsc_hz * 1e9)).collect();
        (quantile(&ns, 0.5), ns)
    }

    fn json(&self, tsc_hz: f64) -> Value {
        let rates: Vec<_> = self.rates().iter().map(|rate| round(rate * tsc_hz / 1e6)).collect();
        let mut object = json!({
            "load": self.share,
            "mpps": quantile(&rates, 0.5),
            "mpps_runs": rates,
            "burst_fill": round(self.burst_fill()),
            "frames": self.runs.iter().map(|run| run.latencies.total()).sum::<u64>(),
            "quiet_frames": self.runs.iter().map(|run| run.quiet.total()).sum::<u64>(),
        });
        // Of frames that all arrive at once a time says nothing.
        for (name, part) in PARTS.iter().filter(|_| self.share.is_some()) {
            for (quiet, name) in [(false, (*name).to_owned()), (true, format!("quiet_{name}"))] {
                let (median, all) = self.ns(*part, quiet, tsc_hz);
                object[format!("{name}_ns")] = median.into();
                object[format!("{name}_ns_runs")] = all.into();
            }
        }
        object
    }
}

impl Report {
    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.machine.warnings(1);
        if let Some((all, waited)) = self.waited.filter(|(all, waited)| *waited > all / 1000.0) {
            let share = waited / all * 100.0;
            warnings.push(format!(
                "for {share:.1} % of the time something else ran on the core: the highest \
                 percentiles are the machine's"
            ));
        }
        warnings
    }

    /// One object.
    pub fn json(&self) -> Value {
        let args = &self.args;
        let figures = json!({
            "mode": args.mode.name(),
            "family": args.family.version(),
            "sessions": args.sessions,
            "arrivals": format!("{:?}", args.arrivals).to_lowercase(),
            "workers": 1,
            "repeats": args.turns.repeats,
            "seconds": args.turns.seconds,
            "burst": args.burst,
            "frames_in_flight": args.frames,
            "loads": self.loads.iter().map(|load| load.json(self.tsc_hz)).collect::<Vec<_>>(),
            "resolution": "1/64 of a time",
            "table_bytes": self.table.0,
            "table_pages": self.table.1,
            "floor_cycles_per_line": round(self.floor),
            "tsc_ghz": round(self.tsc_hz / 1e9),
            "core_ghz": self.core_ghz.map(round),
            "packets_judged": self.judged,
            "waited_s": self.waited.map(|(_, waited)| round(waited)),
            "warnings": self.warnings(),
        });
        runs::merge([runs::about("latency", &self.machine, 1), figures])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let line = |(load, quiet): (&Load, bool)| {
            let rate = quantile(&load.rates(), 0.5) * self.tsc_hz / 1e6;
            let mut cells = vec![
                load.share.map_or_else(|| "all".into(), |share| format!("{} %", share * 100.0)),
                if quiet { "quiet".into() } else { format!("{rate:.2}") },
                format!("{:.1}", load.burst_fill()),
            ];
            cells.extend(PARTS.iter().map(|(_, part)| match load.share {
                Some(_) => format!("{:.0}", load.ns(*part, quiet, self.tsc_hz).0),
                None => "-".into(),
            }));
            cells
        };
        let loads = self.loads.iter().flat_map(|load| [(load, false), (load, true)]);
        let loads = loads.filter(|(load, quiet)| load.share.is_some() || !quiet);
        let lines: Vec<_> = loads.map(line).collect();
        let head = ["load", "Mpps", "burst", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
        let mut out = format!(
            "{} IPv{}, {} sessions, {:?} arrivals, {} runs of {} s each; {}\n{}{LEGEND}",
            self.args.mode.name(),
            self.args.family.version(),
            self.args.sessions,
            self.args.arrivals,
            self.args.turns.repeats,
            self.args.turns.seconds,
            self.machine.cpu_model,
            runs::table(&head, &lines),
        );
        for warning in self.warnings() {
            out.push_str(&format!("warning: {warning}\n"));
        }
        out
    }
}

const LEGEND: &str = "\
Nanoseconds from a frame's moment on the schedule until the loop has sent it, medians of the runs;
burst: frames of a poll that gave any; load: share of the rate in the first line; quiet: of the
rounds in which the kernel ran nothing else on the core, and that had no remains of such.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    /// A whole run, which fails when a frame is lost or comes out in another's place.
    #[test]
    fn times_are_in_order() {
        for line in ["--mode fnat", "--mode ipip --family 6", "--mode nat --arrivals constant"] {
            let line = format!(
                "sluice-bench latency --sessions 1000 --repeats 1 --seconds 0.01 \
                 --pages ordinary --loads 0.2 {line}"
            );
            let Command::Latency(args) = Cli::parse_from(line.split_whitespace()).command else {
                panic!()
            };
            let report = run(&args).unwrap();
            let json = report.json();
            let [all, some] = [0, 1].map(|at| json["loads"][at].clone());
            let number = |name: &str| some[name].as_f64().unwrap();
            assert!(number("p50_ns") > 0.0 && number("p50_ns") <= number("p99_ns"), "{some}");
            assert!(number("p99_ns") <= number("max_ns"), "{some}");
            assert!(number("quiet_frames") <= number("frames"), "{some}");
            assert!(number("mpps") < all["mpps"].as_f64().unwrap() * 0.5, "{all} {some}");
            assert!(report.text().contains("20 %"));
        }
    }
}
