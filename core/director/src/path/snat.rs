//! Source NAT: connections that real servers open to the outside, by the first rule that matches.
//!
//! A rule is a service of the plan, with one real server that stands for the outside. With
//! endpoint-independent mapping (RFC 4787 4.1) an inside endpoint has a template: it holds the
//! pool address and port that all its sessions share, and goes with the last of them.

use super::burst::Lane;
use super::parse::Parse;
use super::sweep::expired;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{Shared, Verdict, View, admit, evict, half_open, linger, sweep};
use crate::counters::Direction;
use crate::family::{Family, Tuple};
use crate::fib::{Fib, HopId, NoHop, PortId};
use crate::local_port;
use crate::plan::{LocalId, Plan, RealId, Service, ServiceId};
use crate::reason::Reason;
use crate::session::{Core, Flow, Session, SessionOf, Sessions, State};
use crate::spec::Mapping;
use crate::time::Time;
use crate::track;
use std::net::IpAddr;

/// Bit of `Session::closing`: the session is one of the holders of its endpoint's template. Another
/// may have the same endpoint outside without being one: a session of a rule that shares nothing,
/// or opened before a reload. The bit is of this table alone, neither told nor restored: who takes
/// a session up decides anew. So a program that does not know it may read these slots, and the
/// other way round.
pub(super) const HOLDS: u8 = 0x40;

/// A packet that is to nobody here: one of a host inside to the outside, if a rule says so.
pub(super) fn open_outside<F: Parse>(
    table: &mut Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    refused: Option<Reason>,
) -> Result<Flow, Outcome> {
    let View { plan, fib } = turn.view;
    let parsed = lane.parsed;
    let tuple = &parsed.tuple;
    let is = |verdict| Err(Outcome::Is(verdict));
    let rule = rule_for::<F>(plan, fib, tuple);
    let (id, frame) = (rule.map(|(id, _)| id), lane.frame);
    if let Some((_, rule)) = rule {
        note_mapping(table, shared, plan, (tuple, frame), rule);
    }
    let elsewhere = shared.next_stop_of_stranger::<F>(plan, id, tuple, frame);
    if let Some(worker) = elsewhere {
        return is(Verdict::HandOff(worker));
    }
    let has_way = || fib.lookup(F::to_ip(tuple.dst)) != Err(NoHop::NoRoute);
    let Some(rule) = rule.filter(|_| has_way()) else {
        return is(Verdict::Kernel(Reason::NotOurs));
    };
    open_by_rule(table, lane, shared, turn, rule, refused)
}

/// Notes that this worker has the mapping that a packet's session would share.
pub(super) fn note_mapping<F: Parse>(
    table: &Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    (tuple, frame): (&Tuple<F::Addr>, u8),
    rule: &Service,
) {
    if !shared.asks_for_mapping(frame) || !shares(rule) {
        return;
    }
    let Tuple { src, sport, protocol, .. } = *tuple;
    let own = Tuple { src, sport, protocol, ..Tuple::default() };
    if table.sessions.find(plan, table.sessions.hash(&own), &own).is_some() {
        shared.has_mapping::<F>(tuple, frame);
    }
}

/// Whether the sessions of an inside endpoint by a rule share its mapping.
pub(super) fn shares(rule: &Service) -> bool {
    rule.snat.as_ref().is_some_and(|snat| snat.mapping == Mapping::EndpointIndependent)
}

/// Opens a session to the outside by a rule, if its first packet may do so.
pub(super) fn open_by_rule<F: Parse>(
    table: &mut Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    (id, rule): (ServiceId, &Service),
    refused: Option<Reason>,
) -> Result<Flow, Outcome> {
    let plan = turn.view.plan;
    let (parsed, frame) = (lane.parsed, lane.frame);
    let tuple = &parsed.tuple;
    let is = |verdict| Err(Outcome::Is(verdict));
    if parsed.ttl <= 1 {
        return Err(Outcome::Refuse(Reason::TtlExpired));
    }
    if !F::is_unicast_source(tuple.src) {
        return is(Verdict::Drop(Reason::Martian));
    }
    if F::is_link_local(tuple.src) {
        return is(Verdict::Drop(Reason::LinkLocal));
    }
    if let Some(reason) = refused {
        return is(Verdict::Drop(reason));
    }
    let any = plan.accept_mid_stream || shared.may_resume(frame);
    let state = admit::opening_state(plan, id, tuple.protocol, parsed.segment, any);
    let Some(state) = state else { return is(Verdict::Drop(Reason::NoSession)) };
    shared.admission.load.comes(table.sessions.hash(tuple));
    let opened = map(table, shared, turn, tuple, (rule, state));
    let flow = opened.map_err(|reason| Outcome::Is(Verdict::Drop(reason)))?;
    track::begin(table.sessions.at_mut(flow.id()), parsed.segment);
    Ok(flow)
}

