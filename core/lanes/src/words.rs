//! Eight 32-bit words that are calculated with as one is.

use crate::level::{Instructions, Lanes};
use std::ops::{Add, BitAnd, BitOr, BitXor, Not, Sub};

/// Eight words, one for each lane. Sums and differences wrap; comparisons are without signs and
/// give all ones where they hold.
#[derive(Clone, Copy)]
pub struct Words<I: Instructions>(I, I::Eight);

macro_rules! operator {
    ($($trait:ident $name:ident,)*) => { $(
        impl<I: Instructions> $trait for Words<I> {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                Self(self.0, operator!(@call $name, self, other))
            }
        }

        impl<I: Instructions> $trait<u32> for Words<I> {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: u32) -> Self {
                self.$name(Self::splat(self.0, other))
            }
        }
    )* };
    (@call add, $a:ident, $b:ident) => { $a.0.add($a.1, $b.1) };
    (@call sub, $a:ident, $b:ident) => { $a.0.sub($a.1, $b.1) };
    (@call bitand, $a:ident, $b:ident) => { $a.0.and($a.1, $b.1) };
    (@call bitor, $a:ident, $b:ident) => { $a.0.or($a.1, $b.1) };
    (@call bitxor, $a:ident, $b:ident) => { $a.0.xor($a.1, $b.1) };
}

operator! {
    Add add,
    Sub sub,
    BitAnd bitand,
    BitOr bitor,
    BitXor bitxor,
}

impl<I: Instructions> Not for Words<I> {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        self ^ u32::MAX
    }
}

impl<I: Instructions> Words<I> {
    /// Eight times the same.
    #[inline(always)]
    pub fn splat(instructions: I, word: u32) -> Self {
        Self(instructions, instructions.splat(word))
    }

    /// What they are calculated with.
    #[inline(always)]
    pub(crate) const fn instructions(self) -> I {
        self.0
    }

    /// Words out of memory.
    #[inline(always)]
    pub fn load(instructions: I, from: &Lanes<u32>) -> Self {
        Self(instructions, instructions.load(from))
    }

    /// Words into memory.
    #[inline(always)]
    pub fn store(self, to: &mut Lanes<u32>) {
        self.0.store(self.1, to);
    }

    /// Whole products: their lower and their upper halves.
    #[inline(always)]
    #[must_use]
    pub fn multiply(self, other: Self) -> [Self; 2] {
        self.0.multiply(self.1, other.1).map(|half| Self(self.0, half))
    }

    /// Bits moved up.
    #[inline(always)]
    #[must_use]
    pub fn shl<const BY: i32>(self) -> Self {
        Self(self.0, self.0.shl::<BY>(self.1))
    }

    /// Bits moved down.
    #[inline(always)]
    #[must_use]
    pub fn shr<const BY: i32>(self) -> Self {
        Self(self.0, self.0.shr::<BY>(self.1))
    }

    /// Whether each equals the other.
    #[inline(always)]
    #[must_use]
    pub fn is(self, other: Self) -> Self {
        Self(self.0, self.0.equal(self.1, other.1))
    }

    /// Whether each equals a number.
    #[inline(always)]
    #[must_use]
    pub fn is_word(self, word: u32) -> Self {
        self.is(Self::splat(self.0, word))
    }

