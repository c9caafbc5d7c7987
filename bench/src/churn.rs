//! Established traffic with and without sessions that open and end beside it.
//!
//! Two workers on one core take turns, so that what disturbs the machine hits both alike. Sessions
//! that come are first segments of connections that nobody answers; they go when the time for
//! their handshake is over, which is a second here, and no packet of the established ones is
//! needed for it: the sweep finds them.

use crate::args::{Churn, Mode, Protocol, Throughput};
use crate::clock;
use crate::error::BenchError;
use crate::floor;
use crate::machine::{Machine, Priority};
use crate::port::MemFrame;
use crate::report::{by_stage, mean, quantile, round, stage_cycles, uninterrupted};
use crate::runs;
use crate::seen::Seen;
use crate::station::{self, Station, alone};
use crate::template::Kind;
use crate::traffic::{Local, Traffic, Way};
use serde_json::{Value, json};
use sluice_director::path::Stage;
use sluice_director::spec::Timeouts;
use sluice_worker::StageCounts;
use std::time::Instant;

/// Established packets of a round, and the most first segments beside them.
const PACKETS: usize = 4096;
const MOST: usize = 2048;
/// How long a session stays that nobody answers, and the seconds of the worker's time after which
/// as many go as come: that and the sweep's two seconds.
const STAY_S: u32 = 1;
const SETTLED_S: f64 = 3.5;
/// Slots for sessions that wait to go: those of so many seconds.
const WAITING_S: u64 = 4;
/// Of so many rounds one is judged, and of it so many frames of each way.
const JUDGE_EVERY: u64 = 16;
const JUDGED: usize = 16;
/// The least rounds that a median is taken of.
const LEAST: usize = 16;

/// One of the two workers.
struct Side {
    station: Station,
    locals: Vec<Local>,
    /// Sessions a tick that come.
    rate: f64,
    /// Those that are due and have not come yet.
    due: f64,
    /// The next one's number.
    next: u32,
    came: u64,
    rounds: u64,
    worked: u64,
    judged: u64,
}

/// What a round of a side took: ticks, and the sessions that came in it.
type Round = (u64, usize);

impl Side {
    fn new(args: &Churn, rate: f64, tsc_hz: f64) -> Result<Self, BenchError> {
        let traffic = args.traffic();
        let timeouts = Timeouts { tcp_syn_recv_s: STAY_S, ..Timeouts::default() };
        let mut station = Station::alone(&traffic, timeouts, tsc_hz)?;
        let mut locals = station::untold(&traffic);
        station.open(&mut locals, |_| {})?;
        let next = traffic.sessions_each();
        let (due, came, rounds, worked, judged) = (0.0, 0, 0, 0, 0);
        Ok(Self { station, locals, rate, due, next, came, rounds, worked, judged })
    }

    fn round(&mut self) -> Result<Round, BenchError> {
        let come = (self.due as usize).min(MOST);
        self.write(come);
        let took = self.station.settle("measuring", PACKETS + come, None)?;
        if self.rounds.is_multiple_of(JUDGE_EVERY) {
            self.judge()?;
        }
        self.station.rest();
        self.due = (self.due - come as f64 + took as f64 * self.rate).min(MOST as f64);
        self.came += come as u64;
        self.rounds += 1;
        self.worked += took;
        Ok((took, come))
    }

    /// Writes a round of established traffic with so many first segments spread evenly among it.
    fn write(&mut self, come: usize) {
        let flows = self.next..self.next.wrapping_add(come as u32);
        self.next = flows.end;
        let mut frames = std::mem::take(&mut self.station.idle);
        let mut firsts = frames.split_off(frames.len() - come);
        let rest = frames.split_off(PACKETS);
        let traffic: &mut Traffic = &mut self.station.traffic;
        traffic.write_round(&[&self.locals], &mut frames);
        traffic.write_in(flows, Kind::Syn, &mut firsts);
        let mut firsts = firsts.into_iter();
        for (at, frame) in frames.into_iter().enumerate() {
            let way = self.station.traffic.way(at);
            self.station.sort(way, frame);
            let now = (at + 1) * come / PACKETS - at * come / PACKETS;
            for first in firsts.by_ref().take(now) {
                self.station.sort(Way::In, first);
            }
        }
        self.station.idle = rest;
        self.station.load_sorted();
    }

