//! Isolated networks: what defines one, what names one, and which addresses are of it. Whatever
//! has an address is checked within its network only; names are of the whole file.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Bounds, Names, unique, unique_names};
use crate::address::number;
use crate::path::{Path, Place};
use crate::report::Report;
use crate::{AddressRange, Config, Device, IsolatedNetwork, Port, Prefix};

/// The most items of a list that a hint shows.
const SHOWN: usize = 20;
/// The kernel's own tables, whose routes are the default network's.
const KERNELS_TABLES: [(u32, &str); 3] = [(253, "default"), (254, "main"), (255, "local")];

/// The networks of a file, for questions about what is in them.
pub(super) struct Networks<'c> {
    by_name: HashMap<&'c str, Cidr<'c>>,
}

/// The prefixes of a network that says which it uses.
struct Cidr<'c> {
    path: Path,
    prefixes: &'c [Prefix],
    /// The same addresses without overlaps, in ascending order.
    ranges: Vec<AddressRange>,
}

/// Checks the networks, and that what names one names one of them.
pub(super) fn check<'c>(config: &'c Config, bounds: &Bounds, report: &mut Report) -> Networks<'c> {
    let path = |index| Path::table(Place::Network, index);
    let networks = || config.networks.iter().enumerate();
    if config.networks.len() > bounds.networks {
        let found = format!("{} networks are defined", config.networks.len());
        report.error(path(bounds.networks), found, format!("define at most {}", bounds.networks));
    }
    let names = networks().map(|(index, it)| (it.name.as_str(), path(index).key("name")));
    unique_names("network", names, report);
    for (index, network) in networks() {
        check_source(network, path(index), report);
        check_cidr(network, path(index).key("cidr"), report);
        super::check_sessions(config, network.sessions, path(index).key("sessions"), report);
    }
    check_sources(config, report);
    check_names(config, report);
    for (index, port) in config.ports.iter().enumerate() {
        check_tunnel_port(port, Path::table(Place::Port, index), report);
    }
    Networks::of(config, report)
}

/// The network of the table at `path`, by the name that it has; `None` if that is not known.
pub(super) fn known<'c>(name: &'c str, path: Path, report: &Report) -> Option<&'c str> {
    (!report.is_broken(path.key("network"))).then_some(name)
}

/// A network as messages call it.
pub(super) fn called(name: &str) -> String {
    if name.is_empty() { "the default network".to_owned() } else { format!("network {name:?}") }
}

/// Reports a network that does not say where its routes are, or says it twice.
fn check_source(network: &IsolatedNetwork, path: Path, report: &mut Report) {
    let (table, vrf) = (path.key("table"), path.key("vrf"));
    if let Some(number) = network.table {
        if let Some((_, name)) = KERNELS_TABLES.iter().find(|(own, _)| *own == number) {
            let found = format!("{number} is the kernel's table {name:?}");
            let hint = "use another number, such as 100: the default network's routes are in 253 \
                        to 255";
            report.error(table, found, hint);
        }
        if network.vrf.is_some() {
            report.error(vrf, "there is `table` already", "use one of the two");
        }
    } else if network.vrf.is_none() && !report.is_broken(vrf) {
        let hint = "add a line such as table = 100, or vrf = \"vrf-blue\" for a VRF device's table";
        report.error(table, "this key is missing", hint);
    }
}

/// Reports tables and devices that two networks would share.
fn check_sources(config: &Config, report: &mut Report) {
    let path = |index, key| Path::table(Place::Network, index).key(key);
    let networks = || config.networks.iter().enumerate();
    let tables = networks().filter_map(|(at, it)| Some((it.table?, path(at, "table"))));
    unique(tables, report, |table, line| {
        let found = format!("another network has table {table} already (line {line})");
        (found, "give each network a table of its own".to_owned())
    });
    let vrfs = networks().filter_map(|(at, it)| Some((it.vrf.as_ref()?, path(at, "vrf"))));
    unique(vrfs, report, |vrf, line| {
        let found = format!("another network has the VRF device {vrf:?} already (line {line})");
        (found, "give each network a VRF device of its own".to_owned())
    });
}

