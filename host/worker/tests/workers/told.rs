//! Sessions of isolated networks, told to another director: each gets into the network of the same
//! name there, whatever its number.

use crate::memory::{CLIENT, Kit, VIP, udp_with};
use rtrb::Consumer;
use sluice_director::Time;
use sluice_director::fib::PortId;
use sluice_director::path::{Change, Imported, Importer, Imports, Owners, SessionFilter};
use sluice_director::plan::{Names, Resolver};
use sluice_director::spec::NetworkId;
use sluice_worker::{Message, Outbox, Told, Wake};
use std::sync::Arc;
use std::sync::mpsc::channel;

const NETWORKS: u16 = 3;

/// All that is told until a walk has come to its end.
fn walk(kit: &mut Kit, ring: &mut Consumer<Told>) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..100 {
        kit.settle();
        while let Ok(told) = ring.pop() {
            match told {
                Told::Change(change) => changes.push(change),
                Told::Walked(1) => return changes,
                Told::Walked(other) => panic!("walk {other}"),
            }
        }
    }
    panic!("the walk does not end");
}

#[test]
fn sessions_get_into_the_network_of_their_name() {
    let mut kit = Kit::with_networks(1);
    // So many in the network of each number, so that they can be told apart.
    let counts = [1_u16, 2, 3];
    for (network, count) in (0..NETWORKS).zip(counts) {
        for port in 4000..4000 + count {
            let port_id = PortId(network * 2);
            kit.put(0, port_id, udp_with((CLIENT, port), (VIP, 53), &[0; 16]));
        }
    }
    kit.settle();
    let (outbox, mut ring) = Outbox::new(Wake::new().unwrap());
    kit.workers[0].tell_by(outbox);
    kit.now = Time(kit.now.0 + 10);
    kit.workers[0].begin_walk(1);
    let changes = walk(&mut kit, &mut ring);
    assert!(changes.len() >= 6, "the sweep may have told some already: {}", changes.len());
    assert!(ring.is_empty(), "and nothing behind the end");

    let mut other = Kit::with_networks_reversed(1);
    let plan = Arc::clone(&other.plan);
    let Names { services, reals, .. } = kit.plan.names();
    let resolver = Resolver::new(&plan);
    let mut batches = vec![Imports::default(); usize::from(NETWORKS)];
    for change in &changes {
        let real = &reals[change.real.0 as usize];
        let service = &services[usize::from(real.service.0)];
        let id = resolver.real(service, (real.address, real.port, real.mode)).expect("known");
        let network = plan.service(plan.real(id).unwrap().service).unwrap().network;
        let part = plan.of_network(network);
        let importer = Importer::new(&part, &resolver, Owners::new(1, 1));
        let to = &mut [&mut batches[usize::from(network.0)]];
        assert!(importer.place(id, &change.session, change.ended, to), "it is somebody's");
    }
    let running = other.run(0);
    // Blue, the second here, is the third there.
    for (batch, (network, new)) in batches.into_iter().zip([(0, 1), (1, 3), (2, 2)]) {
        let (reply, answer) = channel();
        let (network, older) = (NetworkId(network), batch.len() as u64 - new);
        running.inbox.send(Message::Import { network, batch, reply });
        let imported = answer.recv().expect("an answer");
        assert_eq!(imported, (0, Imported { new, older, ..Imported::default() }));
        let network = Some(network);
        let filter = SessionFilter { network, ..SessionFilter::default() };
        let (reply, answer) = channel();
        running.inbox.send(Message::Sessions { filter, cursor: 0, reply });
        let (sessions, _) = answer.recv().expect("sessions");
        assert_eq!(sessions.len() as u64, new, "{network:?}");
    }
    let (reply, answer) = channel();
    let network = NetworkId(NETWORKS);
    running.inbox.send(Message::Import { network, batch: Imports::default(), reply });
    assert_eq!(answer.recv().expect("an answer"), (0, Imported::default()), "nobody's");
    running.inbox.send(Message::Stop);
    running.thread.join().expect("the loop ends in order");
}
