//! Sessions of a director that ran before, out of the memory that outlived it.
//!
//! Slots name real servers and local addresses by ids of a plan that is gone. [`Former`] reads them
//! with the names that the ids had then, gives each session the ids of the present plan and the
//! worker whose it is now, and [`Path::restore`] takes it up there. Nothing in that memory is
//! believed: a slot may be half-written, and of another configuration. What the present plan does
//! not have, and what has timed out since, is left and counted.
//!
//! A director may go on while its sessions are read, as it does until it hands over: then they are
//! read again, and [`Former::sort_changes`] finds what has become of them since. One whose slots
//! have another layout than this program knows reads them itself: see `retell.rs`.
//!
//! Nothing is restored of fragments, rates, path MTUs and elephants: they are learned anew.

mod batch;

use self::batch::Part;
use super::import::is_same;
use super::open::TEMPLATE;
use super::owners::Owners;
use super::parse::Parse;
use super::snat::{HOLDS, mapping_of};
use super::sweep::timed_out;
use super::table::Table;
use super::{Path, Shared, others, snat, sweep};
use crate::counters::Direction;
use crate::family::{Family, Ipv4, Ipv6};
use crate::fib::HopId;
use crate::plan::{Names, Plan, Renamed};
use crate::session::{CORE, Core, Flow, SessionOf, Sessions, State};
use crate::time::Time;
use std::mem::offset_of;
use std::net::IpAddr;

pub use self::batch::{Batch, Restored};

/// Changes with the meaning of what is in a slot: memory with another number is not read.
pub const SLOT_LAYOUT: u32 = 1;

/// How far one director's clock may be ahead of another's on the same machine.
const AHEAD_MS: u32 = 60_000;

/// Slots of a table that are sorted before what is in them is given. Those of tests have few.
const PART_SLOTS: usize = if cfg!(test) { 16 } else { 1 << 15 };

/// Sessions whose keys are asked for before they are looked for.
const PREFETCHED: usize = 16;

/// The director that ran before, as its sessions are to be read.
#[derive(Clone, Debug)]
pub struct Former<'a> {
    plan: &'a Plan,
    renamed: Renamed,
    owners: Owners,
    /// How many workers there are, and how many there were.
    workers: (u16, u16),
    /// What is added to the times in its slots, modulo 2³², to make them times of now.
    shift_ms: u32,
    /// Whether its sessions were scattered already.
    scattered: bool,
}

impl<'a> Former<'a> {
    /// One whose ids had these names, and `workers` workers, in the network of `plan`; its clock
    /// was `shift_ms` milliseconds behind that of now (modulo 2³²). `owners` are the workers of
    /// now.
    pub fn new(
        plan: &'a Plan,
        names: &Names,
        owners: Owners,
        (workers, shift_ms): (u16, u32),
    ) -> Self {
        let renamed = Renamed::new(names, plan);
        let workers = (owners.workers(), workers);
        Self { plan, renamed, owners, workers, shift_ms, scattered: false }
    }

    /// The same, whose own sessions were at workers that no packet of theirs came to by itself, or
    /// not.
    #[must_use]
    pub fn scattered(mut self, scattered: bool) -> Self {
        self.scattered = scattered;
        self
    }

    /// Whether sessions may now be at workers that no packet of theirs comes to by itself.
    pub const fn scatters(&self) -> bool {
        self.scattered || self.workers.0 != self.workers.1
    }

    /// Sorts the sessions of a worker's two tables, each as its slots lay in memory, by worker. A
    /// part after another is given as a batch for each: what is given can be taken up while the
    /// rest is sorted. Gives what is left out; `sessions` of it is 0.
    pub fn sort(
        &self,
        worker: u16,
        [narrow, extended]: [&[u8]; 2],
        mut give: impl FnMut(Vec<Batch>),
    ) -> Restored {
        let mut left = Restored::default();
        for part in narrow.chunks(PART_SLOTS * size_of::<SessionOf<Ipv4>>()) {
            let to = |batch: &mut Batch, session| batch.add_narrow(session, false);
            give(self.sort_part::<Ipv4>((worker, part), &mut left, to));
        }
        for part in extended.chunks(PART_SLOTS * size_of::<SessionOf<Ipv6>>()) {
            let to = |batch: &mut Batch, session| batch.add_extended(session, false);
            give(self.sort_part::<Ipv6>((worker, part), &mut left, to));
        }
        left
    }

