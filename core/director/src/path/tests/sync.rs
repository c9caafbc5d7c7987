//! Sessions that one director tells go on in another: other ids, as many workers or not.

mod associations;
mod mappings;
mod streams;
mod tables;

use super::lab::{BACK, FRONT, MemFrame};
use super::modes::{Field, datagram, ends, ip, spec};
use super::owners::settle;
use super::restore::{answer, ask, with_another_first};
use crate::frame::Frame;
use crate::path::{
    Change, Imported, Importer, Imports, Owners, PagePolicy, Path, PathConfig, Portable, Verdict,
};
use crate::plan::{Names, Resolver};
use crate::session::State;
use crate::spec::{LocalPool, Mapping, Mode, Network, Persistence, SnatRule, Spec};
use crate::time::Time;
use etherparse::PacketBuilder;
use sluice_wire::tcp::{ACK, SYN};
use std::net::SocketAddr;

const V4: (&str, &str) = ("198.51.100.200", "192.0.2.11");
const V6: (&str, &str) = ("2001:db8:1::200", "2001:db8:2::11");

/// A director whose workers note changes.
fn start(field: &Field, workers: u16) -> Vec<Path> {
    start_with(field, workers, 1000)
}

fn start_with(field: &Field, workers: u16, sessions: u32) -> Vec<Path> {
    let path = |worker| {
        let config = PathConfig {
            worker,
            workers,
            sessions,
            fragments: 64,
            seed: 7 + u64::from(workers),
            pages: PagePolicy::Ordinary,
        };
        let mut path = Path::new(&config).unwrap();
        path.note_changes().unwrap();
        path.adopt(&field.plan);
        path
    };
    (0..workers).map(path).collect()
}

/// All that a director has to tell.
fn told(field: &Field, paths: &mut [Path]) -> Vec<Change> {
    let mut all = Vec::new();
    for path in paths {
        while path.has_changes() {
            path.take_changes((&field.plan, field.now), 7, |change| all.push(change));
        }
    }
    all
}

/// Tells them to another director, some of whose ids are others.
fn tell(changes: &[Change], from: &Field, to: &Field, paths: &mut [Path]) -> Imported {
    let workers = paths.len() as u16;
    let owners = Owners::new(7 + u64::from(workers), workers);
    let resolver = Resolver::new(&to.plan);
    let Names { services, reals, .. } = from.plan.names();
    let mut batches = vec![Imports::default(); paths.len()];
    let mut all = Imported::default();
    let importer = Importer::new(&to.plan, &resolver, owners);
    for change in changes {
        let real = &reals[change.real.0 as usize];
        let service = &services[usize::from(real.service.0)];
        let mut batches: Vec<_> = batches.iter_mut().collect();
        let placed = resolver
            .real(service, (real.address, real.port, real.mode))
            .is_some_and(|id| importer.place(id, &change.session, change.ended, &mut batches));
        all.unknown += u64::from(!placed);
    }
    for (path, batch) in paths.iter_mut().zip(&batches) {
        all += path.import(&to.plan, to.now, batch);
    }
    all
}

fn live(paths: &[Path]) -> u32 {
    paths.iter().map(Path::live_sessions).sum()
}

fn with_prefix(mode: Mode, (vip, real): (&str, &str), prefix: Option<u8>) -> Spec {
    let mut one = spec(mode, vip, real, 0);
    one.services[0].persistence = prefix.map(|prefix| Persistence { timeout_s: 300, prefix });
    one
}

/// Frames without the source port of GUE and what follows from it: each director chooses it by a
/// hash of its own, for the network's choice between equal paths (draft-ietf-intarea-gue-09 5.11).
fn without_path_choice(mode: Mode, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let plain = |frame: &Vec<u8>| {
        let mut frame = frame.clone();
        if mode == Mode::Gue {
            let udp = if frame[12..14] == [8, 0] { 34 } else { 54 };
            frame[udp..udp + 2].fill(0);
            frame[udp + 6..udp + 8].fill(0);
        }
        frame
    };
    frames.iter().map(plain).collect()
}

