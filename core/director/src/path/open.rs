//! Opening a session: limits, persistence, scheduler, local port, insertion.

use super::evict::Holders;
use super::parse::Parse;
use super::rate::Usage;
use super::shared::Admission;
use super::sweep::expired;
use super::table::Table;
use super::turn::Turn;
use super::{Shared, Verdict, View, evict, half_open, persist, sweep};
use crate::counters::Direction;
use crate::family::Tuple;
use crate::fib::{HopId, NoHop};
use crate::key::{self, Key};
use crate::local_port;
use crate::plan::{LocalId, Plan, RealId, Service, ServiceId};
use crate::reason::Reason;
use crate::schedule::{Refused, stable_hash};
use crate::session::{Core, Entry, Flow, Session, SessionOf, State};
use crate::spec::{HashKey, Hashes};
use crate::time::Time;
use crate::track;
use sluice_lanes::level::LANES;
use sluice_lanes::prefetch;

/// Protocol number of templates: one that no packet of a session has (RFC 3692 experiments).
pub(super) const TEMPLATE: u8 = 254;
/// Real servers that are asked for in turn when a session towards one cannot be told from another.
const TRIES: u32 = 4;

/// Opens a session for the client's packet `tuple`, which is to be found by `entry`.
pub(super) fn open<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    (tuple, entry): (&Tuple<F::Addr>, Entry),
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
    let client_hop = view.fib.lookup_near(client, &mut table.near);
    let answers = !service.forwarding.answers_past();
    if answers && client_hop == Err(NoHop::NoRoute) {
        return Err(drop(Reason::NoRoute));
    }
    let probed = view.plan.probed(service, (client, tuple.sport));
    shared.admission.load.comes(entry.hash);
    if probed.is_none() {
        match shared.within_limits(service, id, now) {
            Err(Reason::ServiceFull) => {
                evict::evict_at_limit(table, shared, view.plan, id).map_err(drop)?;
                shared.within_limits(service, id, now)
            }
            other => other,
        }
        .map_err(drop)?;
    }
    evict::make_room(table, shared, view.plan, id).map_err(drop)?;
    let core = Core {
        client_port: tuple.sport,
        virtual_port: tuple.dport,
        state,
        seen_ms: now.low(),
        client_hop: client_hop.unwrap_or(HopId::NONE).0,
        hop_generation: view.fib.generation(),
        ..Core::default()
    };
    let mut session = Session { client: tuple.src, core, ..Session::default() };
    let key = F::key(tuple);
    for _ in 0..TRIES {
        let real = match probed {
            Some(real) => real,
            None => choose(table, shared, turn, tuple, (id, service)).map_err(drop)?,
        };
        session.core = core.to(real, tuple.protocol);
        match insert(table, shared, turn, (&key, entry), (&mut session, service)) {
            Ok(opened) => {
                if probed.is_none() {
                    persist::remember(table, shared, view.plan, now, opened.id(), service);
                    shared.admission.used_up(service, id);
                }
                return Ok(opened);
            }
            Err(Reason::NatConflict) => {}
            Err(reason) => return Err(drop(reason)),
        }
    }
    Err(drop(Reason::NatConflict))
}

/// The real server for a client's new session.
fn choose<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    tuple: &Tuple<F::Addr>,
    (id, service): (ServiceId, &Service),
) -> Result<RealId, Reason> {
    let Turn { view: View { plan, .. }, now, .. } = turn;
    if let Some(real) = persist::remembered(table, shared, plan, now, tuple, (id, service)) {
        return if reachable(turn.view, real) { Ok(real) } else { Err(Reason::NoRoute) };
    }
    let key = scheduled_by::<F>(plan, service, tuple);
    let real = match shared.admission.schedulers.pick(plan, id, key, now) {
        Ok(real) => real,
        Err(Refused::NoReal) => return Err(Reason::NoReal),
        Err(Refused::AllFull) => evict::evict_until(table, shared, plan, id, |shared| {
            shared.admission.schedulers.pick(plan, id, key, now).ok()
        })?,
    };
    if !reachable(turn.view, real) {
        return Err(Reason::NoRoute);
    }
    Ok(real)
}

