//! The stages for one family: its sessions and the burst that runs through them.

use super::burst::Burst;
use super::{BURST, Shared, Verdict, View, parse, rewrite};
use crate::counters::Direction;
use crate::family::{Family, Ipv4, Seed, Tuple};
use crate::fib::{HopId, NoHop, PortId};
use crate::frame::Frame;
use crate::plan::Plan;
use crate::reason::Reason;
use crate::session::{Flow, Session, Sessions, State};
use crate::time::Time;
use crate::track;
use arrayvec::ArrayVec;
use sluice_lanes::prefetch;
use sluice_table::index::First;
use sluice_table::{PagePolicy, RegionError, Slot};

/// Frames ahead of the one that is parsed whose headers are asked for.
const AHEAD: usize = 8;
/// The sweep's hand goes once around the table in this time.
const SWEEP_MS: u64 = 2000;
/// The most slots of one call of the sweep.
const SWEEP_SLOTS: u64 = 4096;

/// One family's half of a path.
pub(super) struct Engine<F: Family> {
    pub sessions: Sessions<F>,
    pub burst: Box<Burst<F::Addr>>,
    /// Whether a session was removed in this turn: what was found before may be gone.
    removed: bool,
    hand: u32,
    swept: Time,
}

impl Engine<Ipv4> {
    /// One turn: see [`super::Path::turn`].
    pub fn turn<B: Frame>(
        &mut self,
        shared: &mut Shared,
        view: View<'_>,
        now: Time,
        port: PortId,
        frames: &mut [B],
        verdicts: &mut [Verdict],
    ) {
        for frame in frames.iter().take(AHEAD) {
            frame.prefetch();
        }
        self.burst.len = 0;
        for at in 0..frames.len() {
            if let Some(later) = frames.get(at + AHEAD) {
                later.prefetch();
            }
            match parse::v4(&frames[at], view.plan, shared) {
                Ok(parsed) => {
                    let hash = self.sessions.hash(&parsed.tuple);
                    self.sessions.index().prefetch(hash);
                    self.burst.push(at, parsed, hash);
                }
                Err(verdict) => verdicts[at] = verdict,
            }
        }
        self.run(shared, view, now, port, frames, verdicts);
    }
}

impl<F: Family> Engine<F> {
    pub fn new(sessions: u32, seed: Seed, pages: PagePolicy) -> Result<Self, RegionError> {
        Ok(Self {
            sessions: Sessions::new(sessions, seed, pages)?,
            burst: Burst::new(),
            removed: false,
            hand: 0,
            swept: Time::default(),
        })
    }

    /// The stages behind parsing.
    fn run<B: Frame>(
        &mut self,
        shared: &mut Shared,
        view: View<'_>,
        now: Time,
        port: PortId,
        frames: &mut [B],
        verdicts: &mut [Verdict],
    ) {
        self.find();
        self.verify(view.plan, now);
        self.removed = false;
        for lane in 0..self.burst.len {
            let at = usize::from(self.burst.frame[lane]);
            if self.removed && self.burst.flow[lane] != Flow::NONE {
                self.verify_lane(lane, view.plan, now);
            }
            if self.burst.flow[lane] == Flow::NONE {
                match self.admit(shared, view, now, (lane, port), &mut frames[at]) {
                    Ok(flow) => self.burst.flow[lane] = flow,
                    Err(verdict) => {
                        verdicts[at] = verdict;
                        continue;
                    }
                }
            }
            verdicts[at] = self.forward(shared, view, now, lane, &mut frames[at]);
        }
    }

    /// First candidates; asks for their sessions.
    #[inline(always)]
    fn find(&mut self) {
        let Self { sessions, burst, .. } = self;
        let mut elsewhere = ArrayVec::<usize, BURST>::new();
        for lane in 0..burst.len {
            burst.flow[lane] = match sessions.index().first(burst.hash[lane]) {
                First::Candidate(value) => {
                    let flow = Flow(value);
                    prefetch::read(sessions.slab().at(flow.id()));
                    flow
                }
                First::Elsewhere => {
                    sessions.index().prefetch_other(burst.hash[lane]);
                    elsewhere.push(lane);
                    Flow::NONE
                }
                First::None => Flow::NONE,
            };
        }
        for lane in elsewhere {
            let flow = Flow(sessions.index().second(burst.hash[lane]));
            if flow != Flow::NONE {
                prefetch::read(sessions.slab().at(flow.id()));
                burst.flow[lane] = flow;
            }
        }
    }

    /// Compares whole keys: of the candidates remain the flows that are in the table and have
    /// not expired.
    #[inline(always)]
    fn verify(&mut self, plan: &Plan, now: Time) {
        for lane in 0..self.burst.len {
            if self.burst.flow[lane] != Flow::NONE {
                self.verify_lane(lane, plan, now);
            }
        }
    }

