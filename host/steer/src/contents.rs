//! From what is to be taken to what each map is to hold.
//!
//! Rules of source NAT are told apart by where they apply and to which protocols; each such class
//! is a bit. A packet's classes are those of its source, of its destination and of its protocol
//! together (the bit vectors of Lakshman and Stiliadis, 1998): three lookups, however many rules.
//! A class keeps its bit as long as it exists, so that while the maps change one after another no
//! packet of a rule that stays is missed.
//!
//! Values name the rule that takes a packet, whose hits the program counts by that number.
//!
//! What isolated networks have is kept in the same maps as what the default one has, told apart by
//! the network's number in the keys.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_rules::{Kind, Matches, Network, Ports, Protocol, Rule, SnatMatch, VxlanMatch, blocks};

use crate::layout::{
    ALL_PORTS, ANY_VNI, AddressInKey, AddressKey, BY_NETWORK, BY_SOURCE, BY_TUNNEL, EVERYTHING,
    End, EndpointKey, LOCAL, LOCAL_ECHO, OWN, PORT_BITS_START, PortKey, PrefixKey, Role, RoleValue,
    SOME_PORTS, SOME_RANGES, SettingsValue, VXLAN_PORTS, VxlanKey, VxlanValue, WHOLE_RULES,
    address_in_key, class, endpoint_key, masked, port_bit, prefix_in_key, prefix_key, vxlan_key,
};
use crate::{Error, Result};

/// How many classes of source NAT there may be: bits of the maps' values.
pub(crate) const CLASSES: usize = 64;

/// What each map is to hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub addresses: BTreeMap<AddressInKey, RoleValue>,
    pub endpoints: BTreeMap<EndpointKey, u16>,
    pub ranges: BTreeMap<PrefixKey<24>, u16>,
    pub inside: BTreeMap<PrefixKey<16>, u64>,
    pub outside: BTreeMap<PrefixKey<16>, u64>,
    pub tunnels: BTreeMap<PrefixKey<20>, u16>,
    pub tunnel_ports: BTreeMap<PortKey, u8>,
    pub vxlans: BTreeMap<VxlanKey, VxlanValue>,
    pub settings: SettingsValue,
}

/// A rule, and its number.
pub(crate) type Numbered<'r> = (&'r Rule, u16);

/// What each address is in each network; 0 for what is in no VXLAN.
type Roles = BTreeMap<(u16, IpAddr), Role>;

/// A rule of source NAT, and the bit of its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnatClass<'m> {
    pub bit: u64,
    pub rule: &'m SnatMatch,
}

/// Where rules of source NAT apply, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    destinations: Vec<Network>,
    except: Vec<Network>,
    protocols: [bool; 3],
}

impl Class {
    fn of(rule: &SnatMatch) -> Self {
        Self {
            destinations: rule.destinations.clone(),
            except: rule.except.clone(),
            protocols: [rule.tcp, rule.udp, rule.icmp],
        }
    }
}

/// The classes by their bit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes(Vec<Option<Class>>);

impl Classes {
    /// Gives each rule's class a bit: the one it has, or else a free one.
    pub fn assign<'m>(&mut self, rules: &'m [SnatMatch]) -> Result<Vec<SnatClass<'m>>> {
        let wanted: Vec<Class> = rules.iter().map(Class::of).collect();
        // Bits that were in use up to now come last: the maps still have them.
        let mut free: Vec<usize> =
            (0..CLASSES).filter(|at| self.0.get(*at).is_none_or(Option::is_none)).collect();
        self.0.resize(CLASSES, None);
        for (at, class) in self.0.iter_mut().enumerate() {
            if class.as_ref().is_some_and(|class| !wanted.contains(class)) {
                *class = None;
                free.push(at);
            }
        }
        let mut free = free.into_iter();
        let mut assigned = Vec::new();
        for (class, rule) in wanted.into_iter().zip(rules) {
            let at = match self.0.iter().position(|known| known.as_ref() == Some(&class)) {
                Some(at) => at,
                None => free.next().ok_or(Error::TooManyRules { limit: CLASSES })?,
            };
            self.0[at] = Some(class);
            assigned.push(SnatClass { bit: 1 << at, rule });
        }
        Ok(assigned)
    }

    fn live(&self) -> impl Iterator<Item = (u64, &Class)> {
        self.0.iter().enumerate().filter_map(|(at, class)| Some((1 << at, class.as_ref()?)))
    }
}

