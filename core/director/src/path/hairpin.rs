//! Hairpinning: hosts inside reach each other by what source NAT has given them outside, and see
//! each other under that (RFC 4787 6, RFC 5382 REQ-8).
//!
//! Such a packet has two sessions, as it would have at two directors: its sender's, towards a pool
//! address, and its receiver's, from one. The first makes it a packet from outside, which then goes
//! through the path once more, by the worker that has the port that it is for; so each of the two
//! connections has its states and times, and nothing here needs a session with four ends. Where
//! only the receiver's mapping is there, the packet opens the second session too: what else comes
//! from outside must have been asked for.

use super::burst::Lane;
use super::parse::{Parse, Refused};
use super::snat::HOLDS;
use super::sweep::expired;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{Shared, Verdict, admit, follow, half_open, snat, super_packet};
use crate::counters::Direction;
use crate::family::{Family, Tuple};
use crate::fib::HopId;
use crate::frame::Frame;
use crate::plan::{Plan, Service, ServiceId, Snat};
use crate::reason::Reason;
use crate::session::{Core, Flow, Session, SessionOf, State};
use crate::track::{self, Segment};
use sluice_wire::ipv4;

/// Whether an address is one by which hosts inside reach each other.
pub(super) fn leads_inside<F: Family>(plan: &Plan, address: F::Addr) -> bool {
    plan.pool_of(F::side(plan), address).is_some_and(|pool| pool.hairpins)
}

/// Whether a session of source NAT is with another host inside.
pub(super) fn stays_inside<F: Family>(plan: &Plan, session: &SessionOf<F>) -> bool {
    F::WIDE && leads_inside::<F>(plan, F::far(session))
}

/// The rule of a packet from inside to a pool address and port. Nobody is inside who claims to be
/// such an address.
pub(super) fn rule_for<'a, F: Family>(
    plan: &'a Plan,
    tuple: &Tuple<F::Addr>,
) -> Option<(ServiceId, &'a Service)> {
    let has_ports = matches!(tuple.protocol, ipv4::TCP | ipv4::UDP);
    let pool = plan.pool_of(F::side(plan), tuple.dst).filter(|pool| has_ports && pool.hairpins)?;
    pool.owner(tuple.dport, 1)?;
    let (from, to) = (F::to_ip(tuple.src), F::to_ip(tuple.dst));
    let fits = |snat: &Snat| snat.matches(tuple.protocol, from, to);
    let mut rules = plan.snat_order.iter().filter_map(|id| Some((*id, plan.service(*id)?)));
    let (id, rule) = rules.find(|(_, rule)| rule.snat.as_ref().is_some_and(fits))?;
    let is_open = plan.hairpins(rule) && plan.pool_of(F::side(plan), tuple.src).is_none();
    is_open.then_some((id, rule))
}

/// A packet from inside to a pool address: it may open its sender's session.
pub(super) fn open_towards_inside<F: Parse>(
    table: &mut Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    rule: (ServiceId, &Service),
    refused: Option<Reason>,
) -> Result<Flow, Outcome> {
    let (parsed, frame) = (lane.parsed, lane.frame);
    let plan = turn.view.plan;
    snat::note_mapping(table, shared, plan, (&parsed.tuple, frame), rule.1);
    if let Some(worker) =
        shared.next_stop_of_stranger::<F>(plan, Some(rule.0), &parsed.tuple, frame)
    {
        return Err(Outcome::Is(Verdict::HandOff(worker)));
    }
    let flow = snat::open_by_rule(table, lane, shared, turn, rule, refused)?;
    // None is ever remembered, so that each of its packets is looked at in peace.
    table.sessions.at_mut(flow.id()).client_hop = HopId::NONE.0;
    Ok(flow)
}

