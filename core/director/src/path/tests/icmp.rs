//! Packets and ICMP errors of both versions, built and judged by `etherparse`; and the errors that
//! the director itself sends.

use super::lab::{self, BACK, FRONT, MemFrame, REAL_MAC};
use super::modes::{Field, at, ip, spec};
use crate::fib::{FibBuilder, Link, PortId};
use crate::frame::Frame;
use crate::path::{PagePolicy, Path, PathConfig, Verdict};
use crate::plan::{Plan, Retired};
use crate::reason::Reason;
use crate::spec::{Mode, Spec};
use crate::time::Time;
use etherparse::{
    IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, NetSlice, PacketBuilder, SlicedPacket,
    TransportSlice,
};
use sluice_testkit::World;
use std::net::{IpAddr, SocketAddr};

/// Clients, VIPs, real servers and local addresses of version 4 and of version 6.
pub const CLIENT: [&str; 2] = ["198.51.100.48:4000", "[2001:db8:1::48]:4000"];
pub const VIP: [&str; 2] = ["198.51.100.200:53", "[2001:db8:1::200]:53"];
pub const REAL: [&str; 2] = ["192.0.2.11:5353", "[2001:db8:2::11]:5353"];
pub const ROUTER: [&str; 2] = ["203.0.113.1", "2001:db8:ffff::1"];

/// A director with one UDP service between links of these MTUs.
pub fn field(mode: Mode, (vip, real): (usize, usize), mtus: [u16; 2]) -> Field {
    let (vip, real) = (at(VIP[vip]).ip().to_string(), at(REAL[real]));
    let spec = spec(mode, &vip, &real.ip().to_string(), real.port());
    field_of(&spec, mtus, (0, 1), [false; 2])
}

/// The same of any spec, as one of several workers, with links that have own addresses.
pub fn field_of(
    spec: &Spec,
    mtus: [u16; 2],
    (worker, workers): (u16, u16),
    own: [bool; 2],
) -> Field {
    let plan = Plan::compile(spec, None, &Retired::default()).unwrap();
    let mut builder = FibBuilder::default();
    let v4 = |at: usize| own[at].then(|| [203, 0, 113, 50 + at as u8].into());
    let v6 = |at: usize| own[at].then(|| format!("2001:db8:ffff::5{at}").parse().unwrap());
    lab::tell_with(&World::default().without(12).with_mtus(mtus), &mut builder, |link| {
        let at = usize::from(link.port == BACK);
        Link { v4: v4(at), v6: v6(at), ..link }
    });
    let fib = builder.build(&plan, None);
    let mut path = Path::new(&PathConfig {
        worker,
        workers,
        sessions: 100,
        fragments: 64,
        seed: 7,
        pages: PagePolicy::Ordinary,
    })
    .unwrap();
    path.adopt(&plan);
    Field { path, plan, fib, now: Time(5_000_000) }
}

/// A datagram with so many bytes of payload, as an IP packet.
pub fn packet(from: SocketAddr, to: SocketAddr, (ttl, df): (u8, bool), length: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
    let mut bytes = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let mut header =
                Ipv4Header::new(0, ttl, IpNumber::UDP, a.octets(), b.octets()).unwrap();
            header.dont_fragment = df;
            header.identification = if df { 0 } else { 0x4711 };
            let header = etherparse::IpHeaders::Ipv4(header, Default::default());
            let builder = PacketBuilder::ip(header).udp(from.port(), to.port());
            builder.write(&mut bytes, &payload).unwrap();
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let header = Ipv6Header {
                flow_label: Ipv6FlowLabel::ZERO,
                hop_limit: ttl,
                source: a.octets(),
                destination: b.octets(),
                ..Ipv6Header::default()
            };
            let header = etherparse::IpHeaders::Ipv6(header, Default::default());
            let builder = PacketBuilder::ip(header).udp(from.port(), to.port());
            builder.write(&mut bytes, &payload).unwrap();
        }
        _ => panic!("one family"),
    }
    bytes
}

/// An IP packet in a frame.
pub fn framed(packet: &[u8]) -> MemFrame {
    let ethertype = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    MemFrame::new(&[&[4; 6][..], &[6; 6], &ethertype, packet].concat())
}

