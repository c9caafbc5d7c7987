//! The search for several loss ratios at once, as RFC 9971 (MLRsearch) specifies its results.
//!
//! Pure: [`Search::next`] says which trial to run, [`Search::report`] takes what it gave. The first
//! trial offers the most. Then phases: in each all goals have their bounds narrowed to the phase's
//! width by trials of the phase's duration; widths halve and durations grow from one to the next,
//! and only the last asks for the goals' own duration sum. What a phase found is where the next
//! begins. Every decision is a function of the trials so far, so nothing can get out of step.
//!
//! Invariant: a load that is asked for is strictly between the bounds of a goal that is not done,
//! and undecided for it. Each full-length trial brings its load nearer to being decided, so the
//! search ends; [`Limits::trials`] bounds it whatever the device does.

use super::goal::{Class, Goal, Trial};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Where and how long to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The lowest load, packets a second, at least 1.
    pub least_pps: u64,
    /// The highest one.
    pub most_pps: u64,
    /// Trials in all.
    pub trials: u32,
    /// Phases, at least 1.
    pub phases: u8,
    /// Seconds of a trial of the first phase.
    pub first_s: f64,
}

/// A trial that is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// Packets a second.
    pub load_pps: u64,
    pub duration_s: f64,
}

/// What a trial gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub sent: u64,
    /// Of those, what arrived.
    pub received: u64,
    /// Seconds that it took.
    pub effective_s: f64,
    /// The generator could not offer the load: what it did is `sent` in `effective_s`.
    pub fell_short: bool,
}

impl Outcome {
    /// The share of what was sent that did not arrive; 1 where nothing was sent.
    pub fn loss_ratio(&self) -> f64 {
        match self.sent {
            0 => 1.0,
            sent => sent.saturating_sub(self.received) as f64 / sent as f64,
        }
    }

    /// Packets a second that were offered.
    pub fn offered_pps(&self) -> f64 {
        self.sent as f64 / self.effective_s.max(f64::MIN_POSITIVE)
    }
}

/// What the search found for a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub goal: Goal,
    /// The highest load that fulfils the goal below the upper bound (relevant lower bound);
    /// `None`: not even the lowest load does.
    pub lower_pps: Option<u64>,
    /// The lowest load that does not (relevant upper bound); `None`: even the highest load does.
    pub upper_pps: Option<u64>,
    /// What was forwarded at the lower bound (conditional throughput).
    pub throughput_pps: Option<f64>,
    /// The bounds are as near to each other as the goal wants, or there is nothing to search
    /// beyond them.
    pub finished: bool,
}

/// The search. See the module.
#[derive(Clone, Debug)]
pub struct Search {
    goals: Vec<Goal>,
    limits: Limits,
    trials: BTreeMap<u64, Vec<Trial>>,
    asked: Option<Ask>,
    used: u32,
    phase: u8,
    /// What the generator can offer, where that is less than the highest load.
    generator_pps: Option<u64>,
    /// Durations and loads of the trials whose load could be offered.
    offered: Vec<(f64, u64)>,
    /// The most that was forwarded in a trial of the longest duration.
    most_forwarded_pps: f64,
    /// Of the first trial: the forwarding rate at the highest offered load (RFC 2285, 3.6.2).
    forwarded_at_most_pps: f64,
}

impl Search {
    /// A search for all `goals`, at least one.
    pub fn new(goals: Vec<Goal>, limits: Limits) -> Self {
        Self {
            goals,
            limits,
            trials: BTreeMap::new(),
            asked: None,
            used: 0,
            phase: 0,
            generator_pps: None,
            offered: Vec::new(),
            most_forwarded_pps: 0.0,
            forwarded_at_most_pps: 0.0,
        }
    }

    /// The next trial; `None` when there is nothing more to ask.
    pub fn next(&mut self) -> Option<Ask> {
        self.asked = self.choose();
        self.asked
    }

    fn choose(&mut self) -> Option<Ask> {
        if self.used >= self.limits.trials {
            return None;
        }
        if self.used == 0 {
            return Some(Ask { load_pps: self.limits.most_pps, duration_s: self.longest_s() });
        }
        while self.phase < self.limits.phases {
            for goal in &self.goals {
                let target = self.target(goal, self.phase);
                if let Some(load_pps) = self.candidate(goal, &target) {
                    return Some(Ask { load_pps, duration_s: target.duration_s });
                }
            }
            self.phase += 1;
        }
        None
    }

    /// What the trial that was asked for gave.
    pub fn report(&mut self, outcome: Outcome) {
        let Some(ask) = self.asked.take() else { return };
        let offered = outcome.offered_pps();
        let mut load_pps = ask.load_pps;
        if outcome.fell_short {
            // What counts is the load that there was (RFC 2285, 3.5.2), not the one intended.
            load_pps = (offered as u64).clamp(self.limits.least_pps, ask.load_pps);
            // What it could do for a shorter time does not help.
            let as_long = self.offered.iter().filter(|(seconds, _)| *seconds >= ask.duration_s);
            let before = as_long.map(|(_, pps)| *pps).max().unwrap_or(0);
            self.generator_pps = Some(load_pps.max(before));
        } else {
            self.offered.push((ask.duration_s, load_pps));
        }
        let loss_ratio = outcome.loss_ratio();
        let forwarded = load_pps as f64 * (1.0 - loss_ratio);
        if ask.duration_s >= self.longest_s() {
            self.most_forwarded_pps = self.most_forwarded_pps.max(forwarded);
        }
        if self.used == 0 {
            self.forwarded_at_most_pps = forwarded;
        }
        self.used += 1;
        let trial = Trial {
            duration_s: ask.duration_s,
            effective_s: outcome.effective_s.max(ask.duration_s / 2.0),
            loss_ratio,
        };
        self.trials.entry(load_pps).or_default().push(trial);
    }

