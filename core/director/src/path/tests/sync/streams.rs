//! Streams that had something put in go on at another director, numbered as if one had seen all of
//! them. Numbers are read by etherparse.

use super::super::client_address::{read, segment};
use super::super::lab::{BACK, FRONT, MemFrame};
use super::super::modes::{Field, at, spec};
use super::super::owners::settle;
use super::super::restore::with_another_first;
use super::{start, tell, told};
use crate::frame::Frame;
use crate::path::{Path, Verdict};
use crate::spec::{ClientAddress, Mode, Protocol};
use etherparse::{NetSlice, SlicedPacket, TcpHeader};
use sluice_wire::tcp::{ACK, FIN, SYN};
use std::net::{IpAddr, SocketAddr};

/// Client, virtual address, real server: both families, and across.
const ENDS: [[&str; 3]; 4] = [
    ["198.51.100.48:4000", "198.51.100.200:53", "192.0.2.11:53"],
    ["[2001:db8:1::48]:4000", "[2001:db8:1::200]:53", "[2001:db8:2::11]:53"],
    ["[2001:db8:1::48]:4000", "[2001:db8:1::200]:53", "192.0.2.11:53"],
    ["198.51.100.48:4000", "198.51.100.200:53", "[2001:db8:2::11]:53"],
];
/// The client's first number: the stream goes round zero at once.
const ISN: u32 = 0xffff_fff0;
const FIRST: u32 = ISN.wrapping_add(1);

/// A connection by two directors, one of which has its packets.
struct Talk {
    client: SocketAddr,
    vip: SocketAddr,
    real: SocketAddr,
    local: Option<SocketAddr>,
    directors: [(Field, Vec<Path>); 2],
    now: usize,
}

type Read = (TcpHeader, Vec<u8>);

impl Talk {
    fn new(how: ClientAddress, [client, vip, real]: [&str; 3], workers: (u16, u16)) -> Self {
        let (client, vip, real) = (at(client), at(vip), at(real));
        let mut made = spec(Mode::Fnat, &vip.ip().to_string(), &real.ip().to_string(), real.port());
        made.services[0].protocol = Protocol::Tcp;
        made.services[0].client_address = how;
        let director = |spec, workers| {
            let field = Field::new(spec);
            let paths = start(&field, workers);
            (field, paths)
        };
        let other = with_another_first(&made);
        let directors = [director(&made, workers.0), director(&other, workers.1)];
        Self { client, vip, real, local: None, directors, now: 0 }
    }

    fn through(&mut self, mut frame: MemFrame, out: crate::fib::PortId) -> MemFrame {
        let (field, paths) = &mut self.directors[self.now];
        let (_, verdict) = settle(field, paths, 0, &mut frame);
        assert_eq!(verdict, Verdict::Tx(out), "by director {}", self.now);
        frame
    }

    fn inbound(&mut self, flags: u8, numbers: (u32, u32), payload: &[u8]) -> Read {
        let options: &[u8] = if flags & SYN != 0 { &[2, 4, 5, 0xb4] } else { &[] };
        let frame = segment(self.client, self.vip, flags, numbers, options, payload);
        let frame = self.through(frame, BACK);
        let (tcp, payload, _) = read(&frame);
        let from = SocketAddr::new(source(&frame), tcp.source_port);
        assert_eq!(*self.local.get_or_insert(from), from, "the same local endpoint");
        (tcp, payload)
    }

    fn outbound(&mut self, flags: u8, numbers: (u32, u32), options: &[u8]) -> Read {
        let frame = segment(self.real, self.local.unwrap(), flags, numbers, options, b"");
        let frame = self.through(frame, FRONT);
        let (tcp, payload, _) = read(&frame);
        assert_eq!((source(&frame), tcp.source_port), (self.vip.ip(), self.vip.port()));
        assert_eq!(tcp.destination_port, self.client.port());
        (tcp, payload)
    }

    /// The handshake, and what goes with its last segment.
    fn opened(&mut self) -> Read {
        assert_eq!(self.inbound(SYN, (ISN, 0), b"").0.sequence_number, ISN);
        self.outbound(SYN | ACK, (900, FIRST), &[2, 4, 5, 0xb4]);
        let ack = self.inbound(ACK, (FIRST, 901), b"");
        assert_eq!(ack.0.sequence_number, FIRST);
        ack
    }

    /// What has changed after so many milliseconds is told, and the packets come to the other.
    fn moved_after(&mut self, ms: u64) {
        for (field, paths) in self.directors.iter_mut().filter(|_| ms > 0) {
            field.now.0 += ms;
            paths.iter_mut().for_each(|path| path.sweep_all(&field.plan, field.now));
        }
        let [one, two] = &mut self.directors;
        let (from, to) = if self.now == 0 { (one, two) } else { (two, one) };
        let changes = told(&from.0, &mut from.1);
        assert_eq!(changes.len(), 1, "{changes:?}");
        let got = tell(&changes, &from.0, &to.0, &mut to.1);
        assert_eq!(got.new + got.newer, 1, "{got:?}");
        self.now = 1 - self.now;
    }

