//! Directors, links and traffic under one clock, and who of the directors is master.

use super::director::{Director, SOCKET};
use super::judge::{Judge, MOST};
use super::links::Links;
use super::site::{Lacks, Site};
use super::traffic::{Desk, Flow};
use crate::cluster::{Outcome, Recipe};
use crate::frame::Pool;
use crate::rng::Rng;
use crate::wire::Addr;
use sluice_sync::Destination;
use std::collections::BTreeSet;

/// The longest time between two turns, while there is traffic.
const IDLE_MS: u64 = 50;
/// Lines of the trace that are kept.
const LINES: usize = 4000;

/// Service, client, real server, and whom that takes for its client.
type Ends = (usize, (Addr, u16), (usize, u16), (Addr, u16));

/// A place for a director.
pub(super) struct Place {
    /// It runs, unless it was killed.
    pub director: Option<Director>,
    pub frozen: bool,
    pub lacks: Lacks,
    /// Datagrams in its socket.
    socket: Vec<(usize, Box<[u8]>)>,
    starts: u64,
}

impl Place {
    /// Whether it takes packets.
    pub const fn works(&self) -> bool {
        self.director.is_some() && !self.frozen
    }
}

/// What is taken back at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Later {
    Start(usize),
    Thaw(usize),
    Mend(usize, usize),
    Configure(usize),
    Unite,
    /// Somebody notices that the master is gone.
    Elect,
}

/// Everything.
pub(super) struct World {
    pub recipe: Recipe,
    pub site: Site,
    pub places: Vec<Place>,
    pub links: Links,
    pub judge: Judge,
    pool: Pool,
    pub flows: Vec<Flow>,
    /// Connections that are over.
    pub graves: Vec<Flow>,
    /// Services and clients of all connections that were tried.
    pub callers: BTreeSet<(usize, (Addr, u16))>,
    /// The ends of all connections that there ever were.
    pub ends: BTreeSet<Ends>,
    pub master: usize,
    /// A director that takes itself for the master too.
    pub rival: Option<usize>,
    pub later: Vec<(u64, Later)>,
    pub now: u64,
    /// The longest time between two turns.
    pub idle_ms: u64,
    pub outcome: Outcome,
    pub trace: Option<Vec<String>>,
}

impl World {
    pub fn new(recipe: &Recipe) -> Result<Self, String> {
        let site = Site::new(recipe.seed);
        let drawn = match Rng::of(&[recipe.seed, 231]).below(10) {
            0 => *Rng::of(&[recipe.seed, 230]).pick(&[5, 6, 7, 8]),
            _ => *Rng::of(&[recipe.seed, 230]).pick(&[2, 2, 2, 3, 3, 4]),
        };
        let count = recipe.directors.unwrap_or(drawn).clamp(2, MOST);
        let mut world = Self {
            judge: Judge::new(count, site.services.len(), 0),
            recipe: recipe.clone(),
            links: Links::new(recipe.seed),
            site,
            places: Vec::new(),
            pool: Pool::default(),
            flows: Vec::new(),
            graves: Vec::new(),
            callers: BTreeSet::new(),
            ends: BTreeSet::new(),
            master: 0,
            rival: None,
            later: Vec::new(),
            now: 0,
            idle_ms: IDLE_MS,
            outcome: Outcome::default(),
            trace: None,
        };
        for _ in 0..count {
            let (socket, starts) = (Vec::new(), 0);
            world.places.push(Place { director: None, frozen: false, lacks: None, socket, starts });
        }
        for number in 0..count {
            world.start(number)?;
        }
        Ok(world)
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.trace {
            if lines.len() >= LINES {
                lines.drain(..LINES / 2);
            }
            lines.push(format!("{:>9} ms  {}", self.now, line()));
        }
    }

    /// Works out what everybody knows before something changes that this depends on.
    pub fn settle(&mut self) {
        for flow in &mut self.flows {
            self.judge.settle(&mut flow.knowledge, flow.service, self.now);
        }
    }

    /// A director starts with empty tables.
    pub fn start(&mut self, number: usize) -> Result<(), String> {
        self.settle();
        let peers = self.places.len() - 1;
        let place = &mut self.places[number];
        place.starts += 1;
        let start = (number, place.starts);
        let mut director = Director::new(&self.site, &self.recipe, start, peers)?;
        if place.lacks.is_some() {
            director.configure(&self.site, place.lacks)?;
        }
        place.director = Some(director);
        (place.frozen, place.socket) = (false, Vec::new());
        self.judge.set_runs(number, true, self.now);
        self.quiet(number);
        Ok(())
    }

    /// Works out anew which of a director's links are quiet.
    pub fn quiet(&mut self, number: usize) {
        for other in (0..self.places.len()).filter(|other| *other != number) {
            let works = self.places[number].works() && self.places[other].works();
            let quiet = works && !self.links.is_cut(number, other);
            self.judge.set_quiet((number, other), quiet, self.now);
        }
    }

