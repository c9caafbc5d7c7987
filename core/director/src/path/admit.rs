//! First packets: whose they are, and whether they may open a session.

use super::burst::Lane;
use super::parse::Parse;
use super::shared::Statistics;
use super::sweep::timed_out;
use super::table::Table;
use super::turn::{Outcome, Turn};
use super::{
    Shared, Verdict, View, answer, gateway, hairpin, linger, open, snat, source_route, sweep,
};
use crate::counters::Direction;
use crate::family::{Family, Tuple};
use crate::frame::Frame;
use crate::plan::{Plan, ServiceId};
use crate::reason::Reason;
use crate::session::{Flow, State};
use crate::spec::Orphans;
use crate::track::{self, Segment};
use sluice_wire::ipv4::{ICMP, SCTP, TCP, UDP};
use sluice_wire::ipv6::ICMPV6;
use sluice_wire::tcp::{ACK, FIN, RST, SYN};

/// What becomes of a packet whose session was found.
enum Found {
    /// It belongs to it.
    Flow(Flow),
    /// The session is over now; the packet may open another, also from the middle of a stream.
    Over { mid_stream: bool },
    /// It goes no further.
    Is(Verdict),
}

/// Decides on a packet with this tuple that belongs to no session as far as the stages saw: the
/// flow it now belongs to, or what becomes of it.
#[inline(never)]
pub(super) fn admit<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
) -> Result<Flow, Outcome> {
    let plan = turn.view.plan;
    let Lane { hash, frame: at_frame, ref parsed, .. } = *lane;
    let tuple = &parsed.tuple;
    let (ttl, segment) = (parsed.ttl, parsed.segment);
    let routed = source_route::is_in::<F, B>(parsed, frame);
    let vacancy = table.sessions.vacancy(hash);
    if vacancy.is_none()
        && let Some(flow) = table.sessions.find(plan, hash, tuple)
    {
        if routed {
            return Err(Outcome::Is(Verdict::Drop(Reason::SourceRoute)));
        }
        match found(table, lane, shared, turn, flow, frame) {
            Found::Flow(flow) => return Ok(flow),
            Found::Over { mid_stream: true } => shared.resume(at_frame),
            Found::Over { mid_stream: false } => {}
            Found::Is(verdict) => return Err(Outcome::Is(verdict)),
        }
    }
    let service = F::side(plan).service_at(tuple.protocol, tuple.dst, tuple.dport);
    let refused = improper::<F>(tuple, routed);
    let Some(service) = service else {
        return stranger(table, lane, shared, turn, frame, refused);
    };
    if ttl <= 1 {
        return Err(Outcome::Refuse(Reason::TtlExpired));
    }
    // Before anything is answered: nobody may be answered there (RFC 1122 3.2.1.3).
    let link_local = F::is_link_local(tuple.src).then_some(Reason::LinkLocal);
    if let Some(reason) = refused.or(link_local) {
        return Err(shared.statistics.refused_by(service, Verdict::Drop(reason)));
    }
    // Before it is asked what the packet may open: what follows the first belongs there too.
    let opens = tuple.protocol == TCP && segment.flags & (SYN | ACK) == SYN;
    if shared.workers > 1
        && let Some(worker) = shared.next_stop::<F>(plan, service, tuple, (at_frame, opens))
    {
        return Err(Outcome::Is(Verdict::HandOff(worker)));
    }
    let mid_stream = plan.accept_mid_stream || shared.may_resume(at_frame);
    let state = opening_state(plan, service, tuple.protocol, segment, mid_stream);
    let Some(state) = state else {
        let parsed = &lane.parsed;
        return Err(shared
            .statistics
            .refused_by(service, answer::no_session(plan, parsed, turn.port, frame)));
    };
    let entry = vacancy.unwrap_or(hash.into());
    let opened = match open::open(table, shared, turn, (tuple, entry), (service, state)) {
        Ok(opened) => opened,
        Err(verdict) => {
            let verdict = answer::refuse_connection::<F, B>(lane, shared, turn, frame, verdict);
            return Err(shared.statistics.refused_by(service, verdict));
        }
    };
    track::begin(table.sessions.at_mut(opened.id()), segment);
    Ok(opened)
}

