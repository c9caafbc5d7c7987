//! The moments at which packets arrive, fixed beforehand, and frames that wait for theirs.

use crate::args::Arrivals;
use crate::clients::Random;
use crate::clock::ticks;
use crate::port::MemFrame;
use sluice_worker::Burst;
use std::collections::VecDeque;

/// Arrivals one behind the other, without end.
#[derive(Clone, Debug)]
pub struct Schedule {
    kind: Arrivals,
    /// Mean ticks between two.
    distance: f64,
    /// The next one. Not a whole number, so that no rounding adds up.
    next: f64,
    random: Random,
}

impl Schedule {
    /// From `start` on; a distance of zero makes all packets arrive at once.
    pub const fn new(kind: Arrivals, distance: f64, start: u64, seed: u64) -> Self {
        Self { kind, distance, next: start as f64, random: Random::new(seed) }
    }

    /// Whether more than so many arrivals are behind at a tick.
    pub fn is_behind(&self, tick: u64, arrivals: usize) -> bool {
        tick as f64 - self.next > self.distance * arrivals as f64
    }

    /// The tick of the next arrival.
    pub fn next(&mut self) -> u64 {
        let now = self.next;
        self.next += match self.kind {
            Arrivals::Constant => self.distance,
            // The distances of a Poisson process: of 53 random bits, none of which make zero.
            Arrivals::Poisson => {
                let part = ((self.random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                -part.ln() * self.distance
            }
        };
        now as u64
    }
}

/// A queue's frames that arrive when their time has come, and when those that left did. Its clock
/// can be stopped.
#[derive(Default)]
pub struct Timed {
    waiting: VecDeque<(u64, MemFrame)>,
    gone: Vec<MemFrame>,
    /// When frames left, together: the tick and how many.
    pub departures: Vec<(u64, u32)>,
    /// Ticks that the clock stood still so far.
    pub paused: u64,
    /// Polls that gave frames, and those frames.
    pub bursts: u64,
    pub frames: u64,
}

impl Timed {
    /// With room for so many frames, so that nothing grows while it is timed.
    pub fn new(frames: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(frames),
            gone: Vec::with_capacity(frames),
            departures: Vec::with_capacity(frames),
            ..Self::default()
        }
    }

    /// The tick that it is now.
    #[inline]
    pub fn now(&self) -> u64 {
        ticks() - self.paused
    }

    /// Lets a frame arrive at a tick, not before those that were pushed earlier.
    pub fn push(&mut self, tick: u64, frame: MemFrame) {
        self.waiting.push_back((tick, frame));
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Gives what has arrived, `most` at a time.
    #[inline]
    pub fn receive(&mut self, frames: &mut Burst<MemFrame>, most: usize) -> usize {
        let now = self.now();
        let arrived = |(tick, _): &mut (u64, MemFrame)| *tick <= now;
        while frames.len() < most
            && let Some((_, frame)) = self.waiting.pop_front_if(arrived)
        {
            frames.push(frame);
        }
        self.bursts += u64::from(!frames.is_empty());
        self.frames += frames.len() as u64;
        frames.len()
    }

    #[inline]
    pub fn transmit(&mut self, frames: &mut Burst<MemFrame>) -> usize {
        let count = frames.len();
        self.departures.push((self.now(), count as u32));
        self.gone.extend(frames.drain(..));
        count
    }

    pub fn sent_count(&self) -> usize {
        self.gone.len()
    }

    /// Takes what was sent.
    pub fn take_sent(&mut self) -> impl Iterator<Item = MemFrame> {
        self.departures.clear();
        self.gone.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port;
    use sluice_director::Frame;
    use sluice_table::PagePolicy;

    #[test]
    fn constant_arrivals_do_not_drift() {
        let mut schedule = Schedule::new(Arrivals::Constant, 10.4, 100, 1);
        let all: Vec<_> = (0..6).map(|_| schedule.next()).collect();
        assert_eq!(all, [100, 110, 120, 131, 141, 152]);
        assert!(!schedule.is_behind(170, 1) && schedule.is_behind(174, 1));
    }

    #[test]
    fn random_arrivals_have_their_mean_and_spread() {
        let mut schedule = Schedule::new(Arrivals::Poisson, 200.0, 0, 7);
        let all: Vec<_> = (0..100_000).map(|_| schedule.next()).collect();
        assert!(all.is_sorted());
        let mean = all[99_999] as f64 / 99_999.0;
        assert!((mean - 200.0).abs() < 4.0, "{mean}");
        // Of a Poisson process one distance in e is longer than the mean.
        let long = all.windows(2).filter(|pair| pair[1] - pair[0] > 200).count();
        assert!((long as f64 / 1e5 - (-1.0f64).exp()).abs() < 0.01, "{long}");
    }

    #[test]
    fn frames_come_when_their_time_has_come() {
        let mut timed = Timed::new(4);
        let start = timed.now();
        let hour = 3_600 * 10_000_000_000;
        for (number, mut frame) in
            port::frames(4, PagePolicy::Ordinary).unwrap().drain(..).enumerate()
        {
            frame.write(&[number as u8; 60]);
            timed.push(if number < 3 { start } else { start + hour }, frame);
        }
        let mut burst = Burst::new();
        assert_eq!(timed.receive(&mut burst, 2), 2);
        assert_eq!(timed.transmit(&mut burst), 2);
        assert_eq!(timed.receive(&mut burst, 2), 1, "the last one comes in an hour");
        timed.transmit(&mut burst);
        assert_eq!((timed.waiting(), timed.sent_count(), timed.bursts, timed.frames), (1, 3, 2, 3));
        assert!(timed.departures[0].0 <= timed.departures[1].0);
        let order: Vec<_> = timed.take_sent().map(|frame| frame.bytes()[0]).collect();
        assert_eq!(order, [0, 1, 2]);
        assert!(timed.departures.is_empty());
    }
}
