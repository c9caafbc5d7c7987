//! Opening a session: limits, persistence, scheduler, local port, insertion.

use super::engine::{Engine, Turn};
use super::parse::Parse;
use super::sweep::expired;
use super::{Shared, Verdict, View};
use crate::blueprint::{HashKey, Mode, Scheduling};
use crate::counters::Direction;
use crate::family::Tuple;
use crate::fib::{HopId, NoHop};
use crate::local_port;
use crate::plan::{LocalId, Plan, RealId, Service, ServiceId};
use crate::reason::Reason;
use crate::schedule::{Refused, stable_hash};
use crate::session::{Core, Flow, Session, SessionOf, Sessions, State};
use crate::time::Time;
use sluice_lanes::prefetch;

/// Protocol number of templates: one that no packet of a session has (RFC 3692 experiments).
pub(super) const TEMPLATE: u8 = 254;
/// Real servers that are asked for in turn when a session towards one cannot be told from another.
const TRIES: u32 = 4;

impl<F: Parse> Engine<F> {
    /// Opens a session for the client's packet `tuple`, whose hash is this.
    pub fn open(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        (tuple, hash): (&Tuple<F::Addr>, u64),
        (id, state): (ServiceId, State),
    ) -> Result<Flow, Verdict> {
        let Turn { view, now, .. } = turn;
        let drop = |reason| Verdict::Drop(reason);
        // What would refuse any real server comes first, so that no refusal takes one's turn.
        let service = view.plan.service(id).ok_or(drop(Reason::NoReal))?;
        let client = F::to_ip(tuple.src);
        if service.clients.as_ref().is_some_and(|clients| !clients.admits(client)) {
            return Err(drop(Reason::ClientDenied));
        }
        if shared.live >= shared.capacity {
            return Err(drop(Reason::SessionsFull));
        }
        let client_hop = view.fib.lookup(F::to_ip(tuple.src));
        let answers = matches!(service.mode, Mode::Fnat | Mode::Nat);
        if answers && client_hop == Err(NoHop::NoRoute) {
            return Err(drop(Reason::NoRoute));
        }
        let probed = view.plan.probed(service, (F::to_ip(tuple.src), tuple.sport));
        if probed.is_none() {
            shared.within_limits(service, id, now).map_err(drop)?;
        }
        let core = Core {
            client_port: tuple.sport,
            virtual_port: tuple.dport,
            service: id,
            state,
            seen_ms: now.low(),
            client_hop: client_hop.unwrap_or(HopId::NONE).0,
            hop_generation: view.fib.generation(),
            ..Core::default()
        };
        for _ in 0..TRIES {
            let real = match probed {
                Some(real) => real,
                None => self.choose(shared, turn, tuple, (id, service)).map_err(drop)?,
            };
            let core = core.to(real, tuple.protocol);
            let session = Session { client: tuple.src, core, ..Session::default() };
            match self.insert(shared, turn, (session, hash), service) {
                Ok(flow) if probed.is_some() => return Ok(flow),
                Ok(flow) => {
                    self.remember(shared, view.plan, now, &session, service);
                    shared.used_up(id);
                    return Ok(flow);
                }
                Err(Reason::NatConflict) => {}
                Err(reason) => return Err(drop(reason)),
            }
        }
        Err(drop(Reason::NatConflict))
    }

    /// The real server for a client's new session.
    fn choose(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        tuple: &Tuple<F::Addr>,
        (id, service): (ServiceId, &Service),
    ) -> Result<RealId, Reason> {
        let Turn { view: View { plan, .. }, now, .. } = turn;
        if let Some(real) = self.remembered(shared, plan, now, tuple, (id, service)) {
            return if reachable(turn.view, real) { Ok(real) } else { Err(Reason::NoRoute) };
        }
        let (address, port) = match (service.scheduler, service.hash) {
            (Scheduling::Dh, _) => (tuple.dst, 0),
            (_, HashKey::Client) => (tuple.src, 0),
            (_, HashKey::ClientPort) => (tuple.src, tuple.sport),
        };
        // Only few schedulers look at endpoints.
        let key = if service.table.is_some() {
            stable_hash(F::to_ip(address), port, plan.hash_seed)
        } else {
            0
        };
        let real = shared.schedulers.pick(plan, id, key, now).map_err(|why| match why {
            Refused::NoReal => Reason::NoReal,
            Refused::AllFull => Reason::RealsFull,
        })?;
        if !reachable(turn.view, real) {
            return Err(Reason::NoRoute);
        }
        Ok(real)
    }

