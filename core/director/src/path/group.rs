//! Eight plain packets of IPv4 at a time: each word of their headers, their sessions and their
//! real servers side by side, so that one instruction does for eight.
//!
//! Plain are TCP and UDP in IPv4 without tags, options and fragments, of sessions that are there,
//! by `fnat`, `nat` and `dr`. Nothing is written and no session is
//! touched before it is known of each of the eight whether it is; those that are not go one at a
//! time ([`super::follow`] and on), in their turn.

use super::BURST;
use super::engine::{Engine, Turn};
use super::parse::{Parse, stays_here, tcp_segment};
use super::{Shared, Verdict, View, rewrite};
use crate::blueprint::Mode;
use crate::counters::Direction;
use crate::family::{Family, Ipv4, Ipv6, Seed};
use crate::fib::{Fib, Hop, HopId};
use crate::frame::{Checked, Frame};
use crate::key::Key;
use crate::plan::side;
use crate::plan::{LocalId, Plan, RealId};
use crate::session::{Flow, Sessions, State};
use crate::time::Time;
use crate::track::{self, Segment};
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_lanes::words::Words;
use sluice_table::Index;
use sluice_table::index::First;
use sluice_wire::{ethernet, ipv4, tcp, udp};

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
    /// Lanes whose packet may change the state of its session.
    pub changes: u8,
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
        changes: 0,
        away: 0,
        hash: [0; LANES],
        flow: [0; LANES],
        words: [[0; LANES]; 5],
        sum: [0; LANES],
        flags: [0; LANES],
        real_protocol: [0; LANES],
        local: [0; LANES],
        hop: [0; LANES],
        changed: [[0; 4]; LANES],
    };

    /// Length of a lane's packet.
    #[inline(always)]
    fn length(&self, lane: usize) -> u16 {
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
        let Some(head) = frame.bytes_mut().first_chunk_mut::<HEAD>() else { return false };
        let sum_at = if protocol(self.words[1][lane]) == ipv4::TCP { TCP_SUM } else { UDP_SUM };
        head[CHANGES..][..16].copy_from_slice(bytemuck::bytes_of(&self.changed[lane]));
        head[sum_at..][..2].copy_from_slice(&(self.sum[lane] as u16).to_le_bytes());
        if rewrite::untagged(frame, ethernet::HEADER as u8, hop) {
            *verdict = Verdict::Tx(hop.port);
        } else {
            *verdict = rewrite::link_layer(frame, hop);
        }
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

/// Sixteen bytes of each of the frames' first ones.
#[inline(always)]
fn parts<'a>(heads: &Lanes<&'a [u8; HEAD]>, from: usize) -> Lanes<&'a [u8; 16]> {
    let mut parts = [NOTHING; LANES];
    for lane in 0..LANES {
        parts[lane] = heads[lane][from..].first_chunk().unwrap_or(NOTHING);
    }
    parts
}

/// Reads the headers of at most eight frames into a group, and finds the plain ones.
struct Read<'a, B> {
    group: &'a mut Group,
    frames: &'a [B],
    seed: &'a Seed,
}

