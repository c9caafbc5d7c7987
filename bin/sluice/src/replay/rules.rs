//! Which steering rule takes each packet of a replay (`--rules`): the rules that a running director
//! would have for its ports, as far as the configuration says them, and the packets by rule.
//!
//! A running director makes them narrower by the machine's own addresses and the networks around
//! them, which a replay does not have. VXLANs are the kernel's devices, so there are none here.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use sluice_config::Config;
use sluice_director::plan::{Plan, Snat};
use sluice_director::spec::{self, Protocol};
use sluice_rules::{
    Carries, EndpointMatch, Kind, LocalMatch, Matches, Network, Packet, Rule, SnatMatch, classify,
    rules_of,
};
use sluice_wire::{ethernet, icmp, ipv4, ipv6, vxlan};

/// Packets by the rule that takes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RulesReport {
    /// The rules of each network, in order.
    pub rules: Vec<RuleReport>,
    /// Frames that no rule takes, by port: the kernel's, or nobody's.
    pub unmatched: BTreeMap<String, u64>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    /// Name of its network; left out for the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// What it is for: `service`, `local`, `real`, `snat`, `tunnel_error`.
    pub kind: &'static str,
    /// What it matches, in words.
    pub matches: String,
    /// Frames that it took, by port; ports without any are left out.
    pub hits: BTreeMap<String, u64>,
}

/// The rules of a configuration's networks, and what they took.
pub(super) struct Classifier {
    /// By the networks' numbers: its rules, with their hits by port.
    nets: Vec<Vec<(Rule, BTreeMap<u16, u64>)>>,
    unmatched: BTreeMap<u16, u64>,
}

impl Classifier {
    /// Those of plans, by the numbers of their networks.
    pub fn new<'p>(plans: impl Iterator<Item = &'p Plan>) -> Self {
        let rules = |(plan, number)| {
            let rules = rules_of(&matches(plan), number, |_| Vec::new());
            rules.into_iter().map(|rule| (rule, BTreeMap::new())).collect()
        };
        Self { nets: plans.zip(0..).map(rules).collect(), unmatched: BTreeMap::new() }
    }

    /// A port of a network has received a frame.
    pub fn note(&mut self, network: u16, port: u16, frame: &[u8]) {
        let Some(rules) = self.nets.get_mut(usize::from(network)) else { return };
        let of = |packet| classify(rules.iter().map(|(rule, _)| rule), &packet);
        let hits = match asked(frame).and_then(of) {
            Some(at) => &mut rules[at].1,
            None => &mut self.unmatched,
        };
        *hits.entry(port).or_default() += 1;
    }

    /// What was noted.
    pub fn report(&self, config: &Config) -> RulesReport {
        let name = |port: u16| config.ports.get(usize::from(port)).map(|port| port.name.clone());
        let named = |hits: &BTreeMap<u16, u64>| {
            hits.iter().filter_map(|(port, count)| Some((name(*port)?, *count))).collect()
        };
        let mut rules = Vec::new();
        for (of_net, number) in self.nets.iter().zip(0_usize..) {
            let network = number.checked_sub(1).and_then(|at| config.networks.get(at));
            rules.extend(of_net.iter().map(|(rule, hits)| RuleReport {
                network: network.map(|network| network.name.clone()),
                kind: kind(rule.kind),
                matches: rule.to_string(),
                hits: named(hits),
            }));
        }
        RulesReport { rules, unmatched: named(&self.unmatched) }
    }
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "service",
        Kind::Local => "local",
        Kind::Vxlan => "vxlan",
        Kind::Real => "real",
        Kind::Snat => "snat",
        Kind::TunnelError => "tunnel_error",
        Kind::Elephant => "elephant",
    }
}

/// What is taken for a plan, on a machine of which nothing is known.
fn matches(plan: &Plan) -> Matches {
    let endpoint = |(protocol, address, ports)| EndpointMatch { protocol, address, ports };
    let local = |(address, ports, echo)| LocalMatch { address, ports, echo };
    let reals = plan.reals.iter().filter(|real| real.live);
    Matches {
        services: plan.taken_for_services().map(endpoint).collect(),
        locals: plan.taken_for_locals().into_iter().map(local).collect(),
        reals: reals.filter_map(|real| plan.taken_from_real(real)).map(endpoint).collect(),
        snat: plan.snat_rules().map(|(_, _, rule)| snat(plan, rule)).collect(),
        tunnels: [plan.tunnel.v4, plan.tunnel.v6].into_iter().flatten().map(network).collect(),
        ..Matches::default()
    }
}