/// A packet that hairpinning has made one from outside, to a port of this worker's: it may open
/// the session of the host inside that has the port.
pub(super) fn open_from_inside<F: Parse>(
    table: &mut Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
) -> Result<Flow, Outcome> {
    let (plan, fib, now) = (turn.view.plan, turn.view.fib, turn.now);
    let parsed = lane.parsed;
    let tuple = &parsed.tuple;
    let drop = |reason| Outcome::Is(Verdict::Drop(reason));
    let Tuple { dst, dport, protocol, .. } = *tuple;
    let own = Tuple { dst, dport, protocol, ..Tuple::default() };
    let found = table.sessions.find(plan, table.sessions.hash(&own), &own);
    let mapping = found.ok_or(drop(Reason::NoSession))?;
    let template = *table.sessions.slab().at(mapping.id());
    let rule = plan.service_of(&template).and_then(|id| Some((id, plan.service(id)?)));
    let rule = rule.filter(|(_, rule)| plan.hairpins(rule)).map(|(id, _)| id);
    if template.state != State::Template || expired(&template, plan, now) {
        return Err(drop(Reason::NoSession));
    }
    let rule = rule.ok_or(drop(Reason::NoSession))?;
    let segment = parsed.segment;
    let state = admit::opening_state(plan, rule, protocol, segment, plan.accept_mid_stream);
    let state = state.ok_or(drop(Reason::NoSession))?;
    if shared.admission.live >= shared.admission.capacity {
        return Err(drop(Reason::SessionsFull));
    }
    let core = Core {
        client_port: template.client_port,
        virtual_port: tuple.sport,
        local: template.local,
        local_port: template.local_port,
        state,
        closing: HOLDS,
        seen_ms: now.low(),
        client_hop: HopId::NONE.0,
        hop_generation: fib.generation(),
        ..Core::default().to(template.real(), protocol)
    };
    let mut session: SessionOf<F> =
        Session { client: template.client, core, extra: F::towards(tuple.src) };
    track::begin_outside(&mut session, segment);
    let opened = table.sessions.insert(plan, session);
    let opened = opened.map_err(|_| drop(Reason::SessionsFull))?;
    let template = table.sessions.at_mut(mapping.id());
    let holders = template.holders() + 1;
    template.set_holders(holders);
    shared.began(plan, &session);
    half_open::note_opened(table, plan, &session, opened);
    Ok(Flow::new(opened, Direction::Outbound))
}

/// Tracks and counts a packet of source NAT that goes towards another host inside:
/// through the path once more, where it is told who this is. Any other, also one that comes
/// from there, is left to be tracked as all are.
#[cold]
pub(super) fn track_inside<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Option<Outcome> {
    let Lane { flow, parsed, frame: place, .. } = *lane;
    let (segment, plan) = (parsed.segment, turn.view.plan);
    let session = table.sessions.at_mut(flow.id());
    if !stays_inside::<F>(plan, session) {
        return None;
    }
    if flow.direction() == Direction::Outbound {
        if !shared.is_hairpinned(place) {
            return Some(Outcome::Is(Verdict::Drop(Reason::Martian)));
        }
        let listed = session.state.is_half_open();
        if open_anew(shared, turn, session, segment) && !listed {
            let session = *session;
            half_open::note_opened(table, plan, &session, flow.id());
        }
        return None;
    }
    session.seen_ms = turn.now.low();
    let before = session.state;
    if track::accept_inside(session, segment) {
        half_open::moved(table, shared, plan, (flow.id(), before), flow.direction());
    }
    let session = table.sessions.slab().at(flow.id());
    let plain = track::is_plain(session, flow.direction(), segment);
    shared.statistics.forwarded_all(
        session.real(),
        flow.direction(),
        super_packet::carried(&parsed, frame),
    );
    if !plain {
        follow::track_tcp(table, shared, plan, flow, segment);
    }
    Some(Outcome::Again)
}

/// Makes a packet that is to go through the path once more what it is there, parsed and looked up;
/// or says why it may not.
#[cold]
pub(super) fn again<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &mut Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Option<Verdict> {
    let plan = turn.view.plan;
    if let Some(reason) = follow::write::<F, B>(shared, turn.view, lane, frame) {
        return Some(Verdict::Drop(reason));
    }
    shared.hairpin(lane.frame);
    match F::parse(frame, plan, shared, lane) {
        Ok(()) => {}
        Err(Refused::Is(verdict)) => return Some(verdict),
        Err(Refused::Wide) => return Some(Verdict::Drop(Reason::NoSession)),
    }
    let tuple = lane.parsed.tuple;
    lane.hash = table.sessions.hash(&tuple);
    lane.hop = HopId::NONE;
    lane.flow = table.sessions.find(plan, lane.hash, &tuple).unwrap_or(Flow::NONE);
    None
}

/// Lets a connection from another host inside begin anew where the last one is over, or was never
/// answered. Whether that was so.
fn open_anew(shared: &mut Shared, turn: Turn<'_>, session: &mut Core, segment: Segment) -> bool {
    let idle_ms = session.idle_ms(turn.now);
    if session.protocol() != ipv4::TCP
        || !track::is_reuse(session, Direction::Inbound, false, segment, idle_ms)
    {
        return false;
    }
    shared.ended(turn.view.plan, session);
    shared.statistics.counters.closed += u64::from(session.state != State::Ended);
    // The mapping that it holds stays.
    let holds = session.closing & HOLDS;
    (session.state, session.closing, session.fin) = (State::SynRecv, holds, 0);
    session.client_hop = HopId::NONE.0;
    track::begin_outside(session, segment);
    shared.began(turn.view.plan, session);
    true
}
