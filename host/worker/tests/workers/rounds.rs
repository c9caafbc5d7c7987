//! Frames that go from worker to worker in search of their session.

use crate::memory::{BACK, CLIENT, Endpoint, FRONT, Kit, REAL, VIP, addresses, spec, udp};
use sluice_director::Reason;
use sluice_director::fib::PortId;
use sluice_director::spec::{Mode, Persistence, Ports, Spec};

const WORKERS: u16 = 4;

/// NAT of all ports, and over it, if at all, of one port for clients that are remembered.
fn nat(over: bool) -> Spec {
    let mut spec = spec();
    let service = &mut spec.services[0];
    (service.mode, service.reals[0].port) = (Mode::Nat, 0);
    let mut extended = service.clone();
    extended.ports = Ports::ALL;
    service.persistence = Some(Persistence { timeout_s: 300, prefix: 32 });
    spec.services.push(extended);
    if !over {
        spec.services.remove(0);
    }
    spec
}

/// Sources and destinations of what all workers have sent by a port.
fn sent(kit: &mut Kit, port: PortId) -> Vec<(Endpoint, Endpoint)> {
    (0..WORKERS).flat_map(|worker| kit.sent(worker, port)).map(|frame| addresses(&frame)).collect()
}

fn sessions(kit: &Kit) -> u32 {
    kit.workers.iter().map(|worker| worker.path().live_sessions()).sum()
}

#[test]
fn a_session_is_found_where_it_was_left() {
    let mut kit = Kit::new(WORKERS, &[WORKERS; 2], true);
    kit.reload(&nat(true), |_| true);
    let question = |kit: &mut Kit, port| {
        kit.put(port % WORKERS, FRONT, udp((CLIENT, port), (VIP, 53)));
        kit.settle();
        assert_eq!(sent(kit, BACK), [((CLIENT, port), (REAL, 53))]);
    };
    (4000..4020).for_each(|port| question(&mut kit, port));
    assert_eq!(sessions(&kit), 20);
    kit.reload(&nat(false), |_| true);
    (4000..4020).for_each(|port| question(&mut kit, port));
    assert_eq!(sessions(&kit), 20);
    for port in 4000..4020 {
        kit.put(port % 3, BACK, udp((REAL, 53), (CLIENT, port)));
        kit.settle();
        assert_eq!(sent(&mut kit, FRONT), [((VIP, 53), (CLIENT, port))]);
    }
}

/// As long as not all workers have heard of a reload, each may take another for the owner.
#[test]
fn a_frame_that_nobody_takes_is_dropped_after_so_many_steps() {
    let mut dropped = 0;
    for late in 0..1 << WORKERS {
        let mut kit = Kit::new(WORKERS, &[WORKERS; 2], true);
        kit.reload(&nat(false), |_| true);
        kit.reload(&nat(true), |worker| late >> worker & 1 == 0);
        for port in 4000..4010 {
            kit.put(port % WORKERS, FRONT, udp((CLIENT, port), (VIP, 53)));
        }
        kit.settle();
        let lost: u64 = (0..WORKERS).map(|worker| kit.counted(worker, Reason::HandOffLoop)).sum();
        assert_eq!(sent(&mut kit, BACK).len() as u64 + lost, 10);
        assert_eq!(u64::from(sessions(&kit)) + lost, 10);
        dropped += lost;
    }
    assert!(dropped > 0, "they never disagreed");
}
