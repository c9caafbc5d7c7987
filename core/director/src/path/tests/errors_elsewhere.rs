//! ICMP errors at a worker that does not have the session, and about sessions whose real server is
//! told who the client is.

use super::icmp::{CLIENT, ROUTER, Seen, VIP, error, field_of, framed, packet};
use super::lab::{BACK, FRONT};
use super::modes::{Field, at, ip, spec};
use crate::frame::Frame;
use crate::path::Verdict;
use crate::reason::Reason;
use crate::spec::{ClientAddress, Mode, Protocol};
use etherparse::{PacketBuilder, TcpHeader};
use std::net::{IpAddr, SocketAddr};

const LOCAL: &str = "192.0.2.10:1024";
const REAL: &str = "192.0.2.11:53";

/// A worker hands an error to the one that has the session, where the quote tells which.
#[test]
fn errors_find_their_worker() {
    let vip = at(VIP[0]).ip().to_string();
    let mut spec = spec(Mode::Fnat, &vip, "192.0.2.11", 53);
    spec.pools[0].ports = 1000..=1999;
    let mut field = field_of(&spec, [1500; 2], (0, 2), [false; 2]);
    let about = |port: u16| {
        let from = SocketAddr::new(at(LOCAL).ip(), port);
        packet(from, at("192.0.2.11:53"), (60, true), 9)
    };
    let to = at(LOCAL).ip();
    let mut verdict =
        |port| field.one(BACK, &mut error(ip(ROUTER[0]), to, (11, 0, 0), &about(port)));
    assert_eq!(verdict(1500), Verdict::HandOff(1));
    assert_eq!(verdict(1499), Verdict::Drop(Reason::IcmpError));
}

/// A client's sessions with NAT belong to a worker that errors about either direction lead to.
#[test]
fn errors_about_nat_find_their_worker() {
    let vip = at(VIP[1]).ip().to_string();
    let spec = spec(Mode::Nat, &vip, "2001:db8:2::11", 53);
    let mut fields = [0, 1].map(|worker| field_of(&spec, [1500; 2], (worker, 2), [false; 2]));
    let mut handed = 0;
    for port in 4000..4020 {
        let client = SocketAddr::new(at(CLIENT[1]).ip(), port);
        let mut request = framed(&packet(client, at(VIP[1]), (64, true), 9));
        let owner = match fields[0].one(FRONT, &mut request) {
            Verdict::HandOff(1) => 1,
            verdict => {
                assert_eq!(verdict, Verdict::Tx(BACK));
                0
            }
        };
        if owner == 1 {
            assert_eq!(fields[1].one(FRONT, &mut request), Verdict::Tx(BACK));
        }
        let real = at("[2001:db8:2::11]:53");
        for (port, out, about, to) in [
            (BACK, FRONT, packet(client, real, (60, true), 9), client.ip()),
            (FRONT, BACK, packet(at(VIP[1]), client, (60, true), 9), at(VIP[1]).ip()),
        ] {
            let mut frame = error(ip(ROUTER[1]), to, (3, 0, 0), &about);
            let other = 1 - owner;
            let handed_off = Verdict::HandOff(owner as u16);
            assert_eq!(fields[other].one(port, &mut frame), handed_off);
            assert_eq!(fields[owner].one(port, &mut frame), Verdict::Tx(out));
            handed += 1;
        }
    }
    assert_eq!(handed, 40);
}

/// A segment of a stream, as an IP packet.
fn segment(
    from: SocketAddr,
    to: SocketAddr,
    (sequence, acknowledgement): (u32, u32),
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    let mut header = TcpHeader::new(from.port(), to.port(), sequence, 64_000);
    header.acknowledgment_number = acknowledgement;
    (header.syn, header.ack) = (flags & 2 != 0, flags & 16 != 0);
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from.ip(), to.ip()) else { panic!("IPv4") };
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4(from.octets(), to.octets(), 64).tcp_header(header);
    builder.write(&mut bytes, data).unwrap();
    bytes
}

/// What is quoted of a stream with a PROXY header in front has the numbers that its sender used.
#[test]
fn quotes_of_streams_with_a_header_in_front() {
    let vip = at(VIP[0]).ip().to_string();
    let mut spec = spec(Mode::Fnat, &vip, "192.0.2.11", 53);
    spec.services[0].protocol = Protocol::Tcp;
    spec.services[0].client_address = ClientAddress::ProxyV2;
    let mut field = field_of(&spec, [1500; 2], (0, 1), [false; 2]);
    let (client, service) = (at(CLIENT[0]), at(VIP[0]));
    let send = |field: &mut Field, port, packet: Vec<u8>| {
        let mut frame = framed(&packet);
        let out = if port == FRONT { BACK } else { FRONT };
        assert_eq!(field.one(port, &mut frame), Verdict::Tx(out));
        frame.bytes()[14..].to_vec()
    };
    send(&mut field, FRONT, segment(client, service, (1000, 0), 2, b""));
    let local = at(LOCAL);
    let arrived = send(&mut field, BACK, segment(at(REAL), local, (5000, 1001), 18, b""));
    assert_eq!(arrived[20..24], segment(service, client, (5000, 1001), 18, b"")[20..24]);
    send(&mut field, FRONT, segment(client, service, (1001, 5001), 16, b""));
    // 28 bytes went in front.
    send(&mut field, BACK, segment(at(REAL), local, (5001, 1029), 16, b""));
    let sent = segment(client, service, (1001, 5001), 16, b"hello");
    let arrived = send(&mut field, FRONT, sent.clone());
    assert_eq!(arrived[24..28], 1029u32.to_be_bytes());
    for size in [8, 20, 25] {
        let mut frame = error(ip(ROUTER[0]), local.ip(), (11, 0, 0), &arrived[..20 + size]);
        assert_eq!(field.one(BACK, &mut frame), Verdict::Tx(FRONT));
        assert_eq!(Seen::read(&frame).quote[20..], sent[20..20 + size]);
    }
    let sent = segment(at(REAL), local, (5001, 1034), 16, b"world");
    let arrived = send(&mut field, BACK, sent.clone());
    for size in [12, 20, 25] {
        let mut frame = error(ip(ROUTER[0]), service.ip(), (11, 0, 0), &arrived[..20 + size]);
        assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK));
        assert_eq!(Seen::read(&frame).quote[20..], sent[20..20 + size]);
    }
}

/// A path's MTU holds for datagrams with the header that is put in front of each.
#[test]
fn a_path_mtu_counts_the_header_in_front() {
    let vip = at(VIP[0]).ip().to_string();
    let mut spec = spec(Mode::Fnat, &vip, "192.0.2.11", 53);
    spec.services[0].client_address = ClientAddress::ProxyV2;
    let mut field = field_of(&spec, [1500; 2], (0, 1), [false; 2]);
    let sent = packet(at(CLIENT[0]), at(VIP[0]), (64, true), 1400);
    let mut frame = framed(&sent);
    assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK));
    let arrived = frame.bytes()[14..].to_vec();
    assert_eq!(arrived.len(), sent.len() + 28);
    let local = IpAddr::from(<[u8; 4]>::try_from(&arrived[12..16]).unwrap());
    let mut frame = error(ip(ROUTER[0]), local, (3, 4, 1300), &arrived[..28]);
    assert_eq!(field.one(BACK, &mut frame), Verdict::Tx(FRONT));
    assert_eq!(Seen::read(&frame).message, (3, 4, 1272));
}
