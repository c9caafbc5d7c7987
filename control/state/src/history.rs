//! What was applied when and by whom, as far back as is kept.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::object::Author;
use crate::state::State;
use crate::weight;

/// Epochs that are kept.
pub const EPOCHS_KEPT: usize = 1000;
/// Bytes of memory that they may take, as [`crate::weight`] counts them. The last epoch is kept
/// whatever it takes: one can always take back what was done last.
pub const HISTORY_BYTES: usize = 64 << 20;

/// One applied change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Epoch {
    /// Its number; the first is 1.
    pub epoch: u64,
    /// When: milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// Who made it.
    pub author: Author,
    /// What it was, in a line.
    pub summary: String,
    /// Each step.
    pub changes: Vec<Change>,
}

/// The last epochs, at most [`EPOCHS_KEPT`] and [`HISTORY_BYTES`].
#[derive(Clone, Debug, Default)]
pub struct History {
    epochs: VecDeque<Epoch>,
    /// What each of them takes, and all.
    weights: VecDeque<usize>,
    bytes: usize,
    /// The number of the last one, also when none is kept.
    last: u64,
}

impl History {
    /// A history that goes on after epoch `last`.
    pub(crate) const fn after(last: u64) -> Self {
        Self { epochs: VecDeque::new(), weights: VecDeque::new(), bytes: 0, last }
    }

    /// The number of the epoch that is in force; 0 before the first.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The epochs that are kept, the oldest first.
    pub const fn epochs(&self) -> &VecDeque<Epoch> {
        &self.epochs
    }

    /// One epoch, if it is kept.
    pub fn get(&self, number: u64) -> Option<&Epoch> {
        let first = self.epochs.front()?.epoch;
        self.epochs.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// About how many bytes of memory the epochs take.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds what was applied last; forgets the oldest if there are too many, or if they take too
    /// much. Gives the first and the last of those that were forgotten for what they take.
    pub(crate) fn push(&mut self, epoch: Epoch) -> Option<(u64, u64)> {
        self.last = epoch.epoch;
        let weight = weight::of(&epoch);
        self.bytes += weight;
        self.weights.push_back(weight);
        self.epochs.push_back(epoch);
        if self.epochs.len() > EPOCHS_KEPT {
            self.forget_first();
        }
        let first = self.epochs.front().map_or(0, |epoch| epoch.epoch);
        let mut gone = 0;
        while self.bytes > HISTORY_BYTES && self.epochs.len() > 1 {
            self.forget_first();
            gone += 1;
        }
        (gone > 0).then(|| (first, first + gone - 1))
    }

    fn forget_first(&mut self) {
        self.epochs.pop_front();
        self.bytes -= self.weights.pop_front().unwrap_or(0);
    }

    /// The first and the last epoch whose state can be told.
    pub fn reach(&self) -> (u64, u64) {
        (self.last - self.epochs.len() as u64, self.last)
    }

    /// The state as it was in an epoch, told from the present one. `None` when that is too long
    /// ago or to come.
    pub fn state_at(&self, number: u64, now: &State) -> Option<State> {
        let (first, last) = self.reach();
        if !(first..=last).contains(&number) {
            return None;
        }
        let mut state = now.clone();
        for epoch in self.epochs.iter().rev().take_while(|epoch| epoch.epoch > number) {
            state.undo(&epoch.changes);
        }
        Some(state)
    }
}
