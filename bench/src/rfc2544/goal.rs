//! What is searched for, and what a load's trials say about it: RFC 9971 (MLRsearch), appendices A
//! and B.
//!
//! Pure. A load is classified by the sums of its trials' durations, so that a single bad trial does
//! not decide where several are asked for.

/// A goal of the search (RFC 9971, "Search Goal").
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// For people: NDR, PDR.
    pub name: &'static str,
    /// The share of the packets that may be lost in a trial.
    pub loss_ratio: f64,
    /// The share of the time in trials that lose more which a load may have, 0 to below 1.
    pub exceed_ratio: f64,
    /// Seconds of a full-length trial.
    pub duration_s: f64,
    /// Seconds that full-length trials at a load must take together.
    pub sum_s: f64,
    /// How far the bounds may be apart, as a share of the upper one.
    pub width: f64,
}

/// A trial at a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Seconds that were asked for: what makes a trial full-length or short.
    pub duration_s: f64,
    /// Seconds that it took: what it weighs.
    pub effective_s: f64,
    /// The share of what was sent that did not arrive.
    pub loss_ratio: f64,
}

/// What a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It loses too much.
    Upper,
    /// It fulfils the goal.
    Lower,
    /// More trials are needed.
    Undecided,
}

/// Sums of durations tell full-length from short only up to rounding.
const ROUNDING_S: f64 = 1e-9;

impl Goal {
    fn full_length(&self, trial: &Trial) -> bool {
        trial.duration_s >= self.duration_s - ROUNDING_S
    }

    /// RFC 9971, appendix A: what is known already must suffice, whatever the trials that are
    /// missing from the sum would say.
    pub fn class(&self, trials: &[Trial]) -> Class {
        let sum = |full: bool, low: bool| -> f64 {
            let those = trials.iter().filter(|trial| {
                self.full_length(trial) == full && (trial.loss_ratio <= self.loss_ratio) == low
            });
            those.map(|trial| trial.effective_s).sum()
        };
        let balancing = sum(false, true) * self.exceed_ratio / (1.0 - self.exceed_ratio);
        let excess = (sum(false, false) - balancing).max(0.0);
        let (low, high) = (sum(true, true), sum(true, false) + excess);
        let whole = (low + high).max(self.sum_s);
        let allowed = whole * self.exceed_ratio + ROUNDING_S;
        if high > allowed {
            Class::Upper
        } else if whole - low <= allowed {
            Class::Lower
        } else {
            Class::Undecided
        }
    }

    /// RFC 9971, appendix B: of `load`, what the trial forwarded that the share of trials which
    /// must do as well ends with.
    pub fn conditional_throughput(&self, load: u64, trials: &[Trial]) -> f64 {
        let mut full: Vec<_> = trials.iter().filter(|trial| self.full_length(trial)).collect();
        full.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
        let whole: f64 = full.iter().map(|trial| trial.effective_s).sum();
        let mut left = whole * (1.0 - self.exceed_ratio);
        let mut loss_ratio = 1.0;
        for trial in full {
            if left <= ROUNDING_S {
                break;
            }
            loss_ratio = trial.loss_ratio;
            left -= trial.effective_s;
        }
        load as f64 * (1.0 - loss_ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOAL: Goal = Goal {
        name: "NDR",
        loss_ratio: 0.0,
        exceed_ratio: 0.5,
        duration_s: 1.0,
        sum_s: 5.0,
        width: 0.01,
    };

    fn trial(duration_s: f64, loss_ratio: f64) -> Trial {
        Trial { duration_s, effective_s: duration_s, loss_ratio }
    }

    #[test]
    fn a_load_is_decided_when_the_missing_trials_cannot_change_it() {
        for (good, bad, expected) in [
            (0, 0, Class::Undecided),
            (2, 0, Class::Undecided),
            (3, 0, Class::Lower),
            (2, 2, Class::Undecided),
            (2, 3, Class::Upper),
            (3, 2, Class::Lower),
            (0, 3, Class::Upper),
            // Half of them is allowed.
            (4, 4, Class::Lower),
        ] {
            let trials = [vec![trial(1.0, 0.0); good], vec![trial(1.0, 1e-9); bad]].concat();
            assert_eq!(GOAL.class(&trials), expected, "{good} good, {bad} bad");
        }
    }

    #[test]
    fn short_trials_only_speak_against_a_load() {
        assert_eq!(GOAL.class(&vec![trial(0.1, 0.0); 100]), Class::Undecided);
        assert_eq!(GOAL.class(&vec![trial(0.1, 0.1); 26]), Class::Upper);
        // As many good ones balance them.
        let both = [vec![trial(0.1, 0.1); 26], vec![trial(0.1, 0.0); 26]].concat();
        assert_eq!(GOAL.class(&both), Class::Undecided);
    }

    #[test]
    fn without_an_exceed_ratio_one_bad_trial_decides() {
        let goal = Goal { exceed_ratio: 0.0, ..GOAL };
        assert_eq!(goal.class(&[trial(1.0, 0.5)]), Class::Upper);
        assert_eq!(goal.class(&[trial(1.0, 0.0); 4]), Class::Undecided);
        assert_eq!(goal.class(&[trial(1.0, 0.0); 5]), Class::Lower);
    }

    /// The last of the better half counts.
    #[test]
    fn conditional_throughput_is_that_of_the_median_trial() {
        let trials = [0.3, 0.1, 0.0, 0.2].map(|loss| trial(1.0, loss));
        assert_eq!(GOAL.conditional_throughput(1000, &trials), 900.0);
        let strict = Goal { exceed_ratio: 0.0, ..GOAL };
        assert_eq!(strict.conditional_throughput(1000, &trials), 700.0);
        assert_eq!(GOAL.conditional_throughput(1000, &[]), 0.0);
        assert_eq!(GOAL.conditional_throughput(1000, &[trial(0.5, 0.0)]), 0.0);
    }

    proptest! {
        /// A goal that allows more loss has no load as an upper bound that a stricter one has as a
        /// lower bound; and enough full-length trials always decide.
        #[test]
        fn goals_are_ordered(
            losses in prop::collection::vec(0.0..0.01f64, 0..12), full in any::<u16>(),
            exceed in 0.0..0.9f64, allowed in 0.0..0.01f64,
        ) {
            let trials: Vec<_> = losses.iter().enumerate()
                .map(|(at, loss)| trial(if full >> at & 1 == 1 { 1.0 } else { 0.2 }, *loss))
                .collect();
            let strict = Goal { exceed_ratio: exceed, loss_ratio: allowed / 2.0, ..GOAL };
            let mild = Goal { loss_ratio: allowed, ..strict.clone() };
            if strict.class(&trials) == Class::Lower {
                prop_assert_eq!(mild.class(&trials), Class::Lower);
            }
            if mild.class(&trials) == Class::Upper {
                prop_assert_eq!(strict.class(&trials), Class::Upper);
            }
            if trials.iter().filter(|trial| trial.duration_s == 1.0).count() >= 5 {
                prop_assert_ne!(strict.class(&trials), Class::Undecided);
            }
            if strict.class(&trials) == Class::Lower {
                let throughput = strict.conditional_throughput(1000, &trials);
                prop_assert!(throughput >= 1000.0 * (1.0 - strict.loss_ratio) - 1e-6);
            }
        }
    }
}
