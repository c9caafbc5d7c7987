//! Several workers: a packet that may be two things at once comes to rest at one of them.

use super::lab::{BACK, MemFrame, narrow, tell};
use super::modes::{Field, at, datagram, ip, snat, spec};
use crate::fib::FibBuilder;
use crate::path::{PagePolicy, Path, PathConfig, Round, Verdict, View};
use crate::reason::Reason;
use crate::spec::{LocalPool, Mapping, Mode, Network, Ports, SnatRule, Spec};
use arrayvec::ArrayVec;
use etherparse::PacketBuilder;
use std::net::IpAddr;

/// A service whose real server is reached by NAT on any port, and may reach the outside itself.
fn both(vip: &str, real: &str) -> Spec {
    let mut nat = spec(Mode::Nat, vip, real, 0);
    nat.services[0].ports = Ports::ALL;
    let real = ip(real);
    let prefix = if real.is_ipv6() { 128 } else { 32 };
    nat.snat = vec![SnatRule {
        network: String::new(),
        name: "out".into(),
        sources: vec![Network { address: real, prefix }],
        pool: "wan".into(),
        ..SnatRule::default()
    }];
    nat.pools.push(LocalPool {
        network: String::new(),
        name: "wan".into(),
        addresses: vec![ip("198.51.100.9"), ip("2001:db8:1::9")],
        ports: 2000..=2999,
        peer_addresses: Vec::new(),
    });
    nat
}

pub fn workers(field: &Field, count: u16) -> Vec<Path> {
    let path = |worker| {
        let mut path = Path::new(&PathConfig {
            worker,
            workers: count,
            sessions: 100,
            fragments: 64,
            seed: 7,
            pages: PagePolicy::Ordinary,
        })
        .unwrap();
        path.adopt(&field.plan);
        path
    };
    (0..count).map(path).collect()
}

/// The verdict on a frame wherever it is handed to from a worker, and who gave it.
pub fn settle(
    field: &Field,
    paths: &mut [Path],
    first: u16,
    frame: &mut MemFrame,
) -> (u16, Verdict) {
    let way = walk(&vec![field; paths.len()], paths, first, frame);
    assert!(way.len() <= paths.len() + 1, "asked twice: {way:?}");
    *way.last().unwrap()
}

/// Every verdict on a frame on its way between workers, each with a plan of its own, and who gave
/// it.
pub fn walk(
    fields: &[&Field],
    paths: &mut [Path],
    first: u16,
    frame: &mut MemFrame,
) -> Vec<(u16, Verdict)> {
    walk_on(fields, paths, (first, ArrayVec::new()), frame)
}

/// The same of one that has come to a worker so far.
pub fn walk_on(
    fields: &[&Field],
    paths: &mut [Path],
    (mut at, mut rounds): (u16, ArrayVec<Round, 1>),
    frame: &mut MemFrame,
) -> Vec<(u16, Verdict)> {
    let mut way = Vec::new();
    while way.len() < 100 {
        let (field, path) = (fields[usize::from(at)], &mut paths[usize::from(at)]);
        let view = View { plan: &field.plan, fib: &field.fib };
        let (frames, mut verdict) = (std::slice::from_mut(frame), [Verdict::Wait]);
        path.turn_handed(view, field.now, BACK, (frames, &rounds), &mut verdict);
        way.push((at, verdict[0]));
        let Verdict::HandOff(to) = verdict[0] else { break };
        assert_ne!(to, at, "handed to itself");
        rounds = [path.round(0)].into();
        at = to;
    }
    way
}

#[test]
fn what_nat_and_source_nat_both_claim_is_not_handed_to_and_fro() {
    for (vip, real, outside) in [
        ("198.51.100.200", "192.0.2.11", "198.51.100.48"),
        ("2001:db8:1::200", "2001:db8:2::11", "2001:db8:1::48"),
    ] {
        let field = Field::new(&both(vip, real));
        let mut paths = workers(&field, 3);
        for port in 0..40 {
            let (from, to) = ((ip(real), 700 + port).into(), (ip(outside), 5000).into());
            let mut owners = Vec::new();
            for first in 0..3 {
                let (owner, verdict) = settle(&field, &mut paths, first, &mut datagram(from, to));
                assert!(matches!(verdict, Verdict::Tx(_)), "{from} by {first}: {verdict:?}");
                owners.push(owner);
            }
            assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
        }
        let live: u32 = paths.iter().map(Path::live_sessions).sum();
        assert_eq!(live, 40);
    }
}

/// Without a route to the outside, too, a session's packets come to the worker that has it, which
/// drops them: the kernel knows nothing of the session, and might send them on as they are.
#[test]
fn without_a_route_source_nat_leaves_nothing_to_the_kernel() {
    for (from, to) in
        [("192.0.2.11:700", "198.51.100.48:53"), ("[2001:db8:2::11]:700", "[2001:db8:1::48]:53")]
    {
        let mut field = Field::new(&snat(Mapping::EndpointIndependent));
        let mut paths = workers(&field, 3);
        let (from, to) = (at(from), at(to));
        let (owner, verdict) = settle(&field, &mut paths, 0, &mut datagram(from, to));
        assert!(matches!(verdict, Verdict::Tx(_)), "{verdict:?}");
        let (mut world, mut builder) = (narrow(), FibBuilder::default());
        world.front.networks.clear();
        tell(&world, &mut builder);
        field.fib = builder.build(&field.plan, Some(&field.fib));
        for first in 0..3 {
            let (worker, verdict) = settle(&field, &mut paths, first, &mut datagram(from, to));
            assert_eq!((worker, verdict), (owner, Verdict::Drop(Reason::NoRoute)), "by {first}");
        }
    }
}

#[test]
fn an_echo_reply_opens_nothing() {
    let echo = |from: &str, to: &str, asks: bool| {
        let builder = PacketBuilder::ethernet2([4; 6], [6; 6]);
        let mut bytes = Vec::new();
        match (ip(from), ip(to)) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let builder = builder.ipv4(from.octets(), to.octets(), 64);
                let echo = if asks {
                    builder.icmpv4_echo_request(0, 1)
                } else {
                    builder.icmpv4_echo_reply(0, 1)
                };
                echo.write(&mut bytes, b"there?").unwrap();
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let builder = builder.ipv6(from.octets(), to.octets(), 64);
                let echo = if asks {
                    builder.icmpv6_echo_request(0, 1)
                } else {
                    builder.icmpv6_echo_reply(0, 1)
                };
                echo.write(&mut bytes, b"there?").unwrap();
            }
            _ => unreachable!(),
        }
        MemFrame::new(&bytes)
    };
    for (vip, real, outside) in [
        ("198.51.100.200", "192.0.2.11", "198.51.100.48"),
        ("2001:db8:1::200", "2001:db8:2::11", "2001:db8:1::48"),
    ] {
        let mut field = Field::new(&both(vip, real));
        let reply = field.one(BACK, &mut echo(real, outside, false));
        assert_eq!(reply, Verdict::Drop(Reason::NoSession));
        assert_eq!(field.path.live_sessions(), 0);
        let asked = field.one(BACK, &mut echo(real, outside, true));
        assert!(matches!(asked, Verdict::Tx(_)), "{asked:?}");
        assert_eq!(field.path.live_sessions(), 1);
    }
}