impl<B: Frame> Kernel for Read<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self, instructions: I) {
        let Self { group, frames, seed } = self;
        let mut heads = [NO_HEAD; LANES];
        let mut room = [0; LANES];
        let (mut good, mut barred) = (0, 0);
        for lane in 0..LANES {
            let Some(frame) = frames.get(lane) else { break };
            let bytes = frame.bytes();
            let Some(head) = bytes.first_chunk() else { continue };
            heads[lane] = head;
            room[lane] = (bytes.len() - ethernet::HEADER).min(0xffff) as u32;
            let known = frame.rx_checksum();
            good |= u8::from(known.ip == Checked::Good) << lane;
            barred |= u8::from(known.l4 == Checked::Bad) << lane;
        }
        // Groups of receivers.
        barred |= heads.iter().rfold(0, |mask, head| mask << 1 | head[0] & 1);
        let front = Words::columns(instructions, parts(&heads, WORDS));
        let middle = Words::columns(instructions, parts(&heads, WORDS + 16));
        let back = Words::columns(instructions, parts(&heads, L4 + 4));
        let [link, first, second, third] = front;
        let [src, dst, ports, _] = middle;
        // Of UDP the length and the checksum are in the first word, of TCP what is told by the
        // third, and the checksum in the last.
        let [udp, _, offset_flags, last] = back;
        for (words, to) in [first, third, src, dst, ports].into_iter().zip(&mut group.words) {
            words.store(to);
        }
        let total = short(first.shr::<16>());
        let header = halves(first) + halves(second) + halves(third) + halves(src) + halves(dst);
        let verified = fold(header).is_word(0xffff).mask() | good;
        // EtherType, version and length of the header; neither a fragment nor the first of some.
        let whole = link.shr::<16>().is_word(u32::from(ethernet::IPV4.to_be()))
            & (first & 0xff).is_word(0x45)
            & (second & 0xff3f_0000).is_word(0);
        let protocol = third.shr::<8>() & 0xff;
        let is_tcp = protocol.is_word(u32::from(ipv4::TCP));
        let datagram = short(udp & 0xffff);
        let udp_fits = protocol.is_word(u32::from(ipv4::UDP))
            & datagram.at_least(udp::HEADER as u32)
            & (datagram + ipv4::HEADER as u32).at_most(total);
        let options = (offset_flags & 0xf0).shr::<2>();
        let tcp_fits = is_tcp
            & options.at_least(tcp::HEADER as u32)
            & (options + ipv4::HEADER as u32).at_most(total);
        (offset_flags.shr::<8>() & 0xff & is_tcp).store(&mut group.flags);
        is_tcp.pick(last & 0xffff, udp.shr::<16>()).store(&mut group.sum);
        let fits = total.at_most(Words::load(instructions, &room)) & (udp_fits | tcp_fits);
        group.quick = (whole & fits).mask() & verified & !barred;
        group.flow = [Flow::NONE.0; LANES];
        let same = src.is(src.before()) & dst.is(dst.before());
        let same = same & ports.is(ports.before()) & protocol.is(protocol.before());
        group.again = same.mask();
        group.settle();
        for lane in 0..LANES {
            group.hash[lane] = match group.again >> lane & 1 {
                0 => Ipv4::hash_key(&group.key(lane), seed),
                _ => group.hash[lane.wrapping_sub(1) % LANES],
            };
        }
    }
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

/// What sessions, and what they name, say of the packets that they were found for.
struct Facts<I: Instructions> {
    /// Whether the packets come from the client.
    inbound: Words<I>,
    client: Words<I>,
    /// Client port, and virtual port above it.
    near: Words<I>,
    /// Local port, and local address above it.
    local_ends: Words<I>,
    /// Local address in network byte order; zero for none.
    local: Words<I>,
    /// Service, and state above it.
    service_state: Words<I>,
    real_protocol: Words<I>,
    seen: Words<I>,
    /// Of the real server: see [`side::Side::real_row`].
    address: Words<I>,
    vip: Words<I>,
    rest: Words<I>,
}

impl<I: Instructions> Facts<I> {
    #[inline(always)]
    fn of(verify: &mut Verify<'_>, instructions: I) -> Self {
        let Verify { group, sessions, plan, fib, .. } = verify;
        if group.is_one_flow() {
            return Self::of_one(verify, instructions);
        }
        if group.again != 0 {
            group.hand_on();
        }
        let mut client = [0; LANES];
        let (mut front, mut back) = ([NOTHING; LANES], [NOTHING; LANES]);
        for lane in 0..LANES {
            // What is not there is vacant.
            let Some(session) = sessions.slab().get(Flow(group.flow[lane]).id()) else { continue };
            client[lane] = session.client;
            let core = session.core.bytes();
            front[lane] = core.first_chunk().unwrap_or(NOTHING);
            back[lane] = core.last_chunk().unwrap_or(NOTHING);
        }
        // Bytes 0 to 16 and 12 to 28 of the core.
        let [near, local_ends, service_state, real_protocol] = Words::columns(instructions, front);
        let [_, seen, hop, _] = Words::columns(instructions, back);
        real_protocol.store(&mut group.real_protocol);
        local_ends.store(&mut group.local);
        let mut rows = [NOTHING; LANES];
        let [mut local, mut real_hop] = [[0; LANES]; 2];
        for lane in 0..LANES {
            let real = RealId(group.real_protocol[lane] >> 8);
            real_hop[lane] = u32::from(fib.real_hop(real).0);
            rows[lane] = plan.v4.real_row(real).unwrap_or(NOTHING);
            let id = LocalId((group.local[lane] >> 16) as u16);
            local[lane] = plan.v4.local_wire(id).unwrap_or(0);
        }
        let [address, vip, rest, _] = Words::columns(instructions, rows);
        let [client, local, real_hop] =
            [client, local, real_hop].map(|of| Words::load(instructions, &of));
        let inbound = (Words::load(instructions, &group.flow) & 1).is_word(0);
        let good = hop.shr::<16>().is_word(u32::from(fib.generation()));
        inbound.pick(real_hop, hop | !good).store(&mut group.hop);
        Self {
            inbound,
            client,
            near,
            local_ends,
            local,
            service_state,
            real_protocol,
            seen,
            address,
            vip,
            rest,
        }
    }