    /// Gives a session its local port if it needs one, and adds it.
    fn insert(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        (mut session, hash): (SessionOf<F>, u64),
        service: &Service,
    ) -> Result<Flow, Reason> {
        let (plan, now, real) = (turn.view.plan, turn.now, session.real());
        let mode = F::side(plan).real(real).ok_or(Reason::NoReal)?.mode;
        let mut answers = None;
        if mode == Mode::Fnat {
            let (local, port, hash) = self
                .local_port(shared, turn, &session, service)
                .ok_or(Reason::LocalPortsExhausted)?;
            (session.local, session.local_port) = (local, port);
            answers = Some(hash);
        } else if mode == Mode::Nat {
            let hash = self.free_answers(shared, plan, now, &session)?;
            answers = Some(hash);
        }
        // A one-packet session is for no other packet of the client.
        let hash = Some(hash).filter(|_| session.state != State::OnePacket);
        let inserted = self.sessions.insert_by(session, [hash, answers]);
        let id = inserted.map_err(|_| Reason::SessionsFull)?;
        shared.began(&session);
        // What the next session will be written to can be on its way until then.
        if let Some(next) = self.sessions.slab().next_slot() {
            prefetch::read(next);
        }
        Ok(Flow::new(id, Direction::Inbound))
    }

    /// The hash of the key by which a new session's answers are found, if no other has it.
    fn free_answers(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        now: Time,
        session: &SessionOf<F>,
    ) -> Result<u64, Reason> {
        let keys = Sessions::<F>::keys(plan, session);
        let [_, Some(key)] = keys.ok_or(Reason::NoReal)? else { return Err(Reason::NoReal) };
        let hash = self.sessions.hash(&key);
        let Some(taken) = self.sessions.find(plan, hash, &key) else { return Ok(hash) };
        let over = expired(self.sessions.slab().at(taken.id()), plan, now);
        // A one-packet session that is asked again goes on.
        let again = session.state == State::OnePacket
            && self.sessions.slab().at(taken.id()).state == State::OnePacket;
        if !again && !over {
            return Err(Reason::NatConflict);
        }
        self.expire(shared, plan, taken.id());
        Ok(hash)
    }

    /// A free local address and port towards a real server, and the hash of the key by which
    /// answers to them are found.
    fn local_port(
        &mut self,
        shared: &mut Shared,
        turn: Turn<'_>,
        session: &SessionOf<F>,
        service: &Service,
    ) -> Option<(LocalId, u16, u64)> {
        let Turn { view, now, .. } = turn;
        let pool = view.plan.pools.get(service.pool?)?;
        let (side, at) = (F::side(view.plan), session.real().0 as usize);
        let real = side.real(session.real())?;
        let (src, sport) = (F::wire(real.wire_address), real.port_for(session.virtual_port));
        let protocol = session.protocol();
        let six = F::to_ip(src).is_ipv6();
        let locals = &pool.locals[usize::from(six)];
        let share = pool.share_of((F::WIDE, six), (shared.worker, shared.workers));
        let range = local_port::Range { locals, first_port: pool.first_port, share };
        let (mut walk, mut hash) = (*shared.walks.get(at)?, 0);
        let chosen = range.choose(&mut walk, |local, port| {
            let Some(dst) = side.local(local) else { return false };
            let tuple = Tuple { src, dst, sport, dport: port, protocol };
            if turn.others.have::<F>(view.plan, local, &tuple) {
                return false;
            }
            hash = self.sessions.hash(&tuple);
            let taken = self.sessions.find(view.plan, hash, &tuple);
            let Some(flow) = taken else { return true };
            let over = expired(self.sessions.slab().at(flow.id()), view.plan, now);
            if over {
                self.expire(shared, view.plan, flow.id());
            }
            over
        });
        *shared.walks.get_mut(at)? = walk;
        // What the next session will look at is known, and can be on its way until then.
        if let Some((local, dport)) = range.next(walk)
            && let Some(dst) = side.local(local)
        {
            let tuple = Tuple { src, dst, sport, dport, protocol };
            self.sessions.index().prefetch(self.sessions.hash(&tuple));
        }
        let (local, port) = chosen?;
        Some((local, port, hash))
    }

    /// The key of a client's template.
    fn template(service: ServiceId, client: F::Addr, vip: F::Addr) -> Tuple<F::Addr> {
        // No packet has this: one without ports has zeros.
        Tuple { src: client, dst: vip, sport: service.0, dport: u16::MAX, protocol: TEMPLATE }
    }

    /// The real server that a client's earlier sessions went to.
    fn remembered(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        now: Time,
        tuple: &Tuple<F::Addr>,
        (id, service): (ServiceId, &Service),
    ) -> Option<RealId> {
        let persistence = service.persistence?;
        let client = F::masked(tuple.src, persistence.prefix);
        let key = Self::template(id, client, F::side(plan).vip(id)?);
        let flow = self.sessions.find(plan, self.sessions.hash(&key), &key)?;
        let template = self.sessions.slab().at(flow.id());
        let real = template.real();
        let good = !expired(template, plan, now)
            && F::side(plan).real(real).is_some_and(|real| real.goes_on(true))
            && shared.schedulers.is_eligible(real);
        if good {
            return Some(real);
        }
        self.remove(shared, plan, flow.id());
        None
    }

