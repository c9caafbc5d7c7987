//! Which of several workers has a packet's session: where packets go that find none where they are.
//!
//! A session belongs to the worker that received its first packet (its *home*, to which the NIC
//! brings what follows), or to the one that a hash of its client gives ([`Owner`]), so that all
//! packets of the client meet, in both directions. A reload may change which of these it is, and
//! sessions stay where they are. So a packet that finds no session goes round, once: first to the
//! worker that a new session would belong to, where nearly all are found; from there to each where
//! an older session may be (the plan remembers what may have said so); and back, to open one.
//!
//! Every worker works out the same way from the packet and the plan; the packet itself carries
//! only where it began and how far it came ([`Round`]). While a reload is in progress the workers'
//! plans differ, and so may the ways: each step is counted, and after so many the packet is
//! dropped ([`Reason::HandOffLoop`]).
//!
//! A new session of source NAT belongs to the worker that has the mapping of its inside endpoint:
//! the one that a hash gives, until sessions are taken up from elsewhere, which lie at the worker
//! of their pool port. From then on each worker that has the mapping notes itself in the round, and
//! the way back ends there. It opens no session before: the packet may be of one at a later stop.

use super::handoff::Bounds;
use super::shared::Ports;
use super::{Shared, Verdict, hairpin};
use crate::family::{Family, Ipv4, Ipv6, Tuple};
use crate::hash::Seed;
use crate::plan::{Owner, Plan, ServiceId};
use crate::reason::Reason;
use arrayvec::ArrayVec;
use std::net::IpAddr;

/// The most workers that a packet asks. A plan remembers more only of a service whose persistence
/// was changed as often while it had sessions.
const STOPS: usize = 16;
/// Steps that may be taken besides once to every worker: back to the first, and what workers with
/// different plans do to each other.
const SPARE: u16 = 4;

/// What a frame that is handed over has behind it. It goes with the frame: see
/// [`super::Path::turn_handed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The worker that received it.
    home: u16,
    /// How often it was handed over.
    steps: u8,
    /// Whether its session was ended so that it may open another from the middle of a stream.
    mid_stream: bool,
    /// Whether hairpinning has made it a packet from outside: another's with such a source was
    /// forged.
    hairpinned: bool,
    /// The worker that has the mapping of its sender by source NAT, plus one; 0 if none is known.
    opener: u16,
}

// It goes with every frame that is handed over.
const _: () = assert!(size_of::<Round>() == 8);

impl Round {
    /// The worker that received the frame.
    pub const fn home(&self) -> u16 {
        self.home
    }

    /// Whether the frame came straight from there.
    pub const fn is_first(&self) -> bool {
        self.steps <= 1
    }
}

/// A packet for a local port of another worker goes there.
#[inline(always)]
pub(super) fn stays_here<F: Family>(
    tuple: &Tuple<F::Addr>,
    plan: &Plan,
    shared: &Shared,
) -> Result<(), Verdict> {
    let Some(pool) = plan.pool_number(F::side(plan), tuple.dst) else { return Ok(()) };
    if shared.ports.has_port(pool, tuple.dport) {
        return Ok(());
    }
    hand_off::<F>(plan, shared, pool, tuple)
}

/// One for a port that is not this worker's.
#[inline(never)]
fn hand_off<F: Family>(
    plan: &Plan,
    shared: &Shared,
    number: usize,
    tuple: &Tuple<F::Addr>,
) -> Result<(), Verdict> {
    let Some(pool) = plan.pools.get(number) else { return Ok(()) };
    // It may be of a session of its sender's own.
    if pool.hairpins && hairpin::rule_for::<F>(plan, tuple).is_some() {
        return Ok(());
    }
    match pool.owner(tuple.dport, shared.workers) {
        Some(owner) if owner != shared.worker => Err(Verdict::HandOff(owner)),
        _ => Ok(()),
    }
}

impl Ports {
    /// Whether a local port of a pool is this worker's.
    #[inline(always)]
    pub(super) fn has_port(&self, pool: usize, port: u16) -> bool {
        let share = self.shares.get(pool);
        share.is_some_and(|(first, count)| u32::from(port.wrapping_sub(*first)) < *count)
    }
}

