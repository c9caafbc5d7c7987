//! Ending sessions because an operator says so.
//!
//! Nobody is told: neither the client nor the real server. What either of them sends next finds no
//! session, and is treated as such. Sessions go the way of those that time out, so that both keys,
//! the local port and the counts go with them.

use super::Shared;
use super::inspect::{SessionFilter, WIDE, info};
use super::parse::Parse;
use super::table::Table;
use super::{Path, sweep};
use crate::plan::Plan;
use crate::session::State;
use crate::time::Time;
use sluice_table::Slot;

/// Sessions that one call ends at most: a turn has other work too.
const TOGETHER: u32 = 256;

impl Path {
    /// Ends open sessions that pass a filter, from the slot `cursor` on, looking at no more than
    /// `slots` slots and ending at most 256. Gives how many it ended, and the slot to go on with,
    /// or `None` at the end. Cursors are those of [`Path::list`].
    pub fn kill(
        &mut self,
        plan: &Plan,
        now: Time,
        filter: &SessionFilter,
        (cursor, slots): (u32, u32),
    ) -> (u32, Option<u32>) {
        if cursor & WIDE == 0 {
            let extended = self.extended.table.sessions.slab().touched() > 0;
            let part = (cursor, slots);
            let (ended, next) = kill(&mut self.v4.table, &mut self.shared, plan, now, filter, part);
            (ended, next.or_else(|| extended.then_some(WIDE)))
        } else {
            let part = (cursor & !WIDE, slots);
            let (ended, next) =
                kill(&mut self.extended.table, &mut self.shared, plan, now, filter, part);
            (ended, next.map(|next| next | WIDE))
        }
    }
}

fn kill<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    now: Time,
    filter: &SessionFilter,
    (cursor, slots): (u32, u32),
) -> (u32, Option<u32>) {
    let touched = table.sessions.slab().touched();
    let end = cursor.saturating_add(slots).min(touched);
    let mut ended = 0;
    for id in cursor..end {
        if ended == TOGETHER {
            return (ended, Some(id));
        }
        let session = table.sessions.slab().at(id);
        let connection = !session.is_vacant() && session.state != State::Template;
        // What has timed out is the sweep's.
        if !connection || super::sweep::expired(session, plan, now) {
            continue;
        }
        if info::<F>(plan, now, session).is_some_and(|info| filter.accepts(&info)) {
            sweep::remove(table, shared, plan, id);
            shared.statistics.counters.killed += 1;
            ended += 1;
        }
    }
    (ended, (end < touched).then_some(end))
}
