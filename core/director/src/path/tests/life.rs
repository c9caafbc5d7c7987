//! Sessions from their first packet to their end.

use super::lab::{BACK, CLIENT, FRONT, LOCAL, Lab, Packet, REAL, REAL_2, VIP, tcp, udp};
use crate::path::{SessionFilter, Verdict};
use crate::plan::{Plan, Retired};
use crate::reason::Reason;
use crate::session::State;
use sluice_wire::tcp::{ACK, FIN, RST, SYN};

/// Opens a connection from a client port and gives the real server and local port it got.
fn open(lab: &mut Lab, port: u16) -> ([u8; 4], u16) {
    let mut syn = tcp((CLIENT, port), (VIP, 80), SYN, (100, 0), b"");
    assert_eq!(lab.one(FRONT, &mut syn), Verdict::Tx(BACK));
    let there = Packet::read(&syn);
    let mut answer = tcp((there.dst, 80), (LOCAL, there.sport), SYN | ACK, (500, 101), b"");
    assert_eq!(lab.one(BACK, &mut answer), Verdict::Tx(FRONT));
    let mut ack = tcp((CLIENT, port), (VIP, 80), ACK, (101, 501), b"");
    assert_eq!(lab.one(FRONT, &mut ack), Verdict::Tx(BACK));
    (there.dst, there.sport)
}

fn states(lab: &Lab) -> Vec<State> {
    let mut out = Vec::new();
    let filter = SessionFilter::default();
    let end = lab.path.list(&lab.plan, lab.now, &filter, (0, 1000), &mut out);
    assert_eq!(end, None);
    out.iter().map(|session| session.state).collect()
}

#[test]
fn round_robin_and_four_way_close() {
    let mut lab = Lab::new();
    let reals: Vec<_> = (0..4).map(|i| open(&mut lab, 2000 + i)).collect();
    assert_eq!(reals[0].0, REAL);
    assert_eq!(reals[1].0, REAL_2);
    assert_eq!(reals[2].0, REAL);
    assert_eq!(states(&lab), [State::Established; 4]);
    let (real, local) = reals[0];
    let client = |flags, seq, ack| tcp((CLIENT, 2000), (VIP, 80), flags, (seq, ack), b"");
    let server = |flags, seq, ack| tcp((real, 80), (LOCAL, local), flags, (seq, ack), b"");
    for (port, mut frame, live) in [
        (FRONT, client(FIN | ACK, 101, 501), 4),
        (BACK, server(ACK, 501, 102), 4),
        (BACK, server(FIN | ACK, 501, 102), 4),
        (FRONT, client(ACK, 102, 502), 3),
    ] {
        assert!(matches!(lab.one(port, &mut frame), Verdict::Tx(_)));
        assert_eq!(lab.path.live_sessions(), live);
    }
    assert_eq!(lab.path.counters().closed, 1);
    assert_eq!(lab.path.counters().reals[1].active, 1);
}

/// With `tcp_time_wait_s = 0` connections follow each other as fast as they may, with few ports and
/// few places.
#[test]
fn what_has_ended_takes_no_port_and_no_place() {
    let mut lab = Lab::with(|b| b.pools[0].ports = 1024..=1025, 8, (0, 1));
    for number in 0..100 {
        let (real, local) = open(&mut lab, 2000 + number);
        let client =
            |flags, seq, ack| tcp((CLIENT, 2000 + number), (VIP, 80), flags, (seq, ack), b"");
        let server = |flags, seq, ack| tcp((real, 80), (LOCAL, local), flags, (seq, ack), b"");
        let fin = server(FIN | ACK, 501, 102);
        for (port, mut frame) in [
            (FRONT, client(FIN | ACK, 101, 501)),
            (BACK, fin.clone()),
            (FRONT, client(ACK, 102, 502)),
            // The acknowledgement was lost.
            (BACK, fin),
            (FRONT, client(ACK, 102, 502)),
        ] {
            assert!(matches!(lab.one(port, &mut frame), Verdict::Tx(_)));
        }
        assert_eq!(lab.path.live_sessions(), 0);
        assert_eq!(states(&lab), []);
        assert_eq!(lab.path.counters().closed, u64::from(number) + 1);
        lab.check_gauges();
    }
    // As many at once as there may be.
    for number in 0..4 {
        open(&mut lab, 3000 + number);
    }
    assert_eq!(lab.path.live_sessions(), 4);
    lab.after_s(100_000);
    lab.path.sweep_all(&lab.plan, lab.now);
    assert_eq!(lab.path.counters().expired, 4);
    assert!(lab.path.counters().reals.iter().all(|real| !real.is_used()));
}

