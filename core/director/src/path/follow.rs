//! A packet of a flow that was found: verified, tracked and counted, and what it becomes written.

use super::burst::Lane;
use super::client_address::Room;
use super::parse::Parse;
use super::sweep::timed_out;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{
    Shared, Verdict, View, hairpin, half_open, linger, rewrite, source_route, super_packet, tunnel,
};
use crate::counters::Direction;
use crate::family::{Family, Tuple};
use crate::fib::{Fib, Hop, HopId, NoHop};
use crate::frame::Frame;
use crate::plan::{Forwarding, Plan, RealId};
use crate::reason::Reason;
use crate::session::{Flow, SessionOf, Sessions};
use crate::track;
use std::hint::select_unpredictable;
use std::net::IpAddr;

/// Writes what a packet becomes that was tracked, and may go on.
#[inline(never)]
pub(super) fn finish<F: Parse, B: Frame>(
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    view: View<'_>,
    frame: &mut B,
) -> Verdict {
    match view.fib.hop(lane.hop) {
        Some(hop) => rewrap::<F, B>(shared, view, lane, frame, hop),
        None => Verdict::Drop(Reason::NoRoute),
    }
}

/// Verifies that a packet belongs to the flow that was found for it, tracks and counts it, and
/// decides what it becomes.
pub(super) fn track<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Outcome {
    let Turn { view: View { plan, .. }, now, .. } = turn;
    let (parsed, flow, tuple) = (&lane.parsed, lane.flow, &lane.parsed.tuple);
    if flow == Flow::NONE {
        return Outcome::Unknown;
    }
    table.touched = flow;
    let (session, direction) = (table.sessions.at_mut(flow.id()), flow.direction());
    // Another candidate, if there is one, is left to `admit`: two keys seldom share a tag.
    let translated = Sessions::<F>::translated(plan, session, direction, tuple);
    let Some((new, forwarding)) = translated.filter(|_| !timed_out(session, plan, now)) else {
        return Outcome::Unknown;
    };
    if source_route::is_in::<F, B>(parsed, frame) {
        return Outcome::Is(Verdict::Drop(Reason::SourceRoute));
    }
    let (segment, idle_ms) = (parsed.segment, session.idle_ms(now));
    let plain = track::is_plain(session, direction, segment);
    if !plain && track::is_reuse(session, direction, forwarding.answers_past(), segment, idle_ms) {
        return Outcome::Unknown;
    }
    if parsed.ttl <= 1 {
        return Outcome::Refuse(Reason::TtlExpired);
    }
    (lane.new, lane.forwarding) = (new, forwarding);
    if F::WIDE
        && forwarding.has_remote()
        && let Some(outcome) = hairpin::track_inside(table, lane, shared, turn, frame)
    {
        return outcome;
    }
    account(table, lane, shared, turn, frame, plain)
}

/// Counts a packet that was verified, and decides on its way.
#[inline(always)]
fn account<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    plain: bool,
) -> Outcome {
    let Turn { view: View { plan, .. }, now, .. } = turn;
    let (parsed, flow, forwarding, new) = (&lane.parsed, lane.flow, lane.forwarding, lane.new);
    let (session, direction) = (table.sessions.at_mut(flow.id()), flow.direction());
    let real = session.real();
    let (hop, mtu) = match next_hop::<F>(turn.view, session, direction, (forwarding, &new)) {
        Ok(found) => found,
        Err(verdict) => return Outcome::Is(verdict),
    };
    lane.hop = hop;
    let room = match forwarding.has_tunnel() {
        true => tunnel::room(&shared.paths, plan, real, mtu, now),
        false => F::room_for(mtu, lane, frame),
    };
    if super_packet::longest(parsed, frame) > room {
        lane.hop = HopId::NONE;
        return Outcome::TooBig(room);
    }
    if F::WIDE && F::lacks_checksum(lane, &lane.new, frame) {
        return Outcome::Is(Verdict::Drop(Reason::NoUdpChecksum));
    }
    session.seen_ms = now.low();
    let (packets, bytes) = super_packet::carried(parsed, frame);
    if F::WIDE
        && plan.tells_client
        && forwarding.translates_both()
        && let Err(outcome) = introduce::<F, B>(turn.view, session, direction, lane, frame, mtu)
    {
        lane.hop = HopId::NONE;
        return outcome;
    }
    shared.statistics.forwarded_all(real, direction, (packets, bytes));
    if forwarding.answers_past() {
        lane.flow = Flow(real.0);
    }
    if !plain {
        let segment = lane.parsed.segment;
        track_tcp(table, shared, plan, flow, segment);
    }
    if hop == HopId::NONE { Outcome::Unresolved } else { Outcome::Forward }
}

