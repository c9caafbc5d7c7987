//! `dpip neigh`.

use std::net::IpAddr;
use std::path::Path;

use sluice_config::Mac;
use sluice_linux::{Commands, ListedNeighbour, Make};

use super::Done;
use super::devices::Devices;
use super::failure::Failure;
use super::mac_text;
use super::words::{Line, Rest, Verb};
use crate::show::Shown;

/// `NUD_*` of neighbours that were told and not asked for.
const PERMANENT: u16 = 0x80;

/// What is said of a neighbour.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    ip: Option<IpAddr>,
    device: Option<String>,
    mac: Option<Mac>,
}

pub fn run(mut line: Line, socket: &Path) -> Done {
    let verb = line.verb("add, del or show")?;
    let said = read(&mut line.rest)?;
    let mut devices = Devices::look(socket)?;
    let device = said.device.as_deref().map(|name| devices.link(name)).transpose()?;
    let ifindex = device.map(|link| link.index);
    if verb == Verb::Show {
        let all = devices.listing.neighbours()?;
        let wanted = all.iter().filter(|it| {
            ifindex.is_none_or(|only| it.ifindex == only)
                && said.ip.is_none_or(|ip| it.ip == ip)
                && line.wants(it.ip)
        });
        let text = wanted.map(|it| one(it, &devices.name(it.ifindex))).collect();
        return Ok(Shown::new(text));
    }
    let (Some(ip), Some(ifindex)) = (said.ip, ifindex) else {
        return Err(Failure::parameter("say who and where: ADDR lladdr MAC dev DEV"));
    };
    line.check_family(ip)?;
    let mut commands = Commands::open()?;
    match (verb, said.mac) {
        (Verb::Del, _) => commands.take_neighbour(ifindex, ip)?,
        // What the kernel found out is replaced; what was told before is there already.
        (Verb::Add, Some(mac)) => {
            let all = devices.listing.neighbours()?;
            let told = |it: &ListedNeighbour| {
                it.ifindex == ifindex && it.ip == ip && it.state & PERMANENT != 0
            };
            let make = if all.iter().any(told) { Make::New } else { Make::Put };
            commands.put_neighbour(make, ifindex, ip, mac.bytes())?;
        }
        (Verb::Set, Some(mac)) => commands.put_neighbour(Make::Put, ifindex, ip, mac.bytes())?,
        (Verb::Flush | Verb::Show, _) => return Err(line.unknown_command("add, del or show")),
        (_, None) => return Err(Failure::parameter("say its MAC address: lladdr MAC")),
    }
    Ok(Shown::new(String::new()))
}

fn read(rest: &mut Rest) -> Result<Said, Failure> {
    let mut said = Said::default();
    while let Some(word) = rest.word() {
        match word.as_str() {
            "dev" => said.device = Some(rest.value("dev")?),
            "lladdr" => said.mac = Some(rest.read("lladdr", "a MAC address such as 02:00:…:01")?),
            _ if said.ip.is_none() => {
                let wrong = || Failure::parameter(format!("{word} is no address"));
                said.ip = Some(word.parse().map_err(|_| wrong())?);
            }
            _ => return Err(Rest::surplus(&word, false)),
        }
    }
    Ok(said)
}

/// A neighbour as DPVS shows it. The kernel has one table for all cores: its own is 0.
fn one(neighbour: &ListedNeighbour, device: &str) -> String {
    let mac = neighbour.mac.map_or("incomplate".to_owned(), mac_text);
    let state = match neighbour.state {
        0x01 => "INCOMPLETE",
        0x02 | PERMANENT => "REACHABLE",
        0x04 => "STALE",
        0x08 => "DELAY",
        0x10 => "PROBE",
        0x20 => "FAILED",
        _ => "NONE",
    };
    let told = if neighbour.state & PERMANENT != 0 { "  [static]" } else { "" };
    let ip = neighbour.ip.to_string();
    format!("ip: {ip:<48} mac: {mac}   state: {state:<12}  dev: {device}  core: 0{told}\n")
}
