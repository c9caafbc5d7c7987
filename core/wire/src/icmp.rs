//! ICMP (RFC 792) and ICMPv6 (RFC 4443): types and codes, error messages read and made, and when
//! one may be sent at all.
//!
//! An error message is made whole, with its IP header, in the caller's buffer: it is rare, its
//! quote is short, and so its checksums are summed in full. Whether it may be sent is asked of the
//! packet alone ([`may_answer`]); how often, and which link-layer address the frame was sent to,
//! only the caller knows.

use crate::{be16, be32, checksum, ipv4, ipv6};

/// Bytes before what an error message quotes.
pub const HEADER: usize = 8;
/// Offset of the code; the type is at 0.
pub const CODE: usize = 1;
/// Offset of the checksum.
pub const CHECKSUM: usize = 2;
/// Offset of an echo's identifier, in both versions.
pub const ECHO_ID: usize = 4;
/// Offset of the 16-bit next-hop MTU in ICMPv4's "fragmentation needed" (RFC 1191 4).
pub const MTU_V4: usize = 6;
/// Offset of the 32-bit MTU in ICMPv6's "packet too big".
pub const MTU_V6: usize = 4;

/// Bytes of the longest ICMPv4 error message that is made, IP header included (RFC 1812 4.3.2.3).
pub const MOST_V4: usize = 576;
/// Bytes of the longest ICMPv6 error message that is made, IP header included: the least MTU
/// (RFC 4443 2.4 (c)).
pub const MOST_V6: usize = ipv6::MIN_MTU;

/// Time to live and hop limit of what is made here (RFC 1700).
const TTL: u8 = 64;
/// Type of service of ICMPv4 errors: precedence 6, internetwork control (RFC 1812 4.3.2.5).
const TOS: u8 = 0xc0;

/// ICMPv4's types and codes.
pub mod v4 {
    /// Type: echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Type: destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Type: source quench, which nobody sends any more (RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// Type: redirect.
    pub const REDIRECT: u8 = 5;
    /// Type: echo request.
    pub const ECHO: u8 = 8;
    /// Type: time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Type: parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;

    /// Code of [`UNREACHABLE`]: no route to the network.
    pub const NETWORK: u8 = 0;
    /// Code of [`UNREACHABLE`]: the host does not answer on its link.
    pub const HOST: u8 = 1;
    /// Code of [`UNREACHABLE`]: the host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Code of [`UNREACHABLE`]: nobody listens on the port.
    pub const PORT: u8 = 3;
    /// Code of [`UNREACHABLE`]: too big, and may not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Code of [`UNREACHABLE`]: forbidden by a filter (RFC 1812 5.2.7.1).
    pub const PROHIBITED: u8 = 13;
    /// Code of [`TIME_EXCEEDED`]: in transit.
    pub const IN_TRANSIT: u8 = 0;
    /// Code of [`TIME_EXCEEDED`]: waiting for the other fragments.
    pub const REASSEMBLY: u8 = 1;
}

/// ICMPv6's types and codes.
pub mod v6 {
    /// Type: destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Type: packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Type: time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Type: parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Type: echo request.
    pub const ECHO: u8 = 128;
    /// Type: echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Type: router solicitation, the first of neighbour discovery's five (RFC 4861 4).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Type: neighbour solicitation.
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Type: neighbour advertisement.
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    /// Type: redirect, the last of neighbour discovery's five.
    pub const REDIRECT: u8 = 137;

    /// Code of [`UNREACHABLE`]: no route.
    pub const NO_ROUTE: u8 = 0;
    /// Code of [`UNREACHABLE`]: forbidden by a filter.
    pub const PROHIBITED: u8 = 1;
    /// Code of [`UNREACHABLE`]: beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// Code of [`UNREACHABLE`]: the host does not answer on its link.
    pub const ADDRESS: u8 = 3;
    /// Code of [`UNREACHABLE`]: nobody listens on the port.
    pub const PORT: u8 = 4;
    /// Code of [`TIME_EXCEEDED`]: in transit.
    pub const IN_TRANSIT: u8 = 0;
    /// Code of [`TIME_EXCEEDED`]: waiting for the other fragments.
    pub const REASSEMBLY: u8 = 1;
    /// Code of [`PARAMETER_PROBLEM`]: a header field that makes no sense.
    pub const BAD_FIELD: u8 = 0;
    /// Code of [`PARAMETER_PROBLEM`]: a next header that is not known.
    pub const BAD_NEXT_HEADER: u8 = 1;
}

