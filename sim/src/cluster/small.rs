//! Makes a failing run small: leaves out steps as long as it still fails in the same way.

use super::{Failure, Recipe, run};
use crate::shrink::{gist, ranges};

/// A smaller recipe that fails like `recipe`, and how it fails; at most `runs` runs are tried.
pub fn shrink(recipe: &Recipe, failure: &Failure, mut runs: u32) -> (Recipe, Failure) {
    let (mut best, mut last) = (recipe.clone(), failure.clone());
    let wanted = gist(&failure.what);
    let end = failure.outcome.steps as u32;
    let mut kept: Vec<u32> = (0..=end).filter(|step| recipe.allows(*step)).collect();
    let mut size = kept.len().div_ceil(2);
    while size > 0 && runs > 0 {
        let (mut at, before) = (0, kept.len());
        while at < kept.len() && runs > 0 {
            let end = (at + size).min(kept.len());
            let rest: Vec<u32> = kept[..at].iter().chain(&kept[end..]).copied().collect();
            let smaller = Recipe { only: Some(ranges(&rest)), ..best.clone() };
            runs -= 1;
            match run(&smaller) {
                Err(failure) if gist(&failure.what) == wanted => {
                    (best, last, kept) = (smaller, failure, rest);
                }
                _ => at = end,
            }
        }
        if kept.len() == before || size > kept.len() {
            size = if size == 1 { 0 } else { size.div_ceil(2).min(kept.len()) };
        }
    }
    (best, last)
}
