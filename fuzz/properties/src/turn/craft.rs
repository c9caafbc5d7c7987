//! Packets as a script asks for them: both IP versions, any transport, extension headers,
//! fragments, ICMP errors. Written here byte by byte, from the RFCs, and not by what is tested.

use std::net::IpAddr;

use super::frame::{crc32c, sum_of};

/// MAC addresses of who sends to the director, and of the director, as far as it looks.
const ENDS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 2, 0xfe];

/// IP protocol numbers (IANA).
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
/// IP protocol number.
pub const GRE: u8 = 47;
pub const ICMPV6: u8 = 58;
pub const SCTP: u8 = 132;
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// One end of a packet.
pub type End = (IpAddr, u16);

/// A packet in the making.
#[derive(Clone, Debug)]
pub struct Packet {
    pub from: End,
    pub to: End,
    pub protocol: u8,
    /// TCP flags, or what stands in their place elsewhere: an echo is asked or answered (bit 0).
    pub flags: u8,
    /// TCP sequence and acknowledgement numbers.
    pub numbers: (u32, u32),
    pub payload: Vec<u8>,
    pub ttl: u8,
    /// DSCP and ECN.
    pub class: u8,
    pub dont_fragment: bool,
    pub id: u16,
    /// Four-byte words of IPv4 options, or eight-byte ones of IPv6 extension headers.
    pub options: usize,
    /// Whether UDP goes without a checksum.
    pub no_checksum: bool,
}

impl Packet {
    pub fn new(from: End, to: End, protocol: u8) -> Self {
        Self {
            from,
            to,
            protocol,
            flags: 0,
            numbers: (0, 0),
            payload: Vec::new(),
            ttl: 64,
            class: 0,
            dont_fragment: false,
            id: 0x1234,
            options: 0,
            no_checksum: false,
        }
    }

    /// The frame, within these VLANs.
    pub fn frame(&self, vlans: &[u16]) -> Vec<u8> {
        let upper = self.upper();
        frame(self.ip(&upper), vlans)
    }

    /// The transport header and what it carries.
    fn upper(&self) -> Vec<u8> {
        let (from, to) = (self.from.1.to_be_bytes(), self.to.1.to_be_bytes());
        let mut out = [from, to].concat();
        match self.protocol {
            TCP => {
                out.extend(self.numbers.0.to_be_bytes());
                out.extend(self.numbers.1.to_be_bytes());
                // A SYN has the options that the director may want to make room among.
                let options: &[u8] =
                    if self.flags & 2 != 0 { &[2, 4, 5, 180, 1, 1, 4, 2] } else { &[] };
                out.extend([0x50 + ((options.len() as u8 / 4) << 4), self.flags, 4, 0, 0, 0, 0, 0]);
                out.extend(options);
            }
            UDP => {
                out.extend((8 + self.payload.len() as u16).to_be_bytes());
                out.extend([0, 0]);
            }
            SCTP => {
                out.extend([0, 0, 0, 7, 0, 0, 0, 0]);
            }
            ICMP | ICMPV6 => {
                let kinds = if self.protocol == ICMP { [8, 0] } else { [128, 129] };
                // Whoever asks has the identifier for a port.
                let id = if self.flags & 1 == 0 { from } else { to };
                out = vec![kinds[usize::from(self.flags & 1)], 0, 0, 0, id[0], id[1], 0, 1];
            }
            _ => out.clear(),
        }
        out.extend(&self.payload);
        self.with_checksum(out)
    }

    fn with_checksum(&self, mut upper: Vec<u8>) -> Vec<u8> {
        let at = match self.protocol {
            TCP => 16,
            UDP if self.no_checksum => return upper,
            UDP => 6,
            ICMP | ICMPV6 => 2,
            SCTP => {
                let crc = crc32c(&upper);
                upper[8..12].copy_from_slice(&crc.to_le_bytes());
                return upper;
            }
            _ => return upper,
        };
        let sum = !sum_of(&pseudo(self.protocol, self.from.0, self.to.0, &upper));
        let sum = if self.protocol == UDP && sum == 0 { 0xffff } else { sum };
        upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        upper
    }

