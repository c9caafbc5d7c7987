//! The stages for one family: its sessions and the burst that runs through them.
//!
//! A few frames at a time ([`STEP`]) go from stage to stage, one step behind each other, so that
//! while some are worked on, the memory that others need is on its way: neither the processor nor
//! the memory waits for the other. Each stage asks for the memory of the next one in one go, since
//! a request that misses the TLB holds everything behind it up, but not another request.

use super::burst::Burst;
use super::fragments::Fragments;
use super::parse::{Parse, Refused};
use super::{BURST, Shared, Verdict, View};
use crate::family::{Family, Ipv4, Ipv6, Seed, Tuple};
use crate::fib::{HopId, PortId};
use crate::frame::Frame;
use crate::plan::{LocalId, Plan};
use crate::reason::Reason;
use crate::session::{Flow, Session, Sessions, State};
use crate::time::Time;
use sluice_lanes::prefetch;
use sluice_table::index::First;
use sluice_table::{PagePolicy, RegionError, Slot};
use std::net::IpAddr;
use std::ops::Range;

/// Frames that go through a stage together. Each has three lines on their way (header, bucket,
/// session); more than the processor can track at once would stall it.
const STEP: usize = 8;
/// The sweep's hand goes once around the table in this time.
const SWEEP_MS: u64 = 2000;
/// The most slots of one call of the sweep.
const SWEEP_SLOTS: u64 = 4096;

/// One family's half of a path.
pub(super) struct Engine<F: Family> {
    pub sessions: Sessions<F>,
    pub burst: Box<Burst<F::Addr>>,
    pub fragments: Fragments<F::Addr>,
    hand: u32,
    swept: Time,
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
    /// The wide table may have a session for it.
    Wide,
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

/// The sessions of the table that a turn is not of.
#[derive(Clone, Copy)]
pub(super) enum Others<'a> {
    Narrow(&'a Sessions<Ipv4>),
    Wide(&'a Sessions<Ipv6>),
}

impl Others<'_> {
    /// Whether one is found by what a session of the turn's table would be found by, which takes a
    /// port of this local address. They are asked only if they may have it.
    pub fn have<F: Family>(&self, plan: &Plan, local: LocalId, tuple: &Tuple<F::Addr>) -> bool {
        if !plan.takers.get(usize::from(local.0)).is_some_and(|takers| takers.mixed) {
            return false;
        }
        let tuple = tuple.map(F::to_ip);
        match self {
            Self::Narrow(sessions) => has(sessions, plan, &tuple),
            Self::Wide(sessions) => has(sessions, plan, &tuple),
        }
    }
}

#[cold]
fn has<F: Family>(sessions: &Sessions<F>, plan: &Plan, tuple: &Tuple<IpAddr>) -> bool {
    let (Some(src), Some(dst)) = (F::from_ip(tuple.src), F::from_ip(tuple.dst)) else {
        return false;
    };
    let Tuple { sport, dport, protocol, .. } = *tuple;
    let tuple = Tuple { src, dst, sport, dport, protocol };
    sessions.find(plan, sessions.hash(&tuple), &tuple).is_some()
}

/// Which of a turn's frames a table looks at.
pub(super) trait Picks {
    fn count(&self) -> usize;
    fn frame(&self, at: usize) -> usize;
}

/// The first so many.
impl Picks for usize {
    #[inline(always)]
    fn count(&self) -> usize {
        *self
    }

    #[inline(always)]
    fn frame(&self, at: usize) -> usize {
        at
    }
}

/// These.
impl Picks for &[u8] {
    fn count(&self) -> usize {
        self.len()
    }

    fn frame(&self, at: usize) -> usize {
        usize::from(self[at])
    }
}

impl<F: Parse> Engine<F> {
    pub fn new(
        (sessions, fragments): (u32, u32),
        seed: Seed,
        pages: PagePolicy,
    ) -> Result<Self, RegionError> {
        Ok(Self {
            sessions: Sessions::new(sessions, seed, pages)?,
            burst: Burst::new(),
            fragments: Fragments::new(fragments),
            hand: 0,
            swept: Time::default(),
        })
    }

