//! The Internet checksum: in full (RFC 1071) and by difference (RFC 1624).
//!
//! A rewritten header never needs its payload read again: [`Delta`] collects the words that went
//! and the words that came, and is applied to each checksum that covers them. Applying a
//! difference keeps a wrong checksum wrong, so damage on the way to the director still shows at
//! the far end.

/// The one's complement sum of `bytes` as big-endian 16-bit words (an odd last byte is padded with
/// zero), folded to 16 bits, not inverted.
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|w| u64::from(u32::from_be_bytes(*w))).sum();
    for (i, byte) in tail.iter().enumerate() {
        total += u64::from(*byte) << (if i % 2 == 0 { 8 } else { 0 });
    }
    fold(total)
}

/// The checksum field that makes `bytes` (with that field as zero) valid.
pub fn full(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// The TCP or UDP checksum over IPv4 (RFC 9293 3.1, RFC 768) of `segment`, whose checksum field
/// is zero. A UDP sender transmits a result of zero as 0xffff; that is left to the caller.
pub fn transport_v4(source: u32, destination: u32, protocol: u8, segment: &[u8]) -> u16 {
    let pseudo =
        u64::from(source) + u64::from(destination) + u64::from(protocol) + segment.len() as u64;
    !fold(pseudo + u64::from(sum(segment)))
}

/// The TCP, UDP or ICMPv6 checksum over IPv6 (RFC 8200 8.1) of `segment`, whose checksum field is
/// zero. A UDP sender transmits a result of zero as 0xffff; that is left to the caller.
pub fn transport_v6(source: u128, destination: u128, protocol: u8, segment: &[u8]) -> u16 {
    let addresses = words128(source) + words128(destination);
    let pseudo = addresses + u64::from(protocol) + segment.len() as u64;
    !fold(pseudo + u64::from(sum(segment)))
}

/// The sum over IPv4's pseudo header alone (RFC 9293 3.1) for `length` bytes of transport header
/// and data: what a checksum field holds that somebody else is to complete.
pub fn pseudo_v4(source: u32, destination: u32, protocol: u8, length: usize) -> u16 {
    fold(u64::from(source) + u64::from(destination) + u64::from(protocol) + length as u64)
}

/// The same for IPv6's (RFC 8200 8.1).
pub fn pseudo_v6(source: u128, destination: u128, protocol: u8, length: usize) -> u16 {
    fold(words128(source) + words128(destination) + u64::from(protocol) + length as u64)
}

/// The checksum over parts, each but the last an even number of bytes long, whose sums these are.
pub fn over(sums: [u16; 3]) -> u16 {
    !fold(sums.iter().map(|sum| u64::from(*sum)).sum())
}

/// The sum of an address's four 32-bit words.
#[inline(always)]
const fn words128(value: u128) -> u64 {
    let (high, low) = ((value >> 64) as u64, value as u64);
    (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff)
}

/// Whether a 20-byte IPv4 header without options carries a valid checksum.
#[inline(always)]
pub const fn ipv4_header_ok(header: &[u8; 20]) -> bool {
    let mut total = 0;
    let (words, _) = header.as_chunks::<4>();
    let mut at = 0;
    while at < words.len() {
        total += u32::from_ne_bytes(words[at]) as u64;
        at += 1;
    }
    // In either byte order (RFC 1071 2 B).
    fold(total) == 0xffff
}

/// Folds a sum of 32-bit words to 16 bits with end-around carry: each step adds the halves, and
/// the carry out of the lower one lands where it belongs.
#[inline(always)]
const fn fold(total: u64) -> u16 {
    let total = (total.wrapping_add(total.rotate_left(32)) >> 32) as u32;
    (total.wrapping_add(total.rotate_left(16)) >> 16) as u16
}

/// What a rewrite changed, as a one's complement difference (RFC 1624). Taking a word away is the
/// same as adding its complement, up to multiples of 0xffff, which the sum begins with enough of
/// to stay positive; so no change is a difference of "negative zero", as a sum over data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta(u64);

impl Delta {
    /// No change. A multiple of 0xffff, far above what the words of any header can take away.
    pub const NONE: Self = Self(0xffff << 32);

    /// A 32-bit aligned field went from `old` to `new`.
    #[inline(always)]
    #[must_use]
    pub const fn word32(self, old: u32, new: u32) -> Self {
        Self(self.0 + new as u64 - old as u64)
    }

    /// A 16-bit aligned field went from `old` to `new`.
    #[inline(always)]
    #[must_use]
    pub const fn word16(self, old: u16, new: u16) -> Self {
        Self(self.0 + new as u64 - old as u64)
    }

    /// A 128-bit aligned field went from `old` to `new`.
    #[inline(always)]
    #[must_use]
    pub const fn word128(self, old: u128, new: u128) -> Self {
        Self(self.0 + words128(new) - words128(old))
    }

    /// The checksum field that was `checksum` before the change.
    #[inline(always)]
    #[must_use]
    pub const fn apply(self, checksum: u16) -> u16 {
        !fold(self.0 - checksum as u64)
    }

    /// The same for a UDP checksum over IPv4: zero means that there is none (RFC 768) and stays,
    /// and a result of zero is sent as 0xffff.
    #[inline(always)]
    #[must_use]
    pub const fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 {
            return 0;
        }
        let new = self.apply(checksum);
        if new == 0 { 0xffff } else { new }
    }

    /// The same for a UDP checksum over IPv6, which is never left out (RFC 8200 8.1) but by
    /// tunnels (RFC 6935). Zero stays all the same: the packet is not for a middlebox to repair,
    /// and the far end drops it or knows why it came. A result of zero is sent as 0xffff.
    #[inline(always)]
    #[must_use]
    pub const fn apply_udp_v6(self, checksum: u16) -> u16 {
        self.apply_udp(checksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071, section 3.
    #[test]
    fn the_rfc_example() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    /// RFC 1624, section 4: the case in which RFC 1141's equation gives the wrong zero.
    #[test]
    fn the_rfc_1624_corner() {
        assert_eq!(Delta::NONE.word16(0x5555, 0x3285).apply(0xdd2f), 0x0000);
    }

    #[test]
    fn a_udp_checksum_of_zero_stays() {
        assert_eq!(Delta::NONE.word32(1, 2).apply_udp(0), 0);
        assert_eq!(Delta::NONE.word128(1, 2).apply_udp_v6(0), 0);
    }

    #[test]
    fn a_udp_checksum_that_becomes_zero_is_sent_as_ones() {
        assert_eq!(Delta::NONE.word16(0, 0x1234).apply(0x1234), 0);
        assert_eq!(Delta::NONE.word16(0, 0x1234).apply_udp(0x1234), 0xffff);
        assert_eq!(Delta::NONE.word128(0, 0x1234).apply_udp_v6(0x1234), 0xffff);
    }

    proptest! {
        /// The difference gives what a sum over the whole gives.
        #[test]
        fn difference_equals_full(
            mut bytes in proptest::collection::vec(any::<u8>(), 12..200),
            new in any::<u32>(), short in any::<u16>(),
        ) {
            bytes[0] |= 1; // an all-zero packet is the one case with two valid checksums
            bytes[10..12].fill(0);
            let before = full(&bytes);
            let old = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            let old_short = u16::from_be_bytes([bytes[8], bytes[9]]);
            bytes[4..8].copy_from_slice(&new.to_be_bytes());
            bytes[8..10].copy_from_slice(&short.to_be_bytes());
            let delta = Delta::NONE.word32(old, new).word16(old_short, short);
            prop_assert_eq!(delta.apply(before), full(&bytes));
        }

        /// The full sum over IPv6 is `etherparse`'s, and the difference of two addresses leads
        /// from one to the other.
        #[test]
        fn ipv6_agrees_with_etherparse(
            from in any::<[u128; 2]>(), to in any::<[u128; 2]>(),
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let header = |[source, destination]: [u128; 2]| etherparse::Ipv6Header {
                source: source.to_be_bytes(), destination: destination.to_be_bytes(),
                ..Default::default()
            };
            let other = |ends| etherparse::UdpHeader::with_ipv6_checksum(
                53, 5353, &header(ends), &payload).unwrap();
            let (old, new) = (other(from), other(to));
            let mut datagram = Vec::new();
            etherparse::UdpHeader { checksum: 0, ..old.clone() }.write(&mut datagram).unwrap();
            datagram.extend(&payload);
            let ours = transport_v6(from[0], from[1], 17, &datagram);
            prop_assert_eq!(if ours == 0 { 0xffff } else { ours }, old.checksum);
            let delta = Delta::NONE.word128(from[0], to[0]).word128(from[1], to[1]);
            prop_assert_eq!(delta.apply_udp_v6(old.checksum), new.checksum);
        }

        /// `etherparse` computes the header checksum its own way.
        #[test]
        fn headers_agree_with_etherparse(ttl in any::<u8>(), src in any::<[u8; 4]>(),
                                         dst in any::<[u8; 4]>(), len in 0u16..1400) {
            let header = etherparse::Ipv4Header::new(
                len, ttl, etherparse::IpNumber::TCP, src, dst).unwrap();
            let mut bytes = [0u8; 20];
            let mut out = Vec::new();
            header.write(&mut out).unwrap();
            bytes.copy_from_slice(&out);
            prop_assert!(ipv4_header_ok(&bytes));
            bytes[8] = bytes[8].wrapping_add(1);
            prop_assert!(!ipv4_header_ok(&bytes));
        }
    }
}
