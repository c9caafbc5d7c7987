//! Floods of forged first packets beside clients that mean it, in virtual time.

use super::lab::{self, BACK, FRONT, LOCAL, Lab, MemFrame, Packet, REAL, VIP, tcp, udp};
use crate::path::{BURST, Verdict, View};
use crate::plan::ServiceId;
use crate::reason::Reason;
use crate::spec::{Mode, Network, Persistence, Spec};
use sluice_wire::ipv4::{TCP, UDP};
use sluice_wire::tcp::{ACK, RST, SYN};

/// Good clients that begin in a second.
const GOOD_PPS: u64 = 200;
/// Where forged packets come from.
const FORGED: [u8; 2] = [100, 64];
const GOOD: [u8; 4] = [198, 51, 100, 48];

/// One FNAT address, one real server, a way to everybody.
fn world(change: impl FnOnce(&mut Spec), sessions: u32) -> Lab {
    let mut lab = Lab::with(
        |spec| {
            spec.services[1].reals.truncate(1);
            change(spec);
        },
        sessions,
        (0, 1),
    );
    lab.fib = lab::fib_to_anywhere(&lab.plan);
    lab
}

/// Runs frames without looking at all gauges each time.
fn turn(lab: &mut Lab, port: crate::fib::PortId, frames: &mut [MemFrame]) -> Vec<Verdict> {
    let view = View { plan: &lab.plan, fib: &lab.fib };
    let mut verdicts = vec![Verdict::Wait; frames.len()];
    for (frames, verdicts) in frames.chunks_mut(BURST).zip(verdicts.chunks_mut(BURST)) {
        lab.path.turn(view, lab.now, port, frames, verdicts);
    }
    verdicts
}

fn one(lab: &mut Lab, port: crate::fib::PortId, mut frame: MemFrame) -> (Verdict, MemFrame) {
    let verdict = turn(lab, port, std::slice::from_mut(&mut frame))[0];
    (verdict, frame)
}

/// The `number`-th forged packet of a kind: another endpoint each time.
fn forge(template: &MemFrame, number: u64) -> MemFrame {
    let mut frame = template.clone();
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    frame.bytes[28..30].copy_from_slice(&mixed.to_be_bytes()[..2]);
    frame.bytes[34..36].copy_from_slice(&(mixed as u16 | 1024).to_be_bytes());
    // The header's checksum anew.
    frame.bytes[24..26].fill(0);
    let sum = sluice_wire::checksum::full(&frame.bytes[14..34]);
    frame.bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A good client's connection or flow: when it goes on, and how far it is.
struct Good {
    protocol: u8,
    port: u16,
    local: ([u8; 4], u16),
    due_ms: u64,
    step: u8,
    /// Tries without an answer.
    tries: u32,
}

/// What a client sends first.
fn first(protocol: u8, client: ([u8; 4], u16)) -> MemFrame {
    match protocol {
        TCP => tcp(client, (VIP, 80), SYN, (1, 0), b""),
        _ => udp(client, (VIP, 53), b"?"),
    }
}

/// Takes a connection one step further: its SYN or question with the answer, what the client
/// says next, and the answer to that. Whether it went as it must.
fn go_on(lab: &mut Lab, good: &mut Good) -> bool {
    let (client, is_tcp) = ((GOOD, good.port), good.protocol == TCP);
    match good.step {
        0 => {
            let (verdict, frame) = one(lab, FRONT, first(good.protocol, client));
            if verdict != Verdict::Tx(BACK) {
                return false;
            }
            let seen = Packet::read(&frame);
            good.local = (seen.src, seen.sport);
            let answer = match is_tcp {
                true => tcp((REAL, 80), good.local, SYN | ACK, (9, 2), b""),
                false => udp((REAL, 53), good.local, b"!"),
            };
            one(lab, BACK, answer).0 == Verdict::Tx(FRONT)
        }
        1 => {
            let next = match is_tcp {
                true => tcp(client, (VIP, 80), ACK, (2, 10), b"GET /"),
                false => udp(client, (VIP, 53), b"more"),
            };
            let (verdict, frame) = one(lab, FRONT, next);
            let same = || Packet::read(&frame).sport == good.local.1;
            verdict == Verdict::Tx(BACK) && same()
        }
        _ => {
            let answer = match is_tcp {
                true => tcp((REAL, 80), good.local, ACK, (10, 7), b"200 OK"),
                false => udp((REAL, 53), good.local, b"200 OK"),
            };
            let (verdict, frame) = one(lab, BACK, answer);
            verdict == Verdict::Tx(FRONT) && Packet::read(&frame).dport == good.port
        }
    }
}

/// How a flood went for good clients.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    begun: u64,
    served: u64,
    /// Those among them whose first packet was the second or third.
    retried: u64,
}

