//! UDP (RFC 768).

use crate::be16;

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