#[test]
fn sessions_go_on_at_another_director() {
    for mode in Mode::OF_REALS {
        for endpoints in [V4, V6] {
            for prefix in [None, Some(24)] {
                for (here, there) in [(1, 1), (2, 2), (3, 1), (1, 3), (2, 3)] {
                    let name = format!("{mode:?} {} {prefix:?} {here} {there}", endpoints.0);
                    let one = with_prefix(mode, endpoints, prefix);
                    let before = Field::new(&one);
                    let mut paths = start(&before, here);
                    let arrived = ask(&before, &mut paths, endpoints.0);
                    // What nobody has answered is told by the sweep, within two seconds.
                    let mut before = before;
                    before.now.0 += 10;
                    let mut changes = told(&before, &mut paths);
                    paths.iter_mut().for_each(|p| p.sweep_all(&before.plan, before.now));
                    changes.extend(told(&before, &mut paths));
                    let mut after = Field::new(&with_another_first(&one));
                    // Its clock began at another time.
                    after.now = Time(before.now.0 + 777_000);
                    let mut others = start(&after, there);
                    let got = tell(&changes, &before, &after, &mut others);
                    let templates: u32 = paths.iter().map(Path::templates).sum();
                    let all = u64::from(live(&paths) + templates);
                    assert_eq!(got, Imported { new: all, ..Imported::default() }, "{name}");
                    let again = ask(&after, &mut others, endpoints.0);
                    let same =
                        without_path_choice(mode, &again) == without_path_choice(mode, &arrived);
                    assert!(same, "{name}: to the same, from the same");
                    if matches!(mode, Mode::Fnat | Mode::Nat) {
                        answer(&after, &mut others, &again, endpoints.0);
                    }
                    for path in &others {
                        assert_eq!(path.counters().created, 0, "{name}: none is opened anew");
                        let gauges = |reals: &[crate::counters::RealCounters]| {
                            reals.iter().map(|r| (r.active, r.bound)).collect::<Vec<_>>()
                        };
                        assert_eq!(gauges(&path.counters().reals), gauges(&path.recount()));
                    }
                }
            }
        }
    }
}

/// What was told once is not told again, nor told back; and a walk tells everything.
#[test]
fn changes_are_told_once_and_not_back() {
    let field = Field::new(&with_prefix(Mode::Fnat, V4, None));
    let (mut one, mut two) = (start(&field, 1), start(&field, 1));
    let requests = ask(&field, &mut one, V4.0);
    assert_eq!(told(&field, &mut one), [], "unanswered UDP waits for the sweep");
    answer(&field, &mut one, &requests, V4.0);
    let changes = told(&field, &mut one);
    assert_eq!(changes.len(), 40, "each is told when it is answered");
    assert_eq!(tell(&changes, &field, &field, &mut two).new, 40);
    for paths in [&mut one, &mut two] {
        paths[0].sweep_all(&field.plan, field.now);
        assert_eq!(told(&field, paths), []);
    }
    assert_eq!(tell(&changes, &field, &field, &mut two).older, 40, "a repetition is harmless");
    two[0].begin_walk();
    assert!(two[0].has_changes());
    let mut walked = Vec::new();
    let mut calls = 0;
    while !two[0].take_changes((&field.plan, field.now), 7, |change| walked.push(change)) {
        calls += 1;
        assert!(calls < 10);
    }
    assert_eq!((walked.len(), two[0].has_changes()), (40, false));
    let by_client = |changes: &[Change]| {
        let mut sessions: Vec<_> = changes.iter().map(|change| change.session).collect();
        sessions.sort_unstable_by_key(|session| session.client_port);
        sessions
    };
    assert_eq!(by_client(&walked), by_client(&changes));
}

/// A session that stays in use is told again some seconds later, and only then.
#[test]
fn sessions_in_use_are_refreshed() {
    let mut field = Field::new(&with_prefix(Mode::Nat, V4, None));
    let mut paths = start(&field, 1);
    let requests = ask(&field, &mut paths, V4.0);
    answer(&field, &mut paths, &requests, V4.0);
    assert_eq!(told(&field, &mut paths).len(), 40);
    for (after_ms, expected) in [(4000, 0), (5000, 40), (1000, 0)] {
        field.now.0 += after_ms;
        ask(&field, &mut paths, V4.0);
        paths[0].sweep_all(&field.plan, field.now);
        assert_eq!(told(&field, &mut paths).len(), expected, "after {after_ms} ms more");
    }
}

fn tcp(client: u16, flags: u8) -> MemFrame {
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6])
        .ipv4([198, 51, 100, 48], [198, 51, 100, 200], 64)
        .tcp(4000 + client, 53, 1, 1000);
    let builder = if flags == SYN { builder.syn() } else { builder.ack(1) };
    let mut bytes = Vec::new();
    builder.write(&mut bytes, b"").unwrap();
    MemFrame::new(&bytes)
}