impl Outcome {
    fn in_a_thousand(&self) -> u64 {
        self.served * 1000 / self.begun
    }
}

/// Good clients, each `rtt_ms` away, beside so many forged first packets a second. A client tries
/// again after one second, and after two more.
fn served(lab: &mut Lab, (protocol, pps): (u8, u64), rtt_ms: u64) -> Outcome {
    let template = first(protocol, ([FORGED[0], FORGED[1], 0, 0], 1024));
    let mut outcome = Outcome { begun: 0, served: 0, retried: 0 };
    let (mut sent, mut under_way) = (0, Vec::<Good>::new());
    // The first second fills what there is to fill.
    let begins = 1000..3000;
    for ms in 0..begins.end + 3000 + 3 * rtt_ms {
        lab.now.0 += 1;
        let until = pps * (ms + 1) / 1000;
        let mut forged: Vec<_> = (sent..until).map(|number| forge(&template, number)).collect();
        sent = until;
        turn(lab, FRONT, &mut forged);
        if begins.contains(&ms) && ms % (1000 / GOOD_PPS) == 0 {
            let port = 2000 + outcome.begun as u16;
            let local = (LOCAL, 0);
            under_way.push(Good { protocol, port, local, due_ms: ms, step: 0, tries: 0 });
            outcome.begun += 1;
        }
        for good in under_way.iter_mut().filter(|good| good.due_ms == ms) {
            let went = go_on(lab, good);
            good.due_ms = match (went, good.step) {
                (true, 2) => {
                    outcome.served += 1;
                    outcome.retried += u64::from(good.tries > 0);
                    u64::MAX
                }
                (true, _) => ms + rtt_ms,
                (false, 0) if good.tries < 2 => ms + (1000 << good.tries),
                (false, _) => u64::MAX,
            };
            good.tries += u32::from(!went);
            good.step += u8::from(went);
        }
        under_way.retain(|good| good.due_ms != u64::MAX);
        lab.path.sweep(&lab.plan, lab.now);
        if ms >= begins.end && under_way.is_empty() {
            break;
        }
    }
    lab.check_gauges();
    let counters = lab.path.counters();
    println!(
        "protocol {protocol}, {pps} forged a second, {rtt_ms} ms: {outcome:?}, {} evicted, {} have \
         to come again, {} without a port",
        counters.evicted,
        counters.of(Reason::RepeatAwaited),
        counters.of(Reason::LocalPortsExhausted),
    );
    outcome
}

const TABLE: u32 = 400_000;

#[test]
fn without_giving_way_a_flood_of_forged_syn_leaves_nothing() {
    let mut lab = world(|spec| spec.gives_way = false, TABLE);
    let outcome = served(&mut lab, (TCP, 60_000), 50);
    assert!(outcome.in_a_thousand() < 50, "those that came before ports ran out");
    assert!(lab.path.counters().of(Reason::LocalPortsExhausted) > 0);
}

#[test]
fn good_clients_are_served_beside_60_000_forged_syn_a_second() {
    for rtt_ms in [1, 50, 300] {
        let mut lab = world(|_| {}, TABLE);
        let outcome = served(&mut lab, (TCP, 60_000), rtt_ms);
        assert!(outcome.in_a_thousand() >= 990, "{outcome:?} that are {rtt_ms} ms away");
    }
}