impl Contents {
    /// What the maps are to hold for some matches, and the rules that these are. `assigned` are the
    /// bits that `classes` gave the rules of source NAT.
    pub fn of(
        matches: &Matches,
        rules: &[Numbered<'_>],
        classes: &Classes,
        assigned: &[SnatClass<'_>],
    ) -> Self {
        let mut contents = Self::default();
        let inner = matches.inner.iter().filter(|inner| inner.network != 0);
        let inner = inner.flat_map(|inner| inner.own.iter().map(|own| (inner.network, *own)));
        let mut roles = Roles::new();
        for at in matches.own.iter().map(|own| (0, *own)).chain(inner) {
            roles.entry(at).or_default().flags |= OWN;
        }
        let of_kind = |kind| rules.iter().filter(move |(rule, _)| rule.kind == kind);
        of_kind(Kind::Local).for_each(|rule| take_local(&mut roles, *rule));
        of_kind(Kind::Service).for_each(|rule| contents.take_ports(&mut roles, *rule));
        of_kind(Kind::Real).for_each(|rule| contents.take_ports(&mut roles, *rule));
        if roles.values().any(|role| role.from != 0) {
            contents.settings[0] |= BY_SOURCE;
        }
        for ((network, address), role) in roles {
            contents.addresses.insert(address_in_key(network, address), role.value());
        }
        contents.take_vxlans(&matches.vxlan, of_kind(Kind::Vxlan));
        contents.take_snat(classes, assigned);
        let tunnels = of_kind(Kind::TunnelError);
        let tunnels = tunnels.filter_map(|(rule, number)| {
            Some((prefix_in_key(network_of(rule), rule.destination?), *number))
        });
        contents.tunnels = tunnels.collect();
        let ports = matches.tunnel_ports.iter();
        contents.tunnel_ports = ports.map(|port| (port.to_be_bytes(), 1)).collect();
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        contents.settings[0] |= flag(!matches.snat.is_empty(), BY_NETWORK)
            | flag(!contents.tunnels.is_empty(), BY_TUNNEL);
        contents
    }

    /// Enters VXLANs, each with the address and port that it is sent to.
    fn take_vxlans<'r>(
        &mut self,
        vxlans: &[VxlanMatch],
        rules: impl Iterator<Item = &'r Numbered<'r>>,
    ) {
        let key = |vxlan: &VxlanMatch, vni| vxlan_key(vxlan.local, vxlan.port, vni);
        for vxlan in vxlans.iter().filter(|vxlan| vxlan.network != 0) {
            let network = vxlan.network;
            self.vxlans.entry(key(vxlan, vxlan.vni)).or_insert_with(|| [network, 0]);
            self.vxlans.insert(key(vxlan, ANY_VNI), [0, 0]);
            self.settings[VXLAN_PORTS] |= port_bit(vxlan.port);
        }
        for (rule, number) in rules {
            let (Some(local), Some(vni)) = (rule.destination, rule.vni) else { continue };
            let key = vxlan_key(local.address, rule.destination_ports.first, vni);
            if let Some(value) = self.vxlans.get_mut(&key).filter(|it| it[0] == rule.network) {
                value[1] = *number;
            }
        }
    }

    /// Enters a protocol and ports at an address: of packets to it, or of those from it.
    fn take_ports(&mut self, roles: &mut Roles, (rule, number): Numbered<'_>) {
        let (end, at, ports) = match rule.kind {
            Kind::Real => (End::Source, rule.source, rule.source_ports),
            _ => (End::Destination, rule.destination, rule.destination_ports),
        };
        let Some(address) = at.map(|at| at.address) else { return };
        let network = network_of(rule);
        let role = roles.entry((network, address)).or_default();
        let protocol = match rule.protocol {
            Protocol::AllButControl => 0,
            Protocol::Number(protocol) => protocol,
        };
        let class = class(protocol);
        let mut bits = 0;
        if protocol == 0 || class.is_some() && ports == Ports::ALL {
            let whole = class.filter(|_| protocol != 0);
            let rules = if end == End::Source { &mut role.from_rules } else { &mut role.to_rules };
            rules[whole.map_or(WHOLE_RULES - 1, usize::from)] = number;
            bits = whole.map_or(EVERYTHING, |class| ALL_PORTS << class);
        } else if let Some(class) = class {
            let key = |port| endpoint_key((network, end), address, protocol, port);
            if ports.is_one() {
                self.endpoints.insert(key(ports.first), number);
                bits = SOME_PORTS << class;
                if end == End::Destination {
                    role.at_hand(protocol, ports.first, number);
                }
            } else {
                for (first, len) in blocks(&ports.range()) {
                    self.ranges.insert((PORT_BITS_START + len, key(first)), number);
                }
                bits = SOME_RANGES << class;
            }
        }
        match end {
            End::Source => role.from |= bits,
            End::Destination => role.to |= bits,
        }
    }

    fn take_snat(&mut self, classes: &Classes, assigned: &[SnatClass<'_>]) {
        if assigned.is_empty() {
            return;
        }
        let sources = assigned.iter();
        let sources = sources.flat_map(|it| it.rule.sources.iter().map(|net| (*net, it.bit)));
        for (key, from) in inherited(sources.map(|(net, bit)| (net, [bit, 0]))) {
            self.inside.insert(key, from[0]);
        }
        let everywhere: u64 = classes
            .live()
            .filter_map(|(bit, class)| class.destinations.is_empty().then_some(bit))
            .sum();
        let destinations = classes.live().flat_map(|(bit, class)| {
            let to = class.destinations.iter().map(move |net| (*net, [bit, 0]));
            to.chain(class.except.iter().map(move |net| (*net, [0, bit])))
        });
        for (key, [to, except]) in inherited(destinations) {
            self.outside.insert(key, (to | everywhere) & !except);
        }
        for (bit, class) in classes.live() {
            for (at, takes) in class.protocols.into_iter().enumerate() {
                self.settings[1 + at] |= if takes { bit } else { 0 };
            }
        }
    }
}

/// What is said of each network and of those around it, together, for the maps, where the longest
/// prefix decides alone. Both families have an entry for all of it: in the maps, IPv6's contains
/// IPv4.
fn inherited(said: impl Iterator<Item = (Network, [u64; 2])>) -> BTreeMap<PrefixKey<16>, [u64; 2]> {
    let all = [Network::ALL_V4, Network::ALL_V6].map(|network| (network, [0; 2]));
    let mut sorted: BTreeMap<(bool, AddressKey, u32), [u64; 2]> = BTreeMap::new();
    for (network, bits) in said.chain(all) {
        let (len, address) = prefix_key(network);
        let entry = sorted.entry((network.address.is_ipv6(), address, len)).or_default();
        *entry = [entry[0] | bits[0], entry[1] | bits[1]];
    }
    // In this order a network comes behind those around it, the narrowest last.
    let mut around: Vec<((bool, AddressKey, u32), [u64; 2])> = Vec::new();
    let mut inherited = BTreeMap::new();
    for (key, own) in sorted {
        let (family, address, len) = key;
        while around.last().is_some_and(|((other_family, outer, bits), _)| {
            *other_family != family || *bits > len || masked(address, *bits) != *outer
        }) {
            around.pop();
        }
        let of = around.last().map_or([0; 2], |(_, of)| *of);
        let bits = [own[0] | of[0], own[1] | of[1]];
        around.push((key, bits));
        inherited.insert((len, address), bits);
    }
    inherited
}

/// The network of a rule's packets in the maps.
const fn network_of(rule: &Rule) -> u16 {
    if rule.inner { rule.network } else { 0 }
}

/// Enters the ports of a local address.
fn take_local(roles: &mut Roles, (rule, number): Numbered<'_>) {
    let Some(at) = rule.destination else { return };
    let role = roles.entry((network_of(rule), at.address)).or_default();
    let which = match rule.protocol {
        Protocol::Number(6) => 0,
        Protocol::Number(17) => 1,
        _ => 2,
    };
    role.flags |= if which == 2 { LOCAL_ECHO } else { LOCAL };
    role.local_rules[which] = number;
    (role.first, role.last) = (rule.destination_ports.first, rule.destination_ports.last);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str, prefix: u8) -> Network {
        Network { address: text.parse().unwrap(), prefix }
    }

    fn rule(source: &str, destinations: &[Network]) -> SnatMatch {
        SnatMatch {
            sources: vec![net(source, 24)],
            destinations: destinations.to_vec(),
            tcp: true,
            ..SnatMatch::default()
        }
    }

    /// A class that stays keeps its bit; a new one does not get the bit of one that went, as long
    /// as there are others.
    #[test]
    fn classes_keep_their_bits() {
        let mut classes = Classes::default();
        let assign = |classes: &mut Classes, rules: &[SnatMatch]| {
            classes.assign(rules).map(|all| all.iter().map(|it| it.bit).collect::<Vec<u64>>())
        };
        let (first, second) = (rule("192.0.2.0", &[]), rule("192.0.2.0", &[net("::", 0)]));
        assert_eq!(assign(&mut classes, &[first.clone(), second.clone()]).unwrap(), [1, 2]);
        let third = rule("192.0.2.0", &[net("203.0.113.0", 24)]);
        assert_eq!(assign(&mut classes, &[third.clone(), second.clone()]).unwrap(), [4, 2]);
        let same_class = rule("198.51.100.0", &[net("::", 0)]);
        assert_eq!(assign(&mut classes, &[second, same_class]).unwrap(), [2, 2]);
        let many: Vec<_> = (0..64_u8).map(|n| rule("192.0.2.0", &[net("2001:db8::", n)])).collect();
        let bits = assign(&mut classes, &many).unwrap();
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit), u64::MAX, "each has its own");
        let one_more = [&many[..], &[third]].concat();
        assert!(matches!(assign(&mut classes, &one_more), Err(Error::TooManyRules { limit: 64 })));
    }

    /// Of an address's prefixes the longest decides, so it repeats what shorter ones say.
    #[test]
    fn longer_prefixes_repeat_what_holds_around_them() {
        let rules = [
            SnatMatch { except: vec![net("192.0.2.0", 24)], ..rule("192.0.2.0", &[]) },
            rule("192.0.2.0", &[net("198.51.100.0", 24)]),
            rule("192.0.2.0", &[net("198.51.100.128", 25)]),
        ];
        let matches = Matches { snat: rules.to_vec(), ..Matches::default() };
        let mut classes = Classes::default();
        let assigned = classes.assign(&matches.snat).unwrap();
        let contents = Contents::of(&matches, &[], &classes, &assigned);
        let at = |network| contents.outside[&prefix_key(network)];
        assert_eq!(at(net("192.0.2.0", 24)), 0b000);
        assert_eq!(at(net("198.51.100.0", 24)), 0b011);
        assert_eq!(at(net("198.51.100.128", 25)), 0b111);
        assert_eq!((at(Network::ALL_V4), at(Network::ALL_V6)), (0b001, 0b001));
        assert_eq!(contents.inside[&prefix_key(Network::ALL_V4)], 0);
        assert_eq!(contents.inside[&prefix_key(net("192.0.2.0", 24))], 0b111);
        assert_eq!(contents.settings, [BY_NETWORK, 0b111, 0, 0, 0]);
    }

    /// The sorted walk says what a look at every network says.
    #[test]
    fn inheritance_is_what_covering_means() {
        let networks: Vec<Network> = (0..400_u32)
            .map(|n| {
                // Few bits and few values, so that many contain each other.
                let bits = n.wrapping_mul(2_654_435_761);
                let prefix = ((bits >> 8) % 9) as u8;
                if n % 3 == 0 {
                    let v6 = u128::from(bits >> 28) << 120;
                    return Network { address: IpAddr::from(v6.to_be_bytes()), prefix };
                }
                Network { address: IpAddr::from((bits & 0xff00_0000).to_be_bytes()), prefix }
            })
            .collect();
        let said = |n: usize| (networks[n], [1 << (n % 60), 0]);
        let found = inherited((0..networks.len()).map(said));
        for ((len, address), bits) in &found {
            let is_v4 = *len >= 96;
            let covers = |by: &Network| {
                let (by_len, by_key) = prefix_key(*by);
                by.address.is_ipv4() == is_v4
                    && by_len <= *len
                    && masked(*address, by_len) == by_key
            };
            let of = (0..networks.len()).filter(|n| covers(&networks[*n]));
            assert_eq!(bits[0], of.fold(0, |all, n| all | 1 << (n % 60)), "{len} {address:?}");
        }
        assert!(found.len() > 100, "{}", found.len());
    }
}
