//! A run: the world's clock, its network, and everybody in it.

mod acts;
mod exception;

use crate::actions::{Act, Actions};
use crate::check::{Checker, Scene, Violation};
use crate::frame::{Buffer, Pool};
use crate::machine::{Desk, Machine};
use crate::peers::{Alarm, Peers};
use crate::pieces::{Cut, Reassembly};
use crate::recipe::Recipe;
use crate::rng::{Rng, scramble};
use crate::saboteur::Saboteur;
use crate::status::{Snapshot, Status, link_mac, node_of};
use crate::trace::Trace;
use crate::universe::Universe;
use crate::wheel::Wheel;
use crate::wire::{Addr, Packet, is_v4, read};
use rustc_hash::FxHashMap;
use sluice_director::Frame;
use std::rc::Rc;

/// The clock's start. Close below 2³² ms, so that every longer run sees the low half wrap.
const START_MS: u64 = (1 << 32) - 3000;
/// The machine works at least so often, whether frames come or not.
const IDLE_MS: u64 = 50;
/// Sessions are audited so often; where little happens, less often.
const AUDIT_MS: u64 = 1000;
const AUDIT_PACKETS: u64 = 1000;

/// What happens at a time.
enum Event {
    /// A frame reaches the director.
    Arrive(Buffer),
    /// A frame reaches the node that its MAC address is of.
    Deliver(Buffer),
    Alarm(Alarm),
    /// An action is taken back.
    Undo(Box<Act>),
}

impl Event {
    /// Reads a little of what it is about.
    fn touch(&self) -> u64 {
        match self {
            Self::Arrive(frame) | Self::Deliver(frame) => frame.touch(),
            Self::Alarm(_) | Self::Undo(_) => 0,
        }
    }
}

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Packets that went into the director.
    pub packets: u64,
    /// Sessions that were opened.
    pub sessions: u64,
    /// Plans that were published.
    pub plans: u64,
    /// Flows that were spread.
    pub spread: u64,
    /// Their packets: rewritten by helpers, by the owner, through the owner's path, and dropped.
    pub dealt: [u64; 4],
    /// Rules of the NIC for these that were made and removed.
    pub redirects: u64,
    /// Sessions of source NAT, those of them that share another's mapping, and first packets that
    /// no port was free for.
    pub outward: [u64; 3],
    /// Virtual time that passed, in milliseconds.
    pub virtual_ms: u64,
    /// Actions that there were.
    pub actions: u32,
    /// A hash over everything that was delivered: the same for the same recipe.
    pub digest: u64,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is broken.
    pub what: String,
    /// Packets that had gone into the director by then.
    pub packets: u64,
    /// The run up to then.
    pub outcome: Box<Outcome>,
}

/// A world at work.
pub(crate) struct Sim {
    universe: Universe,
    recipe: Recipe,
    status: Status,
    /// Whether that changed since it was published.
    changed: bool,
    silent: Vec<bool>,
    snapshot: Rc<Snapshot>,
    machine: Machine,
    checker: Checker,
    peers: Peers,
    wheel: Wheel<Event>,
    pool: Pool,
    actions: Actions,
    by_address: FxHashMap<Addr, usize>,
    pub trace: Trace,
    saboteur: Saboteur,
    now: u64,
    out: Vec<Buffer>,
    /// What happens in a tick, but for what arrives at the machine.
    others: Vec<Event>,
    /// Frames in the wheel.
    flying: usize,
    reassembly: Reassembly,
    /// Packets that were sent in pieces.
    cut: u32,
    pub outcome: Outcome,
}

impl Sim {
    pub fn new(recipe: &Recipe) -> Result<Self, String> {
        let universe = Universe::new(recipe);
        let status = Status::new(&universe);
        let first = Snapshot::compile(&universe, &status, None, &Default::default());
        let snapshot = Rc::new(first.map_err(|error| error.to_string())?);
        let timeout_ms = 1000 * u64::from(universe.timeouts.tcp_established_s);
        let by_address = universe.nodes.iter().enumerate().map(|(at, node)| (node.address, at));
        let (machine, mut checker) = (Machine::new(&universe, &snapshot)?, Checker::new(&universe));
        for (number, worker) in machine.workers.iter().enumerate() {
            checker.begin_passed(number as u16, &snapshot.plan, &worker.path);
        }
        Ok(Self {
            machine,
            checker,
            peers: Peers::new(
                universe.seed,
                timeout_ms.min(30_000),
                universe.network.pieces > 0,
                universe.spreading.elephants,
            ),
            wheel: Wheel::new(START_MS),
            pool: Pool::default(),
            actions: Actions::new(START_MS),
            by_address: by_address.collect(),
            trace: Trace::default(),
            changed: false,
            saboteur: Saboteur::new(recipe.sabotage, recipe.seed),
            now: START_MS,
            out: Vec::new(),
            others: Vec::new(),
            flying: 0,
            reassembly: Reassembly::default(),
            cut: 0,
            outcome: Outcome::default(),
            recipe: recipe.clone(),
            silent: vec![false; universe.nodes.len()],
            snapshot,
            status,
            universe,
        })
    }

