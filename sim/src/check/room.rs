//! Whether there was room for a session: limits of services and real servers, answers that look
//! alike, local ports.

use super::session::Session;
use super::{Checker, Scene};
use crate::wire::{Packet, Tuple, is_v4};
use sluice_director::spec::{Mode, Scheduling};

/// Combinations of a pool that a director looks at before it may say that none is free.
const LOOKS: u32 = 256;
/// The same where none was free the last time.
const DRY_LOOKS: u32 = 16;

impl Checker {
    /// Whether a service may have as many sessions as it is allowed.
    pub(super) fn is_full(&self, scene: Scene<'_>, service: usize) -> bool {
        let limit = scene.universe.services[service].limits.sessions;
        let count = self.counts.of(scene.worker, service);
        limit != 0 && count >= limit.div_ceil(scene.universe.workers.into())
    }

    /// Whether all real servers of a service may have been full, and not yet empty enough.
    pub(super) fn are_full(&self, scene: Scene<'_>, service: usize) -> bool {
        let spec = &scene.universe.services[service];
        let workers = scene.universe.workers.into();
        let limit = spec.limits.upper;
        let lower = (limit.div_ceil(workers) * 3).div_ceil(4);
        let weights = &scene.snapshot.status.services[service].reals;
        // Under `ovf` a weight is a bound, which is small at first in slow start.
        let bound = |real: usize| match (spec.scheduler, spec.limits.slow_start_s) {
            (Scheduling::Ovf, 0) => Some(u32::from(weights[real].weight).div_ceil(workers)),
            (Scheduling::Ovf, _) => Some(1),
            _ => None,
        };
        let bound = |real| bound(real).into_iter().chain((limit != 0).then_some(lower)).min();
        let mut eligible = scene.snapshot.eligible[service].iter();
        let full = |real: &usize| {
            let mine = |s: &&Session| {
                let at = (s.worker, s.service) == (scene.worker, service);
                !s.vacant && at && s.real.is_none_or(|other| other == *real)
            };
            let sessions = self.sessions.iter().filter(mine).count() as u32;
            bound(*real).is_some_and(|bound| sessions >= bound)
        };
        eligible.len() > 0 && eligible.all(full)
    }

    /// How many real servers' answers could not be told from those of another session.
    pub(super) fn conflicts(&self, scene: Scene<'_>, service: usize, client: &Tuple) -> usize {
        let Scene { universe, snapshot, .. } = scene;
        let spec = &universe.services[service];
        let reals = snapshot.eligible[service].iter().map(|at| &spec.reals[*at]);
        let nat = reals.filter(|real| real.mode == Mode::Nat);
        let taken = nat.filter(|real| {
            let mut outbound = client.reversed();
            outbound.src = universe.nodes[real.node].address;
            outbound.sport = if real.port == 0 { client.dport } else { real.port };
            self.find(scene, outbound).is_some()
        });
        taken.count()
    }

    /// Whether no local port is free towards one of the real servers that take sessions, as far
    /// as a director has to look; where it found none lately, that is less far.
    pub(super) fn is_exhausted(
        &mut self,
        scene: Scene<'_>,
        service: usize,
        packet: &Packet,
    ) -> bool {
        let mut exhausted = false;
        for at in &scene.snapshot.eligible[service] {
            let Some((used, all)) = self.use_of_pool(scene, (service, *at), packet) else {
                continue;
            };
            let used = used + self.counts.unled;
            if used >= all.min(LOOKS) {
                self.dry.insert((scene.worker, service, *at), ());
                exhausted = true;
            }
            let dry = self.dry.contains_key(&(scene.worker, service, *at));
            exhausted |= dry && used >= all.min(DRY_LOOKS);
        }
        exhausted
    }

    /// How many of its local ports towards a real server a worker uses, of how many.
    fn use_of_pool(
        &self,
        scene: Scene<'_>,
        (service, real): (usize, usize),
        packet: &Packet,
    ) -> Option<(u32, u32)> {
        let Scene { universe, snapshot, worker, .. } = scene;
        let spec = &universe.services[service];
        let takes = |mode| matches!(mode, Mode::Fnat | Mode::Snat);
        let real = Some(&spec.reals[real]).filter(|real| takes(real.mode))?;
        let pool = &universe.pools[spec.pool];
        // What sessions of both tables may use of a pool is parted between them: no IPv6.
        let ruled = spec.rule.is_some();
        let address = if ruled { packet.tuple.dst } else { universe.nodes[real.node].address };
        let wide = universe.services.iter().any(|service| service.rule.is_some())
            || universe.nodes.iter().any(|node| !is_v4(node.address));
        let both = is_v4(address) && wide;
        let tables = if both { 2 } else { 1 };
        let (start, end) = pool.share(worker, universe.workers);
        let port = if real.port == 0 { packet.tuple.dport } else { real.port };
        let locals = pool.addresses.iter().zip(&snapshot.status.locals[spec.pool]);
        let own = locals.filter(|(at, there)| **there && is_v4(**at) == is_v4(address));
        let (mut used, mut all) = (0, 0);
        for (local, _) in own {
            let protocol = if ruled { packet.tuple.protocol } else { spec.protocol };
            let place = (worker, protocol, (address, port), *local);
            used += self.used.get(&place).copied().unwrap_or(0);
            if ruled {
                used += self.mappings.at(worker, protocol, *local);
            }
            all += (end - start) / tables;
        }
        Some((used, all))
    }
}
