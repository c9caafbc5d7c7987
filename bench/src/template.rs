//! Frames that are written fast: a template and the sums of everything in it that stays.
//!
//! A frame's first payload bytes name its flow, so that what comes out can be judged.

use crate::args::Protocol;
use crate::clients::Endpoint;
use crate::port::MemFrame;
use etherparse::{PacketBuilder, TcpHeader};

/// Bytes of the frame check sequence, which is never in memory.
const FCS: usize = 4;
const IP: usize = 14;
const L4: usize = IP + 20;

/// What a TCP segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opens a connection.
    Syn,
    /// Answers it.
    SynAck,
    /// Carries data.
    Data,
}

/// A frame without its addresses, ports and flow.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    ip_sum: u64,
    l4_sum: u64,
    checksum_at: usize,
    payload_at: usize,
}

impl Template {
    /// A template for frames of `size` bytes, frame check sequence included, between two MACs.
    pub fn new(protocol: Protocol, kind: Kind, size: u16, from: [u8; 6], to: [u8; 6]) -> Self {
        let builder = PacketBuilder::ethernet2(from, to).ipv4([0; 4], [0; 4], 64);
        let (header, checksum) = match protocol {
            Protocol::Udp => (8, 6),
            Protocol::Tcp => (20, 16),
        };
        let payload_at = L4 + header;
        let payload = vec![0; usize::from(size) - FCS - payload_at];
        let mut bytes = Vec::new();
        let written = match protocol {
            Protocol::Udp => builder.udp(0, 0).write(&mut bytes, &payload),
            Protocol::Tcp => {
                let mut tcp = TcpHeader::new(0, 0, 1_000, 64_000);
                (tcp.syn, tcp.ack) = (kind != Kind::Data, kind != Kind::Syn);
                tcp.psh = kind == Kind::Data;
                builder.tcp_header(tcp).write(&mut bytes, &payload)
            }
        };
        debug_assert!(written.is_ok(), "a vector takes everything");
        let checksum_at = L4 + checksum;
        bytes[IP + 10..IP + 12].fill(0);
        bytes[checksum_at..checksum_at + 2].fill(0);
        let pseudo = u64::from(bytes[IP + 9]) + (bytes.len() - L4) as u64;
        let (ip_sum, l4_sum) = (sum(&bytes[IP..L4]), sum(&bytes[L4..]) + pseudo);
        Self { bytes, ip_sum, l4_sum, checksum_at, payload_at }
    }

    /// Writes a whole frame.
    #[inline(always)]
    pub fn write(&self, frame: &mut MemFrame, from: Endpoint, to: Endpoint, flow: u32) {
        let bytes = frame.write(&self.bytes);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let addresses = words(from.address) + words(to.address);
        put(IP + 10, &(!fold(self.ip_sum + addresses)).to_be_bytes());
        put(IP + 12, &from.address.to_be_bytes());
        put(IP + 16, &to.address.to_be_bytes());
        put(L4, &from.port.to_be_bytes());
        put(L4 + 2, &to.port.to_be_bytes());
        put(self.payload_at, &flow.to_be_bytes());
        let ports = u64::from(from.port) + u64::from(to.port);
        let checksum = !fold(self.l4_sum + addresses + ports + words(flow));
        // A UDP checksum of zero would mean that there is none; TCP does not mind the other zero.
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        put(self.checksum_at, &checksum.to_be_bytes());
    }
}

const fn words(value: u32) -> u64 {
    (value >> 16) as u64 + (value & 0xffff) as u64
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
            from in any::<(u32, u16)>(), to in any::<(u32, u16)>(), flow in any::<u32>(),
            size in 64u16..1519, tcp in any::<bool>(),
            kind in prop_oneof![Just(Kind::Syn), Just(Kind::SynAck), Just(Kind::Data)],
        ) {
            let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
            let from = Endpoint { address: from.0, port: from.1 };
            let to = Endpoint { address: to.0, port: to.1 };
            let template = Template::new(protocol, kind, size, [2; 6], [4; 6]);
            let mut frame = port::frames(1, PagePolicy::Ordinary).unwrap().pop().unwrap();
            template.write(&mut frame, from, to, flow);
            prop_assert_eq!(frame.bytes().len(), usize::from(size) - FCS);
            let seen = judge::read(frame.bytes()).unwrap();
            prop_assert_eq!((seen.from, seen.to, seen.flow), (from, to, flow));
            prop_assert_eq!((seen.macs, seen.ttl), (([2; 6], [4; 6]), 64));
        }
    }

    #[test]
    fn a_handshake_has_its_flags() {
        let flags = |kind| Template::new(Protocol::Tcp, kind, 64, [2; 6], [4; 6]).bytes[L4 + 13];
        assert_eq!([Kind::Syn, Kind::SynAck, Kind::Data].map(flags), [0x02, 0x12, 0x18]);
    }
}
