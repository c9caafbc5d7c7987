//! Which session gives way to a new one when something runs short.
//!
//! The oldest half-open one does ([`super::half_open`]): whoever completes a handshake sooner than
//! these turn over is not touched. A TCP handshake has a second. Where a flood leaves it less, only
//! a SYN that is repeated ends younger ones: a client sends its SYN again after a second (RFC 6298
//! 2), forged ones come once.
//!
//! A service has its share of the table: the table divided by the services that have sessions.
//! What others leave it may borrow, but for a reserve, which is for those below their share; and
//! when the table is full, a service above its share gives way to one below.

use super::half_open::HALF;
use super::parse::Parse;
use super::shared::{Admission, Statistics};
use super::sweep::is_connection;
use super::table::Table;
use super::{Shared, sweep};
use crate::plan::{LocalId, Plan, RealId, ServiceId};
use crate::reason::Reason;
use crate::session::{Core, State};
use sluice_table::Slot;

/// This part of the table is kept for services below their share.
const RESERVE: u32 = 16;
/// A half-open session this old gives way even where most sessions are not half-open, and to any
/// new one: the client's first retransmission would have come (RFC 6298 2.1).
const GRACE_MS: u32 = 1000;
/// Sessions that were heard of since they were opened, and are passed over for that, in one go.
const CHANCES: u32 = 4;
/// Half-open sessions that end for one new one, where full real servers must become emptier.
const FOR_ONE: u32 = 64;
/// Local ports that are looked at for a session, if young half-open ones hold them: by a packet
/// that may take that of the oldest, and by any other, which are a flood's.
const REPEATED: u32 = 16;
const FIRST: u32 = 2;
/// Slots that are looked at for a session of a service above its share.
const LOOKS: u32 = 64;
/// And where none of these is one.
const MOST_LOOKS: u32 = 4096;

/// Whose half-open session is asked to give way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// One of a service that has more of them than it may: it gives way to another service's.
    Others,
    /// One of the same service, most of whose sessions are half-open: it gives way if it has had
    /// its second, or to a packet that is repeated.
    Many,
    /// One of the same service, few of whose are: it gives way if it has had its second.
    Few,
}

/// Ends a session so that another has its place.
fn evict<F: Parse>(table: &mut Table<F>, shared: &mut Shared, plan: &Plan, id: u32) {
    sweep::remove(table, shared, plan, id);
    shared.statistics.counters.evicted += 1;
}

/// The same for what all services share.
pub(super) fn evict_pressed<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    id: u32,
) {
    evict(table, shared, plan, id);
    shared.admission.load.press(shared.now);
}

/// The oldest half-open session of a service, if it gives way. Those that were heard of since
/// are passed over a few times.
fn oldest<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    service: ServiceId,
    whose: Whose,
) -> Option<u32> {
    let mut id = table.half_open.oldest(service)?;
    for _ in 0..CHANCES {
        let Some(next) = table.half_open.younger(id) else { break };
        let seen = |id| table.sessions.slab().at(id).seen_ms;
        if seen(id).wrapping_sub(seen(next)).cast_signed() <= 0 {
            break;
        }
        table.half_open.take_out(service, id);
        table.half_open.push(service, id);
        id = next;
    }
    let session = table.sessions.slab().at(id);
    let gives = shared.had_its_time(session)
        || match whose {
            Whose::Others => true,
            Whose::Many => session.state != State::SynRecv || shared.is_repeated(),
            Whose::Few => false,
        };
    gives.then_some(id)
}

fn evict_oldest<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    (service, whose): (ServiceId, Whose),
) -> bool {
    let oldest = oldest(table, shared, service, whose);
    if let Some(id) = oldest {
        evict_pressed(table, shared, plan, id);
    }
    oldest.is_some()
}

