//! Packets that go into tunnels eight at a time get there what they get one at a time.

use super::icmp::{framed, packet};
use super::lab::{
    BACK, CLIENT, CLIENT_6, FRONT, Lab, MemFrame, REAL, REAL_2, REAL_6, VIP, VIP_6, fib_of, narrow,
    real, tcp, udp,
};
use super::lab::{cases, with_ipv6};
use crate::fib::{FibBuilder, Link, Target};
use crate::path::tunnel::Tunnel;
use crate::path::{Level, Verdict};
use crate::spec::{Mode, Network, Spec};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

/// Client ports with a session.
const SESSIONS: u16 = 12;

/// How a director's tunnels are.
#[derive(Clone, Debug)]
struct Setting {
    /// Which versions the outer headers towards the real servers are of, by the packets' version.
    over: [Vec<bool>; 2],
    /// Bits of the outer sources that are not chosen.
    prefixes: [u8; 2],
    /// What the path to the first real server of each version is known to take, and whether it is
    /// still believed.
    learned: [Option<(u16, bool)>; 2],
    vlan: u16,
    /// Whether one of the services is no tunnel's.
    mixed: bool,
}

/// A packet.
#[derive(Clone, Debug)]
struct Shot {
    six: bool,
    client_port: u16,
    ttl: u8,
    dont_fragment: bool,
    class: u8,
    id: u16,
    payload: usize,
    cramped: bool,
}