/// Gives a session its local port if it needs one, and adds it.
#[inline(always)]
fn insert<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    (key, entry): (&Key<F::Addr>, Entry),
    (session, service): (&mut SessionOf<F>, &Service),
) -> Result<Flow, Reason> {
    let (plan, real) = (turn.view.plan, session.real());
    let known = F::side(plan).real(real).filter(|real| real.is_known());
    let known = known.ok_or(Reason::NoReal)?;
    let back = known.answers_to(key);
    let forwarding = known.forwarding;
    let answers = match forwarding.translates_destination() {
        true if forwarding.translates_source() => {
            let found = local_port(table, shared, turn, &back, (real, service));
            let (local, entry) = found.ok_or_else(|| shared.admission.no_port())?;
            (session.local, session.local_port) = local;
            Some(entry)
        }
        true => {
            let hash = table.sessions.hash_key(&back);
            Some(free_answers(table, shared, turn, (&back, hash), session.state)?)
        }
        false => None,
    };
    if answers.is_none() && session.state == State::UdpNew {
        session.fin = track::ENOUGH - 1;
    }
    // A one-packet session is for no other packet of the client.
    let entry = Some(entry).filter(|_| session.state != State::OnePacket);
    let inserted = table.sessions.insert_by(session, [entry, answers]);
    let id = inserted.map_err(|_| Reason::SessionsFull)?;
    // Where it is now: what only values go to needs no memory of its own before.
    shared.began(plan, table.sessions.slab().at(id));
    half_open::note_opened(table, plan, session, id);
    // What the next session will be written to can be on its way until then.
    if let Some(next) = table.sessions.slab().next_slot() {
        prefetch::read(next);
    }
    let flow = Flow::new(id, Direction::Inbound);
    table.fresh = flow;
    Ok(flow)
}

/// The key by which the answers of a new session in a state are found, and its hash, if no
/// other has it.
#[inline(always)]
fn free_answers<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    (key, hash): (&Key<F::Addr>, u64),
    state: State,
) -> Result<Entry, Reason> {
    match table.sessions.vacancy(hash) {
        Some(entry) => Ok(entry),
        None => freed_answers(table, shared, turn, (&F::tuple(key), hash), state),
    }
}

/// The same after a closer look.
#[cold]
fn freed_answers<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    (key, hash): (&Tuple<F::Addr>, u64),
    state: State,
) -> Result<Entry, Reason> {
    let plan = turn.view.plan;
    let Some(taken) = table.sessions.find(plan, hash, key) else { return Ok(hash.into()) };
    let session = table.sessions.slab().at(taken.id());
    let over = expired(session, plan, turn.now);
    // A one-packet session that is asked again goes on.
    let again = state == State::OnePacket && session.state == State::OnePacket;
    if !again && !over {
        return Err(Reason::NatConflict);
    }
    sweep::expire(table, shared, plan, taken.id());
    Ok(hash.into())
}

