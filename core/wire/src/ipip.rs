//! IP in IP: the outer header, for either family in either (RFC 2003, RFC 2473, RFC 4213).
//!
//! The inner packet is not touched: its own TTL is the business of whoever forwards it. The outer
//! header says what the inner one says about treatment on the way (DSCP, ECN, may it be
//! fragmented), so that a tunnel changes nothing but the way. IPv6's tunnel encapsulation limit
//! (RFC 2473 4.1.1) is not added: it is an option header that many real servers' kernels and most
//! hardware treat as odd, and a director's tunnels do not nest.

use crate::{ipv4, ipv6};

/// Bytes that an outer IPv4 header adds.
pub const OVERHEAD_V4: usize = ipv4::HEADER;
/// Bytes that an outer IPv6 header adds.
pub const OVERHEAD_V6: usize = ipv6::HEADER;

/// Time to live and hop limit of an outer header (RFC 1700).
pub const TTL: u8 = 64;

/// What an outer header takes from the packet inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// 4 or 41: which family is inside.
    protocol: u8,
    /// Type of service or traffic class: copied with ECN, which is RFC 6040's normal mode for a
    /// tunnel's entry (4.1).
    traffic_class: u8,
    /// Whether routers on the way may not cut it: no router cuts IPv6.
    dont_fragment: bool,
    /// Total length in bytes.
    length: usize,
}

impl Inner {
    /// The packet inside is this IPv4 packet.
    #[inline]
    pub const fn v4(header: ipv4::Header<'_>) -> Self {
        Self {
            protocol: ipv4::IPV4,
            traffic_class: header.tos(),
            dont_fragment: header.dont_fragment(),
            length: header.total_len(),
        }
    }

    /// The packet inside is this IPv6 packet.
    #[inline]
    pub const fn v6(header: ipv6::Header<'_>) -> Self {
        Self {
            protocol: ipv4::IPV6,
            traffic_class: header.traffic_class(),
            dont_fragment: true,
            length: header.total_len(),
        }
    }

    /// The same behind so many more bytes, which the outer header calls `protocol`.
    #[must_use]
    pub const fn behind(self, protocol: u8, bytes: usize) -> Self {
        Self { protocol, length: self.length + bytes, ..self }
    }

    /// Total length in bytes.
    pub const fn length(self) -> usize {
        self.length
    }

    /// Whether it is an IPv6 packet.
    pub const fn is_v6(self) -> bool {
        self.protocol == ipv4::IPV6
    }

    /// Writes the outer IPv4 header. `id` is what keeps fragments of different packets apart; it is
    /// left out (0) when nothing may be fragmented (RFC 6864 4.1). `None` when the whole would be
    /// longer than 65,535 bytes.
    #[inline(always)]
    pub fn within_v4(
        self,
        out: &mut [u8; OVERHEAD_V4],
        source: u32,
        destination: u32,
        id: u16,
    ) -> Option<()> {
        let length = u16::try_from(OVERHEAD_V4 + self.length).ok()?;
        let (id, flags) = if self.dont_fragment { (0, 0x4000) } else { (id, 0) };
        let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let mut words = [
            pair(u16::from_be_bytes([0x45, self.traffic_class]), length),
            pair(id, flags),
            pair(u16::from_be_bytes([TTL, self.protocol]), 0),
            source,
            destination,
        ];
        let halves = |word: u32| (word >> 16) + (word & 0xffff);
        let sum: u32 = words.iter().map(|word| halves(*word)).sum();
        words[2] |= !halves(halves(sum)) & 0xffff;
        for (to, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_be_bytes();
        }
        Some(())
    }

    /// Writes the outer IPv6 header, with a flow label of zero. `None` when the packet inside is
    /// longer than 65,535 bytes.
    #[inline]
    pub fn within_v6(
        self,
        out: &mut [u8; OVERHEAD_V6],
        source: u128,
        destination: u128,
    ) -> Option<()> {
        let length = u16::try_from(self.length).ok()?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[ipv6::PAYLOAD_LEN..][..2].copy_from_slice(&length.to_be_bytes());
        out[ipv6::NEXT_HEADER] = self.protocol;
        out[ipv6::HOP_LIMIT] = TTL;
        out[ipv6::SOURCE..][..16].copy_from_slice(&source.to_be_bytes());
        out[ipv6::DESTINATION..][..16].copy_from_slice(&destination.to_be_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, PacketBuilder};
    use proptest::prelude::*;

    /// An IPv4 packet with these fields of interest.
    fn packet_v4(tos: u8, dont_fragment: bool, payload: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 9);
        builder.udp(1, 2).write(&mut bytes, &vec![7; payload]).unwrap();
        bytes[1] = tos;
        bytes[6] = if dont_fragment { 0x40 } else { 0 };
        bytes
    }

