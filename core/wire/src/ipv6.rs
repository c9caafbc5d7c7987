//! IPv6 (RFC 8200): the fixed header, and the walk along the extension headers behind it.
//!
//! The walk is bounded ([`MOST_HEADERS`], [`MOST_BYTES`]), so that no packet costs more than a
//! known amount of looking, and it never goes beyond the packet's own length. It stops where the
//! bytes stop being headers: at an upper layer, at anything encrypted, and behind the fragment
//! header of a fragment that is not its datagram's first.

use crate::{Malformed, be16, be32};

/// Bytes of the fixed header.
pub const HEADER: usize = 40;
/// Offset of the payload length.
pub const PAYLOAD_LEN: usize = 4;
/// Offset of the next header.
pub const NEXT_HEADER: usize = 6;
/// Offset of the hop limit.
pub const HOP_LIMIT: usize = 7;
/// Offset of the source address.
pub const SOURCE: usize = 8;
/// Offset of the destination address.
pub const DESTINATION: usize = 24;
/// The least MTU of a link that carries IPv6 (RFC 8200 5).
pub const MIN_MTU: usize = 1280;

/// Next header: hop-by-hop options; only directly behind the fixed header.
pub const HOP_BY_HOP: u8 = 0;
/// Next header: routing.
pub const ROUTING: u8 = 43;
/// Next header: fragment.
pub const FRAGMENT: u8 = 44;
/// Next header: encapsulating security payload, behind which all is opaque.
pub const ESP: u8 = 50;
/// Next header: authentication, whose length counts otherwise (RFC 4302 2.2).
pub const AUTHENTICATION: u8 = 51;
/// Next header: ICMPv6.
pub const ICMPV6: u8 = 58;
/// Next header: nothing follows.
pub const NO_NEXT: u8 = 59;
/// Next header: destination options.
pub const DESTINATION_OPTIONS: u8 = 60;
/// Next header: mobility (RFC 6275).
pub const MOBILITY: u8 = 135;
/// Next header: host identity protocol (RFC 7401).
pub const HIP: u8 = 139;
/// Next header: shim6 (RFC 5533).
pub const SHIM6: u8 = 140;

/// Bytes of a fragment header.
pub const FRAGMENT_HEADER: usize = 8;

/// Extension headers that are walked through; a packet with more is refused.
pub const MOST_HEADERS: usize = 8;
/// Bytes of extension headers that are walked through; a packet with more is refused.
pub const MOST_BYTES: usize = 256;

/// A bounds-checked view of the fixed header.
#[derive(Clone, Copy)]
pub struct Header<'a>(pub &'a [u8; HEADER]);

impl<'a> Header<'a> {
    /// The header at the start of `packet` (which may have link-layer padding behind it), with
    /// its version and payload length verified. A jumbogram (RFC 2675) has a payload length of
    /// zero and is taken by it: no frame here holds one.
    #[inline(always)]
    pub fn parse(packet: &'a [u8]) -> Result<Self, Malformed> {
        let Some(bytes) = packet.first_chunk::<HEADER>() else {
            return Err(Malformed::Truncated);
        };
        let header = Self(bytes);
        if bytes[0] >> 4 != 6 {
            return Err(Malformed::BadHeader);
        }
        if header.total_len() > packet.len() {
            return Err(Malformed::BadLength);
        }
        Ok(header)
    }

