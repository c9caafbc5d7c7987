//! How many of something may happen in a second.

/// A second's worth at most, which comes back evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    per_s: u64,
    /// In thousandths.
    left: u64,
    at: u64,
}

impl Allowance {
    pub const fn new(per_s: u32) -> Self {
        Self { per_s: per_s as u64, left: per_s as u64 * 1000, at: 0 }
    }

    /// Whether one more may happen.
    pub fn allows(&mut self, now: u64) -> bool {
        let back = (now - self.at).min(1_000_000) * self.per_s;
        self.left = (self.left + back).min(self.per_s * 1000);
        self.at = now;
        self.left >= 1000
    }

    /// Whether one more may happen besides some that are certain to.
    pub fn allows_beside(&mut self, now: u64, certain: u64) -> bool {
        self.allows(now) && self.left >= (certain + 1) * 1000
    }

    /// One happened.
    pub const fn take(&mut self) {
        self.left = self.left.saturating_sub(1000);
    }
}
