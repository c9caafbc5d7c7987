//! Packets that are not the common case.

use super::lab::{self, BACK, CLIENT, FRONT, LOCAL, Lab, MemFrame, Packet, REAL, VIP, tcp, udp};
use crate::fib::LinkId;
use crate::frame::Frame;
use crate::path::{Verdict, Waiting};
use crate::reason::Reason;
use crate::spec::NoSession;
use etherparse::{PacketBuilder, TcpHeader};
use sluice_testkit::World;
use sluice_wire::checksum;
use sluice_wire::tcp::{ACK, FIN, SYN};

/// Changes a byte of the IPv4 header and makes its checksum right again.
fn patched(mut frame: MemFrame, offset: usize, value: u8) -> MemFrame {
    let header = &mut frame.bytes_mut()[14..34];
    header[offset] = value;
    header[10..12].fill(0);
    let sum = checksum::full(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn each_has_its_reason() {
    let to_vip = || udp((CLIENT, 4000), (VIP, 53), b"hello");
    let group = || {
        let mut frame = to_vip();
        frame.bytes_mut()[..6].fill(0xff);
        frame
    };
    let cut = |len| MemFrame::new(&to_vip().bytes()[..len]);
    let syn = tcp((CLIENT, 1), (VIP, 80), SYN, (1, 0), b"");
    let mut offset = syn.clone();
    offset.bytes_mut()[14 + 20 + 12] = 0x40;
    let mut checksum = to_vip();
    checksum.bytes_mut()[24] ^= 1;
    let other = udp((CLIENT, 1), ([198, 51, 100, 77], 53), b"");
    let stray = udp((REAL, 53), (LOCAL, 2000), b"");
    for (what, mut frame, verdict) in [
        ("empty", MemFrame::new(&[]), Verdict::Drop(Reason::Truncated)),
        ("cut in Ethernet", cut(13), Verdict::Drop(Reason::Truncated)),
        ("cut in IPv4", cut(33), Verdict::Drop(Reason::Truncated)),
        ("cut in the payload", cut(44), Verdict::Drop(Reason::BadIpLength)),
        ("version 5", patched(to_vip(), 0, 0x55), Verdict::Drop(Reason::BadIpHeader)),
        ("header of 16", patched(to_vip(), 0, 0x44), Verdict::Drop(Reason::BadIpHeader)),
        ("total of 19", patched(to_vip(), 3, 19), Verdict::Drop(Reason::BadIpLength)),
        ("total within UDP", patched(to_vip(), 3, 27), Verdict::Drop(Reason::Truncated)),
        ("bad checksum", checksum, Verdict::Drop(Reason::BadIpChecksum)),
        ("data offset 4", offset, Verdict::Drop(Reason::BadL4Header)),
        ("ttl 1", patched(to_vip(), 8, 1), Verdict::Answer(FRONT, Reason::TtlExpired)),
        ("ttl 0", patched(to_vip(), 8, 0), Verdict::Answer(FRONT, Reason::TtlExpired)),
        ("SCTP", patched(to_vip(), 9, 132), Verdict::Kernel(Reason::NotOurs)),
        ("group MAC", group(), Verdict::Kernel(Reason::Group)),
        ("other address", other, Verdict::Kernel(Reason::NotOurs)),
        ("other port", udp((CLIENT, 1), (VIP, 54), b""), Verdict::Kernel(Reason::NotOurs)),
        ("stray answer", stray, Verdict::Drop(Reason::NoSession)),
        ("martian", udp(([127, 0, 0, 1], 1), (VIP, 53), b""), Verdict::Drop(Reason::Martian)),
        ("no route", udp(([203, 0, 113, 9], 1), (VIP, 53), b""), Verdict::Drop(Reason::NoRoute)),
        (
            "SYN and FIN",
            tcp((CLIENT, 1), (VIP, 80), SYN | FIN, (1, 0), b""),
            Verdict::Drop(Reason::NoSession),
        ),
        ("no flags", tcp((CLIENT, 1), (VIP, 80), 0, (1, 0), b""), Verdict::Drop(Reason::NoSession)),
    ] {
        let mut lab = Lab::new();
        assert_eq!(lab.one(FRONT, &mut frame), verdict, "{what}");
        assert_eq!(lab.path.live_sessions(), 0, "{what}");
        let (Verdict::Drop(reason) | Verdict::Kernel(reason) | Verdict::Answer(_, reason)) =
            verdict
        else {
            continue;
        };
        assert_eq!(lab.path.counters().of(reason), 1, "{what}");
    }
}

#[test]
fn icmp_errors_are_counted_and_echo_is_the_kernels() {
    for (icmp, verdict) in [
        (
            etherparse::Icmpv4Type::TimeExceeded(
                etherparse::icmpv4::TimeExceededCode::TtlExceededInTransit,
            ),
            Verdict::Drop(Reason::IcmpError),
        ),
        (
            etherparse::Icmpv4Type::EchoRequest(etherparse::IcmpEchoHeader { id: 1, seq: 1 }),
            Verdict::Kernel(Reason::NotOurs),
        ),
    ] {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4(CLIENT, VIP, 64);
        builder.icmpv4(icmp).write(&mut bytes, b"quoted").unwrap();
        assert_eq!(Lab::new().one(FRONT, &mut MemFrame::new(&bytes)), verdict);
    }
}

#[test]
fn a_udp_checksum_of_zero_stays_zero() {
    let mut frame = udp((CLIENT, 4000), (VIP, 53), b"unprotected");
    frame.bytes_mut()[40..42].fill(0);
    let mut lab = Lab::new();
    assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
    assert_eq!(frame.bytes()[40..42], [0, 0]);
}

#[test]
fn options_and_padding_are_carried() {
    let mut bytes = Vec::new();
    let mut ip = etherparse::Ipv4Header::new(0, 9, etherparse::IpNumber::UDP, CLIENT, VIP).unwrap();
    ip.options = etherparse::Ipv4Options::try_from(&[1u8; 8][..]).unwrap();
    let ip = etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default());
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]).ip(ip).udp(4000, 53);
    builder.write(&mut bytes, b"op").unwrap();
    bytes.extend([0xee; 10]);
    let mut frame = MemFrame::new(&bytes);
    assert_eq!(Lab::new().one(FRONT, &mut frame), Verdict::Tx(BACK));
    assert_eq!(Packet::read(&frame).payload, b"op");
    assert!(frame.bytes().ends_with(&[0xee; 10]));
}

