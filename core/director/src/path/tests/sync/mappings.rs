//! Mappings of source NAT that came from another director, with several workers: whichever worker a
//! packet comes to, a new connection of an inside endpoint shares the mapping of its others.

use super::super::lab::{BACK, FRONT, MemFrame};
use super::super::modes::{Field, datagram, ip};
use super::super::owners::walk_on;
use super::{V4, outward, start, tell, told};
use crate::frame::Frame;
use crate::path::{Imported, Marked, Path, Round, Unprobed, Verdict};
use crate::spec::{Mapping, Spec};
use arrayvec::ArrayVec;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use sluice_wire::tcp::{ACK, SYN};
use std::net::{IpAddr, SocketAddr};

const INSIDERS: std::ops::Range<u16> = 700..712;

fn shared() -> Spec {
    let mut out = outward(Mapping::EndpointIndependent);
    out.snat[0].hairpinning = true;
    out
}

fn inside(port: u16) -> SocketAddr {
    SocketAddr::new(ip(V4.1), port)
}

fn far(port: u16) -> SocketAddr {
    SocketAddr::new(ip("198.51.100.48"), port)
}

fn segment(from: SocketAddr, to: SocketAddr, flags: u8, number: (u32, u32)) -> MemFrame {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (from.ip(), to.ip()) else { panic!("IPv4") };
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6])
        .ipv4(src.octets(), dst.octets(), 64)
        .tcp(from.port(), to.port(), number.0, 1000);
    let builder = if flags & SYN != 0 { builder.syn() } else { builder };
    let builder = if flags & ACK != 0 { builder.ack(number.1) } else { builder };
    let mut bytes = Vec::new();
    builder.write(&mut bytes, b"").unwrap();
    MemFrame::new(&bytes)
}

/// Who a frame is from and to.
fn ends(frame: &MemFrame) -> (SocketAddr, SocketAddr) {
    let sliced = SlicedPacket::from_ethernet(frame.bytes()).unwrap();
    let Some(NetSlice::Ipv4(net)) = &sliced.net else { panic!("{sliced:?}") };
    let (sport, dport) = match &sliced.transport {
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        other => panic!("{other:?}"),
    };
    let header = net.header();
    let end = |address: std::net::Ipv4Addr, port| SocketAddr::new(address.into(), port);
    (end(header.source_addr(), sport), end(header.destination_addr(), dport))
}

/// Sends a frame in by a worker, and gives its ends where it leaves; no worker is asked twice.
fn send(field: &Field, paths: &mut [Path], first: u16, frame: MemFrame) -> [SocketAddr; 2] {
    send_on(field, paths, (first, ArrayVec::new()), frame)
}

/// The same by a worker that looks whether a burst has packets for others' ports.
fn send_searched(
    field: &Field,
    paths: &mut [Path],
    first: u16,
    frame: MemFrame,
) -> [SocketAddr; 2] {
    let (mut burst, mut begins) = (ArrayVec::from_iter([frame.clone()]), None);
    let give = |owners: &[u16], round: Round, frames: &mut Marked<'_, MemFrame>| {
        begins = Some((owners[0], [round].into_iter().collect()));
        frames.for_each(drop);
    };
    paths[usize::from(first)].take_misdirected(&field.plan, &mut burst, give, &mut Unprobed);
    send_on(field, paths, begins.unwrap_or_else(|| (first, ArrayVec::new())), frame)
}

fn send_on(
    field: &Field,
    paths: &mut [Path],
    begins: (u16, ArrayVec<Round, 1>),
    mut frame: MemFrame,
) -> [SocketAddr; 2] {
    let (before, first) = (ends(&frame), begins.0);
    let way = walk_on(&vec![field; paths.len()], paths, begins, &mut frame);
    // Once to each, which of a pool port may be one more, back to who opens, and to whom the port
    // belongs.
    assert!(way.len() <= paths.len() + 3, "{before:?}: {way:?}");
    let (_, verdict) = *way.last().unwrap();
    assert!(matches!(verdict, Verdict::Tx(FRONT | BACK)), "{before:?} by {first}: {way:?}");
    ends(&frame).into()
}

