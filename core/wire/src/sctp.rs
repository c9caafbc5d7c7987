//! SCTP (RFC 9260): the common header, the first chunk, and the checksum.
//!
//! The checksum is a CRC32c over the whole packet, which has no sum to take words from. But it is
//! linear: what four changed bytes at the start do to it is those bytes' own CRC, moved past the
//! rest of the packet, which is a multiplication by a power of x that the length alone gives. So
//! ports are rewritten without reading the payload, and a wrong checksum stays wrong
//! ([`set_ports_and_crc`]). The sum in full is for the few short packets that a director makes and
//! goes byte by byte.

use crate::{be16, be32};

/// Bytes of the common header.
pub const HEADER: usize = 12;
/// Offset of the source port.
pub const SOURCE_PORT: usize = 0;
/// Offset of the destination port.
pub const DESTINATION_PORT: usize = 2;
/// Offset of the verification tag.
pub const TAG: usize = 4;
/// Offset of the checksum.
pub const CHECKSUM: usize = 8;
/// Bytes of a packet that carries one ABORT without causes.
pub const ABORT_PACKET: usize = 16;

/// Chunk type: payload.
pub const DATA: u8 = 0;
/// Chunk type: the first of an association; its packet's verification tag is zero.
pub const INIT: u8 = 1;
/// Chunk type: the answer to INIT.
pub const INIT_ACK: u8 = 2;
/// Chunk type: ABORT, the end of an association at once.
pub const ABORT: u8 = 6;
/// Chunk type: SHUTDOWN.
pub const SHUTDOWN: u8 = 7;
/// Chunk type: the answer to SHUTDOWN.
pub const SHUTDOWN_ACK: u8 = 8;
/// Chunk type: COOKIE ECHO.
pub const COOKIE_ECHO: u8 = 10;
/// Chunk type: SHUTDOWN COMPLETE, the end of an association in order.
pub const SHUTDOWN_COMPLETE: u8 = 14;

/// Flag of ABORT and SHUTDOWN COMPLETE: the verification tag is the receiver's own, sent back
/// (RFC 9260 8.5.1).
pub const REFLECTED: u8 = 1;

/// A bounds-checked view of the common header.
#[derive(Clone, Copy)]
pub struct Header<'a>(pub &'a [u8; HEADER]);

impl<'a> Header<'a> {
    /// The header at the start of `packet`, or `None` when it is cut short.
    #[inline(always)]
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        packet.first_chunk().map(Self)
    }

    /// Source port.
    #[inline(always)]
    pub const fn source_port(self) -> u16 {
        be16(self.0, SOURCE_PORT)
    }

    /// Destination port.
    #[inline(always)]
    pub const fn destination_port(self) -> u16 {
        be16(self.0, DESTINATION_PORT)
    }

    /// Verification tag.
    #[inline(always)]
    pub const fn tag(self) -> u32 {
        be32(self.0, TAG)
    }

    /// Checksum, as [`checksum`] gives it: the one field in little-endian order.
    #[inline(always)]
    pub const fn checksum(self) -> u32 {
        be32(self.0, CHECKSUM).swap_bytes()
    }
}

/// The start of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Type.
    pub kind: u8,
    /// Flags, whose meaning depends on the type.
    pub flags: u8,
    /// Length in bytes with these four, without padding.
    pub length: u16,
}

/// The first chunk of `packet`; `None` when there is none, or its length is under its own header's
/// or beyond the packet's end.
#[inline]
pub fn first_chunk(packet: &[u8]) -> Option<Chunk> {
    let rest = packet.get(HEADER..)?;
    let start: &[u8; 4] = rest.first_chunk()?;
    let chunk = Chunk { kind: start[0], flags: start[1], length: be16(start, 2) };
    (start.len()..=rest.len()).contains(&usize::from(chunk.length)).then_some(chunk)
}

/// Castagnoli's polynomial, lowest bit first, as all here.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// 1, which is x to the 0th.
const ONE: u32 = 1 << 31;

/// `a` times `b`, modulo the polynomial.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut left, mut right) = (0, a, b);
    let mut bit = 0;
    while bit < 32 {
        product ^= right & (left >> 31).wrapping_neg();
        left <<= 1;
        right = right >> 1 ^ POLYNOMIAL & (right & 1).wrapping_neg();
        bit += 1;
    }
    product
}