/// Whether an ICMP type reports an error about another packet, which it then quotes: destination
/// unreachable, source quench, redirect, time exceeded, parameter problem.
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// The same for ICMPv6, whose types say so by their highest bit (RFC 4443 2.1).
pub const fn is_error_v6(kind: u8) -> bool {
    kind < 128
}

/// A bounds-checked view of an error message of either version, from its type on.
#[derive(Clone, Copy)]
pub struct Error<'a> {
    header: &'a [u8; HEADER],
    quoted: &'a [u8],
}

impl<'a> Error<'a> {
    /// The ICMPv4 error that `message` is; `None` when it is cut short or no error.
    pub fn parse_v4(message: &'a [u8]) -> Option<Self> {
        let (header, quoted) = message.split_first_chunk()?;
        // RFC 4884 4.1: how many 32-bit words are quoted before the extensions.
        let told = matches!(header[0], v4::UNREACHABLE | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM);
        let words = if told { header[5] as usize } else { 0 };
        is_error(header[0]).then(|| Self { header, quoted: cut(quoted, words * 4) })
    }

    /// The ICMPv6 error that `message` is; `None` when it is cut short or no error.
    pub fn parse_v6(message: &'a [u8]) -> Option<Self> {
        let (header, quoted) = message.split_first_chunk()?;
        // The same in 64-bit words (RFC 4884 4.2).
        let told = matches!(header[0], v6::UNREACHABLE | v6::TIME_EXCEEDED);
        let words = if told { header[4] as usize } else { 0 };
        is_error_v6(header[0]).then(|| Self { header, quoted: cut(quoted, words * 8) })
    }

    /// Type.
    pub const fn kind(self) -> u8 {
        self.header[0]
    }

    /// Code.
    pub const fn code(self) -> u8 {
        self.header[CODE]
    }

    /// Checksum.
    pub const fn checksum(self) -> u16 {
        be16(self.header, CHECKSUM)
    }

    /// The second word: MTU, pointer, or gateway, by the type.
    pub const fn rest(self) -> u32 {
        be32(self.header, 4)
    }

    /// The MTU that ICMPv4's "fragmentation needed" tells; zero from a router that does not.
    pub const fn mtu_v4(self) -> u16 {
        be16(self.header, MTU_V4)
    }

    /// The MTU that "packet too big" tells.
    pub const fn mtu_v6(self) -> u32 {
        self.rest()
    }

    /// The start of the packet that this is about, at [`HEADER`] in the message: no longer than
    /// what was sent back of it, without extensions behind it (RFC 4884), maybe with padding.
    pub const fn quoted(self) -> &'a [u8] {
        self.quoted
    }
}

/// `quoted` up to `length`, unless that is zero or beyond its end.
fn cut(quoted: &[u8], length: usize) -> &[u8] {
    if length == 0 { quoted } else { quoted.get(..length).unwrap_or(quoted) }
}