#[test]
fn beside_500_000_forged_syn_a_second_as_many_as_where_a_list_denies_them() {
    let denied = |spec: &mut Spec| {
        let address = [FORGED[0], FORGED[1], 0, 0].into();
        spec.services[1].deny = vec![Network { address, prefix: 16 }];
    };
    let with_list = served(&mut world(denied, TABLE), (TCP, 500_000), 50);
    assert_eq!(with_list.served, 400);
    for rtt_ms in [50, 300] {
        let without = served(&mut world(|_| {}, TABLE), (TCP, 500_000), rtt_ms);
        // A SYN that is taken for repeated may end a good one that is as young.
        assert!(without.served >= if rtt_ms == 50 { 400 } else { 396 }, "{rtt_ms} ms");
    }
}

/// What the answer of a real server settles needs no round trip to the client.
#[test]
fn good_flows_are_served_beside_a_flood_of_single_datagrams() {
    for (pps, rtt_ms) in [(60_000, 1), (60_000, 300), (500_000, 300)] {
        let outcome = served(&mut world(|_| {}, TABLE), (UDP, pps), rtt_ms);
        assert_eq!((outcome.served, outcome.retried), (400, 0), "{pps} {rtt_ms}");
    }
}

/// The flood ends, and what it left is gone soon.
#[test]
fn half_open_sessions_age_fast_under_pressure() {
    let mut lab = world(|_| {}, TABLE);
    served(&mut lab, (TCP, 60_000), 1);
    assert!(lab.path.is_pressed() && lab.path.half_open_sessions() > 50_000);
    for _ in 0..6000 {
        lab.now.0 += 1;
        lab.path.sweep(&lab.plan, lab.now);
    }
    assert_eq!(lab.path.half_open_sessions(), 0, "after 3 seconds and a round of the sweep");
    for _ in 0..10_000 {
        lab.now.0 += 1;
        lab.path.sweep(&lab.plan, lab.now);
    }
    assert!(!lab.path.is_pressed());
    lab.check_gauges();
}

#[test]
fn half_open_sessions_hold_half_of_the_table_at_most() {
    for mode in [Mode::Fnat, Mode::Nat, Mode::Dr] {
        let mut lab = world(|spec| spec.services[1].mode = mode, 2000);
        let template = tcp(([FORGED[0], FORGED[1], 0, 0], 1024), (VIP, 80), SYN, (7, 0), b"");
        for burst in 0..40 {
            lab.now.0 += 1;
            let mut frames: Vec<_> =
                (0..200).map(|at| forge(&template, burst * 200 + at)).collect();
            turn(&mut lab, FRONT, &mut frames);
            assert!(lab.path.live_sessions() <= 1000, "{mode:?}");
        }
        assert_eq!(lab.path.live_sessions(), 1000, "{mode:?}");
        let counters = lab.path.counters();
        assert_eq!(counters.created - counters.evicted, 1000, "{mode:?}");
        lab.check_gauges();
    }
}

/// Datagrams that nobody answers are half-open: those that are answered stay.
#[test]
fn a_flood_of_single_datagrams_ends_no_flow_that_is_answered() {
    let mut lab = world(|_| {}, 2000);
    let client = |port| (GOOD, port);
    let mut locals = Vec::new();
    for port in 0..500 {
        let (verdict, frame) = one(&mut lab, FRONT, udp(client(2000 + port), (VIP, 53), b"?"));
        assert_eq!(verdict, Verdict::Tx(BACK));
        let seen = Packet::read(&frame);
        locals.push((seen.src, seen.sport));
        let answer = udp((REAL, 53), (seen.src, seen.sport), b"!");
        assert_eq!(one(&mut lab, BACK, answer).0, Verdict::Tx(FRONT));
    }
    assert_eq!(lab.path.half_open_sessions(), 0);
    let template = udp(([FORGED[0], FORGED[1], 0, 0], 1024), (VIP, 53), b"x");
    for burst in 0..100 {
        lab.now.0 += 1;
        let mut frames: Vec<_> = (0..200).map(|at| forge(&template, burst * 200 + at)).collect();
        turn(&mut lab, FRONT, &mut frames);
        lab.path.sweep(&lab.plan, lab.now);
    }
    assert_eq!(lab.path.half_open_sessions(), 1000);
    for local in &locals {
        let answer = udp((REAL, 53), *local, b"more");
        assert_eq!(one(&mut lab, BACK, answer).0, Verdict::Tx(FRONT));
    }
    for _ in 0..6000 {
        lab.now.0 += 1;
        lab.path.sweep(&lab.plan, lab.now);
    }
    assert_eq!(lab.path.live_sessions(), 500, "unanswered ones do not stay for udp_s");
    lab.check_gauges();
}

