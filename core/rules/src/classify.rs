//! Which rule takes a packet: the software classifier, for whoever shows what rules do. The packet
//! path has its own lookup, of sessions and services, which knows no rules.
//!
//! Of several the narrowest counts, as in the XDP program: what names its destination before what
//! names its source, fewer protocols, ports and addresses before more.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::matches::Network;
use crate::rule::{Kind, Protocol, Rule, contains};

/// What rules ask of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// What it carries.
    pub carries: Carries,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carries {
    /// Source and destination port.
    Ports(u16, u16),
    /// A VXLAN's packet, between these ports, of the network with this identifier.
    Vxlan(u16, u16, u32),
    /// A question of ping, or its answer, with this identifier.
    Echo {
        /// Whether it is the answer.
        answer: bool,
        /// The identifier.
        id: u16,
    },
    /// An ICMP error.
    Error,
    /// None of it: another protocol, or a later fragment.
    Other,
}

impl Packet {
    fn ports(&self) -> Option<(u16, u16)> {
        match self.carries {
            Carries::Ports(from, to) | Carries::Vxlan(from, to, _) => Some((from, to)),
            // Rules are about answers that come to a local address.
            Carries::Echo { answer: true, id } => Some((0, id)),
            Carries::Echo { .. } | Carries::Error | Carries::Other => None,
        }
    }
}

impl Rule {
    /// Whether the rule takes a packet of its network.
    pub fn takes(&self, packet: &Packet) -> bool {
        let control = matches!(packet.protocol, 1 | 2 | 58 | 89 | 112);
        let protocol = match self.protocol {
            Protocol::AllButControl => !control,
            Protocol::Number(number) => number == packet.protocol,
        };
        let within = |network: Option<Network>, address| {
            network.is_none_or(|network| contains(network, address))
        };
        let addresses =
            within(self.source, packet.source) && within(self.destination, packet.destination);
        let excepted = self.except.iter().any(|net| contains(*net, packet.destination));
        let vni = self.vni.is_none_or(
            |vni| matches!(packet.carries, Carries::Vxlan(_, _, carried) if carried == vni),
        );
        protocol && addresses && !excepted && vni && self.takes_kind(packet)
    }

    fn takes_kind(&self, packet: &Packet) -> bool {
        match (self.kind, packet.carries) {
            (Kind::TunnelError, Carries::Error) => true,
            (Kind::TunnelError, _) | (_, Carries::Error) => false,
            // Source NAT is for who asks, pools for who answers.
            (Kind::Snat, Carries::Echo { answer, .. }) => !answer,
            (_, Carries::Echo { answer: false, .. }) => false,
            _ if self.takes_all_ports() => true,
            _ => packet.ports().is_some_and(|(from, to)| {
                self.source_ports.range().contains(&from)
                    && self.destination_ports.range().contains(&to)
            }),
        }
    }

    fn takes_all_ports(&self) -> bool {
        let all = |ports: crate::rule::Ports| ports == crate::rule::Ports::ALL;
        all(self.source_ports) && all(self.destination_ports)
    }

    /// How narrow it is: the narrower, the less.
    fn width(&self) -> impl Ord + use<> {
        let rank = match self.kind {
            Kind::Elephant => 0,
            Kind::Vxlan => 1,
            Kind::Service => 2,
            Kind::Local => 3,
            Kind::TunnelError => 4,
            Kind::Real => 5,
            Kind::Snat => 6,
        };
        let ports = |ports: crate::rule::Ports| u32::from(ports.last - ports.first);
        let prefix = |net: Option<Network>| Reverse(net.map_or(0, |net| net.prefix));
        let ports = ports(self.source_ports) + ports(self.destination_ports);
        let all = self.protocol == Protocol::AllButControl;
        (rank, all, ports, prefix(self.destination), prefix(self.source))
    }
}