    fn sort_part<F: Family>(
        &self,
        (worker, slots): (u16, &[u8]),
        left: &mut Restored,
        add: impl Fn(&mut Batch, SessionOf<F>),
    ) -> Vec<Batch> {
        let mut batches = vec![Batch::default(); usize::from(self.workers.0)];
        for session in self.read::<F>(slots, left) {
            let home = usize::from(self.worker_of::<F>(&session, worker));
            batches.get_mut(home).into_iter().for_each(|batch| add(batch, session));
        }
        batches
    }

    /// Sorts what has become of the sessions of a worker's two tables: of each table its slots as
    /// they were when they were last read, and as they are. A session of which only the last packet
    /// is another one counts as unchanged if that came within `slack_ms` of the one before.
    pub fn sort_changes(
        &self,
        worker: u16,
        [narrow, extended]: [(&[u8], &[u8]); 2],
        slack_ms: u32,
        to: &mut [Batch],
    ) -> Restored {
        let mut left = Restored::default();
        to.iter_mut().for_each(|batch| batch.replaces = true);
        self.changes::<Ipv4>(narrow, slack_ms, &mut left, |session, gone| {
            if let Some(batch) = to.get_mut(usize::from(self.worker_of::<Ipv4>(&session, worker))) {
                batch.narrow.of(gone).push(session);
            }
        });
        self.changes::<Ipv6>(extended, slack_ms, &mut left, |session, gone| {
            if let Some(batch) = to.get_mut(usize::from(self.worker_of::<Ipv6>(&session, worker))) {
                batch.extended.of(gone).push(session);
            }
        });
        left
    }

    /// The plan that it gives ids of.
    pub(super) const fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// Gives each session that is another one than before, and each that is over.
    pub(super) fn changes<F: Family>(
        &self,
        (before, now): (&[u8], &[u8]),
        slack_ms: u32,
        left: &mut Restored,
        mut give: impl FnMut(SessionOf<F>, bool),
    ) {
        let size = size_of::<SessionOf<F>>();
        let never = vec![0; size];
        let was = before.chunks_exact(size).chain(std::iter::repeat(&*never));
        for (now, was) in now.chunks_exact(size).zip(was) {
            if is_unchanged::<F>(was, now, slack_ms) {
                continue;
            }
            let mut unread = Restored::default();
            let was = self.read::<F>(was, &mut unread).next();
            let now = self.read::<F>(now, left).next();
            if let Some(was) = was
                && now.is_none_or(|now| !is_same(&was, &now))
            {
                give(was, true);
            }
            if let Some(now) = now {
                give(now, false);
            }
        }
    }

    fn read<'b, F: Family>(
        &'b self,
        slots: &'b [u8],
        left: &'b mut Restored,
    ) -> impl Iterator<Item = SessionOf<F>> + 'b {
        slots.chunks_exact(size_of::<SessionOf<F>>()).filter_map(|slot| {
            // Never used, as most are.
            if slot.iter().all(|byte| *byte == 0) {
                return None;
            }
            let Some(session) = session_in::<F>(slot) else {
                left.damaged += 1;
                return None;
            };
            let mapping = session.state == State::Template && session.protocol() != TEMPLATE;
            // What shares a mapping brings it along.
            if matches!(session.state, State::Vacant | State::Ended) || mapping {
                return None;
            }
            let renamed = self.renamed::<F>(session);
            left.unknown += u64::from(renamed.is_none());
            renamed
        })
    }

    /// A session by the ids of the present plan.
    fn renamed<F: Family>(&self, mut session: SessionOf<F>) -> Option<SessionOf<F>> {
        let id = self.renamed.real(session.real())?;
        let real = self.plan.real(id)?;
        let protocol = session.protocol();
        session.core = session.core.to(id, protocol);
        session.seen_ms = session.seen_ms.wrapping_add(self.shift_ms);
        (session.client_hop, session.hop_generation) = (HopId::NONE.0, 0);
        if session.state == State::Template {
            self.plan.service(real.service)?.persistence?;
            session.client_port = real.service.0;
        } else if real.forwarding.translates_source() {
            session.local = self.renamed.local(session.local)?;
            let address = F::side(self.plan).local(session.local)?;
            let pool = self.plan.pool_of(F::side(self.plan), address)?;
            pool.owner(session.local_port, self.workers.0)?;
        }
        if F::WIDE && real.forwarding.has_remote() {
            session.extra = F::towards(F::far(&session));
        }
        Some(session)
    }

    /// The worker that a session's packets come to, or, if any worker's may be, the one that had it
    /// or one by the client's endpoint.
    fn worker_of<F: Family>(&self, session: &SessionOf<F>, was: u16) -> u16 {
        let (now, before) = self.workers;
        let any = |client, port| if now == before { was } else { self.owners.of(client, port) };
        home_of::<F>((self.plan, self.owners), session, any)
    }
}

