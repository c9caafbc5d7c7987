//! Samples of the running director, and the thread that makes pages and rates of them.
//!
//! The control loop takes a sample a second and sends it away; what is asked about samples never
//! reaches it. A sample that the thread cannot digest costs what was counted until then, and
//! nothing else.

use crate::daemon::Daemon;
use crate::errors::{Error, system};
use crate::report;
use sluice_api::Call;
use sluice_checks::{Board, Shown};
use sluice_director::counters::Counters;
use sluice_director::path::Stage;
use sluice_health::State;
use sluice_meter::{Check, Identity, Meter, Process, Sample, WorkerFigures, WorkerSample};
use sluice_worker::Report;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::error;

/// What the thread is told.
enum Order {
    Sample(Box<Sample>),
    Call(Call),
}

/// The way to the thread. It ends with the last of these.
#[derive(Clone)]
pub(crate) struct Samples(Sender<Order>);

impl Samples {
    /// Starts the thread.
    pub fn start(board: Board) -> Result<Self, Error> {
        let (sender, orders) = channel();
        let identity = Identity { version: env!("CARGO_PKG_VERSION"), began_unix_ms: unix_ms() };
        let desk = Desk { meter: Meter::new(identity.clone()), waiting: Vec::new(), board };
        std::thread::Builder::new()
            .name("meter".to_owned())
            .spawn(move || desk.work(&orders, &identity))
            .map_err(system("start the thread of the metrics"))?;
        Ok(Self(sender))
    }

    /// Takes the calls that samples answer; gives back all others.
    pub fn divert(&self, call: Call) -> Option<Call> {
        match call {
            Call::Metrics(..) | Call::Rates(..) => {
                // Fails only when the thread is gone: the reply is dropped, and says so.
                let _ = self.0.send(Order::Call(call));
                None
            }
            other => Some(other),
        }
    }
}

fn unix_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.as_millis() as u64
}

/// What the thread works with.
struct Desk {
    meter: Meter,
    /// Calls that came before the first sample.
    waiting: Vec<Call>,
    board: Board,
}

impl Desk {
    /// Obeys until nobody can order anything any more.
    fn work(mut self, orders: &Receiver<Order>, identity: &Identity) {
        for order in orders {
            if catch_unwind(AssertUnwindSafe(|| self.obey(order))).is_err() {
                error!("the metrics' thread panicked; the last hour is lost");
                self.meter = Meter::new(identity.clone());
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Sample(sample) => {
                self.meter.take(*sample);
                for call in std::mem::take(&mut self.waiting) {
                    self.answer(call);
                }
            }
            Order::Call(call) => self.answer(call),
        }
    }

    /// Answers a call. A client that no longer waits is no error.
    fn answer(&mut self, call: Call) {
        match call {
            Call::Rates(query, reply) => drop(reply.send(self.meter.rates(&query, unix_ms()))),
            Call::Metrics(exposition, reply) => {
                if reply.is_closed() {
                    return;
                }
                let checks = || self.board.shown().into_iter().map(check).collect();
                match self.meter.page(exposition, checks, Process::read) {
                    Some(page) => drop(reply.send(page)),
                    None => self.waiting.push(Call::Metrics(exposition, reply)),
                }
            }
            _ => {}
        }
    }
}

fn check(shown: Shown) -> Check {
    let key = &shown.spec.key;
    let last = shown.last.as_ref();
    Check {
        service: key.service.clone(),
        address: key.address,
        port: key.port,
        check: shown.spec.check.clone(),
        up: match shown.state {
            State::Unknown => None,
            State::Up => Some(true),
            State::Down => Some(false),
        },
        took_s: last.map(|(_, took)| took.as_secs_f64()),
        passed: last.and_then(|(finding, _)| (!finding.blind).then_some(finding.passed)),
        probes: shown.probes,
    }
}

impl Daemon {
    /// Sends away how things stand, by these reports and their sum.
    pub fn measure(&self, reports: Vec<Report>, total: Counters) {
        let size = self.crew.size();
        let settled =
            reports.len() == size && reports.iter().all(|report| report.epoch == self.plan.epoch);
        let mut workers: Vec<WorkerSample> = (0..size as u16)
            .map(|worker| WorkerSample { core: self.crew.core(worker), figures: None })
            .collect();
        let full = report::full_everywhere(&reports, size);
        for report in reports {
            if let Some(worker) = workers.get_mut(usize::from(report.worker)) {
                worker.figures = Some(figures(&report));
            }
        }
        let sample = Sample {
            at: self.started.elapsed(),
            plan: self.plan.clone(),
            counters: settled.then_some(total),
            full,
            workers,
            ports: report::ports(&self.ports),
            config_epoch: self.desired.epoch(),
            durable: self.desired.is_durable(),
            differs_from_file: self.desired.differs_from_file(),
            last_reload: self.last_reload.clone(),
            huge_pages: self.eal.huge_pages(),
            check_restarts: self.health.restarts(),
            real_servers: self.config.metrics.real_servers,
        };
        // Fails only when the thread is gone.
        let _ = self.samples.0.send(Order::Sample(Box::new(sample)));
    }
}

fn figures(report: &Report) -> WorkerFigures {
    let ticks_per_s = report.ticks_per_s.max(1) as f64;
    let stages = &report.stages;
    WorkerFigures {
        sessions: report.sessions.into(),
        session_capacity: report.session_capacity.into(),
        table_bytes: report.table_bytes as u64,
        held: report.held as u64,
        turns: report.turns,
        empty_turns: report.empty_turns,
        sleeps: report.sleeps,
        packets: report.packets,
        bursts: report.bursts,
        handed_off: report.counters.handed_off,
        busy_ms: report.busy_ms,
        life_ms: report.life_ms,
        timed_bursts: stages.bursts,
        timed_packets: stages.packets,
        looked_up: stages.looked_up,
        found: stages.found,
        stage_s: Stage::ALL.map(|stage| stages.ticks[stage as usize] as f64 / ticks_per_s),
    }
}
