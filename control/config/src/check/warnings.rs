//! What is legal but probably not meant. Only asked of a configuration without errors.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use crate::path::{Path, Place};
use crate::report::Report;
use crate::{
    Config, HashKey, Hashes, Mode, Ports, Protocol, RealServer, Scheduling, VirtualService,
};

/// More sessions than this are worth a remark on memory.
const MANY_SESSIONS: u32 = 1 << 27;
/// What the place of a session takes in the tables of both kinds, in bytes (docs/operations.md).
const SESSION_BYTES: u64 = 156;
/// More held frames than this, in all workers together, are worth a remark on memory.
const MANY_HELD_FRAMES: u64 = 65_536;
/// What a held frame takes in memory, in bytes.
const FRAME_BYTES: u64 = 2304;
/// Entries of Maglev's table for each real server that share clients within a percent or so.
const MH_ENTRIES: usize = 100;

/// Reports everything questionable.
pub(crate) fn warnings(config: &Config, report: &mut Report) {
    warn_limits(config, report);
    super::api::warn(config, report);
    super::elephants::warn(config, report);
    super::networks::warn(config, report);
    warn_pools(config, report);
    warn_services(config, report);
}

fn warn_limits(config: &Config, report: &mut Report) {
    if config.icmp.errors_per_s == 0 {
        let found = "no ICMP error is sent, so that senders do not learn the path's MTU";
        let hint = "use a small number: it is a limit for each worker";
        report.warn(Path::table(Place::Icmp, 0).key("errors_per_s"), found, hint);
    }
    let path = Path::table(Place::Limits, 0);
    let sessions = config.limits.sessions;
    if sessions > MANY_SESSIONS {
        let gigabytes = u64::from(sessions) * SESSION_BYTES / 1_000_000_000;
        let found = format!("{sessions} sessions take up to {gigabytes} GB of memory at start");
        report.warn(path.key("sessions"), found, "make sure that the machine has it to spare");
    }
    let frames = u64::from(config.limits.held_frames) * config.workers() as u64;
    if frames > MANY_HELD_FRAMES {
        let megabytes = frames * FRAME_BYTES / 1_000_000;
        let found = format!("all workers may hold {frames} frames, {megabytes} MB of buffers");
        let hint = "a few hundred are enough unless very many neighbours come and go";
        report.warn(path.key("held_frames"), found, hint);
    }
}

fn warn_pools(config: &Config, report: &mut Report) {
    let services = config.services.iter().map(|it| it.pool.as_str());
    let used: HashSet<&str> = services.chain(config.snat.iter().map(|it| &it.pool[..])).collect();
    for (index, pool) in config.pools.iter().enumerate() {
        if !used.contains(pool.name.as_str()) {
            let hint =
                "name it as the `pool` of a service or of a rule of source NAT, or remove it";
            report.warn(Path::table(Place::Pool, index), "nothing uses this pool", hint);
        }
    }
}

fn warn_services(config: &Config, report: &mut Report) {
    if config.services.is_empty() && config.snat.is_empty() {
        let hint = "add a [[service]] section: without one every packet stays with the kernel";
        report.warn(Path::FILE, "there is no service", hint);
    }
    let mut by_vip: HashMap<(&str, IpAddr), Vec<&VirtualService>> = HashMap::new();
    for service in &config.services {
        by_vip.entry((&service.network, service.vip)).or_default().push(service);
    }
    for (index, check) in config.checks.iter().enumerate() {
        if !config.services.iter().any(|service| service.check == check.name) {
            let hint = "name it as the `check` of a service, or remove it";
            report.warn(Path::table(Place::Check, index), "nothing uses this check", hint);
        }
    }
    for (index, service) in config.services.iter().enumerate() {
        let path = Path::table(Place::Service, index);
        if service.reals.is_empty() {
            let hint = "add a [[service.real]] section below it";
            report.warn(path, "it has no real server and refuses its clients", hint);
        } else if service.reals.iter().all(|real| real.weight == 0) {
            let found = "every real server has weight 0, so that it refuses new clients";
            report.warn(path, found, "give at least one real server a weight of 1 or more");
        } else if service.reals.iter().all(|real| real.weight == 0 || real.down) {
            let found = "every real server is down or has weight 0, so that it refuses new clients";
            report.warn(path, found, "take `down` away from a real server that has a weight");
        }
        warn_idle_keys(service, path, report);
        for (real, server) in service.reals.iter().enumerate() {
            let path = Path::real(index, real);
            warn_own_address(service, server, &by_vip, path.key("address"), report);
            warn_shared_port(service, server, path.key("port"), report);
        }
    }
}