/// The worker that a session's packets come to; `any` chooses by the client's endpoint where any
/// worker's may be.
pub(super) fn home_of<F: Family>(
    (plan, owners): (&Plan, Owners),
    session: &SessionOf<F>,
    any: impl Fn(IpAddr, u16) -> u16,
) -> u16 {
    let (client, port) = (F::to_ip(session.client), session.client_port);
    let Some(real) = plan.real(session.real()) else { return 0 };
    let side = F::side(plan);
    if session.state != State::Template && real.forwarding.translates_source() {
        let pool = side.local(session.local).and_then(|it| plan.pool_of(side, it));
        let owner = pool.and_then(|pool| pool.owner(session.local_port, owners.workers()));
        return owner.unwrap_or(0);
    }
    match plan.service(real.service).and_then(|service| service.owner) {
        Some(owner) => owners.by(owner, client, port),
        None => any(client, port),
    }
}

/// Whether a slot holds what it held, but for the last packet and what follows from it. Most do,
/// and all are looked at while no packet is forwarded.
fn is_unchanged<F: Family>(was: &[u8], now: &[u8], slack_ms: u32) -> bool {
    let core = offset_of!(SessionOf<F>, core);
    let (seen, end) = (core + offset_of!(Core, seen_ms), core + CORE);
    if was[..seen] != now[..seen] || was[end..] != now[end..] {
        return false;
    }
    let seen_ms = |slot: &[u8]| bytemuck::pod_read_unaligned::<u32>(&slot[seen..seen + 4]);
    seen_ms(now).wrapping_sub(seen_ms(was)) <= slack_ms
}

/// What lies in a slot, if it can be a session.
fn session_in<F: Family>(slot: &[u8]) -> Option<SessionOf<F>> {
    let core = offset_of!(SessionOf<F>, core);
    let extra = offset_of!(SessionOf<F>, extra);
    let core: Core =
        bytemuck::checked::try_pod_read_unaligned(slot.get(core..core + CORE)?).ok()?;
    Some(SessionOf::<F> {
        client: bytemuck::pod_read_unaligned(slot.get(..size_of::<F::Addr>())?),
        core,
        extra: bytemuck::pod_read_unaligned(slot.get(extra..extra + size_of::<F::Extra>())?),
    })
}

impl Path {
    /// Takes up sessions of a director that ran before. `scattered` says that sessions of some
    /// worker may be where no packet of theirs comes to by itself: see [`Former::scatters`].
    pub fn restore(&mut self, plan: &Plan, now: Time, batch: &Batch, scattered: bool) -> Restored {
        self.shared.scattered |= scattered;
        let mut all = Restored::default();
        let (narrow, extended) = (&mut self.v4.table, &mut self.extended.table);
        let (part, replaces) = (&batch.narrow, batch.replaces);
        restore_all((narrow, extended), &mut self.shared, (plan, now), (part, replaces), &mut all);
        let part = &batch.extended;
        restore_all((extended, narrow), &mut self.shared, (plan, now), (part, replaces), &mut all);
        all
    }
}

/// Takes up sessions, after those that are over have made room.
fn restore_all<F: Parse, G: Parse>(
    (table, other): (&mut Table<F>, &mut Table<G>),
    shared: &mut Shared,
    (plan, now): (&Plan, Time),
    (part, replaces): (&Part<F>, bool),
    all: &mut Restored,
) {
    for session in &part.gone {
        make_way(table, shared, plan, session, true);
    }
    for some in part.live.chunks(PREFETCHED) {
        some.iter().for_each(|session| prefetch_keys(table, plan, session));
        for session in some {
            if replaces {
                make_way(table, shared, plan, session, false);
            }
            restore((table, other), shared, (plan, now), *session, all);
        }
    }
}

