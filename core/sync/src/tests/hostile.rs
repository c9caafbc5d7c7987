//! Peers and networks that mean ill.

use super::world::{Node, Random, Seen, World, ms, settings};
use crate::seal::HEADER;
use crate::{Counters, Destination, Endpoint, Event};
use std::time::Duration;

/// Gives recorded datagrams of node 0 to node 1 once more, and what it counted since.
fn replay(world: &mut World, record: &[Seen]) -> Counters {
    let before = world.nodes[1].end.status(world.now).counters;
    for seen in record.iter().filter(|seen| (seen.from, seen.to) == (0, 1)) {
        world.nodes[1].end.handle(world.now, 0, &seen.bytes);
        world.run(Duration::from_micros(100));
    }
    let after = world.nodes[1].end.status(world.now).counters;
    Counters {
        rejected_key: after.rejected_key - before.rejected_key,
        rejected_tag: after.rejected_tag - before.rejected_tag,
        rejected_replay: after.rejected_replay - before.rejected_replay,
        rejected_start: after.rejected_start - before.rejected_start,
        records_received: after.records_received - before.records_received,
        ..Counters::default()
    }
}

/// Two directors, and all that the first one ever sent while it gave a thousand records.
fn recorded() -> (World, Vec<Seen>) {
    let mut world = World::new(2);
    world.record = Some(Vec::new());
    let mut world = world.settled();
    world.nodes[0].feed = (0..1000).collect();
    world.run(ms(1000));
    assert_eq!(world.nodes[1].got.len(), 1000);
    let record = world.record.take().unwrap();
    assert!(record.len() > 30);
    (world, record)
}

fn of_node_0(record: &[Seen]) -> u64 {
    record.iter().filter(|seen| seen.from == 0).count() as u64
}

#[test]
fn a_recording_of_the_same_start_brings_nothing() {
    let (mut world, record) = recorded();
    let counted = replay(&mut world, &record);
    assert_eq!(counted.rejected_replay, of_node_0(&record));
    assert_eq!((counted.records_received, world.nodes[1].got.len()), (0, 1000));
    assert!(world.nodes[1].events.is_empty(), "{:?}", world.nodes[1].events);
}

#[test]
fn a_recording_of_a_former_start_brings_nothing() {
    let (mut world, record) = recorded();
    world.nodes[0] = Node::new(settings(50, 1));
    world.run(ms(1000));
    assert_eq!(world.nodes[1].end.status(world.now).peers[0].name, "director 50");
    world.nodes[1].events.clear();
    let counted = replay(&mut world, &record);
    assert_eq!(counted.rejected_start, of_node_0(&record));
    world.run(ms(1000));
    assert_eq!((counted.records_received, world.nodes[1].got.len()), (0, 1000));
    assert!(world.nodes[1].events.is_empty(), "{:?}", world.nodes[1].events);
    assert!(world.nodes[1].end.status(world.now).peers[0].up);
}

#[test]
fn a_recording_brings_nothing_to_one_that_remembers_no_former_start() {
    let (mut world, record) = recorded();
    // Neither has the recording's start in mind, and the genuine peer is away.
    world.nodes[1] = Node::new(settings(60, 1));
    world.cut = true;
    world.run(ms(4000));
    let counted = replay(&mut world, &record);
    assert_eq!((counted.records_received, world.nodes[1].got.len()), (0, 0));
    assert!(counted.rejected_start > 30, "{counted:?}");
    assert_eq!(world.nodes[1].events, [Event::Synchronised { peer: None }]);
    assert!(!world.nodes[1].end.status(world.now).peers[0].up);
    // And does not keep the genuine one out.
    world.cut = false;
    world.nodes[0] = Node::new(settings(61, 1));
    world.run(ms(500));
    assert_eq!(world.nodes[1].end.status(world.now).peers[0].name, "director 61");
}

#[test]
fn a_recording_of_a_start_long_gone_brings_nothing() {
    let (mut world, record) = recorded();
    // More than are kept in mind.
    for number in 100..112 {
        world.nodes[0] = Node::new(settings(number, 1));
        world.run(ms(500));
    }
    world.nodes[1].events.clear();
    let counted = replay(&mut world, &record);
    assert_eq!((counted.records_received, world.nodes[1].got.len()), (0, 1000));
    // The first Hello echoed nothing yet, as that of a new start.
    assert!(counted.rejected_start >= of_node_0(&record) - 2, "{counted:?}");
    assert!(world.nodes[1].events.is_empty(), "{:?}", world.nodes[1].events);
    assert_eq!(world.nodes[1].end.status(world.now).peers[0].name, "director 111");
}

#[test]
fn answers_to_recordings_are_limited() {
    let (mut world, record) = recorded();
    world.nodes[1] = Node::new(settings(60, 1));
    world.cut = true;
    world.run(ms(4000));
    let before = world.nodes[1].end.status(world.now).counters.sent;
    let start = world.now;
    for _ in 0..20 {
        replay(&mut world, &record);
    }
    let seconds = (world.now - start).as_secs_f64();
    let sent = world.nodes[1].end.status(world.now).counters.sent - before;
    assert!((sent as f64) < 25.0 * seconds + 5.0, "{sent} in {seconds} s");
}

