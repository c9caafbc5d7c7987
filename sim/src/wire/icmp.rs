//! ICMP errors as routers and hosts send them (RFC 792, RFC 4443).

use super::{Packet, Seen, pseudo, sum, whole};

/// The untagged frame of an ICMP error of this type, code and second word, but for MAC addresses;
/// `packet` says from whom to whom it is.
pub(crate) fn write_icmp(
    packet: &Packet,
    (kind, code, rest): (u8, u8, u32),
    quote: &[u8],
) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(quote);
    let mut packet = *packet;
    packet.tuple.protocol = if packet.is_v4() { 1 } else { 58 };
    let start = if packet.is_v4() {
        0
    } else {
        pseudo(packet.tuple.src, packet.tuple.dst, packet.tuple.protocol, message.len())
    };
    let checksum = !sum(start, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    whole(&Seen { packet, ..Seen::default() }, [&message, &[]])
}
