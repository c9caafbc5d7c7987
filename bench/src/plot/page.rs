//! The results as a page of tables, each under the command that gave it and beside its plots.

use super::results::{Results, number, text};
use crate::report::quantile;
use serde_json::Value;
use sluice_director::path::Stage;
use std::fmt::Write;

/// How a figure is shown.
#[derive(Clone, Copy)]
enum Show {
    /// As it is.
    Word,
    /// With so many digits behind the point, multiplied by this.
    Figure(f64, usize),
    /// The same for the least and the greatest of a list.
    Spread(f64, usize),
}

use Show::{Figure, Spread, Word};

type Column = (&'static str, &'static str, Show);

/// A part of the page: what one command gave.
struct Part {
    command: &'static str,
    title: &'static str,
    plots: &'static [&'static str],
    /// The list that has the rows; the result itself is the row where it is empty.
    rows: &'static str,
    columns: &'static [Column],
    /// What the columns do not say themselves.
    remark: &'static str,
    /// Where cycles go, stage by stage, and how many columns say of what.
    stages: (usize, &'static [Stages]),
}

/// Cycles by stage: of what, where a row has them, and where it has what all take together.
struct Stages {
    of: &'static str,
    by_stage: &'static str,
    whole: &'static str,
}

const PACKETS: Stages =
    Stages { of: "a packet", by_stage: "/stage_cycles_per_packet", whole: "/cycles_per_packet" };

const COUNT: Show = Figure(1.0, 0);
const CYCLES: Show = Figure(1.0, 1);
const CYCLES_RUNS: Column = ("runs", "cycles_per_packet_runs", Spread(1.0, 0));
const MIN: Column = ("min", "cycles_per_packet_min", CYCLES);
const MPPS: Column = ("Mpps", "mpps", CYCLES);
const FLOOR: Column = ("floor", "floor_cycles_per_line", COUNT);
const RATE: Show = Figure(1.0, 3);
const MICROSECONDS: Show = Figure(1e-3, 1);

