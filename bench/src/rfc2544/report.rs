//! What the search found: a row for each size and rate, and everything in JSON.

use super::Mix;
use super::search::{Found, Search};
use super::trial::Done;
use crate::args::{Directions, Rfc2544, word};
use crate::machine::Machine;
use crate::report::round;
use crate::runs;
use serde_json::{Value, json};
use sluice_dpdk::PortStats;

/// What goes over a wire besides each frame: preamble, start delimiter and the least gap.
const LAYER_1: f64 = 20.0;

/// What was found of one size.
#[derive(Clone, Debug)]
pub struct Size {
    pub mix: Mix,
    pub search: Search,
    /// In their order; of one that was asked for again, both.
    pub trials: Vec<Done>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    pub args: Rfc2544,
    pub machine: Machine,
    pub tsc_hz: f64,
    pub cores: Vec<usize>,
    /// Of each port.
    pub stats: Vec<PortStats>,
    pub sizes: Vec<Size>,
}

/// One rate of one size.
struct Row<'a> {
    mix: &'a Mix,
    name: &'static str,
    /// Packets a second; `None` where not even the lowest load fulfils the goal.
    rate: Option<f64>,
    found: Option<Found>,
    remark: String,
}

impl Row<'_> {
    fn mpps(&self) -> Option<f64> {
        self.rate.map(|rate| rate / 1e6)
    }

    /// Gbit/s, with so many bytes more a frame.
    fn gbit(&self, more: f64) -> Option<f64> {
        self.rate.map(|rate| rate * (self.mix.mean() + more) * 8.0 / 1e9)
    }

    fn bound(&self, of: impl Fn(&Found) -> Option<u64>) -> Option<f64> {
        self.found.as_ref().and_then(of).map(|pps| pps as f64 / 1e6)
    }

    fn json(&self) -> Value {
        let figure = |value: Option<f64>| value.map(fine);
        json!({
            "size": self.mix.name,
            "mean_frame_bytes": round(self.mix.mean()),
            "rate": self.name,
            "mpps": figure(self.mpps()),
            "gbit_per_s_layer_2": figure(self.gbit(0.0)),
            "gbit_per_s_layer_1": figure(self.gbit(LAYER_1)),
            "loss_ratio": self.found.as_ref().map(|found| found.goal.loss_ratio),
            "lower_mpps": figure(self.bound(|found| found.lower_pps)),
            "upper_mpps": figure(self.bound(|found| found.upper_pps)),
            "finished": self.found.as_ref().is_none_or(|found| found.finished),
            "remark": self.remark,
        })
    }

    fn cells(&self) -> Vec<String> {
        let figure = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
        vec![
            self.mix.name.clone(),
            self.name.to_owned(),
            figure(self.mpps()),
            figure(self.gbit(0.0)),
            figure(self.gbit(LAYER_1)),
            figure(self.bound(|found| found.lower_pps)),
            figure(self.bound(|found| found.upper_pps)),
            self.remark.clone(),
        ]
    }
}

/// Six digits behind the point: of millions a second, single packets.
fn fine(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl Size {
    fn rows(&self) -> Vec<Row<'_>> {
        let offered = self.search.forwarded_at_most_pps() / 1e6;
        let most = Row {
            mix: &self.mix,
            name: "MAX",
            rate: Some(self.search.most_forwarded_pps()),
            found: None,
            remark: format!("{offered:.3} at the highest load"),
        };
        let found = self.search.found().into_iter().map(|found| Row {
            mix: &self.mix,
            name: found.goal.name,
            rate: found.throughput_pps,
            remark: self.remark(&found),
            found: Some(found),
        });
        std::iter::once(most).chain(found).collect()
    }

    /// What a reader must know of a result.
    fn remark(&self, found: &Found) -> String {
        let limited = match (found.upper_pps, self.search.generator_limit_pps()) {
            (None, Some(_)) => "the generator's limit: the director may do more",
            (None, None) if found.lower_pps.is_some() => "the highest load: it may do more",
            _ if found.lower_pps.is_none() && found.finished => "not even the lowest load",
            _ => "",
        };
        match found.finished {
            true => limited.to_owned(),
            false => format!("not finished after {} trials", self.search.used()),
        }
    }

    fn json(&self) -> Value {
        json!({
            "size": self.mix.name,
            "frame_bytes": self.mix.sizes(),
            "generator_limit_pps": self.search.generator_limit_pps(),
            "most_forwarded_pps": self.search.most_forwarded_pps().round(),
            "forwarded_at_highest_load_pps": self.search.forwarded_at_most_pps().round(),
            "trials": self.trials.iter().map(trial_json).collect::<Vec<_>>(),
        })
    }
}

fn trial_json(done: &Done) -> Value {
    let outcome = done.outcome();
    let count = &done.count;
    json!({
        "load_pps": done.ask.load_pps,
        "duration_s": fine(done.ask.duration_s),
        "sent": done.sent,
        "received": outcome.received,
        "received_inbound": count.received[0],
        "received_outbound": count.received[1],
        "lost": done.sent.saturating_sub(outcome.received),
        "refused_by_full_ring": done.refused,
        "loss_ratio": outcome.loss_ratio(),
        "offered_pps": outcome.offered_pps().round(),
        "effective_s": fine(done.effective_s),
        "generator_fell_short": done.fell_short,
        "generator_stood_still_s": fine(done.stood_still_s),
        "generator_longest_gap_s": fine(done.longest_gap_s),
        "late": count.late,
        "duplicates": count.again,
        "too_late_to_tell": count.forgotten,
        "foreign": count.foreign,
        "judged": count.judged,
    })
}

