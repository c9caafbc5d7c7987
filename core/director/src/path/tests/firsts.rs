//! Bursts of first packets open what they open one at a time, whatever was foreseen of them.

use super::lab::{BACK, CLIENT, FRONT, LOCAL, Lab, MemFrame, REAL, REAL_2, VIP, cases, tcp, udp};
use crate::path::{Level, Verdict};
use crate::spec::{Mode, Persistence, Scheduling, Spec};
use proptest::prelude::*;
use sluice_wire::tcp::{ACK, FIN, RST, SYN};

const VIP_2: [u8; 4] = [198, 51, 100, 201];

/// Which way a packet goes.
#[derive(Clone, Copy, Debug)]
enum To {
    Web,
    /// Another service with the same real servers: by NAT its answers may be the other's too.
    Web2,
    Dns,
    /// An answer of one of two real servers, by NAT or to a local port.
    Client(bool),
}

#[derive(Clone, Copy, Debug)]
struct Shot {
    to: To,
    client_port: u16,
    flags: u8,
}

/// How a director is set up.
#[derive(Clone, Copy, Debug)]
struct Setting {
    mode: Mode,
    scheduler: Scheduling,
    /// The most sessions of the table, of each service, and of each real server; 0 for no limit.
    table: u32,
    service: u32,
    real: u32,
    per_s: u32,
    one_packet: bool,
    persistent: bool,
    mid_stream: bool,
}

fn any_shot() -> impl Strategy<Value = Shot> {
    let to = prop_oneof![
        6 => Just(To::Web), 2 => Just(To::Web2), 2 => Just(To::Dns),
        2 => any::<bool>().prop_map(To::Client),
    ];
    let flags = prop_oneof![
        12 => Just(SYN), 4 => Just(ACK), 1 => Just(SYN | ACK), 2 => Just(FIN | ACK), 1 => Just(RST),
    ];
    (to, 0u16..24, flags).prop_map(|(to, client_port, flags)| Shot { to, client_port, flags })
}

fn any_setting() -> impl Strategy<Value = Setting> {
    use Scheduling::{Fo, Lblc, Lc, P2c, Rr, Sh, Wlc, Wrr};
    let mode = prop_oneof![
        2 => Just(Mode::Fnat), 4 => Just(Mode::Nat), 1 => Just(Mode::Dr), 1 => Just(Mode::Ipip),
    ];
    let scheduler = proptest::sample::select(vec![Rr, Rr, Wrr, Lc, Wlc, Sh, P2c, Fo, Lblc]);
    let limits = (
        prop_oneof![2 => Just(1000), 1 => 5u32..20],
        prop_oneof![3 => Just(0), 1 => 3u32..15],
        prop_oneof![3 => Just(0), 1 => 3u32..10],
        prop_oneof![3 => Just(0), 1 => 3u32..10],
    );
    let seldom = || proptest::bool::weighted(0.2);
    (mode, scheduler, limits, seldom(), seldom(), seldom()).prop_map(
        |(mode, scheduler, (table, service, real, per_s), one_packet, persistent, mid_stream)| {
            Setting {
                mode,
                scheduler,
                table,
                service,
                real,
                per_s,
                one_packet,
                persistent,
                mid_stream,
            }
        },
    )
}

fn configure(spec: &mut Spec, setting: &Setting) {
    let mut other = spec.services[1].clone();
    (other.name, other.vip) = ("web2".into(), VIP_2.into());
    spec.services.push(other);
    spec.accept_mid_stream = setting.mid_stream;
    spec.services[0].one_packet = setting.one_packet;
    for service in &mut spec.services {
        (service.mode, service.scheduler) = (setting.mode, setting.scheduler);
        (service.max_sessions, service.max_new_per_s) = (setting.service, setting.per_s);
        let persistence = Persistence { timeout_s: 50, prefix: 32 };
        service.persistence = setting.persistent.then_some(persistence);
        for real in &mut service.reals {
            real.upper_sessions = setting.real;
        }
    }
    let source = crate::spec::Network { address: [192, 0, 2, 9].into(), prefix: 32 };
    spec.tunnel.v4 = Some(source);
}

