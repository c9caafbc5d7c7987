//! Values that are text of a certain form.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use sluice_director::spec::Ports;

use crate::Prefix;
use crate::address::parse_address;
use crate::device::check_socket_path;
use crate::errors::{Fault, quoted};

/// The longest name of a port, pool or service, in bytes.
const NAME_BYTES: usize = 64;

/// What messages call the network without a name, which no other may be called.
const DEFAULT: &str = "default";

pub(super) fn any_text(text: &str) -> Result<String, Fault> {
    Ok(text.to_owned())
}

pub(super) fn parse_socket(text: &str) -> Result<PathBuf, Fault> {
    check_socket_path(text).map(|()| PathBuf::from(text))
}

/// The longest name of a group, in bytes: groupadd(8) takes no longer one.
const GROUP_BYTES: usize = 32;

pub(super) fn parse_group(text: &str) -> Result<String, Fault> {
    let right = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.$".contains(&byte);
    if (1..=GROUP_BYTES).contains(&text.len()) && text.bytes().all(right) {
        return Ok(text.to_owned());
    }
    let hint = "use the name of a group of /etc/group, or its number";
    Err(Fault::new(format!("{} cannot be a group", quoted(text)), hint))
}

/// The longest path of a file or of the state directory, in bytes: the kernel's limit, and room
/// for what is in it.
const FOLDER_BYTES: usize = 4000;

pub(super) fn parse_folder(text: &str) -> Result<PathBuf, Fault> {
    if text.starts_with('/') && text.len() <= FOLDER_BYTES && !text.contains('\0') {
        return Ok(PathBuf::from(text));
    }
    let hint = format!("use an absolute path of at most {FOLDER_BYTES} bytes");
    Err(Fault::new(format!("{} cannot be a folder", quoted(text)), hint))
}

pub(super) fn parse_file(text: &str) -> Result<PathBuf, Fault> {
    if text.starts_with('/') && text.len() <= FOLDER_BYTES && !text.contains('\0') {
        return Ok(PathBuf::from(text));
    }
    let hint = format!("use an absolute path of at most {FOLDER_BYTES} bytes");
    Err(Fault::new(format!("{} is not the path of a file", quoted(text)), hint))
}

pub(super) fn parse_name(text: &str) -> Result<String, Fault> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && text.len() <= NAME_BYTES && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    let hint = format!(
        "use 1 to {NAME_BYTES} letters, digits, `.`, `_` and `-`, a letter or digit first: names \
         become file names and labels"
    );
    Err(Fault::new(format!("{} cannot be a name", quoted(text)), hint))
}

/// The name of a network that is defined.
pub(super) fn parse_network_name(text: &str) -> Result<String, Fault> {
    if text == DEFAULT {
        let found = format!("{} is the network of all that name none", quoted(text));
        return Err(Fault::new(found, "use another name: that network has no section"));
    }
    parse_name(text)
}

/// The name of the network that something is in.
pub(super) fn parse_network(text: &str) -> Result<String, Fault> {
    if text.is_empty() || text == DEFAULT {
        let found = format!("{} is not the name of a [[network]]", quoted(text));
        return Err(Fault::new(found, "leave the key out for the default network"));
    }
    parse_name(text)
}

pub(super) fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, Fault> {
    let hint = "use FIRST-LAST with ports from 1 to 65535, such as \"1024-65535\"";
    let number = |text: &str| {
        let text = text.trim();
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| digits)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        return Err(Fault::new(format!("{} is not a range of ports", quoted(text)), hint));
    };
    if first > last {
        let hint = format!("begin with the lower port: \"{last}-{first}\"");
        return Err(Fault::new(format!("the range {} is reversed", quoted(text)), hint));
    }
    if first == 0 {
        return Err(Fault::new(format!("{} begins with port 0", quoted(text)), hint));
    }
    Ok(first..=last)
}

/// A port or a range of ports of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServicePorts(pub Ports);

impl From<u16> for ServicePorts {
    fn from(port: u16) -> Self {
        Self(Ports::one(port))
    }
}

pub(super) fn parse_service_ports(text: &str) -> Result<ServicePorts, Fault> {
    let all = ["*", "any", "all"].iter().any(|word| text.trim().eq_ignore_ascii_case(word));
    if all || !text.contains('-') {
        let hint = match all {
            true => "leave the key out for all ports",
            false => "use an integer from 1 to 65535, or a range such as \"8000-8099\"",
        };
        return Err(Fault::new(format!("{} is not a port", quoted(text)), hint));
    }
    let range = parse_ports(text)?;
    Ok(ServicePorts(Ports { first: *range.start(), last: *range.end() }))
}

pub(super) fn parse_source_v4(text: &str) -> Result<Prefix, Fault> {
    let (example, source) = ("192.0.2.64/28", parse_source(text)?);
    source.address().is_ipv4().then_some(source).ok_or_else(|| of_other_family(text, example))
}

pub(super) fn parse_source_v6(text: &str) -> Result<Prefix, Fault> {
    let (example, source) = ("2001:db8:0:1::100/120", parse_source(text)?);
    source.address().is_ipv6().then_some(source).ok_or_else(|| of_other_family(text, example))
}

/// One address or a prefix of them.
fn parse_source(text: &str) -> Result<Prefix, Fault> {
    if text.contains('/') { text.parse() } else { parse_address(text).map(Prefix::from) }
}

fn of_other_family(text: &str, example: &str) -> Fault {
    let found = format!("{} is of the other family", quoted(text));
    Fault::new(found, format!("use an address or a prefix such as {example}"))
}
