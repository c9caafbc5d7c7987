//! What is held is bounded, and who is slow is waited for, but not for ever.

use super::world::{World, ms, real, session, settings};
use crate::endpoint::BACKLOG;
use crate::incoming::REORDER;
use crate::outgoing::WINDOW;
use crate::record::{Real, Service};
use crate::{Endpoint, Event};
use std::time::Duration;

#[test]
fn one_that_acknowledges_nothing_is_waited_for_for_two_seconds() {
    let mut world = World::new(2).settled();
    world.cut = true;
    world.nodes[0].feed = (0..1_000_000).collect();
    world.run(ms(1500));
    let left = world.nodes[0].feed.len();
    assert!(left > 800_000 && world.nodes[0].end.room() == 0, "{left}");
    let held = |world: &World| world.nodes[0].end.memory();
    assert!(held(&world).window <= WINDOW);
    assert!(held(&world).bytes <= (WINDOW + 2) * 1400);
    let status = world.nodes[0].end.status(world.now);
    assert!(!status.peers[0].behind && status.peers[0].lag > ms(1000), "{status:?}");
    world.until(ms(600), |nodes| nodes[0].end.status(ms(0)).peers[0].behind);
    world.run(ms(10));
    assert!(world.nodes[0].feed.is_empty());
    assert!(held(&world).window <= WINDOW);
    assert!(held(&world).bytes <= (WINDOW + 2) * 1400);
    assert_eq!(world.nodes[0].end.status(world.now).counters.behind, 1);
    // When it is there again, it notices what it missed, and asks.
    world.cut = false;
    world.run(ms(3000));
    let status = world.nodes[1].end.status(world.now);
    assert!(status.counters.lost > 1000, "{status:?}");
    assert_eq!(world.nodes[0].count(|it| matches!(it, Event::Pull { .. })), 1);
    assert!(!world.nodes[0].end.status(world.now).peers[0].behind);
    assert_eq!(world.nodes[1].got.last(), Some(&(0, 999_999)));
}

#[test]
fn one_that_is_behind_does_not_hold_up_the_third() {
    let mut world = World::new(3).settled();
    world.nodes[2].end.set_appetite(0);
    world.nodes[0].feed = (0..300_000).collect();
    world.run(ms(1000));
    assert!(world.nodes[1].got.len() < 150_000);
    world.run(ms(3000));
    assert!(world.nodes[1].from(0) == (0..300_000).collect::<Vec<_>>());
    let peers = world.nodes[0].end.status(world.now).peers;
    assert_eq!((peers[0].behind, peers[1].behind, peers[1].up), (false, true, true));
}

#[test]
fn no_more_is_delivered_than_there_is_appetite_for() {
    let mut world = World::new(2).settled();
    world.nodes[1].end.set_appetite(100);
    world.nodes[0].feed = (0..200_000).collect();
    world.run(ms(500));
    let came = world.nodes[1].got.len();
    assert!((100..200).contains(&came), "{came}");
    assert!(world.nodes[1].end.memory().reordered as u64 <= REORDER);
    assert_eq!(world.nodes[0].end.room(), 0);
    for _ in 0..10 {
        world.nodes[1].end.set_appetite(1000);
        world.run(ms(20));
    }
    let came = world.nodes[1].got.len();
    assert!((10_000..12_000).contains(&came), "{came}");
    world.nodes[1].end.set_appetite(usize::MAX);
    world.run(ms(3000));
    assert!(world.nodes[1].from(0) == (0..200_000).collect::<Vec<_>>());
    assert_eq!(world.nodes[1].end.status(world.now).counters.lost, 0);
}

#[test]
fn events_that_nobody_reads_are_bounded() {
    let mut world = World::new(2).settled();
    world.nodes[1].reads = false;
    world.nodes[0].feed = (0..300_000).collect();
    world.run(ms(1500));
    assert!(world.nodes[1].end.memory().backlog < BACKLOG + 1400);
    world.nodes[1].reads = true;
    world.run(ms(3000));
    assert!(world.nodes[1].from(0) == (0..300_000).collect::<Vec<_>>());
}