/// Reports a list of prefixes that says nothing, or one of them twice.
fn check_cidr(network: &IsolatedNetwork, path: Path, report: &mut Report) {
    let sound: Vec<(Prefix, Path)> = network
        .cidr
        .iter()
        .enumerate()
        .map(|(item, prefix)| (*prefix, path.item(item)))
        .filter(|(_, path)| !report.is_broken(*path))
        .collect();
    unique(sound, report, |prefix, line| {
        (format!("{prefix} is there already (line {line})"), "name each once".to_owned())
    });
}

/// Reports names of networks that there are not.
fn check_names(config: &Config, report: &mut Report) {
    let known = Names::new("network", config.networks.iter().map(|it| &it.name), report);
    let port = config.ports.iter().map(|it| &it.network).enumerate();
    let pool = config.pools.iter().map(|it| &it.network).enumerate();
    let service = config.services.iter().map(|it| &it.network).enumerate();
    let snat = config.snat.iter().map(|it| &it.network).enumerate();
    let all = port.map(|it| (Place::Port, it)).chain(pool.map(|it| (Place::Pool, it)));
    let all = all.chain(service.map(|it| (Place::Service, it)));
    for (place, (index, name)) in all.chain(snat.map(|it| (Place::Snat, it))) {
        if !name.is_empty() {
            known.resolve(name, Path::table(place, index).key("network"), report);
        }
    }
}

/// Reports what a port by the kernel's VXLAN device needs, and what it does not have.
fn check_tunnel_port(port: &Port, path: Path, report: &mut Report) {
    let Device::Vxlan { interface } = &port.device else { return };
    if port.network.is_empty() {
        let hint = "add a line such as network = \"blue\": what carries the tunnel is in the \
                    default network, so that what it carries is in another";
        report.error(path.key("network"), "a port by vxlan needs this key", hint);
    }
    let by_device = format!("the kernel's device {interface:?} has one");
    for (key, is_there, why) in [
        ("queues", port.queues.is_some(), "its packets come by ports of the default network"),
        ("mac", port.mac.is_some(), &by_device),
        ("mtu", port.mtu.is_some(), &by_device),
    ] {
        if is_there {
            let found = format!("a port by vxlan cannot have `{key}`");
            report.error(path.key(key), found, format!("leave it out: {why}"));
        }
    }
}

/// Warns of networks that no packet comes into.
pub(super) fn warn(config: &Config, report: &mut Report) {
    for (index, network) in config.networks.iter().enumerate() {
        if !config.ports.iter().any(|port| port.network == network.name) {
            let hint = format!("add network = {:?} to the [[port]] that leads to it", network.name);
            report.warn(Path::table(Place::Network, index), "no port is in this network", hint);
        }
    }
    if config.ports.iter().all(|port| !port.network.is_empty())
        && let Some(at) = config.ports.iter().position(|it| it.device.kind() == "vxlan")
    {
        let found = "no port is in the default network, by which this port's packets come and go";
        let hint = "add a [[port]] without `network`, by which the tunnel's other ends are reached";
        report.warn(Path::table(Place::Port, at).key("device"), found, hint);
    }
}

/// In which network each port is, and where the file has it.
pub(super) fn of_ports(config: &Config) -> HashMap<&str, (&str, Path)> {
    let ports = config.ports.iter().enumerate();
    ports.map(|(at, it)| (&it.name[..], (&it.network[..], Path::table(Place::Port, at)))).collect()
}

/// In which network each pool is, and where the file has it.
pub(super) fn of_pools(config: &Config) -> HashMap<&str, (&str, Path)> {
    let pools = config.pools.iter().enumerate();
    pools.map(|(at, it)| (&it.name[..], (&it.network[..], Path::table(Place::Pool, at)))).collect()
}

