//! Groups of addresses that other blocks name: of virtual servers, and DPVS's of local addresses
//! and of clients.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::block::account;
use super::tree::Statement;
use crate::note::{Place, Report};
use crate::target::{Made, Table, Target, plain_name};

/// The most services, and addresses of a group.
const MOST: u128 = 65_535;

/// An entry of a group of virtual servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First and last of its addresses.
    pub range: (IpAddr, IpAddr),
    /// The port; 0 for all.
    pub port: u16,
    /// Where it is.
    pub place: Place,
}

impl Entry {
    /// Its addresses.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let (first, last) = self.range;
        let (from, to) = (bits(first), bits(last));
        (from..=to).take(MOST as usize).map(|it| of_bits(it, first.is_ipv4())).collect()
    }
}

/// Groups by name.
#[derive(Debug, Default)]
pub struct Groups {
    /// Of virtual servers.
    pub virtual_servers: BTreeMap<String, Vec<Entry>>,
    /// Pools that groups of local addresses became, by the groups' names.
    pub pools: BTreeMap<String, String>,
    /// Prefixes of groups of clients.
    pub clients: BTreeMap<String, Vec<String>>,
}

impl Groups {
    /// Reads all groups; those of local addresses become pools.
    pub fn read(all: &[Statement], target: &mut Target, report: &mut Report) -> Self {
        let mut groups = Self::default();
        for statement in all {
            let name = statement.word(1).to_owned();
            match statement.word(0) {
                "virtual_server_group" => {
                    let entries = virtual_servers(statement, report);
                    groups.virtual_servers.entry(name).or_default().extend(entries);
                }
                "local_address_group" => {
                    if let Some(made) = pool(statement, report) {
                        groups.pools.insert(name, made.name().to_owned());
                        target.pools.push(made);
                    }
                }
                "deny_address_group" | "allow_address_group" => {
                    let clients = clients(statement, report);
                    groups.clients.insert(name, clients);
                }
                _ => {}
            }
        }
        groups
    }
}

fn virtual_servers(statement: &Statement, report: &mut Report) -> Vec<Entry> {
    report.done(&statement.place);
    let mut entries = Vec::new();
    for inner in statement.inside() {
        let place = inner.place.clone();
        if inner.word(0) == "fwmark" {
            super::service::mark(&place, report);
            continue;
        }
        let range = range(inner.word(0));
        let port = if inner.words.len() > 1 { inner.word(1).parse().ok() } else { Some(0) };
        let (Some(range), Some(port)) = (range, port) else {
            let means = format!("{:?} is no address, range or prefix with a port", inner.words);
            report.lost(&place, inner.word(0), means, "write such as 192.0.2.1-9 80");
            continue;
        };
        report.done(&place);
        entries.push(Entry { range, port, place });
    }
    entries
}

fn pool(statement: &Statement, report: &mut Report) -> Option<Made> {
    account(statement, report);
    let mut addresses: Vec<Value> = Vec::new();
    for inner in statement.inside() {
        match range(inner.word(0)) {
            Some((first, last)) if first == last => addresses.push(first.to_string().into()),
            Some((first, last)) => addresses.push(format!("{first}-{last}").into()),
            None => {
                let means = "it is no address and no range";
                report.lost(&inner.place, inner.word(0), means, "write ADDRESS or FIRST-LAST");
            }
        }
    }
    let word = statement.word(0);
    if addresses.is_empty() {
        let means = "a group without addresses";
        report.lost(&statement.place, word, means, "a [[pool]] has at least one");
        return None;
    }
    let mut table = Table::new();
    table.insert("name".to_owned(), plain_name(statement.word(1)).into());
    table.insert("addresses".to_owned(), addresses.into());
    Some(Made { table, place: statement.place.clone(), end: statement.end })
}

fn clients(statement: &Statement, report: &mut Report) -> Vec<String> {
    report.done(&statement.place);
    let mut prefixes = Vec::new();
    for inner in statement.inside() {
        let text = inner.word(0);
        match range(text) {
            Some((first, last)) if first == last => prefixes.push(first.to_string()),
            Some((first, _)) if text.contains('/') => {
                let length = text.rsplit_once('/').map_or("", |(_, length)| length);
                prefixes.push(format!("{first}/{length}"));
            }
            Some((first, last)) => prefixes.push(format!("{first}-{last}")),
            None => {
                let means = "it is no address (sets of `ipset` are not known)";
                report.lost(&inner.place, text, means, "write addresses and prefixes");
                continue;
            }
        }
        report.done(&inner.place);
    }
    prefixes
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn of_bits(bits: u128, is_v4: bool) -> IpAddr {
    match is_v4 {
        true => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).into(),
        false => Ipv6Addr::from_bits(bits).into(),
    }
}

/// An address, `FIRST-LAST`, where LAST may be its last part only, or a prefix; at most 65535
/// addresses.
pub fn range(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = if let Some((first, length)) = text.split_once('/') {
        let first: IpAddr = first.parse().ok()?;
        let width = if first.is_ipv4() { 32 } else { 128 };
        let length: u32 = length.parse().ok().filter(|length| *length <= width)?;
        let host = 1u128.checked_shl(width - length).map_or(u128::MAX, |size| size - 1);
        let base = bits(first) & !host;
        (of_bits(base, first.is_ipv4()), of_bits(base | host, first.is_ipv4()))
    } else if let Some((first, last)) = text.split_once('-') {
        let first: IpAddr = first.parse().ok()?;
        (first, last_of(first, last)?)
    } else {
        let address = text.parse().ok()?;
        (address, address)
    };
    let same_family = first.is_ipv4() == last.is_ipv4();
    let count = bits(last).checked_sub(bits(first))?;
    (same_family && count < MOST).then_some((first, last))
}

/// The end of a range: a whole address, or what its last part is.
fn last_of(first: IpAddr, text: &str) -> Option<IpAddr> {
    if let Ok(last) = text.parse() {
        return Some(last);
    }
    match first {
        IpAddr::V4(first) => {
            let part: u8 = text.parse().ok()?;
            Some(Ipv4Addr::from_bits(first.to_bits() & !0xff | u32::from(part)).into())
        }
        IpAddr::V6(first) => {
            let part = u16::from_str_radix(text, 16).ok()?;
            Some(Ipv6Addr::from_bits(first.to_bits() & !0xffff | u128::from(part)).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_manual() {
        let is = |text: &str, first: &str, last: &str| {
            let whole = (first.parse().expect("one"), last.parse().expect("one"));
            assert_eq!(range(text), Some(whole), "{text}");
        };
        is("192.0.2.3", "192.0.2.3", "192.0.2.3");
        is("192.0.2.3-10", "192.0.2.3", "192.0.2.10");
        is("192.0.2.250-192.0.3.10", "192.0.2.250", "192.0.3.10");
        is("192.0.2.8/29", "192.0.2.8", "192.0.2.15");
        is("2001:db8::2-1f", "2001:db8::2", "2001:db8::1f");
        is("2001:db8::/120", "2001:db8::", "2001:db8::ff");
        for wrong in ["", "-", "/", "192.0.2.9-3", "192.0.2.1-2001:db8::1", "2001:db8::/64", "0/0"]
        {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }
}
