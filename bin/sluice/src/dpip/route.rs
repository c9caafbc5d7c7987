//! `dpip route`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use sluice_linux::{Commands, ListedRoute, Make, NewRoute};

use super::Done;
use super::devices::Devices;
use super::failure::Failure;
use super::words::{self, Family, Line, Rest, Verb};
use crate::show::Shown;

/// Scope of local addresses.
const SCOPE_HOST: u8 = 254;

/// What is said of a route.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Where to: `None` inside for `default`.
    pub to: Option<Option<(IpAddr, u8)>>,
    /// The next hop.
    pub via: Option<IpAddr>,
    /// Its device.
    pub device: Option<String>,
    source: Option<IpAddr>,
    mtu: Option<u32>,
    metric: Option<u32>,
    scope: Option<u8>,
    /// Whether it says what is the kernel's of the device.
    pub for_kernel: bool,
}

pub fn run(mut line: Line, socket: &Path) -> Done {
    let verb = line.verb("add, set, del, flush or show")?;
    let said = read(&mut line.rest)?;
    let mut devices = Devices::look(socket)?;
    let device = said.device.as_deref().map(|name| devices.link(name)).transpose()?;
    let ifindex = device.map(|link| link.index);
    match verb {
        Verb::Show => {
            let all = devices.listing.routes()?;
            return Ok(Shown::new(listed(&line, &said, ifindex, &all, &devices)));
        }
        Verb::Flush => {
            let Some(ifindex) = ifindex else {
                return Err(Failure::parameter("say of which device: dev DEV"));
            };
            let mut commands = Commands::open()?;
            let all = devices.listing.routes()?;
            let gone = |route: &&ListedRoute| {
                route.ifindex == ifindex && !route.local && line.wants(route.prefix)
            };
            for route in all.iter().filter(gone) {
                commands.take_route(&of_listed(route))?;
            }
            return Ok(Shown::new(String::new()));
        }
        _ => {}
    }
    if said.for_kernel {
        let remark = "dpip: scope kni_host: there is nothing to do: what is not a service's is \
                      the kernel's anyway";
        return Ok(Shown { text: String::new(), remark: Some(remark.to_owned()) });
    }
    let new = route(&line, &said, ifindex)?;
    let mut commands = Commands::open()?;
    match verb {
        Verb::Del => commands.take_route(&new)?,
        Verb::Add => commands.put_route(Make::New, &new)?,
        _ => commands.put_route(Make::Put, &new)?,
    }
    Ok(Shown::new(String::new()))
}

/// Reads what stands behind the command.
///
/// # Errors
/// When a word is unknown, doubled, or lacks its value.
pub fn read(rest: &mut Rest) -> Result<Said, Failure> {
    let mut said = Said::default();
    while let Some(word) = rest.word() {
        match word.as_str() {
            "via" => said.via = Some(rest.read("via", "an address")?),
            "dev" => said.device = Some(rest.value("dev")?),
            "src" => said.source = Some(rest.read("src", "an address")?),
            "mtu" => said.mtu = Some(words::number("mtu", &rest.value("mtu")?, 68, 65_535)?),
            "metric" => said.metric = Some(rest.read("metric", "a number")?),
            "scope" => match rest.value("scope")?.as_str() {
                "kni_host" => said.for_kernel = true,
                other => said.scope = Some(words::scope(other)?),
            },
            // What DPVS lets one say of who made a route changes nothing.
            "proto" | "tos" => drop(rest.value(&word)?),
            "default" if said.to.is_none() => said.to = Some(None),
            _ if said.to.is_none() => said.to = Some(Some(words::prefix(&word)?)),
            _ => return Err(Rest::surplus(&word, false)),
        }
    }
    Ok(said)
}

fn route(line: &Line, said: &Said, ifindex: Option<u32>) -> Result<NewRoute, Failure> {
    let (prefix, prefix_len) = match (said.to, said.via) {
        (None, _) => {
            return Err(Failure::parameter("say where to: a prefix, an address or default"));
        }
        (Some(Some(to)), _) => to,
        // The default route's family is that of its next hop, or the one that is asked for.
        (Some(None), Some(IpAddr::V6(_))) => (Ipv6Addr::UNSPECIFIED.into(), 0),
        (Some(None), None) if line.family == Some(Family::Ipv6) => {
            (Ipv6Addr::UNSPECIFIED.into(), 0)
        }
        (Some(None), _) => (Ipv4Addr::UNSPECIFIED.into(), 0),
    };
    line.check_family(prefix)?;
    if said.via.is_none() && ifindex.is_none() && !line.command.starts_with("del") {
        return Err(Failure::parameter("say which way: via ADDR, dev DEV, or both"));
    }
    Ok(NewRoute {
        prefix,
        prefix_len,
        via: said.via.filter(|via| !via.is_unspecified()),
        ifindex,
        source: said.source.filter(|source| !source.is_unspecified()),
        mtu: said.mtu,
        // DPVS's own metric of 0 is what it shows for none.
        metric: said.metric.filter(|&metric| metric != 0),
        scope: said.scope,
    })
}

fn of_listed(route: &ListedRoute) -> NewRoute {
    NewRoute {
        prefix: route.prefix,
        prefix_len: route.prefix_len,
        via: route.via,
        ifindex: Some(route.ifindex),
        source: None,
        mtu: None,
        metric: Some(route.metric).filter(|&metric| metric != 0),
        scope: None,
    }
}

fn listed(
    line: &Line,
    said: &Said,
    only: Option<u32>,
    all: &[ListedRoute],
    devices: &Devices,
) -> String {
    let mut text = String::new();
    for route in all {
        let shown = match only {
            Some(only) => route.ifindex == only,
            None => !devices.is_loopback(route.ifindex),
        };
        let this = match said.to {
            None => true,
            Some(None) => route.prefix_len == 0,
            Some(Some(to)) => to == (route.prefix, route.prefix_len),
        };
        if shown && this && line.wants(route.prefix) && !route.prefix.is_multicast() {
            let link = devices.links.iter().find(|link| link.index == route.ifindex);
            let mtu = route.mtu.or(link.map(|link| link.mtu)).unwrap_or(0);
            text.push_str(&one(route, &devices.name(route.ifindex), mtu));
        }
    }
    text
}

/// A route as DPVS shows it.
pub fn one(route: &ListedRoute, device: &str, mtu: u32) -> String {
    let scope = words::scope_name(if route.local { SCOPE_HOST } else { route.scope });
    let ListedRoute { prefix, prefix_len, tos, metric, .. } = *route;
    if prefix.is_ipv4() {
        let or_none = |ip: Option<IpAddr>| ip.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let (via, source) = (or_none(route.via), or_none(route.source));
        let maker = maker(route.protocol);
        return format!(
            "inet {prefix}/{prefix_len} via {via} src {source} dev {device} mtu {mtu} tos {tos} \
             scope {scope} metric {metric} proto {maker} \n"
        );
    }
    let to = match prefix_len {
        0 => "default".to_owned(),
        length => format!("{prefix}/{length}"),
    };
    let via = route.via.map_or(String::new(), |via| format!(" via {via}"));
    let source = route.source.map_or(String::new(), |source| format!(" src {source}"));
    format!("inet6 {to}{via}{source} dev {device} mtu {mtu} scope {scope}\n")
}

/// Who made a route, by rtnetlink's numbers.
fn maker(protocol: u8) -> String {
    match protocol {
        1 => "redirect".to_owned(),
        2 => "auto".to_owned(),
        3 => "boot".to_owned(),
        4 => "static".to_owned(),
        9 => "ra".to_owned(),
        other => other.to_string(),
    }
}
