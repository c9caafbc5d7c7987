//! AVX2, and what came with it.

use super::{Instructions, Kernel, LANES, Lanes, Sealed};
use crate::tags::WIDTH;
use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_epi32, _mm256_and_si256,
    _mm256_blend_epi32, _mm256_blendv_epi8, _mm256_blendv_ps, _mm256_castps_si256,
    _mm256_castsi128_si256, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmpeq_epi16,
    _mm256_cmpeq_epi32, _mm256_extracti128_si256, _mm256_inserti128_si256, _mm256_loadu_si256,
    _mm256_min_epu32, _mm256_movemask_epi8, _mm256_movemask_ps, _mm256_mul_epu32, _mm256_or_si256,
    _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_setr_epi8, _mm256_setr_epi32,
    _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_slli_epi64, _mm256_srli_epi32,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_unpackhi_epi32,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

/// There is only one of these where the processor has AVX2, so that its methods may be called;
/// they are inlined into [`run`], which is compiled for it.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// The same, and where the processor has AVX-512 the compiler makes of it what is better: truths
/// in registers of their own, three operands to one step of logic. Eight lanes still, since most of
/// a kernel is loads that go lane by lane.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512vl,avx512bw,avx512dq")]
pub(super) fn run_512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

macro_rules! two {
    ($($name:ident: $intrinsic:ident,)*) => { $(
        #[inline(always)]
        fn $name(self, a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: see `Avx2`.
            unsafe { $intrinsic(a, b) }
        }
    )* };
}

impl Sealed for Avx2 {}

impl Instructions for Avx2 {
    type Eight = __m256i;

    two! {
        add: _mm256_add_epi32,
        sub: _mm256_sub_epi32,
        and: _mm256_and_si256,
        or: _mm256_or_si256,
        xor: _mm256_xor_si256,
        equal: _mm256_cmpeq_epi32,
        min: _mm256_min_epu32,
    }

