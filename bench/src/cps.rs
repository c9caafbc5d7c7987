//! Connections a second: each from its first SYN until its session is deleted.
//!
//! In every round a group of connections begins, and each group that is under way takes its next
//! step, so that the worker meets segments of every kind side by side, and a round ends as many
//! connections as it begins. All frames of a round are written before it is timed.

use crate::args::{Cps, Mode, Throughput};
use crate::clock::{self, ticks};
use crate::error::BenchError;
use crate::floor;
use crate::judge;
use crate::machine::{self, Machine, Priority};
use crate::report::{mean, quantile, round as rounded};
use crate::runs;
use crate::station::{self, Station, alone};
use crate::template::{Content, Segment, Template};
use crate::traffic::{Local, Way, macs_of};
use serde_json::{Value, json};
use sluice_director::spec::Timeouts;
use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of a request and of its answer.
const REQUEST: usize = 100;
const ANSWER: usize = 400;
/// Rounds at the beginning that do not count, when all groups are under way.
const WARM_UP: u64 = 16;
/// The least rounds that a median is taken of.
const LEAST: u64 = 16;
/// Of so many rounds, one is judged, and of it this many frames of each direction.
const JUDGE_EVERY: u64 = 16;
const JUDGED: usize = 16;
/// FIN_WAIT where the director does not see how a connection ends, and the seconds after which as
/// many sessions time out as begin: that and the sweep's two seconds.
const FIN_WAIT_S: u32 = 1;
const SETTLED_S: f64 = 3.5;
/// Slots for the sessions that wait to time out.
const WAITING: u32 = 24_000_000;

/// The life of a connection: who sends what.
fn steps(mode: Mode) -> Vec<(Way, Segment)> {
    let (client, server) = (1_000, 5_000);
    let (asked, told) = (client + 1 + REQUEST as u32, server + 1 + ANSWER as u32);
    let ack = |sequence, acknowledges| Segment {
        ack: true,
        sequence,
        acknowledges,
        ..Segment::default()
    };
    let all = [
        (Way::In, Segment { syn: true, sequence: client, ..Segment::default() }),
        (Way::Out, Segment { syn: true, ..ack(server, client + 1) }),
        (Way::In, ack(client + 1, server + 1)),
        (Way::In, Segment { payload: REQUEST, ..ack(client + 1, server + 1) }),
        (Way::Out, Segment { payload: ANSWER, ..ack(server + 1, asked) }),
        (Way::In, Segment { fin: true, ..ack(asked, told) }),
        (Way::Out, Segment { fin: true, ..ack(told, asked + 1) }),
        (Way::In, ack(asked + 1, told + 1)),
    ];
    all.into_iter().filter(|(way, _)| mode.answers() || *way == Way::In).collect()
}

/// Connections that began in the same round.
struct Group {
    first: u32,
    locals: Vec<Local>,
}

/// Connections under way.
struct Lives<'a> {
    station: &'a mut Station,
    steps: Vec<(Way, Template)>,
    /// The youngest first: the place of a group is its step.
    groups: VecDeque<Group>,
    /// Connections of a group.
    size: usize,
    next: u32,
    judged: u64,
}

impl<'a> Lives<'a> {
    fn new(station: &'a mut Station, args: &Throughput, size: usize) -> Self {
        let scene = *station.traffic.scene();
        let template = |(way, segment)| {
            let content = Content::Tcp(segment);
            (way, Template::new(args.family, content, macs_of(&scene, way)))
        };
        let steps = steps(args.mode).into_iter().map(template).collect();
        let next = args.sessions_each();
        Self { station, steps, groups: VecDeque::new(), size, next, judged: 0 }
    }

