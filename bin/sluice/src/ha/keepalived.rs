//! keepalived.conf for one of two directors, made from the director's configuration.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use sluice_api::{ApiError, Client, DEFAULT_SOCKET};
use sluice_config::{Config, Pool, document};

use crate::cli::ha::{Keepalived, Role};
use crate::{Socket, USUAL_FILE};

/// Most addresses that an advert has; the others are not told, but move as well.
const ADVERTISED: usize = 20;
/// Where keepalived writes what it does.
const USUAL_FIFO: &str = "/run/sluice-vrrp.fifo";
/// How long `sluice ha check --alive` watches a director: keepalived starts it each second and
/// leaves a turn out while it still runs. What remains must do for its start and its end.
const HOLD_MS: u32 = 900;

/// The text, from the file that is named, the running director, or the usual file.
///
/// # Errors
/// When the configuration cannot be read or is wrong, nothing moves, or keepalived could not call
/// this program.
pub fn made(asked: &Keepalived, socket: &Socket) -> Result<String, Box<dyn Error>> {
    if socket.is_remote() {
        return Err("keepalived checks the director of its machine: leave --url out".into());
    }
    let socket = socket.path(None);
    let (config, origin) = configuration(asked.config.as_deref(), socket)?;
    let called = Called::by(&std::env::current_exe()?, socket)?;
    Ok(text(asked, &config, &origin, &called)?)
}

/// A configuration, and what to call it. A director also has what came by its API.
fn configuration(file: Option<&Path>, socket: &Path) -> Result<(Config, String), Box<dyn Error>> {
    let of_file = |file: &Path| Ok((Config::load(file)?.config, file.display().to_string()));
    if let Some(file) = file {
        return of_file(file);
    }
    match Client::new(socket).config() {
        Ok(view) => {
            let origin = "the running director's configuration";
            let text = document::to_toml(&view.document(), &|_, _| None);
            Ok((Config::parse(origin, &text)?.config, origin.to_owned()))
        }
        Err(ApiError::Absent(_) | ApiError::Dead(_)) => of_file(Path::new(USUAL_FILE)),
        Err(error) => Err(error.into()),
    }
}

/// What keepalived calls.
struct Called {
    /// The beginning of each command line.
    command: String,
    /// Where it writes what it does. Not beside the usual socket, whose directory goes with the
    /// director.
    fifo: String,
}

impl Called {
    fn by(program: &Path, socket: &Path) -> Result<Self, String> {
        let command = command(program, socket)?;
        let fifo = match socket == Path::new(DEFAULT_SOCKET) {
            true => USUAL_FIFO.to_owned(),
            false => format!("{}.vrrp", socket.display()),
        };
        Ok(Self { command, fifo })
    }
}

/// The beginning of each command line that keepalived calls.
fn command(program: &Path, socket: &Path) -> Result<String, String> {
    let word = |path: &Path| {
        let text = path.to_str().unwrap_or_default();
        let odd = |c: char| c.is_whitespace() || c.is_control() || "\"'\\$!#".contains(c);
        match text.is_empty() || text.contains(odd) {
            true => Err(format!("{}: keepalived cannot call this path", path.display())),
            false => Ok(text.to_owned()),
        }
    };
    let program = word(program)?;
    match socket == Path::new(DEFAULT_SOCKET) {
        true => Ok(program),
        false => Ok(format!("{program} --socket {}", word(socket)?)),
    }
}

/// An address and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moving {
    address: IpAddr,
    device: String,
}

/// What moves together: the primary's addresses, or the secondary's.
struct Group {
    name: &'static str,
    instances: Vec<Instance>,
}

/// A `vrrp_instance` to be.
struct Instance {
    name: String,
    v4: bool,
    addresses: Vec<Moving>,
    router_id: u8,
    priority: u8,
}

/// The addresses that the owner of a group has: VIPs in the file's order, pools, others.
fn moving(asked: &Keepalived, config: &Config, owner: Role) -> Vec<Moving> {
    let outer = &asked.interface;
    let inner = asked.local_interface.as_ref().unwrap_or(outer);
    let of_pool = |pool: &Pool| {
        let outside = config.snat.iter().any(|rule| rule.pool == pool.name)
            && !config.services.iter().any(|service| service.pool == pool.name);
        let device = if outside { outer } else { inner };
        let own = if owner == asked.role || asked.secondary_vip.is_empty() {
            &pool.addresses
        } else {
            &pool.peer_addresses
        };
        let addresses: Vec<IpAddr> = own.iter().flat_map(|range| range.iter()).collect();
        addresses.into_iter().map(move |address| (address, device))
    };
    let is_owners = |vip: &IpAddr| asked.secondary_vip.contains(vip) == (owner == Role::Secondary);
    let vips = config.services.iter().map(|service| service.vip).filter(is_owners);
    let vips = vips.map(|vip| (vip, outer));
    let pools = config.pools.iter().flat_map(of_pool);
    let others = asked.address.iter().filter(|_| owner == Role::Primary);
    let others = others.map(|address| (*address, inner));
    let mut seen = BTreeSet::new();
    vips.chain(pools)
        .chain(others)
        .filter(|(address, _)| !address.is_unspecified() && seen.insert(*address))
        .map(|(address, device)| Moving { address, device: device.clone() })
        .collect()
}

