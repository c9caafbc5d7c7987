//! Rounds whose frames arrive on a schedule, by a clock that stands still while they are written.

use super::{START_MS, Station};
use crate::clock::ticks;
use crate::error::BenchError;
use crate::histogram::Histogram;
use crate::scene::{BACK, FRONT};
use crate::schedule::{Schedule, Timed};
use crate::traffic::{Local, Way};
use sluice_director::Time;

/// A round takes some milliseconds at the lowest load; after this many seconds packets must have
/// been lost.
const STUCK_S: u64 = 20;

/// What is to come out by each way, in this order: when it arrives, and its flow.
#[derive(Default)]
pub struct Booked {
    ways: [Vec<(u64, u32)>; 2],
    /// The tick at which the clock was stopped, when the last round was over.
    stopped: Option<u64>,
}

/// What the polls gave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Polls {
    /// Polls that gave frames.
    pub bursts: u64,
    /// These frames.
    pub frames: u64,
}

impl Station {
    /// From now on frames arrive on a schedule.
    pub fn keep_time(&mut self) {
        let room = self.idle.len();
        for port in [FRONT, BACK] {
            self.queue(port).set_timed(Some(Timed::new(room)));
        }
    }

    fn timed(&mut self, way: Way) -> &mut Timed {
        let port = self.traffic.scene().port(way);
        self.queue(port).timed().expect("keep_time was called before")
    }

    /// The tick by the clock that can stand still.
    pub fn now(&mut self) -> u64 {
        self.timed(Way::In).now()
    }

    /// Writes a round of random flows that arrive as the schedule says. The clock goes on when
    /// they are written.
    pub fn book(&mut self, locals: &[Local], schedule: &mut Schedule, booked: &mut Booked) {
        let stopped = booked.stopped.take().unwrap_or_else(ticks);
        self.traffic.write_round(&[locals], &mut self.idle);
        booked.ways.iter_mut().for_each(Vec::clear);
        let mut frames = std::mem::take(&mut self.idle);
        for (at, frame) in frames.drain(..).enumerate() {
            let (way, tick) = (self.traffic.way(at), schedule.next());
            booked.ways[way as usize].push((tick, self.traffic.picked(at)));
            self.timed(way).push(tick, frame);
        }
        self.idle = frames;
        for way in [Way::In, Way::Out] {
            self.given[way as usize] += booked.ways[way as usize].len() as u64;
        }
        let stood = ticks() - stopped;
        for way in [Way::In, Way::Out] {
            self.timed(way).paused += stood;
        }
    }

    /// Turns the worker until the round has come out: the ticks of that, waiting included. Then
    /// the clock stands still until the next round is written.
    pub fn run_booked(&mut self, booked: &mut Booked) -> Result<u64, BenchError> {
        let frames = booked.ways.iter().map(Vec::len).sum();
        let begin = self.now();
        loop {
            let passed = self.now() - begin;
            let now = START_MS + (self.worked_ticks + passed) / self.ticks_per_ms;
            self.worker.turn(Time(now));
            let got = self.sent();
            if got == frames {
                booked.stopped = Some(ticks());
                let took = self.now() - begin;
                self.worked_ticks += took;
                return Ok(took);
            }
            if passed > STUCK_S * 1000 * self.ticks_per_ms {
                return Err(self.lost("keeping to the schedule", frames, got));
            }
        }
    }

    /// The tick by the clock that stands still since the last round.
    pub fn stopped_at(&mut self, booked: &Booked) -> u64 {
        booked.stopped.unwrap_or_else(ticks) - self.timed(Way::In).paused
    }

    /// Adds each frame's time from its arrival on the schedule until it was sent, and takes all
    /// frames back. Frames of a way must have come out in the order in which they arrived.
    pub fn take_latencies(
        &mut self,
        booked: &Booked,
        latencies: &mut Histogram,
    ) -> Result<(), BenchError> {
        for way in [Way::In, Way::Out] {
            let entries = &booked.ways[way as usize];
            let other = if way == Way::In { Way::Out } else { Way::In };
            let mut arrivals = entries.iter();
            for (left, count) in &self.timed(other).departures {
                for (arrived, _) in arrivals.by_ref().take(*count as usize) {
                    latencies.add(left.saturating_sub(*arrived));
                }
            }
            let sent: Vec<_> = self.timed(other).take_sent().collect();
            for (frame, (_, flow)) in sent.iter().zip(entries) {
                if self.traffic.flow_of(frame) != Some(*flow) {
                    let what = "another frame came out in its place".into();
                    return Err(BenchError::Wrong { worker: self.number, flow: *flow, what });
                }
            }
            self.idle.extend(sent);
        }
        Ok(())
    }

    /// What the polls gave since the last call.
    pub fn take_polls(&mut self) -> Polls {
        let mut polls = Polls::default();
        for way in [Way::In, Way::Out] {
            let timed = self.timed(way);
            polls.bursts += std::mem::take(&mut timed.bursts);
            polls.frames += std::mem::take(&mut timed.frames);
        }
        polls
    }
}
