//! Endpoints that mean well, over a network that is not perfect.

use super::world::{Node, Seen, World, ms, settings};
use crate::seal::HEADER;
use crate::{Event, Settings};

fn numbers(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

#[test]
fn everything_arrives_in_order_and_once() {
    for seed in 1..=3 {
        let mut world = World::new(2).faulty(seed).settled();
        world.nodes[0].feed = (0..20_000).collect();
        world.nodes[1].feed = (50_000..65_000).collect();
        world.until(ms(30_000), |nodes| {
            nodes[1].got.len() >= 20_000 && nodes[0].got.len() >= 15_000
        });
        world.run(ms(2000));
        assert!(world.nodes[1].from(0) == numbers(0..20_000), "seed {seed}");
        assert!(world.nodes[0].from(0) == numbers(50_000..65_000), "seed {seed}");
        let status = world.nodes[0].end.status(world.now);
        assert!(status.counters.repaired > 0 && status.counters.lost == 0, "{status:?}");
        assert_eq!(status.counters.rejected_tag + status.counters.rejected_malformed, 0);
        assert_eq!((status.peers[0].unacknowledged, status.peers[0].lag), (0, ms(0)));
        assert_eq!(world.nodes[0].count(|it| matches!(it, Event::PeerDown { .. })), 0);
    }
}

#[test]
fn three_share_one_stream() {
    let mut world = World::new(3).faulty(9).settled();
    for (index, node) in world.nodes.iter_mut().enumerate() {
        node.feed = (index as u32 * 10_000..index as u32 * 10_000 + 5000).collect();
    }
    world.run(ms(15_000));
    for (index, node) in world.nodes.iter().enumerate() {
        for other in (0..3u32).filter(|other| *other as usize != index) {
            let came = node.from(World::peer(index, other as usize));
            assert!(came == numbers(other * 10_000..other * 10_000 + 5000), "{other} to {index}");
        }
        assert_eq!(node.end.status(world.now).counters.records_sent, 5000);
    }
}

#[test]
fn a_new_director_pulls_a_hundred_thousand_records() {
    let mut world = World::new(2).faulty(4).settled();
    world.nodes[0].table = (0..100_000).collect();
    world.nodes[1] = Node::new(settings(20, 1));
    world.until(ms(60_000), |nodes| nodes[1].end.synchronised());
    let node = &world.nodes[1];
    assert!(node.from(0) == numbers(0..100_000), "{}", node.got.len());
    assert_eq!(node.events.last(), Some(&Event::Synchronised { peer: Some(0) }));
    assert_eq!(node.end.status(world.now).pull_records, 100_000);
    assert_eq!(world.nodes[0].count(|it| matches!(it, Event::Pull { .. })), 1);
}

/// What takes long to arrive has been idle for longer than it says.
#[test]
fn what_was_held_up_is_told_with_its_age() {
    let mut world = World::new(2).settled();
    world.nodes[0].feed = (0..100).collect();
    world.run(ms(500));
    assert!(world.nodes[1].oldest_ms <= 5, "{}", world.nodes[1].oldest_ms);
    world.cut = true;
    world.nodes[0].feed = (100..200).collect();
    world.run(ms(1500));
    world.cut = false;
    world.run(ms(2000));
    assert!(world.nodes[1].from(0) == numbers(0..200));
    let oldest = world.nodes[1].oldest_ms;
    assert!((1500..2600).contains(&oldest), "{oldest}");
}

/// What one has told before this one was there may not have arrived at another yet.
#[test]
fn a_new_director_asks_all_in_the_end() {
    let mut world = World::new(3).settled();
    world.nodes[0].table = (0..100).collect();
    world.nodes[1].table = (100..200).collect();
    world.nodes[2] = Node::new(settings(20, 2));
    world.until(ms(10_000), |nodes| nodes[2].end.synchronised());
    world.run(ms(2000));
    assert!(world.nodes[2].from(0) == numbers(0..100));
    assert!(world.nodes[2].from(1) == numbers(100..200));
}

#[test]
fn changes_during_a_pull_come_too() {
    let mut world = World::new(3).faulty(5).settled();
    world.nodes[0].table = (0..30_000).collect();
    world.nodes[1].table = (0..30_000).collect();
    world.nodes[2] = Node::new(settings(20, 2));
    world.until(ms(5000), |nodes| !nodes[2].got.is_empty());
    world.nodes[0].feed = (30_000..35_000).collect();
    world.nodes[1].feed = (40_000..45_000).collect();
    world.until(ms(60_000), |nodes| nodes[2].end.synchronised());
    world.run(ms(5000));
    let mut came: Vec<u32> = world.nodes[2].got.iter().map(|(_, number)| *number).collect();
    came.sort_unstable();
    came.dedup();
    let all = [numbers(0..35_000), numbers(40_000..45_000)].concat();
    assert!(came == all, "{} of {}", came.len(), all.len());
}

#[test]
fn two_that_start_together_do_not_wait_for_each_other() {
    let mut world = World::new(2).faulty(6);
    world.until(ms(6000), |nodes| nodes.iter().all(|node| node.end.synchronised()));
    for node in &world.nodes {
        assert_eq!(node.count(|it| *it == Event::Synchronised { peer: Some(0) }), 1);
        let up = Event::PeerUp { peer: 0, name: node.end.status(world.now).peers[0].name.clone() };
        assert_eq!(node.events[0], up);
    }
}

#[test]
fn one_without_peers_that_answer_is_synchronised_after_a_while() {
    let mut world = World::new(2);
    world.cut = true;
    world.run(ms(2900));
    assert!(!world.nodes[0].end.synchronised());
    world.run(ms(200));
    assert_eq!(world.nodes[0].events, [Event::Synchronised { peer: None }]);
}

#[test]
fn a_restart_is_noticed_and_pulled_from() {
    let mut world = World::new(2).settled();
    world.nodes[0].feed = (0..100).collect();
    world.run(ms(100));
    let former = world.nodes[1].from(0);
    assert_eq!(former, numbers(0..100));
    world.nodes[0].table = (0..1000).collect();
    world.nodes[1] = Node::new(settings(30, 1));
    world.nodes[1].table = vec![77_777];
    world.run(ms(500));
    let name = "director 30".to_owned();
    let events = &world.nodes[0].events;
    assert_eq!(events[0], Event::PeerDown { peer: 0 });
    assert_eq!(events[1], Event::PeerUp { peer: 0, name });
    assert_eq!(world.nodes[0].from(0), [77_777]);
    assert!(world.nodes[1].from(0) == numbers(0..1000));
    assert!(world.nodes[1].end.synchronised());
}

#[test]
fn a_short_partition_loses_nothing() {
    let mut world = World::new(2).faulty(7).settled();
    world.nodes[0].feed = (0..5000).collect();
    world.cut = true;
    world.run(ms(1000));
    world.cut = false;
    world.nodes[0].feed.extend(5000..10_000);
    world.run(ms(5000));
    assert!(world.nodes[1].from(0) == numbers(0..10_000));
    let counters = world.nodes[1].end.status(world.now).counters;
    assert_eq!(counters.lost, 0);
    assert_eq!(world.nodes[0].count(|it| matches!(it, Event::Pull { .. })), 0);
}

#[test]
fn a_long_partition_leads_to_a_pull() {
    let mut world = World::new(2).faulty(8).settled();
    world.cut = true;
    world.run(ms(4000));
    world.nodes[0].feed = (0..5000).collect();
    world.run(ms(6000));
    assert!(world.nodes[0].feed.is_empty(), "there is nobody to wait for");
    assert!(!world.nodes[0].end.status(world.now).peers[0].up);
    world.cut = false;
    world.nodes[0].table = (0..5000).collect();
    world.run(ms(5000));
    assert!(world.nodes[1].from(0) == numbers(0..5000));
    assert!(world.nodes[1].end.status(world.now).counters.lost > 0);
    let pulls = [0, 1].map(|it| world.nodes[it].count(|it| matches!(it, Event::Pull { .. })));
    assert_eq!(pulls, [1, 0], "only what missed something asks");
    assert!(world.nodes.iter().all(|node| node.end.synchronised()));
}

#[test]
fn a_long_partition_in_which_nothing_happened_needs_no_pull() {
    let mut world = World::new(2).settled();
    world.cut = true;
    world.run(ms(10_000));
    world.cut = false;
    world.run(ms(1000));
    world.nodes[0].feed = (0..100).collect();
    world.run(ms(1000));
    assert!(world.nodes[1].from(0) == numbers(0..100));
    assert_eq!(world.nodes[0].count(|it| matches!(it, Event::Pull { .. })), 0);
}

#[test]
fn what_meant_nothing_is_pulled_again_from_all() {
    let mut world = World::new(3).faulty(9).settled();
    world.nodes[0].table = (0..3000).collect();
    world.nodes[1].table = (3000..5000).collect();
    let pulls = |world: &World| {
        [0, 1, 2].map(|it| world.nodes[it].count(|it| matches!(it, Event::Pull { .. })))
    };
    let now = world.now;
    world.nodes[2].end.pull_again(now);
    world.run(ms(5000));
    assert!(world.nodes[2].from(0) == numbers(0..3000));
    assert!(world.nodes[2].from(1) == numbers(3000..5000));
    assert_eq!(pulls(&world), [1, 1, 0], "one of each");
    // One that has begun may not have what the later calls are for; one more has.
    let now = world.now;
    for _ in 0..10 {
        world.nodes[2].end.pull_again(now);
    }
    world.run(ms(5000));
    assert_eq!(pulls(&world), [3, 2, 0]);
}

#[test]
fn a_pull_goes_on_with_the_next_peer_when_the_first_falls_silent() {
    let mut world = World::new(3).settled();
    world.delay = (5000, 50);
    for index in 0..2 {
        world.nodes[index].table = (0..200_000).collect();
    }
    world.nodes[2] = Node::new(settings(20, 2));
    world.until(ms(2000), |nodes| nodes[2].got.len() > 1000);
    assert_eq!(world.nodes[2].end.status(world.now).pulling_from, Some(0));
    // One that takes its place knows nothing and is not asked.
    world.nodes[0] = Node::new(settings(40, 2));
    world.until(ms(60_000), |nodes| nodes[2].end.synchronised());
    assert_eq!(world.nodes[2].count(|it| *it == Event::Synchronised { peer: Some(1) }), 1);
    assert!(world.nodes[2].from(1).len() >= 200_000);
}

#[test]
fn a_pull_is_finished_when_only_the_one_asked_saw_the_other_down() {
    let mut world = World::new(2).settled();
    world.nodes[0].reads = false;
    world.nodes[1] = Node::new(settings(20, 1));
    world.run(ms(500));
    assert_eq!(world.nodes[1].end.status(world.now).pulling_from, Some(0));
    world.muted = Some(1);
    world.run(ms(4000));
    assert!(!world.nodes[0].end.status(world.now).peers[0].up);
    assert!(world.nodes[1].end.status(world.now).peers[0].up);
    // The walk is over before the other is up again. It has nothing that could be lost.
    world.nodes[0].reads = true;
    world.run(ms(500));
    world.muted = None;
    world.run(ms(3000));
    assert!(world.nodes[1].end.synchronised());
}

/// Datagrams of the stream that node 0 sends while it tells 4,000 sessions to the others, with what
/// it has counted.
fn told_by(mut world: World) -> (usize, crate::Counters, World) {
    let before = world.nodes[0].end.status(world.now).counters.to_group;
    // What overtakes looks lost.
    world.delay.1 = 1;
    world.record = Some(Vec::new());
    world.nodes[0].feed = (0..4000).collect();
    world.run(ms(20_000));
    for index in 1..world.nodes.len() {
        assert!(world.nodes[index].from(0) == numbers(0..4000), "{index}");
    }
    let seen = world.record.take().unwrap_or_default();
    let is_data = |seen: &&Seen| seen.from == 0 && seen.bytes[HEADER - 8] & 0x80 != 0;
    let copies = seen.iter().filter(is_data).count();
    let mut counters = world.nodes[0].end.status(world.now).counters;
    counters.to_group -= before;
    // A copy for each of three.
    (copies - 2 * counters.to_group as usize, counters, world)
}

fn group(count: usize) -> World {
    let grouped = |it| Settings { group: true, ..settings(it as u8 + 1, count - 1) };
    World::of((0..count).map(|it| Node::new(grouped(it))).collect())
}

#[test]
fn a_group_gets_one_datagram_for_all() {
    let (alone, none, _) = told_by(World::new(4).settled());
    let (shared, counters, _) = told_by(group(4).settled());
    assert_eq!((none.to_group, none.repaired, counters.repaired), (0, 0, 0));
    assert_eq!(alone, 3 * shared, "each had a copy of its own");
    assert_eq!(counters.to_group as usize, shared);
    // Losses are repaired for whom they hit alone.
    let (lossy, counters, _) = told_by(group(4).faulty(11).settled());
    assert!(counters.repaired > 0 && counters.to_group > 0, "{counters:?}");
    assert!(lossy < alone, "{lossy} of {alone}");
}

/// A switch may carry nothing that is for a group, to some or to all.
#[test]
fn who_hears_nothing_of_the_group_gets_datagrams_of_its_own() {
    let mut world = group(4);
    world.outside = Some(2);
    let (_, counters, mut world) = told_by(world.settled());
    assert!(counters.to_group > 0, "{counters:?}");
    // It was found out once; from then on nothing has to be sent again.
    let before = counters.repaired;
    world.nodes[0].feed = (4000..8000).collect();
    world.run(ms(5000));
    let after = world.nodes[0].end.status(world.now).counters;
    assert_eq!(after.repaired, before, "{after:?}");
    assert!(after.to_group > counters.to_group);
    assert!(world.nodes[2].from(0) == numbers(0..8000));
}

#[test]
fn one_peer_alone_is_no_group() {
    let mut world = group(2).settled();
    world.nodes[0].feed = (0..1000).collect();
    world.run(ms(2000));
    assert!(world.nodes[1].from(0) == numbers(0..1000));
    assert_eq!(world.nodes[0].end.status(world.now).counters.to_group, 0);
}
