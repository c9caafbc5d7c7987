//! What was measured, as one JSON object or as lines to read.

use crate::args::Throughput;
use crate::clock;
use crate::floor::Floor;
use crate::machine::{self, Machine};
use crate::port;
use crate::resident::Resident;
use crate::rounds::Measured;
use crate::runs;
use serde_json::{Value, json};
use sluice_director::path::Stage;
use sluice_worker::StageCounts;
use std::fmt::Write;

/// Everything that one worker found out.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    pub core: usize,
    pub core_ghz: Option<f64>,
    /// Cycles of a new session, for each batch.
    pub opened: Vec<f64>,
    /// Seconds until all were open, generator and all.
    pub open_wall_s: f64,
    pub measured: Measured,
    pub table_bytes: usize,
    pub table_pages: &'static str,
    pub judged: u64,
    pub floor: Floor,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Report {
    pub args: Throughput,
    pub machine: Machine,
    pub tsc_hz: f64,
    /// Resident bytes of the process before the tables were made and when they were full.
    pub resident: [Resident; 2],
    pub workers: Vec<WorkerReport>,
}

/// Cycles a packet of each stage, by name: the mean of the bursts that were timed.
pub fn stage_cycles(seen: &StageCounts) -> Value {
    let of = |stage: Stage| seen.ticks[stage as usize] as f64 / seen.packets as f64;
    by_stage(|stage| round(of(stage)))
}

/// A figure of each stage, by name.
pub fn by_stage(figure: impl Fn(Stage) -> f64) -> Value {
    Stage::ALL.into_iter().map(|stage| (stage.name().to_owned(), json!(figure(stage)))).collect()
}

/// The value below which `part` of the samples are.
pub fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// What rounds take at most that are not taken for interrupted: twice the median. Less would leave
/// out those in which a sweep's turn came, one of a dozen or so.
pub fn uninterrupted(rounds: &[f64]) -> f64 {
    2.0 * quantile(rounds, 0.5)
}

pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Two decimals are more than any of these figures is worth.
pub fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

impl Report {
    /// The mean over the workers of a figure of each.
    fn over_workers(&self, figure: impl Fn(&WorkerReport) -> f64) -> f64 {
        mean(&self.workers.iter().map(figure).collect::<Vec<_>>())
    }

    /// Cycles of one hand-off, the median of all blocks of all workers; `None` without misdirected
    /// packets, or if there was no time for any block.
    fn hand_off_cycles(&self) -> Option<f64> {
        let costs: Vec<_> =
            self.workers.iter().flat_map(|w| w.measured.hand_offs.iter().copied()).collect();
        (!costs.is_empty()).then(|| quantile(&costs, 0.5))
    }

    /// Cycles a packet of a worker: the median of its rounds, or of a mix, whose sessions end, the
    /// mean of those that were not interrupted: the median would be that of a round without sweep.
    fn typical(&self, worker: &WorkerReport) -> f64 {
        let rounds = &worker.measured.cycles_per_packet;
        if !self.args.mix {
            return quantile(rounds, 0.5);
        }
        let most = uninterrupted(rounds);
        mean(&rounds.iter().copied().filter(|cycles| *cycles <= most).collect::<Vec<_>>())
    }

    /// Quantile of the cycles a packet, the mean over the workers.
    fn cycles(&self, part: f64) -> f64 {
        self.over_workers(|worker| quantile(&worker.measured.cycles_per_packet, part))
    }

    /// Millions a second of all workers, when each takes so many cycles for one.
    fn millions(&self, cycles: impl Fn(&WorkerReport) -> f64) -> f64 {
        self.workers.iter().map(|worker| self.tsc_hz / cycles(worker) / 1e6).sum()
    }

    fn core_ghz(&self) -> Option<f64> {
        let all: Option<Vec<f64>> = self.workers.iter().map(|worker| worker.core_ghz).collect();
        all.map(|all| mean(&all))
    }

