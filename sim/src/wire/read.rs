//! From the bytes of a frame to what they say, with everything checked on the way.

use super::{
    Addr, OTHERS, Packet, SCTP, Shim, Stream, TCP, Tuple, UDP, is_v4, pseudo, sctp, sum, v4,
};

/// Why a frame is not right.
pub(crate) type Unreadable = &'static str;

/// The header around a packet in a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outer {
    pub src: Addr,
    pub dst: Addr,
    pub ttl: u8,
    pub tos: u8,
    pub id: u32,
    pub df: bool,
    /// What is between it and the packet.
    pub shim: Shim,
}

impl Outer {
    /// The header that was read last, if it is one around a packet, and whether that is of IPv6.
    /// `body` is what is behind it.
    pub(super) fn of(packet: &Packet, body: &[u8]) -> Result<Option<(Self, bool)>, Unreadable> {
        let Packet { tuple, ttl, tos, id, df, .. } = *packet;
        let Some((shim, six)) = Shim::read(&tuple, body)? else { return Ok(None) };
        Ok(Some((Self { src: tuple.src, dst: tuple.dst, ttl, tos, id, df, shim }, six)))
    }

    /// Bytes of it and of what is between it and the packet.
    pub fn length(&self) -> u16 {
        self.shim.length() + if is_v4(self.src) { 20 } else { 40 }
    }
}

/// What a frame says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub to: [u8; 6],
    pub from: [u8; 6],
    /// Its VLAN; 0 for untagged.
    pub vlan: u16,
    /// The header around the packet, if there is one.
    pub outer: Option<Outer>,
    /// The packet; of its payload only the length.
    pub packet: Packet,
    /// Where its payload begins in the frame.
    pub data: u16,
    /// Length of the whole IP packet.
    pub length: u16,
    /// Whether its TCP or UDP checksum is right.
    pub right: bool,
}

/// Reads a frame's link-layer header; gives the EtherType and where the packet begins.
pub(super) fn link(frame: &[u8], seen: &mut Seen) -> Result<(u16, usize), Unreadable> {
    let (link, rest) = frame.split_first_chunk::<14>().ok_or("no Ethernet header")?;
    seen.to.copy_from_slice(&link[..6]);
    seen.from.copy_from_slice(&link[6..12]);
    let ethertype = u16::from_be_bytes([link[12], link[13]]);
    if ethertype != 0x8100 {
        return Ok((ethertype, 14));
    }
    let tag = rest.first_chunk::<4>().ok_or("no room for a tag")?;
    seen.vlan = u16::from_be_bytes([tag[0], tag[1]]) & 0xfff;
    Ok((u16::from_be_bytes([tag[2], tag[3]]), 18))
}

/// Reads a frame; behind the IP packet there may be padding. A wrong TCP or UDP checksum is only
/// told.
pub(crate) fn read(frame: &[u8]) -> Result<Seen, Unreadable> {
    let mut seen = Seen::default();
    let (ethertype, mut at) = link(frame, &mut seen)?;
    let mut v6 = ethertype == 0x86dd;
    if !v6 && ethertype != 0x0800 {
        return Err("neither IPv4 nor IPv6");
    }
    loop {
        let rest = &frame[at..];
        let segment = if v6 { ipv6(rest, &mut seen)? } else { ipv4(rest, &mut seen)? };
        at += if v6 { 40 } else { 20 };
        if seen.outer.is_none()
            && let Some((outer, six)) = Outer::of(&seen.packet, segment)?
        {
            at += usize::from(outer.shim.length());
            (seen.outer, v6) = (Some(outer), six);
            continue;
        }
        // The outer header tells the whole.
        seen.length += seen.outer.map_or(0, |outer| outer.length());
        seen.data = (at + transport(segment, &mut seen)?) as u16;
        return Ok(seen);
    }
}

/// An ICMP error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IcmpError {
    /// Link layer, and the packet that carries it.
    pub seen: Seen,
    pub kind: u8,
    pub code: u8,
    /// The second word: an MTU, or nothing.
    pub rest: u32,
    /// Where in the frame the packet that it is about begins, and where it ends.
    pub quote: (usize, usize),
}

