//! A limit on how often something may happen, and what a service uses of its limits.

use crate::time::Time;

/// A token bucket that holds what may happen in one second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// Thousandths of an event that may happen now.
    credit: u64,
    filled: Time,
    begun: bool,
}

/// What one event costs.
const EVENT: u64 = 1000;

impl Rate {
    /// Whether one more event may happen now, when `per_s` may in a second.
    pub fn allows(&mut self, per_s: u32, now: Time) -> bool {
        let most = u64::from(per_s) * EVENT;
        let elapsed_ms = now.0.saturating_sub(self.filled.0);
        self.credit = if self.begun {
            self.credit.saturating_add(elapsed_ms.saturating_mul(u64::from(per_s))).min(most)
        } else {
            most
        };
        (self.filled, self.begun) = (now, true);
        self.credit >= EVENT
    }

    /// An event that was allowed has happened.
    pub fn take(&mut self) {
        self.credit = self.credit.saturating_sub(EVENT);
    }
}

/// What a service uses of its limits at this worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Sessions open now.
    pub active: u32,
    /// The half-open ones among them.
    pub half_open: u32,
    /// New sessions.
    pub rate: Rate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_so_many() {
        let mut rate = Rate::default();
        let mut allowed = |at_ms: u64, tries: u32| {
            (0..tries)
                .filter(|_| {
                    let yes = rate.allows(10, Time(at_ms));
                    if yes {
                        rate.take();
                    }
                    yes
                })
                .count()
        };
        assert_eq!(allowed(5_000, 30), 10);
        assert_eq!(allowed(5_100, 30), 1);
        assert_eq!(allowed(5_199, 30), 0);
        assert_eq!(allowed(5_200, 30), 1);
        assert_eq!(allowed(60_000, 30), 10, "no more than a second's worth is saved up");
        assert!(!Rate::default().allows(0, Time(1)), "none at all");
    }
}