/// Gauges of a real server in a connection's life. What IPVS calls active is all but what closes.
#[test]
fn gauges_follow_a_session() {
    let mut lab = Lab::with(|b| b.timeouts.tcp_time_wait_s = 60, 1000, (0, 1));
    let of = |lab: &Lab| {
        let real = lab.path.counters().reals[1];
        [real.flowing(), real.established.into(), real.closing.into(), real.handshakes]
    };
    let mut syn = tcp((CLIENT, 2000), (VIP, 80), SYN, (100, 0), b"");
    lab.one(FRONT, &mut syn);
    assert_eq!(of(&lab), [1, 0, 0, 0]);
    let local = Packet::read(&syn).sport;
    let client = |flags, seq, ack| tcp((CLIENT, 2000), (VIP, 80), flags, (seq, ack), b"");
    let server = |flags, seq, ack| tcp((REAL, 80), (LOCAL, local), flags, (seq, ack), b"");
    for (port, mut frame, right) in [
        (BACK, server(SYN | ACK, 500, 101), [1, 0, 0, 0]),
        (FRONT, client(ACK, 101, 501), [1, 1, 0, 1]),
        (FRONT, client(ACK, 101, 501), [1, 1, 0, 1]),
        (BACK, server(FIN | ACK, 501, 101), [0, 0, 1, 1]),
        (BACK, server(FIN | ACK, 501, 101), [0, 0, 1, 1]),
        (FRONT, client(FIN | ACK, 101, 502), [0, 0, 1, 1]),
        (BACK, server(ACK, 502, 102), [0, 0, 1, 1]),
    ] {
        assert!(matches!(lab.one(port, &mut frame), Verdict::Tx(_)));
        assert_eq!(of(&lab), right);
    }
    lab.after_s(61);
    lab.path.sweep_all(&lab.plan, lab.now);
    assert_eq!(of(&lab), [0, 0, 0, 1]);
    // An open one that times out, and datagrams, which no end shows of.
    open(&mut lab, 2002);
    open(&mut lab, 2003);
    assert_eq!(of(&lab), [1, 1, 0, 2]);
    lab.one(FRONT, &mut udp((CLIENT, 2000), (VIP, 53), b"a question"));
    assert_eq!(lab.path.counters().reals[0].flowing(), 1);
    lab.after_s(100_000);
    lab.path.sweep_all(&lab.plan, lab.now);
    lab.check_gauges();
    assert!(lab.path.counters().reals.iter().all(|real| !real.is_used()));
}

#[test]
fn a_reset_ends_a_session_and_is_forwarded() {
    let mut lab = Lab::new();
    let (real, local) = open(&mut lab, 2000);
    let mut reset = tcp((real, 80), (LOCAL, local), RST | ACK, (501, 101), b"");
    assert_eq!(lab.one(BACK, &mut reset), Verdict::Tx(FRONT));
    assert!(Packet::read(&reset).tcp.unwrap().rst);
    assert_eq!(lab.path.live_sessions(), 0);
}

/// A reset and a new SYN of the same client port in one burst: the new connection lives.
#[test]
fn a_port_is_used_again_within_a_burst() {
    let mut lab = Lab::new();
    open(&mut lab, 2000);
    let mut frames = [
        tcp((CLIENT, 2000), (VIP, 80), RST, (101, 0), b""),
        tcp((CLIENT, 2000), (VIP, 80), SYN, (9000, 0), b""),
    ];
    assert_eq!(lab.burst(FRONT, &mut frames), [Verdict::Tx(BACK), Verdict::Tx(BACK)]);
    assert_eq!(states(&lab), [State::SynRecv]);
    assert_eq!((lab.path.counters().created, lab.path.counters().closed), (2, 1));
}

#[test]
fn sessions_time_out_by_state() {
    let mut lab = Lab::new();
    open(&mut lab, 2000);
    lab.one(FRONT, &mut tcp((CLIENT, 2001), (VIP, 80), SYN, (1, 0), b""));
    lab.one(FRONT, &mut udp((CLIENT, 2002), (VIP, 53), b"?"));
    assert_eq!(lab.path.live_sessions(), 3);
    let mut live_after = |seconds| {
        lab.after_s(seconds);
        lab.path.sweep_all(&lab.plan, lab.now);
        lab.path.live_sessions()
    };
    assert_eq!(live_after(30), 3, "at its timeout a session is still there");
    assert_eq!(live_after(1), 2, "UDP is over after 30 s");
    assert_eq!(live_after(30), 1, "SYN_RECV is over after 60 s");
    assert_eq!(live_after(900 - 61), 1);
    assert_eq!(live_after(1), 0, "ESTABLISHED is over after 900 s");
    assert_eq!(lab.path.counters().expired, 3);
}

