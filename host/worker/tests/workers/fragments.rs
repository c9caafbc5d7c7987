//! Workers and fragments: those that came too early wait, and what is too large is cut; all of it
//! bounded, counted, and without an allocation.

use crate::memory::{
    BACK, CLIENT, FRONT, Kit, LOCAL, REAL, VIP, addresses, large, pieces, together, udp,
};
use sluice_director::{Frame, Reason};

const FROM: ([u8; 4], u16) = (CLIENT, 4000);
const TO: ([u8; 4], u16) = (VIP, 53);

fn data(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

/// The later ones leave with the first, which goes ahead of them; whether they came in one burst
/// or each in its own turn.
#[test]
fn what_came_early_waits_for_the_first() {
    for one_burst in [true, false] {
        let mut kit = Kit::new(1, &[1, 1], true);
        let all = pieces(&large(FROM, TO, 3000, 7), &[1200, 2400]);
        for number in [2, 1, 0] {
            assert!(kit.sent(0, BACK).is_empty());
            kit.put(0, FRONT, all[number].clone());
            if !one_burst {
                kit.turn(0);
            }
        }
        kit.turn(0);
        let sent = kit.sent(0, BACK);
        let (from, to, got) = together(&sent);
        assert_eq!((from.0, to, got), (LOCAL, (REAL, 53), data(3000)));
        assert_eq!(sent[0].bytes()[20..22], [0x20, 0], "the first is first");
        kit.now.0 += 5000;
        kit.turn(0);
        assert_eq!(kit.counted(0, Reason::FragmentOrphan), 0);
    }
}

#[test]
fn nothing_waits_longer_than_a_second() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let all = pieces(&large(FROM, TO, 3000, 7), &[1200, 2400]);
    kit.put(0, FRONT, all[1].clone());
    kit.turn(0);
    kit.now.0 += 999;
    kit.turn(0);
    assert_eq!(kit.counted(0, Reason::FragmentOrphan), 0);
    kit.now.0 += 1;
    kit.put(0, FRONT, all[0].clone());
    kit.turn(0);
    assert_eq!(kit.counted(0, Reason::FragmentOrphan), 1);
    assert_eq!(kit.sent(0, BACK).len(), 1, "the first alone");
    kit.now.0 += 5000;
    kit.turn(0);
    assert_eq!(kit.counted(0, Reason::FragmentOrphan), 1);
}

#[test]
fn places_are_bounded_and_counted_once() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let later = |id| pieces(&large(FROM, TO, 1000, id), &[400]).remove(1);
    for _ in 0..70 {
        kit.put(0, FRONT, later(1));
    }
    kit.turn(0);
    kit.turn(0);
    assert_eq!(kit.counted(0, Reason::FragmentsFull), 6);
    for id in 2..302 {
        kit.put(0, FRONT, later(id));
    }
    (0..6).for_each(|_| kit.turn(0));
    assert_eq!(kit.counted(0, Reason::FragmentsFull), 6 + 64 + 300 - 256);
    kit.now.0 += 1000;
    kit.turn(0);
    assert_eq!(kit.counted(0, Reason::FragmentOrphan), 256);
}

/// A port that goes takes with it what came by it; a reload does not.
#[test]
fn what_waits_outlives_a_reload_and_not_its_port() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let all = pieces(&large(FROM, TO, 3000, 7), &[1200, 2400]);
    kit.put(0, FRONT, all[1].clone());
    kit.turn(0);
    kit.publish_neighbours();
    kit.put(0, FRONT, all[0].clone());
    kit.turn(0);
    assert_eq!(kit.sent(0, BACK).len(), 2);
    kit.put(0, FRONT, pieces(&large(FROM, TO, 3000, 8), &[1200]).remove(1));
    kit.turn(0);
    assert_eq!(kit.workers[0].detach(FRONT).len(), 1);
    assert_eq!(kit.counted(0, Reason::PortGone), 1);
    kit.now.0 += 5000;
    kit.turn(0);
    assert_eq!(kit.counted(0, Reason::FragmentOrphan), 0);
}

/// The answer to another worker's local port: all its fragments go there, in their order.
#[test]
fn fragments_follow_their_first_to_another_worker() {
    let mut kit = Kit::new(2, &[2, 2], true);
    kit.put(1, FRONT, udp(FROM, TO));
    kit.turn(1);
    let (local, _) = addresses(&kit.sent(1, BACK)[0]);
    let all = pieces(&large((REAL, 53), local, 3000, 7), &[1200, 2400]);
    for number in [1, 0, 2] {
        kit.put(0, BACK, all[number].clone());
    }
    kit.turn(0);
    kit.turn(1);
    assert_eq!(kit.workers[0].path().counters().handed_off, 3);
    assert_eq!(together(&kit.sent(1, FRONT)), (TO, FROM, data(3000)));
}

/// Larger than the way allows and without DF: in pieces that fit, also by another worker's queue.
#[test]
fn what_is_too_large_is_cut() {
    for (worker, queues) in [(0, [1, 1]), (1, [2, 1])] {
        let mut kit = Kit::new(worker + 1, &queues, true);
        kit.give_spares(0, BACK, 5);
        kit.put(worker, FRONT, large(FROM, TO, 4000, 7));
        kit.turn(worker);
        kit.turn(0);
        let sent = kit.sent(0, BACK);
        assert_eq!(sent.len(), 3);
        let (from, to, got) = together(&sent);
        assert_eq!((from.0, to, got), (LOCAL, (REAL, 53), data(4000)));
        // A fragment is cut too.
        let all = pieces(&large(FROM, TO, 4000, 8), &[2000]);
        kit.put(worker, FRONT, all[0].clone());
        kit.put(worker, FRONT, all[1].clone());
        kit.give_spares(0, BACK, 2);
        kit.turn(worker);
        kit.turn(0);
        assert_eq!(together(&kit.sent(0, BACK)).2, data(4000));
    }
}

#[test]
fn without_buffers_there_are_no_pieces() {
    let mut kit = Kit::new(1, &[1, 1], true);
    kit.give_spares(0, BACK, 2);
    kit.put(0, FRONT, large(FROM, TO, 4000, 7));
    kit.turn(0);
    assert!(kit.sent(0, BACK).is_empty(), "half a packet is of no use");
    assert_eq!(kit.counted(0, Reason::NoBuffer), 1);
}

/// Fragments in any order, and pieces, need no memory once the worker is made.
#[test]
fn nothing_is_allocated_for_a_fragment() {
    let mut kit = Kit::new(1, &[1, 1], true);
    for id in 0..20 {
        let all = pieces(&large(FROM, TO, 3000, id), &[1200, 2400]);
        let whole = large(FROM, TO, 4000, 0);
        kit.give_spares(0, BACK, 3);
        for frame in [&all[2], &all[1], &all[0], &whole] {
            kit.put(0, FRONT, frame.clone());
        }
        let used = allocation_counter::measure(|| kit.turn(0));
        // The first opens the session.
        assert!(id == 0 || used.count_total == 0, "{id}: {}", used.count_total);
        assert_eq!((kit.sent(0, BACK).len(), kit.spares(0, BACK)), (6, 0));
    }
}
