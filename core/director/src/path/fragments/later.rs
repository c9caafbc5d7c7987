//! Later fragments, which tell no ports: they go the way of their datagram's first, or wait for it.

use super::place::{most, shift};
use super::{Decision, NO_TRANSPORT, Piece, Way, name};
use crate::counters::Direction;
use crate::family::{Family, Tuple};
use crate::fib::{Fib, HopId};
use crate::frame::Frame;
use crate::path::burst::Lane;
use crate::path::parse::Parse;
use crate::path::table::Table;
use crate::path::turn::{Outcome, Turn};
use crate::path::{Shared, Verdict, cut, source_route, tunnel};
use crate::plan::Plan;
use crate::reason::Reason;
use crate::session::Flow;
use sluice_wire::{ipv4, ipv6, tcp};
use std::net::IpAddr;

/// A fragment without ports.
pub(super) fn later<F: Parse, B: Frame>(
    table: &Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    piece: &Piece<F::Addr>,
) -> Outcome {
    let plan = turn.view.plan;
    // It would put something else in place of what was looked at (RFC 3128).
    if piece.protocol == ipv4::TCP && usize::from(piece.offset) < tcp::HEADER {
        return Outcome::Is(Verdict::Drop(Reason::TinyFragment));
    }
    let hash = table.sessions.hash(&piece.key);
    match table.fragments.find(turn.now, hash, &piece.key) {
        Some(Decision::Forward(way)) => {
            return follow::<F, B>(lane, shared, turn, frame, (piece, &way));
        }
        Some(Decision::Is(verdict)) => return Outcome::Is(verdict),
        // Under another plan the other worker may think that it is this one's.
        Some(Decision::HandOff(worker, epoch)) if epoch == plan.epoch => {
            return Outcome::Is(Verdict::HandOff(worker));
        }
        _ => {}
    }
    if !F::WIDE && plan.wide_v4 {
        return Outcome::Wide;
    }
    if may_be_ours::<F>(plan, piece) {
        return Outcome::Is(Verdict::Park(name::<F>(&piece.key, &shared.seed)));
    }
    Outcome::Is(Verdict::Kernel(Reason::NotOurs))
}

/// Makes a later fragment what its first has become.
fn follow<F: Parse, B: Frame>(
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    (piece, way): (&Piece<F::Addr>, &Way<F::Addr>),
) -> Outcome {
    let plan = turn.view.plan;
    let drop = |reason| Outcome::Is(Verdict::Drop(reason));
    let real = F::side(plan).real(way.real);
    if !real.is_some_and(|real| real.goes_on(true) && real.forwarding == way.forwarding) {
        return drop(Reason::RealGone);
    }
    if source_route::is_at(frame, lane.parsed.l3.into()) {
        return drop(Reason::SourceRoute);
    }
    if lane.parsed.ttl <= 1 {
        return Outcome::Refuse(Reason::TtlExpired);
    }
    let l3 = usize::from(lane.parsed.l3);
    lane.parsed.l4 = (l3 + piece.data) as u16;
    lane.parsed.tuple = Tuple { sport: 0, dport: 0, protocol: way.protocol, ..piece.key };
    let Way { src, dst, real, forwarding, direction, hash, .. } = *way;
    lane.new = Tuple { src, dst, sport: 0, dport: 0, protocol: NO_TRANSPORT };
    (lane.forwarding, lane.hash) = (forwarding, hash);
    if let Some(reason) = stays_behind::<F, B>(lane, frame, (piece, way)) {
        return drop(reason);
    }
    let mtu = match way_out::<F>(lane, turn, way) {
        Ok(mtu) => mtu,
        Err(outcome) => return outcome,
    };
    let room = if forwarding.has_tunnel() {
        tunnel::room(&shared.paths, plan, real, mtu, turn.now)
    } else {
        F::piece_room(mtu, lane, frame).unwrap_or(mtu)
    };
    let length = lane.parsed.length;
    if length > room {
        lane.hop = HopId::NONE;
        // It has no session: what `cut` asks of one.
        lane.flow = Flow::new(real.0, direction);
    }
    // Who is told that it is too big gets it back as it came.
    if way.shift != 0
        && (length <= room || cut::may_cut::<F, B>(lane, frame))
        && let Some(packet) = frame.bytes_mut().get_mut(l3..)
    {
        shift(packet, way.shift.into());
    }
    if length > room {
        return Outcome::TooBig(room);
    }
    shared.statistics.forwarded(real, direction, length);
    if forwarding.answers_past() {
        lane.flow = Flow(real.0);
    }
    if lane.hop == HopId::NONE { Outcome::Unresolved } else { Outcome::Forward }
}

