//! From what is to be taken to what each map is to hold.
//!
//! Rules of source NAT are told apart by where they apply and to which protocols; each such class
//! is a bit. A packet's classes are those of its source, of its destination and of its protocol
//! together (the bit vectors of Lakshman and Stiliadis, 1998): three lookups, however many rules.
//! A class keeps its bit as long as it exists, so that while the maps change one after another no
//! packet of a rule that stays is missed.
//!
//! What isolated networks have is kept in the same maps as what the default one has, told apart by
//! the network's number in the keys.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use sluice_rules::{EndpointMatch, LocalMatch, Matches, Network, SnatMatch, VxlanMatch, blocks};

use crate::layout::{
    ALL_PORTS, ANY_VNI, AddressInKey, AddressKey, BY_NETWORK, BY_SOURCE, BY_TUNNEL, EVERYTHING,
    End, EndpointKey, LOCAL, LOCAL_ECHO, OWN, PORT_BITS_START, PortKey, PrefixKey, Role, RoleValue,
    SOME_PORTS, SOME_RANGES, SettingsValue, VXLAN_PORTS, VxlanKey, address_in_key, class,
    endpoint_key, masked, port_bit, prefix_key, vxlan_key,
};
use crate::{Error, Result};

/// How many classes of source NAT there may be: bits of the maps' values.
pub(crate) const CLASSES: usize = 64;

/// What each map is to hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub addresses: BTreeMap<AddressInKey, RoleValue>,
    pub endpoints: BTreeMap<EndpointKey, u8>,
    pub ranges: BTreeMap<PrefixKey<24>, u8>,
    pub inside: BTreeMap<PrefixKey<16>, u64>,
    pub outside: BTreeMap<PrefixKey<16>, u64>,
    pub tunnels: BTreeMap<PrefixKey<16>, u8>,
    pub tunnel_ports: BTreeMap<PortKey, u8>,
    pub vxlans: BTreeMap<VxlanKey, u32>,
    pub settings: SettingsValue,
}

/// What a network has by address.
struct Members<'a> {
    network: u16,
    services: &'a [EndpointMatch],
    locals: &'a [LocalMatch],
    reals: &'a [EndpointMatch],
    own: &'a [IpAddr],
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
    fn assign(&mut self, rules: &[SnatMatch]) -> Result<Vec<u64>> {
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
        let mut bits = Vec::new();
        for class in wanted {
            let at = match self.0.iter().position(|known| known.as_ref() == Some(&class)) {
                Some(at) => at,
                None => free.next().ok_or(Error::TooManyRules { limit: CLASSES })?,
            };
            self.0[at] = Some(class);
            bits.push(1 << at);
        }
        Ok(bits)
    }

    fn live(&self) -> impl Iterator<Item = (u64, &Class)> {
        self.0.iter().enumerate().filter_map(|(at, class)| Some((1 << at, class.as_ref()?)))
    }
}

impl Contents {
    /// What the maps are to hold for some matches. `classes` remembers the bits between calls.
    pub fn of(matches: &Matches, classes: &mut Classes) -> Result<Self> {
        let mut contents = Self::default();
        contents.take_network(&Members {
            network: 0,
            services: &matches.services,
            locals: &matches.locals,
            reals: &matches.reals,
            own: &matches.own,
        });
        for inner in matches.inner.iter().filter(|inner| inner.network != 0) {
            contents.take_network(&Members {
                network: inner.network,
                services: &inner.services,
                locals: &inner.locals,
                reals: &[],
                own: &inner.own,
            });
        }
        contents.take_vxlans(&matches.vxlan);
        contents.take_rules(&matches.snat, classes)?;
        contents.tunnels = matches.tunnels.iter().map(|net| (prefix_key(*net), 1)).collect();
        let ports = matches.tunnel_ports.iter();
        contents.tunnel_ports = ports.map(|port| (port.to_be_bytes(), 1)).collect();
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        contents.settings[0] |= flag(!matches.snat.is_empty(), BY_NETWORK)
            | flag(!matches.tunnels.is_empty(), BY_TUNNEL);
        Ok(contents)
    }

    /// Enters what a network has.
    fn take_network(&mut self, members: &Members<'_>) {
        let mut roles: BTreeMap<IpAddr, Role> = BTreeMap::new();
        for own in members.own {
            roles.entry(*own).or_default().flags |= OWN;
        }
        for local in members.locals {
            let role = roles.entry(local.address).or_default();
            role.flags |= LOCAL | if local.echo { LOCAL_ECHO } else { 0 };
            (role.first, role.last) = (*local.ports.start(), *local.ports.end());
        }
        for (end, endpoints) in [(End::Destination, members.services), (End::Source, members.reals)]
        {
            for ((address, protocol), ports) in merged(endpoints) {
                let bits = self.take_ports((members.network, end), address, protocol, &ports);
                let role = roles.entry(address).or_default();
                match end {
                    End::Source => role.from |= bits,
                    End::Destination => {
                        role.to |= bits;
                        let single = ports.iter().filter(|range| range.start() == range.end());
                        let single = single.filter(|_| class(protocol).is_some());
                        single.for_each(|port| role.at_hand(protocol, *port.start()));
                    }
                }
            }
        }
        if roles.values().any(|role| role.from != 0) {
            self.settings[0] |= BY_SOURCE;
        }
        for (address, role) in roles {
            self.addresses.insert(address_in_key(members.network, address), role.value());
        }
    }

