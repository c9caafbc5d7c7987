//! A set of positions that finds the next one of its members in a few steps, however many there
//! are and however few of them are members: a bit each, a bit for each word of those, and so on.

/// A set of numbers below a fixed limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Positions {
    /// Bits; in every level but the first, one for each word of the level before, set if that
    /// word is not 0. The last level is one word.
    levels: Vec<Vec<u64>>,
    limit: u32,
}

impl Positions {
    /// An empty set for the numbers below `limit`.
    pub(super) fn new(limit: u32) -> Self {
        let mut levels = Vec::new();
        let mut words = limit as usize;
        loop {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels, limit };
            }
        }
    }

    /// Puts a position in or takes it out. One that is not below the limit is ignored.
    pub(super) fn set(&mut self, position: u32, member: bool) {
        let mut at = position as usize;
        if position >= self.limit {
            return;
        }
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let before = *word;
            let bit = 1 << (at % 64);
            *word = if member { before | bit } else { before & !bit };
            if (before == 0) == (*word == 0) {
                return;
            }
            at /= 64;
        }
    }

    /// Whether a position is in it.
    #[inline]
    pub(super) fn contains(&self, position: u32) -> bool {
        let word = self.levels.first().and_then(|bits| bits.get(position as usize / 64));
        word.is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    /// The first member from `from` on.
    #[inline]
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        // Most sets are one word.
        if let [level] = &self.levels[..]
            && let [word] = level[..]
        {
            let rest = word.checked_shr(from)?;
            return (rest != 0).then(|| from + rest.trailing_zeros());
        }
        let mut at = from as usize;
        for (height, level) in self.levels.iter().enumerate() {
            let rest = level.get(at / 64)? >> (at % 64);
            if rest != 0 {
                at += rest.trailing_zeros() as usize;
                for below in self.levels[..height].iter().rev() {
                    at = at * 64 + below[at].trailing_zeros() as usize;
                }
                return Some(at as u32);
            }
            at = at / 64 + 1;
        }
        None
    }

    /// The first member from `from` on, going on at 0 after the last one.
    #[inline]
    pub(super) fn next_around(&self, from: u32) -> Option<u32> {
        self.next(from).or_else(|| self.next(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(
            limit in prop_oneof![1u32..70, 1u32..20_000],
            steps in prop::collection::vec((any::<u32>(), any::<bool>()), 1..200),
        ) {
            let mut set = Positions::new(limit);
            let mut model = BTreeSet::new();
            for (number, member) in steps {
                let at = number % limit;
                set.set(at, member);
                if member { model.insert(at); } else { model.remove(&at); }
                for from in [0, at, at + 1, at.wrapping_mul(7) % limit, limit, u32::MAX] {
                    prop_assert_eq!(set.next(from), model.range(from..).next().copied());
                    prop_assert_eq!(set.contains(from), model.contains(&from));
                }
            }
        }
    }

    #[test]
    fn of_nothing() {
        let mut set = Positions::new(0);
        set.set(0, true);
        assert_eq!((set.next_around(0), set.contains(0)), (None, false));
    }
}
