//! Capture points: what traces and captures see, and that looking changes nothing.

use crate::memory::{BACK, CLIENT, FRONT, Kit, LOCAL, MemFrame, REAL, VIP, addresses, udp};
use sluice_director::counters::Direction;
use sluice_director::filter::{Instruction, Program};
use sluice_director::path::{Verdict, Waiting};
use sluice_director::plan::ServiceId;
use sluice_director::{Frame, Reason};
use sluice_worker::capture_point::{
    Allowance, CAPTURE_POINTS, Came, Catch, Catches, Form, Limits, Terms, capture_point,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMITS: Limits =
    Limits { packets: 1000, bytes: 1 << 20, ring_packets: 256, ring_bytes: 1 << 18 };

/// What takes everything.
fn everything() -> Terms {
    Terms {
        program: None,
        service: None,
        real: None,
        port: None,
        reasons: Vec::new(),
        form: None,
        kernels: true,
        snap: 2048,
        until: Instant::now() + Duration::from_secs(600),
    }
}

/// `udp dst port N`, of frames without tags and options.
fn to_port(port: u16) -> Option<Program> {
    let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let program =
        [op(0x28, 0, 0, 36), op(0x15, 0, 1, port.into()), op(0x06, 0, 0, 1), op(0x06, 0, 0, 0)];
    Some(Program::new(&program).unwrap())
}

struct Eye {
    readers: Vec<Catches>,
    allowance: Arc<Allowance>,
}

impl Eye {
    fn open(kit: &mut Kit, number: u64, terms: Terms, limits: &Limits) -> Self {
        let (ends, readers, allowance) = capture_point(number, terms, limits, kit.workers.len());
        for (worker, end) in kit.workers.iter_mut().zip(ends) {
            worker.look_out(Box::new(end)).expect("a place");
        }
        Self { readers, allowance }
    }

    fn on(kit: &mut Kit, terms: Terms) -> Self {
        Self::open(kit, 1, terms, &LIMITS)
    }

    /// What was caught since: the catch, and its bytes as they came and as they left.
    fn seen(&mut self) -> Vec<(Catch, Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        for reader in &mut self.readers {
            let (mut received, mut sent) = (Vec::new(), Vec::new());
            while let Some(catch) = reader.next(&mut received, &mut sent) {
                all.push((catch, received.clone(), sent.clone()));
            }
        }
        all
    }
}

fn question(port: u16) -> MemFrame {
    udp((CLIENT, port), (VIP, 53))
}

#[test]
fn a_packet_is_seen_as_it_came_and_as_it_left_with_what_was_decided() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let mut eye = Eye::on(&mut kit, everything());
    kit.put(0, FRONT, question(4000));
    kit.turn(0);
    let out = kit.sent(0, BACK).remove(0);
    let (catch, received, sent) = eye.seen().remove(0);
    assert_eq!((&received[..], &sent[..]), (question(4000).bytes(), out.bytes()));
    assert_eq!((catch.came, catch.port, catch.sent_by), (Came::Line, FRONT, Some(BACK)));
    assert_eq!((catch.verdict, catch.lost), (Some(Verdict::Tx(BACK)), None));
    let view = catch.view.expect("an IP packet");
    assert_eq!((view.service, view.session), (Some(ServiceId(0)), None));
    assert!(catch.opened);
    let session = catch.session.expect("a session");
    let (local, real) = addresses(&out);
    assert_eq!(session.direction, Direction::Inbound);
    assert_eq!(session.session.local, Some((local.0.into(), local.1)));
    assert_eq!(session.session.real, (real.0.into(), real.1));
    assert_eq!(catch.sent_to, Some(([2, 0, 0, 0, 1, 11], 0)));
    let left = catch.sent_headers.expect("headers").tuple;
    assert_eq!(((left.src, left.sport), (left.dst, left.dport)), {
        ((local.0.into(), local.1), (real.0.into(), real.1))
    });
    // The answer has a session, which it did not open.
    kit.put(0, BACK, udp((REAL, 53), (LOCAL, local.1)));
    kit.turn(0);
    let (catch, ..) = eye.seen().remove(0);
    let known = catch.view.and_then(|view| view.session).expect("a session");
    assert_eq!((known.direction, catch.opened), (Direction::Outbound, false));
    assert_eq!(catch.view.and_then(|view| view.pool), Some((0, Some(0))));
}

