//! Eight packets held against their sessions, and what they become.

use super::ends::Ends;
use super::{ALL, Group, NOTHING, Together, fold, halves, short};
use crate::fib::Fib;
use crate::plan::side;
use crate::plan::{Forwarding, Plan};
use crate::session::{Sessions, State};
use crate::time::Time;
use crate::track;
use sluice_lanes::at::At;
use sluice_lanes::each_lane;
use sluice_lanes::level::{Instructions, Kernel, LANES, Lanes};
use sluice_lanes::words::Words;
use sluice_wire::ipv4;

/// What eight packets say of themselves.
pub(in crate::path) struct Heads<I: Instructions, E> {
    pub src: E,
    pub dst: E,
    pub ports: Words<I>,
    pub protocol: Words<I>,
    /// Time to live, or hop limit.
    pub ttl: Words<I>,
}

/// What becomes of them.
pub(in crate::path) struct Changes<I: Instructions, E> {
    pub src: E,
    pub dst: E,
    pub ports: Words<I>,
    /// How much more the halves of the addresses sum up to, as one's complement has it.
    pub addresses: Words<I>,
}

/// What sessions, and what they name, say of the packets that they were found for.
struct Facts<I: Instructions, E> {
    /// Whether the packets come from the client.
    inbound: Words<I>,
    client: E,
    /// Client port, and virtual port above it.
    near: Words<I>,
    /// Local port, and local address above it.
    local_ends: Words<I>,
    /// Local address; zero for none.
    local: E,
    /// The state is above half of a FIN's number.
    fin_state: Words<I>,
    real_protocol: Words<I>,
    seen_ms: Words<I>,
    /// What the client's numbers have come to, and the real server's above it.
    units: Words<I>,
    /// Of the real server: see [`side::RealEntry`].
    address: E,
    vip: E,
    rest: Words<I>,
}

/// Where the vectors above find a session's fields: words of the first and of the last sixteen
/// bytes of its core, in the order of [`Facts::of`].
const _: () = {
    use crate::session::{CORE, Core};
    use std::mem::offset_of;
    const BACK: usize = CORE - 16;
    assert!(offset_of!(Core, client_port) == 0 && offset_of!(Core, virtual_port) == 2);
    assert!(offset_of!(Core, local_port) == 4 && offset_of!(Core, local) == 6);
    assert!(offset_of!(Core, fin) == 8 && offset_of!(Core, state) == 10);
    assert!(offset_of!(Core, real_protocol) == 12 && offset_of!(Core, seen_ms) == BACK + 4);
    assert!(offset_of!(Core, client_hop) == BACK + 8);
    assert!(offset_of!(Core, hop_generation) == BACK + 10 && offset_of!(Core, seen) == BACK + 12);
};

impl<I: Instructions, E: Ends<I>> Facts<I, E> {
    #[inline(always)]
    fn of<F: Together<Ends<I> = E>>(verify: &mut Verify<'_, F>, instructions: I) -> Option<Self> {
        let Verify { group, sessions, plan, fib, .. } = verify;
        let flows = Words::load(instructions, &group.flow);
        let (slots, is_there) = At::cut(sessions.slab().slots(), flows.shr::<1>())?;
        let (mut front, mut back) = ([NOTHING; LANES], [NOTHING; LANES]);
        let mut clients = [F::Addr::default(); LANES];
        each_lane!(lane => {
            let session = slots.get(lane);
            // Bytes 0 to 16 and 12 to 28 of the core.
            front[lane] = session.core.bytes().first_chunk().unwrap_or(NOTHING);
            back[lane] = session.core.bytes().last_chunk().unwrap_or(NOTHING);
            clients[lane] = session.client;
        });
        let [near, local_ends, fin_state, real_protocol] = Words::columns(instructions, front);
        let [_, seen_ms, hop, units] = Words::columns(instructions, back);
        // No packet that goes with others has a protocol of zero.
        let real_protocol = real_protocol & is_there;
        let reals = real_protocol.shr::<8>();
        reals.store(&mut group.reals);
        let side = F::side(plan);
        let (hops, has_hop) = At::cut(fib.real_hops(), reals)?;
        let mut real_hop = [0; LANES];
        each_lane!(lane => real_hop[lane] = u32::from(hops.get(lane).0));
        let real_hop = Words::load(instructions, &real_hop) | !has_hop;
        let ([address, vip], rest) = F::reals(instructions, side, reals)?;
        let inbound = (flows & 1).is_word(0);
        let good = hop.shr::<16>().is_word(u32::from(fib.generation()));
        inbound.pick(real_hop, hop | !good).store(&mut group.hop);
        Some(Self {
            inbound,
            client: F::clients(instructions, &clients),
            near,
            local_ends,
            local: F::locals(instructions, side, local_ends.shr::<16>()),
            fin_state,
            real_protocol,
            seen_ms,
            units,
            address,
            vip,
            rest,
        })
    }
}

/// Holds the plain packets of a group against the sessions that were found for them, and makes
/// what they become. Gives those that pass; nothing but the group has changed.
pub(super) struct Verify<'a, F: Together> {
    pub group: &'a mut Group<F::Words>,
    pub sessions: &'a Sessions<F>,
    pub plan: &'a Plan,
    pub fib: &'a Fib,
    pub now: Time,
}

/// What the sessions of eight packets allow.
struct Allowed<I: Instructions> {
    /// Whether their real servers go on and are reached in a way that keeps packets plain.
    goes_on: Words<I>,
    /// Whether local addresses stand for the clients.
    has_local: Words<I>,
    /// Whether the packets change nothing, and whether they are part of a connection.
    plain: Words<I>,
    connection: Words<I>,
}

