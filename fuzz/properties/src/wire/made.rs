//! What is made from a packet: ICMP errors, outer headers, fragments, the like in the other family.
//! `etherparse` judges all of it.

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, NetSlice, SlicedPacket, TransportSlice};
use sluice_wire::fragment::{self, FragmentInfo, Uncut};
use sluice_wire::ipip::{self, Inner};
use sluice_wire::translate::{self, Links, Report, piece};
use sluice_wire::{checksum, icmp, ipv4, ipv6};

/// A source and a destination in either family.
const ENDS: (u32, u32) = (0xc000_0201, 0xc633_6402);
const ENDS_V6: (u128, u128) = (0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2);

/// Makes of an IPv4 packet all that is made of one.
pub fn of_v4(packet: &[u8]) {
    let header = ipv4::Header::parse(packet).expect("a packet");
    error_v4(packet);
    around(Inner::v4(header), header.total_len(), header.tos(), ipv4::IPV4, header.dont_fragment());
    cut(packet, header);
    to_v6(packet, header);
}

/// Makes of an IPv6 packet all that is made of one.
pub fn of_v6(packet: &[u8]) {
    let header = ipv6::Header::parse(packet).expect("a packet");
    error_v6(packet);
    around(Inner::v6(header), header.total_len(), header.traffic_class(), ipv4::IPV6, true);
    let mut out = [0; ipv4::HEADER];
    let made = translate::header_to_v4(&mut out, packet, ENDS.0, ENDS.1, 7, 9);
    if let Ok(offset) = made {
        let read = Ipv4HeaderSlice::from_slice(&out).expect("a header").to_header();
        assert_eq!(read.header_checksum, read.calc_header_checksum());
        assert_eq!(usize::from(read.total_len), 20 + header.total_len() - offset);
        assert!(!read.is_fragmenting_payload());
    }
}

/// Reads any bytes as an ICMP message and, when it is an error, says it in the other version.
pub fn message(data: &[u8]) {
    quotes(data);
    let links = Links { v4: 1500, v6: 9000 };
    let report = |read: icmp::Error<'_>| {
        assert!(data[icmp::HEADER..].starts_with(read.quoted()));
        Report { kind: read.kind(), code: read.code(), rest: read.rest() }
    };
    if let Some(old) = icmp::Error::parse_v4(data).map(report) {
        let new = translate::error_to_v6(old, data.len() as u16, links);
        assert!(new.is_none_or(|new| (1..=4).contains(&new.kind)), "{old:?} became {new:?}");
        assert!(new.is_none_or(|new| new.kind != icmp::v6::PACKET_TOO_BIG || new.rest >= 1280));
    }
    if let Some(old) = icmp::Error::parse_v6(data).map(report) {
        let new = translate::error_to_v4(old, data.len().is_multiple_of(2), links);
        assert!(new.is_none_or(|new| icmp::is_error(new.kind)), "{old:?} became {new:?}");
    }
}

/// Whatever a message may quote: what follows the new header is within it.
fn quotes(data: &[u8]) {
    let (mut six, mut four) = ([0; piece::HEADERS_V6], [0; ipv4::HEADER]);
    if let Ok((offset, length)) = translate::quote_to_v6(&mut six, data, ENDS_V6.0, ENDS_V6.1) {
        assert!(offset <= data.len());
        assert!(Ipv6HeaderSlice::from_slice(&six[..length]).is_ok());
    }
    if let Ok(offset) = translate::quote_to_v4(&mut four, data, ENDS.0, ENDS.1) {
        assert!(offset <= data.len());
        assert!(checksum::ipv4_header_ok(&four));
    }
}

fn error_v4(packet: &[u8]) {
    let mut out = [0; icmp::MOST_V4];
    let (kind, code) = (icmp::v4::TIME_EXCEEDED, icmp::v4::IN_TRANSIT);
    let length = icmp::error_v4(&mut out, ENDS.0, ENDS.1, kind, code, 0, packet).expect("room");
    assert!(!icmp::may_answer(&out[..length]), "an error about an error");
    let read = SlicedPacket::from_ip(&out[..length]).expect("a packet");
    let Some(NetSlice::Ipv4(ip)) = &read.net else { panic!("no IPv4") };
    let header = ip.header().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    let Some(TransportSlice::Icmpv4(message)) = &read.transport else { panic!("no ICMP") };
    assert_eq!(checksum::sum(message.slice()), 0xffff);
    assert!(packet.starts_with(message.payload()));
}

