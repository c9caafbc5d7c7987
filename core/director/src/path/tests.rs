//! The path over packets that `etherparse` builds, judged by `etherparse`.

mod blind;
mod client_address;
mod errors;
mod errors_elsewhere;
mod exception;
mod firsts;
mod flood;
mod fragments;
mod groups;
mod hairpin;
mod half_open;
mod handoff;
mod icmp;
mod kill;
pub(in crate::path) mod lab;
mod life;
mod mappings;
mod modes;
mod neighbours;
mod owners;
mod probed;
mod probing;
mod reloads;
mod restore;
mod rules;
mod spread;
mod spread_kinds;
mod super_packet;
mod sync;
mod tunnel_groups;
mod tunnels;
mod two_tables;

use super::{Verdict, View};
use crate::counters::Direction::{Inbound, Outbound};
use crate::reason::Reason;
use lab::{BACK, CLIENT, FRONT, LOCAL, Lab, MemFrame, Packet, REAL, VIP, udp};
use proptest::prelude::*;

/// The whole way of one request and its answer, every byte judged by another's parser.
#[test]
fn a_datagram_there_and_back() {
    let mut lab = Lab::new();
    let mut frame = udp((CLIENT, 4000), (VIP, 53), b"what is your name?");
    assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
    let there = Packet::read(&frame);
    assert_eq!((there.src, there.sport), (LOCAL, 1024));
    assert_eq!((there.dst, there.dport), (REAL, 53));
    assert_eq!((there.ttl, there.payload.as_slice()), (63, &b"what is your name?"[..]));
    assert_eq!((there.from, there.to), (lab::BACK_MAC, lab::REAL_MAC));
    let mut frame = udp((REAL, 53), (LOCAL, 1024), b"sluice");
    assert_eq!(lab.one(BACK, &mut frame), Verdict::Tx(FRONT));
    let back = Packet::read(&frame);
    assert_eq!((back.src, back.sport), (VIP, 53));
    assert_eq!((back.dst, back.dport), (CLIENT, 4000));
    assert_eq!((back.from, back.to), (lab::FRONT_MAC, lab::CLIENT_MAC));
    let real = &lab.path.counters().reals[0];
    assert_eq!(real.packets, [1, 1]);
    assert_eq!(real.bytes[Inbound as usize], 28 + 18);
    assert_eq!(real.bytes[Outbound as usize], 28 + 6);
    assert_eq!((real.sessions, real.active), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A burst gives what its packets one at a time give: frames, verdicts, counters.
    #[test]
    fn a_burst_equals_one_at_a_time(picks in proptest::collection::vec(lab::any_step(), 1..150)) {
        let lab = || Lab::with(lab::with_ipv6, 1000, (0, 1));
        let (mut single, mut staged) = (lab(), lab());
        for burst in picks.chunks(47) {
            for port in [FRONT, BACK] {
                let steps = burst.iter().filter(|step| step.port == port);
                let frames: Vec<MemFrame> = steps.map(|step| step.frame()).collect();
                let mut alone = frames.clone();
                let verdicts: Vec<_> = alone.iter_mut().map(|f| single.one(port, f)).collect();
                let mut together = frames;
                let both = staged.burst(port, &mut together);
                prop_assert_eq!(&both, &verdicts);
                prop_assert_eq!(&together, &alone);
            }
            single.now.0 += 700;
            staged.now.0 += 700;
        }
        let view = View { plan: &single.plan, fib: &single.fib };
        single.path.sweep_all(view.plan, single.now);
        staged.path.sweep_all(view.plan, staged.now);
        prop_assert_eq!(single.path.counters(), staged.path.counters());
        prop_assert_eq!(single.path.live_sessions(), staged.path.live_sessions());
    }

    /// Arbitrary bytes get a verdict, and never harm.
    #[test]
    fn any_bytes(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        ours in any::<bool>(),
    ) {
        if ours && bytes.len() > 34 {
            bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
            bytes[30..34].copy_from_slice(&VIP);
        }
        let mut lab = Lab::new();
        let verdict = lab.one(FRONT, &mut MemFrame::new(&bytes));
        prop_assert!(verdict != Verdict::Wait || !bytes.is_empty());
    }

    /// What leaves has valid checksums, whatever the payload, and the payload is untouched.
    #[test]
    fn checksums_hold(
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        port in 1u16..,
        tcp in any::<bool>(),
    ) {
        let mut lab = Lab::new();
        let mut frame = if tcp {
            lab::tcp((CLIENT, port), (VIP, 80), sluice_wire::tcp::SYN, (1, 0), &payload)
        } else {
            udp((CLIENT, port), (VIP, 53), &payload)
        };
        prop_assert_eq!(lab.one(FRONT, &mut frame), Verdict::Tx(BACK));
        prop_assert_eq!(Packet::read(&frame).payload, payload);
    }
}

#[test]
fn a_full_burst_is_taken() {
    let mut lab = Lab::new();
    let mut frames: Vec<_> = (0..64).map(|i| udp((CLIENT, 5000 + i), (VIP, 53), b"x")).collect();
    assert!(lab.burst(FRONT, &mut frames).iter().all(|v| *v == Verdict::Tx(BACK)));
    assert_eq!(lab.path.live_sessions(), 64);
    assert_eq!(lab.path.counters().of(Reason::NoSession), 0);
}