    fn bytes_per_session(&self) -> f64 {
        self.resident_growth() as f64 / self.sessions() as f64
    }

    /// Bytes of the tables with all that belongs to them.
    fn resident_growth(&self) -> u64 {
        self.resident[1].bytes.saturating_sub(self.resident[0].bytes)
    }

    fn sessions(&self) -> u64 {
        u64::from(self.args.sessions_each()) * u64::from(self.args.workers)
    }

    fn table_bytes(&self) -> usize {
        self.workers.iter().map(|worker| worker.table_bytes).sum()
    }

    /// What the packets of a round are.
    fn directions(&self) -> &'static str {
        match self.args.frames_by_way() {
            [_, 0] => "inbound only",
            _ => "half in, half out",
        }
    }

    fn table_pages(&self) -> String {
        let mut pages: Vec<_> = self.workers.iter().map(|worker| worker.table_pages).collect();
        pages.sort_unstable();
        pages.dedup();
        pages.join(" and ")
    }

    /// Where headers are when a round begins: the cache that holds as many bytes as were written.
    fn headers_in(&self) -> String {
        let line = 64;
        let written =
            self.args.frames * u64::from(self.args.frame_size() - 4).next_multiple_of(line);
        machine::level_of(self.workers[0].core, written)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.machine.warnings(self.workers.len());
        let waited: f64 = self.workers.iter().filter_map(|w| w.measured.waited_s).sum();
        let wall: f64 = self.workers.iter().map(|w| w.measured.wall_s).sum();
        if waited > wall / 50.0 {
            let share = waited / wall * 100.0;
            let hint = if self.args.nice.is_none() { ": --nice=-20 helps" } else { "" };
            warnings.push(format!(
                "for {share:.0} % of the time something else ran on a worker's core{hint}"
            ));
        }
        if self.table_pages().contains("ordinary") && self.table_bytes() > 4 << 20 {
            warnings.push("tables lie in ordinary pages: reserve more with vm.nr_hugepages".into());
        }
        warnings
    }

    /// One object; units are in the names, and `cycles` are ticks of the clock that `clock` names.
    pub fn json(&self) -> Value {
        let args = &self.args;
        let object = json!({
            "mpps": round(self.millions(|w| self.typical(w))),
            "cycles_per_packet": round(self.over_workers(|w| self.typical(w))),
            "core_ghz": self.core_ghz().map(round),
            "tsc_ghz": round(self.tsc_hz / 1e9),
            "bytes_per_session": round(self.bytes_per_session()),
            "sessions": self.sessions(),
            "workers": args.workers,
            "mode": args.mode.name(),
            "scheduler": args.mode.scheduled_by(args.scheduler),
            "family": args.family.version(),
            "protocol": args.protocol.name(),
            "directions": self.directions(),
            "frame_size_bytes": args.frame_size(),
            "clock": clock::NAME,
        });
        let about = runs::about("throughput", &self.machine, self.workers.len());
        let parts = [self.packets_json(), self.memory_json(), self.run_json()];
        let [packets, memory, run] = parts;
        runs::merge([object, packets, memory, about, run])
    }

    fn packets_json(&self) -> Value {
        let cycles = self.cycles(0.5);
        let opened = |worker: &WorkerReport| quantile(&worker.opened, 0.5);
        let (mut stages, mut without_handoff) = <(StageCounts, StageCounts)>::default();
        for worker in &self.workers {
            stages.add(&worker.measured.stages.quiet());
            without_handoff.add(&worker.measured.without_handoff.quiet());
        }
        json!({
            "stage_cycles_per_packet": stage_cycles(&stages),
            "stage_cycles_per_packet_without_handoff":
                self.hand_off_cycles().map(|_| stage_cycles(&without_handoff)),
            "cycles_per_packet_min": round(self.cycles(0.0)),
            "cycles_per_packet_p10": round(self.cycles(0.1)),
            "cycles_per_packet_p90": round(self.cycles(0.9)),
            "core_cycles_per_packet":
                self.core_ghz().map(|ghz| round(cycles * ghz * 1e9 / self.tsc_hz)),
            "ns_per_packet": round(cycles / self.tsc_hz * 1e9),
            "mpps_wall": round(self.millions(|w| w.measured.timed_cycles_per_packet())),
            "mpps_with_generator":
                round(self.workers.iter().map(|w| w.measured.mpps_with_generator()).sum()),
            "generator_cycles_per_packet": round(self.over_workers(|w| {
                w.measured.generator_ticks as f64 / w.measured.packets as f64
            })),
            "hand_off_cycles": self.hand_off_cycles().map(round),
            "new_session_cycles": round(self.over_workers(opened)),
            "new_session_cycles_mean": round(self.over_workers(|w| mean(&w.opened))),
            "new_sessions_per_s": (self.millions(opened) * 1e6).round(),
            "open_s": round(self.over_workers(|w| {
                mean(&w.opened) * f64::from(self.args.sessions_each()) / self.tsc_hz
            })),
            "open_wall_s": round(self.over_workers(|w| w.open_wall_s)),
            "floor_cycles_per_line": round(self.over_workers(|w| w.floor.anywhere)),
            "floor_cycles_per_line_in_pairs": round(self.over_workers(|w| w.floor.in_pairs)),
        })
    }

    fn memory_json(&self) -> Value {
        json!({
            "table_bytes": self.table_bytes(),
            "table_bytes_per_session": round(self.table_bytes() as f64 / self.sessions() as f64),
            "table_pages": self.table_pages(),
            "resident_before_bytes": self.resident[0].bytes,
            "resident_after_bytes": self.resident[1].bytes,
            "resident_growth_bytes": self.resident_growth(),
            "resident_huge_bytes": self.resident[1].huge_bytes - self.resident[0].huge_bytes,
            "session_bytes": self.args.session_bytes(),
            "frames_in_flight": self.args.frames,
            "frame_memory_bytes": self.args.frames * port::STRIDE as u64,
            "headers_in": self.headers_in(),
        })
    }

    fn run_json(&self) -> Value {
        let packets: u64 = self.workers.iter().map(|w| w.measured.packets).sum();
        let judged: u64 = self.workers.iter().map(|w| w.judged).sum();
        let workers: Vec<_> = self.workers.iter().map(WorkerReport::json).collect();
        json!({
            "burst": self.args.burst,
            "real_servers": self.args.reals,
            "misdirected_share": self.args.misdirected,
            "elephant_share": self.args.elephant,
            "seed": self.args.seed,
            "packets": packets,
            "packets_judged": judged,
            "per_worker": workers,
            "warnings": self.warnings(),
        })
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let args = &self.args;
        let mut out = format!(
            "{} {} IPv{} {} {} B {}, {} sessions, {} worker(s), {}\n",
            args.mode.name(),
            args.mode.scheduled_by(args.scheduler),
            args.family.version(),
            args.protocol.name(),
            args.frame_size(),
            self.directions(),
            self.sessions(),
            args.workers,
            self.machine.cpu_model,
        );
        for (name, value, remark) in self.speed_lines().into_iter().chain(self.other_lines()) {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {name:<18} {value:>12}  {remark}");
        }
        for worker in &self.workers {
            let (name, cycles) = (format!("core {}", worker.core), worker.cycles_text());
            let _ = writeln!(out, "  {name:<18} {cycles:>12}  {}", worker.time_text());
        }
        for warning in self.warnings() {
            let _ = writeln!(out, "  warning: {warning}");
        }
        out
    }

    fn speed_lines(&self) -> Vec<Line> {
        let json = self.packets_json();
        let number = |key: &str| two(json[key].as_f64().unwrap_or(f64::NAN));
        let clock = clock::NAME;
        let cycles = self.cycles(0.5);
        let mpps = self.millions(|w| quantile(&w.measured.cycles_per_packet, 0.5));
        let spread = ["min", "p10", "p90"]
            .map(|name| format!("{name} {}", number(&format!("cycles_per_packet_{name}"))));
        let ghz = self.core_ghz().map_or("?".into(), two);
        vec![
            ("throughput", format!("{} Mpps", two(mpps)), "median of the rounds".into()),
            (
                "",
                format!("{} Mpps", number("mpps_wall")),
                "of all timed, interruptions included".into(),
            ),
            (
                "cycles a packet",
                two(cycles),
                format!("{clock} at {} GHz; {}", two(self.tsc_hz / 1e9), spread.join(", ")),
            ),
            (
                "",
                number("core_cycles_per_packet"),
                format!("core, at {ghz} GHz; {} ns", number("ns_per_packet")),
            ),
            (
                "memory floor",
                number("floor_cycles_per_line"),
                format!(
                    "{clock} a random line of as much memory; {} if each second is in the 4 KiB \
                     of the one before",
                    number("floor_cycles_per_line_in_pairs")
                ),
            ),
            (
                "a new session",
                number("new_session_cycles"),
                format!(
                    "{clock} cycles; {} million a second",
                    two(json["new_sessions_per_s"].as_f64().unwrap_or(f64::NAN) / 1e6)
                ),
            ),
            (
                "generator",
                number("generator_cycles_per_packet"),
                format!("{clock} cycles a packet, not part of the above"),
            ),
        ]
    }

    fn other_lines(&self) -> Vec<Line> {
        let per_session = self.table_bytes() as f64 / self.sessions() as f64;
        let packets: u64 = self.workers.iter().map(|w| w.measured.packets).sum();
        let judged: u64 = self.workers.iter().map(|w| w.judged).sum();
        let misdirected = self.args.misdirected * 100.0;
        vec![
            (
                "bytes a session",
                two(self.bytes_per_session()),
                format!("resident; {} mapped, in {} pages", two(per_session), self.table_pages()),
            ),
            (
                "frames",
                self.args.frames.to_string(),
                format!("in flight at each worker, their headers in {}", self.headers_in()),
            ),
            (
                "packets",
                packets.to_string(),
                format!(
                    "all forwarded, {misdirected} % of the outbound ones handed over; \
                     {judged} read and found right"
                ),
            ),
        ]
    }
}

