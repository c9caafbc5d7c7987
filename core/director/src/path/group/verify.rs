//! Eight packets held against their sessions, and what they become.

use super::{Group, NOTHING, fold, halves, short};
use crate::blueprint::Mode;
use crate::counters::Direction;
use crate::family::Ipv4;
use crate::fib::{Fib, HopId};
use crate::plan::side;
use crate::plan::{LocalId, Plan, RealId};
use crate::session::{Flow, Sessions, State};
use crate::time::Time;
use crate::track;
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_lanes::words::Words;
use sluice_wire::ipv4;

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
pub(super) struct Verify<'a> {
    pub group: &'a mut Group,
    pub sessions: &'a Sessions<Ipv4>,
    pub plan: &'a Plan,
    pub fib: &'a Fib,
    pub now: Time,
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
            | mode.is_word(Mode::Dr as u32)
            | mode.is_word(Mode::Ipip as u32);
        group.tunnels = mode.is_word(Mode::Ipip as u32).mask();
        let goes_on = (rest.shr::<24>() | (inbound & side::ANSWERS_INBOUND)).is_word(side::GOES_ON);
        let protocol = third.shr::<8>() & 0xff;
        let is_its = protocol.is(real_protocol & 0xff) & goes_on & usual;
        let flags = words(&group.flags);
        let open = state.is_word(State::Established as u32) & (flags & track::ENDS).is_word(0);
        // One that opens a connection anew needs a closer look.
        let connection = state.at_least(State::SynRecv as u32)
            & !state.at_least(State::Udp as u32)
            & !(flags & track::OPENS_OF).is_word(track::OPENS);
        let beginning = connection & (flags & track::BEGINS_OF).is_word(track::BEGINS);
        let plain = open | beginning | (state.at_least(State::Udp as u32) & flags.is_word(0));
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
        let changes = passes & connection & !plain;
        group.changes = changes.mask() & group.quick;
        if group.changes != 0 {
            let last = state.is_word(State::LastAck as u32) | !(flags & track::RESETS).is_word(0);
            group.ends = (changes & last).mask() & group.quick;
            group.answered = (fnat | mode.is_word(Mode::Nat as u32)).mask();
            group.twins = words(&group.flow).shr::<1>().twins();
        }
        (passes & (plain | connection)).mask() & group.quick
    }
}
