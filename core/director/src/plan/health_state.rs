//! Which real servers of a service get new sessions: what the configuration, health checks and the
//! other real servers of the service say together.
//!
//! Health is no part of the configuration. It is kept in the plan, goes along when the next one is
//! compiled, and changes by [`Plan::with_health`] alone. That and [`Plan::with_weights`] copy a
//! plan and touch only what depends on either: ids, tables and routes stay, so a worker makes again
//! nothing but the rosters of the services concerned.

use super::{Plan, Real, RealId, Service, ServiceId};
use crate::spec::{AllDown, Orphans};
use std::collections::{BTreeSet, HashSet};

/// Whether a real server gets new sessions. Weights and limits are another matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HealthState {
    /// It does.
    #[default]
    Serves,
    /// It is a fallback, and others are up.
    StandsBy,
    /// It is down.
    Down,
}

impl Plan {
    /// This plan with other health of some real servers: `true` for those that were found down. It
    /// has the same epoch and ids, and the next revision.
    ///
    /// Whoever adopted this plan may adopt that one at little cost; whoever did not, at the cost
    /// of any other plan.
    #[must_use]
    pub fn with_health(&self, found: &[(RealId, bool)]) -> Self {
        self.revised(found, |real, down| std::mem::replace(&mut real.found_down, down) != down)
    }

    /// This plan with other weights of some real servers, as [`Self::with_health`] otherwise. It is
    /// what compiling it with these weights would give.
    #[must_use]
    pub fn with_weights(&self, weights: &[(RealId, u16)]) -> Self {
        let mut plan = self
            .revised(weights, |real, weight| std::mem::replace(&mut real.weight, weight) != weight);
        for id in plan.turned.clone() {
            let size = plan.service(id).and_then(|s| s.table.as_ref()).map(|table| table.size());
            let Some(size) = size else { continue };
            let table = plan.table(id, size, Some(self));
            plan.services[usize::from(id.0)].table = table;
        }
        plan
    }

    /// The next revision. `change` makes of a real server what is said of it, and tells whether it
    /// was something else.
    fn revised<T: Copy>(
        &self,
        said: &[(RealId, T)],
        change: impl Fn(&mut Real, T) -> bool,
    ) -> Self {
        let mut plan = self.clone();
        plan.revision += 1;
        let mut turned = BTreeSet::new();
        for (id, what) in said {
            let Some(real) = plan.reals.get_mut(id.0 as usize) else { continue };
            if real.live && change(real, *what) {
                turned.insert(real.service);
            }
        }
        for id in &turned {
            plan.settle(*id);
            let reals = plan.services.get(usize::from(id.0)).map_or(&[][..], |s| &s.reals);
            for real_id in reals {
                let real = plan.reals.get(real_id.0 as usize);
                let goes_on = real.is_none_or(|real| real.orphans == Orphans::Keep);
                plan.v4.set_goes_on(*real_id, goes_on);
                plan.extended.set_goes_on(*real_id, goes_on);
            }
        }
        plan.turned = turned.into_iter().collect();
        plan
    }

    /// Settles who gets new sessions, in all services.
    pub(super) fn settle_health(&mut self) {
        let live = self.services.iter().enumerate().filter(|(_, service)| service.live);
        for id in live.map(|(id, _)| ServiceId(id as u16)).collect::<Vec<_>>() {
            self.settle(id);
        }
    }

    /// What becomes of the sessions of real servers that left the configuration. One that is only
    /// reached in another way now, or whose service is kept in another table, has not left it.
    pub(super) fn settle_orphans(&mut self) {
        let endpoint = |service: &Service, real: &Real| {
            let Service { network, protocol, vip, ports, .. } = *service;
            (network, protocol, vip, ports, real.address, real.port)
        };
        let of = |real: &Real| &self.services[usize::from(real.service.0)];
        let serves =
            |real: &&Real| real.live && !real.is_probe && real.health_state != HealthState::Down;
        let alive = self.reals.iter().filter(serves);
        let alive: HashSet<_> = alive.map(|real| endpoint(of(real), real)).collect();
        let rules = self.reals.iter().map(|real| match real {
            _ if real.live => real.orphans,
            _ if alive.contains(&endpoint(of(real), real)) => Orphans::Keep,
            _ => of(real).on_removed,
        });
        let rules: Vec<_> = rules.collect();
        for (real, rule) in self.reals.iter_mut().zip(rules) {
            real.orphans = rule;
        }
    }

