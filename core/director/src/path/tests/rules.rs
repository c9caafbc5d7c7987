//! What a service rules about its sessions: persistence, limits, orphans, one packet at a time,
//! which ports are its own, and which worker a session belongs to.

use super::lab::{self, BACK, CLIENT, FRONT, LOCAL, Lab, MemFrame, Packet, REAL, REAL_2, VIP};
use crate::counters::ServiceDrops;
use crate::fib::{FibBuilder, Link, Target};
use crate::path::{SessionFilter, Verdict};
use crate::plan::{Plan, RealId, Retired, ServiceId};
use crate::reason::Reason;
use crate::spec::{Mode, Network, Orphans, Persistence, Ports, Spec, VirtualService};
use sluice_wire::tcp::{ACK, FIN, SYN};

const OTHER: [u8; 4] = [198, 51, 100, 49];

/// A lab whose TCP service was changed.
fn web(change: impl FnOnce(&mut VirtualService)) -> Lab {
    Lab::with(|spec| change(&mut spec.services[1]), 1000, (0, 1))
}

fn tcp(from: ([u8; 4], u16), flags: u8) -> MemFrame {
    lab::tcp(from, (VIP, 80), flags, (100, 0), b"")
}

/// The real server that a client's new connection gets.
fn real_of(lab: &mut Lab, from: ([u8; 4], u16)) -> [u8; 4] {
    let mut frame = tcp(from, SYN);
    assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
    Packet::read(&frame).dst
}

/// The same lab with another configuration.
fn reload(lab: &mut Lab, change: impl FnOnce(&mut Spec)) {
    reload_without(lab, &Retired::default(), change);
}

/// The same, with ids that are free again.
fn reload_without(lab: &mut Lab, retired: &Retired, change: impl FnOnce(&mut Spec)) {
    let mut spec = lab::spec();
    change(&mut spec);
    lab.plan = Plan::compile(&spec, Some(&lab.plan), retired).unwrap();
    lab.fib = lab::fib(&lab.plan);
    lab.path.adopt(&lab.plan);
}

#[test]
fn a_client_persists() {
    let persistence = Some(Persistence { timeout_s: 60, prefix: 32 });
    let mut lab = web(|service| service.persistence = persistence);
    lab.fib = lab::fib_to_anywhere(&lab.plan);
    let first = real_of(&mut lab, (CLIENT, 1000));
    for port in 1001..1010 {
        assert_eq!(real_of(&mut lab, (CLIENT, port)), first);
    }
    assert_ne!(real_of(&mut lab, (OTHER, 1000)), first, "another client has its own turn");
    assert_eq!(lab.path.counters().created, 11, "templates are no sessions");
    assert_eq!((lab.path.live_sessions(), lab.path.templates()), (11, 2));
    let bound = |lab: &Lab| -> Vec<u32> {
        lab.path.counters().reals.iter().map(|real| real.bound).collect()
    };
    assert_eq!(bound(&lab), [0, 1, 1]);
    for port in 2000..2005 {
        lab.after_s(50);
        assert_eq!(real_of(&mut lab, (CLIENT, port)), first, "refreshed by each new session");
    }
    lab.after_s(61);
    assert_eq!(real_of(&mut lab, (CLIENT, 3000)), first, "whose turn it is");
    assert_ne!(real_of(&mut lab, (OTHER, 3000)), first);
    lab.after_s(61);
    lab.path.sweep_all(&lab.plan, lab.now);
    assert_eq!(bound(&lab), [0, 0, 0]);
    lab.check_gauges();
}

#[test]
fn a_prefix_of_clients_persists() {
    let persistence = Some(Persistence { timeout_s: 60, prefix: 24 });
    let mut lab = web(|service| service.persistence = persistence);
    lab.fib = lab::fib_to_anywhere(&lab.plan);
    let first = real_of(&mut lab, (CLIENT, 1000));
    for last in 0..20 {
        assert_eq!(real_of(&mut lab, ([198, 51, 100, last + 1], 1000)), first);
    }
    assert_ne!(real_of(&mut lab, ([203, 0, 113, 1], 1000)), first);
}

