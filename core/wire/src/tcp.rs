//! TCP (RFC 9293).

use crate::{be16, be32};

/// Bytes of a header without options.
pub const HEADER: usize = 20;
/// Offset of the flags byte.
pub const FLAGS: usize = 13;
/// Offset of the checksum.
pub const CHECKSUM: usize = 16;

/// FIN flag.
pub const FIN: u8 = 0x01;
/// SYN flag.
pub const SYN: u8 = 0x02;
/// RST flag.
pub const RST: u8 = 0x04;
/// ACK flag.
pub const ACK: u8 = 0x10;
/// URG flag.
pub const URG: u8 = 0x20;
/// Offset of the urgent pointer, which counts from the segment's own sequence number.
pub const URGENT: usize = 18;

/// A bounds-checked view of the fixed part of a header.
#[derive(Clone, Copy)]
pub struct Header<'a>(pub &'a [u8; HEADER]);

impl<'a> Header<'a> {
    /// The header at the start of `segment`, or `None` when it is cut short or its data offset is
    /// under 20 bytes or beyond the segment's end.
    #[inline(always)]
    pub fn parse(segment: &'a [u8]) -> Option<Self> {
        let header = Self(segment.first_chunk()?);
        (HEADER..=segment.len()).contains(&header.header_len()).then_some(header)
    }

    /// Header length in bytes with options: 0 to 60.
    #[inline(always)]
    pub const fn header_len(self) -> usize {
        (self.0[12] >> 4) as usize * 4
    }

    /// The flags byte.
    #[inline(always)]
    pub const fn flags(self) -> u8 {
        self.0[FLAGS]
    }

    /// Sequence number.
    pub const fn sequence(self) -> u32 {
        be32(self.0, 4)
    }

    /// Acknowledgement number.
    pub const fn acknowledgement(self) -> u32 {
        be32(self.0, 8)
    }

    /// Checksum.
    #[inline(always)]
    pub const fn checksum(self) -> u16 {
        be16(self.0, CHECKSUM)
    }
}