    /// Traffic class: DSCP and ECN.
    #[inline(always)]
    pub const fn traffic_class(self) -> u8 {
        (be16(self.0, 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    #[inline(always)]
    pub const fn flow_label(self) -> u32 {
        be32(self.0, 0) & 0x000f_ffff
    }

    /// Length in bytes of what follows the fixed header, extension headers included.
    #[inline(always)]
    pub const fn payload_len(self) -> usize {
        be16(self.0, PAYLOAD_LEN) as usize
    }

    /// Total length in bytes, the fixed header included.
    #[inline(always)]
    pub const fn total_len(self) -> usize {
        HEADER + self.payload_len()
    }

    /// Next header: an upper layer's protocol number or the first extension header.
    #[inline(always)]
    pub const fn next_header(self) -> u8 {
        self.0[NEXT_HEADER]
    }

    /// Hop limit.
    #[inline(always)]
    pub const fn hop_limit(self) -> u8 {
        self.0[HOP_LIMIT]
    }

    /// Source address.
    #[inline(always)]
    pub const fn source(self) -> u128 {
        address(self.0, SOURCE)
    }

    /// Destination address.
    #[inline(always)]
    pub const fn destination(self) -> u128 {
        address(self.0, DESTINATION)
    }
}

#[inline(always)]
const fn address(bytes: &[u8; HEADER], at: usize) -> u128 {
    let (high, low) = (be32(bytes, at) as u128, be32(bytes, at + 4) as u128);
    let (third, last) = (be32(bytes, at + 8) as u128, be32(bytes, at + 12) as u128);
    high << 96 | low << 64 | third << 32 | last
}

/// Whether `address` can be the source of a unicast packet that came over a network: not the
/// unspecified or the loopback address, not a group (RFC 4291 2.5.2, 2.5.3, 2.7), and not an IPv4
/// address in IPv6 clothes (`::ffff:0:0/96`), which never belongs on a wire (RFC 6890).
pub const fn is_unicast_source(address: u128) -> bool {
    address > 1 && address >> 120 != 0xff && address >> 32 != 0xffff
}

/// Whether `address` means something on one link only (`fe80::/10`), so that no router forwards
/// what it sends or what is sent to it (RFC 4291 2.5.6).
pub const fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

/// The fragment header of a packet (RFC 8200 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Where this fragment's bytes belong in the datagram's, a multiple of 8 bytes.
    pub offset: u16,
    /// Whether more fragments follow. With an offset of zero and no more to come the fragment is
    /// "atomic": a whole datagram (RFC 6946).
    pub more: bool,
    /// Identification, the same in all fragments of a datagram.
    pub id: u32,
    /// Offset of the fragment header in the packet.
    pub at: usize,
}

/// What the extension headers lead to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upper {
    /// Protocol number of what begins at `offset`. In a fragment that is not the first this is
    /// what the fragment header says, which may be an extension header.
    pub protocol: u8,
    /// Where the upper layer (or the fragment's data) begins in the packet; at most the packet's
    /// total length.
    pub offset: usize,
    /// The fragment header, when there is one.
    pub fragment: Option<Fragment>,
    /// Whether a routing header has segments left: the destination address is not the last one,
    /// which alone is what checksums cover (RFC 8200 8.1).
    pub routed: bool,
    /// Whether there is a routing header of type 0, used up or not: a source route as senders
    /// choose it, and not to be followed any more (RFC 5095).
    pub source_routed: bool,
    /// Whether there is an authentication header, which covers the addresses.
    pub authenticated: bool,
}

/// Why the walk came to no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwalkable {
    /// The fixed header cannot be used; or an extension header reaches beyond the packet
    /// (`Truncated`), or is where it may not be (`BadHeader`).
    Malformed(Malformed),
    /// More than [`MOST_HEADERS`] extension headers, or than [`MOST_BYTES`] bytes of them.
    TooLong,
}

impl From<Malformed> for Unwalkable {
    fn from(why: Malformed) -> Self {
        Self::Malformed(why)
    }
}

/// Walks along the extension headers of `packet`, which starts with its fixed header.
#[inline]
pub fn walk(packet: &[u8]) -> Result<Upper, Unwalkable> {
    let header = Header::parse(packet)?;
    along(&packet[..header.total_len()], header)
}

/// The same for what an ICMP error quotes of a packet, which may end anywhere behind the fixed
/// header. The offset of the upper layer is at most the quote's length.
pub fn walk_quoted(quote: &[u8]) -> Result<Upper, Unwalkable> {
    let bytes = quote.first_chunk::<HEADER>().ok_or(Malformed::Truncated)?;
    if bytes[0] >> 4 != 6 {
        return Err(Malformed::BadHeader.into());
    }
    let header = Header(bytes);
    along(&quote[..header.total_len().min(quote.len())], header)
}

