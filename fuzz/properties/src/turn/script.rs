//! The language of scripts: one byte says what, the next ones how.

use std::net::IpAddr;

use sluice_director::spec::Protocol;

use super::craft::{self, ICMP, ICMPV6, Packet, SCTP, TCP, UDP};
use super::frame::{see, see_packet};
use super::world::{Place, back, front};
use crate::bytes::Bytes;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A frame is on its way.
    Frame(Vec<u8>),
    /// The last frame on its way goes in fragments.
    Cut {
        /// Data in each, in units of eight bytes.
        size: u8,
        /// Whether the last one goes first; and whether the first one is lost.
        order: u8,
    },
    /// What is on its way arrives at a port, then time passes.
    Turn {
        /// Lowest bit: the port; the others: the worker.
        port: u8,
        /// How much time.
        after_ms: u64,
    },
    /// A new plan.
    Reload(u8),
    /// Whether each neighbour's MAC is known.
    Neighbours(bool),
    /// Sweep and compare everything.
    Settle,
}

/// A frame's longest length in a script.
const LONGEST: usize = 2047;
/// Bytes at the front of a script: see [`super::world::World::new`].
pub const HEAD: usize = 3;

/// The steps not played yet.
pub struct Script<'a> {
    pub bytes: Bytes<'a>,
    /// Where clients may send to.
    pub places: Vec<Place>,
}