/// An ICMP error of a type, code and second word about a quote.
pub fn error(
    from: IpAddr,
    to: IpAddr,
    (kind, code, rest): (u8, u8, u32),
    quote: &[u8],
) -> MemFrame {
    let mut bytes = Vec::new();
    let rest = rest.to_be_bytes();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let builder = PacketBuilder::ipv4(from.octets(), to.octets(), 61);
            builder.icmpv4_raw(kind, code, rest).write(&mut bytes, quote).unwrap();
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let builder = PacketBuilder::ipv6(from.octets(), to.octets(), 61);
            builder.icmpv6_raw(kind, code, rest).write(&mut bytes, quote).unwrap();
        }
        _ => panic!("one family"),
    }
    framed(&bytes)
}

/// An ICMP error as another parser reads it; reading asserts its checksums.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub from: IpAddr,
    pub to: IpAddr,
    pub ttl: u8,
    pub message: (u8, u8, u32),
    pub quote: Vec<u8>,
}

impl Seen {
    pub fn read(frame: &MemFrame) -> Self {
        Self::of_packet(&frame.bytes()[14..])
    }

    pub fn of_packet(packet: &[u8]) -> Self {
        let sliced = SlicedPacket::from_ip(packet).unwrap();
        let (from, to, ttl): (IpAddr, IpAddr, u8) = match sliced.net.as_ref().unwrap() {
            NetSlice::Ipv4(net) => {
                let ip = net.header().to_header();
                assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "IPv4 header checksum");
                (ip.source.into(), ip.destination.into(), ip.time_to_live)
            }
            NetSlice::Ipv6(net) => {
                let ip = net.header().to_header();
                (ip.source.into(), ip.destination.into(), ip.hop_limit)
            }
            NetSlice::Arp(_) => panic!("ARP"),
        };
        let (bytes, rest, quote) = match (sliced.transport.unwrap(), from, to) {
            (TransportSlice::Icmpv4(icmp), ..) => {
                let sum = etherparse::checksum::Sum16BitWords::new().add_slice(icmp.slice());
                assert_eq!(sum.ones_complement(), 0, "ICMP checksum");
                (icmp.slice(), icmp.bytes5to8(), icmp.payload().to_vec())
            }
            (TransportSlice::Icmpv6(icmp), IpAddr::V6(from), IpAddr::V6(to)) => {
                assert!(icmp.is_checksum_valid(from.octets(), to.octets()), "ICMPv6 checksum");
                (icmp.slice(), icmp.bytes5to8(), icmp.payload().to_vec())
            }
            other => panic!("no ICMP: {other:?}"),
        };
        Self { from, to, ttl, message: (bytes[0], bytes[1], u32::from_be_bytes(rest)), quote }
    }
}

/// The types and codes of time exceeded and too big, by version.
pub const EXCEEDED: [(u8, u8); 2] = [(11, 0), (3, 0)];
pub const TOO_BIG: [(u8, u8); 2] = [(3, 4), (2, 0)];

/// What modes there are, with the families of the VIP and of the real server.
pub const MODES: [(Mode, usize, usize); 12] = [
    (Mode::Fnat, 0, 0),
    (Mode::Fnat, 1, 1),
    (Mode::Fnat, 0, 1),
    (Mode::Fnat, 1, 0),
    (Mode::Nat, 0, 0),
    (Mode::Nat, 1, 1),
    (Mode::Dr, 0, 0),
    (Mode::Dr, 1, 1),
    (Mode::Ipip, 0, 0),
    (Mode::Ipip, 1, 1),
    (Mode::Ipip, 0, 1),
    (Mode::Ipip, 1, 0),
];

