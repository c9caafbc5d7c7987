//! What happens in a cluster: a numbered list of steps that any can be left out of. Each draws
//! from a generator of its own.

use super::director::Director;
use super::judge::HEAL_MS;
use super::traffic::{Came, DATA, Flow, Place, RESET};
use super::world::World;
use crate::rng::Rng;
use crate::wire::{ACK, Addr, FIN, SYN, TCP, is_v4, to_ip};
use sluice_director::spec::{Mapping, Mode};

/// Flows at a time.
const FLOWS: usize = 120;
/// Connections that are over and remembered.
const GRAVES: usize = 60;
/// Steps between two looks at all tables.
const AUDIT: u64 = 50;

impl World {
    /// Runs to the end.
    pub fn run(&mut self) -> Result<(), String> {
        self.pass(3000)?;
        for step in 0..self.recipe.steps {
            self.outcome.steps = step;
            if self.recipe.allows(step as u32) {
                let mut rng = Rng::of(&[self.recipe.seed, 240, step]);
                let gap = self.gap(&mut rng);
                self.pass(gap)?;
                self.step(&mut rng)?;
            }
            if step % AUDIT == 0 {
                self.check()?;
            }
        }
        self.finish()
    }

    fn gap(&self, rng: &mut Rng) -> u64 {
        match rng.weighted(&[700, 250, 40, 10]) {
            0 => rng.below(20),
            1 => rng.below(300),
            2 => rng.range(500, 4000),
            _ => rng.range(8000, 15_000),
        }
    }

    fn step(&mut self, rng: &mut Rng) -> Result<(), String> {
        match rng.weighted(&[200, 500, 60, 20, 20, 30, 25]) {
            0 => self.open(rng),
            1 => self.talk(rng),
            2 => self.close(rng),
            3 => self.reset(rng),
            4 => self.look_for_ghosts(rng),
            5 => self.trouble(rng),
            _ => {
                let (master, many) = (self.master, rng.range(3, 10));
                self.note(|| format!("{many} packets in a row, master {master}"));
                (0..many).try_for_each(|_| self.talk(rng))
            }
        }
    }

    /// A client opens a connection, or sends the first datagram of an exchange.
    fn open(&mut self, rng: &mut Rng) -> Result<(), String> {
        if self.flows.len() >= FLOWS {
            return self.close(rng);
        }
        let (service, client, seq) = self.caller(rng);
        let tcp = self.site.services[service].protocol == TCP;
        let again = self.graves.iter().any(|it| (it.service, it.client) == (service, client));
        let taken = |flow: &Flow| flow.service == service && flow.client == client;
        // By chance alone no port is used again.
        if self.flows.iter().any(taken) || !self.callers.insert((service, client)) && !again {
            return Ok(());
        }
        self.flows.push(Flow::new(service, client, seq, rng));
        let flow = self.flows.len() - 1;
        let first = if tcp { SYN } else { 0 };
        let done = self.ask(flow, (first, 0), true, rng)?
            && self.is_its_own(flow)?
            && (!tcp && rng.chance(200)
                || self.answer(flow, (if tcp { SYN | ACK } else { 0 }, 0), !tcp, rng)?)
            && (!tcp || self.is_at_one(flow, (ACK, 0), rng)?);
        if done {
            let flow = &mut self.flows[flow];
            if !self.ends.insert((flow.service, flow.client, flow.real, flow.peer)) {
                flow.follows = true;
                flow.knowledge.is_old();
            }
            self.outcome.connections += 1;
            let line = format!("open {:?} to {}", flow.client.1, flow.to(&self.site));
            self.note(|| line);
        } else {
            self.flows.truncate(flow);
            // Nobody uses a port again at once whose connection was not answered.
            self.graves.retain(|grave| (grave.service, grave.client) != (service, client));
        }
        Ok(())
    }

    /// The client ends a handshake. Half of it at each of two directors that take themselves for
    /// the master makes a connection at neither.
    fn is_at_one(&mut self, flow: usize, what: (u8, u16), rng: &mut Rng) -> Result<bool, String> {
        let by = self.flows[flow].by;
        Ok(self.ask(flow, what, true, rng)? && self.flows[flow].by == by)
    }