fn run(field: &Field, paths: &mut [Path], mut frame: MemFrame) -> Verdict {
    settle(field, paths, 0, &mut frame).1
}

/// A flood of SYNs is nobody else's concern.
#[test]
fn half_open_connections_are_not_told_and_established_ones_are() {
    let mut one = spec(Mode::Dr, V4.0, V4.1, 0);
    one.services[0].protocol = crate::spec::Protocol::Tcp;
    let field = Field::new(&one);
    let mut paths = start(&field, 1);
    for client in 0..50 {
        assert_eq!(run(&field, &mut paths, tcp(client, SYN)), Verdict::Tx(BACK));
    }
    paths[0].sweep_all(&field.plan, field.now);
    assert_eq!(told(&field, &mut paths), []);
    assert_eq!(run(&field, &mut paths, tcp(3, ACK)), Verdict::Tx(BACK));
    let changes = told(&field, &mut paths);
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].session.client_port, changes[0].ended), (4003, false));
    let mut others = start(&field, 1);
    assert_eq!(tell(&changes, &field, &field, &mut others).new, 1);
    // Ends are told of what was told.
    let mut later = field;
    later.now.0 += 7_200_000;
    paths[0].sweep_all(&later.plan, later.now);
    let over = told(&later, &mut paths);
    assert_eq!((over.len(), over[0].ended), (1, true));
    later.now.0 -= 7_200_000;
    let idle = Change { session: Portable { idle_ms: 0, ..over[0].session }, ..over[0] };
    assert_eq!(tell(&[idle], &later, &later, &mut others).ended, 1);
    assert_eq!(live(&others), 0);
}

/// Who has seen a session later is right, whoever it is.
#[test]
fn the_newer_report_holds() {
    let mut field = Field::new(&with_prefix(Mode::Nat, V4, None));
    let (mut one, mut two) = (start(&field, 1), start(&field, 1));
    let requests = ask(&field, &mut one, V4.0);
    answer(&field, &mut one, &requests, V4.0);
    let old = told(&field, &mut one);
    assert_eq!(tell(&old, &field, &field, &mut two).new, 40);
    field.now.0 += 3000;
    // They go on at the second, while the first comes back with what it knew.
    ask(&field, &mut two, V4.0);
    let late = |change: &Change, ended| Change {
        ended,
        session: Portable { idle_ms: 3000, ..change.session },
        ..*change
    };
    for ended in [false, true] {
        let stale: Vec<_> = old.iter().map(|change| late(change, ended)).collect();
        let got = tell(&stale, &field, &field, &mut two);
        assert_eq!(got, Imported { older: 40, ..Imported::default() }, "ended: {ended}");
    }
    assert_eq!(live(&two), 40);
    // And what the second knows replaces what the first had.
    two[0].begin_walk();
    let new = told(&field, &mut two);
    assert_eq!(tell(&new, &field, &field, &mut one).newer, 40);
    assert_eq!((live(&one), tell(&new, &field, &field, &mut one).older), (40, 40));
}

/// What both sides have closed lingers at whoever tells of its end, and is told in that state.
#[test]
fn what_lingers_elsewhere_ends_here() {
    let field = Field::new(&with_prefix(Mode::Nat, V4, None));
    let (mut one, mut two) = (start(&field, 1), start(&field, 1));
    let requests = ask(&field, &mut one, V4.0);
    answer(&field, &mut one, &requests, V4.0);
    let changes = told(&field, &mut one);
    assert_eq!(tell(&changes, &field, &field, &mut two).new, 40);
    let over = |change: &Change| {
        let state = State::Ended as u8;
        Change { ended: true, session: Portable { state, ..change.session }, ..*change }
    };
    let ends: Vec<_> = changes.iter().map(over).collect();
    let got = tell(&ends, &field, &field, &mut two);
    assert_eq!((got, live(&two)), (Imported { ended: 40, ..Imported::default() }, 0));
}

