//! A table that is looked through while it is small and hashed when it is not: tunnels with one or
//! two remotes are common, and the comparison of a few keys costs less than any hash.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Entries that are looked through.
const FEW: usize = 8;

/// Keys and values; of two entries with one key the first counts.
#[derive(Clone, Debug)]
pub(super) enum Small<K, V> {
    Few(Vec<(K, V)>),
    Many(FxHashMap<K, V>),
}

impl<K: Copy + Eq + Hash, V: Copy> Small<K, V> {
    /// The value of a key.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<V> {
        match self {
            // To the end in any case: packets of many remotes make a poor branch predictor.
            Self::Few(few) => {
                few.iter().fold(
                    None,
                    |found, (other, value)| {
                        if other == key { Some(*value) } else { found }
                    },
                )
            }
            Self::Many(many) => many.get(key).copied(),
        }
    }
}

impl<K: Copy + Eq + Hash, V: Copy> FromIterator<(K, V)> for Small<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut all = FxHashMap::default();
        let mut few = Vec::new();
        for (key, value) in entries {
            all.entry(key).or_insert_with(|| {
                few.push((key, value));
                value
            });
        }
        if few.len() <= FEW { Self::Few(few) } else { Self::Many(all) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_found_alike() {
        for count in [0, 1, FEW, FEW + 1, 1000] {
            let twice = (0..count).map(|key| (key, key + 7)).chain((0..count).map(|key| (key, 0)));
            let table: Small<usize, usize> = twice.collect();
            assert_eq!(matches!(table, Small::Few(_)), count <= FEW);
            for key in 0..=count {
                assert_eq!(table.get(&key), (key < count).then_some(key + 7));
            }
        }
    }
}
