//! Connections that are over, for a moment: what is sent again at their end still gets through.
//!
//! With `tcp_time_wait_s = 0` a connection is over for everybody with the acknowledgement of the
//! second FIN: it is counted as closed, and its local port and its place of `limits.sessions` are
//! free. But that acknowledgement may be lost on its way on, and then the FIN comes once more. So
//! the session stays in the table for a second, or until another [`LINGERING`] have ended, or
//! whoever needs its keys, its port or its slot takes them.

use super::parse::Parse;
use super::table::Table;
use super::{Shared, sweep};
use crate::plan::Plan;
use crate::session::State;
use sluice_lanes::prefetch;
use sluice_table::slab::NONE;

/// The most sessions that linger in a table; in a small one, a part of it.
const LINGERING: u32 = 4096;
const PART: u32 = 4;
/// A session's slot is prefetched so many removals before its own, its index buckets one before:
/// without, a connection costs a tenth more cycles.
const AHEAD: usize = 2;

/// The sessions of a table that ended last. One that was taken meanwhile may still be among them,
/// and its slot be another's.
pub(super) struct Linger {
    ids: Box<[u32]>,
    next: usize,
    /// Whether any may linger.
    any: bool,
}

impl Linger {
    /// For a table of so many sessions.
    pub fn new(sessions: u32) -> Self {
        Self { ids: vec![NONE; Self::most(sessions) as usize].into(), next: 0, any: false }
    }

    /// How many sessions linger in a table of so many, beside them.
    pub fn most(sessions: u32) -> u32 {
        LINGERING.min(sessions / PART)
    }

    /// Takes in a session, and gives the one that is to go for it: itself if none may linger.
    fn push(&mut self, id: u32) -> u32 {
        let Some(place) = self.ids.get_mut(self.next) else { return id };
        self.any = true;
        let oldest = std::mem::replace(place, id);
        self.next = if self.next + 1 == self.ids.len() { 0 } else { self.next + 1 };
        oldest
    }

    /// The one that goes when so many others have gone.
    fn behind(&self, others: usize) -> u32 {
        let place = self.next + others;
        let wrapped = place.checked_sub(self.ids.len()).unwrap_or(place);
        self.ids.get(wrapped).copied().unwrap_or(NONE)
    }
}

/// Ends a session whose packets have closed it, and counts it. What both sides have closed
/// lingers.
pub(super) fn close<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, id: u32) {
    shared.statistics.counters.closed += 1;
    if table.sessions.slab().at(id).state == State::TimeWait {
        linger(table, shared, plan, id);
    } else {
        sweep::remove(table, shared, plan, id);
    }
}

/// Lets a session linger that both sides have closed.
#[inline(never)]
pub(super) fn linger<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, id: u32) {
    let session = table.sessions.at_mut(id);
    shared.ended(plan, session);
    session.state = State::Ended;
    if let Some(real) = shared.statistics.counters.reals.get_mut(session.real().0 as usize) {
        real.lingering += 1;
    }
    let oldest = table.ended.push(id);
    stop_lingering(table, shared, plan, oldest);
    prefetch_next(table, plan);
}

/// Prefetches what it takes to remove those that go next. A guess: any of them may have been taken
/// by then.
#[inline(always)]
fn prefetch_next<F: Parse>(table: &Table<F>, plan: &Plan) {
    let (slab, ended) = (table.sessions.slab(), &table.ended);
    if let Some(session) = slab.get(ended.behind(AHEAD)) {
        prefetch::read(session);
    }
    let next = slab.get(ended.behind(0)).filter(|session| session.state == State::Ended);
    let hashes = next.and_then(|session| table.sessions.hashes(plan, session));
    for hash in hashes.into_iter().flatten().flatten() {
        table.sessions.index().prefetch(hash);
    }
}

/// Ends a session to which another is to follow, or that nothing is left of; it is counted as
/// closed unless it was.
pub(super) fn replace<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, id: u32) {
    let counted = table.sessions.slab().at(id).state == State::Ended;
    sweep::remove(table, shared, plan, id);
    shared.statistics.counters.closed += u64::from(!counted);
}

/// Lets none linger any longer, for what they hold of source NAT's. Gives whether any did.
#[cold]
pub(super) fn stop_all_lingering<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
) -> bool {
    if !std::mem::take(&mut table.ended.any) {
        return false;
    }
    let before = table.sessions.removals();
    for place in 0..table.ended.ids.len() {
        let id = std::mem::replace(&mut table.ended.ids[place], NONE);
        stop_lingering(table, shared, plan, id);
    }
    before != table.sessions.removals()
}

/// Removes a session if it lingers.
fn stop_lingering<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, id: u32) {
    let session = table.sessions.slab().get(id);
    if session.is_some_and(|session| session.state == State::Ended) {
        sweep::remove(table, shared, plan, id);
    }
}