/// Times of two directors cannot be compared to the millisecond, but a session that has closed was
/// open before.
#[test]
fn what_a_session_comes_to_is_later() {
    let field = Field::new(&with_prefix(Mode::Nat, V4, None));
    let (mut one, mut two) = (start(&field, 1), start(&field, 1));
    let requests = ask(&field, &mut one, V4.0);
    answer(&field, &mut one, &requests, V4.0);
    let open = |change: &mut Change| change.session.state = State::Established as u8;
    let mut changes = told(&field, &mut one);
    changes.iter_mut().for_each(open);
    assert_eq!(tell(&changes, &field, &field, &mut two).new, 40);
    let after = |state, idle_ms, ended| -> Vec<Change> {
        let later = |change: &Change| {
            let session = Portable { state, idle_ms, ..change.session };
            Change { ended, session, ..*change }
        };
        changes.iter().map(later).collect()
    };
    let (same, closing) = (State::Established as u8, State::FinWait as u8);
    for (state, idle_ms) in [(same, 20), (closing, 300)] {
        let got = tell(&after(state, idle_ms, false), &field, &field, &mut two);
        assert_eq!(got, Imported { older: 40, ..Imported::default() }, "{state} {idle_ms}");
    }
    let got = tell(&after(closing, 20, false), &field, &field, &mut two);
    assert_eq!(got, Imported { newer: 40, ..Imported::default() });
    two[0].begin_walk();
    assert!(told(&field, &mut two).iter().all(|change| change.session.idle_ms == 0));
    let got = tell(&after(closing, 300, true), &field, &field, &mut two);
    assert_eq!((got.older, live(&two)), (40, 40));
    let got = tell(&after(same, 20, true), &field, &field, &mut two);
    assert_eq!((got.ended, live(&two)), (40, 0));
}

/// A peer may tell anything.
#[test]
fn what_cannot_be_is_left() {
    let one = with_prefix(Mode::Fnat, V4, None);
    let field = Field::new(&one);
    let (mut paths, mut others) = (start(&field, 1), start_with(&field, 1, 10));
    let requests = ask(&field, &mut paths, V4.0);
    answer(&field, &mut paths, &requests, V4.0);
    let good = told(&field, &mut paths);
    let bad = |edit: &dyn Fn(&mut Portable)| {
        let mut change = good[0];
        edit(&mut change.session);
        change
    };
    let changes = [
        bad(&|session| session.state = 0),
        bad(&|session| session.state = 15),
        bad(&|session| session.state = 200),
        bad(&|session| session.state = 14),
        bad(&|session| session.local = None),
        bad(&|session| session.local = Some((ip("203.0.113.9"), 2000))),
        bad(&|session| session.local = session.local.map(|(address, _)| (address, 1))),
        bad(&|session| session.client = ip("2001:db8::1")),
    ];
    let got = tell(&changes, &field, &field, &mut others);
    assert_eq!(got, Imported { unknown: 8, ..Imported::default() });
    // No more than there is room for; and two sessions cannot have one local port.
    let clash = bad(&|session| session.client_port = 9);
    let mut all = good.clone();
    all.insert(1, clash);
    let got = tell(&all, &field, &field, &mut others);
    assert_eq!((got.new + got.newer, live(&others)), (10 + got.newer, 10), "{got:?}");
    assert_eq!(got.refused + got.older + got.new + got.newer, 41, "{got:?}");
    let over = bad(&|session| session.idle_ms = 3_600_000);
    let mut empty = start(&field, 1);
    assert_eq!(tell(&[over], &field, &field, &mut empty).refused, 1);
}

/// Sessions of another director's local addresses go on where these are peer addresses of the
/// pool; new ones never take such an address.
#[test]
fn sessions_of_a_peers_local_addresses_go_on() {
    for endpoints in [V4, V6] {
        for (here, there) in [(1, 1), (2, 2), (3, 1), (1, 3)] {
            let name = format!("{} {here} {there}", endpoints.0);
            let one = spec(Mode::Fnat, endpoints.0, endpoints.1, 0);
            let mut other = with_another_first(&one);
            let own = if endpoints == V4 { "192.0.2.20" } else { "2001:db8:2::20" };
            let pool = &mut other.pools[0];
            pool.peer_addresses = std::mem::replace(&mut pool.addresses, vec![ip(own)]);
            let mut before = Field::new(&one);
            let mut paths = start(&before, here);
            let arrived = ask(&before, &mut paths, endpoints.0);
            before.now.0 += 10;
            paths.iter_mut().for_each(|path| path.sweep_all(&before.plan, before.now));
            let changes = told(&before, &mut paths);
            let after = Field::new(&other);
            let mut others = start(&after, there);
            let got = tell(&changes, &before, &after, &mut others);
            assert_eq!(got, Imported { new: 40, ..Imported::default() }, "{name}");
            assert!(ask(&after, &mut others, endpoints.0) == arrived, "{name}: from the same");
            answer(&after, &mut others, &arrived, endpoints.0);
            let mut fresh = start(&after, there);
            for request in ask(&after, &mut fresh, endpoints.0) {
                assert_eq!(ends(&request[14..]).0.ip(), ip(own), "{name}: one of its own");
            }
        }
    }
}

