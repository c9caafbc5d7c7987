//! Ending what has timed out: a cursor that goes around the table.

use super::half_open::PRESSED_MS;
use super::parse::Parse;
use super::table::Table;
use super::{Shared, changes, snat};
use crate::plan::Plan;
use crate::session::{Core, State};
use crate::time::Time;
use arrayvec::ArrayVec;
use sluice_table::Slot;

/// The sweep's cursor goes once around the table in this time (in up to twice as long while the
/// table grows, since the pace follows its size),
const SWEEP_MS: u64 = 2000;
/// or takes so many slots a millisecond, if the table is larger than that allows (16 M slots): some
/// percent of a core. What has timed out and was not swept yet is found by nobody, it only takes
/// its place.
const SLOTS_PER_MS: u64 = 8000;
/// The most slots of one call of the sweep.
const SWEEP_SLOTS: u64 = 4096;
/// Slots that are looked at before any of their sessions is ended.
const PART: usize = 64;
/// Sessions whose index buckets are asked for in one go; meanwhile those before them are ended.
const TOGETHER: usize = 16;

/// Sessions whose time is over, and the hashes that they are found by.
type Over = ArrayVec<(u32, [Option<u64>; 2]), TOGETHER>;

/// Ends a session that is found by keys with these hashes, inbound and outbound.
#[inline(always)]
pub(super) fn remove_by<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    id: u32,
    hashes: [Option<u64>; 2],
) {
    let session = table.sessions.slab().at(id);
    if session.is_vacant() {
        return;
    }
    // Where it is: to read a whole session that was just written to takes long.
    shared.ended(plan, session);
    table.half_open.forget(plan, session, id);
    table.changes.note_end(id, session);
    if F::WIDE {
        let session = *session;
        table.sessions.remove_by(id, hashes);
        snat::let_go(table, shared, plan, &session);
    } else {
        table.sessions.remove_by(id, hashes);
    }
}

/// Ends a session, whatever its state.
pub(super) fn remove<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, id: u32) {
    if let Some(session) = table.sessions.remove(plan, id) {
        shared.ended(plan, &session);
        table.half_open.forget(plan, &session, id);
        table.changes.note_end(id, &session);
        if F::WIDE {
            snat::let_go(table, shared, plan, &session);
        }
    }
}

/// Ends a session that has timed out.
pub(super) fn expire<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, id: u32) {
    let connection = is_connection(table.sessions.slab().at(id));
    remove(table, shared, plan, id);
    shared.statistics.counters.expired += u64::from(connection);
}

pub(super) fn sweep<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, now: Time) {
    let elapsed = now.0.saturating_sub(table.swept.0);
    let all = u64::from(table.sessions.slab().touched());
    let around_ms = SWEEP_MS.max(all / SLOTS_PER_MS);
    let slots = (all * elapsed).div_ceil(around_ms).min(all);
    if elapsed == 0 || slots == 0 {
        return;
    }
    // A turn has other work too; what is left over is owed to the next call.
    let now_slots = slots.min(SWEEP_SLOTS);
    table.swept.0 += (elapsed * now_slots).div_ceil(slots);
    sweep_slots(table, shared, plan, now, now_slots as u32);
}

pub(super) fn sweep_all<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    now: Time,
) {
    table.swept = now;
    sweep_slots(table, shared, plan, now, table.sessions.slab().touched());
}

fn sweep_slots<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    now: Time,
    slots: u32,
) {
    let (mut left, mut asked) = (slots, Over::new());
    let mut idle_ms = plan.timeout_ms;
    if shared.admission.load.pressure.on {
        for state in [State::SynRecv, State::UdpNew] {
            let ms = &mut idle_ms[state as usize];
            *ms = PRESSED_MS.min(*ms);
        }
    }
    while left > 0 {
        let touched = table.sessions.slab().touched();
        if table.cursor >= touched {
            table.cursor = 0;
        }
        let part = left.min(PART as u32).min(touched - table.cursor);
        if table.changes.is_on() {
            changes::note_changed(table, part, shared.admission.load.pressure.on);
        }
        let (ids, count) = idle_ones(table, &idle_ms, now, part);
        for ids in ids[..count].chunks(TOGETHER) {
            let found = ask_for(table, shared, plan, now, ids);
            end(table, shared, plan, &asked);
            asked = found;
        }
        table.cursor += part;
        left -= part;
    }
    end(table, shared, plan, &asked);
}

/// Of so many slots from the cursor on those whose sessions may be over, and how many these
/// are. Which they are nobody can foresee, so it makes no branch.
#[inline(always)]
fn idle_ones<F: Parse>(
    table: &Table<F>,
    idle_ms: &[u32; State::PLACES],
    now: Time,
    part: u32,
) -> ([u32; PART], usize) {
    let (mut ids, mut count) = ([0; PART], 0);
    let slots = table.sessions.slab().slots().get(table.cursor as usize..).unwrap_or_default();
    for (id, session) in (table.cursor..).zip(slots.iter().take(part as usize)) {
        ids[count % PART] = id;
        let idle = session.idle_ms(now) > idle_ms[session.state as usize];
        count += usize::from(idle & !session.is_vacant());
    }
    (ids, count)
}

/// Those of some sessions whose time is over, with all their index buckets asked for at once.
#[inline(always)]
fn ask_for<F: Parse>(
    table: &Table<F>,
    shared: &Shared,
    plan: &Plan,
    now: Time,
    ids: &[u32],
) -> Over {
    let mut over = Over::new();
    for id in ids {
        let session = table.sessions.slab().at(*id);
        let pressed = shared.admission.load.pressure.on
            && session.state.is_half_open()
            && session.idle_ms(now) > PRESSED_MS;
        if pressed || timed_out(session, plan, now) {
            over.push((*id, table.sessions.hashes(plan, session).unwrap_or_default()));
        }
    }
    for (_, hashes) in &over {
        hashes.iter().flatten().for_each(|hash| table.sessions.index().prefetch(*hash));
    }
    over
}

/// Ends sessions whose time is over, found by keys with these hashes.
fn end<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, over: &Over) {
    for &(id, hashes) in over {
        let session = table.sessions.slab().at(id);
        // With the last of its sessions a template goes too.
        if !session.is_vacant() {
            let connection = is_connection(session);
            remove_by(table, shared, plan, id, hashes);
            shared.statistics.counters.expired += u64::from(connection);
        }
    }
}

/// Whether a session is one that counts.
pub(super) const fn is_connection(session: &Core) -> bool {
    !matches!(session.state, State::Template | State::Ended)
}

/// Whether a session is over for whoever needs its keys, its port or its place; packets of it may
/// still come until it has [`timed_out`].
#[inline(always)]
pub(super) fn expired(session: &Core, plan: &Plan, now: Time) -> bool {
    session.state == State::Ended || timed_out(session, plan, now)
}

/// Whether a session's time is over.
#[inline(always)]
pub(super) fn timed_out(session: &Core, plan: &Plan, now: Time) -> bool {
    let idle = session.idle_ms(now);
    idle > plan.timeout_ms[session.state as usize] && over(session, plan, idle)
}

/// Whether what has been idle for longer than anything in its state must last is over: templates,
/// and sessions of most services, may last longer.
#[cold]
fn over(session: &Core, plan: &Plan, idle: u32) -> bool {
    idle > plan.timeout_of(session)
}
