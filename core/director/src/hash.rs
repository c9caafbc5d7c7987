//! The hash that sessions are found by: of one key, and of eight at once.
//!
//! A key is taken two 32-bit words at a time: each is added to one half of the state, and the
//! halves' whole product is the next state. That is how wyhash32 (Wang Yi, public domain) does it,
//! since 32 by 32 bits is what vector registers multiply; here all constants are secrets, so that
//! senders cannot choose what collides.

use sluice_lanes::level::Instructions;
use sluice_lanes::words::Words;

/// Secret numbers that make hashes unpredictable to senders.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    /// What the state is at first.
    begin: [u32; 2],
    /// What is added in each round.
    round: [u32; 2],
}

/// Rounds behind the last words.
const FINISH: usize = 2;

impl Seed {
    /// Spreads one number over the secrets (SplitMix64).
    pub const fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut secrets = [0; 2];
        let mut at = 0;
        while at < secrets.len() {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            secrets[at] = x ^ (x >> 31);
            at += 1;
        }
        let [begin, round] = secrets;
        Self {
            begin: [begin as u32, (begin >> 32) as u32],
            round: [round as u32, (round >> 32) as u32],
        }
    }

    /// The hash of pairs of words: whoever needs fewer bits takes those of the upper half, or the
    /// lowest.
    #[inline(always)]
    pub fn hash<const N: usize>(&self, pairs: [[u32; 2]; N]) -> u64 {
        let [mut a, mut b] = self.begin;
        let product = |a: u32, b: u32| {
            let whole = u64::from(a) * u64::from(b);
            (whole as u32, (whole >> 32) as u32)
        };
        for [c, d] in pairs {
            (a, b) = product(a ^ c, b ^ d);
            (a, b) = (a ^ self.round[0], b ^ self.round[1]);
        }
        for _ in 1..FINISH {
            (a, b) = product(a, b);
            (a, b) = (a ^ self.round[0], b ^ self.round[1]);
        }
        (a, b) = product(a, b);
        u64::from(a ^ b) << 32 | u64::from(b)
    }

    /// The same of eight keys: the lower and the upper halves of their hashes.
    #[inline(always)]
    pub fn hash_eight<I: Instructions, const N: usize>(
        &self,
        instructions: I,
        pairs: [[Words<I>; 2]; N],
    ) -> [Words<I>; 2] {
        let splat = |word: u32| Words::splat(instructions, word);
        let [mut a, mut b] = [splat(self.begin[0]), splat(self.begin[1])];
        let round = [splat(self.round[0]), splat(self.round[1])];
        for [c, d] in pairs {
            [a, b] = (a ^ c).multiply(b ^ d);
            [a, b] = [a ^ round[0], b ^ round[1]];
        }
        for _ in 1..FINISH {
            [a, b] = a.multiply(b);
            [a, b] = [a ^ round[0], b ^ round[1]];
        }
        [a, b] = a.multiply(b);
        [b, a ^ b]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_lanes::level::{Kernel, LANES, Lanes, Level};

    /// Three pairs of eight keys.
    struct Eight<'a>(&'a Seed, [[Lanes<u32>; 2]; 3]);

    impl Kernel for Eight<'_> {
        type Output = Lanes<u64>;

        #[inline(always)]
        fn run<I: Instructions>(self, instructions: I) -> Lanes<u64> {
            let load = |word: Lanes<u32>| Words::load(instructions, &word);
            let halves = self.0.hash_eight(instructions, self.1.map(|pair| pair.map(load)));
            let [lower, upper] = halves.map(|half| {
                let mut out = [0; LANES];
                half.store(&mut out);
                out
            });
            std::array::from_fn(|lane| u64::from(upper[lane]) << 32 | u64::from(lower[lane]))
        }
    }

    proptest! {
        #[test]
        fn eight_are_hashed_as_one_is(
            keys in any::<[[Lanes<u32>; 2]; 3]>(), seed in any::<u64>(),
        ) {
            let seed = Seed::new(seed);
            for level in Level::available() {
                let eight = level.run(Eight(&seed, keys));
                for (lane, hash) in eight.into_iter().enumerate() {
                    prop_assert_eq!(hash, seed.hash(keys.map(|pair| pair.map(|w| w[lane]))));
                }
            }
        }

        /// One bit changed in the key changes about half of the hash, and always the hash.
        #[test]
        fn every_bit_counts(
            key in any::<[[u32; 2]; 3]>(), bit in 0usize..192, seed in any::<u64>(),
        ) {
            let seed = Seed::new(seed);
            let mut other = key;
            other[bit / 64][bit / 32 % 2] ^= 1 << (bit % 32);
            let (a, b) = (seed.hash(key), seed.hash(other));
            prop_assert!((a ^ b).count_ones() >= 8, "{a:x} {b:x}");
        }
    }

    /// How unevenly keys fall on buckets: the sum of squared differences from the mean against that
    /// of keys that fall at random, which is 1 ± 0.016 for so many buckets.
    fn unevenness(count: u32, bucket: impl Fn(u32) -> u32) -> f64 {
        const BUCKETS: usize = 1 << 13;
        let mut counts = vec![0u32; BUCKETS];
        for key in 0..count {
            counts[((u64::from(bucket(key)) * BUCKETS as u64) >> 32) as usize] += 1;
        }
        let mean = f64::from(count) / BUCKETS as f64;
        let squares: f64 = counts.iter().map(|n| (f64::from(*n) - mean).powi(2)).sum();
        squares / f64::from(count)
    }

    /// The key of a number.
    type Keys<'a> = &'a dyn Fn(u32) -> [[u32; 2]; 2];

    /// Keys as they come in networks fall on buckets (by the upper half) and tags (by the lowest
    /// bits) as if at random, whatever the secrets.
    #[test]
    fn regular_keys_fall_at_random() {
        let (vip, client) = (u32::from_be_bytes([200, 100, 51, 198]), 0x0100_0a0a);
        let web = 0x5000_0000;
        let keys: [(&str, Keys<'_>); 6] = [
            ("ports", &|n| [[client + n / 60_000, vip], [web | (n % 60_000), 6]]),
            ("ports as they lie in memory", &|n| {
                [[client + (n >> 16), vip], [web | u32::from((n as u16).swap_bytes()), 6]]
            }),
            ("addresses", &|n| [[n.swap_bytes(), vip], [web | 0x3412, 6]]),
            ("addresses, the lower byte first", &|n| [[n, vip], [web | 0x3412, 17]]),
            ("networks", &|n| [[(n << 8).swap_bytes(), vip], [web | 0x3412, 17]]),
            ("answers", &|n| {
                let real = 0xcb00_7100 + n % 7;
                [[real.swap_bytes(), vip], [0x1f90 | (n / 7) << 16, 6]]
            }),
        ];
        for seed in [0, 1, 2, 0x5eed, u64::MAX].map(Seed::new) {
            for (name, key) in keys {
                let hash = |n| seed.hash(key(n));
                let buckets = unevenness(400_000, |n| (hash(n) >> 32) as u32);
                let tags = unevenness(400_000, |n| (hash(n) << 16) as u32);
                for uneven in [buckets, tags] {
                    assert!((0.9..1.1).contains(&uneven), "{name}: {uneven} by {seed:?}");
                }
            }
        }
    }
}
