//! Outer headers away, and back.
//!
//! Only the plain case is a tunnel's: an untagged frame, no IP options or extension headers, no
//! fragment, lengths and the IPv4 header checksum as they should be. The rest is left to the path
//! and the kernel, which know what to do about it.

use super::{Compiled, Outcome, Tunnels, inner, narrow};
use crate::fib::PortId;
use crate::frame::{Checked, Frame};
use crate::reason::Reason;
use sluice_wire::checksum::{self, Delta};
use sluice_wire::{ethernet, ipv4, ipv6, udp, vxlan};
use std::net::IpAddr;

/// Where a datagram begins in a frame without tags, options and extension headers.
const UDP_V4: usize = ethernet::HEADER + ipv4::HEADER;
const UDP_V6: usize = ethernet::HEADER + ipv6::HEADER;

/// The outer headers of a frame with a datagram.
#[derive(Clone, Copy)]
struct Outer {
    from: IpAddr,
    to: IpAddr,
    /// UDP destination port.
    port: u16,
    /// Type of service or traffic class.
    class: u8,
    /// Offset of the UDP header.
    udp: usize,
    /// Where the datagram ends; padding may follow.
    end: usize,
}

impl Outer {
    /// Those of a frame, if they are as they must be and it is to one of these UDP ports.
    #[inline(always)]
    fn of(frame: &[u8], ports: &[u16]) -> Option<Self> {
        let head: &[u8; UDP_V4] = frame.first_chunk()?;
        let packet = frame.get(ethernet::HEADER..)?;
        let is_udp = |at: usize| head[at] == ipv4::UDP;
        let udp = match u16::from_be_bytes([head[12], head[13]]) {
            ethernet::IPV4 if head[14] == 0x45 && is_udp(23) => UDP_V4,
            ethernet::IPV6 if is_udp(ethernet::HEADER + ipv6::NEXT_HEADER) => UDP_V6,
            _ => return None,
        };
        let port = u16::from_be_bytes(*frame.get(udp + 2..)?.first_chunk()?);
        if !ports.contains(&port) {
            return None;
        }
        let (from, to, class, length) = if udp == UDP_V4 {
            let header = ipv4::Header::parse(packet).ok()?;
            if header.is_fragment() || !checksum::ipv4_header_ok(header.0) {
                return None;
            }
            let ends = [header.source(), header.destination()].map(|a| IpAddr::V4(a.into()));
            (ends[0], ends[1], header.tos(), header.total_len())
        } else {
            let header = ipv6::Header::parse(packet).ok()?;
            let ends = [header.source(), header.destination()].map(|a| IpAddr::V6(a.into()));
            (ends[0], ends[1], header.traffic_class(), header.total_len())
        };
        let end = ethernet::HEADER + length;
        let datagram = frame.get(udp..end)?;
        let is_whole = udp::Header::parse(datagram)?.length() == datagram.len();
        is_whole.then_some(Self { from, to, port, class, udp, end })
    }

    /// What the datagram carries.
    #[inline(always)]
    fn data<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.udp + udp::HEADER..self.end).unwrap_or_default()
    }

    /// Offset of the inner frame.
    #[inline(always)]
    const fn inner(&self) -> usize {
        self.udp + vxlan::LEN
    }

    /// What the checksum field should be instead of `present` to be right; 0 if it is.
    fn checksum(&self, frame: &[u8]) -> u16 {
        let datagram = frame.get(self.udp..self.end).unwrap_or_default();
        match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                checksum::transport_v4(from.to_bits(), to.to_bits(), ipv4::UDP, datagram)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                checksum::transport_v6(from.to_bits(), to.to_bits(), ipv4::UDP, datagram)
            }
            _ => 0,
        }
    }

    /// The checksum field.
    fn field<'a>(&self, frame: &'a mut [u8]) -> Option<&'a mut [u8; 2]> {
        frame.get_mut(self.udp + udp::CHECKSUM..)?.first_chunk_mut()
    }

    /// Makes a checksum that was left to whoever sends the frame whole: none over IPv4, where that
    /// costs nothing (RFC 768).
    #[cold]
    fn complete(&self, frame: &mut [u8]) {
        if let Some(field) = self.field(frame) {
            *field = [0; 2];
        }
        if self.to.is_ipv6() {
            let sum = self.checksum(frame);
            if let Some(field) = self.field(frame) {
                *field = if sum == 0 { [0xff; 2] } else { sum.to_be_bytes() };
            }
        }
    }

    /// Makes the checksum what it is after a change to the inner frame.
    fn follow(&self, frame: &mut [u8], change: Delta) {
        if let Some(field) = self.field(frame) {
            *field = change.apply_udp(u16::from_be_bytes(*field)).to_be_bytes();
        }
    }
}

/// Outer destination, UDP port and network identifier of a frame in a tunnel over IPv4.
pub(super) type Word = (u64, u32);

