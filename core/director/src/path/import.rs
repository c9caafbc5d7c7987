//! Sessions that another director has told, taken up among this one's.
//!
//! They come by addresses and ports: [`Importer`] gives them the ids of the plan and the worker
//! whose they are here, and [`Path::import`] takes them up there. The newer of two reports of a
//! session holds, whoever it is from: a director that returns does not overwrite what has gone on
//! without it. What the plan does not have is left and counted.

use super::changes::{Portable, SETTLES};
use super::client_address::{BEGUN, DONE};
use super::open::TEMPLATE;
use super::owners::Owners;
use super::parse::Parse;
use super::restore::home_of;
use super::snat::HOLDS;
use super::sweep::timed_out;
use super::table::Table;
use super::{Path, Shared, others, restore, sweep};
use crate::family::{Family, Ipv4, Ipv6};
use crate::fib::HopId;
use crate::plan::{Plan, RealId, Resolver, Service};
use crate::session::{Core, Flow, Session, SessionOf, Sessions, State};
use crate::time::Time;
use sluice_wire::ipv4;
use std::ops::AddAssign;

/// How exactly the times of two reports can be compared: clocks of directors are known by how long
/// datagrams take.
const BLUR_MS: i32 = 200;

/// Sessions for one worker, in the order in which they were told.
#[derive(Clone, Debug, Default)]
pub struct Imports {
    narrow: Vec<Import<Ipv4>>,
    extended: Vec<Import<Ipv6>>,
}

/// A session whose `seen_ms` is how long it was idle, and whether it has ended.
#[derive(Clone, Debug)]
struct Import<F: Family> {
    session: SessionOf<F>,
    ended: bool,
}

impl Imports {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.narrow.len() + self.extended.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes away the first ones, at most so many of each table.
    #[must_use]
    pub fn take(&mut self, most: usize) -> Self {
        let (narrow, extended) = (self.narrow.len().min(most), self.extended.len().min(most));
        Self {
            narrow: self.narrow.drain(..narrow).collect(),
            extended: self.extended.drain(..extended).collect(),
        }
    }
}

/// What became of sessions that another director has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Not known before.
    pub new: u64,
    /// Known before, and newer now.
    pub newer: u64,
    /// Ended.
    pub ended: u64,
    /// What is known here is newer, or as new.
    pub older: u64,
    /// The configuration here has no such service, real server or local address.
    pub unknown: u64,
    /// The table is full, another session has their endpoints, or their time is over.
    pub refused: u64,
}

impl AddAssign for Imported {
    fn add_assign(&mut self, other: Self) {
        self.new += other.new;
        self.newer += other.newer;
        self.ended += other.ended;
        self.older += other.older;
        self.unknown += other.unknown;
        self.refused += other.refused;
    }
}

/// Gives sessions of one network the ids of a plan, and sorts them by worker.
pub struct Importer<'a> {
    plan: &'a Plan,
    resolver: &'a Resolver,
    owners: Owners,
}

impl<'a> Importer<'a> {
    /// One for the plan of a network, with the ids that it has; `owners` are the workers.
    pub const fn new(plan: &'a Plan, resolver: &'a Resolver, owners: Owners) -> Self {
        Self { plan, resolver, owners }
    }

    /// Puts a session of a real server where it belongs: `to` has what each worker gets. `false`
    /// when it can be nobody's.
    pub fn place(
        &self,
        real: RealId,
        session: &Portable,
        ended: bool,
        to: &mut [&mut Imports],
    ) -> bool {
        self.placed(real, session, ended, to).is_some()
    }

    fn placed(
        &self,
        id: RealId,
        told: &Portable,
        ended: bool,
        to: &mut [&mut Imports],
    ) -> Option<()> {
        if self.service_of(id)?.extended {
            let session = self.session::<Ipv6>(id, told, ended)?;
            to.get_mut(self.worker_of::<Ipv6>(&session))?.extended.push(Import { session, ended });
        } else {
            let session = self.session::<Ipv4>(id, told, ended)?;
            to.get_mut(self.worker_of::<Ipv4>(&session))?.narrow.push(Import { session, ended });
        }
        Some(())
    }

    /// The service of a real server.
    pub(super) fn service_of(&self, id: RealId) -> Option<&Service> {
        self.plan.service(self.plan.real(id)?.service)
    }

    /// What ids and workers are given by.
    pub(super) const fn view(&self) -> (&Plan, Owners) {
        (self.plan, self.owners)
    }

    fn worker_of<F: Family>(&self, session: &SessionOf<F>) -> usize {
        let any = |client, port| self.owners.of(client, port);
        usize::from(home_of::<F>((self.plan, self.owners), session, any))
    }