    #[inline(always)]
    fn load(self, from: &Lanes<u32>) -> __m256i {
        // SAFETY: see `Avx2`; it is 32 bytes long, and an unaligned load is used.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, words: __m256i, to: &mut Lanes<u32>) {
        // SAFETY: see `Avx2`; it is 32 bytes long, and an unaligned store is used.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        // SAFETY: see `Avx2`.
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn shl<const BY: i32>(self, a: __m256i) -> __m256i {
        // SAFETY: see `Avx2`.
        unsafe { _mm256_slli_epi32::<BY>(a) }
    }

    #[inline(always)]
    fn shr<const BY: i32>(self, a: __m256i) -> __m256i {
        // SAFETY: see `Avx2`.
        unsafe { _mm256_srli_epi32::<BY>(a) }
    }

    #[inline(always)]
    fn multiply(self, a: __m256i, b: __m256i) -> [__m256i; 2] {
        // SAFETY: see `Avx2`.
        unsafe {
            // Every other lane is multiplied, so the odd ones by themselves.
            let even = _mm256_mul_epu32(a, b);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            let low = _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd));
            let high = _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(even), odd);
            [low, high]
        }
    }

    #[inline(always)]
    fn pick(self, truth: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see `Avx2`.
        unsafe { _mm256_blendv_epi8(b, a, truth) }
    }

    #[inline(always)]
    fn swap_bytes(self, a: __m256i) -> __m256i {
        // SAFETY: see `Avx2`.
        unsafe {
            let order = _mm256_setr_epi8(
                3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12, 3, 2, 1, 0, 7, 6, 5, 4, 11,
                10, 9, 8, 15, 14, 13, 12,
            );
            _mm256_shuffle_epi8(a, order)
        }
    }

    #[inline(always)]
    fn conflicts(self, a: __m256i) -> u8 {
        // SAFETY: see `Avx2`.
        let orders = unsafe {
            [
                _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0),
                _mm256_setr_epi32(2, 3, 4, 5, 6, 7, 0, 1),
                _mm256_setr_epi32(3, 4, 5, 6, 7, 0, 1, 2),
                _mm256_setr_epi32(4, 5, 6, 7, 0, 1, 2, 3),
            ]
        };
        let mut conflicts = 0;
        for (at, order) in orders.into_iter().enumerate() {
            // SAFETY: see `Avx2`.
            let other = unsafe { _mm256_permutevar8x32_epi32(a, order) };
            // Who equals the one so many lanes on, and that one.
            let equal = self.mask(self.equal(a, other));
            conflicts |= equal | equal.rotate_left(at as u32 + 1);
        }
        conflicts
    }

    #[inline(always)]
    fn mask(self, truth: __m256i) -> u8 {
        // SAFETY: see `Avx2`.
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(truth)) as u8 }
    }

    #[inline(always)]
    fn look_up(self, table: &[u32; 16], at: __m256i) -> __m256i {
        // SAFETY: see `Avx2`; both halves are 32 bytes long, and unaligned loads are used. The
        // permutations look at the lower three bits, the choice at the sign, where the fourth is
        // put.
        unsafe {
            let half = |from: usize| _mm256_loadu_si256(table[from..from + 8].as_ptr().cast());
            let low = _mm256_permutevar8x32_epi32(half(0), at);
            let high = _mm256_permutevar8x32_epi32(half(8), at);
            let is_high = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(at));
            let [low, high] = [low, high].map(|half| _mm256_castsi256_ps(half));
            _mm256_castps_si256(_mm256_blendv_ps(low, high, is_high))
        }
    }

    #[inline(always)]
    fn first_equal(self, words: &[u8; 32], tags: u32) -> Option<usize> {
        // SAFETY: see `Avx2`; it is 32 bytes long, and an unaligned load is used.
        let equal = unsafe {
            let words = _mm256_loadu_si256(words.as_ptr().cast());
            _mm256_movemask_epi8(_mm256_cmpeq_epi16(words, _mm256_set1_epi32(tags as i32)))
        };
        // Two bits for each word.
        let equal = equal as u32 & ((1 << (2 * WIDTH)) - 1);
        (equal != 0).then(|| equal.trailing_zeros() as usize / 2)
    }

    #[inline(always)]
    fn columns(self, rows: Lanes<&[u8; 16]>) -> [__m256i; 4] {
        // A row of the first four lanes beside one of the last four.
        let pair = |lane: usize| {
            // SAFETY: see `Avx2`; rows are 16 bytes long, and unaligned loads are used.
            unsafe {
                let low = _mm_loadu_si128(rows[lane].as_ptr().cast::<__m128i>());
                let high = _mm_loadu_si128(rows[lane + 4].as_ptr().cast::<__m128i>());
                _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
            }
        };
        // SAFETY: see `Avx2`.
        unsafe { turned([pair(0), pair(1), pair(2), pair(3)]) }
    }

    #[inline(always)]
    fn rows(self, columns: [__m256i; 4]) -> Lanes<[u32; 4]> {
        let mut rows = [[0; 4]; LANES];
        // SAFETY: see `Avx2`.
        let pairs = unsafe { turned(columns) };
        for (lane, pair) in pairs.into_iter().enumerate() {
            // SAFETY: see `Avx2`; rows are 16 bytes long, and unaligned stores are used.
            unsafe {
                let (low, high) = (rows[lane].as_mut_ptr(), rows[lane + 4].as_mut_ptr());
                _mm_storeu_si128(low.cast(), _mm256_castsi256_si128(pair));
                _mm_storeu_si128(high.cast(), _mm256_extracti128_si256::<1>(pair));
            }
        }
        rows
    }
}

/// Four by four words in each half, rows as columns; done twice it is undone.
#[target_feature(enable = "avx2")]
#[inline]
fn turned([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (ab_high, cd_high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}
