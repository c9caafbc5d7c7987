//! Which errors about outer packets are believed, and that forged ones are not.

use super::*;
use crate::vxlan::Narrow;
use sluice_wire::{checksum, icmp};

/// Bytes of the packet inside: with all headers less than what the link takes.
const DATA: usize = 1400;
const TOLD: u16 = 1300;
/// A router on the way.
const ROUTER: u8 = 77;

/// A packet of the sender's in a tunnel, without its link-layer header.
fn outer(six: bool, inside_six: bool) -> Vec<u8> {
    let [near, _] = ends(six, |_| {});
    let mut frame = Buffer::new(&datagram(inside_six, 0, &[7; DATA]));
    near.encapsulate(VIRTUAL, &mut frame).unwrap();
    frame.bytes()[14..].to_vec()
}

/// An error of a router about a quoted packet, by another's packet builder.
fn error(six: bool, to: IpAddr, (kind, code, rest): (u8, u8, u32), quote: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(quote);
    let link = PacketBuilder::ethernet2(FAR_MAC, NEAR_MAC);
    let mut bytes = Vec::new();
    match (address(six, ROUTER), to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let sum = checksum::full(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let ip = link.ipv4(from.octets(), to.octets(), 60);
            ip.write(&mut bytes, etherparse::IpNumber::ICMP, &message).unwrap();
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let sum = checksum::transport_v6(from.to_bits(), to.to_bits(), 58, &message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let ip = link.ipv6(from.octets(), to.octets(), 60);
            ip.write(&mut bytes, etherparse::IpNumber::IPV6_ICMP, &message).unwrap();
        }
        _ => panic!("of one family"),
    }
    bytes
}

fn too_large(six: bool) -> (u8, u8) {
    if six { (icmp::v6::PACKET_TOO_BIG, 0) } else { (icmp::v4::UNREACHABLE, 4) }
}

/// What the sender makes of an error with so many bytes of a packet, if it says so.
fn told(six: bool, mtu: u32, quote: &[u8]) -> Option<Narrow> {
    let [near, _] = ends(six, |_| {});
    let (kind, code) = too_large(six);
    let frame = error(six, address(six, 1), (kind, code, mtu), quote);
    let mut whole = Buffer::new(&frame);
    assert_eq!(near.decapsulate(UNDERLAY, &mut whole), Outcome::Error);
    assert_eq!(whole.bytes(), frame, "untouched");
    near.narrow(UNDERLAY, &frame)
}

fn genuine(six: bool, inside_six: bool, mtu: u16) -> Narrow {
    let to = if inside_six { IpAddr::from([2; 16]) } else { IpAddr::from([11; 4]) };
    Narrow { port: VIRTUAL, remote: address(six, 2), mtu, macs: [TO, FROM], to }
}

/// Where the inner frame begins in an outer packet.
const fn inner_at(six: bool) -> usize {
    if six { 56 } else { 36 }
}

fn families() -> [(bool, bool); 4] {
    [(false, false), (false, true), (true, false), (true, true)]
}

#[test]
fn an_error_about_a_packet_of_ours_is_believed() {
    for (six, inside) in families() {
        let sent = outer(six, inside);
        let enough = inner_at(six) + 14 + if inside { 44 } else { 24 };
        for quoted in [sent.len(), 548.min(sent.len()), enough] {
            let expected = genuine(six, inside, TOLD);
            assert_eq!(told(six, TOLD.into(), &sent[..quoted]), Some(expected), "{quoted}");
        }
        // No less than any link takes.
        let least = if six { 1280 } else { 576 };
        assert_eq!(told(six, 68, &sent), Some(genuine(six, inside, least)));
        // Too little to tell whose it is.
        for quoted in 0..enough {
            assert_eq!(told(six, TOLD.into(), &sent[..quoted]), None, "{quoted}");
        }
    }
}

#[test]
fn what_fitted_or_was_never_sent_is_not() {
    for (six, inside) in families() {
        let sent = outer(six, inside);
        let length = sent.len() as u32;
        for mtu in [length, length + 1, 9000, u32::from(u16::MAX)] {
            assert_eq!(told(six, mtu, &sent), None, "{mtu} was enough for {length}");
        }
        assert!(told(six, length - 1, &sent).is_some());
        if !six {
            assert_eq!(told(six, 0, &sent), None, "says nothing");
        }
        // As long as nothing can have been sent: lengths of IP and UDP that fit each other.
        let mut long = sent.clone();
        let (ip, udp, header) = if six { (4, 44, 40) } else { (2, 24, 0) };
        long[ip..ip + 2].copy_from_slice(&(MTU + 1 - header).to_be_bytes());
        let of_udp = MTU + 1 - if six { 40 } else { 20 };
        long[udp..udp + 2].copy_from_slice(&of_udp.to_be_bytes());
        assert_eq!(told(six, TOLD.into(), &long), None);
    }
}

/// Bytes that routers change, or that nobody need know: type of service, identification, time to
/// live and checksums of the outer packet, and of the inner packet all but what its flow is told
/// by.
fn may_differ(six: bool, inside_six: bool, at: usize) -> bool {
    let udp = inner_at(six) - 16;
    let outside = match six {
        // The low bits of its first byte and the flow label.
        true => matches!(at, 0..=3 | 7),
        false => matches!(at, 1 | 4 | 5 | 8 | 10 | 11),
    };
    let sum = at == udp + 6 || at == udp + 7;
    let inside = at.wrapping_sub(inner_at(six) + 14);
    let inner = match inside_six {
        true => matches!(inside, 0..=5 | 7 | 44..),
        false => matches!(inside, 1..=6 | 8 | 10 | 11 | 24..),
    };
    outside || sum || inside < 1 << 16 && inner
}

/// Whoever does not know all of what identifies a packet of the tunnel gains nothing: any other
/// byte than those makes the error one of nobody, or of a frame that the network does not send.
#[test]
fn no_byte_that_identifies_a_packet_can_be_guessed() {
    for (six, inside) in families() {
        let sent = outer(six, inside);
        let expected = Some(genuine(six, inside, TOLD));
        for at in 0..inner_at(six) + 14 + if inside { 44 } else { 24 } {
            for flip in [1u8, 0x10, 0x80, 0xff] {
                let mut forged = sent.clone();
                forged[at] ^= flip;
                let believed = told(six, TOLD.into(), &forged) == expected;
                assert!(!believed || may_differ(six, inside, at), "byte {at} ^ {flip:#x}");
            }
        }
    }
}

#[test]
fn errors_of_other_kinds_places_and_receivers_are_not() {
    for six in [false, true] {
        let sent = outer(six, false);
        let [near, _] = ends(six, |_| {});
        let (kind, code) = too_large(six);
        let message = (kind, code, TOLD.into());
        let right = error(six, address(six, 1), message, &sent);
        assert!(near.narrow(UNDERLAY, &right).is_some());
        for port in [PortId(0), VIRTUAL, PortId(9)] {
            assert_eq!(near.narrow(port, &right), None, "no underlay port");
        }
        let elsewhere = error(six, address(six, 3), message, &sent);
        assert_eq!(near.narrow(UNDERLAY, &elsewhere), None, "to who did not send it");
        for other in [(kind, code + 1), (kind + 1, code), (11, 0)] {
            let other = error(six, address(six, 1), (other.0, other.1, TOLD.into()), &sent);
            let is_code = six && other[54] == kind;
            assert!(near.narrow(UNDERLAY, &other).is_none() || is_code, "a code means nothing");
        }
        let mut broken = right.clone();
        *broken.last_mut().unwrap() ^= 1;
        assert_eq!(near.narrow(UNDERLAY, &broken), None, "a wrong checksum");
        let mut tagged = right.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(near.narrow(UNDERLAY, &tagged), None);
        // Without a next hop nothing was sent.
        let [blind, _] = ends(six, |tunnel| tunnel.remotes[0].1.hop = None);
        assert_eq!(blind.narrow(UNDERLAY, &right), None);
    }
}

proptest! {
    /// Whatever it is, reading it does no harm, and cut short it is never believed to be more.
    #[test]
    fn any_bytes(six: bool, cut in 0usize..200, at in 0usize..160, byte: u8) {
        let sent = outer(six, !six);
        let [near, _] = ends(six, |_| {});
        let (kind, code) = too_large(six);
        let mut frame = error(six, address(six, 1), (kind, code, TOLD.into()), &sent[..160]);
        frame[at] = byte;
        frame.truncate(frame.len().saturating_sub(cut));
        if let Some(narrow) = near.narrow(UNDERLAY, &frame) {
            prop_assert!(narrow.mtu >= 576 && cut == 0);
        }
    }
}
