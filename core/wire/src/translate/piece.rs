//! Fragments made those of the other IP version (RFC 7915 4.1, 5.1.1).
//!
//! Place and identification go from one form to the other, so that what was one datagram there is
//! one here, whoever puts it together. ICMP is refused: its checksum covers length and addresses in
//! one version only, and the length of the whole is not in a fragment.

use super::{Untranslatable, fixed_v4, fixed_v6, next_header, protocol, unwalkable};
use crate::fragment::FragmentInfo;
use crate::{ipv4, ipv6};

/// Bytes of the headers of an IPv6 fragment.
pub const HEADERS_V6: usize = ipv6::HEADER + ipv6::FRAGMENT_HEADER;

/// More fragments, in the word of IPv4 with the offset.
const MORE: u16 = 0x2000;
/// The most bytes that an IPv4 packet may carry.
const MOST_V4: usize = u16::MAX as usize - ipv4::HEADER;

/// Writes the IPv6 headers for the IPv4 fragment `packet`. Where its data begins, which follows
/// the new headers as it is but for a transport header's checksum; options are left behind.
///
/// # Errors
/// See [`Untranslatable`]; `Protocol` also for ICMP, and for what is no fragment.
pub fn to_v6(
    out: &mut [u8; HEADERS_V6],
    packet: &[u8],
    (source, destination): (u128, u128),
    hop_limit: u8,
) -> Result<usize, Untranslatable> {
    let header = ipv4::Header::parse(packet).map_err(Untranslatable::Malformed)?;
    write_v6(out, header, packet, (source, destination), hop_limit)
}

/// `packet` holds the whole of `header`, and maybe no more.
pub(super) fn write_v6(
    out: &mut [u8; HEADERS_V6],
    header: ipv4::Header<'_>,
    packet: &[u8],
    ends: (u128, u128),
    hop_limit: u8,
) -> Result<usize, Untranslatable> {
    let next = next_header(header, packet)?;
    if next == ipv6::ICMPV6 || !header.is_fragment() {
        return Err(Untranslatable::Protocol);
    }
    let data = header.header_len();
    let payload = u16::try_from(ipv6::FRAGMENT_HEADER + header.total_len() - data)
        .map_err(|_| Untranslatable::TooBig)?;
    let (fixed, fragment) = out.split_at_mut(ipv6::HEADER);
    let fixed = fixed.first_chunk_mut().ok_or(Untranslatable::TooBig)?;
    fixed_v6(fixed, header.tos(), (payload, ipv6::FRAGMENT, hop_limit), ends);
    let place = FragmentInfo::of(header);
    let word = place.offset | u16::from(place.more);
    fragment[..2].copy_from_slice(&[next, 0]);
    fragment[2..4].copy_from_slice(&word.to_be_bytes());
    fragment[4..].copy_from_slice(&u32::from(place.id).to_be_bytes());
    Ok(data)
}

/// Writes the IPv4 header for the IPv6 fragment `packet`, which carries a part of a datagram of
/// `of`: the datagram's first fragment tells that, whatever the others say (RFC 8200 4.5). Where
/// its data begins, as [`to_v6`] has it.
///
/// # Errors
/// See [`Untranslatable`]; `Protocol` also for ICMPv6, for what is no fragment, and where other
/// extension headers are in fragments, which would move the data of all.
pub fn to_v4(
    out: &mut [u8; ipv4::HEADER],
    packet: &[u8],
    (source, destination): (u32, u32),
    ttl: u8,
    of: u8,
) -> Result<usize, Untranslatable> {
    let upper = ipv6::walk(packet).map_err(unwalkable)?;
    let header = ipv6::Header::parse(packet).map_err(Untranslatable::Malformed)?;
    write_v4(out, header, upper, (source, destination), (ttl, of))
}

