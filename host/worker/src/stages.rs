//! Where a worker's cycles go: one burst in thirty or so is timed stage by stage, and as many
//! sweeps of turns that had any, so that the others pay nothing for it.

use sluice_director::path::{Probe, Stage};

/// Bursts and sweeps for each that is timed, on average.
const PERIOD: u32 = 32;

/// A clock for the stages: a counter that is cheap to read, such as the time stamp counter.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Reads the counter.
    pub ticks: fn() -> u64,
    /// How fast it runs.
    pub ticks_per_s: u64,
}

/// What was seen of the stages since the worker began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Bursts that were timed.
    pub bursts: u64,
    /// Packets in them.
    pub packets: u64,
    /// Ticks of the clock in each stage, reading the clock not counted.
    pub ticks: [u64; Stage::COUNT],
    /// Packets among them that a session was looked for.
    pub looked_up: u64,
    /// Of these, the ones that had a candidate at the first look.
    pub found: u64,
}

impl StageCounts {
    /// Adds what was seen of others.
    pub fn add(&mut self, others: &Self) {
        self.combine(others, u64::wrapping_add);
    }

    /// What was seen since an earlier look.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        self.combine(earlier, u64::wrapping_sub);
        self
    }

    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        self.bursts = with(self.bursts, other.bursts);
        self.packets = with(self.packets, other.packets);
        self.looked_up = with(self.looked_up, other.looked_up);
        self.found = with(self.found, other.found);
        for (one, other) in self.ticks.iter_mut().zip(other.ticks) {
            *one = with(*one, other);
        }
    }
}

/// A worker's.
pub(crate) struct Stages {
    clock: Option<Clock>,
    /// Ticks that reading the clock takes.
    reading: u64,
    pub counts: StageCounts,
    /// Bursts and sweeps until the next that is timed.
    left: u32,
    random: u32,
}

impl Stages {
    pub fn new(clock: Option<Clock>, worker: u16) -> Self {
        let reading = clock.map_or(0, |clock| {
            let readings = (0..64).map(|_| {
                let before = (clock.ticks)();
                (clock.ticks)().wrapping_sub(before)
            });
            readings.min().unwrap_or(0)
        });
        let random = 0x9e37_79b9 ^ u32::from(worker) << 16 | 1;
        Self { clock, reading, counts: StageCounts::default(), left: 1, random }
    }

    /// How fast the clock runs; 0 without one.
    pub fn ticks_per_s(&self) -> u64 {
        self.clock.map_or(0, |clock| clock.ticks_per_s)
    }

    /// A watch for the next burst or sweep if it is one that is timed.
    #[inline(always)]
    pub fn watch(&mut self) -> Option<Watch> {
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 { self.start() } else { None }
    }

    #[cold]
    fn start(&mut self) -> Option<Watch> {
        // Xorshift (Marsaglia 2003): no rhythm of the traffic may meet that of the watch.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.left = 1 + self.random % (2 * PERIOD - 1);
        let Clock { ticks, .. } = self.clock?;
        let counts = StageCounts { bursts: 1, ..StageCounts::default() };
        Some(Watch { ticks, reading: self.reading, last: ticks(), counts })
    }

    /// A burst that was timed has gone its way, or a sweep is over.
    pub fn add(&mut self, watch: &Watch) {
        self.counts.add(&watch.counts);
    }
}

/// Times one burst or sweep.
pub(crate) struct Watch {
    ticks: fn() -> u64,
    reading: u64,
    last: u64,
    pub counts: StageCounts,
}

impl Probe for Watch {
    const ON: bool = true;

    fn mark(&mut self, stage: Stage) {
        let now = (self.ticks)();
        let spent = now.wrapping_sub(self.last).saturating_sub(self.reading);
        self.counts.ticks[stage as usize] += spent;
        self.last = now;
    }

    fn looked_up(&mut self, found: u32, packets: u32) {
        self.counts.found += u64::from(found);
        self.counts.looked_up += u64::from(packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    /// Each reading takes ten ticks.
    fn ticks() -> u64 {
        NOW.with(|now| now.replace(now.get() + 10))
    }

    fn pass(time: u64) {
        NOW.with(|now| now.set(now.get() + time));
    }

    #[test]
    fn one_burst_in_a_period_is_timed() {
        let mut stages = Stages::new(Some(Clock { ticks, ticks_per_s: 1 }), 3);
        let watched = (0..320_000).filter(|_| stages.watch().is_some()).count();
        assert!((9_700..10_300).contains(&watched), "{watched}");
        let mut without = Stages::new(None, 3);
        assert!((0..1000).all(|_| without.watch().is_none()));
    }

    #[test]
    fn reading_the_clock_is_not_the_stages_time() {
        let mut stages = Stages::new(Some(Clock { ticks, ticks_per_s: 1 }), 0);
        assert_eq!(stages.reading, 10);
        for _ in 0..2 {
            let mut watch = stages.start().unwrap();
            watch.counts.packets = 7;
            for (stage, time) in [(Stage::Parse, 100), (Stage::Track, 30), (Stage::Parse, 1)] {
                pass(time);
                watch.mark(stage);
            }
            watch.looked_up(5, 6);
            stages.add(&watch);
        }
        let (all, one) = (stages.counts, StageCounts { bursts: 1, ..stages.counts });
        assert_eq!(all.since(&one), StageCounts { bursts: 1, ..StageCounts::default() });
        let mut ticks = [0; Stage::COUNT];
        (ticks[Stage::Parse as usize], ticks[Stage::Track as usize]) = (202, 60);
        let expected = StageCounts { bursts: 2, packets: 14, ticks, looked_up: 12, found: 10 };
        assert_eq!(stages.counts, expected);
    }
}
