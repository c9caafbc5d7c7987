//! The stages for one family: its sessions and the burst that runs through them.
//!
//! Eight frames at a time, a [`Group`], go from stage to stage, some steps behind each other, so
//! that while some are worked on, the memory that others need is on its way: neither the processor
//! nor the memory waits for the other. Each stage asks for the memory of the next one in one go,
//! since a request that misses the TLB holds everything behind it up, but not another request.

use super::burst::{Burst, GROUPS, WINDOW, position};
use super::group::{ALL, Group, lanes};
use super::parse::{Parse, Refused};
use super::picks::Picks;
use super::probe::{Probe, Stage};
use super::table::Table;
use super::turn::Turn;
use super::{Shared, Verdict, elephants, general, lookup};
use crate::fib::HopId;
use crate::frame::Frame;
use crate::hash::Seed;
use crate::plan::Plan;
use crate::session::{Flow, State};
use sluice_lanes::each_lane;
use sluice_lanes::level::{LANES, Level};
use sluice_table::{MemoryFile, PagePolicy, RegionError};

/// How many steps behind parsing a group's flows are found, are looked for in their other buckets,
/// and are followed. Three steps for the buckets and three for the sessions are about what memory
/// takes to come: with two for each, 10 M sessions cost 2 % more, 1 M 5 %.
const FOUND: usize = 3;
const SOUGHT: usize = 4;
const FOLLOWED: usize = 6;
// A group is followed before its place is another's.
const _: () = assert!(FOLLOWED < GROUPS);
/// One family's half of a path.
pub(super) struct Engine<F: Parse> {
    pub table: Table<F>,
    pub burst: Box<Burst<F>>,
    /// What the processor has.
    pub level: Level,
    /// Whether there is a vector path: off, all packets take the general one, to compare them.
    pub vector: bool,
}

impl<F: Parse> Engine<F> {
    pub fn new(
        room: (u32, u32),
        seed: Seed,
        pages: PagePolicy,
        file: Option<&MemoryFile>,
    ) -> Result<Self, RegionError> {
        let table = Table::new(room, seed, pages, file)?;
        Ok(Self { table, burst: Burst::new(), level: Level::detect(), vector: true })
    }

