//! Static routes and neighbours.

use super::addresses::check_host;
use super::{Names, networks, unique};
use crate::Config;
use crate::path::{Path, Place};
use crate::report::Report;

pub(super) fn check(config: &Config, report: &mut Report) {
    let ports = Names::new("port", config.ports.iter().map(|port| &port.name), report);
    for (index, route) in config.routes.iter().enumerate() {
        let path = Path::table(Place::Route, index);
        ports.resolve(&route.port, path.key("port"), report);
        let prefix = route.prefix.address();
        let Some(via) = route.via else { continue };
        check_host(via, path.key("via"), report);
        if via.is_ipv4() != prefix.is_ipv4() {
            let found = format!("{via} and the prefix {} are of different families", route.prefix);
            report.error(path.key("via"), found, "use a next hop of the prefix's family");
        }
    }
    check_unique_prefixes(config, report);
    for (index, neighbour) in config.neighbours.iter().enumerate() {
        let path = Path::table(Place::Neighbour, index);
        ports.resolve(&neighbour.port, path.key("port"), report);
        check_host(neighbour.address, path.key("address"), report);
    }
    check_unique_neighbours(config, report);
}

fn check_unique_prefixes(config: &Config, report: &mut Report) {
    let of_ports = networks::of_ports(config);
    let mut prefixes = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        let path = Path::table(Place::Route, index).key("prefix");
        let port = of_ports.get(route.port.as_str());
        let network = port.and_then(|(network, at)| networks::known(network, *at, report));
        // What is wrong with the port is told of the port.
        if let Some(network) = network.filter(|_| !report.is_broken(path)) {
            prefixes.push(((network, route.prefix), path));
        }
    }
    unique(prefixes, report, |(_, prefix), line| {
        let found = format!("{prefix} has a route already (line {line})");
        (found, "give each prefix one route".to_owned())
    });
}

fn check_unique_neighbours(config: &Config, report: &mut Report) {
    let mut neighbours = Vec::new();
    for (index, neighbour) in config.neighbours.iter().enumerate() {
        let path = Path::table(Place::Neighbour, index);
        if !report.is_broken(path.key("address")) && !report.is_broken(path.key("port")) {
            let known = (neighbour.address, neighbour.port.as_str());
            neighbours.push((known, path.key("address")));
        }
    }
    unique(neighbours, report, |(address, port), line| {
        let found = format!("{address} is a neighbour on port {port:?} already (line {line})");
        (found, "give each address one neighbour a port".to_owned())
    });
}