/// A rule of source NAT beside a service.
fn outward(mapping: Mapping) -> Spec {
    let mut out = spec(Mode::Dr, V4.0, V4.1, 0);
    out.pools.push(LocalPool {
        network: String::new(),
        name: "wan".into(),
        addresses: vec![ip("198.51.100.9")],
        ports: 2000..=2999,
        peer_addresses: Vec::new(),
    });
    out.snat = vec![SnatRule {
        network: String::new(),
        name: "out".into(),
        sources: vec![Network { address: ip("192.0.2.0"), prefix: 24 }],
        pool: "wan".into(),
        mapping,
        ..SnatRule::default()
    }];
    out
}

/// Sends a datagram of a port inside to a port outside, and gives what it became.
fn ask_outside(
    field: &Field,
    paths: &mut [Path],
    (port, far): (u16, u16),
) -> (SocketAddr, SocketAddr) {
    let from = SocketAddr::new(ip(V4.1), port);
    let mut frame = datagram(from, SocketAddr::new(ip("198.51.100.48"), far));
    let (_, verdict) = settle(field, paths, 0, &mut frame);
    assert_eq!(verdict, Verdict::Tx(FRONT), "port {port} to {far}");
    ends(&frame.bytes()[14..])
}

/// What endpoint-independent mapping shares, sessions at another director share too.
#[test]
fn mappings_of_source_nat_go_along() {
    for mapping in [Mapping::EndpointIndependent, Mapping::PerSession] {
        let mut field = Field::new(&outward(mapping));
        let mut paths = start(&field, 1);
        let first: Vec<_> =
            (1..=5).map(|far| ask_outside(&field, &mut paths, (700, far))).collect();
        field.now.0 += 10;
        paths[0].sweep_all(&field.plan, field.now);
        let changes = told(&field, &mut paths);
        let mut others = start(&field, 1);
        let got = tell(&changes, &field, &field, &mut others);
        assert_eq!(got, Imported { new: 5, ..Imported::default() }, "{mapping:?}");
        let again: Vec<_> =
            (1..=5).map(|far| ask_outside(&field, &mut others, (700, far))).collect();
        assert_eq!(again, first, "{mapping:?}");
        // What is told of them again changes nothing of what they hold here.
        field.now.0 += 20_000;
        for far in 1..=5 {
            ask_outside(&field, &mut paths, (700, far));
        }
        paths[0].sweep_all(&field.plan, field.now);
        let changes = told(&field, &mut paths);
        assert!(changes.iter().all(|change| change.session.closing == 0), "{changes:?}");
        let got = tell(&changes, &field, &field, &mut others);
        assert_eq!(got, Imported { newer: 5, ..Imported::default() }, "{mapping:?}");
        let shared = u32::from(mapping == Mapping::EndpointIndependent);
        assert_eq!(others[0].templates(), shared, "{mapping:?}");
        field.now.0 += 400_000;
        others[0].sweep_all(&field.plan, field.now);
        assert_eq!((live(&others), others[0].templates()), (0, 0), "{mapping:?}");
    }
}

/// A director that has given an endpoint a mapping of its own takes up what another one has of that
/// endpoint: its connections go on as they were, and its own ones too.
#[test]
fn sessions_of_an_endpoint_with_another_mapping_go_along() {
    let mut field = Field::new(&outward(Mapping::EndpointIndependent));
    let mut paths = start(&field, 1);
    let first: Vec<_> = (1..=5).map(|far| ask_outside(&field, &mut paths, (700, far))).collect();
    field.now.0 += 10;
    paths[0].sweep_all(&field.plan, field.now);
    let changes = told(&field, &mut paths);
    let mut others = start(&field, 1);
    ask_outside(&field, &mut others, (701, 9));
    let own = ask_outside(&field, &mut others, (700, 9));
    assert_ne!(own.0, first[0].0);
    let got = tell(&changes, &field, &field, &mut others);
    assert_eq!(got, Imported { new: 5, ..Imported::default() });
    let again: Vec<_> = (1..=5).map(|far| ask_outside(&field, &mut others, (700, far))).collect();
    assert_eq!(again, first);
    assert_eq!(ask_outside(&field, &mut others, (700, 9)), own);
    assert_eq!(ask_outside(&field, &mut others, (700, 10)).0, own.0);
    field.now.0 += 400_000;
    others[0].sweep_all(&field.plan, field.now);
    assert_eq!((others[0].live_sessions(), others[0].templates()), (0, 0));
}
