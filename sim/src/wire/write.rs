//! From a packet to the bytes of its frame.

use super::{Packet, SCTP, TCP, UDP, pseudo, sctp, sum};

pub(super) const ETHERNET: usize = 14;

/// Bytes of the untagged frame of a packet.
pub(crate) const fn frame_len(packet: &Packet) -> usize {
    let network = if packet.is_v4() { 20 } else { 40 };
    let transport = match packet.tuple.protocol {
        TCP => {
            let sack = if packet.sack.is_some() { 12 } else { 0 };
            20 + if packet.mss == 0 { sack } else { 4 + sack }
        }
        UDP => 8,
        SCTP => sctp::header_len(packet),
        _ => 0,
    };
    ETHERNET + network + transport + packet.payload.len as usize
}

/// Writes a packet's untagged frame into `out`, which is [`frame_len`] bytes long.
pub(crate) fn write(packet: &Packet, macs: ([u8; 6], [u8; 6]), out: &mut [u8]) {
    let (link, rest) = out.split_at_mut(ETHERNET);
    link[..6].copy_from_slice(&macs.1);
    link[6..12].copy_from_slice(&macs.0);
    let network = if packet.is_v4() { 20 } else { 40 };
    link[12..].copy_from_slice(if packet.is_v4() { &[8, 0] } else { &[0x86, 0xdd] });
    let (header, segment) = rest.split_at_mut(network);
    if packet.is_v4() {
        ipv4(packet, segment.len(), header);
    } else {
        ipv6(packet, segment.len(), header);
    }
    transport(packet, segment);
}

pub(super) fn ipv4(packet: &Packet, payload: usize, header: &mut [u8]) {
    header.fill(0);
    (header[0], header[1]) = (0x45, packet.tos);
    header[2..4].copy_from_slice(&((payload + 20) as u16).to_be_bytes());
    header[4..6].copy_from_slice(&(packet.id as u16).to_be_bytes());
    header[6] = if packet.df { 0x40 } else { 0 };
    (header[8], header[9]) = (packet.ttl, packet.tuple.protocol);
    header[12..16].copy_from_slice(&(packet.tuple.src as u32).to_be_bytes());
    header[16..20].copy_from_slice(&(packet.tuple.dst as u32).to_be_bytes());
    let checksum = !sum(0, header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

pub(super) fn ipv6(packet: &Packet, payload: usize, header: &mut [u8]) {
    let first = 6 << 28 | u32::from(packet.tos) << 20 | (packet.id & 0xf_ffff);
    header[..4].copy_from_slice(&first.to_be_bytes());
    header[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    (header[6], header[7]) = (packet.tuple.protocol, packet.ttl);
    header[8..24].copy_from_slice(&packet.tuple.src.to_be_bytes());
    header[24..40].copy_from_slice(&packet.tuple.dst.to_be_bytes());
}

fn transport(packet: &Packet, segment: &mut [u8]) {
    let tuple = &packet.tuple;
    if !matches!(tuple.protocol, TCP | UDP | SCTP) {
        return packet.payload.fill(segment);
    }
    segment[..2].copy_from_slice(&tuple.sport.to_be_bytes());
    segment[2..4].copy_from_slice(&tuple.dport.to_be_bytes());
    let length = segment.len();
    let data = length - usize::from(packet.payload.len);
    packet.payload.fill(&mut segment[data..]);
    let checksum_at = match tuple.protocol {
        TCP => {
            segment[4..8].copy_from_slice(&packet.seq.to_be_bytes());
            segment[8..12].copy_from_slice(&packet.ack.to_be_bytes());
            (segment[12], segment[13]) = ((data as u8 / 4) << 4, packet.flags);
            segment[14..16].copy_from_slice(&packet.window.to_be_bytes());
            segment[16..20].fill(0);
            if packet.mss != 0 {
                (segment[20], segment[21]) = (2, 4);
                segment[22..24].copy_from_slice(&packet.mss.to_be_bytes());
            }
            if let Some((left, right)) = packet.sack {
                let option = &mut segment[data - 12..data];
                option[..4].copy_from_slice(&[1, 1, 5, 10]);
                option[4..8].copy_from_slice(&left.to_be_bytes());
                option[8..].copy_from_slice(&right.to_be_bytes());
            }
            16
        }
        UDP => {
            segment[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            segment[6..8].fill(0);
            if !packet.checksum && packet.is_v4() {
                return;
            }
            6
        }
        _ => return sctp::write(packet, segment),
    };
    let start = pseudo(tuple.src, tuple.dst, tuple.protocol, length);
    let mut checksum = !sum(start, segment);
    if tuple.protocol == UDP && checksum == 0 {
        checksum = 0xffff;
    }
    segment[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes a frame's VLAN tag, for which its first 18 bytes have room.
pub(crate) fn set_link(frame: &mut [u8], vlan: u16, ethertype: [u8; 2]) {
    frame[12..14].copy_from_slice(&[0x81, 0]);
    frame[14..16].copy_from_slice(&vlan.to_be_bytes());
    frame[16..18].copy_from_slice(&ethertype);
}
