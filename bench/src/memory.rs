//! Bytes a session by the number of sessions, as the kernel counts resident memory, how long they
//! take to open, and how fast traffic over all of them is.
//!
//! The generator knows clients by a formula; of each session it keeps what nobody can foresee, the
//! local address and port that the director chose and the real server: six bytes.

use crate::args::{Family, Memory, Mode, word};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::report::round;
use crate::runs::{self, Row};
use serde_json::{Value, json};

/// So many sessions of a family.
#[derive(Clone, Copy, Debug)]
struct Cell {
    mode: Mode,
    family: Family,
    sessions: u64,
}

impl runs::Cell for Cell {
    fn name(&self) -> String {
        format!("{} IPv{} {}", self.mode.name(), self.family.version(), self.sessions)
    }

    fn words(&self) -> Vec<String> {
        vec![
            format!("--mode={}", word(&self.mode)),
            format!("--family={}", word(&self.family)),
            format!("--sessions={}", self.sessions),
        ]
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    args: Memory,
    machine: Machine,
    rows: Vec<Row<Cell>>,
}

/// Measures.
pub fn run(args: &Memory) -> Result<Report, BenchError> {
    let machine = Machine::look(0);
    let mode = args.mode;
    let cell = |family| move |sessions: &u64| Cell { mode, family, sessions: *sessions };
    let cells = args.families.iter().flat_map(|f| args.sessions.iter().map(cell(*f))).collect();
    let rows = runs::in_turns(cells, args.turns.repeats, &args.turns.words())?;
    Ok(Report { args: args.clone(), machine, rows })
}

/// Of the bytes a session those in its slot.
fn slot_bytes(row: &Row<Cell>) -> f64 {
    row.median("session_bytes")
}

fn row_json(row: &Row<Cell>) -> Value {
    let resident = row.median("bytes_per_session");
    let figures = json!({
        "family": row.cell.family.version(),
        "sessions": row.cell.sessions,
        "bytes_per_session_runs": row.figures("bytes_per_session"),
        "slab_bytes_per_session": slot_bytes(row),
        "index_and_other_bytes_per_session": round(resident - slot_bytes(row)),
        "mapped_bytes_per_session": row.median("table_bytes_per_session"),
        "resident_growth_bytes": row.median("resident_growth_bytes"),
        "resident_huge_bytes": row.median("resident_huge_bytes"),
        "resident_after_bytes": row.median("resident_after_bytes"),
        "open_s": row.median("open_s"),
        "open_wall_s": row.median("open_wall_s"),
    });
    runs::merge([row.json(), figures])
}

impl Report {
    /// One object.
    pub fn json(&self) -> Value {
        let settings = json!({
            "mode": self.args.mode.name(),
            "repeats": self.args.turns.repeats,
            "seconds": self.args.turns.seconds,
            "workers": 1,
            "rows": self.rows.iter().map(row_json).collect::<Vec<_>>(),
        });
        runs::merge([runs::context("memory", &self.machine, 1, &self.rows), settings])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let head = [
            "family", "sessions", "bytes", "slab", "rest", "GiB", "huge %", "open s", "new",
            "Mpps", "cycles", "floor", "pages",
        ];
        let lines: Vec<_> = self.rows.iter().map(line).collect();
        format!(
            "{}, one worker, {} runs of {} s each, in turns; {}\n{}{LEGEND}{}",
            self.args.mode.name(),
            self.args.turns.repeats,
            self.args.turns.seconds,
            self.machine.cpu_model,
            runs::table(&head, &lines),
            runs::footer(&self.machine, 1)
        )
    }
}

const LEGEND: &str = "\
bytes: resident, a session, all in (median); slab: of them its slot by its size; rest: index and
all else; GiB: what they take together; huge: of that in huge pages; open: seconds of the worker's
time, generator apart; new: TSC cycles of a new session; Mpps and cycles (TSC) a packet: over all
sessions, in random order; floor: cycles a random line of as much memory.
";

fn line(row: &Row<Cell>) -> Vec<String> {
    let growth = row.median("resident_growth_bytes");
    vec![
        format!("IPv{}", row.cell.family.version()),
        row.cell.sessions.to_string(),
        format!("{:.1}", row.median("bytes_per_session")),
        format!("{:.0}", slot_bytes(row)),
        format!("{:.1}", row.median("bytes_per_session") - slot_bytes(row)),
        format!("{:.2}", growth / f64::from(1 << 30)),
        format!("{:.0}", row.median("resident_huge_bytes") / growth * 100.0),
        format!("{:.2}", row.median("open_s")),
        format!("{:.0}", row.median("new_session_cycles")),
        format!("{:.1}", row.median("mpps")),
        format!("{:.1}", row.median("cycles_per_packet")),
        format!("{:.1}", row.median("floor_cycles_per_line")),
        row.text("table_pages").to_owned(),
    ]
}
