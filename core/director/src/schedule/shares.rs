//! Weights by position, and whose share of their sum a point lies in: a Fenwick tree (Fenwick,
//! A New Data Structure for Cumulative Frequency Tables, 1994).

/// Weights by position.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    weights: Vec<u32>,
    /// From 1; node k is the sum of the last `k & -k` weights up to and with the k-th.
    sums: Vec<u64>,
    total: u64,
}

impl Shares {
    /// With these weights.
    pub(super) fn new(weights: Vec<u32>) -> Self {
        let mut sums = vec![0; weights.len() + 1];
        for node in 1..sums.len() {
            sums[node] += u64::from(weights[node - 1]);
            let above = node + (node & node.wrapping_neg());
            if above < sums.len() {
                sums[above] += sums[node];
            }
        }
        let total = weights.iter().map(|w| u64::from(*w)).sum();
        Self { weights, sums, total }
    }

    /// The sum of all weights.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The weight of a position.
    #[inline]
    pub(super) fn weight(&self, position: u32) -> u32 {
        self.weights.get(position as usize).copied().unwrap_or(0)
    }

    /// Changes a weight.
    #[inline]
    pub(super) fn set(&mut self, position: u32, weight: u32) {
        let Some(known) = self.weights.get_mut(position as usize) else { return };
        let change = u64::from(weight).wrapping_sub((*known).into());
        *known = weight;
        self.total = self.total.wrapping_add(change);
        let mut node = position as usize + 1;
        while let Some(sum) = self.sums.get_mut(node) {
            *sum = sum.wrapping_add(change);
            node += node & node.wrapping_neg();
        }
    }

    /// The position whose share `point` lies in, and where that share begins. `point` is below
    /// the total.
    #[inline]
    pub(super) fn at(&self, point: u64) -> (u32, u64) {
        let (mut position, mut rest) = (0, point);
        let mut step = (self.sums.len() / 2 + 1).next_power_of_two();
        while step > 0 {
            if let Some(sum) = self.sums.get(position + step).filter(|sum| **sum <= rest) {
                rest -= sum;
                position += step;
            }
            step /= 2;
        }
        (position as u32, point - rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_point_has_its_owner(
            weights in prop::collection::vec(0u32..6, 1..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0u32..6), 0..40),
        ) {
            let mut shares = Shares::new(weights.clone());
            let mut model = weights;
            for (position, weight) in changes {
                let position = position.index(model.len());
                model[position] = weight;
                shares.set(position as u32, weight);
            }
            prop_assert_eq!(shares.total(), model.iter().map(|w| u64::from(*w)).sum::<u64>());
            let mut start = 0;
            for (position, weight) in model.iter().enumerate() {
                prop_assert_eq!(shares.weight(position as u32), *weight);
                for point in start..start + u64::from(*weight) {
                    prop_assert_eq!(shares.at(point), (position as u32, start));
                }
                start += u64::from(*weight);
            }
        }
    }
}