    /// Who opens a connection to which service, with which first sequence number.
    fn caller(&self, rng: &mut Rng) -> (usize, (Addr, u16), u32) {
        let reuse = rng.chance(250).then(|| rng.below(self.graves.len() as u64) as usize);
        if let Some(grave) = reuse.and_then(|grave| self.graves.get(grave)) {
            // As RFC 6528 has it, above what the one before came to.
            let seq = grave.next_seq().wrapping_add(64_000 + rng.below(1 << 20) as u32);
            if self.now >= grave.knowledge.used_at() + 1500 && self.may_reuse(grave.service) {
                return (grave.service, grave.client, seq);
            }
        }
        let service = rng.below(self.site.services.len() as u64) as usize;
        let family = usize::from(!is_v4(self.site.services[service].vip));
        if self.site.services[service].is_outward() {
            let client = *rng.pick(&self.site.insiders[family]);
            return (service, (client, 10_000 + rng.below(60) as u16), rng.next() as u32);
        }
        let client = *rng.pick(&self.site.clients[family]);
        (service, (client, 10_000 + rng.below(50_000) as u16), rng.next() as u32)
    }

    /// Whether clients may use a port again. With several workers they may only where these know by
    /// the client whose a session is, or by `--reuse`: a SYN does not look for a session of an
    /// earlier connection that another worker has, taken up from another director, so that there
    /// are two of one client's ends.
    fn may_reuse(&self, service: usize) -> bool {
        let single = |number| Director::workers(&self.recipe, number) == 1;
        let service = &self.site.services[service];
        self.recipe.reuse
            || service.mode == Mode::Nat
            || service.mode != Mode::Fnat && service.persistence.is_some()
            || (0..self.places.len()).all(single)
    }

    /// No two connections have one local port, unless who gave it need not know the other: that
    /// one is lost.
    fn is_its_own(&mut self, flow: usize) -> Result<bool, String> {
        let new = &self.flows[flow];
        self.takes(flow, (new.by, new.real, new.peer))?;
        self.maps(flow)?;
        // The new one has changed its place in the list.
        Ok(true)
    }

    /// A director has a session of a flow that leads there.
    fn takes(&mut self, flow: usize, (by, real, peer): Place) -> Result<(), String> {
        let protocol = |service: usize| self.site.services[service].protocol;
        let service = self.flows[flow].service;
        let same = |(at, other): &(usize, &Flow)| {
            *at != flow
                && (other.real, other.peer) == (real, peer)
                && protocol(other.service) == protocol(service)
        };
        let Some((at, other)) = self.flows.iter().enumerate().find(same) else { return Ok(()) };
        let (place, timeout) = ((by, other.service), other.timeout_ms(&self.site));
        let now = self.now;
        let other = &mut self.flows[at];
        if self.judge.must_know(&mut other.knowledge, place, timeout, now) {
            let to = other.to(&self.site);
            return Err(format!(
                "director {by} gives a second connection the place of one to {to}"
            ));
        }
        self.lose(at);
        Ok(())
    }

    /// A new flow from inside has the endpoint outside that others of its own have, and that no
    /// other endpoint has: those that its director must know.
    fn maps(&mut self, flow: usize) -> Result<(), String> {
        let shares = self.site.mapping == Some(Mapping::EndpointIndependent);
        let service = |flow: &Flow| &self.site.services[flow.service];
        let of = |flow: &Flow| (service(flow).protocol, flow.client);
        if !shares || !service(&self.flows[flow]).is_outward() {
            return Ok(());
        }
        let (new, by, peer) = (of(&self.flows[flow]), self.flows[flow].by, self.flows[flow].peer);
        let mut others = Vec::new();
        for (at, other) in self.flows.iter().enumerate() {
            let outward = service(other).is_outward() && !other.is_over() && other.has_begun();
            let (same, shared) = (of(other) == new, other.peer == peer && of(other).0 == new.0);
            if at != flow && outward && same != shared {
                others.push((at, same));
            }
        }
        // Where two directors have each given it one, it has either.
        let either = self.flows.iter().enumerate().any(|(at, other)| {
            at != flow && of(other) == new && other.peer == peer && service(other).is_outward()
        });
        for (at, same) in others {
            let (place, timeout) =
                ((by, self.flows[at].service), self.flows[at].timeout_ms(&self.site));
            let other = &mut self.flows[at];
            if self.judge.must_know(&mut other.knowledge, place, timeout, self.now)
                && !(same && either)
            {
                let (to, what) = (other.to(&self.site), if same { "another" } else { "the same" });
                return Err(format!(
                    "director {by} gives {}:{} {what} endpoint outside than one to {to}",
                    to_ip(new.1.0),
                    new.1.1
                ));
            }
        }
        Ok(())
    }

