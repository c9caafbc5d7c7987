//! Samples of the running director, and the thread that makes pages and rates of them.
//!
//! The control loop takes a sample a second and sends it away; what is asked about samples never
//! reaches it. A sample that the thread cannot digest, or that it never gets done with, costs what
//! was counted until then, and nothing else.

mod line;

use crate::daemon::Daemon;
use crate::errors::{Error, system};
use crate::report;
use line::Line;
use sluice_api::Call;
use sluice_api::model::Ha;
use sluice_checks::{Board, Shown};
use sluice_director::counters::Counters;
use sluice_director::path::Stage;
use sluice_health::State;
use sluice_meter::{
    Check, Identity, Meter, NetworkFigures, Process, Sample, WorkerFigures, WorkerSample,
};
use sluice_worker::{NetworkReport, Report};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the thread is told.
enum Order {
    Sample(Box<Sample>),
    Call(Call),
}

/// The way to the thread.
#[derive(Clone)]
pub(crate) struct Samples(Line<Order>);

impl Samples {
    /// Starts the thread.
    pub fn start(board: Board) -> Result<Self, Error> {
        let identity = Identity { version: env!("CARGO_PKG_VERSION"), began_unix_ms: unix_ms() };
        let line = Line::start(move || {
            let (meter, board) = (Meter::new(identity.clone()), board.clone());
            let mut desk = Desk { meter, waiting: Vec::new(), board };
            Box::new(move |order| desk.obey(order))
        });
        line.map(Self).map_err(system("start the thread of the metrics"))
    }

    /// Replaces the thread if it shows no life.
    pub fn look_after(&self) {
        self.0.look_after();
    }

    /// Takes the calls that samples answer; gives back all others.
    pub fn divert(&self, call: Call) -> Option<Call> {
        match call {
            Call::Metrics(..) | Call::Rates(..) => {
                self.0.order(Order::Call(call));
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
    pub fn measure(&mut self, reports: Vec<Report>, total: Counters) {
        for report in &reports {
            self.operator.recent_work.note(report.worker, report::work(report));
        }
        let size = self.dataplane.crew.size();
        let settled = reports.len() == size
            && reports.iter().all(|report| report.epoch == self.dataplane.plan.epoch);
        let mut workers: Vec<WorkerSample> = (0..size as u16)
            .map(|worker| WorkerSample { core: self.dataplane.crew.core(worker), figures: None })
            .collect();
        let full = report::full_everywhere(&reports, size);
        let sync = self.dataplane.sync.as_ref().and_then(|sync| sync.shown(&reports));
        let kernel = self.kernel.mirror.state();
        let ports = report::ports(&self.dataplane.ports, kernel, &reports);
        for report in reports {
            if let Some(worker) = workers.get_mut(usize::from(report.worker)) {
                worker.figures = Some(figures(&report));
            }
        }
        let sample = Sample {
            at: self.started.elapsed(),
            plan: self.dataplane.plan.clone(),
            counters: settled.then_some(total),
            full,
            workers,
            ports,
            ha: Ha {
                sync,
                announce: self.announced(),
                ..self.kernel.addresses.shown(self.kernel.mirror.state())
            },
            config_epoch: self.configured.desired.epoch(),
            durable: self.configured.desired.is_durable(),
            differs_from_file: self.configured.desired.differs_from_file(),
            last_reload: self.configured.last_reload.clone(),
            huge_pages: self.dataplane.eal.huge_pages(),
            check_restarts: self.health.restarts(),
            real_servers: self.configured.config.metrics.real_servers,
        };
        self.operator.samples.0.order(Order::Sample(Box::new(sample)));
    }
}

fn network(said: &NetworkReport) -> NetworkFigures {
    NetworkFigures {
        network: said.network,
        sessions: said.sessions.into(),
        session_capacity: said.session_capacity.into(),
        reasons: said.reasons,
    }
}

fn figures(report: &Report) -> WorkerFigures {
    let ticks_per_s = report.ticks_per_s.max(1) as f64;
    let stages = &report.stages;
    WorkerFigures {
        sessions: report.sessions.into(),
        session_capacity: report.session_capacity.into(),
        half_open: report.half_open.into(),
        pressed: report.pressed,
        table_bytes: report.table_bytes as u64,
        held: report.held as u64,
        turns: report.turns,
        empty_turns: report.empty_turns,
        sleeps: report.sleeps,
        packets: report.packets,
        bursts: report.bursts,
        handed_off: report.counters.handed_off,
        spread_flows: report.spread_flows as u64,
        spread_packets: report.spread_packets,
        work: report::work(report),
        timed_bursts: stages.bursts,
        timed_packets: stages.packets,
        looked_up: stages.looked_up,
        found: stages.found,
        stage_s: Stage::ALL.map(|stage| stages.ticks[stage as usize] as f64 / ticks_per_s),
        networks: report.networks.iter().map(network).collect(),
    }
}