/// A client whose real server is drained goes elsewhere, and stays there.
#[test]
fn persistence_does_not_hold_on_to_who_takes_none() {
    let persistence = Some(Persistence { timeout_s: 600, prefix: 32 });
    let mut lab = web(|service| service.persistence = persistence);
    let first = real_of(&mut lab, (CLIENT, 1000));
    assert_eq!(first, REAL);
    reload(&mut lab, |spec| {
        spec.services[1].persistence = persistence;
        spec.services[1].reals[0].weight = 0;
    });
    assert_eq!(real_of(&mut lab, (CLIENT, 1001)), REAL_2);
    let mut old = tcp((CLIENT, 1000), ACK);
    assert_eq!(lab.one(FRONT, &mut old), Verdict::Tx(BACK));
    assert_eq!(Packet::read(&old).dst, REAL, "a live session stays");
}

/// Who is remembered but cannot be reached gets no session that goes nowhere.
#[test]
fn persistence_opens_no_session_without_a_route() {
    let mut lab = web(|service| {
        service.persistence = Some(Persistence { timeout_s: 600, prefix: 32 });
    });
    real_of(&mut lab, (CLIENT, 1000));
    let mut builder = FibBuilder::default();
    let front = Link { port: FRONT, mac: lab::FRONT_MAC, mtu: 1500, ..Link::default() };
    let front = builder.link(front);
    builder.route([198, 51, 100, 0].into(), 24, Target::OnLink(front));
    lab.fib = builder.build(&lab.plan, Some(&lab.fib));
    let refused = lab.one(FRONT, &mut tcp((CLIENT, 1001), SYN));
    assert_eq!(refused, Verdict::Drop(Reason::NoRoute));
    assert_eq!((lab.path.live_sessions(), lab.path.counters().created), (1, 1));
}

#[test]
fn limits_refuse_with_a_reason() {
    let mut lab = web(|service| service.max_sessions = 3);
    let mut opens = |port| {
        let verdict = lab.one(FRONT, &mut tcp((CLIENT, port), SYN));
        // A half-open session would give way to the next.
        lab.one(FRONT, &mut tcp((CLIENT, port), ACK));
        verdict
    };
    let verdicts: Vec<_> = (0..5).map(|port| opens(1000 + port)).collect();
    let full = Verdict::Answer(FRONT, Reason::ServiceFull);
    assert_eq!(verdicts[2..], [Verdict::Tx(BACK), full, full]);
    assert_eq!(lab.one(FRONT, &mut tcp((CLIENT, 1000), SYN)), Verdict::Tx(BACK), "a known one");

    let mut lab = web(|service| service.max_new_per_s = 2);
    let try_three = |lab: &mut Lab, port: u16| -> usize {
        let mut opens =
            |at| lab.one(FRONT, &mut tcp((CLIENT, port + at), SYN)) == Verdict::Tx(BACK);
        (0..3).filter(|at| opens(*at)).count()
    };
    assert_eq!(try_three(&mut lab, 1000), 2);
    lab.after_s(1);
    assert_eq!(try_three(&mut lab, 2000), 2);
    assert_eq!(lab.path.counters().of(Reason::ServiceRate), 2);

    let mut lab = web(|service| service.reals.iter_mut().for_each(|r| r.upper_sessions = 1));
    let mut opens = |port| {
        let verdict = lab.one(FRONT, &mut tcp((CLIENT, port), SYN));
        lab.one(FRONT, &mut tcp((CLIENT, port), ACK));
        verdict
    };
    let verdicts: Vec<_> = (0..3).map(|port| opens(1000 + port)).collect();
    assert_eq!(verdicts[2], Verdict::Answer(FRONT, Reason::RealsFull));
}

