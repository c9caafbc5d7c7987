//! The scalar twin: what each instruction does, lane by lane.

use super::{Instructions, Kernel, LANES, Lanes, Sealed};
use crate::tags::WIDTH;

#[derive(Clone, Copy)]
struct Scalar;

/// By itself: where it runs, calls are the least of it, and elsewhere it is in nobody's way.
#[inline(never)]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Scalar)
}

#[inline(always)]
fn each(word: impl Fn(usize) -> u32) -> Lanes<u32> {
    std::array::from_fn(word)
}

const fn truth(of: bool) -> u32 {
    if of { u32::MAX } else { 0 }
}

impl Sealed for Scalar {}

impl Instructions for Scalar {
    type Eight = Lanes<u32>;

    fn load(self, from: &Lanes<u32>) -> Lanes<u32> {
        *from
    }

    fn store(self, words: Lanes<u32>, to: &mut Lanes<u32>) {
        *to = words;
    }

    fn splat(self, word: u32) -> Lanes<u32> {
        [word; LANES]
    }

    fn add(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at].wrapping_add(b[at]))
    }

    fn sub(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at].wrapping_sub(b[at]))
    }

    fn multiply(self, a: Lanes<u32>, b: Lanes<u32>) -> [Lanes<u32>; 2] {
        let product = |at: usize| u64::from(a[at]) * u64::from(b[at]);
        [each(|at| product(at) as u32), each(|at| (product(at) >> 32) as u32)]
    }

    fn and(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at] & b[at])
    }

    fn or(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at] | b[at])
    }

    fn xor(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at] ^ b[at])
    }

    fn shl<const BY: i32>(self, a: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at] << BY)
    }

    fn shr<const BY: i32>(self, a: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at] >> BY)
    }

    fn equal(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        each(|at| truth(a[at] == b[at]))
    }

    fn min(self, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at].min(b[at]))
    }

    fn pick(self, truth: Lanes<u32>, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u32> {
        each(|at| truth[at] & a[at] | !truth[at] & b[at])
    }

    fn swap_bytes(self, a: Lanes<u32>) -> Lanes<u32> {
        each(|at| a[at].swap_bytes())
    }

    fn conflicts(self, a: Lanes<u32>) -> u8 {
        let has_twin = |lane: usize| (0..LANES).any(|at| at != lane && a[at] == a[lane]);
        (0..LANES).fold(0, |mask, lane| mask | u8::from(has_twin(lane)) << lane)
    }

    fn mask(self, truth: Lanes<u32>) -> u8 {
        truth.iter().enumerate().fold(0, |mask, (lane, word)| mask | ((word >> 31) as u8) << lane)
    }

    fn look_up(self, table: &[u32; 16], at: Lanes<u32>) -> Lanes<u32> {
        each(|lane| table[(at[lane] & 15) as usize])
    }

    fn first_equal(self, words: &[u8; 32], tags: u32) -> Option<usize> {
        words[..2 * WIDTH]
            .as_chunks::<2>()
            .0
            .iter()
            .position(|word| u16::from_ne_bytes(*word) == tags as u16)
    }

    fn columns(self, rows: Lanes<&[u8; 16]>) -> [Lanes<u32>; 4] {
        std::array::from_fn(|column| {
            each(|lane| u32::from_ne_bytes(rows[lane].as_chunks::<4>().0[column]))
        })
    }

    fn rows(self, columns: [Lanes<u32>; 4]) -> Lanes<[u32; 4]> {
        std::array::from_fn(|lane| columns.each_ref().map(|column| column[lane]))
    }
}
