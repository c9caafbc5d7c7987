//! Sessions of another director whose local ports are the other table's here.

use super::{V4, start, tell, told};
use crate::frame::Frame;
use crate::path::tests::lab::{BACK, FRONT};
use crate::path::tests::modes::{Field, at, datagram, ends, ip, spec};
use crate::path::tests::owners::settle;
use crate::path::{Change, Path, Verdict};
use crate::reason::Reason;
use crate::spec::{ClientAddress, Mode, Ports, Spec, VirtualService};
use std::net::SocketAddr;

const COMPACT: u16 = 53;
const EXTENDED: u16 = 54;

/// A service whose sessions the IPv4 table has, and, in a director of now, one of the extended
/// table with the same real server.
fn services(both: bool) -> Spec {
    let mut all = spec(Mode::Fnat, V4.0, V4.1, 5353);
    all.pools[0].ports = 1024..=1027;
    all.gives_way = false;
    if both {
        let told = VirtualService {
            name: "told".to_owned(),
            ports: Ports::one(EXTENDED),
            client_address: ClientAddress::ProxyV2,
            ..all.services[0].clone()
        };
        all.services.push(told);
    }
    all
}

fn open(field: &Field, paths: &mut [Path], client: u16, port: u16) -> Verdict {
    let client = SocketAddr::new(ip("198.51.100.48"), client);
    let mut frame = datagram(client, SocketAddr::new(ip(V4.0), port));
    settle(field, paths, 0, &mut frame).1
}

/// Four sessions of the IPv4 table, which have all ports of the pool, told by a director that knows
/// no other service: idle for so long.
fn all_ports(idle_ms: u64) -> (Field, Vec<Change>) {
    let mut before = Field::new(&services(false));
    let mut paths = start(&before, 1);
    for client in 4000..4004 {
        assert_eq!(open(&before, &mut paths, client, COMPACT), Verdict::Tx(BACK));
    }
    before.now.0 += idle_ms;
    paths[0].sweep_all(&before.plan, before.now);
    let changes = told(&before, &mut paths);
    assert_eq!(changes.len(), 4);
    (before, changes)
}

/// Which client the real server's answer to a local port reaches.
fn answered(field: &Field, paths: &mut [Path], local_port: u16) -> u16 {
    let local = SocketAddr::new(ip("192.0.2.10"), local_port);
    let mut frame = datagram(at("192.0.2.11:5353"), local);
    let (_, verdict) = settle(field, paths, 0, &mut frame);
    assert_eq!(verdict, Verdict::Tx(FRONT), "port {local_port}");
    ends(&frame.bytes()[14..]).1.port()
}

/// Of two sessions to which the real server's answers look alike the one that was seen later stays.
#[test]
fn the_later_of_two_tables_sessions_has_the_port() {
    for (idle_ms, new, refused) in [(3000, 2, 2), (1000, 4, 0)] {
        let (before, changes) = all_ports(idle_ms);
        let mut after = Field::new(&services(true));
        let mut paths = start(&after, 1);
        for client in 5000..5002 {
            assert_eq!(open(&after, &mut paths, client, EXTENDED), Verdict::Tx(BACK));
        }
        after.now.0 += 2000;
        let got = tell(&changes, &before, &after, &mut paths);
        assert_eq!((got.new, got.refused), (new, refused));
        assert_eq!(paths[0].live_sessions(), 4, "each port is one session's");
        let clients = [1024, 1025, 1026, 1027].map(|port| answered(&after, &mut paths, port));
        let told = clients.iter().filter(|client| (4000..4004).contains(*client)).count() as u64;
        assert_eq!(told, new, "{clients:?}");
        let counted: Vec<_> = paths[0].counters().reals.iter().map(|real| real.active).collect();
        assert_eq!(counted, paths[0].recount().iter().map(|real| real.active).collect::<Vec<_>>());
    }
}

/// Nobody is given a port that a session of the other table has brought along.
#[test]
fn what_came_with_a_session_is_not_given_out() {
    let (before, changes) = all_ports(10);
    let after = Field::new(&services(true));
    let mut paths = start(&after, 1);
    assert_eq!(tell(&changes, &before, &after, &mut paths).new, 4);
    let exhausted = Verdict::Drop(Reason::LocalPortsExhausted);
    assert_eq!(open(&after, &mut paths, 5000, EXTENDED), exhausted);
}