    fn ip(&self, upper: &[u8]) -> Vec<u8> {
        match (self.from.0, self.to.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let words = self.options.min(10);
                let total = (20 + words * 4 + upper.len()) as u16;
                let mut out = vec![0x45 + words as u8, self.class];
                out.extend(total.to_be_bytes());
                out.extend(self.id.to_be_bytes());
                out.extend([u8::from(self.dont_fragment) << 6, 0, self.ttl, self.protocol, 0, 0]);
                out.extend(from.octets());
                out.extend(to.octets());
                out.extend(vec![1; words * 4]);
                set_header_sum(&mut out);
                out.extend(upper);
                out
            }
            (from, to) => {
                let mut headers = Vec::new();
                let mut kinds = [HOP_BY_HOP, DESTINATION].iter().take(self.options).peekable();
                let first = kinds.peek().map_or(self.protocol, |kind| **kind);
                while kinds.next().is_some() {
                    let next = kinds.peek().map_or(self.protocol, |kind| **kind);
                    headers.extend([next, 0, 1, 4, 0, 0, 0, 0]);
                }
                let length = (headers.len() + upper.len()) as u16;
                let mut out = vec![0x60 | self.class >> 4, self.class << 4, 0, self.id as u8];
                out.extend(length.to_be_bytes());
                out.extend([first, self.ttl]);
                for end in [from, to] {
                    out.extend(wide(end));
                }
                out.extend(headers);
                out.extend(upper);
                out
            }
        }
    }
}

/// An ICMP error of a type and code, its second word and what it quotes of a packet.
pub fn error((from, to): (IpAddr, IpAddr), kind: (u8, u8), rest: u32, quote: &[u8]) -> Vec<u8> {
    let protocol = if to.is_ipv6() { ICMPV6 } else { ICMP };
    let mut message = vec![kind.0, kind.1, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(quote);
    let sum = !sum_of(&pseudo(protocol, from, to, &message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let packet = Packet::new((from, 0), (to, 0), protocol);
    frame(packet.ip(&message), &[])
}

/// Cuts an untagged frame's packet into fragments of `size` bytes of data (a multiple of eight),
/// as RFC 791 and RFC 8200 have it; nothing if it is not one packet of either version.
pub fn cut(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
    let size = size.max(1) * 8;
    let Some(packet) = bytes.get(14..) else { return Vec::new() };
    match packet.first().map(|first| first >> 4) {
        Some(4) => cut_v4(packet, size),
        Some(6) if packet.len() > 48 => cut_v6(packet, size),
        _ => Vec::new(),
    }
}

fn cut_v6(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    // What each router looks at is in each piece.
    let first = if packet[6] == HOP_BY_HOP { 48 } else { 40 };
    let named = if first == 48 { 40 } else { 6 };
    let (header, data) = packet.split_at(first);
    let pieces = data.chunks(size).take(16).enumerate().map(|(at, piece)| {
        let mut out = header.to_vec();
        let length = (first - 40 + 8 + piece.len()) as u16;
        out[4..6].copy_from_slice(&length.to_be_bytes());
        out[named] = FRAGMENT;
        let place = (at * size) as u16 | u16::from((at + 1) * size < data.len());
        out.extend([header[named], 0]);
        out.extend(place.to_be_bytes());
        out.extend([0, 0, header[1], header[3]]);
        out.extend(piece);
        frame(out, &[])
    });
    pieces.collect()
}

fn cut_v4(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    let length = usize::from(packet[0] & 0x0f) * 4;
    let Some((header, data)) = packet.split_at_checked(length).filter(|_| length >= 20) else {
        return Vec::new();
    };
    let pieces = data.chunks(size).take(16).enumerate().map(|(at, piece)| {
        let mut out = header.to_vec();
        out[2..4].copy_from_slice(&((length + piece.len()) as u16).to_be_bytes());
        let more = u16::from((at + 1) * size < data.len()) << 13;
        out[6..8].copy_from_slice(&((at * size / 8) as u16 | more).to_be_bytes());
        set_header_sum(&mut out);
        out.extend(piece);
        frame(out, &[])
    });
    pieces.collect()
}

/// A packet in an Ethernet frame.
fn frame(packet: Vec<u8>, vlans: &[u16]) -> Vec<u8> {
    let mut out = ENDS.to_vec();
    for vlan in vlans {
        out.extend([0x81, 0x00]);
        out.extend(vlan.to_be_bytes());
    }
    out.extend(if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    out.extend(packet);
    out
}

/// What a transport checksum is over.
pub fn pseudo(protocol: u8, from: IpAddr, to: IpAddr, upper: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(upper.len() + 40);
    match (from, to) {
        // ICMP of IPv4 has none.
        (IpAddr::V4(_), _) if protocol == ICMP => {}
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend(from.octets());
            out.extend(to.octets());
            out.extend([0, protocol]);
            out.extend((upper.len() as u16).to_be_bytes());
        }
        _ => {
            out.extend(wide(from));
            out.extend(wide(to));
            out.extend((upper.len() as u32).to_be_bytes());
            out.extend([0, 0, 0, protocol]);
        }
    }
    out.extend(upper);
    out
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn set_header_sum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !sum_of(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}
