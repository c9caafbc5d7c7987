//! A frame as one line, for the messages of failing tests.

use std::fmt::Write;

use etherparse::{LinkSlice, NetSlice, SlicedPacket, TcpSlice, TransportSlice};

use crate::verify;

/// A frame in one line: addresses, tags, flags, lengths, and whether its checksums hold. What
/// cannot be read is shown in hexadecimal.
pub fn describe(frame: &[u8]) -> String {
    let mut out = format!("{} B ", frame.len());
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else {
        return out + &hexadecimal(frame);
    };
    if let Some(LinkSlice::Ethernet2(ethernet)) = &packet.link {
        let _ = write!(out, "{} > {}", mac(ethernet.source()), mac(ethernet.destination()));
    }
    for id in packet.vlan_ids() {
        let _ = write!(out, " vlan {}", id.value());
    }
    let Some(NetSlice::Ipv4(ip)) = &packet.net else {
        return out + " " + &hexadecimal(&frame[14.min(frame.len())..]);
    };
    let header = ip.header();
    let (from, to) = (header.source_addr(), header.destination_addr());
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let _ = write!(out, " {from}:{} > {to}:{}", tcp.source_port(), tcp.destination_port());
            let (seq, ack) = (tcp.sequence_number(), tcp.acknowledgment_number());
            let _ = write!(out, " TCP {} seq {seq} ack {ack}", flags(tcp));
            let _ = write!(out, " +{}", tcp.payload().len());
        }
        Some(TransportSlice::Udp(udp)) => {
            let _ = write!(out, " {from}:{} > {to}:{}", udp.source_port(), udp.destination_port());
            let _ = write!(out, " UDP +{}", udp.payload().len());
        }
        _ => {
            let _ = write!(out, " {from} > {to} protocol {}", header.protocol().0);
        }
    }
    let _ = write!(out, " ttl {} id {}", header.ttl(), header.identification());
    if let Err(wrong) = verify(frame) {
        let _ = write!(out, " WRONG: {wrong:04x?}");
    }
    out
}

fn flags(tcp: &TcpSlice<'_>) -> String {
    let all = [
        (tcp.fin(), 'F'),
        (tcp.syn(), 'S'),
        (tcp.rst(), 'R'),
        (tcp.psh(), 'P'),
        (tcp.ack(), 'A'),
        (tcp.urg(), 'U'),
        (tcp.ece(), 'E'),
        (tcp.cwr(), 'C'),
    ];
    let set: String = all.iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
    if set.is_empty() { "-".to_owned() } else { set }
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{tcp, udp};

    #[test]
    fn one_line() {
        let frame = tcp("198.51.100.48:40000", "198.51.100.200:80", "SA").vlan(7).bytes();
        assert_eq!(
            describe(&frame),
            "58 B 02:00:00:00:02:01 > 02:00:00:00:00:01 vlan 7 198.51.100.48:40000 > \
             198.51.100.200:80 TCP SA seq 1000 ack 0 +0 ttl 64 id 0"
        );
        let mut frame = udp("192.0.2.1:1", "192.0.2.2:2").ttl(9).payload(b"x").bytes();
        *frame.last_mut().expect("not empty") ^= 1;
        let line = describe(&frame);
        assert!(line.contains("192.0.2.1:1 > 192.0.2.2:2 UDP +1 ttl 9"), "{line}");
        assert!(line.contains("WRONG: Udp"), "{line}");
        assert_eq!(describe(&[1, 2, 255]), "3 B 0102ff");
    }
}