    /// A session by the ids of the plan, whose `seen_ms` is how long it was idle.
    pub(super) fn session<F: Family>(
        &self,
        id: RealId,
        told: &Portable,
        ended: bool,
    ) -> Option<SessionOf<F>> {
        let real = self.plan.real(id)?;
        let state: State = *bytemuck::checked::try_cast_ref(&told.state).ok()?;
        let mut core = Core {
            client_port: told.client_port,
            virtual_port: told.virtual_port,
            fin: told.fin,
            state,
            closing: told.closing & !HOLDS,
            seen_ms: told.idle_ms,
            client_hop: HopId::NONE.0,
            seen: told.seen,
            ..Core::default().to(id, told.protocol)
        };
        // What both sides have closed lingers at whoever tells its end, and nowhere else.
        if state == State::Vacant
            || (state == State::Ended && !ended)
            || (state == State::Template && told.protocol != TEMPLATE)
        {
            return None;
        }
        if state == State::Template {
            self.plan.service(real.service)?.persistence?;
            core.client_port = real.service.0;
        } else if real.forwarding.translates_source() {
            let (address, port) = told.local?;
            core.local = self.resolver.local(self.plan.network, address)?;
            core.local_port = port;
            let side = F::side(self.plan);
            let pool = self.plan.pool_of(side, side.local(core.local)?)?;
            pool.owner(port, self.owners.workers())?;
        }
        let extra = match F::WIDE && real.forwarding.has_remote() {
            true => F::towards(F::from_ip(told.far?)?),
            false => F::beginning_at(told.isn),
        };
        Some(Session { client: F::from_ip(told.client)?, core, extra })
    }
}

impl Path {
    /// Takes up sessions that another director has told. They may be at other workers than their
    /// packets come to by themselves, where the NIC chooses.
    pub fn import(&mut self, plan: &Plan, now: Time, batch: &Imports) -> Imported {
        self.shared.scattered |= self.config.workers > 1;
        let mut all = Imported::default();
        let (narrow, extended) = (&mut self.v4.table, &mut self.extended.table);
        for import in &batch.narrow {
            take((narrow, extended), &mut self.shared, (plan, now), import, &mut all);
        }
        for import in &batch.extended {
            take((extended, narrow), &mut self.shared, (plan, now), import, &mut all);
        }
        all
    }
}

fn take<F: Parse, G: Parse>(
    (table, other): (&mut Table<F>, &mut Table<G>),
    shared: &mut Shared,
    (plan, now): (&Plan, Time),
    import: &Import<F>,
    all: &mut Imported,
) {
    let mut session = import.session;
    session.seen_ms = now.low().wrapping_sub(session.seen_ms);
    let found = match Sessions::<F>::keys(plan, &session) {
        Some(keys) => keys
            .iter()
            .flatten()
            .find_map(|key| table.sessions.find(plan, table.sessions.hash(key), key).map(Flow::id)),
        None => return all.unknown += 1,
    };
    if let Some(id) = found {
        let there = table.sessions.slab().at(id);
        // What the other director has seen later than this one has.
        let later = session.seen_ms.wrapping_sub(there.seen_ms) as i32;
        let same = is_same_stream::<F>(there, &session);
        let (state, there_ms) = (there.state, there.seen_ms);
        let settles = same && session.closing & !there.closing & SETTLES != 0;
        // Of a stream that two directors share one sees the acknowledgement of what was inserted.
        let done = if same { (there.closing | session.closing) & DONE } else { 0 };
        if done != 0 && is_begun(&session) {
            session.closing |= done;
            table.sessions.at_mut(id).closing |= done;
        }
        // Of one session what comes after is what it comes to.
        let further = same && (import.ended || session.state > state || settles);
        if later < if further { -BLUR_MS } else { 0 }
            || (later == 0 && (!same || state == session.state) && !import.ended && !settles)
        {
            return all.older += 1;
        }
        if later < 0 {
            session.seen_ms = there_ms;
        }
        if same && !import.ended && state == session.state {
            let known = table.sessions.at_mut(id);
            (known.seen_ms, known.seen) = (session.seen_ms, session.seen);
            let holds = known.closing & HOLDS;
            (known.closing, known.fin) = (session.closing | holds, session.fin);
            let known = table.sessions.slab().at(id);
            table.changes.is_known(id, known);
            return all.newer += 1;
        }
        if import.ended && !same {
            return all.older += 1;
        }
        table.changes.forget(id);
        sweep::remove(table, shared, plan, id);
    }
    if import.ended {
        return all.ended += 1;
    }
    match taken_up((table, other), shared, (plan, now), session) {
        Some(_) if found.is_some() => all.newer += 1,
        Some(_) => all.new += 1,
        None => all.refused += 1,
    }
}

fn taken_up<F: Parse, G: Parse>(
    (table, other): (&mut Table<F>, &mut Table<G>),
    shared: &mut Shared,
    (plan, now): (&Plan, Time),
    session: SessionOf<F>,
) -> Option<u32> {
    if timed_out(&session, plan, now) || !others::make_way::<F, G>(other, shared, plan, &session) {
        return None;
    }
    let id = restore::restored(table, shared, plan, session)?;
    let session = table.sessions.slab().at(id);
    table.changes.is_known(id, session);
    Some(id)
}

/// Whether this is a TCP stream that something is inserted into.
fn is_begun(session: &Core) -> bool {
    session.protocol() == ipv4::TCP && session.closing & BEGUN != 0
}

/// As [`is_same`], and of streams that something is inserted into whether they begin with the same
/// number: a client may use its port again and get the same local one.
fn is_same_stream<F: Family>(one: &SessionOf<F>, other: &SessionOf<F>) -> bool {
    let begins_elsewhere = is_begun(one) && is_begun(other) && F::isn(one) != F::isn(other);
    is_same(one, other) && !begins_elsewhere
}

/// Whether two reports are of one session, and not of one that has followed another.
pub(super) fn is_same<A: PartialEq, X>(one: &Session<A, X>, other: &Session<A, X>) -> bool {
    let endpoints = |core: &Core| {
        let local = (core.local, core.local_port);
        (core.client_port, core.virtual_port, core.real_protocol, local)
    };
    one.client == other.client && endpoints(&one.core) == endpoints(&other.core)
}
