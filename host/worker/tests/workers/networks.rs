//! Isolated networks: the same addresses in three of them at once, and nothing of one gets into
//! another, whatever is sent.

use crate::memory::{
    CLIENT, Kit, LOCAL, MemFrame, REAL, VIP, addresses, large, pieces, udp_with, unreachable,
};
use proptest::prelude::*;
use sluice_director::Frame;
use sluice_director::fib::PortId;
use sluice_director::path::SessionFilter;
use sluice_director::spec::NetworkId;
use sluice_worker::Message;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const NETWORKS: u16 = 3;

const fn front(network: u16) -> PortId {
    PortId(network * 2)
}

const fn back(network: u16) -> PortId {
    PortId(network * 2 + 1)
}

/// Data that says which network a frame was sent in.
fn mark(network: u16) -> [u8; 16] {
    [0xa0 + network as u8; 16]
}

/// Opens a session in a network, and gives the local port that it has.
fn open(kit: &mut Kit, network: u16, client_port: u16) -> u16 {
    kit.put(0, front(network), udp_with((CLIENT, client_port), (VIP, 53), &mark(network)));
    kit.settle();
    let sent = kit.sent(0, back(network));
    assert_eq!(sent.len(), 1, "network {network}");
    let (from, to) = addresses(&sent[0]);
    assert_eq!((from.0, to), (LOCAL, (REAL, 53)));
    from.1
}

#[test]
fn the_same_connection_in_each_network() {
    let mut kit = Kit::with_networks(1);
    let locals: Vec<u16> = (0..NETWORKS).map(|network| open(&mut kit, network, 4000)).collect();
    // The same client, virtual and real server's endpoints, and the same local port too.
    assert!(locals.iter().all(|local| *local == locals[0]), "{locals:?}");
    for (network, local) in (0..NETWORKS).zip(locals) {
        kit.put(0, back(network), udp_with((REAL, 53), (LOCAL, local), &mark(network)));
        kit.settle();
        for other in 0..NETWORKS {
            let answers = kit.sent(0, front(other));
            assert_eq!(answers.len(), usize::from(other == network), "{network} to {other}");
            for answer in &answers {
                assert_eq!(addresses(answer), ((VIP, 53), (CLIENT, 4000)));
                assert!(answer.bytes().ends_with(&mark(network)));
            }
        }
    }
}

/// An answer that comes in by another network's port is none: it is nobody's there.
#[test]
fn an_answer_in_another_network_is_none() {
    let mut kit = Kit::with_networks(1);
    let local = open(&mut kit, 1, 4000);
    for wrong in [0, 2] {
        for port in [front(wrong), back(wrong)] {
            kit.put(0, port, udp_with((REAL, 53), (LOCAL, local), &mark(wrong)));
            kit.settle();
            for port in (0..NETWORKS * 2).map(PortId) {
                assert!(kit.sent(0, port).is_empty(), "from {wrong} by {port:?}");
            }
        }
    }
    let session = |network| kit.workers[0].path_of(NetworkId(network)).unwrap().live_sessions();
    assert_eq!([session(0), session(1), session(2)], [0, 1, 0]);
}

/// A full table is its own network's matter.
#[test]
fn one_network_cannot_fill_anothers_table() {
    let mut kit = Kit::with_networks(1);
    for port in 4000..4400 {
        kit.put(0, front(1), udp_with((CLIENT, port), (VIP, 53), &mark(1)));
        kit.settle();
    }
    let path = |kit: &Kit, network| {
        let path = kit.workers[0].path_of(NetworkId(network)).unwrap();
        (path.live_sessions(), path.counters().created)
    };
    // What nobody has answered gets half of a table at most.
    assert_eq!(path(&kit, 1).0, 50);
    kit.sent(0, back(1));
    open(&mut kit, 2, 4000);
    open(&mut kit, 0, 4000);
    assert_eq!((path(&kit, 2), path(&kit, 0)), ((1, 1), (1, 1)));
}

/// What strays from one worker to another stays in its network.
#[test]
fn strays_reach_their_owner_in_their_network() {
    let mut kit = Kit::with_networks(2);
    for network in 0..NETWORKS {
        kit.put(1, front(network), udp_with((CLIENT, 4000), (VIP, 53), &mark(network)));
        kit.settle();
        let sent: Vec<_> = (0..2).flat_map(|worker| kit.sent(worker, back(network))).collect();
        assert_eq!(sent.len(), 1);
        let (local, _) = addresses(&sent[0]);
        for worker in 0..2 {
            let answer = udp_with((REAL, 53), (LOCAL, local.1), &mark(network));
            kit.put(worker, back(network), answer);
            kit.settle();
            let mut answers = Vec::new();
            for other in 0..NETWORKS {
                let came = (0..2).flat_map(|worker| kit.sent(worker, front(other)));
                let came: Vec<_> = came.collect();
                assert!(other == network || came.is_empty());
                answers.extend(came);
            }
            assert_eq!(answers.len(), 1, "network {network}, worker {worker}");
            assert_eq!(addresses(&answers[0]), ((VIP, 53), (CLIENT, 4000)));
        }
    }
}

