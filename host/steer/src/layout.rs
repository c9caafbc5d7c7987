//! What is taken, and how the program's maps spell it: the library's side of `bpf/steer.h`.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;

/// Protocol and ports at an address: of packets to it, or of packets from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointMatch {
    /// IP protocol number: 6 TCP, 17 UDP, 132 SCTP. 0 stands for every protocol, these with all
    /// their ports, but ICMP, IGMP, ICMPv6, OSPF and VRRP. Others are never taken.
    pub protocol: u8,
    /// The address.
    pub address: IpAddr,
    /// The ports; not looked at for protocol 0.
    pub ports: RangeInclusive<u16>,
}

impl EndpointMatch {
    /// One port.
    pub fn port(protocol: u8, address: IpAddr, port: u16) -> Self {
        Self { protocol, address, ports: port..=port }
    }
}

/// A local address whose TCP and UDP packets are the director's if their destination port is in
/// the range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalMatch {
    /// Destination address.
    pub address: IpAddr,
    /// Destination ports.
    pub ports: RangeInclusive<u16>,
    /// Whether answers to ping are the director's, too, if their identifier is in the range.
    pub echo: bool,
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    /// An address in it.
    pub address: IpAddr,
    /// Its bits: 0 to 32, or 0 to 128 for IPv6. More count as all.
    pub prefix: u8,
}

impl Network {
    /// All addresses of IPv4.
    pub const ALL_V4: Self =
        Self { address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), prefix: 0 };
    /// All addresses of IPv6.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix: 0 };
}

/// Connections that source NAT translates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnatMatch {
    /// Networks that they come from.
    pub sources: Vec<Network>,
    /// Networks that they go to; empty for everywhere.
    pub destinations: Vec<Network>,
    /// Networks that they do not go to, also where `destinations` has them.
    pub except: Vec<Network>,
    /// TCP among them.
    pub tcp: bool,
    /// UDP among them.
    pub udp: bool,
    /// Ping among them.
    pub icmp: bool,
}

/// A VXLAN whose packets are the director's, but for those that only the kernel can answer: ARP,
/// neighbour discovery, groups, and what is sent to the machine's own addresses in the network.
///
/// That is for whole datagrams in untagged frames, without IP options or extension headers. Of a
/// VXLAN that is named twice, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VxlanMatch {
    /// Outer destination address.
    pub local: IpAddr,
    /// UDP destination port.
    pub port: u16,
    /// The network identifier, 24 bits.
    pub vni: u32,
    /// The isolated network that its packets are in: the [`InnerMatch`] of that number. Not 0,
    /// which is what is in no VXLAN: such a VXLAN is left to the kernel.
    pub network: u16,
}

/// What is whose in an isolated network, for packets out of its VXLANs. What is to no address of
/// these is the director's: it routes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InnerMatch {
    /// The network's number, from 1; the same as long as the network exists.
    pub network: u16,
    /// By destination: virtual services.
    pub services: Vec<EndpointMatch>,
    /// By destination: local addresses.
    pub locals: Vec<LocalMatch>,
    /// The machine's own addresses in the network: what is sent to them is the kernel's, but what
    /// `services` and `locals` take.
    pub own: Vec<IpAddr>,
}

/// All that a steering program takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// By destination: virtual services.
    pub services: Vec<EndpointMatch>,
    /// By destination: local addresses.
    pub locals: Vec<LocalMatch>,
    /// By source: real servers of NAT mode.
    pub reals: Vec<EndpointMatch>,
    /// By source and destination: source NAT.
    pub snat: Vec<SnatMatch>,
    /// Outer sources of tunnels: ICMP errors about their packets are taken.
    pub tunnels: Vec<Network>,
    /// UDP ports that their packets are sent to.
    pub tunnel_ports: Vec<u16>,
    /// The machine's own addresses: nothing sent to them is taken by its source.
    pub own: Vec<IpAddr>,
    /// VXLANs that arrive here.
    pub vxlan: Vec<VxlanMatch>,
    /// The networks that these are of.
    pub inner: Vec<InnerMatch>,
}

/// `struct address`.
pub(crate) type AddressKey = [u8; 16];
/// Key of the map `addresses`: `struct address_in`.
pub(crate) type AddressInKey = [u8; 20];
/// Key of the map `endpoints`: `struct endpoint`.
pub(crate) type EndpointKey = [u8; 24];
/// Key of the map `vxlans`: `struct vxlan_key`.
pub(crate) type VxlanKey = [u8; 24];
/// Key of the map `tunnel_ports`: a port in network order.
pub(crate) type PortKey = [u8; 2];
/// Key of a map of prefixes, without the number of bits that count.
pub(crate) type PrefixKey<const N: usize> = (u32, [u8; N]);
/// Value of the map `addresses`: `struct role`.
pub(crate) type RoleValue = [u16; 6 + 2 * QUICK_PORTS];
/// How many ports of services an address has at hand.
pub(crate) const QUICK_PORTS: usize = 4;
/// Value of the map `settings`: `struct settings`.
pub(crate) type SettingsValue = [u64; 5];

/// Bits of an endpoint in front of its port.
pub(crate) const PORT_BITS_START: u32 = 160;

/// In place of a VXLAN's identifier: any.
pub(crate) const ANY_VNI: u32 = u32::MAX;

