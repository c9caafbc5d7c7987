//! SCTP (RFC 9260) as the world speaks it: the common header and one chunk, INIT, its answer, DATA
//! or ABORT.
//!
//! In a packet the verification tag is the sequence number, the TSN (of INIT and its answer the tag
//! that they tell of) the acknowledgement, the chunk's flags the window; INIT is a SYN, ABORT a
//! reset. The CRC32c goes over the whole, by a
//! library of others, so that it shares nothing with the arithmetic of what it judges.

use super::read::{Unreadable, be16, be32};
use super::{ACK, Packet, RST, SYN};

/// Bytes before the data of a packet with one DATA chunk.
pub(super) const DATA: usize = 12 + 16;
/// Bytes of one that opens an association.
const INIT: usize = 12 + 20;
/// Bytes of one that aborts.
pub(super) const ABORT: usize = 12 + 4;

/// CRC32c of a packet, whose checksum field counts as zero.
fn crc(segment: &[u8]) -> u32 {
    let Some((head, rest)) = segment.split_first_chunk::<12>() else {
        return crc32c::crc32c(segment);
    };
    let mut head = *head;
    head[8..].fill(0);
    crc32c::crc32c_append(crc32c::crc32c(&head), rest)
}

/// Bytes of a packet's headers.
pub(super) const fn header_len(packet: &Packet) -> usize {
    match packet.flags & (SYN | RST) {
        SYN => INIT,
        RST => ABORT,
        _ => DATA,
    }
}

/// Writes what is between the ports and the data, with the checksum of all.
pub(super) fn write(packet: &Packet, segment: &mut [u8]) {
    let length = (segment.len() - 12) as u16;
    segment[4..8].copy_from_slice(&packet.seq.to_be_bytes());
    segment[12] = match packet.flags & (SYN | ACK | RST) {
        SYN => 1,
        RST => 6,
        flags if flags == SYN | ACK => 2,
        _ => 0,
    };
    segment[13] = packet.window as u8;
    segment[14..16].copy_from_slice(&length.to_be_bytes());
    if packet.flags & RST == 0 {
        let head = header_len(packet);
        segment[16..20].copy_from_slice(&packet.ack.to_be_bytes());
        segment[20..head].fill(0);
    }
    let crc = crc(segment);
    segment[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the same; gives where the data begins, and whether the checksum is right.
pub(super) fn read(segment: &[u8], packet: &mut Packet) -> Result<(usize, bool), Unreadable> {
    if segment.len() < ABORT || usize::from(be16(segment, 14)) != segment.len() - 12 {
        return Err("the SCTP chunk is not the rest of the packet");
    }
    packet.checksum = true;
    packet.seq = be32(segment, 4);
    packet.window = segment[13].into();
    let right = u32::from_le_bytes([segment[8], segment[9], segment[10], segment[11]]);
    let right = right == crc(segment);
    match segment[12] {
        0 if segment.len() >= DATA => {
            packet.ack = be32(segment, 16);
            Ok((DATA, right))
        }
        kind @ (1 | 2) if segment.len() == INIT => {
            packet.ack = be32(segment, 16);
            packet.flags = if kind == 1 { SYN } else { SYN | ACK };
            Ok((INIT, right))
        }
        6 if segment.len() == ABORT => {
            packet.flags = RST;
            Ok((ABORT, right))
        }
        _ => Err("neither INIT, its answer, DATA nor ABORT"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of RFC 3720 B.4, and a field that is passed over.
    #[test]
    fn known_sums() {
        assert_eq!(crc(b""), 0);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        let (mut one, mut other) = ([7; 40], [7; 40]);
        (one[9], other[39]) = (1, 1);
        assert_eq!(crc(&one), crc(&[&[7; 8][..], &[0; 4], &[7; 28]].concat()));
        assert_ne!(crc(&one), crc(&other));
    }
}
