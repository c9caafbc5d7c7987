//! Services and their destinations as tables.

use std::net::{IpAddr, Ipv4Addr};

use sluice_ipvs::{
    Destination, Family, Match, Method, Protocol, Service, ServiceKey, ServiceSpec, Stats, Tunnel,
    TunnelKind, flags,
};

use crate::figures::{exact, short};
use crate::parse::{Columns, Listing};
use crate::world::{Transport, World};

/// The heading of a table.
pub(crate) fn heading(columns: Columns) -> String {
    let wide = |names: [&str; 5]| {
        let mut line = format!("{:<33}", "Prot LocalAddress:Port");
        for name in names {
            line += &format!(" {name:>8}");
        }
        line + "\n  -> RemoteAddress:Port\n"
    };
    let service = "Prot LocalAddress:Port Scheduler Flags\n";
    let server = "  -> RemoteAddress:Port           Forward ";
    match columns {
        Columns::Plain => format!("{service}{server}Weight ActiveConn InActConn\n"),
        Columns::TunnelInfo => {
            format!("{service}{server}TunnelInfo    Weight ActiveConn InActConn\n")
        }
        Columns::Stats => wide(["Conns", "InPkts", "OutPkts", "InBytes", "OutBytes"]),
        Columns::Rate => wide(["CPS", "InPPS", "OutPPS", "InBPS", "OutBPS"]),
        Columns::Thresholds => {
            let names = "Uthreshold Lthreshold ActiveConn InActConn ";
            format!("{:<33} {names}\n  -> RemoteAddress:Port\n", "Prot LocalAddress:Port")
        }
        Columns::Persistent => {
            let names = "Weight    PersistConn ActiveConn InActConn ";
            format!("{:<33} {names}\n  -> RemoteAddress:Port\n", "Prot LocalAddress:Port")
        }
    }
}

/// One service and its destinations.
pub(crate) fn service(service: &Service, listing: &Listing, world: &mut impl World) -> String {
    let spec = &service.spec;
    let name = name(spec, listing.numeric, world);
    let big = if listing.exact { exact } else { short };
    let mut text = match listing.columns {
        Columns::Stats => {
            let line = counts(&service.stats).map(big).concat();
            format!("{name:<33}{line}\n")
        }
        Columns::Rate => {
            let line = rates(&service.stats).map(big).concat();
            format!("{name:<33}{line}\n")
        }
        _ => format!("{name} {}{}\n", spec.scheduler, options(spec)),
    };
    let transport = transport(&spec.key);
    for destination in &service.destinations {
        let place = (destination.address, destination.port);
        let name = place_name(place, transport, listing.numeric, world);
        let line = self::destination(destination, listing.columns, big);
        text += &format!("  -> {name:<28}{line}\n");
    }
    text
}

fn destination(it: &Destination, columns: Columns, big: fn(u64) -> String) -> String {
    let forward = forward(it.method);
    // Weights are signed numbers here, and unsigned in the list of persistent connections.
    let (weight, active, inactive) = (it.weight as i32, it.active, it.inactive);
    match columns {
        Columns::Plain => format!(" {forward:<7} {weight:<6} {active:<10} {inactive:<10}"),
        Columns::TunnelInfo => {
            let tunnel = match it.method {
                Method::Tunnel => tunnel(it.tunnel),
                _ => "n/a".to_owned(),
            };
            format!(" {forward:<7} {tunnel:<13} {weight:<6} {active:<10} {inactive:<10}")
        }
        Columns::Stats => counts(&it.stats).map(big).concat(),
        Columns::Rate => {
            let [connections, in_packets, out_packets, in_bytes, out_bytes] = rates(&it.stats);
            let packets = format!(" {connections:8} {in_packets:8} {out_packets:8}");
            packets + &big(in_bytes) + &big(out_bytes)
        }
        Columns::Thresholds => {
            let (upper, lower) = (it.upper, it.lower);
            format!(" {upper:<10} {lower:<10} {active:<10} {inactive:<10}")
        }
        Columns::Persistent => {
            let (weight, bound) = (it.weight, it.persistent);
            format!(" {weight:<9} {bound:<11} {active:<10} {inactive:<10}")
        }
    }
}

const fn counts(stats: &Stats) -> [u64; 5] {
    let Stats { connections, in_packets, out_packets, in_bytes, out_bytes, .. } = *stats;
    [connections, in_packets, out_packets, in_bytes, out_bytes]
}

const fn rates(stats: &Stats) -> [u64; 5] {
    [
        stats.connections_per_s,
        stats.in_packets_per_s,
        stats.out_packets_per_s,
        stats.in_bytes_per_s,
        stats.out_bytes_per_s,
    ]
}

const fn forward(method: Method) -> &'static str {
    match method {
        Method::Masq => "Masq",
        Method::Local => "Local",
        Method::Tunnel => "Tunnel",
        Method::Route => "Route",
        Method::Bypass => "(null)",
        Method::FullNat => "FullNat",
        Method::Snat => "SNAT",
    }
}

