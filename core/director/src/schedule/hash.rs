//! The hash that decides where a client goes under `sh` and `mh`, and where a real server's
//! entries lie in the table of `mh`.
//!
//! It is part of what directors agree on: the same input gives the same number on every machine,
//! architecture and version. So it is written out here and does not come from a library, and
//! tests hold it to numbers that another program computed.

use std::net::IpAddr;

/// A number for an endpoint: the address alone if `port` is 0.
///
/// ```text
/// mix(x): x ^= x >> 30; x *= 0xbf58476d1ce4e5b9; x ^= x >> 27; x *= 0x94d049bb133111eb;
///         x ^= x >> 31                           (SplitMix64's finaliser, modulo 2⁶⁴)
/// h = mix(seed + 0x9e3779b97f4a7c15)
/// h = mix(h ^ bytes 0 to 7 of the address)       (both big endian)
/// h = mix(h ^ bytes 8 to 15 of the address)
/// h = mix(h ^ port)
/// ```
///
/// An IPv4 address counts as its IPv4-mapped IPv6 address (`::ffff:192.0.2.1`, RFC 4291 2.5.5.2).
#[inline]
pub fn stable_hash(address: IpAddr, port: u16, seed: u64) -> u64 {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let mut hash = mix(seed.wrapping_add(GOLDEN));
    for word in [(bits >> 64) as u64, bits as u64, port.into()] {
        hash = mix(hash ^ word);
    }
    hash
}

/// 2⁶⁴ divided by the golden ratio.
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
/// OOPSLA 2014): a bijection in which each bit of the input changes half of the output's.
#[inline(always)]
pub(super) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The hash scaled down to 0..`range`, each with the same share of the hashes.
#[inline(always)]
pub(super) const fn scale(hash: u64, range: u64) -> u64 {
    ((hash as u128 * range as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by Python from the description above.
    #[test]
    fn the_same_on_every_machine() {
        for (address, port, seed, hash) in [
            ("192.0.2.1", 0, 0, 0xc401_d8ca_58ef_be5a),
            ("::ffff:192.0.2.1", 0, 0, 0xc401_d8ca_58ef_be5a),
            ("192.0.2.1", 40_000, 0, 0x682d_e331_3181_a947),
            ("2001:db8::1", 443, 7, 0xdb1b_07ac_5424_8228_u64),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(stable_hash(address, port, seed), hash, "{address} {port} {seed}");
        }
    }

    #[test]
    fn scaled_to_a_range() {
        assert_eq!([0, u64::MAX / 2, u64::MAX].map(|h| scale(h, 10)), [0, 4, 9]);
    }
}
