//! IPv4 headers made IPv6 and back (RFC 7915, the stateless part): packets whole and ICMP errors
//! here, fragments in [`piece`].
//!
//! Only what needs no memory: a fragment is refused here, because its header is another and its
//! ports may be elsewhere; so is what cannot arrive changed (source routes, authentication). The
//! addresses, the hop limit and what the new packet's identification is are the caller's; the
//! payload stays where it is, and its checksum is changed by the difference of the pseudo-headers.

pub mod piece;

use crate::checksum::{self, Delta};
use crate::icmp::{v4, v6};
use crate::{Malformed, ipv4, ipv6};

/// Bytes up to which an IPv4 packet made from IPv6 may be fragmented: what a link of IPv6's least
/// MTU carried (RFC 7915 5.1).
pub const MAY_FRAGMENT: u16 = ipv6::MIN_MTU as u16 - DIFFERENCE;
/// Bytes by which an IPv6 header is longer than an IPv4 one.
const DIFFERENCE: u16 = (ipv6::HEADER - ipv4::HEADER) as u16;

/// Likely path MTUs from IPv6's least on (RFC 1191 7.1), for routers that do not tell theirs.
const PLATEAUS: [u16; 6] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492];

/// Why a packet has no like in the other family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untranslatable {
    /// Its header cannot be used.
    Malformed(Malformed),
    /// Too many extension headers.
    TooLong,
    /// A part of a datagram. (An "atomic" IPv6 fragment is whole, and is taken.)
    Fragment,
    /// It still has a way to go that its sender chose.
    SourceRoute,
    /// Its addresses are authenticated.
    Authenticated,
    /// A protocol that means something else, or is a header, in the other family.
    Protocol,
    /// The new packet would be longer than 65,535 bytes.
    TooBig,
}

/// Writes the IPv6 header for the IPv4 `packet`. Where the packet's upper layer begins, which
/// follows the new header as it is but for its checksum ([`to_v6`]); options are left behind.
///
/// # Errors
/// See [`Untranslatable`].
pub fn header_to_v6(
    out: &mut [u8; ipv6::HEADER],
    packet: &[u8],
    source: u128,
    destination: u128,
    hop_limit: u8,
) -> Result<usize, Untranslatable> {
    let header = ipv4::Header::parse(packet).map_err(Untranslatable::Malformed)?;
    write_v6(out, header, packet, (source, destination), hop_limit)
}

/// The same for what an ICMP error quotes of a packet, which may end anywhere behind the header.
/// The new header tells the length of the whole, and the hop limit that there was left; a fragment
/// gets a fragment header too (RFC 7915 4.3). Where the upper layer begins, and the length of what
/// was written.
///
/// # Errors
/// See [`Untranslatable`].
pub fn quote_to_v6(
    out: &mut [u8; piece::HEADERS_V6],
    quote: &[u8],
    source: u128,
    destination: u128,
) -> Result<(usize, usize), Untranslatable> {
    let header = ipv4::Header::parse_quoted(quote).map_err(Untranslatable::Malformed)?;
    let (ends, hops) = ((source, destination), header.ttl());
    if header.is_fragment() {
        return Ok((piece::write_v6(out, header, quote, ends, hops)?, piece::HEADERS_V6));
    }
    let fixed = out.first_chunk_mut().ok_or(Untranslatable::TooBig)?;
    Ok((write_v6(fixed, header, quote, ends, hops)?, ipv6::HEADER))
}

/// `packet` holds the whole of `header`.
fn write_v6(
    out: &mut [u8; ipv6::HEADER],
    header: ipv4::Header<'_>,
    packet: &[u8],
    (source, destination): (u128, u128),
    hop_limit: u8,
) -> Result<usize, Untranslatable> {
    if header.is_fragment() {
        return Err(Untranslatable::Fragment);
    }
    let next = next_header(header, packet)?;
    let offset = header.header_len();
    let payload = (header.total_len() - offset) as u16;
    fixed_v6(out, header.tos(), (payload, next, hop_limit), (source, destination));
    Ok(offset)
}