/// Ends a half-open session of a service that is at its limit.
pub(super) fn evict_at_limit<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    service: ServiceId,
) -> Result<(), Reason> {
    let usage = shared.admission.usage_of_id(service);
    let many = usage.half_open.saturating_mul(HALF) > usage.active;
    let whose = if many { Whose::Many } else { Whose::Few };
    let oldest = if plan.gives_way { oldest(table, shared, service, whose) } else { None };
    match oldest {
        Some(id) => evict(table, shared, plan, id),
        None if shared.admission.load.is_awaited() => return Err(Reason::RepeatAwaited),
        None => return Err(Reason::ServiceFull),
    }
    Ok(())
}

/// The same while `try_again` finds every real server full.
pub(super) fn evict_until<F: Parse, T>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    service: ServiceId,
    mut try_again: impl FnMut(&mut Shared) -> Option<T>,
) -> Result<T, Reason> {
    for _ in 0..FOR_ONE {
        match evict_at_limit(table, shared, plan, service) {
            Err(Reason::ServiceFull) => break,
            Err(reason) => return Err(reason),
            Ok(()) => {}
        }
        if let Some(found) = try_again(shared) {
            return Ok(found);
        }
    }
    Err(Reason::RealsFull)
}

/// Makes sure that a service's new session finds its place in the table.
#[inline(always)]
pub(super) fn make_room<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    service: ServiceId,
) -> Result<(), Reason> {
    let ample = shared.admission.live
        < shared.admission.capacity - shared.admission.capacity / RESERVE
        && shared.admission.load.count < shared.admission.capacity / HALF;
    if ample { Ok(()) } else { give_way(table, shared, plan, service) }
}

#[cold]
fn give_way<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    service: ServiceId,
) -> Result<(), Reason> {
    if !plan.gives_way {
        let full = shared.admission.is_full();
        return if full { Err(Reason::SessionsFull) } else { Ok(()) };
    }
    if shared.admission.load.count >= shared.admission.capacity / HALF {
        halve(table, shared, plan, service)?;
    }
    let (share, usage) = (shared.admission.share(), shared.admission.usage_of_id(service));
    let below = usage.active < share;
    let line = if below { 0 } else { shared.admission.capacity / RESERVE };
    if shared.admission.live < shared.admission.capacity - line
        || shared.admission.load.sharers < 2 && !shared.admission.is_full()
    {
        return Ok(());
    }
    let most = shared.admission.load.most;
    let of_most = match shared.admission.usage_of_id(most).active > share {
        true if most != service => Whose::Others,
        _ => Whose::Few,
    };
    let many = usage.half_open.saturating_mul(HALF) > usage.active;
    let own = if many { Whose::Many } else { Whose::Few };
    let room = below
        && (evict_oldest(table, shared, plan, (most, of_most))
            || evict_borrower(table, shared, plan, share))
        || evict_oldest(table, shared, plan, (service, own));
    match room {
        true => Ok(()),
        false if shared.admission.load.is_awaited() => Err(Reason::RepeatAwaited),
        false if below || shared.admission.load.sharers < 2 => Err(Reason::SessionsFull),
        false => Err(Reason::ServiceShare),
    }
}

/// Keeps half-open sessions at their half of the table: the service with the most of them has
/// its oldest ended, so that a flood of one harms no other.
fn halve<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    service: ServiceId,
) -> Result<(), Reason> {
    let share = shared.admission.share() / HALF;
    let whose = match shared.admission.usage_of_id(service).half_open < share {
        true => Whose::Others,
        false => Whose::Many,
    };
    let room = evict_oldest(table, shared, plan, (shared.admission.load.most, whose))
        || evict_oldest(table, shared, plan, (service, Whose::Many));
    // Where all of them are in the other family's table, only the table's end is one.
    if !room && shared.admission.load.is_awaited() { Err(Reason::RepeatAwaited) } else { Ok(()) }
}

