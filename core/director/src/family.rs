//! What differs between IPv4 and IPv6, so that everything else is written once.

use crate::plan::{Plan, Side};
use bytemuck::Zeroable;
use std::fmt::Debug;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};

/// Secret numbers that make hashes unpredictable to senders.
#[derive(Clone, Copy, Debug)]
pub struct Seed([u64; 3]);

impl Seed {
    /// Spreads one number over the secrets (SplitMix64).
    pub const fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut secrets = [0; 3];
        let mut i = 0;
        while i < secrets.len() {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            secrets[i] = x ^ (x >> 31);
            i += 1;
        }
        Self(secrets)
    }

    /// Two rounds of multiply-and-fold over two words.
    #[inline(always)]
    const fn mix(&self, a: u64, b: u64) -> u64 {
        let first = fold((a ^ self.0[0]) as u128 * (b ^ self.0[1]) as u128);
        fold((first ^ self.0[2]) as u128 * 0xd6e8_feb8_6659_fd93)
    }
}

#[inline(always)]
const fn fold(product: u128) -> u64 {
    product as u64 ^ (product >> 64) as u64
}

/// The endpoints and protocol of a packet, as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuple<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// IP protocol number.
    pub protocol: u8,
}

/// An IP version.
pub trait Family: Sized + 'static {
    /// An address in host byte order.
    type Addr: Copy + Eq + Hash + Debug + Default + Zeroable;

    /// The session hash of a tuple: its upper half chooses the bucket, its lower half the tag.
    fn hash(tuple: &Tuple<Self::Addr>, seed: &Seed) -> u64;

    /// This family's addresses of a plan.
    fn side(plan: &Plan) -> &Side<Self::Addr>;

    /// The address in the general form.
    fn to_ip(address: Self::Addr) -> IpAddr;

    /// The address in this family's form, if it is of this family.
    fn from_ip(address: IpAddr) -> Option<Self::Addr>;

    /// Rewrites addresses and ports of a packet from `old` to `new`; its network and transport
    /// headers are where `at` says. Takes one hop off its time to live, which is not
    /// zero, and updates checksums.
    fn rewrite(
        frame: &mut [u8],
        at: (usize, usize),
        old: &Tuple<Self::Addr>,
        new: &Tuple<Self::Addr>,
    );

    /// Whether a packet from this address can have come over a network.
    fn is_unicast_source(address: Self::Addr) -> bool;
}

/// IPv4.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4;

impl Family for Ipv4 {
    type Addr = u32;

    #[inline(always)]
    fn hash(tuple: &Tuple<u32>, seed: &Seed) -> u64 {
        let addresses = u64::from(tuple.src) << 32 | u64::from(tuple.dst);
        let ports = u64::from(tuple.sport) << 16 | u64::from(tuple.dport);
        seed.mix(addresses, ports << 8 | u64::from(tuple.protocol))
    }

    #[inline(always)]
    fn side(plan: &Plan) -> &Side<u32> {
        &plan.v4
    }

    fn to_ip(address: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(address))
    }

    fn from_ip(address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(v4) => Some(v4.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    #[inline(always)]
    fn rewrite(frame: &mut [u8], at: (usize, usize), old: &Tuple<u32>, new: &Tuple<u32>) {
        crate::path::rewrite_v4(frame, at, old, new);
    }

    fn is_unicast_source(address: u32) -> bool {
        sluice_wire::ipv4::is_unicast_source(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// One bit changed in the tuple changes about half of the hash, and always the hash.
        #[test]
        fn every_bit_counts(src in any::<u32>(), dst in any::<u32>(), ports in any::<u32>(),
                            bit in 0u32..96, seed in any::<u64>()) {
            let make = |src, dst, ports: u32| Tuple {
                src, dst, sport: (ports >> 16) as u16, dport: ports as u16, protocol: 6 };
            let one = |at: u32| if bit / 32 == at { 1u32 << (bit % 32) } else { 0 };
            let seed = Seed::new(seed);
            let a = Ipv4::hash(&make(src, dst, ports), &seed);
            let b = Ipv4::hash(&make(src ^ one(0), dst ^ one(1), ports ^ one(2)), &seed);
            prop_assert!((a ^ b).count_ones() >= 8, "{:x} {:x}", a, b);
        }
    }

    /// Sequential clients spread evenly over buckets (the upper half) and tags (the lower half).
    #[test]
    fn sequential_tuples_spread() {
        let seed = Seed::new(1);
        let mut counts = [[0u32; 256]; 2];
        for i in 0..256_000u32 {
            let tuple = Tuple {
                src: 0xc633_6400 + i / 60_000,
                dst: 0xc633_64c8,
                sport: (1024 + i % 60_000) as u16,
                dport: 80,
                protocol: 6,
            };
            let hash = Ipv4::hash(&tuple, &seed);
            counts[0][(hash >> 56) as usize] += 1;
            counts[1][(hash & 0xff) as usize] += 1;
        }
        for count in counts.iter().flatten() {
            assert!((850..1150).contains(count), "{count} where 1000 are expected");
        }
    }
}