const PARTS: [Part; 9] = [
    Part {
        command: "mix",
        title: "The mix that users have",
        plots: &[],
        rows: "rows",
        columns: &[
            ("workers", "workers", Word),
            ("misdirected %", "misdirected_share_of_all", Figure(100.0, 0)),
            ("sessions", "sessions", COUNT),
            MPPS,
            ("cycles", "cycles_per_packet", CYCLES),
            CYCLES_RUNS,
            MIN,
            FLOOR,
        ],
        remark: "Full NAT of IPv4, packets of 64 to 1518 bytes, TCP and UDP, a million sessions a \
            worker, 5 % of the packets open one. `misdirected` packets reach a worker that does \
            not own their session. Special paths are judged by this mix.",
        stages: (0, &[]),
    },
    Part {
        command: "memory",
        title: "Memory and time by sessions",
        plots: &["time-by-sessions", "time-by-stage", "memory-by-sessions"],
        rows: "rows",
        columns: &[
            ("family", "family", Word),
            ("sessions", "sessions", COUNT),
            ("bytes", "bytes_per_session", CYCLES),
            ("of them slab", "slab_bytes_per_session", COUNT),
            ("GiB", "resident_growth_bytes", Figure(1.0 / 1_073_741_824.0, 2)),
            ("open s", "open_s", Figure(1.0, 2)),
            ("new session", "new_session_cycles", COUNT),
            MPPS,
            ("cycles", "cycles_per_packet", CYCLES),
            CYCLES_RUNS,
            MIN,
            FLOOR,
        ],
        remark: "`bytes` are resident ones of a session, all in: the slot in the slab, the \
            index, and what tables have besides, which shows where there are few. Traffic \
            goes over all sessions.",
        stages: (2, &[PACKETS]),
    },
    Part {
        command: "matrix",
        title: "Modes",
        plots: &["modes"],
        rows: "cells",
        columns: &[
            ("mode", "mode", Word),
            ("family", "family", Word),
            ("scheduler", "scheduler", Word),
            ("workers", "workers", Word),
            MPPS,
            ("cycles", "cycles_per_packet", CYCLES),
            CYCLES_RUNS,
            MIN,
            ("new session", "new_session_cycles", COUNT),
            ("bytes", "bytes_per_session", COUNT),
            FLOOR,
        ],
        remark: "`dr` and `ipip` are inbound only. `snat` of IPv4 is in the extended table.",
        stages: (0, &[]),
    },
    Part {
        command: "cps",
        title: "Connections",
        plots: &["connections"],
        rows: "",
        columns: &[
            ("mode", "mode", Word),
            ("family", "family", Word),
            ("connections/s", "connections_per_s", COUNT),
            ("cycles each", "cycles_per_connection", COUNT),
            ("min", "cycles_per_connection_min", COUNT),
            ("packets each", "packets_per_connection", COUNT),
            ("generator", "generator_cycles_per_connection", COUNT),
            FLOOR,
        ],
        remark: "The whole life of a TCP connection, from its SYN to the deleted session, \
            beside 100,000 open ones. `generator` is apart.",
        stages: (0, &[]),
    },
    Part {
        command: "elephant",
        title: "Elephants",
        plots: &["elephant"],
        rows: "rows",
        columns: &[
            ("share", "share", Word),
            MPPS,
            ("cycles", "cycles_per_packet", CYCLES),
            CYCLES_RUNS,
            MIN,
            FLOOR,
        ],
        remark: "One flow has this share of all packets, all of them inbound, and one worker \
            has it all.",
        stages: (0, &[]),
    },
    Part {
        command: "scaling",
        title: "Workers",
        plots: &["scaling"],
        rows: "rows",
        columns: &[
            ("workers", "workers", Word),
            ("handed over %", "handed_over_share_of_all", Figure(100.0, 0)),
            MPPS,
            ("runs", "mpps_runs", Spread(1.0, 1)),
            ("to one", "ratio_to_one", Figure(1.0, 2)),
            ("least", "ratio_to_one_min", Figure(1.0, 2)),
            ("most", "ratio_to_one_max", Figure(1.0, 2)),
            ("cycles a hand-off", "hand_off_cycles", COUNT),
            ("least", "hand_off_cycles_min", COUNT),
            ("most", "hand_off_cycles_max", COUNT),
        ],
        remark: "Ratios are of the same turn, hand-offs of blocks of rounds of one run.",
        stages: (
            2,
            &[
                PACKETS,
                Stages {
                    of: "a hand-off",
                    by_stage: "/stage_cycles_per_hand_off",
                    whole: "/hand_off_cycles",
                },
            ],
        ),
    },
    Part {
        command: "latency",
        title: "Latency",
        plots: &["latency"],
        rows: "loads",
        columns: &[
            ("load %", "load", Figure(100.0, 0)),
            MPPS,
            ("burst", "burst_fill", CYCLES),
            ("p50 µs", "p50_ns", MICROSECONDS),
            ("p90", "p90_ns", MICROSECONDS),
            ("p99", "p99_ns", MICROSECONDS),
            ("p99.9", "p99_9_ns", MICROSECONDS),
            ("max", "max_ns", MICROSECONDS),
            ("quiet p50", "quiet_p50_ns", MICROSECONDS),
            ("quiet p90", "quiet_p90_ns", MICROSECONDS),
            ("quiet p99", "quiet_p99_ns", MICROSECONDS),
        ],
        remark: "From the moment a frame was due (open loop) to its departure. `quiet` are \
            rounds in which the kernel ran nothing else on the core.",
        stages: (0, &[]),
    },
    Part {
        command: "churn",
        title: "Sessions that open and end",
        plots: &["churn"],
        rows: "",
        columns: &[
            ("sessions", "sessions", COUNT),
            ("came a second", "came_per_s_uninterrupted", COUNT),
            ("cycles each", "cycles_per_session", COUNT),
            ("lost to established %", "established_loss", Figure(100.0, 1)),
            FLOOR,
        ],
        remark: "What established traffic loses while so many sessions a second open and end.",
        stages: (
            1,
            &[
                Stages {
                    of: "a packet, alone",
                    by_stage: "/without/stage_cycles_per_packet",
                    whole: "/without/cycles_per_established_packet",
                },
                Stages {
                    of: "a packet, with new ones",
                    by_stage: "/with/stage_cycles_per_packet",
                    whole: "/with/cycles_per_established_packet",
                },
                Stages {
                    of: "a session",
                    by_stage: "/stage_cycles_per_session",
                    whole: "/cycles_per_session",
                },
            ],
        ),
    },
    Part {
        command: "rfc2544",
        title: "A whole director: RFC 2544",
        plots: &[],
        rows: "rows",
        columns: &[
            ("size", "size", Word),
            ("rate", "rate", Word),
            ("Mpps", "mpps", RATE),
            ("Gbit/s layer 2", "gbit_per_s_layer_2", RATE),
            ("layer 1", "gbit_per_s_layer_1", RATE),
            ("lower bound", "lower_mpps", RATE),
            ("upper bound", "upper_mpps", RATE),
            ("remark", "remark", Word),
        ],
        remark: "`sluiced` as it is, one worker between two memif ports; generator and receiver \
            take turns on another core. MAX is the most that was forwarded, PDR the rate with a \
            loss of 0.001 % at most, NDR without any, by the search of RFC 9971. Layer 1 has \
            preamble and gap too, which memif has not.",
        stages: (0, &[]),
    },
];