/// The one group, or that of the primary's addresses and that of the secondary's.
fn groups(asked: &Keepalived, config: &Config) -> Result<Vec<Group>, String> {
    let group = |owner: Role, name, router_id| {
        let all = moving(asked, config, owner);
        // A director is primary for the addresses that it owns.
        let role = if owner == asked.role { Role::Primary } else { Role::Secondary };
        let priority = role.priority();
        let instance = |v4: bool| {
            let of_family = |it: &&Moving| it.address.is_ipv4() == v4;
            let addresses = all.iter().filter(of_family).cloned().collect();
            let name = format!("{name}_v{}", if v4 { 4 } else { 6 });
            Instance { name, v4, addresses, router_id, priority }
        };
        let instances = [true, false].map(instance).into_iter();
        Group { name, instances: instances.filter(|it| !it.addresses.is_empty()).collect() }
    };
    let first = group(Role::Primary, "sluice", asked.virtual_router_id);
    let Some(vip) = asked.secondary_vip.first() else { return Ok(vec![first]) };
    for vip in &asked.secondary_vip {
        if !config.services.iter().any(|service| service.vip == *vip) {
            return Err(format!("--secondary-vip {vip}: no service has this VIP"));
        }
    }
    if let Some(pool) = config.pools.iter().find(|pool| pool.peer_addresses.is_empty()) {
        return Err(format!(
            "--secondary-vip {vip}: pool {:?} has no `peer_addresses`; two directors that are \
             active need pool addresses of their own, and know each other's",
            pool.name
        ));
    }
    let Some(next) = asked.virtual_router_id.checked_add(1) else {
        return Err("two groups take --virtual-router-id N and N + 1: use at most 254".to_owned());
    };
    Ok(vec![first, group(Role::Secondary, "sluice_second", next)])
}

/// The whole file; `called` is what it has of this program.
fn text(
    asked: &Keepalived,
    config: &Config,
    origin: &str,
    called: &Called,
) -> Result<String, String> {
    if config.services.is_empty() && config.snat.is_empty() {
        return Err(format!(
            "{origin} has no service with a VIP, and no rule of source NAT: nothing would move"
        ));
    }
    let groups = groups(asked, config)?;
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_head(&mut out, asked, origin, &groups, called);
    let _ = write_scripts(&mut out, asked, &called.command);
    for Group { name, instances } in &groups {
        if instances.len() > 1 {
            let _ = write_group(&mut out, name, instances);
        }
        for instance in instances {
            let unicast = unicast(asked, instance)?;
            let _ = write_instance(&mut out, asked, instance, unicast, instances.len() == 1);
        }
    }
    Ok(out)
}

fn write_head(
    out: &mut String,
    asked: &Keepalived,
    origin: &str,
    groups: &[Group],
    called: &Called,
) -> std::fmt::Result {
    let instances = groups.iter().flat_map(|group| &group.instances);
    let count = |v4| {
        let of_family = instances.clone().filter(|instance| instance.v4 == v4);
        of_family.map(|instance| instance.addresses.len()).sum::<usize>()
    };
    let (v4, v6) = (count(true), count(false));
    writeln!(out, "# By `sluice ha config keepalived` from {origin}")?;
    writeln!(out, "# for the {}: {v4} IPv4 and {v6} IPv6 addresses.", asked.role.name())?;
    writeln!(out, "# Write it again on both directors when services or pools change.\n")?;
    out.write_str(
        "global_defs {\n    vrrp_version 3\n    script_user root\n    enable_script_security\n    \
         max_auto_priority 50\n    vrrp_garp_master_delay 1\n    vrrp_garp_master_repeat 2\n    \
         vrrp_garp_master_refresh 1\n",
    )?;
    // Of two masters, as when keepalived was stopped for a while, the one that gives way has the
    // other tell all neighbours again at once: what they heard last was from the wrong one.
    out.write_str("    vrrp_higher_prio_send_advert true\n    vrrp_garp_lower_prio_delay 1\n")?;
    // What keepalived does is told to the director, in its order.
    writeln!(out, "    vrrp_notify_fifo {}", called.fifo)?;
    writeln!(out, "    vrrp_notify_fifo_script \"{} ha notify\"\n}}\n", called.command)
}

