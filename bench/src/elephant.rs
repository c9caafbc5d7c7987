//! One flow with a share of all packets, from none of them to all.

use crate::args::{Elephant, Family, Mode, word};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::runs::{self, Row};
use serde_json::{Value, json};

/// One share.
#[derive(Clone, Copy, Debug)]
struct Cell {
    mode: Mode,
    family: Family,
    sessions: u64,
    share: f64,
}

/// A share that makes all packets inbound, as every other share does, and is none.
const LEAST: f64 = 1e-9;

impl runs::Cell for Cell {
    fn name(&self) -> String {
        format!("share {}", self.share)
    }

    fn words(&self) -> Vec<String> {
        vec![
            format!("--mode={}", word(&self.mode)),
            format!("--family={}", word(&self.family)),
            format!("--sessions={}", self.sessions),
            format!("--elephant={}", self.share.max(LEAST)),
        ]
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    args: Elephant,
    machine: Machine,
    rows: Vec<Row<Cell>>,
}

/// Measures.
pub fn run(args: &Elephant) -> Result<Report, BenchError> {
    let machine = Machine::look(0);
    let Elephant { mode, family, sessions, .. } = *args;
    let cells = args.shares.iter().map(|share| Cell { mode, family, sessions, share: *share });
    let rows = runs::in_turns(cells.collect(), args.turns.repeats, &args.turns.words())?;
    Ok(Report { args: args.clone(), machine, rows })
}

impl Report {
    /// One object.
    pub fn json(&self) -> Value {
        let row = |row: &Row<Cell>| runs::merge([json!({"share": row.cell.share}), row.json()]);
        let settings = json!({
            "mode": self.args.mode.name(),
            "family": self.args.family.version(),
            "sessions": self.args.sessions,
            "repeats": self.args.turns.repeats,
            "seconds": self.args.turns.seconds,
            "workers": 1,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        });
        runs::merge([runs::context("elephant", &self.machine, 1, &self.rows), settings])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let one = |value: f64| format!("{value:.1}");
        let line = |row: &Row<Cell>| {
            vec![
                row.cell.share.to_string(),
                one(row.median("mpps")),
                one(row.median("cycles_per_packet")),
                one(row.least("cycles_per_packet")),
                one(row.most("cycles_per_packet")),
                one(row.least("cycles_per_packet_min")),
                one(row.median("floor_cycles_per_line")),
            ]
        };
        let lines: Vec<_> = self.rows.iter().map(line).collect();
        format!(
            "{} IPv{}, {} sessions, inbound only, one worker, {} runs of {} s each; {}\n{}{}",
            self.args.mode.name(),
            self.args.family.version(),
            self.args.sessions,
            self.args.turns.repeats,
            self.args.turns.seconds,
            self.machine.cpu_model,
            runs::table(&["share", "Mpps", "cycles", "from", "to", "min", "floor"], &lines),
            runs::footer(&self.machine, 1)
        )
    }
}