/// The page; `plots` is where the plots are, seen from it.
pub fn page(results: &Results, plots: &str) -> String {
    let mut page = "# Figures of the benchmark suite\n\n\
        Written by `sluice-bench plot` from `bench/results`; `make bench-all` measures afresh. \
        What is measured, and how, is in [benchmarks.md](benchmarks.md). Medians; `runs` are the \
        least and the most of them, `min` the least disturbed round, `floor` what a random cache \
        line costs in the same minute. Cycles are ticks of the time stamp counter.\n"
        .to_owned();
    for part in &PARTS {
        let found = results.of(part.command);
        if !found.is_empty() {
            page += &part.text(&found, plots);
        }
    }
    page
}

impl Part {
    fn text(&self, found: &[&Value], plots: &str) -> String {
        let mut out = format!("\n## {}\n\n", self.title);
        for plot in self.plots {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "![{}]({plots}/{plot}.svg)\n", self.title);
        }
        for line in conditions(found) {
            let _ = writeln!(out, "- {line}");
        }
        let titles: Vec<_> = self.columns.iter().map(|(title, ..)| *title).collect();
        let _ = writeln!(out, "\n| {} |", titles.join(" | "));
        let ends = self.columns.iter().map(|(_, _, show)| match show {
            Word => "---",
            Figure(..) | Spread(..) => "---:",
        });
        let _ = writeln!(out, "| {} |", ends.collect::<Vec<_>>().join(" | "));
        for result in found {
            for row in self.rows(result) {
                let cells = self.columns.iter().map(|(_, name, show)| shown(row, name, *show));
                let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
            }
        }
        let _ = writeln!(out, "\n{}", self.remark);
        out + &self.stages(found)
    }

    /// The rows of a result.
    fn rows<'a>(&self, result: &'a Value) -> &'a [Value] {
        match self.rows {
            "" => std::slice::from_ref(result),
            list => result[list].as_array().map_or(&[], Vec::as_slice),
        }
    }

    /// Where cycles go, without stages that none of the rows has anything of.
    fn stages(&self, found: &[&Value]) -> String {
        let (labels, tables) = self.stages;
        let mut rows = Vec::new();
        for (result, table) in found.iter().flat_map(|one| tables.iter().map(move |t| (one, t))) {
            let of = self.rows(result).iter().map(|row| (*result, row, table));
            rows.extend(of.filter(|(_, row, table)| {
                row.pointer(table.by_stage).is_some_and(Value::is_object)
            }));
        }
        let figure = |row: &Value, table: &Stages, stage: Stage| {
            row.pointer(table.by_stage).and_then(|cycles| cycles[stage.name()].as_f64())
        };
        let has = |stage: &Stage| {
            rows.iter().any(|(_, row, table)| {
                figure(row, table, *stage).is_some_and(|cycles| cycles != 0.0)
            })
        };
        let stages: Vec<_> = Stage::ALL.into_iter().filter(has).collect();
        if stages.is_empty() {
            return String::new();
        }
        let labels = &self.columns[..labels];
        let names = labels.iter().map(|(title, ..)| *title).chain(["cycles of"]);
        let names = names.chain(stages.iter().map(|stage| stage.name()));
        let titles: Vec<_> = names.chain(["sum", "whole turns", "floor"]).collect();
        let mut out = format!("\n| {} |\n", titles.join(" | "));
        let ends = "---: | ".repeat(stages.len() + 2);
        let _ = writeln!(out, "| {}--- | {ends}---: |", "--- | ".repeat(labels.len()));
        for (result, row, table) in rows {
            let cells = labels.iter().map(|(_, name, show)| shown(row, name, *show));
            let cells = cells.chain([table.of.to_owned()]);
            let cycles: Vec<_> =
                stages.iter().map(|stage| figure(row, table, *stage).unwrap_or(0.0)).collect();
            let whole = row.pointer(table.whole).and_then(Value::as_f64).unwrap_or(f64::NAN);
            let floor = [row, result].map(|of| of["floor_cycles_per_line"].as_f64());
            let floor = floor.into_iter().flatten().next().unwrap_or(f64::NAN);
            let figures = cycles.iter().copied().chain([cycles.iter().sum(), whole, floor]);
            let cells = cells.chain(figures.map(|cycles| format!("{cycles:.1}")));
            let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
        }
        out + "\nStages are means of the bursts and sweeps that were timed, one in 32; reading the \
            clock is in them, and their sum above what whole turns take.\n"
    }
}

/// Where, how and beside what results were measured: a line for each command, and their warnings.
fn conditions(found: &[&Value]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for result in found {
        let machine = &result["machine"];
        lines.push(format!(
            "`{}`: commit {}, {}, TSC {:.2} GHz, load average before {}",
            text(result, "command_line"),
            text(result, "commit"),
            text(machine, "cpu_model"),
            number(result, "tsc_ghz"),
            shown(machine, "load_average", Figure(1.0, 1)),
        ));
    }
    lines
}

