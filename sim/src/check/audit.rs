//! The model's sessions and counters against those that the director says it has.

use super::session::{Session, State};
use super::{Checker, Scene, Violation};
use crate::wire::{UDP, from_ip, to_ip};
use sluice_director::Time;
use sluice_director::counters::RealCounters;
use sluice_director::path::{Path, SessionFilter, SessionInfo};
use sluice_director::spec::Mode;

/// A director's sweep is once around in this time, which is twice as long where the table grows
/// meanwhile; with what the world takes between two calls.
const SWEEP_MS: u64 = 2 * 2000 + 200;

impl Checker {
    /// Finds out to which real server sessions lead that no packet showed yet: from the worker
    /// itself; the packets that follow must agree.
    pub fn unmask(&mut self, scene: Scene<'_>, path: &Path) -> Result<(), Violation> {
        for id in std::mem::take(&mut self.ghosts) {
            let Session { inbound, vacant, .. } = self.sessions[id as usize];
            if vacant || self.sessions[id as usize].forward.is_some() {
                continue;
            }
            let client = Some(to_ip(inbound.src));
            let filter = SessionFilter { client, ..SessionFilter::default() };
            let mut list = Vec::new();
            each(path, scene, &filter, &mut list);
            let is_it = |info: &&SessionInfo| {
                (info.client.1, info.virtual_)
                    == (inbound.sport, (to_ip(inbound.dst), inbound.dport))
                    && info.protocol == inbound.protocol
                    && !self.is_local_taken(scene, info)
            };
            let info = list.iter().find(is_it).ok_or("a session is not there")?;
            let mut forward = inbound;
            let real = (from_ip(info.real.0), info.real.1);
            if let Some((local, port)) = info.local {
                (forward.src, forward.sport) = (from_ip(local), port);
            }
            if matches!(info.mode, Mode::Fnat | Mode::Nat) {
                (forward.dst, forward.dport) = real;
            }
            let node = scene.snapshot.node_at(real.0);
            self.lead(scene, id, forward, node)?;
        }
        Ok(())
    }

    /// What a worker has counted, against what it must have.
    pub fn check_counters(&self, worker: u16, path: &Path) -> Result<(), Violation> {
        let (tally, counters) = (&self.tally[usize::from(worker)], path.counters());
        let live = u64::from(path.live_sessions());
        let pairs = [
            ("live", live, counters.created - counters.closed - counters.expired - counters.killed),
            ("created", counters.created, tally.created),
            ("closed", counters.closed, tally.closed),
            ("handed_off", counters.handed_off, tally.handed_off),
        ];
        for (name, is, right) in pairs {
            if is != right {
                return Err(format!("worker {worker} counts {is} {name}, right is {right}"));
            }
        }
        if counters.reasons == tally.reasons {
            return Ok(());
        }
        let mut all = sluice_director::Reason::ALL.iter();
        let wrong = all.find(|r| counters.of(**r) != tally.reasons[**r as usize]);
        let (name, is, right) = wrong.map_or(("", 0, 0), |reason| {
            (reason.name(), counters.of(*reason), tally.reasons[*reason as usize])
        });
        Err(format!("worker {worker} counts {is} {name}, right is {right}"))
    }

    /// Forgets sessions that a worker's sweep must have removed by now, and holds the worker's
    /// sessions against the others.
    pub fn audit(&mut self, scene: Scene<'_>, path: &Path) -> Result<(), Violation> {
        let Scene { universe, worker, now, .. } = scene;
        let mut live = 0;
        for id in 0..self.sessions.len() {
            let session = &self.sessions[id];
            if session.vacant || session.worker != worker {
                continue;
            }
            let over = session.seen_ms + session.timeout_ms(universe);
            if now <= over {
                live += 1;
            } else if now > over + SWEEP_MS {
                self.remove(id as u32);
            }
        }
        let ended: Vec<u32> = self.lingering.values().map(|known| known.0).collect();
        for id in ended {
            let session = &self.sessions[id as usize];
            let known = self.lingering.get(&(session.worker, session.inbound));
            if session.seen_ms + 2 * SWEEP_MS < now && known.is_some_and(|known| known.0 == id) {
                self.forget(id);
            }
        }
        let timeout = |number: usize| {
            universe.services[number].persistence.map_or(0, |p| u64::from(p.timeout_s) * 1000)
        };
        let remembered = &mut self.counts.remembered[usize::from(worker)];
        self.remembered.retain(|(at, number, _), known| {
            let stays = *at != worker || now <= known.at + timeout(*number) + SWEEP_MS;
            *remembered -= u32::from(!stays);
            stays
        });
        let entries = self.entries[usize::from(worker)];
        if !(live..=entries).contains(&path.live_sessions()) {
            let has = path.live_sessions();
            return Err(format!("worker {worker} has {has} sessions, not {live} to {entries}"));
        }
        self.check_list(scene, path, live)?;
        self.check_active(scene, path)
    }

