//! Chance from a seed: the same numbers on every machine and in every build.
//!
//! Whatever is random draws from a generator of its own, made from the seed and what it is for
//! (`Rng::of`), never from one that all share: so when the shrinker leaves one thing out, nothing
//! else changes.

/// A small generator (SplitMix64).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rng(u64);

/// One step of SplitMix64's output function.
pub(crate) const fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(scramble(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    /// The generator for one purpose.
    pub fn of(parts: &[u64]) -> Self {
        Self(parts.iter().fold(0, |state, part| {
            scramble(state.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part.wrapping_add(0x1234_5678))
        }))
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.next() as u128 * end as u128) >> 64) as u64
    }

    /// A number from `first` to `last`, both included.
    pub const fn range(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True `permille` times in a thousand.
    pub const fn chance(&mut self, permille: u32) -> bool {
        permille > 0 && self.below(1000) < permille as u64
    }

    /// One of `all`.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// The index of one of `weights`, each as often as its weight says.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut at = self.below(weights.iter().map(|w| u64::from(*w)).sum());
        for (index, weight) in weights.iter().enumerate() {
            match at.checked_sub(u64::from(*weight)) {
                Some(rest) => at = rest,
                None => return index,
            }
        }
        0
    }
}
