//! Packets as the simulated world writes and reads them.
//!
//! A [`Packet`] says what a sender means; [`write`] makes it a frame, and [`read`] makes a frame a
//! [`Seen`] with every length and every checksum checked from scratch. Nothing of `sluice-wire` is
//! used here: what is tested never judges itself. IPv4 addresses are held as IPv4-mapped IPv6
//! addresses, so that one type serves both families.

mod icmp;
mod piece;
mod read;
mod sctp;
mod stream;
mod tunnel;
mod write;

pub(crate) use icmp::write_icmp;
pub(crate) use piece::{Place, SeenPiece, piece_len, portless, read_piece, whole, write_piece};
pub(crate) use read::{IcmpError, Outer, Seen, read, read_error};
pub(crate) use stream::Stream;
pub(crate) use tunnel::Shim;
pub(crate) use write::{frame_len, set_link, write};

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;
/// Protocols that nobody looks into: GRE, ESP and an unassigned one.
pub(crate) const OTHERS: [u8; 3] = [47, 50, 250];

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// An address of either family; IPv4 as `::ffff:a.b.c.d`.
pub(crate) type Addr = u128;

pub(crate) const fn v4(bytes: [u8; 4]) -> Addr {
    0xffff_0000_0000 | u32::from_be_bytes(bytes) as u128
}

pub(crate) const fn is_v4(address: Addr) -> bool {
    address >> 32 == 0xffff
}

pub(crate) fn to_ip(address: Addr) -> IpAddr {
    if is_v4(address) {
        IpAddr::V4(Ipv4Addr::from_bits(address as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(address))
    }
}

pub(crate) fn from_ip(address: IpAddr) -> Addr {
    match address {
        IpAddr::V4(address) => v4(address.octets()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Endpoints and protocol of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Tuple {
    pub src: Addr,
    pub dst: Addr,
    pub sport: u16,
    pub dport: u16,
    pub protocol: u8,
}

impl Tuple {
    /// That of an answer.
    pub const fn reversed(self) -> Self {
        let Self { src, dst, sport, dport, protocol } = self;
        Self { src: dst, dst: src, sport: dport, dport: sport, protocol }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |address, port| match to_ip(address) {
            IpAddr::V4(v4) => format!("{v4}:{port}"),
            IpAddr::V6(v6) => format!("[{v6}]:{port}"),
        };
        let name = match self.protocol {
            TCP => "tcp",
            UDP => "udp",
            _ => "ip",
        };
        write!(f, "{name} {} > {}", end(self.src, self.sport), end(self.dst, self.dport))
    }
}

/// What a sender means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet {
    pub tuple: Tuple,
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Identification, or flow label.
    pub id: u32,
    /// IPv4: don't fragment.
    pub df: bool,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// Maximum segment size option; 0 for none.
    pub mss: u16,
    /// SACK option with one block (RFC 2018).
    pub sack: Option<(u32, u32)>,
    /// TOA option: a client's address and port. Nobody but the director writes one.
    pub toa: Option<(Addr, u16)>,
    /// False for UDP over IPv4 without a checksum.
    pub checksum: bool,
    pub payload: Stream,
}

impl Packet {
    pub const fn is_v4(&self) -> bool {
        is_v4(self.tuple.src)
    }

    /// The sequence number behind its data.
    pub const fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload.len as u32)
    }

    /// Length of the IP packet.
    pub const fn length(&self) -> usize {
        frame_len(self) - 14
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tuple)?;
        if self.tuple.protocol == TCP {
            let flags = [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (PSH, 'P'), (ACK, '.')];
            let set: String =
                flags.iter().filter(|(bit, _)| self.flags & bit != 0).map(|(_, c)| c).collect();
            write!(f, " [{set}] seq {} ack {}", self.seq, self.ack)?;
        }
        write!(f, " len {} ttl {}", self.payload.len, self.ttl)
    }
}

/// The Internet checksum's sum (RFC 1071) of `bytes` after `start`, folded, not inverted.
fn sum(start: u64, bytes: &[u8]) -> u16 {
    let mut total = 0;
    // Two words at a time, as they lie in memory: carries are folded and bytes put in order in the
    // end (RFC 1071 2 A and B).
    let (pairs, rest) = bytes.as_chunks::<4>();
    for pair in pairs {
        total += u64::from(u32::from_ne_bytes(*pair));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let total = fold(total + u64::from(u32::from_ne_bytes(last)));
    fold(start + u64::from(u16::from_be(total)))
}

/// Carries around the end until none is left.
const fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1).
fn pseudo(src: Addr, dst: Addr, protocol: u8, length: usize) -> u64 {
    let words = |address: Addr| {
        let address = if is_v4(address) { address & 0xffff_ffff } else { address };
        let (high, low) = ((address >> 64) as u64, address as u64);
        // Four words of 32 bits: as good as eight of 16 when the carries are folded.
        (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff)
    };
    words(src) + words(dst) + u64::from(protocol) + length as u64
}
