//! Eight plain packets of IPv4 at a time: each word of their headers, their sessions and their
//! real servers side by side, so that one instruction does for eight.
//!
//! Plain are TCP and UDP in IPv4 without tags, options and fragments, of sessions that are there,
//! whatever the mode. Nothing is written and no session is
//! touched before it is known of each of the eight whether it is; those that are not go one at a
//! time ([`super::follow`] and on), in their turn.

mod read;
mod verify;

use super::burst::{Lane, Parsed};
use super::engine::{Engine, Turn};
use super::follow::into_tunnel;
use super::parse::{Parse, stays_here};
use super::{BURST, Shared, Verdict, View, rewrite, tunnel};
use crate::counters::Direction;
use crate::family::{Family, Ipv4, Ipv6, Seed};
use crate::fib::{Hop, HopId};
use crate::frame::Frame;
use crate::key::{self, Key};
use crate::plan::{Plan, RealId};
use crate::session::Flow;
use crate::track::Segment;
use read::Read;
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_lanes::words::Words;
use sluice_table::Index;
use sluice_table::index::First;
use sluice_wire::{ethernet, ipv4, tcp, udp};
use verify::Verify;

/// Groups of a burst.
pub(super) const GROUPS: usize = BURST / LANES;
/// The mask of all lanes.
pub(super) const ALL: u8 = u8::MAX;
/// Bytes of a frame that are looked at: as many as the shortest TCP segment has. (Ethernet's
/// shortest frame has sixty; only virtual ports carry shorter datagrams.)
const HEAD: usize = L4 + tcp::HEADER;
const L4: usize = ethernet::HEADER + ipv4::HEADER;
/// Where the eight words begin that a group has of each frame, so that they are those of the IPv4
/// header from the second on.
const WORDS: usize = 10;
/// Where what changes of them begins: time to live, protocol and checksum, addresses, ports.
const CHANGES: usize = ethernet::HEADER + ipv4::TTL;
const UDP_SUM: usize = L4 + udp::CHECKSUM;
const TCP_SUM: usize = L4 + tcp::CHECKSUM;
const NOTHING: &[u8; 16] = &[0; 16];
const NO_HEAD: &[u8; HEAD] = &[0; HEAD];

/// What is known of eight packets, by lane.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Group {
    /// Lanes with a packet that may be plain: a bit for each.
    pub quick: u8,
    /// Lanes with another packet, which is in the burst's lanes.
    pub slow: u8,
    /// Quick lanes whose packet is of the flow of the one before: they need no look of their own.
    pub again: u8,
    /// Lanes whose packet goes into a tunnel.
    tunnels: u8,
    /// Lanes whose packet may change the state of its session.
    pub changes: u8,
    /// Of them those that are likely to end it.
    pub ends: u8,
    /// Lanes whose session is found by its answers too.
    answered: u8,
    /// If any changes, the lanes that have a session in common with another.
    pub twins: u8,
    /// Lanes whose candidate is in its other bucket, if there is one.
    pub away: u8,
    pub hash: Lanes<u64>,
    /// Candidates, as [`Flow`].
    pub flow: Lanes<u32>,
    /// Of the IPv4 headers the first, third, fourth and fifth word, and the ports.
    words: [Lanes<u32>; 5],
    /// The transport checksums.
    sum: Lanes<u32>,
    /// Flags of TCP; zero for UDP.
    flags: Lanes<u32>,
    /// Of TCP the number behind the segment's data, and the one it acknowledges above it: the low
    /// half of either.
    numbers: Lanes<u32>,
    /// Of the sessions the real server and the protocol, and the local address.
    real_protocol: Lanes<u32>,
    local: Lanes<u32>,
    /// Where the packets go, as [`HopId`].
    hop: Lanes<u32>,
    /// What bytes 22 to 38 of the frames become.
    changed: Lanes<[u32; 4]>,
}

