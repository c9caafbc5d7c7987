//! The results as a page of tables, each under the command that gave it and beside its plots.

use super::results::{Results, number, text};
use crate::report::quantile;
use serde_json::Value;
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
}

const COUNT: Show = Figure(1.0, 0);
const CYCLES: Show = Figure(1.0, 1);
const CYCLES_RUNS: Column = ("runs", "cycles_per_packet_runs", Spread(1.0, 0));
const MIN: Column = ("min", "cycles_per_packet_min", CYCLES);
const MPPS: Column = ("Mpps", "mpps", CYCLES);
const FLOOR: Column = ("floor", "floor_cycles_per_line", COUNT);
const RATE: Show = Figure(1.0, 3);
const MICROSECONDS: Show = Figure(1e-3, 1);

const PARTS: [Part; 8] = [
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
        remark: "`dr` and `ipip` are inbound only. `snat` of IPv4 lives in the wide table.",
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
    },
    Part {
        command: "churn",
        title: "Sessions that come and go",
        plots: &["churn"],
        rows: "",
        columns: &[
            ("sessions", "sessions", COUNT),
            ("came a second", "came_per_s_median_round", COUNT),
            ("cycles each", "cycles_per_session", COUNT),
            ("lost to established %", "established_loss", Figure(100.0, 1)),
            FLOOR,
        ],
        remark: "What established traffic loses while so many sessions a second come and go.",
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
            let rows = match self.rows {
                "" => std::slice::from_ref(*result),
                list => result[list].as_array().map_or(&[][..], Vec::as_slice),
            };
            for row in rows {
                let cells = self.columns.iter().map(|(_, name, show)| shown(row, name, *show));
                let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
            }
        }
        let _ = writeln!(out, "\n{}", self.remark);
        out
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