#[test]
fn only_what_fits_in_a_form_that_is_looked_at_is_seen() {
    let caught = |terms: Terms, frame: MemFrame| {
        let mut kit = Kit::new(1, &[1, 1], true);
        let mut eye = Eye::on(&mut kit, terms);
        kit.put(0, FRONT, frame);
        kit.turn(0);
        eye.seen().len()
    };
    let to = |program, form| Terms { program, form, ..everything() };
    assert_eq!(caught(to(to_port(53), None), question(1)), 1);
    assert_eq!(caught(to(to_port(54), None), question(1)), 0);
    // As it leaves it comes from the local address.
    let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let from_local = [
        op(0x20, 0, 0, 26),
        op(0x15, 0, 1, u32::from_be_bytes(LOCAL)),
        op(0x06, 0, 0, 1),
        op(0x06, 0, 0, 0),
    ];
    let from_local = || Some(Program::new(&from_local).unwrap());
    assert_eq!(caught(to(from_local(), None), question(1)), 1);
    assert_eq!(caught(to(from_local(), Some(Form::Sent)), question(1)), 1);
    assert_eq!(caught(to(from_local(), Some(Form::Received)), question(1)), 0);
    assert_eq!(caught(to(to_port(53), Some(Form::Received)), question(1)), 1);
    let with = |change: &dyn Fn(&mut Terms)| {
        let mut terms = everything();
        change(&mut terms);
        caught(terms, question(1))
    };
    assert_eq!(with(&|terms| terms.service = Some(ServiceId(0))), 1);
    assert_eq!(with(&|terms| terms.service = Some(ServiceId(1))), 0);
    assert_eq!(with(&|terms| terms.real = Some((REAL.into(), None))), 1);
    assert_eq!(with(&|terms| terms.real = Some((REAL.into(), Some(54)))), 0);
    assert_eq!(with(&|terms| terms.port = Some(BACK)), 1);
    assert_eq!(with(&|t| (t.port, t.form) = (Some(BACK), Some(Form::Received))), 0);
    assert_eq!(with(&|terms| terms.reasons = vec![Reason::NoRoute]), 0);
}

/// Drops in the path and behind it, and what is the kernel's, have their reasons.
#[test]
fn what_does_not_leave_is_seen_with_its_reason() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let terms = Terms { reasons: vec![Reason::NoKernelPath, Reason::TxFull], ..everything() };
    let mut eye = Eye::on(&mut kit, terms);
    kit.limit(0, BACK, 0);
    kit.put(0, FRONT, question(4000));
    kit.put(0, FRONT, udp((CLIENT, 4000), (VIP, 22)));
    kit.turn(0);
    let seen: Vec<_> = eye.seen().iter().map(|(catch, ..)| (catch.verdict, catch.lost)).collect();
    assert_eq!(
        seen,
        [
            (Some(Verdict::Tx(BACK)), Some(Reason::TxFull)),
            (Some(Verdict::Kernel(Reason::NotOurs)), Some(Reason::NoKernelPath)),
        ]
    );
    assert_eq!((kit.counted(0, Reason::TxFull), kit.counted(0, Reason::NoKernelPath)), (1, 1));
    let mut kit = Kit::with_twins(1, &[1, 1]);
    let mut eye = Eye::on(&mut kit, everything());
    let ssh = udp((CLIENT, 4000), (VIP, 22));
    kit.put(0, FRONT, ssh.clone());
    kit.put_by_twin(0, FRONT, ssh.clone());
    kit.turn(0);
    assert_eq!((kit.sent(0, FRONT).len(), kit.sent_by_twin(0, FRONT).len()), (1, 1));
    let seen = eye.seen();
    let came: Vec<_> = seen.iter().map(|(catch, ..)| (catch.came, catch.reason())).collect();
    assert_eq!(came, [(Came::Line, Some(Reason::NotOurs)), (Came::Kernel, None)]);
    assert_eq!((&seen[1].1[..], &seen[1].2[..]), (&[][..], ssh.bytes()));
}

