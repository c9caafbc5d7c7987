//! A NIC that brings spread flows to their owners: rules for exact tuples, each made and removed
//! behind a fence of the owner's, as `sluiced` has it done. The fences are the director's own
//! (`sluice_director::dealing`). While rules change, receive queues have a backlog now and then.

use super::{Desk, Machine};
use crate::check::Violation;
use crate::frame::{Buffer, Kind};
use crate::rng::Rng;
use crate::universe::Universe;
use crate::wire::{Tuple, from_ip, portless, to_ip};
use sluice_director::Time;
use sluice_director::dealing::{FenceOrder, Held, Spreading, Way};
use sluice_director::spec::NetworkId;
use std::collections::VecDeque;

/// A rule that is about to be made or removed.
struct Turning {
    flow: Tuple,
    owner: u16,
    fence: FenceOrder,
    /// When the NIC has done it, and when marks are asked for.
    at: (u64, u64),
    done: bool,
}

/// A mark in a ring.
struct Mark {
    fence: u32,
    sender: u16,
    owner: u16,
    /// Frames of the ring before it.
    behind: usize,
}

/// The NIC, who works on its rules, and the marks that are under way.
#[derive(Default)]
pub(super) struct Nic {
    rules: Vec<(Tuple, u16)>,
    turning: Option<Turning>,
    last_fence: u32,
    /// Marks that a worker owes an owner: the fence, the worker, the owner.
    owed: Vec<(u32, u16, u16)>,
    marks: Vec<Mark>,
    /// Rules that were made and removed.
    pub turned: u64,
}

/// A flow's packets as they arrive.
fn tuple_of(flow: &Spreading) -> Tuple {
    let Spreading { from, to, flow, .. } = flow;
    let (src, dst) = (from_ip(from.0), from_ip(to.0));
    Tuple { src, dst, sport: from.1, dport: to.1, protocol: flow.protocol }
}

impl Nic {
    /// Whose queue a rule brings a frame to. Fragments have no ports to match.
    pub fn owner_of(&self, frame: &Buffer) -> Option<u16> {
        let is_plain = matches!(frame.kind, Kind::Whole | Kind::Payload)
            && frame.place.is_none()
            && frame.about.is_none();
        let rule = self.rules.iter().find(|(flow, _)| *flow == frame.packet.tuple);
        rule.filter(|_| is_plain).map(|(_, owner)| *owner)
    }

    /// A frame leaves a ring.
    pub fn popped(&mut self, owner: usize, sender: usize) {
        let of = |mark: &&mut Mark| (mark.owner.into(), mark.sender.into()) == (owner, sender);
        self.marks
            .iter_mut()
            .filter(of)
            .for_each(|mark| mark.behind = mark.behind.saturating_sub(1));
    }

    /// Fences whose marks an owner has come to, and whose they are.
    fn taken(&mut self, owner: usize) -> Vec<(u32, u16)> {
        let is_next = |mark: &mut Mark| usize::from(mark.owner) == owner && mark.behind == 0;
        let taken = self.marks.extract_if(.., is_next);
        taken.map(|mark| (mark.fence, mark.sender)).collect()
    }
}

impl Machine {
    /// Rules of the NIC that were made and removed.
    pub const fn redirects(&self) -> u64 {
        self.nic.turned
    }

    /// A frame comes in; a rule or the port's hash decides whose it is.
    pub fn receive(&mut self, universe: &Universe, mut frame: Buffer) {
        let tuple = frame.packet.tuple;
        // Fragments tell no ports.
        let tuple = match &frame.about {
            // Some spread errors as what they quote, some by their addresses.
            Some(about) if universe.seed.is_multiple_of(2) => about.quoted.tuple.reversed(),
            _ => tuple,
        };
        let tuple = if frame.place.is_some() { portless(tuple) } else { tuple };
        let ends = |address: u128, port: u16| [address as u64, (address >> 64) as u64, port.into()];
        let [a, b, c] = ends(tuple.src, tuple.sport);
        let [d, e, f] = ends(tuple.dst, tuple.dport);
        let hash = Rng::of(&[universe.seed ^ b ^ e, a, c << 16 | f, d]).next();
        let by_hash = (hash % u64::from(universe.workers)) as u16;
        let worker = usize::from(self.nic.owner_of(&frame).unwrap_or(by_hash));
        let port = usize::from(universe.links[frame.link].port);
        self.arrived += 1;
        (frame.home, frame.arrived) = (worker as u16, self.arrived);
        self.workers[worker].received[port].push_back(frame);
    }

    /// Goes on with the rule that is being changed, or begins to change one.
    pub(super) fn turn_rules(&mut self, desk: &mut Desk<'_>) {
        let mut rng = Rng::of(&[desk.universe.seed, 51, desk.now]);
        let Some(turning) = &mut self.nic.turning else {
            return self.begin_turning(desk, &mut rng);
        };
        let hurries = self.hurries;
        let is_due = |at: u64| hurries || desk.now >= at;
        let Turning { flow, owner, fence, at, .. } = *turning;
        if !turning.done && is_due(at.0) {
            turning.done = true;
            self.nic.turned += 1;
            match fence.to_way {
                Way::Direct => self.nic.rules.push((flow, owner)),
                Way::Handed => self.nic.rules.retain(|(known, _)| *known != flow),
            }
            desk.trace.note(desk.now, || format!("{flow}: {:?} to {owner}", fence.to_way));
        } else if turning.done && is_due(at.1) {
            self.nic.turning = None;
            let asked = (0..self.workers.len() as u16)
                .filter(|worker| (*worker == owner) == (fence.to_way == Way::Handed));
            self.nic.owed.extend(asked.map(|worker| (fence.id, worker, owner)));
        }
    }