    /// One turn: see [`super::Path::turn`].
    pub fn turn<B: Frame, P: Picks, T: Probe>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        picks: P,
        (frames, verdicts): (&mut [B], &mut [Verdict]),
        probe: &mut T,
    ) {
        prefetch_frames(&picks, frames, 0);
        let mut sampled = None;
        let groups = picks.count().div_ceil(LANES);
        let address_filter = !F::WIDE && turn.view.plan.address_filter.is_some();
        for step in 0..groups + FOLLOWED {
            let group = |behind| step.checked_sub(behind).filter(|at| *at < groups);
            if step < groups && address_filter {
                self.parse::<B, P, true>(shared, turn.view.plan, &picks, frames, verdicts, step);
            } else if step < groups {
                self.parse::<B, P, false>(shared, turn.view.plan, &picks, frames, verdicts, step);
            }
            probe.mark(Stage::Parse);
            if let Some(at) = group(SOUGHT) {
                lookup::seek(&self.table.sessions, &mut self.burst, at);
            }
            if let Some(at) = group(FOUND) {
                lookup::find(&self.table.sessions, &mut self.burst, self.level, at);
                lookup::prefetch_sessions(&self.table.sessions, &self.burst, at);
            }
            if step < groups {
                lookup::prefetch_buckets(&mut self.table, &self.burst, step);
            }
            prefetch_frames(&picks, frames, (step + 1) * LANES);
            probe.mark(Stage::Find);
            if let Some(at) = group(FOLLOWED) {
                if T::ON {
                    self.tell_found(probe, at);
                }
                if at.is_multiple_of(GROUPS) {
                    let part = (picks.count() - at * LANES).min(WINDOW);
                    sampled = shared.statistics.sketch.pick(part).map(|place| at * LANES + place);
                }
                if let Some(place) = sampled.filter(|place| place / LANES == at) {
                    elephants::sample(self, shared, turn.now, (at, place % LANES));
                }
                self.follow_group(shared, turn, &picks, (frames, verdicts, probe), at);
            }
            probe.mark(Stage::Track);
        }
    }

    /// Tells how many of a group's packets have a candidate.
    fn tell_found<T: Probe>(&self, probe: &mut T, at: usize) {
        let group = &self.burst.groups[at % GROUPS];
        let quick = lanes(group.quick).filter(|lane| group.flow[*lane] == Flow::NONE.0);
        let slow = |lane: &usize| self.burst.lanes[position(at, *lane)].flow == Flow::NONE;
        let missing = quick.count() + lanes(group.slow).filter(slow).count();
        let all = (group.quick | group.slow).count_ones();
        probe.looked_up(all - missing as u32, all);
    }

    /// Parses a group of frames. With `FILTER` those that only the extended table may have anything
    /// for are left to it at once; where there is none, nothing is to be asked.
    #[inline(always)]
    fn parse<B: Frame, P: Picks, const FILTER: bool>(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        picks: &P,
        frames: &[B],
        verdicts: &mut [Verdict],
        at: usize,
    ) {
        let part = at * LANES..picks.count().min((at + 1) * LANES);
        let mut rest = ((1u32 << part.len()) - 1) as u8;
        let group = &mut self.burst.groups[at % GROUPS];
        (group.quick, group.slow) = (0, 0);
        if self.vector {
            rest &= !self.read_group::<B, P, FILTER>(
                shared,
                plan,
                (at, &part, picks),
                frames,
                verdicts,
            );
        }
        if rest != 0 {
            self.parse_lanes::<B, P, FILTER>(shared, plan, picks, (frames, verdicts), (at, rest));
        }
    }

    /// The same for those of a group that go one at a time.
    #[inline(never)]
    fn parse_lanes<B: Frame, P: Picks, const FILTER: bool>(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        picks: &P,
        (frames, verdicts): (&[B], &mut [Verdict]),
        (at, rest): (usize, u8),
    ) {
        let Self { table: Table { sessions, .. }, burst, .. } = self;
        for lane in lanes(rest) {
            let at_frame = picks.frame(at * LANES + lane);
            let slow = &mut burst.lanes[position(at, lane)];
            match F::parse(&frames[at_frame], plan, shared, slow) {
                Ok(()) if FILTER && F::is_others(plan, &F::key(&slow.parsed.tuple)) => {
                    shared.scratch.defer(at_frame, verdicts);
                }
                Ok(()) => {
                    slow.hash = sessions.hash(&slow.parsed.tuple);
                    slow.hop = HopId::NONE;
                    slow.frame = at_frame as u8;
                    burst.groups[at % GROUPS].slow |= 1 << lane;
                }
                Err(Refused::Is(verdict)) => verdicts[at_frame] = verdict,
                Err(Refused::Wide) => shared.scratch.defer(at_frame, verdicts),
            }
        }
    }

    /// Verifies and tracks packets in the order of their arrival: after this it is decided what
    /// becomes of each.
    #[inline(always)]
    fn follow_group<B: Frame, P: Picks, T: Probe>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        picks: &P,
        (frames, verdicts, probe): (&mut [B], &mut [Verdict], &mut T),
        at: usize,
    ) {
        let Group { quick, slow, .. } = self.burst.groups[at % GROUPS];
        let pass = if quick == 0 { 0 } else { self.verify_group(turn, at) };
        let changes = self.burst.groups[at % GROUPS].changes;
        let (from, mut left) = (at * LANES, quick | slow);
        if (pass, changes) == (ALL, 0) && picks.are_together(from, LANES) {
            let first = picks.frame(from);
            let (frames, verdicts) = (&mut frames[first..], &mut verdicts[first..]);
            left = self.forward_all(shared, turn, at, frames, verdicts);
        }
        if left != 0 {
            let part = (frames, verdicts);
            self.follow_lanes(shared, turn, picks, part, (at, pass, left), probe);
        }
    }

    /// The same for some of a group, one after the other: `pass` are those that the vector path
    /// takes. What is behind a packet that may have changed its session, or ended any, is looked
    /// up again.
    #[inline(never)]
    fn follow_lanes<B: Frame, P: Picks, T: Probe>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        picks: &P,
        mut part: (&mut [B], &mut [Verdict]),
        (at, mut pass, left): (usize, u8, u8),
        probe: &mut T,
    ) {
        let quick = self.burst.groups[at % GROUPS].quick;
        let mut ends = self.prefetch_ends(at);
        for lane in lanes(left) {
            let at_frame = picks.frame(at * LANES + lane);
            let stale = if pass >> lane & 1 == 1
                && let (frame, verdict) = (&mut part.0[at_frame], &mut part.1[at_frame])
                && self.forward(shared, turn, (at, lane), frame, verdict)
            {
                self.change(shared, turn.view.plan, (at, lane), &ends)
            } else {
                probe.mark(Stage::Track);
                let created = shared.statistics.counters.created;
                if quick >> lane & 1 == 1 {
                    self.take_out((at, lane), at_frame);
                }
                let stale = self.one_of_group(shared, &turn, (at, lane), &mut part);
                probe.mark_if(T::ON && created != shared.statistics.counters.created, Stage::Open);
                stale
            };
            let behind = ALL << lane & ALL << 1 << lane & left & quick;
            if stale & behind != 0 {
                pass = pass & !behind | self.look_again(turn, (at, behind));
                ends = self.prefetch_ends(at);
            }
        }
    }

    /// Looks up some of a group's packets again, and verifies them. Gives those that pass.
    #[inline(never)]
    fn look_again(&mut self, turn: Turn<'_>, (at, lanes): (usize, u8)) -> u8 {
        let group = &mut self.burst.groups[at % GROUPS];
        let quick = std::mem::replace(&mut group.quick, lanes);
        lookup::find(&self.table.sessions, &mut self.burst, self.level, at);
        lookup::seek(&self.table.sessions, &mut self.burst, at);
        let pass = self.verify_group(turn, at);
        self.burst.groups[at % GROUPS].quick = quick;
        pass
    }

    /// A packet on the general path. Gives the lanes of its group whose sessions it may have
    /// changed.
    #[inline(always)]
    fn one_of_group<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: &Turn<'_>,
        (at, lane): (usize, usize),
        part: &mut (&mut [B], &mut [Verdict]),
    ) -> u8 {
        let position = position(at, lane);
        let odd = self.burst.lanes[position].parsed.is_exception();
        let (removals, created) =
            (self.table.sessions.removals(), shared.statistics.counters.created);
        self.table.touched = Flow::NONE;
        self.general(shared, turn, position, part);
        if odd || removals != self.table.sessions.removals() {
            ALL
        } else if created != shared.statistics.counters.created {
            // Of a session that is new none of those that passed can be.
            0
        } else {
            !self.burst.groups[at % GROUPS].others(self.table.touched)
        }
    }

    /// A packet that takes the general path.
    #[inline(always)]
    fn general<B: Frame>(
        &mut self,
        shared: &mut Shared,
        &turn: &Turn<'_>,
        at: usize,
        (frames, verdicts): &mut (&mut [B], &mut [Verdict]),
    ) {
        let Self { table, burst, .. } = self;
        let lane = &mut burst.lanes[at];
        let at_frame = usize::from(lane.frame);
        match general::packet(table, lane, shared, turn, &mut frames[at_frame]) {
            Some(verdict) => verdicts[at_frame] = verdict,
            None => {
                // Whatever was there before is none of this packet's.
                verdicts[at_frame] = Verdict::Wait;
                shared.scratch.defer(at_frame, verdicts);
            }
        }
        if table.fresh != Flow::NONE {
            self.forget_hints();
        }
    }

    /// A one-packet session is for no other packet, and no key leads to it. But it may be where
    /// another was that ended in this burst, and that later lanes have as a hint.
    #[inline(never)]
    fn forget_hints(&mut self) {
        let Self { table: Table { sessions, fresh, .. }, burst, .. } = self;
        if sessions.slab().at(fresh.id()).state == State::OnePacket {
            burst.forget(*fresh);
        }
    }
}

#[inline(always)]
fn prefetch_frames<B: Frame, P: Picks>(picks: &P, frames: &[B], from: usize) {
    let to = picks.count().min(from + LANES);
    if let Some(eight) = picks.eight(frames, from) {
        each_lane!(lane => eight[lane].prefetch());
    } else if from < to {
        picks.part(frames, from..to).for_each(Frame::prefetch);
    }
}