    /// The same of a group that is one flow.
    #[inline(always)]
    fn of_one(verify: &mut Verify<'_>, instructions: I) -> Self {
        let Verify { group, sessions, plan, fib, .. } = verify;
        let flow = Flow(group.flow[0]);
        let session = sessions.slab().get(flow.id()).copied().unwrap_or_default();
        let real = plan.v4.real_row(session.real()).unwrap_or(NOTHING);
        let [address, vip, rest, _] = numbers(real);
        let inbound = matches!(flow.direction(), Direction::Inbound);
        let good = session.hop_generation == fib.generation();
        let hop = match inbound {
            true => fib.real_hop(session.real()).0,
            false if good => session.client_hop,
            false => HopId::NONE.0,
        };
        group.flow = [flow.0; LANES];
        group.hop = [u32::from(hop); LANES];
        group.real_protocol = [session.real_protocol; LANES];
        let two = |low: u16, high: u16| u32::from(high) << 16 | u32::from(low);
        let near = two(session.client_port, session.virtual_port);
        let local_ends = two(session.local_port, session.local.0);
        let service_state = two(session.service.0, session.state as u16);
        let local = plan.v4.local_wire(session.local).unwrap_or(0);
        Self {
            inbound: Words::splat(instructions, if inbound { u32::MAX } else { 0 }),
            client: Words::splat(instructions, session.client),
            near: Words::splat(instructions, near),
            local_ends: Words::splat(instructions, local_ends),
            local: Words::splat(instructions, local),
            service_state: Words::splat(instructions, service_state),
            real_protocol: Words::splat(instructions, session.real_protocol),
            seen: Words::splat(instructions, session.seen_ms),
            address: Words::splat(instructions, address),
            vip: Words::splat(instructions, vip),
            rest: Words::splat(instructions, rest),
        }
    }
}

/// Four words as they lie in memory.
#[inline(always)]
fn numbers(row: &[u8; 16]) -> [u32; 4] {
    std::array::from_fn(|at| {
        row.as_chunks::<4>().0.get(at).map_or(0, |word| u32::from_ne_bytes(*word))
    })
}

/// Holds the plain packets of a group against the sessions that were found for them, and makes
/// what they become. Gives those that pass; nothing but the group has changed.
struct Verify<'a> {
    group: &'a mut Group,
    sessions: &'a Sessions<Ipv4>,
    plan: &'a Plan,
    fib: &'a Fib,
    now: Time,
}