    /// Settles who gets new sessions in one service, and what becomes of those that they have.
    fn settle(&mut self, id: ServiceId) {
        let Some(service) = self.services.get(usize::from(id.0)) else { return };
        let (all_down, on_down) = (service.all_down, service.on_down);
        let is_up = |real: &Real| !real.down && !real.found_down;
        let of = |id: &RealId| self.reals.get(id.0 as usize);
        let any = |wanted: &dyn Fn(&Real) -> bool| service.reals.iter().filter_map(of).any(wanted);
        let serves = any(&|real| !real.fallback && is_up(real) && real.weight > 0);
        let falls_back = any(&|real| real.fallback && is_up(real) && real.weight > 0);
        for real_id in &service.reals {
            let Some(real) = self.reals.get_mut(real_id.0 as usize) else { continue };
            let up = is_up(real);
            if serves {
                real.was_up = up;
            }
            let nobody = !serves && !falls_back;
            let spared = nobody
                && !real.down
                && !real.fallback
                && match all_down {
                    AllDown::Drop => false,
                    AllDown::Keep => real.was_up,
                    AllDown::FailOpen => true,
                };
            real.health_state = match () {
                () if !up && !spared => HealthState::Down,
                () if real.fallback && serves => HealthState::StandsBy,
                () => HealthState::Serves,
            };
            real.orphans = match real.health_state {
                HealthState::Down => on_down,
                HealthState::Serves | HealthState::StandsBy => Orphans::Keep,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::RealCounters;
    use crate::plan::Retired;
    use crate::schedule::Schedulers;
    use crate::spec::{Mode, RealServer, Scheduling, Spec, VirtualService};
    use crate::time::Time;
    use HealthState::{Down, Serves, StandsBy};
    use proptest::prelude::*;

    fn spec(all_down: AllDown, fallbacks: &[bool]) -> Spec {
        let reals = (11u8..).zip(fallbacks).map(|(last, fallback)| RealServer {
            address: [192, 0, 2, last].into(),
            port: 80,
            fallback: *fallback,
            ..RealServer::default()
        });
        let service = VirtualService {
            name: "web".into(),
            vip: [198, 51, 100, 200].into(),
            mode: Mode::Nat,
            on_down: Orphans::Reset,
            all_down,
            reals: reals.collect(),
            ..VirtualService::default()
        };
        Spec { services: vec![service], ..Spec::default() }
    }

    fn compile(spec: &Spec, before: Option<&Plan>) -> Plan {
        Plan::compile(spec, before, &Retired::default()).unwrap()
    }

    fn health_state(plan: &Plan) -> Vec<HealthState> {
        plan.services[0].reals.iter().map(|id| plan.real(*id).unwrap().health_state).collect()
    }

    fn turn(plan: &Plan, found: &[(u32, bool)]) -> Plan {
        let found: Vec<_> = found.iter().map(|(id, down)| (RealId(*id), *down)).collect();
        plan.with_health(&found)
    }

    #[test]
    fn a_fallback_serves_while_nobody_else_does() {
        let plan = compile(&spec(AllDown::Drop, &[false, false, true]), None);
        assert_eq!(health_state(&plan), [Serves, Serves, StandsBy]);
        let one = turn(&plan, &[(0, true)]);
        assert_eq!(health_state(&one), [Down, Serves, StandsBy]);
        let two = turn(&one, &[(1, true)]);
        assert_eq!(health_state(&two), [Down, Down, Serves]);
        assert_eq!(health_state(&turn(&two, &[(2, true)])), [Down, Down, Down]);
        let back = turn(&two, &[(0, false)]);
        assert_eq!(health_state(&back), [Serves, Down, StandsBy]);
        assert_eq!(back.reals[2].orphans, Orphans::Keep, "its sessions go on");
    }

    #[test]
    fn what_all_down_says() {
        for (policy, expected) in [
            (AllDown::Drop, [Down, Down, Down]),
            (AllDown::Keep, [Down, Serves, Serves]),
            (AllDown::FailOpen, [Serves, Serves, Serves]),
        ] {
            let plan = compile(&spec(policy, &[false; 3]), None);
            let all = turn(&turn(&plan, &[(0, true)]), &[(1, true), (2, true)]);
            assert_eq!(health_state(&all), expected, "{policy:?}");
            // It stays so through a reload, and ends with the first that comes back.
            let reloaded = compile(&spec(policy, &[false; 3]), Some(&all));
            assert_eq!(health_state(&reloaded), expected, "{policy:?}");
            let back = turn(&reloaded, &[(0, false)]);
            assert_eq!(health_state(&back), [Serves, Down, Down], "{policy:?}");
        }
    }

    #[test]
    fn a_real_server_that_is_configured_down_is_never_spared() {
        let mut spec = spec(AllDown::FailOpen, &[false, false]);
        spec.services[0].reals[0].down = true;
        let plan = turn(&compile(&spec, None), &[(1, true)]);
        assert_eq!(health_state(&plan), [Down, Serves]);
    }

    #[test]
    fn the_packet_path_sees_the_rule_for_sessions() {
        let plan = compile(&spec(AllDown::Drop, &[false, false]), None);
        let down = turn(&plan, &[(1, true)]);
        assert!(plan.v4.real(RealId(1)).unwrap().goes_on(true));
        assert!(!down.v4.real(RealId(1)).unwrap().goes_on(true));
        let row = down.v4.real_rows()[1];
        assert_eq!(row[2], down.v4.real(RealId(1)).unwrap().rest());
        assert!(turn(&down, &[(1, false)]).v4.real(RealId(1)).unwrap().goes_on(true));
    }

    proptest! {
        /// Other weights by a revision are what compiling with them gives, whatever was found in
        /// between.
        #[test]
        fn weights_by_a_revision_are_compiled_ones(
            scheduler in prop::sample::select(vec![
                Scheduling::Wrr, Scheduling::Wlc, Scheduling::Mh, Scheduling::Sh, Scheduling::Dh,
            ]),
            policy in prop::sample::select(vec![
                AllDown::Drop, AllDown::Keep, AllDown::FailOpen,
            ]),
            turns in prop::collection::vec((0u32..4, 0u16..3, any::<Option<bool>>()), 1..12),
        ) {
            let mut spec = spec(policy, &[false, false, false, true]);
            spec.services[0].scheduler = scheduler;
            spec.services[0].mh_table = 251;
            let mut plan = compile(&spec, None);
            for (id, weight, down) in turns {
                if let Some(down) = down {
                    plan = turn(&plan, &[(id, down)]);
                    continue;
                }
                spec.services[0].reals[id as usize].weight = weight;
                let compiled = compile(&spec, Some(&plan));
                plan = plan.with_weights(&[(RealId(id), weight)]);
                prop_assert_eq!(&plan.reals, &compiled.reals);
                prop_assert_eq!(&plan.services[0].table, &compiled.services[0].table);
                let of = |plan: &Plan| plan.v4.real_rows().get(id as usize).copied();
                prop_assert_eq!(of(&plan), of(&compiled));
            }
        }

        /// A worker that adopts revision after revision chooses as one that adopts the last as a
        /// whole would, if that one stood where it stands.
        #[test]
        fn a_revision_is_a_whole_plan(
            scheduler in prop::sample::select(vec![
                Scheduling::Rr, Scheduling::Wrr, Scheduling::Wlc, Scheduling::Mh, Scheduling::Sh,
            ]),
            turns in prop::collection::vec((0u32..4, any::<bool>()), 1..12),
        ) {
            let mut spec = spec(AllDown::Drop, &[false, false, false, true]);
            spec.services[0].scheduler = scheduler;
            spec.services[0].mh_table = 251;
            let mut plan = compile(&spec, None);
            let counters = vec![RealCounters::default(); 4];
            let mut by_revision = Schedulers::new(0, 1, 7);
            by_revision.adopt(&plan, Time(0), &counters);
            for (now, (id, down)) in (1u64..).zip(turns) {
                plan = turn(&plan, &[(id, down)]);
                prop_assert!(by_revision.is_next_revision(&plan));
                let mut whole = by_revision.clone();
                by_revision.adopt(&plan, Time(now), &counters);
                let mut other = plan.clone();
                other.revision += 1;
                whole.adopt(&other, Time(now), &counters);
                for key in 0..40u64 {
                    let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let one = by_revision.pick(&plan, ServiceId(0), key, Time(now));
                    prop_assert_eq!(one, whole.pick(&other, ServiceId(0), key, Time(now)));
                    if let Ok(real) = one {
                        prop_assert_eq!(plan.real(real).unwrap().health_state, Serves);
                    }
                }
            }
        }
    }
}