/// The first 256 powers of `base`.
const fn powers(base: u32) -> [u32; 256] {
    let mut table = [ONE; 256];
    let mut at = 1;
    while at < table.len() {
        table[at] = multiply(table[at - 1], base);
        at += 1;
    }
    table
}

/// x to the 8n: what n zero bytes multiply a remainder by.
static BYTES: [u32; 256] = powers(ONE >> 8);
/// The same for n times 256 bytes.
static PAGES: [u32; 256] = powers(multiply(powers(ONE >> 8)[255], ONE >> 8));

/// The remainder that each byte leaves.
static REMAINDERS: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        table[at] = multiply(at as u32, ONE >> 8);
        at += 1;
    }
    table
};

/// Goes on with a remainder over `bytes`.
fn remainder(start: u32, bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| sum >> 8 ^ REMAINDERS[usize::from(sum as u8 ^ byte)];
    bytes.iter().fold(start, step)
}

/// The checksum of `packet` (RFC 9260 appendix A), whatever its checksum field holds; zero when it
/// has no header. In the packet it is in little-endian order.
pub fn checksum(packet: &[u8]) -> u32 {
    let Some((before, rest)) = packet.split_at_checked(CHECKSUM) else { return 0 };
    let Some((_, rest)) = rest.split_at_checked(4) else { return 0 };
    !remainder(remainder(remainder(!0, before), &[0; 4]), rest)
}

/// Sets the ports of `packet` (the whole SCTP packet and nothing behind it, so no fragment), and
/// changes its checksum by the difference that they make. A checksum of zero stays: the ends agreed
/// to go without (RFC 9653). Whether there was a header and at most 65,535 bytes.
pub fn set_ports_and_crc(packet: &mut [u8], source: u16, destination: u16) -> bool {
    let Ok(length) = u16::try_from(packet.len()) else { return false };
    let Some(header) = packet.first_chunk_mut::<HEADER>() else { return false };
    change_ports(header, length, source, destination);
    true
}

/// The same for the header of a packet of `length` bytes that an ICMP error quotes in part. Nothing
/// happens if that is less than a header.
pub fn change_ports(header: &mut [u8; HEADER], length: u16, source: u16, destination: u16) {
    let Some(behind) = length.checked_sub(TAG as u16) else { return };
    let (ports, old) = (be32(header, SOURCE_PORT), be32(header, CHECKSUM).swap_bytes());
    let new_ports = u32::from(source) << 16 | u32::from(destination);
    header[..TAG].copy_from_slice(&new_ports.to_be_bytes());
    if old != 0 {
        let changed = remainder(0, &(ports ^ new_ports).to_be_bytes());
        let [pages, bytes] = behind.to_be_bytes();
        let moved =
            multiply(multiply(changed, BYTES[usize::from(bytes)]), PAGES[usize::from(pages)]);
        header[CHECKSUM..].copy_from_slice(&(old ^ moved).to_le_bytes());
    }
}

