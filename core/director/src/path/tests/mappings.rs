//! What holds a mapping of source NAT: it goes with the last session that shares it, and with no
//! other one that has the same endpoint outside by chance or from before a reload.

use super::lab::{self, FRONT, MemFrame};
use super::modes::{Field, at, datagram, ends, ip, snat};
use crate::frame::Frame;
use crate::path::{SessionFilter, Verdict};
use crate::plan::{Plan, Retired};
use crate::reason::Reason;
use crate::spec::{Mapping, Network, SnatRule, Spec};
use etherparse::PacketBuilder;
use sluice_wire::tcp::{ACK, SYN};
use std::net::SocketAddr;

const INSIDE: &str = "192.0.2.11:700";
const OTHER: &str = "192.0.2.11:701";
const FAR: &str = "198.51.100.48:53";
const FARTHER: &str = "198.51.100.48:54";

/// A rule with one port outside for everybody.
fn one_port(mapping: Mapping) -> Spec {
    let mut one = snat(mapping);
    one.pools[0].ports = 2000..=2000;
    one
}

fn reload(field: &mut Field, spec: &Spec) {
    field.plan = Plan::compile(spec, Some(&field.plan), &Retired::default()).unwrap();
    field.path.adopt(&field.plan);
}

/// Sends a datagram to the outside and gives its endpoint there, or why it has none.
fn outward(field: &mut Field, from: &str, to: SocketAddr) -> Result<SocketAddr, Reason> {
    let mut frame = datagram(at(from), to);
    match field.one(lab::BACK, &mut frame) {
        Verdict::Tx(FRONT) => Ok(ends(&frame.bytes()[14..]).0),
        Verdict::Drop(reason) => Err(reason),
        verdict => panic!("{from} to {to}: {verdict:?}"),
    }
}

/// Ends the sessions of source NAT from one port to another.
fn end(field: &mut Field, from: &str, to: SocketAddr) {
    let filter = SessionFilter {
        client_port: Some(at(from).port()),
        real_port: Some(to.port()),
        ..SessionFilter::default()
    };
    let Field { path, plan, now, .. } = field;
    assert_eq!(path.kill(plan, *now, &filter, (1 << 31, 1000)), (1, None));
}

fn held(field: &Field) -> (u32, u32) {
    (field.path.live_sessions(), field.path.templates())
}

/// Two rules in turn for one host inside: the first shares nothing.
#[test]
fn a_session_of_its_own_port_lets_go_of_no_mapping() {
    let mut both = one_port(Mapping::EndpointIndependent);
    let first = SnatRule {
        name: "first".into(),
        destinations: vec![Network { address: ip("203.0.113.0"), prefix: 24 }],
        mapping: Mapping::PerSession,
        ..both.snat[0].clone()
    };
    both.snat.insert(0, first);
    let mut field = Field::new(&both);
    field.fib = lab::fib_to_anywhere(&field.plan);
    let pooled = Ok(at("198.51.100.9:2000"));
    let own = at("203.0.113.1:55");
    assert_eq!(outward(&mut field, INSIDE, own), pooled);
    assert_eq!(outward(&mut field, INSIDE, at(FAR)), pooled);
    assert_eq!(held(&field), (2, 1));
    end(&mut field, INSIDE, own);
    assert_eq!(held(&field), (1, 1), "the other session still holds it");
    let exhausted = Err(Reason::LocalPortsExhausted);
    assert_eq!(outward(&mut field, OTHER, at(FARTHER)), exhausted, "nobody else gets it");
    assert_eq!(outward(&mut field, INSIDE, at(FARTHER)), pooled);
    end(&mut field, INSIDE, at(FAR));
    assert_eq!(held(&field), (1, 1));
    end(&mut field, INSIDE, at(FARTHER));
    assert_eq!(held(&field), (0, 0), "it goes with the last");
}

/// A rule whose mapping is another after a reload: what each session was opened with is what it
/// lets go of.
#[test]
fn a_reload_of_the_mapping_in_place_leaks_none_and_ends_none() {
    let pooled = Ok(at("198.51.100.9:2000"));
    let (single, shared) = (one_port(Mapping::PerSession), one_port(Mapping::EndpointIndependent));
    let mut field = Field::new(&single);
    assert_eq!(outward(&mut field, INSIDE, at(FAR)), pooled);
    reload(&mut field, &shared);
    assert_eq!(outward(&mut field, INSIDE, at(FARTHER)), pooled);
    end(&mut field, INSIDE, at(FAR));
    assert_eq!(held(&field), (1, 1));
    assert_eq!(outward(&mut field, OTHER, at(FAR)), Err(Reason::LocalPortsExhausted));
    reload(&mut field, &single);
    end(&mut field, INSIDE, at(FARTHER));
    assert_eq!(held(&field), (0, 0));
    reload(&mut field, &shared);
    assert_eq!(outward(&mut field, INSIDE, at(FAR)), pooled);
    reload(&mut field, &single);
    let exhausted = Err(Reason::LocalPortsExhausted);
    assert_eq!(outward(&mut field, INSIDE, at(FARTHER)), exhausted, "it is a mapping's");
    end(&mut field, INSIDE, at(FAR));
    assert_eq!(held(&field), (0, 0));
    assert_eq!(outward(&mut field, OTHER, at(FAR)), pooled);
}

/// A TCP segment between endpoints, with a sequence number.
fn segment(from: &str, to: SocketAddr, flags: u8, number: u32) -> MemFrame {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (at(from), to) else { panic!("IPv4") };
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6])
        .ipv4(from.ip().octets(), to.ip().octets(), 64)
        .tcp(from.port(), to.port(), number, 1000);
    let builder = if flags & SYN != 0 { builder.syn() } else { builder };
    let builder = if flags & ACK != 0 { builder.ack(1) } else { builder };
    let mut bytes = Vec::new();
    builder.write(&mut bytes, b"").unwrap();
    MemFrame::new(&bytes)
}

/// A connection between hosts inside that begins anew where the last one was never answered holds
/// the mapping that it came to, and lets go of it.
#[test]
fn a_connection_from_inside_that_begins_anew_holds_its_mapping() {
    let mut rule = snat(Mapping::EndpointIndependent);
    rule.snat[0].hairpinning = true;
    let mut field = Field::new(&rule);
    let (pool, far) = (ip("198.51.100.9"), at(FAR));
    let sent = |field: &mut Field, from: &str, to: SocketAddr, number| {
        let verdict = field.one(lab::BACK, &mut segment(from, to, SYN, number));
        assert!(matches!(verdict, Verdict::Tx(_)), "{from} to {to}: {verdict:?}");
    };
    sent(&mut field, INSIDE, far, 1);
    sent(&mut field, OTHER, far, 1);
    let inner = SocketAddr::new(pool, 2000);
    sent(&mut field, OTHER, inner, 1);
    assert_eq!(held(&field), (4, 2));
    let before = field.path.counters().closed;
    field.now.0 += 8000;
    sent(&mut field, OTHER, inner, 900_000_000);
    assert!(field.path.counters().closed > before, "it has begun anew");
    assert_eq!(held(&field), (4, 2));
    field.now.0 += 3_600_000;
    let Field { path, plan, now, .. } = &mut field;
    path.sweep_all(plan, *now);
    assert_eq!(held(&field), (0, 0), "no mapping is left");
}
