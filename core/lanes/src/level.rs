//! What the processor has beyond its baseline, found once, and the way to run code compiled for it.
//!
//! A [`Kernel`] is written once, over [`Words`] of eight lanes. [`Level::run`] compiles it for
//! every level and calls the one that fits; that of the baseline is the scalar twin of each.
//!
//! [`Words`]: crate::words::Words

#[cfg(target_arch = "x86_64")]
mod avx2;
mod scalar;

use sealed::Sealed;

mod sealed {
    /// Keeps other crates from having [`super::Instructions`] of their own.
    pub trait Sealed {}
}

/// Lanes that a kernel works on at once.
pub const LANES: usize = 8;

/// One value for each lane.
pub type Lanes<T> = [T; LANES];

/// Does the same for every lane, each in a text of its own: a loop would cost an instruction in
/// ten, and its places would not be known beforehand.
#[macro_export]
macro_rules! each_lane {
    ($lane:ident => $act:expr) => {{
        $crate::each_lane!(@ $lane $act; 0 1 2 3 4 5 6 7);
    }};
    (@ $lane:ident $act:expr; $($at:literal)*) => { $(
        {
            let $lane: usize = $at;
            $act;
        }
    )* };
}

/// Work that is compiled for every level. `run` has to be `#[inline(always)]`, and all that it
/// calls in its inner loops too: what is not inlined is compiled for the baseline.
pub trait Kernel {
    /// What it gives.
    type Output;

    /// Does it.
    fn run<I: Instructions>(self, instructions: I) -> Self::Output;
}

/// Eight 32-bit words at once, and what can be done with them. A truth is all ones, its contrary
/// zero. See [`crate::words::Words`] for the readable side.
///
/// Only this crate has any: [`crate::at::At`] reads memory by what they say is the smaller number.
pub trait Instructions: Copy + Sealed {
    /// Eight words.
    type Eight: Copy;

    /// Words out of memory.
    fn load(self, from: &Lanes<u32>) -> Self::Eight;
    /// Words into memory.
    fn store(self, words: Self::Eight, to: &mut Lanes<u32>);
    /// Eight times the same.
    fn splat(self, word: u32) -> Self::Eight;
    /// Wrapping sums.
    fn add(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Wrapping differences.
    fn sub(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Whole products: their lower and their upper halves.
    fn multiply(self, a: Self::Eight, b: Self::Eight) -> [Self::Eight; 2];
    /// Bits of both.
    fn and(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Bits of either.
    fn or(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Bits of one.
    fn xor(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Bits moved up, zeros behind them.
    fn shl<const BY: i32>(self, a: Self::Eight) -> Self::Eight;
    /// Bits moved down, zeros before them.
    fn shr<const BY: i32>(self, a: Self::Eight) -> Self::Eight;
    /// Whether they are equal.
    fn equal(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// The smaller ones, without signs.
    fn min(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a` where `truth` is, `b` where it is not.
    fn pick(self, truth: Self::Eight, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Bytes of each in reverse order.
    fn swap_bytes(self, a: Self::Eight) -> Self::Eight;
    /// A bit for each lane that has what another lane has.
    fn conflicts(self, a: Self::Eight) -> u8;
    /// A bit for each truth, the first lane's lowest.
    fn mask(self, truth: Self::Eight) -> u8;
    /// Of a table of sixteen the words that the lower four bits of each lane say.
    fn look_up(self, table: &[u32; 16], at: Self::Eight) -> Self::Eight;
    /// The first of the first ten 16-bit words that equals a tag, which both halves of `tags` are.
    fn first_equal(self, words: &[u8; 32], tags: u32) -> Option<usize>;
    /// Eight rows of four words each as four columns.
    fn columns(self, rows: Lanes<&[u8; 16]>) -> [Self::Eight; 4];
    /// Four columns as eight rows.
    fn rows(self, columns: [Self::Eight; 4]) -> Lanes<[u32; 4]>;
}

/// What the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Which);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// What every processor of the architecture has.
    pub const BASELINE: Self = Self(Which::Baseline);

    /// The most that this processor has.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::BASELINE)
    }

    /// All that this processor has, the least first.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let more = {
            let avx2 = has_all(&["avx2", "bmi1", "bmi2", "lzcnt", "popcnt"]);
            let avx512 = has_all(&["avx512f", "avx512vl", "avx512bw", "avx512dq"]);
            [(Which::Avx2, avx2), (Which::Avx512, avx2 && avx512)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let more: [(Which, bool); 0] = [];
        let more = more.into_iter().filter_map(|(which, has)| has.then_some(Self(which)));
        std::iter::once(Self::BASELINE).chain(more)
    }

    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Which::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Which::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Which::Avx512 => "avx512",
        }
    }

    /// Runs a kernel.
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Which::Baseline => scalar::run(kernel),
            // SAFETY: only `available` makes this level, where the processor has all of it.
            #[cfg(target_arch = "x86_64")]
            Which::Avx2 => unsafe { avx2::run(kernel) },
            // SAFETY: only `available` makes this level, where the processor has all of it.
            #[cfg(target_arch = "x86_64")]
            Which::Avx512 => unsafe { avx2::run_512(kernel) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_all(names: &[&str]) -> bool {
    names.iter().all(|name| has(name))
}

#[cfg(target_arch = "x86_64")]
fn has(name: &str) -> bool {
    match name {
        "avx2" => std::arch::is_x86_feature_detected!("avx2"),
        "avx512f" => std::arch::is_x86_feature_detected!("avx512f"),
        "avx512vl" => std::arch::is_x86_feature_detected!("avx512vl"),
        "avx512bw" => std::arch::is_x86_feature_detected!("avx512bw"),
        "avx512dq" => std::arch::is_x86_feature_detected!("avx512dq"),
        "bmi1" => std::arch::is_x86_feature_detected!("bmi1"),
        "bmi2" => std::arch::is_x86_feature_detected!("bmi2"),
        "lzcnt" => std::arch::is_x86_feature_detected!("lzcnt"),
        "popcnt" => std::arch::is_x86_feature_detected!("popcnt"),
        _ => false,
    }
}
