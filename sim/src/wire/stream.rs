//! Payloads: a pattern from which a reader can tell whose byte it is, and which.

use crate::rng::scramble;

/// A piece of a stream of bytes: bytes `at` to `at + len` of stream `token`. A datagram's piece
/// begins with the token and `at` themselves, so that its receiver need not know them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    pub token: u32,
    pub at: u32,
    pub len: u16,
    /// Whether it begins with its token and place.
    pub headed: bool,
}

const HEAD: usize = 8;
/// From one word to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Eight bytes of a stream. From one to the next it is an addition, so that many are made at once.
const fn word(token: u32, index: u32) -> [u8; 8] {
    let first = scramble(token as u64 ^ 0x6c62_272e_07bb_0142);
    first.wrapping_add((index as u64).wrapping_mul(STEP)).to_le_bytes()
}

impl Stream {
    /// Writes the piece into `out`, which is as long.
    pub fn fill(self, out: &mut [u8]) {
        let (mut index, offset) = (self.at / 8, (self.at % 8) as usize);
        let mut rest = &mut *out;
        if offset > 0 {
            let (first, others) = rest.split_at_mut((8 - offset).min(rest.len()));
            first.copy_from_slice(&word(self.token, index)[offset..offset + first.len()]);
            (rest, index) = (others, index.wrapping_add(1));
        }
        let (words, last) = rest.as_chunks_mut::<8>();
        let mut next = u64::from_le_bytes(word(self.token, index));
        for place in words.iter_mut() {
            *place = next.to_le_bytes();
            next = next.wrapping_add(STEP);
        }
        let end = word(self.token, index.wrapping_add(words.len() as u32));
        last.copy_from_slice(&end[..last.len()]);
        if self.headed && out.len() >= HEAD {
            out[..4].copy_from_slice(&self.token.to_be_bytes());
            out[4..HEAD].copy_from_slice(&self.at.to_be_bytes());
        }
    }

    /// Whether `bytes` are the piece.
    pub fn is(self, bytes: &[u8]) -> bool {
        if bytes.len() != usize::from(self.len) {
            return false;
        }
        let (mut index, offset) = (self.at / 8, (self.at % 8) as usize);
        let mut rest = bytes;
        if self.headed && bytes.len() >= HEAD {
            if Self::head(bytes) != Some((self.token, self.at)) {
                return false;
            }
            // Behind its head it goes on as the stream does there.
            (index, rest) = (index.wrapping_add(1), &bytes[HEAD..]);
        }
        if offset > 0 {
            let (first, others) = rest.split_at((8 - offset).min(rest.len()));
            if *first != word(self.token, index)[offset..offset + first.len()] {
                return false;
            }
            (rest, index) = (others, index.wrapping_add(1));
        }
        let (words, last) = rest.as_chunks::<8>();
        let (mut next, mut differs) = (u64::from_le_bytes(word(self.token, index)), 0);
        for found in words {
            differs |= u64::from_le_bytes(*found) ^ next;
            next = next.wrapping_add(STEP);
        }
        let end = word(self.token, index.wrapping_add(words.len() as u32));
        differs == 0 && *last == end[..last.len()]
    }

    /// Token and place of a datagram's payload.
    pub fn head(bytes: &[u8]) -> Option<(u32, u32)> {
        let (token, rest) = bytes.split_first_chunk()?;
        Some((u32::from_be_bytes(*token), u32::from_be_bytes(*rest.first_chunk()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_told_apart() {
        let whole = Stream { token: 7, at: 0, len: 100, headed: false };
        let mut bytes = [0; 100];
        whole.fill(&mut bytes);
        for (at, len) in [(0, 100), (3, 50), (8, 8), (99, 1), (50, 0)] {
            let piece = Stream { at, len, ..whole };
            let part = &bytes[at as usize..][..usize::from(len)];
            assert!(piece.is(part));
            assert!(len == 0 || !Stream { token: 8, ..piece }.is(part));
            assert!(len < 2 || !Stream { at: at + 1, ..piece }.is(part));
        }
        let headed = Stream { headed: true, at: 5, len: 21, ..whole };
        headed.fill(&mut bytes[..21]);
        assert!(headed.is(&bytes[..21]));
        assert_eq!(Stream::head(&bytes), Some((7, 5)));
        for at in 0..21 {
            bytes[at] ^= 4;
            assert!(!headed.is(&bytes[..21]), "byte {at}");
            bytes[at] ^= 4;
        }
    }
}
