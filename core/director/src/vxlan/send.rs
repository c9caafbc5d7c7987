//! Outer headers before a frame.
//!
//! All that a remote's frames have in common is prepared as one run of bytes, from the link layer
//! to the VXLAN header, and copied as a whole; what differs by frame is written into the copy. IPv4
//! headers say that routers may not cut them, so that a remote never has fragments to put together
//! (RFC 7348 4.3), and therefore need no identification (RFC 6864 4.1).

use super::{Compiled, Dscp, Remote, Tunnel, Tunnels, inner, number};
use crate::fib::{Hop, PortId};
use crate::frame::Frame;
use crate::reason::Reason;
use sluice_wire::checksum::{self, Delta};
use sluice_wire::offload::Place;
use sluice_wire::{ethernet, ipv4, ipv6, udp, vxlan};
use std::net::IpAddr;

/// Bytes of the longest outer headers.
const MOST: usize = vxlan::OVERHEAD_V6 + ethernet::TAG;

/// The outer headers of frames to a remote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    bytes: [u8; MOST],
    length: u8,
    /// Offset of the IP header.
    l3: u8,
    is_v6: bool,
    /// The port that they leave by, and the most bytes that an outer packet may have; `None` while
    /// the next hop is not known.
    way: Option<(PortId, u16)>,
}

/// What differs by frame.
#[derive(Clone, Copy)]
struct Facts {
    class: u8,
    source_port: u16,
    /// Bytes of the UDP datagram.
    length: u16,
}

impl Template {
    /// That of a remote, which is of the same family as the tunnel's own address.
    pub fn new(tunnel: &Tunnel, remote: &Remote) -> Self {
        let mut made = Self {
            bytes: [0; MOST],
            length: 0,
            l3: 0,
            is_v6: tunnel.local.is_ipv6(),
            way: remote.hop.map(|hop| (hop.port, hop.mtu)),
        };
        made.put_link(remote.hop.as_ref());
        made.l3 = made.length;
        made.put_network(tunnel, remote.address);
        let ports = [tunnel.source_ports.0, remote.udp_port, 0, 0];
        made.put(ports.map(u16::to_be_bytes).as_flattened());
        made.put(&vxlan::header(remote.vni));
        made
    }

    fn put(&mut self, bytes: &[u8]) {
        let at = usize::from(self.length);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }

    fn put_link(&mut self, hop: Option<&Hop>) {
        self.put(hop.map_or([[0; 6]; 2], |hop| hop.macs).as_flattened());
        if let Some(hop) = hop.filter(|hop| hop.vlan != 0) {
            self.put(&ethernet::VLAN.to_be_bytes());
            self.put(&hop.vlan.to_be_bytes());
        }
        let ethertype = if self.is_v6 { ethernet::IPV6 } else { ethernet::IPV4 };
        self.put(&ethertype.to_be_bytes());
    }

    fn put_network(&mut self, tunnel: &Tunnel, to: IpAddr) {
        match (tunnel.local, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut header = [0; ipv4::HEADER];
                // Version, header length; Don't Fragment.
                (header[0], header[6]) = (0x45, 0x40);
                (header[ipv4::TTL], header[9]) = (tunnel.ttl, ipv4::UDP);
                header[ipv4::SOURCE..][..4].copy_from_slice(&from.octets());
                header[ipv4::DESTINATION..][..4].copy_from_slice(&to.octets());
                let sum = checksum::full(&header);
                header[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
                self.put(&header);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut header = [0; ipv6::HEADER];
                header[0] = 0x60;
                header[ipv6::NEXT_HEADER] = ipv4::UDP;
                header[ipv6::HOP_LIMIT] = tunnel.ttl;
                header[ipv6::SOURCE..][..16].copy_from_slice(&from.octets());
                header[ipv6::DESTINATION..][..16].copy_from_slice(&to.octets());
                self.put(&header);
            }
            _ => debug_assert!(false, "remotes of the other family are left out"),
        }
    }