/// Reads an ICMP error.
pub(crate) fn read_error(frame: &[u8]) -> Result<IcmpError, Unreadable> {
    let mut seen = Seen::default();
    let (ethertype, mut at) = link(frame, &mut seen)?;
    let rest = &frame[at..];
    let v6 = ethertype == 0x86dd;
    let mut message = if v6 { ipv6(rest, &mut seen)? } else { ipv4(rest, &mut seen)? };
    at += if v6 { 40 } else { 20 };
    let mut v6 = v6;
    if let Some((outer, six)) = Outer::of(&seen.packet, message)? {
        let shim = usize::from(outer.shim.length());
        (seen.outer, v6) = (Some(outer), six);
        message = &message[shim..];
        message = if v6 { ipv6(message, &mut seen)? } else { ipv4(message, &mut seen)? };
        at += shim + if v6 { 40 } else { 20 };
        seen.length += outer.length();
    }
    let Tuple { src, dst, protocol, .. } = seen.packet.tuple;
    if protocol != if v6 { 58 } else { 1 } || message.len() < 8 {
        return Err("no ICMP error");
    }
    let start = if v6 { pseudo(src, dst, protocol, message.len()) } else { 0 };
    if sum(start, message) != 0xffff {
        return Err("wrong ICMP checksum");
    }
    seen.right = true;
    let quote = (at + 8, at + message.len());
    let (kind, code, rest) = (message[0], message[1], be32(message, 4));
    Ok(IcmpError { seen, kind, code, rest, quote })
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn ipv4<'a>(bytes: &'a [u8], seen: &mut Seen) -> Result<&'a [u8], Unreadable> {
    let (payload, flags) = ipv4_any(bytes, seen)?;
    if flags & 0xbfff == 0 { Ok(payload) } else { Err("an unexpected fragment") }
}

/// Reads a header of IPv4; gives what is behind it, and the word of flags and offset.
pub(super) fn ipv4_any<'a>(
    bytes: &'a [u8],
    seen: &mut Seen,
) -> Result<(&'a [u8], u16), Unreadable> {
    let header = bytes.get(..20).ok_or("no IPv4 header")?;
    if header[0] != 0x45 {
        return Err("not a plain IPv4 header");
    }
    if sum(0, header) != 0xffff {
        return Err("wrong IPv4 header checksum");
    }
    seen.length = be16(header, 2);
    let packet = &mut seen.packet;
    (packet.tos, packet.id, packet.df) = (header[1], be16(header, 4).into(), header[6] & 0x40 != 0);
    packet.ttl = header[8];
    packet.tuple.protocol = header[9];
    packet.tuple.src = v4([header[12], header[13], header[14], header[15]]);
    packet.tuple.dst = v4([header[16], header[17], header[18], header[19]]);
    let payload = bytes.get(20..usize::from(seen.length));
    Ok((payload.ok_or("the IPv4 length is not that of the frame")?, be16(header, 6)))
}

pub(super) fn ipv6<'a>(bytes: &'a [u8], seen: &mut Seen) -> Result<&'a [u8], Unreadable> {
    let header = bytes.get(..40).ok_or("no IPv6 header")?;
    let first = be32(header, 0);
    if first >> 28 != 6 {
        return Err("not an IPv6 header");
    }
    let payload = be16(header, 4);
    seen.length = payload + 40;
    let packet = &mut seen.packet;
    (packet.tos, packet.id, packet.df) = ((first >> 20) as u8, first & 0xf_ffff, false);
    (packet.tuple.protocol, packet.ttl) = (header[6], header[7]);
    let address =
        |at: usize| Addr::from_be_bytes(header[at..at + 16].try_into().unwrap_or_default());
    (packet.tuple.src, packet.tuple.dst) = (address(8), address(24));
    bytes.get(40..40 + usize::from(payload)).ok_or("the IPv6 length is not that of the frame")
}

/// Reads the options of a TCP header.
fn options(mut rest: &[u8], packet: &mut Packet) -> Result<(), Unreadable> {
    (packet.mss, packet.sack, packet.toa) = (0, None, None);
    while let [kind, behind @ ..] = rest {
        if *kind == 1 {
            rest = behind;
            continue;
        }
        let length = usize::from(*behind.first().unwrap_or(&0));
        let option = rest.get(..length).filter(|_| length >= 2).ok_or("half a TCP option")?;
        rest = &rest[length..];
        match (kind, length) {
            (2, 4) => packet.mss = be16(option, 2),
            (5, 10) => packet.sack = Some((be32(option, 2), be32(option, 6))),
            (254, 8) => {
                let address = v4([option[4], option[5], option[6], option[7]]);
                packet.toa = Some((address, be16(option, 2)));
            }
            (254, 20) => {
                let bytes = option[4..].try_into().unwrap_or_default();
                packet.toa = Some((Addr::from_be_bytes(bytes), be16(option, 2)));
            }
            _ => return Err("unexpected TCP options"),
        }
    }
    Ok(())
}

