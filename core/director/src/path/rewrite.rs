//! Writing what a packet becomes: network and transport headers with their checksums by
//! difference, then the link layer.

use super::Verdict;
use crate::encap::Encap;
use crate::family::{Tuple, unmapped};
use crate::fib::Hop;
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::checksum::Delta;
use sluice_wire::ethernet::{self, HEADER, TAG};
use sluice_wire::{checksum, icmp, ipip, ipv4, ipv6, sctp, tcp, udp};
use std::net::IpAddr;

/// What becomes of a packet's addresses and ports, and the differences that makes to checksums.
/// Working it out once serves all packets with the tuple `old`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change<A> {
    new: Tuple<A>,
    /// Of the addresses alone, and with the ports.
    addresses: Delta,
    all: Delta,
}

impl<A> Change<A> {
    /// What the tuple becomes.
    pub const fn result(&self) -> &Tuple<A> {
        &self.new
    }
}

impl Change<u32> {
    #[inline(always)]
    pub const fn v4(old: &Tuple<u32>, new: &Tuple<u32>) -> Self {
        let addresses = Delta::NONE.word32(old.src, new.src).word32(old.dst, new.dst);
        let all = addresses.word16(old.sport, new.sport).word16(old.dport, new.dport);
        Self { new: *new, addresses, all }
    }

    /// Rewrites an IPv4 packet: see [`v4`].
    #[inline(always)]
    pub fn write(&self, frame: &mut [u8], (l3, l4): (usize, usize)) {
        let Self { new, addresses, all } = self;
        let Some(packet) = frame.get_mut(l3..) else { return };
        network(packet, *addresses, new);
        let total = packet.get(2..4).map(|length| u16::from_be_bytes([length[0], length[1]]));
        let Some(segment) = frame.get_mut(l4..) else { return };
        match new.protocol {
            ipv4::TCP => transport(segment, *all, new, tcp::CHECKSUM, Delta::apply),
            ipv4::UDP => transport(segment, *all, new, udp::CHECKSUM, Delta::apply_udp),
            other => {
                // Padding behind the packet is no part of it.
                let length = (l3 + usize::from(total.unwrap_or(0))).checked_sub(l4);
                let Some(segment) = length.and_then(|length| segment.get_mut(..length)) else {
                    return;
                };
                portless(other, segment, Delta::NONE, new);
            }
        }
    }
}

/// Rewrites addresses and ports of an IPv4 packet whose headers are at `l3` and `l4` of its frame,
/// takes one hop off its time to live, which is not zero, and updates the checksums.
#[inline(always)]
pub(crate) fn v4(frame: &mut [u8], at: (usize, usize), old: &Tuple<u32>, new: &Tuple<u32>) {
    Change::v4(old, new).write(frame, at);
}

/// Rewrites what has no ports, or ports that its checksum knows in its own way. `addresses` is
/// what changed of a pseudo header, where the checksum covers one.
fn portless<A>(protocol: u8, segment: &mut [u8], addresses: Delta, new: &Tuple<A>) {
    match protocol {
        ipv4::ICMP | ipv6::ICMPV6 => echo(segment, addresses, new),
        // Its checksum covers no address, so that only ports make a difference.
        ipv4::SCTP => {
            let _ = sctp::set_ports_and_crc(segment, new.sport, new.dport);
        }
        _ => {}
    }
}