impl Shared {
    /// Works out which local ports of a new plan are this worker's.
    pub(super) fn adopt_ports(&mut self, plan: &Plan) {
        self.ports.shares.clear();
        self.ports.shares.extend(plan.pools.iter().map(|pool| {
            let (offset, count) = pool.share(self.worker, self.workers);
            (pool.first_port.wrapping_add(offset as u16), count)
        }));
        self.ports.bounds = Bounds::of(plan, &self.ports.shares);
    }

    /// Begins a turn of so many frames, the last of which have these rounds behind them.
    #[inline(always)]
    pub(super) fn begin_rounds(&mut self, frames: usize, rounds: &[Round]) {
        self.scratch.own = frames - rounds.len();
        self.scratch.rounds.clear();
        self.scratch.rounds.extend(rounds.iter().copied());
        (self.scratch.resumes, self.scratch.hairpinned) = Default::default();
        self.scratch.opens = Default::default();
    }

    /// What a frame of the turn has behind it.
    pub(super) fn round(&self, frame: u8) -> Round {
        let fresh = Round { home: self.worker, ..Round::default() };
        let handed = usize::from(frame).checked_sub(self.scratch.own);
        handed.and_then(|at| self.scratch.rounds.get(at)).copied().unwrap_or(fresh)
    }

    /// What a frame has behind it that is handed over by who received it, without any look.
    pub(super) fn first_round(&self) -> Round {
        Round { home: self.worker, steps: 1, ..Round::default() }
    }

    /// What a frame will have behind it when it is handed over.
    pub(super) fn next_round(&self, frame: u8) -> Round {
        let round = self.round(frame);
        Round {
            steps: round.steps.saturating_add(1),
            mid_stream: self.may_resume(frame),
            hairpinned: self.is_hairpinned(frame),
            opener: self.opener(frame).map_or(0, |worker| worker + 1),
            ..round
        }
    }

    /// Whether a packet may open a session from the middle of a stream, since its own was ended.
    pub(super) fn may_resume(&self, frame: u8) -> bool {
        self.round(frame).mid_stream
            || self.scratch.resumes[usize::from(frame / 64)] >> (frame % 64) & 1 != 0
    }

    /// A packet's session was ended so that it opens another, wherever that will be.
    pub(super) fn resume(&mut self, frame: u8) {
        self.scratch.resumes[usize::from(frame / 64)] |= 1 << (frame % 64);
    }

    /// Whether a packet is one from inside that hairpinning has made one from outside.
    pub(super) fn is_hairpinned(&self, frame: u8) -> bool {
        self.round(frame).hairpinned
            || self.scratch.hairpinned[usize::from(frame / 64)] >> (frame % 64) & 1 != 0
    }

    /// Hairpinning has made a packet one from outside.
    pub(super) fn hairpin(&mut self, frame: u8) {
        self.scratch.hairpinned[usize::from(frame / 64)] |= 1 << (frame % 64);
    }

    /// Whether a packet asks this worker for its sender's mapping: on its way to all of them, while
    /// sessions may be anywhere.
    pub(super) fn asks_for_mapping(&self, frame: u8) -> bool {
        self.scattered && u16::from(self.round(frame).steps) <= self.workers
    }

    /// This worker has the mapping of a packet's sender. Where several have one, since directors
    /// that did not hear each other gave it one each, all choose the same: that of the worker that
    /// would open the session without, or the first one's.
    pub(super) fn has_mapping<F: Family>(&mut self, tuple: &Tuple<F::Addr>, frame: u8) {
        let owner = self.owner(Owner::Endpoint, (general::<F>(tuple.src), tuple.sport));
        let order = |worker: u16| (worker != owner, worker);
        if self.opener(frame).is_none_or(|other| order(self.worker) < order(other)) {
            self.scratch.opens[usize::from(frame / 64)] |= 1 << (frame % 64);
        }
    }

    /// The worker that has the mapping of a packet's sender, as far as that is known.
    fn opener(&self, frame: u8) -> Option<u16> {
        if self.scratch.opens[usize::from(frame / 64)] >> (frame % 64) & 1 != 0 {
            return Some(self.worker);
        }
        self.round(frame).opener.checked_sub(1)
    }