    /// Runs until enough packets went in, and then until nothing is left of them.
    pub fn run(&mut self) -> Result<(), Violation> {
        let mut action = self.actions.next(&self.universe, &self.recipe);
        let mut events = Vec::new();
        let (mut worked_at, mut audited_at, mut audited) = (self.now, self.now, 0);
        let until = self.recipe.ms.map_or(u64::MAX, |ms| START_MS + ms);
        // A world where nobody talks ends too.
        let most = self.recipe.steps.saturating_mul(4) + 10_000;
        let steps = self.recipe.steps;
        while self.outcome.packets < steps && self.now < until && u64::from(action.number) < most {
            let idle = self.wheel.idle().min((worked_at + IDLE_MS).saturating_sub(self.now + 1));
            let until_action = (action.at_us / 1000).saturating_sub(self.now + 1);
            let skip = idle.min(until_action);
            self.wheel.skip(skip);
            self.now += skip;
            self.tick(&mut events);
            let busy = self.happen_all(&mut events)?;
            while action.at_us / 1000 <= self.now {
                self.start(&action)?;
                action = self.actions.next(&self.universe, &self.recipe);
            }
            self.publish()?;
            self.fulfil()?;
            if busy || self.now - worked_at >= IDLE_MS {
                worked_at = self.now;
                self.work()?;
            }
            let quiet = self.outcome.packets - audited < AUDIT_PACKETS;
            let since = self.now - audited_at;
            if since >= AUDIT_MS && !quiet || since >= 10 * AUDIT_MS {
                (audited_at, audited) = (self.now, self.outcome.packets);
                self.audit()?;
            }
        }
        self.outcome.actions = action.number;
        self.end()
    }

    /// Lets a tick pass: gives what happens in its milliseconds.
    fn tick(&mut self, events: &mut Vec<Event>) {
        let tick = self.universe.tick_ms;
        self.now += tick - self.now % tick;
        self.wheel.advance_to(self.now, events);
        self.outcome.virtual_ms = self.now - START_MS;
        // All their memory is asked for at once, so that nobody waits for it one by one.
        std::hint::black_box(events.iter().fold(0, |all, event| all ^ event.touch()));
    }

    /// What happens in a tick, alike after alike; whether it concerns the machine.
    fn happen_all(&mut self, events: &mut Vec<Event>) -> Result<bool, Violation> {
        let before = self.outcome.packets;
        let mut others = std::mem::take(&mut self.others);
        for event in events.drain(..) {
            match event {
                Event::Arrive(frame) => {
                    self.flying -= 1;
                    self.outcome.packets += 1;
                    self.machine.receive(&self.universe, frame);
                }
                other => others.push(other),
            }
        }
        for event in others.drain(..) {
            self.happen(event)?;
        }
        self.others = others;
        Ok(self.outcome.packets > before)
    }

