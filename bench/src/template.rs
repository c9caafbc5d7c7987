//! Frames that are written fast: a template and the sums of everything in it that stays.
//!
//! A payload's first bytes name the frame's flow, so that what comes out can be judged.

use crate::args::{Family, Protocol};
use crate::clients::Endpoint;
use crate::port::MemFrame;
use etherparse::{PacketBuilder, TcpHeader};

/// Bytes of the frame check sequence, which is never in memory.
const FCS: usize = 4;
/// The least frame without it.
const LEAST: usize = 60;
const IP: usize = 14;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A datagram with so many bytes.
    Udp { payload: usize },
    /// A segment.
    Tcp(Segment),
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub syn: bool,
    pub ack: bool,
    pub fin: bool,
    pub sequence: u32,
    pub acknowledges: u32,
    /// Bytes.
    pub payload: usize,
}

/// What a frame of a session with a handshake is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opens a connection.
    Syn,
    /// Answers it.
    SynAck,
    /// Carries data.
    Data,
}

impl Kind {
    /// What frames of `size` bytes carry, frame check sequence included.
    pub fn content(self, family: Family, protocol: Protocol, size: u16) -> Content {
        let payload = usize::from(size).saturating_sub(FCS + headers(family, protocol));
        match protocol {
            Protocol::Udp => Content::Udp { payload },
            Protocol::Tcp => Content::Tcp(Segment {
                syn: self != Self::Data,
                ack: self != Self::Syn,
                sequence: 1_000,
                acknowledges: if self == Self::Syn { 0 } else { 2_000 },
                payload,
                ..Segment::default()
            }),
        }
    }
}

const fn ip_header(family: Family) -> usize {
    match family {
        Family::V4 => 20,
        Family::V6 => 40,
    }
}

pub const fn l4_header(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Udp => 8,
        Protocol::Tcp => 20,
    }
}

/// Bytes ahead of the transport header.
pub const fn transport_at(family: Family) -> usize {
    IP + ip_header(family)
}

/// Bytes ahead of the payload.
pub const fn headers(family: Family, protocol: Protocol) -> usize {
    IP + ip_header(family) + l4_header(protocol)
}

/// A frame without its addresses, ports and flow.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    family: Family,
    ip_sum: u64,
    l4_sum: u64,
    checksum_at: usize,
    /// Where the flow is written, if there is a payload.
    flow_at: Option<usize>,
}

impl Template {
    /// The least frame with room for its flow, frame check sequence included.
    pub fn least_size(family: Family, protocol: Protocol) -> u16 {
        (headers(family, protocol) + size_of::<u32>() + FCS).max(LEAST + FCS) as u16
    }

    /// A template for frames between two MACs.
    pub fn new(family: Family, content: Content, [from, to]: [[u8; 6]; 2]) -> Self {
        let builder = PacketBuilder::ethernet2(from, to);
        let builder = match family {
            Family::V4 => builder.ipv4([0; 4], [0; 4], 64),
            Family::V6 => builder.ipv6([0; 16], [0; 16], 64),
        };
        let (protocol, payload) = match content {
            Content::Udp { payload } => (Protocol::Udp, payload),
            Content::Tcp(segment) => (Protocol::Tcp, segment.payload),
        };
        let (mut bytes, zeros) = (Vec::new(), vec![0; payload]);
        let written = match content {
            Content::Udp { .. } => builder.udp(0, 0).write(&mut bytes, &zeros),
            Content::Tcp(segment) => builder.tcp_header(segment.header()).write(&mut bytes, &zeros),
        };
        debug_assert!(written.is_ok(), "a vector takes everything");
        let l4 = IP + ip_header(family);
        let (number, checksum_at) = match protocol {
            Protocol::Udp => (17, l4 + 6),
            Protocol::Tcp => (6, l4 + 16),
        };
        bytes[checksum_at..checksum_at + 2].fill(0);
        let mut ip_sum = 0;
        if family == Family::V4 {
            bytes[IP + 10..IP + 12].fill(0);
            ip_sum = sum(&bytes[IP..l4]);
        }
        let l4_sum = sum(&bytes[l4..]) + number + (bytes.len() - l4) as u64;
        let flow_at = (payload >= size_of::<u32>()).then_some(bytes.len() - payload);
        bytes.resize(bytes.len().max(LEAST), 0);
        Self { bytes, family, ip_sum, l4_sum, checksum_at, flow_at }
    }