/// Makes room for a session and a template.
fn make_room_for_two<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    rule: ServiceId,
) -> Result<(), Reason> {
    let full = |shared: &Shared| shared.admission.live + 1 >= shared.admission.capacity;
    // Templates of sessions that linger take places, too.
    if full(shared) {
        linger::stop_all_lingering(table, shared, plan);
    }
    evict::make_room(table, shared, plan, rule)?;
    if full(shared) { Err(Reason::SessionsFull) } else { Ok(()) }
}

/// Opens a session to the outside.
fn map<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    tuple: &Tuple<F::Addr>,
    (rule, state): (&Service, State),
) -> Result<Flow, Reason> {
    let Turn { view: View { plan, fib }, now, .. } = turn;
    let outside = *rule.reals.first().ok_or(Reason::NoReal)?;
    let of = plan.real(outside).ok_or(Reason::NoReal)?.service;
    make_room_for_two(table, shared, plan, of)?;
    let inside_hop = match fib.lookup(F::to_ip(tuple.src)) {
        Err(NoHop::NoRoute) => return Err(Reason::NoRoute),
        found => found.unwrap_or(HopId::NONE),
    };
    let core = Core {
        client_port: tuple.sport,
        virtual_port: tuple.dport,
        state,
        seen_ms: now.low(),
        client_hop: inside_hop.0,
        hop_generation: fib.generation(),
        ..Core::default().to(outside, tuple.protocol)
    };
    let mut session: SessionOf<F> =
        Session { client: tuple.src, core, extra: F::towards(tuple.dst) };
    let shares = shares(rule);
    prefetch_map(table, shared, plan, tuple, (outside, rule));
    let mut template = if shares { mapping(table, plan, &session) } else { None };
    let (local, port) = match template {
        Some(flow) => {
            let template = table.sessions.slab().at(flow.id());
            (session.local, session.local_port) = (template.local, template.local_port);
            if is_taken(table, shared, plan, now, &session) {
                return Err(Reason::NatConflict);
            }
            (session.local, session.local_port)
        }
        // One that is free.
        None => pool_port(table, shared, turn, (tuple, outside), rule)
            .ok_or(Reason::LocalPortsExhausted)?,
    };
    (session.local, session.local_port) = (local, port);
    if shares && template.is_none() {
        let new = mapping_of::<F>(&session);
        let id = table.sessions.insert(plan, new).map_err(|_| Reason::SessionsFull)?;
        shared.admission.remember_one();
        template = Some(Flow::new(id, Direction::Inbound));
    }
    session.closing = if template.is_some() { HOLDS } else { 0 };
    let inserted = table.sessions.insert(plan, session);
    if let Some(template) = template {
        hold_mapping(table, shared, plan, template, inserted.is_ok());
    }
    let id = inserted.map_err(|_| Reason::SessionsFull)?;
    shared.began(plan, &session);
    half_open::note_opened(table, plan, &session, id);
    Ok(Flow::new(id, Direction::Inbound))
}

/// One more session shares a template, or would have: one that has [`HOLDS`].
pub(super) fn hold_mapping<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    template: Flow,
    holds: bool,
) {
    let template_at = table.sessions.at_mut(template.id());
    if holds {
        let holders = template_at.holders() + 1;
        template_at.set_holders(holders);
    } else if template_at.holders() == 0 {
        sweep::remove(table, shared, plan, template.id());
    }
}

/// The template of the endpoint that opened a session.
pub(super) fn mapping<F: Parse>(
    table: &Table<F>,
    plan: &Plan,
    session: &SessionOf<F>,
) -> Option<Flow> {
    let [key, _] = Sessions::<F>::keys(plan, &mapping_of::<F>(session))?;
    let key = key?;
    table.sessions.find(plan, table.sessions.hash(&key), &key)
}

/// Whether the key of a session's answers is another's.
fn is_taken<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    now: Time,
    session: &SessionOf<F>,
) -> bool {
    let Some([_, Some(key)]) = Sessions::<F>::keys(plan, session) else { return true };
    !is_free(table, shared, plan, now, &key)
}

/// Whether no session has a key; one that has timed out is ended.
fn is_free<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    now: Time,
    key: &Tuple<F::Addr>,
) -> bool {
    let Some(flow) = table.sessions.find(plan, table.sessions.hash(key), key) else {
        return true;
    };
    let over = expired(table.sessions.slab().at(flow.id()), plan, now);
    if over {
        sweep::expire(table, shared, plan, flow.id());
    }
    over
}

/// A pool address and port for a new session; if there is none, what lingers gives way.
fn pool_port<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    ends: (&Tuple<F::Addr>, RealId),
    rule: &Service,
) -> Option<(LocalId, u16)> {
    let found = free_port(table, shared, turn, ends, rule);
    if found.is_some() || !linger::stop_all_lingering(table, shared, turn.view.plan) {
        return found;
    }
    free_port(table, shared, turn, ends, rule)
}

