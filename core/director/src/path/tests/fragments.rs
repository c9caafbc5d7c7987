//! Datagrams in fragments, in every mode and order: cut, put together and judged by `etherparse`.

mod bed;
mod nat64;
mod told;

use super::lab::{BACK, FRONT, MemFrame};
use crate::frame::Frame;
use crate::path::{BURST, Verdict};
use crate::plan::{Plan, Retired};
use crate::reason::Reason;
use crate::spec::{LocalPool, Mode, Network, Protocol, RealServer, SnatRule, Spec};
use bed::{Field, MAC, V4, V6, at, cut, data, datagram, ip, packets, spec, together};
use proptest::prelude::*;
use std::net::SocketAddr;

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Three fragments in all orders, both families, every mode of a service; the real server's side
/// puts together what was sent.
#[test]
fn three_fragments_in_every_order_and_mode() {
    for ends in [V4, V6] {
        let (client, vip, real) = (at(ends.client), at(ends.vip), at(ends.real));
        for mode in [Mode::Fnat, Mode::Nat, Mode::Dr, Mode::Ipip] {
            for order in ORDERS {
                let mut field = Field::new(&spec(mode, vip, real));
                let pieces = cut(&datagram(client, vip, &data(3000)), &[1200, 2400], 77);
                let sent = field.through(FRONT, &pieces, &order);
                assert_eq!(sent.len(), 3, "{mode:?} {order:?}");
                for frame in &sent {
                    assert_eq!(frame.bytes()[..12], [[2, 0, 0, 0, 1, 11], MAC].concat());
                }
                let mut packets = packets(&sent);
                if mode == Mode::Ipip {
                    for packet in &mut packets {
                        let outer = if packet[0] >> 4 == 4 { 20 } else { 40 };
                        packet.drain(..outer);
                    }
                }
                let source =
                    if mode == Mode::Fnat { (ip(ends.local), 1024).into() } else { client };
                let to = if matches!(mode, Mode::Dr | Mode::Ipip) { vip } else { real };
                assert_eq!(together(&packets, 63), (source, to, data(3000)), "{mode:?} {order:?}");
                assert_eq!(field.path.live_sessions(), 1);
                let counted = field.path.counters().reals[0].packets;
                assert_eq!((counted, field.parking.len()), ([3, 0], 0));
            }
        }
    }
}

/// Answers in fragments find their session, in all orders.
#[test]
fn answers_in_fragments() {
    for ends in [V4, V6] {
        let (client, vip, real) = (at(ends.client), at(ends.vip), at(ends.real));
        for mode in [Mode::Fnat, Mode::Nat] {
            for order in ORDERS {
                let mut field = Field::new(&spec(mode, vip, real));
                let asked = cut(&datagram(client, vip, b"question of two"), &[16], 5);
                field.through(FRONT, &asked, &[0, 1]);
                let to = if mode == Mode::Fnat { (ip(ends.local), 1024).into() } else { client };
                let pieces = cut(&datagram(real, to, &data(2000)), &[800, 1600], 5);
                let sent = field.through(BACK, &pieces, &order);
                assert_eq!(together(&packets(&sent), 63), (vip, client, data(2000)));
                assert_eq!(field.path.counters().reals[0].packets, [2, 3]);
            }
        }
    }
}

/// Source NAT: both directions, both families, and what is not for the rule stays the kernel's.
#[test]
fn the_outside_in_fragments() {
    for (ends, pool) in [(V4, "198.51.100.9"), (V6, "2001:db8:1::9")] {
        let sources = [("192.0.2.0", 24), ("2001:db8:2::", 64)];
        let rule = SnatRule {
            network: String::new(),
            name: "out".into(),
            sources: sources.map(|(net, prefix)| Network { address: ip(net), prefix }).into(),
            pool: "wan".into(),
            ..SnatRule::default()
        };
        let addresses = vec![ip("198.51.100.9"), ip("2001:db8:1::9")];
        let pools = vec![LocalPool {
            network: String::new(),
            name: "wan".into(),
            addresses,
            ports: 2000..=2999,
            peer_addresses: Vec::new(),
        }];
        let mut field = Field::new(&Spec { snat: vec![rule], pools, ..Spec::default() });
        let (inside, outside) = (at(ends.real), at(ends.client));
        let pooled = SocketAddr::new(ip(pool), 2000);
        let pieces = cut(&datagram(inside, outside, &data(1500)), &[800], 9);
        let sent = field.through(BACK, &pieces, &[1, 0]);
        assert_eq!(together(&packets(&sent), 63), (pooled, outside, data(1500)));
        let pieces = cut(&datagram(outside, pooled, &data(1500)), &[800], 9);
        let sent = field.through(FRONT, &pieces, &[1, 0]);
        assert_eq!(together(&packets(&sent), 63), (outside, inside, data(1500)));
        for stranger in cut(&datagram(outside, inside, &data(1500)), &[800], 10) {
            assert_eq!(field.one(FRONT, &stranger), Verdict::Kernel(Reason::NotOurs));
        }
    }
}