impl<'c> Networks<'c> {
    fn of(config: &'c Config, report: &Report) -> Self {
        let networks = config.networks.iter().enumerate().filter_map(|(index, network)| {
            let path = Path::table(Place::Network, index).key("cidr");
            let broken = (0..network.cidr.len()).any(|item| report.is_broken(path.item(item)));
            let prefixes = &network.cidr[..];
            let says = !prefixes.is_empty() && !broken && !report.is_broken(path);
            says.then(|| (network.name.as_str(), Cidr { path, prefixes, ranges: merged(prefixes) }))
        });
        Self { by_name: networks.collect() }
    }

    /// Reports an address of something in this network that the network does not use.
    pub fn check_address(
        &self,
        network: &str,
        range: AddressRange,
        path: Path,
        report: &mut Report,
    ) {
        let Some(cidr) = self.by_name.get(network) else { return };
        let Some(outside) = cidr.first_outside(range) else { return };
        if report.is_full() || report.is_broken(path) {
            return report.error(path, "", "");
        }
        let listed: Vec<_> = cidr.prefixes.iter().take(SHOWN).map(Prefix::to_string).collect();
        let more = if cidr.prefixes.len() > SHOWN { ", …" } else { "" };
        let line = report.line(cidr.path);
        let found = format!("{outside} is outside `cidr` of network {network:?} (line {line})");
        let hint =
            format!("use an address in {}{more}, or add its prefix there", listed.join(", "));
        report.error(path, found, hint);
    }
}

impl Cidr<'_> {
    /// The first of these addresses that is in none of the prefixes.
    fn first_outside(&self, range: AddressRange) -> Option<IpAddr> {
        let (first, last) = (range.first(), range.last());
        let after = self.ranges.partition_point(|it| order(it.first()) <= order(first));
        let around = after.checked_sub(1).map(|at| self.ranges[at]);
        match around.filter(|it| it.contains(first)) {
            Some(around) if around.contains(last) => None,
            // Ranges that touch are one, so that the next address is outside.
            Some(around) => around.next(),
            None => Some(first),
        }
    }
}

fn order(address: IpAddr) -> (bool, u128) {
    (address.is_ipv6(), number(address))
}

/// The addresses of these prefixes as the fewest ranges, in ascending order.
fn merged(prefixes: &[Prefix]) -> Vec<AddressRange> {
    let mut ranges: Vec<AddressRange> = prefixes.iter().map(Prefix::range).collect();
    ranges.sort_by_key(|range| order(range.first()));
    let mut merged: Vec<AddressRange> = Vec::new();
    for range in ranges {
        let joined = merged.last().copied().and_then(|last| last.join(range));
        match joined {
            Some(joined) => {
                merged.pop();
                merged.push(joined);
            }
            None => merged.push(range),
        }
    }
    merged
}

/// Reports a pool or a port of another network than what uses it. `kind` is what is used, `of`
/// where each of them is.
pub(super) fn check_same<'c>(
    (kind, name): (&str, &str),
    of: &HashMap<&'c str, (&'c str, Path)>,
    (user, network): (&str, &'c str),
    (table, key): (Path, &'static str),
    report: &mut Report,
) {
    let Some(&(other, at)) = of.get(name) else { return };
    let unknown = known(network, table, report).is_none() || known(other, at, report).is_none();
    if other == network || unknown || report.is_broken(table.key(key)) {
        return;
    }
    if report.is_full() {
        return report.error(table.key(key), "", "");
    }
    let found =
        format!("{kind} {name:?} is in {}, and this {user} in {}", called(other), called(network));
    let mut same: Vec<&str> =
        of.iter().filter(|(_, (of, _))| *of == network).map(|(name, _)| *name).collect();
    same.sort_unstable();
    let more = if same.len() > SHOWN { ", …" } else { "" };
    same.truncate(SHOWN);
    let there = match same.is_empty() {
        true => "there is none yet".to_owned(),
        false => format!("{}{more}", same.join(", ")),
    };
    report.error(table.key(key), found, format!("use a {kind} of {}: {there}", called(network)));
}
