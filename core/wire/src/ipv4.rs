//! IPv4 (RFC 791).

pub use crate::Malformed;
use crate::{be16, be32};

/// Bytes of a header without options.
pub const HEADER: usize = 20;
/// Offset of the time to live.
pub const TTL: usize = 8;
/// Offset of the header checksum.
pub const CHECKSUM: usize = 10;
/// Offset of the source address.
pub const SOURCE: usize = 12;
/// Offset of the destination address.
pub const DESTINATION: usize = 16;

/// IP protocol number of IPv4 within IP (RFC 2003).
pub const IPV4: u8 = 4;
/// IP protocol number of IPv6 within IP (RFC 4213).
pub const IPV6: u8 = 41;
/// IP protocol number of SCTP.
pub const SCTP: u8 = 132;
/// IP protocol number of IGMP.
pub const IGMP: u8 = 2;
/// IP protocol number of OSPF, in both versions.
pub const OSPF: u8 = 89;
/// IP protocol number of VRRP, in both versions.
pub const VRRP: u8 = 112;
/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;

/// A bounds-checked view of the fixed part of a header.
#[derive(Clone, Copy)]
pub struct Header<'a>(pub &'a [u8; HEADER]);

impl<'a> Header<'a> {
    /// The header at the start of `packet` (which may have link-layer padding behind it), with
    /// its version and lengths verified; the checksum is not.
    #[inline(always)]
    pub fn parse(packet: &'a [u8]) -> Result<Self, Malformed> {
        let header = Self::parse_quoted(packet)?;
        if header.total_len() > packet.len() {
            return Err(Malformed::BadLength);
        }
        Ok(header)
    }

    /// The same for what an ICMP error quotes of a packet, which may end anywhere behind the
    /// header.
    #[inline(always)]
    pub fn parse_quoted(quote: &'a [u8]) -> Result<Self, Malformed> {
        let Some(bytes) = quote.first_chunk::<HEADER>() else {
            return Err(Malformed::Truncated);
        };
        let header = Self(bytes);
        if bytes[0] >> 4 != 4 || header.header_len() < HEADER {
            return Err(Malformed::BadHeader);
        }
        if quote.len() < header.header_len() {
            return Err(Malformed::Truncated);
        }
        if header.total_len() < header.header_len() {
            return Err(Malformed::BadLength);
        }
        Ok(header)
    }

    /// Header length in bytes with options: 0 to 60.
    #[inline(always)]
    pub const fn header_len(self) -> usize {
        (self.0[0] & 0x0f) as usize * 4
    }

    /// Total length in bytes.
    #[inline(always)]
    pub const fn total_len(self) -> usize {
        be16(self.0, 2) as usize
    }

    /// Type of service: DSCP and ECN.
    #[inline(always)]
    pub const fn tos(self) -> u8 {
        self.0[1]
    }

    /// Identification.
    #[inline(always)]
    pub const fn id(self) -> u16 {
        be16(self.0, 4)
    }

    /// Whether this may not be fragmented.
    #[inline(always)]
    pub const fn dont_fragment(self) -> bool {
        self.0[6] & 0x40 != 0
    }

    /// Whether this is a fragment: an offset, or more to come.
    #[inline(always)]
    pub const fn is_fragment(self) -> bool {
        be16(self.0, 6) & 0x3fff != 0
    }

    /// Time to live.
    #[inline(always)]
    pub const fn ttl(self) -> u8 {
        self.0[TTL]
    }

    /// IP protocol number.
    #[inline(always)]
    pub const fn protocol(self) -> u8 {
        self.0[9]
    }

    /// Header checksum.
    #[inline(always)]
    pub const fn checksum(self) -> u16 {
        be16(self.0, CHECKSUM)
    }

    /// Source address.
    #[inline(always)]
    pub const fn source(self) -> u32 {
        be32(self.0, SOURCE)
    }

    /// Destination address.
    #[inline(always)]
    pub const fn destination(self) -> u32 {
        be32(self.0, DESTINATION)
    }
}

/// The options of a header, each with its kind and length (RFC 791 3.1): what is behind the fixed
/// part, without padding, up to the end of the list or to the first that makes no sense.
#[derive(Clone)]
pub struct Options<'a>(pub &'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while let [1, rest @ ..] = self.0 {
            self.0 = rest;
        }
        let [kind, length, ..] = *self.0 else { return None };
        if kind < 2 || length < 2 {
            return None;
        }
        let (option, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        Some(option)
    }
}

