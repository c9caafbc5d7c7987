//! Which sessions have changed, for the directors that are to know them too.
//!
//! A session is told when its handshake is complete or somebody has answered it, when its state has
//! changed or it was in use again for some seconds (the sweep, which looks at every slot within two
//! seconds, notices both), and when it ends. Half-open sessions are not told: a flood of forged
//! packets makes nothing else. Off, as it is at first, nothing of this costs memory or time.
//!
//! Nothing is lost where the list of changes is full: a session that was not told looks unchanged
//! to nobody, so the next sweep lists it again. Only an end may go untold, and is counted; the copy
//! that another director has then ages there.

use super::Path;
use super::open::TEMPLATE;
use super::parse::Parse;
use super::snat::HOLDS;
use super::table::Table;
use crate::family::Family;
use crate::plan::{Plan, RealId};
use crate::session::{Core, SessionOf, State};
use crate::time::Time;
use bytemuck::{Pod, Zeroable};
use sluice_table::{PagePolicy, RegionError, SideArray};
use std::net::IpAddr;

/// Changes that are listed at a time, of either kind.
const LISTED: usize = 4096;
/// A session in use is told again after so many units of [`Mark`]: about eight seconds.
const REFRESH: u32 = 256;
/// Bits of `Session::closing` that are told like a state: without them another director takes what
/// lies far behind an inserted header for what comes before it, and an SCTP association's end for
/// somebody's guess. Each is set once in a session's life.
pub(super) const SETTLES: u8 = super::client_address::DONE | crate::track::sctp::SETTLED;

/// The state, whether it has [settled](SETTLES), and the time of the last packet that were told of
/// a session; 0 for none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable, Pod)]
struct Mark(u32);

impl Mark {
    const TIME: u32 = (1 << 27) - 1;

    /// What is told of a session now. The time is in units of 32 ms.
    const fn of(session: &Core) -> Self {
        let settled = (session.closing & SETTLES != 0) as u32;
        Self((session.state as u32) << 28 | settled << 27 | session.seen_ms >> 5 & Self::TIME)
    }

    /// Whether a session is to be told (again) that now has this mark.
    const fn differs(self, now: Self) -> bool {
        let later = now.0.wrapping_sub(self.0) & Self::TIME;
        self.0 >> 27 != now.0 >> 27 || (later >= REFRESH && later <= Self::TIME / 2)
    }
}

/// The changed sessions of one table.
pub(super) struct Changes<F: Family> {
    on: bool,
    marks: SideArray<Mark>,
    /// Sessions by id; what is told of them is what they are when it is told.
    live: Vec<u32>,
    /// Sessions as they ended.
    ended: Vec<SessionOf<F>>,
    /// Ends that there was no room for.
    untold: u64,
    /// Where a walk over all sessions has come to.
    walk: Option<u32>,
}

impl<F: Family> Changes<F> {
    /// Notes nothing.
    pub const fn off() -> Self {
        let marks = SideArray::absent();
        Self { on: false, marks, live: Vec::new(), ended: Vec::new(), untold: 0, walk: None }
    }

    /// Notes the changes of a table of so many sessions.
    fn on(capacity: u32, pages: PagePolicy) -> Result<Self, RegionError> {
        let (live, ended) = (Vec::with_capacity(LISTED), Vec::with_capacity(LISTED));
        let marks = SideArray::new(capacity, pages)?;
        Ok(Self { on: true, marks, live, ended, untold: 0, walk: None })
    }

    /// Whether changes are noted.
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// A session has changed.
    #[inline(always)]
    pub fn note(&mut self, id: u32) {
        if self.on && self.live.len() < LISTED {
            self.live.push(id);
        }
    }

    /// A session ends.
    #[inline(always)]
    pub fn note_end(&mut self, id: u32, session: &SessionOf<F>) {
        if self.on {
            self.note_told_end(id, session);
        }
    }

    #[cold]
    fn note_told_end(&mut self, id: u32, session: &SessionOf<F>) {
        if self.marks.get(id) == Mark::default() {
            return;
        }
        self.marks.set(id, Mark::default());
        if self.ended.len() < LISTED {
            self.ended.push(*session);
        } else {
            self.untold += 1;
        }
    }

