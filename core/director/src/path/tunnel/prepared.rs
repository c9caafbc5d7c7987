//! What can be prepared of outer headers: all that is the same of every packet to a real server.
//! Groups read it as it lies in memory, so that all addresses are in network byte order.

use super::{chosen, hosts};
use crate::fib::Hop;
use crate::path::rewrite;
use crate::plan::RealId;
use crate::spec::Network;
use bytemuck::{Pod, Zeroable};
use sluice_wire::{ethernet, ipip};
use std::net::IpAddr;

/// What packets need of a tunnel over IPv4, or of one over IPv6; zeros for a real server without
/// such a tunnel.
pub(in crate::path) trait Tunnel: Pod + Default {
    /// Bytes that its outer header adds.
    const OVERHEAD: usize;

    /// The tunnel from a source to a real server, if there is one.
    fn to(real: IpAddr, source: &Network) -> Option<Self>;

    /// Four words, the third of which says which bits of the outer source a hash chooses, and the
    /// last how long a packet may be without its outer header, as far as the path is known: whether
    /// one that is longer fits after all is for [`room`](super::room) to say.
    fn row(&self) -> &[u32; 4];

    fn row_mut(&mut self) -> &mut [u32; 4];

    /// Whether there is such a tunnel.
    #[inline(always)]
    fn is_one(&self) -> bool {
        self.row()[3] != 0
    }

    /// Whether a packet of so many bytes surely fits, with its outer header into what the link
    /// takes.
    #[inline(always)]
    fn fits(&self, length: u32, link: u16) -> bool {
        length <= self.row()[3] && length + Self::OVERHEAD as u32 <= u32::from(link)
    }

    /// Says how long a packet may be with its outer header.
    fn set_most(&mut self, most: u16) {
        self.row_mut()[3] = u32::from(most.saturating_sub(Self::OVERHEAD as u16));
    }
}

/// Prepares the tunnels to all real servers, of whom the address and the most is given that a
/// packet may be long.
pub(super) fn all<T: Tunnel>(
    tunnels: &mut Vec<T>,
    source: Option<Network>,
    reals: impl Iterator<Item = (IpAddr, u16)>,
) {
    tunnels.clear();
    let Some(source) = source else { return };
    tunnels.extend(reals.map(|(address, most)| {
        let mut tunnel = T::to(address, &source);
        tunnel.iter_mut().for_each(|tunnel| tunnel.set_most(most));
        tunnel.unwrap_or_default()
    }));
}

/// Has what is known anew of a path where packets look.
pub(super) fn renew<T: Tunnel>(tunnels: &mut [T], real: RealId, most: u16) {
    let tunnel = tunnels.get_mut(real.0 as usize).filter(|tunnel| tunnel.is_one());
    tunnel.into_iter().for_each(|tunnel| tunnel.set_most(most));
}

/// A tunnel over IPv4: the real server's address, the outer source, and the rest of the row.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C, align(16))]
pub(in crate::path) struct Four([u32; 4]);

impl Tunnel for Four {
    const OVERHEAD: usize = ipip::OVERHEAD_V4;

    fn to(real: IpAddr, source: &Network) -> Option<Self> {
        let (IpAddr::V4(to), IpAddr::V4(from)) = (real, source.address) else { return None };
        let hosts = u32::from(hosts(32 - u32::from(source.prefix.min(32))));
        Some(Self([to.to_bits().to_be(), from.to_bits().to_be(), hosts.to_be(), 0]))
    }

    #[inline(always)]
    fn row(&self) -> &[u32; 4] {
        &self.0
    }

    fn row_mut(&mut self) -> &mut [u32; 4] {
        &mut self.0
    }
}

impl Four {
    /// Writes the link-layer and the outer header before a packet.
    #[inline(always)]
    pub fn write(self, frame: &mut [u8], hash: u64, hop: &Hop) -> Option<()> {
        let (link, rest) = frame.split_first_chunk_mut::<{ ethernet::HEADER }>()?;
        let (header, packet) = rest.split_first_chunk_mut()?;
        let (inner, id) = rewrite::inner(packet, hash as u16)?;
        link[..12].copy_from_slice(hop.macs.as_flattened());
        link[12..].copy_from_slice(&ethernet::IPV4.to_be_bytes());
        let [to, from, hosts, _] = self.0.map(u32::from_be);
        inner.within_v4(header, from | u32::from(chosen(hash)) & hosts, to, id)
    }
}

/// A tunnel over IPv6.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C, align(16))]
pub(in crate::path) struct Six {
    /// Nothing; the last two bytes of the outer source and the first two of the real server's
    /// address; and the rest of the row.
    row: [u32; 4],
    /// What is before the latter: hop limit, and the source's first bytes. The protocol, which is
    /// the first byte, is left out.
    pub front: [u32; 4],
    /// What is behind it: the rest of the real server's address, and room for two bytes.
    pub back: [u32; 4],
}

impl Tunnel for Six {
    const OVERHEAD: usize = ipip::OVERHEAD_V6;

    fn to(real: IpAddr, source: &Network) -> Option<Self> {
        let (IpAddr::V6(to), IpAddr::V6(from)) = (real, source.address) else { return None };
        let mut bytes = [0; 48];
        bytes[1] = ipip::TTL;
        bytes[2..18].copy_from_slice(&from.octets());
        bytes[18..34].copy_from_slice(&to.octets());
        let [a, b, c, d, middle, e, f, g, h, ..]: [u32; 12] = bytemuck::must_cast(bytes);
        let hosts = hosts(128 - u32::from(source.prefix.min(128)));
        let row = [0, middle, u32::from(hosts.to_be()), 0];
        Some(Self { row, front: [a, b, c, d], back: [e, f, g, h] })
    }

    #[inline(always)]
    fn row(&self) -> &[u32; 4] {
        &self.row
    }

    fn row_mut(&mut self) -> &mut [u32; 4] {
        &mut self.row
    }
}