    /// The real server that persistence has for a packet's sender; nothing changes by asking.
    pub(super) fn template_of(
        &self,
        plan: &Plan,
        now: Time,
        tuple: &Tuple<F::Addr>,
        id: ServiceId,
    ) -> Option<RealId> {
        let persistence = plan.service(id)?.persistence?;
        let client = F::masked(tuple.src, persistence.prefix);
        let key = Self::template(id, client, F::side(plan).vip(id)?);
        let flow = self.sessions.find(plan, self.sessions.hash(&key), &key)?;
        let template = self.sessions.slab().at(flow.id());
        (!expired(template, plan, now)).then(|| template.real())
    }

    /// Remembers where a client's session went.
    fn remember(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        now: Time,
        session: &SessionOf<F>,
        service: &Service,
    ) {
        let Some(persistence) = service.persistence else { return };
        let client = F::masked(session.client, persistence.prefix);
        let Some(vip) = F::side(plan).vip(session.service) else { return };
        let key = Self::template(session.service, client, vip);
        if let Some(flow) = self.sessions.find(plan, self.sessions.hash(&key), &key) {
            self.sessions.at_mut(flow.id()).seen_ms = now.low();
            return;
        }
        let core = Core {
            client_port: key.sport,
            virtual_port: key.dport,
            service: session.service,
            state: State::Template,
            seen_ms: now.low(),
            ..Core::default().to(session.real(), TEMPLATE)
        };
        let template = Session { client, core, ..Session::default() };
        // Without room for it the client's next session is scheduled anew.
        if shared.live < shared.capacity && self.sessions.insert(plan, template).is_ok() {
            (shared.live, shared.templates) = (shared.live + 1, shared.templates + 1);
            if let Some(counters) = shared.counters.reals.get_mut(session.real().0 as usize) {
                counters.bound += 1;
            }
        }
    }
}

impl Shared {
    /// Whether a service may have one more session now.
    fn within_limits(&mut self, service: &Service, id: ServiceId, now: Time) -> Result<(), Reason> {
        let (workers, at) = (u32::from(self.workers), usize::from(id.0));
        let Some(usage) = self.usage.get_mut(at) else { return Ok(()) };
        let share = |limit: u32| limit.div_ceil(workers);
        if service.max_sessions != 0 && usage.active >= share(service.max_sessions) {
            return Err(Reason::ServiceFull);
        }
        if service.max_new_per_s != 0 && !usage.rate.allows(share(service.max_new_per_s), now) {
            return Err(Reason::ServiceRate);
        }
        Ok(())
    }

    /// A session of a service was opened that its rate counts.
    fn used_up(&mut self, id: ServiceId) {
        if let Some(usage) = self.usage.get_mut(usize::from(id.0)) {
            usage.rate.take();
        }
    }

    /// Counts a session that has begun.
    pub(super) fn began(&mut self, session: &Core) {
        self.live += 1;
        self.counters.created += 1;
        let real = session.real();
        if let Some(counters) = self.counters.reals.get_mut(real.0 as usize) {
            counters.sessions += 1;
            counters.active += 1;
            // In the middle of a connection: who takes part in it has shaken hands.
            let established = session.state == State::Established;
            counters.handshakes += u64::from(established);
            counters.established += u32::from(established);
        }
        if let Some(usage) = self.usage.get_mut(usize::from(session.service.0)) {
            usage.active += 1;
        }
        self.schedulers.opened(real);
    }

    /// Counts a session that has ended.
    pub(super) fn ended(&mut self, session: &Core) {
        self.live -= 1;
        let real = session.real();
        let counters = self.counters.reals.get_mut(real.0 as usize);
        if session.state == State::Template {
            self.templates -= 1;
            if let Some(counters) = counters.filter(|_| session.protocol() == TEMPLATE) {
                counters.bound = counters.bound.saturating_sub(1);
            }
            return;
        }
        if let Some(counters) = counters {
            counters.active = counters.active.saturating_sub(1);
            let established = u32::from(session.state == State::Established);
            counters.established = counters.established.saturating_sub(established);
            let closing = u32::from(session.state.is_closing());
            counters.closing = counters.closing.saturating_sub(closing);
        }
        if let Some(usage) = self.usage.get_mut(usize::from(session.service.0)) {
            usage.active = usage.active.saturating_sub(1);
        }
        self.schedulers.closed(real);
    }
}

/// Whether there is a route to a real server, its MAC known or not.
fn reachable(view: View<'_>, real: RealId) -> bool {
    view.fib.real_hop(real) != HopId::NONE
        || view.plan.real(real).is_some_and(|r| view.fib.lookup(r.address) != Err(NoHop::NoRoute))
}
