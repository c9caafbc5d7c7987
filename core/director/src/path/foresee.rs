//! What first packets of a group will look at when they open their sessions, asked for ahead.
//!
//! That is the bucket of the session's answers, which depends on the real server, and by Full NAT
//! on the local port: the scheduler is asked whom it would take after those that are under way, and
//! the walk through the pool what port would be next, if nothing else changes until then. A guess
//! that is wrong costs time, nothing else.

use super::burst::GROUPS;
use super::engine::{Engine, FOLLOWED, SOUGHT, Turn};
use super::group::lanes;
use super::open::{scheduled_by, towards};
use super::parse::Parse;
use super::{Shared, View};
use crate::family::Tuple;
use crate::key::Key;
use crate::local_port::Walk;
use crate::plan::{LocalId, Plan, RealId, Service, ServiceId};
use crate::session::Entry;
use sluice_lanes::level::{LANES, Lanes};

/// Groups that something is known of at a time: those between where it is foreseen and where it is
/// used.
const AHEAD: usize = 4;
const _: () = assert!(AHEAD.is_power_of_two() && AHEAD <= GROUPS);
/// First packets of a group that are few. Where there are more, sessions are opened in such a rate
/// that what was asked for when others were opened is still there.
const FEW: u32 = 3;

/// Whom the answers to a first packet are to come from, the local address and port that they will
/// go to if one stands for the client, and the hash of their key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    real: RealId,
    local: (LocalId, u16),
    /// Where the walk through the pool is that this comes of.
    walk: Walk,
    pub hash: u64,
}

/// What is known of the first packets of one group.
#[derive(Clone, Copy, Debug, Default)]
struct Firsts {
    /// Which group it is.
    at: usize,
    /// Lanes whose service is known.
    known: u8,
    services: Lanes<ServiceId>,
    /// Lanes by NAT whose real server was not guessed, since it depends on those before it.
    open: u8,
    /// Lanes whose answers were guessed, and these.
    guessed: u8,
    answers: Lanes<Answers>,
}

impl Firsts {
    /// How many lanes are known to be for a service.
    #[inline(always)]
    fn of(&self, id: ServiceId) -> u32 {
        let lanes = self.services.iter().enumerate();
        let same = lanes.fold(0, |same, (lane, of)| same | u8::from(*of == id) << lane);
        (same & self.known).count_ones()
    }
}

/// What is known of first packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foreseen<A> {
    groups: [Firsts; AHEAD],
    /// Where in the window the packet is that opens a session now.
    opens: usize,
    /// The service that was found last in this turn, and for whom.
    last: Option<((u8, A, u16), ServiceId)>,
    /// Where among the routes the last client's was.
    pub near: u32,
}

impl<A: Copy> Foreseen<A> {
    /// Forgets what was foreseen of a turn.
    pub fn clear(&mut self) {
        for firsts in &mut self.groups {
            (firsts.known, firsts.open, firsts.guessed) = (0, 0, 0);
        }
        self.last = None;
    }

    /// What is known of the group that has a place in the window.
    #[inline(always)]
    fn firsts(&self, position: usize) -> Option<&Firsts> {
        let group = position / LANES;
        Some(&self.groups[group % AHEAD]).filter(|firsts| firsts.at % GROUPS == group)
    }

    /// The service that the packet of a lane of the turn is for.
    #[inline(always)]
    pub fn service(&self, position: usize) -> Option<ServiceId> {
        let (lane, firsts) = (position % LANES, self.firsts(position)?);
        (firsts.known >> lane & 1 == 1).then(|| firsts.services[lane])
    }

    /// Says that the packet of a lane opens a session now.
    #[inline(always)]
    pub const fn begin(&mut self, position: usize) {
        self.opens = position;
    }

    /// The answers of a real server to that packet, if they were foreseen.
    #[inline(always)]
    pub fn answers_of(&self, real: RealId) -> Option<&Answers> {
        let (lane, firsts) = (self.opens % LANES, self.firsts(self.opens)?);
        let answers = &firsts.answers[lane];
        (firsts.guessed >> lane & 1 == 1 && answers.real == real).then_some(answers)
    }
}

impl Answers {
    /// Whether they go to a local address and port.
    #[inline(always)]
    pub fn go_to(&self, local: LocalId, port: u16) -> bool {
        self.local == (local, port)
    }
}

impl<F: Parse> Engine<F> {
    /// The local address and port that was foreseen for the session that is opened now with a real
    /// server, and the key of its answers, as long as both came true and nobody has them; `back` is
    /// that key but for them.
    #[inline(always)]
    pub fn as_foreseen(
        &mut self,
        shared: &mut Shared,
        Turn { view: View { plan, .. }, others, .. }: Turn<'_>,
        (back, real): (&Key<F::Addr>, RealId),
    ) -> Option<((LocalId, u16), Entry)> {
        let Answers { local, walk, hash, .. } = *self.foreseen.answers_of(real)?;
        let key = towards::<F>(plan, back, local)?;
        debug_assert_eq!(hash, self.sessions.hash_key(&key));
        let entry = self.sessions.vacancy(hash)?;
        let taken = others.have::<F>(plan, local.0, &key);
        (!taken && shared.walks.get_mut(real.0 as usize)?.takes(walk)).then_some((local, entry))
    }