impl Script<'_> {
    /// The next step; `sent` is what may be answered.
    pub fn next_op(&mut self, sent: &[(u16, Vec<u8>)]) -> Option<Op> {
        if self.bytes.is_empty() {
            return None;
        }
        Some(match self.u8() % 12 {
            0 | 1 => {
                let length = usize::from(self.bytes.u16()) & LONGEST;
                Op::Frame(self.bytes.take(length).to_vec())
            }
            2 => Op::Frame(self.client()),
            3 => Op::Frame(self.host()),
            4 => Op::Frame(self.answer(sent)),
            5 => Op::Turn { port: self.u8(), after_ms: pause(self.bytes.u16()) },
            6 => Op::Reload(self.u8()),
            7 => Op::Settle,
            8 => Op::Frame(self.error(sent)),
            9 => Op::Cut { size: self.u8(), order: self.u8() },
            10 => Op::Neighbours(self.u8() & 1 == 1),
            _ => Op::Frame(self.stray()),
        })
    }

    fn u8(&mut self) -> u8 {
        self.bytes.u8()
    }

    /// A client's packet to a service.
    fn client(&mut self) -> Vec<u8> {
        let (place, who, flags) = (usize::from(self.u8()), self.u8(), self.u8());
        let Some(Place { protocol, vip, ports }) =
            self.places.get(place % self.places.len().max(1))
        else {
            return Vec::new();
        };
        let port = ports.first.saturating_add(u16::from(who >> 6)).min(ports.last);
        let protocol = match protocol {
            Protocol::Any => [TCP, UDP, SCTP, 47, 50, 4][usize::from(flags >> 5) % 6],
            one => one.number(),
        };
        let client = front(vip.is_ipv6(), 48 + (who >> 4 & 3));
        let ends = ((client, 40_000 + u16::from(who & 15)), (*vip, port));
        let packet = Packet { flags, ..Packet::new(ends.0, ends.1, protocol) };
        self.finish(packet)
    }

    /// A packet of a host inside to the outside.
    fn host(&mut self) -> Vec<u8> {
        let (how, who, flags) = (self.u8(), self.u8(), self.u8());
        let six = how & 1 == 1;
        let protocol = match how >> 1 & 3 {
            0 => TCP,
            1 => UDP,
            2 if six => ICMPV6,
            2 => ICMP,
            _ => SCTP,
        };
        // Sometimes to another host inside, or to a virtual address.
        let to = match how >> 3 {
            16 => back(six, 17),
            17 => front(six, 200),
            18 => back(six, 10),
            last => front(six, 50 + last % 8),
        };
        let from = (back(six, 11 + (who >> 4) % 4), 5000 + u16::from(who & 15));
        let packet = Packet { flags, ..Packet::new(from, (to, 443), protocol) };
        self.finish(packet)
    }

    /// A packet that nobody waits for: to a pool's address, the director's own, or an unused port.
    fn stray(&mut self) -> Vec<u8> {
        let (how, port, protocol) = (self.u8(), self.bytes.u16(), self.u8());
        let six = how & 1 == 1;
        let to = match how >> 1 & 3 {
            0 => back(six, 10),
            1 => front(six, 10),
            2 => front(six, 1),
            _ => front(six, 200),
        };
        let from = if how & 8 == 0 { front(six, 60) } else { back(six, 11) };
        let from = if how & 16 == 0 { from } else { to };
        let protocol = [TCP, UDP, SCTP, ICMP, ICMPV6, 47][usize::from(protocol) % 6];
        let packet = Packet { flags: how >> 3, ..Packet::new((from, 8080), (to, port), protocol) };
        self.finish(packet)
    }

    /// What was sent the `which`th last time.
    fn sent(sent: &[(u16, Vec<u8>)], which: u8) -> Option<&(u16, Vec<u8>)> {
        let last = sent.len().checked_sub(1)?;
        sent.get(last - usize::from(which).min(last))
    }

    /// The far end's answer to something that was sent, or nothing that makes sense. Who gets a
    /// tunnel's packet answers to what is inside.
    fn answer(&mut self, sent: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let (which, flags) = (self.u8(), self.u8());
        let seen = Self::sent(sent, which).and_then(|(_, bytes)| see(bytes));
        let Some(mut seen) = seen else { return Vec::new() };
        if matches!(seen.protocol, 4 | 41) {
            let Some(inner) = see_packet(&seen.upper) else { return Vec::new() };
            seen = inner;
        }
        let (sport, dport) = seen.ports();
        let mut packet = Packet {
            flags,
            ..Packet::new((seen.destination, dport), (seen.source, sport), seen.protocol)
        };
        if seen.protocol == TCP && seen.upper.len() >= 20 {
            let word = |at: usize| {
                let bytes = seen.upper.get(at..at + 4).and_then(<[u8]>::first_chunk);
                bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
            };
            let control = seen.upper[13] & 1 | seen.upper[13] >> 1 & 1;
            let length = seen.rest().1.len() as u32 + u32::from(control);
            packet.numbers = (word(8), word(4).wrapping_add(length));
        }
        if matches!(seen.protocol, ICMP | ICMPV6) {
            packet.flags |= 1;
        }
        self.finish(packet)
    }

    /// A router's ICMP error about something that was sent, or its receiver's.
    fn error(&mut self, sent: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let (which, how, quoted) = (self.u8(), self.u8(), self.bytes.u16());
        let about = Self::sent(sent, which);
        let Some((port, seen)) = about.and_then(|(port, bytes)| Some((*port, see(bytes)?))) else {
            return Vec::new();
        };
        let six = seen.source.is_ipv6();
        let kinds = match six {
            false => [(3, 3), (3, 4), (11, 0), (12, 0), (3, 1), (3, 13), (4, 0), (5, 1)],
            true => [(1, 4), (2, 0), (3, 0), (4, 0), (1, 0), (1, 1), (100, 0), (137, 0)],
        };
        let kind = kinds[usize::from(how & 7)];
        let router = if port == 0 { front(six, 70) } else { back(six, 16) };
        let from = if how & 8 == 0 { seen.destination } else { router };
        let to: IpAddr = if how & 16 == 0 { seen.source } else { front(six, 48) };
        let rest = match how >> 5 {
            0 => 0,
            mtu => 40 + u32::from(mtu) * 220,
        };
        let least = if six { 40 } else { 20 };
        let most = if six { 1200 } else { 548 };
        let length = (usize::from(quoted) + least).min(most).min(seen.packet.len());
        craft::error((from, to), kind, rest, &seen.packet[..length])
    }

    /// Payload, and what may be odd about the frame.
    fn finish(&mut self, mut packet: Packet) -> Vec<u8> {
        let (length, odd, class) = (usize::from(self.u8()), self.u8(), self.u8());
        let exception_is = |bit: u8| odd >> bit & 1 == 1;
        packet.payload = vec![odd; if exception_is(7) { length * 6 } else { length }];
        packet.id = u16::from_be_bytes([odd, class]);
        (packet.class, packet.dont_fragment) = (class, class >> 7 == 1);
        if exception_is(0) {
            packet.ttl = 1;
        }
        if exception_is(2) {
            packet.options = length % 11;
        }
        if exception_is(4) {
            packet.numbers.0 = u32::from(self.u8()) << 24;
            packet.numbers.1 = u32::from(self.u8()) << 24;
        }
        packet.no_checksum = exception_is(5);
        let mut bytes = packet.frame(if exception_is(1) { &[20] } else { &[] });
        if exception_is(3) {
            bytes.extend([odd; 6]);
        }
        if exception_is(6) {
            let at = usize::from(self.u8()) % bytes.len();
            bytes[at] ^= self.u8();
        }
        bytes
    }
}

/// Milliseconds up to half a minute, or seconds up to nine hours.
const fn pause(value: u16) -> u64 {
    let least = (value & 0x7fff) as u64;
    if value & 0x8000 == 0 { least } else { least * 1000 }
}

/// A script of frames that arrive at ports: (port, milliseconds until the next, frame). Frames too
/// long for a script are left out.
pub fn encode(head: [u8; HEAD], frames: &[(u8, u64, Vec<u8>)]) -> Vec<u8> {
    let mut out = head.to_vec();
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
        let bytes = encode([4, 0, 5], &frames);
        let mut script = Script { bytes: Bytes(&bytes[HEAD..]), places: Vec::new() };
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
