//! Neighbours that are not known yet: what cannot simply be sent asks for them as any first packet
//! does, and is judged by the MTU of the link that it will leave by.

use super::icmp::{CLIENT, EXCEEDED, REAL, ROUTER, VIP, error, field, framed, packet};
use super::lab::{self, BACK, FRONT, MemFrame};
use super::modes::{Field, at, ip};
use crate::fib::{Fib, PortId};
use crate::frame::Frame;
use crate::path::Verdict;
use crate::plan::Plan;
use crate::reason::Reason;
use crate::spec::Mode;
use sluice_testkit::World;
use sluice_wire::fragment;

/// The links and routes of [`field`], and nobody's MAC.
fn nobody(plan: &Plan, mtus: [u16; 2]) -> Fib {
    lab::fib_of(plan, &World::default().with_mtus(mtus).with_nobody())
}

/// Turns a frame while nobody is known, and releases it when everybody is.
fn held(field: &mut Field, mtus: [u16; 2], port: PortId, frame: &mut MemFrame) -> Verdict {
    let unknown = nobody(&field.plan, mtus);
    let known = std::mem::replace(&mut field.fib, unknown);
    let verdict = field.one(port, frame);
    let unknown = std::mem::replace(&mut field.fib, known);
    if verdict != Verdict::Wait {
        return verdict;
    }
    let waiting = field.path.waiting()[0];
    assert_eq!(field.path.release(&unknown, frame, waiting), Verdict::Wait);
    field.path.release(&field.fib, frame, waiting)
}

const MTUS: [u16; 2] = [1500, 1250];
/// Ways to a real server: the mode, the families of VIP and real server, a packet's length that is
/// too large for the link behind.
const WAYS: [(Mode, usize, usize, usize); 8] = [
    (Mode::Fnat, 0, 0, 1400),
    (Mode::Fnat, 1, 0, 1280),
    (Mode::Nat, 0, 0, 1400),
    (Mode::Dr, 0, 0, 1400),
    (Mode::Ipip, 0, 0, 1251),
    (Mode::Ipip, 1, 0, 1260),
    (Mode::Ipip, 0, 1, 1231),
    (Mode::Ipip, 1, 1, 1240),
];

#[test]
fn what_is_to_be_cut_waits_and_is_cut_then() {
    for (mode, vip, real, length) in WAYS {
        let way = format!("{mode:?}, {vip} to {real}");
        let headers = [28, 48][vip];
        let sent = packet(at(CLIENT[vip]), at(VIP[vip]), (64, false), length - headers);
        let (mut early, mut late) = (framed(&sent), framed(&sent));
        let mut known = field(mode, (vip, real), MTUS);
        assert_eq!(known.one(FRONT, &mut early), Verdict::Fragment(BACK, 1250), "{way}");
        let mut unknown = field(mode, (vip, real), MTUS);
        let verdict = held(&mut unknown, MTUS, FRONT, &mut late);
        assert_eq!(verdict, Verdict::Fragment(BACK, 1250), "{way}");
        assert_eq!(early.bytes(), late.bytes(), "{way}");
        assert_eq!(known.path.counters(), unknown.path.counters(), "{way}");
    }
}

/// The second fragment of a datagram whose first has gone.
#[test]
fn a_fragment_that_is_to_be_cut_waits_too() {
    let sent = packet(at(CLIENT[0]), at(VIP[0]), (64, false), 2800);
    let mut pieces = Vec::new();
    fragment::cut(&sent, 1500, |header, payload| {
        pieces.push([header, payload].concat());
        true
    })
    .unwrap();
    let mut field = field(Mode::Fnat, (0, 0), MTUS);
    let mut first = framed(&pieces[0]);
    assert_eq!(field.one(FRONT, &mut first), Verdict::Fragment(BACK, 1250));
    let mut frame = framed(&pieces[1]);
    assert_eq!(held(&mut field, MTUS, FRONT, &mut frame), Verdict::Fragment(BACK, 1250));
    assert_eq!(&frame.bytes()[14 + 16..][..4], [192, 0, 2, 11]);
}

/// An error that is larger than the way to whom it is for gets no further, whether that one's MAC
/// is known or not; one that fits waits.
#[test]
fn errors_are_held_against_the_mtu() {
    let ways = [(Mode::Fnat, 0), (Mode::Fnat, 1), (Mode::Nat, 0)];
    for (mode, family, known) in ways.into_iter().flat_map(|(m, f)| [(m, f, true), (m, f, false)]) {
        let mut field = field(mode, (family, family), MTUS);
        let mut there = framed(&packet(at(CLIENT[family]), at(VIP[family]), (64, true), 40));
        assert_eq!(field.one(FRONT, &mut there), Verdict::Tx(BACK));
        let local = ["192.0.2.10:1024", "[2001:db8:2::10]:1024"][family];
        let seen = if mode == Mode::Nat { CLIENT[family] } else { local };
        let mut back = framed(&packet(at(REAL[family]), at(seen), (64, true), 1400));
        assert_eq!(field.one(BACK, &mut back), Verdict::Tx(FRONT));
        let (kind, code) = EXCEEDED[family];
        let (from, to) = (ip(ROUTER[family]), at(VIP[family]));
        for (length, verdict) in [(1250, Verdict::Tx(BACK)), (1251, Verdict::Drop(Reason::TooBig))]
        {
            let quote = &back.bytes()[14..][..length - [28, 48][family]];
            let mut report = error(from, to.ip(), (kind, code, 0), quote);
            let got = if known {
                field.one(FRONT, &mut report)
            } else {
                held(&mut field, MTUS, FRONT, &mut report)
            };
            assert_eq!(got, verdict, "{mode:?} {family} {length} {known}");
        }
    }
}
