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
    /// Runs through the pieces of `len` bytes that lie in one word of the pattern each.
    fn words(self, mut act: impl FnMut(usize, &[u8])) {
        let (mut done, len) = (0, usize::from(self.len));
        while done < len {
            let at = self.at.wrapping_add(done as u32);
            let (index, offset) = (at / 8, (at % 8) as usize);
            let take = (8 - offset).min(len - done);
            act(done, &word(self.token, index)[offset..offset + take]);
            done += take;
        }
    }

    /// Writes the piece into `out`, which is as long.
    pub fn fill(self, out: &mut [u8]) {
        self.words(|at, part| out[at..at + part.len()].copy_from_slice(part));
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
        let skip = if self.headed && bytes.len() >= HEAD { HEAD } else { 0 };
        let mut same = true;
        self.words(|at, part| {
            let skip = skip.saturating_sub(at).min(part.len());
            same &= bytes[at + skip..at + part.len()] == part[skip..];
        });
        same && (skip == 0 || Self::head(bytes) == Some((self.token, self.at)))
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
