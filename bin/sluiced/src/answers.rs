//! Answers to what operators and their programs ask.

use crate::daemon::{Configured, Daemon};
use crate::handover::Follower;
use crate::lister::Lister;
use crate::{change, ipvs, report};
use sluice_api::{Call, model};
use sluice_config::Idle;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

impl Daemon {
    /// Answers the calls that wait. Changes among them are taken together, before anything that
    /// was asked after them is looked up.
    pub fn answer_all(&mut self, calls: &Receiver<Call>) {
        let mut changes = Vec::new();
        while let Ok(call) = calls.try_recv() {
            // The journal is another process's still.
            if self.upgrades.waits() && changes_something(&call) {
                self.upgrades.waiting.push(call);
                continue;
            }
            match call {
                Call::Change(request, reply) => changes.push((request, reply)),
                other => {
                    change::apply(self, std::mem::take(&mut changes));
                    self.answer(other);
                }
            }
        }
        change::apply(self, changes);
    }

    /// Answers an operator's call. A client that no longer waits is no error.
    pub fn answer(&mut self, call: Call) {
        let Self { dataplane: data, configured: Configured { desired, .. }, .. } = &*self;
        match call {
            Call::Status(reply) => drop(reply.send(self.status())),
            Call::Sessions(query, reply) => {
                self.lister().list(query, reply);
            }
            Call::Kill { query, dry_run, by, reply } => {
                let events = Arc::clone(self.operator.server.events());
                self.lister().kill(query, (dry_run, by), events, reply);
            }
            Call::Ha(reply) => drop(reply.send(self.ha())),
            Call::Drain { draining, by, reply } => drop(reply.send(self.drain(draining, by))),
            Call::Notify { said, by, reply } => drop(reply.send(self.notified(said, by))),
            Call::Upgrade { stand_in, by, reply } => {
                let follower = if stand_in { Follower::StandIn } else { Follower::Successor };
                self.upgrade(Some(by), follower);
                drop(reply.send(self.ha()));
            }
            Call::Pin { flow, pinned, by, reply } => {
                drop(reply.send(self.pin(&flow, pinned, by)));
            }
            Call::Look(kind, request, reply) => {
                let (ports, workers) = (report::port_names(&data.ports), data.crew.inboxes());
                self.operator.capture_points.start((kind, &request), ports, workers, reply);
            }
            Call::Config(reply) => drop(reply.send(desired.view())),
            Call::ConfigObject(key, reply) => {
                let epoch = desired.epoch();
                drop(reply.send(desired.entry(&key).map(|entry| (epoch, entry))));
            }
            Call::Change(request, reply) => change::apply(self, vec![(request, reply)]),
            Call::Reload { by, if_epoch, dry_run, reply } => {
                drop(reply.send(change::reload(self, Some(by), if_epoch, dry_run)));
            }
            Call::History(limit, reply) => {
                drop(reply.send(report::history(desired.history(), limit as usize)));
            }
            Call::Epoch(number, reply) => {
                let history = desired.history();
                let found = history.get(number).cloned().ok_or_else(|| {
                    let (before_first, last) = history.reach();
                    (before_first + 1, last)
                });
                drop(reply.send(found));
            }
            Call::Ipvs(request, by, reply) => {
                ipvs::answer(self, (request, by, reply));
            }
            // Answered from samples: see `meter`.
            Call::Metrics(..) | Call::Rates(..) => {}
            shown => self.show(shown),
        }
    }

    /// Answers a call that only reports answer.
    fn show(&self, call: Call) {
        let Self { dataplane: data, configured: Configured { config, .. }, .. } = self;
        let plan = &data.plan;
        match call {
            Call::Services(reply) => {
                drop(reply.send(report::services(config, plan, &data.crew.reports())));
            }
            Call::Ports(reply) => {
                let (kernel, reports) = (self.kernel.mirror.state(), data.crew.reports());
                drop(reply.send(report::ports(&data.ports, kernel, &reports)));
            }
            Call::PortsRules(reply) => {
                let counted = report::total(&data.crew.reports());
                drop(reply.send(report::ports_rules(&data.ports, plan, &counted)));
            }
            Call::Networks(reply) => {
                drop(reply.send(report::networks(config, plan, &data.crew.reports())));
            }
            Call::Stages(reply) => {
                drop(reply.send(report::stages(&data.crew, &data.crew.reports())));
            }
            Call::Elephants(limit, reply) => {
                let (found, spread) = (data.crew.elephants(limit as usize), self.spread_flows());
                drop(reply.send(report::elephants(plan, found, limit as usize, spread)));
            }
            Call::Health(reply) => drop(reply.send(self.health.shown(config, plan))),
            Call::Drops(reply) => {
                let total = report::total(&data.crew.reports());
                drop(reply.send(model::Drops::from_counts(&total.reasons)));
            }
            Call::DropsOf(name, reply) => {
                drop(reply.send(report::drops_of(plan, &data.crew.reports(), &name)));
            }
            Call::DropsIn(name, reply) => {
                drop(reply.send(report::drops_in(plan, &data.crew.reports(), &name)));
            }
            // Those that do more were taken before.
            _ => {}
        }
    }

    pub fn lister(&self) -> Lister {
        Lister { workers: self.dataplane.crew.inboxes(), plan: Arc::clone(&self.dataplane.plan) }
    }

    fn status(&self) -> model::Status {
        let reports = self.dataplane.crew.reports();
        let total = report::total(&reports);
        model::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            config: self.configured.file.clone(),
            plan_epoch: self.dataplane.plan.epoch,
            config_epoch: self.configured.desired.epoch(),
            durable: self.configured.desired.is_durable(),
            differs_from_file: self.configured.desired.differs_from_file(),
            last_reload: self.configured.last_reload.clone(),
            idle: match self.configured.config.director.idle {
                Idle::Adaptive => model::IdleMode::Adaptive,
                Idle::Busy => model::IdleMode::Busy,
            },
            huge_pages: self.dataplane.eal.huge_pages(),
            memory: report::memory(&reports),
            sessions: report::sessions(&reports, &total),
            handed_off: total.handed_off,
            workers: report::workers(&self.dataplane.crew, &reports, &self.operator.recent_work),
        }
    }
}

/// Whether a call changes the desired state, or starts a process that reads it.
const fn changes_something(call: &Call) -> bool {
    matches!(call, Call::Change(..) | Call::Reload { .. } | Call::Ipvs(..) | Call::Upgrade { .. })
}
