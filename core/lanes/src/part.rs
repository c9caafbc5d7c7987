//! Taking some of a burst's handles out of it: few as they come, the rest moved in between as a
//! whole, and many without a branch for any of them.

use arrayvec::ArrayVec;
use core::mem::MaybeUninit;

/// Marks of a word up to which they are few.
const FEW: u32 = 8;

/// Moves those that have a bit of `marks`, sixty-four to a word, behind those of `taken`, in their
/// order; the rest closes up.
///
/// # Panics
/// When `taken` is not empty, or there are more items than marks.
#[expect(unsafe_code)]
pub fn part<T, const N: usize, const WORDS: usize>(
    items: &mut ArrayVec<T, N>,
    marks: &[u64; WORDS],
    taken: &mut ArrayVec<T, N>,
) {
    assert!(taken.is_empty() && items.len() <= WORDS * 64);
    let Some(word) = marks.iter().position(|word| *word != 0) else { return };
    let (count, mut stay, mut gone) = (items.len(), word * 64, 0);
    if stay >= count {
        return;
    }
    let from = items.as_mut_ptr().cast::<MaybeUninit<T>>();
    let to = taken.as_mut_ptr().cast::<MaybeUninit<T>>();
    // SAFETY: neither has any item while they are moved, and nothing here panics. Each of the
    // `count` that were there is read once, ahead of everything that is written behind it, since
    // `stay <= at`; `gone <= at < N`. What is written last at a place below `stay` of the one and
    // below `gone` of the other is each of them once: every item makes one of them larger by one.
    unsafe {
        items.set_len(0);
        for (word, marks) in marks.iter().enumerate().skip(word) {
            let (mut left, mut at) = (*marks, word * 64);
            let end = count.min(at + 64);
            if left.count_ones() <= FEW {
                while left != 0 {
                    let next = word * 64 + left.trailing_zeros() as usize;
                    left &= left - 1;
                    if next >= end {
                        break;
                    }
                    core::ptr::copy(from.add(at), from.add(stay), next - at);
                    to.add(gone).write(from.add(next).read());
                    (stay, gone, at) = (stay + next - at, gone + 1, next + 1);
                }
                core::ptr::copy(from.add(at), from.add(stay), end.saturating_sub(at));
                stay += end.saturating_sub(at);
                continue;
            }
            while at < end {
                let item = from.add(at).read();
                let marked = (left & 1) as usize;
                to.add(gone).write(core::ptr::read(&raw const item));
                from.add(stay).write(item);
                left >>= 1;
                at += 1;
                gone += marked;
                stay += 1 - marked;
            }
        }
        items.set_len(stay);
        taken.set_len(gone);
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
            let (mut stay, mut taken) = (boxed.collect::<ArrayVec<_, 128>>(), ArrayVec::new());
            part(&mut stay, &marks, &mut taken);
            let (mut expected, mut out) = (Vec::new(), Vec::new());
            for (at, item) in items.into_iter().enumerate() {
                let marked = marks[at / 64] >> (at % 64) & 1 == 1;
                if marked { &mut out } else { &mut expected }.push(Box::new(item));
            }
            prop_assert_eq!((&stay[..], &taken[..]), (&expected[..], &out[..]));
        }
    }
}
