//! Errors about outer packets that were larger than a link on their way takes (RFC 1191, RFC 8201):
//! is an error about a packet that this end sent, so that it may be believed?
//!
//! Anybody may send an error, and what a forger could gain is that a network's packets become
//! small, or do not fit at all. So the quote must be one that only a sender or a router of the
//! tunnel can have made: this end's address and UDP port, a remote of the tunnel, its network
//! identifier, the MAC address that leads to that remote, the UDP source port of the inner flow,
//! and no more bytes than such a packet can have had, but more than the error says that fit. What
//! the inner frame's other addresses have to be is for whoever knows the network's routes to tell
//! ([`Narrow`]). A router that quotes less than an inner IP header is not believed (RFC 1812
//! 4.3.2.3 asks for as much as fits into 576 bytes, RFC 4443 for all that fits into 1280).

use super::{Tunnels, inner};
use crate::fib::PortId;
use sluice_wire::ethernet::Mac;
use sluice_wire::{checksum, ethernet, icmp, ipv4, ipv6, udp, vxlan};
use std::net::IpAddr;

/// The least MTU of a path over IPv4 that is believed: less has no link that VXLAN goes over.
const LEAST_V4: u16 = 576;

/// A link on the way to a remote takes less than an outer packet had. To be believed if the network
/// of `port` reaches `to` by that port, and with these link-layer addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// The virtual port.
    pub port: PortId,
    /// The far end of the tunnel.
    pub remote: IpAddr,
    /// The most bytes of an outer packet that get through; 576 over IPv4 and 1280 over IPv6 at
    /// least.
    pub mtu: u16,
    /// The inner frame's receiver and sender.
    pub macs: [Mac; 2],
    /// The receiver of the packet inside.
    pub to: IpAddr,
}

/// What an error says: the receiver of the error, the MTU and the quoted packet.
struct Told<'a> {
    to: IpAddr,
    mtu: u16,
    quote: &'a [u8],
}

/// The outer headers of a quoted packet, and as much of the inner frame as is quoted.
struct Sent<'a> {
    from: IpAddr,
    to: IpAddr,
    /// Bytes of the whole packet.
    total: usize,
    ports: [u16; 2],
    /// The header between UDP's and the frame.
    header: [u8; vxlan::HEADER],
    frame: &'a [u8],
}

/// Whether a frame that is no datagram may be such an error: what sorts nearly all others out.
#[inline]
pub(super) fn may_be(frame: &[u8]) -> bool {
    let is = |at: usize, byte: u8| frame.get(at) == Some(&byte);
    match frame.get(12..14) {
        Some([8, 0]) => {
            let at = ethernet::HEADER + ipv4::HEADER;
            let code = icmp::v4::FRAGMENTATION_NEEDED;
            is(23, ipv4::ICMP) && is(at, icmp::v4::UNREACHABLE) && is(at + 1, code)
        }
        Some([0x86, 0xdd]) => {
            let at = ethernet::HEADER + ipv6::HEADER;
            is(20, ipv6::ICMPV6) && is(at, icmp::v6::PACKET_TOO_BIG)
        }
        _ => false,
    }
}

impl Tunnels {
    /// What an error that came by an underlay port tells of a tunnel, if it can be about one of its
    /// packets.
    #[cold]
    pub fn narrow(&self, from: PortId, frame: &[u8]) -> Option<Narrow> {
        if !may_be(frame) || !self.takes(from, frame) {
            return None;
        }
        let told = Told::read(frame.get(ethernet::HEADER..)?)?;
        let sent = Sent::read(told.quote).filter(|sent| sent.from == told.to)?;
        let macs = sent.frame.first_chunk::<12>()?;
        let [to, by] = [macs.first_chunk()?, macs.last_chunk()?].map(|mac: &Mac| *mac);
        let receiver = inner::receiver(sent.frame)?;
        let ours = self.tunnels.iter().filter(|tunnel| tunnel.local == sent.from);
        let tunnel = ours.into_iter().find(|tunnel| {
            let template =
                tunnel.to(&to).filter(|it| it.is_to(sent.to, sent.ports[1], &sent.header));
            template.and_then(|it| it.most()).is_some_and(|most| sent.total <= usize::from(most))
                && tunnel.source_port(sent.frame) == sent.ports[0]
        })?;
        let least = if sent.to.is_ipv4() { LEAST_V4 } else { ipv6::MIN_MTU as u16 };
        let mtu = told.mtu.max(least);
        let was_larger = sent.total > usize::from(mtu);
        let narrow =
            Narrow { port: tunnel.port, remote: sent.to, mtu, macs: [to, by], to: receiver };
        was_larger.then_some(narrow)
    }
}