/// Where answers go past the director the client's second datagram has to do.
#[test]
fn by_direct_routing_a_second_datagram_is_no_flood() {
    for mode in [Mode::Dr, Mode::Fnat] {
        let mut lab = world(|spec| spec.services[0].mode = mode, 2000);
        for _ in 0..2 {
            assert_eq!(lab.path.half_open_sessions(), lab.path.live_sessions());
            one(&mut lab, FRONT, udp((GOOD, 2000), (VIP, 53), b"?"));
        }
        assert_eq!(lab.path.half_open_sessions(), u32::from(mode == Mode::Fnat));
    }
}

/// A complete connection, as a botnet makes them; its SYN comes again if it has to.
fn connects(lab: &mut Lab, client: ([u8; 4], u16), vport: u16) -> Verdict {
    let mut syn = || one(lab, FRONT, tcp(client, (VIP, vport), SYN, (1, 0), b"")).0;
    let verdict = match syn() {
        Verdict::Drop(Reason::RepeatAwaited) => syn(),
        verdict => verdict,
    };
    if verdict == Verdict::Tx(BACK) {
        one(lab, FRONT, tcp(client, (VIP, vport), ACK, (2, 10), b""));
    }
    verdict
}

fn two_services(spec: &mut Spec) {
    let mut other = spec.services[1].clone();
    (other.name, other.ports) = ("other".into(), crate::spec::Ports::one(81));
    spec.services.push(other);
    for service in &mut spec.services {
        service.mode = Mode::Dr;
    }
}

/// One service's flood fills what nobody else uses; another has its share all the same.
#[test]
fn a_service_always_has_its_share_of_the_table() {
    let mut lab = world(two_services, 1600);
    let from = |number: u32| ([FORGED[0], FORGED[1], (number >> 8) as u8, number as u8], 5000);
    let opened = |lab: &mut Lab, vport, numbers: std::ops::Range<u32>| {
        numbers.filter(|number| connects(lab, from(*number), vport) == Verdict::Tx(BACK)).count()
    };
    assert_eq!(connects(&mut lab, from(0), 81), Verdict::Tx(BACK));
    assert_eq!(opened(&mut lab, 80, 0..3000), 1499, "all but the reserve, and the other's one");
    assert_eq!(lab.path.counters().of(Reason::ServiceShare), 3000 - 1499);
    assert_eq!(opened(&mut lab, 81, 1..800), 799, "its share, whatever the flood holds");
    assert_eq!(opened(&mut lab, 81, 800..900), 0, "and no more while that holds its own");
    assert_eq!(opened(&mut lab, 80, 3000..3100), 0);
    assert_eq!(lab.path.live_sessions(), 1600);
    lab.check_gauges();
}

/// The same for a flood of forged packets at a service beside one that shares its real server and
/// its only local address.
#[test]
fn a_flood_at_one_service_takes_no_port_from_another() {
    let mut lab = world(
        |spec| {
            two_services(spec);
            spec.services.iter_mut().for_each(|service| service.mode = Mode::Fnat);
            // The same endpoint behind both.
            spec.services[2].reals = vec![lab::real(REAL, 80)];
            spec.pools[0].ports = 2000..=2999;
        },
        TABLE,
    );
    let template = tcp(([FORGED[0], FORGED[1], 0, 0], 1024), (VIP, 80), SYN, (7, 0), b"");
    let mut frames: Vec<_> = (0..5000).map(|number| forge(&template, number)).collect();
    turn(&mut lab, FRONT, &mut frames);
    let opened = (0..400u16).filter(|number| {
        let client = (GOOD, 5000 + *number);
        one(&mut lab, FRONT, tcp(client, (VIP, 81), SYN, (1, 0), b"")).0 == Verdict::Tx(BACK)
    });
    assert_eq!(opened.count(), 400);
    assert_eq!(lab.path.counters().of(Reason::LocalPortsExhausted), 0);
    lab.check_gauges();
}

