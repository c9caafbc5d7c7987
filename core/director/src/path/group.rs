//! The vector path: eight packets at a time, each word of their headers, their sessions and their
//! real servers side by side, so that one instruction does for eight.
//!
//! It takes any mask of lanes, and declines the others before it writes a frame or touches a
//! session: what it takes and what it declines is in [`super`]. The text is one for both versions,
//! over addresses of one word ([`four`]) or of four ([`six`]).

mod ends;
mod forward;
mod four;
mod outer;
mod read;
mod six;
mod verify;

use super::burst::GROUPS;
use super::engine::Engine;
use super::handoff::Foreign;
use super::owners::stays_here;
use super::parse::{Parse, is_ipv6};
use super::picks::Picks;
use super::turn::Turn;
use super::{Shared, Verdict, View};
use crate::family::Family;
use crate::frame::Frame;
use crate::key::Key;
use crate::plan::{Plan, RealId, Side};
use crate::session::Flow;
use crate::track::Segment;
use bytemuck::Zeroable;
pub(super) use ends::{Ends, NO_ROWS};
use outer::Inside;
use read::Read;
use sluice_lanes::each_lane;
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_lanes::words::Words;
use sluice_table::Index;
use sluice_table::index::First;
use std::fmt::Debug;
use std::ops::Range;
use verify::{Changes, Heads, Verify};

/// The mask of all lanes.
pub(super) const ALL: u8 = u8::MAX;
pub(super) const NOTHING: &[u8; 16] = &[0; 16];

/// What is known of eight packets, by lane. The vectors come first, so that each lies in one cache
/// line.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Group<W> {
    /// The lower and the upper halves of the hashes.
    pub hashes: [Lanes<u32>; 2],
    /// Where they are at home in the index.
    pub homes: Lanes<u32>,
    /// Candidates, as [`Flow`].
    pub flow: Lanes<u32>,
    /// Bytes of the IP packets.
    pub lengths: Lanes<u32>,
    /// The transport checksums, and what they become.
    sum: Lanes<u32>,
    new_sum: Lanes<u32>,
    /// Flags of TCP; zero for UDP.
    flags: Lanes<u32>,
    /// Of TCP the number behind the segment's data, and the one that it acknowledges.
    numbers: [Lanes<u32>; 2],
    /// The sessions' real servers.
    reals: Lanes<u32>,
    /// Where the packets go, as [`HopId`].
    hop: Lanes<u32>,
    /// What the tables of IPv4 and IPv6 have in ways of their own.
    pub words: W,
    /// Lanes with a packet that may be plain: a bit for each.
    pub quick: u8,
    /// Lanes with another packet, which is in the burst's lanes.
    pub slow: u8,
    /// Lanes with TCP.
    tcp: u8,
    /// Lanes whose packet goes into a tunnel.
    tunnels: u8,
    /// Lanes whose packet may change the state of its session.
    pub changes: u8,
    /// Of them those that may end it, which they most likely do.
    pub ends: u8,
    /// Lanes whose session is found by its answers too.
    answered: u8,
    /// If any changes, the lanes that have a session in common with another.
    pub conflicts: u8,
    /// Lanes whose candidate is in its other bucket, if there is one.
    pub away: u8,
    /// Quick lanes that no candidate was found for.
    pub missing: u8,
}

const _: () = assert!(std::mem::offset_of!(Group<()>, hashes) == 0);
const _: () = assert!(std::mem::offset_of!(Group<[Lanes<u32>; 1]>, words).is_multiple_of(32));

impl<W> Group<W> {
    /// A lane's hash.
    #[inline(always)]
    pub const fn hash(&self, lane: usize) -> u64 {
        let [lower, upper] = &self.hashes;
        (upper[lane] as u64) << 32 | lower[lane] as u64
    }

    /// Real server of a lane's session.
    #[inline(always)]
    const fn real(&self, lane: usize) -> RealId {
        RealId(self.reals[lane])
    }

    /// The lanes whose packets are not of the session of a flow, whichever way they go.
    pub fn others(&self, flow: Flow) -> u8 {
        let id = flow.id();
        let lanes = self.flow.iter().enumerate();
        lanes.fold(0, |others, (lane, flow)| others | u8::from(Flow(*flow).id() != id) << lane)
    }

    /// What session tracking needs to know of a lane's packet.
    #[inline(always)]
    pub const fn segment(&self, lane: usize) -> Segment {
        let [end, ack] = &self.numbers;
        Segment { flags: self.flags[lane] as u8, ack: ack[lane], end: end[lane] }
    }
}

