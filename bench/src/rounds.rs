//! The measured part at one worker: rounds, in step with the other workers.

use crate::blocks::Blocks;
use crate::clock::ticks;
use crate::error::BenchError;
use crate::gate::Gate;
use crate::machine;
use crate::seen::Seen;
use crate::station::{Shared, Station};
use crate::traffic::Local;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rounds at the beginning that do not count.
const WARM_UP: u64 = 8;
/// Of so many rounds, one is judged.
const JUDGE_EVERY: u64 = 16;
/// The least rounds that a median is taken of: some must have been timed by stage, which one burst
/// in some 32 is, and not have been disturbed.
const LEAST: u64 = 128;
/// A round takes well under a millisecond; after this long packets must have been lost.
const STUCK: Duration = Duration::from_secs(10);

/// What the workers agree on, round by round.
pub struct Pace {
    gate: Gate,
    /// The first round that is not to be run.
    end: AtomicU64,
    /// Frames that came out at any worker.
    out: AtomicU64,
}

impl Pace {
    pub const fn new(workers: usize) -> Self {
        Self { gate: Gate::new(workers), end: AtomicU64::new(u64::MAX), out: AtomicU64::new(0) }
    }

    /// Where the workers meet.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }
}

/// What one worker measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Cycles a packet of each round, of those with misdirected packets if there are any.
    pub cycles_per_packet: Vec<f64>,
    /// Cycles of one hand-off, each from some blocks of rounds.
    pub hand_offs: Vec<f64>,
    /// What was seen of the stages in these rounds, and in those without misdirected packets beside
    /// them.
    pub stages: Seen,
    pub without_handoff: Seen,
    /// Packets and ticks of these rounds.
    pub packets: u64,
    pub ticks: u64,
    /// Ticks that writing them took.
    pub generator_ticks: u64,
    /// Seconds of all rounds with everything that belongs to them.
    pub wall_s: f64,
    /// Of them, the thread ran, and would have liked to run.
    pub ran_s: Option<f64>,
    pub waited_s: Option<f64>,
}

impl Measured {
    /// Ticks of all packets together, whatever came between.
    pub fn timed_cycles_per_packet(&self) -> f64 {
        self.ticks as f64 / self.packets as f64
    }

    /// Packets by the clock on the wall, generator and all.
    pub fn mpps_with_generator(&self) -> f64 {
        self.packets as f64 / self.wall_s / 1e6
    }
}

/// Runs rounds for `seconds`. The worker with number 0 says when it is enough.
pub fn measure(
    station: &mut Station,
    (number, frames): (usize, u64),
    locals: &[&[Local]],
    (pace, misdirected): (&Pace, bool),
    seconds: f64,
) -> Result<Measured, BenchError> {
    let mut measured = Measured::default();
    let workers = locals.len() as u64;
    let usual = station.traffic.misdirected_each;
    let mut blocks = Blocks::new((usual as u64 * (workers - 1)) as f64 / frames as f64);
    let (start, before) = (Instant::now(), machine::ran_and_waited_s());
    // The first round that counts, and when it began.
    let mut counts: Option<(u64, Instant)> = None;
    for round in 0.. {
        // It was said in the round before, ahead of the gate that all have passed since.
        if round >= pace.end.load(Ordering::SeqCst) {
            break;
        }
        if counts.is_none() && round >= WARM_UP && station.is_settled(seconds) {
            counts = Some((round, Instant::now()));
        }
        let enough = counts.is_some_and(|(first, since)| {
            round >= first + LEAST && since.elapsed().as_secs_f64() >= seconds
        });
        if number == 0 && enough {
            pace.end.store(round + 1, Ordering::SeqCst);
        }
        station.traffic.misdirected_each = if blocks.is_usual(round) { usual } else { 0 };
        let begin = ticks();
        station.write_round(locals);
        let written = ticks() - begin;
        pace.gate.spin()?;
        let shared = Shared {
            out: &pace.out,
            target: (round + 1) * workers * frames,
            deadline: Instant::now() + STUCK,
        };
        let before = *station.worker().stages();
        let worked = station.run_round(misdirected.then_some(&shared))?;
        station.finish_round(locals[number], round % JUDGE_EVERY == 0)?;
        let cycles = worked as f64 / frames as f64;
        blocks.note(round, cycles);
        let seen = station.worker().stages().since(&before);
        if counts.is_some() && blocks.is_settled(round) {
            let usual = blocks.is_usual(round);
            let of = if usual { &mut measured.stages } else { &mut measured.without_handoff };
            of.note(cycles, seen);
        }
        if counts.is_some() && blocks.is_usual(round) {
            measured.cycles_per_packet.push(cycles);
            measured.packets += frames;
            measured.ticks += worked;
            measured.generator_ticks += written;
        }
    }
    measured.hand_offs = blocks.hand_offs();
    measured.wall_s = start.elapsed().as_secs_f64();
    if let (Some(before), Some(after)) = (before, machine::ran_and_waited_s()) {
        measured.ran_s = Some(after.0 - before.0);
        measured.waited_s = Some(after.1 - before.1);
    }
    Ok(measured)
}