impl Group {
    pub const EMPTY: Self = Self {
        quick: 0,
        slow: 0,
        again: 0,
        tunnels: 0,
        changes: 0,
        ends: 0,
        answered: 0,
        twins: 0,
        away: 0,
        hash: [0; LANES],
        flow: [0; LANES],
        words: [[0; LANES]; 5],
        sum: [0; LANES],
        flags: [0; LANES],
        numbers: [0; LANES],
        real_protocol: [0; LANES],
        local: [0; LANES],
        hop: [0; LANES],
        changed: [[0; 4]; LANES],
    };

    /// Length of a lane's packet.
    #[inline(always)]
    pub fn length(&self, lane: usize) -> u16 {
        u16::from_be((self.words[0][lane] >> 16) as u16)
    }

    /// Real server of a lane's session.
    #[inline(always)]
    const fn real(&self, lane: usize) -> RealId {
        RealId(self.real_protocol[lane] >> 8)
    }

    /// Writes a lane's frame; `false` if it is too short, which it was not when it was read.
    #[inline(always)]
    fn write<B: Frame>(
        &self,
        lane: usize,
        frame: &mut B,
        hop: &Hop,
        verdict: &mut Verdict,
    ) -> bool {
        if !self.write_headers(lane, frame) {
            return false;
        }
        if rewrite::untagged(frame, ethernet::HEADER as u8, hop) {
            *verdict = Verdict::Tx(hop.port);
        } else {
            *verdict = rewrite::link_layer(frame, hop);
        }
        true
    }

    /// The same for one that goes into a tunnel; `false` too if it does not fit.
    #[inline(never)]
    fn write_into_tunnel<B: Frame>(
        &self,
        (shared, turn): (&Shared, Turn<'_>),
        lane: usize,
        frame: &mut B,
        hop: &Hop,
        verdict: &mut Verdict,
    ) -> bool {
        let (plan, real) = (turn.view.plan, self.real(lane));
        let room = tunnel::room(&shared.paths, plan, real, hop.mtu, turn.now);
        if self.length(lane) > room || !self.write_headers(lane, frame) {
            return false;
        }
        let to = (real, self.hash[lane]);
        *verdict = into_tunnel(plan, to, ethernet::HEADER as u8, frame, hop);
        true
    }

    /// Writes a lane's network and transport headers.
    #[inline(always)]
    fn write_headers<B: Frame>(&self, lane: usize, frame: &mut B) -> bool {
        let Some(head) = frame.bytes_mut().first_chunk_mut::<HEAD>() else { return false };
        let sum_at = if protocol(self.words[1][lane]) == ipv4::TCP { TCP_SUM } else { UDP_SUM };
        head[CHANGES..][..16].copy_from_slice(bytemuck::bytes_of(&self.changed[lane]));
        head[sum_at..][..2].copy_from_slice(&(self.sum[lane] as u16).to_le_bytes());
        true
    }

    /// Leaves no lane to one that is not quick.
    #[inline(always)]
    const fn settle(&mut self) {
        self.again &= self.quick & self.quick << 1;
    }

    /// The lanes whose packets are not of the session of a flow, whichever way they go.
    pub fn others(&self, flow: Flow) -> u8 {
        let id = flow.id();
        let lanes = self.flow.iter().enumerate();
        lanes.fold(0, |others, (lane, flow)| others | u8::from(Flow(*flow).id() != id) << lane)
    }

    /// Whether there are eight plain packets of one flow.
    #[inline(always)]
    pub const fn is_one_flow(&self) -> bool {
        self.quick == ALL && self.again == ALL - 1
    }

    /// Gives the lanes whose packet is of the flow of the one before that one's flow.
    #[inline(always)]
    fn hand_on(&mut self) {
        let mut flow = self.flow[0];
        for lane in 1..LANES {
            flow = if self.again >> lane & 1 == 1 { flow } else { self.flow[lane] };
            self.flow[lane] = flow;
        }
    }

    /// The quick lanes that are looked up.
    #[inline(always)]
    pub const fn firsts(&self) -> u8 {
        self.quick & !self.again
    }

    /// What session tracking needs to know of a lane's packet.
    #[inline(always)]
    pub const fn segment(&self, lane: usize) -> Segment {
        let numbers = self.numbers[lane];
        Segment { flags: self.flags[lane] as u8, ack: (numbers >> 16) as u16, end: numbers as u16 }
    }

    /// The hashes of the keys that the session of a lane whose packet passed is found by: that of
    /// the packet, and that of what answers it once it is written.
    #[inline(always)]
    fn hashes(&self, lane: usize, seed: &Seed) -> [Option<u64>; 2] {
        let answers = || {
            let [_, src, dst, ports] = self.changed[lane];
            let protocol = protocol(self.words[1][lane]);
            let ports = key::swapped(ports);
            Ipv4::hash_key(&Key { src: dst, dst: src, ports, protocol }, seed)
        };
        let other = (self.answered >> lane & 1 == 1).then(answers);
        match Flow(self.flow[lane]).direction() {
            Direction::Inbound => [Some(self.hash[lane]), other],
            Direction::Outbound => [other, Some(self.hash[lane])],
        }
    }

    /// The key of a lane's packet.
    #[inline(always)]
    pub fn key(&self, lane: usize) -> Key<u32> {
        let [_, third, src, dst, ports] = &self.words;
        let protocol = protocol(third[lane]);
        Key { src: src[lane], dst: dst[lane], ports: ports[lane], protocol }
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

/// The protocol in the third word of an IPv4 header.
#[inline(always)]
const fn protocol(word: u32) -> u8 {
    (word >> 8) as u8
}

/// Finds the first candidates of a group's packets in their home buckets.
pub(super) struct Find<'a> {
    pub group: &'a mut Group,
    pub index: &'a Index,
}

impl Kernel for Find<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) {
        let Self { group, index } = self;
        group.away = 0;
        for lane in 0..LANES {
            let hash = group.hash[lane];
            if group.firsts() >> lane & 1 == 0 {
                continue;
            }
            match index.first_by(instructions, hash) {
                First::Candidate(value) => group.flow[lane] = value,
                First::Elsewhere => {
                    index.prefetch_other(hash);
                    group.away |= 1 << lane;
                }
                First::None => {}
            }
        }
    }
}

