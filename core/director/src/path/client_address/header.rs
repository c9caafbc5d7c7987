//! Writing a PROXY header into a packet: in front of a segment's or a datagram's data.

use super::early::move_urgent;
use super::{lengthen, widen};
use crate::family::unmapped;
use crate::frame::Frame;
use crate::path::burst::Lane;
use crate::spec::ClientAddress;
use sluice_wire::checksum::{self, Delta};
use sluice_wire::proxy_protocol::{self as proxy, Ends, Transport};
use sluice_wire::{tcp, udp};

/// Puts a PROXY header in front of a segment's data.
pub(super) fn in_stream<B: Frame>(
    how: ClientAddress,
    ends: &Ends,
    lane: &mut Lane<u128>,
    frame: &mut B,
) -> Option<()> {
    let mut header = [0; proxy::MOST];
    let length = if how == ClientAddress::ProxyV1 {
        proxy::v1(&mut header, ends)
    } else {
        proxy::v2(&mut header, Transport::Stream, ends)
    };
    let l4 = usize::from(lane.parsed.l4);
    let data = l4 + frame.bytes().get(l4..).and_then(tcp::Header::parse)?.header_len();
    widen(frame, data, length)?;
    let bytes = frame.bytes_mut();
    bytes.get_mut(data..data + length)?.copy_from_slice(&header[..length]);
    let old = segment_len(lane);
    let segment = bytes.get_mut(l4..data)?;
    let sum = u16::from_be_bytes([segment[tcp::CHECKSUM], segment[tcp::CHECKSUM + 1]]);
    // An odd number of bytes put in front turns the halves of all words behind it around, so that
    // their sum, which is what is left of the checksum, is taken out, turned and put back.
    let own = own_sum(lane, segment, old);
    let behind = fold(u32::from(!sum) + u32::from(!own));
    let behind = if length.is_multiple_of(2) { behind } else { behind.swap_bytes() };
    move_urgent(segment, length as u16);
    let front = checksum::sum(&header[..length]);
    let own = own_sum(lane, segment, old + length as u16);
    let sum = !fold(u32::from(own) + u32::from(front) + u32::from(behind));
    segment[tcp::CHECKSUM..tcp::CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    lengthen(lane, bytes, length as u16);
    Some(())
}

/// Bytes of a packet's TCP segment or datagram.
pub(super) fn segment_len(lane: &Lane<u128>) -> u16 {
    lane.parsed.length - (lane.parsed.l4 - u16::from(lane.parsed.l3))
}

/// The sum over the pseudo header of a packet whose segment is `length` bytes long, and over its
/// TCP header, the checksum left out.
fn own_sum(lane: &Lane<u128>, header: &[u8], length: u16) -> u16 {
    let tuple = &lane.parsed.tuple;
    let checksum = u16::from_be_bytes([header[tcp::CHECKSUM], header[tcp::CHECKSUM + 1]]);
    // The form of an IPv4 address adds what is taken away here.
    let mut addresses = [0; 32];
    let v4 = unmapped(tuple.src).is_some();
    let plain = |address: u128| if v4 { address & u128::from(u32::MAX) } else { address };
    addresses[..16].copy_from_slice(&plain(tuple.src).to_be_bytes());
    addresses[16..].copy_from_slice(&plain(tuple.dst).to_be_bytes());
    let rest = u32::from(tuple.protocol) + u32::from(length) + u32::from(!checksum);
    let rest = u32::from(fold(rest));
    fold(u32::from(checksum::sum(&addresses)) + u32::from(checksum::sum(header)) + rest)
}

const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Puts a PROXY header in front of a datagram's data, padded for the first fragment of one.
pub(super) fn in_datagram<B: Frame>(
    ends: &Ends,
    lane: &mut Lane<u128>,
    frame: &mut B,
    piece: bool,
) -> Option<()> {
    let mut header = [0; proxy::MOST];
    let length = if piece {
        proxy::v2_padded(&mut header, Transport::Datagram, ends)
    } else {
        proxy::v2(&mut header, Transport::Datagram, ends)
    };
    let l4 = usize::from(lane.parsed.l4);
    widen(frame, l4 + udp::HEADER, length)?;
    let bytes = frame.bytes_mut();
    bytes.get_mut(l4 + udp::HEADER..l4 + udp::HEADER + length)?.copy_from_slice(&header[..length]);
    let datagram = bytes.get_mut(l4..l4 + udp::HEADER)?;
    let old = u16::from_be_bytes([datagram[4], datagram[5]]);
    let new = old.wrapping_add(length as u16);
    datagram[4..6].copy_from_slice(&new.to_be_bytes());
    // The length counts twice: in the header and in the pseudo header.
    let mut delta = Delta::NONE.word16(old, new).word16(old, new);
    for word in header[..length].as_chunks::<4>().0 {
        delta = delta.word32(0, u32::from_be_bytes(*word));
    }
    let field = u16::from_be_bytes([datagram[udp::CHECKSUM], datagram[udp::CHECKSUM + 1]]);
    let sum = delta.apply_udp(field);
    datagram[udp::CHECKSUM..udp::HEADER].copy_from_slice(&sum.to_be_bytes());
    lengthen(lane, bytes, length as u16);
    Some(())
}