/// The number by which IPv6 names what `packet` carries, which holds the whole of `header`.
fn next_header(header: ipv4::Header<'_>, packet: &[u8]) -> Result<u8, Untranslatable> {
    // Loose and strict source routes; a pointer within the option says that there is more.
    let is_route = |option: &[u8]| matches!(*option, [0x83 | 0x89, length, at, ..] if at <= length);
    if ipv4::Options(&packet[ipv4::HEADER..header.header_len()]).any(is_route) {
        return Err(Untranslatable::SourceRoute);
    }
    match header.protocol() {
        ipv4::ICMP => Ok(ipv6::ICMPV6),
        ipv6::AUTHENTICATION => Err(Untranslatable::Authenticated),
        IGMP | ipv6::ICMPV6 => Err(Untranslatable::Protocol),
        number if ipv6::is_extension(number) => Err(Untranslatable::Protocol),
        number => Ok(number),
    }
}

/// Writes a fixed header of IPv6.
fn fixed_v6(
    out: &mut [u8; ipv6::HEADER],
    class: u8,
    (payload, next, hop_limit): (u16, u8, u8),
    (source, destination): (u128, u128),
) {
    let first = 6 << 28 | u32::from(class) << 20;
    out[..4].copy_from_slice(&first.to_be_bytes());
    out[ipv6::PAYLOAD_LEN..][..2].copy_from_slice(&payload.to_be_bytes());
    out[ipv6::NEXT_HEADER] = next;
    out[ipv6::HOP_LIMIT] = hop_limit;
    out[ipv6::SOURCE..][..16].copy_from_slice(&source.to_be_bytes());
    out[ipv6::DESTINATION..][..16].copy_from_slice(&destination.to_be_bytes());
}

/// IP protocol number of IGMP, which IPv6 has within ICMPv6.
const IGMP: u8 = 2;

/// Writes the IPv4 header for the IPv6 `packet`, with `id` when it may be fragmented. Where the
/// packet's upper layer begins, which follows the new header as it is but for its checksum
/// ([`to_v4`]); extension headers are left behind.
///
/// # Errors
/// See [`Untranslatable`].
pub fn header_to_v4(
    out: &mut [u8; ipv4::HEADER],
    packet: &[u8],
    source: u32,
    destination: u32,
    ttl: u8,
    id: u16,
) -> Result<usize, Untranslatable> {
    let upper = ipv6::walk(packet).map_err(unwalkable)?;
    let header = ipv6::Header::parse(packet).map_err(Untranslatable::Malformed)?;
    write_v4(out, header, upper, (source, destination), ttl, id)
}

/// The same for what an ICMP error quotes of a packet, which may end anywhere behind its headers.
/// The new header tells the length of the whole, the time to live that there was left, and an
/// identification of zero; that of a fragment its own identification and place (RFC 7915 5.3).
///
/// # Errors
/// See [`Untranslatable`].
pub fn quote_to_v4(
    out: &mut [u8; ipv4::HEADER],
    quote: &[u8],
    source: u32,
    destination: u32,
) -> Result<usize, Untranslatable> {
    let upper = ipv6::walk_quoted(quote).map_err(unwalkable)?;
    let bytes = quote.first_chunk().ok_or(Untranslatable::Malformed(Malformed::Truncated))?;
    let header = ipv6::Header(bytes);
    let (ends, ttl) = ((source, destination), header.hop_limit());
    if upper.fragment.is_some_and(|fragment| fragment.offset != 0 || fragment.more) {
        return piece::write_v4(out, header, upper, ends, (ttl, upper.protocol));
    }
    write_v4(out, header, upper, ends, ttl, 0)
}

fn unwalkable(why: ipv6::Unwalkable) -> Untranslatable {
    match why {
        ipv6::Unwalkable::Malformed(why) => Untranslatable::Malformed(why),
        ipv6::Unwalkable::TooLong => Untranslatable::TooLong,
    }
}

