//! A rule: one thing that is taken from a port, in the same words for all back-ends.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::matches::{EndpointMatch, LocalMatch, Matches, Network, SnatMatch};

/// ICMP's protocol number.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// ICMPv6's protocol number.
const ICMP_V6: u8 = 58;

/// What a rule is for. Rules are listed and made in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Packets to a virtual service.
    Service,
    /// Packets to a port of a local address.
    Local,
    /// A VXLAN's packets.
    Vxlan,
    /// Answers of a real server of NAT mode.
    Real,
    /// Connections that source NAT translates.
    Snat,
    /// ICMP errors about a tunnel's outer packets.
    TunnelError,
    /// A single flow, to the worker that owns its session.
    Elephant,
}

impl Kind {
    /// Its name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Local => "local",
            Self::Vxlan => "vxlan",
            Self::Real => "real",
            Self::Snat => "snat",
            Self::TunnelError => "tunnel_error",
            Self::Elephant => "elephant",
        }
    }
}

/// Which protocols a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Every protocol but ICMP, IGMP, ICMPv6, OSPF and VRRP.
    AllButControl,
    /// The one with this number.
    Number(u8),
}

/// A range of ports, or of ICMP identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ports {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl Ports {
    /// All of them.
    pub const ALL: Self = Self { first: 0, last: u16::MAX };

    /// The range.
    pub const fn range(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    /// Whether it is a single port.
    pub const fn is_one(self) -> bool {
        self.first == self.last
    }
}

impl From<&RangeInclusive<u16>> for Ports {
    fn from(range: &RangeInclusive<u16>) -> Self {
        Self { first: *range.start(), last: *range.end() }
    }
}

/// Ports of a local address that belong to one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owned {
    /// The ports.
    pub ports: Ports,
    /// The worker's number.
    pub worker: u16,
}

/// A rule. Equal rules are the same rule: its identity is what it says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// What it is for.
    pub kind: Kind,
    /// Number of the network that its packets are in, 0 for the default one.
    pub network: u16,
    /// Whether it is about packets inside of the network's VXLANs.
    pub inner: bool,
    /// Protocols.
    pub protocol: Protocol,
    /// Destinations; `None` for all.
    pub destination: Option<Network>,
    /// Destination ports, or identifiers of answers to ping.
    pub destination_ports: Ports,
    /// Sources; `None` for all.
    pub source: Option<Network>,
    /// Source ports.
    pub source_ports: Ports,
    /// Destinations that are not meant.
    pub except: Vec<Network>,
    /// Number of the VXLAN.
    pub vni: Option<u32>,
    /// Which worker has which of the destination ports; empty where no worker has any of its own.
    /// Of a single flow: its owner.
    pub owners: Vec<Owned>,
}

impl Rule {
    fn new(kind: Kind, network: u16, protocol: Protocol) -> Self {
        Self {
            kind,
            network,
            inner: false,
            protocol,
            destination: None,
            destination_ports: Ports::ALL,
            source: None,
            source_ports: Ports::ALL,
            except: Vec::new(),
            vni: None,
            owners: Vec::new(),
        }
    }

    /// That of a flow, by source and destination of its packets as they arrive.
    pub fn of_flow(
        network: u16,
        protocol: u8,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
        owner: u16,
    ) -> Self {
        let one = |port| Ports { first: port, last: port };
        Self {
            source: Some(host(from.0)),
            source_ports: one(from.1),
            destination: Some(host(to.0)),
            destination_ports: one(to.1),
            owners: vec![Owned { ports: one(to.1), worker: owner }],
            ..Self::new(Kind::Elephant, network, Protocol::Number(protocol))
        }
    }

    /// Whether it takes the same packets as another one, whatever becomes of them.
    pub fn same_packets(&self, other: &Self) -> bool {
        (self.kind, self.network, self.inner, self.protocol, self.vni)
            == (other.kind, other.network, other.inner, other.protocol, other.vni)
            && (self.destination, self.destination_ports)
                == (other.destination, other.destination_ports)
            && (self.source, self.source_ports) == (other.source, other.source_ports)
            && self.except == other.except
    }

    /// The source as it is shown, if it matters.
    pub fn source_text(&self) -> Option<String> {
        shown(self.source, self.source_ports)
    }

    /// The destination as it is shown, if it matters.
    pub fn destination_text(&self) -> Option<String> {
        shown(self.destination, self.destination_ports)
    }