/// A packet of one ABORT without causes. With `reflected`, `tag` is the one of the packet that it
/// answers; without, the one that the receiver chose.
pub fn abort(source: u16, destination: u16, tag: u32, reflected: bool) -> [u8; ABORT_PACKET] {
    let mut packet = [0; ABORT_PACKET];
    packet[SOURCE_PORT..][..2].copy_from_slice(&source.to_be_bytes());
    packet[DESTINATION_PORT..][..2].copy_from_slice(&destination.to_be_bytes());
    packet[TAG..][..4].copy_from_slice(&tag.to_be_bytes());
    packet[HEADER..].copy_from_slice(&[ABORT, if reflected { REFLECTED } else { 0 }, 0, 4]);
    let sum = checksum(&packet);
    packet[CHECKSUM..][..4].copy_from_slice(&sum.to_le_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 3720 B.4.
    #[test]
    fn the_published_remainders() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let crc = |bytes: &[u8]| !remainder(!0, bytes);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc(&ascending), 0x46dd_794e);
        assert_eq!(crc(&descending), 0x113f_db5c);
        assert_eq!(crc(b"123456789"), 0xe306_9283);
    }

    /// Packets that scapy made: an INIT from port 40000 to 3868 and from 1024 to 80, and an ABORT.
    #[test]
    fn packets_of_another_stack() {
        let mut init = [
            0x9c, 0x40, 0x0f, 0x1c, 0x00, 0x00, 0x00, 0x00, 0x0a, 0x3e, 0x92, 0x0e, 0x01, 0x00,
            0x00, 0x14, 0xde, 0xad, 0xbe, 0xef, 0x00, 0x01, 0xa0, 0x00, 0x00, 0x0a, 0xff, 0xff,
            0x00, 0x00, 0x00, 0x07,
        ];
        let other = [0x04, 0x00, 0x00, 0x50, 0x00, 0x00, 0x00, 0x00, 0x02, 0x1c, 0xde, 0x53];
        assert_eq!(Header::parse(&init).unwrap().checksum(), checksum(&init));
        let chunk = first_chunk(&init).unwrap();
        assert_eq!((chunk.kind, chunk.length), (INIT, 20));
        assert_eq!(Header::parse(&init).unwrap().tag(), 0);
        assert!(set_ports_and_crc(&mut init, 1024, 80));
        assert_eq!(init[..HEADER], other);
        let expected = [
            0xc0, 0x00, 0x13, 0xc4, 0x01, 0x02, 0x03, 0x04, 0x8c, 0x67, 0x6d, 0xe8, 0x06, 0x01,
            0x00, 0x04,
        ];
        assert_eq!(abort(49152, 5060, 0x0102_0304, true), expected);
    }

    proptest! {
        /// The difference gives what the sum over the whole gives, at any length.
        #[test]
        fn difference_equals_full(
            mut packet in proptest::collection::vec(any::<u8>(), HEADER..3000),
            ports: (u16, u16), damage: u32,
        ) {
            let before = checksum(&packet) ^ damage;
            packet[CHECKSUM..HEADER].copy_from_slice(&before.to_le_bytes());
            let payload = packet[HEADER..].to_vec();
            prop_assert!(set_ports_and_crc(&mut packet, ports.0, ports.1));
            let header = Header::parse(&packet).unwrap();
            prop_assert_eq!((header.source_port(), header.destination_port()), ports);
            let after = if before == 0 { 0 } else { checksum(&packet) ^ damage };
            prop_assert_eq!(header.checksum(), after);
            prop_assert_eq!(&packet[HEADER..], &payload);
        }

        /// Never a panic, and a chunk lies within.
        #[test]
        fn any_bytes(mut packet in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(chunk) = first_chunk(&packet) {
                prop_assert!(usize::from(chunk.length) + HEADER <= packet.len());
            }
            checksum(&packet);
            prop_assert_eq!(set_ports_and_crc(&mut packet, 1, 2), packet.len() >= HEADER);
        }
    }

    #[test]
    fn the_longest_packet() {
        let mut packet = vec![0x5a; 65_535];
        packet[CHECKSUM..HEADER].fill(0);
        let sum = checksum(&packet);
        packet[CHECKSUM..HEADER].copy_from_slice(&sum.to_le_bytes());
        assert!(set_ports_and_crc(&mut packet, 7, 8));
        assert_eq!(Header::parse(&packet).unwrap().checksum(), checksum(&packet));
        packet.push(0);
        assert!(!set_ports_and_crc(&mut packet, 9, 9));
        assert_eq!(packet[..4], [0, 7, 0, 8]);
    }

    #[test]
    fn no_checksum_stays_none() {
        let mut packet = abort(1, 2, 3, false);
        packet[CHECKSUM..HEADER].fill(0);
        assert!(set_ports_and_crc(&mut packet, 4, 5));
        assert_eq!(packet[..HEADER], [0, 4, 0, 5, 0, 0, 0, 3, 0, 0, 0, 0]);
    }

    #[test]
    fn chunks_that_make_no_sense_are_none() {
        let whole = abort(1, 2, 3, true);
        assert_eq!(first_chunk(&whole), Some(Chunk { kind: ABORT, flags: 1, length: 4 }));
        assert_eq!(first_chunk(&whole[..15]), None);
        assert_eq!(first_chunk(&whole[..12]), None);
        for length in [0, 3, 5] {
            let mut bad = whole;
            bad[15] = length;
            assert_eq!(first_chunk(&bad), None);
        }
    }
}
