//! The packet that an ICMP error is about, as far as the error quotes it: read, and changed into
//! what its sender knows.
//!
//! A quote may end anywhere behind the network header (RFC 792 promises eight bytes more, RFC 4443
//! as much as fits); nothing behind its end is read, and a checksum that is not there is not
//! changed. What is there is changed by difference, so that a quote that was wrong stays wrong.

use crate::family::{Family, Ipv4, Ipv6, Tuple, unmapped};
use sluice_wire::checksum::Delta;
use sluice_wire::{icmp, ipv4, ipv6, sctp, tcp, udp};
use std::net::IpAddr;

/// What a quote says about its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quote<A> {
    /// The packet's, as the sender of the error got it.
    pub tuple: Tuple<A>,
    /// Where the transport header begins in the quote.
    pub upper: usize,
    /// Length in bytes that the packet had.
    pub total: u16,
    /// Whether it was no fragment.
    pub whole: bool,
}

/// Reads a quote: `None` when it has no ports (too short, or a later fragment), is about an ICMP
/// message other than an echo, or is no quote at all.
pub(super) fn read<F: Family>(quote: &[u8]) -> Option<Quote<F::Addr>> {
    if quote.first()? >> 4 == 6 { read_v6::<F>(quote) } else { read_v4::<F>(quote) }
}

fn read_v4<F: Family>(quote: &[u8]) -> Option<Quote<F::Addr>> {
    let header = ipv4::Header::parse_quoted(quote).ok()?;
    let (upper, protocol) = (header.header_len(), header.protocol());
    let later = u16::from_be_bytes([header.0[6], header.0[7]]) & 0x1fff != 0;
    let (sport, dport) = ports(protocol, quote.get(upper..)?).filter(|_| !later)?;
    let (src, dst) = (Ipv4::to_ip(header.source()), Ipv4::to_ip(header.destination()));
    let (src, dst) = (F::from_ip(src)?, F::from_ip(dst)?);
    Some(Quote {
        tuple: Tuple { src, dst, sport, dport, protocol },
        upper,
        total: header.total_len() as u16,
        whole: !header.is_fragment(),
    })
}

fn read_v6<F: Family>(quote: &[u8]) -> Option<Quote<F::Addr>> {
    let header = ipv6::Header(quote.first_chunk()?);
    let found = ipv6::walk_quoted(quote).ok()?;
    // What stands for IPv4 inside the director is on no wire.
    if found.routed || [header.source(), header.destination()].map(unmapped) != [None, None] {
        return None;
    }
    let fragment = found.fragment;
    if fragment.is_some_and(|fragment| fragment.offset != 0) {
        return None;
    }
    let (sport, dport) = ports(found.protocol, quote.get(found.offset..)?)?;
    let (src, dst) = (Ipv6::to_ip(header.source()), Ipv6::to_ip(header.destination()));
    let (src, dst) = (F::from_ip(src)?, F::from_ip(dst)?);
    Some(Quote {
        tuple: Tuple { src, dst, sport, dport, protocol: found.protocol },
        upper: found.offset,
        total: u16::try_from(header.total_len()).ok()?,
        whole: fragment.is_none_or(|fragment| !fragment.more),
    })
}

/// The ports of a quoted transport header, as [`super::parse`] has them of a whole one.
fn ports(protocol: u8, upper: &[u8]) -> Option<(u16, u16)> {
    match protocol {
        ipv4::TCP | ipv4::UDP | ipv4::SCTP => {
            let [a, b, c, d] = *upper.first_chunk()?;
            Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
        }
        ipv4::ICMP | ipv6::ICMPV6 => {
            let message = upper.first_chunk::<{ icmp::HEADER }>()?;
            let id = u16::from_be_bytes([message[icmp::ECHO_ID], message[icmp::ECHO_ID + 1]]);
            match message[0] {
                icmp::v4::ECHO | icmp::v6::ECHO => Some((id, 0)),
                icmp::v4::ECHO_REPLY | icmp::v6::ECHO_REPLY => Some((0, id)),
                _ => None,
            }
        }
        _ => Some((0, 0)),
    }
}