    /// The protocol as it is shown.
    pub fn protocol_text(&self) -> String {
        match self.protocol {
            Protocol::AllButControl => "any".to_owned(),
            Protocol::Number(ICMP) => "icmp".to_owned(),
            Protocol::Number(TCP) => "tcp".to_owned(),
            Protocol::Number(UDP) => "udp".to_owned(),
            Protocol::Number(ICMP_V6) => "icmpv6".to_owned(),
            Protocol::Number(132) => "sctp".to_owned(),
            Protocol::Number(other) => other.to_string(),
        }
    }
}

/// What it matches, in words: `tcp to 198.51.100.200:80`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.protocol_text())?;
        if self.kind == Kind::TunnelError {
            f.write_str(" errors")?;
        }
        if let Some(source) = self.source_text() {
            write!(f, " from {source}")?;
        }
        if let Some(destination) = self.destination_text() {
            write!(f, " to {destination}")?;
        }
        let except = self.except.iter().map(|net| shown(Some(*net), Ports::ALL));
        let except: Vec<String> = except.flatten().collect();
        if !except.is_empty() {
            write!(f, " but not to {}", except.join(", "))?;
        }
        if let Some(vni) = self.vni {
            write!(f, " vni {vni}")?;
        }
        if self.inner {
            f.write_str(" inside vxlan")?;
        }
        Ok(())
    }
}

fn shown(network: Option<Network>, ports: Ports) -> Option<String> {
    let address = match network {
        Some(Network { address, prefix }) if prefix < width(address) => {
            format!("{address}/{prefix}")
        }
        Some(Network { address, .. }) => address.to_string(),
        None if ports == Ports::ALL => return None,
        None => "*".to_owned(),
    };
    if ports == Ports::ALL {
        return Some(address);
    }
    let address = if address.contains(':') { format!("[{address}]") } else { address };
    Some(match ports.is_one() {
        true => format!("{address}:{}", ports.first),
        false => format!("{address}:{}-{}", ports.first, ports.last),
    })
}

/// How many bits an address has.
pub(crate) const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A single address as a network.
const fn host(address: IpAddr) -> Network {
    Network { address, prefix: width(address) }
}

/// Whether an address is in a network.
pub(crate) fn contains(network: Network, address: IpAddr) -> bool {
    let same_version = network.address.is_ipv4() == address.is_ipv4();
    same_version && normal(Network { address, ..network }) == normal(network)
}

/// A network with the bits behind its prefix cleared, so that equal networks are equal.
fn normal(network: Network) -> Network {
    let prefix = network.prefix.min(width(network.address));
    let address = match network.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    };
    Network { address, prefix }
}

/// The rules that matches are, in order and each once. `owners` tells of a local address which of
/// its ports belong to which worker.
pub fn rules_of(
    matches: &Matches,
    network: u16,
    owners: impl Fn(IpAddr) -> Vec<Owned>,
) -> Vec<Rule> {
    let mut rules = BTreeSet::new();
    rules.extend(matches.services.iter().map(|it| endpoint(Kind::Service, network, it)));
    rules.extend(matches.reals.iter().map(|it| endpoint(Kind::Real, network, it)));
    for local in &matches.locals {
        let of_it = locals(network, local);
        let owners = owners(local.address);
        rules.extend(of_it.map(|rule| Rule { owners: owners.clone(), ..rule }));
        rules.extend(echo(network, local));
    }
    rules.extend(matches.snat.iter().flat_map(|rule| snat(network, rule)));
    rules.extend(matches.tunnels.iter().map(|outer| tunnel_error(network, *outer)));
    for vxlan in matches.vxlan.iter().filter(|vxlan| vxlan.network != 0) {
        rules.insert(Rule {
            destination: Some(host(vxlan.local)),
            destination_ports: Ports { first: vxlan.port, last: vxlan.port },
            vni: Some(vxlan.vni),
            ..Rule::new(Kind::Vxlan, vxlan.network, Protocol::Number(UDP))
        });
    }
    for inner in matches.inner.iter().filter(|inner| inner.network != 0) {
        let services = inner.services.iter().map(|it| endpoint(Kind::Service, inner.network, it));
        let pools = inner.locals.iter();
        let pools = pools.flat_map(|it| locals(inner.network, it).chain(echo(inner.network, it)));
        let errors = inner.tunnels.iter().map(|outer| tunnel_error(inner.network, *outer));
        let all = services.chain(pools).chain(errors);
        rules.extend(all.map(|rule| Rule { inner: true, ..rule }));
    }
    rules.into_iter().collect()
}

