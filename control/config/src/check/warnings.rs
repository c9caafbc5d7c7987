//! What is legal but probably not meant. Only asked of a configuration without errors.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use sluice_director::blueprint::Ports;

use crate::path::{Path, Place};
use crate::report::Report;
use crate::{Config, Device, Protocol};

/// More sessions than this are worth a remark on memory.
const MANY_SESSIONS: u32 = 1 << 27;
/// What a session takes in memory, in bytes, at most.
const SESSION_BYTES: u64 = 64;
/// More held frames than this, in all workers together, are worth a remark on memory.
const MANY_HELD_FRAMES: u64 = 65_536;
/// What a held frame takes in memory, in bytes.
const FRAME_BYTES: u64 = 2304;

/// Reports everything questionable.
pub(crate) fn warnings(config: &Config, report: &mut Report) {
    warn_limits(config, report);
    warn_devices(config, report);
    warn_pools(config, report);
    warn_services(config, report);
}

fn warn_limits(config: &Config, report: &mut Report) {
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

fn warn_devices(config: &Config, report: &mut Report) {
    for (index, port) in config.ports.iter().enumerate() {
        if matches!(port.device, Device::Memif { .. }) {
            let path = Path::table(Place::Port, index).key("device");
            let found = "memif is experimental";
            let hint = "do not stop its peer under traffic: DPDK 22.11's driver may then crash \
                        the director";
            report.warn(path, found, hint);
        }
    }
}

fn warn_pools(config: &Config, report: &mut Report) {
    let used: HashSet<&str> = config.services.iter().map(|it| it.pool.as_str()).collect();
    for (index, pool) in config.pools.iter().enumerate() {
        if !used.contains(pool.name.as_str()) {
            let hint = "name it as the `pool` of a service, or remove it";
            report.warn(Path::table(Place::Pool, index), "no service uses this pool", hint);
        }
    }
}

fn warn_services(config: &Config, report: &mut Report) {
    if config.services.is_empty() {
        let hint = "add a [[service]] section: without one every packet stays with the kernel";
        report.warn(Path::FILE, "there is no service", hint);
    }
    let endpoints: HashMap<(Protocol, IpAddr, Ports), usize> = config
        .services
        .iter()
        .enumerate()
        .map(|(index, it)| ((it.protocol, it.vip, it.ports), index))
        .collect();
    for (index, service) in config.services.iter().enumerate() {
        let path = Path::table(Place::Service, index);
        if service.reals.is_empty() {
            let hint = "add a [[service.real]] section below it";
            report.warn(path, "it has no real server and refuses its clients", hint);
        } else if service.reals.iter().all(|real| real.weight == 0) {
            let found = "every real server has weight 0, so that it refuses new clients";
            report.warn(path, found, "give at least one real server a weight of 1 or more");
        }
        for (real, server) in service.reals.iter().enumerate() {
            let endpoint = (service.protocol, server.address, Ports::one(server.port));
            if let Some(&other) = endpoints.get(&endpoint) {
                let other = &config.services[other].name;
                let found = format!("this real server is the virtual service {other:?}");
                let hint = "use the address of a real server: a director does not balance its \
                            own packets";
                report.warn(Path::real(index, real).key("address"), found, hint);
            }
        }
    }
}
