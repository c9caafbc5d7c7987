//! Super-packets: a frame and its segments are the same to the path.

use super::client_address::segment;
use super::icmp::{CLIENT, REAL, VIP, field_of};
use super::lab::{BACK, FRONT, MemFrame};
use super::modes::{Field, at, spec};
use crate::fib::PortId;
use crate::frame::Frame;
use crate::path::Verdict;
use crate::reason::Reason;
use crate::spec::{ClientAddress, Mode, Protocol};
use proptest::prelude::*;
use sluice_wire::tcp::{ACK, SYN};
use sluice_wire::{checksum, offload};

const MODES: [(Mode, usize, usize); 9] = [
    (Mode::Fnat, 0, 0),
    (Mode::Fnat, 1, 1),
    (Mode::Fnat, 0, 1),
    (Mode::Fnat, 1, 0),
    (Mode::Nat, 0, 0),
    (Mode::Dr, 1, 1),
    (Mode::Ipip, 0, 0),
    (Mode::Ipip, 0, 1),
    (Mode::Ipip, 1, 0),
];
const PSH: u8 = 8;
const BITS: usize = 14 + 6;
const DF: u8 = 0x40;

/// A director with one TCP service, between links of these MTUs, and a connection through it.
fn field((mode, vip, real): (Mode, usize, usize), mtus: [u16; 2], how: ClientAddress) -> Field {
    let (vip_at, real_at) = (at(VIP[vip]).ip().to_string(), at(REAL[real]));
    let mut made = spec(mode, &vip_at, &real_at.ip().to_string(), real_at.port());
    made.services[0].protocol = Protocol::Tcp;
    made.services[0].client_address = how;
    let mut field = field_of(&made, mtus, (0, 1), [false; 2]);
    let mut syn = segment(at(CLIENT[vip]), at(VIP[vip]), SYN, (99, 0), &[], b"");
    assert_eq!(field.one(FRONT, &mut syn), Verdict::Tx(BACK));
    field
}

/// So many bytes of a client's, from the first of the stream on.
fn data(vip: usize, length: usize, size: u16) -> MemFrame {
    let bytes: Vec<u8> = (0..length).map(|at| ((at * 7) >> 3) as u8).collect();
    let frame = segment(at(CLIENT[vip]), at(VIP[vip]), ACK | PSH, (100, 500), &[], &bytes);
    frame.joined(size)
}

