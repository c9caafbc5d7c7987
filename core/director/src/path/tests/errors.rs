//! ICMP errors about packets of sessions: what the sender of a packet gets to see of it is the
//! packet as it sent it, whatever became of it on the way.

use super::icmp::{CLIENT, EXCEEDED, MODES, REAL, ROUTER, Seen, TOO_BIG, VIP};
use super::icmp::{error, field, field_of, framed, packet};
use super::lab::{BACK, CLIENT_MAC, FRONT, MemFrame, REAL_MAC};
use super::modes::{Field, at, ip, spec};
use crate::fib::PortId;
use crate::frame::Frame;
use crate::path::Verdict;
use crate::reason::Reason;
use crate::spec::{Mapping, Mode, Network, Protocol, SnatRule};
use etherparse::{Ipv4Header, PacketBuilder, TcpHeader};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

/// A packet as it was sent, and as it arrives at the far side of the director.
struct Trip {
    sent: Vec<u8>,
    arrived: Vec<u8>,
}

/// Sends a packet through, which must get there.
fn trip(field: &mut Field, port: PortId, sent: &[u8]) -> Trip {
    let mut frame = framed(sent);
    let out = if port == FRONT { BACK } else { FRONT };
    assert_eq!(field.one(port, &mut frame), Verdict::Tx(out));
    Trip { sent: sent.to_vec(), arrived: frame.bytes()[14..].to_vec() }
}

fn source(packet: &[u8]) -> IpAddr {
    if packet[0] >> 4 == 6 {
        <[u8; 16]>::try_from(&packet[8..24]).unwrap().into()
    } else {
        <[u8; 4]>::try_from(&packet[12..16]).unwrap().into()
    }
}

fn version(packet: &[u8]) -> usize {
    usize::from(packet[0] >> 4 == 6)
}

