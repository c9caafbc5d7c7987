//! What a worker makes ready before its first turn with another plan.
//!
//! Room for counters and what is learned by id; what ids that were given again still had is
//! cleared. A plan in which only health or weights have changed has the same ids, pools and ways,
//! so that the rosters of the services concerned are all there is to make: see
//! [`Plan::with_health`].

use super::engine::Engine;
use super::rate::{Rate, Usage};
use super::{PagePolicy, Path, Shared, changes};
use crate::counters::{RealCounters, ServiceDrops};
use crate::hash::Seed;
use crate::local_port;
use crate::plan::Plan;

impl Path {
    /// Makes room for what a new plan counts. To be called once before the first turn with it. One
    /// in which only health or weights have changed costs as much as the services that it changed.
    pub fn adopt(&mut self, plan: &Plan) {
        let shared = &mut self.shared;
        if shared.admission.schedulers.is_next_revision(plan) {
            shared.admission.schedulers.adopt(plan, shared.now, &shared.statistics.counters.reals);
            return;
        }
        shared.adopt_services(plan);
        let walk = local_port::Walk::beginning(shared.ports.from);
        shared.ports.walks.resize(plan.reals.len(), walk);
        shared.admission.load.reals.resize(plan.reals.len(), 0);
        shared.statistics.counters.reals.resize(plan.reals.len(), RealCounters::default());
        for (id, real) in plan.reals.iter().enumerate() {
            let identity = (real.service, real.address, real.port);
            match shared.statistics.counted.get_mut(id) {
                Some(known) if *known == identity => {}
                Some(known) => {
                    *known = identity;
                    shared.statistics.counters.reals[id] = RealCounters::default();
                    // Records name real servers by their ids.
                    self.v4.table.fragments.clear();
                    self.extended.table.fragments.clear();
                }
                None => shared.statistics.counted.push(identity),
            }
        }
        shared.adopt_ports(plan);
        shared.paths.adopt(plan);
        shared.admission.schedulers.adopt(plan, shared.now, &shared.statistics.counters.reals);
        if plan.uses_extended()
            && self.extended.table.sessions.slab().capacity() < self.config.sessions
        {
            self.make_extended();
        }
        self.v4.table.half_open.adopt(plan.services.len());
        self.extended.table.half_open.adopt(plan.services.len());
    }

    /// Makes the extended table, which is empty as long as it is too small for anything.
    fn make_extended(&mut self) {
        let config = &self.config;
        let seed = || Seed::new(config.seed);
        let room = (config.sessions, config.fragments);
        let file = self.files.as_ref().map(|files| &files.extended);
        let extended = Engine::new(room, seed(), config.pages, file)
            .or_else(|_| Engine::new(room, seed(), PagePolicy::Ordinary, None));
        // Without memory even for that, its sessions are refused as those of a full table are.
        if let Ok(extended) = extended {
            self.extended = Engine { level: self.extended.level, ..extended };
            if self.v4.table.changes.is_on() {
                // Without memory for it they are told by nobody; what they are for goes on.
                let _ = changes::note_changes(&mut self.extended.table, config.pages);
            }
        }
    }
}

impl Shared {
    /// Makes room for what services use of their limits, and for what is dropped of them. One that
    /// has come since begins afresh, whatever its id was before; sessions are counted by id, and
    /// none is left of another service.
    fn adopt_services(&mut self, plan: &Plan) {
        self.admission.usage.resize(plan.services.len(), Usage::default());
        self.statistics.births.resize(plan.services.len(), 0);
        self.statistics.counters.services.resize(plan.services.len(), ServiceDrops::default());
        let drops = self.statistics.counters.services.iter_mut();
        let known = self.admission.usage.iter_mut().zip(&mut self.statistics.births).zip(drops);
        for (service, ((usage, born), drops)) in plan.services.iter().zip(known) {
            if *born != service.born {
                *born = service.born;
                usage.rate = Rate::default();
                *drops = ServiceDrops::default();
            }
        }
    }
}
