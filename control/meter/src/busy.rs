//! How busy workers are now: the share of the last seconds that went into turns with work.
//!
//! A worker counts the milliseconds of its life and of its turns with work. A quotient of the two
//! is an average since its start, which says nothing after a day. So shares come from differences:
//! the plots' from place to place ([`crate::History`]), everything else's over as long a time
//! ([`RecentWork`]).

use crate::history::STEP_S;
use std::collections::VecDeque;

/// What a worker has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Milliseconds of its turns with work.
    pub busy_ms: u64,
    /// Milliseconds of its life.
    pub life_ms: u64,
}

impl Work {
    /// The share of its time since `before` that it was busy, 0 to 1.
    pub fn share_since(self, before: Self) -> f64 {
        let life = self.life_ms.saturating_sub(before.life_ms).max(1);
        (self.busy_ms.saturating_sub(before.busy_ms) as f64 / life as f64).min(1.0)
    }
}

/// Marks that are kept of a worker: with one a second, those of the last [`STEP_S`] seconds and
/// the one before.
const MARKS: usize = STEP_S as usize + 1;

/// What each worker had counted over the last seconds.
#[derive(Clone, Debug, Default)]
pub struct RecentWork {
    marks: Vec<VecDeque<Work>>,
}

impl RecentWork {
    /// Notes what a worker has counted, once a second.
    pub fn note(&mut self, worker: u16, now: Work) {
        let at = usize::from(worker);
        if self.marks.len() <= at {
            self.marks.resize(at + 1, VecDeque::with_capacity(MARKS));
        }
        let marks = &mut self.marks[at];
        if marks.len() == MARKS {
            marks.pop_front();
        }
        marks.push_back(now);
    }

    /// The share of its last [`STEP_S`] seconds, or up to a second more, that a worker was busy,
    /// 0 to 1. While there is no mark so old, of all the time since the oldest.
    pub fn share(&self, worker: u16, now: Work) -> f64 {
        let marks = self.marks.get(usize::from(worker)).into_iter().flatten();
        let old = |mark: &&Work| mark.life_ms + u64::from(STEP_S) * 1000 <= now.life_ms;
        let before = marks.clone().rev().find(old).or_else(|| marks.clone().next());
        now.share_since(before.copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEKS_MS: u64 = 21 * 86_400_000;

    /// A worker that was idle for weeks, then busy for 3 of 4 milliseconds, then idle again.
    #[test]
    fn busy_after_weeks_of_idleness_is_seen_within_seconds() {
        let mut recent = RecentWork::default();
        let (mut now, mut shares) = (Work { busy_ms: 40, life_ms: WEEKS_MS }, Vec::new());
        for second in 0..12 {
            recent.note(0, now);
            now.life_ms += 1000;
            now.busy_ms += if (3..7).contains(&second) { 750 } else { 0 };
            shares.push(recent.share(0, now));
        }
        let wanted = [0.0, 0.0, 0.0, 0.375, 0.75, 0.75, 0.75, 0.375, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(shares, wanted);
    }

    #[test]
    fn a_worker_that_has_just_started_has_the_share_of_its_life() {
        let mut recent = RecentWork::default();
        let now = Work { busy_ms: 300, life_ms: 600 };
        assert_eq!(recent.share(3, now), 0.5);
        recent.note(3, now);
        assert_eq!(recent.share(3, Work { busy_ms: 300, life_ms: 900 }), 0.0);
        assert_eq!(recent.share(0, now), 0.5);
        // Between two notes it is as recent.
        recent.note(3, Work { busy_ms: 300, life_ms: 1600 });
        recent.note(3, Work { busy_ms: 300, life_ms: 2600 });
        assert_eq!(recent.share(3, Work { busy_ms: 1000, life_ms: 3000 }), 700.0 / 2400.0);
    }
}
