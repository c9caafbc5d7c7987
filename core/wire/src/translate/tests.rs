//! Translation as `etherparse` sees it, and RFC 7915's tables line by line.

use super::*;
use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, PacketBuilder, PacketHeaders};
use proptest::prelude::*;

const LINKS: Links = Links { v4: 1500, v6: 1500 };

fn udp_v4(ends: [u32; 2], payload: &[u8]) -> Vec<u8> {
    let [source, destination] = ends.map(u32::to_be_bytes);
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(source, destination, 9).udp(53, 5353).write(&mut bytes, payload).unwrap();
    bytes
}

fn udp_v6(ends: [u128; 2], payload: &[u8]) -> Vec<u8> {
    let [source, destination] = ends.map(u128::to_be_bytes);
    let mut bytes = Vec::new();
    PacketBuilder::ipv6(source, destination, 9).udp(53, 5353).write(&mut bytes, payload).unwrap();
    bytes
}

/// What `etherparse` sums a UDP datagram's checksum to.
fn udp_checksum(packet: &[u8]) -> (u16, u16) {
    let parsed = PacketHeaders::from_ip_slice(packet).unwrap();
    let udp = parsed.transport.unwrap().udp().unwrap();
    let payload = parsed.payload.slice();
    let expected = match parsed.net.unwrap() {
        etherparse::NetHeaders::Ipv4(ip, _) => udp.calc_checksum_ipv4(&ip, payload),
        etherparse::NetHeaders::Ipv6(ip, _) => udp.calc_checksum_ipv6(&ip, payload),
        etherparse::NetHeaders::Arp(_) => unreachable!("it was built as IP"),
    };
    (udp.checksum, expected.unwrap())
}