/// A packet never meets an expired session, even if the sweep has not come by.
#[test]
fn an_expired_session_is_not_found() {
    let mut lab = Lab::new();
    open(&mut lab, 2000);
    lab.after_s(901);
    let mut late = tcp((CLIENT, 2000), (VIP, 80), ACK, (101, 501), b"");
    assert_eq!(lab.one(FRONT, &mut late), Verdict::Drop(Reason::NoSession));
    assert_eq!((lab.path.live_sessions(), lab.path.counters().expired), (0, 1));
}

/// The sweep's cursor reaches every slot within its time, in calls of any spacing.
#[test]
fn the_sweep_gets_around() {
    for step_ms in [1u64, 50, 400, 5000] {
        let mut lab = Lab::new();
        for port in 0..500 {
            lab.one(FRONT, &mut udp((CLIENT, 2000 + port), (VIP, 53), b"?"));
        }
        lab.after_s(31);
        lab.path.sweep(&lab.plan, lab.now);
        let mut passed = 0;
        while passed <= 2000 {
            lab.now.0 += step_ms;
            passed += step_ms;
            lab.path.sweep(&lab.plan, lab.now);
        }
        assert_eq!(lab.path.live_sessions(), 0, "steps of {step_ms} ms");
    }
}

#[test]
fn a_removed_real_server_keeps_its_sessions_and_gets_no_new_ones() {
    let mut lab = Lab::new();
    let (real, local) = open(&mut lab, 2000);
    assert_eq!(real, REAL);
    let mut spec = super::lab::spec();
    spec.services[1].reals = vec![super::lab::real(REAL_2, 80)];
    lab.plan = Plan::compile(&spec, Some(&lab.plan), &Retired::default()).unwrap();
    lab.fib = super::lab::fib(&lab.plan);
    lab.path.adopt(&lab.plan);
    let mut data = tcp((CLIENT, 2000), (VIP, 80), ACK, (101, 501), b"still here");
    assert_eq!(lab.one(FRONT, &mut data), Verdict::Tx(BACK));
    assert_eq!((Packet::read(&data).dst, Packet::read(&data).sport), (REAL, local));
    assert_eq!(open(&mut lab, 2001).0, REAL_2);
    assert_eq!(open(&mut lab, 2002).0, REAL_2);
}

#[test]
fn a_full_table_and_an_exhausted_pool_refuse_cleanly() {
    let mut lab = Lab::with(|b| b.gives_way = false, 5, (0, 1));
    let verdict = |lab: &mut Lab, port| lab.one(FRONT, &mut udp((CLIENT, port), (VIP, 53), b"?"));
    for port in 0..5 {
        assert_eq!(verdict(&mut lab, 2000 + port), Verdict::Tx(BACK));
    }
    assert_eq!(verdict(&mut lab, 2005), Verdict::Drop(Reason::SessionsFull));
    assert_eq!(verdict(&mut lab, 2000), Verdict::Tx(BACK), "those that are there go on");
    let few = |b: &mut crate::spec::Spec| {
        (b.pools[0].ports, b.gives_way) = (1024..=1026, false);
    };
    let mut lab = Lab::with(few, 100, (0, 1));
    for port in 0..3 {
        assert_eq!(verdict(&mut lab, 2000 + port), Verdict::Tx(BACK));
    }
    assert_eq!(verdict(&mut lab, 2003), Verdict::Drop(Reason::LocalPortsExhausted));
    lab.after_s(31);
    lab.path.sweep_all(&lab.plan, lab.now);
    assert_eq!(verdict(&mut lab, 2004), Verdict::Tx(BACK), "ports come back with expiry");
}

/// What is over ends wherever it is in the table, and nothing else does, however many there are.
#[test]
fn one_sweep_ends_all_that_is_over() {
    for (all, over) in [(1, 1), (16, 16), (17, 3), (64, 40), (65, 65), (300, 150)] {
        let mut lab = Lab::new();
        for port in 0..all {
            let mut query = udp((CLIENT, 2000 + port), (VIP, 53), b"which?");
            assert_eq!(lab.one(FRONT, &mut query), Verdict::Tx(BACK));
        }
        let timeout_s = u64::from(lab.plan.state_ms[State::Udp as usize]) / 1000;
        lab.after_s(timeout_s / 2);
        let stays = |port: u16| u32::from(port) * 7 % u32::from(all) >= over;
        for port in (0..all).filter(|port| stays(*port)) {
            let mut query = udp((CLIENT, 2000 + port), (VIP, 53), b"which?");
            lab.one(FRONT, &mut query);
        }
        lab.after_s(timeout_s / 2 + 1);
        lab.path.sweep_all(&lab.plan, lab.now);
        let left = (0..all).filter(|port| stays(*port)).count() as u32;
        assert_eq!(lab.path.live_sessions(), left);
        assert_eq!(lab.path.counters().expired, u64::from(u32::from(all) - left));
        lab.check_gauges();
    }
}
