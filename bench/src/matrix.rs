//! Modes, families and schedulers beside each other.
//!
//! Each run is a process of its own, so that its memory is its own and no run finds what another
//! left; all cells run once before any runs again, so that what disturbs the machine hits all.

use crate::args::{Family, Matrix, Mode, Scheduler};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::report::quantile;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::{Command, Stdio};

/// What one cell is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    mode: Mode,
    family: Family,
    scheduler: Scheduler,
}

/// A cell and what its runs printed.
#[derive(Clone, Debug)]
struct Row {
    cell: Cell,
    runs: Vec<Value>,
}

/// All cells.
#[derive(Clone, Debug)]
pub struct Table {
    args: Matrix,
    machine: Machine,
    commit: Option<String>,
    rows: Vec<Row>,
}

/// Runs all cells.
pub fn run(args: &Matrix) -> Result<Table, BenchError> {
    let machine = Machine::look(args.core.unwrap_or(0));
    let mut rows: Vec<_> =
        cells(args).into_iter().map(|cell| Row { cell, runs: Vec::new() }).collect();
    let all = rows.len() * usize::from(args.repeats);
    for repeat in 0..usize::from(args.repeats) {
        let done = repeat * rows.len();
        for (at, row) in rows.iter_mut().enumerate() {
            eprint!("\r{}/{all} {:<24}", done + at + 1, row.cell.name());
            row.runs.push(measure(args, row.cell)?);
        }
    }
    eprintln!("\r{all}/{all} {:<24}", "done");
    Ok(Table { args: args.clone(), machine, commit: crate::machine::commit(), rows })
}

/// All combinations; source NAT has no scheduler, so there is one of it.
fn cells(args: &Matrix) -> Vec<Cell> {
    let mut cells = Vec::new();
    for mode in &args.modes {
        for family in &args.families {
            let schedulers = &args.schedulers[..];
            let schedulers = if *mode == Mode::Snat { &[Scheduler::Rr][..] } else { schedulers };
            let cell = |scheduler: &Scheduler| Cell {
                mode: *mode,
                family: *family,
                scheduler: *scheduler,
            };
            cells.extend(schedulers.iter().map(cell));
        }
    }
    cells
}

/// The word that an option takes.
fn word<V: ValueEnum>(value: &V) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// One run of a cell.
fn measure(args: &Matrix, cell: Cell) -> Result<Value, BenchError> {
    let program = std::env::current_exe()
        .map_err(|source| BenchError::Machine { what: "this program's path".into(), source })?;
    let mut command = Command::new(program);
    command.args(["throughput", "--json"]);
    command.args(["--mode", &word(&cell.mode), "--scheduler", &word(&cell.scheduler)]);
    command.args(["--family", &word(&cell.family), "--pages", &word(&args.pages)]);
    command.args(["--sessions", &args.sessions.to_string()]);
    command.args(["--seconds", &args.seconds.to_string()]);
    if let Some(core) = args.core {
        command.args(["--cores", &core.to_string()]);
    }
    if let Some(nice) = args.nice {
        command.arg(format!("--nice={nice}"));
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| BenchError::Machine { what: cell.name(), source })?;
    let read = serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success());
    read.ok_or_else(|| BenchError::Run { what: cell.name(), status: output.status })
}

impl Cell {
    fn name(&self) -> String {
        let scheduler = self.scheduler.name(self.mode);
        format!("{} IPv{} {scheduler}", self.mode.name(), self.family.version())
    }
}

impl Row {
    /// A figure of each run.
    fn figures(&self, name: &str) -> Vec<f64> {
        self.runs.iter().map(|run| run[name].as_f64().unwrap_or(f64::NAN)).collect()
    }

    fn median(&self, name: &str) -> f64 {
        quantile(&self.figures(name), 0.5)
    }

    fn least(&self, name: &str) -> f64 {
        quantile(&self.figures(name), 0.0)
    }

    fn most(&self, name: &str) -> f64 {
        quantile(&self.figures(name), 1.0)
    }

    /// What all runs agree on.
    fn text<'a>(&'a self, name: &str) -> &'a str {
        self.runs.first().and_then(|run| run[name].as_str()).unwrap_or("?")
    }

    fn json(&self) -> Value {
        json!({
            "mode": self.cell.mode.name(),
            "family": self.cell.family.version(),
            "scheduler": self.cell.scheduler.name(self.cell.mode),
            "directions": self.text("directions"),
            "mpps": self.median("mpps"),
            "cycles_per_packet": self.median("cycles_per_packet"),
            "cycles_per_packet_runs": self.figures("cycles_per_packet"),
            "cycles_per_packet_min": self.least("cycles_per_packet_min"),
            "new_session_cycles": self.median("new_session_cycles"),
            "bytes_per_session": self.median("bytes_per_session"),
            "floor_cycles_per_line": self.median("floor_cycles_per_line"),
            "packets": self.figures("packets").iter().sum::<f64>(),
            "packets_judged": self.figures("packets_judged").iter().sum::<f64>(),
            "table_pages": self.text("table_pages"),
        })
    }
}

