//! `dpip tunnel`.

use std::net::Ipv4Addr;
use std::path::Path;

use sluice_linux::{Commands, GreHeader, ListedLink, Tunnel, TunnelMode};

use super::Done;
use super::devices::Devices;
use super::failure::Failure;
use super::words::{self, Line, Rest, Verb};
use crate::show::Shown;

const COMMANDS: &str = "add, change, del or show";

/// What is said of a tunnel.
#[derive(Debug, Default)]
pub struct Said {
    /// Its name.
    pub name: Option<String>,
    /// Its mode.
    pub mode: Option<TunnelMode>,
    /// The device that wrapped packets leave by.
    pub device: Option<String>,
    /// The rest; its mode and link are those above.
    pub rest: Tunnel,
}

pub fn run(mut line: Line, socket: &Path) -> Done {
    let verb = line.verb(COMMANDS)?;
    let said = read(&mut line.rest)?;
    let devices = Devices::look(socket)?;
    let below = said.device.as_deref().map(|name| devices.link(name)).transpose()?;
    let below = below.map(|link| link.index);
    match verb {
        Verb::Show => return Ok(Shown::new(listed(&said, below, &devices)?)),
        Verb::Add => {
            let mode = said.mode.ok_or_else(|| Failure::parameter("say mode ipip or mode gre"))?;
            let tunnel = Tunnel { mode, ifindex: below, ..said.rest };
            check(&tunnel)?;
            let made = Commands::open()?.add_tunnel(said.name.as_deref(), &tunnel);
            made.map_err(|error| lacking(error.into(), mode))?;
        }
        Verb::Set => {
            let (link, old) = existing(&said, &devices)?;
            if said.mode.is_some_and(|mode| mode != old.mode) {
                let (name, mode) = (&link.name, old.mode.name());
                let wrong = format!("{name} has mode {mode}: remove it, and add another");
                return Err(Failure::parameter(wrong));
            }
            let tunnel = Tunnel { mode: old.mode, ifindex: below, ..said.rest };
            check(&tunnel)?;
            Commands::open()?.change_tunnel(link.index, &tunnel)?;
        }
        Verb::Del => Commands::open()?.remove_link(existing(&said, &devices)?.0.index)?,
        Verb::Flush => return Err(line.unknown_command(COMMANDS)),
    }
    Ok(Shown::new(String::new()))
}

/// The tunnel of the name that was said.
fn existing<'d>(said: &Said, devices: &'d Devices) -> Result<(&'d ListedLink, Tunnel), Failure> {
    let name = said.name.as_deref().ok_or_else(|| Failure::parameter("say its name"))?;
    let link = devices.link(name)?;
    let wrong = || Failure::parameter(format!("{name} is no tunnel of mode ipip or gre"));
    Ok((link, link.tunnel.ok_or_else(wrong)?))
}

/// A kernel that does not know a mode says so; here, what it lacks.
fn lacking(failure: Failure, mode: TunnelMode) -> Failure {
    let module = match mode {
        TunnelMode::Ipip => "ipip",
        TunnelMode::Gre => "ip_gre",
    };
    match failure.text {
        "not support" => Failure::unsupported(format!(
            "{}: this kernel lacks the module `{module}`",
            failure.detail
        )),
        _ => failure,
    }
}

fn check(tunnel: &Tunnel) -> Result<(), Failure> {
    let bare = [tunnel.received, tunnel.sent] == [GreHeader::default(); 2];
    if tunnel.mode == TunnelMode::Ipip && !bare {
        return Err(Failure::parameter("seq, key and csum are of mode gre only"));
    }
    Ok(())
}

/// # Errors
/// When it makes no sense.
pub fn read(rest: &mut Rest) -> Result<Said, Failure> {
    let mut said = Said::default();
    while let Some(word) = rest.word() {
        match word.as_str() {
            "mode" | "type" | "kind" => {
                let name = rest.value(&word)?;
                let wrong = || {
                    let advice = "`ip link add … type` makes others";
                    Failure::parameter(format!("{word} {name}: ipip or gre; {advice}"))
                };
                said.mode = Some(TunnelMode::of(&name).ok_or_else(wrong)?);
            }
            "remote" => said.rest.remote = end("remote", &rest.value("remote")?)?,
            "local" => said.rest.local = end("local", &rest.value("local")?)?,
            "dev" => said.device = Some(rest.value("dev")?),
            "ttl" => {
                let text = rest.value("ttl")?;
                let number = || words::number("ttl", &text, 1, 255);
                let ttl = if text == "inherit" { None } else { Some(number()?) };
                said.rest.ttl = ttl.and_then(|ttl| u8::try_from(ttl).ok());
            }
            "tos" => {
                let text = rest.value("tos")?;
                let number = || words::number("tos", &text, 0, 255);
                let tos = if text == "inherit" { 1 } else { number()? };
                said.rest.tos = u8::try_from(tos).unwrap_or_default();
            }
            _ if gre(&word, rest, &mut said.rest)? => {}
            _ if said.name.is_none() => said.name = Some(word),
            _ => return Err(Rest::surplus(&word, false)),
        }
    }
    Ok(said)
}