    /// One turn: see [`super::Path::turn`].
    pub fn turn<B: Frame, P: Picks>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        picks: P,
        frames: &mut [B],
        verdicts: &mut [Verdict],
    ) {
        prefetch_frames(&picks, frames, 0);
        self.burst.len = 0;
        let (mut next, mut found, mut sought, mut done) = (0, 0, 0, 0);
        let mut away = 0;
        while next < picks.count() || done < self.burst.len {
            let parsed = self.burst.len;
            let end = picks.count().min(next + STEP);
            let plan = turn.view.plan;
            if F::WIDE || plan.sieve.is_none() {
                self.parse::<B, P, false>(shared, plan, &picks, frames, verdicts, next..end);
            } else {
                self.parse::<B, P, true>(shared, plan, &picks, frames, verdicts, next..end);
            }
            next = end;
            self.seek(away);
            away = self.find(found..parsed);
            self.prefetch(found..parsed, parsed..self.burst.len);
            prefetch_frames(&picks, frames, next);
            self.track_all(shared, turn, frames, verdicts, done..sought);
            (done, sought, found) = (sought, found, parsed);
        }
    }

    /// Parses frames. With `SIEVE` those that only the wide table may have anything for are left
    /// to it at once; where there is none, nothing is to be asked.
    #[inline(never)]
    fn parse<B: Frame, P: Picks, const SIEVE: bool>(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        picks: &P,
        frames: &[B],
        verdicts: &mut [Verdict],
        part: Range<usize>,
    ) {
        let Self { sessions, burst, .. } = self;
        let mut len = burst.len;
        for at in part {
            let at = picks.frame(at);
            let Some(lane) = burst.lanes.get_mut(len) else { break };
            match F::parse(&frames[at], plan, shared, lane) {
                Ok(()) if SIEVE && F::is_others(plan, &lane.key) => {
                    shared.defer(at, verdicts);
                }
                Ok(()) => {
                    lane.hash = sessions.hash_key(&lane.key);
                    lane.hop = HopId::NONE;
                    lane.frame = at as u8;
                    len += 1;
                }
                Err(Refused::Is(verdict)) => verdicts[at] = verdict,
                Err(Refused::Wide) => shared.defer(at, verdicts),
            }
        }
        burst.len = len;
    }

    /// First candidates in the home buckets. Gives a bit for each lane whose candidate, if there
    /// is one, is in its other bucket.
    #[inline(never)]
    fn find(&mut self, lanes: Range<usize>) -> u64 {
        let Self { sessions, burst, .. } = self;
        let (first, mut away) = (lanes.start, 0);
        for (at, lane) in burst.lanes[lanes].iter_mut().enumerate() {
            lane.flow = match sessions.index().first(lane.hash) {
                First::Candidate(value) => Flow(value),
                First::Elsewhere => {
                    sessions.index().prefetch_other(lane.hash);
                    away |= 1 << ((first + at) % BURST);
                    Flow::NONE
                }
                First::None => Flow::NONE,
            };
        }
        away
    }

    /// First candidates in the other buckets, which were asked for a step ago.
    #[inline(always)]
    fn seek(&mut self, mut away: u64) {
        let Self { sessions, burst, .. } = self;
        while away != 0 {
            let lane = &mut burst.lanes[away.trailing_zeros() as usize];
            lane.flow = Flow(sessions.index().second(lane.hash));
            if lane.flow != Flow::NONE {
                prefetch::read(sessions.slab().at(lane.flow.id()));
            }
            away &= away - 1;
        }
    }

    /// Asks for memory.
    #[inline(always)]
    fn prefetch(&self, found: Range<usize>, parsed: Range<usize>) {
        for lane in &self.burst.lanes[found] {
            if lane.flow != Flow::NONE {
                prefetch::read(self.sessions.slab().at(lane.flow.id()));
            }
        }
        for lane in &self.burst.lanes[parsed] {
            self.sessions.index().prefetch(lane.hash);
        }
    }