impl Shot {
    fn frame(&self) -> MemFrame {
        let end = |four: [u8; 4], six: &str, port| {
            let address = if self.six { six.parse().unwrap() } else { IpAddr::from(four) };
            SocketAddr::new(address, port)
        };
        let from = end(CLIENT, CLIENT_6, 4000 + self.client_port);
        let to = end(VIP, VIP_6, 53);
        let mut bytes = packet(from, to, (self.ttl, self.dont_fragment), self.payload);
        if self.six {
            bytes[0] |= self.class >> 4;
            bytes[1] |= self.class << 4 | self.id as u8 & 0xf;
        } else {
            bytes[1] = self.class;
            bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
            bytes[10..12].fill(0);
            let sum = sluice_wire::checksum::full(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        framed(&bytes).cramped(if self.cramped { 19 } else { 128 })
    }
}

fn any_shot(six: impl Strategy<Value = bool>) -> impl Strategy<Value = Shot> {
    let payload = prop_oneof![8 => 0usize..60, 1 => 1200usize..1370];
    let ttl = prop_oneof![1 => 0u8..3, 20 => 2u8..];
    let seldom = proptest::bool::weighted(0.02);
    let all = (six, 0..SESSIONS, ttl, any::<bool>(), any::<u8>(), any::<u16>(), payload, seldom);
    all.prop_map(|(six, client_port, ttl, dont_fragment, class, id, payload, cramped)| Shot {
        six,
        client_port,
        ttl,
        dont_fragment,
        class,
        id,
        payload,
        cramped,
    })
}

/// Packets most of which are of one version, and some of one flow behind each other.
fn any_burst() -> impl Strategy<Value = Vec<Shot>> {
    let mixes = [Just(0).boxed(), Just(1).boxed(), (0..8).boxed()];
    proptest::sample::select(mixes.to_vec()).prop_flat_map(|mix| {
        let times = prop_oneof![4 => Just(1), 1 => 1usize..20];
        let runs = (any_shot(mix.prop_map(|mix| mix != 0)), times);
        proptest::collection::vec(runs, 8..60).prop_map(|runs| {
            let all = runs.iter().flat_map(|(shot, times)| std::iter::repeat_n(shot, *times));
            all.take(crate::path::BURST).cloned().collect()
        })
    })
}

fn any_setting() -> impl Strategy<Value = Setting> {
    let over = |usual: bool| {
        prop_oneof![
            2 => Just(vec![usual]),
            1 => Just(vec![!usual]),
            1 => Just(vec![usual, !usual]),
        ]
    };
    let learned = || proptest::option::of((1280u16..1500, any::<bool>()));
    let vlan = prop_oneof![6 => Just(0), 1 => Just(7)];
    let mixed = proptest::bool::weighted(0.15);
    let all = (over(false), over(true), 8u8..=32, 64u8..=128, learned(), learned(), vlan, mixed);
    all.prop_map(|(four, six, a, b, c, d, vlan, mixed)| Setting {
        over: [four, six],
        prefixes: [a, b],
        learned: [c, d],
        vlan,
        mixed,
    })
}

fn configure(spec: &mut Spec, setting: &Setting) {
    with_ipv6(spec);
    let source = |address: &str, prefix| Network { address: address.parse().unwrap(), prefix };
    let mut sources = [source("10.0.0.0", 8), source("2001:db8:2::", 64)];
    for (source, prefix) in sources.iter_mut().zip(setting.prefixes) {
        source.prefix = prefix;
    }
    spec.tunnel.v4 = Some(sources[0]);
    spec.tunnel.v6 = Some(sources[1]);
    spec.services.remove(1);
    for (service, over) in spec.services.iter_mut().zip(&setting.over) {
        service.mode = Mode::Ipip;
        service.reals.clear();
        for six in over {
            let mut one = real(REAL, 53);
            if *six {
                one.address = REAL_6.parse().unwrap();
            } else {
                service.reals.push(real(REAL_2, 53));
            }
            service.reals.push(one);
        }
    }
    if setting.mixed {
        let mut real = real(REAL_2, 53);
        real.mode = Some(Mode::Fnat);
        let service = &mut spec.services[0];
        service.reals.retain(|other| other.address != real.address);
        service.reals.push(real);
    }
}

/// A director with a session for each client port, in either version.
fn lab(setting: &Setting, level: Level) -> Lab {
    let mut lab = Lab::with(|b| configure(b, setting), 1000, (0, 1)).at_level(level);
    let mut world = narrow();
    world.back.vlan = setting.vlan;
    lab.fib = fib_of(&lab.plan, &world);
    for (address, learned) in [REAL.into(), REAL_6.parse().unwrap()].iter().zip(setting.learned) {
        let Some((mtu, believed)) = learned else { continue };
        lab.path.shared.paths.learn(*address, mtu, lab.now);
        lab.after_s(if believed { 0 } else { 601 });
    }
    for (six, client_port) in (0..SESSIONS).flat_map(|port| [(false, port), (true, port)]) {
        let shot = Shot {
            six,
            client_port,
            ttl: 64,
            dont_fragment: true,
            class: 0,
            id: 0,
            payload: 20,
            cramped: false,
        };
        let mut frame = shot.frame();
        assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK), "{setting:?} {shot:?}");
    }
    lab
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn together_as_alone(shots in any_burst(), setting in any_setting()) {
        let mut single = lab(&setting, Level::BASELINE);
        let before: Vec<MemFrame> = shots.iter().map(Shot::frame).collect();
        let mut alone = before.clone();
        let verdicts: Vec<Verdict> = alone.iter_mut().map(|f| single.one(FRONT, f)).collect();
        for level in Level::available() {
            let (mut lab, mut frames) = (lab(&setting, level), before.clone());
            let together = lab.burst(FRONT, &mut frames);
            for (at, shot) in shots.iter().enumerate() {
                prop_assert_eq!(together[at], verdicts[at], "{}: {:?}", at, shot);
                prop_assert_eq!(&frames[at], &alone[at], "{}: {:?}", at, shot);
            }
            prop_assert_eq!(lab.path.counters(), single.path.counters());
        }
    }
}

