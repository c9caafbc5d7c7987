//! Real servers of one service: their addresses, ports and modes, and what these need elsewhere.

use std::collections::HashMap;

use super::addresses::{Local, check_host, check_scope, endpoint, family};
use super::networks::{self, Networks};
use super::{rules, unique};
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{Config, Mode, Protocol, RealServer, VirtualService};

/// One real server and what it belongs to.
#[derive(Clone, Copy)]
struct Checked<'c> {
    service: &'c VirtualService,
    server: &'c RealServer,
    /// Its own mode or the service's.
    mode: Mode,
    service_path: Path,
    path: Path,
}

impl Checked<'_> {
    /// Where its mode is said.
    fn mode_path(&self) -> Path {
        let from = if self.server.mode.is_some() { self.path } else { self.service_path };
        from.key("mode")
    }
}

/// Checks the real servers of the service with this index.
pub(super) fn check(
    config: &Config,
    index: usize,
    (networks, local): (&Networks<'_>, &Local<'_>),
    report: &mut Report,
) {
    let service = &config.services[index];
    check_twice(service, index, report);
    for (real, server) in service.reals.iter().enumerate() {
        let it = Checked {
            service,
            server,
            mode: server.mode.unwrap_or(service.mode),
            service_path: Path::table(Place::Service, index),
            path: Path::real(index, real),
        };
        check_address(it, (networks, local), report);
        check_limits(it, report);
        if !report.is_broken(it.mode_path()) {
            rules::check_mode(service, it.mode, it.mode_path(), report);
            check_family(it, report);
            check_port(it, report);
            crate::tunnel::check(&[it.mode], server.tunnel, it.path, report);
        }
    }
    check_tunnel(config, index, report);
}

fn check_twice(service: &VirtualService, index: usize, report: &mut Report) {
    let endpoints = service.reals.iter().enumerate().filter_map(|(real, server)| {
        let path = Path::real(index, real);
        let sound = !report.is_broken(path.key("address")) && !report.is_broken(path.key("port"));
        sound.then_some(((server.address, server.port), path.key("address")))
    });
    let endpoints: Vec<_> = endpoints.collect();
    unique(endpoints, report, |(address, port), line| {
        let at = if *port == 0 { address.to_string() } else { endpoint(*address, port) };
        let found = format!("{at} is a real server of this service (line {line})");
        (found, "name each real server once: `weight` gives it a larger share".to_owned())
    });
}

fn check_address(
    it: Checked<'_>,
    (networks, local): (&Networks<'_>, &Local<'_>),
    report: &mut Report,
) {
    let (address, path) = (it.server.address, it.path.key("address"));
    check_host(address, path, report);
    check_scope(address, path, report);
    let Some(network) = networks::known(&it.service.network, it.service_path, report) else {
        return;
    };
    networks.check_address(network, address.into(), path, report);
    if let Some(at) = local.find(network, address) {
        let found = format!("{address} is a local address (line {})", report.line(at));
        report.error(path, found, "use the address of another machine");
    }
}

fn check_limits(it: Checked<'_>, report: &mut Report) {
    let RealServer { upper_sessions: upper, lower_sessions: lower, .. } = *it.server;
    if lower > 0 && upper == 0 && !report.is_broken(it.path.key("lower_sessions")) {
        let found = "there is no upper limit, without which the lower one says nothing";
        let hint = format!("add a line such as upper_sessions = {}", lower.saturating_mul(2));
        report.error(it.path.key("upper_sessions"), found, hint);
    } else if lower > upper {
        let found = format!("{lower} is above upper_sessions, {upper}");
        report.error(it.path.key("lower_sessions"), found, format!("use at most {upper}"));
    }
}

/// Reports a real server that packets of the VIP's family cannot be sent to as they are.
fn check_family(it: Checked<'_>, report: &mut Report) {
    let (address, vip) = (it.server.address, it.service.vip);
    let same = matches!(it.mode, Mode::Nat | Mode::Dr);
    if same && address.is_ipv4() != vip.is_ipv4() && !report.is_broken(it.service_path.key("vip")) {
        let found = format!("{address} and the vip {vip} are of different families");
        let hint = format!(
            "for {} use real servers of the vip's family; fnat and tunnels go across families",
            it.mode.name()
        );
        report.error(it.path.key("address"), found, hint);
    }
}

