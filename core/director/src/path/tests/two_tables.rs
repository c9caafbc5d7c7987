//! What is the extended table's at once, and what the two tables share of a pool.

use super::lab::{BACK, FRONT, MemFrame};
use super::modes::{Field, at, datagram, ip, spec};
use crate::family::{Family, Ipv4};
use crate::fib::PortId;
use crate::frame::Frame;
use crate::path::Verdict;
use crate::plan::{Plan, Retired};
use crate::reason::Reason;
use crate::spec::{
    ClientAddress, LocalPool, Mapping, Mode, Network, Ports, Protocol, RealServer, SnatRule, Spec,
    VirtualService,
};
use proptest::prelude::*;
use std::net::SocketAddr;

fn service(name: &str, vip: &str, mode: Mode, real: &str) -> VirtualService {
    let (vip, real) = (at(vip), at(real));
    let real = RealServer { address: real.ip(), port: real.port(), ..RealServer::default() };
    VirtualService {
        name: name.into(),
        protocol: Protocol::Udp,
        vip: vip.ip(),
        ports: Ports::one(vip.port()),
        mode,
        pool: "lan".into(),
        reals: vec![real],
        ..VirtualService::default()
    }
}

fn rule() -> SnatRule {
    SnatRule {
        network: String::new(),
        name: "out".into(),
        sources: vec![Network { address: ip("192.0.2.0"), prefix: 24 }],
        destinations: vec![],
        protocols: vec![],
        egress: None,
        pool: "out".into(),
        mapping: Mapping::EndpointIndependent,
        ..SnatRule::default()
    }
}

/// Services of both tables by every mode, and a rule of source NAT.
fn everything() -> Spec {
    let mut all = spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 5353);
    let mut told = service("told", "198.51.100.200:54", Mode::Fnat, "192.0.2.11:54");
    told.client_address = ClientAddress::ProxyV2;
    all.services.extend([
        service("nat", "198.51.100.201:53", Mode::Nat, "192.0.2.11:5454"),
        service("dr", "198.51.100.202:53", Mode::Dr, "192.0.2.11:0"),
        service("ipip", "198.51.100.203:53", Mode::Ipip, "192.0.2.11:0"),
        service("across", "198.51.100.204:53", Mode::Fnat, "[2001:db8:2::11]:53"),
        service("six", "[2001:db8:1::200]:53", Mode::Fnat, "[2001:db8:2::11]:53"),
        told,
    ]);
    all.snat = vec![rule()];
    let addresses = vec![ip("203.0.113.9")];
    all.pools.push(LocalPool {
        network: String::new(),
        name: "out".into(),
        addresses,
        ports: 2000..=2007,
        peer_addresses: Vec::new(),
    });
    all
}

const INSIDE: [&str; 2] = ["192.0.2.11", "192.0.2.12"];
const OUTSIDE: [&str; 8] = [
    "198.51.100.48",
    "198.51.100.200",
    "198.51.100.201",
    "198.51.100.202",
    "198.51.100.203",
    "198.51.100.204",
    "203.0.113.9",
    "192.0.2.10",
];
const PORTS: [u16; 7] = [53, 54, 5353, 5454, 1024, 1025, 2000];