/// What is no more believed of a path is forgotten by those that go together, when one would not
/// fit by it.
#[test]
fn a_path_is_forgotten() {
    let over = [vec![false], vec![true]];
    let learned = [Some((1300, false)), Some((1300, false))];
    let setting = Setting { over, prefixes: [32, 128], learned, vlan: 0, mixed: false };
    let shot = |six, client_port, payload| {
        let (class, id) = (0, 0);
        Shot { six, client_port, ttl: 64, dont_fragment: true, class, id, payload, cramped: false }
    };
    for six in [false, true] {
        let mut lab = lab(&setting, Level::detect());
        let rows = |lab: &Lab| -> Vec<u32> {
            let paths = &lab.path.shared.paths;
            let fours = paths.fours.iter().map(|four| four.row()[3]);
            let sixes = paths.sixes.iter().map(|six| six.row()[3]);
            if six { sixes.collect() } else { fours.collect() }
        };
        let overhead = if six { 40 } else { 20 };
        assert!(rows(&lab).contains(&(1300 - overhead)));
        let mut send = |payload| {
            let mut frames: Vec<_> = (0..8).map(|at| shot(six, at, payload).frame()).collect();
            let verdicts = lab.burst(FRONT, &mut frames);
            assert_eq!(verdicts, [Verdict::Tx(BACK); 8]);
            rows(&lab)
        };
        assert!(send(20).contains(&(1300 - overhead)), "it matters to none");
        // Every other one of IPv4 goes to the second real server.
        let known = send(1280);
        assert!(!known.contains(&(1300 - overhead)), "{known:?}");
        assert!(known.contains(&(65_535 - overhead)));
    }
}

/// Of what goes into a tunnel only the hop is written, so that what comes together and what comes
/// alone agree on checksums of TCP that are zero or its other form only if that is seen to.
#[test]
fn checksums_of_zero_are_the_same_together_and_alone() {
    let change = |spec: &mut Spec| {
        spec.tunnel.v4 = Some(Network { address: [10, 0, 0, 0].into(), prefix: 24 });
        spec.services[1].mode = Mode::Ipip;
    };
    let segment = |port: u16, flags, sequence| {
        tcp((CLIENT, 4000 + port), (VIP, 80), flags, (sequence, 1), b"some data")
    };
    let opened = |level| {
        let mut lab = Lab::with(change, 1000, (0, 1)).at_level(level);
        for (port, flags) in (0..8).flat_map(|port| [(port, 2), (port, 16)]) {
            let mut frame = segment(port, flags, 1);
            assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
        }
        lab
    };
    let at = 14 + 20 + 16;
    for sum in [0u16, 1, 0xfffe, 0xffff] {
        let mut before: Vec<MemFrame> = (0..8).map(|port| segment(port, 24, 2)).collect();
        before[5].bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let (mut single, mut alone) = (opened(Level::BASELINE), before.clone());
        for frame in &mut alone {
            assert_eq!(single.one(FRONT, frame), Verdict::Tx(BACK));
        }
        for level in Level::available() {
            let (mut lab, mut frames) = (opened(level), before.clone());
            assert_eq!(lab.burst(FRONT, &mut frames), [Verdict::Tx(BACK); 8]);
            assert_eq!(frames, alone, "{sum:#x}");
        }
    }
}

/// Eight that go into tunnels by two ports are not taken for eight by one.
#[test]
fn tunnels_by_two_ports() {
    let change = |spec: &mut Spec| {
        spec.tunnel.v4 = Some(Network { address: [10, 0, 0, 0].into(), prefix: 24 });
        let service = &mut spec.services[0];
        service.mode = Mode::Ipip;
        service.reals.push(real(REAL_2, 53));
    };
    for level in Level::available() {
        let mut lab = Lab::with(change, 1000, (0, 1)).at_level(level);
        let mut builder = FibBuilder::default();
        for (port, address) in [(FRONT, REAL), (BACK, REAL_2)] {
            let link = builder.link(Link { port, mtu: 1500, ..Link::default() });
            builder.route(address.into(), 32, Target::OnLink(link));
            builder.neighbour(link, address.into(), [6; 6]);
        }
        lab.fib = builder.build(&lab.plan, None);
        let frames = || (0..8).map(|port| udp((CLIENT, 4000 + port), (VIP, 53), &[7; 20]));
        let alone: Vec<Verdict> = frames().map(|mut frame| lab.one(FRONT, &mut frame)).collect();
        assert!([FRONT, BACK].iter().all(|port| alone.contains(&Verdict::Tx(*port))));
        let mut together: Vec<MemFrame> = frames().collect();
        // The lab holds what is said of all against each.
        assert_eq!(lab.burst(FRONT, &mut together), alone);
    }
}
