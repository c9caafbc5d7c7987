//! Payloads: a pattern from which a reader can tell whose byte it is, and which.

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

const fn word(token: u32, index: u32) -> [u8; 8] {
    let x = ((token as u64) << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).to_le_bytes()
}

impl Stream {
    /// Runs through the piece: its ragged beginning and end as bytes, what is between as words.
    fn words(self, mut bytes: impl FnMut(usize, &[u8]), mut word_at: impl FnMut(usize, [u8; 8])) {
        let len = usize::from(self.len);
        let (mut index, offset) = (self.at / 8, (self.at % 8) as usize);
        let mut done = (8 - offset).min(len);
        if done < 8 {
            bytes(0, &word(self.token, index)[offset..offset + done]);
        } else {
            word_at(0, word(self.token, index));
        }
        index = index.wrapping_add(1);
        while done + 8 <= len {
            word_at(done, word(self.token, index));
            (done, index) = (done + 8, index.wrapping_add(1));
        }
        if done < len {
            bytes(done, &word(self.token, index)[..len - done]);
        }
    }

    /// Writes the piece into `out`, which is as long.
    pub fn fill(self, out: &mut [u8]) {
        let out = std::cell::Cell::from_mut(out).as_slice_of_cells();
        let put = |at: usize, part: &[u8]| {
            out[at..at + part.len()].iter().zip(part).for_each(|(cell, byte)| cell.set(*byte));
        };
        self.words(put, |at, word| {
            if let Some(cells) = out.get(at..at + 8) {
                cells.iter().zip(word).for_each(|(cell, byte)| cell.set(byte));
            }
        });
        if self.headed && out.len() >= HEAD {
            put(0, &self.token.to_be_bytes());
            put(4, &self.at.to_be_bytes());
        }
    }

    /// Whether `bytes` are the piece.
    pub fn is(self, bytes: &[u8]) -> bool {
        if bytes.len() != usize::from(self.len) {
            return false;
        }
        let skip = if self.headed && bytes.len() >= HEAD { HEAD } else { 0 };
        let (mut ragged, mut whole) = (true, 0);
        self.words(
            |at, part| {
                let skip = skip.saturating_sub(at).min(part.len());
                ragged &= bytes[at + skip..at + part.len()] == part[skip..];
            },
            |at, word| {
                let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
                let found = found.map_or(0, |chunk| u64::from_le_bytes(*chunk));
                let differs = found ^ u64::from_le_bytes(word);
                // The head's bytes are the lower ones of the first word.
                let kept = if at >= skip {
                    u64::MAX
                } else {
                    u64::MAX << ((skip - at).min(8) * 8 - 1) << 1
                };
                whole |= differs & kept;
            },
        );
        ragged && whole == 0 && (skip == 0 || Self::head(bytes) == Some((self.token, self.at)))
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
