//! What was measured, for machines and for people.

use super::bed::Done;
use crate::args::{Copies, Memif, Network, word};
use crate::machine::Machine;
use crate::runs;
use serde_json::{Value, json};
use sluice_director::path::Stage;

/// The rounds of a size in a setting.
#[derive(Clone, Debug)]
pub struct Row {
    pub size: u16,
    pub network: Network,
    pub copies: Copies,
    rounds: Vec<Done>,
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Row {
    pub const fn new(size: u16, (network, copies): (Network, Copies)) -> Self {
        Self { size, network, copies, rounds: Vec::new() }
    }

    pub fn note(&mut self, done: Done) {
        self.rounds.push(done);
    }

    /// Cycles a packet.
    fn cycles(&self) -> f64 {
        let each = self.rounds.iter().map(|done| done.ticks as f64 / done.came.max(1) as f64);
        median(each.collect()).unwrap_or(f64::NAN)
    }

    /// The same with turns in which there was nothing to do but wait.
    fn elapsed(&self) -> f64 {
        let each = self.rounds.iter().map(|done| done.elapsed as f64 / done.came.max(1) as f64);
        median(each.collect()).unwrap_or(f64::NAN)
    }

    /// Copies a packet of this kind.
    fn copies(&self, of: fn(&Done) -> u64) -> f64 {
        let packets: usize = self.rounds.iter().map(|done| done.came).sum();
        self.rounds.iter().map(of).sum::<u64>() as f64 / packets.max(1) as f64
    }

    /// Cycles a packet in these stages of the bursts that were timed by stage. Only without
    /// tunnels: what comes out of one is no part of a burst that is.
    fn stages(&self, stages: &[Stage]) -> Option<f64> {
        if self.network != Network::None {
            return None;
        }
        let of = |done: &Done| {
            let ticks: u64 = stages.iter().map(|stage| done.stages.ticks[*stage as usize]).sum();
            (done.stages.packets > 0).then(|| ticks as f64 / done.stages.packets as f64)
        };
        median(self.rounds.iter().filter_map(of).collect())
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    pub args: Memif,
    pub machine: Machine,
    pub tsc_hz: f64,
    pub core_ghz: Option<f64>,
    pub rows: Vec<Row>,
}

fn round(value: f64, places: i32) -> f64 {
    let unit = 10_f64.powi(places);
    (value * unit).round() / unit
}

impl Report {
    fn mpps(&self, row: &Row) -> f64 {
        self.tsc_hz / row.cycles() / 1e6
    }

    fn gbits(&self, row: &Row) -> f64 {
        self.mpps(row) * f64::from(row.size) * 8.0 / 1e3
    }

    /// Share of the throughput that isolation costs, against the plain row of the same size.
    fn cost(&self, row: &Row) -> Option<f64> {
        let plain = self
            .rows
            .iter()
            .find(|other| other.size == row.size && other.network == Network::None)?;
        (row.network != Network::None).then(|| 1.0 - plain.cycles() / row.cycles())
    }

    fn ports(&self, row: &Row) -> Option<f64> {
        row.stages(&[Stage::Receive, Stage::Send])
    }

    fn row(&self, row: &Row) -> Value {
        json!({
            "size": row.size,
            "network": word(&row.network),
            "copy": word(&row.copies),
            "rounds": row.rounds.len(),
            "cycles_per_packet": round(row.cycles(), 1),
            "elapsed_cycles_per_packet": round(row.elapsed(), 1),
            "dma_copies_per_packet": round(row.copies(|done| done.offloaded), 3),
            "dma_full_per_packet": round(row.copies(|done| done.full), 3),
            "mpps": round(self.mpps(row), 3),
            "gbit_per_s": round(self.gbits(row), 2),
            "receive_cycles_per_packet": row.stages(&[Stage::Receive]).map(|c| round(c, 1)),
            "send_cycles_per_packet": row.stages(&[Stage::Send]).map(|c| round(c, 1)),
            "isolation_costs": self.cost(row).map(|share| round(share, 4)),
        })
    }

    /// One object.
    pub fn json(&self) -> Value {
        let settings = json!({
            "tsc_ghz": round(self.tsc_hz / 1e9, 3),
            "core_ghz": self.core_ghz.map(|ghz| round(ghz, 2)),
            "mode": "fnat",
            "family": 4,
            "sessions": self.args.sessions,
            "frames": self.args.frames,
            "rows": self.rows.iter().map(|row| self.row(row)).collect::<Vec<_>>(),
        });
        runs::merge([runs::about("memif", &self.machine, 1), settings])
    }

    /// Lines to read.
    pub fn text(&self) -> String {
        let percent = |share: Option<f64>| {
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
        };
        let line = |row: &Row| {
            vec![
                row.size.to_string(),
                word(&row.network),
                word(&row.copies),
                format!("{:.1}", row.cycles()),
                format!("{:.2}", self.mpps(row)),
                format!("{:.2}", self.gbits(row)),
                format!("{:.1}", row.elapsed()),
                percent(self.ports(row).map(|cycles| cycles / row.cycles())),
                percent(self.cost(row)),
            ]
        };
        let lines: Vec<_> = self.rows.iter().map(line).collect();
        let head = [
            "size",
            "network",
            "copy",
            "cycles",
            "Mpps",
            "Gbit/s",
            "elapsed",
            "in ports",
            "isolation costs",
        ];
        format!(
            "memif, one worker, fnat IPv4 UDP, {} sessions, {} rounds of {} packets; {}\n{}{}",
            self.args.sessions,
            self.args.rounds,
            2 * u32::from(self.args.frames),
            self.machine.cpu_model,
            runs::table(&head, &lines),
            runs::footer(&self.machine, 1)
        )
    }
}