proptest! {
    /// A datagram there, right to `etherparse`, and back again as it was.
    #[test]
    fn there_and_back(
        from: [u32; 2], to: [u128; 2], tos: u8, hops: u8, id: u16,
        payload in proptest::collection::vec(any::<u8>(), 0..1400),
    ) {
        let mut old = udp_v4(from, &payload);
        old[1] = tos;
        let mut header = [0xee; ipv6::HEADER];
        prop_assert_eq!(header_to_v6(&mut header, &old, to[0], to[1], hops), Ok(20));
        let mut six = [&header[..], &old[20..]].concat();
        let delta = to_v6(Delta::NONE, (from[0], from[1]), (to[0], to[1]));
        let sum = u16::from_be_bytes([six[46], six[47]]);
        six[46..48].copy_from_slice(&delta.apply_udp_v6(sum).to_be_bytes());
        let read = Ipv6HeaderSlice::from_slice(&six).unwrap();
        prop_assert_eq!(read.traffic_class(), tos);
        prop_assert_eq!(read.flow_label().value(), 0);
        prop_assert_eq!(read.hop_limit(), hops);
        prop_assert_eq!(usize::from(read.payload_length()), payload.len() + 8);
        prop_assert_eq!(read.source(), to[0].to_be_bytes());
        prop_assert_eq!(read.destination(), to[1].to_be_bytes());
        let (is, should_be) = udp_checksum(&six);
        prop_assert_eq!(is, should_be);

        let mut header = [0xee; ipv4::HEADER];
        let offset = header_to_v4(&mut header, &six, from[0], from[1], hops, id);
        prop_assert_eq!(offset, Ok(40));
        let mut four = [&header[..], &six[40..]].concat();
        let delta = to_v4(Delta::NONE, (to[0], to[1]), (from[0], from[1]));
        four[26..28].copy_from_slice(&delta.apply_udp(is).to_be_bytes());
        let read = Ipv4HeaderSlice::from_slice(&four).unwrap().to_header();
        prop_assert_eq!(read.header_checksum, read.calc_header_checksum());
        prop_assert_eq!(read.dont_fragment, four.len() > 1260);
        prop_assert_eq!(read.identification, if four.len() > 1260 { 0 } else { id });
        prop_assert_eq!((read.time_to_live, four[1]), (hops, tos));
        prop_assert_eq!((read.source, read.destination),
                        (from[0].to_be_bytes(), from[1].to_be_bytes()));
        let (is, should_be) = udp_checksum(&four);
        prop_assert_eq!(is, should_be);
        prop_assert_eq!(&four[20..], &old[20..]);
    }

    /// What is quoted of a packet becomes what would be quoted of its like.
    #[test]
    fn quotes_are_like_their_packets(payload in 0usize..1400, kept in 20usize..1500, hops: u8) {
        let mut four = udp_v4([1, 2], &vec![7; payload]);
        four[ipv4::TTL] = hops;
        let mut whole = [0xee; ipv6::HEADER];
        prop_assert_eq!(header_to_v6(&mut whole, &four, 3, 4, hops), Ok(20));
        let mut of_quote = [0; piece::HEADERS_V6];
        let quote = &four[..kept.min(four.len())];
        prop_assert_eq!(quote_to_v6(&mut of_quote, quote, 3, 4), Ok((20, ipv6::HEADER)));
        prop_assert_eq!(&whole[..], &of_quote[..ipv6::HEADER]);

        let mut six = udp_v6([1, 2], &vec![7; payload]);
        six[ipv6::HOP_LIMIT] = hops;
        let mut whole = [0xee; ipv4::HEADER];
        prop_assert_eq!(header_to_v4(&mut whole, &six, 3, 4, hops, 0), Ok(40));
        let mut of_quote = [0; ipv4::HEADER];
        let quote = &six[..(kept + 20).min(six.len())];
        prop_assert_eq!(quote_to_v4(&mut of_quote, quote, 3, 4), Ok(40));
        prop_assert_eq!(whole, of_quote);
    }

    /// The same of fragments.
    #[test]
    fn quotes_of_fragments_are_like_their_packets(
        payload in 8usize..1400, kept in 20usize..1500, hops: u8, id: u16, offset in 0u16..100,
    ) {
        let mut four = udp_v4([1, 2], &vec![7; payload]);
        four[ipv4::TTL] = hops;
        four[4..6].copy_from_slice(&id.to_be_bytes());
        four[6..8].copy_from_slice(&(0x2000 | offset).to_be_bytes());
        let mut whole = [0xee; piece::HEADERS_V6];
        prop_assert_eq!(piece::to_v6(&mut whole, &four, (3, 4), hops), Ok(20));
        let mut of_quote = [0; piece::HEADERS_V6];
        let quote = &four[..kept.min(four.len())];
        prop_assert_eq!(quote_to_v6(&mut of_quote, quote, 3, 4), Ok((20, piece::HEADERS_V6)));
        prop_assert_eq!(whole, of_quote);

        let six = [&whole[..], &four[20..]].concat();
        let mut back = [0xee; ipv4::HEADER];
        prop_assert_eq!(piece::to_v4(&mut back, &six, (1, 2), hops, ipv4::UDP), Ok(48));
        let mut of_quote = [0; ipv4::HEADER];
        let quote = &six[..(kept + 28).min(six.len())];
        prop_assert_eq!(quote_to_v4(&mut of_quote, quote, 1, 2), Ok(48));
        prop_assert_eq!(back, of_quote);
        prop_assert_eq!(&back[4..8], &four[4..8]);
    }

    /// Never a panic, and what follows lies within.
    #[test]
    fn any_bytes(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind: u8, code: u8,
    ) {
        let (mut six, mut four) = ([0; ipv6::HEADER], [0; ipv4::HEADER]);
        for version in [0x40, 0x60] {
            if let Some(first) = bytes.first_mut() {
                *first = version | *first & 0xf;
            }
            let there = header_to_v6(&mut six, &bytes, 1, 2, 3);
            let back = header_to_v4(&mut four, &bytes, 1, 2, 3, 4);
            let quote = quote_to_v6(&mut [0; piece::HEADERS_V6], &bytes, 1, 2);
            let quotes = [quote.map(|(from, _)| from), quote_to_v4(&mut four, &bytes, 1, 2)];
            for offset in [there, back].into_iter().chain(quotes).flatten() {
                prop_assert!(offset <= bytes.len());
            }
        }
        let report = Report { kind, code, rest: u32::from(kind) << 24 | u32::from(code) };
        if let Some(six) = error_to_v6(report, 1500, LINKS) {
            prop_assert!(six.kind < 128);
        }
        if let Some(four) = error_to_v4(report, code.is_multiple_of(2), LINKS) {
            prop_assert!(crate::icmp::is_error(four.kind));
        }
    }
}

