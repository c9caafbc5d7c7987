//! What hosts inside have outside by source NAT: an inside endpoint keeps its own as long as one of
//! its sessions lives, where the rule says so (RFC 4787 REQ-1, RFC 5382 REQ-1), and nobody else has
//! it meanwhile. Where each session has its own, no two have the same towards one endpoint outside,
//! which is so of all sessions and held where they are (`forward.rs`).

use super::session::Session;
use super::{Scene, Violation};
use crate::universe::Rule;
use crate::wire::{Addr, Tuple, to_ip};
use rustc_hash::FxHashMap;
use sluice_director::spec::Mode;

/// An address and a port.
type End = (Addr, u16);
/// A protocol and an endpoint inside.
type Inside = (u8, End);
/// A protocol and an endpoint of a pool.
type Outside = (u8, End);

#[derive(Clone, Debug)]
struct Mapping {
    /// Who has it: a worker.
    worker: u16,
    outside: End,
    /// Sessions that hold it, also those that are over and not known to be gone.
    holders: Vec<u32>,
}

/// Mappings that may be in the director.
#[derive(Default)]
pub(crate) struct Mappings {
    known: FxHashMap<Inside, Mapping>,
    by_outside: FxHashMap<Outside, Inside>,
    /// By worker, protocol and pool address.
    at: FxHashMap<(u16, u8, Addr), u32>,
    counts: FxHashMap<u16, u32>,
    /// Sessions of source NAT, those of them that another's mapping was for, and those that there
    /// was no port for.
    pub outward: [u64; 3],
}

fn inside(session: &Session) -> Inside {
    let Tuple { src, sport, protocol, .. } = session.inbound;
    (protocol, (src, sport))
}

impl Mappings {
    /// How many a worker may have.
    pub fn of(&self, worker: u16) -> u32 {
        self.counts.get(&worker).copied().unwrap_or(0)
    }

    fn add(&mut self, key: Inside, mapping: Mapping) {
        let (protocol, worker) = (key.0, mapping.worker);
        self.by_outside.insert((protocol, mapping.outside), key);
        *self.at.entry((worker, protocol, mapping.outside.0)).or_default() += 1;
        *self.counts.entry(worker).or_default() += 1;
        self.known.insert(key, mapping);
    }

    fn remove(&mut self, key: Inside) -> Option<Mapping> {
        let mapping = self.known.remove(&key)?;
        let (protocol, worker) = (key.0, mapping.worker);
        let outside = (protocol, mapping.outside);
        if self.by_outside.get(&outside) == Some(&key) {
            self.by_outside.remove(&outside);
        }
        for count in
            [self.at.get_mut(&(worker, protocol, mapping.outside.0)), self.counts.get_mut(&worker)]
        {
            count.into_iter().for_each(|count| *count -= 1);
        }
        Some(mapping)
    }

    /// A session is gone.
    pub fn let_go(&mut self, id: u32, session: &Session) {
        if session.mode != Mode::Snat {
            return;
        }
        let key = inside(session);
        let Some(mapping) = self.known.get_mut(&key) else { return };
        mapping.holders.retain(|holder| *holder != id);
        if mapping.holders.is_empty() {
            self.remove(key);
        }
    }

    /// A new session of source NAT is known to have an endpoint outside: the right one.
    pub fn check(
        &mut self,
        scene: Scene<'_>,
        sessions: &[Session],
        id: u32,
    ) -> Result<(), Violation> {
        let session = &sessions[id as usize];
        let rule = scene.universe.services[session.service].rule.as_ref();
        let (Some(rule), Some(forward)) = (rule, session.forward) else { return Ok(()) };
        let (key, outside) = (inside(session), (forward.src, forward.sport));
        let (protocol, end) = key;
        let told = |(address, port): End| format!("{} port {port}", to_ip(address));
        if let Some(other) = self.by_outside.get(&(protocol, outside))
            && *other != key
            && self.is_held(scene, sessions, (*other, id))
        {
            let (whose, other) = (told(end), told(other.1));
            return Err(format!("{whose} gets {}, the outside endpoint of {other}", told(outside)));
        }
        self.outward[0] += 1;
        if !rule.shares() {
            return Ok(());
        }
        let known = self.known.get(&key).map(|mapping| mapping.outside);
        if let Some(known) = known.filter(|known| *known != outside) {
            if self.is_held(scene, sessions, (key, id)) {
                let (whose, is, was) = (told(end), told(outside), told(known));
                return Err(format!("{whose} gets another outside endpoint: {is}, after {was}"));
            }
            // Whoever still holds it is over, and gone.
            self.remove(key);
        }
        match self.known.get_mut(&key) {
            Some(mapping) => {
                mapping.holders.push(id);
                self.outward[1] += 1;
            }
            None => self.add(key, Mapping { worker: session.worker, outside, holders: vec![id] }),
        }
        Ok(())
    }

    /// Whether a session other than a new one certainly holds a mapping.
    fn is_held(&self, scene: Scene<'_>, sessions: &[Session], (key, new): (Inside, u32)) -> bool {
        let lives = |id: &u32| {
            let session = &sessions[*id as usize];
            *id != new && !session.vacant && !session.is_over(scene.universe, scene.now)
        };
        self.known.get(&key).is_some_and(|mapping| mapping.holders.iter().any(lives))
    }

    /// Whether a session has the outside endpoint that its inside one had before: it keeps that,
    /// also when the address leaves the pool, or a rule with another pool is for the next session.
    pub fn keeps(&self, rule: Option<&Rule>, (session, id): (&Session, u32), outside: End) -> bool {
        let known = self.known.get(&inside(session));
        let held = |known: &Mapping| known.holders.iter().any(|holder| *holder != id);
        let same = known.is_some_and(|known| known.outside == outside && held(known));
        same && rule.is_some_and(Rule::shares)
    }

    /// How many ports of a pool address may be mapped for somebody.
    pub fn at(&self, worker: u16, protocol: u8, local: Addr) -> u32 {
        self.at.get(&(worker, protocol, local)).copied().unwrap_or(0)
    }

    /// How the answer to a packet from inside would come if its sender's mapping is used.
    pub fn answer(&self, worker: u16, tuple: Tuple) -> Option<Tuple> {
        let Tuple { src, sport, dst, dport, protocol } = tuple;
        let mapping = self.known.get(&(protocol, (src, sport)));
        let (local, port) = mapping.filter(|mapping| mapping.worker == worker)?.outside;
        Some(Tuple { src: dst, sport: dport, dst: local, dport: port, protocol })
    }
}
