//! Half-open sessions: which there are, and whether they press.
//!
//! A session is half-open until its handshake is complete, or, of UDP, until somebody answers. A
//! flood of forged packets makes nothing else. So that it takes nothing from those who mean it,
//! half-open sessions of each service are in a list in the order in which they were opened, and the
//! oldest is ended at once when the table, local ports or a service's limit run short: see
//! [`super::evict`].

use super::parse::Parse;
use super::repeats::Repeats;
use super::shared::{Admission, Statistics};
use super::table::Table;
use super::{Path, Shared, persist};
use crate::counters::Direction;
use crate::plan::{Plan, RealId, ServiceId};
use crate::session::{Core, State};
use crate::time::Time;
use bytemuck::Zeroable;
use sluice_table::{PagePolicy, RegionError, SideArray};

/// Half-open sessions hold this part of the table at most.
pub(super) const HALF: u32 = 2;
/// Half-open sessions last so long under pressure, or less if their timeout is shorter.
pub(super) const PRESSED_MS: u32 = 3000;
/// Pressure ends so long after the last eviction.
const CALM_MS: u64 = 10_000;

/// Neighbours in a list: ids plus one, or 0 for none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Zeroable)]
struct Link {
    before: u32,
    after: u32,
}

const _: () = assert!(size_of::<Link>() == 8);

/// Half-open sessions of one table in lists by service, the oldest first.
pub(super) struct HalfOpen {
    links: SideArray<Link>,
    /// By service, ids plus one: the first, and the last.
    ends: Vec<Link>,
    /// Where the next look for a session of a service above its share begins.
    pub(super) cursor: u32,
}

impl HalfOpen {
    /// Empty lists for a table of so many sessions.
    pub fn new(capacity: u32, pages: PagePolicy) -> Result<Self, RegionError> {
        let links = SideArray::new(capacity, pages)?;
        Ok(Self { links, ends: Vec::new(), cursor: 0 })
    }

    /// Makes room for so many services.
    pub fn adopt(&mut self, services: usize) {
        self.ends.resize(services, Link::default());
    }

    /// Adds a session as the youngest.
    #[inline(always)]
    pub fn push(&mut self, service: ServiceId, id: u32) {
        let Some(ends) = self.ends.get_mut(usize::from(service.0)) else { return };
        let last = std::mem::replace(&mut ends.after, id + 1);
        match last {
            0 => ends.before = id + 1,
            last => self.set_after(last, id + 1),
        }
        self.links.set(id, Link { before: last, after: 0 });
    }

    /// Sets who comes after a session, given as an id plus one.
    #[inline(always)]
    fn set_after(&mut self, of: u32, after: u32) {
        if let Some(link) = of.checked_sub(1).and_then(|id| self.links.get_mut(id)) {
            link.after = after;
        }
    }

    /// Adds a session that begins, if it is half-open.
    #[inline(always)]
    pub fn note(&mut self, plan: &Plan, session: &Core, id: u32) {
        if session.state.is_half_open()
            && let Some(service) = plan.service_of(session)
        {
            self.push(service, id);
        }
    }

    /// Takes out a session that is in a service's list.
    #[inline(always)]
    pub fn take_out(&mut self, service: ServiceId, id: u32) {
        let Some(ends) = self.ends.get_mut(usize::from(service.0)) else { return };
        let Link { before, after } = self.links.get(id);
        if before == 0 {
            ends.before = after;
        }
        if after == 0 {
            ends.after = before;
        }
        self.set_after(before, after);
        if let Some(link) = after.checked_sub(1).and_then(|id| self.links.get_mut(id)) {
            link.before = before;
        }
    }

    /// Takes out a session that ends, if it is half-open.
    #[inline(always)]
    pub fn forget(&mut self, plan: &Plan, session: &Core, id: u32) {
        if session.state.is_half_open()
            && let Some(service) = plan.service_of(session)
        {
            self.take_out(service, id);
        }
    }

    pub(super) fn oldest(&self, service: ServiceId) -> Option<u32> {
        self.ends.get(usize::from(service.0))?.before.checked_sub(1)
    }

    pub(super) fn younger(&self, id: u32) -> Option<u32> {
        self.links.get(id).after.checked_sub(1)
    }
}

/// Whether half-open sessions run short of something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pressure {
    pub on: bool,
    last: Time,
}

/// A packet that is to open a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newcomer {
    hash: u64,
    /// Whether it came before; `None` as long as nobody has asked.
    repeats: Option<bool>,
}

/// The half-open sessions of both tables, and what they press for.
pub(super) struct Load {
    /// All of them,
    pub count: u32,
    /// and those towards each real server.
    pub reals: Vec<u32>,
    /// The service that has the most of them, as far as new ones show it.
    pub most: ServiceId,
    /// Services that have sessions.
    pub sharers: u32,
    pub pressure: Pressure,
    newcomer: Newcomer,
    repeats: Repeats,
}