    /// Lets a group begin, or not, and writes the next step of each. Gives the number of frames.
    fn write(&mut self, begin: bool) -> usize {
        self.groups.truncate(self.steps.len() - usize::from(begin));
        if begin {
            let locals = vec![Local::default(); self.size];
            self.groups.push_front(Group { first: self.next, locals });
            self.next = self.next.wrapping_add(self.size as u32);
        } else {
            // Nobody takes the first step, so that all others move on.
            self.groups.push_front(Group { first: 0, locals: Vec::new() });
        }
        let mut written = 0;
        for at in 0..self.size {
            for (group, (way, template)) in self.groups.iter().zip(&self.steps) {
                let Some(local) = group.locals.get(at) else { continue };
                let Some(mut frame) = self.station.idle.pop() else { break };
                let flow = group.first.wrapping_add(at as u32);
                let (from, to) = match way {
                    Way::In => self.station.traffic.sent(flow),
                    Way::Out => self.station.traffic.answered(0, flow, *local),
                };
                template.write(&mut frame, from, to, flow);
                self.station.sort(*way, frame);
                written += 1;
            }
        }
        self.station.load_sorted();
        written
    }

    /// Learns what the first segments became, judges some frames, and takes all back.
    fn finish(&mut self, judge: bool) -> Result<(), BenchError> {
        for way in [Way::In, Way::Out] {
            let frames: Vec<_> = self.station.outlet(way).take_sent().collect();
            // Frames leave in the order in which they came: one of each step, over and over.
            let ways = self.groups.iter().zip(&self.steps).enumerate();
            let here = |(step, (group, (its, _))): (usize, (&Group, &(Way, Template)))| {
                (*its == way && !group.locals.is_empty()).then_some(step)
            };
            let here: Vec<usize> = ways.filter_map(here).collect();
            let wrong = |flow, what| BenchError::Wrong { worker: 0, flow, what };
            if here.first() == Some(&0) && way == Way::In {
                let group = &mut self.groups[0];
                for (at, frame) in frames.iter().step_by(here.len()).enumerate() {
                    let flow = group.first.wrapping_add(at as u32);
                    let learned = self.station.traffic.learn(frame, Some(flow));
                    let (_, local) =
                        learned.ok_or_else(|| wrong(flow, "not a first segment".into()))?;
                    group.locals[at] = local;
                }
            }
            let step = if judge { (frames.len() / JUDGED).max(1) } else { usize::MAX };
            for (at, frame) in frames.iter().enumerate().step_by(step).filter(|_| judge) {
                let group = &self.groups[here[at % here.len()]];
                let at = at / here.len();
                let flow = group.first.wrapping_add(at as u32);
                let seen = judge::read(sluice_director::Frame::bytes(frame));
                seen.and_then(|seen| {
                    self.station.traffic.compare(way, flow, group.locals[at], &seen)
                })
                .map_err(|what| wrong(flow, what))?;
                self.judged += 1;
            }
            self.station.idle.extend(frames);
        }
        self.station.rest();
        Ok(())
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    args: Cps,
    machine: Machine,
    tsc_hz: f64,
    core_ghz: Option<f64>,
    /// Ticks of a connection, of each round.
    cycles: Vec<f64>,
    /// Ticks of writing one.
    generator: Vec<f64>,
    packets: u64,
    connections: u64,
    /// Changes of sessions that the worker told.
    changes: u64,
    judged: u64,
    slots: u32,
    table: (usize, &'static str),
    floor: f64,
    wall_s: f64,
    waited_s: Option<f64>,
}

/// Measures.
pub fn run(args: &Cps) -> Result<Report, BenchError> {
    let spare = if args.mode.answers() { 32 * args.group as u32 } else { WAITING };
    let others = args.others(spare);
    let _priority = Priority::set(args.nice)?;
    let machine = Machine::look(args.core.unwrap_or(0));
    alone::pin(args.core)?;
    let tsc_hz = clock::ticks_per_s();
    let timeouts = match args.mode.answers() {
        true => Timeouts::default(),
        false => Timeouts { tcp_fin_wait_s: FIN_WAIT_S, ..Timeouts::default() },
    };
    let mut station = Station::alone(&others, timeouts, tsc_hz)?;
    station.open(&mut station::untold(&others), |_| {})?;
    if args.sync {
        station.tell()?;
    }
    if args.pull {
        station.pull();
    }
    let mut report = live(args, &others, &mut station, tsc_hz)?;
    (report.machine, report.table) = (machine, station.worker().path().memory());
    drop(station);
    report.floor = floor::measure(report.table.0, args.pages.policy(), args.seed)?.anywhere;
    Ok(report)
}

/// Runs rounds, and lets all connections end.
fn live(
    args: &Cps,
    others: &Throughput,
    station: &mut Station,
    tsc_hz: f64,
) -> Result<Report, BenchError> {
    let core_ghz = clock::core_ghz();
    let mut lives = Lives::new(station, others, args.group as usize);
    let under_way = lives.steps.len() as u64;
    let (mut cycles, mut generator) = (Vec::new(), Vec::new());
    let (mut packets, mut rounds, mut worked, mut changes) = (0, 0u64, 0u64, 0u64);
    // Without answers, measuring begins when as many time out as begin.
    let settled_s = if args.mode.answers() { 0.0 } else { SETTLED_S.min(args.seconds) };
    let (start, before) = (Instant::now(), machine::ran_and_waited_s());
    let mut counted = None;
    for round in 0.. {
        let settled = worked as f64 >= settled_s * tsc_hz && round >= under_way + WARM_UP;
        let since = settled.then(|| *counted.get_or_insert_with(Instant::now));
        let enough = cycles.len() as u64 >= LEAST
            && since.is_some_and(|since| since.elapsed().as_secs_f64() >= args.seconds);
        if enough {
            rounds = round;
            break;
        }
        let begin = ticks();
        let frames = lives.write(true);
        let written = ticks() - begin;
        let took = lives.station.settle("measuring", frames, None)?;
        lives.finish(round % JUDGE_EVERY == 0)?;
        worked += took;
        let told = lives.station.take_told(args.pull);
        if settled {
            changes += told;
            cycles.push(took as f64 / args.group as f64);
            generator.push(written as f64 / args.group as f64);
            packets += frames as u64;
        }
    }
    let (wall_s, after) = (start.elapsed().as_secs_f64(), machine::ran_and_waited_s());
    for _ in 1..under_way {
        let frames = lives.write(false);
        lives.station.settle("ending connections", frames, None)?;
        lives.finish(true)?;
    }
    let judged = lives.judged;
    station.passed = rounds * args.group;
    if !args.mode.answers() {
        station.let_expire();
    }
    station.audit()?;
    Ok(Report {
        args: args.clone(),
        machine: Machine::look(0),
        tsc_hz,
        core_ghz,
        connections: cycles.len() as u64 * args.group,
        changes,
        cycles,
        generator,
        packets,
        judged: judged + station.judged,
        slots: others.capacity_each(),
        table: (0, ""),
        floor: f64::NAN,
        wall_s,
        waited_s: before.zip(after).map(|(before, after)| after.1 - before.1),
    })
}

impl Report {
    fn median(&self) -> f64 {
        quantile(&self.cycles, 0.5)
    }

    fn a_second(&self) -> f64 {
        self.tsc_hz / self.median()
    }

    fn packets_each(&self) -> f64 {
        self.packets as f64 / self.connections as f64
    }

    /// How a session ends.
    const fn end(&self) -> &'static str {
        match self.args.mode.answers() {
            true => "deleted by the last acknowledgement",
            false => "deleted after FIN_WAIT, a second here; inbound only",
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.machine.warnings(1);
        if let Some(waited) = self.waited_s.filter(|waited| *waited > self.wall_s / 50.0) {
            let share = waited / self.wall_s * 100.0;
            warnings.push(format!("for {share:.0} % of the time something else ran on the core"));
        }
        warnings
    }

    /// One object.
    pub fn json(&self) -> Value {
        let args = &self.args;
        let figures = json!({
            "connections_per_s": self.a_second().round(),
            "connections_per_s_mean": (self.tsc_hz / mean(&self.cycles)).round(),
            "cycles_per_connection": rounded(self.median()),
            "cycles_per_connection_min": rounded(quantile(&self.cycles, 0.0)),
            "cycles_per_connection_p90": rounded(quantile(&self.cycles, 0.9)),
            "packets_per_connection": self.packets_each(),
            "generator_cycles_per_connection": rounded(quantile(&self.generator, 0.5)),
            "session_ends": self.end(),
            "mode": args.mode.name(),
            "scheduler": args.mode.scheduled_by(args.scheduler),
            "family": args.family.version(),
            "other_sessions": args.sessions,
            "table_slots": self.slots,
            "table_bytes": self.table.0,
            "table_pages": self.table.1,
            "floor_cycles_per_line": rounded(self.floor),
            "tsc_ghz": rounded(self.tsc_hz / 1e9),
            "core_ghz": self.core_ghz.map(rounded),
            "burst": sluice_director::path::BURST,
            "connections": self.connections,
            "sync": args.sync,
            "pull": args.pull,
            "changes_told": self.changes,
            "packets_judged": self.judged,
            "wall_s": rounded(self.wall_s),
            "waited_s": self.waited_s.map(rounded),
            "warnings": self.warnings(),
        });
        runs::merge([runs::about("cps", &self.machine, 1), figures])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let args = &self.args;
        let median = self.median();
        let lines = [
            (
                "connections",
                format!("{:.0}", self.a_second()),
                format!("a second: SYN to the deleted session; {}", self.end()),
            ),
            (
                "cycles each",
                format!("{median:.0}"),
                format!(
                    "{} at {:.2} GHz; min {:.0}, p90 {:.0}",
                    clock::NAME,
                    self.tsc_hz / 1e9,
                    quantile(&self.cycles, 0.0),
                    quantile(&self.cycles, 0.9)
                ),
            ),
            (
                "packets each",
                format!("{:.0}", self.packets_each()),
                format!("{:.1} cycles a packet", median / self.packets_each()),
            ),
            (
                "generator",
                format!("{:.0}", quantile(&self.generator, 0.5)),
                "cycles a connection, not part of the above".into(),
            ),
            (
                "memory floor",
                format!("{:.2}", self.floor),
                format!("a random line of {} MB, {} pages", self.table.0 >> 20, self.table.1),
            ),
            (
                "measured",
                self.connections.to_string(),
                format!("connections; {} frames read and found right", self.judged),
            ),
        ];
        let mut out = format!(
            "{} {} IPv{} TCP connections beside {} sessions, {}\n",
            args.mode.name(),
            args.mode.scheduled_by(args.scheduler),
            args.family.version(),
            args.sessions,
            self.machine.cpu_model
        );
        for (name, value, remark) in lines {
            out.push_str(&format!("  {name:<18} {value:>12}  {remark}\n"));
        }
        for warning in self.warnings() {
            out.push_str(&format!("  warning: {warning}\n"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn report(line: &str) -> Result<Value, BenchError> {
        let short = "sluice-bench cps --sessions 100 --group 32 --seconds 0.02 --pages ordinary";
        let words = short.split_whitespace().chain(line.split_whitespace());
        let Command::Cps(args) = Cli::parse_from(words).command else { panic!() };
        let report = run(&args)?;
        assert!(report.text().contains("a second: SYN"));
        Ok(report.json())
    }

    /// Whole runs, which fail when a packet is lost, comes out wrong, or a session stays.
    #[test]
    fn every_mode_opens_and_closes() {
        for (line, packets) in [
            ("--mode fnat", 8.0),
            ("--mode fnat --family 6 --scheduler wlc", 8.0),
            ("--mode nat --scheduler p2c", 8.0),
            ("--mode snat", 8.0),
            ("--mode snat --family 6", 8.0),
            ("--mode dr", 5.0),
            ("--mode ipip --family 6", 5.0),
        ] {
            let json = report(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(json["packets_per_connection"], packets, "{line}");
            assert!(json["connections_per_s"].as_f64().unwrap() > 0.0, "{line}");
            assert!(json["packets_judged"].as_u64().unwrap() > 32, "{line}");
        }
    }
}
