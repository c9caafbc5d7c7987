//! Services and their real servers.

use std::net::IpAddr;

use sluice_director::spec::{CheckAt, Network, Persistence, Ports, RealServer, VirtualService};

use super::values::{any_text, parse_name, parse_service_ports};
use super::{address, prefixes};
use crate::address::parse_address;
use crate::read::Table;
use crate::report::Report;
use crate::schema::Key;
use crate::schema::keys::{real, service};
use crate::words::ServiceProtocol;

pub(super) fn read(table: Table<'_>, report: &mut Report) -> VirtualService {
    let name = table.parsed(&service::NAME, parse_name, report).unwrap_or_default();
    let protocol = table.word::<ServiceProtocol>(&service::PROTOCOL, report).0;
    let vip = address(table, &service::VIP, report);
    let ports = table.ports(&service::PORT, parse_service_ports, report);
    let ports = ports.map_or(Ports::ALL, |ports| ports.0);
    table.labels(&service::LABELS, report);
    let reals = table.many(&real::SECTION, report);
    VirtualService {
        network: super::network_of(table, &service::NETWORK, report),
        name,
        protocol,
        vip,
        ports,
        mode: table.word(&service::MODE, report),
        tunnel: crate::tunnel::read(table, report),
        scheduler: table.word(&service::SCHEDULER, report),
        hash: table.word(&service::HASH, report),
        mh_table: table.integer(&service::MH_TABLE, report),
        pool: table.parsed(&service::POOL, any_text, report).unwrap_or_default(),
        one_packet: table.boolean(&service::ONE_PACKET, report),
        persistence: read_persistence(table, vip, report),
        on_removed: table.word(&service::ON_REMOVED, report),
        on_down: table.word(&service::ON_DOWN, report),
        all_down: table.word(&service::ALL_DOWN, report),
        probed: false,
        check: table.parsed(&service::CHECK, any_text, report).unwrap_or_default(),
        max_sessions: table.integer(&service::MAX_SESSIONS, report),
        max_new_per_s: table.integer(&service::MAX_NEW_PER_S, report),
        slow_start_s: table.integer(&service::SLOW_START_S, report),
        client_address: table.word(&service::CLIENT_ADDRESS, report),
        idle_timeout_s: table.integer(&service::IDLE_TIMEOUT_S, report),
        deny: networks(table, &service::DENY, report),
        allow: networks(table, &service::ALLOW, report),
        reals: reals.into_iter().map(|real| read_real(real, ports, report)).collect(),
    }
}

fn networks(table: Table<'_>, key: &'static Key, report: &mut Report) -> Vec<Network> {
    let listed = prefixes(table, key, report);
    if listed.as_ref().is_some_and(Vec::is_empty) {
        let path = table.path.key(key.name);
        report.error(path, "the list is empty", "name networks, or leave the key out");
    }
    listed.into_iter().flatten().map(Network::from).collect()
}

fn read_persistence(table: Table<'_>, vip: IpAddr, report: &mut Report) -> Option<Persistence> {
    let timeout_s = table.integer_if_given(&service::PERSISTENCE_S, report);
    let prefix = table.integer_if_given(&service::PERSISTENCE_PREFIX, report);
    if prefix.is_some() && timeout_s.is_none() {
        // Nothing is said when the key is there and wrong.
        let path = table.path.key(service::PERSISTENCE_S.name);
        let found = "this key is missing: `persistence_prefix` says nothing without it";
        report.error(path, found, "add a line such as persistence_s = 300");
    }
    let all_bits = if vip.is_ipv4() { 32 } else { 128 };
    let timeout_s = timeout_s.filter(|seconds| *seconds > 0)?;
    Some(Persistence { timeout_s, prefix: prefix.unwrap_or(all_bits) })
}

fn read_real(table: Table<'_>, service: Ports, report: &mut Report) -> RealServer {
    // Without a port of its own it has the client's, which is known if the service has only one.
    let same = service.single().unwrap_or(0);
    RealServer {
        address: address(table, &real::ADDRESS, report),
        port: table.integer_if_given(&real::PORT, report).unwrap_or(same),
        weight: table.integer(&real::WEIGHT, report),
        mode: table.word_if_given(&real::MODE, report),
        tunnel: crate::tunnel::read(table, report),
        upper_sessions: table.integer(&real::UPPER_SESSIONS, report),
        lower_sessions: table.integer(&real::LOWER_SESSIONS, report),
        down: table.boolean(&real::DOWN, report),
        fallback: table.boolean(&real::FALLBACK, report),
        check: CheckAt {
            address: table.parsed(&real::CHECK_ADDRESS, parse_address, report),
            port: table.integer_if_given(&real::CHECK_PORT, report),
        },
    }
}