/// Asks for where a session's keys are looked for: in a large table that is most of the time.
fn prefetch_keys<F: Parse>(table: &Table<F>, plan: &Plan, session: &SessionOf<F>) {
    let hashes = table.sessions.hashes(plan, session).unwrap_or_default();
    for hash in hashes.into_iter().flatten() {
        table.sessions.index().prefetch(hash);
        table.sessions.index().prefetch_other(hash);
    }
}

/// Ends the sessions that have a key of this one; `same` if only those with its endpoints.
fn make_way<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    session: &SessionOf<F>,
    same: bool,
) {
    let Some(keys) = Sessions::<F>::keys(plan, session) else { return };
    for key in keys.iter().flatten() {
        let Some(flow) = table.sessions.find(plan, table.sessions.hash(key), key) else {
            continue;
        };
        if !same || is_same(table.sessions.slab().at(flow.id()), session) {
            sweep::remove(table, shared, plan, flow.id());
        }
    }
}

/// Takes up a session.
fn restore<F: Parse, G: Parse>(
    (table, other): (&mut Table<F>, &mut Table<G>),
    shared: &mut Shared,
    (plan, now): (&Plan, Time),
    mut session: SessionOf<F>,
    all: &mut Restored,
) {
    if is_ahead(session.idle_ms(now)) {
        session.seen_ms = now.low();
    }
    if timed_out(&session, plan, now) {
        all.expired += 1;
    } else if others::make_way::<F, G>(other, shared, plan, &session)
        && restored(table, shared, plan, session).is_some()
    {
        all.sessions += 1;
    } else {
        all.refused += 1;
    }
}

/// Whether a session's last packet seems to come from the near future. Two directors' clocks begin
/// at whole milliseconds, and were read by threads that may have had no core in between.
pub(super) const fn is_ahead(idle_ms: u32) -> bool {
    idle_ms > u32::MAX - AHEAD_MS
}

/// The id that a session gets, if there is room for it and nobody has its keys.
pub(super) fn restored<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    mut session: SessionOf<F>,
) -> Option<u32> {
    let template = session.state == State::Template;
    session.closing &= !HOLDS;
    let real = F::side(plan).real(session.real()).filter(|real| real.is_known())?;
    let has_remote = real.forwarding.has_remote();
    // A mapping that it shares takes a place too.
    let places = 1 + u32::from(has_remote);
    if shared.admission.live + places > shared.admission.capacity {
        return None;
    }
    let keys = Sessions::<F>::keys(plan, &session)?;
    for key in keys.iter().flatten() {
        if table.sessions.find(plan, table.sessions.hash(key), key).is_some() {
            return None;
        }
    }
    if template {
        session.closing = 0;
        let id = table.sessions.insert(plan, session).ok()?;
        shared.remembers(&session);
        return Some(id);
    }
    others::mix::<F>(shared, plan, &session);
    let mapping = if has_remote { restored_mapping(table, shared, plan, &session)? } else { None };
    session.closing |= if mapping.is_some() { HOLDS } else { 0 };
    let inserted = table.sessions.insert(plan, session);
    if let Some(mapping) = mapping {
        snat::hold_mapping(table, shared, plan, mapping, inserted.is_ok());
    }
    let id = inserted.ok()?;
    shared.holds(plan, &session);
    table.half_open.note(plan, &session, id);
    Some(id)
}

/// The mapping that a session of source NAT shares, if its rule has it share one: that of
/// another session, or a new one. Where its endpoint has another by now it keeps its own port, and
/// holds none: connections that are there go on. `None` when there is no place for a new one.
fn restored_mapping<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    session: &SessionOf<F>,
) -> Option<Option<Flow>> {
    let rule = plan.service(plan.service_of(session)?)?;
    if !snat::shares(rule) {
        return Some(None);
    }
    if let Some(flow) = snat::mapping(table, plan, session) {
        let there = table.sessions.slab().at(flow.id());
        let same = (there.local, there.local_port) == (session.local, session.local_port);
        return Some(same.then_some(flow));
    }
    let id = table.sessions.insert(plan, mapping_of::<F>(session)).ok()?;
    shared.admission.remember_one();
    Some(Some(Flow::new(id, Direction::Inbound)))
}
