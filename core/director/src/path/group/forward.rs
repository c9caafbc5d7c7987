//! What becomes of those of a group's packets that may go on: written, counted, and the sessions
//! that they change moved on; and the way out for those that go by themselves after all.

use super::outer::{Enter, TOGETHER};
use super::{ALL, Group, Together, lanes};
use crate::counters::{Direction, RealCounters};
use crate::fib::{Hop, HopId};
use crate::frame::Frame;
use crate::path::burst::{GROUPS, Parsed, position};
use crate::path::engine::Engine;
use crate::path::follow::into_tunnel;
use crate::path::parse::Parse;
use crate::path::tunnel::{self, Tunnel};
use crate::path::turn::Turn;
use crate::path::{Shared, Verdict, half_open, linger, rewrite, sweep};
use crate::plan::Plan;
use crate::session::{Flow, SessionOf, State};
use crate::track;
use sluice_lanes::each_lane;
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_wire::ethernet;

impl<F: Parse> Engine<F> {
    /// Writes one of those; `false`, and nothing done, if it cannot go so.
    #[inline(always)]
    pub fn forward<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        (at, lane): (usize, usize),
        frame: &mut B,
        verdict: &mut Verdict,
    ) -> bool {
        let group = &self.burst.groups[at % GROUPS];
        let Some(hop) = turn.view.fib.hop(HopId(group.hop[lane] as u16)) else { return false };
        let length = group.lengths[lane] as u16;
        let written = if group.tunnels >> lane & 1 == 1 {
            write_into_tunnel::<F, B>(group, (shared, turn), lane, frame, hop, verdict)
        } else {
            length <= hop.mtu && write::<F, B>(group, lane, frame, hop, verdict)
        };
        if !written {
            return false;
        }
        let flow = Flow(group.flow[lane]);
        self.table.sessions.at_mut(flow.id()).seen_ms = turn.now.low();
        shared.statistics.forwarded(group.real(lane), flow.direction(), length);
        true
    }

    /// Writes a whole group's frames; gives the lanes that are left, most often none.
    #[inline(always)]
    pub fn forward_all<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        at: usize,
        frames: &mut [B],
        verdicts: &mut [Verdict],
    ) -> u8 {
        let (Some(frames), Some(verdicts)) =
            (frames.first_chunk_mut::<LANES>(), verdicts.first_chunk_mut::<LANES>())
        else {
            return ALL;
        };
        let hops = turn.view.fib.hops();
        let group = &self.burst.groups[at % GROUPS];
        if group.tunnels != 0 {
            return self.forward_into_tunnels(shared, turn, at, frames, verdicts);
        }
        self.level.run(Forward::<F, B> {
            group,
            hops,
            sessions: self.table.sessions.slots_mut(),
            reals: &mut shared.statistics.counters.reals,
            seen_ms: turn.now.low(),
            frames,
            verdicts,
        })
    }

    /// The same of a group that has packets for tunnels.
    #[inline(never)]
    fn forward_into_tunnels<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        at: usize,
        frames: &mut Lanes<B>,
        verdicts: &mut Lanes<Verdict>,
    ) -> u8 {
        let hops = turn.view.fib.hops();
        let group = &self.burst.groups[at % GROUPS];
        let first = hops.get(usize::from(group.hop[0] as u16));
        // Where one has a tag most have, and those go by themselves.
        if !TOGETHER || !first.is_some_and(|first| group.tunnels == ALL && first.vlan == 0) {
            return self.forward_each(shared, turn, at, frames, verdicts);
        }
        let real = group.real(0).0 as usize;
        let paths = &shared.paths;
        let forward = Forward::<F, B> {
            group,
            hops,
            sessions: self.table.sessions.slots_mut(),
            reals: &mut shared.statistics.counters.reals,
            seen_ms: turn.now.low(),
            frames,
            verdicts,
        };
        let left = match paths.fours.get(real) {
            Some(four) if four.is_one() => self.level.run(Enter { tunnels: &paths.fours, forward }),
            _ => self.level.run(Enter { tunnels: &paths.sixes, forward }),
        };
        for lane in lanes(left) {
            shared.paths.forget(group.real(lane), turn.now);
        }
        left
    }

    /// The same, lane by lane.
    #[inline(never)]
    fn forward_each<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        at: usize,
        frames: &mut Lanes<B>,
        verdicts: &mut Lanes<Verdict>,
    ) -> u8 {
        for (lane, (frame, verdict)) in frames.iter_mut().zip(verdicts).enumerate() {
            if !self.forward(shared, turn, (at, lane), frame, verdict) {
                return ALL << lane;
            }
        }
        0
    }

    /// The hash of the key of what answers a packet that passed, once it is written.
    #[inline(always)]
    fn answers(&self, (at, lane): (usize, usize)) -> u64 {
        let (group, seed) = (&self.burst.groups[at % GROUPS], self.table.sessions.seed());
        F::hash_key(&F::changed_key(&group.words, lane).reversed(), seed)
    }

    /// Makes a packet of a group one that goes by itself.
    #[inline(always)]
    pub fn take_out(&mut self, (at, lane): (usize, usize), at_frame: usize) {
        let position = position(at, lane);
        let (group, slow) = (&self.burst.groups[at % GROUPS], &mut self.burst.lanes[position]);
        slow.parsed = Parsed {
            l3: ethernet::HEADER as u8,
            l4: F::L4 as u16,
            ttl: F::ttl(&group.words, lane),
            length: group.lengths[lane] as u16,
            segment: group.segment(lane),
            tuple: F::tuple(&F::key_of(&group.words, lane)),
        };
        (slow.hash, slow.flow) = (group.hash(lane), Flow(group.flow[lane]));
        (slow.hop, slow.frame) = (HopId::NONE, at_frame as u8);
    }

    /// Asks for the index buckets of the sessions that a group may end, and gives the
    /// hashes of the keys of what answers these packets.
    #[inline(always)]
    pub fn prefetch_ends(&self, at: usize) -> Lanes<u64> {
        let (group, mut answers) = (&self.burst.groups[at % GROUPS], [0; LANES]);
        if group.changes == 0 {
            return answers;
        }
        for lane in lanes(group.ends) {
            self.table.sessions.index().prefetch(group.hash(lane));
            if group.answered >> lane & 1 == 1 {
                answers[lane] = self.answers((at, lane));
                self.table.sessions.index().prefetch(answers[lane]);
            }
        }
        answers
    }

    /// Moves the session of a packet that was forwarded on, or ends it. `answers` are the hashes of
    /// [`Self::prefetch_ends`]. Gives the lanes of its group whose session it has changed.
    #[inline(always)]
    pub fn change(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        (at, lane): (usize, usize),
        answers: &Lanes<u64>,
    ) -> u8 {
        let group = &self.burst.groups[at % GROUPS];
        if group.changes >> lane & 1 == 0 {
            return 0;
        }
        let (flow, conflicts, segment) =
            (Flow(group.flow[lane]), group.conflicts, group.segment(lane));
        let session = self.table.sessions.at_mut(flow.id());
        let (before, seen) = (session.state, session.seen);
        let fits = track::tcp(session, flow.direction(), segment);
        shared.statistics.counters.ignored_ends += u64::from(!fits);
        let state = session.state;
        let is_as_before = (before, seen) == (state, session.seen);
        if is_as_before && !matches!(before, State::TimeWait | State::Close) {
            return 0;
        }
        if before != state {
            half_open::moved(&mut self.table, shared, plan, (flow.id(), before), flow.direction());
        }
        let group = &self.burst.groups[at % GROUPS];
        // What is known of it ahead is asked first: its state was just written.
        let (ends, ended) = (group.ends, plan.timeout_ms[state as usize] == 0);
        if ends >> lane & 1 == 1 && ended && state == State::TimeWait {
            linger::linger(&mut self.table, shared, plan, flow.id());
            shared.statistics.counters.closed += 1;
        } else if ends >> lane & 1 == 1 && ended {
            let group = &self.burst.groups[at % GROUPS];
            let other = (group.answered >> lane & 1 == 1).then_some(answers[lane]);
            let hashes = match flow.direction() {
                Direction::Inbound => [Some(group.hash(lane)), other],
                Direction::Outbound => [other, Some(group.hash(lane))],
            };
            sweep::remove_by(&mut self.table, shared, plan, flow.id(), hashes);
            shared.statistics.counters.closed += 1;
        }
        if conflicts >> lane & 1 == 1 { !self.burst.groups[at % GROUPS].others(flow) } else { 0 }
    }
}