    fn packet_v6(class: u8, payload: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 9)
            .udp(1, 2)
            .write(&mut bytes, &vec![7; payload])
            .unwrap();
        bytes[0] |= class >> 4;
        bytes[1] |= class << 4;
        bytes
    }

    fn packet(six: bool, class: u8, dont_fragment: bool, payload: usize) -> Vec<u8> {
        if six { packet_v6(class, payload) } else { packet_v4(class, dont_fragment, payload) }
    }

    proptest! {
        /// `etherparse` reads what was to be written.
        #[test]
        fn outer_ipv4(
            class: u8, dont: bool, payload in 0usize..1500, ends: [u32; 2], id: u16, six: bool,
        ) {
            let inner = packet(six, class, dont, payload);
            let mut out = [0xee; OVERHEAD_V4];
            let facts = if six {
                Inner::v6(ipv6::Header::parse(&inner).unwrap())
            } else {
                Inner::v4(ipv4::Header::parse(&inner).unwrap())
            };
            prop_assert!(facts.within_v4(&mut out, ends[0], ends[1], id).is_some());
            let header = Ipv4HeaderSlice::from_slice(&out).unwrap().to_header();
            prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            prop_assert_eq!(usize::from(header.total_len), 20 + inner.len());
            prop_assert_eq!(header.protocol.0, if six { 41 } else { 4 });
            prop_assert_eq!(header.source, ends[0].to_be_bytes());
            prop_assert_eq!(header.destination, ends[1].to_be_bytes());
            prop_assert_eq!(out[1], class);
            prop_assert_eq!(header.dont_fragment, dont || six);
            prop_assert_eq!(header.identification, if dont || six { 0 } else { id });
            prop_assert!(!header.is_fragmenting_payload());
            prop_assert_eq!(header.time_to_live, 64);
        }

        /// The same for an outer IPv6 header.
        #[test]
        fn outer_ipv6(class: u8, payload in 0usize..1500, ends: [u128; 2], six: bool) {
            let inner = packet(six, class, true, payload);
            let mut out = [0xee; OVERHEAD_V6];
            let facts = if six {
                Inner::v6(ipv6::Header::parse(&inner).unwrap())
            } else {
                Inner::v4(ipv4::Header::parse(&inner).unwrap())
            };
            prop_assert!(facts.within_v6(&mut out, ends[0], ends[1]).is_some());
            let header = Ipv6HeaderSlice::from_slice(&out).unwrap();
            prop_assert_eq!(usize::from(header.payload_length()), inner.len());
            prop_assert_eq!(header.next_header().0, if six { 41 } else { 4 });
            prop_assert_eq!(header.source(), ends[0].to_be_bytes());
            prop_assert_eq!(header.destination(), ends[1].to_be_bytes());
            prop_assert_eq!(header.traffic_class(), class);
            prop_assert_eq!(header.flow_label().value(), 0);
            prop_assert_eq!(header.hop_limit(), 64);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut inner = packet_v4(0, false, 65_535 - 48);
        let facts = |packet: &[u8]| Inner::v4(ipv4::Header::parse(packet).unwrap());
        let (mut four, mut six) = ([0; OVERHEAD_V4], [0; OVERHEAD_V6]);
        assert!(facts(&inner).within_v4(&mut four, 1, 2, 3).is_some());
        inner.push(0);
        inner[2..4].copy_from_slice(&(65_516u16).to_be_bytes());
        assert!(facts(&inner).within_v4(&mut four, 1, 2, 3).is_none());
        assert!(facts(&inner).within_v6(&mut six, 1, 2).is_some());
        let huge = packet_v6(0, 65_527 - 39);
        let facts = Inner::v6(ipv6::Header::parse(&huge).unwrap());
        assert!(facts.within_v6(&mut six, 1, 2).is_none());
    }
}