    /// Whether its frames go to this address and UDP port, with this VXLAN header.
    pub fn is_to(&self, address: IpAddr, port: u16, header: &[u8; vxlan::HEADER]) -> bool {
        let (l3, end) = (usize::from(self.l3), usize::from(self.length));
        let is = |at: usize, bytes: &[u8]| self.bytes.get(at..at + bytes.len()) == Some(bytes);
        let is_address = match address {
            IpAddr::V4(to) => !self.is_v6 && is(l3 + ipv4::DESTINATION, &to.octets()),
            IpAddr::V6(to) => self.is_v6 && is(l3 + ipv6::DESTINATION, &to.octets()),
        };
        is_address
            && is(end - vxlan::LEN + 2, &port.to_be_bytes())
            && is(end - vxlan::HEADER, header)
    }

    /// The most bytes that an outer packet may have, while the next hop is known.
    pub fn most(&self) -> Option<u16> {
        self.way.map(|(_, mtu)| mtu)
    }

    /// Bytes from the outer IP header to the inner frame.
    const fn above_link(&self) -> usize {
        (self.length - self.l3) as usize
    }

    /// Writes the headers before a frame that has been given room for them. Gives where the UDP
    /// header is.
    #[inline(always)]
    fn write(&self, frame: &mut [u8], facts: Facts) -> Option<usize> {
        let length = usize::from(self.length);
        if length == vxlan::OVERHEAD_V4 {
            // A length that is known is copied without a call.
            *frame.first_chunk_mut::<{ vxlan::OVERHEAD_V4 }>()? = *self.bytes.first_chunk()?;
        } else {
            frame.get_mut(..length)?.copy_from_slice(self.bytes.get(..length)?);
        }
        let l3 = usize::from(self.l3);
        let net = frame.get_mut(l3..)?;
        let l4 = if self.is_v6 {
            v6(net.first_chunk_mut()?, facts);
            l3 + ipv6::HEADER
        } else {
            v4(net.first_chunk_mut()?, facts);
            l3 + ipv4::HEADER
        };
        let header: &mut [u8; udp::HEADER] = frame.get_mut(l4..)?.first_chunk_mut()?;
        header[..2].copy_from_slice(&facts.source_port.to_be_bytes());
        header[4..6].copy_from_slice(&facts.length.to_be_bytes());
        Some(l4)
    }

    /// The checksum of the datagram whose header is at `l4`.
    fn checksum(&self, frame: &[u8], l4: usize) -> Option<u16> {
        let (net, datagram) = (frame.get(usize::from(self.l3)..)?, frame.get(l4..)?);
        let sum = if self.is_v6 {
            let header = ipv6::Header(net.first_chunk()?);
            checksum::transport_v6(header.source(), header.destination(), ipv4::UDP, datagram)
        } else {
            let header = ipv4::Header(net.first_chunk()?);
            checksum::transport_v4(header.source(), header.destination(), ipv4::UDP, datagram)
        };
        Some(if sum == 0 { 0xffff } else { sum })
    }
}

/// Completes an IPv4 header.
#[inline(always)]
fn v4(header: &mut [u8; ipv4::HEADER], facts: Facts) {
    let length = facts.length + ipv4::HEADER as u16;
    let delta = Delta::NONE.word16(0, u16::from(facts.class)).word16(0, length);
    let sum = delta.apply(ipv4::Header(header).checksum());
    header[1] = facts.class;
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
}

/// Completes an IPv6 header.
#[inline(always)]
fn v6(header: &mut [u8; ipv6::HEADER], facts: Facts) {
    header[0] = 0x60 | facts.class >> 4;
    header[1] = facts.class << 4;
    header[ipv6::PAYLOAD_LEN..][..2].copy_from_slice(&facts.length.to_be_bytes());
}

