//! A director: workers, a configuration and an end of the protocol, joined as `bin/sluiced` and
//! `host/worker` join them, but in virtual time.

use super::Recipe;
use super::records::{self, Reals};
use super::site::{BACK, BACK_MAC, FRONT, FRONT_MAC, Lacks, Site, is_inside};
use super::spread::{Dealt, SpreadFlows};
use crate::frame::{Buffer, Pool};
use crate::rng::Rng;
use crate::wire::{Packet, Seen, read, to_ip};
use sluice_director::Time;
use sluice_director::counters::{Direction, RealCounters};
use sluice_director::fib::Fib;
use sluice_director::path::{
    Change, FlowName, Imported, Importer, Imports, Owners, PagePolicy, Path, PathConfig, Round,
    Verdict, View,
};
use sluice_director::plan::{Plan, Resolver, Retired};
use sluice_sync::record::{Real, Session};
use sluice_sync::{Destination, Endpoint, Event, Settings};
use std::time::Duration;

/// Sessions of a worker's table.
const SESSIONS: u32 = 4096;
/// Changes that a worker tells in a turn.
const ROOM: usize = 256;
/// Datagrams that a socket holds for who does not read them.
pub(super) const SOCKET: usize = 256;

/// A director that runs.
pub(super) struct Director {
    number: usize,
    paths: Vec<Path>,
    /// What its workers spread.
    flows: Vec<SpreadFlows>,
    plan: Plan,
    fib: Fib,
    resolver: Resolver,
    reals: Reals,
    owners: Owners,
    pub endpoint: Endpoint,
    /// How far its clock is ahead of the world's.
    offset_ms: u64,
    batches: Vec<Imports>,
    /// Workers that have not come to the end of the walk that goes on.
    walking: Vec<bool>,
    /// Pulls of peers that workers walk for, and those for which they are to walk next.
    pulls: [Vec<u64>; 2],
    pub imported: Imported,
    spread: u64,
}

/// What became of a packet.
#[derive(Debug)]
pub(super) enum Fate {
    /// It was sent by the front or the back port.
    Sent { front: bool, seen: Box<Seen> },
    /// It was not forwarded.
    Stopped(Verdict),
}