    /// Verifies and tracks packets in the order of their arrival: after this it is decided what
    /// becomes of each.
    #[inline(never)]
    fn track_all<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        frames: &mut [B],
        verdicts: &mut [Verdict],
        lanes: Range<usize>,
    ) {
        for at in lanes {
            let at_frame = usize::from(self.burst.lanes[at].frame);
            let (frame, verdict) = (&mut frames[at_frame], &mut verdicts[at_frame]);
            if self.pass::<B, false>(shared, turn, at, frame, verdict).is_none() {
                self.not_plain(shared, turn, at, frames, verdicts);
            }
        }
    }

    /// A packet that is not simply forwarded. By itself, so that it takes no registers from those
    /// that are.
    #[inline(never)]
    fn not_plain<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        at: usize,
        frames: &mut [B],
        verdicts: &mut [Verdict],
    ) {
        let at_frame = usize::from(self.burst.lanes[at].frame);
        let frame = &mut frames[at_frame];
        if self.pass::<B, true>(shared, turn, at, frame, &mut verdicts[at_frame]).is_some() {
            return;
        }
        self.burst.lanes[at].spell_out::<F>();
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
            Outcome::Wide => return shared.defer(at_frame, verdicts),
        };
    }

    /// A packet whose flow was not found, or not at the first look.
    #[cold]
    fn miss<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        at: usize,
        frame: &mut B,
    ) -> Outcome {
        if self.burst.lanes[at].parsed.is_odd() {
            return self.odd(shared, turn, at, frame);
        }
        match self.admit(shared, turn, at, frame) {
            Ok(flow) => {
                self.burst.lanes[at].flow = flow;
                self.track(shared, turn, at, frame)
            }
            Err(outcome) => outcome,
        }
    }

    /// Ends a session, whatever its state.
    pub fn remove(&mut self, shared: &mut Shared, plan: &Plan, id: u32) {
        if let Some(session) = self.sessions.remove(plan, id) {
            shared.ended(&session);
            if F::WIDE {
                self.let_go(shared, plan, &session);
            }
        }
    }

    /// Ends a session that has timed out.
    pub fn expire(&mut self, shared: &mut Shared, plan: &Plan, id: u32) {
        let connection = self.sessions.slab().at(id).state != State::Template;
        self.remove(shared, plan, id);
        shared.counters.expired += u64::from(connection);
    }

    pub fn sweep(&mut self, shared: &mut Shared, plan: &Plan, now: Time) {
        let elapsed = now.0.saturating_sub(self.swept.0);
        let all = u64::from(self.sessions.slab().touched());
        let slots = (all * elapsed).div_ceil(SWEEP_MS).min(all);
        if elapsed == 0 || slots == 0 {
            return;
        }
        // A turn has other work too; what is left over is owed to the next call.
        let now_slots = slots.min(SWEEP_SLOTS);
        self.swept.0 += (elapsed * now_slots).div_ceil(slots);
        self.sweep_slots(shared, plan, now, now_slots as u32);
    }

    pub fn sweep_all(&mut self, shared: &mut Shared, plan: &Plan, now: Time) {
        self.swept = now;
        self.sweep_slots(shared, plan, now, self.sessions.slab().touched());
    }

    fn sweep_slots(&mut self, shared: &mut Shared, plan: &Plan, now: Time, slots: u32) {
        for _ in 0..slots {
            if self.hand >= self.sessions.slab().touched() {
                self.hand = 0;
            }
            let session = self.sessions.slab().at(self.hand);
            if !session.is_vacant() && expired(session, plan, now) {
                self.expire(shared, plan, self.hand);
            }
            self.hand += 1;
        }
    }
}

/// Whether a session's time is over.
#[inline(always)]
pub(super) fn expired<A, X>(session: &Session<A, X>, plan: &Plan, now: Time) -> bool {
    let idle = session.idle_ms(now);
    idle > plan.timeout_ms[session.state as usize] && over(session, plan, idle)
}

/// Whether what has been idle for longer than its state allows is over: templates may last longer.
#[cold]
fn over<A, X>(session: &Session<A, X>, plan: &Plan, idle: u32) -> bool {
    session.state != State::Template || idle > plan.template_ms(session.service)
}

#[inline(always)]
fn prefetch_frames<B: Frame, P: Picks>(picks: &P, frames: &[B], from: usize) {
    for at in from..picks.count().min(from + STEP) {
        frames[picks.frame(at)].prefetch();
    }
}
