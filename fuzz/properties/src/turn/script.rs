//! The language of scripts: one byte says what, the next ones how.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use sluice_testkit::{Frame, tcp, udp};

use crate::bytes::Bytes;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A frame is on its way.
    Frame(Vec<u8>),
    /// What is on its way arrives at a port, then time passes.
    Turn {
        /// Lowest bit: the port; the others: the worker.
        port: u8,
        /// How much time.
        after_ms: u64,
    },
    /// A new plan.
    Reload(u8),
    /// Sweep and compare everything.
    Settle,
}

/// A frame's longest length in a script.
const LONGEST: usize = 2047;

/// The steps not played yet.
pub struct Script<'a>(pub Bytes<'a>);

impl Script<'_> {
    /// The next step; `sent` is what may be answered.
    pub fn next_op(&mut self, sent: &[(u16, Vec<u8>)]) -> Option<Op> {
        if self.0.is_empty() {
            return None;
        }
        Some(match self.0.u8() % 8 {
            0 | 1 => {
                let length = usize::from(self.0.u16()) & LONGEST;
                Op::Frame(self.0.take(length).to_vec())
            }
            2 => Op::Frame(self.client_tcp()),
            3 => Op::Frame(self.client_udp()),
            4 => Op::Frame(self.answer(sent)),
            5 => Op::Turn { port: self.0.u8(), after_ms: pause(self.0.u16()) },
            6 => Op::Reload(self.0.u8()),
            _ => Op::Settle,
        })
    }

    fn client_tcp(&mut self) -> Vec<u8> {
        let client = format!("198.51.100.48:{}", 40_000 + u16::from(self.0.u8() % 16));
        let frame = tcp(&client, "198.51.100.200:80", &flags(self.0.u8()));
        let frame = frame.numbers(u32::from(self.0.u8()) << 24, u32::from(self.0.u8()) << 24);
        self.finish(frame)
    }

    fn client_udp(&mut self) -> Vec<u8> {
        let client = format!("198.51.100.48:{}", 40_000 + u16::from(self.0.u8() % 16));
        self.finish(udp(&client, "198.51.100.200:53"))
    }

    /// The far end's answer to something that was sent, or nothing that makes sense.
    fn answer(&mut self, sent: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let (which, flag_byte) = (usize::from(self.0.u8()), self.0.u8());
        let to = sent.len().checked_sub(1).map(|last| &sent[last - which.min(last)]);
        let Some(seen) = to.and_then(|(_, bytes)| SlicedPacket::from_ethernet(bytes).ok()) else {
            return Vec::new();
        };
        let Some(NetSlice::Ipv4(ip)) = &seen.net else { return Vec::new() };
        let (source, destination) = (ip.header().source_addr(), ip.header().destination_addr());
        let ends = |sport, dport| (format!("{destination}:{dport}"), format!("{source}:{sport}"));
        let frame = match &seen.transport {
            Some(TransportSlice::Tcp(segment)) => {
                let (from, to) = ends(segment.source_port(), segment.destination_port());
                let length = segment.payload().len() as u32
                    + u32::from(segment.syn())
                    + u32::from(segment.fin());
                let next = segment.sequence_number().wrapping_add(length);
                let sequence = segment.acknowledgment_number();
                tcp(&from, &to, &flags(flag_byte)).numbers(sequence, next)
            }
            Some(TransportSlice::Udp(datagram)) => {
                let (from, to) = ends(datagram.source_port(), datagram.destination_port());
                udp(&from, &to)
            }
            _ => return Vec::new(),
        };
        self.finish(frame)
    }

    /// Payload, and what may be odd about the frame.
    fn finish(&mut self, mut frame: Frame) -> Vec<u8> {
        let (length, odd) = (usize::from(self.0.u8()), self.0.u8());
        let odd_is = |bit: u8| odd >> bit & 1 == 1;
        frame = frame.payload(&vec![odd; if odd_is(7) { length * 5 } else { length }]);
        if odd_is(0) {
            frame = frame.ttl(1);
        }
        if odd_is(1) {
            frame = frame.vlan(20);
        }
        if odd_is(2) {
            frame = frame.ip_options(length % 11);
        }
        if odd_is(3) {
            frame = frame.padding(&[odd; 6]);
        }
        if odd_is(4) {
            frame = frame.fragment(u16::from(odd_is(5)) * 64, true);
        }
        if odd_is(5) {
            frame = frame.no_checksum();
        }
        let mut bytes = frame.bytes();
        if odd_is(6) {
            let at = usize::from(self.0.u8()) % bytes.len();
            bytes[at] ^= self.0.u8();
        }
        bytes
    }
}

fn flags(byte: u8) -> String {
    let all = "FSRPAU".chars().enumerate();
    all.filter(|(bit, _)| byte >> bit & 1 == 1).map(|(_, flag)| flag).collect()
}

/// Milliseconds up to half a minute, or seconds up to nine hours.
const fn pause(value: u16) -> u64 {
    let least = (value & 0x7fff) as u64;
    if value & 0x8000 == 0 { least } else { least * 1000 }
}

/// A script of frames that arrive at ports: (port, milliseconds until the next, frame). Frames too
/// long for a script are left out.
pub fn encode(world: u8, sessions: u8, frames: &[(u8, u64, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![world, sessions];
    for (port, after_ms, bytes) in frames.iter().filter(|(_, _, bytes)| bytes.len() <= LONGEST) {
        out.push(0);
        out.extend((bytes.len() as u16).to_le_bytes());
        out.extend(bytes);
        let pause = if *after_ms < 0x8000 {
            *after_ms as u16
        } else {
            0x8000 | (after_ms / 1000).min(0x7fff) as u16
        };
        out.extend([5, *port]);
        out.extend(pause.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_again() {
        let frames = [(1, 7, vec![1, 2, 3]), (0, 90_000, Vec::new())];
        let bytes = encode(4, 5, &frames);
        let mut script = Script(Bytes(&bytes[2..]));
        let ops: Vec<_> = std::iter::from_fn(|| script.next_op(&[])).collect();
        assert_eq!(
            ops,
            [
                Op::Frame(vec![1, 2, 3]),
                Op::Turn { port: 1, after_ms: 7 },
                Op::Frame(Vec::new()),
                Op::Turn { port: 0, after_ms: 90_000 },
            ]
        );
    }
}
