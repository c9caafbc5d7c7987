//! Services: names, endpoints, virtual addresses, how many. What a service's keys have to do with
//! one another is in `rules`, its real servers are in `reals`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use sluice_director::spec::{Ports, Protocol};

use super::addresses::{Local, check_host, check_scope, endpoint, pool_families};
use super::{Bounds, Names, reals, rules, unique, unique_names};
use crate::Config;
use crate::path::{Path, Place};
use crate::report::Report;

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
    let families = pool_families(config, report);
    let mut vips = HashSet::new();
    for (index, service) in services() {
        let path = path(index);
        check_host(service.vip, path.key("vip"), report);
        check_scope(service.vip, path.key("vip"), report);
        if vips.insert(service.vip)
            && let Some(at) = local.find(service.vip)
        {
            let found = format!("{} is a local address (line {})", service.vip, report.line(at));
            let hint = "take it out of the pool, or use another address: what comes to a local \
                        address are answers of real servers";
            report.error(path.key("vip"), found, hint);
        }
        if !service.pool.is_empty() {
            pools.resolve(&service.pool, path.key("pool"), report);
        }
        rules::check(service, path, report);
        reals::check(config, index, local, report);
        reals::check_pool(&families, service, index, report);
    }
    check_number_of_reals(config, bounds, report);
}

/// Reports services that claim the same packets, and ranges of which neither is the narrower.
fn check_endpoints(config: &Config, report: &mut Report) {
    let mut endpoints = Vec::new();
    for (index, service) in config.services.iter().enumerate() {
        let path = Path::table(Place::Service, index);
        if !["protocol", "vip", "port"].iter().any(|key| report.is_broken(path.key(key))) {
            endpoints.push(((service.protocol, service.vip, service.ports), path.key("port")));
        }
    }
    unique(endpoints.iter().copied(), report, |(protocol, vip, ports), line| {
        let at = endpoint(*vip, ports);
        let found = format!("{} {at} is another service already (line {line})", protocol.name());
        (found, "change the protocol, the vip or the port of one of them".to_owned())
    });
    let mut alike: HashMap<(Protocol, IpAddr, u16), Vec<(Ports, Path)>> = HashMap::new();
    for ((protocol, vip, ports), path) in endpoints {
        let width = ports.last - ports.first;
        if width > 0 && ports != Ports::ALL && !report.is_broken(path) {
            alike.entry((protocol, vip, width)).or_default().push((ports, path));
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
