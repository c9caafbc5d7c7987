//! Copying a frame between memory shared with others and a packet buffer, by vector moves.
//!
//! Exactly as many bytes as the frame has: a copy that ran over would show a peer what another
//! network's frame left in the buffer.

/// Frames up to this length are copied here; longer ones gain nothing from it.
const MOST: usize = 256;

/// Copies `length` bytes.
///
/// # Safety
/// `from` may be read and `to` written for `length` bytes, and they do not overlap. The source may
/// be changed by another process meanwhile: the copy then has bytes from before or after.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: each part lies within the first `length` bytes: the last part of two that overlap
    // ends with them, and its length is at most theirs.
    unsafe {
        match length {
            33..=MOST => {
                let mut at = 0;
                while at + 32 < length {
                    part::<32>(from, to, at);
                    at += 32;
                }
                part::<32>(from, to, length - 32);
            }
            16..=32 => {
                part::<16>(from, to, 0);
                part::<16>(from, to, length - 16);
            }
            _ => std::ptr::copy_nonoverlapping(from, to, length),
        }
    }
}

/// Copies `N` bytes at `at`.
///
/// # Safety
/// They may be read and written.
#[inline(always)]
unsafe fn part<const N: usize>(from: *const u8, to: *mut u8, at: usize) {
    // SAFETY: the caller's.
    unsafe {
        let bytes = from.add(at).cast::<[u8; N]>().read_unaligned();
        to.add(at).cast::<[u8; N]>().write_unaligned(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_not_a_byte_more() {
        let from: Vec<u8> = (0..2048_u32).map(|n| (n % 251) as u8).collect();
        for length in 0..=1600 {
            for start in [0, 1, 7, 64] {
                let mut to = vec![0xee_u8; length + 64];
                // SAFETY: both are longer than that.
                unsafe { copy(from.as_ptr().add(start), to.as_mut_ptr().add(32), length) };
                assert_eq!(to[32..32 + length], from[start..start + length], "{length}");
                let around = to[..32].iter().chain(&to[32 + length..]);
                assert!(around.copied().all(|byte| byte == 0xee), "{length}");
            }
        }
    }
}