/// Asserts that a frame has become an error about `sent`, sent back the way it came.
fn answered(frame: &MemFrame, source: IpAddr, message: (u8, u8, u32), sent: &[u8]) {
    let seen = Seen::read(frame);
    let six = source.is_ipv6();
    let most = if six { 1280 - 48 } else { 576 - 28 };
    let from = if six {
        IpAddr::from(<[u8; 16]>::try_from(&sent[8..24]).unwrap())
    } else {
        IpAddr::from(<[u8; 4]>::try_from(&sent[12..16]).unwrap())
    };
    assert_eq!((seen.from, seen.to, seen.ttl), (source, from, 64));
    assert_eq!(seen.message, message);
    assert_eq!(seen.quote, sent[..sent.len().min(most)]);
    assert_eq!(frame.bytes()[..12], [[6; 6], [4; 6]].concat(), "back to where it came from");
}

#[test]
fn time_is_exceeded_in_every_mode() {
    for (mode, vip, real) in MODES {
        for (ttl, length) in [(1, 0), (0, 20), (1, 1200), (1, 1400)] {
            let mut field = field(mode, (vip, real), [1500; 2]);
            let sent = packet(at(CLIENT[vip]), at(VIP[vip]), (ttl, true), length);
            let mut frame = framed(&sent);
            let verdict = field.one(FRONT, &mut frame);
            assert_eq!(verdict, Verdict::Answer(FRONT, Reason::TtlExpired), "{mode:?}");
            let (kind, code) = EXCEEDED[vip];
            answered(&frame, at(VIP[vip]).ip(), (kind, code, 0), &sent);
            assert_eq!(field.path.counters().of(Reason::TtlExpired), 1);
            assert_eq!(field.path.live_sessions(), 0, "what went nowhere opens no session");
        }
    }
}

/// What fits is sent, one byte more is answered with what fits.
#[test]
fn the_mtu_that_is_told_is_what_fits() {
    for (mode, vip, real) in MODES {
        let mut field = field(mode, (vip, real), [1500, 1400]);
        let told = match (mode, vip, real) {
            (Mode::Fnat, 0, 1) => 1380,
            (Mode::Fnat, 1, 0) => 1420,
            (Mode::Ipip, _, 0) => 1380,
            (Mode::Ipip, _, 1) => 1360,
            _ => 1400,
        };
        let headers = if vip == 0 { 28 } else { 48 };
        let ends = (at(CLIENT[vip]), at(VIP[vip]));
        let sent = packet(ends.0, ends.1, (64, true), told - headers);
        let mut frame = framed(&sent);
        assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK), "{mode:?} {vip} {real}");
        assert_eq!(frame.bytes().len(), 1414, "{mode:?} {vip} {real}");
        let sent = packet(ends.0, ends.1, (64, true), told - headers + 1);
        let mut frame = framed(&sent);
        let verdict = field.one(FRONT, &mut frame);
        assert_eq!(verdict, Verdict::Answer(FRONT, Reason::TooBig), "{mode:?} {vip} {real}");
        let (kind, code) = TOO_BIG[vip];
        answered(&frame, at(VIP[vip]).ip(), (kind, code, told as u32), &sent);
        assert_eq!(field.path.counters().reals[0].packets, [1, 0]);
    }
}

/// The way back: of the local address, or with NAT of the VIP.
#[test]
fn real_servers_are_told_too() {
    for (mode, vip, real) in MODES.into_iter().filter(|m| matches!(m.0, Mode::Fnat | Mode::Nat)) {
        let mut field = field(mode, (vip, real), [1300, 1500]);
        let mut frame = framed(&packet(at(CLIENT[vip]), at(VIP[vip]), (64, true), 5));
        assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK));
        let (source, seen) = match mode {
            Mode::Nat => (at(VIP[vip]).ip(), at(CLIENT[vip])),
            _ => {
                let local = ["192.0.2.10:1024", "[2001:db8:2::10]:1024"][real];
                (at(local).ip(), at(local))
            }
        };
        let told = match (vip, real) {
            (0, 1) => 1320,
            (1, 0) => 1280,
            _ => 1300,
        };
        let sent = packet(at(REAL[real]), seen, (64, true), 1400);
        let mut frame = framed(&sent);
        assert_eq!(field.one(BACK, &mut frame), Verdict::Answer(BACK, Reason::TooBig));
        let (kind, code) = TOO_BIG[real];
        answered(&frame, source, (kind, code, told), &sent);
        let sent = packet(at(REAL[real]), seen, (1, true), 100);
        let mut frame = framed(&sent);
        assert_eq!(field.one(BACK, &mut frame), Verdict::Answer(BACK, Reason::TtlExpired));
        answered(&frame, source, (EXCEEDED[real].0, 0, 0), &sent);
    }
}