/// The same with these bits for fragments, in IPv4.
fn with_bits(mut frame: MemFrame, bits: u8) -> MemFrame {
    frame.bytes_mut()[BITS] = bits;
    frame.bytes_mut()[24..26].fill(0);
    let sum = checksum::full(&frame.bytes()[14..34]);
    frame.bytes_mut()[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn cut(frame: &MemFrame, size: u16) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let count = offload::cut(frame.bytes(), size, |headers, data| {
        all.push([headers, data].concat());
        true
    });
    assert_eq!(count, Some(all.len()));
    all
}

/// Identification and fragment bits are the sender's own business where nothing is a fragment: out
/// with them.
fn essence(mut frame: Vec<u8>) -> Vec<u8> {
    if frame[14] >> 4 == 4 {
        frame[18..22].fill(0);
        frame[24..26].fill(0);
        let sum = checksum::full(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What a super-packet becomes, cut, is what its segments become one by one; counters too.
    #[test]
    fn a_super_frame_is_its_segments(
        row in 0..MODES.len(), length in 1500usize..60_000, size in 300u16..1400,
    ) {
        let (mode, vip, real) = MODES[row];
        let both = || field((mode, vip, real), [1500; 2], ClientAddress::Hidden);
        let (mut whole, mut parted) = (both(), both());
        let mut frame = data(vip, length, size);
        let pieces = cut(&frame, size);
        prop_assert_eq!(whole.one(FRONT, &mut frame), Verdict::Tx(BACK));
        prop_assert_eq!(frame.segment_size(), size);
        let got: Vec<_> = cut(&frame, size).into_iter().map(essence).collect();
        let mut wanted = Vec::new();
        for piece in &pieces {
            let mut piece = MemFrame::new(piece);
            prop_assert_eq!(parted.one(FRONT, &mut piece), Verdict::Tx(BACK));
            wanted.push(essence(piece.bytes));
        }
        prop_assert_eq!(got, wanted);
        prop_assert_eq!(whole.path.counters(), parted.path.counters());
    }
}

/// Whatever its MTU would take: segments are counted, not frames.
#[test]
fn each_segment_counts() {
    let mut field = field((Mode::Fnat, 0, 0), [9000; 2], ClientAddress::Hidden);
    let mut frames: Vec<_> = (0..9).map(|_| data(0, 4000, 1000)).collect();
    for frame in &mut frames {
        assert_eq!(field.one(FRONT, frame), Verdict::Tx(BACK));
    }
    let real = &field.path.counters().reals[0];
    assert_eq!((real.packets[0], real.bytes[0]), (1 + 9 * 4, 40 + 9 * 4 * 1040));
}

/// The answer to one that is too large quotes its first segment, as it would have been.
#[test]
fn what_may_not_be_cut_is_answered_like_its_first_segment() {
    for (mode, vip, real) in MODES {
        let both = || field((mode, vip, real), [1500, 1400], ClientAddress::Hidden);
        let (mut whole, mut parted) = (both(), both());
        let mut frame = data(vip, 20_000, 1460);
        if vip == 0 {
            frame = with_bits(frame, DF);
        }
        let mut first = MemFrame::new(&cut(&frame, 1460)[0]);
        let answer = Verdict::Answer(FRONT, Reason::TooBig);
        assert_eq!(whole.one(FRONT, &mut frame), answer, "{mode:?} {vip} {real}");
        assert_eq!(parted.one(FRONT, &mut first), answer, "{mode:?} {vip} {real}");
        assert_eq!((frame.bytes(), frame.segment_size()), (first.bytes(), 0), "{mode:?}");
    }
}

/// One that may be cut leaves in smaller segments.
#[test]
fn what_may_be_cut_gets_smaller_segments() {
    for (mode, room) in [(Mode::Fnat, 1400), (Mode::Ipip, 1380)] {
        let mut field = field((mode, 0, 0), [1500, 1400], ClientAddress::Hidden);
        let mut frame = with_bits(data(0, 20_000, 1460), 0);
        assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK), "{mode:?}");
        assert_eq!(frame.segment_size(), room - 40);
        let longest = cut(&frame, room - 40).iter().map(Vec::len).max();
        assert_eq!(longest, Some(1414), "{mode:?}");
        assert_eq!(field.path.counters().reals[0].packets[0], 1 + 20_000u64.div_ceil(1340));
    }
}

/// A header goes in front of the stream once, an option into each of the first segments, whose room
/// was told to the client.
#[test]
fn the_client_is_told_of_once() {
    for how in [ClientAddress::ProxyV2, ClientAddress::Toa] {
        let mut field = field((Mode::Fnat, 0, 0), [1500; 2], how);
        let mut frame = data(0, 20_000, 1400);
        assert_eq!(field.one(FRONT, &mut frame), Verdict::Tx(BACK));
        let more = if how == ClientAddress::Toa { 8 } else { 28 };
        assert_eq!(frame.bytes().len(), 14 + 40 + more + 20_000, "{how:?}");
        let segments = cut(&frame, 1400);
        assert!(segments.iter().all(|segment| segment.len() <= 1514), "{how:?}");
        let data = |segment: &Vec<u8>| segment[34 + usize::from(segment[46] >> 4) * 4..].to_vec();
        let stream: Vec<u8> = segments.iter().flat_map(data).collect();
        let header = if how == ClientAddress::Toa { 0 } else { 28 };
        assert_eq!(stream.len(), header + 20_000, "{how:?}");
        assert_eq!(stream[header..][..4], [0, 0, 1, 2], "{how:?}");
    }
}

/// A reset acknowledges all of it, and is no super-packet.
#[test]
fn a_reset_answers_all_of_it() {
    let mut made = spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 53);
    made.services[0].protocol = Protocol::Tcp;
    made.no_session = crate::spec::NoSession::Reset;
    let mut field = field_of(&made, [1500; 2], (0, 1), [false; 2]);
    let mut frame = data(0, 20_000, 1400);
    let port: PortId = FRONT;
    assert_eq!(field.one(port, &mut frame), Verdict::Answer(FRONT, Reason::NoSessionReset));
    assert_eq!((frame.bytes().len(), frame.segment_size()), (54, 0));
}
