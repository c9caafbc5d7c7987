//! What holds for blocks of any kind.

use super::tree::Statement;
use crate::note::Report;

/// Accounts for a statement and all that is in it: whoever calls says why.
pub fn account(statement: &Statement, report: &mut Report) {
    report.done(&statement.place);
    for inner in statement.inside() {
        account(inner, report);
    }
}

/// What a flag says: it may stand alone, or with a word for yes or no.
pub fn flag(statement: &Statement) -> bool {
    !["off", "false", "no"].contains(&statement.word(1))
}