    /// The longest duration of any goal.
    fn longest_s(&self) -> f64 {
        self.goals.iter().map(|goal| goal.duration_s).fold(0.0, f64::max)
    }

    /// The highest load that may be asked for.
    fn top(&self) -> u64 {
        self.generator_pps.map_or(self.limits.most_pps, |pps| pps.min(self.limits.most_pps))
    }

    /// A goal as a phase wants it: wider and with shorter trials, of which one decides, before the
    /// last phase.
    fn target(&self, goal: &Goal, phase: u8) -> Goal {
        let last = self.limits.phases - 1;
        if phase >= last {
            return goal.clone();
        }
        let first_s = self.limits.first_s.min(goal.duration_s);
        let share = f64::from(phase) / f64::from(last);
        let duration_s = first_s * (goal.duration_s / first_s).powf(share);
        let width = (goal.width * f64::from(1u32 << (last - phase).min(16))).min(0.5);
        Goal { duration_s, sum_s: duration_s, width, ..goal.clone() }
    }

    /// The relevant bounds: the least load that is an upper bound, and the greatest below it that
    /// is a lower one.
    fn bounds(&self, target: &Goal) -> (Option<u64>, Option<u64>) {
        let mut lower = None;
        for (load, trials) in &self.trials {
            match target.class(trials) {
                Class::Upper => return (lower, Some(*load)),
                Class::Lower => lower = Some(*load),
                Class::Undecided => {}
            }
        }
        (lower, None)
    }

    /// Whether a target's bounds need no more trials.
    fn satisfied(&self, target: &Goal) -> bool {
        match self.bounds(target) {
            (Some(lower), Some(upper)) => {
                let gap = upper - lower;
                gap <= 1 || gap as f64 <= target.width * upper as f64 || lower >= self.top()
            }
            (Some(lower), None) => lower >= self.top(),
            (None, Some(upper)) => upper <= self.limits.least_pps,
            (None, None) => false,
        }
    }

    /// The load to try next for a target; `None` when its bounds are satisfied.
    fn candidate(&self, goal: &Goal, target: &Goal) -> Option<u64> {
        if self.satisfied(target) {
            return None;
        }
        let (lower, upper) = self.bounds(target);
        let above = lower.map_or(self.limits.least_pps, |lower| lower + 1);
        let below = upper.map_or(self.top(), |upper| (upper - 1).min(self.top()));
        let hint = self.hints(goal).into_iter().flatten().find(|h| (above..=below).contains(h));
        let load = hint.unwrap_or_else(|| match (lower, upper) {
            (Some(lower), Some(upper)) => middle(lower, upper),
            (Some(lower), None) => lower.saturating_add(self.step(target, lower, true)),
            (None, Some(upper)) => upper.saturating_sub(self.step(target, upper, false)),
            (None, None) => self.top(),
        });
        Some(load.clamp(above, below.max(above)))
    }

    /// Loads that are likely to be bounds: what the phase before found, lower and upper; in the
    /// first one what was forwarded when the most was offered.
    fn hints(&self, goal: &Goal) -> [Option<u64>; 2] {
        match self.phase.checked_sub(1) {
            Some(before) => {
                let (lower, upper) = self.bounds(&self.target(goal, before));
                [lower, upper]
            }
            None => [Some(self.forwarded_at_most_pps as u64), None],
        }
    }

    /// How far to go from the only bound there is: the target's width, and twice as far as the
    /// step before each time, but not below half.
    fn step(&self, target: &Goal, from: u64, up: bool) -> u64 {
        let wanted = if up { Class::Lower } else { Class::Upper };
        let decided =
            |(load, trials): (&u64, &Vec<Trial>)| (target.class(trials) == wanted).then_some(*load);
        let before = match up {
            true => self.trials.range(..from).filter_map(decided).next_back(),
            false => self.trials.range(from + 1..).filter_map(decided).next(),
        };
        let last = before.map_or(0, |before| before.abs_diff(from));
        let least = (target.width * from as f64) as u64;
        (2 * last).max(least).min(from / 2).max(1)
    }

    /// The trials so far, all loads together.
    pub const fn used(&self) -> u32 {
        self.used
    }

    /// What the generator can offer, if it could not offer all that it was asked for.
    pub const fn generator_limit_pps(&self) -> Option<u64> {
        self.generator_pps
    }

    /// The most that was forwarded in any trial of the longest duration (RFC 2285, 3.6.3).
    pub const fn most_forwarded_pps(&self) -> f64 {
        self.most_forwarded_pps
    }

    /// What was forwarded when the most was offered (RFC 2285, 3.6.2).
    pub const fn forwarded_at_most_pps(&self) -> f64 {
        self.forwarded_at_most_pps
    }

    /// What is known of each goal now.
    pub fn found(&self) -> Vec<Found> {
        let of = |goal: &Goal| {
            let (lower_pps, upper_pps) = self.bounds(goal);
            let throughput_pps = lower_pps.map(|load| {
                goal.conditional_throughput(load, self.trials.get(&load).map_or(&[], Vec::as_slice))
            });
            let finished = self.satisfied(goal);
            Found { goal: goal.clone(), lower_pps, upper_pps, throughput_pps, finished }
        };
        self.goals.iter().map(of).collect()
    }
}

/// Between two loads that are more than one apart: of far ones the geometric middle, since
/// widths are relative.
fn middle(lower: u64, upper: u64) -> u64 {
    let middle = match upper / lower.max(1) {
        0..=2 => lower + (upper - lower) / 2,
        _ => (lower as f64 * upper as f64).sqrt() as u64,
    };
    middle.clamp(lower + 1, upper - 1)
}
