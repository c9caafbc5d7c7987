//! A real server as a worker's scheduler sees it.

use crate::plan::RealId;

/// A weight is counted in sixteenths, so many of which a real server in slow start has.
pub(super) const FULL_STEP: u8 = 16;

/// A real server at one worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) real: RealId,
    /// Tells it from another one that has its id after it.
    pub(super) identity: u64,
    /// This worker's sessions with it.
    pub(super) active: u32,
    /// This worker's part of its limits; an upper one of 0 is none.
    pub(super) upper: u32,
    pub(super) lower: u32,
    /// As configured.
    pub(super) weight: u32,
    /// Whether it is alive and has a weight.
    pub(super) available: bool,
    /// Whether it reached its upper limit and has not come below the lower one since.
    pub(super) full: bool,
    /// Sixteenths of its weight that count now.
    pub(super) step: u8,
    /// Sixteenths of a turn that it has saved under `rr`.
    pub(super) credit: u8,
    /// When its slow start began, in milliseconds.
    pub(super) since: u64,
}

impl Seat {
    /// Whether it takes sessions now.
    pub(super) fn is_open(&self) -> bool {
        self.available && !self.full
    }

    /// Sixteenths of its weight that count now; 0 for one that takes no sessions.
    pub(super) fn step_now(&self) -> u32 {
        if self.is_open() { self.step.into() } else { 0 }
    }

    /// Its weight now, in sixteenths.
    pub(super) fn weight_now(&self) -> u32 {
        self.weight * self.step_now()
    }

    /// Its weight in sixteenths once it is through its slow start, full or not.
    pub(super) fn whole_weight(&self) -> u32 {
        if self.available { self.weight * u32::from(FULL_STEP) } else { 0 }
    }

    /// Whether it is full now, with hysteresis.
    pub(super) fn fills(&self) -> bool {
        let from = if self.full { self.lower } else { self.upper };
        self.upper > 0 && self.active >= from
    }

    /// Begins, goes on with or ends its slow start.
    pub(super) fn rise(&mut self, now: u64, duration_ms: u64) {
        let elapsed = now.saturating_sub(self.since);
        let sixteenths = (elapsed * u64::from(FULL_STEP)).checked_div(duration_ms);
        let full = u64::from(FULL_STEP);
        self.step = sixteenths.unwrap_or(full).clamp(1, full) as u8;
    }

    /// When its weight rises next.
    pub(super) fn rises_at(&self, duration_ms: u64) -> u64 {
        self.since + (duration_ms * u64::from(self.step + 1)).div_ceil(FULL_STEP.into())
    }
}
