//! What a hand-off costs, told by blocks of rounds with misdirected packets and without them that
//! take turns in one run: from one run to the next, where the hypervisor has put the cores changes
//! more.

use crate::report::quantile;

/// Rounds of a block, and those at its beginning that do not count: the workers notice that
/// misdirected packets come, or do not, and search bursts for them or not.
const LENGTH: u64 = 48;
const SETTLING: u64 = 12;

/// Cycles a packet of blocks, every second without misdirected packets.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// Misdirected among all packets; zero if no block has any.
    share: f64,
    rounds: Vec<f64>,
    medians: Vec<f64>,
}

impl Blocks {
    /// Those of a run in which so many of all packets are misdirected packets.
    pub fn new(share: f64) -> Self {
        Self { share, ..Self::default() }
    }

    /// Whether a round has the misdirected packets that it would have without blocks.
    pub fn is_usual(&self, round: u64) -> bool {
        self.share == 0.0 || (round / LENGTH).is_multiple_of(2)
    }

    /// Whether a round is not one of the first after the misdirected packets began or ended.
    pub fn is_settled(&self, round: u64) -> bool {
        self.share == 0.0 || round % LENGTH >= SETTLING
    }

    /// Notes what a round's packets took; rounds are noted one after the other.
    pub fn note(&mut self, round: u64, cycles: f64) {
        if self.is_settled(round) {
            self.rounds.push(cycles);
        }
        if round % LENGTH == LENGTH - 1 {
            self.medians.push(quantile(&self.rounds, 0.5));
            self.rounds.clear();
        }
    }

    /// Cycles of one hand-off, of every block without misdirected packets that has one with
    /// misdirected packets on either side: what all packets take longer, for each that was handed
    /// over.
    pub fn hand_offs(&self) -> Vec<f64> {
        if self.share == 0.0 {
            return Vec::new();
        }
        let cost = |three: &[f64]| (f64::midpoint(three[0], three[2]) - three[1]) / self.share;
        self.medians.windows(3).step_by(2).map(cost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of so many cycles, with outliers where nothing counts.
    fn of(share: f64, blocks: &[f64]) -> Blocks {
        let mut all = Blocks::new(share);
        for round in 0..blocks.len() as u64 * LENGTH {
            let cycles = blocks[(round / LENGTH) as usize];
            all.note(round, if round % LENGTH < SETTLING { 1e6 } else { cycles });
        }
        all
    }

    #[test]
    fn a_quarter_handed_over_costs_each_four_times_what_all_take_longer() {
        assert_eq!(of(0.25, &[110.0, 100.0, 110.0]).hand_offs(), [40.0]);
        // What drifts is between both sides.
        assert_eq!(of(0.25, &[110.0, 105.0, 120.0, 101.0, 112.0]).hand_offs(), [40.0, 60.0]);
    }

    #[test]
    fn without_strays_or_time_there_is_no_figure() {
        assert!(of(0.0, &[110.0, 100.0, 110.0]).hand_offs().is_empty());
        assert!(of(0.25, &[110.0, 100.0]).hand_offs().is_empty());
        assert!(Blocks::new(0.0).is_settled(0) && !Blocks::new(0.1).is_settled(0));
        assert!(Blocks::new(0.0).is_usual(LENGTH) && !Blocks::new(0.1).is_usual(LENGTH));
    }
}