/// How packets of a table go eight at a time, if they do.
pub(super) trait Together: Family {
    /// Reads as many of a group's frames as are plain enough to go together; gives those that need
    /// no further look.
    fn read<B: Frame, const SIEVE: bool>(
        _: &mut Engine<Self>,
        _: &mut Shared,
        _: &Plan,
        _: (usize, &[B]),
        _: &mut [Verdict],
    ) -> u8 {
        0
    }

    /// Gives those of a group's packets that may go on, and makes what they become.
    fn verify(_: &mut Engine<Self>, _: Turn<'_>, _: usize) -> u8 {
        0
    }

    /// Writes one of those; `false`, and nothing done, if it cannot go so.
    #[inline(always)]
    fn forward<B: Frame>(
        _: &mut Engine<Self>,
        _: &mut Shared,
        _: Turn<'_>,
        _: (usize, usize),
        _: &mut B,
        _: &mut Verdict,
    ) -> bool {
        false
    }

    /// The hashes of the keys that the session of a packet that passed is found by, inbound and
    /// outbound.
    fn hashes(_: &Engine<Self>, _: (usize, usize)) -> [Option<u64>; 2] {
        [None; 2]
    }

    /// Makes a packet that was read one that goes by itself.
    fn take_out(_: &Group, _: usize, _: &mut Lane<Self::Addr>) {}

    /// The same for a whole group of one flow.
    fn forward_flow<B: Frame>(
        _: &mut Engine<Self>,
        _: &mut Shared,
        _: Turn<'_>,
        _: usize,
        _: &mut [B],
        _: &mut [Verdict],
    ) -> bool {
        false
    }
}

impl Together for Ipv6 {}

