//! First packets: whose they are, and whether they may open a session.

use super::engine::{Engine, Outcome, Turn, expired};
use super::parse::Parse;
use super::{Shared, Verdict, View, answer};
use crate::blueprint::Orphans;
use crate::counters::Direction;
use crate::family::{Family, Ipv4, Tuple};
use crate::frame::Frame;
use crate::plan::{Plan, ServiceId};
use crate::reason::Reason;
use crate::session::{Flow, State};
use crate::track;
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

impl<F: Parse> Engine<F> {
    /// Decides on a packet that belongs to no session as far as the stages saw: the flow it now
    /// belongs to, or what becomes of it.
    #[inline(never)]
    pub fn admit<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        lane: usize,
        frame: &mut B,
    ) -> Result<Flow, Outcome> {
        let plan = turn.view.plan;
        let (parsed, hash) = (self.burst.lanes[lane].parsed, self.burst.lanes[lane].hash);
        let tuple = &parsed.tuple;
        let mut mid_stream = plan.accept_mid_stream;
        if let Some(flow) = self.sessions.find(plan, hash, tuple) {
            match self.found(shared, turn, lane, flow, frame) {
                Found::Flow(flow) => return Ok(flow),
                Found::Over { mid_stream: any } => mid_stream |= any,
                Found::Is(verdict) => return Err(Outcome::Is(verdict)),
            }
        }
        let side = F::side(plan);
        if shared.workers > 1
            && let Some(owner) = shared.former_owner::<F>(plan, tuple)
        {
            return Err(Outcome::Is(Verdict::HandOff(owner)));
        }
        let martian = !F::is_unicast_source(tuple.src) || tuple.src == tuple.dst;
        let Some(service) = side.service_at(tuple.protocol, tuple.dst, tuple.dport) else {
            return self.stranger(shared, turn, lane, frame, martian);
        };
        if parsed.ttl <= 1 {
            return Err(Outcome::Refuse(Reason::TtlExpired));
        }
        // Before anything is answered: nobody may be answered there (RFC 1122 3.2.1.3).
        if martian {
            return Err(Outcome::Is(Verdict::Drop(Reason::Martian)));
        }
        // Before it is asked what the packet may open: what follows the first belongs there too.
        if let Some(owner) = shared.other_owner::<F>(plan, service, tuple.src, tuple.sport) {
            return Err(Outcome::Is(Verdict::HandOff(owner)));
        }
        let state = opening_state(plan, service, tuple.protocol, parsed.segment.flags, mid_stream);
        let Some(state) = state else {
            return Err(Outcome::Is(answer::no_session(plan, &parsed, turn.port, frame)));
        };
        self.open(shared, turn, tuple, (service, state)).map_err(Outcome::Is)
    }

    /// A packet of a session that the stages did not take: the session may be over, or its real
    /// server gone, or the hint was wrong.
    fn found<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        lane: usize,
        flow: Flow,
        frame: &mut B,
    ) -> Found {
        let (plan, id) = (turn.view.plan, flow.id());
        let parsed = &self.burst.lanes[lane].parsed;
        let session = self.sessions.slab().at(id);
        if expired(session, plan, turn.now) {
            self.expire(shared, plan, id);
            return Found::Over { mid_stream: false };
        }
        if track::is_reuse(session, flow.direction(), parsed.segment) {
            self.remove(shared, plan, id);
            shared.counters.closed += 1;
            return Found::Over { mid_stream: false };
        }
        let rule = plan.real(session.real()).map_or(Orphans::Reset, |real| real.orphans);
        if rule == Orphans::Keep {
            return Found::Flow(flow);
        }
        // The client is to hear of it, so that what the real server still sends ends nothing.
        if flow.direction() == Direction::Outbound {
            return Found::Is(Verdict::Drop(Reason::RealGone));
        }
        self.remove(shared, plan, id);
        shared.counters.closed += 1;
        if rule == Orphans::Reschedule {
            return Found::Over { mid_stream: true };
        }
        let parsed = self.burst.lanes[lane].parsed;
        Found::Is(answer::real_gone(&parsed, turn.port, frame))
    }

    /// A packet that is to no service.
    fn stranger<B: Frame>(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        lane: usize,
        frame: &mut B,
        martian: bool,
    ) -> Result<Flow, Outcome> {
        let View { plan, .. } = turn.view;
        let parsed = self.burst.lanes[lane].parsed;
        let (tuple, side) = (&parsed.tuple, F::side(plan));
        let is = |verdict| Err(Outcome::Is(verdict));
        // Who answers to a local port is looked for in the other table too.
        if !F::WIDE && plan.wide_v4 {
            return Err(Outcome::Wide);
        }
        let pool = plan.pool_of(side, tuple.dst);
        match pool.and_then(|pool| pool.owner(tuple.dport, shared.workers)) {
            None => {}
            Some(owner) if owner != shared.worker => {
                return is(Verdict::Drop(Reason::HandOffLoop));
            }
            Some(_) if martian => return is(Verdict::Drop(Reason::Martian)),
            Some(_) => return is(answer::no_session(plan, &parsed, turn.port, frame)),
        }
        if let Some(Some(owner)) = shared.nat_owner::<F>(plan, tuple) {
            return is(Verdict::HandOff(owner));
        }
        if F::WIDE {
            return self.open_outside(shared, turn, lane);
        }
        is(Verdict::Kernel(Reason::NotOurs))
    }
}