#[test]
fn room_is_kept_whatever_the_records_are() {
    let mut world = World::new(2);
    world.nodes[0].end =
        Endpoint::new(crate::Settings { datagram: 512, ..settings(1, 1) }).unwrap();
    let mut world = world.settled();
    world.cut = true;
    let mut large = session(1);
    large.client = [0xff; 16].into();
    large.local = Some(([0xee; 16].into(), 1));
    large.far = Some([0xdd; 16].into());
    large.idle_ms = u32::MAX;
    let rules = ["a", "b"].map(|name| Real {
        service: Service::Rule(name.repeat(255)),
        address: [0xcc; 16].into(),
        port: 1,
        mode: 1,
    });
    let end = &mut world.nodes[0].end;
    let mut given = 0;
    while end.room() > 0 {
        for _ in 0..end.room() {
            assert!(end.send(world.now, &rules[given % 2], &large));
            given += 1;
        }
    }
    assert!(!end.send(world.now, &rules[0], &large));
    assert!(given >= WINDOW);
    assert!(end.memory().window <= WINDOW);
}

#[test]
fn what_cannot_be_written_is_counted() {
    let mut world = World::new(2).settled();
    let end = &mut world.nodes[0].end;
    let long = Real { service: Service::Rule("x".repeat(256)), ..real(1) };
    assert!(end.send(world.now, &long, &session(1)));
    assert!(end.send(world.now, &Real { mode: 0, ..real(1) }, &session(1)));
    assert_eq!(end.status(world.now).counters.unsendable, 2);
    assert_eq!(end.status(world.now).counters.records_sent, 0);
}

#[test]
fn with_nobody_up_records_are_dropped() {
    let mut end = Endpoint::new(settings(1, 1)).unwrap();
    for number in 0..100_000 {
        assert!(end.send(ms(1), &real(1), &session(number)));
    }
    assert_eq!((end.room(), end.memory().bytes), (WINDOW, 0));
}

#[test]
fn an_idle_host_sleeps_long() {
    let mut world = World::new(2).settled();
    let before = world.nodes[0].end.status(world.now).counters.sent;
    world.run(ms(10_000));
    let sent = world.nodes[0].end.status(world.now).counters.sent - before;
    assert!(sent <= 11, "{sent}");
    let sleep = world.nodes[0].end.poll_timeout(world.now) - world.now;
    assert!(sleep > Duration::ZERO);
}

/// Shows how many records a second go from `send` to `handle` on one core:
/// `cargo test --release -p sluice-sync -- --ignored --nocapture records_a_second`.
#[test]
#[ignore = "a measurement"]
fn records_a_second() {
    let mut world = World::new(2).settled();
    let sessions: Vec<_> = (0..20_000).map(session).collect();
    let (real, mut buffer) = (real(1), Vec::new());
    let (mut now, mut came, mut bytes) = (world.now, 0u64, 0);
    let (left, right) = world.nodes.split_at_mut(1);
    let (sender, receiver) = (&mut left[0].end, &mut right[0].end);
    let (total, start) = (5_000_000u64, std::time::Instant::now());
    let mut given = 0u64;
    while came < total {
        for _ in 0..500.min(total - given) {
            given += u64::from(sender.send(now, &real, &sessions[(given % 20_000) as usize]));
        }
        now += Duration::from_micros(500);
        while sender.poll_transmit(now, &mut buffer).is_some() {
            bytes += buffer.len();
            receiver.handle(now, 0, &buffer);
        }
        while receiver.poll_transmit(now, &mut buffer).is_some() {
            sender.handle(now, 0, &buffer);
        }
        while let Some(event) = receiver.poll_event() {
            if let Event::Sessions { runs, .. } = event {
                came += runs.iter().map(|(_, sessions)| sessions.len() as u64).sum::<u64>();
            }
        }
    }
    let rate = total as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} records a second, {:.1} bytes each", bytes as f64 / total as f64);
}
