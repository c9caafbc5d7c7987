//! What is a tunnel's, what is not, and what is dropped.

use super::*;
use crate::frame::Checked;
use crate::reason::Reason;
use sluice_wire::checksum;

const UDP_SUM: usize = 6;

/// Where the outer UDP header begins.
fn udp_at(six: bool) -> usize {
    if six { 54 } else { 34 }
}

/// Gives an IPv4 header behind the link layer its checksum.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    if frame[12..14] == [8, 0] {
        let end = 14 + usize::from(frame[14] & 15) * 4;
        frame[24..26].fill(0);
        let sum = checksum::full(&frame[14..end]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// Changes bytes and repairs the header checksum.
fn with(frame: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for (at, value) in changes {
        frame[*at] = *value;
    }
    sealed(frame)
}

/// The same without a UDP checksum.
fn unsummed(frame: &[u8], six: bool) -> Vec<u8> {
    let at = udp_at(six) + UDP_SUM;
    with(frame, &[(at, 0), (at + 1, 0)])
}

/// Verifies what becomes of a frame; what is no tunnel's or is dropped is untouched.
fn check(tunnels: &Tunnels, frame: &[u8], expected: Outcome) {
    let mut buffer = Buffer::new(frame);
    assert_eq!(tunnels.decapsulate(UNDERLAY, &mut buffer), expected, "{frame:02x?}");
    if expected != Outcome::Inner(VIRTUAL) {
        assert_eq!(buffer, Buffer::new(frame));
    }
}

#[test]
fn only_the_plain_case_is_a_tunnels() {
    let inner = datagram(false, 0, b"data");
    for six in [false, true] {
        let [_, far] = ends(six, |_| {});
        let plain = tunnelled(six, &inner);
        check(&far, &plain, Outcome::Inner(VIRTUAL));
        let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
        check(&far, &tagged, Outcome::NotTunnelled);
        let (mac, port) = (5, udp_at(six) + 3);
        for change in [(mac, 9), (port, 99), (port + 2, 1), (12, 9), (14, 0x55)] {
            check(&far, &with(&plain, &[change]), Outcome::NotTunnelled);
        }
        // Longer than the frame, or not as long as the packet.
        let lengths: &[(usize, u8)] =
            if six { &[(18, 9), (19, 0), (59, 0)] } else { &[(16, 9), (17, 0), (39, 0)] };
        for change in lengths {
            check(&far, &with(&plain, &[*change]), Outcome::NotTunnelled);
        }
        let elsewhere = if six { 53 } else { 33 };
        check(&far, &with(&plain, &[(elsewhere, 9)]), Outcome::NotTunnelled);
        // By another port, even one to whose address it is, and by the virtual one.
        for port in [PortId(0), PortId(2), VIRTUAL, PortId(9)] {
            assert_eq!(far.find(port, &plain), Outcome::NotTunnelled);
        }
    }
}

#[test]
fn fragments_options_and_extension_headers_are_not() {
    let inner = datagram(false, 0, b"data");
    let [_, four] = ends(false, |_| {});
    let plain = tunnelled(false, &inner);
    // Don't Fragment is no fragment; More Fragments and offsets are.
    for (changes, expected) in [
        (&[(20, 0x40)][..], Outcome::Inner(VIRTUAL)),
        (&[(20, 0)], Outcome::Inner(VIRTUAL)),
        (&[(20, 0x20)], Outcome::NotTunnelled),
        (&[(20, 0x40), (21, 1)], Outcome::NotTunnelled),
    ] {
        check(&four, &with(&plain, changes), expected);
    }
    let mut options = [&plain[..34], &[1; 4], &plain[34..]].concat();
    options[14] = 0x46;
    options[17] += 4;
    check(&four, &sealed(options), Outcome::NotTunnelled);
    let mut wrong = plain;
    wrong[24] ^= 1;
    check(&four, &wrong, Outcome::NotTunnelled);
    let [_, far] = ends(true, |_| {});
    let plain = tunnelled(true, &inner);
    let mut hops = [&plain[..54], &[17, 0, 1, 4, 0, 0, 0, 0], &plain[54..]].concat();
    (hops[20], hops[19]) = (0, hops[19] + 8);
    check(&far, &hops, Outcome::NotTunnelled);
}

#[test]
fn strangers_and_other_networks_are_told_apart() {
    let inner = datagram(true, 0, b"data");
    for six in [false, true] {
        let [_, far] = ends(six, |_| {});
        let plain = unsummed(&tunnelled(six, &inner), six);
        let vni = udp_at(six) + 8 + 4;
        let source = if six { 37 } else { 29 };
        check(&far, &with(&plain, &[(vni, 9)]), Outcome::UnknownVni);
        // Also from a stranger: perhaps the kernel knows it.
        check(&far, &with(&plain, &[(vni, 9), (source, 9)]), Outcome::UnknownVni);
        check(&far, &with(&plain, &[(source, 9)]), Outcome::Drop(Reason::VxlanPeer));
    }
}

#[test]
fn malformed_ones_are_dropped() {
    for six in [false, true] {
        let [_, far] = ends(six, |tunnel| tunnel.accepts_zero_v6 = true);
        let malformed = Outcome::Drop(Reason::VxlanMalformed);
        for length in 0..8 {
            check(&far, &received(six, &vxlan::header(VNI)[..length]), malformed);
        }
        for length in 0..20 {
            let inner = [&TO[..], &FROM, &[9; 8]].concat();
            let expected = if length < 14 { malformed } else { Outcome::Inner(VIRTUAL) };
            check(&far, &tunnelled(six, &inner[..length]), expected);
        }
        let plain = unsummed(&tunnelled(six, &datagram(false, 0, b"data")), six);
        let at = udp_at(six) + 8;
        check(&far, &with(&plain, &[(at, 0xf7)]), malformed);
        // Reserved bits mean nothing.
        let noise = [(at, 0xff), (at + 1, 1), (at + 3, 7), (at + 7, 0xff)];
        check(&far, &with(&plain, &noise), Outcome::Inner(VIRTUAL));
        for tag in [[0x81, 0], [0x88, 0xa8]] {
            let inner = [&TO[..], &FROM, &tag, &[0, 5, 8, 0]].concat();
            check(&far, &tunnelled(six, &inner), Outcome::Drop(Reason::VxlanTagged));
        }
    }
}

#[test]
fn checksums_are_verified_unless_the_port_did() {
    let wrong = Outcome::Drop(Reason::VxlanChecksum);
    for (six, zero) in [(false, false), (true, false), (true, true)] {
        let [_, far] = ends(six, |tunnel| tunnel.accepts_zero_v6 = zero);
        let good = tunnelled(six, &datagram(false, 0, b"data"));
        let none = unsummed(&good, six);
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        let inside = Outcome::Inner(VIRTUAL);
        let missing = if six && !zero { wrong } else { inside };
        for (frame, verdict, expected) in [
            (&good, Checked::Unknown, inside),
            (&good, Checked::Good, inside),
            (&good, Checked::Bad, wrong),
            (&bad, Checked::Unknown, wrong),
            (&bad, Checked::Good, inside),
            (&bad, Checked::Bad, wrong),
            (&none, Checked::Unknown, missing),
            (&none, Checked::Good, missing),
            (&none, Checked::Bad, missing),
        ] {
            let mut buffer = Buffer::new(frame);
            buffer.received = RxChecksum { ip: Checked::Good, l4: verdict };
            let before = buffer.clone();
            assert_eq!(far.decapsulate(UNDERLAY, &mut buffer), expected, "{verdict:?}");
            if expected == inside {
                assert_eq!(buffer.received, RxChecksum::default(), "it was about the outer one");
            } else {
                assert_eq!(buffer, before);
            }
        }
    }
}

/// An underlay port without known addresses takes what is to any single receiver.
#[test]
fn addresses_of_the_underlay_may_be_unknown() {
    let tunnels = Tunnels::new(&[tunnel(false, false)], &[(UNDERLAY, Vec::new())]);
    let plain = tunnelled(false, &datagram(false, 0, b"data"));
    check(&tunnels, &with(&plain, &[(5, 9)]), Outcome::Inner(VIRTUAL));
    check(&tunnels, &with(&plain, &[(0, 3)]), Outcome::NotTunnelled);
}

#[test]
fn several_tunnels_share_an_address_and_a_port() {
    let of = |port, vni, first: u8| {
        let mut made = tunnel(false, false);
        (made.port, made.vni) = (PortId(port), vni);
        let (_, remote) = made.remotes[0];
        // More than are looked through.
        let more = (0..20).map(|last| {
            let address = IpAddr::from([192, 0, 2, first + last]);
            ([6, 0, 0, 0, 9, last], Remote { address, ..remote })
        });
        made.remotes = more.collect();
        made
    };
    let all = [of(5, 7, 1), of(6, 8, 101), of(5, 9, 1), of(7, 7, 1)];
    let tunnels = Tunnels::new(&all, &[(UNDERLAY, vec![FAR_MAC])]);
    let is_virtual = |port| tunnels.is_virtual(PortId(port));
    assert_eq!([4, 5, 6, 7].map(is_virtual), [false, true, true, false], "the first counts");
    let inner = datagram(false, 0, b"data");
    for (vni, last, expected) in [
        (7, 1, Outcome::Inner(PortId(5))),
        (7, 20, Outcome::Inner(PortId(5))),
        (7, 21, Outcome::Drop(Reason::VxlanPeer)),
        (8, 1, Outcome::Drop(Reason::VxlanPeer)),
        (8, 101, Outcome::Inner(PortId(6))),
        (9, 1, Outcome::UnknownVni),
    ] {
        let plain = received(false, &[&vxlan::header(vni), &inner[..]].concat());
        let frame = with(&unsummed(&plain, false), &[(29, last)]);
        assert_eq!(tunnels.find(UNDERLAY, &frame), expected, "{vni} from {last}");
    }
}

#[test]
fn no_tunnels_and_super_packets() {
    let plain = tunnelled(false, &datagram(false, 0, b"data"));
    let none = Tunnels::default();
    assert!(none.is_empty() && none.overhead(VIRTUAL).is_none());
    check(&none, &plain, Outcome::NotTunnelled);
    let [_, far] = ends(false, |_| {});
    assert!(!far.is_empty());
    let mut buffer = Buffer::new(&plain);
    buffer.segment = 1000;
    assert_eq!(far.decapsulate(UNDERLAY, &mut buffer), Outcome::NotTunnelled);
}

/// Outer headers are only brought back if they are those of the frame behind them.
#[test]
fn what_was_written_over_does_not_come_back() {
    for six in [false, true] {
        let [_, far] = ends(six, |_| {});
        let plain = tunnelled(six, &datagram(false, 0, b"data"));
        let mut frame = Buffer::new(&plain);
        assert!(!far.restore(VIRTUAL, &mut frame), "it is whole");
        assert_eq!(far.decapsulate(UNDERLAY, &mut frame), Outcome::Inner(VIRTUAL));
        let inside = frame.clone();
        assert!(!far.restore(UNDERLAY, &mut frame), "no virtual port");
        assert!(frame.pull_front(4) && !far.restore(VIRTUAL, &mut frame), "elsewhere");
        let mut longer = inside.clone();
        assert!(longer.set_len(inside.bytes().len() + 1));
        assert!(!far.restore(VIRTUAL, &mut longer));
        let mut over = inside.clone();
        over.memory[HEADROOM + 15..][..4].fill(0xaa);
        let before = over.clone();
        assert!(!far.restore(VIRTUAL, &mut over) && over == before);
        let mut same = inside;
        assert!(far.restore(VIRTUAL, &mut same) && same.bytes() == plain);
    }
}
