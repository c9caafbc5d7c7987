//! Generic Routing Encapsulation, version 0 (RFC 2784), with a key if one is configured (RFC 2890).
//!
//! Sequence numbers are neither sent nor read: packets of one tunnel take several paths, and nobody
//! puts them in order. Routing (RFC 1701) is obsolete.

use crate::{checksum, shim};

/// IP protocol number.
pub const PROTOCOL: u8 = 47;
/// Bytes of a header without options.
pub const HEADER: usize = 4;
/// Offset of the protocol type, an EtherType.
pub const NAME: usize = 2;

/// A checksum is there.
const CHECKSUM: u8 = 0x80;
/// A key is there.
const KEY: u8 = 0x20;
/// Where the checksum is, if it is there.
const CHECKSUM_AT: usize = HEADER;

/// The header before a packet, and its length; all but the checksum and what is inside.
pub fn template(checksum: bool, key: Option<u32>) -> ([u8; shim::MOST], usize) {
    let mut bytes = [0; shim::MOST];
    let mut length = HEADER;
    if checksum {
        bytes[0] |= CHECKSUM;
        length += 4;
    }
    if let Some(key) = key {
        bytes[0] |= KEY;
        bytes[length..][..4].copy_from_slice(&key.to_be_bytes());
        length += 4;
    }
    (bytes, length)
}

/// Writes the checksum of a header that has one; `inside` is the sum over what follows it.
pub(crate) fn finish(header: &mut [u8], inside: impl FnOnce() -> u16) -> Option<()> {
    if header.first()? & CHECKSUM != 0 {
        header.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2)?.fill(0);
        let sum = checksum::over([checksum::sum(header), inside(), 0]);
        header[CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    }
    Some(())
}

/// A bounds-checked view of a header.
#[derive(Clone, Copy)]
pub struct Header<'a>(&'a [u8; HEADER], Option<u32>, usize);

impl<'a> Header<'a> {
    /// The header at the start of a packet of this protocol; `None` for another version, for one
    /// with a sequence number or routing, and when it is cut short.
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let header: &[u8; HEADER] = packet.first_chunk()?;
        if header[0] & !(CHECKSUM | KEY) != 0 || header[1] != 0 {
            return None;
        }
        let mut length = HEADER + if header[0] & CHECKSUM != 0 { 4 } else { 0 };
        let mut key = None;
        if header[0] & KEY != 0 {
            key = Some(u32::from_be_bytes(*packet.get(length..)?.first_chunk()?));
            length += 4;
        }
        Some(Self(header, key, length))
    }

    /// The EtherType of what follows.
    pub const fn ethertype(self) -> u16 {
        crate::be16(self.0, NAME)
    }

    /// Whether there is a checksum.
    pub const fn has_checksum(self) -> bool {
        self.0[0] & CHECKSUM != 0
    }

    /// The key.
    pub const fn key(self) -> Option<u32> {
        self.1
    }

    /// Length in bytes.
    pub const fn length(self) -> usize {
        self.2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet;
    use proptest::prelude::*;

    proptest! {
        /// What is written is read, and a checksum is right over all of it (RFC 2784 2.1).
        #[test]
        fn a_header_is_read_as_it_is_written(
            inside: Vec<u8>, sum: bool, key: Option<u32>, six: bool,
        ) {
            let ethertype = if six { ethernet::IPV6 } else { ethernet::IPV4 };
            let (mut bytes, length) = template(sum, key);
            bytes[NAME..][..2].copy_from_slice(&ethertype.to_be_bytes());
            let shim = &mut bytes[..length];
            let sums = (|| 0, || checksum::sum(&inside));
            shim::finish(PROTOCOL, shim, length + inside.len(), sums).unwrap();
            let header = Header::parse(shim).unwrap();
            prop_assert_eq!(header.ethertype(), ethertype);
            prop_assert_eq!((header.has_checksum(), header.key()), (sum, key));
            let options = usize::from(sum) + usize::from(key.is_some());
            prop_assert_eq!(header.length(), 4 + 4 * options);
            let whole = [&*shim, &inside].concat();
            prop_assert!(!sum || checksum::sum(&whole) == 0xffff);
        }
    }

    #[test]
    fn sequence_numbers_routing_and_other_versions_are_not_read() {
        for first in [[0x10, 0], [0x40, 0], [0, 1], [0x08, 0]] {
            assert!(Header::parse(&[first[0], first[1], 8, 0, 0, 0, 0, 0]).is_none(), "{first:?}");
        }
        assert!(Header::parse(&[0x20, 0, 8, 0, 1, 2, 3]).is_none(), "half a key");
    }
}