    /// Directors that work.
    pub fn working(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.places.len()).filter(|number| self.places[*number].works())
    }

    /// Whether a director may take over: as `sluice ha check` says.
    pub fn may_lead(&self, number: usize) -> bool {
        let place = &self.places[number];
        let director = place.director.as_ref().filter(|_| !place.frozen);
        director.is_some_and(|director| director.endpoint.synchronised())
    }

    /// The director that a packet goes to.
    pub fn route(&self, luck: u64) -> Option<usize> {
        let rival = self.rival.filter(|_| luck & 1 == 1);
        let by = rival.unwrap_or(self.master);
        self.places[by].works().then_some(by)
    }

    /// Does something with a flow, whose packet a director takes.
    pub fn with_flow<R>(
        &mut self,
        flow: usize,
        by: Option<usize>,
        act: impl FnOnce(&mut Flow, Desk<'_>) -> R,
    ) -> R {
        let Self { flows, places, site, judge, pool, now, .. } = self;
        let by = by.and_then(|by| places[by].director.as_mut().map(|director| (by, director)));
        act(&mut flows[flow], Desk { site, judge, pool, by, now: *now })
    }

    /// Whether a director still forwards packets of a connection that is over.
    pub fn haunts(&mut self, grave: usize, by: usize) -> Result<bool, String> {
        let Self { graves, places, site, judge, pool, now, .. } = self;
        let by = places[by].director.as_mut().map(|director| (by, director));
        graves[grave].haunts(Desk { site, judge, pool, by, now: *now })
    }

    /// Lets time pass: datagrams arrive, directors take turns, and what is to come happens.
    pub fn pass(&mut self, ms: u64) -> Result<(), String> {
        let until = self.now + ms;
        loop {
            self.happen()?;
            self.deliver();
            let mut next = (self.now + self.idle_ms).min(until);
            let count = self.places.len();
            for number in 0..count {
                let Place { director, frozen, .. } = &mut self.places[number];
                let Some(director) = director.as_mut().filter(|_| !*frozen) else { continue };
                let (links, now) = (&mut self.links, self.now);
                director.turn(now, |to, bytes| {
                    let all = (0..count).filter(|it| *it != number);
                    let is_one = |it: &usize| match to {
                        Destination::Peer(peer) => *it == peer + usize::from(peer >= number),
                        Destination::Group => true,
                    };
                    all.filter(is_one).for_each(|to| links.send(now, number, to, bytes));
                });
                next = next.min(director.due(now));
            }
            next =
                self.later.iter().map(|(at, _)| *at).chain(self.links.due()).fold(next, u64::min);
            if self.now >= until {
                return Ok(());
            }
            self.now = next.max(self.now + 1).min(until);
        }
    }

    fn deliver(&mut self) {
        while let Some(datagram) = self.links.arrived(self.now) {
            let Place { director, frozen, socket, .. } = &mut self.places[datagram.to];
            let (from, to) = (datagram.from, datagram.to);
            let peer = if from > to { from - 1 } else { from };
            match director {
                Some(_) if *frozen && socket.len() < SOCKET => socket.push((peer, datagram.bytes)),
                Some(director) if !*frozen => director.hear(self.now, peer, &datagram.bytes),
                _ => {}
            }
        }
    }

    /// What was to come by now happens.
    fn happen(&mut self) -> Result<(), String> {
        self.later.sort_by_key(|(at, _)| *at);
        while let Some((at, later)) = self.later.first().copied()
            && at <= self.now
        {
            self.later.remove(0);
            self.note(|| format!("{later:?}"));
            match later {
                Later::Start(number) if self.places[number].director.is_none() => {
                    self.start(number)?;
                }
                Later::Start(_) => {}
                Later::Thaw(number) => self.thaw(number),
                Later::Mend(one, other) => self.cut(one, other, false),
                Later::Configure(number) => self.configure(number, None)?,
                Later::Unite => self.rival = None,
                Later::Elect => self.elect(),
            }
        }
        Ok(())
    }

    /// A frozen director goes on, with what is in its socket. If it was the master it takes itself
    /// for that until it hears the other.
    fn thaw(&mut self, number: usize) {
        self.settle();
        let (now, place) = (self.now, &mut self.places[number]);
        place.frozen = false;
        let socket = std::mem::take(&mut place.socket);
        if let Some(director) = &mut place.director {
            for (peer, bytes) in socket {
                director.hear(now, peer, &bytes);
            }
        }
        self.quiet(number);
    }

    /// Cuts a link, or mends it.
    pub fn cut(&mut self, one: usize, other: usize, cut: bool) {
        self.settle();
        self.links.set_cut(one, other, cut);
        self.quiet(one);
    }

    /// A director's configuration lacks something, or has it again.
    pub fn configure(&mut self, number: usize, lacks: Lacks) -> Result<(), String> {
        self.settle();
        let place = &mut self.places[number];
        let services = [place.lacks, lacks].into_iter().flatten().map(|(service, _)| service);
        for service in services.collect::<Vec<_>>() {
            let good = lacks.is_none_or(|(lacking, _)| lacking != service);
            self.judge.set_configured(number, service, good, self.now);
            // What it had of it may have gone by then.
            let flows = self.flows.iter_mut().filter(|flow| flow.service == service);
            flows.for_each(|flow| flow.knowledge.forget_at(number));
        }
        place.lacks = lacks;
        place.director.as_mut().map_or(Ok(()), |director| director.configure(&self.site, lacks))
    }

    /// Another director becomes the master if this one does not work.
    fn elect(&mut self) {
        if self.places[self.master].works() {
            return;
        }
        let best = self.working().max_by_key(|number| self.may_lead(*number));
        match best {
            Some(best) => self.lead(best),
            None => self.later.push((self.now + 500, Later::Elect)),
        }
    }

    /// A director becomes the master.
    pub fn lead(&mut self, number: usize) {
        if number != self.master {
            self.outcome.failovers += 1;
            self.note(|| format!("director {number} is master"));
        }
        self.master = number;
        self.rival = self.rival.filter(|rival| *rival != number);
    }

    /// The tables of all directors that work are in order.
    pub fn check(&self) -> Result<(), String> {
        self.places.iter().filter_map(|place| place.director.as_ref()).try_for_each(Director::check)
    }
}