    /// A session is what another director told, who need not be told.
    pub fn is_known(&mut self, id: u32, session: &Core) {
        self.marks.set(id, Mark::of(session));
    }

    /// A session is to go without anybody being told.
    pub fn forget(&mut self, id: u32) {
        self.marks.set(id, Mark::default());
    }

    /// How many changes are listed.
    const fn listed(&self) -> usize {
        self.live.len() + self.ended.len()
    }

    /// Whether there is anything to tell.
    const fn any(&self) -> bool {
        self.listed() > 0 || self.walk.is_some()
    }
}

/// Whether other directors are to know a session. Sessions of one packet are over before they could
/// be of use, and what shares a mapping of source NAT brings it along.
fn is_told(session: &Core) -> bool {
    match session.state {
        State::Vacant | State::SynRecv | State::OnePacket | State::Icmp | State::Ended => false,
        State::Template => session.protocol() == TEMPLATE,
        _ => true,
    }
}

/// A session that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its real server, by the plan's id.
    pub real: RealId,
    /// Whether it has ended.
    pub ended: bool,
    /// The session.
    pub session: Portable,
}

/// A session by its addresses and ports, which mean the same to every director.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portable {
    /// IP protocol number; 0 of a client's being bound to a real server (persistence).
    pub protocol: u8,
    /// [`State`], as a number.
    pub state: u8,
    /// Which sides have closed and been acknowledged.
    pub closing: u8,
    /// Client, or of persistence its network.
    pub client: IpAddr,
    /// Its port; 0 of persistence.
    pub client_port: u16,
    /// Virtual port (of source NAT the outside one).
    pub virtual_port: u16,
    /// Local address and port, where the source is translated.
    pub local: Option<(IpAddr, u16)>,
    /// The outside address, of source NAT.
    pub far: Option<IpAddr>,
    /// Milliseconds since its last packet.
    pub idle_ms: u32,
    /// Lower half of the number that acknowledges a FIN.
    pub fin: u16,
    /// Upper half of the sequence numbers that each direction has come to.
    pub seen: [u16; 2],
    /// The client's initial sequence number, where the stream has a header inserted.
    pub isn: u32,
}

/// A session by its addresses. `None` when the plan does not know its real server or local address
/// any more.
pub(super) fn portable<F: Family>(
    plan: &Plan,
    now: Time,
    session: &SessionOf<F>,
) -> Option<Portable> {
    let real = plan.real(session.real())?;
    let template = session.state == State::Template;
    let has_remote = F::WIDE && real.forwarding.has_remote();
    let local = match real.forwarding.translates_source() && !template {
        true => Some((F::to_ip(F::side(plan).local(session.local)?), session.local_port)),
        false => None,
    };
    Some(Portable {
        protocol: session.protocol(),
        state: session.state as u8,
        closing: session.closing & !HOLDS,
        client: F::to_ip(session.client),
        client_port: if template { 0 } else { session.client_port },
        virtual_port: session.virtual_port,
        local,
        far: has_remote.then(|| F::to_ip(F::far(session))),
        idle_ms: session.idle_ms(now),
        fin: session.fin,
        seen: session.seen,
        isn: if has_remote { 0 } else { F::isn(session) },
    })
}

/// Notes changes from now on.
pub(super) fn note_changes<F: Parse>(
    table: &mut Table<F>,
    pages: PagePolicy,
) -> Result<(), RegionError> {
    table.changes = Changes::on(table.sessions.slab().capacity(), pages)?;
    Ok(())
}

/// Lists those of so many slots, from the sweep's place on, that were not told as they are.
/// UDP that nobody has answered is told too unless it presses: by some ways no answers come by
/// the director.
#[inline(never)]
pub(super) fn note_changed<F: Parse>(table: &mut Table<F>, part: u32, pressed: bool) {
    let Table { sessions, changes, cursor, .. } = table;
    let slots = sessions.slab().slots().get(*cursor as usize..).unwrap_or_default();
    for (id, session) in (*cursor..).zip(slots.iter().take(part as usize)) {
        let told = is_told(session) && !(pressed && session.state == State::UdpNew);
        if told && changes.marks.get(id).differs(Mark::of(session)) {
            changes.note(id);
        }
    }
}

