//! The mix that users have: by it special paths of the director are judged.

use crate::args::{Family, Mix, Mode, word};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::report::{quantile, round};
use crate::runs::{self, Row};
use serde_json::{Value, json};

/// Of the outbound packets that reach the wrong worker where nothing steers them.
const MISDIRECTED: f64 = 0.5;

/// So many workers, and the share of outbound packets that are misdirected.
#[derive(Clone, Copy, Debug)]
struct Cell {
    mode: Mode,
    family: Family,
    workers: u16,
    sessions_each: u64,
    misdirected: f64,
}

impl runs::Cell for Cell {
    fn name(&self) -> String {
        format!("{} workers, {} % misdirected", self.workers, self.misdirected * 50.0)
    }

    fn words(&self) -> Vec<String> {
        vec![
            "--mix".to_owned(),
            format!("--mode={}", word(&self.mode)),
            format!("--family={}", word(&self.family)),
            format!("--workers={}", self.workers),
            format!("--sessions={}", self.sessions_each * u64::from(self.workers)),
            format!("--misdirected={}", self.misdirected),
        ]
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    args: Mix,
    machine: Machine,
    rows: Vec<Row<Cell>>,
}

/// Measures.
pub fn run(args: &Mix) -> Result<Report, BenchError> {
    let machine = Machine::look(0);
    let rows = runs::in_turns(cells(args), args.turns.repeats, &args.turns.words())?;
    Ok(Report { args: args.clone(), machine, rows })
}

fn cells(args: &Mix) -> Vec<Cell> {
    let Mix { mode, family, sessions: sessions_each, .. } = *args;
    let cell = |(workers, misdirected)| Cell { mode, family, workers, sessions_each, misdirected };
    let all = [(1, 0.0), (2, 0.0), (2, MISDIRECTED)].map(cell);
    let wanted = |cell: &Cell| {
        cell.workers <= args.workers && (cell.misdirected == 0.0 || mode == Mode::Fnat)
    };
    all.into_iter().filter(wanted).collect()
}

impl Report {
    /// One object.
    pub fn json(&self) -> Value {
        let row = |row: &Row<Cell>| {
            let figures = json!({
                "workers": row.cell.workers,
                "sessions": row.cell.sessions_each * u64::from(row.cell.workers),
                "misdirected_share_of_all": row.cell.misdirected / 2.0,
            });
            runs::merge([figures, row.json()])
        };
        let settings = json!({
            "mode": self.args.mode.name(),
            "family": self.args.family.version(),
            "sessions_each": self.args.sessions,
            "repeats": self.args.turns.repeats,
            "seconds": self.args.turns.seconds,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        });
        let workers = usize::from(self.args.workers);
        runs::merge([runs::context("mix", &self.machine, workers, &self.rows), settings])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let line = |row: &Row<Cell>| {
            let cycles = row.figures("cycles_per_packet");
            let spread = [0.0, 1.0].map(|part| quantile(&cycles, part));
            vec![
                row.cell.workers.to_string(),
                format!("{} %", row.cell.misdirected * 50.0),
                format!("{:.2}", row.median("mpps")),
                format!("{:.1}", row.median("cycles_per_packet")),
                format!("{:.1} to {:.1}", spread[0], spread[1]),
                round(row.median("floor_cycles_per_line")).to_string(),
            ]
        };
        let lines: Vec<_> = self.rows.iter().map(line).collect();
        let head = ["workers", "misdirected", "Mpps", "cycles", "runs", "floor"];
        format!(
            "{} IPv{}, {} established sessions of each worker, 5 % first packets, {} runs of {} s \
             each, in turns; {}\n{}{}",
            self.args.mode.name(),
            self.args.family.version(),
            self.args.sessions,
            self.args.turns.repeats,
            self.args.turns.seconds,
            self.machine.cpu_model,
            runs::table(&head, &lines),
            runs::footer(&self.machine, usize::from(self.args.workers))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn args(line: &str) -> Mix {
        let words = ["sluice-bench", "mix"].into_iter().chain(line.split_whitespace());
        let Command::Mix(args) = Cli::parse_from(words).command else { panic!() };
        args
    }

    #[test]
    fn packets_are_misdirected_with_two_workers_and_full_nat_only() {
        let of = |line| {
            let cells = cells(&args(line));
            cells.iter().map(|cell| (cell.workers, cell.misdirected)).collect::<Vec<_>>()
        };
        assert_eq!(of(""), [(1, 0.0), (2, 0.0), (2, 0.5)]);
        assert_eq!(of("--workers 1"), [(1, 0.0)]);
        assert_eq!(of("--mode nat"), [(1, 0.0), (2, 0.0)]);
    }
}