/// RFC 1812 4.3.2.4: the receiving interface says so where it has an address.
#[test]
fn a_link_answers_with_its_own_address() {
    for (version, own) in ["203.0.113.50", "2001:db8:ffff::50"].into_iter().enumerate() {
        let (vip, real) = (at(VIP[version]).ip().to_string(), at(REAL[version]));
        let spec = spec(Mode::Dr, &vip, &real.ip().to_string(), 53);
        let mut field = field_of(&spec, [1500; 2], (0, 1), [true, false]);
        let sent = packet(at(CLIENT[version]), at(VIP[version]), (1, true), 5);
        let mut frame = framed(&sent);
        assert_eq!(field.one(FRONT, &mut frame), Verdict::Answer(FRONT, Reason::TtlExpired));
        answered(&frame, ip(own), (EXCEEDED[version].0, 0, 0), &sent);
    }
}

#[test]
fn errors_are_limited_and_may_be_off() {
    for (limit, told) in [(3, 3), (0, 0)] {
        let vip = at(VIP[0]).ip().to_string();
        let mut spec = spec(Mode::Fnat, &vip, "192.0.2.11", 53);
        spec.icmp_errors_per_s = limit;
        let mut field = field_of(&spec, [1500; 2], (0, 1), [false; 2]);
        let send = |field: &mut Field| {
            let sent = packet(at(CLIENT[0]), at(VIP[0]), (1, true), 5);
            let mut frame = framed(&sent);
            let verdict = field.one(FRONT, &mut frame);
            if verdict == Verdict::Drop(Reason::TtlExpired) {
                assert_eq!(frame.bytes()[14..], sent, "what is not answered is left as it was");
            }
            verdict == Verdict::Answer(FRONT, Reason::TtlExpired)
        };
        let answered = (0..10).filter(|_| send(&mut field)).count();
        assert_eq!(answered, told);
        assert_eq!(field.path.counters().of(Reason::TtlExpired), 10);
        field.now.0 += 400;
        assert_eq!(send(&mut field), limit != 0);
    }
}

/// Groups, later fragments, errors and what cannot be a source are not answered.
#[test]
fn nobody_is_told_who_must_not_be() {
    let mut field = field(Mode::Fnat, (0, 0), [1500; 2]);
    let mut packet = packet(at("127.0.0.1:1"), at(VIP[0]), (1, true), 5);
    let verdict = field.one(FRONT, &mut framed(&packet));
    assert_eq!(verdict, Verdict::Drop(Reason::TtlExpired));
    packet[8] = 64;
    let mut frame = error(ip(ROUTER[0]), at(VIP[0]).ip(), (11, 0, 0), &packet);
    frame.bytes_mut()[22] = 1;
    let verdict = field.one(FRONT, &mut frame);
    assert!(matches!(verdict, Verdict::Drop(_) | Verdict::Kernel(_)), "{verdict:?}");
}

