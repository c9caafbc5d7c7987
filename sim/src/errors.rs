//! ICMP errors that hosts and routers send about what the director sent them, and such that nobody
//! has a reason to send.

use crate::frame::Buffer;
use crate::rng::Rng;
use crate::wire::{Addr, Outer, Packet, TCP, UDP, frame_len, is_v4, write, write_icmp};
use sluice_director::Frame;

/// What an error is about, and how it came to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The packet, as whoever complains got it.
    pub quoted: Packet,
    /// The header that was around it.
    pub outer: Option<Outer>,
    /// Length of all that, in bytes.
    pub total: u16,
    pub from: Addr,
    pub to: Addr,
    pub ttl: u8,
    pub trouble: Trouble,
    pub flaw: Flaw,
    /// Bytes of the packet that are quoted, headers included.
    pub quote: usize,
}

/// What is wrong with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Port,
    Host,
    TooBig(u16),
    Expired,
}

/// What is wrong with the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Its checksum.
    Checksum,
    /// It quotes no ports.
    Short,
    /// It is sent to another than who sent the packet.
    Elsewhere,
    /// It is about a packet that nobody sent.
    Invented,
    /// It is of a kind that no sender of packets has to know (RFC 6633, RFC 4443 2.1).
    Kind,
}

impl Trouble {
    /// Type, code and second word.
    pub const fn message(self, six: bool) -> (u8, u8, u32) {
        match (self, six) {
            (Self::Port, false) => (3, 3, 0),
            (Self::Host, false) => (3, 1, 0),
            (Self::TooBig(mtu), false) => (3, 4, mtu as u32),
            (Self::Expired, false) => (11, 0, 0),
            (Self::Port, true) => (1, 4, 0),
            (Self::Host, true) => (1, 3, 0),
            (Self::TooBig(mtu), true) => (2, 0, mtu as u32),
            (Self::Expired, true) => (3, 0, 0),
        }
    }
}

impl About {
    /// An error about a frame that arrived, from this address; none about what is no packet of a
    /// session.
    pub fn of(frame: &Buffer, from: Addr, rng: &mut Rng) -> Option<Self> {
        let seen = &frame.seen;
        let plain = frame.is_whole() && frame.place.is_none() && frame.told.is_none();
        if !plain || !matches!(seen.packet.tuple.protocol, TCP | UDP) || !seen.right {
            return None;
        }
        let mut quoted = Packet { payload: frame.packet.payload, ..seen.packet };
        let source = seen.outer.map_or(quoted.tuple.src, |outer| outer.src);
        let six = !is_v4(source);
        if six == is_v4(from) {
            return None;
        }
        let mtu = *rng.pick(if six { &[1280, 1400] } else { &[600, 1280, 1400] });
        let trouble =
            *rng.pick(&[Trouble::Port, Trouble::Host, Trouble::TooBig(mtu), Trouble::Expired]);
        let flaws = [Flaw::Checksum, Flaw::Short, Flaw::Elsewhere, Flaw::Invented, Flaw::Kind];
        let flaw = if rng.chance(150) { *rng.pick(&flaws) } else { Flaw::None };
        // So little says of no tunnel but IPIP that it is one.
        let shim = seen.outer.map_or(0, |outer| usize::from(outer.shim.length()));
        let flaw = if flaw == Flaw::Short && shim > 0 { Flaw::None } else { flaw };
        if flaw == Flaw::Invented {
            quoted.tuple.dport ^= 1 << rng.below(16);
        }
        let least = if six { 48 } else { 28 } + if seen.outer.is_some() { 48 } else { 0 } + shim;
        let most = if six { 1280 - 48 } else { 576 - 28 };
        let all = usize::from(seen.length);
        let quote = if rng.chance(500) { least } else { most }.min(all);
        let quote = if flaw == Flaw::Short { if six { 40 } else { 22 } } else { quote };
        let ttl = *rng.pick(&[1, 64, 64, 64, 255]);
        let (outer, total) = (seen.outer, seen.length);
        let to = if flaw == Flaw::Elsewhere { source ^ 1 } else { source };
        Some(Self { quoted, outer, total, from, to, ttl, trouble, flaw, quote })
    }

    /// The packet that carries it.
    pub fn carrier(&self) -> Packet {
        let mut packet = Packet { ttl: self.ttl, ..Packet::default() };
        (packet.tuple.src, packet.tuple.dst) = (self.from, self.to);
        packet
    }

    /// Its frame, but for MAC addresses. `about` is the frame that it is about.
    pub fn write(&self, about: &Buffer) -> Vec<u8> {
        let six = !is_v4(self.to);
        let quote = if let Some(outer) = &self.outer {
            let bytes = about.bytes();
            let at = if bytes[12..14] == [0x81, 0] { 18 } else { 14 };
            let mut bytes = bytes[at..].to_vec();
            // What is inside may be invented too.
            let header = |at: usize| if bytes[at] >> 4 == 6 { 40 } else { 20 };
            let inside = usize::from(outer.length());
            let port = inside + header(inside) + 2;
            bytes[port..port + 2].copy_from_slice(&self.quoted.tuple.dport.to_be_bytes());
            bytes
        } else {
            self.inner()
        };
        let (kind, code, rest) = match self.flaw {
            Flaw::Kind if six => (100, 0, 0),
            Flaw::Kind => (4, 0, 0),
            _ => self.trouble.message(six),
        };
        let quote = &quote[..quote.len().min(self.quote)];
        let mut frame = write_icmp(&self.carrier(), (kind, code, rest), quote);
        if self.flaw == Flaw::Checksum {
            let at = if six { 54 } else { 34 };
            frame[at + 2] ^= 0x10;
        }
        frame
    }

    /// The packet itself, without the header around it.
    pub fn inner(&self) -> Vec<u8> {
        let mut frame = vec![0; frame_len(&self.quoted)];
        write(&self.quoted, ([0; 6], [0; 6]), &mut frame);
        frame.split_off(14)
    }
}