/// Moves the state of a TCP session on; the session may end with that.
#[inline(never)]
pub(super) fn track_tcp<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    flow: Flow,
    segment: track::Segment,
) {
    if flow == table.fresh {
        return;
    }
    let id = flow.id();
    let session = table.sessions.at_mut(id);
    let before = session.state;
    let fits = track::tcp(session, flow.direction(), segment);
    shared.statistics.counters.ignored_ends += u64::from(!fits);
    let state = session.state;
    if before != state {
        half_open::moved(table, shared, plan, (id, before), flow.direction());
    }
    if plan.timeout_ms[state as usize] == 0 {
        linger::close(table, shared, plan, id);
    }
}

/// A packet of a known flow whose neighbour is not known.
#[cold]
pub(super) fn hold<F: Parse, B: Frame>(
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Verdict {
    let to = match lane.forwarding.answers_past() {
        // The packet's own destination is not where it goes next.
        true => turn.view.plan.real(RealId(lane.flow.0)).map(|r| r.address),
        false => Some(F::to_ip(lane.new.dst)),
    };
    let Some(to) = to else { return Verdict::Drop(Reason::NoRoute) };
    if let Some(reason) = write::<F, B>(shared, turn.view, lane, frame) {
        return Verdict::Drop(reason);
    }
    let why = turn.view.fib.lookup(to).err().unwrap_or(NoHop::NoRoute);
    shared.scratch.no_hop(usize::from(lane.frame), why, None)
}

/// Writes a packet's network and transport headers, and an outer one if it is to have one. Gives
/// the reason why it cannot be.
#[inline(always)]
pub(super) fn write<F: Parse, B: Frame>(
    shared: &mut Shared,
    view: View<'_>,
    lane: &Lane<F::Addr>,
    frame: &mut B,
) -> Option<Reason> {
    let parsed = &lane.parsed;
    let (l3, l4) = (usize::from(parsed.l3), usize::from(parsed.l4));
    if F::WIDE && F::crosses(&parsed.tuple, &lane.new) {
        return F::translate(shared, frame, lane);
    }
    F::rewrite(frame.bytes_mut(), (l3, l4), &parsed.tuple, &lane.new);
    if lane.forwarding.has_tunnel() {
        return lane.enter_tunnel(view.plan, frame);
    }
    None
}

/// Puts a packet that is written into its tunnel.
#[inline(never)]
pub(super) fn into_tunnel<B: Frame>(
    plan: &Plan,
    to: (RealId, u64),
    l3: u8,
    frame: &mut B,
    hop: &Hop,
) -> Verdict {
    match tunnel::enter(plan, to, l3, frame) {
        Some(reason) => Verdict::Drop(reason),
        None => rewrite::link(frame, l3, hop),
    }
}

/// Writes a packet that may get another header than it came with, and its link-layer header. By
/// itself, so that it takes no registers from those that keep theirs.
#[inline(never)]
fn rewrap<F: Parse, B: Frame>(
    shared: &mut Shared,
    view: View<'_>,
    lane: &Lane<F::Addr>,
    frame: &mut B,
    hop: &Hop,
) -> Verdict {
    match write::<F, B>(shared, view, lane, frame) {
        Some(reason) => Verdict::Drop(reason),
        None => rewrite::link(frame, lane.parsed.l3, hop),
    }
}

/// The hop of a session's packets in a direction, as far as it is remembered and still good.
#[inline(always)]
pub(super) fn way<F: Family>(
    session: &SessionOf<F>,
    direction: Direction,
    forwarding: Forwarding,
    fib: &Fib,
) -> HopId {
    let inbound = matches!(direction, Direction::Inbound);
    if F::WIDE && forwarding.has_remote() && inbound {
        return F::far_hop(session, fib);
    }
    let good = session.hop_generation == fib.generation();
    let client = if good { session.client_hop } else { HopId::NONE.0 };
    HopId(select_unpredictable(inbound, fib.real_hop(session.real()).0, client))
}

/// The hop of a packet that becomes `new`, [`HopId::NONE`] as long as the neighbour is not known,
/// and the MTU of its way.
#[inline(always)]
fn next_hop<F: Family>(
    view: View<'_>,
    session: &mut SessionOf<F>,
    direction: Direction,
    (forwarding, new): (Forwarding, &Tuple<F::Addr>),
) -> Result<(HopId, u16), Verdict> {
    let known = way::<F>(session, direction, forwarding, view.fib);
    match view.fib.hop(known) {
        Some(hop) => Ok((known, hop.mtu)),
        None => find_hop::<F>(view, session, direction, (forwarding, new)),
    }
}

/// Where a packet goes next as far as addresses say.
#[cold]
pub(super) fn destination<F: Family>(
    plan: &Plan,
    session: &SessionOf<F>,
    direction: Direction,
    forwarding: Forwarding,
    new: &Tuple<F::Addr>,
) -> IpAddr {
    let past = direction == Direction::Inbound && forwarding.answers_past();
    let real = plan.real(session.real()).filter(|_| past);
    real.map_or_else(|| F::to_ip(new.dst), |real| real.address)
}

/// The hop of a session's packets in a direction, for the first of them and when it is not known,
/// and its MTU. There is no hop, but an MTU, as long as the neighbour is not known.
#[cold]
fn find_hop<F: Family>(
    View { plan, fib }: View<'_>,
    session: &mut SessionOf<F>,
    direction: Direction,
    (forwarding, new): (Forwarding, &Tuple<F::Addr>),
) -> Result<(HopId, u16), Verdict> {
    let to = destination::<F>(plan, session, direction, forwarding, new);
    let no_route = Verdict::Drop(Reason::NoRoute);
    let next = fib.lookup(to);
    let (hop, mtu) = (next.unwrap_or(HopId::NONE), fib.mtu(next).ok_or(no_route)?);
    if direction == Direction::Inbound {
        F::remember_far_hop(session, fib, hop);
    } else if !track::has_no_hop(session)
        && (!forwarding.has_remote() || !hairpin::stays_inside::<F>(plan, session))
    {
        session.client_hop = hop.0;
        session.hop_generation = fib.generation();
    }
    Ok((hop, mtu))
}

/// Tells a real server of FNAT who its client is, if its service says so.
fn introduce<F: Parse, B: Frame>(
    view: View<'_>,
    session: &mut SessionOf<F>,
    direction: Direction,
    lane: &mut Lane<F::Addr>,
    frame: &mut B,
    mtu: u16,
) -> Result<(), Outcome> {
    let crosses = F::crosses(&lane.parsed.tuple, &lane.new);
    let mut room = Room::of(view.fib, mtu, session.real(), crosses);
    if crosses {
        let whole = || room.here.min(F::room_for(mtu, lane, frame));
        room.here = F::piece_room(mtu, lane, frame).unwrap_or_else(whole);
    }
    F::introduce(view.plan, session, direction, lane, frame, room)
}
