//! The measurement from beginning to end: threads on their cores, phase by phase.

use crate::args::Throughput;
use crate::clock;
use crate::error::BenchError;
use crate::floor;
use crate::gate::Gate;
use crate::machine::{self, Machine, Priority};
use crate::report::{Report, WorkerReport};
use crate::resident::{self, Resident};
use crate::rounds::{self, Pace};
use crate::runs;
use crate::scene;
use crate::station::{self, Cables, Station, Yard};
use crate::traffic::Local;
use indicatif::ProgressBar;
use sluice_worker::{Published, Rings, Wake, mesh};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

/// Opening so many sessions takes long enough to show how far it is.
const LONG: usize = 2_000_000;

/// What all threads of a run share.
struct Run<'a> {
    args: &'a Throughput,
    snapshot: Arc<Published>,
    ticks_per_s: f64,
    /// Where all threads meet between phases, the coordinating one too.
    phase: Gate,
    pace: Pace,
    /// The local endpoints of each worker's sessions.
    locals: Vec<OnceLock<Vec<Local>>>,
    wakes: Vec<Wake>,
}

/// Measures.
pub fn run(args: &Throughput) -> Result<Report, BenchError> {
    args.check()?;
    let args = &*args.settled();
    let workers = usize::from(args.workers);
    let cores = cores(args)?;
    let machine = Machine::look(cores[0]);
    let _priority = Priority::set(args.nice)?;
    let eventfd = |source| BenchError::Machine { what: "eventfd".into(), source };
    let wakes = (0..workers).map(|_| Wake::new()).collect::<Result<_, _>>().map_err(eventfd)?;
    let run = Run {
        args,
        snapshot: scene::snapshot(args, args.timeouts())?,
        ticks_per_s: clock::ticks_per_s(),
        phase: Gate::new(workers + 1),
        pace: Pace::new(workers),
        locals: (0..workers).map(|_| OnceLock::new()).collect(),
        wakes,
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = mesh(workers)
            .into_iter()
            .zip(cores)
            .enumerate()
            .map(|(number, (rings, core))| scope.spawn(move || run.worker(number, core, rings)))
            .collect();
        let resident = run.watch_memory();
        let mut reports = Vec::new();
        let mut failure = None;
        for thread in threads {
            match thread.join().expect("a panic in a worker has said what it is") {
                Ok(report) => reports.push(report),
                Err(BenchError::Aborted) if failure.is_some() => {}
                // The first cause counts, not those that it stopped.
                Err(error) if matches!(failure, None | Some(BenchError::Aborted)) => {
                    failure = Some(error);
                }
                Err(_) => {}
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let tsc_hz = run.ticks_per_s;
        Ok(Report { args: args.clone(), machine, tsc_hz, resident: resident?, workers: reports })
    })
}

/// A core for each worker: the named ones, or the last ones.
fn cores(args: &Throughput) -> Result<Vec<usize>, BenchError> {
    if !args.cores.is_empty() {
        return Ok(args.cores.clone());
    }
    let usable = machine::usable_cores()?;
    Ok((0..usize::from(args.workers))
        .map(|n| usable[usable.len() - 1 - n % usable.len()])
        .collect())
}

impl Run<'_> {
    /// Reads the process's memory before the tables are made and when they are full.
    fn watch_memory(&self) -> Result<[Resident; 2], BenchError> {
        let watch = || {
            self.phase.nap()?;
            let before = resident::resident()?;
            self.phase.nap()?;
            self.phase.nap()?;
            let after = resident::resident()?;
            self.phase.nap()?;
            Ok([before, after])
        };
        watch().inspect_err(|_| self.phase.fail())
    }

    /// A worker's thread.
    fn worker(
        &self,
        number: usize,
        core: usize,
        rings: Rings<crate::port::MemFrame>,
    ) -> Result<WorkerReport, BenchError> {
        self.phases(number, core, rings).inspect_err(|_| {
            self.phase.fail();
            self.pace.gate().fail();
        })
    }

    fn phases(
        &self,
        number: usize,
        core: usize,
        rings: Rings<crate::port::MemFrame>,
    ) -> Result<WorkerReport, BenchError> {
        machine::pin(core)?;
        let yard = Yard::new(self.args, number as u16)?;
        let mut locals = station::untold(self.args);
        // Nobody listens: no neighbour is ever missing.
        let (events, _) = channel();
        let cables = Cables {
            snapshot: Arc::clone(&self.snapshot),
            rings,
            wakes: self.wakes.clone(),
            events: (events, self.wakes[number].clone()),
        };
        self.phase.spin()?;
        self.phase.spin()?;
        let mut station = Station::new(self.args, number as u16, cables, yard, self.ticks_per_s)?;
        let start = Instant::now();
        let bar = (number == 0 && !self.args.no_bar && locals.len() >= LONG)
            .then(|| runs::bar(locals.len() as u64, "sessions opened"));
        let opened = station.open(&mut locals, |count| {
            bar.iter().for_each(|bar| bar.set_position(u64::from(count)));
        })?;
        bar.iter().for_each(ProgressBar::finish_and_clear);
        let open_wall_s = start.elapsed().as_secs_f64();
        let locals = self.locals[number].get_or_init(|| locals).len();
        debug_assert_eq!(locals, self.args.sessions_each() as usize);
        self.phase.spin()?;
        self.phase.spin()?;
        let core_ghz = clock::core_ghz();
        let all: Vec<&[Local]> =
            self.locals.iter().map(|l| l.get().map_or(&[][..], Vec::as_slice)).collect();
        let misdirected = self.args.misdirected > 0.0;
        let measured = rounds::measure(
            &mut station,
            (number, self.args.frames),
            &all,
            (&self.pace, misdirected),
            self.args.seconds,
        )?;
        station.audit()?;
        let (table_bytes, table_pages) = station.worker().path().memory();
        let judged = station.judged;
        // The tables make room for as much memory of another kind.
        drop(station);
        self.pace.gate().spin()?;
        let policy = self.args.pages.policy();
        let floor = floor::measure(table_bytes, policy, self.args.seed)?;
        Ok(WorkerReport {
            core,
            core_ghz,
            opened,
            open_wall_s,
            measured,
            table_bytes,
            table_pages,
            judged,
            floor,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn report(line: &str) -> serde_json::Value {
        let short = "sluice-bench throughput --frames 256 --seconds 0.02 --reals 3";
        let words = short.split_whitespace().chain(line.split_whitespace());
        let Command::Throughput(args) = Cli::parse_from(words).command else { panic!() };
        let report = super::run(&args).unwrap();
        assert!(report.text().contains("cycles a packet"));
        report.json()
    }

    /// Whole runs, which fail when a packet is lost, comes out wrong, or is not counted.
    #[test]
    fn small_runs() {
        for (line, workers, sessions) in [
            ("--sessions 1000 --protocol udp", 1, 1000),
            ("--sessions 700 --protocol tcp --size 128 --burst 7", 1, 700),
            ("--sessions 1001 --protocol udp --workers 2", 2, 1000),
            ("--sessions 1000 --protocol tcp --workers 2 --misdirected 0.25", 2, 1000),
            ("--sessions 1000 --workers 3 --misdirected 0.5 --pages ordinary", 3, 999),
            ("--sessions 1000 --mode nat --scheduler wlc --protocol tcp", 1, 1000),
            ("--sessions 1000 --elephant 0.9", 1, 1000),
            ("--sessions 1000 --mode dr --scheduler mh --family 6 --workers 2", 2, 1000),
            ("--sessions 1000 --mode ipip --scheduler p2c --size 1518", 1, 1000),
            ("--sessions 1000 --mode ipip --scheduler sh --family 6", 1, 1000),
            ("--sessions 1000 --mode snat --family 6 --mapping per_session", 1, 1000),
            ("--sessions 1000 --mode nat --workers 2", 2, 1000),
            ("--sessions 1000 --mix", 1, 1000),
            ("--sessions 1000 --mix --family 6 --mode nat", 1, 1000),
            ("--sessions 1000 --mix --mode ipip --pages ordinary", 1, 1000),
            ("--sessions 1000 --mix --workers 2 --misdirected 0.5", 2, 1000),
            ("--sessions 1000 --mode snat --family 6 --mapping per_session --workers 3", 3, 999),
        ] {
            let json = report(line);
            let number = |key: &str| json[key].as_f64().unwrap_or(f64::NAN);
            assert_eq!((number("workers"), number("sessions")), (workers.into(), sessions.into()));
            for key in ["mpps", "cycles_per_packet", "tsc_ghz", "floor_cycles_per_line"] {
                assert!(number(key) > 0.0, "{line}: {key} is {}", json[key]);
            }
            let stages = json["stage_cycles_per_packet"].as_object().unwrap();
            for stage in ["receive", "parse", "find", "track", "send"] {
                assert!(stages[stage].as_f64() > Some(0.0), "{line}: {stages:?}");
            }
            let hands_over = stages["hand_off"].as_f64() > Some(0.0);
            assert_eq!(hands_over, workers > 1, "{line}: {stages:?}");
            assert!(number("packets") >= 16.0 * 256.0 * f64::from(workers), "{line}");
            let wide = line.contains("family 6");
            let expected = if wide { 100.0..180.0 } else { 48.0..64.0 };
            let bytes = number("table_bytes_per_session");
            assert!(line.contains("mix") || expected.contains(&bytes), "{line}: {json}");
            assert!(number("packets_judged") > 16.0, "{line}");
        }
    }
}
