//! What a tunnel puts before a packet, as data: the bytes between the outer IP header and the
//! packet (the *shim*), what the outer header calls them, and how many bytes all that is.
//!
//! The plan compiles an [`Encap`] for each real server behind a tunnel, and the path applies it
//! without knowing which tunnel it is. Each tunnel has a file here and its format one in
//! `sluice_wire`; a new one is those two, a [`Kind`], and its word in the configuration. This is
//! neither the plan's nor the path's, so that both may use it.

mod gre;
mod gue;
mod ipip;

use crate::spec::TunnelOptions;
use sluice_wire::ipip::Inner;
use sluice_wire::{checksum, gre as wire_gre, ipip as outer, ipv4, shim};
use std::net::IpAddr;

/// The tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ipip,
    Gue,
    Gre,
}

/// What is different in the shims of a flow's packets, besides lengths and checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Patch {
    /// Where a word says what is inside, and the words for IPv4 and IPv6.
    name: Option<(u8, [u16; 2])>,
    /// Whether it begins with a UDP source port, which the flow's hash chooses.
    source_port: bool,
}

/// What is put before packets to a real server behind a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encap {
    kind: Kind,
    /// The shim as all packets have it.
    shim: [u8; shim::MOST],
    /// Its length in bytes.
    length: u8,
    patch: Patch,
    /// What the outer header says is behind it; `None` for what is inside.
    protocol: Option<u8>,
    /// Bytes that are put before a packet, with the outer IP header.
    pub overhead: u16,
}

impl Encap {
    /// That of a tunnel to a real server.
    pub fn new(kind: Kind, options: TunnelOptions, to: IpAddr) -> Self {
        let made = match kind {
            Kind::Ipip => ipip::shim(),
            Kind::Gue => gue::shim(options),
            Kind::Gre => gre::shim(options),
        };
        let header = if to.is_ipv6() { outer::OVERHEAD_V6 } else { outer::OVERHEAD_V4 };
        Self {
            kind,
            shim: made.bytes,
            length: made.length as u8,
            patch: made.patch,
            protocol: made.protocol,
            overhead: (header + made.length) as u16,
        }
    }

    /// Bytes between the outer IP header and the packet inside.
    pub const fn shim_length(&self) -> u8 {
        self.length
    }

    /// The UDP port that packets are sent to, if it is UDP.
    pub fn udp_port(&self) -> Option<u16> {
        let is_udp = self.protocol == Some(ipv4::UDP);
        is_udp.then(|| u16::from_be_bytes([self.shim[2], self.shim[3]]))
    }

    /// A packet as its outer header sees it.
    pub const fn around(&self, inner: Inner) -> Inner {
        match self.protocol {
            Some(protocol) => inner.behind(protocol, self.length as usize),
            None => inner,
        }
    }

    /// Writes the shim before a packet of a flow with this hash. `pseudo` gives the sum over the
    /// outer pseudo header for a protocol and a length.
    pub fn write(
        &self,
        out: &mut [u8],
        (inner, packet, hash): (Inner, &[u8], u64),
        pseudo: impl FnOnce(u8, usize) -> u16,
    ) -> Option<()> {
        let Some(protocol) = self.protocol else { return Some(()) };
        let bytes = self.shim.get(..usize::from(self.length))?;
        if out.len() != bytes.len() {
            return None;
        }
        out.copy_from_slice(bytes);
        if let Some((at, [v4, v6])) = self.patch.name {
            let name = if inner.is_v6() { v6 } else { v4 };
            out.get_mut(usize::from(at)..)?.get_mut(..2)?.copy_from_slice(&name.to_be_bytes());
        }
        if self.patch.source_port {
            let port = sluice_wire::gue::source_port(hash);
            out.get_mut(..2)?.copy_from_slice(&port.to_be_bytes());
        }
        let packet = packet.get(..inner.length())?;
        let length = out.len() + packet.len();
        let sums = (|| pseudo(protocol, length), || checksum::sum(packet));
        shim::finish(protocol, out, length, sums)
    }