impl Table {
    /// One object.
    pub fn json(&self) -> Value {
        json!({
            "sessions": self.args.sessions,
            "repeats": self.args.repeats,
            "seconds": self.args.seconds,
            "workers": 1,
            "tsc_ghz": self.rows.first().map(|row| row.median("tsc_ghz")),
            "commit": self.commit,
            "machine": self.machine.json(),
            "warnings": self.machine.warnings(1),
            "cells": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let args = &self.args;
        let tsc = self.rows.first().map_or(f64::NAN, |row| row.median("tsc_ghz"));
        let mut out = format!(
            "{} sessions, one worker, {} runs of {} s each, in turns; {}, TSC at {tsc:.2} GHz\n",
            args.sessions, args.repeats, args.seconds, self.machine.cpu_model
        );
        let head = ["mode", "", "sched", "Mpps", "cycles", "from", "to", "min", "new", "bytes"];
        let _ = writeln!(out, "{}", line(head.map(str::to_owned), "pages, directions"));
        for row in &self.rows {
            let two = |value: f64| format!("{value:.2}");
            let one = |value: f64| format!("{value:.1}");
            let cells = [
                row.cell.mode.name().to_owned(),
                format!("IPv{}", row.cell.family.version()),
                row.cell.scheduler.name(row.cell.mode).to_owned(),
                two(row.median("mpps")),
                one(row.median("cycles_per_packet")),
                one(row.least("cycles_per_packet")),
                one(row.most("cycles_per_packet")),
                one(row.least("cycles_per_packet_min")),
                format!("{:.0}", row.median("new_session_cycles")),
                one(row.median("bytes_per_session")),
            ];
            let remark = format!("{}, {}", row.text("table_pages"), row.text("directions"));
            let _ = writeln!(out, "{}", line(cells, &remark));
        }
        out.push_str(LEGEND);
        if let Some(commit) = &self.commit {
            let _ = writeln!(out, "commit {commit}");
        }
        for warning in self.machine.warnings(1) {
            let _ = writeln!(out, "warning: {warning}");
        }
        out
    }
}

const LEGEND: &str = "\
Mpps and cycles (TSC, a packet): the median of the runs' medians; from, to: of the runs' medians;
min: the least round of all; new: TSC cycles of a new session; bytes: resident, a session.
";

fn line(cells: [String; 10], remark: &str) -> String {
    let [mode, family, scheduler, numbers @ ..] = cells;
    let numbers: String = numbers.iter().map(|cell| format!(" {cell:>8}")).collect();
    format!("{mode:<5}{family:<5}{scheduler:<6}{numbers}  {remark}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn args(line: &str) -> Matrix {
        let words = ["sluice-bench", "matrix"].into_iter().chain(line.split_whitespace());
        let Command::Matrix(args) = Cli::parse_from(words).command else { panic!() };
        args
    }

    #[test]
    fn every_combination_is_there_once() {
        let cells = cells(&args(""));
        assert_eq!(cells.len(), 4 * 2 * 4 + 2, "snat has no scheduler");
        for (at, cell) in cells.iter().enumerate() {
            assert!(!cells[..at].contains(cell), "{}", cell.name());
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_runs() {
        let run = |cycles: f64| json!({"cycles_per_packet": cycles, "table_pages": "2 MiB"});
        let cell = Cell { mode: Mode::Dr, family: Family::V6, scheduler: Scheduler::Mh };
        let row = Row { cell, runs: [30.0, 10.0, 20.0].map(run).to_vec() };
        let figures = [row.least("cycles_per_packet"), row.median("cycles_per_packet")];
        assert_eq!((figures, row.most("cycles_per_packet")), ([10.0, 20.0], 30.0));
        let table = Table {
            args: args("--repeats 3"),
            machine: Machine::look(0),
            commit: None,
            rows: vec![row],
        };
        assert_eq!(table.json()["cells"][0]["cycles_per_packet"], 20.0);
        assert!(table.text().contains("dr   IPv6 mh"), "{}", table.text());
    }
}