    fn live(&self) -> u32 {
        super::live(&self.directors[self.now].1)
    }
}

fn source(frame: &MemFrame) -> IpAddr {
    let sliced = SlicedPacket::from_ip(&frame.bytes()[14..]).unwrap();
    match sliced.net.unwrap() {
        NetSlice::Ipv4(net) => net.header().source_addr().into(),
        NetSlice::Ipv6(net) => net.header().source_addr().into(),
        NetSlice::Arp(_) => panic!("ARP"),
    }
}

const WORKERS: [(u16, u16); 3] = [(1, 1), (1, 3), (2, 2)];

/// There before the real server has acknowledged the header, and back after it has.
#[test]
fn a_stream_behind_a_proxy_header_goes_on() {
    for (ends, how) in ENDS
        .iter()
        .flat_map(|ends| [ClientAddress::ProxyV1, ClientAddress::ProxyV2].map(|how| (*ends, how)))
    {
        for workers in WORKERS {
            let mut talk = Talk::new(how, ends, workers);
            let (_, header) = talk.opened();
            let length = header.len() as u32;
            assert!(length >= 28, "{length}");
            talk.moved_after(0);
            // Nobody has said there that the header arrived: it goes with the data again.
            let (tcp, payload) = talk.inbound(ACK, (FIRST, 901), b"hello");
            assert_eq!(tcp.sequence_number, FIRST, "{how:?} {ends:?}");
            assert_eq!(payload, [&header, &b"hello"[..]].concat());
            let sack = [1, 1, 5, 10, 0, 0, 0, 100, 0, 0, 0, 200];
            let (tcp, _) = talk.outbound(ACK, (901, FIRST.wrapping_add(length + 5)), &sack);
            assert_eq!(tcp.acknowledgment_number, FIRST.wrapping_add(5));
            let edges = [100_u32, 200].map(|edge| edge.wrapping_sub(length).to_be_bytes());
            assert_eq!(tcp.options.as_slice()[4..12], edges.concat());
            talk.moved_after(3000);
            // The first knows that it did, by the second.
            let (tcp, payload) = talk.inbound(ACK, (FIRST, 901), b"hello");
            assert_eq!(
                (tcp.sequence_number, &*payload),
                (FIRST.wrapping_add(length), &b"hello"[..])
            );
            let (tcp, payload) = talk.inbound(ACK, (FIRST.wrapping_add(5), 901), b"bye");
            assert_eq!(tcp.sequence_number, FIRST.wrapping_add(length + 5));
            assert_eq!(payload, b"bye");
            let (tcp, _) = talk.inbound(FIN | ACK, (FIRST.wrapping_add(8), 901), b"");
            assert_eq!(tcp.sequence_number, FIRST.wrapping_add(length + 8));
            // The end of it by the second again.
            talk.moved_after(3000);
            let closed = FIRST.wrapping_add(length + 9);
            let (tcp, _) = talk.outbound(FIN | ACK, (901, closed), &[]);
            assert_eq!(tcp.acknowledgment_number, FIRST.wrapping_add(9));
            let (tcp, _) = talk.inbound(ACK, (FIRST.wrapping_add(9), 902), b"");
            assert_eq!(tcp.sequence_number, closed);
            assert_eq!(talk.live(), 0, "{how:?} {ends:?} {workers:?}");
        }
    }
}

/// A fast stream has come so far in three seconds that its numbers alone do not tell what is before
/// its header and what behind.
#[test]
fn a_stream_of_gigabytes_goes_on_behind_its_header() {
    for ends in ENDS {
        let mut talk = Talk::new(ClientAddress::ProxyV2, ends, (1, 1));
        let length = talk.opened().1.len() as u32;
        talk.moved_after(0);
        talk.now = 0;
        talk.outbound(ACK, (901, FIRST.wrapping_add(length)), &[]);
        for gigabytes in 1..=3_u32 {
            let number = FIRST.wrapping_add(gigabytes << 30);
            talk.inbound(ACK, (number, 901), b"more");
            talk.outbound(ACK, (901, number.wrapping_add(length + 4)), &[]);
        }
        talk.moved_after(3000);
        let number = FIRST.wrapping_add(3 << 30).wrapping_add(4);
        let (tcp, payload) = talk.inbound(ACK, (number, 901), b"more");
        assert_eq!(tcp.sequence_number, number.wrapping_add(length), "{ends:?}");
        assert_eq!(payload, b"more");
        let (tcp, _) = talk.outbound(ACK, (901, number.wrapping_add(length + 4)), &[]);
        assert_eq!(tcp.acknowledgment_number, number.wrapping_add(4), "{ends:?}");
    }
}