/// `upper` is within the length that `header` tells.
fn write_v4(
    out: &mut [u8; ipv4::HEADER],
    header: ipv6::Header<'_>,
    upper: ipv6::Upper,
    (source, destination): (u32, u32),
    ttl: u8,
    id: u16,
) -> Result<usize, Untranslatable> {
    if upper.fragment.is_some_and(|fragment| fragment.offset != 0 || fragment.more) {
        return Err(Untranslatable::Fragment);
    }
    let protocol = protocol(upper)?;
    let payload = header.total_len() - upper.offset;
    let total = u16::try_from(ipv4::HEADER + payload).map_err(|_| Untranslatable::TooBig)?;
    let (id, place) = if total <= MAY_FRAGMENT { (id, 0) } else { (0, DONT_FRAGMENT) };
    let class = header.traffic_class();
    fixed_v4(out, class, (total, id, place), (ttl, protocol), (source, destination));
    Ok(upper.offset)
}

/// The bit that forbids fragmentation, in the word with the offset.
const DONT_FRAGMENT: u16 = 0x4000;

/// The number by which IPv4 names what extension headers lead to.
const fn protocol(upper: ipv6::Upper) -> Result<u8, Untranslatable> {
    if upper.routed {
        return Err(Untranslatable::SourceRoute);
    }
    if upper.authenticated {
        return Err(Untranslatable::Authenticated);
    }
    match upper.protocol {
        ipv6::ICMPV6 => Ok(ipv4::ICMP),
        ipv4::ICMP | IGMP => Err(Untranslatable::Protocol),
        number => Ok(number),
    }
}

/// Writes a header of IPv4 without options, its checksum in full; `place` is the word with flags
/// and offset.
fn fixed_v4(
    out: &mut [u8; ipv4::HEADER],
    class: u8,
    (total, id, place): (u16, u16, u16),
    (ttl, protocol): (u8, u8),
    (source, destination): (u32, u32),
) {
    out[..2].copy_from_slice(&[0x45, class]);
    out[2..4].copy_from_slice(&total.to_be_bytes());
    out[4..6].copy_from_slice(&id.to_be_bytes());
    out[6..8].copy_from_slice(&place.to_be_bytes());
    out[8..12].copy_from_slice(&[ttl, protocol, 0, 0]);
    out[ipv4::SOURCE..][..4].copy_from_slice(&source.to_be_bytes());
    out[ipv4::DESTINATION..][..4].copy_from_slice(&destination.to_be_bytes());
    let sum = checksum::full(out);
    out[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
}

/// The change to a TCP or UDP checksum when the addresses `old` (source, destination) become
/// `new`. Length and protocol count the same in both pseudo-headers. A UDP checksum of zero, which
/// only IPv4 allows, has to be summed in full ([`checksum::transport_v6`]).
#[inline(always)]
#[must_use]
pub const fn to_v6(delta: Delta, old: (u32, u32), new: (u128, u128)) -> Delta {
    delta.word32(old.0, 0).word32(old.1, 0).word128(0, new.0).word128(0, new.1)
}

/// The change the other way.
#[inline(always)]
#[must_use]
pub const fn to_v4(delta: Delta, old: (u128, u128), new: (u32, u32)) -> Delta {
    delta.word128(old.0, 0).word128(old.1, 0).word32(0, new.0).word32(0, new.1)
}

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The second word: MTU or pointer, by the type.
    pub rest: u32,
}

/// The MTUs of the director's own links on the two sides of the translation, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// Towards the IPv4 side.
    pub v4: u16,
    /// Towards the IPv6 side.
    pub v6: u16,
}