    /// Whether another session is known to have the local port of a listed one.
    fn is_local_taken(&self, scene: Scene<'_>, info: &SessionInfo) -> bool {
        let Some((local, port)) = info.local else { return false };
        let outbound = crate::wire::Tuple {
            src: from_ip(info.real.0),
            sport: info.real.1,
            dst: from_ip(local),
            dport: port,
            protocol: info.protocol,
        };
        self.find(scene, outbound).is_some()
    }

    /// Every session that a worker lists is one of the model's, and none is missing.
    fn check_list(&self, scene: Scene<'_>, path: &Path, live: u32) -> Result<(), Violation> {
        let Scene { universe, worker, now, .. } = scene;
        let mut list = Vec::new();
        let filter = SessionFilter::default();
        each(path, scene, &filter, &mut list);
        if list.len() != live as usize {
            return Err(format!("worker {worker} lists {} sessions, not {live}", list.len()));
        }
        for info in &list {
            let end = |(address, port)| (from_ip(address), port);
            let ((src, sport), (dst, dport)) = (end(info.client), end(info.virtual_));
            let inbound = crate::wire::Tuple { src, dst, sport, dport, protocol: info.protocol };
            // Several of these may have the same tuple.
            if info.state.name() == State::OnePacket.name() {
                continue;
            }
            let Some((id, _)) = self.find(scene, inbound) else {
                return Err(format!("worker {worker} lists a session that is none: {info:?}"));
            };
            let session = &self.sessions[id as usize];
            let right = session.forward.is_none_or(|forward| {
                let local = info.local.map(end);
                local == session.place().map(|_| (forward.src, forward.sport))
                    && (info.mode == session.mode)
                    && self.leads(scene, session) == Some(end(info.real).0)
            });
            let timeout = session.timeout_ms(universe);
            let idle = now - session.seen_ms;
            let state = session.state.name() == info.state.name()
                || (session.state == State::Udp && info.protocol == UDP);
            let times = (u64::from(info.idle_ms), u64::from(info.expires_ms));
            if !right || !state || times != (idle, timeout - idle) {
                return Err(format!("worker {worker} lists {info:?}, right is {session:?}"));
            }
        }
        Ok(())
    }

    /// The address of a session's real server.
    fn leads(&self, scene: Scene<'_>, session: &Session) -> Option<crate::wire::Addr> {
        if session.mode == Mode::Snat {
            return Some(session.inbound.dst);
        }
        let real = &scene.universe.services[session.service].reals[session.real?];
        Some(scene.universe.nodes[real.node].address)
    }

    /// What real servers' counters call active, against the entries there may be; and each gauge
    /// against what a walk through the sessions finds.
    fn check_active(&self, scene: Scene<'_>, path: &Path) -> Result<(), Violation> {
        for (id, (is, right)) in path.counters().reals.iter().zip(path.recount()).enumerate() {
            let gauges =
                |of: &RealCounters| (of.active, of.established, of.closing, of.bound, of.lingering);
            let (is, right) = (gauges(is), gauges(&right));
            if is != right {
                let names = "(active, established, closing, bound, lingering)";
                let worker = scene.worker;
                return Err(format!(
                    "worker {worker}, real server {id}: {names} {is:?}: {right:?}"
                ));
            }
        }
        let active: u64 = path.counters().reals.iter().map(|real| real.active).sum();
        if active == u64::from(path.live_sessions()) {
            return Ok(());
        }
        let (worker, live) = (scene.worker, path.live_sessions());
        Err(format!("worker {worker}: real servers have {active} sessions, not {live}"))
    }
}

/// Lists all sessions that pass a filter.
fn each(path: &Path, scene: Scene<'_>, filter: &SessionFilter, out: &mut Vec<SessionInfo>) {
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let part = (from, u32::MAX);
        cursor = path.list(&scene.snapshot.plan, Time(scene.now), filter, part, out);
    }
}
