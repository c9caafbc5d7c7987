//! The stages for one family: its sessions and the burst that runs through them.
//!
//! Eight frames at a time, a [`Group`], go from stage to stage, some steps behind each other, so
//! that while some are worked on, the memory that others need is on its way: neither the processor
//! nor the memory waits for the other. Each stage asks for the memory of the next one in one go,
//! since a request that misses the TLB holds everything behind it up, but not another request.

use super::burst::{Burst, GROUPS, Parsed, WINDOW, position};
use super::changes::Changes;
use super::fragments::Fragments;
use super::group::{ALL, Group, Together, lanes};
use super::half_open::HalfOpen;
use super::linger::Linger;
use super::others::Others;
use super::parse::{Parse, Refused};
use super::picks::Picks;
use super::probe::{Probe, Stage};
use super::{Shared, Verdict, View};
use crate::fib::{HopId, PortId};
use crate::frame::Frame;
use crate::hash::Seed;
use crate::plan::Plan;
use crate::reason::Reason;
use crate::session::{Flow, Sessions};
use crate::time::Time;
use arrayvec::ArrayVec;
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
pub(super) struct Engine<F: Together> {
    pub sessions: Sessions<F>,
    pub burst: Box<Burst<F>>,
    pub fragments: Fragments<F::Addr>,
    /// What the processor has.
    pub level: Level,
    /// Whether there is a vector path: off, all packets take the general one, to compare them.
    pub vector: bool,
    /// The session that was looked at last.
    pub touched: Flow,
    /// The sessions that ended last.
    pub ended: Linger,
    /// The session that the packet has opened which is followed now: what it is itself moves
    /// nothing on.
    pub fresh: Flow,
    /// Half-open sessions by age.
    pub half_open: HalfOpen,
    /// What other directors are to be told.
    pub changes: Changes<F>,
    /// Where among the routes the last client's was.
    pub near: u32,
    /// Hashes whose buckets sessions that are opened some time later will need: asked for together
    /// with others, since a request by itself holds everything up.
    pub wanted: ArrayVec<u64, LANES>,
    /// Where the sweep's cursor is, and when it was moved.
    pub cursor: u32,
    pub swept: Time,
}

/// What tracking made of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is to be rewritten and sent.
    Forward,
    /// It belongs to no flow, as far as the stages saw.
    Unknown,
    /// It is to be rewritten, but its neighbour is not known.
    Unresolved,
    /// It may not go on; its sender may be told.
    Refuse(Reason),
    /// It is larger than the way allows, in bytes of its own headers and payload.
    TooBig(u16),
    /// It goes no further.
    Is(Verdict),
    /// The extended table may have a session for it.
    Wide,
    /// It is to be rewritten, and to go through the path once more ([`super::hairpin`]).
    Again,
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Is(verdict) => Self::Is(verdict),
            Refused::Wide => Self::Wide,
        }
    }
}

/// What a stage needs to know of its turn.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub view: View<'a>,
    pub now: Time,
    pub port: PortId,
    pub others: Others<'a>,
}

impl<F: Parse> Engine<F> {
    pub fn new(
        (sessions, fragments): (u32, u32),
        seed: Seed,
        pages: PagePolicy,
        file: Option<&MemoryFile>,
    ) -> Result<Self, RegionError> {
        let (places, ended) = ((sessions, Linger::most(sessions)), Linger::new(sessions));
        let sessions: Sessions<F> = Sessions::new(places, seed, pages, file)?;
        Ok(Self {
            half_open: HalfOpen::new(sessions.slab().capacity(), pages)?,
            changes: Changes::off(),
            sessions,
            ended,
            burst: Burst::new(),
            fragments: Fragments::new(fragments),
            level: Level::detect(),
            vector: true,
            touched: Flow::NONE,
            fresh: Flow::NONE,
            near: 0,
            wanted: ArrayVec::new(),
            cursor: 0,
            swept: Time::default(),
        })
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
                self.seek(at);
            }
            if let Some(at) = group(FOUND) {
                self.find(at);
                self.prefetch_sessions(at);
            }
            if step < groups {
                self.prefetch_buckets(step);
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
                    self.sample(shared, turn.now, at, place % LANES);
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
        let Self { sessions, burst, .. } = self;
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
            shared.scratch.leaving.note(&part.1[at_frame]);
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
        self.find(at);
        self.seek(at);
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
        let (removals, created) = (self.sessions.removals(), shared.statistics.counters.created);
        self.touched = Flow::NONE;
        self.general(shared, turn, position, part);
        if odd || removals != self.sessions.removals() {
            ALL
        } else if created != shared.statistics.counters.created {
            // Of a session that is new none of those that passed can be.
            0
        } else {
            !self.burst.groups[at % GROUPS].others(self.touched)
        }
    }

    /// The general path of a packet. By itself, so that it takes no registers from the vector path.
    #[inline(never)]
    fn general<B: Frame>(
        &mut self,
        shared: &mut Shared,
        &turn: &Turn<'_>,
        at: usize,
        (frames, verdicts): &mut (&mut [B], &mut [Verdict]),
    ) {
        self.fresh = Flow::NONE;
        let at_frame = usize::from(self.burst.lanes[at].frame);
        let frame = &mut frames[at_frame];
        let mut outcome = self.track(shared, turn, at, frame);
        if outcome == Outcome::Unknown {
            outcome = self.miss(shared, turn, at, frame);
        }
        verdicts[at_frame] = match outcome {
            Outcome::Forward => self.finish(shared, turn.view, at, frame),
            Outcome::Unresolved => self.hold(shared, turn, at, frame),
            Outcome::Unknown => Verdict::Drop(Reason::NoSession),
            Outcome::Refuse(why) => self.refuse(shared, turn, at, frame, why),
            Outcome::TooBig(mtu) => self.too_big(shared, turn, at, frame, mtu),
            Outcome::Is(verdict) => verdict,
            Outcome::Again => self.again(shared, turn, at, frame),
            Outcome::Wide => {
                // Whatever was there before is none of this packet's.
                verdicts[at_frame] = Verdict::Wait;
                return shared.scratch.defer(at_frame, verdicts);
            }
        };
    }

    /// A packet whose flow was not found, or not at the first look.
    pub fn miss<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        at: usize,
        frame: &mut B,
    ) -> Outcome {
        let Parsed { tuple, .. } = self.burst.lanes[at].parsed;
        if self.burst.lanes[at].parsed.is_exception() {
            return self.odd(shared, turn, at, frame);
        }
        match self.admit(shared, turn, (at, &tuple), frame) {
            Ok(flow) => {
                self.burst.lanes[at].flow = flow;
                self.track(shared, turn, at, frame)
            }
            Err(outcome) => outcome,
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
