//! Judges frames that came out, by a parser that shares nothing with the director.

use crate::clients::Endpoint;
use etherparse::{LinkSlice, NetSlice, SlicedPacket, TransportSlice};

/// A frame as another's parser reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Source and destination MAC.
    pub macs: ([u8; 6], [u8; 6]),
    pub from: Endpoint,
    pub to: Endpoint,
    pub ttl: u8,
    /// What the payload begins with: the flow.
    pub flow: u32,
}

/// Reads a frame, all of whose checksums must be right.
pub fn read(bytes: &[u8]) -> Result<Seen, String> {
    sluice_testkit::verify(bytes).map_err(|wrong| format!("{wrong:?}"))?;
    let packet = SlicedPacket::from_ethernet(bytes).map_err(|error| error.to_string())?;
    let Some(LinkSlice::Ethernet2(link)) = &packet.link else { return Err("no Ethernet".into()) };
    let Some(NetSlice::Ipv4(net)) = &packet.net else { return Err("no IPv4".into()) };
    let (sport, dport, payload) = match &packet.transport {
        Some(TransportSlice::Udp(udp)) => {
            (udp.source_port(), udp.destination_port(), udp.payload())
        }
        Some(TransportSlice::Tcp(tcp)) => {
            (tcp.source_port(), tcp.destination_port(), tcp.payload())
        }
        _ => return Err("neither TCP nor UDP".into()),
    };
    let flow = payload.first_chunk().ok_or("no payload")?;
    let ip = net.header();
    Ok(Seen {
        macs: (link.source(), link.destination()),
        from: Endpoint { address: u32::from_be_bytes(ip.source()), port: sport },
        to: Endpoint { address: u32::from_be_bytes(ip.destination()), port: dport },
        ttl: ip.ttl(),
        flow: u32::from_be_bytes(*flow),
    })
}
