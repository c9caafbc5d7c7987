//! Congestion marks: RFC 6040's table over whole packets.

use super::*;
use crate::reason::Reason;
use sluice_wire::vxlan::{CE, ECT_1, NOT_ECT, decapsulated_ecn};

/// Gives the outer header of a frame a traffic class, as a router on the way does.
fn mark(frame: &mut [u8], six: bool, class: u8) {
    if six {
        frame[14] = 0x60 | class >> 4;
        frame[15] = class << 4;
        return;
    }
    frame[15] = class;
    frame[24..26].fill(0);
    let sum = sluice_wire::checksum::full(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn class_of(frame: &[u8]) -> u8 {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    match packet.net.unwrap() {
        NetSlice::Ipv4(ip) => ip.header().dcp().value() << 2 | ip.header().ecn().value(),
        NetSlice::Ipv6(ip) => ip.header().traffic_class(),
        NetSlice::Arp(_) => panic!("IP"),
    }
}

#[test]
fn marks_of_routers_are_taken_over_or_cost_the_packet() {
    let all = (0..4).flat_map(|inner| (0..4).map(move |outer| (inner, outer)));
    for ((inner, outer), families) in all.flat_map(|marks| (0..4).map(move |how| (marks, how))) {
        let (six, inner_six) = (families & 1 != 0, families & 2 != 0);
        let [_, far] = ends(six, |_| {});
        let sent = datagram(inner_six, 0xb8 | inner, b"data");
        let mut received = tunnelled(six, &sent);
        mark(&mut received, six, 0x28 | outer);
        let mut frame = Buffer::new(&received);
        let outcome = far.decapsulate(UNDERLAY, &mut frame);
        let Some(expected) = decapsulated_ecn(inner, outer) else {
            assert_eq!((inner, outer), (NOT_ECT, CE));
            assert_eq!(outcome, Outcome::Drop(Reason::VxlanEcn));
            assert_eq!(frame.bytes(), received);
            continue;
        };
        assert_eq!(outcome, Outcome::Inner(VIRTUAL));
        assert_eq!(class_of(frame.bytes()), 0xb8 | expected, "{inner} in {outer}");
        assert_eq!(verified(frame.bytes()).1, b"data");
        assert_eq!(frame.bytes() == sent, expected == inner);
        // The outer checksum, which all of these have, covers the mark that was changed.
        assert!(far.restore(VIRTUAL, &mut frame));
        let (sum, _) = verified(frame.bytes());
        assert!(sum != 0);
        assert_eq!(frame.bytes() == received, expected == inner);
    }
}

#[test]
fn what_is_no_ip_packet_has_no_mark() {
    let arp = [&TO[..], &FROM, &[8, 6], &[1; 28]].concat();
    let [_, far] = ends(false, |_| {});
    let mut received = tunnelled(false, &arp);
    mark(&mut received, false, CE);
    let mut frame = Buffer::new(&received);
    assert_eq!(far.decapsulate(UNDERLAY, &mut frame), Outcome::Inner(VIRTUAL));
    assert_eq!(frame.bytes(), arp);
}

/// A wrong inner header checksum stays wrong, for the path to see.
#[test]
fn damage_within_is_not_repaired() {
    let mut sent = datagram(false, 0xb8 | ECT_1, b"data");
    sent[24] ^= 1;
    let mut received = tunnelled(false, &sent);
    mark(&mut received, false, CE);
    let [_, far] = ends(false, |_| {});
    let mut frame = Buffer::new(&received);
    assert_eq!(far.decapsulate(UNDERLAY, &mut frame), Outcome::Inner(VIRTUAL));
    assert_eq!(class_of(frame.bytes()), 0xb8 | CE);
    let header = frame.bytes()[14..].first_chunk().unwrap();
    assert!(!sluice_wire::checksum::ipv4_header_ok(header));
}