impl Together for Ipv4 {
    #[inline(always)]
    fn read<B: Frame, const SIEVE: bool>(
        engine: &mut Engine<Self>,
        shared: &mut Shared,
        plan: &Plan,
        (at, frames): (usize, &[B]),
        verdicts: &mut [Verdict],
    ) -> u8 {
        // What comes together is alike: where the first is none of these, few are.
        let first = frames.first().and_then(|frame| frame.bytes().get(12..14));
        if cfg!(target_endian = "big") || first != Some(&ethernet::IPV4.to_be_bytes()) {
            return 0;
        }
        let group = &mut engine.burst.groups[at];
        engine.level.run(Read { group, frames, seed: engine.sessions.seed() });
        let read = group.quick;
        if SIEVE || shared.workers > 1 {
            for lane in lanes(read) {
                let (key, frame) = (group.key(lane), at * LANES + lane);
                if let Err(verdict) = stays_here::<Ipv4>(&Ipv4::tuple(&key), plan, shared) {
                    verdicts[frame] = verdict;
                } else if SIEVE && Ipv4::is_others(plan, &key) {
                    shared.defer(frame, verdicts);
                } else {
                    continue;
                }
                group.quick &= !(1 << lane);
            }
            group.settle();
        }
        read
    }

    #[inline(always)]
    fn verify(engine: &mut Engine<Self>, turn: Turn<'_>, at: usize) -> u8 {
        let group = &mut engine.burst.groups[at];
        let View { plan, fib } = turn.view;
        engine.level.run(Verify { group, sessions: &engine.sessions, plan, fib, now: turn.now })
    }

    #[inline(always)]
    fn forward<B: Frame>(
        engine: &mut Engine<Self>,
        shared: &mut Shared,
        turn: Turn<'_>,
        (at, lane): (usize, usize),
        frame: &mut B,
        verdict: &mut Verdict,
    ) -> bool {
        let group = &engine.burst.groups[at];
        let Some(hop) = turn.view.fib.hop(HopId(group.hop[lane] as u16)) else { return false };
        let length = group.length(lane);
        let written = if group.tunnels >> lane & 1 == 1 {
            group.write_into_tunnel((shared, turn), lane, frame, hop, verdict)
        } else {
            length <= hop.mtu && group.write(lane, frame, hop, verdict)
        };
        if !written {
            return false;
        }
        let flow = Flow(group.flow[lane]);
        engine.sessions.at_mut(flow.id()).seen_ms = turn.now.low();
        shared.forwarded(group.real(lane), flow.direction(), length);
        true
    }

    #[inline(always)]
    fn hashes(engine: &Engine<Self>, (at, lane): (usize, usize)) -> [Option<u64>; 2] {
        engine.burst.groups[at].hashes(lane, engine.sessions.seed())
    }

    #[inline(always)]
    fn take_out(group: &Group, lane: usize, slow: &mut Lane<u32>) {
        (slow.quick, slow.key) = (true, group.key(lane));
        slow.parsed = Parsed {
            l3: ethernet::HEADER as u8,
            l4: L4 as u8,
            ttl: group.words[1][lane] as u8,
            length: group.length(lane),
            segment: group.segment(lane),
            tuple: slow.parsed.tuple,
        };
    }

    #[inline(never)]
    fn forward_flow<B: Frame>(
        engine: &mut Engine<Self>,
        shared: &mut Shared,
        turn: Turn<'_>,
        at: usize,
        frames: &mut [B],
        verdicts: &mut [Verdict],
    ) -> bool {
        let group = &engine.burst.groups[at];
        let Some(hop) = turn.view.fib.hop(HopId(group.hop[0] as u16)) else { return false };
        let lengths: Lanes<u16> = std::array::from_fn(|lane| group.length(lane));
        if group.tunnels != 0 || lengths.iter().any(|length| *length > hop.mtu) {
            return false;
        }
        for (lane, (frame, verdict)) in frames.iter_mut().zip(verdicts).take(LANES).enumerate() {
            group.write(lane, frame, hop, verdict);
        }
        let flow = Flow(group.flow[0]);
        engine.sessions.at_mut(flow.id()).seen_ms = turn.now.low();
        let bytes = lengths.iter().map(|length| u64::from(*length)).sum();
        shared.forwarded_all(group.real(0), flow.direction(), (LANES as u64, bytes));
        true
    }
}