/// The word of a tunnel.
pub(super) const fn word(to: u32, port: u16, vni: u32) -> Word {
    ((to as u64) << 16 | port as u64, vni)
}

/// Where the outer headers over IPv4 have what the usual case is known by.
const CLASS: usize = ethernet::HEADER + 1;
const FRAGMENT: usize = ethernet::HEADER + 6;
const PROTOCOL: usize = ethernet::HEADER + 9;
const FROM: usize = ethernet::HEADER + ipv4::SOURCE;
const TO: usize = ethernet::HEADER + ipv4::DESTINATION;
const INNER: usize = vxlan::OVERHEAD_V4;
/// Bytes up to the inner frame's EtherType.
const LOOKED_AT: usize = INNER + ethernet::HEADER;

impl Tunnels {
    /// The tunnel of a frame in the usual case, and where the outer packet ends: over IPv4, without
    /// a UDP checksum, with no congestion mark to take over. `None` says nothing: [`Self::look`]
    /// and what follows it know all cases.
    ///
    /// Nearly all frames in tunnels are such, and a few comparisons of words tell it; no part of
    /// the headers is looked at twice.
    #[inline(always)]
    fn usual(&self, from: PortId, frame: &[u8]) -> Option<(&Compiled, usize)> {
        let head: &[u8; LOOKED_AT] = frame.first_chunk()?;
        let two = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let four =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let is_plain = (two(12), head[14], head[PROTOCOL]) == (ethernet::IPV4, 0x45, ipv4::UDP)
            && two(FRAGMENT) & 0x3fff == 0
            && two(UDP_V4 + udp::CHECKSUM) == 0
            && head[CLASS] & vxlan::ECN == vxlan::NOT_ECT;
        let header: &[u8; ipv4::HEADER] = head[ethernet::HEADER..].first_chunk()?;
        if !is_plain || !self.takes(from, frame) || !checksum::ipv4_header_ok(header) {
            return None;
        }
        let vni = vxlan::vni(head[UDP_V4 + udp::HEADER..].first_chunk()?)?;
        let place = *self.by_word.get(&word(four(TO), two(UDP_V4 + 2), vni))?;
        let tunnel = self.tunnels.get(usize::from(place))?;
        tunnel.peers_v4.get(&four(FROM))?;
        let length = usize::from(two(ethernet::HEADER + 2));
        let end = ethernet::HEADER + length;
        let is_whole = (LOOKED_AT..=frame.len()).contains(&end)
            && usize::from(two(UDP_V4 + 4)) + ipv4::HEADER == length;
        (is_whole && !inner::is_tagged(&head[INNER..])).then_some((tunnel, end))
    }

    /// What a frame that came by `from` is, by its headers: what [`Self::decapsulate`] will say of
    /// it, unless it finds a checksum wrong or a congestion mark that cannot be kept.
    #[inline]
    pub fn find(&self, from: PortId, frame: &[u8]) -> Outcome {
        match self.look(from, frame) {
            Ok((tunnel, _)) => Outcome::Inner(tunnel.port),
            Err(Outcome::NotTunnelled) if narrow::may_be(frame) => Outcome::Error,
            Err(outcome) => outcome,
        }
    }

    /// Removes the outer headers of a frame that came by `from`, if it is a tunnel's: it is then
    /// one that came by the virtual port. What its port said of its checksums is forgotten, for
    /// that was about the outer packet, and padding behind the outer packet is cut off. The
    /// congestion mark of the outer header is taken over (RFC 6040).
    ///
    /// Super-packets are never a tunnel's: ports cut those in tunnels when they receive them.
    #[inline]
    pub fn decapsulate<F: Frame>(&self, from: PortId, frame: &mut F) -> Outcome {
        if self.is_empty() || frame.segment_size() != 0 {
            return Outcome::NotTunnelled;
        }
        if let Some((tunnel, end)) = self.usual(from, frame.bytes())
            && !frame.is_unfinished()
            && (frame.bytes().len() == end || frame.set_len(end))
            && frame.pull_front(INNER)
        {
            frame.forget_checksums();
            return Outcome::Inner(tunnel.port);
        }
        self.decapsulate_any(from, frame)
    }