/// A free local address and port towards a real server, and the key by which answers to them
/// are found; `back` is that key but for them.
fn local_port<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    turn: Turn<'_>,
    back: &Key<F::Addr>,
    (real, service): (RealId, &Service),
) -> Option<((LocalId, u16), Entry)> {
    let Turn { view: View { plan, .. }, now, .. } = turn;
    let range = shared.ports_towards::<F>(plan, back, service)?;
    let at = real.0 as usize;
    let (mut walk, mixed) = (*shared.ports.walks.get(at)?, shared.ports.mixed);
    let (mut entry, mut holders) = (None, Holders::new(real, range.combinations()));
    let chosen = range.choose(&mut walk, |local, port| {
        let Some(key) = towards::<F>(plan, back, (local, port)) else { return false };
        if turn.others.have::<F>((plan, mixed), local, &key) {
            return false;
        }
        let hash = table.sessions.hash_key(&key);
        entry = table.sessions.vacancy(hash);
        if entry.is_some() {
            return true;
        }
        entry = Some(hash.into());
        let taken = table.sessions.find(plan, hash, &F::tuple(&key));
        let Some(flow) = taken else { return true };
        let session = table.sessions.slab().at(flow.id());
        let over = expired(session, plan, now);
        if over {
            sweep::expire(table, shared, plan, flow.id());
            return true;
        }
        let gives = holders.gives_up(shared, plan, session, (flow.id(), local, port, hash));
        if gives {
            evict::evict_pressed(table, shared, plan, flow.id());
        }
        gives || holders.enough
    });
    let chosen = chosen.filter(|_| !holders.enough).or_else(|| {
        let (id, local, port, hash) = holders.last_resort(shared)?;
        evict::evict_pressed(table, shared, plan, id);
        entry = Some(hash.into());
        Some((local, port))
    });
    *shared.ports.walks.get_mut(at)? = walk;
    // What a session some time later will look at can be on its way until then: the next one
    // towards this real server, unless that may come in this group.
    let others = if service.reals.len() < LANES { LANES as u32 - 1 } else { 0 };
    let later = range.next(walk.ahead(others));
    if let Some(key) = later.and_then(|local| towards::<F>(plan, back, local)) {
        let hash = table.sessions.hash_key(&key);
        if table.wanted.try_push(hash).is_err() {
            table.sessions.index().prefetch(hash);
        }
    }
    Some((chosen?, entry?))
}

impl Admission {
    /// A template has come.
    pub(super) const fn remember_one(&mut self) {
        self.live += 1;
        self.templates += 1;
    }

    /// A session of a service was opened that its rate counts.
    #[inline(always)]
    fn used_up(&mut self, service: &Service, id: ServiceId) {
        if service.max_new_per_s == 0 {
            return;
        }
        if let Some(usage) = self.usage.get_mut(usize::from(id.0)) {
            usage.rate.take();
        }
    }

    /// What a service uses of its limits.
    #[inline(always)]
    pub(super) fn usage_of(&mut self, service: Option<ServiceId>) -> Option<&mut Usage> {
        self.usage.get_mut(usize::from(service?.0))
    }
}