#[test]
fn tags_come_and_go_as_the_hop_has_them() {
    for (tags, vlan) in [(0, 0), (0, 12), (1, 0), (1, 12), (2, 12), (2, 0)] {
        let mut lab = Lab::new();
        let mut world = World::default();
        world.back.vlan = vlan;
        lab.fib = lab::fib_of(&lab.plan, &world);
        let plain = udp((CLIENT, 4000), (VIP, 53), b"tagged");
        let mut bytes = plain.bytes().to_vec();
        for _ in 0..tags {
            bytes.splice(12..12, [0x81, 0, 0, 99]);
        }
        let mut frame = MemFrame::new(&bytes);
        assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
        let untagged = Packet::read(&frame);
        assert_eq!((untagged.dst, untagged.to), (REAL, lab::REAL_MAC));
        let extra = if vlan == 0 { 0 } else { 4 };
        assert_eq!(frame.bytes().len(), plain.bytes().len() + extra);
        if vlan != 0 {
            assert_eq!(frame.bytes()[12..18], [0x81, 0, 0, 12, 8, 0]);
        }
    }
}

#[test]
fn too_big_for_where_it_goes() {
    let mut lab = Lab::new();
    let fits = vec![0; 1400 - 28];
    assert_eq!(lab.one(FRONT, &mut udp((CLIENT, 1), (VIP, 53), &fits)), Verdict::Tx(BACK));
    let big = vec![0; 1401 - 28];
    let verdict = lab.one(FRONT, &mut udp((CLIENT, 1), (VIP, 53), &big));
    assert_eq!(verdict, Verdict::Answer(FRONT, Reason::TooBig));
}