/// Whether `packet` names routers that it is to go by: by a loose or a strict source route (RFC 791
/// 3.1), also one that is done with.
pub fn is_source_routed(packet: &[u8]) -> bool {
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    let length = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    let options = packet.get(HEADER..length).unwrap_or_default();
    Options(options).any(|option| matches!(option[0], LOOSE | STRICT))
}

/// The least that any link carries in one packet, bytes (RFC 791 3.2).
pub const MIN_MTU: u32 = 68;

/// Whether `address` can be the source of a unicast packet that came over a network: not 0/8,
/// 127/8, 224/4 or 240/4 (RFC 1122 3.2.1.3, RFC 6890).
pub const fn is_unicast_source(address: u32) -> bool {
    let first = (address >> 24) as u8;
    !matches!(first, 0 | 127 | 224..=255)
}

/// Whether `address` means something on one link only (169.254/16), so that no router forwards what
/// it sends or what is sent to it (RFC 3927 7).
pub const fn is_link_local(address: u32) -> bool {
    address >> 16 == 0xa9fe
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Never a panic, and what is accepted lies within the bytes.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert!(header.header_len() >= HEADER);
                prop_assert!(header.header_len() <= header.total_len());
                prop_assert!(header.total_len() <= bytes.len());
                let other = etherparse::Ipv4HeaderSlice::from_slice(&bytes).unwrap();
                prop_assert_eq!(header.source().to_be_bytes(), other.source());
                prop_assert_eq!(header.destination().to_be_bytes(), other.destination());
                prop_assert_eq!(header.ttl(), other.ttl());
                prop_assert_eq!(header.is_fragment(), other.is_fragmenting_payload());
                prop_assert_eq!(header.dont_fragment(), other.dont_fragment());
                prop_assert_eq!(header.id(), other.identification());
                prop_assert_eq!(header.tos(), other.dcp().value() << 2 | other.ecn().value());
            }
        }
    }

    #[test]
    fn a_quote_may_end_anywhere_behind_the_header() {
        let mut whole = [0; 100];
        (whole[0], whole[3]) = (0x46, 100);
        for length in 0..=whole.len() {
            let quote = &whole[..length];
            assert_eq!(Header::parse_quoted(quote).is_ok(), length >= 24, "{length} bytes");
            assert_eq!(Header::parse(quote).is_ok(), length == 100, "{length} bytes");
        }
        whole[3] = 23;
        assert_eq!(Header::parse_quoted(&whole).err(), Some(Malformed::BadLength));
    }

    #[test]
    fn options_end_where_they_make_no_sense() {
        let all = |bytes| Options(bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let router_alert = vec![0x94, 4, 0, 0];
        assert_eq!(all(&[1, 0x94, 4, 0, 0, 1, 7, 2, 0, 0x94, 4, 0, 0]), [router_alert, vec![7, 2]]);
        for bad in [&[0x94, 5, 0, 0][..], &[7, 1, 0, 0], &[7], &[1, 1, 1, 7], &[0, 7, 2], &[]] {
            assert!(all(bad).is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn source_routes_are_seen_among_other_options() {
        let of = |options: &[u8]| {
            let mut packet = vec![0x45 + (options.len() / 4) as u8];
            packet.resize(HEADER, 0);
            is_source_routed(&[&packet, options, &[131, 7, 4, 0]].concat())
        };
        assert!(of(&[131, 7, 4, 192, 0, 2, 1, 0]));
        assert!(of(&[1, 137, 7, 8, 192, 0, 2, 1]));
        assert!(of(&[0x94, 4, 0, 0, 1, 131, 3, 4]));
        // Record route, an end of the list before it, and a length that leads nowhere.
        for bad in [&[7, 7, 4, 0, 0, 0, 0, 0][..], &[0, 131, 3, 4], &[1, 1, 131, 9], &[]] {
            assert!(!of(bad), "{bad:?}");
        }
        assert!(!is_source_routed(&[]) && !is_source_routed(&[0x4f; 30]));
    }

    #[test]
    fn sources_off_the_network() {
        for bad in [0x0000_0001, 0x7f00_0001, 0xe000_0001, 0xffff_ffff] {
            assert!(!is_unicast_source(bad), "{bad:#x}");
        }
        assert!(is_unicast_source(0xc000_0201));
    }
}