    /// The same in all cases.
    #[inline(never)]
    pub(super) fn decapsulate_any<F: Frame>(&self, from: PortId, frame: &mut F) -> Outcome {
        let (tunnel, outer) = match self.look(from, frame.bytes()) {
            Ok(found) => found,
            Err(Outcome::NotTunnelled) if narrow::may_be(frame.bytes()) => return Outcome::Error,
            Err(outcome) => return outcome,
        };
        let unfinished = frame.is_unfinished();
        if !unfinished && !tunnel.believes(&outer, frame) {
            return Outcome::Drop(Reason::VxlanChecksum);
        }
        let Some(inner) = frame.bytes().get(outer.inner()..outer.end) else {
            return Outcome::NotTunnelled;
        };
        let class = inner::traffic_class(inner);
        let mark = match class.map(|class| vxlan::decapsulated_ecn(class, outer.class)) {
            Some(None) => return Outcome::Drop(Reason::VxlanEcn),
            Some(mark) => mark.filter(|mark| Some(*mark) != class.map(|class| class & vxlan::ECN)),
            None => None,
        };
        if unfinished {
            outer.complete(frame.bytes_mut());
        }
        if let Some(mark) = mark
            && let Some(inner) = frame.bytes_mut().get_mut(outer.inner()..outer.end)
        {
            let change = inner::set_ecn(inner, mark);
            outer.follow(frame.bytes_mut(), change);
        }
        let is_cut = frame.bytes().len() == outer.end || frame.set_len(outer.end);
        if !is_cut || !frame.pull_front(outer.inner()) {
            return Outcome::NotTunnelled;
        }
        frame.forget_checksums();
        Outcome::Inner(tunnel.port)
    }

    /// Brings back the outer headers that [`Self::decapsulate`] removed of a frame that came by a
    /// virtual port, for frames that go to the kernel after all. `false`, and nothing changed, when
    /// they are not where they were left, or the inner frame is not as long as it was.
    pub fn restore<F: Frame>(&self, port: PortId, frame: &mut F) -> bool {
        let Some(tunnel) = self.of(port) else { return false };
        let count = tunnel.overhead();
        if !frame.push_front(count) {
            return false;
        }
        if tunnel.is_outside(frame.bytes()) {
            return true;
        }
        let pulled = frame.pull_front(count);
        debug_assert!(pulled, "they were pushed");
        false
    }

    /// The tunnel that a frame is of.
    #[inline(always)]
    fn look(&self, from: PortId, frame: &[u8]) -> Result<(&Compiled, Outer), Outcome> {
        let outer = Outer::of(frame, &self.udp_ports).ok_or(Outcome::NotTunnelled)?;
        if !self.takes(from, frame) {
            return Err(Outcome::NotTunnelled);
        }
        let header = outer.data(frame).first_chunk();
        let vni = header.and_then(vxlan::vni);
        let place = vni.and_then(|vni| self.by_vni.get(&(outer.to, outer.port, vni)));
        let Some(tunnel) = place.and_then(|place| self.tunnels.get(usize::from(*place))) else {
            return Err(match vni {
                _ if !self.endpoints.contains(&(outer.to, outer.port)) => Outcome::NotTunnelled,
                Some(_) => Outcome::UnknownVni,
                None => Outcome::Drop(Reason::VxlanMalformed),
            });
        };
        if tunnel.peers.get(&outer.from).is_none() {
            return Err(Outcome::Drop(Reason::VxlanPeer));
        }
        let inner = frame.get(outer.inner()..outer.end).unwrap_or_default();
        if inner.len() < ethernet::HEADER {
            return Err(Outcome::Drop(Reason::VxlanMalformed));
        }
        if inner::is_tagged(inner) {
            return Err(Outcome::Drop(Reason::VxlanTagged));
        }
        Ok((tunnel, outer))
    }

    /// Whether a port is of the underlay and takes a frame for its own.
    #[inline(always)]
    pub(super) fn takes(&self, port: PortId, frame: &[u8]) -> bool {
        let Some(Some(own)) = self.underlay.get(usize::from(port.0)) else { return false };
        if own.is_empty() {
            return !ethernet::is_group(frame);
        }
        frame.first_chunk().is_some_and(|to| own.contains(to))
    }
}

impl Compiled {
    /// Whether the outer checksum is right, or allowed to be missing.
    #[inline(always)]
    fn believes<F: Frame>(&self, outer: &Outer, frame: &F) -> bool {
        let bytes = frame.bytes();
        let field = bytes.get(outer.udp..).and_then(|udp| udp.first_chunk());
        if field.map_or(0, |header| udp::Header(header).checksum()) == 0 {
            // Some devices find it wrong that there is none.
            return outer.to.is_ipv4() || self.accepts_zero_v6;
        }
        match frame.rx_checksum().l4 {
            Checked::Good => true,
            Checked::Bad => false,
            Checked::Unknown => outer.checksum(bytes) == 0,
        }
    }

    /// Whether a frame has outer headers that can be those of a frame received for this tunnel.
    fn is_outside(&self, frame: &[u8]) -> bool {
        let is_ours = |outer: &Outer| {
            let header = outer.data(frame).first_chunk();
            outer.to == self.local
                && outer.end == frame.len()
                && header.and_then(vxlan::vni) == Some(self.vni)
        };
        Outer::of(frame, &[self.udp_port]).as_ref().is_some_and(is_ours)
    }
}