#[test]
fn sessions_of_all_networks_are_listed_and_ended() {
    let mut kit = Kit::with_networks(1);
    for (network, port) in (0..NETWORKS).flat_map(|network| [(network, 4000), (network, 4001)]) {
        kit.put(0, front(network), udp_with((CLIENT, port), (VIP, 53), &mark(network)));
    }
    let running = kit.run(0);
    let report = || {
        let (reply, answer) = channel();
        running.inbox.send(Message::Report(reply));
        answer.recv().expect("a report")
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while report().packets < 6 {
        assert!(Instant::now() < deadline, "{:?}", report());
    }
    let all = |filter: &SessionFilter| {
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(cursor) = next {
            let (reply, answer) = channel();
            let filter = filter.clone();
            running.inbox.send(Message::Sessions { filter, cursor, reply });
            let (sessions, more) = answer.recv().expect("sessions");
            found.extend(sessions);
            next = more;
        }
        found
    };
    let found = all(&SessionFilter::default());
    assert_eq!(found.len(), 6);
    let mut services: Vec<u16> = found.iter().map(|session| session.service.0).collect();
    services.dedup();
    assert_eq!(services, [0, 1, 2], "each is its own network's service's");
    let mut places: Vec<u64> = found.iter().map(|session| session.slot).collect();
    places.dedup();
    assert_eq!(places.len(), 6, "places tell networks apart");
    for network in 0..NETWORKS {
        let filter =
            SessionFilter { network: Some(NetworkId(network)), ..SessionFilter::default() };
        let services: Vec<u16> = all(&filter).iter().map(|session| session.service.0).collect();
        assert_eq!(services, [network; 2], "only what is asked for");
        let (reply, answer) = channel();
        let cursor = u64::from(NETWORKS) << 32;
        running.inbox.send(Message::Sessions { filter, cursor, reply });
        assert_eq!(answer.recv().expect("sessions"), (Vec::new(), None), "nothing behind it");
    }
    let blue = SessionFilter { service: Some(found[2].service), ..SessionFilter::default() };
    let (mut ended, mut next) = (0, Some(0));
    while let Some(cursor) = next {
        let (reply, answer) = channel();
        running.inbox.send(Message::Kill { filter: blue.clone(), cursor, reply });
        let (count, more) = answer.recv().expect("an answer");
        (ended, next) = (ended + count, more);
    }
    assert_eq!((ended, all(&blue).len(), all(&SessionFilter::default()).len()), (2, 0, 4));
    let report = report();
    let by_network: Vec<u32> = report.networks.iter().map(|network| network.sessions).collect();
    assert_eq!((report.sessions, by_network), (4, vec![2, 0, 2]));
    let (reply, answer) = channel();
    let filter = SessionFilter { network: Some(NetworkId(2)), ..SessionFilter::default() };
    running.inbox.send(Message::Kill { filter, cursor: 0, reply });
    assert_eq!(answer.recv().expect("an answer"), (2, None));
    let left = all(&SessionFilter::default());
    assert!(left.len() == 2 && left.iter().all(|session| session.service.0 == 0), "{left:?}");
    running.inbox.send(Message::Stop);
    running.thread.join().expect("the loop ends in order");
}

/// What somebody in a network may send: of its own addresses or forged, whole or in fragments, or
/// ICMP errors that quote what they like.
#[derive(Clone, Debug)]
struct Sent {
    network: u16,
    by_front: bool,
    worker: u16,
    from: usize,
    to: usize,
    ports: (u16, u16),
    kind: u8,
}

fn sent() -> impl Strategy<Value = Sent> {
    let ports = prop_oneof![Just(53u16), 4000u16..4003, 1024u16..1030];
    let places = (0..NETWORKS, any::<bool>(), 0..2u16);
    (places, 0..4usize, 0..4usize, (ports.clone(), ports), 0..5u8).prop_map(
        |((network, by_front, worker), from, to, ports, kind)| Sent {
            network,
            by_front,
            worker,
            from,
            to,
            ports,
            kind,
        },
    )
}

impl Sent {
    fn frames(&self) -> Vec<MemFrame> {
        let all = [CLIENT, VIP, LOCAL, REAL];
        let (from, to) = ((all[self.from], self.ports.0), (all[self.to], self.ports.1));
        let plain = || udp_with(from, to, &mark(self.network));
        match self.kind {
            0 | 1 => vec![plain()],
            2 => {
                let mut whole = large(from, to, 64, 7);
                let start = 34 + 8;
                whole.bytes_mut()[start..].fill(mark(self.network)[0]);
                pieces(&whole, &[32])
            }
            // An error about what would be the other way round.
            kind => {
                let quoted = udp_with(to, from, &mark(self.network));
                vec![unreachable(from.0, to.0, if kind == 3 { 3 } else { 4 }, &quoted)]
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Each frame says by its data which network it was sent in. Whatever is sent, a port of a
    /// network sends only what came in by its ports.
    #[test]
    fn nothing_leaves_by_another_networks_port(
        all in proptest::collection::vec(sent(), 1..40),
    ) {
        let mut kit = Kit::with_networks(2);
        // Connections to be hit, alike in all networks.
        let locals: Vec<u16> = (0..NETWORKS).map(|own| open(&mut kit, own, 4000)).collect();
        for sent in &all {
            let port = if sent.by_front { front(sent.network) } else { back(sent.network) };
            for frame in sent.frames() {
                kit.put(sent.worker, port, frame);
            }
            kit.settle();
            for (worker, port) in (0..2).flat_map(|w| (0..NETWORKS * 2).map(move |p| (w, p))) {
                for frame in kit.sent(worker, PortId(port)) {
                    let own = mark(port / 2)[0];
                    prop_assert_eq!(frame.bytes().last(), Some(&own), "port {}", port);
                    prop_assert_eq!(sent.network, port / 2);
                }
            }
        }
        // Who had nobody forge in his network notices nothing of it.
        for network in (0..NETWORKS).filter(|own| all.iter().all(|sent| sent.network != *own)) {
            let local = locals[usize::from(network)];
            let answer = udp_with((REAL, 53), (LOCAL, local), &mark(network));
            kit.put(0, back(network), answer);
            kit.settle();
            prop_assert_eq!(kit.sent(0, front(network)).len(), 1);
        }
    }
}
