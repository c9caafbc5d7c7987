//! The general path: one packet by itself, in plain early-return code that knows everything.

use super::burst::Lane;
use super::parse::Parse;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{Shared, Verdict, admit, answer, exception, follow, hairpin};
use crate::frame::Frame;
use crate::reason::Reason;
use crate::session::Flow;

/// Decides on a packet and writes what it becomes; `None` if it is the extended table's. By itself,
/// so that it takes no registers from the vector path.
#[inline(never)]
pub(super) fn packet<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Option<Verdict> {
    table.fresh = Flow::NONE;
    let mut outcome = decide(table, lane, shared, turn, frame);
    if outcome == Outcome::Again {
        outcome = match hairpin::again(table, lane, shared, turn, frame) {
            Some(verdict) => Outcome::Is(verdict),
            None => once_more(table, lane, shared, turn, frame),
        };
    }
    Some(match outcome {
        Outcome::Forward => follow::finish::<F, B>(lane, shared, turn.view, frame),
        Outcome::Unresolved => follow::hold::<F, B>(lane, shared, turn, frame),
        Outcome::Unknown | Outcome::Again => Verdict::Drop(Reason::NoSession),
        Outcome::Refuse(why) => answer::refuse(table, lane, shared, turn, frame, why),
        Outcome::TooBig(mtu) => answer::too_big(table, lane, shared, turn, frame, mtu),
        Outcome::Is(verdict) => verdict,
        Outcome::Wide => return None,
    })
}

/// What becomes of a packet that was parsed and looked up.
#[inline(always)]
fn decide<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Outcome {
    match follow::track(table, lane, shared, turn, frame) {
        Outcome::Unknown if lane.parsed.is_exception() => {
            exception::odd(table, lane, shared, turn, frame)
        }
        Outcome::Unknown => match admit::admit(table, lane, shared, turn, frame) {
            Ok(flow) => {
                lane.flow = flow;
                follow::track(table, lane, shared, turn, frame)
            }
            Err(outcome) => outcome,
        },
        outcome => outcome,
    }
}

/// The same for a packet that hairpinning has made one from outside: its sender, which is inside,
/// is told nothing.
#[cold]
fn once_more<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Outcome {
    match decide(table, lane, shared, turn, frame) {
        Outcome::Refuse(reason) => Outcome::Is(Verdict::Drop(reason)),
        Outcome::Wide | Outcome::Again => Outcome::Unknown,
        outcome => outcome,
    }
}