    /// Where the packet inside begins, if a quote of an outer packet may be of one with this
    /// encapsulation: `protocol` is what its outer header says is behind it, `behind` as much of
    /// that as is quoted.
    pub fn inside(&self, protocol: u8, behind: &[u8]) -> Option<usize> {
        let is = match self.kind {
            Kind::Ipip => matches!(protocol, ipv4::IPV4 | ipv4::IPV6),
            Kind::Gue => protocol == ipv4::UDP && gue::may_be(&self.shim, behind),
            Kind::Gre => protocol == wire_gre::PROTOCOL && gre::may_be(&self.shim, behind),
        };
        is.then_some(usize::from(self.length))
    }

    /// Whether a quote that may be of such a packet has a checksum as this encapsulation has: that
    /// alone may tell two apart by which services reach one real server.
    pub fn has_like_checksum(&self, behind: &[u8]) -> bool {
        self.kind != Kind::Gue || gue::has_like_checksum(&self.shim, behind)
    }
}

/// Whether packets of a protocol are tunnels whatever is in them.
pub(crate) const fn has_own_protocol(protocol: u8) -> bool {
    matches!(protocol, ipv4::IPV4 | ipv4::IPV6 | wire_gre::PROTOCOL)
}

/// A shim as a tunnel's file makes it.
struct Shim {
    bytes: [u8; shim::MOST],
    length: usize,
    patch: Patch,
    protocol: Option<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encap() -> impl Strategy<Value = Encap> {
        let kind = prop_oneof![Just(Kind::Ipip), Just(Kind::Gue), Just(Kind::Gre)];
        let options = any::<(Option<u16>, Option<bool>, Option<u32>)>();
        (kind, options, any::<bool>()).prop_map(|(kind, (port, checksum, key), v6)| {
            let options = TunnelOptions { port, checksum, key };
            let to = if v6 { "2001:db8::1" } else { "192.0.2.11" };
            Encap::new(kind, options, to.parse().unwrap())
        })
    }

    /// A whole IPv4 packet.
    const PACKET: [u8; 28] = {
        let mut packet = [0; 28];
        (packet[0], packet[3], packet[8], packet[9]) = (0x45, 28, 63, 17);
        packet
    };

    /// What is behind the outer header of the packet in a tunnel, and what that calls it.
    fn sent(encap: &Encap, hash: u64) -> (u8, Vec<u8>) {
        let inner = Inner::v4(ipv4::Header(PACKET.first_chunk().unwrap()));
        let mut shim = vec![0; usize::from(encap.shim_length())];
        encap.write(&mut shim, (inner, &PACKET, hash), |_, _| 0).unwrap();
        shim.extend(PACKET);
        (encap.protocol.unwrap_or(ipv4::IPV4), shim)
    }

    proptest! {
        /// Each is found again in what routers quote of it: all, or eight bytes (RFC 792), where
        /// only GRE's key may be cut off.
        #[test]
        fn a_quote_of_what_was_sent_is_known(encap in encap(), hash: u64, quoted in 8..40_usize) {
            let (protocol, behind) = sent(&encap, hash);
            let quoted = &behind[..quoted.min(behind.len())];
            prop_assert_eq!(encap.inside(protocol, quoted), Some(encap.length.into()));
        }

        /// Of two that differ in nothing else the checksum tells which sent a packet.
        #[test]
        fn a_checksum_tells_tunnels_apart(one in encap(), other in encap(), hash: u64) {
            let (protocol, behind) = sent(&other, hash);
            if one.inside(protocol, &behind).is_some() {
                prop_assert_eq!(one.has_like_checksum(&behind), one.shim == other.shim);
            }
        }

        /// What another tunnel sent is not taken for this one's, as far as the headers differ.
        #[test]
        fn a_quote_of_another_tunnel_is_not(one in encap(), other in encap(), hash: u64) {
            let (protocol, behind) = sent(&other, hash);
            let same = one.kind == other.kind && match one.kind {
                Kind::Ipip => true,
                Kind::Gue => one.shim[2..4] == other.shim[2..4],
                Kind::Gre => one.shim == other.shim,
            };
            prop_assert_eq!(one.inside(protocol, &behind).is_some(), same);
        }

        #[test]
        fn nothing_quoted_makes_it_fail(encap in encap(), protocol: u8, behind: Vec<u8>) {
            let at = encap.inside(protocol, &behind);
            prop_assert!(at.is_none_or(|at| at == usize::from(encap.length)));
        }
    }
}
