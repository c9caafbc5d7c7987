//! VXLAN ports (RFC 7348): virtual ports whose frames travel in UDP datagrams over ordinary ports,
//! the *underlay*.
//!
//! What a director has of them is compiled into [`Tunnels`]. Received frames of the underlay are
//! shown to [`Tunnels::decapsulate`] before the path sees them: what is a tunnel's loses its outer
//! headers and is from then on a frame that came by the virtual port. What the path sends by a
//! virtual port gets its outer headers from [`Tunnels::encapsulate`] and leaves by an underlay
//! port. The path knows nothing of all that, and nothing here knows the path.
//!
//! Nothing is learned from received frames and nothing is flooded: which remote has which MAC
//! address is configured, and only what comes from a configured remote is believed, since VXLAN has
//! no authentication (RFC 7348 7). What is not surely a tunnel's stays untouched for the kernel,
//! which may have VXLAN interfaces of its own at the same UDP port.

mod inner;
mod narrow;
mod receive;
mod send;
mod small;
#[cfg(test)]
mod tests;

use crate::fib::{Hop, PortId};
use crate::reason::Reason;
pub use narrow::Narrow;
use rustc_hash::{FxHashMap, FxHashSet};
use send::Template;
use sluice_wire::ethernet::Mac;
use sluice_wire::vxlan;
use small::Small;
use std::net::IpAddr;

/// Bytes before the inner frame of a tunnel from this address: 50 over IPv4, 70 over IPv6. So much
/// smaller than the underlay's MTU an inner IP packet must be.
pub const fn overhead(local: IpAddr) -> usize {
    if local.is_ipv4() { vxlan::OVERHEAD_V4 } else { vxlan::OVERHEAD_V6 }
}

/// A VXLAN port, and the tunnels from it to each of its remotes.
#[derive(Clone, Debug)]
pub struct Tunnel {
    /// The virtual port.
    pub port: PortId,
    /// The network identifier of received frames, at most 24 bits.
    pub vni: u32,
    /// The outer address of this end.
    pub local: IpAddr,
    /// The UDP port that frames are received at.
    pub udp_port: u16,
    /// The first and the last UDP source port; each flow has one of them.
    pub source_ports: (u16, u16),
    /// Time to live or hop limit of outer headers.
    pub ttl: u8,
    /// The code point of outer headers (RFC 2474).
    pub dscp: Dscp,
    /// Whether datagrams over IPv4 are sent with a checksum.
    pub udp_checksum: bool,
    /// Whether datagrams over IPv6 are sent without one (RFC 6935).
    pub udp6_zero: bool,
    /// Whether datagrams over IPv6 are received without one.
    pub accepts_zero_v6: bool,
    /// The MAC addresses that frames may be sent to, and where these are. Of two entries for one
    /// address the first counts, and a remote of another family than `local` does not.
    pub remotes: Vec<(Mac, Remote)>,
}

impl Tunnel {
    /// One without remotes, and with what is usual for the rest: UDP port 4789, source ports from
    /// 49,152, a TTL of 64, the inner code point, and checksums where the IP version asks for them.
    pub const fn new(port: PortId, vni: u32, local: IpAddr) -> Self {
        Self {
            port,
            vni,
            local,
            udp_port: vxlan::PORT,
            source_ports: (0xc000, 0xffff),
            ttl: 64,
            dscp: Dscp::Copy,
            udp_checksum: false,
            udp6_zero: false,
            accepts_zero_v6: false,
            remotes: Vec::new(),
        }
    }
}

/// The code point of an outer header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dscp {
    /// That of the packet inside; 0 if it is no IP packet.
    #[default]
    Copy,
    /// This one, 0 to 63.
    Set(u8),
}

/// The far end of a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// Its outer address.
    pub address: IpAddr,
    /// The UDP port that it receives at.
    pub udp_port: u16,
    /// The network identifier that frames to it have; usually the tunnel's own.
    pub vni: u32,
    /// The next hop towards it; `None` while that is not known.
    pub hop: Option<Hop>,
}

/// What a received frame turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No tunnel's; untouched.
    NotTunnelled,
    /// No tunnel's, but perhaps an error about a packet of one ([`Tunnels::narrow`]). Untouched.
    Error,
    /// VXLAN, at an address and UDP port of a tunnel, but of a network that no tunnel is of:
    /// perhaps the kernel's. Untouched.
    UnknownVni,
    /// A tunnel's, whose virtual port this is.
    Inner(PortId),
    /// A tunnel's or in its place, and to be dropped. Untouched.
    Drop(Reason),
}

/// All tunnels of a director, compiled. Immutable: published like the routes, and again whenever
/// the hop to a remote changes.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    tunnels: Vec<Compiled>,
    /// Places of tunnels, by virtual ports.
    by_port: Vec<Option<u16>>,
    /// Places of tunnels, by what received frames are to.
    by_vni: FxHashMap<(IpAddr, u16, u32), u16>,
    /// The same of tunnels over IPv4, by what [`receive`] reads at once.
    by_word: FxHashMap<receive::Word, u16>,
    /// The same without the network.
    endpoints: FxHashSet<(IpAddr, u16)>,
    /// The UDP ports among them: most frames are to none.
    udp_ports: Vec<u16>,
    /// By port: the addresses that an underlay port takes frames for.
    underlay: Vec<Option<Vec<Mac>>>,
}

