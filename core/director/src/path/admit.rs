//! First packets: whose they are, and whether and how they open a session.

use super::engine::{Engine, expired};
use super::{Shared, Verdict, View, answer};
use crate::family::{Family, Tuple};
use crate::fib::{HopId, NoHop, PortId};
use crate::frame::Frame;
use crate::local_port;
use crate::plan::{LocalId, RealId, Service, ServiceId};
use crate::reason::Reason;
use crate::schedule;
use crate::session::{Flow, Session, State};
use crate::time::Time;
use sluice_wire::ipv4::TCP;
use sluice_wire::tcp::{ACK, FIN, RST, SYN};

impl<F: Family> Engine<F> {
    /// Decides on a packet that belongs to no session as far as the stages saw: the flow it now
    /// belongs to, or its verdict.
    #[inline(never)]
    pub fn admit<B: Frame>(
        &mut self,
        shared: &mut Shared,
        view: View<'_>,
        now: Time,
        (lane, port): (usize, PortId),
        frame: &mut B,
    ) -> Result<Flow, Verdict> {
        let (parsed, hash) = (self.burst.lanes[lane].parsed, self.burst.lanes[lane].hash);
        let tuple = &parsed.tuple;
        if let Some(flow) = self.sessions.find(view.plan, hash, tuple) {
            if !expired(self.sessions.slab().at(flow.id()), view.plan, now) {
                return Ok(flow);
            }
            self.expire(shared, view.plan, flow.id());
        }
        let side = F::side(view.plan);
        let martian = !F::is_unicast_source(tuple.src) || tuple.src == tuple.dst;
        let Some(service) = side.service_at(tuple.protocol, tuple.dst, tuple.dport) else {
            let pool = view.plan.pool_of(side, tuple.dst);
            return Err(match pool.and_then(|pool| pool.owner(tuple.dport, shared.workers)) {
                None => Verdict::Kernel(Reason::NotOurs),
                Some(owner) if owner != shared.worker => Verdict::Drop(Reason::HandOffLoop),
                Some(_) if martian => Verdict::Drop(Reason::Martian),
                Some(_) => answer::no_session(view.plan, &parsed, port, frame),
            });
        };
        if parsed.ttl <= 1 {
            return Err(Verdict::Drop(Reason::TtlExpired));
        }
        // Before anything is answered: nobody may be answered there (RFC 1122 3.2.1.3).
        if martian {
            return Err(Verdict::Drop(Reason::Martian));
        }
        let Some(state) = opening_state(view, tuple.protocol, parsed.segment.flags) else {
            return Err(answer::no_session(view.plan, &parsed, port, frame));
        };
        self.open(shared, view, now, tuple, (service, state))
    }

    /// Opens a session for the client's packet `tuple`.
    fn open(
        &mut self,
        shared: &mut Shared,
        view: View<'_>,
        now: Time,
        tuple: &Tuple<F::Addr>,
        (service_id, state): (ServiceId, State),
    ) -> Result<Flow, Verdict> {
        let drop = |reason| Verdict::Drop(reason);
        // What would refuse any real server comes first, so that no refusal takes one's turn.
        if self.sessions.slab().live() == self.sessions.slab().capacity() {
            return Err(drop(Reason::SessionsFull));
        }
        let client_hop = view.fib.lookup(F::to_ip(tuple.src));
        if client_hop == Err(NoHop::NoRoute) {
            return Err(drop(Reason::NoRoute));
        }
        let service = view.plan.service(service_id).ok_or(drop(Reason::NoReal))?;
        let memory = shared.schedulers.get_mut(usize::from(service_id.0));
        let real = memory
            .and_then(|memory| schedule::pick(service, memory))
            .ok_or(drop(Reason::NoReal))?;
        if !reachable::<F>(view, real) {
            return Err(drop(Reason::NoRoute));
        }
        let (local, local_port) = self
            .local_port(shared, view, now, tuple.protocol, service, real)
            .ok_or(drop(Reason::LocalPortsExhausted))?;
        let session = Session {
            client: tuple.src,
            client_port: tuple.sport,
            virtual_port: tuple.dport,
            local_port,
            local,
            service: service_id,
            state,
            seen_ms: now.low(),
            client_hop: client_hop.unwrap_or(HopId::NONE).0,
            hop_generation: view.fib.generation(),
            ..Session::towards(real, tuple.protocol)
        };
        let id =
            self.sessions.insert(view.plan, session).map_err(|_| drop(Reason::SessionsFull))?;
        shared.counters.created += 1;
        if let Some(counters) = shared.counters.reals.get_mut(real.0 as usize) {
            counters.sessions += 1;
            counters.active += 1;
        }
        Ok(Flow::new(id, crate::counters::Direction::Inbound))
    }

    /// A free local address and port towards a real server.
    fn local_port(
        &mut self,
        shared: &mut Shared,
        view: View<'_>,
        now: Time,
        protocol: u8,
        service: &Service,
        real: RealId,
    ) -> Option<(LocalId, u16)> {
        let pool = view.plan.pools.get(service.pool)?;
        let side = F::side(view.plan);
        let (src, sport) = side.real(real)?;
        let at = real.0 as usize;
        let active = shared.counters.reals.get(at)?.active;
        let mut cursor = *shared.port_cursors.get(at)?;
        let workers = (shared.worker, shared.workers);
        let chosen = local_port::choose(pool, workers, &mut cursor, active, |local, port| {
            let Some(dst) = side.local(local) else { return false };
            let tuple = Tuple { src, dst, sport, dport: port, protocol };
            let taken = self.sessions.find(view.plan, self.sessions.hash(&tuple), &tuple);
            let Some(flow) = taken else { return true };
            let over = expired(self.sessions.slab().at(flow.id()), view.plan, now);
            if over {
                self.expire(shared, view.plan, flow.id());
            }
            over
        });
        *shared.port_cursors.get_mut(at)? = cursor;
        // What the next session will look at is known, and can be on its way until then.
        if let Some((local, dport)) = local_port::next(pool, workers, cursor)
            && let Some(dst) = side.local(local)
        {
            let tuple = Tuple { src, dst, sport, dport, protocol };
            self.sessions.index().prefetch(self.sessions.hash(&tuple));
        }
        chosen
    }
}

/// Whether there is a route to a real server, its MAC known or not.
fn reachable<F: Family>(view: View<'_>, real: RealId) -> bool {
    view.fib.real_hop(real) != HopId::NONE
        || F::side(view.plan)
            .real(real)
            .is_some_and(|(address, _)| view.fib.lookup(F::to_ip(address)) != Err(NoHop::NoRoute))
}

/// The state of a session that a packet may open, or `None` when it may not.
fn opening_state(view: View<'_>, protocol: u8, flags: u8) -> Option<State> {
    if protocol != TCP {
        return Some(State::Udp);
    }
    match flags & (SYN | ACK | RST | FIN) {
        SYN => Some(State::SynRecv),
        other if view.plan.accept_mid_stream && other & (SYN | RST | FIN) == 0 => {
            Some(State::Established)
        }
        _ => None,
    }
}