/// Writes an ICMPv4 error from `source` to `destination` about `quoted` (an IPv4 packet, maybe
/// with link-layer padding behind it), of type `kind` with the second word `rest` (an MTU in its
/// lower half, say), as a complete IPv4 packet of at most [`MOST_V4`] bytes. Its length, or `None`
/// when `out` is too short for it.
///
/// It may not be fragmented, so that its identification means nothing (RFC 6864 4.1): there is no
/// counter to take one from, and it fits every link there is.
pub fn error_v4(
    out: &mut [u8],
    source: u32,
    destination: u32,
    kind: u8,
    code: u8,
    rest: u32,
    quoted: &[u8],
) -> Option<usize> {
    let whole = ipv4::Header::parse(quoted).map_or(quoted.len(), ipv4::Header::total_len);
    let quoted = &quoted[..whole.min(MOST_V4 - ipv4::HEADER - HEADER)];
    let length = ipv4::HEADER + HEADER + quoted.len();
    let (header, message) = out.get_mut(..length)?.split_first_chunk_mut::<{ ipv4::HEADER }>()?;
    *header = [0; ipv4::HEADER];
    header[0] = 0x45;
    header[1] = TOS;
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[6] = 0x40;
    header[ipv4::TTL] = TTL;
    header[9] = ipv4::ICMP;
    header[ipv4::SOURCE..][..4].copy_from_slice(&source.to_be_bytes());
    header[ipv4::DESTINATION..][..4].copy_from_slice(&destination.to_be_bytes());
    let sum = checksum::full(header);
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    write_message(message, kind, code, rest, quoted);
    let sum = checksum::full(message);
    message[CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    Some(length)
}

/// The same in ICMPv6, about an IPv6 packet, with at most [`MOST_V6`] bytes.
pub fn error_v6(
    out: &mut [u8],
    source: u128,
    destination: u128,
    kind: u8,
    code: u8,
    rest: u32,
    quoted: &[u8],
) -> Option<usize> {
    let whole = ipv6::Header::parse(quoted).map_or(quoted.len(), ipv6::Header::total_len);
    let quoted = &quoted[..whole.min(MOST_V6 - ipv6::HEADER - HEADER)];
    let length = ipv6::HEADER + HEADER + quoted.len();
    let (header, message) = out.get_mut(..length)?.split_first_chunk_mut::<{ ipv6::HEADER }>()?;
    *header = [0; ipv6::HEADER];
    header[0] = 0x60;
    header[ipv6::PAYLOAD_LEN..][..2].copy_from_slice(&(message.len() as u16).to_be_bytes());
    header[ipv6::NEXT_HEADER] = ipv6::ICMPV6;
    header[ipv6::HOP_LIMIT] = TTL;
    header[ipv6::SOURCE..][..16].copy_from_slice(&source.to_be_bytes());
    header[ipv6::DESTINATION..][..16].copy_from_slice(&destination.to_be_bytes());
    write_message(message, kind, code, rest, quoted);
    let sum = checksum::transport_v6(source, destination, ipv6::ICMPV6, message);
    message[CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    Some(length)
}

/// `message` has the length that is needed; its checksum is left as zero.
fn write_message(message: &mut [u8], kind: u8, code: u8, rest: u32, quoted: &[u8]) {
    let (header, quote) = message.split_at_mut(HEADER);
    header[..4].copy_from_slice(&[kind, code, 0, 0]);
    header[4..].copy_from_slice(&rest.to_be_bytes());
    quote.copy_from_slice(quoted);
}

/// Whether an ICMP error may be sent about `packet` (IPv4 or IPv6): it is whole enough to be read,
/// comes from one host and went to one, is no ICMP error itself, and no fragment but the first
/// (RFC 1122 3.2.2, RFC 1812 4.3.2.7, RFC 4443 2.4 (e)). RFC 4443's exceptions for groups are
/// for routers that forward to groups. That the frame was not sent to a group on its link is the
/// caller's to see.
pub fn may_answer(packet: &[u8]) -> bool {
    match packet.first() {
        Some(first) if first >> 4 == 4 => may_answer_v4(packet),
        Some(first) if first >> 4 == 6 => may_answer_v6(packet),
        _ => false,
    }
}

fn may_answer_v4(packet: &[u8]) -> bool {
    let Ok(header) = ipv4::Header::parse(packet) else { return false };
    let is_first = be16(header.0, 6) & 0x1fff == 0;
    // What can be no source is no single host's destination either.
    let (source, destination) = (header.source(), header.destination());
    let ends = ipv4::is_unicast_source(source) && ipv4::is_unicast_source(destination);
    let upper = &packet[header.header_len()..header.total_len()];
    is_first && ends && (header.protocol() != ipv4::ICMP || is_query(upper, is_error))
}

fn may_answer_v6(packet: &[u8]) -> bool {
    let (Ok(header), Ok(upper)) = (ipv6::Header::parse(packet), ipv6::walk(packet)) else {
        return false;
    };
    let is_first = upper.fragment.is_none_or(|fragment| fragment.offset == 0);
    let (source, destination) = (header.source(), header.destination());
    let ends = ipv6::is_unicast_source(source) && ipv6::is_unicast_source(destination);
    let is_redirect_or_error = |kind| is_error_v6(kind) || kind == v6::REDIRECT;
    let message = &packet[upper.offset..header.total_len()];
    is_first && ends && (upper.protocol != ipv6::ICMPV6 || is_query(message, is_redirect_or_error))
}

/// Whether an ICMP message has a type, and that is no error.
fn is_query(message: &[u8], is_error: impl Fn(u8) -> bool) -> bool {
    message.first().is_some_and(|kind| !is_error(*kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    const HERE: u32 = 0xc000_0201;
    const THERE: u32 = 0xc633_6402;
    const HERE_V6: u128 = 0x2001_0db8 << 96 | 1;
    const THERE_V6: u128 = 0x2001_0db8 << 96 | 2;

    fn udp_v4(source: u32, destination: u32, payload: usize) -> Vec<u8> {
        let builder = PacketBuilder::ipv4(source.to_be_bytes(), destination.to_be_bytes(), 9);
        let mut bytes = Vec::new();
        builder.udp(1, 2).write(&mut bytes, &vec![7; payload]).unwrap();
        bytes
    }

    fn udp_v6(source: u128, destination: u128, payload: usize) -> Vec<u8> {
        let builder = PacketBuilder::ipv6(source.to_be_bytes(), destination.to_be_bytes(), 9);
        let mut bytes = Vec::new();
        builder.udp(1, 2).write(&mut bytes, &vec![7; payload]).unwrap();
        bytes
    }

    proptest! {
        /// What is made is right to `etherparse`, quotes as much as it may, and is read back.
        #[test]
        fn errors_are_whole(payload in 0usize..2000, padding in 0usize..20, mtu in any::<u16>()) {
            let mut out = [0xee; MOST_V6];
            let packet = udp_v4(THERE, HERE, payload);
            let mut frame = packet.clone();
            frame.resize(packet.len() + padding, 0);
            let (kind, code) = (v4::UNREACHABLE, v4::FRAGMENTATION_NEEDED);
            let length = error_v4(&mut out, HERE, THERE, kind, code, mtu.into(), &frame).unwrap();
            prop_assert_eq!(length, (28 + packet.len()).min(576));
            let parsed = SlicedPacket::from_ip(&out[..length]).unwrap();
            let Some(NetSlice::Ipv4(ip)) = parsed.net else { panic!("not IPv4") };
            let header = ip.header().to_header();
            prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            prop_assert_eq!(usize::from(header.total_len), length);
            prop_assert!(header.dont_fragment && header.time_to_live == 64 && out[1] == 0xc0);
            let Some(TransportSlice::Icmpv4(icmp)) = parsed.transport else { panic!() };
            prop_assert_eq!(checksum::sum(icmp.slice()), 0xffff);
            let expected = etherparse::Icmpv4Type::DestinationUnreachable(
                etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded {
                    next_hop_mtu: mtu });
            prop_assert_eq!(icmp.header().icmp_type, expected);
            prop_assert_eq!(icmp.payload(), &packet[..length - 28]);
            prop_assert!(!may_answer(&out[..length]));
            let read = Error::parse_v4(&out[20..length]).unwrap();
            prop_assert_eq!((read.kind(), read.code(), read.mtu_v4()), (kind, code, mtu));
            prop_assert_eq!(read.quoted(), icmp.payload());
            let mut short = out;
            let short = &mut short[..length - 1];
            prop_assert!(error_v4(short, 1, 2, 3, 4, 5, &frame).is_none());
        }

        /// The same for ICMPv6.
        #[test]
        fn errors_are_whole_v6(payload in 0usize..2000, padding in 0usize..20, mtu: u32) {
            let mut out = [0xee; MOST_V6];
            let packet = udp_v6(THERE_V6, HERE_V6, payload);
            let mut frame = packet.clone();
            frame.resize(packet.len() + padding, 0);
            let kind = v6::PACKET_TOO_BIG;
            let length = error_v6(&mut out, HERE_V6, THERE_V6, kind, 0, mtu, &frame).unwrap();
            prop_assert_eq!(length, (48 + packet.len()).min(1280));
            let parsed = SlicedPacket::from_ip(&out[..length]).unwrap();
            let Some(TransportSlice::Icmpv6(icmp)) = parsed.transport else { panic!() };
            let (from, to) = (HERE_V6.to_be_bytes(), THERE_V6.to_be_bytes());
            prop_assert!(icmp.is_checksum_valid(from, to));
            let expected = etherparse::Icmpv6Type::PacketTooBig { mtu };
            prop_assert_eq!(icmp.header().icmp_type, expected);
            prop_assert_eq!(icmp.payload(), &packet[..length - 48]);
            prop_assert!(!may_answer(&out[..length]));
            let read = Error::parse_v6(&out[40..length]).unwrap();
            prop_assert_eq!((read.kind(), read.code(), read.mtu_v6()), (kind, 0, mtu));
            prop_assert_eq!(read.quoted(), icmp.payload());
            let mut short = out;
            let short = &mut short[..length - 1];
            prop_assert!(error_v6(short, 1, 2, 3, 4, 5, &frame).is_none());
        }

        /// Never a panic, and what is quoted lies within.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            may_answer(&bytes);
            for read in [Error::parse_v4(&bytes), Error::parse_v6(&bytes)].into_iter().flatten() {
                prop_assert!(bytes[HEADER..].starts_with(read.quoted()));
            }
        }
    }

    #[test]
    fn what_must_not_be_answered() {
        assert!(may_answer(&udp_v4(THERE, HERE, 9)));
        for bad in [0, 0x7f00_0001, 0xe000_0001, 0xffff_ffff] {
            assert!(!may_answer(&udp_v4(bad, HERE, 9)), "from {bad:#x}");
            assert!(!may_answer(&udp_v4(THERE, bad, 9)), "to {bad:#x}");
        }
        let mut fragment = udp_v4(THERE, HERE, 9);
        fragment[6] = 0x20; // more to come: the first
        assert!(may_answer(&fragment));
        fragment[7] = 1;
        assert!(!may_answer(&fragment));
        for (kind, may) in [(v4::ECHO, true), (v4::ECHO_REPLY, true), (v4::REDIRECT, false)] {
            let mut icmp = udp_v4(THERE, HERE, 9);
            (icmp[9], icmp[20]) = (ipv4::ICMP, kind);
            assert_eq!(may_answer(&icmp), may, "type {kind}");
        }
        assert!(!may_answer(&[]) && !may_answer(&[0x45]) && !may_answer(&[0x50; 60]));
    }

    #[test]
    fn what_must_not_be_answered_v6() {
        assert!(may_answer(&udp_v6(THERE_V6, HERE_V6, 9)));
        for bad in [0, 1, 0xff02 << 112 | 1] {
            assert!(!may_answer(&udp_v6(bad, HERE_V6, 9)), "from {bad:#x}");
            assert!(!may_answer(&udp_v6(THERE_V6, bad, 9)), "to {bad:#x}");
        }
        let mut fragment = udp_v6(THERE_V6, HERE_V6, 8);
        fragment[ipv6::NEXT_HEADER] = ipv6::FRAGMENT;
        fragment[40..48].copy_from_slice(&[17, 0, 0, 1, 0, 0, 0, 9]);
        assert!(may_answer(&fragment));
        fragment[43] = 9;
        assert!(!may_answer(&fragment));
        let kinds = [(v6::ECHO, true), (v6::REDIRECT, false), (v6::PACKET_TOO_BIG, false)];
        for (kind, may) in kinds {
            let mut icmp = udp_v6(THERE_V6, HERE_V6, 9);
            (icmp[ipv6::NEXT_HEADER], icmp[40]) = (ipv6::ICMPV6, kind);
            assert_eq!(may_answer(&icmp), may, "type {kind}");
        }
    }

    /// RFC 4884: a length in the header says where extensions begin.
    #[test]
    fn extensions_are_not_quoted() {
        let mut message = [0; HEADER + 128 + 12];
        (message[0], message[5]) = (v4::TIME_EXCEEDED, 32);
        assert_eq!(Error::parse_v4(&message).unwrap().quoted().len(), 128);
        (message[0], message[4]) = (v6::TIME_EXCEEDED, 16);
        assert_eq!(Error::parse_v6(&message).unwrap().quoted().len(), 128);
        message[4] = 200; // more than there is
        assert_eq!(Error::parse_v6(&message).unwrap().quoted().len(), 140);
    }
}
