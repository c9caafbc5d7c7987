//! `dpip vlan`.

use std::path::Path;

use sluice_linux::Commands;

use super::Done;
use super::devices::Devices;
use super::failure::Failure;
use super::words::{self, Line, Rest, Verb};
use crate::show::Shown;

/// EtherTypes of tags.
const TAGS: [(&str, u16); 2] = [("802.1q", 0x8100), ("802.1ad", 0x88a8)];

/// What is said of a VLAN.
#[derive(Debug, Default)]
struct Said {
    name: Option<String>,
    link: Option<String>,
    ethertype: Option<u16>,
    id: Option<u16>,
}

pub fn run(mut line: Line, socket: &Path) -> Done {
    let verb = line.verb("add, del or show")?;
    let said = read(&mut line.rest)?;
    let devices = Devices::look(socket)?;
    if verb == Verb::Show {
        return Ok(Shown::new(listed(&said, &devices)?));
    }
    let parent = said.link.as_deref().map(|name| devices.link(name)).transpose()?;
    let name = match (&said.name, &parent, said.id) {
        (Some(name), _, _) => name.clone(),
        (None, Some(parent), Some(id)) => format!("{}.{id}", parent.name),
        _ => return Err(Failure::parameter("say which: a name, or link DEV id N")),
    };
    let mut commands = Commands::open()?;
    match (verb, parent, said.id) {
        (Verb::Add, Some(parent), Some(id)) => {
            commands.add_vlan(&name, parent.index, said.ethertype.unwrap_or(TAGS[0].1), id)?;
        }
        (Verb::Add, _, _) => return Err(Failure::parameter("say which: link DEV id N")),
        (Verb::Del, _, _) => {
            let link = devices.link(&name)?;
            if link.vlan.is_none() {
                return Err(Failure::parameter(format!("{name} is no VLAN interface")));
            }
            commands.remove_link(link.index)?;
        }
        _ => return Err(line.unknown_command("add, del or show")),
    }
    Ok(Shown::new(String::new()))
}

fn read(rest: &mut Rest) -> Result<Said, Failure> {
    let mut said = Said::default();
    while let Some(word) = rest.word() {
        match word.as_str() {
            "link" => said.link = Some(rest.value("link")?),
            "proto" => {
                let text = rest.value("proto")?;
                let tag = TAGS.iter().find(|(name, _)| *name == text);
                let wrong = || Failure::parameter(format!("proto {text}: 802.1q or 802.1ad"));
                said.ethertype = Some(tag.ok_or_else(wrong)?.1);
            }
            "id" => {
                let id = words::number("id", &rest.value("id")?, 1, 4094)?;
                said.id = u16::try_from(id).ok();
            }
            _ if said.name.is_none() => said.name = Some(word),
            _ => return Err(Rest::surplus(&word, false)),
        }
    }
    Ok(said)
}

fn listed(said: &Said, devices: &Devices) -> Result<String, Failure> {
    let only = said.name.as_deref().map(|name| devices.link(name)).transpose()?;
    let mut text = String::new();
    for link in &devices.links {
        let Some(vlan) = link.vlan else { continue };
        if only.is_some_and(|only| only.index != link.index) {
            continue;
        }
        let tag = TAGS.iter().find(|(_, ethertype)| *ethertype == vlan.ethertype);
        let tag = tag.map_or("unknown", |(name, _)| *name);
        let parent = link.parent.map_or("-".to_owned(), |parent| devices.name(parent));
        text.push_str(&format!("{} link {parent} proto {tag} id {}\n", link.name, vlan.id));
    }
    Ok(text)
}
