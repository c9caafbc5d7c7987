//! Elements of a slice at eight places: one comparison for all of them instead of one for each, and
//! no branches, so that what is read gets into vector registers the short way.

use crate::level::{Instructions, Lanes};
use crate::words::Words;

/// Elements to read.
#[derive(Clone, Copy, Debug)]
pub struct At<'a, T> {
    slice: &'a [T],
    /// Below the slice's length.
    places: Lanes<u32>,
}

impl<'a, T> At<'a, T> {
    /// The elements at these places; for a place beyond the last element that one. Also tells
    /// which places are not beyond. `None` if the slice is empty.
    #[inline(always)]
    pub fn cut<I: Instructions>(slice: &'a [T], places: Words<I>) -> Option<(Self, Words<I>)> {
        let last = Words::splat(places.instructions(), last_of(slice)?);
        let cut = places.least(last);
        let mut at = [0; _];
        cut.store(&mut at);
        Some((Self { slice, places: at }, cut.is(places)))
    }

    /// That of a lane.
    ///
    /// # Panics
    /// When there is no such lane.
    #[inline(always)]
    pub fn get(&self, lane: usize) -> &'a T {
        // SAFETY: `cut` has made each place the smaller of it and the slice's last, by instructions
        // that are this crate's own (`Instructions` is sealed) and held against a scalar twin by
        // tests. Neither slice nor places change afterwards.
        unsafe { self.slice.get_unchecked(self.places[lane] as usize) }
    }
}

/// The last place of a slice, or the last that a word can name; `None` if it is empty.
#[inline(always)]
fn last_of<T>(slice: &[T]) -> Option<u32> {
    let last = slice.len().checked_sub(1)?;
    Some(u32::try_from(last).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::{Kernel, Level};
    use proptest::prelude::*;

    /// What is at places, and which of them are there.
    struct Look<'a>(&'a [u16], Lanes<u32>);

    impl Kernel for Look<'_> {
        type Output = Option<(Lanes<u16>, u8)>;

        #[inline(always)]
        fn run<I: Instructions>(self, instructions: I) -> Self::Output {
            let (at, are_there) = At::cut(self.0, Words::load(instructions, &self.1))?;
            Some((std::array::from_fn(|lane| *at.get(lane)), are_there.mask()))
        }
    }

    proptest! {
        #[test]
        fn elements_at_places(
            all in proptest::collection::vec(any::<u16>(), 0..12),
            near in any::<Lanes<u8>>(),
            far in proptest::option::of(any::<Lanes<u32>>()),
        ) {
            let places = far.unwrap_or(near.map(|place| u32::from(place % 12)));
            for level in Level::available() {
                let Some((found, are_there)) = level.run(Look(&all, places)) else {
                    prop_assert!(all.is_empty());
                    continue;
                };
                for (lane, place) in places.iter().enumerate() {
                    let place = *place as usize;
                    prop_assert_eq!(found[lane], all[place.min(all.len() - 1)]);
                    prop_assert_eq!(are_there >> lane & 1 == 1, place < all.len());
                }
            }
        }
    }
}
