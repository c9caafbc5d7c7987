//! First packets that were refused lately, so that one that comes again is known.
//!
//! Two Bloom filters of a fixed size, blocked (Putze, Sanders and Singler 2007): all bits of a
//! packet are in one cache line. What is remembered goes into the younger one, and both are asked,
//! so that a packet is known for one and a half to three seconds, whatever comes in between: a
//! client sends its SYN again after one (RFC 6298 2). The hashes have the table's seed, which
//! nobody outside knows. At 500,000 refusals a second one packet in 800 is taken for known that is
//! not.

use crate::time::Time;

/// Words of a block: a cache line.
const WORDS: usize = 8;
/// Blocks of a filter, of 2 MiB.
const BLOCKS: usize = 1 << 15;
/// How long the younger filter is the younger one.
const PERIOD_MS: u64 = 1500;

type Block = [u64; WORDS];

/// The filters of one worker.
pub(super) struct Repeats {
    young: Box<[Block]>,
    old: Box<[Block]>,
    /// Since when the younger one is.
    since: Time,
}

impl Repeats {
    /// Filters that know nothing.
    pub fn new() -> Self {
        let filter = || vec![[0; WORDS]; BLOCKS].into_boxed_slice();
        Self { young: filter(), old: filter(), since: Time::default() }
    }

    /// Whether a packet with this hash came lately; it is remembered.
    pub fn is_known(&mut self, hash: u64, now: Time) -> bool {
        self.grow_old(now);
        let block = hash as usize % BLOCKS;
        let (young, old) = (&mut self.young[block], &self.old[block]);
        let mut bits = [0; WORDS];
        for shift in [15, 24, 33, 42] {
            let bit = (hash >> shift) as usize % (64 * WORDS);
            bits[bit / 64] |= 1 << (bit % 64);
        }
        let has_all =
            |block: &Block| bits.iter().zip(block).all(|(bits, word)| word & bits == *bits);
        let known = has_all(young) || has_all(old);
        young.iter_mut().zip(bits).for_each(|(word, bits)| *word |= bits);
        known
    }

    fn grow_old(&mut self, now: Time) {
        let age = now.0.saturating_sub(self.since.0);
        if age < PERIOD_MS {
            return;
        }
        if age < 2 * PERIOD_MS {
            std::mem::swap(&mut self.young, &mut self.old);
        } else {
            self.old.fill([0; WORDS]);
        }
        self.young.fill([0; WORDS]);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever else comes, and no matter when in a period.
    #[test]
    fn a_packet_that_comes_again_is_known() {
        let mut repeats = Repeats::new();
        let mut random = 1_u64;
        for begins in (10_000_u64..13_000).step_by(100) {
            let hash = begins.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(!repeats.is_known(hash, Time(begins)), "{begins}");
            for _ in 0..1000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                repeats.is_known(random, Time(begins + 50));
            }
        }
        let mut repeats = Repeats::new();
        for begins in (10_000_u64..30_000).step_by(130) {
            let hash = begins.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(!repeats.is_known(hash, Time(begins)));
            assert!(repeats.is_known(hash, Time(begins + 100)));
        }
        for (after, known) in [(1000, true), (1499, true), (6000, false)] {
            for phase in (0..1500).step_by(50) {
                let mut repeats = Repeats::new();
                repeats.is_known(1, Time(10_000));
                repeats.is_known(7 << 20 | 7 << 50, Time(10_000 + phase));
                let again = repeats.is_known(7 << 20 | 7 << 50, Time(10_000 + phase + after));
                assert_eq!(again, known, "{phase} {after}");
            }
        }
    }

    /// The figure at the top.
    #[test]
    fn few_are_taken_for_known_that_are_not() {
        let (mut repeats, mut taken, mut random) = (Repeats::new(), 0, 1_u64);
        for number in 0..1_500_000_u64 {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut hash = random;
            hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let known = repeats.is_known(hash ^ hash >> 31, Time(10_000 + number / 500));
            taken += u32::from(known && number >= 750_000);
        }
        assert!((500..1500).contains(&taken), "{taken} of 750,000");
    }
}