    fn judge(&mut self) -> Result<(), BenchError> {
        for way in [Way::In, Way::Out] {
            let sent: Vec<_> = self.station.outlet(way).take_sent().collect();
            for frame in sent.iter().step_by((sent.len() / JUDGED).max(1)) {
                self.judge_one(way, frame).map_err(|(flow, what)| BenchError::Wrong {
                    worker: 0,
                    flow,
                    what,
                })?;
                self.judged += 1;
            }
            self.station.idle.extend(sent);
        }
        Ok(())
    }

    /// An established session's frame must be as it must be for its session; of a new one, it must
    /// be right for what it says of itself.
    fn judge_one(&self, way: Way, frame: &MemFrame) -> Result<(), (u32, String)> {
        let traffic = &self.station.traffic;
        let flow = traffic.flow_of(frame).unwrap_or(u32::MAX);
        if (flow as usize) < self.locals.len() {
            return traffic.judge(way, &self.locals, frame);
        }
        let learned = traffic.learn(frame, Some(flow));
        let (_, local) = learned.ok_or((flow, "not a first segment".to_owned()))?;
        let seen = crate::judge::read(sluice_director::Frame::bytes(frame));
        seen.and_then(|seen| traffic.compare(way, flow, local, &seen)).map_err(|what| (flow, what))
    }