    /// Looks ahead for a group's first packets if they are few, some steps before they open their
    /// sessions. What they need is asked for right before what others need, not by itself.
    #[inline(always)]
    pub fn foresee(&mut self, shared: &mut Shared, plan: &Plan, at: usize) {
        if matches!(self.burst.groups[at % GROUPS].missing.count_ones(), 1..=FEW) {
            self.look_ahead(shared, plan, at, true);
        } else {
            let firsts = &mut self.foreseen.groups[at % AHEAD];
            (firsts.known, firsts.open, firsts.guessed) = (0, 0, 0);
        }
    }

    /// The same for a group whose turn is the next, once all before it were followed: if its first
    /// packets are many, or for those whose real server depends on them.
    #[inline(always)]
    pub fn foresee_late(&mut self, shared: &mut Shared, plan: &Plan, at: usize) {
        if self.burst.groups[at % GROUPS].missing.count_ones() > FEW {
            self.look_ahead(shared, plan, at, false);
        } else if self.foreseen.groups[at % AHEAD].open != 0 {
            self.guess_open(shared, plan, at);
        }
    }

    /// The same for the next of those whose real server depends on the one that was just taken.
    #[inline(always)]
    pub fn foresee_next(&mut self, shared: &mut Shared, plan: &Plan, (at, lane): (usize, usize)) {
        let firsts = &mut self.foreseen.groups[at % AHEAD];
        firsts.open &= (u8::MAX - 1) << lane;
        if firsts.open != 0 {
            self.guess_open(shared, plan, at);
        }
    }

    #[inline(never)]
    fn guess_open(&mut self, shared: &mut Shared, plan: &Plan, at: usize) {
        let firsts = &self.foreseen.groups[at % AHEAD];
        let next = firsts.open.trailing_zeros() as usize % LANES;
        let id = firsts.services[next];
        if firsts.at == at
            && let Some(service) = plan.service(id)
        {
            let _ = self.guess(shared, plan, (at, next), (id, service, 0));
        }
    }

    /// Looks ahead for those of a group's packets that are likely to open a session, be they few or
    /// many.
    #[inline(never)]
    fn look_ahead(&mut self, shared: &mut Shared, plan: &Plan, at: usize, few: bool) {
        let (side, mut before) = (F::side(plan), None);
        let firsts = &mut self.foreseen.groups[at % AHEAD];
        (firsts.at, firsts.known, firsts.open, firsts.guessed) = (at, 0, 0, 0);
        for lane in lanes(self.burst.groups[at % GROUPS].missing) {
            let group = &self.burst.groups[at % GROUPS];
            if !group.may_open(lane) {
                continue;
            }
            let Tuple { protocol, dst, dport, .. } = F::tuple(&F::key_of(&group.words, lane));
            let id = match self.foreseen.last {
                Some((last, id)) if last == (protocol, dst, dport) => id,
                _ => {
                    let Some(id) = side.service_at(protocol, dst, dport) else { continue };
                    self.foreseen.last = Some(((protocol, dst, dport), id));
                    id
                }
            };
            let Some(service) = plan.service(id) else { continue };
            let ahead = match before {
                Some((same, ahead)) if same == id => ahead + 1,
                _ if few => self.pending(at, id),
                _ => 0,
            };
            before = Some((id, ahead));
            let firsts = &mut self.foreseen.groups[at % AHEAD];
            firsts.known |= 1 << lane;
            firsts.services[lane] = id;
            let by_nat = service.forwarding.answers_client();
            if !by_nat && (!few || !service.forwarding.translates_both()) {
                continue;
            }
            let guessed = self.guess(shared, plan, (at, lane), (id, service, ahead)).is_some();
            if !guessed && by_nat {
                self.foreseen.groups[at % AHEAD].open |= 1 << lane;
            }
        }
    }

    /// First packets for a service in groups before one that were not followed yet, if known.
    fn pending(&self, at: usize, id: ServiceId) -> u32 {
        let before = (1..=FOLLOWED - SOUGHT).filter_map(|by| at.checked_sub(by));
        let firsts = before.map(|at| (at, &self.foreseen.groups[at % AHEAD]));
        let there = firsts.filter(|(at, firsts)| firsts.known != 0 && firsts.at == *at);
        there.map(|(_, firsts)| firsts.of(id)).sum()
    }

    /// Asks for the bucket of a lane's answers, if its service's scheduler can tell who will be
    /// taken after so many others, and by Full NAT what local address and port.
    fn guess(
        &mut self,
        shared: &mut Shared,
        plan: &Plan,
        (at, lane): (usize, usize),
        (id, service, ahead): (ServiceId, &Service, u32),
    ) -> Option<()> {
        let key = F::key_of(&self.burst.groups[at % GROUPS].words, lane);
        let by = scheduled_by::<F>(plan, service, &F::tuple(&key));
        let real = shared.schedulers.guess(plan, id, by, ahead)?;
        let entry = F::side(plan).real(real)?;
        let (mut back, mut local) = (entry.answers_to(&key), (LocalId::default(), 0));
        let mut walk = Walk::default();
        if entry.forwarding.translates_both() {
            let range = shared.ports_towards::<F>(plan, &back, service)?;
            walk = range.place(shared.walks.get_mut(real.0 as usize)?.tell());
            local = range.next(walk)?;
            back = towards::<F>(plan, &back, local)?;
        }
        let hash = self.sessions.hash_key(&back);
        self.sessions.index().prefetch(hash);
        let firsts = &mut self.foreseen.groups[at % AHEAD];
        firsts.guessed |= 1 << lane;
        firsts.answers[lane] = Answers { real, local, walk, hash };
        Some(())
    }
}