    /// A flow in use, if there is one.
    fn any_flow(&mut self, rng: &mut Rng) -> Option<usize> {
        self.flows.retain(|flow| !flow.is_over());
        let count = self.flows.len() as u64;
        (count > 0).then(|| rng.below(count) as usize)
    }

    /// Both ends of a flow send data.
    fn talk(&mut self, rng: &mut Rng) -> Result<(), String> {
        let Some(flow) = self.any_flow(rng) else { return Ok(()) };
        if self.has_timed_out(flow) {
            self.flows.swap_remove(flow);
            return Ok(());
        }
        let tcp = self.site.services[self.flows[flow].service].protocol == TCP;
        let flags = if tcp { DATA } else { 0 };
        let (client, server) = (!self.flows[flow].closed.client, !self.flows[flow].closed.server);
        let length = 1 + rng.below(600) as u16;
        let asks = if client { (flags, length) } else { (ACK, 0) };
        if !self.ask(flow, asks, false, rng)? {
            return Ok(());
        }
        let answers = if server { (flags, length / 2) } else { (ACK & flags, 0) };
        if rng.chance(800) {
            self.answer(flow, answers, false, rng)?;
        }
        Ok(())
    }

    /// Whether its session may be over because nothing was sent for long.
    fn has_timed_out(&self, flow: usize) -> bool {
        let flow = &self.flows[flow];
        self.now >= flow.knowledge.used_at() + flow.timeout_ms(&self.site).saturating_sub(2000)
    }