fn shown(row: &Value, name: &str, show: Show) -> String {
    let of = &row[name];
    match show {
        Word => of.as_str().map_or_else(|| of.to_string(), str::to_owned),
        Figure(factor, digits) => of.as_f64().map_or_else(
            || "–".to_owned(),
            |figure| thousands(&format!("{:.digits$}", figure * factor)),
        ),
        Spread(factor, digits) => {
            let runs = of.as_array().into_iter().flatten();
            let runs: Vec<f64> = runs.filter_map(Value::as_f64).collect();
            if runs.is_empty() {
                return "–".to_owned();
            }
            let end = |part| thousands(&format!("{:.digits$}", quantile(&runs, part) * factor));
            format!("{}–{}", end(0.0), end(1.0))
        }
    }
}

/// With a comma between thousands.
fn thousands(figure: &str) -> String {
    let (whole, rest) = figure.split_at(figure.find('.').unwrap_or(figure.len()));
    let digits = whole.trim_start_matches('-').len();
    let mut out = String::new();
    for (at, character) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if at > whole.len() - digits && left.is_multiple_of(3) {
            out.push(',');
        }
        out.push(character);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_shown_as_people_read_them() {
        let row = json!({"n": 1_234_567.891, "w": "rr", "runs": [3.0, 1.0, 2.5], "none": null});
        assert_eq!(shown(&row, "n", Figure(1.0, 1)), "1,234,567.9");
        assert_eq!(shown(&row, "n", Figure(-1e-4, 0)), "-123");
        assert_eq!(shown(&row, "w", Word), "rr");
        assert_eq!(shown(&row, "runs", Spread(1000.0, 0)), "1,000–3,000");
        assert_eq!(shown(&row, "none", Figure(1.0, 0)), "–");
        assert_eq!(shown(&row, "missing", Spread(1.0, 0)), "–");
    }

    #[test]
    fn a_search_has_a_row_for_each_rate() {
        let result = json!({
            "command": "rfc2544", "command_line": "sluice-bench rfc2544", "commit": "abc",
            "tsc_ghz": 2.6, "machine": {"cpu_model": "a processor", "load_average": 0.25},
            "rows": [{"size": "imix", "rate": "MAX", "mpps": 4.5, "gbit_per_s_layer_2": 13.02,
                "gbit_per_s_layer_1": 13.74, "lower_mpps": null, "remark": "4.4 at most"}],
        });
        let page = page(&Results(vec![result]), "plots");
        let row = "| imix | MAX | 4.500 | 13.020 | 13.740 | – | – | 4.4 at most |\n";
        assert!(page.contains(row) && !page.contains("![A whole"), "{page}");
    }

    #[test]
    fn a_page_says_where_cycles_go() {
        let result = json!({
            "command": "churn", "command_line": "sluice-bench churn", "commit": "abc",
            "tsc_ghz": 2.6, "machine": {"cpu_model": "a processor", "load_average": 0.25},
            "sessions": 1_000_000, "floor_cycles_per_line": 8.0,
            "without": {"cycles_per_established_packet": 50.0,
                "stage_cycles_per_packet": {"parse": 11.0, "track": 25.0, "open": 0.0}},
            "cycles_per_session": 400.0,
            "stage_cycles_per_session": {"track": 100.0, "open": 210.5},
        });
        let page = page(&Results(vec![result]), "plots");
        for row in [
            "| sessions | cycles of | parse | track | open | sum | whole turns | floor |\n",
            "| 1,000,000 | a packet, alone | 11.0 | 25.0 | 0.0 | 36.0 | 50.0 | 8.0 |\n",
            "| 1,000,000 | a session | 0.0 | 100.0 | 210.5 | 310.5 | 400.0 | 8.0 |\n",
        ] {
            assert!(page.contains(row), "no {row} in\n{page}");
        }
    }

    #[test]
    fn a_page_has_what_there_are_results_for() {
        let result = json!({
            "command": "elephant", "command_line": "sluice-bench elephant", "commit": "abc",
            "tsc_ghz": 2.6, "machine": {"cpu_model": "a processor", "load_average": 0.25},
            "rows": [{"share": 0.5, "mpps": 28.34, "cycles_per_packet": 91.6,
                "cycles_per_packet_runs": [91.0, 95.0], "cycles_per_packet_min": 84.2,
                "floor_cycles_per_line": 30.2}],
        });
        let page = page(&Results(vec![result]), "plots");
        assert!(page.contains("## Elephants\n\n![Elephants](plots/elephant.svg)\n"), "{page}");
        assert!(page.contains("| 0.5 | 28.3 | 91.6 | 91–95 | 84.2 | 30 |\n"), "{page}");
        assert!(page.contains("commit abc, a processor, TSC 2.60 GHz, load average before 0.2"));
        assert!(!page.contains("## Modes"), "{page}");
    }
}