fn snat(plan: &Plan, rule: &Snat) -> SnatMatch {
    let has = |protocol| rule.protocols.is_empty() || rule.protocols.contains(&protocol);
    SnatMatch {
        sources: rule.sources.iter().copied().map(network).collect(),
        destinations: rule.destinations.iter().copied().map(network).collect(),
        except: plan.not_taken_by(rule).into_iter().map(network).collect(),
        tcp: has(Protocol::Tcp),
        udp: has(Protocol::Udp),
        icmp: has(Protocol::Icmp),
    }
}

const fn network(from: spec::Network) -> Network {
    Network { address: from.address, prefix: from.prefix }
}

/// What rules ask of a frame. An ICMP error is asked for as an answer to the packet that it
/// quotes: that is whose it is; one about a tunnel's packet as an error to its source.
fn asked(frame: &[u8]) -> Option<Packet> {
    let payload = ethernet::payload(frame)?;
    let bytes = frame.get(payload.offset..)?;
    let packet = match payload.ethertype {
        ethernet::IPV4 | ethernet::IPV6 => read(bytes)?,
        _ => return None,
    };
    let tunnel = |protocol: u8| matches!(protocol, 4 | 41 | 47);
    match (packet.0.carries, packet.1) {
        (Carries::Error, Some(quoted)) if !tunnel(quoted.protocol) => {
            let carries = match quoted.carries {
                Carries::Ports(from, to) | Carries::Vxlan(from, to, _) => Carries::Ports(to, from),
                Carries::Echo { answer, id } => Carries::Echo { answer: !answer, id },
                other => other,
            };
            let (source, destination) = (quoted.destination, quoted.source);
            Some(Packet { protocol: quoted.protocol, source, destination, carries })
        }
        _ => Some(packet.0),
    }
}

/// A packet, and of an ICMP error the one that it quotes.
fn read(bytes: &[u8]) -> Option<(Packet, Option<Packet>)> {
    let (protocol, source, destination, upper, later) = match bytes.first()? >> 4 {
        4 => {
            let header = ipv4::Header::parse_quoted(bytes).ok()?;
            let addresses = [header.source(), header.destination()].map(u32::to_be_bytes);
            let [source, destination] = addresses.map(IpAddr::from);
            let later = u16::from_be_bytes([*bytes.get(6)?, *bytes.get(7)?]) & 0x1fff != 0;
            (header.protocol(), source, destination, header.header_len(), later)
        }
        6 => {
            let header = bytes.first_chunk::<{ ipv6::HEADER }>()?;
            let address = |at: usize| -> Option<IpAddr> {
                let address: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
                Some(address.into())
            };
            let (source, destination) = (address(8)?, address(24)?);
            // What is quoted may be cut short, and has seldom more than its header.
            let walked = ipv6::walk(bytes).ok();
            let later = walked.and_then(|upper| upper.fragment).is_some_and(|it| it.offset != 0);
            let (protocol, at) = walked
                .map_or((header[ipv6::NEXT_HEADER], ipv6::HEADER), |it| (it.protocol, it.offset));
            (protocol, source, destination, at, later)
        }
        _ => return None,
    };
    let rest = bytes.get(upper..).filter(|_| !later).unwrap_or_default();
    let (carries, quoted) = carried(protocol, rest);
    let quoted = quoted.and_then(read).map(|(quoted, _)| quoted);
    Some((Packet { protocol, source, destination, carries }, quoted))
}

/// What follows a network header, and what it quotes.
fn carried(protocol: u8, rest: &[u8]) -> (Carries, Option<&[u8]>) {
    let word = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    let known = match protocol {
        ipv4::TCP | ipv4::UDP | 132 => word(0).zip(word(2)).map(|(from, to)| {
            let vni = rest.get(12..15).filter(|_| protocol == ipv4::UDP && to == vxlan::PORT);
            match vni {
                Some(vni) => {
                    Carries::Vxlan(from, to, u32::from_be_bytes([0, vni[0], vni[1], vni[2]]))
                }
                None => Carries::Ports(from, to),
            }
        }),
        1 | 58 => rest.first().map(|kind| {
            let id = word(icmp::ECHO_ID).unwrap_or_default();
            let (echo, reply, errors) = match protocol {
                1 => (icmp::v4::ECHO, icmp::v4::ECHO_REPLY, &[3, 4, 5, 11, 12][..]),
                _ => (icmp::v6::ECHO, icmp::v6::ECHO_REPLY, &[1, 2, 3, 4][..]),
            };
            match kind {
                kind if *kind == echo => Carries::Echo { answer: false, id },
                kind if *kind == reply => Carries::Echo { answer: true, id },
                kind if errors.contains(kind) => Carries::Error,
                _ => Carries::Other,
            }
        }),
        _ => None,
    };
    let known = known.unwrap_or(Carries::Other);
    (known, (known == Carries::Error).then(|| rest.get(icmp::HEADER..)).flatten())
}
