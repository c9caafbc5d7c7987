//! From a rule to what a NIC is to match, within the limits of its driver.

use std::net::IpAddr;

use crate::blocks::blocks;
use crate::limits::{Limits, Masks, SpreadBy};
use crate::matches::Network;
use crate::rule::{Kind, Owned, Ports, Protocol, Rule, width};

/// Entries of a NIC's table that a rule may take. A range of ports takes up to 30.
const MOST_FLOWS: usize = 256;

/// Addresses or ports under a mask, at one end of a packet. Zero masks match everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address: its first 4 or all 16 bytes.
    pub address: [u8; 16],
    /// Bits of the address that count.
    pub address_mask: [u8; 16],
    /// The port.
    pub port: u16,
    /// Bits of the port that count.
    pub port_mask: u16,
}

/// Addresses of which family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addresses {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What receives the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// One queue.
    Queue(u16),
    /// All of so many queues, by an RSS action.
    Spread(u16),
    /// One of so many queues, by no action: as without the rule.
    Unchanged(u16),
}

/// An entry of a NIC's table: a rule is one or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The family.
    pub addresses: Addresses,
    /// IP protocol number.
    pub protocol: u8,
    /// The source.
    pub source: Endpoint,
    /// The destination.
    pub destination: Endpoint,
    /// Number of the VXLAN, behind UDP.
    pub vni: Option<u32>,
    /// Of several entries for a packet the one with the lowest number counts, if the NIC has an
    /// order.
    pub priority: u8,
    /// Whether packets are counted.
    pub count: bool,
    /// What receives them.
    pub target: Target,
}

impl Flow {
    /// Which fields it matches: those with a mask.
    pub(crate) fn fields(&self) -> [bool; 4] {
        let has = |end: &Endpoint| [end.address_mask != [0; 16], end.port_mask != 0];
        let ([from, from_port], [to, to_port]) = (has(&self.source), has(&self.destination));
        [from, from_port, to, to_port]
    }
}

/// The NIC's entries for a rule on a port with so many queues, or why the driver cannot have it. A
/// rule that would neither choose a queue nor count is not made: some drivers receive slower once
/// they have any.
pub fn compile(rule: &Rule, limits: &Limits, queues: u16) -> Result<Vec<Flow>, String> {
    let protocol = possible(rule, limits)?;
    let some = rule.destination.or(rule.source);
    let v4 = some.is_none_or(|network| network.address.is_ipv4());
    let fixed = Flow {
        addresses: if v4 { Addresses::V4 } else { Addresses::V6 },
        protocol,
        source: masked(rule.source, limits)?,
        destination: masked(rule.destination, limits)?,
        vni: rule.vni,
        // A single flow's is before all others.
        priority: u8::from(limits.priorities.is_there() && rule.kind != Kind::Elephant),
        count: limits.count.is_there(),
        // Each part has its own.
        target: Target::Queue(0),
    };
    let from = port_blocks(rule.source_ports, limits)?;
    let mut flows = Vec::new();
    for (ports, target) in parts(rule, limits, queues)? {
        for to in port_blocks(ports, limits)? {
            for from in &from {
                let mut flow = Flow { target, ..fixed };
                (flow.source.port, flow.source.port_mask) = *from;
                (flow.destination.port, flow.destination.port_mask) = to;
                flows.push(flow);
            }
        }
    }
    let names_ports = flows.iter().any(|flow| flow.fields()[1] || flow.fields()[3]);
    if names_ports && !v4 && !limits.ports_of_v6.is_there() {
        return Err(format!("{} has no rules for ports of IPv6", limits.name()));
    }
    let steers = |flow: &Flow| matches!(flow.target, Target::Queue(_)) && queues > 1;
    if !limits.count.is_there() && !flows.iter().any(steers) {
        let as_without = if queues > 1 { "all queues receive, as without it" } else { "one queue" };
        return Err(format!("not needed: {as_without}, and {} does not count", limits.name()));
    }
    match flows.len() {
        1..=MOST_FLOWS => Ok(flows),
        many => Err(format!("it would take {many} entries of the NIC's table")),
    }
}