#[test]
fn one_with_another_key_gets_nothing_in() {
    let (mut world, record) = recorded();
    let mut other = settings(70, 1);
    other.keys = vec![[2; 32]];
    let mut forger = Endpoint::new(other).unwrap();
    let mut buffer = Vec::new();
    let id = record[0].bytes[3..7].to_vec();
    for step in 0..20 {
        assert_eq!(forger.poll_transmit(ms(100 * step), &mut buffer), Some(Destination::Peer(0)));
        world.nodes[1].end.handle(world.now, 0, &buffer);
        buffer[3..7].copy_from_slice(&id);
        world.nodes[1].end.handle(world.now, 0, &buffer);
        // As if of the start that is accepted.
        buffer[7..23].copy_from_slice(&record[0].bytes[7..23]);
        buffer[23..31].copy_from_slice(&(1 << 40 | step).to_be_bytes());
        world.nodes[1].end.handle(world.now, 0, &buffer);
    }
    let counters = world.nodes[1].end.status(world.now).counters;
    assert_eq!((counters.rejected_key, counters.rejected_tag), (20, 40));
    // The replay window has not moved.
    world.nodes[0].feed = (1000..1100).collect();
    world.run(ms(3000));
    assert_eq!(world.nodes[1].got.len(), 1100);
    assert!(world.nodes[1].events.is_empty());
}

#[test]
fn what_comes_back_from_the_network_is_not_a_peer() {
    let (mut world, record) = recorded();
    let before = world.nodes[0].end.status(world.now).counters.rejected_start;
    for seen in record.iter().filter(|seen| seen.from == 0) {
        world.nodes[0].end.handle(world.now, 0, &seen.bytes);
    }
    let counters = world.nodes[0].end.status(world.now).counters;
    assert_eq!(counters.rejected_start - before, of_node_0(&record));
    assert_eq!(counters.records_received, 0);
}

#[test]
fn an_acknowledgement_counts_only_for_whom_it_is() {
    let mut world = World::new(3).settled();
    world.record = Some(Vec::new());
    // Node 2 acknowledges much to node 0 and nothing to node 1.
    world.nodes[0].feed = (0..5000).collect();
    world.run(ms(500));
    let record = world.record.take().unwrap();
    world.cut = true;
    world.nodes[1].feed = (0..3000).collect();
    world.run(ms(20));
    let lag = |world: &World| world.nodes[1].end.status(world.now).peers[1].unacknowledged;
    let before = lag(&world);
    assert!(before > 10);
    for seen in record.iter().filter(|seen| (seen.from, seen.to) == (2, 0)) {
        world.nodes[1].end.handle(world.now, 1, &seen.bytes);
    }
    assert_eq!(lag(&world), before);
}

#[test]
fn a_start_is_one_peer_only() {
    let mut world = World::new(3);
    world.record = Some(Vec::new());
    let mut world = world.settled();
    let record = world.record.take().unwrap();
    let before = world.nodes[1].end.status(world.now).counters.rejected_start;
    // What node 0 says, as if node 2 said it.
    let passed = record.iter().filter(|seen| (seen.from, seen.to) == (0, 1)).count();
    for seen in record.iter().filter(|seen| (seen.from, seen.to) == (0, 1)) {
        world.nodes[1].end.handle(world.now, 1, &seen.bytes);
    }
    let counters = world.nodes[1].end.status(world.now).counters;
    assert_eq!(counters.rejected_start - before, passed as u64);
}

#[test]
fn random_bytes_do_nothing() {
    let (mut world, record) = recorded();
    let mut random = Random(3);
    for round in 0..20_000 {
        let mut bytes: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
        // Half of them with a header as it should be.
        if round % 2 == 0 {
            let head = &record[random.below(record.len() as u64) as usize].bytes[..HEADER];
            bytes.splice(0..0, head.iter().copied());
        }
        world.nodes[1].end.handle(world.now, random.below(3) as usize, &bytes);
    }
    world.run(ms(10));
    assert_eq!(world.nodes[1].got.len(), 1000);
    assert!(world.nodes[1].events.is_empty());
}

#[test]
fn flipped_bits_are_noticed() {
    let mut world = World::new(2).settled();
    world.record = Some(Vec::new());
    world.cut = true;
    world.nodes[0].feed = (0..200).collect();
    world.run(ms(1200));
    let record = world.record.take().unwrap();
    let mut random = Random(4);
    let fresh: Vec<_> = record.iter().filter(|seen| seen.from == 0).collect();
    for seen in &fresh {
        for at in 0..seen.bytes.len() {
            let mut bytes = seen.bytes.clone();
            bytes[at] ^= 1 << random.below(8);
            world.nodes[1].end.handle(world.now, 0, &bytes);
            bytes = seen.bytes[..at].to_vec();
            world.nodes[1].end.handle(world.now, 0, &bytes);
        }
    }
    world.run(ms(1));
    assert!(world.nodes[1].got.is_empty() && world.nodes[1].events.is_empty());
    assert_eq!(world.nodes[1].end.status(world.now).counters.records_received, 0);
    // As they were, they are good.
    for seen in &fresh {
        world.nodes[1].end.handle(world.now, 0, &seen.bytes);
    }
    world.run(ms(1));
    assert_eq!(world.nodes[1].from(0), (0..200).collect::<Vec<_>>());
}
