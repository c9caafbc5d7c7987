//! Comparing the ten 16-bit tags of an index bucket with one tag at once.

/// Tags in a bucket that are compared.
pub const WIDTH: usize = 10;
/// Words that are loaded: the tags and two that belong to the bucket.
pub const LOADED: usize = 12;

/// A bit for each of the first [`WIDTH`] words of `words` that equals `tag`.
#[inline(always)]
pub fn matching(words: &[u16; LOADED], tag: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    return sse2(words, tag);
    #[cfg(not(target_arch = "x86_64"))]
    return scalar(words, tag);
}

/// What [`matching`] does, word by word.
pub fn scalar(words: &[u16; LOADED], tag: u16) -> u32 {
    words[..WIDTH].iter().enumerate().fold(0, |mask, (i, word)| mask | u32::from(*word == tag) << i)
}

/// SSE2 is part of the x86-64 baseline, so no dispatch is needed; wider registers would not help,
/// since a bucket has ten tags.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn sse2(words: &[u16; LOADED], tag: u16) -> u32 {
    use core::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_loadl_epi64, _mm_loadu_si128, _mm_movemask_epi8,
        _mm_packs_epi16, _mm_set1_epi16,
    };
    let start = words.as_ptr();
    // SAFETY: the first load reads words 0..8 and the second words 8..12 of the twelve; unaligned
    // loads are used; SSE2 is part of the x86-64 baseline.
    let packed = unsafe {
        let wanted = _mm_set1_epi16(tag as i16);
        let low = _mm_cmpeq_epi16(_mm_loadu_si128(start.cast::<__m128i>()), wanted);
        let high = _mm_cmpeq_epi16(_mm_loadl_epi64(start.add(8).cast::<__m128i>()), wanted);
        _mm_movemask_epi8(_mm_packs_epi16(low, high))
    };
    packed as u32 & ((1 << WIDTH) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few distinct values, so that many match.
        #[test]
        fn kernel_equals_scalar(words in any::<[u8; LOADED]>(), tag in 0u16..4) {
            let words = words.map(|w| u16::from(w % 4));
            prop_assert_eq!(matching(&words, tag), scalar(&words, tag));
        }

        #[test]
        fn kernel_equals_scalar_on_any_words(words in any::<[u16; LOADED]>(), at in 0..LOADED) {
            prop_assert_eq!(matching(&words, words[at]), scalar(&words, words[at]));
        }
    }
}
