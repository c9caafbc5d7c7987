//! Packets that another worker than their session's rewrites: tracked and counted when they are
//! dealt, seen when they come out. And, for these as for all, whether packets of a direction leave
//! in the order in which they came, and are counted once.

use super::forward::{check_way, destination};
use super::session::{Direction, Session, State};
use super::{Checker, Scene, Violation, Way, owners};
use crate::frame::{Buffer, Kind};
use crate::status::Snapshot;
use crate::universe::Universe;
use crate::wire::{Addr, FIN, RST, SYN, Tuple, piece_len, read, to_ip};
use rustc_hash::FxHashMap;
use sluice_director::Frame;
use sluice_director::path::Path;
use sluice_director::plan::Plan;
use sluice_director::spec::Orphans;
use std::collections::VecDeque;
use std::rc::Rc;

/// Nobody is busy who has had no packet for so long.
const BUSY_MS: u64 = 50;

/// What a frame that was dealt has to become.
#[derive(Debug)]
pub(crate) struct Expected {
    session: Session,
    direction: Direction,
    /// Where it goes, and how large it may be there.
    to: (Addr, u16),
    /// What its owner ran with when it was dealt.
    snapshot: Rc<Snapshot>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "plan {}", self.epoch)
    }
}

/// A service and a place among its real servers.
type Leads = (usize, usize);

/// Packets and bytes, inbound and outbound.
type Carried = [(u64, u64); 2];

/// What passed a worker's sessions since it began to run with its plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    known: FxHashMap<Leads, Carried>,
    /// What its counters said by then, by id of real servers.
    before: Vec<Carried>,
}

fn carried(path: &Path, id: usize) -> Carried {
    let real = path.counters().reals.get(id).copied().unwrap_or_default();
    std::array::from_fn(|at| (real.packets[at], real.bytes[at]))
}

/// The real server of the world that a plan's is.
fn leads(universe: &Universe, plan: &Plan, id: usize) -> Option<Leads> {
    let real = &plan.reals[id];
    let name = &plan.services.get(usize::from(real.service.0))?.name;
    let service: usize = name.strip_prefix('s')?.parse().ok()?;
    if universe.services.get(service)?.rule.is_some() {
        return Some((service, 0));
    }
    let is_it =
        |known: &crate::universe::Real| to_ip(universe.nodes[known.node].address) == real.address;
    Some((service, universe.services.get(service)?.reals.iter().position(is_it)?))
}

impl Checker {
    /// A frame of a spread flow was dealt.
    pub fn dealt(
        &mut self,
        scene: Scene<'_>,
        snapshot: &Rc<Snapshot>,
        frame: &mut Buffer,
    ) -> Result<(), Violation> {
        let expected = self.deal(scene, snapshot, frame)?;
        if frame.expected.replace(expected).is_some() {
            return Err("dealt twice".into());
        }
        let away = self.away.entry((scene.worker, frame.packet.tuple)).or_default();
        away.push_back(frame.arrived);
        Ok(())
    }

    /// The same for one that then found no room.
    pub fn dealt_late(
        &mut self,
        scene: Scene<'_>,
        snapshot: &Rc<Snapshot>,
        frame: &Buffer,
    ) -> Result<(), Violation> {
        self.deal(scene, snapshot, frame).map(drop)
    }

    fn deal(
        &mut self,
        scene: Scene<'_>,
        snapshot: &Rc<Snapshot>,
        frame: &Buffer,
    ) -> Result<Box<Expected>, Violation> {
        let packet = frame.packet;
        let whole = matches!(frame.kind, Kind::Whole | Kind::Payload);
        let plain = whole && frame.place.is_none() && frame.about.is_none();
        if !plain || packet.flags & (SYN | FIN | RST) != 0 || packet.ttl <= 1 {
            return Err("dealt, and the owner has to look at it".into());
        }
        if let Some(owner) = owners::of_port(scene, packet.tuple) {
            return Err(format!("dealt by worker {}, not {owner}", scene.worker));
        }
        let Some((id, direction)) = self.find(scene, packet.tuple) else {
            return Err("dealt without a session".into());
        };
        let session = self.sessions[id as usize].clone();
        if !matches!(session.state, State::Established | State::Udp) {
            return Err(format!("dealt while its session is {:?}", session.state));
        }
        if session.is_being_told(scene) {
            return Err("dealt, and its real server does not know its client".into());
        }
        let Some(real) = session.real.filter(|_| session.becomes(direction).is_some()) else {
            return Err("dealt, and nobody knows where to".into());
        };
        if scene.snapshot.rule(scene.universe, session.service, real) != Orphans::Keep {
            return Err("dealt though its real server is gone".into());
        }
        let to = destination(scene, &session, direction);
        let link = scene.snapshot.next(scene.universe, to).map(|(link, ..)| link);
        let mtu = link.map_or(0, |link| scene.universe.links[link].mtu);
        let mtu = self.path_mtu(scene, &session, direction, mtu);
        self.count_passed(scene, frame, (&session, direction));
        self.pass(scene, id, direction, &packet);
        let snapshot = Rc::clone(snapshot);
        Ok(Box::new(Expected { session, direction, to: (to, mtu), snapshot }))
    }

