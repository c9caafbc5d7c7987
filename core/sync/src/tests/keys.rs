//! Keys that are changed while directors run.

use super::world::{Node, World, ms, settings};
use crate::{Endpoint, Settings, SettingsError};

const OLD: [u8; 32] = [1; 32];
const NEW: [u8; 32] = [2; 32];

fn with(number: u8, peers: usize, keys: &[[u8; 32]]) -> Settings {
    Settings { keys: keys.to_vec(), ..settings(number, peers) }
}

/// The id of a key, as a director that has no other says.
fn id(key: [u8; 32]) -> u32 {
    Endpoint::new(with(1, 1, &[key])).unwrap().status(ms(0)).peers[0].key
}

#[test]
fn keys_are_changed_one_side_at_a_time() {
    let nodes = vec![Node::new(with(1, 1, &[OLD])), Node::new(with(2, 1, &[OLD]))];
    let mut world = World::of(nodes).settled();
    let steps = [
        (0, &[NEW, OLD][..], OLD),
        (1, &[NEW, OLD][..], NEW),
        (0, &[NEW][..], NEW),
        (1, &[NEW][..], NEW),
    ];
    for (step, (side, keys, used)) in steps.into_iter().enumerate() {
        let number = step as u32;
        world.nodes[side] = Node::new(with(10 + step as u8, 1, keys));
        world.run(ms(1500));
        for index in 0..2 {
            let peer = world.nodes[index].end.status(world.now).peers.remove(0);
            assert!(peer.up, "step {step}");
            assert_eq!(peer.key, id(used), "step {step}, node {index}");
            world.nodes[index].got.clear();
            world.nodes[index].feed = (number * 1000..number * 1000 + 500).collect();
        }
        world.run(ms(200));
        for node in &world.nodes {
            assert!(node.from(0) == (number * 1000..number * 1000 + 500).collect::<Vec<_>>());
            assert!(node.end.synchronised());
        }
    }
}

#[test]
fn a_third_with_the_old_key_only_is_served() {
    let mut world = World::of(vec![
        Node::new(with(1, 2, &[NEW, OLD])),
        Node::new(with(2, 2, &[NEW, OLD])),
        Node::new(with(3, 2, &[OLD])),
    ])
    .settled();
    world.nodes[0].feed = (0..500).collect();
    world.run(ms(200));
    for index in 1..3 {
        assert!(world.nodes[index].from(0) == (0..500).collect::<Vec<_>>());
    }
    let peers = world.nodes[0].end.status(world.now).peers;
    assert_eq!([peers[0].key, peers[1].key], [id(NEW), id(OLD)]);
}

#[test]
fn without_a_shared_key_no_peer_comes_up() {
    let mut world = World::of(vec![Node::new(with(1, 1, &[OLD])), Node::new(with(2, 1, &[NEW]))]);
    world.run(ms(2000));
    for node in &world.nodes {
        let status = node.end.status(world.now);
        assert!(!status.peers[0].up);
        assert!(status.counters.rejected_key > 10);
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = |change: fn(&mut Settings)| {
        let mut settings = settings(1, 1);
        change(&mut settings);
        Endpoint::new(settings).err()
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|it| it.keys.clear()), Some(SettingsError::Keys));
    assert_eq!(refused(|it| it.keys = vec![OLD; 5]), Some(SettingsError::Keys));
    assert_eq!(refused(|it| it.keys = vec![OLD; 2]), Some(SettingsError::SameKey));
    assert_eq!(refused(|it| it.name = "x".repeat(65)), Some(SettingsError::Name));
    assert_eq!(refused(|it| it.name = "a\nb".into()), Some(SettingsError::Name));
    assert_eq!(refused(|it| it.datagram = 511), Some(SettingsError::Datagram));
    assert_eq!(refused(|it| it.datagram = 8901), Some(SettingsError::Datagram));
    assert_eq!(refused(|it| it.peers = 65), Some(SettingsError::Peers));
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", with(1, 1, &[[213; 32]]));
    assert!(!shown.contains("213") && shown.contains("director 1"), "{shown}");
}
