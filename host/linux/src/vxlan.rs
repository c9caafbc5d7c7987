//! What the kernel says of a VXLAN device (linux/if_link.h, `IFLA_VXLAN_*`; RFC 7348).
//!
//! Read so that a packet can be wrapped and unwrapped as the device does it. An attribute that
//! makes no sense is as one that is not there: the link must not be lost for it.

use std::net::IpAddr;

use crate::attributes::{Attributes, ip, u8_at, u16_be_at, u32_at};
use crate::uapi;

/// A VXLAN device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vxlan {
    /// Its network identifier, 24 bits; 0 for a device that takes it from elsewhere
    /// ([`Self::collect_metadata`]).
    pub vni: u32,
    /// The outer source; by the route when there is none.
    pub local: Option<IpAddr>,
    /// Where frames go that have no forwarding entry: a host, or a multicast group. The kernel
    /// also keeps it as a destination of the forwarding entry of 00:00:00:00:00:00.
    pub remote: Option<IpAddr>,
    /// The outer UDP destination port, and the one that is listened on.
    pub port: u16,
    /// The outer UDP source ports, from the first to below the second; the machine's own range
    /// (`net.ipv4.ip_local_port_range`) when there is none.
    pub source_ports: Option<(u16, u16)>,
    /// The outer time to live; 0: the kernel's default (1 to a multicast group).
    pub ttl: u8,
    /// The outer time to live is the wrapped packet's own, whatever `ttl` is.
    pub ttl_inherit: bool,
    /// The outer type of service; 1: the wrapped packet's own.
    pub tos: u8,
    /// The link that wrapped packets leave by; by the route when there is none.
    pub link: Option<u32>,
    /// Over IPv4, sent packets have a UDP checksum.
    pub udp_checksum: bool,
    /// Over IPv6, sent packets have no UDP checksum.
    pub udp6_zero_tx: bool,
    /// Over IPv6, packets without a UDP checksum are taken.
    pub udp6_zero_rx: bool,
    /// Forwarding entries are learnt from what is received.
    pub learning: bool,
    /// The identifier and the destination come with each packet, from a route or a filter
    /// (`external`).
    pub collect_metadata: bool,
    /// The header carries a group policy (`gbp`).
    pub gbp: bool,
    /// The header says what is wrapped (`gpe`): it need not be Ethernet.
    pub gpe: bool,
}

impl Vxlan {
    /// Reads `IFLA_INFO_DATA`. `None` when it names no network.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let mut vxlan = Self::default();
        let mut vni = None;
        for (kind, value) in Attributes(data) {
            let on = || u8_at(value, 0).is_some_and(|byte| byte != 0);
            match kind {
                uapi::IFLA_VXLAN_ID => vni = u32_at(value, 0),
                uapi::IFLA_VXLAN_GROUP | uapi::IFLA_VXLAN_GROUP6 => {
                    vxlan.remote = ip(value).filter(|ip| !ip.is_unspecified()).or(vxlan.remote);
                }
                uapi::IFLA_VXLAN_LOCAL | uapi::IFLA_VXLAN_LOCAL6 => {
                    vxlan.local = ip(value).filter(|ip| !ip.is_unspecified()).or(vxlan.local);
                }
                uapi::IFLA_VXLAN_LINK => vxlan.link = u32_at(value, 0).filter(|&link| link != 0),
                uapi::IFLA_VXLAN_TTL => vxlan.ttl = u8_at(value, 0).unwrap_or_default(),
                uapi::IFLA_VXLAN_TOS => vxlan.tos = u8_at(value, 0).unwrap_or_default(),
                uapi::IFLA_VXLAN_PORT => vxlan.port = u16_be_at(value, 0).unwrap_or_default(),
                uapi::IFLA_VXLAN_PORT_RANGE => vxlan.source_ports = port_range(value),
                uapi::IFLA_VXLAN_LEARNING => vxlan.learning = on(),
                uapi::IFLA_VXLAN_UDP_CSUM => vxlan.udp_checksum = on(),
                uapi::IFLA_VXLAN_UDP_ZERO_CSUM6_TX => vxlan.udp6_zero_tx = on(),
                uapi::IFLA_VXLAN_UDP_ZERO_CSUM6_RX => vxlan.udp6_zero_rx = on(),
                uapi::IFLA_VXLAN_COLLECT_METADATA => vxlan.collect_metadata = on(),
                uapi::IFLA_VXLAN_TTL_INHERIT => vxlan.ttl_inherit = on(),
                // These two say it by being there.
                uapi::IFLA_VXLAN_GBP => vxlan.gbp = true,
                uapi::IFLA_VXLAN_GPE => vxlan.gpe = true,
                _ => {}
            }
        }
        Some(Self { vni: vni?, ..vxlan })
    }
}

/// The kernel takes a range that holds no port (0 and 0 unless it was given one) for none.
fn port_range(value: &[u8]) -> Option<(u16, u16)> {
    let (low, high) = (u16_be_at(value, 0)?, u16_be_at(value, 2)?);
    (low < high).then_some((low, high))
}