fn tunnel_error(network: u16, outer: Network) -> Rule {
    let protocol = if outer.address.is_ipv4() { ICMP } else { ICMP_V6 };
    let rule = Rule::new(Kind::TunnelError, network, Protocol::Number(protocol));
    Rule { destination: Some(normal(outer)), ..rule }
}

fn endpoint(kind: Kind, network: u16, it: &EndpointMatch) -> Rule {
    let (protocol, ports) = match it.protocol {
        0 => (Protocol::AllButControl, Ports::ALL),
        number => (Protocol::Number(number), Ports::from(&it.ports)),
    };
    let (address, rule) = (Some(host(it.address)), Rule::new(kind, network, protocol));
    match kind {
        Kind::Real => Rule { source: address, source_ports: ports, ..rule },
        _ => Rule { destination: address, destination_ports: ports, ..rule },
    }
}

fn locals(network: u16, local: &LocalMatch) -> impl Iterator<Item = Rule> {
    let (address, ports) = (Some(host(local.address)), Ports::from(&local.ports));
    [TCP, UDP].into_iter().map(move |protocol| Rule {
        destination: address,
        destination_ports: ports,
        ..Rule::new(Kind::Local, network, Protocol::Number(protocol))
    })
}

/// Answers to ping that come to a local address.
fn echo(network: u16, local: &LocalMatch) -> Option<Rule> {
    let protocol = if local.address.is_ipv4() { ICMP } else { ICMP_V6 };
    local.echo.then(|| Rule {
        destination: Some(host(local.address)),
        destination_ports: Ports::from(&local.ports),
        ..Rule::new(Kind::Local, network, Protocol::Number(protocol))
    })
}

impl SnatMatch {
    /// Its rules in a network.
    pub fn rules(&self, network: u16) -> Vec<Rule> {
        snat(network, self)
    }
}

/// A rule for each pair of a source and a destination of the same family, and each protocol.
fn snat(network: u16, rule: &SnatMatch) -> Vec<Rule> {
    let mut rules = Vec::new();
    for source in &rule.sources {
        let v4 = source.address.is_ipv4();
        let icmp = if v4 { ICMP } else { ICMP_V6 };
        let protocols = [(rule.tcp, TCP), (rule.udp, UDP), (rule.icmp, icmp)];
        let same = |net: &&Network| net.address.is_ipv4() == v4;
        let to = rule.destinations.iter().filter(same).map(|net| Some(normal(*net)));
        let anywhere = rule.destinations.is_empty().then_some(None);
        let mut except: Vec<Network> = rule.except.iter().filter(same).copied().collect();
        except = except.into_iter().map(normal).collect();
        except.sort_unstable();
        except.dedup();
        for destination in to.chain(anywhere) {
            for (_, protocol) in protocols.iter().filter(|(wanted, _)| *wanted) {
                rules.push(Rule {
                    source: Some(normal(*source)),
                    destination,
                    except: except.clone(),
                    ..Rule::new(Kind::Snat, network, Protocol::Number(*protocol))
                });
            }
        }
    }
    rules
}

/// What leads from one list of rules to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Rules that are new.
    pub create: Vec<Rule>,
    /// Rules for packets that an older rule takes with other owners: old and new.
    pub replace: Vec<(Rule, Rule)>,
    /// Rules that are gone.
    pub destroy: Vec<Rule>,
}

/// What leads from one set of rules to another. A rule of both is in no part of it.
pub fn diff<'r>(
    old: impl IntoIterator<Item = &'r Rule>,
    new: impl IntoIterator<Item = &'r Rule>,
) -> Diff {
    let (old, new): (BTreeSet<&Rule>, BTreeSet<&Rule>) =
        (old.into_iter().collect(), new.into_iter().collect());
    let mut gone: BTreeSet<&Rule> = old.difference(&new).copied().collect();
    let mut diff = Diff::default();
    for rule in new.difference(&old) {
        // Rules for the same packets are neighbours in the order: owners come last in it.
        let bare = Rule { owners: Vec::new(), ..(*rule).clone() };
        let before =
            gone.range::<Rule, _>(&bare..).next().copied().filter(|it| it.same_packets(rule));
        match before {
            Some(before) => {
                gone.remove(before);
                diff.replace.push((before.clone(), (*rule).clone()));
            }
            None => diff.create.push((*rule).clone()),
        }
    }
    diff.destroy = gone.into_iter().cloned().collect();
    diff
}

#[cfg(test)]
mod tests;
