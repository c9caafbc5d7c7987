//! What can be chosen of the headers that a tunnel puts before packets.

use super::Mode;
use crate::plan::forwarding::encap;
use std::net::IpAddr;

/// What can be chosen; `None` for what the service, or the tunnel, says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TunnelOptions {
    /// The UDP port that tunnelled packets are sent to.
    pub port: Option<u16>,
    /// Whether the tunnel's own header has a checksum over the packet inside.
    pub checksum: Option<bool>,
    /// The key that tells tunnels between the same ends apart.
    pub key: Option<u32>,
}

impl TunnelOptions {
    /// Bytes that a mode puts before packets to a real server's address.
    pub fn overhead(self, mode: Mode, to: IpAddr) -> u16 {
        encap(mode, self, to).map_or(0, |encap| encap.overhead)
    }

    /// These, and where they say nothing, others.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            port: self.port.or(other.port),
            checksum: self.checksum.or(other.checksum),
            key: self.key.or(other.key),
        }
    }
}
