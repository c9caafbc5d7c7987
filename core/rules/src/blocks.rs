//! Ranges of ports as aligned blocks, which masks and prefixes can say.

use std::ops::RangeInclusive;

/// The fewest aligned blocks that make up a range of ports: first port, and bits that count.
pub fn blocks(ports: &RangeInclusive<u16>) -> Vec<(u16, u32)> {
    let (mut first, last) = (u32::from(*ports.start()), u32::from(*ports.end()));
    let mut blocks = Vec::new();
    while first <= last {
        let aligned = if first == 0 { 16 } else { first.trailing_zeros() };
        let fitting = (last - first + 1).ilog2();
        let size = aligned.min(fitting);
        blocks.push((first as u16, 16 - size));
        first += 1 << size;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_range() {
        for range in [80..=80, 0..=65535, 8000..=8099, 1..=65535, 1024..=2047, 65535..=65535] {
            let mut ports = Vec::new();
            for (first, bits) in blocks(&range) {
                let size = 1_u32 << (16 - bits);
                assert_eq!(u32::from(first) % size, 0, "{range:?}: aligned");
                ports.extend(u32::from(first)..u32::from(first) + size);
            }
            let wanted: Vec<u32> = (u32::from(*range.start())..=u32::from(*range.end())).collect();
            assert_eq!(ports, wanted);
        }
        assert_eq!(blocks(&(1..=65534)).len(), 30, "the most that a range takes");
    }
}