/// A record lasts half a minute for IPv4 and a whole one for IPv6; then its fragments wait in vain.
#[test]
fn records_have_their_time() {
    for (ends, seconds) in [(V4, 30), (V6, 60)] {
        let (client, vip) = (at(ends.client), at(ends.vip));
        let mut field = Field::new(&spec(Mode::Fnat, vip, at(ends.real)));
        let pieces = cut(&datagram(client, vip, &data(2000)), &[800, 1600], 1);
        assert_eq!(field.one(FRONT, &pieces[0]), Verdict::Tx(BACK));
        assert_eq!(field.path.joined().len(), 1);
        field.now.0 += seconds * 1000 - 1;
        assert_eq!(field.one(FRONT, &pieces[1]), Verdict::Tx(BACK));
        assert!(field.path.joined().is_empty());
        field.now.0 += 1;
        assert!(matches!(field.one(FRONT, &pieces[2]), Verdict::Park(_)));
    }
}

/// The table is full: the datagram that came first gives way; the latest never does.
#[test]
fn a_full_table_forgets_the_oldest() {
    let mut field = Field::with(&spec(Mode::Fnat, at(V4.vip), at(V4.real)), (0, 1), 4);
    let of = |id| cut(&datagram(at(V4.client), at(V4.vip), &data(1000)), &[800], id);
    for id in 0..5 {
        field.now.0 += 1;
        assert_eq!(field.one(FRONT, &of(id)[0]), Verdict::Tx(BACK));
    }
    assert!(matches!(field.one(FRONT, &of(0)[1]), Verdict::Park(_)));
    for id in 1..5 {
        assert_eq!(field.one(FRONT, &of(id)[1]), Verdict::Tx(BACK), "{id}");
    }
}

#[test]
fn what_cannot_be_followed_is_refused_with_its_reason() {
    let (client, vip, real) = (at(V4.client), at(V4.vip), at(V4.real));
    let pieces = cut(&datagram(client, vip, &data(1000)), &[800], 1);
    // Every piece gets what the first got.
    let both = |spec: &Spec, pieces: &[MemFrame], reason| {
        let mut field = Field::new(spec);
        for (number, piece) in pieces.iter().enumerate() {
            let verdict = match (reason, number) {
                // The first of a datagram that nobody takes is answered.
                (Reason::NoReal, 0) => Verdict::Answer(FRONT, reason),
                _ => Verdict::Drop(reason),
            };
            assert_eq!(field.one(FRONT, piece), verdict, "{reason:?}");
        }
        assert_eq!(field.path.counters().of(reason), pieces.len() as u64);
    };
    let mut bare = datagram(client, vip, &data(1000));
    bare[26..28].fill(0);
    let across = spec(Mode::Fnat, vip, at(V6.real));
    both(&across, &cut(&bare, &[800], 1), Reason::Untranslatable);
    let mut nobody = spec(Mode::Fnat, vip, real);
    nobody.services[0].reals.clear();
    both(&nobody, &pieces, Reason::NoReal);
    let mut sctp = spec(Mode::Fnat, vip, real);
    sctp.services[0].protocol = Protocol::Sctp;
    // What is no INIT may open a session.
    sctp.accept_mid_stream = true;
    let patched = |protocol: u8, length: usize| {
        let mut packet = datagram(client, vip, &data(1000));
        packet[9] = protocol;
        cut(&packet, &[length], 1)
    };
    both(&sctp, &patched(132, 800), Reason::Fragment);
    let mut tcp = spec(Mode::Fnat, vip, real);
    tcp.services[0].protocol = Protocol::Tcp;
    both(&tcp, &patched(6, 16), Reason::TinyFragment);
}

