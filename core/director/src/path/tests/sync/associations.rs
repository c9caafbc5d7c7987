//! SCTP associations go on at another director, which also knows their end when it sees it.

use super::super::lab::{BACK, FRONT, MemFrame};
use super::super::modes::{Field, ip, spec};
use super::super::owners::settle;
use super::super::restore::with_another_first;
use super::{V4, V6, live, start, tell, told};
use crate::frame::Frame;
use crate::path::{Imported, Path, Verdict};
use crate::spec::{Mode, Protocol};
use etherparse::{IpNumber, NetSlice, PacketBuilder, SlicedPacket};
use std::net::{IpAddr, SocketAddr};

/// The tags that client and real server chose: packets to each carry its own.
const TAGS: (u32, u32) = (0x1122_3344, 0x5566_7788);
/// Chunks of RFC 9260 3.3 as they are on the wire: type, flags, length.
const INIT: [u8; 4] = [1, 0, 0, 20];
const INIT_ACK: [u8; 4] = [2, 0, 0, 20];
const COOKIE_ECHO: [u8; 4] = [10, 0, 0, 4];
const COOKIE_ACK: [u8; 4] = [11, 0, 0, 4];
const DATA: [u8; 4] = [0, 3, 0, 20];
const SHUTDOWN_COMPLETE: [u8; 4] = [14, 0, 0, 4];

/// CRC32c, bit by bit (RFC 9260 appendix A).
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0x82f6_3b78 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

fn packet(from: SocketAddr, to: SocketAddr, tag: u32, chunk: [u8; 4], value: u32) -> MemFrame {
    let mut sctp = Vec::new();
    sctp.extend(from.port().to_be_bytes());
    sctp.extend(to.port().to_be_bytes());
    sctp.extend(tag.to_be_bytes());
    sctp.extend([0; 4]);
    sctp.extend(chunk);
    if chunk[3] > 4 {
        sctp.extend(value.to_be_bytes());
        sctp.extend([0; 12]);
    }
    let sum = crc(&sctp).to_le_bytes();
    sctp[8..12].copy_from_slice(&sum);
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]);
    let builder = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => panic!("one family"),
    };
    let mut bytes = Vec::new();
    builder.write(&mut bytes, IpNumber::SCTP, &sctp).unwrap();
    MemFrame::new(&bytes)
}

/// Who a packet is from and to; asserts its checksum.
fn ends(frame: &MemFrame) -> (SocketAddr, SocketAddr) {
    let sliced = SlicedPacket::from_ip(&frame.bytes()[14..]).unwrap();
    let (from, to, payload): (IpAddr, IpAddr, Vec<u8>) = match sliced.net.unwrap() {
        NetSlice::Ipv4(net) => {
            let ip = net.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            (ip.source.into(), ip.destination.into(), net.payload().payload.to_vec())
        }
        NetSlice::Ipv6(net) => {
            let ip = net.header().to_header();
            (ip.source.into(), ip.destination.into(), net.payload().payload.to_vec())
        }
        NetSlice::Arp(_) => panic!("ARP"),
    };
    let mut zeroed = payload.clone();
    zeroed[8..12].fill(0);
    assert_eq!(payload[8..12], crc(&zeroed).to_le_bytes(), "CRC32c");
    let port = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    (SocketAddr::new(from, port(0)), SocketAddr::new(to, port(2)))
}

/// An association between a client and a real server.
struct Talk {
    client: SocketAddr,
    vip: SocketAddr,
    real: SocketAddr,
    /// Where the real server sees the client.
    seen: Option<SocketAddr>,
}

impl Talk {
    fn inbound(&mut self, (field, paths): (&Field, &mut [Path]), tag: u32, chunk: [u8; 4]) {
        let mut frame = packet(self.client, self.vip, tag, chunk, TAGS.0);
        let (_, verdict) = settle(field, paths, 0, &mut frame);
        assert_eq!(verdict, Verdict::Tx(BACK), "{chunk:?}");
        let (from, to) = ends(&frame);
        assert_eq!((*self.seen.get_or_insert(from), to), (from, self.real), "{chunk:?}");
    }

    fn outbound(&mut self, (field, paths): (&Field, &mut [Path]), chunk: [u8; 4]) {
        let mut frame = packet(self.real, self.seen.unwrap(), TAGS.0, chunk, TAGS.1);
        let (_, verdict) = settle(field, paths, 0, &mut frame);
        assert_eq!(verdict, Verdict::Tx(FRONT), "{chunk:?}");
        assert_eq!(ends(&frame), (self.vip, self.client), "{chunk:?}");
    }
}

#[test]
fn associations_go_on_and_end() {
    for mode in [Mode::Fnat, Mode::Nat] {
        for ends in [V4, V6] {
            for (here, there) in [(1, 1), (1, 3), (2, 2)] {
                let name = format!("{mode:?} {} {here} {there}", ends.0);
                let mut one = spec(mode, ends.0, ends.1, 0);
                one.services[0].protocol = Protocol::Sctp;
                let client = if ends == V4 { "198.51.100.48" } else { "2001:db8:1::48" };
                let at = |address: &str, port| SocketAddr::new(ip(address), port);
                let (client, vip, real) = (at(client, 4000), at(ends.0, 53), at(ends.1, 53));
                let mut talk = Talk { client, vip, real, seen: None };
                let mut before = Field::new(&one);
                let mut paths = start(&before, here);
                talk.inbound((&before, &mut paths), 0, INIT);
                // It is told at its first packet, when nobody knows the real server's tag.
                let first = told(&before, &mut paths);
                assert_eq!(first.len(), 1, "{name}");
                let mut after = Field::new(&with_another_first(&one));
                let mut others = start(&after, there);
                let new = Imported { new: 1, ..Imported::default() };
                assert_eq!(tell(&first, &before, &after, &mut others), new, "{name}");
                talk.outbound((&before, &mut paths), INIT_ACK);
                talk.inbound((&before, &mut paths), TAGS.1, COOKIE_ECHO);
                talk.outbound((&before, &mut paths), COOKIE_ACK);
                for field in [&mut before, &mut after] {
                    field.now.0 += 2000;
                }
                paths.iter_mut().for_each(|path| path.sweep_all(&before.plan, before.now));
                let more = told(&before, &mut paths);
                let newer = Imported { newer: more.len() as u64, ..Imported::default() };
                assert_eq!(tell(&more, &before, &after, &mut others), newer, "{name}");
                talk.inbound((&after, &mut others), TAGS.1, DATA);
                talk.outbound((&after, &mut others), DATA);
                assert_eq!(live(&others), 1, "{name}");
                // Somebody who does not know the tag ends nothing; the client does.
                talk.inbound((&after, &mut others), 0x0bad_0bad, SHUTDOWN_COMPLETE);
                talk.inbound((&after, &mut others), TAGS.1, DATA);
                talk.inbound((&after, &mut others), TAGS.1, SHUTDOWN_COMPLETE);
                after.now.0 += 60_000;
                others.iter_mut().for_each(|path| path.sweep_all(&after.plan, after.now));
                assert_eq!(live(&others), 0, "{name}: it is over");
                let over = told(&after, &mut others);
                assert!(over.iter().any(|change| change.ended), "{name}: {over:?}");
            }
        }
    }
}
