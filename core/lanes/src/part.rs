//! Taking some of a burst's handles out of it. Where they are few, what is between them moves as a
//! whole, otherwise one by one; no branch depends on which they are.

use arrayvec::ArrayVec;
use core::mem::MaybeUninit;

/// Marks of a word up to which they are few.
const FEW: u32 = 8;

/// Takes those that have a bit of `marks`, sixty-four to a word, and gives each away, in their
/// order; the rest closes up. What `give` leaves behind when it panics is lost.
///
/// # Panics
/// When there are more items than marks.
#[expect(unsafe_code)]
pub fn part<T, const N: usize, const WORDS: usize>(
    items: &mut ArrayVec<T, N>,
    marks: &[u64; WORDS],
    mut give: impl FnMut(T),
) {
    assert!(items.len() <= WORDS * 64);
    let (count, from) = (items.len(), items.as_mut_ptr().cast::<MaybeUninit<T>>());
    let mut stay = 0;
    // SAFETY: there is no item while they are moved. Each of the `count` that were there is read
    // where it was, and what is marked is read as an item once: what is written ahead of it lies
    // below it, since `stay` grows by at most one for each place. What is below `stay` in the end
    // are those that are not marked.
    unsafe {
        items.set_len(0);
        for (word, marks) in marks.iter().enumerate() {
            let begin = word * 64;
            let end = count.min(begin + 64);
            if begin >= end {
                break;
            }
            let marks = marks & u64::MAX >> (64 - (end - begin));
            let (mut left, mut at) = (marks, begin);
            while left != 0 {
                give(from.add(begin + left.trailing_zeros() as usize).read().assume_init());
                left &= left - 1;
            }
            if marks.count_ones() <= FEW {
                let mut left = marks;
                while left != 0 {
                    let next = begin + left.trailing_zeros() as usize;
                    left &= left - 1;
                    core::ptr::copy(from.add(at), from.add(stay), next - at);
                    (stay, at) = (stay + next - at, next + 1);
                }
                core::ptr::copy(from.add(at), from.add(stay), end - at);
                stay += end - at;
            } else {
                let mut left = !marks & u64::MAX >> (64 - (end - begin));
                while left != 0 {
                    from.add(stay).write(from.add(begin + left.trailing_zeros() as usize).read());
                    left &= left - 1;
                    stay += 1;
                }
            }
        }
        items.set_len(stay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As one at a time would go.
        #[test]
        fn each_goes_where_its_mark_says(
            items in proptest::collection::vec(any::<u16>(), 0..=128),
            marks in any::<[u64; 2]>(),
            few in any::<[u64; 2]>(),
            fewer in any::<u64>(),
        ) {
            // Some words have many, some few, some none.
            let marks = [marks[0] & few[0], marks[1] & few[1] & fewer & fewer >> 7];
            let boxed = items.iter().map(|item| Box::new(*item));
            let (mut stay, mut taken) = (boxed.collect::<ArrayVec<_, 128>>(), Vec::new());
            part(&mut stay, &marks, |item| taken.push(item));
            let (mut expected, mut out) = (Vec::new(), Vec::new());
            for (at, item) in items.into_iter().enumerate() {
                let marked = marks[at / 64] >> (at % 64) & 1 == 1;
                if marked { &mut out } else { &mut expected }.push(Box::new(item));
            }
            prop_assert_eq!((&stay[..], &taken[..]), (&expected[..], &out[..]));
        }
    }
}
