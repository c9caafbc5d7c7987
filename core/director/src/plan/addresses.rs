//! Which pool an address is one of: what every packet asks where there are several workers.
//!
//! Open addressing with three places of four free, so that most often one look decides, also for
//! addresses that are in no pool; a general map takes five times the instructions.

use rustc_hash::FxBuildHasher;
use std::hash::{BuildHasher, Hash};

/// Places for each address.
const PLACES_EACH: usize = 4;

/// Addresses and what each leads to.
#[derive(Clone, Debug)]
pub(super) struct Addresses<A> {
    /// A power of two of them, or none.
    places: Box<[Option<(A, u32)>]>,
    count: usize,
}

impl<A> Default for Addresses<A> {
    fn default() -> Self {
        Self { places: Box::default(), count: 0 }
    }
}

impl<A: Copy + Eq + Hash> Addresses<A> {
    /// Adds an address, if it is not there yet.
    pub fn add(&mut self, address: A, to: u32) {
        if self.get(address).is_some() {
            return;
        }
        if (self.count + 1) * PLACES_EACH > self.places.len() {
            let size = ((self.count + 1) * PLACES_EACH).next_power_of_two();
            let before = std::mem::replace(&mut self.places, vec![None; size].into_boxed_slice());
            before.into_iter().flatten().for_each(|(address, to)| self.put(address, to));
        }
        self.put(address, to);
        self.count += 1;
    }

    fn put(&mut self, address: A, to: u32) {
        let mut at = self.home(address);
        while self.places[at].is_some() {
            at = (at + 1) & self.mask();
        }
        self.places[at] = Some((address, to));
    }

    /// What the number of a place is taken modulo by.
    #[inline(always)]
    const fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn home(&self, address: A) -> usize {
        FxBuildHasher.hash_one(address) as usize & self.mask()
    }

    /// What an address leads to.
    #[inline(always)]
    pub fn get(&self, address: A) -> Option<u32> {
        let mut at = self.home(address);
        // There is a free place.
        while let Some((there, to)) = *self.places.get(at)? {
            if there == address {
                return Some(to);
            }
            at = (at + 1) & self.mask();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(
            added in proptest::collection::vec((0u32..200, any::<u32>()), 0..300),
            spread in prop_oneof![Just(1u32), Just(256), Just(0x9e37_79b1)],
        ) {
            let (mut map, mut model) = (Addresses::default(), BTreeMap::new());
            for (address, to) in added {
                map.add(address.wrapping_mul(spread), to);
                model.entry(address).or_insert(to);
            }
            for address in 0..400 {
                let expected = model.get(&address).copied();
                prop_assert_eq!(map.get(address.wrapping_mul(spread)), expected);
            }
        }
    }
}
