//! VXLAN (RFC 7348): an Ethernet frame in a UDP datagram, behind eight bytes that say which virtual
//! network it is of; and what becomes of congestion marks at both ends of a tunnel (RFC 6040).
//!
//! The UDP source port is chosen by the frame's flow, so that routers and NICs spread flows. The
//! inner frame has no tag and no frame check sequence.

use crate::{ethernet, ipv4, ipv6, udp};

/// The UDP port that it is sent to, unless another is chosen.
pub const PORT: u16 = 4789;
/// Bytes of its own header.
pub const HEADER: usize = 8;
/// Bytes between the outer IP header and the inner frame.
pub const LEN: usize = udp::HEADER + HEADER;
/// Bytes before the inner frame when the outer packet is IPv4 in an untagged frame. An inner IP
/// packet may be so much smaller than the outer link's MTU.
pub const OVERHEAD_V4: usize = ethernet::HEADER + ipv4::HEADER + LEN;
/// The same for IPv6.
pub const OVERHEAD_V6: usize = ethernet::HEADER + ipv6::HEADER + LEN;
/// Bytes between the outer IP header and an IP packet in the inner frame.
pub const SHIM: usize = LEN + ethernet::HEADER;
/// The largest network identifier.
pub const MAX_VNI: u32 = 0xff_ffff;
/// The flag that says that there is a network identifier; no other is defined.
const HAS_VNI: u8 = 0x08;

/// The header of a network's frames; of `vni` the lower 24 bits count.
pub const fn header(vni: u32) -> [u8; HEADER] {
    let [_, high, middle, low] = vni.to_be_bytes();
    [HAS_VNI, 0, 0, 0, high, middle, low, 0]
}

/// The network identifier in a header, whose reserved bits mean nothing (RFC 7348 5); `None` when
/// it says that it has none.
#[inline(always)]
pub const fn vni(header: &[u8; HEADER]) -> Option<u32> {
    match header[0] & HAS_VNI {
        0 => None,
        _ => Some(u32::from_be_bytes([0, header[4], header[5], header[6]])),
    }
}

/// The bits of a type of service or traffic class that are for congestion (RFC 3168 5).
pub const ECN: u8 = 3;
/// The sender's transport does not understand congestion marks.
pub const NOT_ECT: u8 = 0;
/// It does.
pub const ECT_1: u8 = 1;
/// It does.
pub const ECT_0: u8 = 2;
/// Congestion experienced.
pub const CE: u8 = 3;

/// The mark of an outer header, from that of the packet that goes into the tunnel (RFC 6040 4.1,
/// normal mode). Of the argument the lower two bits count, so it may be a whole traffic class.
#[inline(always)]
pub const fn encapsulated_ecn(inner: u8) -> u8 {
    inner & ECN
}

/// The mark that a packet leaves a tunnel with (RFC 6040 4.2). Of the arguments the lower two bits
/// count. `None` for a packet that met congestion and would not understand a mark: the packet's
/// loss is what its sender understands, so it must be dropped.
#[inline(always)]
pub const fn decapsulated_ecn(inner: u8, outer: u8) -> Option<u8> {
    match (inner & ECN, outer & ECN) {
        (NOT_ECT, CE) => None,
        (ECT_0 | ECT_1, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 7348 5, figure 1, written out.
    #[test]
    fn a_header_is_as_the_rfc_draws_it() {
        assert_eq!(header(0x12_3456), [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        assert_eq!(header(0xff12_3456), header(0x12_3456));
        assert_eq!((OVERHEAD_V4, OVERHEAD_V6, SHIM), (50, 70, 30));
    }

    proptest! {
        #[test]
        fn reserved_bits_mean_nothing(number in 0..=MAX_VNI, noise: [u8; HEADER]) {
            prop_assert_eq!(vni(&header(number)), Some(number));
            let mut noisy = header(number);
            noisy[0] |= noise[0];
            noisy[1..4].copy_from_slice(&noise[1..4]);
            noisy[7] = noise[7];
            prop_assert_eq!(vni(&noisy), Some(number));
            noisy[0] &= !HAS_VNI;
            prop_assert_eq!(vni(&noisy), None);
        }
    }

    /// RFC 6040 4.2, figure 4: a row for each inner mark, in its order of columns.
    #[test]
    fn marks_leave_a_tunnel_as_the_rfc_has_it() {
        let columns = [NOT_ECT, ECT_0, ECT_1, CE];
        let rows = [
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
        ];
        for (inner, row) in rows {
            for (outer, expected) in columns.into_iter().zip(row) {
                assert_eq!(decapsulated_ecn(inner, outer), expected, "{inner} in {outer}");
                // The rest of a traffic class is not looked at.
                assert_eq!(decapsulated_ecn(0xb8 | inner, 0x28 | outer), expected);
            }
            assert_eq!(encapsulated_ecn(0xb8 | inner), inner);
            assert_eq!(decapsulated_ecn(inner, encapsulated_ecn(inner)), Some(inner));
        }
    }
}