/// Opens a connection to the outside by a worker, and gives its outside endpoint.
fn open(
    field: &Field,
    paths: &mut [Path],
    (tcp, first): (bool, u16),
    (from, to): (SocketAddr, SocketAddr),
) -> SocketAddr {
    if !tcp {
        return send(field, paths, first, datagram(from, to))[0];
    }
    let [outside, _] = send(field, paths, first, segment(from, to, SYN, (1000, 0)));
    let answer = segment(to, outside, SYN | ACK, (5000, 1001));
    assert_eq!(send(field, paths, first, answer), [to, from]);
    let [again, _] = send(field, paths, first, segment(from, to, ACK, (1001, 5001)));
    assert_eq!(again, outside);
    outside
}

/// A director with so many workers whose insiders each have a connection to this port outside.
fn began(workers: u16, tcp: bool, port: u16) -> (Field, Vec<Path>, Vec<SocketAddr>) {
    let mut field = Field::new(&shared());
    let mut paths = start(&field, workers);
    let outside = INSIDERS
        .map(|insider| open(&field, &mut paths, (tcp, 0), (inside(insider), far(port))))
        .collect();
    field.now.0 += 10;
    paths.iter_mut().for_each(|path| path.sweep_all(&field.plan, field.now));
    (field, paths, outside)
}

#[test]
fn new_connections_share_the_mapping_that_came_along() {
    for (here, there) in [(1, 2), (1, 4), (4, 2), (4, 4), (3, 1)] {
        for tcp in [false, true] {
            let (field, mut paths, outside) = began(here, tcp, 1);
            let changes = told(&field, &mut paths);
            let mut others = start(&field, there);
            let got = tell(&changes, &field, &field, &mut others);
            let (new, older) = (INSIDERS.len() as u64, got.older);
            assert_eq!(got, Imported { new, older, ..Imported::default() });
            for (insider, outside) in INSIDERS.zip(&outside) {
                for first in 0..there {
                    let ends = (inside(insider), far(100 + first));
                    let got = open(&field, &mut others, (tcp, first), ends);
                    assert_eq!(got, *outside, "{insider} by {first} of {there}, tcp: {tcp}");
                }
            }
            let templates: u32 = others.iter().map(Path::templates).sum();
            assert_eq!(templates, INSIDERS.len() as u32, "{here} {there} tcp: {tcp}");
        }
    }
}

/// A packet of a connection finds it where it lies, with the mapping that it has, also where its
/// endpoint has another one at a worker that is asked before.
#[test]
fn connections_with_another_mapping_are_found_behind_it() {
    for workers in [2, 3, 4] {
        // The first worker's ports, and those of each.
        let (one, mut ones, first) = began(1, false, 1);
        let (two, mut twos, second) = began(workers, false, 2);
        assert!(first.iter().zip(&second).any(|(one, two)| one != two));
        let mut all = start(&one, workers);
        for (field, paths) in [(&one, &mut ones), (&two, &mut twos)] {
            let changes = told(field, paths);
            assert_eq!(tell(&changes, field, &one, &mut all).new, INSIDERS.len() as u64);
        }
        for (insider, outside) in INSIDERS.zip(first.iter().zip(&second)) {
            let mut new = Vec::new();
            for by in 0..workers {
                let mut to = |port| open(&one, &mut all, (false, by), (inside(insider), far(port)));
                assert_eq!((to(1), to(2)), (*outside.0, *outside.1), "{insider} by {by}");
                new.push(to(100 + by));
            }
            assert!([outside.0, outside.1].contains(&&new[0]), "{insider}: {new:?}");
            assert!(new.iter().all(|end| *end == new[0]), "{insider}: {new:?}");
        }
    }
}

/// Hosts inside see each other under the mappings that came along.
#[test]
fn hosts_inside_reach_each_other_by_mappings_that_came_along() {
    for workers in [2, 3, 4] {
        let (field, mut paths, outside) = began(workers + 1, false, 1);
        let changes = told(&field, &mut paths);
        for way in [send, send_searched] {
            let mut others = start(&field, workers);
            tell(&changes, &field, &field, &mut others);
            let pairs = outside.iter().zip(outside.iter().skip(1));
            for (insider, (own, other)) in INSIDERS.zip(pairs) {
                for first in 0..workers {
                    let packet = datagram(inside(insider), *other);
                    let got = way(&field, &mut others, first, packet);
                    let expected = [*own, inside(insider + 1)];
                    assert_eq!(got, expected, "{insider} by {first} of {workers}");
                }
            }
        }
    }
}
