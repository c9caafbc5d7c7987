//! What first packets of a group will look at when they open their sessions, asked for ahead.
//!
//! By NAT that is the bucket of the session's answers, which depends on the real server: the
//! scheduler is asked whom it would take if nothing changes until then. A guess that is wrong costs
//! time, nothing else.

use super::Shared;
use super::burst::GROUPS;
use super::engine::Engine;
use super::group::lanes;
use super::open::scheduled_by;
use super::parse::Parse;
use crate::blueprint::Mode;
use crate::family::Tuple;
use crate::plan::{Plan, RealId, Service, ServiceId};
use sluice_lanes::level::{LANES, Lanes};

/// What is known of the first packets of one group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foreseen<A> {
    /// Which group it is.
    at: usize,
    /// Lanes whose service is known.
    known: u8,
    services: Lanes<ServiceId>,
    /// Lanes by NAT whose real server was not guessed, since it depends on those before it.
    open: u8,
    /// Lanes by NAT whose real server was: who it is, and the hash of what its answers have.
    guessed: u8,
    answers: Lanes<(RealId, u64)>,
    /// Of the packet that opens a session now the same, if it was guessed.
    answer: Option<(RealId, u64)>,
    /// The service that was found last in this turn, and for whom.
    last: Option<((u8, A, u16), ServiceId)>,
}

impl<A: Copy> Foreseen<A> {
    /// Forgets what was foreseen of a turn.
    pub const fn clear(&mut self) {
        (self.known, self.open, self.guessed) = (0, 0, 0);
        (self.answer, self.last) = (None, None);
    }

    /// The service that the packet of a lane of the turn is for.
    #[inline(always)]
    pub const fn service(&self, position: usize) -> Option<ServiceId> {
        let lane = position % LANES;
        let known = self.at % GROUPS == position / LANES && self.known >> lane & 1 == 1;
        if known { Some(self.services[lane]) } else { None }
    }

    /// Says that the packet of a lane opens a session now.
    #[inline(always)]
    pub const fn begin(&mut self, position: usize) {
        let lane = position % LANES;
        let known = self.at % GROUPS == position / LANES && self.guessed >> lane & 1 == 1;
        self.answer = if known { Some(self.answers[lane]) } else { None };
    }

    /// The hash of the key of what a real server answers to that packet, if it was foreseen.
    #[inline(always)]
    pub fn answer_of(&self, real: RealId) -> Option<u64> {
        self.answer.filter(|(guessed, _)| *guessed == real).map(|(_, hash)| hash)
    }
}

impl<F: Parse> Engine<F> {
    /// Looks ahead for those of a group's packets that are likely to open a session, once all
    /// before it have.
    #[inline(always)]
    pub fn foresee(&mut self, shared: &Shared, plan: &Plan, at: usize) {
        if self.burst.groups[at % GROUPS].missing != 0 {
            self.look_ahead(shared, plan, at);
        } else {
            (self.foreseen.known, self.foreseen.open, self.foreseen.guessed) = (0, 0, 0);
        }
    }

    /// The same for the next of those whose real server depends on the one that was just taken.
    #[inline(always)]
    pub fn foresee_next(&mut self, shared: &Shared, plan: &Plan, (at, lane): (usize, usize)) {
        self.foreseen.open &= (u8::MAX - 1) << lane;
        if self.foreseen.open != 0 && self.foreseen.at == at {
            let next = self.foreseen.open.trailing_zeros() as usize;
            let id = self.foreseen.services[next];
            if let Some(service) = plan.service(id) {
                self.guess(shared, plan, (at, next), (id, service, 0));
            }
        }
    }

    #[inline(never)]
    fn look_ahead(&mut self, shared: &Shared, plan: &Plan, at: usize) {
        let (side, mut before) = (F::side(plan), None);
        self.foreseen.at = at;
        (self.foreseen.known, self.foreseen.open, self.foreseen.guessed) = (0, 0, 0);
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
            self.foreseen.known |= 1 << lane;
            self.foreseen.services[lane] = id;
            let by_nat = |service: &&Service| service.mode == Mode::Nat;
            let Some(service) = plan.service(id).filter(by_nat) else { continue };
            let ahead = match before {
                Some((same, ahead)) if same == id => ahead + 1,
                _ => 0,
            };
            before = Some((id, ahead));
            if !self.guess(shared, plan, (at, lane), (id, service, ahead)) {
                self.foreseen.open |= 1 << lane;
            }
        }
    }

    /// Asks for the bucket of a lane's answers if its service's scheduler can tell who will be
    /// taken after so many others.
    fn guess(
        &mut self,
        shared: &Shared,
        plan: &Plan,
        (at, lane): (usize, usize),
        (id, service, ahead): (ServiceId, &Service, u32),
    ) -> bool {
        let key = F::key_of(&self.burst.groups[at % GROUPS].words, lane);
        let by = scheduled_by::<F>(plan, service, &F::tuple(&key));
        let real = shared.schedulers.guess(plan, id, by, ahead);
        let Some(id) = real else { return false };
        let Some(real) = F::side(plan).real(id) else { return false };
        let hash = self.sessions.hash_key(&real.answers_to(&key));
        self.sessions.index().prefetch(hash);
        self.foreseen.guessed |= 1 << lane;
        self.foreseen.answers[lane] = (id, hash);
        true
    }
}