/// What a service refuses is counted under it too, and under no other; what reaches no service,
/// and what is forwarded, under none.
#[test]
fn drops_are_counted_by_service() {
    let mut lab = web(|service| service.max_sessions = 1);
    let web = usize::from(ServiceId(1).0);
    lab.one(FRONT, &mut tcp((CLIENT, 1000), SYN));
    lab.one(FRONT, &mut tcp((CLIENT, 1000), ACK));
    lab.one(FRONT, &mut tcp((CLIENT, 1001), SYN));
    lab.one(FRONT, &mut tcp((CLIENT, 1002), SYN));
    lab.one(FRONT, &mut tcp((CLIENT, 1003), ACK));
    lab.one(FRONT, &mut tcp((VIP, 1004), SYN));
    // To a local port that no session has.
    lab.one(BACK, &mut lab::tcp((REAL, 80), (LOCAL, 9_999), ACK, (1, 0), b""));
    let counters = lab.path.counters();
    assert_eq!((counters.of(Reason::NoSession), counters.of(Reason::ServiceFull)), (2, 2));
    let by_service: Vec<Vec<_>> = (counters.services.iter())
        .map(|drops| drops.by_reason().filter(|(_, packets)| *packets > 0).collect())
        .collect();
    let expected =
        [(Reason::Martian, 1), (Reason::NoSession, 1), (Reason::ServiceFull, 2)].to_vec();
    assert_eq!(by_service[web], expected);
    assert!(by_service.iter().enumerate().all(|(at, drops)| at == web || drops.is_empty()));
    // Its id goes to another service, which begins at none.
    let other = |spec: &mut Spec| spec.services[1].ports = Ports::one(81);
    reload(&mut lab, |spec| {
        spec.services.remove(1);
    });
    lab.after_s(1_000);
    lab.path.sweep_all(&lab.plan, lab.now);
    let reals = [RealId(1), RealId(2)].into();
    reload_without(&mut lab, &Retired { services: [ServiceId(1)].into(), reals }, other);
    assert_eq!(lab.path.counters().services[web], ServiceDrops::default());
}

/// What is left of a service's new sessions goes with it; its id is another's a moment later.
#[test]
fn a_service_does_not_inherit_what_another_used_up() {
    let limited = |spec: &mut Spec, port| {
        spec.services[1].ports = Ports::one(port);
        spec.services[1].max_new_per_s = 2;
    };
    let opens = |lab: &mut Lab, port: u16| {
        let opens = |at: u16| {
            let mut frame = lab::tcp((CLIENT, 1000 + at), (VIP, port), SYN, (1, 0), b"");
            lab.one(FRONT, &mut frame) == Verdict::Tx(BACK)
        };
        (0..4u16).map(opens).filter(|opens| *opens).count()
    };
    let mut lab = web(|service| service.max_new_per_s = 2);
    assert_eq!(opens(&mut lab, 80), 2);
    reload(&mut lab, |spec| limited(spec, 80));
    assert_eq!(opens(&mut lab, 80), 2, "the two that it has; a reload gives it no more");
    let all = SessionFilter::default();
    assert_eq!(lab.path.kill(&lab.plan, lab.now, &all, (0, 1000)), (2, None));
    reload(&mut lab, |spec| drop(spec.services.remove(1)));
    let gone = Retired { services: [ServiceId(1)].into(), reals: [RealId(1), RealId(2)].into() };
    reload_without(&mut lab, &gone, |spec| limited(spec, 81));
    assert_eq!(lab.plan.services[1].ports, Ports::one(81), "its id was given again");
    assert_eq!(opens(&mut lab, 81), 2);
}