/// The lanes of a mask, from the first on.
pub(super) fn lanes(mut mask: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

/// Does something for the lanes of a mask; most often it is all of them.
#[inline(always)]
pub(super) fn each(mask: u8, act: impl Fn(usize)) {
    if mask == ALL {
        (0..LANES).for_each(act);
    } else {
        lanes(mask).for_each(act);
    }
}

/// The lower halves of words, which came from a little-endian machine's memory, in the order of the
/// network; upper halves count as zero.
#[inline(always)]
fn short<I: Instructions>(half: Words<I>) -> Words<I> {
    half.swap_bytes().shr::<16>()
}

/// The sums of both halves of words.
#[inline(always)]
fn halves<I: Instructions>(words: Words<I>) -> Words<I> {
    (words & 0xffff) + words.shr::<16>()
}

/// Sums of at most 2¹⁶ halves as one half; zero only if they are zero.
#[inline(always)]
fn fold<I: Instructions>(sums: Words<I>) -> Words<I> {
    halves(halves(sums))
}

/// Finds the first candidates of a group's packets in their home buckets.
pub(super) struct Find<'a, W> {
    pub group: &'a mut Group<W>,
    pub index: &'a Index,
}

impl<W> Kernel for Find<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) {
        let Self { group, index } = self;
        (group.away, group.missing) = (0, 0);
        let mut tags = [0; LANES];
        Index::tags(Words::load(instructions, &group.hashes[0])).store(&mut tags);
        let quick = group.quick;
        if quick == ALL {
            each_lane!(lane => group.find(instructions, index, (lane, tags[lane])));
        } else {
            for lane in lanes(quick) {
                group.find(instructions, index, (lane, tags[lane]));
            }
        }
    }
}

impl<W> Group<W> {
    /// Finds the first candidate of a lane's packet.
    #[inline(always)]
    fn find<I: Instructions>(
        &mut self,
        instructions: I,
        index: &Index,
        (lane, tags): (usize, u32),
    ) {
        match index.first_at(instructions, self.homes[lane], tags) {
            First::Candidate(value) => self.flow[lane] = value,
            other => self.not_at_home(index, lane, other),
        }
    }

    /// The same for one that has none in its home bucket.
    #[inline(never)]
    fn not_at_home(&mut self, index: &Index, lane: usize, first: First) {
        if first == First::Elsewhere {
            index.prefetch_other(self.hash(lane));
            self.away |= 1 << lane;
        } else {
            self.missing |= 1 << lane;
        }
    }
}

/// Of eight real servers the addresses and those of their services, and [`RealEntry::rest`].
pub(super) type Reals<I, E> = ([E; 2], Words<I>);

/// How packets of a table go eight at a time.
pub(super) trait Together: Family {
    /// What a group has of its packets' own: their headers, and what becomes of them.
    type Words: Copy + Debug + Zeroable;
    /// Addresses of eight packets.
    type Ends<I: Instructions>: Ends<I>;

    /// What their frames carry.
    const ETHERTYPE: u16;
    /// What an outer header calls it.
    const PROTOCOL: u8;
    /// Where the transport headers of plain ones begin.
    const L4: usize;