/// A pool address and port that no endpoint has for itself and that is free towards the
/// outside endpoint.
fn free_port<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    (tuple, outside): (&Tuple<F::Addr>, RealId),
    rule: &Service,
) -> Option<(LocalId, u16)> {
    let (plan, now) = (turn.view.plan, turn.now);
    let range = range_of::<F>(shared, plan, tuple, rule)?;
    let at = outside.0 as usize;
    let mut walk = *shared.ports.walks.get(at)?;
    let chosen = range.choose(&mut walk, |local, dport| {
        let Some(dst) = F::side(plan).local(local) else { return false };
        let protocol = tuple.protocol;
        let own = Tuple { dst, dport, protocol, ..Tuple::default() };
        let towards = Tuple { src: tuple.dst, sport: tuple.dport, ..own };
        is_free(table, shared, plan, now, &own)
            && is_free(table, shared, plan, now, &towards)
            && !turn.others.have::<F>((plan, shared.ports.mixed), local, &F::key(&towards))
    });
    *shared.ports.walks.get_mut(at)? = walk;
    chosen
}

/// Asks for what [`Self::map`] will read, all at once: where the endpoint's template would be,
/// and where the keys of the port that is looked at first.
fn prefetch_map<F: Parse>(
    table: &Table<F>,
    shared: &Shared,
    plan: &Plan,
    tuple: &Tuple<F::Addr>,
    (outside, rule): (RealId, &Service),
) {
    let Tuple { src, sport, dst: far, dport: far_port, protocol } = *tuple;
    let ask = |key: Tuple<F::Addr>| table.sessions.index().prefetch(table.sessions.hash(&key));
    ask(Tuple { src, sport, protocol, ..Tuple::default() });
    let walk = shared.ports.walks.get(outside.0 as usize).copied().unwrap_or_default();
    let first = range_of::<F>(shared, plan, tuple, rule).and_then(|range| range.next(walk));
    let Some((local, dport)) = first else { return };
    let Some(dst) = F::side(plan).local(local) else { return };
    ask(Tuple { dst, dport, protocol, ..Tuple::default() });
    ask(Tuple { src: far, sport: far_port, dst, dport, protocol });
}

/// Lets go of the template of a session that has ended, if it holds one.
pub(super) fn let_go<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    ended: &SessionOf<F>,
) {
    if ended.closing & HOLDS == 0 {
        return;
    }
    let Some(flow) = mapping(table, plan, ended) else { return };
    let template = table.sessions.at_mut(flow.id());
    let holders = template.holders().saturating_sub(1);
    template.set_holders(holders);
    if template.holders() == 0 {
        sweep::remove(table, shared, plan, flow.id());
    }
}

/// The pool addresses and ports that a connection by a rule may get.
fn range_of<'a, F: Family>(
    shared: &Shared,
    plan: &'a Plan,
    tuple: &Tuple<F::Addr>,
    rule: &Service,
) -> Option<local_port::Range<'a>> {
    let pool = plan.pools.get(rule.pool?)?;
    let six = F::to_ip(tuple.dst).is_ipv6();
    Some(pool.range((F::WIDE, six), (shared.worker, shared.workers)))
}

/// The template that a session would share.
pub(super) fn mapping_of<F: Family>(session: &SessionOf<F>) -> SessionOf<F> {
    let core = Core {
        client_port: session.client_port,
        local: session.local,
        local_port: session.local_port,
        state: State::Template,
        seen_ms: session.seen_ms,
        ..Core::default().to(session.real(), session.protocol())
    };
    Session { client: session.client, core, ..Session::default() }
}

/// The first rule that a connection is for, whether there is a route or not: without one, too, the
/// worker that has its session is to drop its packets, and not the kernel to get them.
pub(super) fn rule_for<'a, F: Family>(
    plan: &'a Plan,
    fib: &Fib,
    tuple: &Tuple<F::Addr>,
) -> Option<(ServiceId, &'a Service)> {
    if plan.snat_order.is_empty() || F::side(plan).owns(tuple.dst) {
        return None;
    }
    let (from, to) = (F::to_ip(tuple.src), F::to_ip(tuple.dst));
    let (id, service) = plan.snat_order.iter().find_map(|id| {
        let service = plan.service(*id)?;
        let snat = service.snat.as_ref()?;
        let leaves = || snat.egress.is_none_or(|port| egress(fib, to) == Some(port));
        // Between networks inside nothing is translated, unless a rule says so.
        let stays = snat.destinations.is_empty() && plan.is_inside(to);
        (!stays && snat.matches(tuple.protocol, from, to) && leaves()).then_some((*id, service))
    })?;
    // What is to this machine itself is no connection to the outside.
    (!fib.is_own(to)).then_some((id, service))
}

/// The port that packets to an address leave by.
fn egress(fib: &Fib, to: IpAddr) -> Option<PortId> {
    match fib.lookup(to) {
        Ok(hop) => fib.hop(hop).map(|hop| hop.port),
        Err(NoHop::Unresolved(link, _)) => fib.link(link).map(|link| link.port),
        Err(NoHop::NoRoute) => None,
    }
}
