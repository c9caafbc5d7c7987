//! What holds of half-open sessions whatever comes: random packets, time and plans.

use super::lab::{self, BACK, CLIENT, FRONT, LOCAL, Lab, REAL, REAL_2, VIP, tcp, udp};
use crate::path::Verdict;
use crate::path::parse::Parse;
use crate::path::table::Table;
use crate::plan::{Plan, ServiceId};
use crate::session::State;
use crate::spec::{Mode, Persistence, Ports, Spec};
use sluice_table::Slot;
use sluice_wire::tcp::{ACK, FIN, RST, SYN};
use std::collections::HashSet;

/// Every half-open session is in its service's list once, and no other is. How many there are, by
/// service.
fn listed<F: Parse>(table: &Table<F>, plan: &Plan) -> Vec<u32> {
    let slots = table.sessions.slab().slots();
    let mut missing: HashSet<_> = (0u32..)
        .zip(slots)
        .filter(|(_, session)| !session.is_vacant() && session.state.is_half_open())
        .map(|(id, _)| id)
        .collect();
    let mut counts = Vec::new();
    for service in 0..plan.services.len() {
        let service = ServiceId(service as u16);
        let mut next = table.half_open.oldest(service);
        let mut count = 0;
        while let Some(id) = next {
            assert!(missing.remove(&id), "{id} is in a list twice, or is not half-open");
            assert_eq!(plan.service_of(&slots[id as usize]), Some(service));
            (next, count) = (table.half_open.younger(id), count + 1);
        }
        counts.push(count);
    }
    assert!(missing.is_empty(), "in no list: {missing:?}");
    counts
}

fn check(lab: &Lab) {
    let (path, plan) = (&lab.path, &lab.plan);
    let [four, extended] = [listed(&path.v4.table, plan), listed(&path.extended.table, plan)];
    let counts: Vec<_> = four.iter().zip(&extended).map(|(a, b)| a + b).collect();
    let told: Vec<_> = path.shared.admission.usage.iter().map(|usage| usage.half_open).collect();
    assert_eq!(told[..counts.len()], counts);
    let all: u32 = counts.iter().sum();
    assert_eq!(path.half_open_sessions(), all);
    assert_eq!(path.shared.admission.load.reals.iter().sum::<u32>(), all);
    let with_any = path.shared.admission.usage.iter().filter(|usage| usage.active > 0).count();
    assert_eq!(path.shared.admission.load.sharers as usize, with_any);
    let (room, live) = (path.session_capacity(), path.live_sessions());
    assert!(live + path.templates() <= room, "{live} of {room}");
    assert!(all <= room / 2, "{all} of {room}");
    let counters = path.counters();
    let gone = counters.closed + counters.expired + counters.killed + counters.evicted;
    assert_eq!(counters.created, gone + u64::from(live));
    lab.check_gauges();
}

fn services(spec: &mut Spec) {
    let web = spec.services[1].clone();
    let other = |name: &str, mode, port| {
        let mut service = web.clone();
        (service.name, service.mode, service.ports) = (name.into(), mode, Ports::one(port));
        service
    };
    let mut limited = other("limited", Mode::Fnat, 81);
    limited.max_sessions = 12;
    let mut direct = other("direct", Mode::Dr, 82);
    direct.persistence = Some(Persistence { timeout_s: 60, prefix: 24 });
    let mut upper = other("upper", Mode::Nat, 83);
    upper.reals.iter_mut().for_each(|real| real.upper_sessions = 5);
    let mut dns = spec.services[0].clone();
    (dns.name, dns.mode, dns.ports) = ("direct-dns".into(), Mode::Dr, Ports::one(54));
    spec.services.extend([limited, direct, upper, dns]);
    spec.pools[0].ports = 2000..=2031;
}

struct Random(u64);

impl Random {
    const fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }
}

/// A packet of a client or real server.
fn send(lab: &mut Lab, random: &mut Random) -> Verdict {
    let client = ([100, 64, 0, random.below(3) as u8], 1000 + random.below(60) as u16);
    let vip = (VIP, 80 + random.below(4) as u16);
    let local = (LOCAL, 2000 + random.below(32) as u16);
    let from = if random.below(2) == 0 { REAL } else { REAL_2 };
    match random.below(12) {
        0..=4 => lab.one(FRONT, &mut tcp(client, vip, SYN, (1, 0), b"")),
        5 => lab.one(FRONT, &mut tcp(client, vip, ACK, (2, 10), b"x")),
        6 => {
            let flags = if random.below(2) == 0 { RST | ACK } else { FIN | ACK };
            lab.one(FRONT, &mut tcp(client, vip, flags, (3, 10), b""))
        }
        7 => lab.one(BACK, &mut tcp((from, 80), local, SYN | ACK, (9, 2), b"")),
        8 => lab.one(BACK, &mut tcp((from, 80), local, FIN | ACK, (11, 3), b"")),
        9 | 10 => lab.one(FRONT, &mut udp(client, (VIP, 53 + random.below(2) as u16), b"?")),
        _ => lab.one(BACK, &mut udp((REAL, 53), local, b"!")),
    }
}

#[test]
fn lists_counts_and_bounds_hold_whatever_comes() {
    for seed in 0..12 {
        let mut random = Random(seed);
        // From one in which all is short to one in which only limits are.
        let capacity = [3, 16, 40, 300][seed as usize % 4];
        let mut lab = Lab::with(services, capacity, (0, 1));
        lab.fib = lab::fib_to_anywhere(&lab.plan);
        let mut states = HashSet::new();
        for step in 0..6000 {
            lab.now.0 += random.below(12) * random.below(12);
            send(&mut lab, &mut random);
            lab.path.sweep(&lab.plan, lab.now);
            if step % 16 == 0 {
                check(&lab);
                let slots = lab.path.v4.table.sessions.slab().slots();
                states.extend(slots.iter().map(|session| session.state as u8));
            }
        }
        check(&lab);
        assert!(lab.path.counters().evicted > 100, "{seed}: {}", lab.path.counters().evicted);
        for state in [State::SynRecv, State::UdpNew] {
            assert!(states.contains(&(state as u8)), "{seed}: {state:?}");
        }
    }
}

/// A client's datagrams that nobody answers make a flow all the same, once they are many.
#[test]
fn many_datagrams_make_a_flow() {
    let mut lab = Lab::new();
    for count in 0..crate::track::ENOUGH + 1 {
        assert_eq!(lab.path.half_open_sessions(), u32::from(count > 0), "{count}");
        lab.one(FRONT, &mut udp((CLIENT, 1000), (VIP, 53), b"log"));
    }
    assert_eq!((lab.path.half_open_sessions(), lab.path.live_sessions()), (0, 1));
}