impl Report {
    fn warnings(&self) -> Vec<String> {
        // Loops of the generator leave no core to others.
        let mut warnings = self.machine.warnings(self.cores.len());
        let all: Vec<_> = self.sizes.iter().flat_map(|size| &size.trials).collect();
        let still = all.iter().filter(|done| done.stood_still_s > 0.0).count();
        if still > 0 {
            let hint = if self.args.nice.is_none() { ": --nice=-20 helps" } else { "" };
            let trials = all.len();
            warnings.push(format!(
                "in {still} of {trials} trials something else ran on the generator's core{hint}"
            ));
        }
        let duplicates: u64 = all.iter().map(|done| done.count.again).sum();
        if duplicates > 0 {
            warnings.push(format!("{duplicates} frames came twice; they count once"));
        }
        warnings
    }

    fn ports_json(&self) -> Vec<Value> {
        let both = self.args.ports.iter().zip(&self.stats);
        both.map(|(device, stats)| {
            json!({
                "device": device.to_string(),
                "tx_frames": stats.tx_frames,
                "rx_frames": stats.rx_frames,
            })
        })
        .collect()
    }

    /// One object.
    pub fn json(&self) -> Value {
        let args = &self.args;
        let rows = self.sizes.iter().flat_map(Size::rows).map(|row| row.json());
        runs::merge([
            runs::about("rfc2544", &self.machine, self.cores.len()),
            json!({
                "what": args.about,
                "warnings": self.warnings(),
                "tsc_ghz": round(self.tsc_hz / 1e9),
                "ports": self.ports_json(),
                "generator_cores": self.cores,
                "directions": word(&args.directions),
                "sessions": args.sessions,
                "duration_s": args.duration,
                "duration_sum_s": args.duration_sum,
                "exceed_ratio": args.exceed_ratio,
                "width": args.width,
                "drain_s": args.drain,
                "seed": args.seed,
                "rows": rows.collect::<Vec<_>>(),
                "sizes": self.sizes.iter().map(Size::json).collect::<Vec<_>>(),
            }),
        ])
    }

    /// A table to read.
    pub fn text(&self) -> String {
        let args = &self.args;
        let head = ["size", "rate", "Mpps", "Gbit/s L2", "L1", "lower", "upper Mpps", "remark"];
        let rows = self.sizes.iter().flat_map(Size::rows);
        let lines: Vec<_> = rows.map(|row| row.cells()).collect();
        let directions = match args.directions {
            Directions::Inbound => "clients to real servers",
            Directions::Both => "both directions, rates are of both together",
        };
        let trials: usize = self.sizes.iter().map(|size| size.trials.len()).sum();
        let all = self.sizes.iter().flat_map(|size| &size.trials);
        let judged: u64 = all.map(|done| done.count.judged).sum();
        format!(
            "{}\n{}, {directions}, {} sessions; {trials} trials of up to {} s, {judged} frames \
             read and found right\nL2: with the frame check sequence; L1: with preamble and gap \
             too. PDR: a loss of {} %\n\n{}{}",
            args.about,
            self.machine.cpu_model,
            args.sessions,
            args.duration,
            args.pdr_loss * 100.0,
            runs::table(&head, &lines),
            self.footer()
        )
    }

    fn footer(&self) -> String {
        let commit = crate::machine::commit();
        let commit = commit.map_or_else(String::new, |commit| format!("commit {commit}\n"));
        let warnings = self.warnings().into_iter().map(|text| format!("warning: {text}\n"));
        commit + &warnings.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rfc2544::Goal;
    use crate::rfc2544::search::{Limits, Outcome};

    /// A search of a device with a capacity, for one goal.
    fn size(capacity: f64, fell_short: bool) -> Size {
        let goal = Goal {
            name: "NDR",
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            duration_s: 1.0,
            sum_s: 1.0,
            width: 0.01,
        };
        let limits =
            Limits { least_pps: 1000, most_pps: 4_000_000, trials: 90, phases: 1, first_s: 1.0 };
        let mut search = Search::new(vec![goal], limits);
        while let Some(ask) = search.next() {
            let most = if fell_short { capacity as u64 } else { u64::MAX };
            let sent = ask.load_pps.min(most);
            let received = sent.min(capacity as u64);
            let fell_short = sent < ask.load_pps;
            search.report(Outcome { sent, received, effective_s: 1.0, fell_short });
        }
        Size { mix: Mix::parse("1518").unwrap_or_else(|_| unreachable!()), search, trials: vec![] }
    }

    #[test]
    fn rates_are_told_by_layer() {
        let size = size(1e6, false);
        let [most, none] = &size.rows()[..] else { panic!() };
        let json = most.json();
        assert_eq!((&json["rate"], &json["mpps"]), (&json!("MAX"), &json!(1.0)));
        assert_eq!(json["gbit_per_s_layer_2"], json!(12.144));
        assert_eq!(json["gbit_per_s_layer_1"], json!(12.304));
        let (lower, upper) = (none.json()["lower_mpps"].clone(), none.json()["upper_mpps"].clone());
        assert!((0.98..=1.0).contains(&lower.as_f64().unwrap()), "{lower}");
        assert!((1.0..=1.01).contains(&upper.as_f64().unwrap()), "{upper}");
        assert_eq!(none.remark, "");
    }

    #[test]
    fn what_limits_a_result_is_said() {
        let remark = |size: &Size| size.rows()[1].remark.clone();
        assert!(remark(&size(1e6, true)).contains("generator's limit"));
        assert!(remark(&size(9e6, false)).contains("highest load"));
        let nothing = size(10.0, false);
        assert!(remark(&nothing).contains("not even the lowest"));
        assert_eq!(nothing.rows()[1].cells()[2], "-");
    }
}