#[test]
fn what_waits_for_a_neighbour_is_seen_again_when_it_leaves() {
    let mut kit = Kit::new(1, &[1, 1], false);
    let mut eye = Eye::on(&mut kit, everything());
    kit.put(0, FRONT, question(4000));
    kit.turn(0);
    let (catch, ..) = eye.seen().remove(0);
    assert_eq!(catch.verdict, Some(Verdict::Wait));
    let wanted =
        Waiting { lane: 0, link: sluice_director::fib::LinkId(1), next: REAL.into(), cut: None };
    assert_eq!(catch.waits, Some((wanted.link, wanted.next)));
    kit.publish_neighbours();
    let (catch, received, sent) = eye.seen().remove(0);
    assert_eq!((catch.came, catch.sent_by, received.len()), (Came::Held, Some(BACK), 0));
    assert_eq!(sent, kit.sent(0, BACK)[0].bytes());
}

#[test]
fn both_workers_tell_of_what_one_hands_to_the_other() {
    let mut kit = Kit::new(2, &[2, 2], true);
    kit.put(0, FRONT, question(4000));
    kit.turn(0);
    let (local, _) = addresses(&kit.sent(0, BACK)[0]);
    let mut eye = Eye::on(&mut kit, everything());
    kit.put(1, BACK, udp((REAL, 53), (LOCAL, local.1)));
    kit.turn(1);
    kit.turn(0);
    assert_eq!(kit.sent(0, FRONT).len(), 1);
    let mut seen = eye.seen();
    seen.sort_by_key(|(catch, ..)| catch.at_ns);
    let told: Vec<_> = seen.iter().map(|(c, ..)| (c.worker, c.came, c.verdict)).collect();
    assert_eq!(
        told,
        [
            (1, Came::Line, Some(Verdict::HandOff(0))),
            (0, Came::Handed(1), Some(Verdict::Tx(FRONT))),
        ]
    );
    assert_eq!(eye.allowance.packets(), LIMITS.packets - 1, "it is one packet");
}

/// The reader takes nothing: what has no room is counted, and everything is forwarded.
#[test]
fn a_slow_reader_holds_nobody_up() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let limits = Limits { ring_packets: 4, ..LIMITS };
    let mut eye = Eye::open(&mut kit, 1, everything(), &limits);
    for port in 0..40 {
        kit.put(0, FRONT, question(4000 + port));
    }
    kit.turn(0);
    assert_eq!(kit.sent(0, BACK).len(), 40);
    assert_eq!((eye.seen().len(), eye.allowance.lost()), (4, 36));
    // The same where bytes are short.
    let mut kit = Kit::new(1, &[1, 1], true);
    let limits = Limits { ring_bytes: 0, ..LIMITS };
    let mut eye = Eye::open(&mut kit, 1, Terms { snap: 50, ..everything() }, &limits);
    for port in 0..40 {
        kit.put(0, FRONT, question(4000 + port));
    }
    kit.turn(0);
    assert_eq!(kit.sent(0, BACK).len(), 40);
    let seen = eye.seen();
    assert_eq!((seen.len(), eye.allowance.lost()), (1, 39));
    assert_eq!((seen[0].1.len(), seen[0].2.len()), (50, 50));
    let received = seen[0].0.received.unwrap();
    assert_eq!((received.length, received.bytes), (50, 50));
}

