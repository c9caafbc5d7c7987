//! Fragments: the pieces of a packet that its sender, or a router, had to cut (RFC 791, RFC 8200
//! 4.5), written and read.

use super::read::{Unreadable, be16, be32, ipv4_any, ipv6, link};
use super::write::{ETHERNET, ipv4, ipv6 as write_ipv6};
use super::{Outer, Packet, Seen, Tuple, sum};

/// The next header that stands for a fragment header.
const FRAGMENT: u8 = 44;

/// Which piece of its packet's segment a fragment carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Identification; 16 bits of it with IPv4.
    pub id: u32,
    /// Bytes before it.
    pub offset: u16,
    pub len: u16,
    /// Whether it is not the last one.
    pub more: bool,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, end) = (self.offset, self.offset + self.len);
        write!(f, "{first}..{end}{} (id {})", if self.more { "" } else { ", the end," }, self.id)
    }
}

/// A fragment as a frame says it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenPiece {
    /// Headers but for ports.
    pub seen: Seen,
    pub place: Place,
    /// Where its data begins in the frame.
    pub data: usize,
}

/// Bytes of the untagged frame of a piece.
pub(crate) const fn piece_len(packet: &Packet, place: &Place) -> usize {
    ETHERNET + if packet.is_v4() { 20 } else { 48 } + place.len as usize
}

/// Writes the untagged frame of a piece into `out`, which is [`piece_len`] bytes long. `data` is
/// what the piece carries.
pub(crate) fn write_piece(
    packet: &Packet,
    place: &Place,
    macs: ([u8; 6], [u8; 6]),
    data: &[u8],
    out: &mut [u8],
) {
    let (link, rest) = out.split_at_mut(ETHERNET);
    link[..6].copy_from_slice(&macs.1);
    link[6..12].copy_from_slice(&macs.0);
    link[12..].copy_from_slice(if packet.is_v4() { &[8, 0] } else { &[0x86, 0xdd] });
    let more = u16::from(place.more);
    if packet.is_v4() {
        let (header, body) = rest.split_at_mut(20);
        let packet = Packet { id: place.id & 0xffff, df: false, ..*packet };
        ipv4(&packet, body.len(), header);
        header[6..8].copy_from_slice(&((more << 13) | (place.offset / 8)).to_be_bytes());
        header[10..12].fill(0);
        let checksum = !sum(0, header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        body.copy_from_slice(data);
        return;
    }
    let (header, body) = rest.split_at_mut(40);
    write_ipv6(packet, body.len(), header);
    header[6] = FRAGMENT;
    (body[0], body[1]) = (packet.tuple.protocol, 0);
    body[2..4].copy_from_slice(&(place.offset | more).to_be_bytes());
    body[4..8].copy_from_slice(&place.id.to_be_bytes());
    body[8..].copy_from_slice(data);
}

/// Reads a frame that carries a piece.
pub(crate) fn read_piece(frame: &[u8]) -> Result<SeenPiece, Unreadable> {
    let mut seen = Seen::default();
    let (ethertype, mut at) = link(frame, &mut seen)?;
    let mut v6 = ethertype == 0x86dd;
    if !v6 && ethertype != 0x0800 {
        return Err("neither IPv4 nor IPv6");
    }
    loop {
        let rest = &frame[at..];
        let (body, flags) =
            if v6 { (ipv6(rest, &mut seen)?, 0) } else { ipv4_any(rest, &mut seen)? };
        at += if v6 { 40 } else { 20 };
        if seen.outer.is_none()
            && flags & 0x3fff == 0
            && let Some((outer, six)) = Outer::of(&seen.packet, body)?
        {
            at += usize::from(outer.shim.length());
            (seen.outer, v6) = (Some(outer), six);
            continue;
        }
        seen.length += seen.outer.map_or(0, |outer| outer.length());
        let Packet { tuple, id, .. } = seen.packet;
        let place = if v6 {
            if tuple.protocol != FRAGMENT || body.len() < 8 || body[1] != 0 {
                return Err("no fragment");
            }
            seen.packet.tuple.protocol = body[0];
            at += 8;
            let (flags, len) = (be16(body, 2), (body.len() - 8) as u16);
            Place { id: be32(body, 4), offset: flags & !7, len, more: flags & 1 != 0 }
        } else {
            let (offset, more) = (flags << 3, flags & 0x2000 != 0);
            if flags & 0xc000 != 0 {
                return Err("a fragment that may not be one");
            }
            Place { id, offset, len: body.len() as u16, more }
        };
        if !place.more && place.offset == 0 {
            return Err("a fragment that is all");
        }
        return Ok(SeenPiece { seen, place, data: at });
    }
}

/// Headers and all data, in two parts, of a piece's packet as an untagged frame, which may be
/// longer than any.
pub(crate) fn whole(seen: &Seen, segment: [&[u8]; 2]) -> Vec<u8> {
    let Seen { packet, .. } = seen;
    let network = if packet.is_v4() { 20 } else { 40 };
    let len = segment[0].len() + segment[1].len();
    let mut out = Vec::with_capacity(ETHERNET + network + len);
    out.resize(ETHERNET + network, 0);
    out[12..14].copy_from_slice(if packet.is_v4() { &[8, 0] } else { &[0x86, 0xdd] });
    let header = &mut out[ETHERNET..];
    if packet.is_v4() {
        ipv4(packet, len, header);
    } else {
        write_ipv6(packet, len, header);
    }
    out.extend_from_slice(segment[0]);
    out.extend_from_slice(segment[1]);
    out
}

/// A tuple as later fragments have it.
pub(crate) const fn portless(tuple: Tuple) -> Tuple {
    Tuple { sport: 0, dport: 0, ..tuple }
}

#[cfg(test)]
mod tests {
    use super::super::{Stream, UDP, read, v4, write};
    use super::*;

    /// Pieces are read as they were written, and `etherparse` sees the same in them.
    #[test]
    fn pieces_are_read_again() {
        for (src, dst) in [(v4([192, 0, 2, 1]), v4([198, 51, 100, 2])), (1 << 125, 1 << 125 | 9)] {
            let tuple = Tuple { src, dst, sport: 5, dport: 80, protocol: UDP };
            let payload = Stream { token: 3, at: 11, len: 100, headed: true };
            let id = 77;
            let packet = Packet {
                tuple,
                ttl: 9,
                tos: 0x28,
                id,
                checksum: true,
                payload,
                ..Packet::default()
            };
            let mut plain = vec![0; super::super::frame_len(&packet)];
            write(&packet, ([2; 6], [4; 6]), &mut plain);
            let header = if packet.is_v4() { 34 } else { 54 };
            let segment = &plain[header..];
            let mut all = Vec::new();
            for (offset, len, more) in [(0, 40, true), (40, 64, true), (104, 4, false)] {
                let place = Place { id, offset, len, more };
                let data = &segment[usize::from(offset)..usize::from(offset + len)];
                let mut frame = vec![0; piece_len(&packet, &place)];
                write_piece(&packet, &place, ([2; 6], [4; 6]), data, &mut frame);
                let found = read_piece(&frame).unwrap();
                assert_eq!((found.place, found.seen.packet.tuple), (place, portless(tuple)));
                let second = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
                assert!(second.is_ip_payload_fragmented());
                assert!(read(&frame).is_err());
                all.extend(&frame[found.data..]);
                if !more {
                    let again = whole(&found.seen, [&all, &[]]);
                    assert_eq!(read(&again).unwrap().packet.tuple, tuple);
                    assert!(read(&again).unwrap().right);
                }
            }
        }
    }
}