#[test]
fn sessions_of_a_real_server_that_is_gone_follow_the_rule() {
    for rule in [Orphans::Keep, Orphans::Reset, Orphans::Reschedule] {
        for removed in [false, true] {
            let mut lab = Lab::new();
            assert_eq!(real_of(&mut lab, (CLIENT, 1000)), REAL);
            assert_eq!(real_of(&mut lab, (CLIENT, 1001)), REAL_2);
            reload(&mut lab, |spec| {
                let service = &mut spec.services[1];
                (service.on_removed, service.on_down) = (rule, rule);
                if removed {
                    service.reals.remove(0);
                } else {
                    service.reals[0].down = true;
                }
            });
            let case = format!("{rule:?}, removed: {removed}");
            // What the real server still sends does not keep the client from hearing of it.
            if rule != Orphans::Keep {
                let mut late = lab::tcp((REAL, 80), (LOCAL, 1024), ACK, (1, 2), b"data");
                let gone = Verdict::Drop(Reason::RealGone);
                assert_eq!(lab.one(BACK, &mut late), gone, "{case}");
            }
            let mut frame = tcp((CLIENT, 1000), ACK);
            let verdict = lab.one(FRONT, &mut frame);
            match rule {
                Orphans::Keep => {
                    assert_eq!(verdict, Verdict::Tx(BACK), "{case}");
                    assert_eq!(Packet::read(&frame).dst, REAL, "{case}");
                }
                Orphans::Reset => {
                    assert_eq!(verdict, Verdict::Answer(FRONT, Reason::RealGone), "{case}");
                    let reset = Packet::read(&frame);
                    assert!(reset.tcp.unwrap().rst, "{case}");
                    assert_eq!((reset.src, reset.dst), (VIP, CLIENT), "{case}");
                    assert_eq!(lab.path.live_sessions(), 1, "{case}");
                }
                Orphans::Reschedule => {
                    assert_eq!(verdict, Verdict::Tx(BACK), "{case}");
                    assert_eq!(Packet::read(&frame).dst, REAL_2, "{case}");
                }
            }
            let mut other = tcp((CLIENT, 1001), ACK);
            assert_eq!(lab.one(FRONT, &mut other), Verdict::Tx(BACK), "{case}");
            assert_eq!(Packet::read(&other).dst, REAL_2, "the others stay: {case}");
        }
    }
}

/// UDP goes on elsewhere with the next datagram.
#[test]
fn datagrams_leave_a_dead_real_server_at_once() {
    let two = |spec: &mut Spec, down| {
        let mut dead = lab::real(REAL, 53);
        dead.down = down;
        spec.services[0].reals = vec![dead, lab::real(REAL_2, 53)];
    };
    let mut lab = Lab::with(|spec| two(spec, false), 100, (0, 1));
    let ask = |lab: &mut Lab| {
        let mut frame = lab::udp((CLIENT, 4000), (VIP, 53), b"?");
        assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
        Packet::read(&frame).dst
    };
    assert_eq!(ask(&mut lab), REAL);
    reload(&mut lab, |spec| two(spec, true));
    assert_eq!(ask(&mut lab), REAL_2);
    assert_eq!(lab.path.live_sessions(), 1);
}

/// A new SYN when the old connection has been half closed for a while opens another one, with
/// another local port.
#[test]
fn a_port_that_is_used_again_means_a_new_connection() {
    let mut lab = Lab::new();
    let mut frame = tcp((CLIENT, 1000), SYN);
    lab.one(FRONT, &mut frame);
    let first = Packet::read(&frame);
    lab.one(FRONT, &mut tcp((CLIENT, 1000), ACK));
    lab.one(FRONT, &mut tcp((CLIENT, 1000), FIN | ACK));
    let mut frame = tcp((CLIENT, 1000), SYN);
    lab.one(FRONT, &mut frame);
    assert_eq!(Packet::read(&frame).dst, REAL, "it may still be alive");
    lab.after_s(6);
    let mut frame = tcp((CLIENT, 1000), SYN);
    assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
    let second = Packet::read(&frame);
    assert_eq!((first.dst, second.dst), (REAL, REAL_2), "the next one's turn");
    assert_eq!(lab.path.live_sessions(), 1);
    assert_eq!((lab.path.counters().created, lab.path.counters().closed), (2, 1));
}

/// Each datagram has its own turn; answers find their way for a while.
#[test]
fn one_packet_at_a_time() {
    let mut lab = Lab::with(
        |spec| {
            spec.services[0].one_packet = true;
            spec.services[0].reals = vec![lab::real(REAL, 53), lab::real(REAL_2, 53)];
        },
        100,
        (0, 1),
    );
    let mut answers = Vec::new();
    for turn in 0..4 {
        let mut frame = lab::udp((CLIENT, 4000), (VIP, 53), b"?");
        assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
        let there = Packet::read(&frame);
        assert_eq!(there.dst, [REAL, REAL_2][turn % 2]);
        answers.push(((there.dst, 53), (there.src, there.sport)));
    }
    for (real, local) in answers {
        let mut frame = lab::udp(real, local, b"!");
        assert_eq!(lab.one(BACK, &mut frame), Verdict::Tx(FRONT));
        let back = Packet::read(&frame);
        assert_eq!((back.src, back.sport, back.dst, back.dport), (VIP, 53, CLIENT, 4000));
    }
    let Lab { path, plan, now, .. } = lab.after_s(11);
    path.sweep_all(plan, *now);
    assert_eq!(path.live_sessions(), 0);
}