/// Ends the session that was silent longest of some of services above their share.
fn evict_borrower<F: Parse>(
    table: &mut Table<F>,
    shared: &mut Shared,
    plan: &Plan,
    share: u32,
) -> bool {
    let touched = table.sessions.slab().touched();
    let mut longest = None;
    for look in 0..MOST_LOOKS.min(touched) {
        // Slots next to each other are often of one service.
        if look >= LOOKS && longest.is_some() {
            break;
        }
        table.half_open.cursor = (table.half_open.cursor + 1) % touched;
        let session = table.sessions.slab().at(table.half_open.cursor);
        let connection = !session.is_vacant() && is_connection(session);
        let of = plan.service_of(session).filter(|_| connection);
        if of.is_some_and(|of| shared.admission.usage_of_id(of).active > share) {
            longest = longest.max(Some((session.idle_ms(shared.now), table.half_open.cursor)));
        }
    }
    if let Some((_, id)) = longest {
        evict_pressed(table, shared, plan, id);
    }
    longest.is_some()
}

/// A session, the local port that it holds, and the hash that its answers are found by.
type Holder = (u32, LocalId, u16, u64);

/// Sessions that hold the local ports which a new one would like to have.
pub(super) struct Holders {
    /// Where the new session goes.
    real: RealId,
    /// Ports that lead there.
    ports: u32,
    /// The first that gives its port up only if no other does.
    last: Option<Holder>,
    /// The oldest that gives it up only to a packet that is repeated, and how old it is.
    young: Option<(u32, Holder)>,
    /// Ports that were looked at.
    looks: u32,
    /// Whether looking at more is of no use.
    pub enough: bool,
}

impl Holders {
    pub const fn new(real: RealId, ports: u32) -> Self {
        Self { real, ports, last: None, young: None, looks: 0, enough: false }
    }

    /// Whether a session gives up its port at once. Half-open sessions do if they hold half of
    /// those that lead to their real server: what is free they may have as well.
    pub fn gives_up(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        session: &Core,
        holder: Holder,
    ) -> bool {
        if !plan.gives_way {
            return false;
        }
        self.looks += 1;
        let had_its_time = shared.had_its_time(session);
        // Another service gives way to one that has fewer sessions towards the same real server.
        let above = session.state != State::Template
            && session.real() != self.real
            && shared.statistics.active(session.real()) > shared.statistics.active(self.real) + 1;
        let half_open = session.state.is_half_open();
        let all =
            shared.admission.load.reals.get(session.real().0 as usize).copied().unwrap_or_default();
        let many = half_open && all.saturating_mul(HALF) >= self.ports;
        if many && (had_its_time || above || session.state != State::SynRecv) {
            return true;
        }
        if many {
            let idle_ms = session.idle_ms(shared.now);
            self.young = self.young.max(Some((idle_ms, holder)));
            let looks = if shared.is_repeated() { REPEATED } else { FIRST };
            self.enough = self.looks >= looks;
        } else if self.last.is_none() && (half_open && had_its_time || above) {
            self.last = Some(holder);
        }
        false
    }

    /// The one that gives up its port where none has done so.
    pub fn last_resort(self, shared: &mut Shared) -> Option<Holder> {
        let young = |(_, young)| Some(young).filter(|_| shared.is_repeated());
        self.last.or_else(|| self.young.and_then(young))
    }
}

impl Admission {
    /// Why a new session has no local port.
    #[cold]
    pub(super) fn no_port(&self) -> Reason {
        if self.load.is_awaited() { Reason::RepeatAwaited } else { Reason::LocalPortsExhausted }
    }
}

impl Statistics {
    /// Sessions towards a real server of a service.
    fn active(&self, real: RealId) -> u64 {
        self.counters.reals.get(real.0 as usize).map_or(0, |real| real.active)
    }
}

impl Shared {
    /// Whether a half-open session has had time to complete its handshake.
    fn had_its_time(&self, session: &Core) -> bool {
        session.idle_ms(self.now) >= GRACE_MS
    }

    /// Whether the packet that is to open a session came before.
    fn is_repeated(&mut self) -> bool {
        self.admission.load.is_repeated(self.now)
    }
}