impl Director {
    /// The `start`th start of a director.
    pub fn new(
        site: &Site,
        recipe: &Recipe,
        (number, start): (usize, u64),
        peers: usize,
    ) -> Result<Self, String> {
        let mut rng = Rng::of(&[recipe.seed, 210, number as u64, start]);
        let workers = Self::workers_of_start(recipe, number, start);
        let spec = site.spec(number, None);
        let plan = Plan::compile(&spec, None, &Retired::default()).map_err(|e| e.to_string())?;
        let hash_seed = rng.next();
        let place = if rng.chance(100) { 0 } else { rng.next() as u32 };
        let paths = (0..workers).map(|worker| {
            let config = PathConfig {
                worker,
                workers,
                sessions: SESSIONS,
                fragments: 64,
                seed: hash_seed,
                pages: PagePolicy::Ordinary,
            };
            let mut path = Path::new(&config).map_err(|error| format!("{error:?}"))?;
            path.begin_ports_at(place);
            path.note_changes().map_err(|error| format!("{error:?}"))?;
            path.adopt(&plan);
            Ok(path)
        });
        let mut random = [0; 32];
        random.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&rng.next().to_le_bytes()));
        let settings = Settings {
            name: format!("director {number}"),
            keys: vec![[7; 32]],
            peers,
            // Some directors have a network that carries multicast.
            group: random[0] & 1 == 0,
            random,
            ..Settings::default()
        };
        Ok(Self {
            number,
            paths: paths.collect::<Result<_, String>>()?,
            flows: (0..workers).map(|_| SpreadFlows::default()).collect(),
            fib: site.fib(&plan, None),
            resolver: Resolver::new(&plan),
            reals: Reals::of(&plan),
            plan,
            owners: Owners::new(hash_seed, workers),
            endpoint: Endpoint::new(settings).map_err(|error| error.to_string())?,
            offset_ms: (1 << 32) - 20_000 + rng.below(1 << 34),
            batches: vec![Imports::default(); usize::from(workers)],
            walking: vec![false; usize::from(workers)],
            pulls: Default::default(),
            imported: Imported::default(),
            spread: rng.next(),
        })
    }

    /// How many workers a director has at a start: flows and local ports are other workers' than
    /// before.
    fn workers_of_start(recipe: &Recipe, number: usize, start: u64) -> u16 {
        let most = Self::workers(recipe, number);
        if start <= 1 || recipe.workers.is_some() {
            return most;
        }
        Rng::of(&[recipe.seed, 212, number as u64, start]).range(1, most.into()) as u16
    }

    /// How many workers a director has at most.
    pub fn workers(recipe: &Recipe, number: usize) -> u16 {
        let drawn = Rng::of(&[recipe.seed, 211, number as u64]).range(1, 3) as u16;
        recipe.workers.unwrap_or(drawn)
    }

    const fn time(&self, now: u64) -> Time {
        Time(now + self.offset_ms)
    }

    const fn clock(&self, now: u64) -> Duration {
        Duration::from_millis(now + self.offset_ms)
    }

    /// Runs with another configuration from now on.
    pub fn configure(&mut self, site: &Site, lacks: Lacks) -> Result<(), String> {
        let spec = site.spec(self.number, lacks);
        let plan = Plan::compile(&spec, Some(&self.plan), &Retired::default());
        self.plan = plan.map_err(|error| error.to_string())?;
        self.fib = site.fib(&self.plan, Some(&self.fib));
        (self.resolver, self.reals) = (Resolver::new(&self.plan), Reals::of(&self.plan));
        self.paths.iter_mut().for_each(|path| path.adopt(&self.plan));
        self.flows.iter_mut().for_each(SpreadFlows::renew);
        Ok(())
    }

    /// A packet comes in; the port's hash decides which worker receives it.
    pub fn forward(
        &mut self,
        pool: &mut Pool,
        packet: &Packet,
        front: bool,
        now: u64,
    ) -> Result<Fate, String> {
        let (port, mac) = if front { (FRONT, FRONT_MAC) } else { (BACK, BACK_MAC) };
        let mut frame = pool.make(packet, ([2, 0, 0, 3, 0, 0], mac), 0);
        let tuple = packet.tuple;
        let half = |address: u128| (address ^ address >> 64) as u64;
        let ports = u64::from(tuple.sport) << 16 | u64::from(tuple.dport);
        let hash = Rng::of(&[self.spread, half(tuple.src), half(tuple.dst), ports]).next();
        let mut at = (hash % self.paths.len() as u64) as usize;
        let (time, mut rounds) = (self.time(now), Vec::<Round>::new());
        let mut verdict = [Verdict::Wait];
        for _ in 0..=self.paths.len() + 4 {
            let view = View { plan: &self.plan, fib: &self.fib };
            let (path, flows) = (&mut self.paths[at], &mut self.flows[at]);
            match flows.pass((path, view), (time, port), (frame, &rounds))? {
                Dealt::Stays(same) => frame = same,
                Dealt::Leaves(port, same) => {
                    (frame, verdict) = (same, [Verdict::Tx(port)]);
                    break;
                }
            }
            let frames = std::slice::from_mut::<Buffer>(&mut frame);
            self.paths[at].turn_handed(view, time, port, (frames, &rounds), &mut verdict);
            let Verdict::HandOff(to) = verdict[0] else {
                self.spread(at, packet, front, time);
                break;
            };
            rounds = vec![self.paths[at].round(0)];
            at = usize::from(to);
        }
        let fate = match verdict[0] {
            Verdict::Tx(port) => {
                use sluice_director::Frame as _;
                let seen = read(frame.bytes())?;
                if !seen.right {
                    return Err(format!("a wrong checksum in {}", seen.packet));
                }
                Fate::Sent { front: port == FRONT, seen: Box::new(seen) }
            }
            verdict @ (Verdict::HandOff(_) | Verdict::Wait | Verdict::Park(_)) => {
                return Err(format!("{verdict:?} for {packet}"));
            }
            verdict => Fate::Stopped(verdict),
        };
        pool.put(frame);
        Ok(fate)
    }

    /// Perhaps spreads a flow that a client's packet is of.
    fn spread(&mut self, worker: usize, packet: &Packet, front: bool, now: Time) {
        let tuple = packet.tuple;
        let mut rng = Rng::of(&[self.spread, 7, now.0, u64::from(packet.seq)]);
        if !(front || is_inside(tuple.src)) || !rng.chance(300) {
            return;
        }
        let client = (to_ip(tuple.src), tuple.sport);
        let virtual_ = (to_ip(tuple.dst), tuple.dport);
        let (protocol, direction) = (tuple.protocol, Direction::Inbound);
        let flow = FlowName { protocol, client, virtual_, direction };
        let view = View { plan: &self.plan, fib: &self.fib };
        self.flows[worker].begin((&self.paths[worker], view), now, (flow, rng.chance(600)));
    }

    /// Packets of spread flows that helpers rewrote.
    pub fn dealt(&self) -> u64 {
        self.flows.iter().map(|flows| flows.dealt).sum()
    }

    /// A datagram of a peer comes in.
    pub fn hear(&mut self, now: u64, peer: usize, datagram: &[u8]) {
        self.endpoint.handle(self.clock(now), peer, datagram);
    }

    /// One turn: the sweep, what peers have told, and what they are to be told.
    pub fn turn(&mut self, now: u64, mut send: impl FnMut(Destination, &[u8])) {
        let time = self.time(now);
        self.paths.iter_mut().for_each(|path| path.sweep(&self.plan, time));
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Sessions { runs, .. } => self.sort(&runs),
                Event::Pull { pull, .. } => {
                    self.pulls[1].push(pull);
                    self.begin_walk();
                }
                _ => {}
            }
        }
        for (path, batch) in self.paths.iter_mut().zip(&mut self.batches) {
            self.imported += path.import(&self.plan, time, &std::mem::take(batch));
        }
        self.tell(now);
        let (clock, mut datagram) = (self.clock(now), Vec::new());
        while let Some(to) = self.endpoint.poll_transmit(clock, &mut datagram) {
            send(to, &datagram);
        }
    }

    fn begin_walk(&mut self) {
        if self.pulls[0].is_empty() && !self.pulls[1].is_empty() {
            self.pulls.swap(0, 1);
            self.walking.fill(true);
            self.paths.iter_mut().for_each(Path::begin_walk);
        }
    }

    fn sort(&mut self, runs: &[(Real, Vec<Session>)]) {
        let importer = Importer::new(&self.plan, &self.resolver, self.owners);
        for (real, sessions) in runs {
            let id = records::real_name(real)
                .and_then(|name| self.resolver.real(&records::service_name(&real.service), name));
            let mut batches: Vec<_> = self.batches.iter_mut().collect();
            for session in sessions {
                let (session, ended) = records::session(session);
                let place = |id| importer.place(id, &session, ended, &mut batches);
                self.imported.unknown += u64::from(!id.is_some_and(place));
            }
        }
    }

    fn tell(&mut self, now: u64) {
        let (time, clock) = (self.time(now), self.clock(now));
        let mut changes = Vec::<Change>::new();
        for (path, walking) in self.paths.iter_mut().zip(&mut self.walking) {
            let room = self.endpoint.room().saturating_sub(changes.len()).min(ROOM);
            if room > 0 && path.has_changes() {
                let told = path.take_changes((&self.plan, time), room, |it| changes.push(it));
                *walking &= !told;
            }
        }
        changes.sort_by_key(|change| change.real);
        for change in &changes {
            if let Some(real) = self.reals.get(change.real) {
                self.endpoint.send(clock, real, &records::session_record(change));
            }
        }
        if self.walking.iter().all(|walking| !walking) {
            self.pulls[0].drain(..).for_each(|pull| self.endpoint.pull_complete(clock, pull));
            self.begin_walk();
        }
    }

    /// When the next turn is due.
    pub fn due(&self, now: u64) -> u64 {
        let at = self.endpoint.poll_timeout(self.clock(now));
        let busy = self.paths.iter().any(Path::has_changes);
        let at = at.as_micros().div_ceil(1000) as u64 - self.offset_ms;
        if busy { now + 1 } else { at.max(now + 1) }
    }

    /// Sessions and bindings of clients that are in its tables.
    pub fn held(&self) -> u32 {
        self.paths.iter().map(|path| path.live_sessions() + path.templates()).sum()
    }

    /// Whether its tables are in order.
    pub fn check(&self) -> Result<(), String> {
        let of = |real: &RealCounters| (real.active, real.established, real.closing, real.bound);
        for (worker, path) in self.paths.iter().enumerate() {
            let gauges: Vec<_> = path.counters().reals.iter().map(of).collect();
            let found: Vec<_> = path.recount().iter().map(of).collect();
            if gauges != found {
                return Err(format!(
                    "director {} worker {worker}: gauges {gauges:?} are not {found:?}",
                    self.number
                ));
            }
            if path.live_sessions() + path.templates() > path.session_capacity() {
                return Err(format!("director {} worker {worker} holds too much", self.number));
            }
        }
        Ok(())
    }
}
