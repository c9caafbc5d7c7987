//! Workers over queues in memory: what comes in by which queue goes out by which, between
//! workers too, and nothing is allocated on the way.

use crate::memory::{BACK, CLIENT, FRONT, Kit, LOCAL, REAL, VIP, addresses, udp};
use sluice_director::Reason;
use sluice_worker::{Event, Message};
use std::sync::mpsc::channel;

#[test]
fn there_and_back() {
    let mut kit = Kit::new(1, &[1, 1], true);
    kit.put(0, FRONT, udp((CLIENT, 4000), (VIP, 53)));
    kit.turn(0);
    let sent = kit.sent(0, BACK);
    assert_eq!(sent.len(), 1);
    let (from, to) = addresses(&sent[0]);
    assert_eq!((from.0, to), (LOCAL, (REAL, 53)));
    kit.put(0, BACK, udp((REAL, 53), (LOCAL, from.1)));
    kit.turn(0);
    assert_eq!(addresses(&kit.sent(0, FRONT)[0]), ((VIP, 53), (CLIENT, 4000)));
}

/// The answer arrives at the worker that does not own the session.
#[test]
fn strays_reach_their_owner() {
    let mut kit = Kit::new(2, &[2, 2], true);
    for owner in 0..2u16 {
        let wrong = 1 - owner;
        kit.put(owner, FRONT, udp((CLIENT, 4000 + owner), (VIP, 53)));
        kit.turn(owner);
        let (local, _) = addresses(&kit.sent(owner, BACK)[0]);
        kit.put(wrong, BACK, udp((REAL, 53), (LOCAL, local.1)));
        kit.turn(wrong);
        assert!(kit.sent(wrong, FRONT).is_empty());
        kit.turn(owner);
        let answer = kit.sent(owner, FRONT);
        assert_eq!(addresses(&answer[0]), ((VIP, 53), (CLIENT, 4000 + owner)));
        assert_eq!(kit.workers[usize::from(wrong)].path().counters().handed_off, 1);
    }
}

/// A port with one queue and two workers: the second worker sends by the first one's queue.
#[test]
fn a_worker_without_a_queue_sends_by_another() {
    let mut kit = Kit::new(2, &[2, 1], true);
    kit.put(1, FRONT, udp((CLIENT, 4000), (VIP, 53)));
    kit.turn(1);
    kit.turn(0);
    let sent = kit.sent(0, BACK);
    assert_eq!(sent.len(), 1);
    let (local, _) = addresses(&sent[0]);
    kit.put(0, BACK, udp((REAL, 53), (LOCAL, local.1)));
    kit.turn(0);
    kit.turn(1);
    assert_eq!(addresses(&kit.sent(1, FRONT)[0]), ((VIP, 53), (CLIENT, 4000)));
}

/// A port with two queues and one worker: both are served.
#[test]
fn a_worker_serves_several_queues_of_a_port() {
    let mut kit = Kit::new(1, &[1, 1], true);
    let second = kit.second_queue(0, FRONT);
    second.put(udp((CLIENT, 4000), (VIP, 53)));
    kit.put(0, FRONT, udp((CLIENT, 4001), (VIP, 53)));
    kit.turn(0);
    assert_eq!(kit.sent(0, BACK).len(), 2);
    assert_eq!(kit.workers[0].detach(FRONT).len(), 2);
}

#[test]
fn the_kernels_frames_go_by_the_twin() {
    let mut kit = Kit::with_twins(1, &[1, 1]);
    let ssh = udp((CLIENT, 4000), (VIP, 22));
    kit.put(0, FRONT, ssh.clone());
    kit.turn(0);
    assert_eq!(kit.sent_by_twin(0, FRONT), std::slice::from_ref(&ssh));
    kit.put_by_twin(0, FRONT, ssh.clone());
    kit.turn(0);
    assert_eq!(kit.sent(0, FRONT), std::slice::from_ref(&ssh));
    let mut kit = Kit::new(1, &[1, 1], true);
    kit.put(0, FRONT, ssh);
    kit.turn(0);
    assert_eq!(kit.workers[0].path().counters().of(Reason::NoKernelPath), 1);
}