/// A packet of a session that the stages did not take: the session may be over, or its real
/// server gone, or the hint was wrong.
fn found<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    flow: Flow,
    frame: &mut B,
) -> Found {
    let (plan, id) = (turn.view.plan, flow.id());
    let parsed = &lane.parsed;
    let session = table.sessions.slab().at(id);
    if timed_out(session, plan, turn.now) {
        sweep::expire(table, shared, plan, id);
        return Found::Over { mid_stream: false };
    }
    let idle_ms = session.idle_ms(turn.now);
    let real = plan.real(session.real());
    let past = real.is_some_and(|real| real.forwarding.answers_past());
    if track::is_reuse(session, flow.direction(), past, parsed.segment, idle_ms) {
        linger::replace(table, shared, plan, id);
        return Found::Over { mid_stream: false };
    }
    let ended = session.state == State::Ended;
    let rule = plan.real(session.real()).map_or(Orphans::Reset, |real| real.orphans);
    if rule == Orphans::Keep {
        return Found::Flow(flow);
    }
    if ended {
        sweep::remove(table, shared, plan, id);
        return Found::Over { mid_stream: false };
    }
    let service = plan.service_of(session).unwrap_or_default();
    // The client is to hear of it, so that what the real server still sends ends nothing.
    if flow.direction() == Direction::Outbound {
        let verdict = Verdict::Drop(Reason::RealGone);
        shared.statistics.charge(service, verdict);
        return Found::Is(verdict);
    }
    sweep::remove(table, shared, plan, id);
    shared.statistics.counters.closed += 1;
    if rule == Orphans::Reschedule {
        return Found::Over { mid_stream: true };
    }
    let parsed = lane.parsed;
    let verdict = answer::real_gone(&parsed, turn.port, frame);
    shared.statistics.charge(service, verdict);
    Found::Is(verdict)
}

/// A packet that is to no service; `refused` is why it may not be forwarded at all.
fn stranger<F: Parse, B: Frame>(
    table: &mut Table<F>,
    lane: &Lane<F::Addr>,
    shared: &mut Shared,
    turn: Turn<'_>,
    frame: &mut B,
    refused: Option<Reason>,
) -> Result<Flow, Outcome> {
    let View { plan, .. } = turn.view;
    let parsed = lane.parsed;
    let (tuple, side) = (&parsed.tuple, F::side(plan));
    let is = |verdict| Err(Outcome::Is(verdict));
    // Who answers to a local port is looked for in the other table too.
    if !F::WIDE && plan.wide_v4 {
        return Err(Outcome::Wide);
    }
    let place = lane.frame;
    let hairpinned = shared.is_hairpinned(place);
    if let Some(rule) = hairpin::rule_for::<F>(plan, tuple).filter(|_| !hairpinned) {
        return hairpin::open_towards_inside(table, lane, shared, turn, rule, refused);
    }
    let pool = plan.pool_of(side, tuple.dst);
    match pool.and_then(|pool| pool.owner(tuple.dport, shared.workers)) {
        None => {}
        Some(owner) if owner != shared.worker => {
            return is(Verdict::Drop(Reason::HandOffLoop));
        }
        Some(_) if hairpinned => return hairpin::open_from_inside(table, lane, shared, turn),
        Some(_) => {
            let no_session = || answer::no_session(plan, &parsed, turn.port, frame);
            return is(refused.map_or_else(no_session, Verdict::Drop));
        }
    }
    let to_prober = plan.sends_probes(F::to_ip(tuple.dst));
    if F::WIDE && !to_prober {
        return snat::open_outside(table, lane, shared, turn, refused);
    }
    // Another worker may have the probe's own session, by NAT.
    match shared.next_stop_of_stranger::<F>(plan, None, tuple, place) {
        Some(worker) => is(Verdict::HandOff(worker)),
        None if to_prober => is(gateway::to_prober(turn.view, frame)),
        None => is(Verdict::Kernel(Reason::NotOurs)),
    }
}

impl Statistics {
    /// Counts what becomes of a packet of a service under the service too, if it is dropped, or
    /// answered, for a reason that services count. Packets that are forwarded never come here.
    #[cold]
    fn charge(&mut self, service: ServiceId, verdict: Verdict) {
        let (Verdict::Drop(reason) | Verdict::Answer(_, reason)) = verdict else { return };
        if let Some(drops) = self.counters.services.get_mut(usize::from(service.0)) {
            drops.count(reason);
        }
    }

    /// The outcome of a packet that opens no session of a service, which counts it.
    #[cold]
    fn refused_by(&mut self, service: ServiceId, verdict: Verdict) -> Outcome {
        self.charge(service, verdict);
        Outcome::Is(verdict)
    }
}

/// Why a packet of no session may not go on, whoever it is for.
fn improper<F: Family>(tuple: &Tuple<F::Addr>, source_routed: bool) -> Option<Reason> {
    if !F::is_unicast_source(tuple.src) || tuple.src == tuple.dst {
        return Some(Reason::Martian);
    }
    source_routed.then_some(Reason::SourceRoute)
}

/// The state of a session that a packet may open, or `None` when it may not.
pub(super) fn opening_state(
    plan: &Plan,
    service: ServiceId,
    protocol: u8,
    segment: Segment,
    mid_stream: bool,
) -> Option<State> {
    let flags = segment.flags;
    match protocol {
        TCP => match flags & (SYN | ACK | RST | FIN) {
            SYN => Some(State::SynRecv),
            other if mid_stream && other & (SYN | RST | FIN) == 0 => Some(State::Established),
            _ => None,
        },
        UDP if plan.service(service).is_some_and(|s| s.one_packet) => Some(State::OnePacket),
        UDP => Some(State::UdpNew),
        SCTP => track::sctp::opens(segment, mid_stream).then_some(State::Sctp),
        // An answer that nobody waits for opens nothing.
        ICMP | ICMPV6 => (flags & ACK == 0).then_some(State::Icmp),
        _ => Some(State::Other),
    }
}