    /// Writes a whole frame.
    #[inline(always)]
    pub fn write(&self, frame: &mut MemFrame, from: Endpoint, to: Endpoint, flow: u32) {
        let bytes = frame.write(&self.bytes);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let addresses = match self.family {
            Family::V4 => {
                let (from, to) = (from.address as u32, to.address as u32);
                let addresses = words(from) + words(to);
                put(IP + 10, &(!fold(self.ip_sum + addresses)).to_be_bytes());
                put(IP + 12, &from.to_be_bytes());
                put(IP + 16, &to.to_be_bytes());
                addresses
            }
            Family::V6 => {
                put(IP + 8, &from.address.to_be_bytes());
                put(IP + 24, &to.address.to_be_bytes());
                wide(from.address) + wide(to.address)
            }
        };
        let l4 = IP + ip_header(self.family);
        put(l4, &from.port.to_be_bytes());
        put(l4 + 2, &to.port.to_be_bytes());
        let mut total = self.l4_sum + addresses + u64::from(from.port) + u64::from(to.port);
        if let Some(at) = self.flow_at {
            put(at, &flow.to_be_bytes());
            total += words(flow);
        }
        let checksum = !fold(total);
        // A UDP checksum of zero would mean that there is none; TCP does not mind the other zero.
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        put(self.checksum_at, &checksum.to_be_bytes());
    }
}

impl Segment {
    fn header(&self) -> TcpHeader {
        let mut tcp = TcpHeader::new(0, 0, self.sequence, 64_000);
        (tcp.syn, tcp.ack, tcp.fin) = (self.syn, self.ack, self.fin);
        tcp.psh = self.payload > 0 && !self.syn;
        tcp.acknowledgment_number = self.acknowledges;
        tcp
    }
}

const fn words(value: u32) -> u64 {
    (value >> 16) as u64 + (value & 0xffff) as u64
}

const fn wide(value: u128) -> u64 {
    words((value >> 96) as u32)
        + words((value >> 64) as u32)
        + words((value >> 32) as u32)
        + words(value as u32)
}

fn sum(bytes: &[u8]) -> u64 {
    let pair = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(pair).sum()
}

const fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge;
    use crate::port;
    use proptest::prelude::*;
    use sluice_director::Frame;
    use sluice_table::PagePolicy;

    proptest! {
        /// What is written is what was asked for, by another's parser.
        #[test]
        fn frames_are_valid(
            from in any::<(u128, u16)>(), to in any::<(u128, u16)>(), flow in any::<u32>(),
            more in 0u16..1400, tcp in any::<bool>(), v6 in any::<bool>(),
            kind in prop_oneof![Just(Kind::Syn), Just(Kind::SynAck), Just(Kind::Data)],
        ) {
            let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
            let (family, mask) = if v6 { (Family::V6, !0) } else { (Family::V4, 0xffff_ffff) };
            let from = Endpoint { address: from.0 & mask, port: from.1 };
            let to = Endpoint { address: to.0 & mask, port: to.1 };
            let size = Template::least_size(family, protocol) + more;
            let content = kind.content(family, protocol, size);
            let template = Template::new(family, content, [[2; 6], [4; 6]]);
            let mut frame = port::frames(1, PagePolicy::Ordinary).unwrap().pop().unwrap();
            template.write(&mut frame, from, to, flow);
            prop_assert_eq!(frame.bytes().len(), usize::from(size) - FCS);
            let seen = judge::read(frame.bytes()).unwrap();
            prop_assert_eq!((seen.from, seen.to, seen.flow), (from, to, Some(flow)));
            prop_assert_eq!((seen.macs, seen.ttl, seen.outer), (([2; 6], [4; 6]), 64, None));
        }
    }

    #[test]
    fn a_handshake_has_its_flags() {
        let at = IP + 20 + 13;
        let flags = |kind: Kind| {
            let content = kind.content(Family::V4, Protocol::Tcp, 64);
            Template::new(Family::V4, content, [[2; 6], [4; 6]]).bytes[at]
        };
        assert_eq!([Kind::Syn, Kind::SynAck, Kind::Data].map(flags), [0x02, 0x12, 0x18]);
    }

    #[test]
    fn a_segment_without_a_payload_is_padded() {
        let content = Content::Tcp(Segment { fin: true, ack: true, ..Segment::default() });
        let template = Template::new(Family::V4, content, [[2; 6], [4; 6]]);
        let mut frame = port::frames(1, PagePolicy::Ordinary).unwrap().pop().unwrap();
        template.write(&mut frame, Endpoint { address: 1, port: 2 }, Endpoint::default(), 9);
        assert_eq!(frame.bytes().len(), LEAST);
        assert_eq!(judge::read(frame.bytes()).unwrap().flow, None);
    }
}