fn write_scripts(out: &mut String, asked: &Keepalived, command: &str) -> std::fmt::Result {
    // As long as a backup waits for adverts, nearly.
    let patience_ms = (asked.advert_ms * 2).clamp(50, 900);
    writeln!(
        out,
        "# No director answers: state FAULT, at once when it ends, soon when it freezes."
    )?;
    writeln!(out, "vrrp_script sluice_alive {{")?;
    writeln!(
        out,
        "    script \"{command} ha check --alive --hold-ms {HOLD_MS} \
         --patience-ms {patience_ms}\""
    )?;
    writeln!(out, "    interval 1\n    timeout 3\n    fall 1\n    rise 1\n    init_fail\n}}\n")?;
    writeln!(out, "# Not ready: it loses to a director that is, and serves when it is alone.")?;
    writeln!(out, "vrrp_script sluice_ready {{")?;
    writeln!(out, "    script \"{command} ha check\"")?;
    writeln!(out, "    interval 1\n    timeout 3\n    weight -20\n    fall 2\n    rise 1")?;
    writeln!(out, "    init_fail\n}}\n")
}

fn write_tracking(out: &mut String) -> std::fmt::Result {
    out.write_str("    track_script {\n        sluice_alive\n        sluice_ready\n    }\n")
}

fn write_group(out: &mut String, name: &str, instances: &[Instance]) -> std::fmt::Result {
    writeln!(out, "vrrp_sync_group {name} {{\n    group {{")?;
    for instance in instances {
        writeln!(out, "        {}", instance.name)?;
    }
    writeln!(out, "    }}")?;
    write_tracking(out)?;
    writeln!(out, "}}\n")
}

/// From where and to whom an instance sends adverts by unicast; `None` by multicast.
type Unicast = Option<(IpAddr, Vec<IpAddr>)>;

fn unicast(asked: &Keepalived, instance: &Instance) -> Result<Unicast, String> {
    if asked.source.is_empty() && asked.peer.is_empty() {
        return Ok(None);
    }
    let of = |all: &[IpAddr]| {
        all.iter().copied().filter(|it| it.is_ipv4() == instance.v4).collect::<Vec<_>>()
    };
    let family = if instance.v4 { "IPv4" } else { "IPv6" };
    match (&of(&asked.source)[..], of(&asked.peer)) {
        ([source], peers) if !peers.is_empty() => Ok(Some((*source, peers))),
        ([_, _, ..], _) => Err(format!("more than one {family} address as --source")),
        _ => Err(format!(
            "{family} addresses move: unicast takes an {family} --source and an {family} --peer"
        )),
    }
}

fn write_instance(
    out: &mut String,
    asked: &Keepalived,
    instance: &Instance,
    unicast: Unicast,
    alone: bool,
) -> std::fmt::Result {
    writeln!(out, "vrrp_instance {} {{\n    state BACKUP", instance.name)?;
    writeln!(out, "    interface {}", asked.interface)?;
    writeln!(out, "    virtual_router_id {}", instance.router_id)?;
    writeln!(out, "    priority {}", instance.priority)?;
    writeln!(out, "    advert_int {}", f64::from(asked.advert_ms) / 1000.0)?;
    if let Some((source, peers)) = unicast {
        writeln!(out, "    unicast_src_ip {source}\n    unicast_peer {{")?;
        peers.iter().try_for_each(|peer| writeln!(out, "        {peer}"))?;
        writeln!(out, "    }}")?;
    }
    if alone {
        write_tracking(out)?;
    }
    let other = asked.local_interface.as_ref().filter(|other| **other != asked.interface);
    if let Some(other) = other {
        writeln!(out, "    track_interface {{\n        {other}\n    }}")?;
    }
    let bits = if instance.v4 { 32 } else { 128 };
    let mut lines: Vec<String> = instance
        .addresses
        .iter()
        .map(|Moving { address, device }| format!("{address}/{bits} dev {device}"))
        .collect();
    if !instance.v4 {
        // RFC 5798, 5.2.9: the first address of an advert is the virtual router's link-local one.
        // This is the one that belongs to its MAC address, 00:00:5e:00:02:ID.
        let id = instance.router_id;
        lines.insert(0, format!("fe80::200:5eff:fe00:2{id:02x}/128 dev {}", asked.interface));
    }
    let (told, untold) = lines.split_at(lines.len().min(ADVERTISED));
    write_addresses(out, "virtual_ipaddress", told)?;
    if !untold.is_empty() {
        write_addresses(out, "virtual_ipaddress_excluded", untold)?;
    }
    writeln!(out, "}}\n")
}

fn write_addresses(out: &mut String, name: &str, lines: &[String]) -> std::fmt::Result {
    writeln!(out, "    {name} {{")?;
    lines.iter().try_for_each(|line| writeln!(out, "        {line}"))?;
    writeln!(out, "    }}")
}

#[cfg(test)]
mod tests;
