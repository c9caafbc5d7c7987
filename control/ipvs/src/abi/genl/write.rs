//! What the director says, as attributes.

use std::net::IpAddr;

use super::{attribute, daemon, dest, svc};
use crate::abi::netlink::Body;
use crate::abi::{self, cut};
use crate::{Daemon, Destination, Family, Info, Service, ServiceKey, Stats, Timeouts, TunnelKind};

/// `IPVS_STATS_ATTR_*`, in order: five counts, five rates.
const FIRST_STAT: u16 = 1;

/// A service, without its destinations.
pub fn service(service: &Service) -> Body {
    let spec = &service.spec;
    let mut body = Body::default();
    body.nest(attribute::SERVICE, |body| {
        body.u16(svc::AF, abi::af(spec.key.family()));
        match spec.key {
            ServiceKey::Mark { mark, .. } => {
                body.u32(svc::FWMARK, mark);
            }
            ServiceKey::Address { protocol, address, port } => {
                body.u16(svc::PROTOCOL, protocol.number().into());
                body.put(svc::ADDR, &abi::union(address)).be16(svc::PORT, port);
            }
            // Not asked for, and not shown.
            ServiceKey::Match(_) => {}
        }
        body.text(svc::SCHED_NAME, &spec.scheduler);
        if let Some(engine) = &spec.persistence_engine {
            body.text(svc::PE_NAME, engine);
        }
        let flags = [spec.flags.to_ne_bytes(), u32::MAX.to_ne_bytes()];
        body.put(svc::FLAGS, flags.as_flattened()).u32(svc::TIMEOUT, spec.timeout_s);
        body.put(svc::NETMASK, &abi::netmask_bytes(spec.key.family(), spec.netmask));
        stats(body, svc::STATS, svc::STATS64, &service.stats);
    });
    body
}

/// A destination.
pub fn destination(of: &Destination) -> Body {
    let kind = match of.tunnel.kind {
        TunnelKind::Ipip => 0,
        TunnelKind::Gue => 1,
        TunnelKind::Gre => 2,
    };
    let mut body = Body::default();
    body.nest(attribute::DEST, |body| {
        body.put(dest::ADDR, &abi::union(of.address)).be16(dest::PORT, of.port);
        body.u32(dest::FWD_METHOD, abi::fwd(of.method)).u32(dest::WEIGHT, of.weight);
        body.u8(dest::TUN_TYPE, kind).be16(dest::TUN_PORT, of.tunnel.port);
        body.u16(dest::TUN_FLAGS, of.tunnel.flags);
        body.u32(dest::U_THRESH, of.upper).u32(dest::L_THRESH, of.lower);
        body.u32(dest::ACTIVE_CONNS, of.active).u32(dest::INACT_CONNS, of.inactive);
        body.u32(dest::PERSIST_CONNS, of.persistent);
        body.u16(dest::ADDR_FAMILY, abi::af(Family::of(of.address)));
        stats(body, dest::STATS, dest::STATS64, &of.stats);
    });
    body
}

/// Counts and rates twice: as old programs read them, and in full.
fn stats(body: &mut Body, old: u16, full: u16, stats: &Stats) {
    let counts =
        [stats.connections, stats.in_packets, stats.out_packets, stats.in_bytes, stats.out_bytes];
    let all = || (FIRST_STAT..).zip(counts.into_iter().chain(abi::rates(stats)));
    body.nest(old, |body| {
        for (kind, number) in all() {
            // Bytes have always had eight bytes: the fourth and the fifth.
            match kind {
                4 | 5 => body.u64(kind, number),
                _ => body.u32(kind, cut(number)),
            };
        }
    });
    body.nest(full, |body| {
        for (kind, number) in all() {
            body.u64(kind, number);
        }
    });
}

/// A daemon.
pub fn daemon(of: &Daemon) -> Body {
    let mut body = Body::default();
    body.nest(attribute::DAEMON, |body| {
        body.u32(daemon::STATE, abi::state(of.role)).text(daemon::MCAST_IFN, &of.interface);
        body.u32(daemon::SYNC_ID, of.sync_id).u16(daemon::SYNC_MAXLEN, of.maximum_length);
        body.u16(daemon::MCAST_PORT, of.port).u8(daemon::MCAST_TTL, of.ttl);
        match of.group {
            Some(IpAddr::V4(group)) => body.put(daemon::MCAST_GROUP, &group.octets()),
            Some(IpAddr::V6(group)) => body.put(daemon::MCAST_GROUP6, &group.octets()),
            None => body,
        };
    });
    body
}

/// Timeouts.
pub fn timeouts(of: Timeouts) -> Body {
    let mut body = Body::default();
    body.u32(attribute::TIMEOUT_TCP, of.tcp_s).u32(attribute::TIMEOUT_TCP_FIN, of.tcp_fin_s);
    body.u32(attribute::TIMEOUT_UDP, of.udp_s);
    body
}

/// Version and size.
pub fn info(of: Info) -> Body {
    let mut body = Body::default();
    body.u32(attribute::VERSION, of.version).u32(attribute::CONN_TAB_SIZE, of.table_size);
    body
}