    /// Lets the sessions go that came, and compares the counters.
    fn finish(mut self) -> Result<u64, BenchError> {
        self.station.passed = self.came;
        self.station.let_expire();
        self.station.audit()?;
        Ok(self.judged + self.station.judged)
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    args: Churn,
    machine: Machine,
    tsc_hz: f64,
    core_ghz: Option<f64>,
    /// Ticks of each round, without and with.
    without: Vec<f64>,
    with: Vec<f64>,
    /// Sessions that came in each round.
    comes: Vec<f64>,
    /// What was seen of the stages, without and with.
    stages: [Seen; 2],
    /// Sessions that came and that went in the rounds that count, and those rounds' seconds.
    came: u64,
    went: u64,
    with_s: f64,
    /// Open sessions of the worker with new ones, at the end.
    open: u32,
    table: (usize, &'static str),
    floor: f64,
    judged: u64,
}

/// Measures.
pub fn run(args: &Churn) -> Result<Report, BenchError> {
    if args.mode == Mode::Snat {
        let text = "churn is of fnat, nat, dr and ipip: of snat, templates stay behind";
        return Err(BenchError::Usage(text.into()));
    }
    let machine = Machine::look(args.core.unwrap_or(0));
    let _priority = Priority::set(args.conditions.nice)?;
    alone::pin(args.core)?;
    let tsc_hz = clock::ticks_per_s();
    let mut without = Side::new(args, 0.0, tsc_hz)?;
    let mut with = Side::new(args, args.rate as f64 / tsc_hz, tsc_hz)?;
    let settled = (SETTLED_S.min(args.seconds) * tsc_hz) as u64;
    while with.worked < settled {
        with.round()?;
    }
    without.round()?;
    let core_ghz = clock::core_ghz();
    let (came, went, worked) = (with.came, with.station.ended(), with.worked);
    let (mut rounds, mut comes) = ([Vec::new(), Vec::new()], Vec::new());
    let mut stages = <[Seen; 2]>::default();
    let bar = runs::bar(args.seconds.ceil() as u64, "s");
    let start = Instant::now();
    while rounds[0].len() < LEAST || start.elapsed().as_secs_f64() < args.seconds {
        let sides = [&mut without, &mut with].into_iter().zip(&mut stages);
        for ((side, stages), rounds) in sides.zip(&mut rounds) {
            let before = *side.station.worker().stages();
            let (took, come) = side.round()?;
            stages.note(took as f64, side.station.worker().stages().since(&before));
            rounds.push(took as f64);
            comes.push(come as f64);
        }
        bar.set_position(start.elapsed().as_secs());
    }
    bar.finish_and_clear();
    let [of_without, of_with] = rounds;
    // Every second round is of the side without.
    let comes = comes.into_iter().skip(1).step_by(2).collect();
    let mut report = Report {
        args: args.clone(),
        machine,
        tsc_hz,
        core_ghz,
        without: of_without,
        with: of_with,
        comes,
        stages,
        came: with.came - came,
        went: with.station.ended() - went,
        with_s: (with.worked - worked) as f64 / tsc_hz,
        open: with.station.open_sessions(),
        table: with.station.worker().path().memory(),
        floor: f64::NAN,
        judged: 0,
    };
    report.judged = without.finish()? + with.finish()?;
    let pages = args.conditions.pages.policy();
    report.floor = floor::measure(report.table.0, pages, args.conditions.seed)?.anywhere;
    Ok(report)
}

impl Churn {
    /// The established traffic, and room for the rest.
    fn traffic(&self) -> Throughput {
        Throughput {
            protocol: Protocol::Tcp,
            sessions: self.sessions,
            frames: (PACKETS + MOST) as u64,
            spare: (self.rate * WAITING_S).min(1 << 27) as u32,
            // A port that is free again need not be found at once.
            to_come: (self.rate as f64 * (SETTLED_S + self.seconds)) as u64,
            ..Throughput::usual(self.mode, self.family, &self.conditions)
        }
    }
}

impl Report {
    /// Ticks of a round for each established packet, at a quantile.
    fn cycles(rounds: &[f64], part: f64) -> f64 {
        quantile(rounds, part) / PACKETS as f64
    }

    /// Ticks of a round: the mean of those that were not interrupted. The median would be that of a
    /// round without a sweep, whose turn comes once a millisecond, and in less than every second.
    fn typical(rounds: &[f64]) -> f64 {
        let most = uninterrupted(rounds);
        mean(&rounds.iter().copied().filter(|ticks| *ticks <= most).collect::<Vec<_>>())
    }

    /// By how much the rate of established packets is lower.
    fn loss(&self) -> f64 {
        1.0 - Self::typical(&self.without) / Self::typical(&self.with)
    }

    /// Sessions that come in such a round.
    fn come(&self) -> f64 {
        let most = uninterrupted(&self.with);
        let rounds = self.comes.iter().zip(&self.with).filter(|(_, ticks)| **ticks <= most);
        mean(&rounds.map(|(come, _)| *come).collect::<Vec<_>>())
    }

    /// Ticks of a session that comes and goes, all in.
    fn session_cycles(&self) -> f64 {
        (Self::typical(&self.with) - Self::typical(&self.without)) / self.come()
    }

    fn seen(&self) -> [StageCounts; 2] {
        [self.stages[0].quiet(), self.stages[1].quiet()]
    }

    /// What a session that comes and goes adds to each stage: what a packet takes there on average,
    /// for all packets that there are with it.
    fn stages_of_a_session(&self) -> Value {
        let come = self.come();
        let established = PACKETS as f64;
        let of = |side: &StageCounts, stage: Stage, packets: f64| {
            side.ticks[stage as usize] as f64 / side.packets as f64 * packets
        };
        let [without, with] = &self.seen();
        by_stage(|stage| {
            let with = of(with, stage, established + come);
            round((with - of(without, stage, established)) / come)
        })
    }

    /// Sessions a second that come in such rounds: fewer come in all when interruptions are longer
    /// than what can be made up for in a round.
    fn rate(&self) -> f64 {
        self.come() / Self::typical(&self.with) * self.tsc_hz
    }

    fn mpps(&self, rounds: &[f64]) -> f64 {
        self.tsc_hz / Self::typical(rounds) * PACKETS as f64 / 1e6
    }

    /// One object.
    pub fn json(&self) -> Value {
        let args = &self.args;
        let side = |rounds: &[f64], stages: &StageCounts| {
            json!({
                "stage_cycles_per_packet": stage_cycles(stages),
                "established_mpps": round(self.mpps(rounds)),
                "cycles_per_established_packet": round(Self::typical(rounds) / PACKETS as f64),
                "cycles_per_established_packet_p50": round(Self::cycles(rounds, 0.5)),
                "cycles_per_established_packet_p10": round(Self::cycles(rounds, 0.1)),
                "cycles_per_established_packet_p90": round(Self::cycles(rounds, 0.9)),
                "rounds": rounds.len(),
            })
        };
        let [without, with] = self.seen();
        let figures = json!({
            "mode": args.mode.name(),
            "family": args.family.version(),
            "sessions": args.sessions,
            "rate": args.rate,
            "workers": 1,
            "burst": sluice_director::path::BURST,
            "without": side(&self.without, &without),
            "with": side(&self.with, &with),
            "established_loss": (self.loss() * 1e4).round() / 1e4,
            "cycles_per_session": round(self.session_cycles()),
            "stage_cycles_per_session": self.stages_of_a_session(),
            "came_per_s_uninterrupted": self.rate().round(),
            "came_per_s": (self.came as f64 / self.with_s).round(),
            "went_per_s": (self.went as f64 / self.with_s).round(),
            "open_at_the_end": self.open,
            "table_bytes": self.table.0,
            "table_pages": self.table.1,
            "floor_cycles_per_line": round(self.floor),
            "tsc_ghz": round(self.tsc_hz / 1e9),
            "core_ghz": self.core_ghz.map(round),
            "packets_judged": self.judged,
        });
        runs::merge([runs::about("churn", &self.machine, 1), figures])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let line = |name: &str, rounds: &[f64]| {
            let mut cells = vec![name.to_owned(), format!("{:.2}", self.mpps(rounds))];
            cells.push(format!("{:.1}", Self::typical(rounds) / PACKETS as f64));
            cells.extend([0.1, 0.5, 0.9].map(|p| format!("{:.1}", Self::cycles(rounds, p))));
            cells
        };
        let lines = [line("alone", &self.without), line("with new ones", &self.with)];
        let head = ["established", "Mpps", "cycles", "p10", "p50", "p90"];
        let [without, with] = self.seen().map(|side| stage_cycles(&side));
        let stages = [
            ("a packet, alone".to_owned(), without),
            ("a packet, with new ones".to_owned(), with),
            ("a session".to_owned(), self.stages_of_a_session()),
        ];
        format!(
            "{} IPv{}, {} established TCP sessions beside {} new ones a second; {}\n{}\
             established traffic: {:.1} % slower; {:.0} cycles for a session that comes and goes\n\
             in a second {:.0} came in rounds without interruption; {:.0} came and {:.0} went of \
             the worker's time with interruptions; {} open at the end\n{}{}",
            self.args.mode.name(),
            self.args.family.version(),
            self.args.sessions,
            self.args.rate,
            self.machine.cpu_model,
            runs::table(&head, &lines),
            self.loss() * 100.0,
            self.session_cycles(),
            self.rate(),
            self.came as f64 / self.with_s,
            self.went as f64 / self.with_s,
            self.open,
            runs::stage_table("cycles by stage", &stages),
            runs::footer(&self.machine, 1)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    /// Whole runs, which fail when a packet is lost, comes out wrong, or a session stays.
    #[test]
    fn sessions_come_and_go() {
        for line in ["--mode fnat", "--mode nat --family 6", "--mode dr", "--mode ipip"] {
            let line = format!(
                "sluice-bench churn --sessions 1000 --rate 100k --seconds 0.05 --pages ordinary \
                 {line}"
            );
            let Command::Churn(args) = Cli::parse_from(line.split_whitespace()).command else {
                panic!()
            };
            let report = run(&args).unwrap();
            let json = report.json();
            let came = json["came_per_s"].as_f64().unwrap();
            // How many come in so short a time depends on what else the machine does.
            assert!(came > 10_000.0, "{json}");
            assert!(json["without"]["established_mpps"].as_f64().unwrap() > 0.0);
            assert!(report.text().contains("comes and goes"));
            assert!(report.text().contains("a packet, with new ones"));
            let stages = &json["stage_cycles_per_session"];
            assert!(stages["open"].as_f64() > Some(0.0), "{stages}");
            assert_eq!(json["without"]["stage_cycles_per_packet"]["open"], 0.0);
        }
    }

    #[test]
    fn rounds_with_a_sweep_count_and_interrupted_ones_do_not() {
        assert_eq!(Report::typical(&[10.0, 10.0, 18.0, 10.0, 1000.0]), 12.0);
    }

    #[test]
    fn source_nat_is_refused() {
        let words = ["sluice-bench", "churn", "--mode", "snat"];
        let Command::Churn(args) = Cli::parse_from(words).command else { panic!() };
        assert!(run(&args).unwrap_err().to_string().contains("templates"));
    }
}