impl Tunnels {
    /// Puts outer headers before a frame that leaves by a virtual port. Gives the underlay port
    /// that it leaves by now, with the link-layer header of the hop to its remote. What has a
    /// reason is to be dropped.
    ///
    /// Needs headroom of [`Self::overhead`], and four bytes more for the VLAN tag of a hop that has
    /// one. Checksums that were left to whoever sends the frame are completed. A super-packet stays
    /// one, and whoever sends it is told how to cut it (see [`Frame::set_shim`]); one that is in
    /// yet another tunnel nobody could cut any more, nor one that with its outer headers is longer
    /// than 65,535 bytes.
    #[inline]
    pub fn encapsulate<F: Frame>(&self, port: PortId, frame: &mut F) -> Result<PortId, Reason> {
        let tunnel = self.of(port).ok_or(Reason::PortGone)?;
        let bytes = frame.bytes();
        if bytes.len() < ethernet::HEADER {
            return Err(Reason::Truncated);
        }
        let to = bytes.first_chunk().ok_or(Reason::Truncated)?;
        let template = tunnel.to(to).ok_or(Reason::VxlanNoRemote)?;
        let (out, mtu) = template.way.ok_or(Reason::VxlanUnresolved)?;
        if inner::is_tagged(bytes) {
            return Err(Reason::VxlanTagged);
        }
        let longest = longest(frame).ok_or(Reason::VxlanTooLarge)? + template.above_link();
        let length = u16::try_from(frame.bytes().len() + template.above_link());
        let (true, Ok(length)) = (longest <= usize::from(mtu), length) else {
            return Err(Reason::VxlanTooLarge);
        };
        let is_super = frame.segment_size() != 0;
        if !is_super && frame.is_unfinished() {
            frame.complete_checksum();
        }
        let header = if template.is_v6 { ipv6::HEADER } else { ipv4::HEADER };
        let facts = tunnel.facts(frame.bytes(), length - header as u16);
        if !frame.push_front(usize::from(template.length)) {
            return Err(Reason::Headroom);
        }
        let bytes = frame.bytes_mut();
        let l4 = template.write(bytes, facts).ok_or(Reason::Headroom)?;
        if tunnel.checksum {
            // That of a super-packet's segments is calculated when they are: this says that they
            // have one.
            let sum = if is_super { Some(0xffff) } else { template.checksum(bytes, l4) };
            let sum = sum.ok_or(Reason::Headroom)?.to_be_bytes();
            bytes[l4 + udp::CHECKSUM..][..2].copy_from_slice(&sum);
        }
        if is_super {
            frame.set_shim(vxlan::SHIM as u8);
        }
        Ok(out)
    }
}

/// Bytes of the longest frame that a frame is on the wire; `None` for a super-packet that could not
/// be cut behind another outer header. One that can loses what is behind its packet.
#[inline(always)]
fn longest<F: Frame>(frame: &mut F) -> Option<usize> {
    match frame.segment_size() {
        0 => Some(frame.bytes().len()),
        size => longest_segment(frame, size),
    }
}

#[cold]
fn longest_segment<F: Frame>(frame: &mut F, size: u16) -> Option<usize> {
    let place = Place::of(frame.bytes())?;
    let can = place.protocol == ipv4::TCP && !place.in_tunnel() && frame.set_len(place.end);
    can.then(|| place.end.min(place.data + usize::from(size)))
}

impl Compiled {
    #[inline(always)]
    pub(super) fn to(&self, mac: &ethernet::Mac) -> Option<&Template> {
        self.templates.get(self.remotes.get(&number(*mac))? as usize)
    }

    /// What differs in the outer headers of a frame, whose datagram has so many bytes.
    #[inline(always)]
    fn facts(&self, frame: &[u8], length: u16) -> Facts {
        let inner = inner::traffic_class(frame).unwrap_or_default();
        let code = match self.dscp {
            Dscp::Copy => inner & !vxlan::ECN,
            Dscp::Set(code) => code << 2,
        };
        let class = code | vxlan::encapsulated_ecn(inner);
        Facts { class, source_port: self.source_port(frame), length }
    }

    /// The UDP source port of a frame's flow.
    #[inline(always)]
    pub(super) fn source_port(&self, frame: &[u8]) -> u16 {
        let (first, last) = self.source_ports;
        let count = u64::from(last - first) + 1;
        let part = ((inner::flow(frame) >> 32) * count) >> 32;
        first + part as u16
    }
}
