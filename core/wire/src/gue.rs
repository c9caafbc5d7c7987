//! Generic UDP Encapsulation, variant 0 (draft-ietf-intarea-gue-09): a packet in a UDP datagram,
//! behind four bytes that say what it is.
//!
//! No optional fields are sent, and none are understood: IPVS and Linux's `fou` send the same four
//! bytes unless remote checksum offload is asked for. The UDP source port is chosen by the flow, so
//! that routers and NICs spread flows (RFC 6335's dynamic ports).

use crate::{shim, udp};

/// The UDP port that it is sent to, unless another is chosen.
pub const PORT: u16 = 6080;
/// Bytes of its own header.
pub const HEADER: usize = 4;
/// Bytes before the packet, with the UDP header.
pub const LEN: usize = udp::HEADER + HEADER;
/// Where these say what is inside, as a word: variant, no control message and no optional fields
/// in the first byte, the IP protocol number in the second.
pub const NAME: usize = udp::HEADER;

const _: () = assert!(LEN <= shim::MOST);

/// The headers before a packet, but for what differs by packet: source port, length, checksum and
/// what is inside. A checksum of zero says that there is to be none (RFC 6935, RFC 6936 for IPv6).
pub const fn template(port: u16, checksum: bool) -> [u8; LEN] {
    let [high, low] = port.to_be_bytes();
    let sum = if checksum { 0xff } else { 0 };
    [0, 0, high, low, 0, 0, sum, sum, 0, 0, 0, 0]
}

/// The UDP source port of a flow: of the dynamic ones, by a hash.
pub const fn source_port(hash: u64) -> u16 {
    0xc000 | (hash >> 32) as u16 & 0x3fff
}

/// A bounds-checked view of a header.
#[derive(Clone, Copy)]
pub struct Header<'a>(&'a [u8; HEADER]);

impl<'a> Header<'a> {
    /// The header at the start of a UDP datagram's data; `None` for another variant, a control
    /// message, and one with optional fields.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let header: &[u8; HEADER] = data.first_chunk()?;
        (header[0] == 0 && header[2..] == [0, 0]).then_some(Self(header))
    }

    /// The IP protocol number of what follows.
    pub const fn protocol(self) -> u8 {
        self.0[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checksum, ipv4};
    use etherparse::{Ipv4Header, UdpHeader, UdpHeaderSlice};
    use proptest::prelude::*;

    proptest! {
        /// `etherparse` calculates the same length and checksum.
        #[test]
        fn the_outer_datagram_is_sound(
            payload: Vec<u8>, port: u16, hash: u64, ends: [u32; 2], sum: bool,
        ) {
            let mut shim = template(port, sum);
            shim[..2].copy_from_slice(&source_port(hash).to_be_bytes());
            shim[NAME + 1] = ipv4::IPV6;
            let length = LEN + payload.len();
            let pseudo = || checksum::pseudo_v4(ends[0], ends[1], ipv4::UDP, length);
            let inside = || checksum::sum(&payload);
            shim::finish(ipv4::UDP, &mut shim, length, (pseudo, inside)).unwrap();
            let udp = UdpHeaderSlice::from_slice(&shim).unwrap().to_header();
            prop_assert_eq!(usize::from(udp.length), length);
            prop_assert_eq!(udp.destination_port, port);
            prop_assert!(udp.source_port >= 49_152);
            let data = [&shim[udp::HEADER..], &payload].concat();
            let bytes = |address: u32| address.to_be_bytes();
            let ip = Ipv4Header::new(0, 64, 17.into(), bytes(ends[0]), bytes(ends[1])).unwrap();
            let made = UdpHeader::with_ipv4_checksum(udp.source_port, port, &ip, &data).unwrap();
            prop_assert_eq!(udp.checksum, if sum { made.checksum } else { 0 });
            prop_assert_eq!(Header::parse(&data).unwrap().protocol(), 41);
        }
    }

    #[test]
    fn other_variants_and_options_are_not_read() {
        for header in [[0x40, 4, 0, 0], [0x20, 4, 0, 0], [1, 4, 0, 0], [0, 4, 0x80, 0]] {
            assert!(Header::parse(&header).is_none(), "{header:?}");
        }
        assert!(Header::parse(&[0, 4, 0]).is_none());
        assert_eq!(Header::parse(&[0, 4, 0, 0]).unwrap().protocol(), 4);
    }
}