/// To nobody here: the kernel's, first or later; ICMP to the VIP and what no service takes too.
#[test]
fn strangers_fragments_are_the_kernels() {
    let mut field = Field::new(&spec(Mode::Nat, at(V4.vip), at(V4.real)));
    let kernel = Verdict::Kernel(Reason::NotOurs);
    for to in ["198.51.100.77:53", "192.0.2.99:53"] {
        for piece in cut(&datagram(at(V4.client), at(to), &data(1000)), &[800], 1) {
            assert_eq!(field.one(FRONT, &piece), kernel);
        }
    }
    let mut ping = datagram(at(V4.client), at(V4.vip), &data(1000));
    ping[9] = 1;
    for piece in cut(&ping, &[400, 800], 2).iter().rev() {
        assert_eq!(field.one(FRONT, piece), kernel, "the kernel puts it together itself");
    }
    let other_port = SocketAddr::new(at(V4.vip).ip(), 54);
    let pieces = cut(&datagram(at(V4.client), other_port, &data(1000)), &[800], 3);
    assert!(matches!(field.one(FRONT, &pieces[1]), Verdict::Park(_)), "not known yet");
    assert_eq!((field.one(FRONT, &pieces[0]), field.one(FRONT, &pieces[1])), (kernel, kernel));
    // What comes from a real server that NAT reaches may be an answer.
    let answer = cut(&datagram(at(V4.real), at(V4.client), &data(1000)), &[800], 4);
    assert!(matches!(field.one(BACK, &answer[1]), Verdict::Park(_)));
}

/// The records of a plan hold in the next one, unless the real server is gone.
#[test]
fn records_outlive_a_reload_and_not_their_real_server() {
    let plan = spec(Mode::Fnat, at(V4.vip), at(V4.real));
    let mut field = Field::new(&plan);
    let pieces = cut(&datagram(at(V4.client), at(V4.vip), &data(3000)), &[800, 1600], 1);
    assert_eq!(field.one(FRONT, &pieces[0]), Verdict::Tx(BACK));
    field.adopt(&plan);
    assert_eq!(field.one(FRONT, &pieces[1]), Verdict::Tx(BACK));
    let mut other = plan.clone();
    other.services[0].reals[0].address = ip("192.0.2.12");
    other.services[0].on_removed = crate::spec::Orphans::Reset;
    field.adopt(&other);
    assert_eq!(field.one(FRONT, &pieces[2]), Verdict::Drop(Reason::RealGone));
    // Another real server gets the id.
    let first = Retired { reals: [crate::plan::RealId(0)].into(), ..Retired::default() };
    let known = other.services[0].reals[0].clone();
    other.services[0].reals.push(RealServer { address: ip("192.0.2.13"), ..known });
    field.plan = Plan::compile(&other, Some(&field.plan), &first).unwrap();
    assert_eq!(field.plan.reals[0].address, ip("192.0.2.13"), "the id was given anew");
    field.path.adopt(&field.plan);
    assert!(matches!(field.one(FRONT, &pieces[2]), Verdict::Park(_)));
}

/// The answer to another worker's local port goes there with all its fragments.
#[test]
fn fragments_go_where_the_first_was_handed() {
    let mut plan = spec(Mode::Fnat, at(V4.vip), at(V4.real));
    plan.pools[0].ports = 1000..=1999;
    let mut field = Field::with(&plan, (0, 2), 64);
    let answer = |port, id| {
        let local = SocketAddr::new(ip(V4.local), port);
        cut(&datagram(at(V4.real), local, &data(2000)), &[800, 1600], id)
    };
    let theirs = answer(1700, 1);
    assert!(matches!(field.one(BACK, &theirs[2]), Verdict::Park(_)));
    for piece in &theirs {
        assert_eq!(field.one(BACK, piece), Verdict::HandOff(1));
    }
    assert_eq!(field.path.counters().handed_off, 3);
    let ours = answer(1200, 2);
    assert_eq!(field.one(BACK, &ours[0]), Verdict::Drop(Reason::NoSession));
    assert_eq!(field.one(BACK, &ours[1]), Verdict::Drop(Reason::NoSession));
    field.adopt(&plan);
    let later = field.one(BACK, &theirs[1]);
    assert!(matches!(later, Verdict::Park(_)), "who owns it may have changed: {later:?}");
}

