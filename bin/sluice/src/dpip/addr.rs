//! `dpip addr`.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use sluice_linux::{Commands, ListedAddress, Make, NewAddress};

use super::Done;
use super::devices::Devices;
use super::failure::Failure;
use super::words::{self, Line, Rest, Verb};
use crate::show::Shown;

/// What is said of an address.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The address and its length.
    pub address: Option<(IpAddr, u8)>,
    /// Its device.
    pub device: Option<String>,
    broadcast: Option<IpAddr>,
    valid_s: Option<u32>,
    scope: Option<u8>,
    /// Whether it is to be a local address of full NAT.
    pub sapool: bool,
}

pub fn run(mut line: Line, socket: &Path) -> Done {
    let verb = line.verb("add, set, del, flush or show")?;
    let said = read(&mut line.rest)?;
    if verb == Verb::Show {
        return show(&line, &said, socket);
    }
    let Some(device) = &said.device else {
        return Err(Failure::parameter("say which device: dev DEV"));
    };
    let mut devices = Devices::look(socket)?;
    let ifindex = devices.link(device)?.index;
    let mut commands = Commands::open()?;
    if verb == Verb::Flush {
        let all = devices.listing.addresses()?;
        for old in all.iter().filter(|old| old.ifindex == ifindex && line.wants(old.ip)) {
            commands.take_address(&NewAddress { ifindex, ..of_listed(old) })?;
        }
        return Ok(Shown::new(String::new()));
    }
    let Some((ip, prefix_len)) = said.address else {
        return Err(Failure::parameter("say which address: ADDR[/PLEN]"));
    };
    line.check_family(ip)?;
    let Said { broadcast, valid_s, scope, sapool, .. } = said;
    let new = NewAddress { ifindex, ip, prefix_len, scope, broadcast, valid_s };
    match verb {
        Verb::Del => commands.take_address(&new)?,
        Verb::Add => commands.put_address(Make::New, &new)?,
        _ => commands.put_address(Make::Put, &new)?,
    }
    let remark = (sapool && verb != Verb::Del).then(|| {
        format!(
            "dpip: sapool: {ip} is on {device}; it gives full NAT its ports as soon as a service \
             has it: `ipvsadm --add-laddr -z {ip} … -F {device}`, or in a [[pool]]"
        )
    });
    Ok(Shown { text: String::new(), remark })
}

/// Reads what stands behind the command.
///
/// # Errors
/// When a word is unknown, doubled, or lacks its value.
pub fn read(rest: &mut Rest) -> Result<Said, Failure> {
    let mut said = Said::default();
    while let Some(word) = rest.word() {
        match word.as_str() {
            "dev" => said.device = Some(rest.value("dev")?),
            "broadcast" => said.broadcast = Some(rest.read("broadcast", "an IPv4 address")?),
            "valid_lft" => {
                let text = rest.value("valid_lft")?;
                said.valid_s = match text.as_str() {
                    "forever" => None,
                    seconds => Some(words::number("valid_lft", seconds, 1, u32::MAX - 1)?),
                };
            }
            "scope" => said.scope = Some(words::scope(&rest.value("scope")?)?),
            "sapool" => said.sapool = true,
            _ if said.address.is_none() => said.address = Some(words::prefix(&word)?),
            _ => return Err(Rest::surplus(&word, false)),
        }
    }
    Ok(said)
}

fn of_listed(listed: &ListedAddress) -> NewAddress {
    let ListedAddress { ifindex, ip, prefix_len, scope, .. } = *listed;
    NewAddress { ifindex, ip, prefix_len, scope: Some(scope), broadcast: None, valid_s: None }
}

fn show(line: &Line, said: &Said, socket: &Path) -> Done {
    let mut devices = Devices::look(socket)?;
    let only = said.device.as_deref().map(|name| devices.link(name)).transpose()?;
    let only = only.map(|link| link.index);
    let all = devices.listing.addresses()?;
    let mut text = String::new();
    for address in all {
        let shown = match only {
            Some(only) => address.ifindex == only,
            None => !devices.is_loopback(address.ifindex),
        };
        let this = said.address.is_none_or(|(ip, _)| ip == address.ip);
        if shown && this && line.wants(address.ip) {
            text.push_str(&one(&address, &devices.name(address.ifindex)));
        }
    }
    Ok(Shown::new(text))
}

/// An address as DPVS shows it.
pub fn one(address: &ListedAddress, device: &str) -> String {
    let family = if address.ip.is_ipv4() { "inet" } else { "inet6" };
    let life = |seconds: Option<u32>| seconds.map_or("forever".to_owned(), |it| it.to_string());
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{family} {}/{} scope {} {device}\n     valid_lft {} preferred_lft {}",
        address.ip,
        address.prefix_len,
        words::scope_name(address.scope),
        life(address.valid_s),
        life(address.preferred_s),
    );
    text
}
