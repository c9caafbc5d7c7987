//! What lies above IP: TCP options, SCTP, the PROXY protocol.

use etherparse::{TcpHeaderSlice, TcpOptionElement};
use sluice_wire::checksum::Delta;
use sluice_wire::proxy_protocol::{self as proxy, MOST};
use sluice_wire::tcp_options::{self, Options};
use sluice_wire::{checksum, sctp, tcp};

use super::naive;

/// Reads and changes the options of a segment.
pub fn options(data: &[u8]) {
    let Ok(theirs) = TcpHeaderSlice::from_slice(data) else {
        assert_eq!(Options::of(data).count(), 0);
        return;
    };
    let known = |kind: u8| matches!(kind, 2..=5 | 8);
    let ours: Vec<_> = Options::of(data).map(|option| option.kind).collect();
    // They end at the first option that they do not know, or whose length is not its own.
    let elements: Vec<_> = theirs.options_iterator().map_while(Result::ok).map(kind).collect();
    let elements: Vec<_> = elements.into_iter().filter(|kind| *kind != tcp_options::NOP).collect();
    assert!(ours.starts_with(&elements), "{ours:?} beside {elements:?}");
    if ours.iter().all(|kind| !known(*kind)) {
        assert!(elements.is_empty());
    }
    // A segment whose sum is right stays so, whatever is changed.
    let mut right = data.to_vec();
    right[tcp::CHECKSUM..][..2].fill(0);
    let sum = checksum::full(&right);
    right[tcp::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    if naive(&right) != 0xffff {
        return; // all zero but for the sum: there are two
    }
    let mut changed = right.clone();
    tcp_options::clamp_mss(&mut changed, 1000);
    assert_eq!(naive(&changed), 0xffff, "after the MSS");
    assert!(tcp_options::mss(&changed).is_none_or(|mss| mss <= 1000 || data[13] & tcp::SYN == 0));
    tcp_options::shift_sack(&mut changed, 0x1_0001);
    assert_eq!(naive(&changed), 0xffff, "after the SACK blocks");
    tcp_options::shift_sack(&mut changed, 0x1_0001u32.wrapping_neg());
    let mut longer = [&[0; tcp_options::TOA_V4], &changed[..]].concat();
    let option = tcp_options::toa_v4(0xcb00_7109, 443);
    if tcp_options::insert(&mut longer, &option) {
        assert_eq!(Options::of(&longer).next().map(|o| o.kind), Some(tcp_options::TOA));
        // The longer length is in a pseudo-header that is not in these bytes.
        let sum = u16::from_be_bytes([longer[tcp::CHECKSUM], longer[tcp::CHECKSUM + 1]]);
        let sum = Delta::NONE.word16(option.len() as u16, 0).apply(sum);
        longer[tcp::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(naive(&longer), 0xffff, "after the client's address");
    }
}

fn kind(element: TcpOptionElement) -> u8 {
    match element {
        TcpOptionElement::Noop => tcp_options::NOP,
        TcpOptionElement::MaximumSegmentSize(_) => tcp_options::MSS,
        TcpOptionElement::WindowScale(_) => 3,
        TcpOptionElement::SelectiveAcknowledgementPermitted => tcp_options::SACK_PERMITTED,
        TcpOptionElement::SelectiveAcknowledgement(..) => tcp_options::SACK,
        TcpOptionElement::Timestamp(..) => 8,
    }
}

/// Ports set by difference give the checksum in full.
pub fn sctp(data: &[u8]) {
    if let Some(chunk) = sctp::first_chunk(data) {
        assert!(usize::from(chunk.length) + sctp::HEADER <= data.len());
    }
    let mut packet = data.to_vec();
    if packet.len() < sctp::HEADER {
        assert!(!sctp::set_ports_and_crc(&mut packet, 1, 2));
        return;
    }
    let sum = sctp::checksum(&packet);
    packet[sctp::CHECKSUM..sctp::HEADER].copy_from_slice(&sum.to_le_bytes());
    let ports = (u16::from(data[9]) << 8 | 1, u16::from(data[10]));
    assert!(sctp::set_ports_and_crc(&mut packet, ports.0, ports.1));
    let header = sctp::Header::parse(&packet).expect("a header");
    assert_eq!((header.source_port(), header.destination_port()), ports);
    assert!(sum == 0 || header.checksum() == sctp::checksum(&packet));
}

/// What is read as a PROXY header is written again to be read as the same.
pub fn proxy(data: &[u8]) {
    let mut out = [0; MOST];
    if let Some((ends, length)) = proxy::parse_v1(data) {
        assert!(length <= data.len() && length < MOST);
        let written = proxy::v1(&mut out, &ends);
        assert_eq!(written, proxy::v1_len(&ends));
        assert_eq!(proxy::parse_v1(&out), Some((ends, written)));
    }
    if let Some((transport, ends, length)) = proxy::parse_v2(data) {
        assert!(length <= data.len());
        let written = proxy::v2(&mut out, transport, &ends);
        assert!(written == proxy::v2_len(&ends) && written <= length);
        assert_eq!(out[16..written], data[16..written]);
        assert_eq!(proxy::parse_v2(&out[..written]), Some((transport, ends, written)));
    }
}
