//! What is to be taken from a port, as a configuration says it: the input of every back-end.
//!
//! The maps of the XDP program are made of this as a whole; [`crate::rules_of`] makes rules of it.

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
    /// Outer sources of its tunnels: ICMP errors about their packets are taken.
    pub tunnels: Vec<Network>,
    /// The machine's own addresses in the network: what is sent to them is the kernel's, but what
    /// `services`, `locals` and `tunnels` take.
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
    /// UDP ports that packets of tunnels are sent to, in any network.
    pub tunnel_ports: Vec<u16>,
    /// The machine's own addresses: nothing sent to them is taken by its source.
    pub own: Vec<IpAddr>,
    /// VXLANs that arrive here.
    pub vxlan: Vec<VxlanMatch>,
    /// The networks that these are of.
    pub inner: Vec<InnerMatch>,
}