impl<'a> Told<'a> {
    /// Reads a whole packet without options and extension headers, whose checksums are right.
    fn read(packet: &'a [u8]) -> Option<Self> {
        let (to, message, sound) = if packet.first()? >> 4 == 6 {
            let header = ipv6::Header::parse(packet).ok()?;
            let message = packet.get(ipv6::HEADER..header.total_len())?;
            let (from, to) = (header.source(), header.destination());
            let sum = checksum::transport_v6(from, to, ipv6::ICMPV6, message);
            (IpAddr::V6(to.into()), message, header.next_header() == ipv6::ICMPV6 && sum == 0)
        } else {
            let header = ipv4::Header::parse(packet).ok()?;
            let message = packet.get(ipv4::HEADER..header.total_len())?;
            let is_plain = header.header_len() == ipv4::HEADER && !header.is_fragment();
            let sums = checksum::ipv4_header_ok(header.0) && checksum::sum(message) == 0xffff;
            (IpAddr::V4(header.destination().into()), message, is_plain && sums)
        };
        let error = match to {
            IpAddr::V4(_) => icmp::Error::parse_v4(message)?,
            IpAddr::V6(_) => icmp::Error::parse_v6(message)?,
        };
        // A router that tells none (RFC 1191 5) helps nobody.
        let mtu = match to {
            IpAddr::V4(_) => Some(error.mtu_v4()).filter(|mtu| *mtu != 0)?,
            IpAddr::V6(_) => u16::try_from(error.mtu_v6()).ok()?,
        };
        sound.then_some(Self { to, mtu, quote: error.quoted() })
    }
}

impl<'a> Sent<'a> {
    /// Reads a quoted packet as [`Tunnels::encapsulate`] makes them. What routers change of it is
    /// not looked at.
    fn read(quote: &'a [u8]) -> Option<Self> {
        let (from, to, total, udp) = if quote.first()? >> 4 == 6 {
            let header = ipv6::Header(quote.first_chunk()?);
            let is_udp = header.next_header() == ipv4::UDP;
            let ends = [header.source(), header.destination()].map(|a| IpAddr::V6(a.into()));
            (ends[0], ends[1], header.total_len(), quote.get(ipv6::HEADER..).filter(|_| is_udp)?)
        } else {
            let header = ipv4::Header(quote.first_chunk()?);
            let is_plain = header.0[0] == 0x45 && header.protocol() == ipv4::UDP;
            // It may not be cut, and is whole.
            let is_whole = header.0[6..8] == [0x40, 0];
            let ends = [header.source(), header.destination()].map(|a| IpAddr::V4(a.into()));
            let udp = quote.get(ipv4::HEADER..).filter(|_| is_plain && is_whole)?;
            (ends[0], ends[1], header.total_len(), udp)
        };
        let outer: &[u8; udp::HEADER] = udp.first_chunk()?;
        let two = |at: usize| u16::from_be_bytes([outer[at], outer[at + 1]]);
        let header = if to.is_ipv4() { ipv4::HEADER } else { ipv6::HEADER };
        let is_as_long = header + usize::from(two(4)) == total;
        let vxlan = *udp.get(udp::HEADER..)?.first_chunk()?;
        let frame = udp.get(vxlan::LEN..)?;
        let ports = [two(0), two(2)];
        let sent = Self { from, to, total, ports, header: vxlan, frame };
        is_as_long.then_some(sent)
    }
}
