//! Changes of the desired state, as they are answered and listed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_state::{Applied, Author, Change, Epoch};

/// What a change did: the answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// The epoch that is in force now; of a dry run the one that was and is.
    pub epoch: u64,
    /// Whether nothing was changed because it was only asked what would.
    pub dry_run: bool,
    /// Whether it survives a restart.
    pub durable: bool,
    /// What changed, in a line; empty when nothing did.
    pub summary: String,
    /// Each step.
    pub changes: Vec<Change>,
}

impl Changed {
    pub(crate) fn of(applied: Applied, dry_run: bool) -> Self {
        let Applied { epoch, summary, changes, durable } = applied;
        Self { epoch, dry_run, durable, summary, changes }
    }
}

/// The last epochs: `GET /v1/config/history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPage {
    /// The epoch that is in force.
    pub epoch: u64,
    /// The oldest epoch that one can go back to.
    pub reaches_back_to: u64,
    /// Epochs, the newest first.
    pub epochs: Vec<HistoryLine>,
}

/// One epoch, without its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryLine {
    /// Its number.
    pub epoch: u64,
    /// When: milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// Who made it.
    pub author: Author,
    /// Its old value.
    pub summary: String,
    /// How many steps it has.
    pub changes: u64,
}

impl HistoryLine {
    /// Epochs that are listed when nothing is said.
    pub const DEFAULT_LIMIT: u32 = 20;
    /// The most that are listed: all that are kept.
    pub const MAX_LIMIT: u32 = 1000;
}

impl From<&Epoch> for HistoryLine {
    fn from(epoch: &Epoch) -> Self {
        Self {
            epoch: epoch.epoch,
            at_unix_ms: epoch.at_unix_ms,
            author: epoch.author.clone(),
            summary: epoch.summary.clone(),
            changes: epoch.changes.len() as u64,
        }
    }
}
