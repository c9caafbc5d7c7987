//! Frames whose checksums are left to whoever sends them, and super-packets.

use super::*;
use crate::reason::Reason;
use sluice_wire::offload;

/// An inner frame with a TCP segment.
fn segment(six: bool, data: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let link = PacketBuilder::ethernet2(FROM, TO);
    let data: Vec<u8> = (0..data).map(|at| ((at * 7) >> 3) as u8).collect();
    let ip = if six { link.ipv6([1; 16], [2; 16], 9) } else { link.ipv4([10; 4], [11; 4], 9) };
    ip.tcp(4000, 80, 7, 1000).write(&mut bytes, &data).unwrap();
    bytes
}

/// A received packet that the kernel of this machine made, whose outer checksum is not there yet.
#[test]
fn an_outer_checksum_that_is_not_there_yet_is_not_missed() {
    let inner = datagram(false, 0, b"data");
    for six in [false, true] {
        let [_, far] = ends(six, |_| {});
        let whole = tunnelled(six, &inner);
        let mut frame = Buffer::new(&whole);
        let place = Place::of(&whole).unwrap();
        place.begin_checksum(frame.bytes_mut()).unwrap();
        let mut wrong = frame.clone();
        assert_ne!(frame.bytes(), whole);
        frame.unfinished = true;
        assert_eq!(far.decapsulate(UNDERLAY, &mut frame), Outcome::Inner(VIRTUAL));
        assert!(!frame.unfinished && frame.bytes() == inner);
        assert!(far.restore(VIRTUAL, &mut frame));
        let (sum, _) = verified(frame.bytes());
        assert_eq!(sum == 0, !six, "IPv4 can do without");
        assert_eq!(frame.bytes() == whole, six);
        let outcome = far.decapsulate(UNDERLAY, &mut wrong);
        assert_eq!(outcome, Outcome::Drop(Reason::VxlanChecksum));
    }
}

#[test]
fn an_inner_checksum_is_completed_before_it_goes_in() {
    for (six, sum) in [(false, false), (false, true), (true, true)] {
        let [near, far] = ends(six, |tunnel| tunnel.udp_checksum = sum);
        let whole = datagram(!six, 0, b"some data");
        let mut frame = Buffer::new(&whole);
        Place::of(&whole).unwrap().begin_checksum(frame.bytes_mut()).unwrap();
        frame.unfinished = true;
        assert_eq!(near.encapsulate(VIRTUAL, &mut frame), Ok(UNDERLAY));
        assert!(!frame.unfinished && frame.shim == 0);
        verified(frame.bytes());
        assert_eq!(far.decapsulate(UNDERLAY, &mut frame), Outcome::Inner(VIRTUAL));
        assert_eq!(frame.bytes(), whole);
    }
}

/// A super-packet is cut when it is sent: into what its segments, one at a time, would have become.
#[test]
fn a_super_packet_is_cut_behind_its_outer_headers() {
    for (six, inner_six, sum) in
        [(false, false, false), (false, true, true), (true, false, true), (true, true, false)]
    {
        let [near, far] = ends(six, |tunnel| {
            (tunnel.udp_checksum, tunnel.udp6_zero, tunnel.accepts_zero_v6) = (sum, !sum, !sum);
        });
        let whole = segment(inner_six, 5000);
        let mut expected = Vec::new();
        offload::cut(&whole, 1400, |headers, data| {
            expected.push([headers, data].concat());
            true
        });
        let mut frame = Buffer::new(&[&whole[..], &[0; 3]].concat());
        (frame.unfinished, frame.segment) = (true, 1400);
        assert_eq!(near.encapsulate(VIRTUAL, &mut frame), Ok(UNDERLAY));
        assert_eq!((frame.segment, usize::from(frame.shim)), (1400, vxlan::SHIM));
        let overhead = near.overhead(VIRTUAL).unwrap();
        assert_eq!(frame.bytes().len(), whole.len() + overhead, "without padding");
        let place = Place::behind(frame.bytes(), frame.shim.into()).unwrap();
        let mut pieces = Vec::new();
        offload::cut_at(place, frame.bytes(), 1400, |headers, data| {
            let mut piece = Buffer::new(&[headers, data].concat());
            assert_eq!(verified(piece.bytes()).0 != 0, sum);
            assert_eq!(far.decapsulate(UNDERLAY, &mut piece), Outcome::Inner(VIRTUAL));
            pieces.push(piece.bytes().to_vec());
            true
        });
        assert_eq!((pieces.len(), pieces == expected), (4, true));
    }
}

#[test]
fn a_super_packet_that_cannot_be_cut_is_refused() {
    let [near, _] = ends(false, |_| {});
    // A packet of TCP in another IP packet: two outer headers are more than are looked through.
    let inside = segment(false, 3000);
    let mut within = inside[..14].to_vec();
    let mut ip = etherparse::Ipv4Header::new(0, 9, 4.into(), [10; 4], [11; 4]).unwrap();
    ip.set_payload_len(inside.len() - 14).unwrap();
    ip.header_checksum = ip.calc_header_checksum();
    ip.write(&mut within).unwrap();
    within.extend(&inside[14..]);
    let most = usize::from(MTU) - 50 - 40;
    for (bytes, size, expected) in [
        (segment(false, 5000), most as u16, Ok(UNDERLAY)),
        (segment(false, 5000), most as u16 + 1, Err(Reason::VxlanTooLarge)),
        (segment(false, 65_535 - 40 - 50), 1000, Ok(UNDERLAY)),
        (segment(false, 65_535 - 40 - 49), 1000, Err(Reason::VxlanTooLarge)),
        (within, 1000, Err(Reason::VxlanTooLarge)),
        (datagram(false, 0, &[0; 3000]), 1000, Err(Reason::VxlanTooLarge)),
    ] {
        let mut frame = Buffer::new(&bytes);
        (frame.unfinished, frame.segment) = (true, size);
        assert_eq!(near.encapsulate(VIRTUAL, &mut frame), expected, "{} bytes", bytes.len());
        assert_eq!(frame.bytes() == bytes, expected.is_err());
    }
}