/// Changes a quote that was [`read`] into one of a packet with the tuple `new`, of the same IP
/// version.
pub(super) fn rewrite<F: Family>(quote: &mut [u8], read: &Quote<F::Addr>, new: &Tuple<F::Addr>) {
    let old = &read.tuple;
    let Some((header, rest)) = quote.split_at_mut_checked(read.upper) else { return };
    let addresses = match (F::to_ip(new.src), F::to_ip(new.dst)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let Some(header) = header.first_chunk_mut() else { return };
            addresses_v4(header, src.to_bits(), dst.to_bits())
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let Some(header) = header.first_chunk_mut() else { return };
            addresses_v6(header, src.to_bits(), dst.to_bits())
        }
        _ => return,
    };
    let length = read.total.checked_sub(read.upper as u16).filter(|_| read.whole);
    transport(rest, addresses, old, new, length);
}

/// Writes the addresses of a quoted header, whose checksum changes by the difference. Gives that.
fn addresses_v4(header: &mut [u8; ipv4::HEADER], src: u32, dst: u32) -> Delta {
    let old = ipv4::Header(header);
    let (from, to, checksum) = (old.source(), old.destination(), old.checksum());
    let delta = Delta::NONE.word32(from, src).word32(to, dst);
    header[ipv4::SOURCE..][..4].copy_from_slice(&src.to_be_bytes());
    header[ipv4::DESTINATION..][..4].copy_from_slice(&dst.to_be_bytes());
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&delta.apply(checksum).to_be_bytes());
    delta
}

fn addresses_v6(header: &mut [u8; ipv6::HEADER], src: u128, dst: u128) -> Delta {
    let old = ipv6::Header(header);
    let delta = Delta::NONE.word128(old.source(), src).word128(old.destination(), dst);
    header[ipv6::SOURCE..][..16].copy_from_slice(&src.to_be_bytes());
    header[ipv6::DESTINATION..][..16].copy_from_slice(&dst.to_be_bytes());
    delta
}

/// Writes the ports of a quoted transport header, and its checksum if the quote goes that far.
/// `addresses` is what changed of the pseudo header, `length` that of the whole segment, if it is
/// known.
pub(super) fn transport<A>(
    quoted: &mut [u8],
    addresses: Delta,
    old: &Tuple<A>,
    new: &Tuple<A>,
    length: Option<u16>,
) {
    let all = addresses.word16(old.sport, new.sport).word16(old.dport, new.dport);
    match new.protocol {
        ipv4::TCP => {
            checksum_at(quoted, tcp::CHECKSUM, |sum| all.apply(sum));
            write_ports(quoted, new);
        }
        ipv4::UDP => {
            checksum_at(quoted, udp::CHECKSUM, |sum| all.apply_udp(sum));
            write_ports(quoted, new);
        }
        ipv4::SCTP => {
            if let (Some(header), Some(length)) = (quoted.first_chunk_mut(), length) {
                sctp::change_ports(header, length, new.sport, new.dport);
            }
            write_ports(quoted, new);
        }
        ipv4::ICMP | ipv6::ICMPV6 => {
            // The identifier is the port of the side that asks, the other one is zero.
            let to = new.sport | new.dport;
            // Only ICMPv6's checksum covers addresses.
            let delta = if new.protocol == ipv6::ICMPV6 {
                all
            } else {
                Delta::NONE.word16(old.sport, new.sport).word16(old.dport, new.dport)
            };
            checksum_at(quoted, icmp::CHECKSUM, |sum| delta.apply(sum));
            if let Some(id) = quoted.get_mut(icmp::ECHO_ID..icmp::ECHO_ID + 2) {
                id.copy_from_slice(&to.to_be_bytes());
            }
        }
        _ => {}
    }
}

fn checksum_at(quoted: &mut [u8], at: usize, change: impl Fn(u16) -> u16) {
    if let Some(field) = quoted.get_mut(at..at + 2) {
        let sum = change(u16::from_be_bytes([field[0], field[1]]));
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

fn write_ports<A>(quoted: &mut [u8], new: &Tuple<A>) {
    if let Some(ports) = quoted.first_chunk_mut::<4>() {
        ports[..2].copy_from_slice(&new.sport.to_be_bytes());
        ports[2..].copy_from_slice(&new.dport.to_be_bytes());
    }
}