/// A later fragment with its time to live used up or too large is refused as any packet.
#[test]
fn limits_hold_for_each_fragment() {
    let mut field = Field::new(&spec(Mode::Ipip, at(V4.vip), at(V4.real)));
    let pieces = cut(&datagram(at(V4.client), at(V4.vip), &data(2992)), &[1480], 1);
    let first = field.one(FRONT, &pieces[0]);
    assert_ne!(first, Verdict::Tx(BACK), "20 bytes longer than the way allows");
    assert_ne!(field.one(FRONT, &pieces[1]), Verdict::Tx(BACK));
    assert_eq!(field.path.live_sessions(), 1);
    let mut old = datagram(at(V4.client), at(V4.vip), &data(1000));
    let fresh = cut(&old, &[800], 2);
    old[8] = 1;
    assert_eq!(field.one(FRONT, &fresh[0]), Verdict::Tx(BACK));
    assert_ne!(field.one(FRONT, &cut(&old, &[800], 2)[1]), Verdict::Tx(BACK));
    assert_eq!(field.path.counters().of(Reason::TtlExpired), 1);
}

/// A piece of one of few datagrams, whose identification says which flow it is of.
fn any_piece() -> impl Strategy<Value = (bool, u32, usize)> {
    (any::<bool>(), 0u32..6, 0usize..3)
}

fn piece_of((v6, id, number): (bool, u32, usize)) -> MemFrame {
    let ends = if v6 { &V6 } else { &V4 };
    let client = SocketAddr::new(at(ends.client).ip(), 4000 + id as u16 % 4);
    cut(&datagram(client, at(ends.vip), &data(1000)), &[400, 800], id)[number].clone()
}

fn both_families(mode: Mode) -> Spec {
    let mut both = spec(mode, at(V4.vip), at(V4.real));
    let mut other = spec(mode, at(V6.vip), at(V6.real)).services.remove(0);
    other.name = "dns6".into();
    both.services.push(other);
    both
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The path alone: a burst gives, fragment by fragment, what they one at a time give, those
    /// that are given back to be parked included.
    #[test]
    fn a_burst_of_fragments_equals_one_at_a_time(
        picks in proptest::collection::vec(any_piece(), 1..120),
    ) {
        let plan = both_families(Mode::Fnat);
        let (mut single, mut staged) = (Field::new(&plan), Field::new(&plan));
        for burst in picks.chunks(47) {
            let frames: Vec<_> = burst.iter().map(|pick| piece_of(*pick)).collect();
            let mut alone = frames.clone();
            let verdicts: Vec<_> =
                alone.iter_mut().map(|f| single.turn(FRONT, std::slice::from_mut(f))[0]).collect();
            let mut together = frames;
            prop_assert_eq!(staged.turn(FRONT, &mut together), verdicts);
            prop_assert_eq!(together, alone);
            single.now.0 += 9000;
            staged.now.0 += 9000;
        }
        prop_assert_eq!(single.path.counters(), staged.path.counters());
    }

    /// The path and who parks for it: each frame ends once, in the same way, with the same bytes,
    /// whether its burst was turned as one or frame by frame. This is true since the first
    /// fragments of one datagram all decide alike here; how early one is turned again within a
    /// burst, which differs, is then no difference for what becomes of it.
    #[test]
    fn parked_fragments_end_once_and_alike(
        picks in proptest::collection::vec(any_piece(), 1..120),
        mode in prop_oneof![Just(Mode::Fnat), Just(Mode::Nat), Just(Mode::Dr)],
    ) {
        let plan = both_families(mode);
        let (mut single, mut staged) = (Field::new(&plan), Field::new(&plan));
        let numbered: Vec<_> =
            picks.iter().enumerate().map(|(number, pick)| (number, piece_of(*pick))).collect();
        for burst in numbered.chunks(BURST - 17) {
            staged.drive(FRONT, burst.to_vec());
            burst.iter().for_each(|frame| single.drive(FRONT, vec![frame.clone()]));
            for field in [&mut single, &mut staged] {
                field.now.0 += 300;
                while let Some(parked) = field.parking.give_up(field.now) {
                    let (number, frame) = parked.frame;
                    field.done.push((number, Verdict::Drop(Reason::FragmentOrphan), frame));
                }
            }
        }
        for field in [&mut single, &mut staged] {
            field.done.sort_by_key(|(number, ..)| *number);
            let mut ended: Vec<_> = field.done.iter().map(|(number, ..)| *number).collect();
            ended.dedup();
            prop_assert_eq!(ended.len(), field.done.len(), "one ended twice");
            prop_assert_eq!(ended.len() + field.parking.len(), picks.len(), "one was lost");
        }
        prop_assert_eq!(&single.done, &staged.done);
        prop_assert_eq!(single.path.counters(), staged.path.counters());
    }
}