    /// Ends the rounds of frames that have no end.
    #[cold]
    pub(super) fn end_rounds(&self, verdicts: &mut [Verdict]) {
        let most = (self.workers + SPARE).min(u8::MAX.into()) as u8;
        for (verdict, round) in verdicts.iter_mut().skip(self.scratch.own).zip(&self.scratch.rounds)
        {
            if matches!(verdict, Verdict::HandOff(_)) && round.steps >= most {
                *verdict = Verdict::Drop(Reason::HandOffLoop);
            }
        }
    }

    /// Where a packet goes next that has found no session here and is for `service`; `None` when
    /// it stays. `opens` says that it is the first of a connection, and needs to find none.
    pub(super) fn next_stop<F: Family>(
        &self,
        plan: &Plan,
        service: ServiceId,
        tuple: &Tuple<F::Addr>,
        (frame, opens): (u8, bool),
    ) -> Option<u16> {
        if self.workers < 2 {
            return None;
        }
        let owner = plan.service(service).and_then(|service| service.owner);
        let client = (general::<F>(tuple.src), tuple.sport);
        let last = owner.map_or(self.round(frame).home, |owner| self.owner(owner, client));
        if self.scattered && !opens {
            return self.next_of_scattered((frame, true), Some(last));
        }
        let former = former_owners::<F>(plan, tuple).map(|owner| self.owner(owner, client));
        self.stop(frame, std::iter::once(last).chain(former), Some(last))
    }

    /// The same for a packet that is for no service: it may be one of a service that is gone, one
    /// from a real server reached by NAT, or one of source NAT, now by `rule`.
    pub(super) fn next_stop_of_stranger<F: Family>(
        &self,
        plan: &Plan,
        rule: Option<ServiceId>,
        tuple: &Tuple<F::Addr>,
        frame: u8,
    ) -> Option<u16> {
        if self.workers < 2 {
            return None;
        }
        let from = (general::<F>(tuple.src), tuple.sport);
        let to = (general::<F>(tuple.dst), tuple.dport);
        let gone = former_owners::<F>(plan, tuple).map(|owner| self.owner(owner, from));
        let answers = nat_owners::<F>(plan, tuple).map(|owner| self.owner(owner, to));
        let (src, dst) = (F::to_ip(tuple.src), F::to_ip(tuple.dst));
        let rules = plan.snat_former.iter().filter_map(|id| plan.service(*id)?.snat.as_ref());
        let rules = rules.filter(|rule| rule.matches(tuple.protocol, src, dst));
        let outward = rules.map(|_| self.owner(Owner::Endpoint, from));
        let opener = || self.opener(frame).unwrap_or_else(|| self.owner(Owner::Endpoint, from));
        let last = rule.map(|_| opener());
        let pool = plan.pool_of(F::side(plan), tuple.dst);
        if self.scattered {
            // To a pool port it may have been handed over without a look, at first.
            let looked = pool.is_none_or(|pool| !pool.hairpins);
            return self.next_of_scattered((frame, looked), last);
        }
        // By hairpinning only: what answers to that port is elsewhere than who is asked.
        let port = pool.and_then(|pool| pool.owner(tuple.dport, self.workers));
        self.stop(frame, port.into_iter().chain(answers).chain(gone).chain(outward), last)
    }

    /// The same for what says of no session whose it is: every worker is asked, once.
    pub(super) fn next_of_all(&self, frame: u8) -> Option<u16> {
        let next = (self.worker + 1) % self.workers;
        (next != self.worker && next != self.round(frame).home).then_some(next)
    }

    /// The next stop of a way round, which ends where new sessions belong; without such a `last`,
    /// anywhere.
    fn stop(&self, frame: u8, asked: impl Iterator<Item = u16>, last: Option<u16>) -> Option<u16> {
        let round = self.round(frame);
        let mut stops = ArrayVec::<u16, STOPS>::new();
        for stop in asked {
            // It began at home, and found nothing there.
            if stop != round.home && !stops.contains(&stop) && !stops.is_full() {
                stops.push(stop);
            }
        }
        let mut ahead = stops.iter().skip(round.steps.into()).copied();
        let next = ahead.find(|stop| *stop != self.worker);
        next.or(last.filter(|last| *last != self.worker))
    }