/// Why a later fragment cannot become what its first has, if it cannot.
fn stays_behind<F: Parse, B: Frame>(
    lane: &Lane<F::Addr>,
    frame: &B,
    (piece, way): (&Piece<F::Addr>, &Way<F::Addr>),
) -> Option<Reason> {
    if F::WIDE && F::crosses(&lane.parsed.tuple, &lane.new) && !F::piece_has_like(lane, frame) {
        return Some(Reason::Untranslatable);
    }
    if way.shift == 0 {
        return None;
    }
    // It would lie within what was put in, whose sender it is not.
    if piece.offset < way.front.into() {
        return Some(Reason::TinyFragment);
    }
    let v4 = |address| F::to_ip(address).is_ipv4();
    let data = usize::from(lane.parsed.length).saturating_sub(piece.data);
    let end = usize::from(piece.offset) + usize::from(way.shift) + data;
    let most = most(piece.data, v4(piece.key.src), v4(way.src));
    (end > most).then_some(Reason::Fragment)
}

/// The MTU of a later fragment's way, whose hop goes to its lane if that is known.
fn way_out<F: Parse>(
    lane: &mut Lane<F::Addr>,
    turn: Turn<'_>,
    way: &Way<F::Addr>,
) -> Result<u16, Outcome> {
    let (plan, fib) = (turn.view.plan, turn.view.fib);
    let known = way.direction == Direction::Inbound && !way.forwarding.has_remote();
    lane.hop = if known { fib.real_hop(way.real) } else { HopId::NONE };
    if let Some(hop) = fib.hop(lane.hop) {
        return Ok(hop.mtu);
    }
    let past = way.forwarding.answers_past();
    let to = plan.real(way.real).filter(|_| past).map(|real| real.address);
    match next(fib, to.unwrap_or_else(|| F::to_ip(way.dst))) {
        Some((hop, mtu)) => {
            lane.hop = hop;
            Ok(mtu)
        }
        None => Err(Outcome::Is(Verdict::Drop(Reason::NoRoute))),
    }
}

/// The hop towards an address, if its MAC is known, and the MTU of the way there.
fn next(fib: &Fib, to: IpAddr) -> Option<(HopId, u16)> {
    let next = fib.lookup(to);
    Some((next.unwrap_or(HopId::NONE), fib.mtu(next)?))
}

/// Whether a first fragment with these addresses might be anything but the kernel's.
fn may_be_ours<F: Family>(plan: &Plan, piece: &Piece<F::Addr>) -> bool {
    let (side, key) = (F::side(plan), &piece.key);
    if side.owns(key.dst) {
        return piece.protocol != ipv4::ICMP || plan.wide_v4;
    }
    let (from, to) = (F::to_ip(key.src), F::to_ip(key.dst));
    // Behind a fragment header of IPv6 there may be other headers first.
    let any = [ipv4::TCP, ipv4::UDP, ipv6::ICMPV6];
    let own = [piece.protocol];
    let protocols = if to.is_ipv6() { &any[..] } else { &own };
    let mut rules = plan.snat_order.iter().filter_map(|id| plan.service(*id)?.snat.as_ref());
    side.has_nat_real(key.src)
        || rules.any(|rule| protocols.iter().any(|protocol| rule.matches(*protocol, from, to)))
}