/// A packet a hop later.
fn aged(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
    } else {
        packet[8] -= 1;
        let sum = Ipv4Header::from_slice(&packet).unwrap().0.calc_header_checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Those parts of a quote that survive a translation between families, and its upper layer.
fn essence(quote: &[u8]) -> (IpAddr, Vec<u8>, u16, u8, u8, Vec<u8>) {
    let word = |at: usize| u16::from_be_bytes([quote[at], quote[at + 1]]);
    if quote[0] >> 4 == 6 {
        let (to, total) = (quote[24..40].to_vec(), word(4) + 40);
        (source(quote), to, total, quote[6], quote[7], quote[40..].to_vec())
    } else {
        let header = Ipv4Header::from_slice(quote).unwrap().0;
        assert_eq!(header.header_checksum, header.calc_header_checksum(), "of the quote");
        let to = quote[16..20].to_vec();
        (source(quote), to, word(2), quote[9], quote[8], quote[20..].to_vec())
    }
}

/// Lets somebody complain about what arrived, quoting the header and `size` bytes, and gives what
/// the sender is told.
fn complaint(
    field: &mut Field,
    (port, out): (PortId, PortId),
    from: IpAddr,
    message: (u8, u8, u32),
    trip: &Trip,
    size: usize,
) -> Vec<u8> {
    let header = if version(&trip.arrived) == 1 { 40 } else { 20 };
    let quote = &trip.arrived[..(header + size).min(trip.arrived.len())];
    let mut frame = error(from, source(&trip.arrived), message, quote);
    assert_eq!(field.one(port, &mut frame), Verdict::Tx(out));
    assert_eq!(frame.bytes()[..6], if out == FRONT { CLIENT_MAC } else { REAL_MAC });
    frame.bytes()[14..].to_vec()
}

/// What a sender is told must be about the packet as it sent it.
fn judge(told: &[u8], trip: &Trip, size: usize) -> Seen {
    let seen = Seen::of_packet(told);
    let header = if version(&trip.sent) == 1 { 40 } else { 20 };
    let expected = aged(trip.sent.clone());
    let expected = &expected[..(header + size).min(expected.len())];
    // Half of a checksum cannot be changed: the other half may carry.
    let protocol = trip.sent[[9, 6][version(&trip.sent)]];
    let half = [(17, 7), (6, 17)].contains(&(protocol, size));
    let whole = expected.len() - usize::from(half);
    if version(&trip.sent) == version(&trip.arrived) {
        assert_eq!(seen.quote[..whole], expected[..whole]);
        assert_eq!(seen.quote.len(), expected.len());
    } else if !half {
        assert_eq!(essence(&seen.quote), essence(expected));
    }
    assert_eq!((seen.to, seen.ttl), (source(&trip.sent), 60));
    seen
}

fn local(version: usize) -> SocketAddr {
    at(["192.0.2.10:1024", "[2001:db8:2::10]:1024"][version])
}

/// A trip to the real server, and for those modes whose answers come by, one back.
fn trips(mode: Mode, (vip, real): (usize, usize), length: usize) -> (Field, Trip, Option<Trip>) {
    let mut field = field(mode, (vip, real), [1500; 2]);
    let sent = packet(at(CLIENT[vip]), at(VIP[vip]), (64, true), length);
    let there = trip(&mut field, FRONT, &sent);
    let seen = match mode {
        Mode::Fnat => Some(local(real)),
        Mode::Nat => Some(at(CLIENT[vip])),
        _ => None,
    };
    let back = seen.map(|seen| {
        let sent = packet(at(REAL[real]), seen, (64, true), length);
        trip(&mut field, BACK, &sent)
    });
    (field, there, back)
}

/// Both directions, quoted in every length that has ports, by the receiver and by a router.
#[test]
fn senders_hear_of_the_packets_they_sent() {
    let two_way = MODES.into_iter().filter(|m| matches!(m.0, Mode::Fnat | Mode::Nat));
    for (mode, vip, real) in two_way {
        let (mut field, there, back) = trips(mode, (vip, real), 40);
        let back = back.unwrap();
        let before = field.path.counters().clone();
        for size in 4..=48 {
            for router in [false, true] {
                let who = if router { ip(ROUTER[real]) } else { at(REAL[real]).ip() };
                let (kind, code) = EXCEEDED[real];
                let told = complaint(&mut field, (BACK, FRONT), who, (kind, code, 0), &there, size);
                let seen = judge(&told, &there, size);
                assert_eq!(seen.from, at(VIP[vip]).ip(), "whom the client sent to");
                assert_eq!(seen.message, (EXCEEDED[vip].0, EXCEEDED[vip].1, 0));

                let who = if router { ip(ROUTER[vip]) } else { at(CLIENT[vip]).ip() };
                let (kind, code) = EXCEEDED[vip];
                let told = complaint(&mut field, (FRONT, BACK), who, (kind, code, 0), &back, size);
                let seen = judge(&told, &back, size);
                let from = if mode == Mode::Nat { who } else { local(real).ip() };
                assert_eq!(seen.from, from, "whom the real server sent to");
                assert_eq!(seen.message, (EXCEEDED[real].0, EXCEEDED[real].1, 0));
            }
        }
        assert_eq!(*field.path.counters(), before, "no packet of the session");
    }
}

/// Path MTUs, with 20 bytes more or less where the family changes (RFC 7915 4.2, 5.2).
#[test]
fn path_mtus_reach_senders() {
    for (mode, vip, real, there_told, back_told) in [
        (Mode::Fnat, 0, 0, 1400, 1300),
        (Mode::Fnat, 1, 1, 1400, 1300),
        (Mode::Nat, 0, 0, 1400, 1300),
        (Mode::Nat, 1, 1, 1400, 1300),
        (Mode::Fnat, 0, 1, 1380, 1320),
        (Mode::Fnat, 1, 0, 1420, 1280),
    ] {
        let (mut field, there, back) = trips(mode, (vip, real), 1410);
        let ((kind, code), router) = (TOO_BIG[real], ip(ROUTER[real]));
        let message = (kind, code, 1400);
        let told = complaint(&mut field, (BACK, FRONT), router, message, &there, 500);
        let (kind, code) = TOO_BIG[vip];
        assert_eq!(judge(&told, &there, 500).message, (kind, code, there_told), "{mode:?} {vip}");
        let router = ip(ROUTER[vip]);
        let (back, message) = (back.unwrap(), (kind, code, 1300));
        let told = complaint(&mut field, (FRONT, BACK), router, message, &back, 500);
        let (kind, code) = TOO_BIG[real];
        assert_eq!(judge(&told, &back, 500).message, (kind, code, back_told), "{mode:?} {vip}");
    }
}

/// With direct routing and tunnels a client complains to the VIP about what the real server sent
/// by itself: it gets there as it is.
#[test]
fn complaints_of_clients_reach_real_servers_that_answer_by_themselves() {
    for (mode, vip, real) in MODES.into_iter().filter(|m| matches!(m.0, Mode::Dr | Mode::Ipip)) {
        let (mut field, _, _) = trips(mode, (vip, real), 40);
        let answer = packet(at(VIP[vip]), at(CLIENT[vip]), (60, true), 100);
        for size in [4, 8, 30, 200] {
            let header = if vip == 1 { 40 } else { 20 };
            let quote = &answer[..(header + size).min(answer.len())];
            let (kind, code) = TOO_BIG[vip];
            let (from, to) = (ip(ROUTER[vip]), at(VIP[vip]).ip());
            let mut frame = error(from, to, (kind, code, 1300), quote);
            assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK));
            let packet = &frame.bytes()[14..];
            let inner = match (mode, real) {
                (Mode::Ipip, 0) => &packet[20..],
                (Mode::Ipip, _) => &packet[40..],
                _ => packet,
            };
            let seen = Seen::of_packet(inner);
            assert_eq!((seen.from, seen.to, seen.ttl), (from, to, 60));
            assert_eq!((seen.message, seen.quote.as_slice()), ((kind, code, 1300), quote));
        }
    }
}