impl Shared {
    /// The worker that may have a session for a packet which belongs to no service that is there
    /// now, or to one that came since: one of a service that was, or of a wider one. A packet goes
    /// first to such a worker, and from there, if there is no session, to where new ones belong.
    fn former_owner<F: Family>(&self, plan: &Plan, tuple: &Tuple<F::Addr>) -> Option<u16> {
        let side = F::side(plan);
        let now = side.service_at(tuple.protocol, tuple.dst, tuple.dport);
        let is_owned = |id| plan.service(id).is_some_and(|service| service.owned);
        let owner = |id| self.other_owner::<F>(plan, id, tuple.src, tuple.sport);
        // The last one to ask.
        if now.is_some_and(|id| is_owned(id) && owner(id).is_none()) {
            return None;
        }
        let others = side.owned_at(tuple.protocol, tuple.dst, tuple.dport);
        let mut first = None;
        for id in others.filter(|id| Some(*id) != now) {
            // Asked already.
            first = Some(owner(id)?);
        }
        first
    }

    /// Of a packet that may be a real server's answer by NAT: the worker that has the session if it
    /// has one, `Some(None)` when that is this one. The wide table is asked last, and so asks for
    /// the services of the other too.
    pub(super) fn nat_owner<F: Family>(
        &self,
        plan: &Plan,
        tuple: &Tuple<F::Addr>,
    ) -> Option<Option<u16>> {
        if let Some(id) = F::side(plan).nat_service(tuple.protocol, tuple.src, tuple.sport) {
            return Some(self.other_owner::<F>(plan, id, tuple.dst, tuple.dport));
        }
        let v4 = tuple.map(|address| Ipv4::from_ip(F::to_ip(address)));
        let (src, dst) = (v4.src.filter(|_| F::WIDE)?, v4.dst?);
        let id = plan.v4.nat_service(tuple.protocol, src, tuple.sport)?;
        Some(self.other_owner::<Ipv4>(plan, id, dst, tuple.dport))
    }

    /// The worker that a client's sessions of a service belong to, if that is not any that meets
    /// them and not this one. Both directions of a session lead to the same one.
    pub(super) fn other_owner<F: Family>(
        &self,
        plan: &Plan,
        service: ServiceId,
        client: F::Addr,
        port: u16,
    ) -> Option<u16> {
        if self.workers < 2 {
            return None;
        }
        let service = plan.service(service).filter(|service| service.owned)?;
        let tuple = match service.persistence {
            Some(persistence) => {
                let src = F::masked(client, persistence.prefix);
                Tuple { src, ..Tuple::default() }
            }
            None => Tuple { src: client, sport: port, ..Tuple::default() },
        };
        // Every worker has the same seed.
        let hash = F::hash(&tuple, &self.seed) >> 32;
        let owner = ((hash * u64::from(self.workers)) >> 32) as u16;
        (owner != self.worker).then_some(owner)
    }
}

/// The state of a session that a packet may open, or `None` when it may not.
pub(super) fn opening_state(
    plan: &Plan,
    service: ServiceId,
    protocol: u8,
    flags: u8,
    mid_stream: bool,
) -> Option<State> {
    match protocol {
        TCP => match flags & (SYN | ACK | RST | FIN) {
            SYN => Some(State::SynRecv),
            other if mid_stream && other & (SYN | RST | FIN) == 0 => Some(State::Established),
            _ => None,
        },
        UDP if plan.service(service).is_some_and(|s| s.one_packet) => Some(State::OnePacket),
        UDP => Some(State::Udp),
        // What ends an association opens none.
        SCTP => (flags & RST == 0).then_some(State::Sctp),
        // An answer that nobody waits for opens nothing.
        ICMP | ICMPV6 => (flags & ACK == 0).then_some(State::Icmp),
        _ => Some(State::Other),
    }
}