/// Takes at most `room` of the changes: ends first, so that who has the same endpoints now
/// comes after who had them.
fn take_changes<F: Parse>(
    table: &mut Table<F>,
    (plan, now): (&Plan, Time),
    room: &mut usize,
    to: &mut impl FnMut(Change),
) {
    let ends = table.changes.ended.len().min(*room);
    for session in table.changes.ended.drain(..ends) {
        let told = portable::<F>(plan, now, &session);
        told.into_iter().for_each(|told| to(change(&session, true, told)));
    }
    let lives = table.changes.live.len().min(*room - ends);
    for at in 0..lives {
        let id = table.changes.live[at];
        tell_session(table, (plan, now), id, to);
    }
    table.changes.live.drain(..lives);
    *room -= ends + lives;
}

/// Tells a session as it is now.
fn tell_session<F: Parse>(
    table: &mut Table<F>,
    (plan, now): (&Plan, Time),
    id: u32,
    to: &mut impl FnMut(Change),
) -> bool {
    let session = table.sessions.slab().at(id);
    let told = is_told(session).then(|| portable::<F>(plan, now, session)).flatten();
    let Some(told) = told else { return false };
    to(change(session, false, told));
    table.changes.is_known(id, session);
    true
}

/// Goes on with a walk over all sessions: at most so many slots, of which `room` are told.
/// Whether there is nothing left of it.
fn walk<F: Parse>(
    table: &mut Table<F>,
    view: (&Plan, Time),
    (slots, room): (u32, &mut usize),
    to: &mut impl FnMut(Change),
) -> bool {
    let Some(from) = table.changes.walk else { return true };
    let (mut id, touched) = (from, table.sessions.slab().touched());
    let end = touched.min(from.saturating_add(slots));
    while id < end && *room > 0 {
        *room -= usize::from(tell_session(table, view, id, to));
        id += 1;
    }
    table.changes.walk = Some(id).filter(|id| *id < touched);
    table.changes.walk.is_none()
}

pub(super) fn change(session: &Core, ended: bool, told: Portable) -> Change {
    Change { real: session.real(), ended, session: told }
}

impl Path {
    /// Notes changes from now on: see [`Self::take_changes`].
    ///
    /// # Errors
    /// Without memory for it: four bytes a session.
    pub fn note_changes(&mut self) -> Result<(), RegionError> {
        note_changes(&mut self.v4.table, self.config.pages)?;
        note_changes(&mut self.extended.table, self.config.pages)
    }

    /// Gives away at most `room` changes, and at most as many slots of a walk: see
    /// [`Self::begin_walk`]. Gives whether a walk has come to its end with this call.
    pub fn take_changes(
        &mut self,
        (plan, now): (&Plan, Time),
        mut room: usize,
        mut to: impl FnMut(Change),
    ) -> bool {
        let slots = room as u32;
        take_changes(&mut self.v4.table, (plan, now), &mut room, &mut to);
        take_changes(&mut self.extended.table, (plan, now), &mut room, &mut to);
        if !self.is_walking() {
            return false;
        }
        let walked = [
            walk(&mut self.v4.table, (plan, now), (slots, &mut room), &mut to),
            walk(&mut self.extended.table, (plan, now), (slots, &mut room), &mut to),
        ];
        walked == [true; 2]
    }

    /// Begins to tell every session, changed or not, with what is taken next. A walk that goes on
    /// begins anew.
    pub fn begin_walk(&mut self) {
        (self.v4.table.changes.walk, self.extended.table.changes.walk) = (Some(0), Some(0));
    }

    /// Whether a walk goes on.
    pub const fn is_walking(&self) -> bool {
        self.v4.table.changes.walk.is_some() || self.extended.table.changes.walk.is_some()
    }

    /// Whether there is anything to take.
    pub const fn has_changes(&self) -> bool {
        self.v4.table.changes.any() || self.extended.table.changes.any()
    }

    /// How many changes there are to take, without those that a walk comes to.
    pub const fn listed(&self) -> usize {
        self.v4.table.changes.listed() + self.extended.table.changes.listed()
    }

    /// Ends that nobody was told of.
    pub const fn untold_ends(&self) -> u64 {
        self.v4.table.changes.untold + self.extended.table.changes.untold
    }
}