#[test]
fn inside_and_outside_of_source_nat_hear_of_each_other() {
    for (version, inside, pool, outside) in [
        (0, "192.0.2.11:700", "198.51.100.9", "198.51.100.48:53"),
        (1, "[2001:db8:2::11]:700", "2001:db8:1::9", "[2001:db8:1::48]:53"),
    ] {
        let mut spec = spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 53);
        spec.pools[0].addresses = vec![ip(pool)];
        spec.services.clear();
        let net = |address, prefix| Network { address: ip(address), prefix };
        spec.snat = vec![SnatRule {
            network: String::new(),
            name: "out".into(),
            sources: vec![net("192.0.2.0", 24), net("2001:db8:2::", 64)],
            pool: "lan".into(),
            mapping: Mapping::PerSession,
            ..SnatRule::default()
        }];
        let mut field = field_of(&spec, [1500; 2], (0, 1), [false; 2]);
        let sent = packet(at(inside), at(outside), (64, true), 40);
        let there = trip(&mut field, BACK, &sent);
        let pooled = SocketAddr::new(ip(pool), 1024);
        let back = trip(&mut field, FRONT, &packet(at(outside), pooled, (64, true), 40));
        let (kind, code) = EXCEEDED[version];
        for size in 4..=48 {
            for who in [ip(ROUTER[version]), at(outside).ip()] {
                let message = (kind, code, 0);
                let told = complaint(&mut field, (FRONT, BACK), who, message, &there, size);
                assert_eq!(judge(&told, &there, size).from, who, "routers show (RFC 5508 4.2)");
            }
            for who in [ip("192.0.2.99"), ip("2001:db8:2::99")].into_iter().skip(version).take(1) {
                let message = (kind, code, 0);
                let told = complaint(&mut field, (BACK, FRONT), who, message, &back, size);
                assert_eq!(judge(&told, &back, size).from, ip(pool), "the inside does not");
            }
        }
        echoes(&mut field, version, (at(inside).ip(), ip(pool), at(outside).ip()));
    }
}

/// An error about an echo that went to the outside.
fn echoes(field: &mut Field, version: usize, (inside, pool, outside): (IpAddr, IpAddr, IpAddr)) {
    let kind = [8, 128][version];
    let echo = error(inside, outside, (kind, 0, 0x1234_0001), b"anybody there?");
    let sent = echo.bytes()[14..].to_vec();
    let there = trip(field, BACK, &sent);
    assert_eq!(source(&there.arrived), pool);
    let (kind, code) = EXCEEDED[version];
    for size in 8..=22 {
        let who = ip(ROUTER[version]);
        let told = complaint(field, (FRONT, BACK), who, (kind, code, 0), &there, size);
        judge(&told, &there, size);
    }
}

fn tcp_segment(from: SocketAddr, to: SocketAddr, flags: u8) -> Vec<u8> {
    let mut header = TcpHeader::new(from.port(), to.port(), 1000, 64_000);
    (header.syn, header.ack) = (flags & 2 != 0, flags & 16 != 0);
    let mut bytes = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let builder = PacketBuilder::ipv4(from.octets(), to.octets(), 64).tcp_header(header);
            builder.write(&mut bytes, b"").unwrap();
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let builder = PacketBuilder::ipv6(from.octets(), to.octets(), 64).tcp_header(header);
            builder.write(&mut bytes, b"").unwrap();
        }
        _ => panic!("one family"),
    }
    bytes
}