/// Writes eight frames, none of which goes into a tunnel, and counts them. Gives the lanes that are
/// left.
pub(super) struct Forward<'a, F: Together, B> {
    pub group: &'a Group<F::Words>,
    pub hops: &'a [Hop],
    pub sessions: &'a mut [SessionOf<F>],
    pub reals: &'a mut [RealCounters],
    pub seen_ms: u32,
    pub frames: &'a mut Lanes<B>,
    pub verdicts: &'a mut Lanes<Verdict>,
}

impl<F: Together, B: Frame> Kernel for Forward<'_, F, B> {
    type Output = u8;

    #[inline(always)]
    fn run<I: Instructions>(self, _: I) -> u8 {
        let Self { group, hops, sessions, reals, seen_ms, frames, verdicts } = self;
        each_lane!(lane => {
            let length = group.lengths[lane];
            let hop = hops.get(usize::from(group.hop[lane] as u16));
            let Some(hop) = hop.filter(|hop| length <= u32::from(hop.mtu)) else {
                return ALL << lane;
            };
            if !write::<F, B>(group, lane, &mut frames[lane], hop, &mut verdicts[lane]) {
                return ALL << lane;
            }
            account::<F>(group, lane, (sessions, seen_ms), reals);
        });
        0
    }
}

/// Says of a lane's session when it was seen last, and counts the packet.
#[inline(always)]
pub(super) fn account<F: Together>(
    group: &Group<F::Words>,
    lane: usize,
    (sessions, seen_ms): (&mut [SessionOf<F>], u32),
    reals: &mut [RealCounters],
) {
    let flow = Flow(group.flow[lane]);
    if let Some(session) = sessions.get_mut(flow.id() as usize) {
        session.seen_ms = seen_ms;
    }
    if let Some(real) = reals.get_mut(group.real(lane).0 as usize) {
        real.forwarded(flow.direction(), (1, group.lengths[lane].into()));
    }
}