    /// The next stop of a packet that found no session while sessions may be anywhere (see
    /// [`super::restore`]): every worker, once, and then the one that new sessions belong to.
    /// `looked` says that the worker which received it certainly has looked for one; else that is
    /// asked last.
    fn next_of_scattered(&self, (frame, looked): (u8, bool), last: Option<u16>) -> Option<u16> {
        let asked = u16::from(self.round(frame).steps) + u16::from(looked);
        let next = if asked < self.workers { (self.worker + 1) % self.workers } else { last? };
        (next != self.worker).then_some(next)
    }

    /// The worker that a client's sessions belong to. Every worker has the same seed.
    fn owner(&self, owner: Owner, (client, port): (u128, u16)) -> u16 {
        Owners { seed: self.seed, workers: self.workers }.by_key(owner, client, port)
    }
}

/// Which worker has the sessions of a client where a hash of its endpoint says so (`nat`, `snat`):
/// for who brings packets to the right one.
#[derive(Clone, Copy, Debug)]
pub struct Owners {
    seed: Seed,
    workers: u16,
}

impl Owners {
    /// Of so many workers, at least one, whose paths were made with this seed.
    pub const fn new(seed: u64, workers: u16) -> Self {
        Self { seed: Seed::new(seed), workers }
    }

    /// How many workers there are.
    pub const fn workers(&self) -> u16 {
        self.workers
    }

    /// The worker of a client by what says so.
    pub(super) fn by(&self, owner: Owner, client: IpAddr, port: u16) -> u16 {
        self.by_key(owner, Ipv6::from_ip(client).unwrap_or_default(), port)
    }

    fn by_key(&self, owner: Owner, client: u128, port: u16) -> u16 {
        match owner {
            Owner::Endpoint => self.of_key(client, port),
            Owner::Network(prefix) => self.of_key(Ipv6::masked(client, prefix), 0),
        }
    }

    /// The worker of a client.
    pub fn of(&self, client: IpAddr, port: u16) -> u16 {
        self.of_key(Ipv6::from_ip(client).unwrap_or_default(), port)
    }

    fn of_key(&self, client: u128, port: u16) -> u16 {
        let tuple = Tuple { src: client, sport: port, ..Tuple::default() };
        let hash = Ipv6::hash(&tuple, &self.seed) >> 32;
        ((hash * u64::from(self.workers)) >> 32) as u16
    }
}

/// An address in the form that both tables have: who owns a client does not depend on the table.
fn general<F: Family>(address: F::Addr) -> u128 {
    Ipv6::from_ip(F::to_ip(address)).unwrap_or_default()
}

/// The tuple as the IPv4 table has it, for the extended one, which is asked last and so for both.
fn narrow<F: Family>(tuple: &Tuple<F::Addr>) -> Option<Tuple<u32>> {
    if !F::WIDE {
        return None;
    }
    let (src, dst) = (Ipv4::from_ip(F::to_ip(tuple.src))?, Ipv4::from_ip(F::to_ip(tuple.dst))?);
    Some(Tuple { src, dst, sport: tuple.sport, dport: tuple.dport, protocol: tuple.protocol })
}

/// What says where older sessions of a packet's client may be.
fn former_owners<'a, F: Family>(
    plan: &'a Plan,
    tuple: &Tuple<F::Addr>,
) -> impl Iterator<Item = Owner> + 'a {
    let Tuple { dst, dport, protocol, .. } = *tuple;
    let other = narrow::<F>(tuple).into_iter();
    let other = other.flat_map(move |t| plan.v4.former_owners(protocol, t.dst, dport));
    F::side(plan).former_owners(protocol, dst, dport).chain(other)
}

/// What says where the session may be that a packet from a real server reached by NAT answers.
fn nat_owners<'a, F: Family>(
    plan: &'a Plan,
    tuple: &Tuple<F::Addr>,
) -> impl Iterator<Item = Owner> + 'a {
    let Tuple { src, sport, protocol, .. } = *tuple;
    let other = narrow::<F>(tuple).into_iter();
    let other = other.flat_map(move |t| plan.v4.nat_owners(protocol, t.src, sport));
    F::side(plan).nat_owners(protocol, src, sport).chain(other)
}