/// TCP's checksum lies behind the eight bytes that every router quotes; no error ends a session.
#[test]
fn tcp_goes_on_and_its_checksum_is_changed_where_it_is_quoted() {
    for (mode, vip, real) in MODES.into_iter().filter(|m| matches!(m.0, Mode::Fnat | Mode::Nat)) {
        let (vip_ip, to) = (at(VIP[vip]).ip().to_string(), at(REAL[real]));
        let mut spec = spec(mode, &vip_ip, &to.ip().to_string(), to.port());
        spec.services[0].protocol = Protocol::Tcp;
        let mut field = field_of(&spec, [1500; 2], (0, 1), [false; 2]);
        let there = trip(&mut field, FRONT, &tcp_segment(at(CLIENT[vip]), at(VIP[vip]), 2));
        for size in 4..=20 {
            for message in [(3, 1, 0), (3, 2, 0), (3, 3, 0)] {
                let message = if real == 0 { message } else { (1, message.1 + 1, 0) };
                let router = ip(ROUTER[real]);
                // Across families some become another error: what is quoted is the same.
                let told = complaint(&mut field, (BACK, FRONT), router, message, &there, size);
                judge(&told, &there, size);
            }
        }
        assert_eq!(field.path.live_sessions(), 1);
    }
}

/// IPv6 extension headers are quoted too; so are fragments, of which only the first tells whose.
#[test]
fn quotes_with_more_headers() {
    let (mut field, there, _) = trips(Mode::Nat, (1, 1), 40);
    let with = |packet: &[u8], kind: u8, header: [u8; 8]| {
        let mut packet = packet.to_vec();
        let mut header = header;
        header[0] = packet[6];
        packet[6] = kind;
        packet.splice(40..40, header);
        let length = u16::from_be_bytes([packet[4], packet[5]]) + 8;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    };
    for (kind, header, known) in [
        (60, [0, 0, 1, 4, 0, 0, 0, 0], true),
        (44, [0, 0, 0, 1, 1, 2, 3, 4], true),
        (44, [0, 0, 0, 9, 1, 2, 3, 4], false),
        (43, [0, 0, 0, 1, 0, 0, 0, 0], false),
    ] {
        let arrived = with(&there.arrived, kind, header);
        let expected = with(&aged(there.sent.clone()), kind, header);
        let who = ip(ROUTER[1]);
        let mut frame = error(who, source(&arrived), (3, 0, 0), &arrived);
        let verdict = field.one(BACK, &mut frame);
        if known {
            assert_eq!(verdict, Verdict::Tx(FRONT), "{kind}");
            assert_eq!(Seen::read(&frame).quote, expected);
        } else {
            assert_eq!(verdict, Verdict::Kernel(Reason::NotOurs), "{kind}");
        }
    }
}

/// What is about nothing of the director's is the kernel's, what should be and is not is counted.
#[test]
fn errors_about_nothing_known() {
    for version in [0, 1] {
        let (mut field, there, _) = trips(Mode::Fnat, (version, version), 40);
        let (kind, code) = EXCEEDED[version];
        let (message, router) = ((kind, code, 0), ip(ROUTER[version]));
        let mut verdict = |to: IpAddr, quote: &[u8]| {
            let mut frame = error(router, to, message, quote);
            let before = frame.clone();
            let verdict = field.one(BACK, &mut frame);
            assert_eq!(frame, before);
            verdict
        };
        let about = |from: &str, to: &str| packet(at(from), at(to), (60, true), 9);
        let (vip, client) = (VIP[version], CLIENT[version]);
        let of_local = format!("{}", local(version));
        let dropped = Verdict::Drop(Reason::IcmpError);
        let kernel = Verdict::Kernel(Reason::NotOurs);
        // Of a client without a session, and of a local port without one.
        let other = client.replace("4000", "4001");
        assert_eq!(verdict(at(vip).ip(), &about(vip, &other)), dropped);
        let free = of_local.replace("1024", "1025");
        assert_eq!(verdict(at(&free).ip(), &about(&free, REAL[version])), dropped);
        // The machine's own: from other ports, or about other protocols.
        let own = vip.replace(":53", ":777");
        assert_eq!(verdict(at(vip).ip(), &about(&own, client)), kernel);
        let low = of_local.replace(":1024", ":777");
        assert_eq!(verdict(at(&low).ip(), &about(&low, REAL[version])), kernel);
        // Whose sender is not who is told.
        assert_eq!(verdict(at(vip).ip(), &there.arrived), dropped);
        assert_eq!(verdict(ip(ROUTER[version]), &there.arrived), kernel);
        // Too short to tell.
        let header = [20, 40][version];
        assert_eq!(verdict(local(version).ip(), &there.arrived[..header + 3]), dropped);
        assert_eq!(verdict(local(version).ip(), &there.arrived[..header - 1]), dropped);
    }
}