fn tunnel(tunnel: Tunnel) -> String {
    let sum = match tunnel.flags {
        0 => "-c",
        1 => "+c",
        _ => "r+c",
    };
    match tunnel.kind {
        TunnelKind::Ipip => "ipip".to_owned(),
        TunnelKind::Gue => format!("gue:{}:{sum}", tunnel.port),
        TunnelKind::Gre => format!("gre:{sum}"),
    }
}

/// What stands behind the scheduler.
fn options(spec: &ServiceSpec) -> String {
    let mut text = String::new();
    if let Some(names) = flag_names(spec) {
        text += &format!(" ({names})");
    }
    if spec.flags & flags::PERSISTENT != 0 {
        text += &format!(" persistent {}", spec.timeout_s);
        if let Some(mask) = mask(spec) {
            text += &format!(" mask {mask}");
        }
    }
    if let Some(engine) = &spec.persistence_engine {
        text += &format!(" pe {engine}");
    }
    if spec.flags & flags::ONE_PACKET != 0 {
        text += " ops";
    }
    text
}

/// The flags of a scheduler by its own names for them.
pub(crate) fn flag_names(spec: &ServiceSpec) -> Option<String> {
    let names = match spec.scheduler.as_str() {
        "sh" => ["sh-fallback", "sh-port", ""],
        "mh" => ["mh-fallback", "mh-port", ""],
        _ => ["flag-1", "flag-2", "flag-3"],
    };
    let all = [flags::SCHEDULER_1, flags::SCHEDULER_2, flags::SCHEDULER_3];
    let set = all.into_iter().zip(names).filter(|(flag, _)| spec.flags & flag != 0);
    let named: Vec<&str> = set.map(|(_, name)| name).filter(|name| !name.is_empty()).collect();
    (!named.is_empty()).then(|| named.join(","))
}

/// What makes one client of many, unless each is its own.
pub(crate) fn mask(spec: &ServiceSpec) -> Option<String> {
    match spec.key.family() {
        Family::Ipv4 if spec.netmask != u32::MAX => {
            Some(Ipv4Addr::from_bits(spec.netmask).to_string())
        }
        Family::Ipv6 if spec.netmask != 128 => Some(spec.netmask.to_string()),
        _ => None,
    }
}

/// By which names ports of a service go.
pub(crate) const fn transport(key: &ServiceKey) -> Option<Transport> {
    match *key {
        ServiceKey::Mark { .. } | ServiceKey::Match(_) => None,
        ServiceKey::Address { protocol, .. } => Some(match protocol {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
            Protocol::Sctp => Transport::Sctp,
        }),
    }
}

fn name(spec: &ServiceSpec, numeric: bool, world: &mut impl World) -> String {
    match spec.key {
        // Marks are shown as signed numbers.
        ServiceKey::Mark { mark, family: Family::Ipv4 } => format!("FWM  {}", mark as i32),
        ServiceKey::Mark { mark, family: Family::Ipv6 } => format!("FWM  {} IPv6", mark as i32),
        ServiceKey::Address { protocol, address, port } => {
            let protocol = match protocol {
                Protocol::Tcp => "TCP",
                Protocol::Udp => "UDP",
                Protocol::Sctp => "SCTP",
            };
            let place = place_name((address, port), transport(&spec.key), numeric, world);
            format!("{protocol:<4} {place}")
        }
        ServiceKey::Match(it) => format!("MATCH {}", matching(&it)),
    }
}

/// What a service matches, as DPVS lists it: ranges with ports, which here are all.
fn matching(it: &Match) -> String {
    let mut text = it.protocol().name().to_owned();
    for (word, range) in [("from", it.sources()), ("to", it.destinations())] {
        match range {
            Some((IpAddr::V4(first), IpAddr::V4(last))) => {
                text += &format!(",{word}={first}-{last}:0-0");
            }
            Some((first, last)) => text += &format!(",{word}=[{first}]-[{last}]:0-0"),
            None => {}
        }
    }
    if let Some(egress) = it.egress() {
        text += &format!(",oif={egress}");
    }
    text
}

/// An address and a port, by their names unless `numeric`. IPv6 addresses have none here.
pub(crate) fn place_name(
    (address, port): (IpAddr, u16),
    transport: Option<Transport>,
    numeric: bool,
    world: &mut impl World,
) -> String {
    let host = match address {
        IpAddr::V4(address) => {
            let name = if numeric { None } else { world.host_name(address) };
            name.unwrap_or_else(|| address.to_string())
        }
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let named = transport.filter(|_| !numeric);
    let service = named.and_then(|transport| world.service_name(port, transport));
    match service {
        Some(service) => format!("{host}:{service}"),
        None => format!("{host}:{port}"),
    }
}

/// The name of a service without its protocol, for lists that have a column for that.
pub(crate) fn plain_name(key: &ServiceKey, numeric: bool, world: &mut impl World) -> String {
    match *key {
        ServiceKey::Mark { mark, .. } => format!("FWM {mark}"),
        ServiceKey::Match(it) => format!("MATCH {}", matching(&it)),
        ServiceKey::Address { address, port, .. } => {
            place_name((address, port), transport(key), numeric, world)
        }
    }
}