    /// Reads the headers of frames into their group, and gives those that are for the other table.
    fn read<I: Instructions, B: Frame, P: Picks>(_: Read<'_, Self, B, P>, _: I) -> u8;

    /// Its time to live, or hop limit.
    fn ttl(words: &Self::Words, lane: usize) -> u8;

    /// Its key.
    fn key_of(words: &Self::Words, lane: usize) -> Key<Self::Addr>;

    /// The key of what becomes of it.
    fn changed_key(words: &Self::Words, lane: usize) -> Key<Self::Addr>;

    /// What an outer header takes of packets. `salts` are below 2¹⁶.
    fn inside<I: Instructions>(words: &Self::Words, salts: Words<I>, _: I) -> Inside<I>;

    /// Where the four bytes are that change with a hop, if nothing else does.
    const HOP: usize;

    /// What they become.
    fn one_hop_less(words: &Self::Words, lane: usize) -> [u8; 4];

    /// Writes a lane's network and transport headers; `false`, and nothing done, if the frame is
    /// too short, which it was not when it was read.
    fn write(group: &Group<Self::Words>, lane: usize, frame: &mut [u8]) -> bool;

    /// What packets say of themselves.
    fn heads<I: Instructions>(words: &Self::Words, _: I) -> Heads<I, Self::Ends<I>>;

    /// Makes what becomes of them, with one hop less.
    fn change<I: Instructions>(_: &mut Self::Words, _: Changes<I, Self::Ends<I>>, _: I);

    /// The clients of sessions, as they lie in memory.
    fn clients<I: Instructions>(_: I, clients: &Lanes<Self::Addr>) -> Self::Ends<I>;

    /// Local addresses by their ids; zero for none.
    fn locals<I: Instructions>(_: I, side: &Side<Self::Addr>, ids: Words<I>) -> Self::Ends<I>;

    /// What there is of real servers; the rest is zero of one that there is not. `None` if there
    /// are none at all.
    fn reals<I: Instructions>(
        _: I,
        side: &Side<Self::Addr>,
        ids: Words<I>,
    ) -> Option<Reals<I, Self::Ends<I>>>;
}

impl<F: Parse> Engine<F> {
    /// Reads as many of a group's frames as are plain enough to go together; gives those that need
    /// no further look. `part` is where they are among those of the turn.
    #[inline(always)]
    pub fn read_group<B: Frame, P: Picks, const FILTER: bool>(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        (at, part, picks): (usize, &Range<usize>, &P),
        frames: &[B],
        verdicts: &mut [Verdict],
    ) -> u8 {
        // Who tells real servers of their clients does so one packet at a time.
        if cfg!(target_endian = "big") || (F::WIDE && plan.tells_client) {
            return 0;
        }
        // What comes together is alike: where the first is none of these, few are.
        let first = picks.pick(frames, part.start).and_then(|frame| frame.bytes().get(12..14));
        if first != Some(&F::ETHERTYPE.to_be_bytes()) {
            let is_six = |at| picks.pick(frames, at).is_some_and(is_ipv6);
            if F::WIDE || !is_six(part.start) {
                return 0;
            }
            if part.clone().all(is_six) {
                part.clone().for_each(|at| shared.scratch.defer(picks.frame(at), verdicts));
                return u8::MAX;
            }
        }
        let (from, seed, index) =
            (part.start, self.table.sessions.seed(), self.table.sessions.index());
        let group = &mut self.burst.groups[at % GROUPS];
        let macs = &shared.scratch.macs;
        let read = Read::<F, B, P> { group, frames, picks, from, seed, index, macs };
        let others = self.level.run(read);
        if others != 0 {
            lanes(others).for_each(|lane| shared.scratch.defer(picks.frame(from + lane), verdicts));
        }
        let read = group.quick | others;
        if FILTER || shared.workers > 1 {
            let frame = |lane| picks.frame(from + lane);
            let searched = shared.ports.bounds.searched == Some(F::WIDE);
            let foreign = match shared.workers {
                ..=1 => 0,
                _ if searched && frame(part.len() - 1) < shared.scratch.own => 0,
                _ => self.level.run(Foreign::<F> { group, bounds: &shared.ports.bounds }),
            };
            let asked = if FILTER { group.quick } else { group.quick & foreign };
            if asked != 0 {
                Self::keep::<FILTER>(group, shared, plan, (asked, foreign, frame), verdicts);
            }
        }
        read
    }

    /// Leaves out of a group what belongs to another worker, and with `FILTER` what only the
    /// extended table may have anything for. `asked` are the lanes that it may be, `foreign` those
    /// that may be another worker's.
    #[inline(always)]
    fn keep<const FILTER: bool>(
        group: &mut Group<F::Words>,
        shared: &mut Shared,
        plan: &Plan,
        (asked, foreign, frame): (u8, u8, impl Fn(usize) -> usize),
        verdicts: &mut [Verdict],
    ) {
        for lane in lanes(asked) {
            let key = F::key_of(&group.words, lane);
            let stays = match foreign >> lane & 1 {
                0 => Ok(()),
                _ => stays_here::<F>(&F::tuple(&key), plan, shared),
            };
            if let Err(verdict) = stays {
                verdicts[frame(lane)] = verdict;
            } else if FILTER && F::is_others(plan, &key) {
                shared.scratch.defer(frame(lane), verdicts);
            } else {
                continue;
            }
            group.quick &= !(1 << lane);
        }
    }

    /// Gives those of a group's packets that may go on, and makes what they become.
    #[inline(always)]
    pub fn verify_group(&mut self, turn: Turn<'_>, at: usize) -> u8 {
        let group = &mut self.burst.groups[at % GROUPS];
        // First packets, all of them.
        if group.missing == group.quick {
            group.changes = 0;
            return 0;
        }
        let View { plan, fib } = turn.view;
        self.level.run(Verify { group, sessions: &self.table.sessions, plan, fib, now: turn.now })
    }
}
