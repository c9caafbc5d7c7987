//! Whether a frame is right: its lengths fit together and every checksum holds, computed from
//! scratch.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// What is wrong with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A header does not fit, or contradicts another.
    Malformed(String),
    /// The IPv4 header checksum: what it is, and what it should be.
    Ip(u16, u16),
    /// The TCP checksum: what it is, and what it should be.
    Tcp(u16, u16),
    /// The UDP checksum: what it is, and what it should be.
    Udp(u16, u16),
}

/// Checks a frame from its Ethernet header to the last byte of its payload. A UDP checksum of zero
/// is right (RFC 768). What is not IPv4 is only checked as far as it can be read; so is what
/// follows the first header of a fragment.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(frame: &[u8]) -> Result<(), Wrong> {
    let packet = SlicedPacket::from_ethernet(frame).map_err(|e| Wrong::Malformed(e.to_string()))?;
    let Some(NetSlice::Ipv4(ip)) = &packet.net else { return Ok(()) };
    let header = ip.header().to_header();
    // Over the bytes as they are: `etherparse`'s own header forgets the reserved flag.
    let right = header_checksum(ip.header().slice());
    if header.header_checksum != right {
        return Err(Wrong::Ip(header.header_checksum, right));
    }
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let right = tcp.calc_checksum_ipv4(header.source, header.destination);
            match right {
                Ok(right) if right == tcp.checksum() => Ok(()),
                Ok(right) => Err(Wrong::Tcp(tcp.checksum(), right)),
                Err(error) => Err(Wrong::Malformed(error.to_string())),
            }
        }
        Some(TransportSlice::Udp(udp)) if udp.checksum() != 0 => {
            let right = udp.to_header().calc_checksum_ipv4_raw(
                header.source,
                header.destination,
                udp.payload(),
            );
            match right {
                Ok(right) if right == udp.checksum() => Ok(()),
                Ok(right) => Err(Wrong::Udp(udp.checksum(), right)),
                Err(error) => Err(Wrong::Malformed(error.to_string())),
            }
        }
        _ => Ok(()),
    }
}

/// The checksum of an IPv4 header by its definition (RFC 791).
fn header_checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).enumerate().filter(|(at, _)| *at != 5);
    let sum = words.fold(0, |sum, (_, word)| {
        let sum = sum + u32::from(u16::from_be_bytes([word[0], word[1]]));
        (sum & 0xffff) + (sum >> 16)
    });
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{tcp, udp};
    use proptest::prelude::*;

    #[test]
    fn what_is_built_is_right() {
        let segment = tcp("198.51.100.48:40000", "198.51.100.200:80", "S");
        let datagram = udp("198.51.100.48:40000", "198.51.100.200:53").payload(b"question");
        for frame in [segment.clone(), segment.vlan(7).ip_options(3).padding(&[9; 5]), datagram] {
            assert_eq!(verify(&frame.bytes()), Ok(()), "{frame:?}");
        }
    }

    #[test]
    fn each_wrong_checksum_is_told() {
        let segment = tcp("198.51.100.48:40000", "198.51.100.200:80", "A").payload(b"abc").bytes();
        let datagram = udp("198.51.100.48:4000", "198.51.100.200:53").payload(b"abc").bytes();
        let spoil = |frame: &[u8], at: usize| {
            let mut frame = frame.to_vec();
            frame[at] ^= 0x10;
            verify(&frame).unwrap_err()
        };
        assert!(matches!(spoil(&segment, 14 + 8), Wrong::Ip(..)), "time to live");
        assert!(matches!(spoil(&segment, 14 + 20 + 5), Wrong::Tcp(..)), "sequence number");
        assert!(matches!(spoil(&datagram, 14 + 20 + 8), Wrong::Udp(..)), "payload");
        assert!(matches!(verify(&segment[..40]).unwrap_err(), Wrong::Malformed(_)));
    }

    #[test]
    fn no_udp_checksum_is_right() {
        let frame = udp("192.0.2.1:1", "192.0.2.2:2").no_checksum().payload(b"x").bytes();
        assert_eq!(frame[14 + 20 + 6..][..2], [0, 0]);
        assert_eq!(verify(&frame), Ok(()));
    }

    proptest! {
        #[test]
        fn one_flipped_bit_never_goes_unnoticed(
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            byte in 0usize..20, bit in 0u8..8,
        ) {
            let whole = tcp("192.0.2.1:1000", "192.0.2.2:80", "PA").payload(&payload).bytes();
            let mut frame = whole.clone();
            frame[14 + 20 + byte] ^= 1 << bit;
            prop_assert!(verify(&frame).is_err());
            prop_assert_eq!(verify(&whole), Ok(()));
        }
    }
}