    /// Enters VXLANs, each with the address and port that it is sent to.
    fn take_vxlans(&mut self, vxlans: &[VxlanMatch]) {
        for vxlan in vxlans.iter().filter(|vxlan| vxlan.network != 0) {
            let key = |vni| vxlan_key(vxlan.local, vxlan.port, vni);
            self.vxlans.entry(key(vxlan.vni)).or_insert_with(|| vxlan.network.into());
            self.vxlans.insert(key(ANY_VNI), 0);
            self.settings[VXLAN_PORTS] |= port_bit(vxlan.port);
        }
    }

    /// Enters the ports of a protocol at an address, and returns the bits of its role.
    fn take_ports(
        &mut self,
        end: (u16, End),
        address: IpAddr,
        protocol: u8,
        ports: &[RangeInclusive<u16>],
    ) -> u16 {
        if protocol == 0 {
            return EVERYTHING;
        }
        let Some(class) = class(protocol) else { return 0 };
        if ports == [0..=u16::MAX] {
            return ALL_PORTS << class;
        }
        let mut bits = 0;
        for range in ports {
            let key = |port| endpoint_key(end, address, protocol, port);
            if range.start() == range.end() {
                self.endpoints.insert(key(*range.start()), 1);
                bits |= SOME_PORTS << class;
                continue;
            }
            for (first, len) in blocks(range) {
                self.ranges.insert((PORT_BITS_START + len, key(first)), 1);
            }
            bits |= SOME_RANGES << class;
        }
        bits
    }

    fn take_rules(&mut self, rules: &[SnatMatch], classes: &mut Classes) -> Result<()> {
        let bits = classes.assign(rules)?;
        if rules.is_empty() {
            return Ok(());
        }
        let sources = rules.iter().zip(&bits);
        let sources = sources.flat_map(|(rule, bit)| rule.sources.iter().map(|net| (*net, *bit)));
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
        Ok(())
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

/// The ports of each address and protocol, sorted, without overlaps and neighbours.
fn merged(matches: &[EndpointMatch]) -> BTreeMap<(IpAddr, u8), Vec<RangeInclusive<u16>>> {
    let mut all: BTreeMap<(IpAddr, u8), Vec<RangeInclusive<u16>>> = BTreeMap::new();
    for one in matches {
        all.entry((one.address, one.protocol)).or_default().push(one.ports.clone());
    }
    for ranges in all.values_mut() {
        ranges.sort_by_key(|range| *range.start());
        let mut joined: Vec<RangeInclusive<u16>> = Vec::with_capacity(ranges.len());
        for range in ranges.drain(..) {
            match joined.last_mut() {
                Some(last) if u32::from(*range.start()) <= u32::from(*last.end()) + 1 => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => joined.push(range),
            }
        }
        *ranges = joined;
    }
    all
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

    #[test]
    fn ports_are_joined() {
        let address: IpAddr = [198, 51, 100, 200].into();
        let of = |ports: RangeInclusive<u16>| EndpointMatch { protocol: 6, address, ports };
        let joined = merged(&[of(90..=99), of(80..=80), of(81..=89), of(85..=95), of(101..=101)]);
        assert_eq!(joined[&(address, 6)], [80..=99, 101..=101]);
        let all = merged(&[of(1..=u16::MAX), of(0..=0)]);
        assert_eq!(all[&(address, 6)], [0..=u16::MAX]);
    }

    /// A class that stays keeps its bit; a new one does not get the bit of one that went, as long
    /// as there are others.
    #[test]
    fn classes_keep_their_bits() {
        let mut classes = Classes::default();
        let (first, second) = (rule("192.0.2.0", &[]), rule("192.0.2.0", &[net("::", 0)]));
        assert_eq!(classes.assign(&[first.clone(), second.clone()]).unwrap(), [1, 2]);
        let third = rule("192.0.2.0", &[net("203.0.113.0", 24)]);
        assert_eq!(classes.assign(&[third.clone(), second.clone()]).unwrap(), [4, 2]);
        let same_class = rule("198.51.100.0", &[net("::", 0)]);
        assert_eq!(classes.assign(&[second, same_class]).unwrap(), [2, 2]);
        let many: Vec<_> = (0..64_u8).map(|n| rule("192.0.2.0", &[net("2001:db8::", n)])).collect();
        let bits = classes.assign(&many).unwrap();
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit), u64::MAX, "each has its own");
        let one_more = [&many[..], &[third]].concat();
        assert!(matches!(classes.assign(&one_more), Err(Error::TooManyRules { limit: 64 })));
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
        let contents = Contents::of(&matches, &mut Classes::default()).unwrap();
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
