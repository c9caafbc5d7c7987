//! Many durations in little memory: counted by their upper bits, so that each is known to within
//! a 64th of itself, whatever its size.

/// Bits of a value that are kept below its highest.
const BITS: u32 = 6;
const STEPS: u64 = 1 << BITS;
/// Values below [`STEPS`] have a place each; above, each power of two has as many.
const PLACES: usize = ((u64::BITS - BITS + 1) as usize) << BITS;

/// Counted values.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

/// Where a value is counted.
const fn place(value: u64) -> usize {
    let Some(high) = value.checked_ilog2() else { return 0 };
    if high < BITS {
        return value as usize;
    }
    let shift = high - BITS;
    (((shift + 1) as usize) << BITS) + ((value >> shift) & (STEPS - 1)) as usize
}

/// The highest value that is counted at a place.
const fn highest(place: usize) -> u64 {
    let (block, step) = (place >> BITS, place as u64 & (STEPS - 1));
    if block == 0 {
        return step;
    }
    let shift = block as u32 - 1;
    ((STEPS + step) << shift) + ((1 << shift) - 1)
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; PLACES], total: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.counts[place(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// Counts what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The value that `part` of all are not above; rounded up by a 64th at most. With 1 the
    /// greatest, exactly. `None` when nothing was counted.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let rank = ((self.total as f64 * part).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map(|place| highest(place).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_is_known_to_a_64th(value in any::<u64>()) {
            let high = highest(place(value));
            prop_assert!(high >= value && high - value <= value / STEPS);
            prop_assert!(place(value) < PLACES);
        }

        /// Against the sorted values themselves.
        #[test]
        fn quantiles_are_those_of_the_values(
            values in proptest::collection::vec(0u64..1 << 40, 1..300), part in 0.0..=1.0f64,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = ((values.len() as f64 * part).ceil() as usize).max(1);
            let (exact, told) = (sorted[rank - 1], histogram.quantile(part).unwrap());
            prop_assert!(told >= exact && told - exact <= exact / STEPS, "{told} for {exact}");
            prop_assert_eq!(histogram.quantile(1.0), sorted.last().copied());
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=50).for_each(|value| histogram.add(value));
        let mut both = histogram.clone();
        both.merge(&histogram);
        assert_eq!(
            (both.total(), both.quantile(0.5), both.quantile(1.0)),
            (100, Some(25), Some(50))
        );
    }
}