/// Writes the identifier of an ICMP echo, and its checksum.
fn echo<A>(message: &mut [u8], addresses: Delta, new: &Tuple<A>) {
    let Some(header) = message.first_chunk_mut::<{ icmp::HEADER }>() else { return };
    let id = [header[icmp::ECHO_ID], header[icmp::ECHO_ID + 1]];
    let asks = matches!(header[0], icmp::v4::ECHO | icmp::v6::ECHO);
    let to = if asks { new.sport } else { new.dport };
    let checksum = u16::from_be_bytes([header[icmp::CHECKSUM], header[icmp::CHECKSUM + 1]]);
    let checksum = addresses.word16(u16::from_be_bytes(id), to).apply(checksum);
    header[icmp::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    header[icmp::ECHO_ID..][..2].copy_from_slice(&to.to_be_bytes());
}

/// Rewrites a packet of the extended table, whose addresses are all of the packet's own family.
#[inline(always)]
pub(crate) fn extended(frame: &mut [u8], at: (usize, usize), old: &Tuple<u128>, new: &Tuple<u128>) {
    if unmapped(old.src).is_some() {
        v4(frame, at, &old.map(|a| a as u32), &new.map(|a| a as u32));
    } else {
        v6(frame, at, old, new);
    }
}

impl Change<u128> {
    #[inline(always)]
    pub const fn v6(old: &Tuple<u128>, new: &Tuple<u128>) -> Self {
        let addresses = Delta::NONE.word128(old.src, new.src).word128(old.dst, new.dst);
        let all = addresses.word16(old.sport, new.sport).word16(old.dport, new.dport);
        Self { new: *new, addresses, all }
    }

    /// Rewrites addresses and ports of an IPv6 packet, takes one hop off its limit, and updates the
    /// checksum of what it carries.
    #[inline(always)]
    pub fn write(&self, frame: &mut [u8], (l3, l4): (usize, usize)) {
        let Self { new, addresses, all } = self;
        let header = frame.get_mut(l3..).and_then(|p| p.first_chunk_mut::<{ ipv6::HEADER }>());
        let Some(header) = header else { return };
        header[ipv6::HOP_LIMIT] = header[ipv6::HOP_LIMIT].wrapping_sub(1);
        header[ipv6::SOURCE..][..16].copy_from_slice(&new.src.to_be_bytes());
        header[ipv6::DESTINATION..][..16].copy_from_slice(&new.dst.to_be_bytes());
        let end = l3 + ipv6::HEADER + ipv6::Header(header).payload_len();
        let Some(segment) = frame.get_mut(l4..) else { return };
        match new.protocol {
            ipv4::TCP => transport(segment, *all, new, tcp::CHECKSUM, Delta::apply),
            ipv4::UDP => transport(segment, *all, new, udp::CHECKSUM, Delta::apply_udp_v6),
            other => {
                // Padding behind the packet is no part of it.
                let length = end.checked_sub(l4);
                let Some(segment) = length.and_then(|length| segment.get_mut(..length)) else {
                    return;
                };
                portless(other, segment, *addresses, new);
            }
        }
    }
}

/// See [`Change`].
#[inline(always)]
fn v6(frame: &mut [u8], at: (usize, usize), old: &Tuple<u128>, new: &Tuple<u128>) {
    Change::v6(old, new).write(frame, at);
}

/// What an outer header takes of a packet, and its identification: what the sender told its packets
/// apart by tells those of its flow apart here too, and the salt those of flows that share the
/// outer addresses.
#[inline(always)]
pub(super) fn inner(packet: &[u8], salt: u16) -> Option<(ipip::Inner, u16)> {
    let id = u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]).wrapping_add(salt);
    let inner = if packet.first()? >> 4 == 6 {
        ipip::Inner::v6(ipv6::Header(packet.first_chunk()?))
    } else {
        ipip::Inner::v4(ipv4::Header(packet.first_chunk()?))
    };
    Some((inner, id))
}

/// Puts a packet that is on its way through (its time to live is taken care of here) into one
/// towards `to`, by the outer headers that `encap` says; `None` when there is no room before it.
pub(super) fn encapsulate<B: Frame>(
    frame: &mut B,
    l3: usize,
    encap: &Encap,
    (from, to, hash): (IpAddr, IpAddr, u64),
) -> Option<()> {
    let overhead = usize::from(encap.overhead);
    if !frame.push_front(overhead) {
        return None;
    }
    if encap.shim_length() > 0 {
        frame.set_shim(encap.shim_length());
    }
    let bytes = frame.bytes_mut();
    // The link-layer header moves to the new front, what is behind it becomes the outer header.
    bytes.copy_within(overhead..overhead + l3, 0);
    let (front, packet) = bytes.split_at_mut(l3 + overhead);
    let (inner, id) = self::inner(packet, hash as u16)?;
    let (around, inside) = (encap.around(inner), (inner, &*packet, hash));
    let outer = front.get_mut(l3..)?;
    let ethertype = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let (from, to) = (from.to_bits(), to.to_bits());
            let (header, shim) = outer.split_first_chunk_mut()?;
            around.within_v4(header, from, to, id)?;
            let pseudo = |protocol, length| checksum::pseudo_v4(from, to, protocol, length);
            encap.write(shim, inside, pseudo)?;
            ethernet::IPV4
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let (from, to) = (from.to_bits(), to.to_bits());
            let (header, shim) = outer.split_first_chunk_mut()?;
            around.within_v6(header, from, to)?;
            let pseudo = |protocol, length| checksum::pseudo_v6(from, to, protocol, length);
            encap.write(shim, inside, pseudo)?;
            ethernet::IPV6
        }
        _ => return None,
    };
    front.get_mut(l3.checked_sub(2)?..l3)?.copy_from_slice(&ethertype.to_be_bytes());
    Some(())
}

