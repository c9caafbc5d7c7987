//! A winner tree: who is first of many, kept up to date as they change one at a time.
//!
//! A change is a walk from the contestant to the root, one match a level, and ends early where
//! its outcome stays what it was. Unlike a heap, nobody is moved, so a contestant is found by its
//! position; a tie goes to the lower position, whatever came before.

/// What can be matched against its like.
pub(super) trait Contestant {
    /// Whether it goes before the other; false for a tie. A total order but for ties.
    fn beats(&self, other: &Self) -> bool;
}

/// Contestants, by position, and who of them wins.
#[derive(Clone, Debug)]
pub(super) struct Tournament<C> {
    contestants: Vec<C>,
    /// Position of the winner below each inner node: the root is 1, the nodes below n are 2n and
    /// 2n + 1; those from `winners.len()` on are the contestants themselves.
    winners: Vec<u32>,
}

/// Beyond the last contestant.
const NOBODY: u32 = u32::MAX;

impl<C: Contestant> Tournament<C> {
    /// With these contestants.
    pub(super) fn new(contestants: Vec<C>) -> Self {
        let leaves = contestants.len().next_power_of_two();
        let mut tree = Self { contestants, winners: vec![NOBODY; leaves] };
        for node in (1..leaves).rev() {
            tree.winners[node] = tree.match_at(node);
        }
        tree
    }

    /// The position of the first of all.
    #[inline]
    pub(super) fn winner(&self) -> Option<u32> {
        match self.winners.get(1) {
            Some(winner) => Some(*winner),
            None => (!self.contestants.is_empty()).then_some(0),
        }
    }

    /// A contestant.
    #[inline]
    pub(super) fn get(&self, position: u32) -> Option<&C> {
        self.contestants.get(position as usize)
    }

    /// Changes a contestant.
    #[inline]
    pub(super) fn replace(&mut self, position: u32, with: C) {
        let Some(contestant) = self.contestants.get_mut(position as usize) else { return };
        *contestant = with;
        let mut node = (self.winners.len() + position as usize) / 2;
        while node > 0 {
            let winner = self.match_at(node);
            if winner == self.winners[node] && winner != position {
                return;
            }
            self.winners[node] = winner;
            node /= 2;
        }
    }

    #[inline(always)]
    fn at(&self, node: usize) -> u32 {
        match self.winners.get(node) {
            Some(winner) => *winner,
            None => (node - self.winners.len()) as u32,
        }
    }

    #[inline(always)]
    fn match_at(&self, node: usize) -> u32 {
        let (left, right) = (self.at(2 * node), self.at(2 * node + 1));
        match (self.contestants.get(left as usize), self.contestants.get(right as usize)) {
            (Some(a), Some(b)) if b.beats(a) => right,
            (Some(_), _) => left,
            (None, _) => NOBODY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Contestant for u8 {
        fn beats(&self, other: &Self) -> bool {
            self < other
        }
    }

    proptest! {
        /// The winner is the first of the least.
        #[test]
        fn the_least_wins(
            mut model in prop::collection::vec(0u8..20, 1..70),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..20), 0..100),
        ) {
            let mut tree = Tournament::new(model.clone());
            for (position, value) in changes {
                let least = model.iter().min().unwrap();
                let first = model.iter().position(|v| v == least).unwrap();
                prop_assert_eq!(tree.winner(), Some(first as u32));
                let position = position.index(model.len());
                model[position] = value;
                tree.replace(position as u32, value);
            }
        }
    }

    #[test]
    fn of_nobody() {
        let mut tree = Tournament::<u8>::new(Vec::new());
        tree.replace(0, 1);
        assert_eq!(tree.winner(), None);
    }
}
