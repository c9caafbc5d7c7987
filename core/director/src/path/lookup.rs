//! The stages between reading packets and following them: candidates for their sessions, and the
//! memory that they are in.

use super::burst::{Burst, GROUPS, position};
use super::group::{Find, each, lanes};
use super::parse::Parse;
use super::table::Table;
use crate::session::{Flow, Sessions};
use sluice_lanes::level::Level;
use sluice_lanes::prefetch;
use sluice_table::index::First;

/// First candidates in the home buckets.
#[inline(always)]
pub(super) fn find<F: Parse>(
    sessions: &Sessions<F>,
    burst: &mut Burst<F>,
    level: Level,
    at: usize,
) {
    let (index, group) = (sessions.index(), &mut burst.groups[at % GROUPS]);
    if group.quick == 0 {
        (group.away, group.missing) = (0, 0);
    } else {
        level.run(Find { index, group });
    }
    for lane in lanes(group.slow) {
        let slow = &mut burst.lanes[position(at, lane)];
        slow.flow = match index.first(slow.hash) {
            First::Candidate(value) => Flow(value),
            First::Elsewhere => {
                index.prefetch_other(slow.hash);
                group.away |= 1 << lane;
                Flow::NONE
            }
            First::None => Flow::NONE,
        };
    }
}

/// First candidates in the other buckets, which were asked for a step ago.
#[inline(always)]
pub(super) fn seek<F: Parse>(sessions: &Sessions<F>, burst: &mut Burst<F>, at: usize) {
    let group = &mut burst.groups[at % GROUPS];
    for lane in lanes(group.away) {
        let slow = &mut burst.lanes[position(at, lane)];
        let is_quick = group.quick >> lane & 1 == 1;
        let hash = if is_quick { group.hash(lane) } else { slow.hash };
        let flow = Flow(sessions.index().second(hash));
        if is_quick {
            group.flow[lane] = flow.0;
            group.missing |= u8::from(flow == Flow::NONE) << lane;
        } else {
            slow.flow = flow;
        }
        if let Some(session) = sessions.slab().get(flow.id()) {
            prefetch::read(session);
        }
    }
}

#[inline(always)]
pub(super) fn prefetch_sessions<F: Parse>(sessions: &Sessions<F>, burst: &Burst<F>, at: usize) {
    let (group, slots) = (&burst.groups[at % GROUPS], sessions.slab().slots());
    let ask = |flow: Flow| prefetch::element(slots, flow.id() as usize);
    each(group.quick & !(group.missing | group.away), |lane| ask(Flow(group.flow[lane])));
    let slow = lanes(group.slow).map(|lane| burst.lanes[position(at, lane)].flow);
    slow.filter(|flow| *flow != Flow::NONE).for_each(ask);
}

#[inline(always)]
pub(super) fn prefetch_buckets<F: Parse>(table: &mut Table<F>, burst: &Burst<F>, at: usize) {
    while let Some(hash) = table.wanted.pop() {
        table.sessions.index().prefetch(hash);
    }
    let (group, index) = (&burst.groups[at % GROUPS], table.sessions.index());
    each(group.quick, |lane| index.prefetch_home(group.homes[lane]));
    let slow = |lane: usize| burst.lanes[position(at, lane)].hash;
    lanes(group.slow).for_each(|lane| index.prefetch(slow(lane)));
}
