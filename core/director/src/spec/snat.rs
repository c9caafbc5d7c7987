//! What packets get outside the virtual services: rules of source NAT, and the outer addresses of
//! tunnels.

use super::Protocol;
use std::net::IpAddr;

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Its bits: 0 to 32, or 0 to 128 for IPv6.
    pub prefix: u8,
}

impl Network {
    /// Whether `address` is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(a)) => {
                let shift = 32 - u32::from(self.prefix.min(32));
                (net.to_bits() ^ a.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(a)) => {
                let shift = 128 - u32::from(self.prefix.min(128));
                (net.to_bits() ^ a.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// What of an inside endpoint's connections shares a pool address and port (RFC 4787, 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// All of one inside address and port, wherever they go.
    #[default]
    EndpointIndependent,
    /// Each 5-tuple has its own.
    PerSession,
}

impl Mapping {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndpointIndependent => "endpoint_independent",
            Self::PerSession => "per_session",
        }
    }
}

/// A rule of source NAT for connections that real servers open to the outside. Of several that
/// match the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnatRule {
    /// The operator's name for it; unique.
    pub name: String,
    /// Name of the network whose connections these are; empty for the default one.
    pub network: String,
    /// Networks that connections come from; at least one.
    pub sources: Vec<Network>,
    /// Networks that connections go to; empty for everywhere.
    pub destinations: Vec<Network>,
    /// Protocols: TCP, UDP, ICMP; empty for all three.
    pub protocols: Vec<Protocol>,
    /// The port (interface) that connections leave by, by its place in the configuration.
    pub egress: Option<u16>,
    /// Name of the local pool that gives source addresses and ports.
    pub pool: String,
    /// What shares a pool address and port.
    pub mapping: Mapping,
    /// Whether hosts inside reach each other by what they have outside (RFC 4787 6).
    pub hairpinning: bool,
    /// Seconds without a packet after which an established TCP connection is over; 0 for what
    /// [`Timeouts`](super::Timeouts) says.
    pub tcp_established_s: u32,
}

/// Outer source addresses of `ipip`. Of a prefix each flow gets an address of its own, by hash,
/// so that the real server's NIC spreads tunnelled flows over its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelSources {
    /// For IPv4 outside.
    pub v4: Option<Network>,
    /// For IPv6 outside.
    pub v6: Option<Network>,
}