/// An error that was damaged, or whose time is over, goes nowhere; and none keeps a session alive.
#[test]
fn errors_that_go_nowhere() {
    let (mut field, there, _) = trips(Mode::Fnat, (0, 0), 40);
    let message = || error(ip(ROUTER[0]), local(0).ip(), (11, 0, 0), &there.arrived);
    let mut damaged = message();
    *damaged.bytes_mut().last_mut().unwrap() ^= 1;
    assert_eq!(field.one(BACK, &mut damaged), Verdict::Drop(Reason::BadL4Checksum));
    let mut old = message();
    old.bytes_mut()[22] = 1;
    let sum = Ipv4Header::from_slice(&old.bytes()[14..]).unwrap().0.calc_header_checksum();
    old.bytes_mut()[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(field.one(BACK, &mut old), Verdict::Drop(Reason::TtlExpired));
    let udp_ms = u64::from(field.plan.timeout_ms[crate::session::State::Udp as usize]);
    field.now.0 += udp_ms;
    assert_eq!(field.one(BACK, &mut message()), Verdict::Tx(FRONT));
    field.now.0 += 1;
    assert_eq!(field.one(BACK, &mut message()), Verdict::Drop(Reason::IcmpError), "it is over");
    // A redirect is between hosts and routers of one link.
    let mut redirect = error(ip(ROUTER[0]), local(0).ip(), (5, 1, 0), &there.arrived);
    assert_eq!(field.one(BACK, &mut redirect), Verdict::Kernel(Reason::NotOurs));
}

proptest! {
    /// Arbitrary quotes, and real ones changed and cut anywhere, do no harm; what is sent on has
    /// right checksums.
    #[test]
    fn any_quote(
        mode in 0usize..12,
        change in proptest::option::of((0usize..60, any::<u8>())),
        cut in 0usize..90,
        code in any::<u8>(),
        kind in any::<u8>(),
        tail in proptest::collection::vec(any::<u8>(), 0..40),
        front in any::<bool>(),
    ) {
        let (mode, vip, real) = MODES[mode];
        let (mut field, there, back) = trips(mode, (vip, real), 30);
        let (port, trip) = match back {
            Some(back) if front => (FRONT, back),
            _ => (BACK, there),
        };
        let mut quote = trip.arrived.clone();
        if let Some((at, value)) = change && at < quote.len() {
            quote[at] = value;
        }
        quote.truncate(cut);
        quote.extend(tail);
        let version = version(&trip.arrived);
        let kinds = [[3, 11, 12, 5], [1, 2, 3, 4]][version];
        let message = (kinds[usize::from(kind % 4)], code % 16, 1300);
        let who = ip(ROUTER[version]);
        let mut frame = error(who, source(&trip.arrived), message, &quote);
        let before = frame.clone();
        match field.one(port, &mut frame) {
            Verdict::Tx(_) => {
                let packet = &frame.bytes()[14..];
                let tunnelled = mode == Mode::Ipip && packet[0] >> 4 == 4 && packet[9] != 1;
                if !tunnelled {
                    Seen::of_packet(packet);
                }
            }
            Verdict::Drop(_) | Verdict::Wait => {}
            Verdict::Kernel(_) => prop_assert_eq!(&frame, &before),
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert_eq!(field.path.live_sessions(), 1);
    }
}

/// Frames are of whoever reads them last.
#[test]
fn a_complaint_waits_for_a_neighbour() {
    let (mut field, there, _) = trips(Mode::Fnat, (0, 0), 40);
    let known = field.fib.clone();
    let mut builder = crate::fib::FibBuilder::default();
    let link = crate::fib::Link { port: FRONT, mtu: 1500, ..crate::fib::Link::default() };
    let front = builder.link(link);
    builder.route(ip("198.51.100.0"), 24, crate::fib::Target::OnLink(front));
    field.fib = builder.build(&field.plan, None);
    let mut frame: MemFrame = error(ip(ROUTER[0]), local(0).ip(), (11, 0, 0), &there.arrived);
    assert_eq!(field.one(BACK, &mut frame), Verdict::Wait);
    let waiting = field.path.waiting()[0];
    let verdict = field.path.release(&known, &mut frame, waiting);
    assert_eq!(verdict, Verdict::Tx(FRONT));
    judge(&frame.bytes()[14..], &there, 48);
}
