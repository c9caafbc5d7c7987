//! How the program's maps spell what is taken: the library's side of `bpf/steer.h`.

use std::net::IpAddr;

use sluice_rules::Network;

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
pub(crate) type RoleValue = [u16; 5 + 3 * QUICK_PORTS + LOCAL_RULES + 2 * WHOLE_RULES];
/// Value of the map `vxlans`, `struct vxlan_value`: network and rule.
pub(crate) type VxlanValue = [u16; 2];
/// How many ports of services an address has at hand.
pub(crate) const QUICK_PORTS: usize = 4;
/// Rules of a role that no other map has: of all ports by [`class`], and of every protocol.
pub(crate) const WHOLE_RULES: usize = 4;
/// Rules of a local address: TCP's, UDP's, and that of answers to ping.
pub(crate) const LOCAL_RULES: usize = 3;
/// Number of a rule that has no counter.
pub(crate) const UNCOUNTED: u16 = 1;
/// Numbers of rules end here; those of source NAT's classes begin.
pub(crate) const PLAIN_RULES: u16 = 16384;

/// The number of a class of source NAT by its bit, with a protocol (TCP, UDP, ping) and family.
pub(crate) const fn snat_number(bit: u16, protocol: u16, is_ipv6: bool) -> u16 {
    PLAIN_RULES + (bit * 3 + protocol) * 2 + is_ipv6 as u16
}

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
    /// Protocol, port and rule; protocol 0 where there are fewer.
    pub quick: [(u8, u16, u16); QUICK_PORTS],
    pub local_rules: [u16; LOCAL_RULES],
    pub to_rules: [u16; WHOLE_RULES],
    pub from_rules: [u16; WHOLE_RULES],
}

impl Role {
    pub fn value(self) -> RoleValue {
        let mut value = RoleValue::default();
        value[..5].copy_from_slice(&[self.to, self.from, self.flags, self.first, self.last]);
        let quick_rules = 5 + 2 * QUICK_PORTS;
        for (at, (protocol, port, rule)) in self.quick.into_iter().enumerate() {
            value[5 + 2 * at] = port.to_be();
            value[6 + 2 * at] = u16::from_ne_bytes([protocol, 0]);
            value[quick_rules + at] = rule;
        }
        let others = [&self.local_rules[..], &self.to_rules, &self.from_rules].concat();
        value[quick_rules + QUICK_PORTS..].copy_from_slice(&others);
        value
    }

    /// Has a port of a service at hand, if there is room.
    pub fn at_hand(&mut self, protocol: u8, port: u16, rule: u16) {
        if let Some(free) = self.quick.iter_mut().find(|quick| quick.0 == 0) {
            *free = (protocol, port, rule);
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

/// A prefix in a network, as the maps keep it: all bits of the network's number come first.
pub(crate) fn prefix_in_key(network: u16, prefix: Network) -> PrefixKey<20> {
    let (bits, address) = prefix_key(prefix);
    let mut key = [0; 20];
    key[..4].copy_from_slice(&u32::from(network).to_ne_bytes());
    key[4..].copy_from_slice(&address);
    (32 + bits, key)
}

/// An address of a prefix, with the bits behind it cleared.
pub(crate) fn masked(address: AddressKey, bits: u32) -> AddressKey {
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    (u128::from_be_bytes(address) & mask).to_be_bytes()
}
