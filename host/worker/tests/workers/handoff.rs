//! Frames that the wrong worker received, many of them: they join the bursts of the right one.

use crate::memory::{BACK, CLIENT, FRONT, Kit, LOCAL, MemFrame, REAL, VIP, addresses, udp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_director::Frame;
use sluice_director::fib::PortId;
use sluice_director::path::BURST;
use std::collections::BTreeMap;

/// Where the payload ends that tells frames apart.
const NUMBER: usize = 46;

/// Opens sessions of a worker from so many of a client's ports on; gives their local ports.
fn open(kit: &mut Kit, worker: u16, ports: std::ops::Range<u16>) -> Vec<u16> {
    ports.clone().for_each(|port| kit.put(worker, FRONT, udp((CLIENT, port), (VIP, 53))));
    kit.turn(worker);
    let sent = kit.sent(worker, BACK);
    assert_eq!(sent.len(), ports.len());
    sent.iter().map(|frame| addresses(frame).0.1).collect()
}

/// An answer to a local port with a number.
fn answer(local: u16, number: u32) -> MemFrame {
    let mut frame = udp((REAL, 53), (LOCAL, local));
    frame.bytes_mut()[NUMBER - 4..NUMBER].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Client ports and numbers of what a worker has sent by a port.
fn sent(kit: &mut Kit, worker: u16, port: PortId) -> Vec<(u16, u32)> {
    let number = |frame: &MemFrame| frame.bytes()[NUMBER - 4..NUMBER].try_into().unwrap();
    let sent = kit.sent(worker, port);
    sent.iter().map(|f| (addresses(f).1.1, u32::from_be_bytes(number(f)))).collect()
}

/// All come out at their owners, in order, whether they were found before the burst or in it, and
/// whether or not there was a burst to join.
#[test]
fn strays_keep_their_order() {
    let mut kit = Kit::new(2, &[2, 2], true);
    let locals = [open(&mut kit, 0, 4000..4020), open(&mut kit, 1, 5000..5020)];
    let mut came: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    let (mut number, mut misdirected) = (0, [0, 0]);
    for turn in 0..60 {
        for worker in 0..2u16 {
            // From none to all of them wrong; every few turns nothing comes, or two full bursts.
            let count = [64, 20, 0, 128][turn / 3 % 4];
            for at in 0..count {
                let own = at % 7 >= turn % 8;
                let owner = usize::from(if own { worker } else { 1 - worker });
                misdirected[usize::from(worker)] += u64::from(!own);
                kit.put(worker, BACK, answer(locals[owner][at % 20], number));
                number += 1;
            }
            kit.turn(worker);
        }
    }
    for worker in (0..2).cycle().take(40) {
        kit.turn(worker);
    }
    for worker in 0..2u16 {
        for (client, number) in sent(&mut kit, worker, FRONT) {
            assert_eq!(client / 1000, 4 + worker, "it came out at its owner");
            came.entry(client).or_default().push(number);
        }
        let counters = kit.workers[usize::from(worker)].path().counters();
        assert_eq!(counters.handed_off, misdirected[usize::from(worker)]);
    }
    assert_eq!(came.values().map(Vec::len).sum::<usize>(), number as usize);
    // What one worker receives of a flow stays in order; what both do has none.
    for numbers in came.values() {
        let of = |worker: bool| numbers.iter().filter(move |n| by(**n) == worker);
        assert!(of(false).is_sorted() && of(true).is_sorted(), "{numbers:?}");
    }

    /// Which worker received a frame.
    fn by(number: u32) -> bool {
        let (mut first, mut turn) = (0, 0);
        loop {
            let count = [64, 20, 0, 128][turn / 3 % 4];
            if number < first + 2 * count {
                return number >= first + count;
            }
            (first, turn) = (first + 2 * count, turn + 1);
        }
    }
}

/// Who sleeps is woken by what it is handed, in the turn after that, whether it was found in a
/// burst, as the first is, or before it.
#[test]
fn strays_wake_their_owner() {
    let mut kit = Kit::new(2, &[2, 2], true);
    let locals = open(&mut kit, 0, 4000..4001);
    let is_woken = |kit: &Kit| {
        let mut fds = [PollFd::new(&kit.wakes[0], PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    };
    for round in 0..4 {
        kit.wakes[0].about_to_sleep();
        kit.turn(1);
        assert!(!is_woken(&kit), "there is nothing for it yet");
        (0..3).for_each(|at| kit.put(1, BACK, answer(locals[0], at)));
        kit.turn(1);
        kit.turn(1);
        assert!(is_woken(&kit), "round {round}");
        kit.wakes[0].awake();
        assert!(!is_woken(&kit));
        (0..6).for_each(|_| kit.turn(0));
        assert_eq!(sent(&mut kit, 0, FRONT).len(), 3);
    }
}

/// While bursts are full a misdirected packet waits, but not for long.
#[test]
fn a_stray_is_not_kept_waiting_by_full_bursts() {
    let mut kit = Kit::new(2, &[2, 2], true);
    let locals = open(&mut kit, 0, 4000..4001);
    kit.put(1, BACK, answer(locals[0], 1));
    kit.turn(1);
    let mut turns = 0;
    while !sent(&mut kit, 0, FRONT).contains(&(4000, 1)) {
        (0..BURST).for_each(|_| kit.put(0, BACK, answer(locals[0], 0)));
        kit.turn(0);
        turns += 1;
        assert!(turns < 10, "it waits for ever");
    }
    assert!(turns > 1, "it went ahead of a full burst");
}

/// What comes by a port that its owner has no queue of has no burst to join, and does not wait.
#[test]
fn strays_of_a_port_without_a_queue_do_not_wait() {
    let mut kit = Kit::new(2, &[2, 1], true);
    kit.put(1, FRONT, udp((CLIENT, 4000), (VIP, 53)));
    kit.turn(1);
    kit.turn(0);
    let local = addresses(&kit.sent(0, BACK)[0]).0.1;
    for round in 0..5 {
        (0..40).for_each(|at| kit.put(0, BACK, answer(local, round * 40 + at)));
        kit.turn(0);
        (0..BURST).for_each(|_| kit.put(1, FRONT, udp((CLIENT, 4000), (VIP, 53))));
        kit.turn(1);
        let came: Vec<_> = sent(&mut kit, 1, FRONT).iter().map(|(_, number)| *number).collect();
        assert_eq!(came, (round * 40..round * 40 + 40).collect::<Vec<_>>());
    }
}