impl<F: Together> Verify<'_, F> {
    /// What the sessions' real servers and states say, to packets with these flags.
    #[inline(always)]
    fn allowed<I: Instructions>(
        &mut self,
        instructions: I,
        facts: &Facts<I, F::Ends<I>>,
        flags: Words<I>,
    ) -> Allowed<I> {
        let Facts { inbound, local, rest, fin_state, units, .. } = *facts;
        let state = fin_state.shr::<16>() & 0xff;
        let is = rest.shr::<16>();
        let has_local = !(is & Forwarding::SOURCE).is_word(0);
        let usual = (is & Forwarding::GENERAL).is_word(0) & !(has_local & local.is_none());
        self.group.tunnels = !(is & Forwarding::TUNNEL).is_word(0).mask();
        let goes_on = (rest.shr::<24>() | (inbound & side::ANSWERS_INBOUND)).is_word(side::GOES_ON);
        let end = Words::load(instructions, &self.group.numbers[0]);
        let known = end.shr::<16>().is(inbound.pick(units & 0xffff, units.shr::<16>()));
        let open = state.is_word(State::Established as u32) & known;
        let open = open & (flags & track::ENDS).is_word(0);
        // One that opens a connection anew needs a closer look.
        let connection = state.at_least(State::SynRecv as u32)
            & !state.at_least(State::Udp as u32)
            & !(flags & track::OPENS_OF).is_word(track::OPENS);
        let beginning = connection & (flags & track::BEGINS_OF).is_word(track::BEGINS);
        // One that lingers may go for another while the group is forwarded.
        let others = state.at_least(State::Udp as u32) & !state.is_word(State::Ended as u32);
        let plain = open | beginning | (others & flags.is_word(0));
        Allowed { goes_on: goes_on & usual, has_local, plain, connection }
    }
}

/// A multiple of 0xffff, which is nothing in one's complement, above what the halves of two
/// addresses sum up to: so that what is taken away leaves more than zero, as a sum over data does.
const ABOVE: u32 = 17 * 0xffff;

impl<F: Together> Kernel for Verify<'_, F> {
    type Output = u8;

    #[inline(always)]
    fn run<I: Instructions>(mut self, instructions: I) -> u8 {
        let Some(facts) = Facts::of(&mut self, instructions) else {
            self.group.changes = 0;
            return 0;
        };
        let words = |of: &Lanes<u32>| Words::load(instructions, of);
        let flags = words(&self.group.flags);
        let Allowed { goes_on, has_local, plain, connection } =
            self.allowed(instructions, &facts, flags);
        let Facts { inbound, near, local_ends, local, address, vip, rest, .. } = facts;
        let Self { group, plan, now, .. } = self;
        let Heads { src, dst, ports, protocol, ttl } = F::heads(&group.words, instructions);
        let state = facts.fin_state.shr::<16>() & 0xff;
        let is_its = protocol.is(facts.real_protocol & 0xff) & goes_on;
        let idle = Words::splat(instructions, now.low()) - facts.seen_ms;
        let lives = idle.at_most(state.of(&plan.timeout_ms)) & ttl.at_least(2);

        let client = facts.client.to_wire();
        let near = near.swap_bytes();
        let near = near.shl::<16>() | near.shr::<16>();
        let middle = Ends::pick(has_local, local, client);
        let middle_port = has_local.pick(short(local_ends & 0xffff), near & 0xffff);
        let own_port = rest & 0xffff;
        let port = own_port.is_word(0).pick(near.shr::<16>(), own_port);
        let far = port | middle_port.shl::<16>();
        let belongs = Ends::pick(inbound, client, address).is(src)
            & Ends::pick(inbound, vip, middle).is(dst)
            & inbound.pick(near, far).is(ports);
        let new_src = Ends::pick(inbound, middle, vip);
        let new_dst = Ends::pick(inbound, address, client);
        let new_ports = inbound.pick(far, near);
        let new_ports = new_ports.shl::<16>() | new_ports.shr::<16>();
        let passes = belongs & is_its & lives & !new_src.is_mapped(instructions);

        // RFC 1624, of what the session says that a packet which belongs to it has.
        let (inward, outward) = (client.sum() + vip.sum(), middle.sum() + address.sum());
        let gone = Words::splat(instructions, ABOVE) - inbound.pick(inward, outward);
        let addresses = inbound.pick(outward, inward) + gone;
        let changes = Changes { src: new_src, dst: new_dst, ports: new_ports, addresses };
        F::change(&mut group.words, changes, instructions);
        let sum = words(&group.sum);
        let all = (!sum & 0xffff) + addresses + halves(!ports) + halves(new_ports);
        let all = !fold(all) & 0xffff;
        // RFC 768: zero is none, which stays so, and a sum of zero is sent as its other form.
        let is_udp = protocol.is_word(u32::from(ipv4::UDP));
        let all = all | (is_udp & all.is_word(0) & 0xffff);
        (is_udp & sum.is_word(0)).pick(sum, all).store(&mut group.new_sum);
        let changes = passes & connection & !plain;
        group.changes = changes.mask() & group.quick;
        if group.changes != 0 {
            let late = state.at_least(State::LastAck as u32) | !(flags & track::RESETS).is_word(0);
            group.ends = if plan.ends_late() { (changes & late).mask() } else { ALL };
            group.ends &= group.changes;
            let returns = rest.shr::<16>() & Forwarding::RETURNS;
            group.answered = !returns.is_word(0).mask();
            group.conflicts = words(&group.flow).shr::<1>().conflicts();
        }
        (passes & (plain | connection)).mask() & group.quick
    }
}
