//! Makes a failing run small: leaves out kinds of trouble, workers, and then actions, as long as it
//! still fails in the same way.

use crate::recipe::{Feature, Recipe};
use crate::{Failure, run};
use std::ops::RangeInclusive;

/// What a failure is about: its words without the numbers.
pub(crate) fn gist(what: &str) -> String {
    let tail = what.rsplit(": ").next().unwrap_or(what);
    tail.chars().filter(|c| c.is_ascii_alphabetic() || *c == ' ').take(24).collect()
}

struct Shrinker {
    best: Recipe,
    failure: Failure,
    gist: String,
    runs: u32,
}

/// A smaller recipe that fails like `recipe`, and how it fails; at most `runs` runs are tried.
pub fn shrink(recipe: &Recipe, failure: &Failure, runs: u32) -> (Recipe, Failure) {
    let mut shrinker = Shrinker {
        best: recipe.clone(),
        failure: failure.clone(),
        gist: gist(&failure.what),
        runs,
    };
    shrinker.cut();
    for feature in Feature::ALL {
        let mut smaller = shrinker.best.clone();
        smaller.without |= 1 << feature as u32;
        shrinker.attempt(smaller);
    }
    for workers in 1..4 {
        let smaller = Recipe { workers: Some(workers), ..shrinker.best.clone() };
        if shrinker.best.workers.is_none_or(|now| workers < now) && shrinker.attempt(smaller) {
            break;
        }
    }
    shrinker.actions();
    shrinker.cut();
    (shrinker.best, shrinker.failure)
}

impl Shrinker {
    /// Takes a recipe if it fails like the first one.
    fn attempt(&mut self, recipe: Recipe) -> bool {
        if self.runs == 0 || recipe == self.best {
            return false;
        }
        self.runs -= 1;
        match run(&recipe) {
            Err(failure) if gist(&failure.what) == self.gist => {
                (self.best, self.failure) = (recipe, failure);
                true
            }
            _ => false,
        }
    }

    /// Ends the run where it fails.
    fn cut(&mut self) {
        let ms = Some(self.failure.outcome.virtual_ms + 1);
        self.attempt(Recipe { ms, ..self.best.clone() });
    }

    /// Delta debugging over the actions (Zeller and Hildebrandt, 2002): leaves out ever smaller
    /// parts.
    fn actions(&mut self) {
        let last = self.failure.outcome.actions;
        let mut kept: Vec<u32> = (0..=last).filter(|action| self.best.allows(*action)).collect();
        let mut size = kept.len().div_ceil(2);
        while size > 0 && self.runs > 0 {
            let mut at = 0;
            let before = kept.len();
            self.cut();
            while at < kept.len() && self.runs > 0 {
                let end = (at + size).min(kept.len());
                let rest: Vec<u32> = kept[..at].iter().chain(&kept[end..]).copied().collect();
                let only = Some(ranges(&rest));
                if self.attempt(Recipe { only, ..self.best.clone() }) {
                    kept = rest;
                } else {
                    at = end;
                }
            }
            if kept.len() == before || size > kept.len() {
                size = if size == 1 { 0 } else { size.div_ceil(2).min(kept.len()) };
            }
        }
    }
}

pub(crate) fn ranges(sorted: &[u32]) -> Vec<RangeInclusive<u32>> {
    let mut out: Vec<RangeInclusive<u32>> = Vec::new();
    for number in sorted {
        match out.last_mut() {
            Some(last) if *last.end() + 1 == *number => *last = *last.start()..=*number,
            _ => out.push(*number..=*number),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), [1..=3, 7..=7, 9..=10]);
    }
}