fn frame(shot: Shot, setting: &Setting) -> MemFrame {
    let client = (CLIENT, 3000 + shot.client_port);
    let segment = |from, to| tcp(from, to, shot.flags, (100, 101), b"");
    match shot.to {
        To::Web => segment(client, (VIP, 80)),
        To::Web2 => segment(client, (VIP_2, 80)),
        To::Dns => udp(client, (VIP, 53), b"which?"),
        To::Client(second) => {
            let back = (LOCAL, 1024 + shot.client_port / 2);
            let to = if setting.mode == Mode::Fnat { back } else { client };
            segment((if second { REAL_2 } else { REAL }, 80), to)
        }
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn together_as_alone(
        setting in any_setting(),
        bursts in prop::collection::vec(
            (prop::collection::vec(any_shot(), 4..64), prop_oneof![Just(0), Just(2), 20u64..90]),
            1..5,
        ),
    ) {
        let new = |level| {
            let lab = Lab::with(|b| configure(b, &setting), setting.table, (0, 1));
            lab.at_level(level)
        };
        let (mut single, mut staged) = (new(Level::BASELINE), new(Level::detect()));
        for (shots, idle_s) in bursts {
            let mut alone: Vec<_> = shots.iter().map(|shot| frame(*shot, &setting)).collect();
            let mut together = alone.clone();
            let verdicts: Vec<_> = alone.iter_mut().map(|f| single.one(FRONT, f)).collect();
            let both = staged.burst(FRONT, &mut together);
            for (at, shot) in shots.iter().enumerate() {
                prop_assert_eq!(both[at], verdicts[at], "{}: {:?}", at, shot);
                prop_assert_eq!(&together[at], &alone[at], "{}: {:?}", at, shot);
            }
            prop_assert_eq!(single.path.counters(), staged.path.counters());
            prop_assert_eq!(single.path.live_sessions(), staged.path.live_sessions());
            for lab in [&mut single, &mut staged] {
                lab.after_s(idle_s);
                lab.path.sweep_all(&lab.plan, lab.now);
            }
        }
    }
}

/// A burst of nothing else is all opened, in every mode that keeps packets plain.
#[test]
fn a_burst_of_first_packets() {
    for mode in [Mode::Fnat, Mode::Nat, Mode::Dr] {
        let change = |b: &mut Spec| b.services.iter_mut().for_each(|s| s.mode = mode);
        let mut lab = Lab::with(change, 1000, (0, 1));
        let syn = |port| tcp((CLIENT, port), (VIP, 80), SYN, (100, 0), b"");
        let mut frames: Vec<_> = (0..64).map(|at| syn(3000 + at)).collect();
        let verdicts = lab.burst(FRONT, &mut frames);
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Tx(BACK)), "{verdicts:?}");
        assert_eq!(lab.path.live_sessions(), 64);
        let reals = &lab.path.counters().reals;
        let taken: Vec<_> = reals.iter().map(|real| real.sessions).filter(|n| *n > 0).collect();
        assert_eq!(taken, [32, 32], "one after the other");
    }
}

/// First packets, and second ones of their flows, at every place among those of others' sessions:
/// what becomes of all of them is what it is one at a time, also where a limit refuses some.
#[test]
fn few_first_packets_among_others() {
    let modes = [Mode::Fnat, Mode::Nat, Mode::Dr, Mode::Ipip];
    for (mode, limit, step) in modes.into_iter().flat_map(|m| [(m, 0, 5), (m, 0, 8), (m, 20, 7)]) {
        let setting = Setting {
            mode,
            scheduler: Scheduling::Rr,
            table: 1000,
            service: limit,
            real: 0,
            per_s: 0,
            one_packet: false,
            persistent: false,
            mid_stream: true,
        };
        let new = |level| {
            let lab = Lab::with(|b| configure(b, &setting), setting.table, (0, 1));
            lab.at_level(level)
        };
        let (mut single, mut staged) = (new(Level::BASELINE), new(Level::detect()));
        let shot = |client_port, flags| frame(Shot { to: To::Web, client_port, flags }, &setting);
        for lab in [&mut single, &mut staged] {
            let mut others: Vec<_> = (0..16).map(|port| shot(port, ACK)).collect();
            lab.burst(FRONT, &mut others);
        }
        for place in 0..8 {
            let mut alone: Vec<_> = (0..64).map(|at| shot(at % 16, ACK)).collect();
            for (at, port) in (place..64).step_by(step).zip(100 * (place as u16 + 1)..) {
                alone[at] = shot(port, SYN);
                if let Some(next) = alone.get_mut(at + 1).filter(|_| port.is_multiple_of(3)) {
                    *next = shot(port, SYN);
                }
            }
            let mut together = alone.clone();
            let verdicts: Vec<_> = alone.iter_mut().map(|f| single.one(FRONT, f)).collect();
            assert_eq!(staged.burst(FRONT, &mut together), verdicts, "{mode:?} {place}");
            assert_eq!(together, alone, "{mode:?} {place}");
            assert_eq!(single.path.counters(), staged.path.counters(), "{mode:?} {place}");
        }
        assert!(staged.path.live_sessions() >= 20, "{mode:?}");
    }
}