/// A packet that may be cut is complete but for that, and counted as forwarded.
#[test]
fn what_may_be_cut_is_made_complete() {
    for (mode, vip, real) in MODES.into_iter().filter(|m| m.1 == 0) {
        let mut field = field(mode, (vip, real), [1500, 1400]);
        let sent = packet(at(CLIENT[vip]), at(VIP[vip]), (64, false), 1450);
        let mut frame = framed(&sent);
        // IPv6 that is made of it may become as narrow further on (RFC 7915 4.1).
        let mtu = if (mode, real) == (Mode::Fnat, 1) { 1280 } else { 1400 };
        assert_eq!(field.one(FRONT, &mut frame), Verdict::Fragment(BACK, mtu), "{mode:?} {real}");
        assert_eq!(field.path.counters().reals[0].packets, [1, 0]);
        assert_eq!(field.path.counters().reals[0].bytes, [1478, 0]);
        assert_eq!(frame.bytes()[..6], REAL_MAC);
        let packet = &frame.bytes()[14..];
        let inner = match (mode, real) {
            (Mode::Ipip, 0) => {
                let outer = Ipv4Header::from_slice(packet).unwrap().0;
                assert!(!outer.dont_fragment && outer.identification != 0);
                assert_eq!(outer.header_checksum, outer.calc_header_checksum());
                &packet[20..]
            }
            (Mode::Ipip, _) => &packet[40..],
            _ => packet,
        };
        let sliced = SlicedPacket::from_ip(inner).unwrap();
        let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("{mode:?}") };
        assert_eq!(udp.payload(), &sent[28..]);
    }
    // The other way: nothing is changed but by NAT.
    let mut field = field(Mode::Nat, (0, 0), [600, 1500]);
    let mut frame = framed(&packet(at(CLIENT[0]), at(VIP[0]), (64, true), 5));
    assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK));
    let mut frame = framed(&packet(at(REAL[0]), at(CLIENT[0]), (64, false), 1000));
    assert_eq!(field.one(BACK, &mut frame), Verdict::Fragment(FRONT, 600));
}

/// No IPv6 packet of 1,280 bytes is too big: what the director makes of it may be cut.
#[test]
fn the_least_mtu_of_ipv6_gets_through() {
    for (mode, real, cut) in [
        (Mode::Ipip, 0, true),
        (Mode::Ipip, 1, true),
        (Mode::Fnat, 0, true),
        (Mode::Fnat, 1, false),
        (Mode::Dr, 1, false),
    ] {
        let mut field = field(mode, (1, real), [1500, 1200]);
        let ends = (at(CLIENT[1]), at(VIP[1]));
        let mut frame = framed(&packet(ends.0, ends.1, (64, true), 1280 - 48));
        let verdict = field.one(FRONT, &mut frame);
        if cut {
            assert_eq!(verdict, Verdict::Fragment(BACK, 1200), "{mode:?} {real}");
            let packet = &frame.bytes()[14..];
            if packet[0] >> 4 == 4 {
                let header = Ipv4Header::from_slice(packet).unwrap().0;
                assert!(!header.dont_fragment, "{mode:?}");
                assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
        } else {
            assert_eq!(verdict, Verdict::Answer(FRONT, Reason::TooBig));
        }
        let sent = packet(ends.0, ends.1, (64, true), 1281 - 48);
        let mut frame = framed(&sent);
        let verdict = field.one(FRONT, &mut frame);
        assert_eq!(verdict, Verdict::Answer(FRONT, Reason::TooBig), "{mode:?} {real}");
        answered(&frame, ends.1.ip(), (2, 0, 1280), &sent);
    }
}

/// Whoever gave the buffer too little room gets the packet back as it was.
#[test]
fn an_answer_needs_room() {
    struct Tight(MemFrame, usize);
    impl Frame for Tight {
        fn bytes(&self) -> &[u8] {
            self.0.bytes()
        }
        fn bytes_mut(&mut self) -> &mut [u8] {
            self.0.bytes_mut()
        }
        fn push_front(&mut self, count: usize) -> bool {
            self.0.push_front(count)
        }
        fn pull_front(&mut self, count: usize) -> bool {
            self.0.pull_front(count)
        }
        fn set_len(&mut self, len: usize) -> bool {
            len <= self.1 && self.0.set_len(len)
        }
    }
    let sent = packet(at(CLIENT[0]), at(VIP[0]), (1, true), 5);
    for (room, told) in [(14 + 28 + 33, true), (14 + 28 + 32, false)] {
        let mut field = field(Mode::Fnat, (0, 0), [1500; 2]);
        let mut frame = [Tight(framed(&sent), room)];
        let mut verdicts = [Verdict::Wait];
        let view = crate::path::View { plan: &field.plan, fib: &field.fib };
        field.path.turn(view, field.now, PortId(0), &mut frame, &mut verdicts);
        assert_eq!(verdicts[0] == Verdict::Answer(FRONT, Reason::TtlExpired), told);
        assert_eq!(frame[0].0.bytes()[14..] == sent, !told);
    }
}