    fn begin_turning(&mut self, desk: &mut Desk<'_>, rng: &mut Rng) {
        let often = desk.universe.spreading.redirects;
        if self.hurries || !rng.chance(often) || self.workers.len() < 2 {
            return;
        }
        let now = Time(desk.now);
        let listed = self.workers.iter().zip(0..).flat_map(|(worker, number)| {
            let flows = worker.spreads.list(now).into_iter();
            flows.map(move |flow| (tuple_of(&flow), number, flow.goes_round))
        });
        let listed: Vec<(Tuple, u16, bool)> = listed.collect();
        let rules = &self.nic.rules;
        let is_wanted = |flow: &Tuple, owner: u16| {
            listed.iter().any(|(known, worker, _)| known == flow && *worker == owner)
        };
        // Some go while their flow is spread: a port is opened anew.
        let goes = |(flow, owner): &&(Tuple, u16)| !is_wanted(flow, *owner) || rng.chance(30);
        let gone = rules.iter().find(goes).map(|(flow, owner)| (*flow, *owner, Way::Handed));
        let is_new = |(flow, _, goes_round): &&(Tuple, u16, bool)| {
            !goes_round && rules.iter().all(|(known, _)| known != flow)
        };
        let new =
            || listed.iter().find(is_new).map(|(flow, owner, _)| (*flow, *owner, Way::Direct));
        let Some((flow, owner, to_way)) = gone.or_else(new) else { return };
        let (id, network) = (self.nic.last_fence.wrapping_add(1), NetworkId::DEFAULT);
        let (from, to) = ((to_ip(flow.src), flow.sport), (to_ip(flow.dst), flow.dport));
        let fence = FenceOrder { id, network, protocol: flow.protocol, from, to, to_way };
        let all = 0..self.workers.len() as u16;
        let waits = match to_way {
            Way::Direct => all.filter(|worker| *worker != owner).collect(),
            Way::Handed => vec![owner],
        };
        let spreads = &mut self.workers[usize::from(owner)].spreads;
        if !desk.saboteur.forgets_fences() && !spreads.fence(&fence, waits) {
            return;
        }
        self.nic.last_fence = id;
        let made = desk.now + rng.range(0, 4);
        let at = (made, made + rng.range(0, 2));
        self.nic.turning = Some(Turning { flow, owner, fence, at, done: false });
    }

    /// Whether a worker does not get to its receive queues now.
    pub(super) fn is_behind(&self, desk: &Desk<'_>, number: usize) -> bool {
        let spreading = desk.universe.spreading;
        let busy = self.nic.turning.is_some() || !self.nic.owed.is_empty();
        let time = desk.now.checked_div(spreading.backlog_ms).unwrap_or(0);
        let mut rng = Rng::of(&[desk.universe.seed, 52, number as u64, time]);
        busy && !self.hurries && rng.chance(spreading.backlog)
    }

    /// Gives the marks that a worker owes if its receive queues are empty; takes those that have
    /// come to it. Whether there were any.
    pub(super) fn give_marks(&mut self, desk: &Desk<'_>, number: usize) -> bool {
        let worker = &self.workers[number];
        let is_empty = worker.received.iter().all(VecDeque::is_empty);
        let owed = &mut self.nic.owed;
        let due = |(_, by, _): &mut (u32, u16, u16)| usize::from(*by) == number;
        let gives = is_empty || desk.saboteur.marks_early();
        let given: Vec<_> = if gives { owed.extract_if(.., due).collect() } else { Vec::new() };
        for &(fence, sender, owner) in &given {
            let behind = match self.workers.get(usize::from(owner)) {
                Some(to) if owner != sender => to.rings[number].len(),
                _ => 0,
            };
            self.nic.marks.push(Mark { fence, sender, owner, behind });
        }
        let taken = self.nic.taken(number);
        for (fence, sender) in &taken {
            self.workers[number].spreads.mark(*fence, *sender);
        }
        !given.is_empty() || !taken.is_empty()
    }

    /// Lets go on what a worker's fences need not hold any more. Whether there was anything.
    pub(super) fn release_held(
        &mut self,
        desk: &mut Desk<'_>,
        number: usize,
    ) -> Result<bool, Violation> {
        let mut any = false;
        while let Some(held) = self.workers[number].spreads.released(Time(desk.now)) {
            any = true;
            let mut burst = Vec::new();
            let mut alike = None;
            for Held { port, round, frame } in held {
                let of = (usize::from(port.0), round.is_some());
                if let Some((port, handed)) = alike
                    && (alike != Some(of) || burst.len() == desk.universe.burst)
                {
                    self.process_dealt(desk, (number, handed), port, &mut burst)?;
                }
                alike = Some(of);
                burst.push(frame);
            }
            if let Some((port, handed)) = alike {
                self.process_dealt(desk, (number, handed), port, &mut burst)?;
            }
        }
        Ok(any)
    }
}
