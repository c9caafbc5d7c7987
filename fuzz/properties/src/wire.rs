//! The parsers and checksums of `sluice-wire` beside `etherparse`'s and beside their definition.

use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};
use sluice_wire::checksum::{self, Delta};
use sluice_wire::{ethernet, icmp, ipv4, tcp, udp};

use crate::bytes::Bytes;

mod ipv6;
mod made;
mod upper;

/// Reads the bytes as every format there is, and holds what is found against the second opinion.
///
/// # Panics
/// When the two disagree, or a header is found beyond the bytes.
pub fn wire(data: &[u8]) {
    frame(data);
    packet(data);
    segment(data);
    made::message(data);
    upper::proxy(data);
    sums(data);
    sums_of_addresses(data);
}

fn frame(data: &[u8]) {
    if let Some(payload) = ethernet::payload(data) {
        assert!(payload.offset <= data.len());
        packet(&data[payload.offset..]);
    } else {
        assert!(data.len() < ethernet::HEADER + ethernet::MAX_TAGS * ethernet::TAG);
    }
}

fn packet(data: &[u8]) {
    icmp::may_answer(data);
    if let Some(upper) = ipv6::packet(data) {
        made::of_v6(data);
        segment(&data[upper.offset..]);
    }
    packet_v4(data);
}

fn packet_v4(data: &[u8]) {
    let theirs = Ipv4HeaderSlice::from_slice(data);
    let Ok(ours) = ipv4::Header::parse(data) else { return };
    let theirs = theirs.expect("what we take for a header is one");
    assert!((20..=60).contains(&ours.header_len()) && ours.header_len() <= ours.total_len());
    assert!(ours.total_len() <= data.len());
    assert_eq!(ours.header_len(), theirs.slice().len());
    assert_eq!(ours.total_len(), usize::from(theirs.total_len()));
    assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
    assert_eq!((ours.ttl(), ours.protocol()), (theirs.ttl(), theirs.protocol().0));
    assert_eq!(ours.source().to_be_bytes(), theirs.source());
    assert_eq!(ours.destination().to_be_bytes(), theirs.destination());
    let header = &data[..ours.header_len()];
    let holds = checksum::sum(header) == 0xffff;
    assert_eq!(holds, naive(header) == 0xffff, "{header:02x?}");
    if let Some(short) = header.first_chunk().filter(|_| header.len() == 20) {
        assert_eq!(checksum::ipv4_header_ok(short), holds);
    }
    made::of_v4(data);
    segment(&data[ours.header_len()..ours.total_len()]);
}

fn segment(data: &[u8]) {
    upper::options(data);
    upper::sctp(data);
    let theirs = TcpHeaderSlice::from_slice(data);
    let ours = tcp::Header::parse(data);
    assert_eq!(ours.is_some(), theirs.is_ok());
    if let (Some(ours), Ok(theirs)) = (ours, theirs) {
        assert_eq!(ours.header_len(), theirs.slice().len());
        assert_eq!(ours.sequence(), theirs.sequence_number());
        assert_eq!(ours.acknowledgement(), theirs.acknowledgment_number());
        let flag = |bit| ours.flags() & bit != 0;
        let flags = [flag(tcp::FIN), flag(tcp::SYN), flag(tcp::RST), flag(tcp::ACK)];
        assert_eq!(flags, [theirs.fin(), theirs.syn(), theirs.rst(), theirs.ack()]);
    }
    if let Some(ours) = udp::Header::parse(data) {
        let theirs = UdpHeaderSlice::from_slice(data).expect("what we take for a header is one");
        assert!((8..=data.len()).contains(&usize::from(theirs.length())));
        assert_eq!(ours.checksum(), theirs.checksum());
    }
}

/// A checksum updated by difference is the checksum computed from scratch (RFC 1624).
fn sums(data: &[u8]) {
    assert_eq!(u32::from(checksum::sum(data)), naive(data));
    let mut bytes = Bytes(data);
    let (new32, new16) = (u32::from(bytes.u16()) << 16 | u32::from(bytes.u16()), bytes.u16());
    let mut text = bytes.0.to_vec();
    let (Some(old32), Some(old16)) = (
        text.first_chunk().map(|b| u32::from_be_bytes(*b)),
        text.get(4..).and_then(|b| b.first_chunk()).map(|b| u16::from_be_bytes(*b)),
    ) else {
        return;
    };
    let before = checksum::full(&text);
    text[..4].copy_from_slice(&new32.to_be_bytes());
    text[4..6].copy_from_slice(&new16.to_be_bytes());
    let updated = Delta::NONE.word32(old32, new32).word16(old16, new16).apply(before);
    // All of it zero is the one text whose checksum, 0xffff, no difference leads to or from.
    if text.iter().any(|byte| *byte != 0) && before != 0xffff {
        assert_eq!(updated, checksum::full(&text));
    }
}

/// The same over an address, whose four words are taken at once.
fn sums_of_addresses(data: &[u8]) {
    let Some((old, rest)) = data.split_first_chunk::<16>() else { return };
    let Some((new, payload)) = rest.split_first_chunk::<16>() else { return };
    let (old, new) = (u128::from_be_bytes(*old), u128::from_be_bytes(*new));
    let before = checksum::transport_v6(old, 1, 17, payload);
    let after = checksum::transport_v6(new, 1, 17, payload);
    assert_eq!(Delta::NONE.word128(old, new).apply(before), after);
    let pseudo = [&old.to_be_bytes()[..], &[0; 15], &[1], &[0, 0, 0, 17]].concat();
    let length = (payload.len() as u32).to_be_bytes();
    assert_eq!(u32::from(!before), naive(&[&pseudo[..], &length, payload].concat()));
}

/// The sum of RFC 1071, word by word.
fn naive(data: &[u8]) -> u32 {
    data.chunks(2).fold(0, |sum, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let sum = sum + u32::from(word);
        (sum & 0xffff) + (sum >> 16)
    })
}