#[test]
fn an_unresolved_neighbour_makes_packets_wait() {
    let mut lab = Lab::new();
    let known = std::mem::take(&mut lab.fib);
    lab.fib = lab::fib_of(&lab.plan, &World::default().with_nobody());
    let mut frame = udp((CLIENT, 4000), (VIP, 53), b"wait");
    assert_eq!(lab.one(FRONT, &mut frame), Verdict::Wait);
    let wanted = Waiting { lane: 0, link: LinkId(1), next: REAL.into(), cut: None };
    assert_eq!(lab.path.waiting(), [wanted]);
    let verdict = lab.path.release(&lab.fib, &mut frame, wanted);
    assert_eq!(verdict, Verdict::Wait);
    let verdict = lab.path.release(&known, &mut frame, wanted);
    assert_eq!(verdict, Verdict::Tx(BACK));
    let sent = Packet::read(&frame);
    assert_eq!((sent.to, sent.src, sent.dst), (lab::REAL_MAC, LOCAL, REAL));
}

/// RFC 9293, 3.10.7.1.
#[test]
fn a_reset_answers_what_has_no_session() {
    let reset = |flags, numbers, data: &[u8]| -> Option<TcpHeader> {
        let mut lab = Lab::with(|b| b.no_session = NoSession::Reset, 10, (0, 1));
        let mut frame = tcp((CLIENT, 4000), (VIP, 80), flags, numbers, data);
        match lab.one(FRONT, &mut frame) {
            Verdict::Answer(port, _) => {
                assert_eq!(port, FRONT);
                let answer = Packet::read(&frame);
                assert_eq!((answer.src, answer.sport), (VIP, 80));
                assert_eq!((answer.dst, answer.dport), (CLIENT, 4000));
                assert_eq!((answer.to, answer.from), ([4; 6], [6; 6]));
                assert!(answer.payload.is_empty());
                assert_eq!(lab.path.counters().of(Reason::NoSessionReset), 1);
                answer.tcp
            }
            verdict => {
                assert_eq!(verdict, Verdict::Drop(Reason::NoSession));
                None
            }
        }
    };
    let to_ack = reset(ACK, (1000, 2000), b"abc").unwrap();
    assert_eq!((to_ack.sequence_number, to_ack.rst, to_ack.ack), (2000, true, false));
    let to_other = reset(FIN, (1000, 0), b"abc").unwrap();
    assert_eq!((to_other.sequence_number, to_other.acknowledgment_number), (0, 1004));
    assert!(to_other.rst && to_other.ack);
    assert!(reset(4 | ACK, (1, 1), b"").is_none(), "a reset is never answered");
}

/// Its session may be another worker's.
#[test]
fn no_reset_answers_a_fragment() {
    let mut lab = Lab::with(|b| b.no_session = NoSession::Reset, 10, (0, 1));
    let mut frame = tcp((CLIENT, 4000), (VIP, 80), ACK, (1000, 2000), b"12345678");
    let header = &mut frame.bytes_mut()[14..34];
    header[6] = 0x20;
    header[10..12].fill(0);
    let sum = etherparse::Ipv4Header::from_slice(header).unwrap().0.calc_header_checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(lab.one(FRONT, &mut frame), Verdict::Drop(Reason::NoSession));
}

#[test]
fn a_port_of_another_worker_is_handed_there() {
    let mut lab = Lab::with(|b| b.pools[0].ports = 1000..=1999, 10, (0, 2));
    let answer = |port| udp((REAL, 53), (LOCAL, port), b"");
    assert_eq!(lab.one(BACK, &mut answer(1499)), Verdict::Drop(Reason::NoSession));
    assert_eq!(lab.one(BACK, &mut answer(1500)), Verdict::HandOff(1));
    assert_eq!(lab.path.counters().handed_off, 1);
    let mut request = udp((CLIENT, 4000), (VIP, 53), b"");
    assert_eq!(lab.one(FRONT, &mut request), Verdict::Tx(BACK));
    assert!((1000..1500).contains(&Packet::read(&request).sport));
}

#[test]
fn mid_stream_packets_may_open_sessions_when_allowed() {
    let mut lab = Lab::with(|b| b.accept_mid_stream = true, 10, (0, 1));
    let mut data = tcp((CLIENT, 4000), (VIP, 80), ACK, (5, 6), b"taken over");
    assert_eq!(lab.one(FRONT, &mut data), Verdict::Tx(BACK));
    let mut end = tcp((CLIENT, 4001), (VIP, 80), FIN | ACK, (5, 6), b"");
    assert_eq!(lab.one(FRONT, &mut end), Verdict::Drop(Reason::NoSession));
}