/// A name, a figure, and what it means.
type Line = (&'static str, String, String);

fn two(value: f64) -> String {
    format!("{value:.2}")
}

impl WorkerReport {
    fn json(&self) -> Value {
        let measured = &self.measured;
        json!({
            "core": self.core,
            "core_ghz": self.core_ghz.map(round),
            "cycles_per_packet": round(quantile(&measured.cycles_per_packet, 0.5)),
            "rounds": measured.cycles_per_packet.len(),
            "new_session_cycles": round(quantile(&self.opened, 0.5)),
            "floor_cycles_per_line": round(self.floor.anywhere),
            "wall_s": round(measured.wall_s),
            "cpu_s": measured.ran_s.map(round),
            "waited_s": measured.waited_s.map(round),
        })
    }

    fn cycles_text(&self) -> String {
        format!("{:.2}", quantile(&self.measured.cycles_per_packet, 0.5))
    }

    fn time_text(&self) -> String {
        let measured = &self.measured;
        let seconds = |value: Option<f64>| value.map_or("?".into(), |s| format!("{s:.2}"));
        format!(
            "cycles a packet; ran {} of {:.2} s, waited {} s for the core",
            seconds(measured.ran_s),
            measured.wall_s,
            seconds(measured.waited_s)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let samples = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!([0.0, 0.5, 1.0].map(|part| quantile(&samples, part)), [1.0, 3.0, 5.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