#[test]
fn a_capture_point_ends_by_packets_bytes_time_and_when_nobody_reads() {
    let rounds = |limits: &Limits, terms: Terms, gone: bool| {
        let mut kit = Kit::new(2, &[2, 2], true);
        let mut eye = Eye::open(&mut kit, 7, terms, limits);
        if gone {
            eye.readers.clear();
        }
        for worker in [0, 1, 0, 1] {
            for port in 0..5 {
                kit.put(worker, FRONT, question(4000 + port));
            }
            kit.turn(worker);
        }
        let sent = kit.sent(0, BACK).len() + kit.sent(1, BACK).len();
        assert_eq!(sent, 20, "all of them leave");
        // Over or not, each worker gives its own back, once.
        for worker in &mut kit.workers {
            assert!(worker.look_away(7).is_some());
            assert!(worker.look_away(7).is_none());
        }
        eye.seen().len()
    };
    assert_eq!(rounds(&LIMITS, everything(), false), 20);
    assert_eq!(rounds(&Limits { packets: 7, ..LIMITS }, everything(), false), 7);
    // Each has 50 bytes, both ways.
    assert_eq!(rounds(&Limits { bytes: 399, ..LIMITS }, everything(), false), 3);
    let past = Terms { until: Instant::now(), ..everything() };
    assert_eq!(rounds(&LIMITS, past, false), 0);
    assert_eq!(rounds(&LIMITS, everything(), true), 0);
}

#[test]
fn there_are_only_so_many() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let mut eyes: Vec<_> =
        (0..CAPTURE_POINTS as u64).map(|n| Eye::open(&mut kit, n, everything(), &LIMITS)).collect();
    let (mut ends, ..) = capture_point(99, everything(), &LIMITS, 1);
    let refused = kit.workers[0].look_out(Box::new(ends.remove(0))).expect_err("no place");
    assert_eq!(refused.number(), 99);
    kit.put(0, FRONT, question(4000));
    kit.turn(0);
    assert!(eyes.iter_mut().all(|eye| eye.seen().len() == 1), "all see it");
    assert_eq!(kit.workers[0].look_away(2).map(|end| end.number()), Some(2));
    kit.put(0, FRONT, question(4000));
    kit.turn(0);
    let seen: Vec<_> = eyes.iter_mut().map(|eye| eye.seen().len()).collect();
    assert_eq!(seen, [1, 1, 0, 1]);
}

/// What is looked at goes the way it goes when nobody looks: the same frames leave in the same
/// order, and the same is counted.
#[test]
fn looking_changes_nothing() {
    let run = |look: bool, workers: u16| {
        let mut kit = Kit::new(workers, &[workers, workers], true);
        let mut eye = look.then(|| Eye::on(&mut kit, everything()));
        let mut sent = Vec::new();
        for round in 0..6u16 {
            for worker in 0..workers {
                for n in 0..50u16 {
                    let client = 4000 + n % 17 + round;
                    let frame = match n % 7 {
                        0 => udp((CLIENT, client), (VIP, 22)),
                        1 => udp((REAL, 53), (LOCAL, 1024 + n * 700)),
                        2 => udp(([127, 0, 0, 1], client), (VIP, 53)),
                        _ => question(client),
                    };
                    kit.put(worker, FRONT, frame);
                }
                kit.turn(worker);
            }
            kit.settle();
            for worker in 0..workers {
                sent.push((kit.sent(worker, FRONT), kit.sent(worker, BACK)));
            }
        }
        let counted = kit.workers.iter().map(|w| w.path().counters().clone());
        let counted: Vec<_> = counted.collect();
        let seen = eye.as_mut().map_or(0, |eye| eye.seen().len() as u64 + eye.allowance.lost());
        (sent, counted, seen)
    };
    for workers in [1, 2] {
        let (sent, counted, _) = run(false, workers);
        let (sent_seen, counted_seen, seen) = run(true, workers);
        assert_eq!(sent, sent_seen);
        assert_eq!(counted, counted_seen);
        let handed: u64 = counted.iter().map(|c| c.handed_off).sum();
        assert_eq!(seen, 300 * u64::from(workers) + handed, "all were seen");
    }
}

/// A worker that is looked at allocates nothing either.
#[test]
fn nothing_is_allocated_while_somebody_looks() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let mut eye = Eye::on(&mut kit, everything());
    let mut run = || {
        (0..30).for_each(|port| kit.put(0, FRONT, question(4000 + port)));
        let counted = allocation_counter::measure(|| kit.turn(0));
        kit.sent(0, BACK);
        counted.count_total
    };
    run();
    assert_eq!(run(), 0);
    assert_eq!(eye.seen().len(), 60);
}