    /// One side of a connection closes, and maybe the other.
    fn close(&mut self, rng: &mut Rng) -> Result<(), String> {
        let Some(flow) = self.any_flow(rng) else { return Ok(()) };
        let tcp = self.site.services[self.flows[flow].service].protocol == TCP;
        if !tcp || self.has_timed_out(flow) {
            self.flows.swap_remove(flow);
            return Ok(());
        }
        let both = rng.chance(700);
        let client_first = rng.chance(500);
        for client in [client_first, !client_first] {
            let closed = self.flows[flow].closed;
            if if client { closed.client } else { closed.server } {
                continue;
            }
            let fin = (FIN | ACK, 0);
            let passed = if client {
                self.ask(flow, fin, true, rng)? && {
                    self.flows[flow].closed.client = true;
                    self.answer(flow, (ACK, 0), self.flows[flow].is_over(), rng)?
                }
            } else {
                self.answer(flow, fin, true, rng)? && {
                    self.flows[flow].closed.server = true;
                    self.ask(flow, (ACK, 0), self.flows[flow].is_over(), rng)?
                }
            };
            if !passed {
                return Ok(());
            }
            if self.flows[flow].is_over() {
                self.bury(flow, "closed");
                return Ok(());
            }
            if !both {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A client resets a connection.
    fn reset(&mut self, rng: &mut Rng) -> Result<(), String> {
        let Some(flow) = self.any_flow(rng) else { return Ok(()) };
        let tcp = self.site.services[self.flows[flow].service].protocol == TCP;
        if !tcp || self.has_timed_out(flow) || self.flows[flow].closed.client {
            return Ok(());
        }
        if self.ask(flow, (RESET, 0), true, rng)? {
            self.bury(flow, "reset");
        }
        Ok(())
    }

    fn bury(&mut self, flow: usize, how: &str) {
        // Where each of two directors has seen half of the end, none knows all of it.
        let whole = self.rival.is_none();
        let flow = self.flows.swap_remove(flow);
        let line = format!("{how} {} to {}", flow.client.1, flow.to(&self.site));
        self.note(|| line);
        let ends = (flow.service, flow.client);
        self.graves.retain(|grave| (grave.service, grave.client) != ends);
        if self.graves.len() >= GRAVES {
            self.graves.remove(0);
        }
        if whole {
            self.graves.push(flow);
        }
    }

    /// A connection whose session a director need not know is lost to it.
    fn lose(&mut self, flow: usize) {
        let flow = &mut self.flows[flow];
        self.graves.retain(|grave| (grave.service, grave.client) != (flow.service, flow.client));
        self.outcome.younger += 1;
        flow.knowledge = super::judge::Knowledge::default();
        flow.closed = super::traffic::Closed { client: true, server: true };
    }

    /// A client sends; whether it passed and the connection goes on.
    fn ask(
        &mut self,
        flow: usize,
        what: (u8, u16),
        changes: bool,
        rng: &mut Rng,
    ) -> Result<bool, String> {
        let by = self.route(rng.next());
        let before = self.flows[flow].by;
        let came = self.with_flow(flow, by, |flow, desk| flow.ask(desk, what, changes))?;
        self.came(flow, &came, before)
    }

    /// A real server sends; whether it passed and the connection goes on.
    fn answer(
        &mut self,
        flow: usize,
        what: (u8, u16),
        changes: bool,
        rng: &mut Rng,
    ) -> Result<bool, String> {
        let by = self.route(rng.next());
        let before = self.flows[flow].by;
        let came = self.with_flow(flow, by, |flow, desk| flow.answer(desk, what, changes))?;
        self.came(flow, &came, before)
    }

    fn came(&mut self, flow: usize, came: &Came, before: usize) -> Result<bool, String> {
        let port = self.flows[flow].client.1;
        self.note(|| format!("{port}: {came:?}"));
        match came {
            Came::Nowhere => Ok(false),
            Came::Passed(by) => {
                self.outcome.packets += 1;
                self.outcome.went_on += u64::from(before != usize::MAX && before != *by);
                Ok(true)
            }
            Came::Astray(place) => {
                // Another of its own place is older, and gives way at whoever knows both.
                if let Some(place) = place {
                    self.takes(flow, *place)?;
                }
                if self.flows[flow].has_begun() {
                    let line = self.flows[flow].to(&self.site);
                    self.note(|| format!("lost: the connection to {line}"));
                    self.lose(flow);
                }
                Ok(false)
            }
        }
    }

    /// Packets of a connection that is over go nowhere.
    fn look_for_ghosts(&mut self, rng: &mut Rng) -> Result<(), String> {
        self.flows.retain(|flow| !flow.is_over());
        let Some(grave) = (!self.graves.is_empty()).then(|| rng.below(self.graves.len() as u64))
        else {
            return Ok(());
        };
        let grave = grave as usize;
        for by in self.working().collect::<Vec<_>>() {
            let over = &self.graves[grave];
            let reused =
                self.flows.iter().any(|f| (f.service, f.client) == (over.service, over.client));
            let certain = self.judge.must_know_end(&over.knowledge, by, self.now)
                && self.site.services[over.service].answers_come_by();
            if !reused && certain && self.haunts(grave, by)? {
                self.outcome.ghosts += 1;
                let line = self.graves[grave].to(&self.site);
                self.note(|| format!("a ghost at director {by}: to {line}"));
            }
        }
        Ok(())
    }

    /// The last part: everything heals, everybody leads once, and tables become empty.
    fn finish(&mut self) -> Result<(), String> {
        self.note(|| "everything heals".to_owned());
        for (at, _) in &mut self.later {
            *at = self.now;
        }
        self.pass(HEAL_MS + 4000)?;
        self.check()?;
        let mut rng = Rng::of(&[self.recipe.seed, 241]);
        for number in self.working().collect::<Vec<_>>() {
            self.lead(number);
            self.flows.retain(|flow| !flow.is_over());
            for flow in (0..self.flows.len()).rev() {
                if self.has_timed_out(flow) {
                    self.flows.swap_remove(flow);
                    continue;
                }
                let tcp = self.site.services[self.flows[flow].service].protocol == TCP;
                let flags = if tcp { ACK } else { 0 };
                let length = u16::from(!tcp);
                if self.ask(flow, (flags, length), false, &mut rng)? {
                    self.answer(flow, (flags, length), false, &mut rng)?;
                }
            }
            self.pass(3000)?;
        }
        self.check()?;
        self.drain()
    }

    /// Without traffic every session ends.
    fn drain(&mut self) -> Result<(), String> {
        let timeouts = &self.site.timeouts;
        let longest = timeouts.tcp_established_s.max(timeouts.udp_s).max(300);
        self.idle_ms = 1000;
        self.pass(u64::from(longest) * 1000 + 30_000)?;
        self.check()?;
        for number in self.working() {
            let held = self.places[number].director.as_ref().map_or(0, |it| it.held());
            if held > 0 {
                return Err(format!("director {number} still holds {held} sessions at the end"));
            }
        }
        self.outcome.virtual_ms = self.now;
        self.outcome.datagrams = self.links.carried;
        let directors = self.places.iter().filter_map(|place| place.director.as_ref());
        self.outcome.dealt += directors.map(Director::dealt).sum::<u64>();
        Ok(())
    }
}
