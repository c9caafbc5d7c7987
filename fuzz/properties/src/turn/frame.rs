//! Frames as the judge sees them: taken apart by `etherparse`, every checksum computed from its
//! definition over all bytes, nothing of the code that is tested.

use std::net::IpAddr;

use etherparse::{NetSlice, SlicedPacket};

use super::craft::{self, ICMP, ICMPV6, SCTP, TCP, UDP};

/// The parts of a frame that rules are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Source and destination MAC.
    pub macs: ([u8; 6], [u8; 6]),
    /// The outermost VLAN; 0 for none.
    pub vlan: u16,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ttl: u8,
    /// DSCP and ECN.
    pub class: u8,
    /// Identification; 0 in IPv6.
    pub id: u16,
    pub dont_fragment: bool,
    /// Whether it is a fragment, and where its data belongs.
    pub fragment: Option<(u16, bool)>,
    pub protocol: u8,
    /// IPv4 options, or IPv6 extension headers.
    pub options: Vec<u8>,
    /// The transport header and all that follows it.
    pub upper: Vec<u8>,
    /// Bytes of the whole IP packet, and the packet.
    pub packet: Vec<u8>,
}

/// Reads a frame; `None` for what `etherparse` refuses or what is not IP.
pub fn see(frame: &[u8]) -> Option<Seen> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let (to, from) = (*frame.first_chunk()?, *frame.get(6..)?.first_chunk()?);
    let vlan = packet.vlan_ids().first().map_or(0, |id| id.value());
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]) {
        at += 4;
    }
    let bytes = frame.get(at + 2..)?;
    read(packet.net.as_ref()?, bytes).map(|seen| Seen { macs: (from, to), vlan, ..seen })
}

/// Reads an IP packet without link layer.
pub fn see_packet(packet: &[u8]) -> Option<Seen> {
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    read(sliced.net.as_ref()?, packet)
}

fn read(net: &NetSlice<'_>, bytes: &[u8]) -> Option<Seen> {
    Some(match net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let packet = bytes.get(..usize::from(header.total_len()))?;
            let offset = header.fragments_offset().value() * 8;
            let fragmented = offset != 0 || header.more_fragments();
            Seen {
                macs: Default::default(),
                vlan: 0,
                source: header.source_addr().into(),
                destination: header.destination_addr().into(),
                ttl: header.ttl(),
                class: packet[1],
                id: header.identification(),
                dont_fragment: header.dont_fragment(),
                fragment: fragmented.then_some((offset, header.more_fragments())),
                protocol: header.protocol().0,
                options: header.options().to_vec(),
                upper: packet.get(header.slice().len()..)?.to_vec(),
                packet: packet.to_vec(),
            }
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let packet = bytes.get(..40 + usize::from(header.payload_length()))?;
            let payload = ip.payload();
            let upper = packet.len().checked_sub(payload.payload.len())?;
            let options = packet.get(40..upper)?.to_vec();
            let fragment = place(header.next_header().0, &options);
            Seen {
                macs: Default::default(),
                vlan: 0,
                source: header.source_addr().into(),
                destination: header.destination_addr().into(),
                ttl: header.hop_limit(),
                class: packet[0] << 4 | packet[1] >> 4,
                id: 0,
                dont_fragment: true,
                fragment: fragment.filter(|place| *place != (0, false)),
                protocol: payload.ip_number.0,
                upper: packet[upper..].to_vec(),
                options,
                packet: packet.to_vec(),
            }
        }
        NetSlice::Arp(_) => return None,
    })
}

/// What a fragment header among extension headers says (RFC 8200 4.5).
fn place(mut next: u8, mut headers: &[u8]) -> Option<(u16, bool)> {
    while headers.len() >= 8 {
        if next == 44 {
            let place = u16::from_be_bytes([headers[2], headers[3]]);
            return Some((place & !7, place & 1 == 1));
        }
        let length = match next {
            51 => (usize::from(headers[1]) + 2) * 4,
            _ => (usize::from(headers[1]) + 1) * 8,
        };
        next = headers[0];
        headers = headers.get(length..)?;
    }
    None
}

impl Seen {
    /// Whether it is a part of a datagram without its transport header.
    pub fn is_later(&self) -> bool {
        self.fragment.is_some_and(|(offset, _)| offset != 0)
    }

    /// Source and destination port; an echo's identifier is the port of who asks; zeros without.
    pub fn ports(&self) -> (u16, u16) {
        ports(self.protocol, &self.upper)
    }

    /// Whether it is an ICMP error.
    pub fn is_error(&self) -> bool {
        let kind = self.upper.first().copied().unwrap_or(u8::MAX);
        match self.protocol {
            _ if self.is_later() => false,
            ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
            ICMPV6 => kind < 128,
            _ => false,
        }
    }