#[inline(always)]
fn along(packet: &[u8], header: Header<'_>) -> Result<Upper, Unwalkable> {
    let protocol = header.next_header();
    let mut upper = Upper { protocol, offset: HEADER, ..Upper::default() };
    if !is_extension(protocol) {
        return Ok(upper);
    }
    for _ in 0..MOST_HEADERS {
        let over = step(packet, &mut upper)?;
        if upper.offset > HEADER + MOST_BYTES {
            return Err(Unwalkable::TooLong);
        }
        if over {
            return Ok(upper);
        }
    }
    Err(Unwalkable::TooLong)
}

/// Steps over the extension header at `upper.offset`. Whether the walk is over.
fn step(packet: &[u8], upper: &mut Upper) -> Result<bool, Malformed> {
    let rest = &packet[upper.offset..];
    // Every extension header is a multiple of 8 bytes, but for authentication's 12 and more.
    let start: &[u8; 8] = rest.first_chunk().ok_or(Malformed::Truncated)?;
    let mut length = (start[1] as usize + 1) * 8;
    let mut over = false;
    match upper.protocol {
        HOP_BY_HOP if upper.offset != HEADER => return Err(Malformed::BadHeader),
        ROUTING => {
            upper.routed |= start[3] != 0;
            upper.source_routed |= start[2] == 0;
        }
        AUTHENTICATION => {
            upper.authenticated = true;
            length = (start[1] as usize + 2) * 4;
        }
        FRAGMENT => {
            if upper.fragment.is_some() {
                return Err(Malformed::BadHeader);
            }
            let place = be16(start, 2);
            let (offset, more) = (place & !7, place & 1 == 1);
            length = FRAGMENT_HEADER;
            over = offset != 0;
            upper.fragment = Some(Fragment { offset, more, id: be32(start, 4), at: upper.offset });
        }
        _ => {}
    }
    if length > rest.len() {
        return Err(Malformed::Truncated);
    }
    upper.protocol = start[0];
    upper.offset += length;
    Ok(over || !is_extension(upper.protocol))
}