/// `[i|o]seq`, `[i|o]key KEY`, `[i|o]csum`: of what is received, of what is sent, of both.
fn gre(word: &str, rest: &mut Rest, tunnel: &mut Tunnel) -> Result<bool, Failure> {
    let (what, received, sent) = match (word.strip_prefix('i'), word.strip_prefix('o')) {
        (Some(what), _) => (what, true, false),
        (_, Some(what)) => (what, false, true),
        _ => (word, true, true),
    };
    if !["seq", "key", "csum"].contains(&what) {
        return Ok(false);
    }
    let key = if what == "key" { Some(key(word, &rest.value(word)?)?) } else { None };
    let ways = [(received, &mut tunnel.received), (sent, &mut tunnel.sent)];
    for (_, header) in ways.into_iter().filter(|(wanted, _)| *wanted) {
        match what {
            "seq" => header.sequence = true,
            "csum" => header.checksum = true,
            _ => header.key = key,
        }
    }
    Ok(true)
}

fn end(what: &str, text: &str) -> Result<Option<Ipv4Addr>, Failure> {
    let wrong = || {
        let advice = "for tunnels over IPv6 there is `ip link add … type ip6tnl` or `ip6gre`";
        Failure::parameter(format!("{what} {text}: an IPv4 address or any; {advice}"))
    };
    let ip = if text == "any" { None } else { Some(text.parse().map_err(|_| wrong())?) };
    Ok(ip.filter(|ip: &Ipv4Addr| !ip.is_unspecified()))
}

fn key(what: &str, text: &str) -> Result<u32, Failure> {
    let wrong = || Failure::parameter(format!("{what} {text}: a number, or four with dots"));
    text.parse::<Ipv4Addr>().map(u32::from).or_else(|_| text.parse()).map_err(|_| wrong())
}

fn listed(said: &Said, below: Option<u32>, devices: &Devices) -> Result<String, Failure> {
    let only = said.name.as_ref().map(|_| existing(said, devices)).transpose()?;
    let lines = devices.links.iter().filter_map(|link| Some((link, link.tunnel?)));
    Ok(lines
        .filter(|(link, _)| only.is_none_or(|(only, _)| only.index == link.index))
        .filter(|(_, tunnel)| said.mode.is_none_or(|mode| mode == tunnel.mode))
        .filter(|(_, tunnel)| below.is_none() || tunnel.ifindex == below)
        .map(|(link, tunnel)| {
            one(&link.name, &tunnel, tunnel.ifindex.map(|ifindex| devices.name(ifindex)))
        })
        .collect())
}

/// A tunnel's line.
pub fn one(name: &str, tunnel: &Tunnel, device: Option<String>) -> String {
    let ip = |ip: Option<Ipv4Addr>| ip.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let (mode, remote, local) = (tunnel.mode.name(), ip(tunnel.remote), ip(tunnel.local));
    let mut text = format!("{name}: {mode:>4} remote {remote} local {local} ");
    if let Some(device) = device {
        text.push_str(&format!("dev {device} "));
    }
    let ttl = tunnel.ttl.map_or("inherit".to_owned(), |ttl| ttl.to_string());
    text.push_str(&format!("ttl {ttl} "));
    let ways = [tunnel.received, tunnel.sent];
    let [received, sent] = ways.map(flags);
    let [received_key, sent_key] = ways.map(|way| way.key.unwrap_or_default());
    for (what, number) in [
        ("tos", u32::from(tunnel.tos)),
        ("i_flags", received),
        ("o_flags", sent),
        ("i_key", received_key),
        ("o_key", sent_key),
    ] {
        if number != 0 {
            text.push_str(&format!("{what} {number:#x} "));
        }
    }
    text.push('\n');
    text
}

/// A way's flags by DPVS's numbers.
fn flags(way: GreHeader) -> u32 {
    u32::from(way.checksum) | u32::from(way.key.is_some()) << 2 | u32::from(way.sequence) << 3
}