impl Kernel for Verify<'_> {
    type Output = u8;

    #[inline(always)]
    fn run<I: Instructions>(mut self, instructions: I) -> u8 {
        let facts = Facts::of(&mut self, instructions);
        let Facts { inbound, near, local_ends, local, real_protocol, address, vip, rest, .. } =
            facts;
        let Self { group, plan, now, .. } = self;
        let words = |of: &Lanes<u32>| Words::load(instructions, of);
        let [_, third, src, dst, ports] = group.words.each_ref().map(words);
        let state = facts.service_state.shr::<16>() & 0xff;
        let mode = rest.shr::<16>() & 0xff;
        let fnat = mode.is_word(Mode::Fnat as u32);
        let usual = (fnat & !local.is_word(0))
            | mode.is_word(Mode::Nat as u32)
            | mode.is_word(Mode::Dr as u32);
        let goes_on = (rest.shr::<24>() | (inbound & side::ANSWERS_INBOUND)).is_word(side::GOES_ON);
        let protocol = third.shr::<8>() & 0xff;
        let is_its = protocol.is(real_protocol & 0xff) & goes_on & usual;
        let flags = words(&group.flags);
        let open = state.is_word(State::Established as u32) & (flags & track::ENDS).is_word(0);
        // One that opens a connection anew needs a closer look.
        let connection = state.at_least(State::SynRecv as u32)
            & !state.at_least(State::Udp as u32)
            & !(flags & track::OPENS_OF).is_word(track::OPENS);
        let plain = open | (state.at_least(State::Udp as u32) & flags.is_word(0));
        let idle = Words::splat(instructions, now.low()) - facts.seen;
        let lives = idle.at_most(state.of(&plan.timeout_ms)) & (third & 0xff).at_least(2);

        let client = facts.client.swap_bytes();
        let near = near.swap_bytes();
        let near = near.shl::<16>() | near.shr::<16>();
        let middle = fnat.pick(local, client);
        let middle_port = fnat.pick(short(local_ends & 0xffff), near & 0xffff);
        let own_port = rest & 0xffff;
        let port = own_port.is_word(0).pick(near.shr::<16>(), own_port);
        let far = port | middle_port.shl::<16>();
        let belongs = inbound.pick(client, address).is(src)
            & inbound.pick(vip, middle).is(dst)
            & inbound.pick(near, far).is(ports);
        let (new_src, new_dst) = (inbound.pick(middle, vip), inbound.pick(address, client));
        let new_ports = inbound.pick(far, near);
        let new_ports = new_ports.shl::<16>() | new_ports.shr::<16>();

        // RFC 1624: a word is taken away by adding its complement. One hop less is 0xfffe.
        let addresses = halves(!src) + halves(!dst) + halves(new_src) + halves(new_dst);
        let header = !fold(addresses + (!third).shr::<16>() + 0xfffe);
        let hop = ((third - 1) & 0xffff) | header.shl::<16>();
        group.changed = Words::rows([hop, new_src, new_dst, new_ports]);
        let sum = words(&group.sum);
        let all = (!sum & 0xffff) + addresses + halves(!ports) + halves(new_ports);
        let all = !fold(all) & 0xffff;
        // RFC 768: zero is none, which stays so, and a sum of zero is sent as its other form.
        let is_udp = protocol.is_word(u32::from(ipv4::UDP));
        let all = all | (is_udp & all.is_word(0) & 0xffff);
        (is_udp & sum.is_word(0)).pick(sum, all).store(&mut group.sum);
        let passes = belongs & is_its & lives;
        group.changes = (passes & connection & !plain).mask() & group.quick;
        (passes & (plain | connection)).mask() & group.quick
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

    /// What session tracking needs to know of a TCP segment that is plain.
    fn segment<B: Frame>(_: &B) -> Segment {
        Segment::default()
    }

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
        if cfg!(target_endian = "big") {
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
        if length > hop.mtu || !group.write(lane, frame, hop, verdict) {
            return false;
        }
        let flow = Flow(group.flow[lane]);
        engine.sessions.at_mut(flow.id()).seen_ms = turn.now.low();
        shared.forwarded(group.real(lane), flow.direction(), length);
        true
    }

    fn segment<B: Frame>(frame: &B) -> Segment {
        let Some(packet) = frame.bytes().get(ethernet::HEADER..) else { return Segment::default() };
        let total = ipv4::Header::parse(packet).map_or(0, ipv4::Header::total_len);
        let segment = packet.get(ipv4::HEADER..total).unwrap_or_default();
        let header = tcp::Header::parse(segment);
        header.map_or(Segment::default(), |header| {
            tcp_segment(header, segment.len() - header.header_len())
        })
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
        if lengths.iter().any(|length| *length > hop.mtu) {
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
