//! When frames are due: an open loop by the time stamp counter.
//!
//! Frames fall due at equal distances whether the device keeps up or not. What the generator has
//! missed it makes up for at once, but not more of it than a bounded burst: beyond that the
//! schedule moves, and the trial is told how much. Where the processor was taken away that is a
//! standstill, in which there was no load at all and which does not count as time of the trial;
//! where sending itself takes too long, the load could not be offered.

/// A turn that comes so much later than the one before found the processor taken away: no turn
/// takes as long by itself.
const STANDSTILL_S: f64 = 1e-3;
/// The schedule's backlog that is made up for, in seconds of load, and its bounds in frames:
/// a quarter to a half of a port's ring.
const BACKLOG_S: f64 = 100e-6;
const BACKLOG: (f64, f64) = (256.0, 1024.0);
/// The share of the duration by which a trial may take longer before the load counts as one that
/// could not be offered.
const TOLERANCE: f64 = 0.01;

/// A trial's schedule. Times are ticks.
#[derive(Clone, Debug)]
pub struct Pace {
    ticks_per_s: f64,
    frames_per_tick: f64,
    total: u64,
    duration: f64,
    backlog: f64,
    sent: u64,
    start: u64,
    last: u64,
    /// Ticks that the schedule was moved by.
    moved: f64,
    /// Ticks of these that were standstills.
    stood_still: f64,
    longest_gap: u64,
}

impl Pace {
    /// `load_pps` for `duration_s`, from `now` on; in multiples of `unit` frames.
    pub fn new(load_pps: u64, duration_s: f64, unit: u64, ticks_per_s: f64, now: u64) -> Self {
        let frames = (load_pps as f64 * duration_s).round().max(1.0) as u64;
        let (least, most) = BACKLOG;
        Self {
            ticks_per_s,
            frames_per_tick: load_pps as f64 / ticks_per_s,
            total: frames.next_multiple_of(unit),
            duration: duration_s * ticks_per_s,
            backlog: (load_pps as f64 * BACKLOG_S).clamp(least, most),
            sent: 0,
            start: now,
            last: now,
            moved: 0.0,
            stood_still: 0.0,
            longest_gap: 0,
        }
    }

    /// Frames that should go now.
    pub fn due(&mut self, now: u64) -> u64 {
        let gap = now.saturating_sub(self.last);
        self.last = now;
        self.longest_gap = self.longest_gap.max(gap);
        let elapsed = now.saturating_sub(self.start) as f64 - self.moved;
        // The first is due at once.
        let scheduled = elapsed * self.frames_per_tick + 1.0;
        let behind = scheduled - self.sent as f64 - self.backlog;
        let mut due = scheduled;
        if behind > 0.0 && self.sent < self.total {
            let ticks = behind / self.frames_per_tick;
            self.moved += ticks;
            if gap as f64 > STANDSTILL_S * self.ticks_per_s {
                self.stood_still += ticks.min(gap as f64);
            }
            due -= behind;
        }
        (due as u64).min(self.total).saturating_sub(self.sent)
    }

    /// Frames have gone.
    pub fn sent(&mut self, count: u64) {
        self.sent += count;
    }

    /// Whether all have gone, or the time is over in which they could have.
    pub fn is_over(&self) -> bool {
        self.sent >= self.total || self.effective() > self.duration * (1.0 + TOLERANCE)
    }

    /// Ticks so far without the standstills.
    fn effective(&self) -> f64 {
        self.last.saturating_sub(self.start) as f64 - self.stood_still
    }

    /// Seconds that the load was there.
    pub fn effective_s(&self) -> f64 {
        // The last frame is followed by a distance too.
        let least = self.sent as f64 / self.frames_per_tick;
        self.effective().max(least.min(self.duration)) / self.ticks_per_s
    }

    /// Seconds of standstills, and of the longest time between two turns.
    pub fn disturbance_s(&self) -> (f64, f64) {
        (self.stood_still / self.ticks_per_s, self.longest_gap as f64 / self.ticks_per_s)
    }

    /// Fewer frames went than should have: the load could not be offered.
    pub fn fell_short(&self) -> bool {
        self.sent < self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock of 1 GHz, and turns that send `most` at a time and take `ticks`.
    fn run(load: u64, most: u64, mut ticks: impl FnMut(u64) -> u64) -> (Pace, u64) {
        let (mut now, mut largest) = (1_000, 0);
        let mut pace = Pace::new(load, 0.1, 1, 1e9, now);
        let mut turn = 0;
        while !pace.is_over() {
            let due = pace.due(now);
            largest = largest.max(due);
            pace.sent(due.min(most));
            now += ticks(turn);
            turn += 1;
            assert!(turn < 10_000_000);
        }
        (pace, largest)
    }

    #[test]
    fn all_go_in_time_when_nothing_disturbs() {
        for load in [1, 1_000, 1_000_000, 10_000_000] {
            let (pace, largest) = run(load, 64, |_| 2_000);
            assert_eq!(pace.sent, (load / 10).max(1), "{load}");
            assert!(!pace.fell_short() && largest <= 64, "{load}: {largest}");
            assert!((pace.effective_s() - 0.1).abs() < 0.001, "{load}: {}", pace.effective_s());
            assert_eq!(pace.disturbance_s().0, 0.0);
        }
    }

    #[test]
    fn what_was_missed_comes_in_a_bounded_burst_and_later() {
        // Once, twenty milliseconds.
        let (pace, largest) =
            run(5_000_000, 64, |turn| if turn == 500 { 20_000_000 } else { 2_000 });
        assert_eq!((pace.sent, pace.fell_short()), (500_000, false));
        assert!((256..=1024).contains(&largest), "{largest}");
        let (stood_still, gap) = pace.disturbance_s();
        assert!((0.0198..=0.02).contains(&stood_still) && (0.02..0.0201).contains(&gap));
        assert!((pace.effective_s() - 0.1).abs() < 0.001, "{}", pace.effective_s());
    }

    #[test]
    fn a_load_that_cannot_be_offered_is_known() {
        // 64 frames in 10 µs are 6.4 million a second.
        let (pace, largest) = run(8_000_000, 64, |_| 10_000);
        assert!(pace.fell_short() && largest <= 1024);
        let offered = pace.sent as f64 / pace.effective_s();
        assert!((offered / 6.4e6 - 1.0).abs() < 0.01, "{offered}");
        assert!(!run(6_000_000, 64, |_| 10_000).0.fell_short());
    }

    #[test]
    fn frames_are_whole_pairs() {
        assert_eq!(Pace::new(333, 0.1, 2, 1e9, 0).total, 34);
        assert_eq!(Pace::new(1, 0.001, 1, 1e9, 0).total, 1);
    }
}
