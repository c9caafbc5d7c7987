//! Sessions that an operator ends: both directions, the local port, the counts.

use super::lab::{BACK, CLIENT, FRONT, LOCAL, Lab, Packet, REAL, REAL_2, VIP, tcp};
use crate::path::{SessionFilter, SessionInfo, Verdict};
use crate::reason::Reason;
use proptest::prelude::*;
use sluice_wire::tcp::{ACK, SYN};

/// Opens a session and gives its real server and local port.
fn open(lab: &mut Lab, port: u16) -> ([u8; 4], u16) {
    let mut syn = tcp((CLIENT, port), (VIP, 80), SYN, (100, 0), b"");
    assert_eq!(lab.one(FRONT, &mut syn), Verdict::Tx(BACK));
    let there = Packet::read(&syn);
    (there.dst, there.sport)
}

fn all(lab: &Lab, filter: &SessionFilter) -> Vec<SessionInfo> {
    let (mut out, mut next) = (Vec::new(), Some(0));
    while let Some(cursor) = next {
        next = lab.path.list(&lab.plan, lab.now, filter, (cursor, 7), &mut out);
    }
    out
}

/// Ends all that pass, a few slots at a time.
fn kill(lab: &mut Lab, filter: &SessionFilter, slots: u32) -> u32 {
    let (mut ended, mut next) = (0, Some(0));
    while let Some(cursor) = next {
        let part = (cursor, slots);
        let (count, more) = lab.path.kill(&lab.plan, lab.now, filter, part);
        assert!(count <= slots.min(256));
        ended += count;
        next = more;
    }
    ended
}

#[test]
fn neither_direction_finds_an_ended_session_and_its_port_is_free() {
    // One local port for each real server: only an ended session makes room for the next.
    let one = |spec: &mut crate::spec::Spec| {
        (spec.pools[0].ports, spec.gives_way) = (2000..=2000, false);
    };
    let mut lab = Lab::with(one, 100, (0, 1));
    let (real, local) = open(&mut lab, 40_000);
    let (other, _) = open(&mut lab, 40_001);
    assert_eq!((real, other), (REAL, REAL_2));
    let mut none = tcp((CLIENT, 40_002), (VIP, 80), SYN, (100, 0), b"");
    assert_eq!(lab.one(FRONT, &mut none), Verdict::Drop(Reason::LocalPortsExhausted));
    let filter = SessionFilter { client_port: Some(40_000), ..SessionFilter::default() };
    assert_eq!(kill(&mut lab, &filter, 4096), 1);
    for (port, mut frame) in [
        (FRONT, tcp((CLIENT, 40_000), (VIP, 80), ACK, (101, 501), b"x")),
        (BACK, tcp((real, 80), (LOCAL, local), SYN | ACK, (500, 101), b"")),
    ] {
        assert!(matches!(lab.one(port, &mut frame), Verdict::Drop(Reason::NoSession)));
    }
    let counters = lab.path.counters();
    assert_eq!((counters.killed, counters.closed, counters.expired), (1, 0, 0));
    assert_eq!(counters.created - counters.killed, u64::from(lab.path.live_sessions()));
    let active: Vec<u64> = counters.reals.iter().map(|real| real.active).collect();
    assert_eq!(active.iter().sum::<u64>(), 1);
    // Its real server gets the next one of its turn, with the same port.
    let syn = |port| tcp((CLIENT, port), (VIP, 80), SYN, (100, 0), b"");
    let mut again = [syn(40_003), syn(40_004)];
    let sent = again.iter_mut().map(|frame| lab.one(FRONT, frame) == Verdict::Tx(BACK));
    assert_eq!(sent.collect::<Vec<_>>().iter().filter(|sent| **sent).count(), 1);
    let again = again.iter().map(Packet::read).find(|sent| sent.dst == real).expect("one");
    assert_eq!(again.sport, local);
}

#[test]
fn what_has_timed_out_is_not_ended_again() {
    let mut lab = Lab::new();
    open(&mut lab, 40_000);
    lab.after_s(10_000);
    assert_eq!(kill(&mut lab, &SessionFilter::default(), 4096), 0);
    assert_eq!(lab.path.counters().killed, 0);
}

proptest! {
    /// Whatever is opened, ended by whatever filter in whatever parts: what is listed, what is
    /// counted and what is found agree.
    #[test]
    fn what_is_listed_is_what_is_ended(
        ports in prop::collection::btree_set(40_000u16..40_400, 1..300),
        only_real in any::<Option<bool>>(),
        client_port in prop::option::of(40_000u16..40_400),
        slots in 1u32..400,
    ) {
        let mut lab = Lab::new();
        let opened: Vec<_> = ports.iter().map(|port| (*port, open(&mut lab, *port))).collect();
        let real = only_real.map(|first| if first { REAL } else { REAL_2 });
        let filter = SessionFilter {
            real: real.map(Into::into),
            client_port,
            ..SessionFilter::default()
        };
        let passes = |(port, (at, _)): &(u16, ([u8; 4], u16))| {
            real.is_none_or(|real| real == *at) && client_port.is_none_or(|one| one == *port)
        };
        let right = opened.iter().filter(|one| passes(one)).count();
        prop_assert_eq!(all(&lab, &filter).len(), right);
        prop_assert_eq!(kill(&mut lab, &filter, slots) as usize, right);
        prop_assert_eq!(all(&lab, &filter).len(), 0);
        prop_assert_eq!(lab.path.live_sessions() as usize, opened.len() - right);
        let counters = lab.path.counters();
        let active: u64 = counters.reals.iter().map(|real| real.active).sum();
        prop_assert_eq!(active as usize, opened.len() - right);
        for one in &opened {
            let mut frame = tcp((CLIENT, one.0), (VIP, 80), ACK, (101, 501), b"x");
            let sent = lab.one(FRONT, &mut frame) == Verdict::Tx(BACK);
            prop_assert_eq!(sent, !passes(one), "{:?}", one);
        }
    }
}