#[test]
fn packets_without_a_like_are_refused_v4() {
    let mut out = [0; ipv6::HEADER];
    let mut try_it = |packet: &[u8]| header_to_v6(&mut out, packet, 1, 2, 3);
    let plain = udp_v4([1, 2], &[7; 40]);
    for (at, value, why) in [
        (6, 0x20, Untranslatable::Fragment),
        (7, 1, Untranslatable::Fragment),
        (9, 0, Untranslatable::Protocol),
        (9, IGMP, Untranslatable::Protocol),
        (9, ipv6::FRAGMENT, Untranslatable::Protocol),
        (9, ipv6::ICMPV6, Untranslatable::Protocol),
        (9, ipv6::AUTHENTICATION, Untranslatable::Authenticated),
        (0, 0x65, Untranslatable::Malformed(Malformed::BadHeader)),
    ] {
        let mut packet = plain.clone();
        packet[at] = value;
        assert_eq!(try_it(&packet), Err(why), "{value:#x} at {at}");
    }
    // A source route with a hop left, and one that is at its end; options go.
    let mut routed = plain.clone();
    routed[0] = 0x47;
    routed[20..28].copy_from_slice(&[0x83, 7, 4, 192, 0, 2, 1, 0]);
    assert_eq!(try_it(&routed), Err(Untranslatable::SourceRoute));
    routed[22] = 8;
    assert_eq!(try_it(&routed), Ok(28));
    assert_eq!(out[ipv6::PAYLOAD_LEN..][..2], [0, 40]);
    assert_eq!(header_to_v6(&mut out, &plain, 1, 2, 3), Ok(20));
    let mut icmp = plain;
    icmp[9] = ipv4::ICMP;
    assert_eq!(header_to_v6(&mut out, &icmp, 1, 2, 3), Ok(20));
    assert_eq!(out[ipv6::NEXT_HEADER], ipv6::ICMPV6);
}

#[test]
fn packets_without_a_like_are_refused_v6() {
    let mut out = [0; ipv4::HEADER];
    let mut try_it = |next: u8, start: [u8; 8]| {
        let mut packet = udp_v6([1, 2], &[7; 40]);
        packet[ipv6::NEXT_HEADER] = next;
        packet[40..48].copy_from_slice(&start);
        (header_to_v4(&mut out, &packet, 1, 2, 3, 4), u16::from_be_bytes([out[2], out[3]]), out[9])
    };
    let refused = |why| Err(why);
    assert_eq!(try_it(44, [17, 0, 0, 1, 0, 0, 0, 1]).0, refused(Untranslatable::Fragment));
    assert_eq!(try_it(44, [17, 0, 0, 8, 0, 0, 0, 1]).0, refused(Untranslatable::Fragment));
    assert_eq!(try_it(44, [17, 0, 0, 0, 0, 0, 0, 1]), (Ok(48), 60, 17));
    assert_eq!(try_it(43, [17, 0, 0, 1, 0, 0, 0, 0]).0, refused(Untranslatable::SourceRoute));
    assert_eq!(try_it(43, [17, 0, 0, 0, 0, 0, 0, 0]), (Ok(48), 60, 17));
    assert_eq!(try_it(51, [17, 4, 0, 0, 0, 0, 0, 0]).0, refused(Untranslatable::Authenticated));
    assert_eq!(try_it(0, [58, 0, 1, 4, 0, 0, 0, 0]), (Ok(48), 60, 1));
    assert_eq!(try_it(1, [0; 8]).0, refused(Untranslatable::Protocol));
    let too_far = Untranslatable::Malformed(Malformed::Truncated);
    assert_eq!(try_it(60, [17, 9, 0, 0, 0, 0, 0, 0]).0, refused(too_far));
    let long = udp_v6([1, 2], &vec![0; 65_535 - 27]);
    assert_eq!(header_to_v4(&mut out, &long, 1, 2, 3, 4), refused(Untranslatable::TooBig));
}

/// A packet of 1260 bytes came in an IPv6 one of 1280, which every link carries.
#[test]
fn what_ipv6_carries_anywhere_may_be_fragmented() {
    let mut out = [0; ipv4::HEADER];
    for (length, flags) in [(1260, 0), (1261, 0x40)] {
        let packet = udp_v6([1, 2], &vec![0; length - 28]);
        assert_eq!(header_to_v4(&mut out, &packet, 1, 2, 3, 4), Ok(40));
        assert_eq!((usize::from(u16::from_be_bytes([out[2], out[3]])), out[6]), (length, flags));
    }
}

