//! One worker, two, and so on, and what it costs when packets reach the wrong one.

use crate::args::{Family, Mode, Scaling, word};
use crate::error::BenchError;
use crate::machine::{self, Machine};
use crate::report::{quantile, round};
use crate::runs::{self, Row};
use serde_json::{Value, json};
use sluice_director::path::Stage;

/// So many workers, and the share of outbound packets that go astray.
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
        format!("{} workers, misdirected {}", self.workers, self.misdirected)
    }

    fn words(&self) -> Vec<String> {
        vec![
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
    args: Scaling,
    machine: Machine,
    workers: u16,
    rows: Vec<Row<Cell>>,
}

/// Measures.
pub fn run(args: &Scaling) -> Result<Report, BenchError> {
    let machine = Machine::look(0);
    let workers = match args.workers {
        Some(workers) => workers,
        None => machine::usable_cores()?.len().clamp(1, 64) as u16,
    };
    let cells = cells(args, workers);
    let rows = runs::in_turns(cells, args.turns.repeats, &args.turns.words())?;
    Ok(Report { args: args.clone(), machine, workers, rows })
}

fn cells(args: &Scaling, workers: u16) -> Vec<Cell> {
    let Scaling { mode, family, sessions: sessions_each, .. } = *args;
    let misdirected = |workers| {
        let some = args.misdirected.iter().filter(move |_| workers > 1 && mode == Mode::Fnat);
        std::iter::once(0.0).chain(some.copied())
    };
    let cell =
        |workers| move |misdirected| Cell { mode, family, workers, sessions_each, misdirected };
    (1..=workers).flat_map(|workers| misdirected(workers).map(cell(workers))).collect()
}

impl Report {
    fn base(&self, workers: u16) -> Option<&Row<Cell>> {
        self.rows.iter().find(|row| row.cell.workers == workers && row.cell.misdirected == 0.0)
    }

    /// Mpps of each run against one worker's in the same turn: median, least, most.
    fn ratios(&self, row: &Row<Cell>) -> [f64; 3] {
        let one = self.base(1).map_or_else(Vec::new, |row| row.figures("mpps"));
        let ratios: Vec<_> = row.figures("mpps").iter().zip(one).map(|(n, one)| n / one).collect();
        [0.5, 0.0, 1.0].map(|part| round(quantile(&ratios, part)))
    }

    /// Cycles of a hand-off, of the runs: median, least, most.
    fn hand_off(row: &Row<Cell>) -> Option<[f64; 3]> {
        let costs = row.runs.iter().map(|run| run["hand_off_cycles"].as_f64());
        let costs = costs.collect::<Option<Vec<_>>>()?;
        Some([0.5, 0.0, 1.0].map(|part| round(quantile(&costs, part))))
    }

    /// What a hand-off adds to each stage, the median of the runs: what a packet takes longer there
    /// than without misdirected packets in the same run, for each that is handed over.
    fn stages_of_a_hand_off(row: &Row<Cell>) -> Option<Value> {
        Self::hand_off(row)?;
        let of = |run: &Value, stage: Stage| {
            let with = run["stage_cycles_per_packet"][stage.name()].as_f64()?;
            let without = &run["stage_cycles_per_packet_without_handoff"][stage.name()];
            Some(round((with - without.as_f64()?) / (row.cell.misdirected / 2.0)))
        };
        Some(row.stages(of))
    }

    fn row_json(&self, row: &Row<Cell>) -> Value {
        let [ratio, ratio_min, ratio_max] = self.ratios(row);
        let figures = json!({
            "workers": row.cell.workers,
            "sessions": row.cell.sessions_each * u64::from(row.cell.workers),
            "misdirected_share_of_outbound": row.cell.misdirected,
            "handed_over_share_of_all": row.cell.misdirected / 2.0,
            "ratio_to_one": ratio,
            "ratio_to_one_min": ratio_min,
            "ratio_to_one_max": ratio_max,
            "hand_off_cycles": Self::hand_off(row).map(|costs| costs[0]),
            "hand_off_cycles_min": Self::hand_off(row).map(|costs| costs[1]),
            "hand_off_cycles_max": Self::hand_off(row).map(|costs| costs[2]),
            "stage_cycles_per_hand_off": Self::stages_of_a_hand_off(row),
            "mpps_wall": row.median("mpps_wall"),
        });
        runs::merge([figures, row.json()])
    }

    /// One object.
    pub fn json(&self) -> Value {
        let settings = json!({
            "mode": self.args.mode.name(),
            "family": self.args.family.version(),
            "sessions_each": self.args.sessions,
            "repeats": self.args.turns.repeats,
            "seconds": self.args.turns.seconds,
            "rows": self.rows.iter().map(|row| self.row_json(row)).collect::<Vec<_>>(),
        });
        let workers = usize::from(self.workers);
        runs::merge([runs::context("scaling", &self.machine, workers, &self.rows), settings])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let two = |value: f64| format!("{value:.2}");
        let range = |[median, least, most]: [f64; 3]| format!("{median} ({least} to {most})");
        let line = |row: &Row<Cell>| {
            vec![
                row.cell.workers.to_string(),
                format!("{} %", row.cell.misdirected * 50.0),
                two(row.median("mpps")),
                range(self.ratios(row)),
                two(row.median("cycles_per_packet")),
                Self::hand_off(row).map_or_else(|| "-".into(), range),
                two(row.median("floor_cycles_per_line")),
            ]
        };
        let lines: Vec<_> = self.rows.iter().map(line).collect();
        let head = ["workers", "handed over", "Mpps", "to one", "cycles", "a hand-off", "floor"];
        let stages = |row: &Row<Cell>| {
            let name = format!("{} workers, {} %", row.cell.workers, row.cell.misdirected * 50.0);
            Some((name, Self::stages_of_a_hand_off(row)?))
        };
        let stages: Vec<_> = self.rows.iter().filter_map(stages).collect();
        format!(
            "{} IPv{}, {} sessions of each worker, {} runs of {} s each, in turns; {}\n{}{}{}",
            self.args.mode.name(),
            self.args.family.version(),
            self.args.sessions,
            self.args.turns.repeats,
            self.args.turns.seconds,
            self.machine.cpu_model,
            runs::table(&head, &lines),
            runs::stage_table("a hand-off, cycles by stage", &stages),
            runs::footer(&self.machine, usize::from(self.workers))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn args(line: &str) -> Scaling {
        let words = ["sluice-bench", "scaling"].into_iter().chain(line.split_whitespace());
        let Command::Scaling(args) = Cli::parse_from(words).command else { panic!() };
        args
    }

    #[test]
    fn strays_need_two_workers_and_full_nat() {
        let of = |line| {
            let cells = cells(&args(line), 3);
            cells.iter().map(|cell| (cell.workers, cell.misdirected)).collect::<Vec<_>>()
        };
        assert_eq!(of("--misdirected 0.5"), [(1, 0.0), (2, 0.0), (2, 0.5), (3, 0.0), (3, 0.5)]);
        assert_eq!(of("--mode dr"), [(1, 0.0), (2, 0.0), (3, 0.0)]);
    }

    #[test]
    fn figures_are_of_the_same_turn() {
        let row = |workers, misdirected, mpps: [f64; 2], cycles: [f64; 2]| {
            let cost = (misdirected > 0.0).then_some(40.0);
            let run = |(mpps, cycles)| json!({"mpps": mpps, "cycles_per_packet": cycles});
            let stages = |screen| json!({"screen": screen, "parse": 10.0});
            let costs = json!({"hand_off_cycles": cost, "stage_cycles_per_packet": stages(3.5),
                "stage_cycles_per_packet_without_handoff": stages(0.5)});
            let run = |figures| runs::merge([run(figures), costs.clone()]);
            let cell = Cell {
                mode: Mode::Fnat,
                family: Family::V4,
                workers,
                sessions_each: 9,
                misdirected,
            };
            Row { cell, runs: mpps.into_iter().zip(cycles).map(run).collect() }
        };
        let rows = vec![
            row(1, 0.0, [10.0, 20.0], [100.0, 50.0]),
            row(2, 0.0, [19.0, 40.0], [105.0, 50.0]),
            row(2, 0.5, [15.0, 30.0], [115.0, 60.0]),
        ];
        let report =
            Report { args: args(""), machine: Machine::look(0), workers: 2, rows: rows.clone() };
        assert_eq!(report.ratios(&rows[1]), [2.0, 1.9, 2.0]);
        assert_eq!(Report::hand_off(&rows[2]), Some([40.0, 40.0, 40.0]));
        assert_eq!(Report::hand_off(&rows[1]), None);
        assert_eq!(report.json()["rows"][2]["hand_off_cycles"], 40.0);
        assert!(report.text().contains("40 (40 to 40)"), "{}", report.text());
        // Three cycles more of each packet, of which a quarter is handed over.
        let stages = &report.json()["rows"][2]["stage_cycles_per_hand_off"];
        assert_eq!((&stages["screen"], &stages["parse"]), (&json!(12.0), &json!(0.0)));
        assert!(report.json()["rows"][1]["stage_cycles_per_hand_off"].is_null());
        let of_stages = "a hand-off, cycles by stage  screen";
        assert!(report.text().contains(of_stages), "{}", report.text());
    }
}
