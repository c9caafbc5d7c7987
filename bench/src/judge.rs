//! Judges frames that came out, by a parser that shares nothing with the director.

use crate::clients::Endpoint;
use etherparse::{IpNumber, LinkSlice, NetSlice, SlicedPacket, TransportSlice};

/// A frame as another's parser reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Source and destination MAC.
    pub macs: ([u8; 6], [u8; 6]),
    /// Of IP in IP: source, destination and TTL outside.
    pub outer: Option<(u128, u128, u8)>,
    pub from: Endpoint,
    pub to: Endpoint,
    pub ttl: u8,
    /// What a payload begins with: the flow.
    pub flow: Option<u32>,
}

/// Reads a frame, all of whose checksums must be right, and which has nothing behind the packet
/// but what Ethernet's least length asks for.
pub fn read(bytes: &[u8]) -> Result<Seen, String> {
    sluice_testkit::verify(bytes).map_err(|wrong| format!("{wrong:?}"))?;
    let packet = SlicedPacket::from_ethernet(bytes).map_err(|error| error.to_string())?;
    let Some(LinkSlice::Ethernet2(link)) = &packet.link else { return Err("no Ethernet".into()) };
    let macs = (link.source(), link.destination());
    let network = Network::read(&packet)?;
    let inside = match network.protocol {
        IpNumber::IPV4 | IpNumber::IPV6 => {
            let inside = SlicedPacket::from_ip(network.payload).map_err(|e| e.to_string())?;
            if (network.protocol == IpNumber::IPV4) != matches!(inside.net, Some(NetSlice::Ipv4(_)))
            {
                return Err("another version inside than the outer header says".into());
            }
            Some((Network::read(&inside)?, inside.transport))
        }
        _ => None,
    };
    let outer = inside.as_ref().map(|_| (network.from, network.to, network.ttl));
    let (network, transport) = inside.unwrap_or((network, packet.transport));
    let (sport, dport, payload) = match &transport {
        Some(TransportSlice::Udp(udp)) => {
            (udp.source_port(), udp.destination_port(), udp.payload())
        }
        Some(TransportSlice::Tcp(tcp)) => {
            (tcp.source_port(), tcp.destination_port(), tcp.payload())
        }
        _ => return Err("neither TCP nor UDP".into()),
    };
    network.check_transport()?;
    Ok(Seen {
        macs,
        outer,
        from: Endpoint { address: network.from, port: sport },
        to: Endpoint { address: network.to, port: dport },
        ttl: network.ttl,
        flow: payload.first_chunk().map(|flow| u32::from_be_bytes(*flow)),
    })
}

/// An IP packet.
struct Network<'a> {
    from: u128,
    to: u128,
    ttl: u8,
    protocol: IpNumber,
    payload: &'a [u8],
}

impl<'a> Network<'a> {
    fn read(packet: &SlicedPacket<'a>) -> Result<Self, String> {
        match &packet.net {
            Some(NetSlice::Ipv4(net)) => {
                let ip = net.header();
                if sum(0, ip.slice()) != 0xffff {
                    return Err("the IPv4 header's checksum is wrong".into());
                }
                Ok(Self {
                    from: u32::from_be_bytes(ip.source()).into(),
                    to: u32::from_be_bytes(ip.destination()).into(),
                    ttl: ip.ttl(),
                    protocol: net.payload().ip_number,
                    payload: net.payload().payload,
                })
            }
            Some(NetSlice::Ipv6(net)) => {
                let ip = net.header();
                Ok(Self {
                    from: u128::from_be_bytes(ip.source()),
                    to: u128::from_be_bytes(ip.destination()),
                    ttl: ip.hop_limit(),
                    protocol: net.payload().ip_number,
                    payload: net.payload().payload,
                })
            }
            _ => Err("no IP".into()),
        }
    }

    /// The checksum of TCP and UDP by its definition (RFC 9293 3.1, RFC 768): over the pseudo
    /// header, whose zeros do not count, and everything, the sum is all ones.
    fn check_transport(&self) -> Result<(), String> {
        let length = self.payload.len() as u32 + u32::from(self.protocol.0);
        let addresses = [self.from.to_be_bytes(), self.to.to_be_bytes()].concat();
        let total = sum(u32::from(sum(length, &addresses)), self.payload);
        if total == 0xffff { Ok(()) } else { Err(format!("transport checksum: sum {total:x}")) }
    }
}

/// The ones' complement sum of 16-bit words (RFC 1071).
fn sum(start: u32, bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    let mut total = u64::from(start) + bytes.chunks(2).map(word).sum::<u64>();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}
