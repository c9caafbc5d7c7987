//! Rules of source NAT, and the outer source addresses of tunnels.

use std::collections::HashMap;

use super::addresses::{check_scope, family, not_a_host, pool_families};
use super::{Names, networks, unique_names};
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{Config, Ipip, Prefix, Snat};

pub(super) fn check(config: &Config, report: &mut Report) {
    check_tunnel_sources(config, report);
    let path = |index| Path::table(Place::Snat, index);
    let names = config.snat.iter().enumerate();
    let names = names.map(|(index, rule)| (rule.name.as_str(), path(index).key("name")));
    unique_names("snat rule", names, report);
    check_names(config, report);
    let ports = Names::new("port", config.ports.iter().map(|port| &port.name), report);
    let pools = Names::new("pool", config.pools.iter().map(|pool| &pool.name), report);
    let families = pool_families(config, report);
    let (of_ports, of_pools) = (networks::of_ports(config), networks::of_pools(config));
    for (index, rule) in config.snat.iter().enumerate() {
        let path = path(index);
        let user = ("rule", rule.network.as_str());
        if let Some(egress) = &rule.egress {
            ports.resolve(egress, path.key("egress"), report);
            networks::check_same(("port", egress), &of_ports, user, (path, "egress"), report);
        }
        check_lists(rule, path, report);
        if rule.pool.is_empty() && !report.is_broken(path.key("pool")) {
            let hint = "add a line such as pool = \"outside\"";
            report.error(path.key("pool"), "this key is missing", hint);
        } else if !report.is_broken(path.key("pool")) {
            pools.resolve(&rule.pool, path.key("pool"), report);
            networks::check_same(("pool", &rule.pool), &of_pools, user, (path, "pool"), report);
            if let Some(has) = families.get(rule.pool.as_str()) {
                check_pool(rule, *has, path, report);
            }
        }
        if let Some(destinations) = &rule.destinations {
            check_destinations(rule, destinations, path, report);
        }
    }
}

/// Reports rules that would be mistaken for services: both are counted by name.
fn check_names(config: &Config, report: &mut Report) {
    let services = config.services.iter().enumerate();
    let services: HashMap<&str, usize> =
        services.map(|(index, service)| (service.name.as_str(), index)).collect();
    for (index, rule) in config.snat.iter().enumerate().filter(|(_, rule)| !rule.name.is_empty()) {
        if let Some(&service) = services.get(rule.name.as_str()) {
            let line = report.line(Path::table(Place::Service, service).key("name"));
            let found = format!("a service is called {:?} already (line {line})", rule.name);
            let hint = "give the rule another name: output and counters name both kinds";
            report.error(Path::table(Place::Snat, index).key("name"), found, hint);
        }
    }
}

/// Reports lists that match nothing.
fn check_lists(rule: &Snat, path: Path, report: &mut Report) {
    let empty = "the list is empty";
    if rule.sources.is_empty() {
        let hint = "name at least one network, such as [\"192.0.2.0/24\"]";
        report.error(path.key("sources"), empty, hint);
    }
    if rule.destinations.as_ref().is_some_and(Vec::is_empty) {
        report.error(path.key("destinations"), empty, "leave the key out for everywhere");
    }
    if rule.protocols.as_ref().is_some_and(Vec::is_empty) {
        report.error(path.key("protocols"), empty, "leave the key out for tcp, udp and icmp");
    }
}

/// Reports sources that the pool has no address for.
fn check_pool(rule: &Snat, [v4, v6]: [bool; 2], path: Path, report: &mut Report) {
    for (item, source) in rule.sources.iter().enumerate() {
        let at = path.key("sources").item(item);
        let has = if source.address().is_ipv4() { v4 } else { v6 };
        if !has && !report.is_broken(at) {
            let family = family(source.address());
            let found = format!("pool {:?} has no {family} address for {source}", rule.pool);
            let hint = format!("add an {family} address to the pool, or use another pool");
            report.error(path.key("pool"), found, hint);
            return;
        }
    }
}

/// Reports networks that no connection goes between, since they are of different families.
fn check_destinations(rule: &Snat, destinations: &[Prefix], path: Path, report: &mut Report) {
    let lists = [("sources", &rule.sources[..]), ("destinations", destinations)];
    for ((key, these), (other, those)) in [(lists[0], lists[1]), (lists[1], lists[0])] {
        let unknown = report.is_broken(path.key(other))
            || (0..those.len()).any(|item| report.is_broken(path.key(other).item(item)));
        if unknown {
            continue;
        }
        for (item, network) in these.iter().enumerate() {
            let alike = |that: &Prefix| that.address().is_ipv4() == network.address().is_ipv4();
            if !those.iter().any(alike) {
                let family = family(network.address());
                let found = format!("{network} never matches: no {family} network is in {other}");
                let hint = "use networks of the same families in both lists";
                report.error(path.key(key).item(item), found, hint);
            }
        }
    }
}

fn check_tunnel_sources(config: &Config, report: &mut Report) {
    check_sources(config.ipip, Path::table(Place::Ipip, 0), report);
    for (at, network) in config.networks.iter().enumerate() {
        check_sources(network.tunnel, Path::table(Place::Network, at), report);
    }
}

fn check_sources(tunnel: Ipip, path: Path, report: &mut Report) {
    for (key, source) in [("source_v4", tunnel.source_v4), ("source_v6", tunnel.source_v6)] {
        let Some(source) = source else { continue };
        if let Some(what) = not_a_host(source.range()) {
            let found = format!("{source} has addresses that are {what}");
            report.error(path.key(key), found, "use unicast addresses of this machine");
        }
        check_scope(source.address(), path.key(key), report);
    }
}
