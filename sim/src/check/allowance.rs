//! How many of something may happen in a second.

/// A second's worth at most, which comes back evenly. What is left may be known in bounds only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    per_s: u64,
    /// What is left at least and at most, in thousandths.
    left: [u64; 2],
    at: u64,
}

impl Allowance {
    pub const fn new(per_s: u32) -> Self {
        Self { per_s: per_s as u64, left: [per_s as u64 * 1000; 2], at: 0 }
    }

    /// It may be another one from now on, with anything left.
    pub const fn forget(&mut self) {
        self.left = [0, self.per_s * 1000];
    }

    fn come_back(&mut self, now: u64) {
        let back = (now - self.at).min(1_000_000) * self.per_s;
        self.left = self.left.map(|left| (left + back).min(self.per_s * 1000));
        self.at = now;
    }

    /// Whether one more may happen.
    pub fn allows(&mut self, now: u64) -> bool {
        self.come_back(now);
        self.left[1] >= 1000
    }

    /// Whether one more may be refused.
    pub fn refuses(&mut self, now: u64) -> bool {
        self.come_back(now);
        self.left[0] < 1000
    }

    /// Whether one more may happen besides some that are certain to.
    pub fn allows_beside(&mut self, now: u64, certain: u64) -> bool {
        self.allows(now) && self.left[1] >= (certain + 1) * 1000
    }

    /// Whether so many more may happen for certain.
    pub fn spares(&mut self, now: u64, count: u64) -> bool {
        self.come_back(now);
        self.left[0] >= count * 1000
    }

    /// One happened.
    pub fn take(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1000));
    }
}