fn any_frame() -> impl Strategy<Value = (PortId, MemFrame)> {
    let end = |all: &'static [&str]| (0..all.len(), 0..PORTS.len()).prop_map(|(a, p)| (all[a], p));
    let ends = (any::<bool>(), end(&INSIDE), end(&OUTSIDE), end(&OUTSIDE));
    let kind = 0u8..12;
    (ends, kind).prop_map(|((back, inside, other, to), kind)| {
        let (port, from) = if back { (BACK, inside) } else { (FRONT, other) };
        let end = |(address, port): (&str, usize)| SocketAddr::new(ip(address), PORTS[port]);
        let mut frame = datagram(end(from), end(to));
        let bytes = frame.bytes_mut();
        match kind {
            // A fragment, an error, another protocol, one that is too old.
            0 => bytes[20] = 0x20,
            1 => (bytes[23], bytes[34]) = (1, 3),
            2 => bytes[23] = 47,
            3 => bytes[22] = 1,
            _ => {}
        }
        bytes[24..26].fill(0);
        let sum = sluice_wire::checksum::full(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        (port, frame)
    })
}

proptest! {
    /// Leaving packets to the extended table at once changes nothing but the time that they take.
    #[test]
    fn what_is_left_early_would_be_left_late(
        steps in proptest::collection::vec(any_frame(), 1..60),
        reload in 0usize..60,
    ) {
        let (mut early, mut late) = (Field::new(&everything()), Field::new(&everything()));
        prop_assert!(early.plan.address_filter.is_some());
        late.plan.address_filter = None;
        for (number, (port, frame)) in steps.into_iter().enumerate() {
            if number == reload {
                // What is gone keeps its sessions, and its addresses keep their table.
                let mut less = everything();
                less.services.drain(..2);
                less.services[0].pool = "out".into();
                for field in [&mut early, &mut late] {
                    let none = Retired::default();
                    field.plan = Plan::compile(&less, Some(&field.plan), &none).unwrap();
                    field.path.adopt(&field.plan);
                }
                late.plan.address_filter = None;
            }
            let (mut one, mut other) = (frame.clone(), frame);
            prop_assert_eq!(early.one(port, &mut one), late.one(port, &mut other));
            prop_assert_eq!(one, other);
            prop_assert_eq!(early.path.counters(), late.path.counters());
        }
    }
}

/// Most of what is not the IPv4 table's it does not look at.
#[test]
fn source_nat_is_left_to_the_wide_table() {
    let field = Field::new(&everything());
    let address_filter = field.plan.address_filter.as_ref().unwrap();
    let bits = |text| <Ipv4 as Family>::from_ip(ip(text)).unwrap();
    let passes = |from, to| address_filter.passes(bits(from), bits(to));
    for vip in &OUTSIDE[1..5] {
        assert!(passes("198.51.100.48", vip), "{vip}");
    }
    assert!(passes("192.0.2.11", "192.0.2.10"), "an answer to a local address");
    assert!(passes("192.0.2.11", "198.51.100.48"), "maybe an answer by NAT");
    assert!(passes("0.0.0.0", "0.0.0.0"), "an ICMP error");
    let net = bits("203.0.113.0");
    let others = (0..256).filter(|last| address_filter.passes(bits("192.0.2.12"), net + last));
    assert!(others.count() < 16);
    let narrow = Field::new(&spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 53));
    assert!(narrow.plan.address_filter.is_none());
}

/// A pool that both tables take IPv4 ports of has all of its IPv6 ports for the extended one.
#[test]
fn only_what_both_tables_take_is_halved() {
    let mut spec = everything();
    spec.services.truncate(1);
    spec.services.push(service("six", "[2001:db8:1::200]:53", Mode::Fnat, "[2001:db8:2::11]:53"));
    spec.pools[0].ports = 1024..=1031;
    spec.gives_way = false;
    let opened = |field: &mut Field, from: &str, to: &str| {
        let mut opens = |port: u16| {
            let client = SocketAddr::new(ip(from), port);
            field.one(FRONT, &mut datagram(client, at(to)))
        };
        let verdicts: Vec<_> = (0..10).map(|n| opens(3000 + n)).collect();
        let sent = verdicts.iter().take_while(|verdict| **verdict == Verdict::Tx(BACK)).count();
        let rest = &verdicts[sent..];
        assert!(rest.iter().all(|v| *v == Verdict::Drop(Reason::LocalPortsExhausted)), "{rest:?}");
        sent
    };
    let (four, six) =
        (("198.51.100.48", "198.51.100.200:53"), ("2001:db8:1::48", "[2001:db8:1::200]:53"));
    let mut field = Field::new(&spec);
    assert_eq!(opened(&mut field, six.0, six.1), 8, "nobody else takes IPv6");
    assert_eq!(opened(&mut field, four.0, four.1), 8, "nor the extended table IPv4");
    // A rule of source NAT for IPv4 does.
    spec.snat[0].pool = "lan".into();
    let mut field = Field::new(&spec);
    assert_eq!(opened(&mut field, six.0, six.1), 8);
    assert_eq!(opened(&mut field, four.0, four.1), 4);
}

/// A reload gives the extended table a half of the ports that the IPv4 table's sessions still have.
#[test]
fn what_the_other_table_still_has_is_taken() {
    let mut before = everything();
    before.services.truncate(1);
    before.snat.clear();
    before.pools[0].ports = 1024..=1031;
    let mut after = before.clone();
    let mut told = service("told", "198.51.100.200:54", Mode::Fnat, "192.0.2.11:5353");
    told.client_address = ClientAddress::ProxyV2;
    after.services.push(told);
    let open = |field: &mut Field, from: u16, to: &str| {
        field.one(FRONT, &mut datagram(SocketAddr::new(ip("198.51.100.48"), from), at(to)))
    };
    let exhausted = Verdict::Drop(Reason::LocalPortsExhausted);
    for (held, then) in [(8, exhausted), (7, Verdict::Tx(BACK))] {
        let mut field = Field::new(&before);
        for from in 3000..3000 + held {
            assert_eq!(open(&mut field, from, "198.51.100.200:53"), Verdict::Tx(BACK));
        }
        field.plan = Plan::compile(&after, Some(&field.plan), &Retired::default()).unwrap();
        field.fib = Field::new(&after).fib;
        field.path.adopt(&field.plan);
        assert_eq!(open(&mut field, 4000, "198.51.100.200:54"), then, "beside {held}");
        assert_eq!(open(&mut field, 4001, "198.51.100.200:54"), exhausted);
    }
}