    /// Bytes behind the transport header, and that header without what translation changes.
    pub fn rest(&self) -> (Vec<u8>, &[u8]) {
        let upper = &self.upper[..];
        let pick = |ranges: &[std::ops::Range<usize>]| -> Vec<u8> {
            ranges.iter().flat_map(|r| upper.get(r.clone()).unwrap_or_default()).copied().collect()
        };
        let at = |length: usize| upper.get(length..).unwrap_or_default();
        match self.protocol {
            _ if self.is_later() => (Vec::new(), upper),
            TCP => {
                let length = usize::from(upper.get(12).copied().unwrap_or(0x50) >> 4) * 4;
                (pick(&[4..16, 18..length]), at(length))
            }
            UDP => (pick(&[4..5, 5..6]), at(8)),
            SCTP => (pick(&[4..6, 6..8]), at(12)),
            ICMP | ICMPV6 => (pick(&[0..2, 6..8]), at(8)),
            _ => (Vec::new(), upper),
        }
    }

    /// Whether every checksum is right.
    pub fn sums(&self) -> Result<(), &'static str> {
        if self.source.is_ipv4() {
            let length = self.packet.len() - self.upper.len();
            if sum_of(&self.packet[..length]) != 0xffff {
                return Err("IPv4 header");
            }
        }
        let v6 = self.source.is_ipv6();
        let whole = match self.protocol {
            _ if self.fragment.is_some() => return Ok(()),
            TCP => self.upper.len() >= 20,
            UDP => {
                let length = self.upper.get(4..6).map_or(0, |l| u16::from_be_bytes([l[0], l[1]]));
                let length = usize::from(length);
                if length < 8 || length > self.upper.len() {
                    return Err("UDP length");
                }
                let sum = [self.upper[6], self.upper[7]];
                let upper = &self.upper[..length];
                let all = craft::pseudo(UDP, self.source, self.destination, upper);
                let right = (sum == [0, 0] && !v6) || sum != [0, 0] && sum_of(&all) == 0xffff;
                return if right { Ok(()) } else { Err("UDP") };
            }
            SCTP => {
                let mut upper = self.upper.clone();
                let Some(field) = upper.get_mut(8..12) else { return Err("SCTP length") };
                let is: [u8; 4] = [field[0], field[1], field[2], field[3]];
                field.fill(0);
                return if crc32c(&upper).to_le_bytes() == is { Ok(()) } else { Err("SCTP") };
            }
            ICMP if !v6 => self.upper.len() >= 8,
            ICMPV6 if v6 => self.upper.len() >= 8,
            _ => return Ok(()),
        };
        let all = craft::pseudo(self.protocol, self.source, self.destination, &self.upper);
        match whole && sum_of(&all) == 0xffff {
            true => Ok(()),
            false => Err("transport"),
        }
    }
}

/// Ports as a transport header tells them: see [`Seen::ports`].
pub fn ports(protocol: u8, upper: &[u8]) -> (u16, u16) {
    let at = |at: usize| match upper.get(at..at + 2) {
        Some(bytes) => u16::from_be_bytes([bytes[0], bytes[1]]),
        None => 0,
    };
    match (protocol, upper.first()) {
        (TCP | UDP | SCTP, _) => (at(0), at(2)),
        (ICMP, Some(8)) | (ICMPV6, Some(128)) => (at(4), 0),
        (ICMP, Some(0)) | (ICMPV6, Some(129)) => (0, at(4)),
        _ => (0, 0),
    }
}

/// One's complement sum of 16-bit words (RFC 1071), not complemented.
pub fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |b| (*b).into()));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// CRC-32c, bit by bit (RFC 9260 Appendix A).
pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_documents() {
        // RFC 1071 section 3; the check value of CRC-32c.
        assert_eq!(sum_of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_is_crafted_is_right() {
        let ends = [("198.51.100.48", "198.51.100.200"), ("2001:db8:1::48", "2001:db8:1::200")];
        for (from, to) in ends {
            for protocol in [ICMP, TCP, UDP, ICMPV6, SCTP, 47] {
                let (from, to) = ((from.parse().unwrap(), 4000), (to.parse().unwrap(), 80));
                let packet = craft::Packet {
                    payload: b"some bytes".to_vec(),
                    options: 1,
                    ..craft::Packet::new(from, to, protocol)
                };
                let frame = packet.frame(&[20]);
                let seen = see(&frame).unwrap_or_else(|| panic!("{packet:?} {frame:x?}"));
                assert_eq!(seen.sums(), Ok(()), "{packet:?}");
                assert_eq!((seen.source, seen.destination), (from.0, to.0));
                assert_eq!((seen.protocol, seen.vlan, seen.ttl), (protocol, 20, 64));
                let pieces = craft::cut(&packet.frame(&[]), 1);
                let of = |p: &Vec<u8>| see(p).unwrap().fragment.unwrap();
                assert!(pieces.len() >= 2 && of(&pieces[0]) == (0, true), "{packet:?}");
                assert!(!of(pieces.last().unwrap()).1 && pieces[1..].iter().all(|p| of(p).0 > 0));
            }
        }
    }
}