/// A tunnel as it is used.
#[derive(Clone, Debug)]
struct Compiled {
    port: PortId,
    vni: u32,
    local: IpAddr,
    udp_port: u16,
    accepts_zero_v6: bool,
    dscp: Dscp,
    source_ports: (u16, u16),
    /// Whether sent datagrams have a checksum.
    checksum: bool,
    peers: Small<IpAddr, ()>,
    /// Those of IPv4 by themselves.
    peers_v4: Small<u32, ()>,
    /// Places in `templates`, by MAC addresses as numbers.
    remotes: Small<u64, u32>,
    templates: Vec<Template>,
}

impl Tunnels {
    /// Compiles. `underlay` names the ports that tunnels' frames are received by, each with the MAC
    /// addresses that it takes frames for: any single receiver's, if there are none. What comes by
    /// any other port is never taken for a tunnel's, so that no isolated network can speak in a
    /// remote's name to another.
    ///
    /// Of two tunnels with one virtual port, or with one local address, UDP port and network
    /// identifier, the first counts.
    pub fn new(tunnels: &[Tunnel], underlay: &[(PortId, Vec<Mac>)]) -> Self {
        let mut all = Self::default();
        for (port, macs) in underlay {
            *slot(&mut all.underlay, *port) = Some(macs.clone());
        }
        for tunnel in tunnels {
            let endpoint = (tunnel.local, tunnel.udp_port);
            let name = (tunnel.local, tunnel.udp_port, tunnel.vni);
            let Ok(place) = u16::try_from(all.tunnels.len()) else { break };
            if all.is_virtual(tunnel.port) || all.by_vni.contains_key(&name) {
                continue;
            }
            *slot(&mut all.by_port, tunnel.port) = Some(place);
            all.by_vni.insert(name, place);
            if let IpAddr::V4(local) = tunnel.local {
                let word = receive::word(local.to_bits(), tunnel.udp_port, tunnel.vni);
                all.by_word.insert(word, place);
            }
            all.endpoints.insert(endpoint);
            if !all.udp_ports.contains(&tunnel.udp_port) {
                all.udp_ports.push(tunnel.udp_port);
            }
            all.tunnels.push(Compiled::new(tunnel));
        }
        all
    }

    /// Whether there are none, so that no frame needs to be looked at.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.tunnels.is_empty()
    }

    /// Whether a port is virtual.
    #[inline(always)]
    pub fn is_virtual(&self, port: PortId) -> bool {
        self.of(port).is_some()
    }

    /// Whether frames that come by a port may be a tunnel's.
    #[inline(always)]
    pub fn is_underlay(&self, port: PortId) -> bool {
        matches!(self.underlay.get(usize::from(port.0)), Some(Some(_)))
    }

    /// The underlay port that takes frames for this one's receiver.
    pub fn received_by(&self, frame: &[u8]) -> Option<PortId> {
        let to = frame.first_chunk::<6>()?;
        let ports =
            self.underlay.iter().zip(0..).filter_map(|(macs, port)| Some((macs.as_ref()?, port)));
        let mut ports = ports.filter(|(macs, _)| macs.is_empty() || macs.contains(to));
        ports.next().map(|(_, port)| PortId(port))
    }

    /// Bytes before the inner frame in a received frame of a virtual port: 50 over IPv4, 70 over
    /// IPv6. An IP packet in a tunnel may be so much smaller than the MTU of the underlay, also
    /// where that has a VLAN tag: its tag is no part of an MTU. `None` for any other port.
    pub fn overhead(&self, port: PortId) -> Option<usize> {
        self.of(port).map(Compiled::overhead)
    }

    #[inline(always)]
    fn of(&self, port: PortId) -> Option<&Compiled> {
        let place = *self.by_port.get(usize::from(port.0))?;
        self.tunnels.get(usize::from(place?))
    }
}

impl Compiled {
    fn new(tunnel: &Tunnel) -> Self {
        let ours = tunnel.remotes.iter();
        let ours = ours.filter(|(_, to)| to.address.is_ipv4() == tunnel.local.is_ipv4());
        let places = ours.clone().zip(0..).map(|((mac, _), place)| (number(*mac), place));
        let (first, last) = tunnel.source_ports;
        Self {
            port: tunnel.port,
            vni: tunnel.vni,
            local: tunnel.local,
            udp_port: tunnel.udp_port,
            accepts_zero_v6: tunnel.accepts_zero_v6,
            dscp: tunnel.dscp,
            source_ports: (first, last.max(first)),
            checksum: if tunnel.local.is_ipv4() { tunnel.udp_checksum } else { !tunnel.udp6_zero },
            peers: ours.clone().map(|(_, remote)| (remote.address, ())).collect(),
            peers_v4: ours.clone().filter_map(|(_, remote)| v4(remote.address)).collect(),
            remotes: places.collect(),
            templates: ours.map(|(_, remote)| Template::new(tunnel, remote)).collect(),
        }
    }

    const fn overhead(&self) -> usize {
        overhead(self.local)
    }
}

/// A MAC address as a number: one register to compare and to hash.
#[inline(always)]
const fn number(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn v4(address: IpAddr) -> Option<(u32, ())> {
    match address {
        IpAddr::V4(address) => Some((address.to_bits(), ())),
        IpAddr::V6(_) => None,
    }
}

/// The place of a port in a list by ports, made if it is not there.
fn slot<T>(list: &mut Vec<Option<T>>, port: PortId) -> &mut Option<T> {
    let at = usize::from(port.0);
    if list.len() <= at {
        list.resize_with(at + 1, || None);
    }
    &mut list[at]
}