/// Which end of a packet an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum End {
    Destination = 0,
    Source = 1,
}

/// Bits of a role's `to` and `from`, to be shifted by [`class`].
pub(crate) const SOME_PORTS: u16 = 0x0001;
pub(crate) const SOME_RANGES: u16 = 0x0008;
pub(crate) const ALL_PORTS: u16 = 0x0040;
/// Every protocol; not shifted.
pub(crate) const EVERYTHING: u16 = 0x0200;

/// Bits of a role's flags.
pub(crate) const OWN: u16 = 1;
pub(crate) const LOCAL: u16 = 2;
pub(crate) const LOCAL_ECHO: u16 = 4;

/// Bits of the settings' flags.
pub(crate) const BY_SOURCE: u64 = 1;
pub(crate) const BY_NETWORK: u64 = 2;
pub(crate) const BY_TUNNEL: u64 = 4;

/// Where the settings have the ports of VXLANs.
pub(crate) const VXLAN_PORTS: usize = 4;

/// The bit of a UDP port among those of VXLANs.
pub(crate) fn port_bit(port: u16) -> u64 {
    1 << ((port ^ port >> 6) & 63)
}

/// The place of a protocol with ports in a role's bits.
pub(crate) fn class(protocol: u8) -> Option<u16> {
    match protocol {
        6 => Some(0),
        17 => Some(1),
        132 => Some(2),
        _ => None,
    }
}

/// What an address is to the director.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Role {
    pub to: u16,
    pub from: u16,
    pub flags: u16,
    pub first: u16,
    pub last: u16,
    /// Protocol and port; protocol 0 where there are fewer.
    pub quick: [(u8, u16); QUICK_PORTS],
}

impl Role {
    pub fn value(self) -> RoleValue {
        let mut value = RoleValue::default();
        value[..5].copy_from_slice(&[self.to, self.from, self.flags, self.first, self.last]);
        for (at, (protocol, port)) in self.quick.into_iter().enumerate() {
            value[6 + 2 * at] = port.to_be();
            value[7 + 2 * at] = u16::from_ne_bytes([protocol, 0]);
        }
        value
    }

    /// Has a port of a service at hand, if there is room.
    pub fn at_hand(&mut self, protocol: u8, port: u16) {
        if let Some(free) = self.quick.iter_mut().find(|quick| quick.0 == 0) {
            *free = (protocol, port);
        }
    }
}

/// An address as the maps keep it: IPv4 as ::ffff:a.b.c.d.
pub(crate) fn address_key(address: IpAddr) -> AddressKey {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// An address in a network.
pub(crate) fn address_in_key(network: u16, address: IpAddr) -> AddressInKey {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&address_key(address));
    key[16..].copy_from_slice(&u32::from(network).to_ne_bytes());
    key
}

/// A port of a protocol at an end of packets in a network.
pub(crate) fn endpoint_key(
    (network, end): (u16, End),
    address: IpAddr,
    protocol: u8,
    port: u16,
) -> EndpointKey {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&address_key(address));
    key[16..18].copy_from_slice(&network.to_ne_bytes());
    key[18] = end as u8;
    key[19] = protocol;
    key[20..22].copy_from_slice(&port.to_be_bytes());
    key
}

/// A VXLAN at an address and port.
pub(crate) fn vxlan_key(local: IpAddr, port: u16, vni: u32) -> VxlanKey {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&address_key(local));
    key[16..20].copy_from_slice(&vni.to_ne_bytes());
    key[20..22].copy_from_slice(&port.to_be_bytes());
    key
}

/// A network as the maps keep it.
pub(crate) fn prefix_key(network: Network) -> PrefixKey<16> {
    let bits = match network.address {
        IpAddr::V4(_) => 96 + u32::from(network.prefix.min(32)),
        IpAddr::V6(_) => u32::from(network.prefix.min(128)),
    };
    (bits, masked(address_key(network.address), bits))
}

/// An address of a prefix, with the bits behind it cleared.
pub(crate) fn masked(address: AddressKey, bits: u32) -> AddressKey {
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    (u128::from_be_bytes(address) & mask).to_be_bytes()
}

/// The fewest aligned blocks that make up a range of ports: first port, and bits that count.
pub(crate) fn blocks(ports: &RangeInclusive<u16>) -> Vec<(u16, u32)> {
    let (mut first, last) = (u32::from(*ports.start()), u32::from(*ports.end()));
    let mut blocks = Vec::new();
    while first <= last {
        let aligned = if first == 0 { 16 } else { first.trailing_zeros() };
        let fitting = (last - first + 1).ilog2();
        let size = aligned.min(fitting);
        blocks.push((first as u16, 16 - size));
        first += 1 << size;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_range() {
        for range in [80..=80, 0..=65535, 8000..=8099, 1..=65535, 1024..=2047, 65535..=65535] {
            let mut ports = Vec::new();
            for (first, bits) in blocks(&range) {
                let size = 1_u32 << (16 - bits);
                assert_eq!(u32::from(first) % size, 0, "{range:?}: aligned");
                ports.extend(u32::from(first)..u32::from(first) + size);
            }
            let wanted: Vec<u32> = (u32::from(*range.start())..=u32::from(*range.end())).collect();
            assert_eq!(ports, wanted);
        }
        assert_eq!(blocks(&(1..=65534)).len(), 30, "the most that a range takes");
    }
}