/// Whether a header of this number is followed by another whose number it carries.
#[inline(always)]
pub(crate) const fn is_extension(protocol: u8) -> bool {
    // Mobility is of the same form, but nothing follows it (RFC 6275 6.1.1): it is an upper layer.
    matches!(
        protocol,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS | HIP | SHIM6
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet of these extension headers, each given by its number and bytes (whose first is
    /// overwritten), ending in UDP with `tail` bytes.
    fn packet(headers: &[(u8, Vec<u8>)], tail: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[0] = 0x60;
        let mut before = NEXT_HEADER;
        for (number, header) in headers {
            bytes[before] = *number;
            before = bytes.len();
            bytes.extend(header);
        }
        bytes[before] = 17;
        bytes.resize(bytes.len() + tail, 0xaa);
        let payload = (bytes.len() - HEADER) as u16;
        bytes[PAYLOAD_LEN..PAYLOAD_LEN + 2].copy_from_slice(&payload.to_be_bytes());
        bytes
    }

    fn options(units: u8) -> Vec<u8> {
        let mut bytes = vec![0; (units as usize + 1) * 8];
        bytes[1] = units;
        bytes
    }

    fn fragment(place: u16) -> Vec<u8> {
        let [high, low] = place.to_be_bytes();
        vec![0, 0, high, low, 1, 2, 3, 4]
    }

    fn plain(protocol: u8, offset: usize) -> Upper {
        Upper { protocol, offset, ..Upper::default() }
    }

    #[test]
    fn chains_end_at_the_upper_layer() {
        assert_eq!(walk(&packet(&[], 8)), Ok(plain(17, 40)));
        let mut authentication = vec![0; 24];
        authentication[1] = 4;
        let chain = [(HOP_BY_HOP, options(0)), (AUTHENTICATION, authentication), (60, options(1))];
        let authenticated = Upper { authenticated: true, ..plain(17, 40 + 8 + 24 + 16) };
        assert_eq!(walk(&packet(&chain, 8)), Ok(authenticated));
        let mut routing = options(2);
        routing[3] = 1;
        let routed = Upper { routed: true, source_routed: true, ..plain(17, 40 + 24) };
        assert_eq!(walk(&packet(&[(ROUTING, routing.clone())], 8)), Ok(routed));
        routing[2..4].copy_from_slice(&[4, 0]);
        assert_eq!(walk(&packet(&[(ROUTING, routing)], 8)), Ok(plain(17, 40 + 24)));
        for opaque in [ESP, NO_NEXT, MOBILITY, ICMPV6] {
            let mut bytes = packet(&[], 8);
            bytes[NEXT_HEADER] = opaque;
            assert_eq!(walk(&bytes), Ok(plain(opaque, 40)));
        }
    }

    #[test]
    fn the_walk_ends_behind_a_later_fragment() {
        let found = |offset, more| Fragment { offset, more, id: 0x0102_0304, at: 48 };
        let first = packet(&[(0, options(0)), (FRAGMENT, fragment(1)), (60, options(0))], 8);
        let expected = Upper { fragment: Some(found(0, true)), ..plain(17, 64) };
        assert_eq!(walk(&first), Ok(expected));
        // Its next header is destination options, but the bytes are data from within.
        let later = packet(&[(0, options(0)), (FRAGMENT, fragment(0x5a8)), (60, options(9))], 8);
        let expected = Upper { fragment: Some(found(0x5a8, false)), ..plain(60, 56) };
        assert_eq!(walk(&later), Ok(expected));
    }

    #[test]
    fn unreasonable_chains_are_refused() {
        let malformed = |why| Err(Unwalkable::Malformed(why));
        let eight: Vec<_> = (0..8).map(|_| (60, options(0))).collect();
        assert_eq!(walk(&packet(&eight, 8)), Ok(plain(17, 40 + 64)));
        let nine: Vec<_> = (0..9).map(|_| (60, options(0))).collect();
        assert_eq!(walk(&packet(&nine, 8)), Err(Unwalkable::TooLong));
        assert_eq!(walk(&packet(&[(60, options(31))], 8)), Ok(plain(17, 40 + 256)));
        for long in [&[(60, options(32))][..], &[(60, options(0)), (60, options(31))]] {
            assert_eq!(walk(&packet(long, 8)), Err(Unwalkable::TooLong));
        }
        let long = [(60, options(31)), (60, options(0)), (60, options(0))];
        assert_eq!(walk(&packet(&long, 8)), Err(Unwalkable::TooLong));
        let late = [(60, options(0)), (HOP_BY_HOP, options(0))];
        assert_eq!(walk(&packet(&late, 8)), malformed(Malformed::BadHeader));
        let twice = [(FRAGMENT, fragment(1)), (FRAGMENT, fragment(1))];
        assert_eq!(walk(&packet(&twice, 8)), malformed(Malformed::BadHeader));
        let mut cut = packet(&[(60, options(1))], 0);
        cut[PAYLOAD_LEN + 1] -= 1;
        assert_eq!(walk(&cut), malformed(Malformed::Truncated));
        assert_eq!(walk(&cut[..40]), malformed(Malformed::BadLength));
        assert_eq!(walk(&cut[..39]), malformed(Malformed::Truncated));
        cut[0] = 0x45;
        assert_eq!(walk(&cut), malformed(Malformed::BadHeader));
    }

    #[test]
    fn a_quote_may_end_anywhere_behind_the_headers() {
        let whole = packet(&[(0, options(0)), (60, options(1))], 100);
        for length in 0..whole.len() {
            let expected = match length {
                ..64 => Err(Unwalkable::Malformed(Malformed::Truncated)),
                _ => walk(&whole),
            };
            assert_eq!(walk_quoted(&whole[..length]), expected, "{length} bytes");
        }
    }

    #[test]
    fn sources_off_the_network() {
        let at = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().to_bits();
        for bad in ["::", "::1", "ff02::1", "ff0e::1", "::ffff:192.0.2.1"] {
            assert!(!is_unicast_source(at(bad)), "{bad}");
        }
        for good in ["2001:db8::1", "fe80::1", "fd00::1", "64:ff9b::192.0.2.1", "::2"] {
            assert!(is_unicast_source(at(good)), "{good}");
        }
        assert!(is_link_local(at("fe80::1")) && is_link_local(at("febf::1")));
        assert!(!is_link_local(at("fec0::1")) && !is_link_local(at("2001:db8::1")));
    }

    fn extension() -> impl Strategy<Value = (u8, Vec<u8>)> {
        prop_oneof![
            (0u8..4).prop_map(|units| (DESTINATION_OPTIONS, options(units))),
            (0u8..4, 0u8..2).prop_map(|(units, left)| {
                let mut bytes = options(units);
                bytes[3] = left;
                (ROUTING, bytes)
            }),
            (1u8..9).prop_map(|units| {
                let mut bytes = vec![0; (units as usize + 2) * 4];
                bytes[1] = units;
                (AUTHENTICATION, bytes)
            }),
            prop_oneof![Just(0u16), Just(1), any::<u16>()].prop_map(|p| (FRAGMENT, fragment(p))),
        ]
    }

    proptest! {
        /// Never a panic, what is accepted lies within the bytes, and the fields are what
        /// `etherparse` reads.
        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), six: bool) {
            if six && bytes.len() >= HEADER {
                bytes[0] = 0x60 | bytes[0] & 0xf;
                bytes[PAYLOAD_LEN] = 0;
            }
            if let Ok(header) = Header::parse(&bytes) {
                let other = etherparse::Ipv6HeaderSlice::from_slice(&bytes).unwrap();
                prop_assert!(header.total_len() <= bytes.len());
                prop_assert_eq!(header.payload_len(), other.payload_length() as usize);
                prop_assert_eq!(header.source().to_be_bytes(), other.source());
                prop_assert_eq!(header.destination().to_be_bytes(), other.destination());
                prop_assert_eq!(header.hop_limit(), other.hop_limit());
                prop_assert_eq!(header.next_header(), other.next_header().0);
                prop_assert_eq!(header.traffic_class(), other.traffic_class());
                prop_assert_eq!(header.flow_label(), other.flow_label().value());
                if let Ok(upper) = walk(&bytes) {
                    prop_assert!(upper.offset >= HEADER && upper.offset <= header.total_len());
                    prop_assert!(upper.offset <= HEADER + MOST_BYTES);
                }
            }
        }

        /// Walks go where `etherparse` goes, one header at a time.
        #[test]
        fn walks_agree_with_etherparse(
            hop in any::<bool>(), chain in proptest::collection::vec(extension(), 0..7),
        ) {
            let mut headers = chain;
            if hop {
                headers.insert(0, (HOP_BY_HOP, options(1)));
            }
            let bytes = packet(&headers, 8);
            let Ok(upper) = walk(&bytes) else {
                let fragments = headers.iter().filter(|(number, _)| *number == FRAGMENT).count();
                let extensions = bytes.len() - HEADER - 8;
                prop_assert!(fragments > 1 || extensions > MOST_BYTES);
                return Ok(());
            };
            let (mut next, mut at, mut fragment) = (bytes[NEXT_HEADER], HEADER, None);
            while is_extension(next) && !matches!(fragment, Some((1.., _))) {
                (next, at) = match next {
                    FRAGMENT => {
                        let s = etherparse::Ipv6FragmentHeaderSlice::from_slice(&bytes[at..]);
                        let s = s.unwrap();
                        fragment = Some((s.fragment_offset().byte_offset(), s.more_fragments()));
                        (s.next_header().0, at + s.slice().len())
                    }
                    AUTHENTICATION => {
                        let s = etherparse::IpAuthHeaderSlice::from_slice(&bytes[at..]).unwrap();
                        (s.next_header().0, at + s.slice().len())
                    }
                    _ => {
                        let s = etherparse::Ipv6RawExtHeaderSlice::from_slice(&bytes[at..]);
                        let s = s.unwrap();
                        (s.next_header().0, at + s.slice().len())
                    }
                };
            }
            prop_assert_eq!((upper.protocol, upper.offset), (next, at));
            let found = upper.fragment.map(|f| (f.offset, f.more));
            prop_assert_eq!(found, fragment);
        }
    }
}
