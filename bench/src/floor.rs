//! What the machine's memory allows: random cache lines of a region, read in groups that are
//! asked for together. No table of that size can be faster a line.

use crate::clients::Random;
use crate::clock::ticks;
use bytemuck::Zeroable;
use sluice_lanes::prefetch;
use sluice_table::{PagePolicy, Region, RegionError};

/// Lines that are asked for together.
pub const TOGETHER: usize = 32;
/// Groups of one measurement, and measurements.
const GROUPS: usize = 256;
const SAMPLES: usize = 101;

#[repr(C, align(64))]
#[derive(Clone, Copy, Zeroable)]
struct Line([u64; 8]);

/// Median ticks of one random line out of `bytes`.
pub fn cycles_per_line(bytes: usize, policy: PagePolicy, seed: u64) -> Result<f64, RegionError> {
    let mut lines = Region::<Line>::new((bytes / size_of::<Line>()).max(1), policy)?;
    lines.fill(Line([1; 8]));
    let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    let mut random = Random::new(seed);
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let before = ticks();
            let mut sum = 0u64;
            for _ in 0..GROUPS {
                let places: [usize; TOGETHER] =
                    std::array::from_fn(|_| random.below(count) as usize);
                for place in places {
                    prefetch::read(&lines[place]);
                }
                for place in places {
                    sum = sum.wrapping_add(lines[place].0[0]);
                }
            }
            std::hint::black_box(sum);
            (ticks() - before) as f64 / (GROUPS * TOGETHER) as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    Ok(samples[SAMPLES / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_region_is_not_slower_than_a_large_one() {
        let of = |bytes| cycles_per_line(bytes, PagePolicy::Ordinary, 1).unwrap();
        let (small, large) = (of(16 << 10), of(64 << 20));
        assert!(small > 0.0 && small < large * 1.5, "{small} {large}");
    }
}