/// `upper` is within the length that `header` tells.
pub(super) fn write_v4(
    out: &mut [u8; ipv4::HEADER],
    header: ipv6::Header<'_>,
    upper: ipv6::Upper,
    ends: (u32, u32),
    (ttl, of): (u8, u8),
) -> Result<usize, Untranslatable> {
    let place = upper.fragment.ok_or(Untranslatable::Protocol)?;
    let data = place.at + ipv6::FRAGMENT_HEADER;
    let number = protocol(ipv6::Upper { protocol: of, ..upper })?;
    if number == ipv4::ICMP || ipv6::is_extension(number) || data != upper.offset {
        return Err(Untranslatable::Protocol);
    }
    let length = header.total_len() - data;
    if usize::from(place.offset) + length > MOST_V4 {
        return Err(Untranslatable::TooBig);
    }
    let total = (ipv4::HEADER + length) as u16;
    let word = (place.offset / 8) | if place.more { MORE } else { 0 };
    let (class, id) = (header.traffic_class(), place.id as u16);
    fixed_v4(out, class, (total, id, word), (ttl, number), ends);
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{
        IpFragOffset, IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6FragmentHeader,
        Ipv6FragmentHeaderSlice, Ipv6HeaderSlice,
    };
    use proptest::prelude::*;

    fn piece_v4(ends: [u32; 2], place: (u16, bool), id: u16, data: &[u8]) -> Vec<u8> {
        let [source, destination] = ends.map(u32::to_be_bytes);
        let length = data.len() as u16;
        let mut header = Ipv4Header::new(length, 9, IpNumber::UDP, source, destination).unwrap();
        header.identification = id;
        header.dont_fragment = false;
        header.fragment_offset = IpFragOffset::try_new(place.0).unwrap();
        header.more_fragments = place.1;
        header.header_checksum = header.calc_header_checksum();
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        [bytes, data.to_vec()].concat()
    }

    fn place() -> impl Strategy<Value = (u16, bool)> {
        (0u16..0x1fff, any::<bool>()).prop_filter("a fragment", |place| *place != (0, false))
    }

    proptest! {
        /// There, as `etherparse` reads it, and back again as it was.
        #[test]
        fn there_and_back(
            from: [u32; 2], to: [u128; 2], tos: u8, hops: u8, id: u16, place in place(),
            data in proptest::collection::vec(any::<u8>(), 0..1400),
        ) {
            let mut old = piece_v4(from, place, id, &data);
            old[1] = tos;
            let mut headers = [0xee; HEADERS_V6];
            prop_assert_eq!(to_v6(&mut headers, &old, (to[0], to[1]), hops), Ok(20));
            let six = [&headers[..], &data].concat();
            let read = Ipv6HeaderSlice::from_slice(&six).unwrap();
            prop_assert_eq!((read.traffic_class(), read.hop_limit()), (tos, hops));
            prop_assert_eq!(read.flow_label().value(), 0);
            prop_assert_eq!(usize::from(read.payload_length()), 8 + data.len());
            prop_assert_eq!(read.next_header(), IpNumber::IPV6_FRAGMENTATION_HEADER);
            prop_assert_eq!(read.source(), to[0].to_be_bytes());
            prop_assert_eq!(read.destination(), to[1].to_be_bytes());
            let read = Ipv6FragmentHeaderSlice::from_slice(&six[40..]).unwrap();
            prop_assert_eq!(read.next_header(), IpNumber::UDP);
            prop_assert_eq!((read.fragment_offset().value(), read.more_fragments()), place);
            prop_assert_eq!(read.identification(), u32::from(id));

            let mut header = [0xee; ipv4::HEADER];
            let back = to_v4(&mut header, &six, (from[0], from[1]), hops, ipv4::UDP);
            if usize::from(place.0) * 8 + data.len() > 65_515 {
                prop_assert_eq!(back, Err(Untranslatable::TooBig));
                return Ok(());
            }
            prop_assert_eq!(back, Ok(48));
            let read = Ipv4HeaderSlice::from_slice(&header).unwrap().to_header();
            prop_assert_eq!(read.header_checksum, read.calc_header_checksum());
            old[8] = hops;
            old[10..12].copy_from_slice(&header[10..12]);
            prop_assert_eq!(&header[..], &old[..20]);
        }

        /// Never a panic, and what follows lies within.
        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), of: u8) {
            for version in [0x40, 0x60] {
                if let Some(first) = bytes.first_mut() {
                    *first = version | *first & 0xf;
                }
                let there = to_v6(&mut [0; HEADERS_V6], &bytes, (1, 2), 3);
                let back = to_v4(&mut [0; ipv4::HEADER], &bytes, (1, 2), 3, of);
                for offset in [there, back].into_iter().flatten() {
                    prop_assert!(offset <= bytes.len());
                }
            }
        }
    }

    /// An IPv6 packet of these headers, each a number and its bytes, and 16 bytes of data.
    fn piece_v6(headers: &[(u8, [u8; 8])], last: u8) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[0] = 0x60;
        bytes[5] = (headers.len() * 8 + 16) as u8;
        let mut named = 6;
        for (number, header) in headers {
            bytes[named] = *number;
            named = bytes.len();
            bytes.extend(header);
        }
        bytes[named] = last;
        bytes.resize(bytes.len() + 16, 7);
        bytes
    }

    #[test]
    fn headers_before_the_fragment_header_go_and_those_behind_do_not() {
        let mut out = [0; ipv4::HEADER];
        let mut to = |packet: &[u8], of| to_v4(&mut out, packet, (1, 2), 3, of);
        let fragment = |offset: u8, more: u8| {
            let mut header = Vec::new();
            Ipv6FragmentHeader::new(
                IpNumber::UDP,
                IpFragOffset::try_new(u16::from(offset)).unwrap(),
                more == 1,
                0xabcd_1234,
            )
            .write(&mut header)
            .unwrap();
            (ipv6::FRAGMENT, <[u8; 8]>::try_from(header).unwrap())
        };
        let options = (ipv6::DESTINATION_OPTIONS, [0, 0, 1, 4, 0, 0, 0, 0]);
        let routed = (ipv6::ROUTING, [0, 0, 0, 1, 0, 0, 0, 0]);
        let piece = piece_v6(&[options, fragment(0, 1)], 17);
        assert_eq!(to(&piece, 17), Ok(56));
        assert_eq!(to(&piece, ipv6::ICMPV6), Err(Untranslatable::Protocol));
        let behind = piece_v6(&[fragment(0, 1), options], 17);
        assert_eq!(to(&behind, 17), Err(Untranslatable::Protocol));
        // What a later one names is not what counts.
        let later = piece_v6(&[fragment(3, 0)], ipv6::DESTINATION_OPTIONS);
        assert_eq!(to(&later, 17), Ok(48));
        assert_eq!(to(&later, ipv6::DESTINATION_OPTIONS), Err(Untranslatable::Protocol));
        let on_its_way = piece_v6(&[routed, fragment(0, 1)], 17);
        assert_eq!(to(&on_its_way, 17), Err(Untranslatable::SourceRoute));
        assert_eq!(to(&piece_v6(&[options], 17), 17), Err(Untranslatable::Protocol));
        assert_eq!(to(&piece, 17), Ok(56));
        assert_eq!(out[4..10], [0x12, 0x34, 0x20, 0, 3, 17]);
    }

    #[test]
    fn what_is_no_fragment_or_icmp_is_refused() {
        let mut out = [0; HEADERS_V6];
        let mut to = |packet: &[u8]| to_v6(&mut out, packet, (1, 2), 3);
        let mut piece = piece_v4([1, 2], (0, true), 7, &[7; 16]);
        assert_eq!(to(&piece), Ok(20));
        for (protocol, why) in [
            (ipv4::ICMP, Untranslatable::Protocol),
            (ipv6::ICMPV6, Untranslatable::Protocol),
            (ipv6::FRAGMENT, Untranslatable::Protocol),
            (ipv6::AUTHENTICATION, Untranslatable::Authenticated),
        ] {
            piece[9] = protocol;
            assert_eq!(to(&piece), Err(why), "protocol {protocol}");
        }
        assert_eq!(to(&piece_v4([1, 2], (0, false), 7, &[7; 16])), Err(Untranslatable::Protocol));
    }
}
