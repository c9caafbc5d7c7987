//! Taking some of a burst's handles out of it. The others move one by one, so that no branch
//! depends on which they are.

use arrayvec::ArrayVec;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::slice::Iter;

/// Takes those that have a bit of `marks`, sixty-four to a word, and gives them away, in their
/// order; the rest closes up. Those that `give` leaves are dropped; when it panics, all are lost.
///
/// # Panics
/// When there are more items than marks.
#[expect(unsafe_code)]
pub fn part<T, const N: usize, const WORDS: usize>(
    items: &mut ArrayVec<T, N>,
    marks: &[u64; WORDS],
    give: impl FnOnce(&mut Marked<'_, T>),
) {
    assert!(items.len() <= WORDS * 64);
    let (count, from) = (items.len(), items.as_mut_ptr().cast::<MaybeUninit<T>>());
    let mut marks = *marks;
    for (word, marks) in marks.iter_mut().enumerate() {
        let here = count.saturating_sub(word * 64).min(64) as u32;
        *marks &= u64::MAX.checked_shr(64 - here).unwrap_or(0);
    }
    // SAFETY: there is no item from here on until they have moved.
    unsafe { items.set_len(0) };
    let [first, later @ ..] = marks.as_slice() else { return };
    let mut marked =
        Marked { from, left: *first, begin: 0, later: later.iter(), items: PhantomData };
    give(&mut marked);
    marked.for_each(drop);
    // SAFETY: each of the `count` that were there is read where it was, if it has no mark: those
    // that have one were read as items, once. What is written ahead of it lies below it, since
    // `stay` grows by at most one for each place. What is below `stay` in the end are those that
    // are not marked.
    unsafe { items.set_len(close_up(from, count, &marks)) };
}

/// The marked of some items, in their order.
pub struct Marked<'a, T> {
    from: *mut MaybeUninit<T>,
    /// Bits of the word that begins here that were not taken yet, and the words after it.
    left: u64,
    begin: usize,
    later: Iter<'a, u64>,
    items: PhantomData<&'a mut T>,
}

impl<T> Iterator for Marked<'_, T> {
    type Item = T;

    #[inline(always)]
    #[expect(unsafe_code)]
    fn next(&mut self) -> Option<T> {
        while self.left == 0 {
            self.left = *self.later.next()?;
            self.begin += 64;
        }
        let at = self.begin + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        // SAFETY: only `part` makes these, of marks of items that are there, and leaves the items
        // alone meanwhile. Each mark is taken once.
        Some(unsafe { self.from.add(at).read().assume_init() })
    }
}

/// Moves those of `count` items that have no mark to the front, and gives how many they are.
///
/// # Safety
/// `from` is where the items are, and none has a mark that is not there.
#[expect(unsafe_code)]
#[inline(always)]
unsafe fn close_up<T>(from: *mut MaybeUninit<T>, count: usize, marks: &[u64]) -> usize {
    let mut stay = 0;
    for (word, marks) in marks.iter().enumerate() {
        let begin = word * 64;
        let end = count.min(begin + 64);
        if begin >= end {
            break;
        }
        let mut left = !marks & u64::MAX >> (64 - (end - begin));
        while left != 0 {
            // SAFETY: both places are below `end`, and what is written to is none that is read
            // later.
            unsafe {
                from.add(stay).write(from.add(begin + left.trailing_zeros() as usize).read());
            }
            left &= left - 1;
            stay += 1;
        }
    }
    stay
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As one at a time would go; what nobody takes is dropped.
        #[test]
        fn each_goes_where_its_mark_says(
            items in proptest::collection::vec(any::<u16>(), 0..=128),
            marks in any::<[u64; 2]>(),
            few in any::<[u64; 2]>(),
            fewer in any::<u64>(),
            most in prop_oneof![Just(128), 0usize..128],
        ) {
            // Some words have many, some few, some none.
            let marks = [marks[0] & few[0], marks[1] & few[1] & fewer & fewer >> 7];
            let boxed = items.iter().map(|item| Box::new(*item));
            let (mut stay, mut taken) = (boxed.collect::<ArrayVec<_, 128>>(), Vec::new());
            part(&mut stay, &marks, |marked| taken.extend(marked.take(most)));
            let (mut expected, mut out) = (Vec::new(), Vec::new());
            for (at, item) in items.into_iter().enumerate() {
                let marked = marks[at / 64] >> (at % 64) & 1 == 1;
                if marked { &mut out } else { &mut expected }.push(Box::new(item));
            }
            out.truncate(most);
            prop_assert_eq!((&stay[..], &taken[..]), (&expected[..], &out[..]));
        }
    }
}
