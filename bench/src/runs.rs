//! Runs of `throughput` in processes of their own, so that the memory of each is its own and no
//! run finds what another left; all settings run once before any runs again, so that what disturbs
//! the machine hits all.

use crate::clock;
use crate::error::BenchError;
use crate::machine::{self, Machine};
use crate::report::{by_stage, quantile, round};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sluice_director::path::Stage;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A setting that is measured.
pub trait Cell {
    /// For people.
    fn name(&self) -> String;
    /// What `throughput` is to be told.
    fn words(&self) -> Vec<String>;
}

/// A setting and what its runs printed.
#[derive(Clone, Debug)]
pub struct Row<C> {
    pub cell: C,
    pub runs: Vec<Value>,
}

/// Runs every setting `repeats` times, in turns. `common` is told to all.
pub fn in_turns<C: Cell>(
    cells: Vec<C>,
    repeats: u16,
    common: &[String],
) -> Result<Vec<Row<C>>, BenchError> {
    let mut rows: Vec<_> = cells.into_iter().map(|cell| Row { cell, runs: Vec::new() }).collect();
    let bar = bar(rows.len() as u64 * u64::from(repeats), "runs");
    for _ in 0..repeats {
        for row in &mut rows {
            bar.set_message(row.cell.name());
            row.runs.push(throughput(&row.cell.name(), &[&row.cell.words(), common].concat())?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// A bar on the terminal; where there is none, nothing is drawn.
pub fn bar(length: u64, unit: &str) -> ProgressBar {
    let template = format!("{{elapsed:>4}} {{bar:32}} {{pos}}/{{len}} {unit}  {{msg}}");
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// One run.
fn throughput(name: &str, words: &[String]) -> Result<Value, BenchError> {
    let program = std::env::current_exe()
        .map_err(|source| BenchError::Machine { what: "this program's path".into(), source })?;
    let output = Command::new(program)
        .args(["throughput", "--json", "--no-bar"])
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| BenchError::Machine { what: name.into(), source })?;
    let read = serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success());
    read.ok_or_else(|| BenchError::Run { what: name.into(), status: output.status })
}

impl<C> Row<C> {
    /// A figure of each run.
    pub fn figures(&self, name: &str) -> Vec<f64> {
        self.runs.iter().map(|run| run[name].as_f64().unwrap_or(f64::NAN)).collect()
    }

    /// Of an even number of runs the middle of the two in the middle.
    pub fn median(&self, name: &str) -> f64 {
        let figures = self.figures(name);
        let turned: Vec<_> = figures.iter().map(|figure| -figure).collect();
        (quantile(&figures, 0.5) - quantile(&turned, 0.5)) / 2.0
    }

    pub fn least(&self, name: &str) -> f64 {
        quantile(&self.figures(name), 0.0)
    }

    pub fn most(&self, name: &str) -> f64 {
        quantile(&self.figures(name), 1.0)
    }

    /// The sum over all runs.
    pub fn sum(&self, name: &str) -> f64 {
        self.figures(name).iter().sum()
    }

    /// What all runs agree on.
    pub fn text<'a>(&'a self, name: &str) -> &'a str {
        self.runs.first().and_then(|run| run[name].as_str()).unwrap_or("?")
    }

    /// The median of a figure of each stage, which `of` takes from a run.
    pub fn stages(&self, of: impl Fn(&Value, Stage) -> Option<f64>) -> Value {
        by_stage(|stage| {
            let figures = self.runs.iter().filter_map(|run| of(run, stage));
            quantile(&figures.collect::<Vec<_>>(), 0.5)
        })
    }

    /// What every setting says of its runs.
    pub fn json(&self) -> Value {
        json!({
            "mpps": self.median("mpps"),
            "mpps_runs": self.figures("mpps"),
            "cycles_per_packet": self.median("cycles_per_packet"),
            "cycles_per_packet_runs": self.figures("cycles_per_packet"),
            "cycles_per_packet_min": self.least("cycles_per_packet_min"),
            "stage_cycles_per_packet":
                self.stages(|run, stage| run["stage_cycles_per_packet"][stage.name()].as_f64()),
            "ns_per_packet": self.median("ns_per_packet"),
            "directions": self.text("directions"),
            "new_session_cycles": self.median("new_session_cycles"),
            "bytes_per_session": self.median("bytes_per_session"),
            "floor_cycles_per_line": self.median("floor_cycles_per_line"),
            "floor_cycles_per_line_runs": self.figures("floor_cycles_per_line"),
            "floor_cycles_per_line_in_pairs": self.median("floor_cycles_per_line_in_pairs"),
            "table_pages": self.text("table_pages"),
            "packets": self.sum("packets"),
            "packets_judged": self.sum("packets_judged"),
        })
    }
}

/// A table of cycles by stage with their sum, without stages that nothing was seen of.
pub fn stage_table(title: &str, rows: &[(String, Value)]) -> String {
    let figure = |row: &Value, stage: Stage| row[stage.name()].as_f64().unwrap_or(0.0);
    let any = |stage: &Stage| rows.iter().any(|(_, row)| figure(row, *stage) != 0.0);
    let stages: Vec<_> = Stage::ALL.into_iter().filter(any).collect();
    if stages.is_empty() {
        return String::new();
    }
    let names = stages.iter().map(|stage| stage.name());
    let head: Vec<_> = [title].into_iter().chain(names).chain(["sum"]).collect();
    let line = |(name, row): &(String, Value)| {
        let mut figures: Vec<_> = stages.iter().map(|stage| figure(row, *stage)).collect();
        figures.push(figures.iter().sum());
        let cells = figures.iter().map(|figure| format!("{figure:.1}"));
        [name.clone()].into_iter().chain(cells).collect::<Vec<_>>()
    };
    table(&head, &rows.iter().map(line).collect::<Vec<_>>())
}

/// What rows of runs say of where and how they were measured.
pub fn context<C>(command: &str, machine: &Machine, workers: usize, rows: &[Row<C>]) -> Value {
    let first = rows.first();
    merge([
        about(command, machine, workers),
        json!({
            "tsc_ghz": first.map(|row| row.median("tsc_ghz")),
            "core_ghz": first.map(|row| round(row.median("core_ghz"))),
            "burst": first.map(|row| row.median("burst") as u64),
        }),
    ])
}

/// What every result says.
pub fn about(command: &str, machine: &Machine, workers: usize) -> Value {
    let words: Vec<_> = std::env::args().skip(1).collect();
    json!({
        "command": command,
        "command_line": format!("sluice-bench {}", words.join(" ")),
        "what": "the worker's loop over queues in memory; no NIC, no driver",
        "clock": clock::NAME,
        "commit": machine::commit(),
        "machine": machine.json(),
        "warnings": machine.warnings(workers),
    })
}

/// One object of the fields of several.
pub fn merge<const N: usize>(parts: [Value; N]) -> Value {
    let mut all = serde_json::Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

/// Lines that say where it was measured, at the end of a table.
pub fn footer(machine: &Machine, workers: usize) -> String {
    let commit = machine::commit().map_or_else(String::new, |commit| format!("commit {commit}\n"));
    let warnings = machine.warnings(workers).into_iter().map(|text| format!("warning: {text}\n"));
    commit + &warnings.collect::<String>()
}

/// A table for people: each column as wide as its widest cell, numbers to the right.
pub fn table(head: &[&str], lines: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let cells = lines.iter().filter_map(|line| line.get(at));
        cells.map(|cell| cell.chars().count()).chain([head[at].len()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let all = std::iter::once(&head).chain(lines);
    all.map(|line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ") + "\n"
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_of_its_runs() {
        let run = |cycles: f64| json!({"cycles_per_packet": cycles, "table_pages": "2 MiB"});
        let row = Row { cell: (), runs: [30.0, 10.0, 20.0].map(run).to_vec() };
        let figures = [row.least("cycles_per_packet"), row.median("cycles_per_packet")];
        assert_eq!((figures, row.most("cycles_per_packet")), ([10.0, 20.0], 30.0));
        let even = Row { cell: (), runs: [10.0, 40.0, 30.0, 20.0].map(run).to_vec() };
        assert_eq!(even.median("cycles_per_packet"), 25.0);
        assert_eq!((row.text("table_pages"), row.sum("cycles_per_packet")), ("2 MiB", 60.0));
        assert_eq!(row.json()["cycles_per_packet_runs"], json!([30.0, 10.0, 20.0]));
    }

    #[test]
    fn what_comes_later_counts() {
        let merged = merge([json!({"a": 1, "b": 2}), json!({"b": 3}), Value::Null]);
        assert_eq!(merged, json!({"a": 1, "b": 3}));
    }

    #[test]
    fn columns_are_as_wide_as_they_must() {
        let lines = [vec!["1".to_owned(), "twenty".to_owned()]];
        assert_eq!(table(&["a b", "c"], &lines), "a b       c\n  1  twenty\n");
    }
}