    /// The smaller of both.
    #[inline(always)]
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self(self.0, self.0.min(self.1, other.1))
    }

    /// Whether each is at most the other.
    #[inline(always)]
    #[must_use]
    pub fn at_most(self, other: Self) -> Self {
        self.least(other).is(self)
    }

    /// Whether each is at least so much.
    #[inline(always)]
    #[must_use]
    pub fn at_least(self, word: u32) -> Self {
        Self::splat(self.0, word).at_most(self)
    }

    /// Of each lane `yes` where this is a truth, `no` where it is none.
    #[inline(always)]
    #[must_use]
    pub fn pick(self, yes: Self, no: Self) -> Self {
        Self(self.0, self.0.pick(self.1, yes.1, no.1))
    }

    /// Bytes of each in reverse order.
    #[inline(always)]
    #[must_use]
    pub fn swap_bytes(self) -> Self {
        Self(self.0, self.0.swap_bytes(self.1))
    }

    /// Of a table of sixteen the words that the lower four bits of each say.
    #[inline(always)]
    #[must_use]
    pub fn of(self, table: &[u32; 16]) -> Self {
        Self(self.0, self.0.look_up(table, self.1))
    }

    /// Eight rows of four words each as four columns.
    #[inline(always)]
    pub fn columns(instructions: I, rows: Lanes<&[u8; 16]>) -> [Self; 4] {
        instructions.columns(rows).map(|column| Self(instructions, column))
    }

    /// Four columns as eight rows.
    #[inline(always)]
    pub fn rows(columns: [Self; 4]) -> Lanes<[u32; 4]> {
        columns[0].0.rows(columns.map(|column| column.1))
    }

    /// A bit for each lane that has what another lane has.
    #[inline(always)]
    pub fn conflicts(self) -> u8 {
        self.0.conflicts(self.1)
    }

    /// A bit for each truth, the first lane's lowest.
    #[inline(always)]
    pub fn mask(self) -> u8 {
        self.0.mask(self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::{Kernel, LANES, Level};
    use proptest::prelude::*;

    /// Every operation.
    struct All(Lanes<u32>, Lanes<u32>, Lanes<bool>);

    impl Kernel for All {
        type Output = (Vec<Lanes<u32>>, u8, u8);

        #[inline(always)]
        fn run<I: Instructions>(self, instructions: I) -> Self::Output {
            let (a, b) = (Words::load(instructions, &self.0), Words::load(instructions, &self.1));
            let truth = Words::load(instructions, &self.2.map(u32::from)).is_word(1);
            let [low, high] = a.multiply(b);
            let results = [
                low,
                high,
                a + b,
                a - b,
                a & b,
                a | b,
                a ^ b,
                !a,
                a + 7,
                a.shl::<16>(),
                a.shr::<8>(),
                a.is(b),
                a.is_word(self.0[3]),
                a.at_most(b),
                a.at_least(self.0[5]),
                truth.pick(a, b),
                a.swap_bytes(),
                a.of(&std::array::from_fn(|at| 100 + at as u32)),
            ];
            let store = |words: Words<I>| {
                let mut out = [0; LANES];
                words.store(&mut out);
                out
            };
            (results.map(store).to_vec(), truth.mask(), (a & 7).conflicts())
        }
    }

    fn bytes(row: [u32; 4]) -> [u8; 16] {
        std::array::from_fn(|at| row[at / 4].to_ne_bytes()[at % 4])
    }

    /// Rows as columns, and as rows again.
    struct Transpose<'a>(Lanes<&'a [u8; 16]>);

    impl Kernel for Transpose<'_> {
        type Output = ([Lanes<u32>; 4], Lanes<[u32; 4]>);

        #[inline(always)]
        fn run<I: Instructions>(self, instructions: I) -> Self::Output {
            let columns = Words::columns(instructions, self.0);
            let stored = columns.map(|words| {
                let mut out = [0; LANES];
                words.store(&mut out);
                out
            });
            (stored, Words::rows(columns))
        }
    }

    struct FirstEqual<'a>(&'a [u8; 32], u16);

    impl Kernel for FirstEqual<'_> {
        type Output = Option<usize>;

        #[inline(always)]
        fn run<I: Instructions>(self, instructions: I) -> Self::Output {
            instructions.first_equal(self.0, u32::from(self.1) << 16 | u32::from(self.1))
        }
    }

    proptest! {
        /// Few distinct words, so that many match; also where none are looked at.
        #[test]
        fn the_first_equal(words in any::<[u8; 16]>(), tag in 0u16..4) {
            let word = |at: usize| if at.is_multiple_of(2) { words[at / 2] % 4 } else { 0 };
            let words: [u8; 32] = std::array::from_fn(word);
            let plain = Level::BASELINE.run(FirstEqual(&words, tag));
            for level in Level::available() {
                prop_assert_eq!(level.run(FirstEqual(&words, tag)), plain);
            }
            let ten = words.as_chunks::<2>().0.iter().take(10);
            let equal = |word: &[u8; 2]| u16::from_ne_bytes(*word) == tag;
            prop_assert_eq!(ten.map(equal).position(|equal| equal), plain);
        }

        #[test]
        fn wide_instructions_do_what_scalar_ones_do(
            a in any::<Lanes<u32>>(),
            other in any::<Lanes<u32>>(),
            same in any::<Lanes<bool>>(),
        ) {
            let b = std::array::from_fn(|at| if same[at] { a[at] } else { other[at] });
            let plain = Level::BASELINE.run(All(a, b, same));
            for level in Level::available() {
                prop_assert_eq!(&level.run(All(a, b, same)), &plain);
            }
            let (words, mask, conflicts) = plain;
            for at in 0..LANES {
                let truth = |of: bool| if of { u32::MAX } else { 0 };
                let product = u64::from(a[at]) * u64::from(b[at]);
                let expected = [
                    product as u32,
                    (product >> 32) as u32,
                    a[at].wrapping_add(b[at]),
                    a[at].wrapping_sub(b[at]),
                    a[at] & b[at],
                    a[at] | b[at],
                    a[at] ^ b[at],
                    !a[at],
                    a[at].wrapping_add(7),
                    a[at] << 16,
                    a[at] >> 8,
                    truth(a[at] == b[at]),
                    truth(a[at] == a[3]),
                    truth(a[at] <= b[at]),
                    truth(a[at] >= a[5]),
                    if same[at] { a[at] } else { b[at] },
                    a[at].swap_bytes(),
                    100 + a[at] % 16,
                ];
                let got: Vec<u32> = words.iter().map(|words| words[at]).collect();
                prop_assert_eq!(got, expected);
                prop_assert_eq!(mask >> at & 1 == 1, same[at]);
                let alike = a.iter().filter(|word| *word % 8 == a[at] % 8).count();
                prop_assert_eq!(conflicts >> at & 1 == 1, alike > 1);
            }
        }

        #[test]
        fn rows_and_columns(rows in any::<Lanes<[u32; 4]>>()) {
            for level in Level::available() {
                let bytes = rows.map(bytes);
                let (columns, again) = level.run(Transpose(bytes.each_ref()));
                prop_assert_eq!(again, rows);
                for (lane, row) in rows.iter().enumerate() {
                    prop_assert_eq!(&columns.map(|column| column[lane]), row);
                }
            }
        }
    }
}