/// Section 4.2.
#[test]
fn errors_to_ipv6() {
    let to = |kind, code, rest| error_to_v6(Report { kind, code, rest }, 1400, LINKS);
    let is = |kind, code, rest| Some(Report { kind, code, rest });
    for code in [0, 1, 5, 6, 7, 8, 11, 12] {
        assert_eq!(to(3, code, 0), is(1, 0, 0), "code {code}");
    }
    for code in [9, 10, 13, 15] {
        assert_eq!(to(3, code, 0), is(1, 1, 0), "code {code}");
    }
    assert_eq!(to(3, 2, 0), is(4, 1, 6));
    assert_eq!(to(3, 3, 0), is(1, 4, 0));
    assert_eq!(to(11, 0, 0), is(3, 0, 0));
    assert_eq!(to(11, 1, 0), is(3, 1, 0));
    let pointers =
        [(0, 0), (1, 1), (2, 4), (3, 4), (8, 7), (9, 6), (12, 8), (15, 8), (16, 24), (19, 24)];
    for (old, new) in pointers {
        assert_eq!(to(12, 0, old << 24), is(4, 0, new), "pointer {old}");
        assert_eq!(to(12, 2, old << 24), is(4, 0, new), "pointer {old}");
    }
    for old in [4, 5, 6, 7, 10, 11, 20] {
        assert_eq!(to(12, 0, old << 24), None, "pointer {old}");
    }
    for (kind, code) in [(3, 14), (3, 16), (4, 0), (5, 1), (12, 1), (0, 0), (8, 0), (13, 0)] {
        assert_eq!(to(kind, code, 0), None, "type {kind} code {code}");
    }
}

/// Section 5.2.
#[test]
fn errors_to_ipv4() {
    let to = |kind, code, rest| error_to_v4(Report { kind, code, rest }, false, LINKS);
    let is = |kind, code, rest| Some(Report { kind, code, rest });
    for (old, new) in [(0, 1), (1, 10), (2, 1), (3, 1), (4, 3)] {
        assert_eq!(to(1, old, 0), is(3, new, 0), "code {old}");
    }
    assert_eq!(to(3, 0, 0), is(11, 0, 0));
    assert_eq!(to(3, 1, 0), is(11, 1, 0));
    assert_eq!(to(4, 1, 40), is(3, 2, 0));
    let pointers =
        [(0, 0), (1, 1), (4, 2), (5, 2), (6, 9), (7, 8), (8, 12), (23, 12), (24, 16), (39, 16)];
    for (old, new) in pointers {
        assert_eq!(to(4, 0, old), is(12, 0, new << 24), "pointer {old}");
    }
    let dropped =
        [(1, 5, 0), (1, 6, 0), (4, 2, 0), (4, 0, 2), (4, 0, 40), (128, 0, 0), (137, 0, 0)];
    for (kind, code, rest) in dropped {
        assert_eq!(to(kind, code, rest), None, "type {kind} code {code} rest {rest}");
    }
}

#[test]
fn the_way_s_mtu_in_the_other_family() {
    let to_six = |told, quoted, v4, v6| {
        let report = Report { kind: 3, code: 4, rest: told };
        error_to_v6(report, quoted, Links { v4, v6 }).unwrap().rest
    };
    assert_eq!(to_six(1400, 1500, 1500, 1500), 1420);
    assert_eq!(to_six(1490, 1500, 1500, 1500), 1500); // our own link's
    assert_eq!(to_six(1400, 1500, 1300, 1500), 1320);
    assert_eq!(to_six(576, 1500, 1500, 1500), 1280); // IPv6 knows nothing smaller
    assert_eq!(to_six(0, 1500, 9000, 9000), 1512); // not told: the plateau below
    assert_eq!(to_six(0, 9000, 9000, 9000), 8186);
    assert_eq!(to_six(0, 1400, 1500, 1500), 1280);
    let of = |fragment, told, (v4, v6)| {
        let report = Report { kind: 2, code: 0, rest: told };
        error_to_v4(report, fragment, Links { v4, v6 }).unwrap().rest
    };
    let to_four = |told, v4, v6| of(false, told, (v4, v6));
    assert_eq!(of(true, 1400, (1500, 1500)), 1372); // with a fragment header
    assert_eq!(to_four(1400, 1500, 1500), 1380);
    assert_eq!(to_four(u32::MAX, 9000, 1500), 1480);
    assert_eq!(to_four(9000, 1300, 1500), 1300);
    assert_eq!(to_four(1, 1300, 1500), 0);
}