    #[inline(always)]
    fn verify_lane(&mut self, lane: usize, plan: &Plan, now: Time) {
        let Self { sessions, burst, .. } = self;
        let (tuple, flow) = (&burst.parsed[lane].tuple, burst.flow[lane]);
        // Another candidate, if there is one, is left to `admit`: two keys seldom share a tag.
        let valid = sessions.is_flow_of(plan, flow, tuple)
            && !expired(sessions.slab().at(flow.id()), plan, now);
        if !valid {
            burst.flow[lane] = Flow::NONE;
        }
    }

    /// Tracks, counts and rewrites one packet of a known flow.
    #[inline(always)]
    fn forward<B: Frame>(
        &mut self,
        shared: &mut Shared,
        view: View<'_>,
        now: Time,
        lane: usize,
        frame: &mut B,
    ) -> Verdict {
        let parsed = self.burst.parsed[lane];
        let flow = self.burst.flow[lane];
        if parsed.ttl <= 1 {
            return Verdict::Drop(Reason::TtlExpired);
        }
        let session = self.sessions.at_mut(flow.id());
        let direction = flow.direction();
        let Some(target) = Target::of::<F>(session, direction, view) else {
            return Verdict::Drop(Reason::NoSession);
        };
        let hop = match target.hop.map(|id| view.fib.hop(id)) {
            Ok(Some(hop)) if parsed.length > hop.mtu => return Verdict::Drop(Reason::TooBig),
            Ok(Some(hop)) => Ok(hop),
            Err(why @ NoHop::Unresolved(..)) => Err(why),
            Ok(None) | Err(NoHop::NoRoute) => return Verdict::Drop(Reason::NoRoute),
        };
        session.seen_ms = now.low();
        let (mut opened, mut ended) = (false, false);
        if !track::is_plain(session.state, parsed.segment.flags) {
            opened = track::tcp(session, direction, parsed.segment);
            ended = view.plan.timeout_ms[session.state as usize] == 0;
        }
        let counters = &mut shared.counters;
        // Opened anew: the connection before it ended by itself.
        counters.created += u64::from(opened);
        counters.closed += u64::from(opened);
        if let Some(real) = counters.reals.get_mut(session.real().0 as usize) {
            real.packets[direction as usize] += 1;
            real.bytes[direction as usize] += u64::from(parsed.length);
            real.sessions += u64::from(opened);
        }
        let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
        F::rewrite(&mut frame.bytes_mut()[l3..], l4 - l3, &parsed.tuple, &target.tuple);
        if ended {
            self.remove(shared, view.plan, flow.id());
            shared.counters.closed += 1;
        }
        match hop {
            Ok(hop) => rewrite::link_layer(frame, hop),
            Err(why) => shared.no_hop(usize::from(self.burst.frame[lane]), why),
        }
    }

    /// Ends a session, whatever its state.
    pub fn remove(&mut self, shared: &mut Shared, plan: &Plan, id: u32) {
        self.removed = true;
        if let Some(session) = self.sessions.remove(plan, id)
            && let Some(real) = shared.counters.reals.get_mut(session.real().0 as usize)
        {
            real.active = real.active.saturating_sub(1);
        }
    }

    /// Ends a session that has timed out.
    pub fn expire(&mut self, shared: &mut Shared, plan: &Plan, id: u32) {
        self.remove(shared, plan, id);
        shared.counters.expired += 1;
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
pub(super) fn expired<A>(session: &Session<A>, plan: &Plan, now: Time) -> bool {
    session.idle_ms(now) > plan.timeout_ms[session.state as usize] && session.state != State::Vacant
}

/// What a flow's packets become, and where they go.
struct Target<A> {
    tuple: Tuple<A>,
    hop: Result<HopId, NoHop>,
}

impl<A> Target<A> {
    /// `None` when the plan does not know the session's service, real server or local address.
    #[inline(always)]
    fn of<F: Family<Addr = A>>(
        session: &mut Session<A>,
        direction: Direction,
        view: View<'_>,
    ) -> Option<Self>
    where
        A: Copy + Eq + std::hash::Hash,
    {
        let (side, fib) = (F::side(view.plan), view.fib);
        let protocol = session.protocol();
        if direction == Direction::Inbound {
            let (dst, dport) = side.real(session.real())?;
            let src = side.local(session.local)?;
            let hop = match fib.real_hop(session.real()) {
                HopId::NONE => fib.lookup(F::to_ip(dst)),
                known => Ok(known),
            };
            let tuple = Tuple { src, dst, sport: session.local_port, dport, protocol };
            return Some(Self { tuple, hop });
        }
        let src = side.vip(session.service)?;
        let (dst, dport) = (session.client, session.client_port);
        let mut hop = Ok(HopId(session.client_hop));
        if session.hop_generation != fib.generation() || hop == Ok(HopId::NONE) {
            hop = fib.lookup(F::to_ip(dst));
            session.client_hop = hop.unwrap_or(HopId::NONE).0;
            session.hop_generation = fib.generation();
        }
        let tuple = Tuple { src, dst, sport: session.virtual_port, dport, protocol };
        Some(Self { tuple, hop })
    }
}