impl Shared {
    /// The local addresses and ports that a service's sessions may have towards a real server whose
    /// answers have this key, but for their destination.
    #[inline(always)]
    pub(super) fn ports_towards<'a, F: Parse>(
        &self,
        plan: &'a Plan,
        back: &Key<F::Addr>,
        service: &Service,
    ) -> Option<local_port::Range<'a>> {
        let pool = plan.pools.get(service.pool?)?;
        let six = F::to_ip(F::wire(back.src)).is_ipv6();
        Some(pool.range((F::WIDE, six), (self.worker, self.workers)))
    }

    /// Whether a service may have one more session now.
    #[inline(always)]
    fn within_limits(&mut self, service: &Service, id: ServiceId, now: Time) -> Result<(), Reason> {
        if service.max_sessions | service.max_new_per_s == 0 {
            Ok(())
        } else {
            self.limited(service, id, now)
        }
    }

    fn limited(&mut self, service: &Service, id: ServiceId, now: Time) -> Result<(), Reason> {
        let (workers, at) = (u32::from(self.workers), usize::from(id.0));
        let Some(usage) = self.admission.usage.get_mut(at) else { return Ok(()) };
        let share = |limit: u32| limit.div_ceil(workers);
        if service.max_sessions != 0 && usage.active >= share(service.max_sessions) {
            return Err(Reason::ServiceFull);
        }
        if service.max_new_per_s != 0 && !usage.rate.allows(share(service.max_new_per_s), now) {
            return Err(Reason::ServiceRate);
        }
        Ok(())
    }

    /// Counts a session that has begun.
    #[inline(always)]
    pub(super) fn began(&mut self, plan: &Plan, session: &Core) {
        self.statistics.counters.created += 1;
        if let Some(counters) = self.statistics.counters.reals.get_mut(session.real().0 as usize) {
            counters.sessions += 1;
            // In the middle of a connection: who takes part in it has shaken hands.
            counters.handshakes += u64::from(session.state == State::Established);
        }
        self.holds(plan, session);
    }

    /// Counts a session among those that there are.
    pub(super) fn holds(&mut self, plan: &Plan, session: &Core) {
        self.admission.live += 1;
        let (real, service) = (session.real(), plan.service_of(session));
        if let Some(counters) = self.statistics.counters.reals.get_mut(real.0 as usize) {
            counters.active += 1;
            counters.established += u32::from(session.state == State::Established);
            counters.closing += u32::from(session.state.is_closing());
        }
        if let Some(usage) = self.admission.usage_of(service) {
            let first = usage.active == 0;
            usage.active += 1;
            self.admission.load.sharers += u32::from(first);
        }
        if session.state.is_half_open() {
            self.admission.half_opened(real, service);
        }
        self.admission.schedulers.opened(real);
    }

    /// Counts a client that is bound to a real server.
    pub(super) fn remembers(&mut self, template: &Core) {
        self.admission.remember_one();
        let real = template.real().0 as usize;
        if let Some(counters) = self.statistics.counters.reals.get_mut(real) {
            counters.bound += 1;
        }
    }

    /// Counts a session that has ended.
    pub(super) fn ended(&mut self, plan: &Plan, session: &Core) {
        let real = session.real();
        let counters = self.statistics.counters.reals.get_mut(real.0 as usize);
        if session.state == State::Ended {
            // It was counted before.
            if let Some(counters) = counters {
                counters.lingering = counters.lingering.saturating_sub(1);
            }
            return;
        }
        self.admission.live -= 1;
        if session.state == State::Template {
            self.admission.templates -= 1;
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
        let service = plan.service_of(session);
        if let Some(usage) = self.admission.usage_of(service) {
            let last = usage.active == 1;
            usage.active = usage.active.saturating_sub(1);
            self.admission.load.sharers -= u32::from(last);
        }
        if session.state.is_half_open() {
            self.admission.half_closed(real, service);
        }
        self.admission.schedulers.closed(real);
    }
}

/// The key of a real server's answers to a local address and port; of `back` all else is taken.
#[inline(always)]
pub(super) fn towards<F: Parse>(
    plan: &Plan,
    back: &Key<F::Addr>,
    (local, port): (LocalId, u16),
) -> Option<Key<F::Addr>> {
    let dst = F::side(plan).local_wire(local)?;
    let (far_port, _) = key::halves(back.ports);
    Some(Key { dst, ports: key::pair(far_port, port.to_be()), ..*back })
}

/// What a service's scheduler goes by, if it looks at endpoints, which only few do.
#[inline(always)]
pub(super) fn scheduled_by<F: Parse>(
    plan: &Plan,
    service: &Service,
    tuple: &Tuple<F::Addr>,
) -> u64 {
    if service.table.is_none() {
        return 0;
    }
    let (address, port) = match (service.scheduler.hashes(), service.hash) {
        (Hashes::Destination, _) => (tuple.dst, 0),
        (_, HashKey::Client) => (tuple.src, 0),
        (_, HashKey::ClientPort) => (tuple.src, tuple.sport),
    };
    stable_hash(F::to_ip(address), port, plan.hash_seed)
}

/// Whether there is a route to a real server, its MAC known or not.
fn reachable(view: View<'_>, real: RealId) -> bool {
    view.fib.real_hop(real) != HopId::NONE
        || view.plan.real(real).is_some_and(|r| view.fib.lookup(r.address) != Err(NoHop::NoRoute))
}
