//! Health checks: names, what each kind needs, and whether a check knows where to go.

use std::net::IpAddr;

use sluice_director::plan::MAX_PROBED;
use sluice_health::dns;

use super::{Names, networks, unique_names};
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{Check, CheckKind, Config, Protocol, Through};

pub(super) fn check(config: &Config, report: &mut Report) {
    for (network, addresses) in config.probe_addresses() {
        check_probe_addresses(config, (network, addresses), report);
    }
    let path = |index| Path::table(Place::Check, index);
    let names = config.checks.iter().enumerate();
    let names = names.map(|(index, check)| (check.name.as_str(), path(index).key("name")));
    unique_names("check", names, report);
    for (index, check) in config.checks.iter().enumerate() {
        check_needs(check, path(index), report);
    }
    let known = Names::new("check", config.checks.iter().map(|check| &check.name), report);
    for (index, service) in config.services.iter().enumerate() {
        if service.check.is_empty() {
            continue;
        }
        known.resolve(&service.check, Path::table(Place::Service, index).key("check"), report);
        check_ports(config, index, report);
        check_way(config, index, report);
        check_is_seen(config, index, report);
    }
}

/// Reports services that a check cannot go through.
fn check_way(config: &Config, index: usize, report: &mut Report) {
    let service = &config.services[index];
    let check = config.checks.iter().find(|check| check.name == service.check);
    let of_service = Path::table(Place::Service, index);
    let path = of_service.key("check");
    let goes = check.is_some_and(|check| check.through == Through::Service);
    if !goes || report.is_broken(path) {
        return;
    }
    let network = networks::known(&service.network, of_service, report).unwrap_or_default();
    let family = if service.vip.is_ipv4() { "IPv4" } else { "IPv6" };
    let from = config.probe_addresses().find(|(name, _)| *name == network);
    let mut from = from.into_iter().flat_map(|(_, addresses)| addresses);
    let of = match network {
        "" => "[director]".to_owned(),
        name => format!("network {name:?}"),
    };
    if !from.any(|address| address.is_ipv4() == service.vip.is_ipv4()) {
        let found = format!("check {:?} goes through the data path, from nowhere", service.check);
        let hint = format!("add an {family} address to probe_addresses of {of}");
        report.error(path, found, hint);
    } else if service.reals.len() > MAX_PROBED {
        let found = format!("check {:?} would have too many to tell apart", service.check);
        let hint = format!("{MAX_PROBED} real servers of a service can be probed through it");
        report.error(path, found, hint);
    }
    for (real, server) in service.reals.iter().enumerate() {
        let path = Path::real(index, real);
        let own = [
            ("check_address", server.check.address.is_some()),
            ("check_port", server.check.port.is_some()),
        ];
        for (key, _) in own.into_iter().filter(|(_, is_set)| *is_set) {
            let found = format!("check {:?} goes where clients go", service.check);
            report.error(
                path.key(key),
                found,
                "leave the key out, or use a check that goes direct",
            );
        }
    }
}

/// Reports services whose connections a passive check cannot see.
fn check_is_seen(config: &Config, index: usize, report: &mut Report) {
    let service = &config.services[index];
    let check = config.checks.iter().find(|check| check.name == service.check);
    if check.is_none_or(|check| check.passive_failures == 0) || service.protocol == Protocol::Tcp {
        return;
    }
    let path = Path::table(Place::Service, index).key("check");
    if !report.is_broken(path) {
        let found = format!("check {:?} watches handshakes (passive_failures)", service.check);
        report.error(path, found, "use another check here: only TCP has handshakes");
    }
}

/// Reports addresses of probes of a network that something else has there, or that are too many.
fn check_probe_addresses(config: &Config, (network, all): (&str, &[IpAddr]), report: &mut Report) {
    let at = config.networks.iter().position(|known| known.name == network);
    let table = at.map_or(Path::table(Place::Director, 0), |at| Path::table(Place::Network, at));
    let path = table.key("probe_addresses");
    if report.is_broken(path) {
        return;
    }
    let services = config.services.iter().filter(|service| service.network == network);
    for (index, address) in all.iter().enumerate() {
        let vip = services.clone().find(|service| service.vip == *address);
        let pools = config.pools.iter().filter(|pool| pool.network == network);
        let pool = pools.clone().find(|pool| pool.ranges().any(|range| range.contains(*address)));
        let taken = match (vip, pool) {
            (Some(service), _) => format!("service {:?} has {address}", service.name),
            (_, Some(pool)) => format!("pool {:?} has {address}", pool.name),
            _ if all[..index].iter().any(|it| it.is_ipv4() == address.is_ipv4()) => {
                "there is an address of this family already".to_owned()
            }
            _ => continue,
        };
        let hint = "use an address of the director that nothing else uses, one of each family";
        report.error(path.item(index), taken, hint);
    }
}

fn check_needs(check: &Check, path: Path, report: &mut Report) {
    if report.is_broken(path.key("kind")) {
        return;
    }
    match check.kind {
        CheckKind::Dns => {
            let asked = dns::Question::new(0, &check.dns_name, check.dns_type, Default::default());
            if check.dns_name.is_empty() {
                let hint = "add a line such as dns_name = \"example.com\"";
                report.error(path.key("dns_name"), "this key is missing", hint);
            } else if asked.is_err() {
                let found = format!("{:?} is no name in the DNS", check.dns_name);
                let hint = "use ASCII labels of 1 to 63 characters, such as \"www.example.com\"";
                report.error(path.key("dns_name"), found, hint);
            }
        }
        CheckKind::Script => match check.command.first() {
            None => {
                let hint =
                    "add a line such as command = [\"/usr/local/bin/check-web\", \"--fast\"]";
                report.error(path.key("command"), "there is no program", hint);
            }
            Some(program) if !program.starts_with('/') => {
                let found = format!("{program:?} is no absolute path");
                let hint = "begin with `/`: programs are not looked for, and run without a shell";
                report.error(path.key("command").item(0), found, hint);
            }
            Some(_) => {}
        },
        CheckKind::Passive if check.passive_failures == 0 => {
            let hint = "add a line such as passive_failures = 5";
            report.error(path.key("passive_failures"), "this key is missing", hint);
        }
        kind if kind.is_http() && check.status.is_empty() => {
            let hint = "leave the key out for 200 to 299";
            report.error(path.key("status"), "the list is empty", hint);
        }
        _ => {}
    }
    let goes_by = [
        ("source", check.source.is_some()),
        ("mark", check.mark != 0),
        ("interface", check.interface.is_some()),
    ];
    for (key, is_set) in goes_by {
        if is_set && check.through == Through::Service {
            let found = "a check through the data path goes as clients' packets do";
            report.error(path.key(key), found, "leave the key out, or `through`");
        }
    }
    if check.expect.is_some() && check.expect_regex.is_some() {
        let found = "there is `expect` already";
        report.error(path.key("expect_regex"), found, "use one of the two");
    }
}

/// Reports real servers whose port a check cannot know.
fn check_ports(config: &Config, index: usize, report: &mut Report) {
    let service = &config.services[index];
    let Some(check) = config.checks.iter().find(|check| check.name == service.check) else {
        return;
    };
    if !check.kind.has_port() || check.port.is_some() {
        return;
    }
    for (real, server) in service.reals.iter().enumerate() {
        let path = Path::real(index, real);
        if server.port == 0 && server.check.port.is_none() && !report.is_broken(path.key("port")) {
            let found = format!("check {:?} does not know to which port to go", check.name);
            let hint = "add check_port here, or port to the check: the service has several ports";
            report.error(path.key("check_port"), found, hint);
            return;
        }
    }
}