impl Load {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            count: 0,
            reals: Vec::new(),
            most: ServiceId::default(),
            sharers: 0,
            pressure: Pressure::default(),
            newcomer: Newcomer::default(),
            repeats: Repeats::new(),
        }
    }

    /// From now on this is the packet that is to open a session.
    #[inline(always)]
    pub fn comes(&mut self, hash: u64) {
        self.newcomer = Newcomer { hash, repeats: None };
    }

    /// Whether the packet that is to open a session came before, so that it is no flood's.
    pub fn is_repeated(&mut self, now: Time) -> bool {
        let Self { newcomer, repeats, .. } = self;
        *newcomer.repeats.get_or_insert_with(|| repeats.is_known(newcomer.hash, now))
    }

    /// Whether it is refused for not having come before.
    pub fn is_awaited(&self) -> bool {
        self.newcomer.repeats == Some(false)
    }

    /// Something has run short.
    pub fn press(&mut self, now: Time) {
        self.pressure = Pressure { on: true, last: now };
    }
}

/// Puts a session that was opened into the list of half-open ones if it is one, and among those
/// that have changed if not.
#[inline(always)]
pub(super) fn note_opened<F: Parse>(table: &mut Table<F>, plan: &Plan, session: &Core, id: u32) {
    if session.state.is_half_open() {
        table.half_open.note(plan, session, id);
    } else {
        table.changes.note(id);
    }
}

/// A session has moved on from another state.
#[inline(always)]
pub(super) fn moved<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    (id, before): (u32, State),
    direction: Direction,
) {
    let session = table.sessions.slab().at(id);
    if before != State::UdpNew {
        shared.statistics.moved(session, before, direction);
    }
    if before.is_half_open() {
        settle(table, shared, plan, id);
    }
}

/// A session is half-open no longer.
#[inline(always)]
fn settle<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, id: u32) {
    let session = table.sessions.slab().at(id);
    let (state, service) = (session.state, plan.service_of(session));
    shared.admission.half_closed(session.real(), service);
    table.changes.note(id);
    if let Some(service) = service {
        table.half_open.take_out(service, id);
        persist::bind_late(table, shared, plan, (id, service, state));
    }
}

impl Path {
    /// Sessions whose handshake is not complete, or, of UDP, that nobody has answered.
    pub const fn half_open_sessions(&self) -> u32 {
        self.shared.admission.load.count
    }

    /// Whether half-open sessions have run short of something lately, and age fast for that.
    pub const fn is_pressed(&self) -> bool {
        self.shared.admission.load.pressure.on
    }
}

impl Admission {
    /// What a service uses now.
    pub(super) fn usage_of_id(&self, service: ServiceId) -> super::rate::Usage {
        self.usage.get(usize::from(service.0)).copied().unwrap_or_default()
    }

    /// The sessions that each service may always have.
    pub(super) fn share(&self) -> u32 {
        self.capacity / self.load.sharers.max(1)
    }

    pub(super) const fn is_full(&self) -> bool {
        self.live >= self.capacity
    }

    /// Counts a half-open session that has begun towards a real server of a service.
    #[inline(always)]
    pub(super) fn half_opened(&mut self, real: RealId, service: Option<ServiceId>) {
        self.load.count += 1;
        if let Some(count) = self.load.reals.get_mut(real.0 as usize) {
            *count += 1;
        }
        let most = self.usage_of_id(self.load.most).half_open;
        let Some(usage) = self.usage_of(service) else { return };
        usage.half_open += 1;
        if usage.half_open > most {
            self.load.most = service.unwrap_or_default();
        }
    }

    /// Counts one that is none any more.
    #[inline(always)]
    pub(super) fn half_closed(&mut self, real: RealId, service: Option<ServiceId>) {
        self.load.count = self.load.count.saturating_sub(1);
        if let Some(count) = self.load.reals.get_mut(real.0 as usize) {
            *count = count.saturating_sub(1);
        }
        if let Some(usage) = self.usage_of(service) {
            usage.half_open = usage.half_open.saturating_sub(1);
        }
    }

    /// Looks whether there is pressure: it begins when half-open sessions hold half of what they
    /// may, or one was evicted, and ends when they hold a quarter and none was for ten seconds.
    pub(super) fn settle_pressure(&mut self, plan: &Plan, now: Time) {
        let most = self.capacity / HALF;
        if plan.gives_way && self.load.count > most / 2 {
            self.load.press(now);
        }
        let calm = now.0.saturating_sub(self.load.pressure.last.0) >= CALM_MS;
        if calm && self.load.count <= most / 4 {
            self.load.pressure.on = false;
        }
    }
}

impl Statistics {
    /// Counts that a packet of a direction has moved a session on from another state. Of those in
    /// which it is closing only [`State::Close`] is left again.
    #[inline(always)]
    fn moved(&mut self, session: &Core, before: State, direction: Direction) {
        let Some(real) = self.counters.reals.get_mut(session.real().0 as usize) else {
            return;
        };
        if session.state == State::Established {
            real.handshakes += u64::from(before == State::SynRecv);
            real.established += 1;
            real.closing = real.closing.saturating_sub(u32::from(before.is_closing()));
            return;
        }
        let established = u32::from(before == State::Established);
        real.established = real.established.saturating_sub(established);
        real.closing += u32::from(!before.is_closing());
        // What passive health checks go by.
        let refused = (before, session.state, direction);
        if refused == (State::SynRecv, State::Close, Direction::Outbound) {
            real.refused += 1;
        }
    }
}
