//! Services and real servers.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::addresses::{Local, NO_IPV6, check_host};
use super::{Bounds, Names, unique, unique_names};
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{AddressRange, Config, Pool, VirtualService};

pub(super) fn check(config: &Config, bounds: &Bounds, local: &Local, report: &mut Report) {
    let path = |index| Path::table(Place::Service, index);
    let services = || config.services.iter().enumerate();
    if config.services.len() > bounds.services {
        let found = format!("{} services are defined", config.services.len());
        report.error(path(bounds.services), found, format!("define at most {}", bounds.services));
    }
    let names = services().map(|(index, it)| (it.name.as_str(), path(index).key("name")));
    unique_names("service", names, report);
    check_endpoints(config, report);
    let pools = Names::new("pool", config.pools.iter().map(|pool| &pool.name), report);
    let families = pool_families(config);
    let mut vips = HashSet::new();
    for (index, service) in services() {
        let path = path(index);
        check_host(service.vip, path.key("vip"), report);
        if service.vip.is_ipv6() {
            report.error(path.key("vip"), format!("{} is IPv6", service.vip), NO_IPV6);
        }
        if vips.insert(service.vip)
            && let Some(at) = local.find(service.vip)
        {
            let found = format!("{} is a local address (line {})", service.vip, report.line(at));
            let hint = "take it out of the pool, or use another address: what comes to a local \
                        address are answers of real servers";
            report.error(path.key("vip"), found, hint);
        }
        pools.resolve(&service.pool, path.key("pool"), report);
        check_pool_family(&families, service, path, report);
        check_reals(index, service, local, report);
    }
    check_number_of_reals(config, bounds, report);
}

/// Reports services that claim the same packets.
fn check_endpoints(config: &Config, report: &mut Report) {
    let mut endpoints = Vec::new();
    for (index, service) in config.services.iter().enumerate() {
        let path = Path::table(Place::Service, index);
        if !["protocol", "vip", "port"].iter().any(|key| report.is_broken(path.key(key))) {
            endpoints.push(((service.protocol, service.vip, service.ports), path.key("port")));
        }
    }
    unique(endpoints, report, |(protocol, vip, port), line| {
        let protocol = protocol.name();
        let found = format!("{protocol} {vip}:{port} is another service already (line {line})");
        (found, "change the protocol, the vip or the port of one of them".to_owned())
    });
}

/// The first address of each pool that has one: its family is the pool's.
fn pool_families(config: &Config) -> HashMap<&str, IpAddr> {
    let first = |pool: &Pool| pool.addresses.first().map(AddressRange::first);
    config.pools.iter().filter_map(|pool| Some((pool.name.as_str(), first(pool)?))).collect()
}

fn check_pool_family(
    families: &HashMap<&str, IpAddr>,
    service: &VirtualService,
    path: Path,
    report: &mut Report,
) {
    let Some(first) = families.get(service.pool.as_str()) else { return };
    if first.is_ipv4() != service.vip.is_ipv4() {
        let found = format!(
            "the vip {} and the addresses of pool {:?} are of different families",
            service.vip, service.pool
        );
        report.error(path.key("pool"), found, "use a vip and a pool of one family");
    }
}

fn check_reals(index: usize, service: &VirtualService, local: &Local, report: &mut Report) {
    let endpoints = service.reals.iter().enumerate().filter_map(|(real, server)| {
        let path = Path::real(index, real);
        let sound = !report.is_broken(path.key("address")) && !report.is_broken(path.key("port"));
        sound.then_some(((server.address, server.port), path.key("address")))
    });
    let endpoints: Vec<_> = endpoints.collect();
    unique(endpoints, report, |(address, port), line| {
        let found = format!("{address}:{port} is a real server of this service (line {line})");
        (found, "name each real server once: `weight` gives it a larger share".to_owned())
    });
    for (real, server) in service.reals.iter().enumerate() {
        let path = Path::real(index, real).key("address");
        check_host(server.address, path, report);
        if server.address.is_ipv4() != service.vip.is_ipv4() {
            let found =
                format!("{} and the vip {} are of different families", server.address, service.vip);
            report.error(path, found, "use real servers of the vip's family");
        }
        if let Some(at) = local.find(server.address) {
            let found = format!("{} is a local address (line {})", server.address, report.line(at));
            report.error(path, found, "use the address of another machine");
        }
    }
}

fn check_number_of_reals(config: &Config, bounds: &Bounds, report: &mut Report) {
    let mut total = 0;
    for (index, service) in config.services.iter().enumerate() {
        let before = total;
        total += service.reals.len();
        if before <= bounds.reals && total > bounds.reals {
            let path = Path::real(index, bounds.reals - before);
            let found = format!("there are more than {} real servers", bounds.reals);
            report.error(path, found, "define fewer, or spread them over several directors");
        }
    }
}
