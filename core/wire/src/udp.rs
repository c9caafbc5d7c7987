//! UDP (RFC 768).

use crate::{be16, checksum};

/// Bytes of a header.
pub const HEADER: usize = 8;
/// Offset of the checksum.
pub const CHECKSUM: usize = 6;

/// A bounds-checked view of a header.
#[derive(Clone, Copy)]
pub struct Header<'a>(pub &'a [u8; HEADER]);

impl<'a> Header<'a> {
    /// The header at the start of `datagram`, or `None` when it is cut short or its length is
    /// under 8 bytes or beyond the datagram's end.
    #[inline(always)]
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let header = Self(datagram.first_chunk()?);
        (HEADER..=datagram.len()).contains(&(be16(header.0, 4) as usize)).then_some(header)
    }

    /// Length in bytes, header included.
    #[inline(always)]
    pub const fn length(self) -> usize {
        be16(self.0, 4) as usize
    }

    /// Checksum; zero when there is none.
    #[inline(always)]
    pub const fn checksum(self) -> u16 {
        be16(self.0, CHECKSUM)
    }
}

/// Writes the length of a datagram, whose first bytes these are, and its checksum unless that field
/// is zero, which says that it has none. `pseudo` and `inside` are the sums over the pseudo header
/// and over what follows these bytes, of which there is an even number.
pub(crate) fn finish(
    start: &mut [u8],
    length: usize,
    (pseudo, inside): (impl FnOnce() -> u16, impl FnOnce() -> u16),
) -> Option<()> {
    let length = u16::try_from(length).ok()?;
    start.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
    if Header(start.first_chunk()?).checksum() != 0 {
        start[CHECKSUM..][..2].fill(0);
        let sum = checksum::over([pseudo(), checksum::sum(start), inside()]);
        let sum = if sum == 0 { 0xffff } else { sum };
        start[CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    }
    Some(())
}