/// Writes a lane's frame; `false` if it is too short, which it was not when it was read.
#[inline(always)]
fn write<F: Together, B: Frame>(
    group: &Group<F::Words>,
    lane: usize,
    frame: &mut B,
    hop: &Hop,
    verdict: &mut Verdict,
) -> bool {
    let bytes = frame.bytes_mut();
    if !F::write(group, lane, bytes) {
        return false;
    }
    match bytes.first_chunk_mut() {
        Some(header) if hop.vlan == 0 => {
            rewrite::addresses(header, hop);
            *verdict = Verdict::Tx(hop.port);
        }
        _ => *verdict = rewrite::link_layer(frame, hop),
    }
    true
}

/// The same for one that goes into a tunnel; `false` too if it does not fit.
#[inline(never)]
fn write_into_tunnel<F: Together, B: Frame>(
    group: &Group<F::Words>,
    (shared, turn): (&Shared, Turn<'_>),
    lane: usize,
    frame: &mut B,
    hop: &Hop,
    verdict: &mut Verdict,
) -> bool {
    let (plan, real, length) = (turn.view.plan, group.real(lane), group.lengths[lane]);
    let fits = shared.paths.fits(real, length, hop.mtu)
        || length as u16 <= tunnel::room(&shared.paths, plan, real, hop.mtu, turn.now);
    if !fits || !F::write(group, lane, frame.bytes_mut()) {
        return false;
    }
    let to = (real, group.hash(lane));
    *verdict = match shared.paths.enter_plain(to, frame, hop) {
        Some(verdict) => verdict,
        None => into_tunnel(plan, to, ethernet::HEADER as u8, frame, hop),
    };
    true
}
