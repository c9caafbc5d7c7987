//! ICMP echo (RFC 792, RFC 4443 4): the request, and whether a message is its answer.
//!
//! A cookie in the data tells one probe's answer from all others', whatever the kernel made of the
//! identifier (it writes its own on unprivileged sockets).

use crate::finding::Finding;

/// Bytes of a request.
pub const REQUEST_BYTES: usize = 8 + COOKIE_BYTES;
const COOKIE_BYTES: usize = 16;

/// One echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Whether it is ICMPv6.
    pub v6: bool,
    /// Identifier.
    pub id: u16,
    /// Sequence number.
    pub sequence: u16,
    /// Tells this probe from others.
    pub cookie: u64,
}

impl Echo {
    /// The request. The checksum is that of ICMPv4; ICMPv6's is the kernel's business, since it
    /// covers addresses.
    pub fn request(&self) -> [u8; REQUEST_BYTES] {
        let mut message = [0; REQUEST_BYTES];
        message[0] = if self.v6 { 128 } else { 8 };
        message[4..6].copy_from_slice(&self.id.to_be_bytes());
        message[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        message[8..].copy_from_slice(&self.data());
        if !self.v6 {
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }

    fn data(&self) -> [u8; COOKIE_BYTES] {
        let mut data = *b"sluice..........";
        data[8..].copy_from_slice(&self.cookie.to_be_bytes());
        data
    }

    /// What a message means; `None` when it is not about this echo. `with_header`: it begins with
    /// an IPv4 header, as on raw sockets.
    pub fn judge(&self, packet: &[u8], with_header: bool) -> Option<Finding> {
        let header = match with_header {
            true => usize::from(packet.first()? & 0x0f) * 4,
            false => 0,
        };
        let message = packet.get(header..)?;
        let (head, data) = message.split_first_chunk::<8>()?;
        let answer = if self.v6 { 129 } else { 0 };
        let ours = head[0] == answer && head[1] == 0 && head[6..8] == self.sequence.to_be_bytes();
        (ours && data == self.data()).then(|| Finding::pass("echo reply"))
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IcmpEchoHeader, Icmpv4Header, Icmpv4Type};
    use proptest::prelude::*;

    fn echo(v6: bool) -> Echo {
        Echo { v6, id: 7, sequence: 9, cookie: 0x0102_0304_0506_0708 }
    }

    #[test]
    fn the_request_is_as_others_write_it() {
        let request = echo(false).request();
        let (header, data) = Icmpv4Header::from_slice(&request).unwrap();
        let expected = Icmpv4Type::EchoRequest(IcmpEchoHeader { id: 7, seq: 9 });
        assert_eq!(header.icmp_type, expected);
        assert_eq!(header.checksum, expected.calc_checksum(data));
    }

    #[test]
    fn only_its_own_answer_counts() {
        for v6 in [false, true] {
            let mut reply = echo(v6).request();
            assert_eq!(echo(v6).judge(&reply, false), None, "a request is no answer");
            reply[0] = if v6 { 129 } else { 0 };
            assert!(echo(v6).judge(&reply, false).is_some_and(|found| found.passed));
            let mut packet = vec![0x45; 20];
            packet.extend(reply);
            assert!(echo(v6).judge(&packet, true).is_some());
            for at in [0, 1, 7, 23] {
                let mut other = reply;
                other[at] ^= 1;
                assert_eq!(echo(v6).judge(&other, false), None, "byte {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn anything_may_come(bytes in prop::collection::vec(any::<u8>(), 0..80), raw: bool) {
            prop_assert_eq!(echo(false).judge(&bytes, raw), None);
        }
    }
}