/// Warns of keys that say nothing beside the others.
fn warn_idle_keys(service: &VirtualService, path: Path, report: &mut Report) {
    let hashes = service.scheduler.hashes() == Hashes::Client;
    let scheduler = service.scheduler.name();
    if service.hash != HashKey::default() && !hashes {
        let found = format!("the scheduler {scheduler} hashes nothing");
        report.warn(path.key("hash"), found, "use it with sh or mh, or leave it out");
    }
    let defaults = VirtualService::default();
    if service.scheduler != Scheduling::Mh {
        if service.mh_table != defaults.mh_table {
            let found = format!("the scheduler {scheduler} has no such table");
            report.warn(path.key("mh_table"), found, "use it with mh, or leave it out");
        }
    } else if (service.mh_table as usize) < service.reals.len().saturating_mul(MH_ENTRIES) {
        let (size, reals) = (service.mh_table, service.reals.len());
        let found = format!("{size} entries for {reals} real servers share the clients unevenly");
        let hint = "use a prime of at least a hundred times the number of real servers";
        report.warn(path.key("mh_table"), found, hint);
    }
    let is_fnat = |real: &RealServer| real.mode.unwrap_or(service.mode) == Mode::Fnat;
    if !service.pool.is_empty() && !service.reals.is_empty() && !service.reals.iter().any(is_fnat) {
        let hint = "leave it out: only fnat takes source addresses from a pool";
        report.warn(path.key("pool"), "no real server of the service is fnat", hint);
    }
}

/// Warns of a real server that is the director itself.
fn warn_own_address(
    service: &VirtualService,
    server: &RealServer,
    by_vip: &HashMap<(&str, IpAddr), Vec<&VirtualService>>,
    path: Path,
    report: &mut Report,
) {
    let Some(services) = by_vip.get(&(&service.network[..], server.address)) else { return };
    let mode = server.mode.unwrap_or(service.mode);
    if mode.keeps_destination() {
        let found = format!("{} is a virtual address", server.address);
        let hint = "use the real server's own address: the virtual one is on every real server of \
                    this mode, and does not say which is meant";
        report.warn(path, found, hint);
        return;
    }
    let meets = |other: &&&VirtualService| {
        let same = other.protocol == service.protocol || other.protocol == Protocol::Any;
        let sent = if server.port == 0 { service.ports } else { Ports::one(server.port) };
        same && sent.first <= other.ports.last && other.ports.first <= sent.last
    };
    if let Some(other) = services.iter().find(meets) {
        let found = format!("this real server is the virtual service {:?}", other.name);
        let hint = "use the address of a real server: a director does not balance its own packets";
        report.warn(path, found, hint);
    }
}

/// Warns of sessions that cannot be told apart: `nat` keeps the client's port, and the real
/// server's answers to several ports of the service look alike when all go to one of its own.
fn warn_shared_port(
    service: &VirtualService,
    server: &RealServer,
    path: Path,
    report: &mut Report,
) {
    let mode = server.mode.unwrap_or(service.mode);
    if mode == Mode::Nat && server.port != 0 && service.ports.single().is_none() {
        let found = format!("with nat, all ports of the service become port {}", server.port);
        let hint = "leave it out, or use fnat: of one client port only one session at a time can \
                    then be told from others";
        report.warn(path, found, hint);
    }
}
