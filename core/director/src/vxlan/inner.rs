//! What is looked at in an inner frame: its congestion mark and code point, and what flow it is of.

use crate::hash::Seed;
use sluice_wire::checksum::Delta;
use sluice_wire::{ethernet, ipv4, ipv6, vxlan};
use std::net::IpAddr;

/// Nothing depends on who can predict source ports: they only spread flows.
const SEED: Seed = Seed::new(0x7348);

/// The fixed header of the IP packet in a frame. Its lengths are not verified.
#[derive(Clone, Copy)]
enum Packet<'a> {
    V4(ipv4::Header<'a>),
    V6(ipv6::Header<'a>),
}

/// That of an untagged frame; `None` if it carries no IP packet with a whole header.
#[inline(always)]
fn packet(frame: &[u8]) -> Option<Packet<'_>> {
    let (link, packet) = frame.split_first_chunk::<{ ethernet::HEADER }>()?;
    match (u16::from_be_bytes([link[12], link[13]]), packet.first()? >> 4) {
        (ethernet::IPV4, 4) => packet.first_chunk().map(|header| Packet::V4(ipv4::Header(header))),
        (ethernet::IPV6, 6) => packet.first_chunk().map(|header| Packet::V6(ipv6::Header(header))),
        _ => None,
    }
}

/// Whether a frame has a VLAN tag.
#[inline(always)]
pub(super) fn is_tagged(frame: &[u8]) -> bool {
    let ethertype = frame.get(12..14).map_or(0, |e| u16::from_be_bytes([e[0], e[1]]));
    matches!(ethertype, ethernet::VLAN | ethernet::SERVICE_VLAN)
}

/// The type of service or traffic class of the IP packet in a frame.
#[inline(always)]
pub(super) fn traffic_class(frame: &[u8]) -> Option<u8> {
    packet(frame).map(|packet| match packet {
        Packet::V4(header) => header.tos(),
        Packet::V6(header) => header.traffic_class(),
    })
}

/// The receiver of the IP packet in an untagged frame.
pub(super) fn receiver(frame: &[u8]) -> Option<IpAddr> {
    packet(frame).map(|packet| match packet {
        Packet::V4(header) => IpAddr::V4(header.destination().into()),
        Packet::V6(header) => IpAddr::V6(header.destination().into()),
    })
}

/// Writes the congestion mark of the IP packet in a frame, and an IPv4 header's checksum. Gives
/// what that changed.
pub(super) fn set_ecn(frame: &mut [u8], mark: u8) -> Delta {
    let is_v6 = matches!(packet(frame), Some(Packet::V6(_)));
    let header = frame.get_mut(ethernet::HEADER..).and_then(|p| p.first_chunk_mut());
    let Some(header): Option<&mut [u8; ipv4::HEADER]> = header else { return Delta::NONE };
    let word = |header: &[u8; ipv4::HEADER], at| u16::from_be_bytes([header[at], header[at + 1]]);
    let shift = if is_v6 { 4 } else { 0 };
    let old = word(header, 0);
    header[1] = header[1] & !(vxlan::ECN << shift) | mark << shift;
    let delta = Delta::NONE.word16(old, word(header, 0));
    if is_v6 {
        return delta;
    }
    let before = word(header, ipv4::CHECKSUM);
    let after = delta.apply(before);
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&after.to_be_bytes());
    delta.word16(before, after)
}

/// A hash of what flow a frame is of: addresses, protocol, and the ports of TCP and UDP; without an
/// IP packet the MAC addresses. Fragments have no ports, nor has what is behind extension headers,
/// so that a datagram's fragments stay together.
#[inline(always)]
pub(super) fn flow(frame: &[u8]) -> u64 {
    match packet(frame) {
        Some(Packet::V4(header)) => {
            let ports = match header.is_fragment() {
                true => 0,
                false => ports(frame, header.protocol(), ethernet::HEADER + header.header_len()),
            };
            let protocol = u32::from(header.protocol());
            SEED.hash([[header.source(), header.destination()], [ports, protocol]])
        }
        Some(Packet::V6(header)) => {
            let protocol = header.next_header();
            let ports = ports(frame, protocol, ethernet::HEADER + ipv6::HEADER);
            let (from, to) = (halves(header.source()), halves(header.destination()));
            SEED.hash([from[0], from[1], to[0], to[1], [ports, u32::from(protocol)]])
        }
        None => {
            let macs: [u8; 12] = frame.first_chunk().copied().unwrap_or_default();
            let word = |at: usize| {
                u32::from_be_bytes([macs[at], macs[at + 1], macs[at + 2], macs[at + 3]])
            };
            SEED.hash([[word(0), word(4)], [word(8), 0]])
        }
    }
}

/// Both ports of a TCP segment or UDP datagram at `at`, or 0.
#[inline(always)]
fn ports(frame: &[u8], protocol: u8, at: usize) -> u32 {
    if !matches!(protocol, ipv4::TCP | ipv4::UDP) {
        return 0;
    }
    let both = frame.get(at..).and_then(|segment| segment.first_chunk());
    both.map_or(0, |both| u32::from_be_bytes(*both))
}

#[inline(always)]
fn halves(address: u128) -> [[u32; 2]; 2] {
    let word = |shift: u32| (address >> shift) as u32;
    [[word(96), word(64)], [word(32), word(0)]]
}