/// Reports a port that packets to the real server will not have.
fn check_port(it: Checked<'_>, report: &mut Report) {
    let (port, ports) = (it.server.port, it.service.ports);
    let known = ["protocol", "port"].iter().all(|key| !report.is_broken(it.service_path.key(key)));
    if port == 0 || !known {
        return;
    }
    let path = it.path.key("port");
    if it.service.protocol == Protocol::Any {
        let found = "a real server of a service of any protocol has no port";
        report.error(path, found, "leave it out: packets keep the ports they have");
    } else if it.mode.keeps_destination() && ports.single() != Some(port) {
        let found =
            format!("{} leaves the port as it is, and the service's is {ports}", it.mode.name());
        report.error(path, found, "leave it out, or use fnat or nat");
    }
}

/// Reports the first real server of each family that tunnelled packets have no source address for.
fn check_tunnel(config: &Config, index: usize, report: &mut Report) {
    let service = &config.services[index];
    let of_service = Path::table(Place::Service, index);
    // Of a network that there is not, that is said.
    let Some(name) = networks::known(&service.network, of_service, report) else { return };
    let (place, section, sources) = match name {
        "" => (Path::table(Place::Ipip, 0), "[ipip]".to_owned(), config.ipip),
        name => {
            let known = config.networks.iter().position(|network| network.name == name);
            let Some(at) = known else { return };
            let section = format!("the [[network]] {name:?}");
            (Path::table(Place::Network, at), section, config.networks[at].tunnel)
        }
    };
    let wanted = [
        (sources.source_v4, "source_v4", "192.0.2.64/28"),
        (sources.source_v6, "source_v6", "2001:db8:0:1::100/120"),
    ];
    for (source, key, example) in wanted {
        if source.is_some() || report.is_broken(place.key(key)) {
            continue;
        }
        let needs = |(real, server): &(usize, &RealServer)| {
            let path = Path::real(index, *real);
            let at = if server.mode.is_some() { path } else { Path::table(Place::Service, index) };
            server.mode.unwrap_or(service.mode).is_tunnel()
                && server.address.is_ipv4() == (key == "source_v4")
                && !report.is_broken(at.key("mode"))
                && !report.is_broken(path.key("address"))
        };
        if let Some((real, server)) = service.reals.iter().enumerate().find(needs) {
            let mode = server.mode.unwrap_or(service.mode).name();
            let found = format!("it is {mode}, and {section} has no {key}");
            let hint =
                format!("add {key} = \"{example}\" to {section}, with addresses of this machine");
            let key = if server.mode.is_some() { "mode" } else { "address" };
            report.error(Path::real(index, real).key(key), found, hint);
        }
    }
}

/// Reports a service whose sessions find no local address.
pub(super) fn check_pool(
    families: &HashMap<&str, [bool; 2]>,
    service: &VirtualService,
    index: usize,
    report: &mut Report,
) {
    let path = Path::table(Place::Service, index);
    if report.is_broken(path.key("mode")) {
        return;
    }
    let is_sound = |real: usize| !report.is_broken(Path::real(index, real).key("mode"));
    let fnat = service.reals.iter().enumerate().filter(|(real, server)| {
        server.mode.unwrap_or(service.mode) == Mode::Fnat && is_sound(*real)
    });
    let mut missing = None;
    for (real, server) in fnat {
        if service.pool.is_empty() {
            let hint = "add a line such as pool = \"lan\": fnat takes source addresses from a pool";
            report.error(path.key("pool"), "this key is missing", hint);
            return;
        }
        let Some([v4, v6]) = families.get(service.pool.as_str()) else { return };
        let has = if server.address.is_ipv4() { v4 } else { v6 };
        if !has && !report.is_broken(Path::real(index, real).key("address")) {
            missing = Some(server.address);
            break;
        }
    }
    if let Some(address) = missing {
        let family = family(address);
        let found =
            format!("pool {:?} has no {family} address for real server {address}", service.pool);
        let hint = format!("add an {family} address to the pool, or use another pool");
        report.error(path.key("pool"), found, hint);
    }
}
