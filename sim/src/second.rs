//! A second opinion on frames, from `etherparse`: slower than the world's own reader, so only a
//! sample of the frames is shown to it.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// Whether every checksum of a frame is right.
pub(crate) fn opinion(frame: &[u8]) -> Result<(), String> {
    let packet = SlicedPacket::from_ethernet(frame).map_err(|error| error.to_string())?;
    let (ipv4, ipv6) = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => (Some(ip.header().to_header()), None),
        Some(NetSlice::Ipv6(ip)) => (None, Some(ip.header().to_header())),
        _ => return Err("neither IPv4 nor IPv6".into()),
    };
    if let Some(ip) = &ipv4
        && ip.header_checksum != ip.calc_header_checksum()
    {
        return Err(format!("IPv4 checksum {:#x}", ip.header_checksum));
    }
    let (found, right) = match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let header = tcp.to_header();
            let right = match (&ipv4, &ipv6) {
                (Some(ip), _) => header.calc_checksum_ipv4(ip, tcp.payload()),
                (_, Some(ip)) => header.calc_checksum_ipv6(ip, tcp.payload()),
                _ => return Ok(()),
            };
            (tcp.checksum(), right)
        }
        Some(TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            let right = match (&ipv4, &ipv6) {
                (Some(_), _) if udp.checksum() == 0 => return Ok(()),
                (Some(ip), _) => header.calc_checksum_ipv4(ip, udp.payload()),
                (_, Some(ip)) => header.calc_checksum_ipv6(ip, udp.payload()),
                _ => return Ok(()),
            };
            (udp.checksum(), right)
        }
        _ => return Ok(()),
    };
    let right = right.map_err(|error| error.to_string())?;
    if found == right { Ok(()) } else { Err(format!("checksum {found:#x}, right is {right:#x}")) }
}
