//! What was seen of the stages, round by round: an interruption in a burst that is timed would be
//! taken for the stage's own time, so rounds that took very long do not count.

use crate::report::uninterrupted;
use sluice_worker::StageCounts;

/// Rounds in which something was timed.
#[derive(Clone, Debug, Default)]
pub struct Seen(Vec<(f64, StageCounts)>);

impl Seen {
    /// Notes what was seen in a round, and what its packets took.
    pub fn note(&mut self, cycles: f64, seen: StageCounts) {
        if seen != StageCounts::default() {
            self.0.push((cycles, seen));
        }
    }

    /// What was seen in all rounds that were not interrupted.
    pub fn quiet(&self) -> StageCounts {
        let cycles: Vec<_> = self.0.iter().map(|(cycles, _)| *cycles).collect();
        let most = uninterrupted(&cycles);
        let mut sum = StageCounts::default();
        for (_, seen) in self.0.iter().filter(|(cycles, _)| *cycles <= most) {
            sum.add(seen);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_rounds_do_not_count() {
        let counts = |packets| StageCounts { packets, ..StageCounts::default() };
        let mut seen = Seen::default();
        assert_eq!(seen.quiet(), counts(0));
        for round in 0..20 {
            // Those with a sweep count.
            let cycles = [40.0, 70.0, 40.0, 900.0][round as usize % 10 % 4];
            seen.note(cycles, counts(1 + round % 10));
        }
        seen.note(1.0, counts(0));
        assert_eq!(seen.quiet(), counts(2 * (55 - 4 - 8)));
    }
}