    /// A frame that was dealt comes out, to be sent by a port.
    pub fn collected(
        &mut self,
        universe: &Universe,
        (worker, now): (u16, u64),
        frame: &mut Buffer,
        port: u16,
    ) -> Result<(), Violation> {
        let Some(expected) = frame.expected.take() else {
            return Err("came back, and was not dealt".into());
        };
        let away = self.away.get_mut(&(worker, frame.packet.tuple));
        let next = away.and_then(VecDeque::pop_front);
        if next != Some(frame.arrived) {
            return Err(format!("frame {} comes out, {next:?} is next", frame.arrived));
        }
        let Expected { session, direction, to, snapshot } = *expected;
        let seen = read(frame.bytes())?;
        let scene = Scene { universe, snapshot: &snapshot, worker, now, agreed: false };
        let way = Way::Sent(port);
        self.compare(scene, (frame, frame.bytes()), &seen, (&session, direction), way)?;
        check_way(scene, &seen, to, way)?;
        frame.seen = seen;
        self.leaves(worker, frame)
    }

    /// Nothing that was dealt is under way any more.
    pub fn all_came_out(&self) -> Result<(), Violation> {
        match self.away.iter().find(|(_, away)| !away.is_empty()) {
            Some(((worker, tuple), away)) => Err(format!(
                "worker {worker}: {} packets of {tuple} were dealt and never came out",
                away.len()
            )),
            None => Ok(()),
        }
    }

    /// A frame of a session leaves: none that came before it leaves later.
    pub fn leaves(&mut self, worker: u16, frame: &Buffer) -> Result<(), Violation> {
        // Fragments, and what workers that do not agree hand on and on, take other ways.
        if frame.place.is_some() || frame.about.is_some() || frame.handed > 1 {
            return Ok(());
        }
        let last = self.left.entry((worker, frame.packet.tuple)).or_default();
        if frame.arrived < *last {
            return Err(format!("frame {} leaves behind frame {last}", frame.arrived));
        }
        *last = frame.arrived;
        Ok(())
    }

    /// A packet of a session goes on: it is counted.
    pub(super) fn count_passed(
        &mut self,
        scene: Scene<'_>,
        frame: &Buffer,
        (session, direction): (&Session, Direction),
    ) {
        let length = match frame.place {
            Some(place) => piece_len(&frame.packet, &place) - 14,
            None => frame.packet.length(),
        };
        let Some(real) = session.real else { return };
        let passed = &mut self.passed[usize::from(scene.worker)];
        let carried = passed.known.entry((session.service, real)).or_default();
        let (packets, bytes) = &mut carried[direction as usize];
        (*packets, *bytes) = (*packets + 1, *bytes + length as u64);
    }

    /// A worker's counts of packets and bytes, against what passed.
    pub fn check_passed(
        &self,
        universe: &Universe,
        (worker, plan): (u16, &Plan),
        path: &Path,
    ) -> Result<(), Violation> {
        let Passed { known, before } = &self.passed[usize::from(worker)];
        let mut counted = FxHashMap::<Leads, Carried>::default();
        for (id, before) in before.iter().enumerate() {
            let now = carried(path, id);
            if now == *before {
                continue;
            }
            let Some(leads) = leads(universe, plan, id) else {
                return Err(format!("worker {worker} counts for real server {id}, which is none"));
            };
            let sum = counted.entry(leads).or_default();
            for (sum, (now, before)) in sum.iter_mut().zip(now.iter().zip(before)) {
                *sum = (
                    sum.0.wrapping_add(now.0).wrapping_sub(before.0),
                    sum.1.wrapping_add(now.1).wrapping_sub(before.1),
                );
            }
        }
        for leads in known.keys().chain(counted.keys()) {
            let get = |of: &FxHashMap<_, _>| of.get(leads).copied().unwrap_or_default();
            let (is, right): (Carried, Carried) = (get(&counted), get(known));
            if is != right {
                let (service, real) = leads;
                return Err(format!(
                    "worker {worker} counts packets and bytes {is:?} of service {service}, \
                     real server {real}, right is {right:?}"
                ));
            }
        }
        Ok(())
    }

    /// A worker runs with a plan from now on: its counters begin anew.
    pub fn begin_passed(&mut self, worker: u16, plan: &Plan, path: &Path) {
        let before = (0..plan.reals.len()).map(|id| carried(path, id)).collect();
        self.passed[usize::from(worker)] = Passed { known: FxHashMap::default(), before };
    }

    /// The sessions whose flows may be spread, those with the most packets first: the client's
    /// tuple and the worker.
    pub fn busiest(&self, universe: &Universe, now: u64) -> Vec<(u16, Tuple)> {
        let spread = |s: &&Session| {
            !s.vacant
                && matches!(s.state, State::Established | State::Udp)
                && !s.is_over(universe, now)
        };
        let mut all: Vec<_> = self.sessions.iter().filter(spread).collect();
        let is_busy = |s: &Session| now - s.seen_ms < BUSY_MS;
        all.sort_by_key(|s| (std::cmp::Reverse((is_busy(s), s.packets)), s.inbound));
        all.into_iter().map(|session| (session.worker, session.inbound)).collect()
    }
}
