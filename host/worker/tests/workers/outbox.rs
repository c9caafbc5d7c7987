//! How much a worker tells other directors in a turn: of a busy one little, but never less than the
//! turn's packets may have changed, so that nothing waits where nobody sees it.

use crate::memory::{BACK, CLIENT, FRONT, Kit, REAL, VIP, addresses, udp};
use rtrb::Consumer;
use sluice_worker::{Outbox, Told, Wake};

/// Packets that a queue gives in a turn.
const BURST: u16 = 256;
/// What a turn tells at most of a walk: one with packets, and one without.
const BUSY: usize = 64;
const IDLE: usize = 1024;

/// Opens so many sessions, a full burst a turn, and gives their local ports.
fn open(kit: &mut Kit, sessions: u16) -> Vec<u16> {
    let mut ports = Vec::new();
    for first in (0..sessions).step_by(BURST.into()) {
        for client in first..sessions.min(first + BURST) {
            kit.put(0, FRONT, udp((CLIENT, 1 + client), (VIP, 53)));
        }
        kit.turn(0);
        ports.extend(kit.sent(0, BACK).iter().map(|frame| addresses(frame).0.1));
    }
    assert_eq!(ports.len(), usize::from(sessions));
    ports
}

/// How many changes were told, and whether a walk has come to its end.
fn told(ring: &mut Consumer<Told>) -> (usize, bool) {
    let (mut changes, mut walked) = (0, false);
    while let Ok(told) = ring.pop() {
        match told {
            Told::Change(_) => changes += 1,
            Told::Walked(_) => walked = true,
        }
    }
    (changes, walked)
}

#[test]
fn an_idle_worker_tells_more_than_a_busy_one() {
    let mut kit = Kit::with_sessions(10_000);
    open(&mut kit, 8000);
    let (outbox, mut ring) = Outbox::new(Wake::new().unwrap());
    kit.workers[0].tell_by(outbox);
    kit.workers[0].begin_walk(1);
    for _ in 0..3 {
        (1..=BURST).for_each(|client| kit.put(0, FRONT, udp((CLIENT, client), (VIP, 53))));
        kit.turn(0);
        assert_eq!(told(&mut ring), (BUSY, false));
    }
    for _ in 0..3 {
        kit.turn(0);
        assert_eq!(told(&mut ring), (IDLE, false));
    }
}

/// Every packet of full bursts makes a session known: none waits for a later turn.
#[test]
fn a_turn_tells_what_its_packets_changed() {
    let mut kit = Kit::with_sessions(10_000);
    let (outbox, mut ring) = Outbox::new(Wake::new().unwrap());
    kit.workers[0].tell_by(outbox);
    let ports = open(&mut kit, 16 * BURST);
    // The sweep has told some that nobody has answered; it goes on with time, which stands still.
    kit.turn(0);
    told(&mut ring);
    for burst in ports.chunks(BURST.into()) {
        for port in burst {
            kit.put(0, BACK, udp((REAL, 53), (crate::memory::LOCAL, *port)));
        }
        kit.turn(0);
        assert_eq!(told(&mut ring), (burst.len(), false));
    }
}

/// What nobody reads waits in the ring, and what that has no room for in the worker's list: both
/// are counted.
#[test]
fn what_waits_to_be_told_is_counted() {
    const SESSIONS: u16 = 78 * BURST;
    let mut kit = Kit::with_sessions(100_000);
    assert_eq!(kit.workers[0].untaken(), 0);
    let (outbox, mut ring) = Outbox::new(Wake::new().unwrap());
    kit.workers[0].tell_by(outbox);
    let ports = open(&mut kit, SESSIONS);
    kit.turn(0);
    told(&mut ring);
    assert_eq!(kit.workers[0].untaken(), 0);
    for burst in ports.chunks(BURST.into()) {
        for port in burst {
            kit.put(0, BACK, udp((REAL, 53), (crate::memory::LOCAL, *port)));
        }
        kit.turn(0);
    }
    assert_eq!(kit.workers[0].untaken(), SESSIONS.into());
    let (first, _) = told(&mut ring);
    assert!(first < SESSIONS.into(), "the ring had room for all");
    assert_eq!(kit.workers[0].untaken(), (usize::from(SESSIONS) - first) as u64);
    (0..4).for_each(|_| kit.turn(0));
    assert_eq!(kit.workers[0].untaken(), (usize::from(SESSIONS) - first) as u64);
    let (rest, _) = told(&mut ring);
    assert_eq!((first + rest, kit.workers[0].untaken()), (SESSIONS.into(), 0));
}

/// A reader that is late finds everything nonetheless, and the end of the walk behind it.
#[test]
fn what_the_ring_has_no_room_for_is_told_later() {
    const SESSIONS: u16 = 20_000;
    let mut kit = Kit::with_sessions(100_000);
    open(&mut kit, SESSIONS);
    let (outbox, mut ring) = Outbox::new(Wake::new().unwrap());
    kit.workers[0].tell_by(outbox);
    kit.workers[0].begin_walk(1);
    (0..40).for_each(|_| kit.turn(0));
    let (first, walked) = told(&mut ring);
    assert!(!walked && first < SESSIONS.into(), "{first}");
    (0..40).for_each(|_| kit.turn(0));
    let (rest, walked) = told(&mut ring);
    assert!(walked && first + rest >= SESSIONS.into(), "{first} and {rest}");
}