/// The place of the rule that takes a packet.
pub fn classify<'r>(rules: impl IntoIterator<Item = &'r Rule>, packet: &Packet) -> Option<usize> {
    let taking = rules.into_iter().enumerate().filter(|(_, rule)| rule.takes(packet));
    taking.min_by_key(|(_, rule)| rule.width()).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matches::{EndpointMatch, LocalMatch, Matches, SnatMatch};
    use crate::rule::rules_of;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn packet(protocol: u8, from: (&str, u16), to: (&str, u16)) -> Packet {
        let (source, destination) = (ip(from.0), ip(to.0));
        Packet { protocol, source, destination, carries: Carries::Ports(from.1, to.1) }
    }

    fn rules() -> Vec<Rule> {
        let vip = ip("198.51.100.200");
        let any = EndpointMatch { protocol: 0, address: vip, ports: 0..=0 };
        let range = EndpointMatch { protocol: 6, address: vip, ports: 8000..=8099 };
        let locals = [true, false].map(|echo| LocalMatch {
            address: ip(if echo { "192.0.2.10" } else { "2001:db8:2::10" }),
            ports: 1024..=2047,
            echo,
        });
        let network = |text: &str, prefix| Network { address: ip(text), prefix };
        let snat = SnatMatch {
            sources: vec![network("192.0.2.0", 24)],
            except: vec![network("192.0.2.0", 24)],
            tcp: true,
            icmp: true,
            ..SnatMatch::default()
        };
        let matches = Matches {
            services: vec![any, EndpointMatch::port(6, vip, 8001), range],
            locals: locals.to_vec(),
            reals: vec![EndpointMatch::port(6, ip("192.0.2.11"), 80)],
            snat: vec![snat],
            tunnels: vec![network("198.51.100.64", 28)],
            ..Matches::default()
        };
        rules_of(&matches, 0, |_| Vec::new())
    }

    fn taken(packet: &Packet) -> Option<String> {
        let rules = rules();
        classify(&rules, packet).map(|at| format!("{:?} {}", rules[at].kind, rules[at]))
    }

    #[test]
    fn the_narrowest_rule_takes_a_packet() {
        let client = ("203.0.113.9", 4000);
        let vip = |port| ("198.51.100.200", port);
        for (packet, expected) in [
            (packet(6, client, vip(8001)), Some("Service tcp to 198.51.100.200:8001")),
            (packet(6, client, vip(8002)), Some("Service tcp to 198.51.100.200:8000-8099")),
            (packet(17, client, vip(8001)), Some("Service any to 198.51.100.200")),
            (packet(89, client, vip(0)), None),
            (packet(6, client, ("198.51.100.201", 80)), None),
            (
                packet(6, ("192.0.2.11", 80), ("192.0.2.10", 1500)),
                Some("Local tcp to 192.0.2.10:1024-2047"),
            ),
            (
                packet(6, ("192.0.2.11", 80), ("192.0.2.10", 80)),
                Some("Real tcp from 192.0.2.11:80"),
            ),
            (packet(6, ("192.0.2.11", 80), client), Some("Real tcp from 192.0.2.11:80")),
            (packet(6, ("192.0.2.11", 81), client), Some(SNAT)),
            (packet(6, ("192.0.2.11", 81), ("192.0.2.12", 80)), None),
            (packet(17, ("192.0.2.11", 81), client), None),
        ] {
            assert_eq!(taken(&packet).as_deref(), expected, "{packet:?}");
        }
    }

    const SNAT: &str = "Snat tcp from 192.0.2.0/24 but not to 192.0.2.0/24";

    #[test]
    fn pings_errors_and_later_fragments() {
        let packet = |protocol, from, to, carries| Packet {
            protocol,
            source: ip(from),
            destination: ip(to),
            carries,
        };
        let echo = |answer| Carries::Echo { answer, id: 1500 };
        let vip = "198.51.100.200";
        for (packet, expected) in [
            (packet(1, "203.0.113.9", "192.0.2.10", echo(true)), true),
            (packet(1, "203.0.113.9", "192.0.2.10", echo(false)), false),
            (packet(1, "192.0.2.11", "203.0.113.9", echo(false)), true),
            (packet(1, "192.0.2.11", "203.0.113.9", echo(true)), false),
            (packet(1, "203.0.113.9", "198.51.100.70", Carries::Error), true),
            (packet(1, "203.0.113.9", "198.51.100.90", Carries::Error), false),
            // Only the service of any protocol needs no port.
            (packet(6, "203.0.113.9", vip, Carries::Other), true),
            (packet(6, "203.0.113.9", "192.0.2.10", Carries::Other), false),
        ] {
            assert_eq!(taken(&packet).is_some(), expected, "{packet:?}");
        }
    }

    #[test]
    fn a_vxlan_is_known_by_its_number() {
        let rule = |vni| Rule {
            vni: Some(vni),
            destination: Some(Network { address: ip("198.51.100.1"), prefix: 32 }),
            ..Rule::of_flow(1, 17, (ip("203.0.113.9"), 9), (ip("198.51.100.1"), 4789), 0)
        };
        let of =
            |carries| Packet { carries, ..packet(17, ("203.0.113.9", 9), ("198.51.100.1", 9)) };
        let rules = [rule(100), rule(101)];
        assert_eq!(classify(&rules, &of(Carries::Vxlan(9, 4789, 101))), Some(1));
        assert_eq!(classify(&rules, &of(Carries::Ports(9, 4789))), None);
    }
}
