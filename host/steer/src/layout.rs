//! What is taken, and how the program's maps spell it.

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// A destination whose packets are the director's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceMatch {
    /// IP protocol number: 6 TCP, 17 UDP. Others are never taken.
    pub protocol: u8,
    /// Destination address.
    pub address: IpAddr,
    /// Destination port; 0 is never taken.
    pub port: u16,
}

/// A local address whose TCP and UDP packets are the director's if their destination port is in
/// the range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalMatch {
    /// Destination address.
    pub address: IpAddr,
    /// Destination ports.
    pub ports: RangeInclusive<u16>,
}

/// Key of the map `services`: `struct endpoint`.
pub(crate) type EndpointKey = [u8; 20];
/// Key of the map `locals`: `struct address`.
pub(crate) type AddressKey = [u8; 16];
/// Value of the map `locals`: `struct port_range`.
pub(crate) type PortRange = [u16; 2];

/// TCP and UDP.
pub(crate) const PROTOCOLS: [u8; 2] = [6, 17];

/// An address as the maps keep it: IPv4 as ::ffff:a.b.c.d.
pub(crate) fn address_key(address: IpAddr) -> AddressKey {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// `port` 0 stands for later fragments, which have none.
pub(crate) fn endpoint_key(address: IpAddr, protocol: u8, port: u16) -> EndpointKey {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&address_key(address));
    key[16..18].copy_from_slice(&port.to_be_bytes());
    key[18] = protocol;
    key
}