#[test]
fn frames_wait_for_their_neighbour() {
    let mut kit = Kit::new(1, &[1, 1], false);
    kit.put(0, FRONT, udp((CLIENT, 4000), (VIP, 53)));
    kit.turn(0);
    assert!(kit.sent(0, BACK).is_empty());
    let Ok(Event::Resolve(_, _, wanted)) = kit.events.try_recv() else { panic!("nobody asked") };
    assert_eq!(wanted, std::net::IpAddr::from(REAL));
    kit.turn(0);
    assert!(kit.events.try_recv().is_err(), "asked again too soon");
    kit.publish_neighbours();
    assert_eq!(kit.sent(0, BACK).len(), 1, "at once: the next turn may be a sleep away");
}

#[test]
fn frames_do_not_wait_for_ever() {
    let mut kit = Kit::new(1, &[1, 1], false);
    kit.put(0, FRONT, udp((CLIENT, 4000), (VIP, 53)));
    kit.turn(0);
    kit.now.0 += 3100;
    kit.turn(0);
    assert_eq!(kit.workers[0].path().counters().of(Reason::Unresolved), 1);
    kit.publish_neighbours();
    kit.turn(0);
    assert!(kit.sent(0, BACK).is_empty());
}

#[test]
fn a_queue_that_is_full_is_counted_and_a_port_that_is_gone_too() {
    let mut kit = Kit::new(1, &[1, 1], true);
    kit.limit(0, BACK, 0);
    kit.put(0, FRONT, udp((CLIENT, 4000), (VIP, 53)));
    kit.turn(0);
    assert_eq!(kit.workers[0].path().counters().of(Reason::TxFull), 1);
    assert_eq!(kit.workers[0].detach(BACK).len(), 1);
    kit.put(0, FRONT, udp((CLIENT, 4000), (VIP, 53)));
    kit.turn(0);
    assert_eq!(kit.workers[0].path().counters().of(Reason::PortGone), 1);
}

/// The loop itself: it answers, lists sessions, sleeps, wakes, ends.
#[test]
fn the_loop_obeys() {
    let mut kit = Kit::new(1, &[1, 1], true);
    kit.put(0, FRONT, udp((CLIENT, 4000), (VIP, 53)));
    let running = kit.run(0);
    let report = || {
        let (reply, answer) = channel();
        assert!(running.inbox.send(Message::Report(reply)));
        answer.recv().expect("a report")
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while report().sleeps < 3 {
        assert!(std::time::Instant::now() < deadline, "an idle worker goes to sleep");
    }
    assert_eq!((report().sessions, report().packets), (1, 1));
    let (reply, answer) = channel();
    running.inbox.send(Message::Sessions { filter: Default::default(), cursor: 0, reply });
    let (sessions, more) = answer.recv().expect("sessions");
    assert_eq!((sessions.len(), more), (1, None));
    assert_eq!(sessions[0].client, (CLIENT.into(), 4000));
    let (reply, answer) = channel();
    running.inbox.send(Message::Detach(FRONT, reply));
    assert_eq!(answer.recv(), Ok(0));
    running.inbox.send(Message::Stop);
    running.thread.join().expect("the loop ends in order");
}

/// After the tables are there, packets of new and old sessions, misdirected packets and drops need
/// no memory.
#[test]
fn nothing_is_allocated_for_a_packet() {
    let mut kit = Kit::new(2, &[2, 2], true);
    let warm_up = |kit: &mut Kit, port| {
        kit.put(0, FRONT, udp((CLIENT, port), (VIP, 53)));
        kit.put(1, BACK, udp((REAL, 53), (LOCAL, 1024)));
        kit.put(0, FRONT, udp((CLIENT, port), (VIP, 22)));
    };
    warm_up(&mut kit, 4000);
    kit.turn(1);
    kit.turn(0);
    for port in 4001..4020 {
        warm_up(&mut kit, port);
        let used = allocation_counter::measure(|| {
            kit.turn(1);
            kit.turn(0);
        });
        assert_eq!(used.count_total, 0, "port {port}");
        kit.sent(0, BACK);
        kit.sent(0, FRONT);
    }
    assert_eq!(kit.workers[0].path().live_sessions(), 20);
}