    /// An event that does not concern the machine.
    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrive(_) => {}
            Event::Deliver(frame) => {
                self.flying -= 1;
                self.deliver(&frame)?;
                self.pool.put(frame);
            }
            Event::Alarm(alarm) => self.peers.ring(self.now, alarm),
            Event::Undo(act) => {
                self.trace.note(self.now, || format!("back: {act:?}"));
                return self.act(*act);
            }
        }
        Ok(())
    }

    /// Compiles what is so now and publishes it, if it changed.
    fn publish(&mut self) -> Result<(), Violation> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let before = &self.snapshot;
        let retired = self.machine.retired(&before.whole);
        let next = Snapshot::compile(&self.universe, &self.status, Some(before), &retired);
        self.snapshot = Rc::new(next.map_err(|error| error.to_string())?);
        self.outcome.plans += 1;
        let mut rng = Rng::of(&[self.universe.seed, 9, self.now]);
        self.machine.publish(&self.snapshot, self.now, &mut rng);
        Ok(())
    }

    /// The machine works, and what it sends goes into the network.
    fn work(&mut self) -> Result<(), Violation> {
        let mut desk = Desk {
            universe: &self.universe,
            checker: &mut self.checker,
            pool: &mut self.pool,
            trace: &mut self.trace,
            saboteur: &mut self.saboteur,
            out: &mut self.out,
            now: self.now,
        };
        self.machine.step(&mut desk)?;
        let mut out = std::mem::take(&mut self.out);
        for mut frame in out.drain(..) {
            let tuple = &frame.seen.packet.tuple;
            let ports = u64::from(tuple.sport) << 16 | u64::from(tuple.dport);
            self.outcome.digest = scramble(self.outcome.digest ^ tuple.dst as u64 ^ ports << 32);
            frame.luck = scramble(frame.luck ^ 0x5bd1_e995);
            self.fly(frame, Event::Deliver);
        }
        self.out = out;
        let known = self.flying + self.machine.frames();
        if known == self.pool.out {
            return Ok(());
        }
        Err(format!("{} frames are in use, {known} are known", self.pool.out))
    }

    /// A frame goes through the network: perhaps twice, perhaps never.
    fn fly(&mut self, frame: Buffer, arrives: fn(Buffer) -> Event) {
        self.fly_late(frame, arrives, 0);
    }

    /// The same, for a frame that is on its way for longer.
    fn fly_late(&mut self, frame: Buffer, arrives: fn(Buffer) -> Event, more_ms: u64) {
        let network = self.universe.network;
        let mut luck = Rng::new(frame.luck);
        if luck.chance(network.loss) {
            return self.pool.put(frame);
        }
        if luck.chance(network.duplicates) {
            let mut copy = self.pool.copy(&frame);
            copy.luck = luck.next();
            let at = self.now + network.delay_ms + luck.range(0, network.jitter_ms + 2);
            self.flying += 1;
            self.wheel.put(at, arrives(copy));
        }
        // Most packets keep their order; some are late.
        let late = if luck.chance(200) { luck.range(0, network.jitter_ms) } else { 0 };
        self.flying += 1;
        self.wheel.put(self.now + network.delay_ms + late + more_ms, arrives(frame));
    }

    /// Does what clients and real servers want.
    fn fulfil(&mut self) -> Result<(), Violation> {
        let mut packets = std::mem::take(&mut self.peers.wishes.packets);
        for (node, packet) in packets.drain(..) {
            self.send(node, &packet);
        }
        self.peers.wishes.packets = packets;
        for (at, alarm) in self.peers.alarms.drain(..) {
            self.wheel.put(at, Event::Alarm(alarm));
        }
        self.peers.wishes.wrong.take().map_or(Ok(()), Err)
    }

    /// A node sends a packet towards the director.
    fn send(&mut self, node: usize, packet: &Packet) {
        if self.silent[node] {
            return;
        }
        let from = &self.universe.nodes[node];
        let mac = self.status.mac(from.gateway.unwrap_or(node));
        let Packet { tuple, id, seq, .. } = *packet;
        let mut luck = Rng::of(&[
            self.universe.seed ^ self.now << 20,
            u64::from(seq) << 32 | u64::from(id),
            u64::from(tuple.sport) << 32 | u64::from(tuple.dport) << 16 | u64::from(packet.flags),
        ]);
        let past =
            tuple.src != from.address && self.universe.services.iter().any(|s| s.vip == tuple.src);
        let macs = (mac, link_mac(from.link));
        let often = self.universe.network.pieces;
        if often > 0
            && !past
            && let Some(cut) = Cut::of(packet, often, self.cut + 1, &mut luck)
        {
            return self.send_cut(node, (packet, cut), macs, &mut luck);
        }
        let mut packet = *packet;
        packet.payload.len = packet.payload.len.min(1460);
        let mut frame = self.pool.make(&packet, macs, luck.next());
        frame.link = from.link;
        if luck.chance(self.universe.network.spoilt) {
            frame.spoil(luck.next());
        }
        let vlan = self.universe.links[from.link].vlan;
        if vlan != 0 && frame.bytes().len() >= 14 {
            frame.tag(vlan);
        }
        if is_v4(tuple.src) && luck.chance(300) && frame.is_whole() {
            frame.received.ip = sluice_director::frame::Checked::Good;
        }
        // Answers in the name of a virtual address go past the director.
        if past {
            let Some(client) = self.by_address.get(&tuple.dst) else {
                return self.pool.put(frame);
            };
            let Ok(seen) = read(frame.bytes()) else { return self.pool.put(frame) };
            frame.seen = seen;
            let gateway = self.universe.nodes[*client].gateway;
            frame.seen.to = self.status.mac(gateway.unwrap_or(*client));
            return self.fly(frame, Event::Deliver);
        }
        self.fly(frame, Event::Arrive);
    }

    /// A frame that the director sent arrives.
    fn deliver(&mut self, frame: &Buffer) -> Result<(), Violation> {
        let seen = &frame.seen;
        let Some(node) = node_of(seen.to) else { return Ok(()) };
        if self.universe.network.errors > 0 && frame.about.is_none() {
            self.complain(node, frame);
        }
        let to = seen.packet.tuple.dst;
        // A router passes it on.
        // Real servers have the virtual addresses too.
        let serves = !self.universe.nodes[node].client;
        let is_vip = serves && self.universe.services.iter().any(|s| s.vip == to);
        let is_host = self.universe.nodes[node].address == to || is_vip;
        let host = if is_host { Some(node) } else { self.by_address.get(&to).copied() };
        let Some(host) =
            host.filter(|host| is_host || self.universe.nodes[*host].gateway == Some(node))
        else {
            return Ok(());
        };
        let stale = seen.to != self.status.mac(node);
        if stale || self.silent[host] || !seen.right {
            return Ok(());
        }
        if let Some(mtu) = frame.told {
            self.peers.told(host, frame.packet.tuple, mtu);
            return Ok(());
        }
        let whole;
        let (seen, frame) = match frame.place {
            Some(_) => {
                let Some(all) = self.reassembly.put(self.now, host, frame.bytes())? else {
                    return Ok(());
                };
                whole = all;
                (&whole.1, &whole.0[..])
            }
            None => (seen, frame.bytes()),
        };
        let data = frame.get(usize::from(seen.data)..).unwrap_or_default();
        let data = data.get(..usize::from(seen.packet.payload.len)).unwrap_or_default();
        let serves = !self.universe.nodes[host].client;
        self.peers.receive(self.now, host, seen, data, serves);
        Ok(())
    }

    fn audit(&mut self) -> Result<(), Violation> {
        for (number, worker) in self.machine.workers.iter().enumerate() {
            let scene = Scene {
                universe: &self.universe,
                snapshot: &worker.snapshot,
                worker: number as u16,
                now: self.now,
                agreed: self.machine.agree(),
            };
            self.checker.audit(scene, &worker.path)?;
            let place = (number as u16, &worker.snapshot.plan);
            self.checker.check_passed(&self.universe, place, &worker.path)?;
        }
        Ok(())
    }

    /// Nobody sends any more: what is left must go by itself.
    fn end(&mut self) -> Result<(), Violation> {
        self.audit()?;
        // What helpers still have comes back, and may yet open sessions.
        self.machine.hurries = true;
        for _ in 0..20 {
            self.now += 1;
            self.work()?;
        }
        self.checker.all_came_out()?;
        self.ground();
        let longest = 1000 * 900 + 1;
        self.now += longest;
        let until = self.now + 5000;
        while self.now < until {
            self.now += IDLE_MS;
            self.work()?;
            self.ground();
        }
        self.audit()?;
        self.outcome.sessions = self.checker.tally.iter().map(|tally| tally.created).sum();
        let counts = self.machine.spread_counts;
        self.outcome.spread = counts.flows;
        self.outcome.redirects = self.machine.redirects();
        self.outcome.outward = self.checker.mappings.outward;
        self.outcome.dealt = [counts.dealt, counts.own, counts.kept, counts.late];
        self.outcome.virtual_ms = self.now - START_MS;
        let left: u32 = self.machine.workers.iter().map(|w| w.path.live_sessions()).sum();
        match (left, self.pool.out) {
            (0, 0) => Ok(()),
            (sessions, frames) => Err(format!("{sessions} sessions and {frames} frames are left")),
        }
    }

    /// Takes what is under way out of the network.
    fn ground(&mut self) {
        for event in self.wheel.drain() {
            if let Event::Arrive(frame) | Event::Deliver(frame) = event {
                self.flying -= 1;
                self.pool.put(frame);
            }
        }
    }
}