/// Directors that share a stream, one of which has its packets from the client and the other those
/// to it: what only one can see, both know.
#[test]
fn a_shared_stream_is_known_to_have_its_header() {
    for ends in ENDS {
        let mut talk = Talk::new(ClientAddress::ProxyV1, ends, (1, 1));
        let length = talk.opened().1.len() as u32;
        talk.moved_after(0);
        talk.now = 0;
        talk.outbound(ACK, (901, FIRST.wrapping_add(length)), &[]);
        talk.directors.iter_mut().for_each(|(field, _)| field.now.0 += 500);
        talk.now = 1;
        talk.inbound(ACK, (FIRST, 901), b"data");
        let [(before, paths), (after, others)] = &mut talk.directors;
        let sweep = |field: &Field, paths: &mut [Path]| {
            paths.iter_mut().for_each(|path| path.sweep_all(&field.plan, field.now));
            told(field, paths)
        };
        let there = sweep(before, paths);
        assert_eq!(tell(&there, before, after, others).older, 1, "{ends:?}: its packets are older");
        before.now.0 += 9000;
        after.now.0 += 9000;
        for gigabytes in 1..=3_u32 {
            let number = FIRST.wrapping_add(gigabytes << 30);
            let (tcp, _) = talk.inbound(ACK, (number, 901), b"more");
            assert_eq!(tcp.sequence_number, number.wrapping_add(length), "{ends:?} {gigabytes}");
        }
        // Nor is it forgotten by who is told of the other's packets.
        let [(before, paths), (after, others)] = &mut talk.directors;
        let back = sweep(after, others);
        assert_eq!(tell(&back, after, before, paths).newer, 1, "{ends:?}");
        talk.now = 0;
        let (tcp, _) = talk.outbound(ACK, (901, FIRST.wrapping_add(3 << 30)), &[]);
        let seen = FIRST.wrapping_add(3 << 30).wrapping_sub(length);
        assert_eq!(tcp.acknowledgment_number, seen, "{ends:?}");
    }
}

/// A client uses its port again and gets the same local one: the header goes in front of the new
/// stream, wherever that is.
#[test]
fn a_stream_that_follows_another_begins_anew() {
    for ends in ENDS {
        let mut talk = Talk::new(ClientAddress::ProxyV2, ends, (1, 1));
        let header = talk.opened().1;
        talk.outbound(ACK, (901, FIRST.wrapping_add(header.len() as u32)), &[]);
        let [(before, paths), (after, others)] = &mut talk.directors;
        let mut changes = told(before, paths);
        assert_eq!(tell(&changes, before, after, others).new, 1);
        after.now.0 += 1000;
        before.now.0 += 1000;
        let next = &mut changes[0].session;
        next.isn = next.isn.wrapping_add(100_000);
        next.closing &= 0x10;
        assert_eq!(tell(&changes, before, after, others).newer, 1);
        talk.now = 1;
        let first = FIRST.wrapping_add(100_000);
        let (tcp, payload) = talk.inbound(ACK, (first, 901), b"hello");
        assert_eq!(tcp.sequence_number, first, "{ends:?}");
        assert_eq!(payload, [&header, &b"hello"[..]].concat());
    }
}

/// The option goes with what begins the stream, by whichever director, until that is acknowledged.
#[test]
fn a_stream_with_an_option_goes_on() {
    for ends in ENDS {
        for workers in WORKERS {
            let mut talk = Talk::new(ClientAddress::Toa, ends, workers);
            let (tcp, _) = talk.opened();
            let option = tcp.options.as_slice().to_vec();
            let kind = [(254, if talk.client.is_ipv4() { 8 } else { 20 })];
            assert_eq!(option.first().copied().zip(option.get(1).copied()), kind.first().copied());
            assert_eq!(option[2..4], talk.client.port().to_be_bytes());
            talk.moved_after(0);
            let (tcp, payload) = talk.inbound(ACK, (FIRST, 901), b"hello");
            assert_eq!((tcp.sequence_number, &*payload), (FIRST, &b"hello"[..]));
            assert_eq!(tcp.options.as_slice(), option, "{ends:?}");
            let (tcp, _) = talk.outbound(ACK, (901, FIRST.wrapping_add(5)), &[]);
            assert_eq!(tcp.acknowledgment_number, FIRST.wrapping_add(5));
            talk.moved_after(3000);
            let (tcp, payload) = talk.inbound(ACK, (FIRST.wrapping_add(5), 901), b"bye");
            assert_eq!((tcp.sequence_number, &*payload), (FIRST.wrapping_add(5), &b"bye"[..]));
            assert!(tcp.options.as_slice().is_empty());
        }
    }
}