/// The protocol of a rule that a NIC could have at all.
fn possible(rule: &Rule, limits: &Limits) -> Result<u8, String> {
    if rule.inner {
        return Err("inside VXLAN: the rule for the VXLAN brings it".to_owned());
    }
    if rule.kind == Kind::TunnelError {
        return Err("an ICMP error is known by the packet that it quotes".to_owned());
    }
    if !rule.except.is_empty() {
        return Err("a flow rule has no exceptions, and this one excepts networks".to_owned());
    }
    let protocol = match rule.protocol {
        Protocol::Number(number) => number,
        Protocol::AllButControl => {
            return Err("a flow rule cannot except ICMP, IGMP, OSPF and VRRP".to_owned());
        }
    };
    if matches!(protocol, 1 | 58) {
        return Err("the identifier of a ping is looked up in software".to_owned());
    }
    if rule.vni.is_some() && !limits.vni.is_there() {
        return Err(format!("{} is not asked to match a VXLAN's number", limits.name()));
    }
    Ok(protocol)
}

impl Limits {
    /// The driver's name in a sentence.
    fn name(&self) -> &str {
        if self.driver.is_empty() { "this driver" } else { self.driver }
    }
}

/// The target of packets that may come to any queue.
fn spread(limits: &Limits, queues: u16) -> Result<Target, String> {
    match limits.spread {
        _ if queues < 2 => Ok(Target::Queue(0)),
        SpreadBy::Rss => Ok(Target::Spread(queues)),
        SpreadBy::MarkOnly => Ok(Target::Unchanged(queues)),
        SpreadBy::Nothing => {
            Err(format!("a rule of {} names one queue, and all are to receive", limits.name()))
        }
    }
}

/// Which destination ports go where. Queues go round the workers, so worker N polls queue N if the
/// port has that many.
fn parts(rule: &Rule, limits: &Limits, queues: u16) -> Result<Vec<(Ports, Target)>, String> {
    if rule.kind == Kind::Elephant {
        return Ok(vec![(rule.destination_ports, owners_queue(rule, limits, queues)?)]);
    }
    let own_queues = rule.owners.len() > 1 && rule.owners.iter().all(|it| it.worker < queues);
    if !own_queues {
        return Ok(vec![(rule.destination_ports, spread(limits, queues)?)]);
    }
    let part = |owned: &Owned| {
        let first = owned.ports.first.max(rule.destination_ports.first);
        let last = owned.ports.last.min(rule.destination_ports.last);
        (first <= last).then_some((Ports { first, last }, Target::Queue(owned.worker)))
    };
    Ok(rule.owners.iter().filter_map(part).collect())
}

/// Where a single flow comes: to the queue of its owner. A queue that it alone has would isolate it
/// better, but would have to be taken out of the hash, for all flows and for as long as the port is
/// open.
fn owners_queue(rule: &Rule, limits: &Limits, queues: u16) -> Result<Target, String> {
    if queues < 2 {
        return Err("not needed: one queue".to_owned());
    }
    if !limits.vectors.is_there() {
        let name = limits.name();
        return Err(format!("rules of {name} end vector reception, which costs all other flows"));
    }
    let owner = rule.owners.first().map(|owner| owner.worker).filter(|worker| *worker < queues);
    owner.map(Target::Queue).ok_or("its owner has no queue of its own at this port".to_owned())
}

fn masked(network: Option<Network>, limits: &Limits) -> Result<Endpoint, String> {
    let Some(Network { address, prefix }) = network else { return Ok(Endpoint::default()) };
    let bits = width(address);
    if prefix > 0 && prefix < bits && limits.addresses == Masks::Exact {
        return Err(format!("{} is asked for whole addresses only, not /{prefix}", limits.name()));
    }
    let mut end = Endpoint::default();
    match address {
        IpAddr::V4(address) => end.address[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => end.address = address.octets(),
    }
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    end.address_mask = mask.to_be_bytes();
    Ok(end)
}

/// Values and masks that make up a range of ports.
fn port_blocks(ports: Ports, limits: &Limits) -> Result<Vec<(u16, u16)>, String> {
    if ports == Ports::ALL {
        return Ok(vec![(0, 0)]);
    }
    if !ports.is_one() && limits.ports == Masks::Exact {
        return Err(format!(
            "{} is asked for single ports only, not {}-{}",
            limits.name(),
            ports.first,
            ports.last
        ));
    }
    let mask = |bits: u32| u16::MAX.checked_shl(16 - bits).unwrap_or(0);
    Ok(blocks(&ports.range()).into_iter().map(|(first, bits)| (first, mask(bits))).collect())
}

#[cfg(test)]
mod tests;
