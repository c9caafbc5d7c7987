//! Modes, families, schedulers and numbers of workers beside each other.

use crate::args::{Family, Matrix, Mode, word};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::runs::{self, Row};
use serde_json::{Value, json};
use sluice_director::spec::Scheduling;
use std::fmt::Write;

/// What one cell is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    mode: Mode,
    family: Family,
    scheduler: Scheduling,
    workers: u16,
    /// Of all workers.
    sessions: u64,
}

/// All cells.
#[derive(Clone, Debug)]
pub struct Table {
    args: Matrix,
    machine: Machine,
    rows: Vec<Row<Cell>>,
}

/// Runs all cells.
pub fn run(args: &Matrix) -> Result<Table, BenchError> {
    let machine = Machine::look(args.core.unwrap_or(0));
    let mut common =
        vec!["--pages".into(), word(&args.pages), format!("--seconds={}", args.seconds)];
    if args.core.is_some() && args.workers.iter().any(|workers| *workers > 1) {
        return Err(BenchError::Usage("--core is for one worker".into()));
    }
    common.extend(args.core.map(|core| format!("--cores={core}")));
    common.extend(args.nice.map(|nice| format!("--nice={nice}")));
    let rows = runs::in_turns(cells(args), args.repeats, &common)?;
    Ok(Table { args: args.clone(), machine, rows })
}

/// All combinations; source NAT has no scheduler, so there is one of it.
fn cells(args: &Matrix) -> Vec<Cell> {
    let mut cells = Vec::new();
    for mode in &args.modes {
        for family in &args.families {
            let schedulers = &args.schedulers[..];
            let schedulers = if *mode == Mode::Snat { &[Scheduling::Rr][..] } else { schedulers };
            for scheduler in schedulers {
                let cell = |workers: &u16| Cell {
                    mode: *mode,
                    family: *family,
                    scheduler: *scheduler,
                    workers: *workers,
                    sessions: args.sessions * u64::from(*workers),
                };
                cells.extend(args.workers.iter().map(cell));
            }
        }
    }
    cells
}

impl runs::Cell for Cell {
    fn name(&self) -> String {
        let scheduler = self.mode.scheduled_by(self.scheduler);
        let (mode, version) = (self.mode.name(), self.family.version());
        match self.workers {
            1 => format!("{mode} IPv{version} {scheduler}"),
            workers => format!("{mode} IPv{version} {scheduler}, {workers} workers"),
        }
    }

    fn words(&self) -> Vec<String> {
        vec![
            format!("--mode={}", word(&self.mode)),
            format!("--scheduler={}", self.scheduler.name()),
            format!("--family={}", word(&self.family)),
            format!("--workers={}", self.workers),
            format!("--sessions={}", self.sessions),
        ]
    }
}

/// A cell and its figures.
fn cell_json(row: &Row<Cell>) -> Value {
    let cell = &row.cell;
    let which = json!({
        "mode": cell.mode.name(),
        "family": cell.family.version(),
        "scheduler": cell.mode.scheduled_by(cell.scheduler),
        "workers": cell.workers,
    });
    runs::merge([which, row.json()])
}

impl Table {
    fn most_workers(&self) -> usize {
        self.args.workers.iter().max().map_or(1, |workers| usize::from(*workers))
    }

    /// One object.
    pub fn json(&self) -> Value {
        let settings = json!({
            "sessions_each": self.args.sessions,
            "repeats": self.args.repeats,
            "seconds": self.args.seconds,
            "cells": self.rows.iter().map(cell_json).collect::<Vec<_>>(),
        });
        let workers = self.most_workers();
        runs::merge([runs::context("matrix", &self.machine, workers, &self.rows), settings])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let args = &self.args;
        let tsc = self.rows.first().map_or(f64::NAN, |row| row.median("tsc_ghz"));
        let mut out = format!(
            "{} sessions of each worker, {} runs of {} s each, in turns; {}, TSC at {tsc:.2} GHz\n",
            args.sessions, args.repeats, args.seconds, self.machine.cpu_model
        );
        let head =
            ["mode", "", "sched", "workers", "Mpps", "cycles", "from", "to", "min", "new", "bytes"];
        let _ = writeln!(out, "{}", line(head.map(str::to_owned), "pages, directions"));
        for row in &self.rows {
            let two = |value: f64| format!("{value:.2}");
            let one = |value: f64| format!("{value:.1}");
            let cells = [
                row.cell.mode.name().to_owned(),
                format!("IPv{}", row.cell.family.version()),
                row.cell.mode.scheduled_by(row.cell.scheduler).to_owned(),
                row.cell.workers.to_string(),
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
        out.push_str(&runs::footer(&self.machine, self.most_workers()));
        out
    }
}

const LEGEND: &str = "\
Mpps (of all workers), cycles (TSC, a packet): the median of the runs' medians; from, to: of those;
min: the least round of all; new: TSC cycles of a new session; bytes: resident, a session.
";

fn line(cells: [String; 11], remark: &str) -> String {
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
        assert!(cells.iter().all(|cell| (cell.workers, cell.sessions) == (1, 1_000_000)));
        for (at, cell) in cells.iter().enumerate() {
            assert!(!cells[..at].contains(cell), "{cell:?}");
        }
    }

    #[test]
    fn each_worker_has_as_many_sessions() {
        let of = cells(&args("--workers 1,2 --sessions 5 --modes nat --schedulers wlc"));
        let of: Vec<_> = of.iter().map(|cell| (cell.workers, cell.sessions)).collect();
        assert_eq!(of, [(1, 5), (2, 10), (1, 5), (2, 10)], "of each family");
    }

    #[test]
    fn a_cell_has_its_row() {
        let run = |cycles: f64| json!({"cycles_per_packet": cycles, "table_pages": "2 MiB"});
        let (mode, family, scheduler) = (Mode::Dr, Family::V6, Scheduling::Mh);
        let cell = Cell { mode, family, scheduler, workers: 2, sessions: 9 };
        let row = Row { cell, runs: [30.0, 10.0, 20.0].map(run).to_vec() };
        let table = Table { args: args("--repeats 3"), machine: Machine::look(0), rows: vec![row] };
        assert_eq!(table.json()["cells"][0]["cycles_per_packet"], 20.0);
        assert!(table.text().contains("dr   IPv6 mh"), "{}", table.text());
    }
}
