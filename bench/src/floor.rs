//! What the machine's memory allows: random cache lines of a region, as many at a time as the
//! processor asks for. No table of that size can be faster a line.

use crate::clients::Random;
use crate::clock::ticks;
use crate::report::quantile;
use bytemuck::Zeroable;
use sluice_lanes::prefetch;
use sluice_table::{PagePolicy, Region, RegionError};

/// Lines that are asked for before the one that is read.
const AHEAD: usize = 64;
/// Lines of one measurement, and measurements of each way to read them.
const LINES: usize = 8192;
const SAMPLES: usize = 51;
/// Lines between two of a pair: both are in the same 4 KiB.
const APART: u32 = 16;

#[repr(C, align(64))]
#[derive(Clone, Copy, Zeroable)]
struct Line([u64; 8]);

/// Ticks of one random line.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// Each anywhere.
    pub anywhere: f64,
    /// Every second in the same 4 KiB as the one before: less than [`Self::anywhere`] where
    /// translating addresses takes longer than the lines do, for instance since a hypervisor has
    /// the guest's memory in small pages.
    pub in_pairs: f64,
}

/// Medians over random lines out of `bytes`, of the quicker way to read them.
pub fn measure(bytes: usize, policy: PagePolicy, seed: u64) -> Result<Floor, RegionError> {
    let mut lines = Region::<Line>::new((bytes / size_of::<Line>()).max(1), policy)?;
    lines.fill(Line([1; 8]));
    let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    let mut random = Random::new(seed);
    let mut places = vec![0; LINES + AHEAD];
    let mut median = |paired: bool, way: fn(&[Line], &[u32]) -> f64| {
        let mut sample = || {
            places.iter_mut().for_each(|place| *place = random.below(count));
            if paired {
                for pair in places.chunks_exact_mut(2) {
                    pair[1] = (pair[0] ^ APART).min(count - 1);
                }
            }
            way(&lines, &places)
        };
        quantile(&(0..SAMPLES).map(|_| sample()).collect::<Vec<_>>(), 0.5)
    };
    let mut least = |paired| median(paired, ask_ahead).min(median(paired, only_read));
    Ok(Floor { anywhere: least(false), in_pairs: least(true) })
}

/// Ticks of a line when those behind it are on their way.
fn ask_ahead(lines: &[Line], places: &[u32]) -> f64 {
    timed(|| {
        places.windows(AHEAD + 1).fold(0, |sum, window| {
            prefetch::element(lines, window[AHEAD] as usize);
            sum.wrapping_add(lines[window[0] as usize].0[0])
        })
    })
}

/// Ticks of a line when the processor alone sees which come next.
fn only_read(lines: &[Line], places: &[u32]) -> f64 {
    timed(|| {
        let read = |sum: u64, place: &u32| sum.wrapping_add(lines[*place as usize].0[0]);
        places[..LINES].iter().fold(0, read)
    })
}

fn timed(read: impl FnOnce() -> u64) -> f64 {
    let before = ticks();
    std::hint::black_box(read());
    (ticks() - before) as f64 / LINES as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_region_is_not_slower_than_a_large_one() {
        let of = |bytes| measure(bytes, PagePolicy::Ordinary, 1).unwrap().anywhere;
        let (small, large) = (of(16 << 10), of(64 << 20));
        assert!(small > 0.0 && small < large * 1.5, "{small} {large}");
    }
}
