//! Health checks: names, what each kind needs, and whether a check knows where to go.

use sluice_health::dns;

use super::{Names, unique_names};
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{Check, CheckKind, Config, Protocol};

pub(super) fn check(config: &Config, report: &mut Report) {
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
        check_is_seen(config, index, report);
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
