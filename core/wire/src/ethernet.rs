//! Ethernet II and its VLAN tags (IEEE 802.1Q, 802.1ad).

use crate::be16;

/// Bytes of an untagged Ethernet header.
pub const HEADER: usize = 14;
/// Bytes of one VLAN tag.
pub const TAG: usize = 4;
/// Tags that are looked through; a frame with more is not IP to us.
pub const MAX_TAGS: usize = 2;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of a customer VLAN tag.
pub const VLAN: u16 = 0x8100;
/// EtherType of a service VLAN tag (QinQ).
pub const SERVICE_VLAN: u16 = 0x88a8;

/// A MAC address.
pub type Mac = [u8; 6];

/// Where the payload of a frame starts and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// EtherType behind all tags.
    pub ethertype: u16,
    /// Offset of the payload: 14, 18 or 22.
    pub offset: usize,
}

/// Looks through at most [`MAX_TAGS`] tags. `None` when the frame ends before its EtherType.
#[inline(always)]
pub fn payload(frame: &[u8]) -> Option<Payload> {
    let header: &[u8; HEADER] = frame.first_chunk()?;
    let ethertype = be16(header, 12);
    if ethertype == IPV4 {
        return Some(Payload { ethertype, offset: HEADER });
    }
    through_tags(frame, ethertype)
}

fn through_tags(frame: &[u8], mut ethertype: u16) -> Option<Payload> {
    let mut offset = HEADER;
    while matches!(ethertype, VLAN | SERVICE_VLAN) && offset < HEADER + MAX_TAGS * TAG {
        let tag: &[u8; TAG] = frame.get(offset..)?.first_chunk()?;
        ethertype = be16(tag, 2);
        offset += TAG;
    }
    Some(Payload { ethertype, offset })
}

/// Whether a destination MAC addresses a group (broadcast or multicast). False for an empty frame.
#[inline(always)]
pub fn is_group(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(types: &[u16]) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        for (i, t) in types.iter().enumerate() {
            if i > 0 {
                bytes.extend([0, 5]);
            }
            bytes.extend(t.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn tags_are_looked_through() {
        let at = |types: &[u16]| payload(&frame(types));
        assert_eq!(at(&[IPV4]), Some(Payload { ethertype: IPV4, offset: 14 }));
        assert_eq!(at(&[VLAN, IPV4]), Some(Payload { ethertype: IPV4, offset: 18 }));
        assert_eq!(at(&[SERVICE_VLAN, VLAN, IPV6]), Some(Payload { ethertype: IPV6, offset: 22 }));
        assert_eq!(at(&[VLAN, VLAN, VLAN, IPV4]), Some(Payload { ethertype: VLAN, offset: 22 }));
    }

    #[test]
    fn short_frames_have_no_payload() {
        let whole = frame(&[SERVICE_VLAN, VLAN, IPV4]);
        for len in 0..22 {
            assert_eq!(payload(&whole[..len]), None, "{len} bytes");
        }
    }
}