/// The ICMPv6 error that says what an ICMPv4 error does (RFC 7915 4.2), about a packet that was
/// `quoted_total` bytes long. `None` for what is dropped.
pub fn error_to_v6(report: Report, quoted_total: u16, links: Links) -> Option<Report> {
    let (kind, code, rest) = match (report.kind, report.code) {
        (v4::UNREACHABLE, 0 | 1 | 5..=8 | 11 | 12) => (v6::UNREACHABLE, v6::NO_ROUTE, 0),
        (v4::UNREACHABLE, v4::PROTOCOL) => {
            (v6::PARAMETER_PROBLEM, v6::BAD_NEXT_HEADER, ipv6::NEXT_HEADER as u32)
        }
        (v4::UNREACHABLE, v4::PORT) => (v6::UNREACHABLE, v6::PORT, 0),
        (v4::UNREACHABLE, v4::FRAGMENTATION_NEEDED) => {
            let mtu = mtu_to_v6(report.rest as u16, quoted_total, links);
            (v6::PACKET_TOO_BIG, 0, mtu.into())
        }
        (v4::UNREACHABLE, 9 | 10 | 13 | 15) => (v6::UNREACHABLE, v6::PROHIBITED, 0),
        (v4::TIME_EXCEEDED, code) => (v6::TIME_EXCEEDED, code, 0),
        (v4::PARAMETER_PROBLEM, 0 | 2) => {
            (v6::PARAMETER_PROBLEM, v6::BAD_FIELD, pointer_to_v6(report.rest >> 24)?)
        }
        _ => return None,
    };
    Some(Report { kind, code, rest })
}

/// The ICMPv4 error that says what an ICMPv6 error does (RFC 7915 5.2), about a packet that had a
/// fragment header or none. `None` for what is dropped.
pub fn error_to_v4(report: Report, fragment: bool, links: Links) -> Option<Report> {
    let (kind, code, rest) = match (report.kind, report.code) {
        (v6::UNREACHABLE, v6::NO_ROUTE | v6::BEYOND_SCOPE | v6::ADDRESS) => {
            (v4::UNREACHABLE, v4::HOST, 0)
        }
        (v6::UNREACHABLE, v6::PROHIBITED) => (v4::UNREACHABLE, HOST_PROHIBITED, 0),
        (v6::UNREACHABLE, v6::PORT) => (v4::UNREACHABLE, v4::PORT, 0),
        (v6::PACKET_TOO_BIG, _) => {
            let less = DIFFERENCE + if fragment { ipv6::FRAGMENT_HEADER as u16 } else { 0 };
            let told = report.rest.min(links.v6.into()).saturating_sub(less.into());
            (v4::UNREACHABLE, v4::FRAGMENTATION_NEEDED, told.min(links.v4.into()))
        }
        (v6::TIME_EXCEEDED, code) => (v4::TIME_EXCEEDED, code, 0),
        (v6::PARAMETER_PROBLEM, v6::BAD_FIELD) => {
            (v4::PARAMETER_PROBLEM, 0, pointer_to_v4(report.rest)? << 24)
        }
        (v6::PARAMETER_PROBLEM, v6::BAD_NEXT_HEADER) => (v4::UNREACHABLE, v4::PROTOCOL, 0),
        _ => return None,
    };
    Some(Report { kind, code, rest })
}

/// Code of ICMPv4's destination unreachable: the destination host is forbidden.
const HOST_PROHIBITED: u8 = 10;

/// The IPv6 MTU for what a router said, or from the packet's length when it said nothing.
fn mtu_to_v6(told: u16, quoted_total: u16, links: Links) -> u16 {
    let least = ipv6::MIN_MTU as u16;
    let guess =
        || PLATEAUS.into_iter().find(|plateau| *plateau < quoted_total).unwrap_or(MAY_FRAGMENT);
    let told = if told == 0 { guess() } else { told };
    told.min(links.v4).saturating_add(DIFFERENCE).min(links.v6).max(least)
}

/// The place in an IPv6 header of the field at `pointer` in an IPv4 one (RFC 7915 figure 3).
const fn pointer_to_v6(pointer: u32) -> Option<u32> {
    Some(match pointer {
        0 | 1 => pointer,
        2 | 3 => 4,
        8 => 7,
        9 => 6,
        12..=15 => 8,
        16..=19 => 24,
        _ => return None,
    })
}

/// The place in an IPv4 header of the field at `pointer` in an IPv6 one (RFC 7915 figure 6).
const fn pointer_to_v4(pointer: u32) -> Option<u32> {
    Some(match pointer {
        0 | 1 => pointer,
        4 | 5 => 2,
        6 => 9,
        7 => 8,
        8..=23 => 12,
        24..=39 => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