/// A session of one packet is in the place of one that ended just before in the same burst: what
/// follows was looked up while that was still there.
#[test]
fn one_packet_at_a_time_in_a_burst() {
    let two = vec![lab::real(REAL, 53), lab::real(REAL_2, 53)];
    let mut lab = Lab::with(|spec| spec.services[0].reals = two.clone(), 100, (0, 1));
    let question = || lab::udp((CLIENT, 4000), (VIP, 53), b"?");
    assert_eq!(lab.one(FRONT, &mut question()), Verdict::Tx(BACK));
    reload(&mut lab, |spec| {
        spec.services[0].one_packet = true;
        spec.services[0].reals = two;
    });
    lab.after_s(1000);
    let mut burst: Vec<_> = (0..4).map(|_| question()).collect();
    assert_eq!(lab.burst(FRONT, &mut burst), [Verdict::Tx(BACK); 4]);
    let went: Vec<_> = burst.iter().map(|frame| Packet::read(frame).dst).collect();
    assert_eq!(went, [REAL_2, REAL, REAL_2, REAL]);
}

/// NAT cannot tell two sessions apart whose answers would look alike.
#[test]
fn answers_that_look_alike_are_refused() {
    let mut lab = Lab::with(
        |spec| {
            let mut service = spec.services[1].clone();
            service.reals.truncate(1);
            service.mode = Mode::Nat;
            let second =
                VirtualService { name: "again".into(), ports: Ports::one(81), ..service.clone() };
            spec.services = vec![service, second];
        },
        100,
        (0, 1),
    );
    assert_eq!(lab.one(FRONT, &mut tcp((CLIENT, 1000), SYN)), Verdict::Tx(BACK));
    let mut alike = lab::tcp((CLIENT, 1000), (VIP, 81), SYN, (1, 0), b"");
    assert_eq!(lab.one(FRONT, &mut alike), Verdict::Drop(Reason::NatConflict));
    assert_eq!(lab.one(FRONT, &mut tcp((CLIENT, 1001), SYN)), Verdict::Tx(BACK));
}

#[test]
fn the_most_specific_service_takes_a_packet() {
    let mut lab = Lab::with(
        |spec| {
            let of = |ports, last| VirtualService {
                ports,
                reals: vec![lab::real([192, 0, 2, last], 0)],
                ..spec.services[1].clone()
            };
            let all = of(Ports::ALL, 11);
            let range = of(Ports { first: 8000, last: 8999 }, 12);
            let narrow = of(Ports { first: 8080, last: 8089 }, 11);
            let one = of(Ports::one(8081), 12);
            spec.services = vec![all, range, narrow, one];
        },
        100,
        (0, 1),
    );
    for (port, real) in [(7999, REAL), (8000, REAL_2), (8080, REAL), (8081, REAL_2), (9000, REAL)] {
        let mut frame = lab::tcp((CLIENT, 1000), (VIP, port), SYN, (1, 0), b"");
        assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK), "{port}");
        let there = Packet::read(&frame);
        assert_eq!((there.dst, there.dport), (real, port));
        let mut answer = lab::tcp((real, port), (there.src, there.sport), SYN | ACK, (1, 2), b"");
        assert_eq!(lab.one(BACK, &mut answer), Verdict::Tx(FRONT), "{port}");
        assert_eq!(Packet::read(&answer).sport, port);
    }
}