/// Writes the time to live, the addresses and the checksum of an IPv4 header.
#[inline(always)]
fn network(packet: &mut [u8], addresses: Delta, new: &Tuple<u32>) {
    let Some(header) = packet.first_chunk_mut::<{ ipv4::HEADER }>() else { return };
    // The time to live is the upper byte of its 16-bit word.
    header[ipv4::TTL] = header[ipv4::TTL].wrapping_sub(1);
    let checksum = u16::from_be_bytes([header[ipv4::CHECKSUM], header[ipv4::CHECKSUM + 1]]);
    let checksum = addresses.word16(1 << 8, 0).apply(checksum);
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    header[ipv4::SOURCE..][..4].copy_from_slice(&new.src.to_be_bytes());
    header[ipv4::DESTINATION..][..4].copy_from_slice(&new.dst.to_be_bytes());
}

/// Writes the ports and the checksum, which is at `at`, of a TCP or UDP header.
#[inline(always)]
pub(super) fn transport<A>(
    segment: &mut [u8],
    delta: Delta,
    new: &Tuple<A>,
    at: usize,
    apply: impl Fn(Delta, u16) -> u16,
) {
    let Some(field) = segment.get_mut(at..at + 2) else { return };
    let checksum = apply(delta, u16::from_be_bytes([field[0], field[1]]));
    field.copy_from_slice(&checksum.to_be_bytes());
    segment[..2].copy_from_slice(&new.sport.to_be_bytes());
    segment[2..4].copy_from_slice(&new.dport.to_be_bytes());
}

/// Gives a frame that is on its way the link-layer header of its hop.
#[inline(always)]
pub(super) fn link<B: Frame>(frame: &mut B, l3: u8, hop: &Hop) -> Verdict {
    match untagged(frame, l3, hop) {
        true => Verdict::Tx(hop.port),
        false => link_layer(frame, hop),
    }
}

/// Gives a frame whose IP header is at `l3` the link-layer addresses of a hop, if it carries no tag
/// and shall carry none; `false` if it is for [`link_layer`].
#[inline(always)]
pub(super) fn untagged<B: Frame>(frame: &mut B, l3: u8, hop: &Hop) -> bool {
    if usize::from(l3) != HEADER || hop.vlan != 0 {
        return false;
    }
    let Some(header) = frame.bytes_mut().first_chunk_mut::<HEADER>() else { return false };
    addresses(header, hop);
    true
}

/// Writes a hop's link-layer addresses.
#[inline(always)]
pub(super) fn addresses(header: &mut [u8; HEADER], hop: &Hop) {
    header[..12].copy_from_slice(hop.macs.as_flattened());
}

/// Gives a frame that carries an IP packet the link-layer header of a hop; tags come and go as
/// the hop has it.
#[cold]
pub(super) fn link_layer<B: Frame>(frame: &mut B, hop: &Hop) -> Verdict {
    let tagged = hop.vlan != 0;
    let wanted = if tagged { HEADER + TAG } else { HEADER };
    let Some(payload) = ethernet::payload(frame.bytes()) else {
        return Verdict::Drop(Reason::Truncated);
    };
    let fits = match payload.offset {
        now if now == wanted => true,
        now if now > wanted => frame.pull_front(now - wanted),
        now => frame.push_front(wanted - now),
    };
    let Some(header) = frame.bytes_mut().first_chunk_mut::<HEADER>().filter(|_| fits) else {
        return Verdict::Drop(Reason::Headroom);
    };
    addresses(header, hop);
    header[12..].copy_from_slice(&payload.ethertype.to_be_bytes());
    if tagged {
        tag(frame.bytes_mut(), hop.vlan, payload.ethertype);
    }
    Verdict::Tx(hop.port)
}

fn tag(bytes: &mut [u8], vlan: u16, ethertype: u16) {
    let Some(header) = bytes.first_chunk_mut::<{ HEADER + TAG }>() else { return };
    header[12..14].copy_from_slice(&ethernet::VLAN.to_be_bytes());
    header[14..16].copy_from_slice(&vlan.to_be_bytes());
    header[16..].copy_from_slice(&ethertype.to_be_bytes());
}