/// Reads the transport header and gives where its data begins.
fn transport(segment: &[u8], seen: &mut Seen) -> Result<usize, Unreadable> {
    let Seen { packet, right, .. } = seen;
    let Tuple { src, dst, protocol, .. } = packet.tuple;
    let holds = || sum(pseudo(src, dst, protocol, segment.len()), segment) == 0xffff;
    let data = match protocol {
        TCP => {
            let data = segment.get(12).map_or(0, |at| usize::from(at >> 4) * 4);
            if data < 20 || data > segment.len() {
                return Err("no whole TCP header");
            }
            *right = holds();
            (packet.seq, packet.ack) = (be32(segment, 4), be32(segment, 8));
            (packet.flags, packet.window) = (segment[13], be16(segment, 14));
            options(&segment[20..data], packet)?;
            packet.checksum = true;
            data
        }
        UDP => {
            if segment.len() < 8 || usize::from(be16(segment, 4)) != segment.len() {
                return Err("the UDP length is wrong");
            }
            packet.checksum = be16(segment, 6) != 0;
            *right = !packet.checksum || holds();
            8
        }
        SCTP => {
            let (data, whole) = sctp::read(segment, packet)?;
            *right = whole;
            data
        }
        _ if OTHERS.contains(&protocol) => {
            (*right, packet.checksum) = (true, false);
            packet.payload = Stream { len: segment.len() as u16, ..Stream::default() };
            return Ok(0);
        }
        _ => return Err("a protocol that nobody sends"),
    };
    (packet.tuple.sport, packet.tuple.dport) = (be16(segment, 0), be16(segment, 2));
    packet.payload = Stream { len: (segment.len() - data) as u16, ..Stream::default() };
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::super::{frame_len, write};
    use super::*;

    fn packets() -> Vec<Packet> {
        let mut out = Vec::new();
        for (src, dst) in [(v4([192, 0, 2, 1]), v4([198, 51, 100, 2])), (1 << 125, 1 << 125 | 9)] {
            for protocol in [TCP, UDP] {
                for len in [0, 9, 100] {
                    let tcp = |value| if protocol == TCP { value } else { 0 };
                    let id = 77;
                    let mut packet = Packet {
                        tuple: Tuple { src, dst, sport: 5, dport: 80, protocol },
                        payload: Stream { token: 3, at: 11, len, headed: protocol == UDP },
                        ..Packet {
                            ttl: 9,
                            tos: 0x28,
                            id,
                            df: true,
                            checksum: true,
                            ..Packet::default()
                        }
                    };
                    packet.df &= packet.is_v4();
                    (packet.seq, packet.ack) = (tcp(1 << 30), tcp(7));
                    packet.flags = tcp(0x18) as u8;
                    packet.mss = tcp(1400) as u16;
                    out.push(packet);
                }
            }
        }
        out
    }

    /// What is written is read again, and `etherparse` finds every checksum right.
    #[test]
    fn written_and_read() {
        for packet in packets() {
            let mut frame = vec![0; frame_len(&packet)];
            write(&packet, ([2; 6], [4; 6]), &mut frame);
            let seen = read(&frame).unwrap();
            let data = &frame[usize::from(seen.data)..];
            assert!(packet.payload.is(data));
            let payload = seen.packet.payload;
            assert_eq!(payload.len, packet.payload.len);
            assert_eq!(Packet { payload, ..packet }, seen.packet);
            assert_eq!(crate::second::opinion(&frame), Ok(()));
            for at in 14..frame.len() {
                frame[at] ^= 0x20;
                let same = read(&frame)
                    .is_ok_and(|seen| seen.right && Packet { payload, ..packet } == seen.packet);
                assert!(!same, "byte {at} of {packet}");
                frame[at] ^= 0x20;
            }
        }
    }
}
