//! Services: names, endpoints, virtual addresses, how many. What a service's keys have to do with
//! one another is in `rules`, its real servers are in `reals`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use sluice_director::spec::{Ports, Protocol};

use super::addresses::{Local, check_host, check_scope, endpoint, pool_families};
use super::networks::{self, Networks};
use super::{Bounds, Names, reals, rules, unique, unique_names};
use crate::Config;
use crate::path::{Path, Place};
use crate::report::Report;

pub(super) fn check(
    config: &Config,
    bounds: &Bounds,
    (networks, local): (&Networks<'_>, &Local<'_>),
    report: &mut Report,
) {
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
    let families = pool_families(config, report);
    let of_pools = networks::of_pools(config);
    let mut vips = HashSet::new();
    for (index, service) in services() {
        let path = path(index);
        check_host(service.vip, path.key("vip"), report);
        check_scope(service.vip, path.key("vip"), report);
        let network = networks::known(&service.network, path, report);
        if let Some(network) = network {
            networks.check_address(network, service.vip.into(), path.key("vip"), report);
        }
        if let Some(network) = network
            && vips.insert((network, service.vip))
            && let Some(at) = local.find(network, service.vip)
        {
            let found = format!("{} is a local address (line {})", service.vip, report.line(at));
            let hint = "take it out of the pool, or use another address: what comes to a local \
                        address are answers of real servers";
            report.error(path.key("vip"), found, hint);
        }
        if !service.pool.is_empty() {
            pools.resolve(&service.pool, path.key("pool"), report);
            let (used, user) = (("pool", &service.pool[..]), ("service", &service.network[..]));
            networks::check_same(used, &of_pools, user, (path, "pool"), report);
        }
        rules::check(service, path, report);
        reals::check(config, index, (networks, local), report);
        reals::check_pool(&families, service, index, report);
    }
    check_number_of_reals(config, bounds, report);
}

/// Ranges of one network, protocol, VIP and width.
type Alike<'c> = (&'c str, Protocol, IpAddr, u16);

/// Reports services that claim the same packets, and ranges of which neither is the narrower.
fn check_endpoints(config: &Config, report: &mut Report) {
    let mut endpoints = Vec::new();
    for (index, service) in config.services.iter().enumerate() {
        let path = Path::table(Place::Service, index);
        let keys = ["network", "protocol", "vip", "port"];
        if !keys.iter().any(|key| report.is_broken(path.key(key))) {
            let claim = (&service.network[..], service.protocol, service.vip, service.ports);
            endpoints.push((claim, path.key("port")));
        }
    }
    unique(endpoints.iter().copied(), report, |(_, protocol, vip, ports), line| {
        let at = endpoint(*vip, ports);
        let found = format!("{} {at} is another service already (line {line})", protocol.name());
        (found, "change the protocol, the vip or the port of one of them".to_owned())
    });
    let mut alike: HashMap<Alike<'_>, Vec<(Ports, Path)>> = HashMap::new();
    for ((network, protocol, vip, ports), path) in endpoints {
        let width = ports.last - ports.first;
        if width > 0 && ports != Ports::ALL && !report.is_broken(path) {
            alike.entry((network, protocol, vip, width)).or_default().push((ports, path));
        }
    }
    for ranges in alike.values_mut() {
        ranges.sort_by_key(|(ports, _)| ports.first);
        for pair in ranges.windows(2) {
            let (&(one, one_path), &(other, other_path)) = (&pair[0], &pair[1]);
            if other.first > one.last {
                continue;
            }
            let in_order = one_path.index <= other_path.index;
            let (earlier, path) = if in_order { (one, other_path) } else { (other, one_path) };
            let line = report.line(if in_order { one_path } else { other_path });
            let shared = Ports { first: other.first, last: one.last };
            let found = format!("{shared} are also in {earlier} (line {line}), a range as wide");
            let hint = "make one of the two narrower, which then takes what they share, or let \
                        them not overlap";
            report.error(path, found, hint);
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