#[test]
fn a_flood_does_not_fill_a_service_that_has_a_limit() {
    for upper in [false, true] {
        let limit = |spec: &mut Spec| {
            spec.services[1].mode = Mode::Dr;
            match upper {
                false => spec.services[1].max_sessions = 100,
                true => spec.services[1].reals[0].upper_sessions = 100,
            }
        };
        let mut lab = world(limit, 2000);
        let template = tcp(([FORGED[0], FORGED[1], 0, 0], 1024), (VIP, 80), SYN, (7, 0), b"");
        let mut frames: Vec<_> = (0..1000).map(|number| forge(&template, number)).collect();
        turn(&mut lab, FRONT, &mut frames);
        assert!(lab.path.live_sessions() <= 100);
        // Each of them completes its handshake, until they are the most.
        for number in 0..40 {
            assert_eq!(connects(&mut lab, (GOOD, 5000 + number), 80), Verdict::Tx(BACK), "{upper}");
        }
        lab.check_gauges();
    }
}

/// Clients that mean it do not push each other out where a service is full of connections.
#[test]
fn a_full_service_refuses_before_it_ends_a_handshake() {
    let mut lab = world(
        |spec| {
            spec.services[1].mode = Mode::Dr;
            spec.services[1].max_sessions = 10;
        },
        2000,
    );
    for number in 0..9 {
        connects(&mut lab, (GOOD, 5000 + number), 80);
    }
    let syn = |port| tcp((GOOD, port), (VIP, 80), SYN, (1, 0), b"");
    assert_eq!(one(&mut lab, FRONT, syn(6000)).0, Verdict::Tx(BACK));
    let refused = Verdict::Answer(FRONT, Reason::ServiceFull);
    assert_eq!(one(&mut lab, FRONT, syn(6001)).0, refused);
    let ack = tcp((GOOD, 6000), (VIP, 80), ACK, (2, 10), b"");
    assert_eq!(one(&mut lab, FRONT, ack).0, Verdict::Tx(BACK));
    one(&mut lab, FRONT, tcp((GOOD, 5000), (VIP, 80), RST, (2, 0), b""));
    assert_eq!(one(&mut lab, FRONT, syn(6002)).0, Verdict::Tx(BACK));
    lab.now.0 += 1000;
    assert_eq!(one(&mut lab, FRONT, syn(6003)).0, Verdict::Tx(BACK), "nobody came back for it");
    assert_eq!(lab.path.counters().evicted, 1);
}

/// Forged clients of a persistent service are remembered no longer than they are half-open.
#[test]
fn under_pressure_only_who_completes_a_handshake_is_remembered() {
    let persistent = |spec: &mut Spec| {
        spec.services[1].mode = Mode::Dr;
        spec.services[1].persistence = Some(Persistence { timeout_s: 300, prefix: 32 });
    };
    let mut lab = world(persistent, 4000);
    let template = tcp(([FORGED[0], FORGED[1], 0, 0], 1024), (VIP, 80), SYN, (7, 0), b"");
    for burst in 0..40 {
        let mut frames: Vec<_> = (0..200).map(|at| forge(&template, burst * 200 + at)).collect();
        turn(&mut lab, FRONT, &mut frames);
        lab.path.sweep(&lab.plan, lab.now);
        lab.now.0 += 1;
    }
    assert!(lab.path.templates() < 2000, "{}", lab.path.templates());
    let before = lab.path.templates();
    assert_eq!(connects(&mut lab, (GOOD, 5000), 80), Verdict::Tx(BACK));
    assert_eq!(lab.path.templates(), before + 1);
    assert!(lab.plan.service(ServiceId(1)).is_some());
    lab.check_gauges();
}