/// With several workers a session of NAT belongs to one that both directions lead to.
#[test]
fn both_directions_of_nat_meet_at_one_worker() {
    const WORKERS: u16 = 3;
    let mut labs: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let nat = |spec: &mut Spec| {
                spec.services.remove(0);
                spec.services[0].mode = Mode::Nat;
            };
            Lab::with(nat, 1000, (worker, WORKERS))
        })
        .collect();
    let mut owners = [0; WORKERS as usize];
    for port in 1000..1090 {
        let mut went = Vec::new();
        for (worker, lab) in (0..).zip(&mut labs) {
            let mut frame = tcp((CLIENT, port), SYN);
            match lab.one(FRONT, &mut frame) {
                Verdict::Tx(BACK) => went.push((worker, Packet::read(&frame).dst)),
                verdict => assert!(matches!(verdict, Verdict::HandOff(_)), "{verdict:?}"),
            }
        }
        let [(owner, real)] = went[..] else { panic!("one worker takes it: {went:?}") };
        owners[usize::from(owner)] += 1;
        for (worker, lab) in (0..).zip(&mut labs) {
            let mut frame = lab::tcp((real, 80), (CLIENT, port), SYN | ACK, (1, 2), b"");
            let expected =
                if worker == owner { Verdict::Tx(FRONT) } else { Verdict::HandOff(owner) };
            assert_eq!(lab.one(BACK, &mut frame), expected);
        }
    }
    assert!(owners.iter().all(|count| *count > 15), "{owners:?}");
}

/// Who is denied, or not allowed, opens nothing and hears nothing; what is open goes on.
#[test]
fn only_some_clients_are_served() {
    let net = |prefix| Network { address: CLIENT.into(), prefix };
    let mut lab = web(|service| service.deny = vec![net(32)]);
    for _ in 0..3 {
        assert_eq!(
            lab.one(FRONT, &mut tcp((CLIENT, 1000), SYN)),
            Verdict::Drop(Reason::ClientDenied)
        );
    }
    real_of(&mut lab, (OTHER, 1000));
    assert_eq!(lab.path.counters().of(Reason::ClientDenied), 3);
    assert_eq!(lab.path.live_sessions(), 1);
    reload(&mut lab, |spec| {
        spec.services[1].deny = vec![net(24)];
        spec.services[1].allow = vec![net(16)];
    });
    assert_eq!(lab.one(FRONT, &mut tcp((OTHER, 1000), ACK)), Verdict::Tx(BACK), "it is open");
    let denied = Verdict::Drop(Reason::ClientDenied);
    assert_eq!(lab.one(FRONT, &mut tcp((OTHER, 1001), SYN)), denied);
    reload(&mut lab, |spec| spec.services[1].allow = vec![net(32)]);
    real_of(&mut lab, (CLIENT, 1000));
    assert_eq!(lab.one(FRONT, &mut tcp((OTHER, 1001), SYN)), denied, "it is not allowed");
    reload(&mut lab, |_| {});
    real_of(&mut lab, (OTHER, 1001));
}

/// A service's own timeout, shorter or longer than that of its state, and also for what is open.
#[test]
fn a_service_says_how_long_silence_may_last() {
    let opened = |lab: &mut Lab, from| {
        real_of(lab, from);
        assert_eq!(lab.one(FRONT, &mut tcp(from, ACK)), Verdict::Tx(BACK));
    };
    let passes = |lab: &mut Lab, from| lab.one(FRONT, &mut tcp(from, ACK)) == Verdict::Tx(BACK);
    for (idle_timeout_s, lasts, too_long) in [(10, 10, 11), (2_678_400, 2_678_400, 2_678_401)] {
        let mut lab = web(|service| service.idle_timeout_s = idle_timeout_s);
        let dns = |port| lab::udp((CLIENT, port), (VIP, 53), b"a question");
        assert_eq!(lab.one(FRONT, &mut dns(2000)), Verdict::Tx(BACK));
        opened(&mut lab, (CLIENT, 1000));
        lab.after_s(lasts);
        lab.path.sweep_all(&lab.plan, lab.now);
        // The other service's goes by its state's: 30 s.
        assert_eq!(lab.path.live_sessions(), if lasts > 30 { 1 } else { 2 });
        assert!(passes(&mut lab, (CLIENT, 1000)));
        lab.after_s(too_long);
        assert!(!passes(&mut lab, (CLIENT, 1000)), "a packet meets nothing that is over");
    }
    let mut lab = Lab::new();
    opened(&mut lab, (CLIENT, 1000));
    lab.after_s(50);
    assert!(passes(&mut lab, (CLIENT, 1000)), "900 s without");
    reload(&mut lab, |spec| spec.services[1].idle_timeout_s = 20);
    lab.after_s(21);
    assert!(!passes(&mut lab, (CLIENT, 1000)));
}
