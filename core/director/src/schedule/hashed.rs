//! `sh`, `mh` and `dh`: the table's choice. The tables are the plan's.

use super::hash::{GOLDEN, mix, scale};
use super::scheduler::{Ask, Change, Scheduler};
use super::seat::FULL_STEP;

/// Entries of a hash table that are tried before the next open real server is taken.
const TRIES: u32 = 32;

/// A worker keeps nothing of its own.
#[derive(Clone, Debug)]
pub(super) struct Hashed;

impl Scheduler for Hashed {
    const COUNTS: bool = false;

    fn adopt(_: Option<Self>, _: &Change<'_>) -> Self {
        Self
    }

    /// The table's choice, or, if that one takes nothing now, what its hash's hash finds, and so
    /// on: clients of one that is full are spread over all others, each always the same way.
    #[inline(always)]
    fn pick(&mut self, ask: Ask<'_>) -> Option<u32> {
        let mut hash = ask.key;
        for _ in 0..TRIES {
            let Some(position) = ask.table.and_then(|table| table.lookup(hash)) else { break };
            if takes(&ask, position) {
                return Some(position);
            }
            hash = mix(hash.wrapping_add(GOLDEN));
        }
        ask.open.next_around(scale(ask.key, ask.seats.len() as u64) as u32)
    }
}

/// Whether a real server takes this client. One in slow start takes so many sixteenths of its
/// clients, and those that it took stay as they become more.
fn takes(ask: &Ask<'_>, position: u32) -> bool {
    ask.open.contains(position)
        && ask.seats.get(position as usize).is_some_and(|seat| {
            let chance = || mix(ask.key ^ seat.identity) % u64::from(FULL_STEP);
            seat.step == FULL_STEP || chance() < u64::from(seat.step)
        })
}