fn error_v6(packet: &[u8]) {
    let mut out = [0; icmp::MOST_V6];
    let kind = icmp::v6::PACKET_TOO_BIG;
    let length = icmp::error_v6(&mut out, ENDS_V6.0, ENDS_V6.1, kind, 0, 1400, packet);
    let out = &out[..length.expect("room")];
    assert!(!icmp::may_answer(out), "an error about an error");
    let read = SlicedPacket::from_ip(out).expect("a packet");
    let Some(TransportSlice::Icmpv6(message)) = &read.transport else { panic!("no ICMPv6") };
    let (source, destination) = (ENDS_V6.0.to_be_bytes(), ENDS_V6.1.to_be_bytes());
    assert!(message.is_checksum_valid(source, destination));
    assert!(packet.starts_with(message.payload()));
}

/// Outer headers of both families.
fn around(inner: Inner, length: usize, class: u8, protocol: u8, dont_fragment: bool) {
    let mut out = [0; ipip::OVERHEAD_V4];
    if inner.within_v4(&mut out, ENDS.0, ENDS.1, 0x1234).is_some() {
        let read = Ipv4HeaderSlice::from_slice(&out).expect("a header").to_header();
        assert_eq!(read.header_checksum, read.calc_header_checksum());
        assert_eq!(usize::from(read.total_len), 20 + length);
        assert_eq!((read.protocol.0, out[1]), (protocol, class));
        assert_eq!(read.dont_fragment, dont_fragment);
    }
    let mut out = [0; ipip::OVERHEAD_V6];
    if inner.within_v6(&mut out, ENDS_V6.0, ENDS_V6.1).is_some() {
        let read = Ipv6HeaderSlice::from_slice(&out).expect("a header");
        assert_eq!(usize::from(read.payload_length()), length);
        assert_eq!((read.next_header().0, read.traffic_class()), (protocol, class));
    }
}

/// Fragments fit, follow one another, and are together the payload.
fn cut(packet: &[u8], header: ipv4::Header<'_>) {
    let whole = FragmentInfo::of(header);
    let payload = &packet[header.header_len()..header.total_len()];
    let mtu = 68 + u16::from(packet[header.header_len() - 1]);
    let (mut at, mut pieces) = (0, 0);
    let made = fragment::cut_v4(packet, mtu, |header, part| {
        let piece = [header, part].concat();
        assert!(piece.len() <= usize::from(mtu));
        let read = Ipv4HeaderSlice::from_slice(&piece).expect("a header").to_header();
        assert_eq!(usize::from(read.total_len), piece.len());
        let offset = usize::from(read.fragment_offset.byte_offset());
        assert_eq!(offset, usize::from(whole.offset) + at);
        assert_eq!(part, &payload[at..at + part.len()]);
        at += part.len();
        assert_eq!(read.more_fragments, whole.more || at < payload.len());
        // Of a packet that fits, the header is its own, right or wrong.
        assert!(
            pieces == 0 && (!read.more_fragments || at == payload.len())
                || read.header_checksum == read.calc_header_checksum()
        );
        pieces += 1;
        true
    });
    match made {
        Ok(count) => assert_eq!((count, at), (pieces, payload.len())),
        Err(Uncut::Forbidden) => assert!(header.dont_fragment()),
        Err(_) => assert_eq!(pieces, 0),
    }
}

fn to_v6(packet: &[u8], header: ipv4::Header<'_>) {
    let mut out = [0; ipv6::HEADER];
    let made = translate::header_to_v6(&mut out, packet, ENDS_V6.0, ENDS_V6.1, 7);
    let Ok(offset) = made else { return };
    assert_eq!(offset, header.header_len());
    let read = Ipv6HeaderSlice::from_slice(&out).expect("a header");
    assert_eq!(usize::from(read.payload_length()), header.total_len() - offset);
    assert_eq!((read.hop_limit(), read.traffic_class()), (7, header.tos()));
}
