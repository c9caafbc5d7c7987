//! Health checks and the plan: what the checks find becomes a revision of the running plan.
//!
//! Health is no part of the desired state. The checks' thread finds it, the plan carries it, and a
//! reload takes it along; nothing writes it down. A change does not compile anything: see
//! [`Plan::with_health`].

mod exits;
mod passive;
mod specs;

use crate::daemon::Daemon;
use crate::errors::{Error, system};
use sluice_api::model;
use sluice_checks::{Board, Key, Maker, News, Runner, Shown, Sources, Spec};
use sluice_config::{CheckKind, Config, Initial};
use sluice_director::plan::{HealthState, Plan, RealId};
use sluice_health::State;
use sluice_worker::{Published, Wake};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// The checks, and what has happened.
pub(crate) struct Health {
    runner: Runner,
    /// What is to be checked, before that begins.
    waiting: Option<Vec<Spec>>,
    news: Receiver<News>,
    /// Readable when there are news.
    pub wake: Wake,
    /// Real servers of the running plan's services.
    ids: HashMap<Key, RealId>,
    /// Those whose clients' connections are watched.
    watched: HashMap<Key, passive::Watched>,
    /// Who makes the sockets of probes through the data path, by the names of networks.
    pub makers: HashMap<String, Maker>,
    /// Which addresses plain probes of the default network may not come from.
    sources: Sources,
    /// The other networks, by their names.
    isolated: HashMap<String, exits::Isolated>,
    begun: Instant,
    /// Snapshots that workers may still have. Whoever lets go of one last frees it, which takes a
    /// while, and a worker has better things to do.
    former: Vec<Arc<Published>>,
}

impl Health {
    /// Starts the thread. It checks nothing before [`Self::begin`].
    pub fn start() -> Result<Self, Error> {
        let (sender, news) = channel();
        let wake = Wake::new().map_err(system("make an eventfd"))?;
        let waker = wake.clone();
        let tell = move |found: News| {
            // Fails only when the daemon is stopping.
            let _ = sender.send(found);
            waker.wake();
        };
        let runner = Runner::start(tell, sluice_dpdk::close_on_exec);
        let runner = runner.map_err(system("start the thread of health checks"))?;
        Ok(Self {
            runner,
            waiting: Some(Vec::new()),
            news,
            wake,
            ids: HashMap::new(),
            watched: HashMap::new(),
            makers: HashMap::new(),
            sources: Sources::default(),
            isolated: HashMap::new(),
            begun: Instant::now(),
            former: Vec::new(),
        })
    }

    /// Checks what a configuration says, and gives the plan with what is known of its real servers.
    pub fn follow(&mut self, config: &Config, plan: Arc<Plan>) -> Arc<Plan> {
        let known = self.runner.shown();
        let known: HashMap<&Key, State> = known.iter().map(|s| (&s.spec.key, s.state)).collect();
        self.isolated = exits::isolated(config, std::mem::take(&mut self.isolated));
        let ways = specs::Ways { sources: &self.sources, isolated: &self.isolated };
        let specs = specs::of(config, &self.makers, &ways);
        exits::aim(&mut self.isolated, &specs);
        self.ids = ids(&plan);
        let watched = std::mem::take(&mut self.watched);
        self.watched = passive::watched(config, &plan, &self.ids, watched);
        let assumed = |key: &Key, initial: State| match known.get(key) {
            None | Some(State::Unknown) => initial == State::Down,
            Some(state) => *state == State::Down,
        };
        let mut found: HashMap<RealId, bool> = self.ids.values().map(|id| (*id, false)).collect();
        for spec in &specs {
            if let Some(id) = self.ids.get(&spec.key) {
                found.insert(*id, assumed(&spec.key, spec.initial));
            }
        }
        match &mut self.waiting {
            Some(waiting) => *waiting = specs,
            None => self.runner.set(specs),
        }
        let turned = |(id, down): &(RealId, bool)| {
            plan.real(*id).is_some_and(|real| real.found_down != *down)
        };
        let found: Vec<_> = found.into_iter().filter(turned).collect();
        if found.is_empty() { plan } else { Arc::new(plan.with_health(&found)) }
    }

    /// Begins to check: probes have their ways and their addresses now, and those through the data
    /// path a port. One that was sent before would find a real server dead that is not.
    pub fn begin(&mut self) {
        if let Some(specs) = self.waiting.take() {
            self.runner.set(specs);
        }
    }

    /// Looks after the thread, and frees what no worker has any more.
    pub fn look_after(&mut self) {
        self.runner.look_after();
        self.former.retain(|published| Arc::strong_count(published) > 1);
    }

    /// Keeps a snapshot that was published.
    fn keep(&mut self, published: Arc<Published>) {
        self.former.retain(|former| Arc::strong_count(former) > 1);
        self.former.push(published);
    }

    /// The real servers of a plan that are found down, by their services.
    pub fn down(&self, plan: &Plan) -> Vec<(String, SocketAddr)> {
        let is_down = |id: &RealId| plan.real(*id).is_some_and(|real| real.found_down);
        let found = self.ids.iter().filter(|(_, id)| is_down(id));
        let name = |key: &Key| (key.service.to_string(), SocketAddr::new(key.address, key.port));
        found.map(|(key, _)| name(key)).collect()
    }

    /// A plan in which these are down, until checks find something else.
    pub fn with_down(&self, plan: Arc<Plan>, down: &[(String, SocketAddr)]) -> Arc<Plan> {
        let found = down.iter().filter_map(|(service, real)| self.id(service, *real));
        let found: Vec<_> = found.map(|id| (id, true)).collect();
        if found.is_empty() { plan } else { Arc::new(plan.with_health(&found)) }
    }

    /// A real server of the running plan.
    pub fn id(&self, service: &str, real: SocketAddr) -> Option<RealId> {
        let (address, port) = (real.ip(), real.port());
        self.ids.get(&Key { service: service.into(), address, port }).copied()
    }

    /// For whoever wants to look at the checks on another thread.
    pub fn board(&self) -> Board {
        self.runner.board()
    }

    /// How often the checks' thread had to be replaced.
    pub const fn restarts(&self) -> u64 {
        self.runner.restarts()
    }

    /// How all checks stand.
    pub fn shown(&self, config: &Config, plan: &Plan) -> model::Health {
        let all = self.runner.shown();
        let by_key: HashMap<&Key, &Shown> = all.iter().map(|s| (&s.spec.key, s)).collect();
        let of = |service: &sluice_config::VirtualService| {
            let kind = config.checks.iter().find(|check| check.name == service.check);
            let kind = kind.map(|check| check.kind);
            let service_name: Arc<str> = service.name.as_str().into();
            let reals = service.reals.iter().map(move |real| Key {
                service: Arc::clone(&service_name),
                address: real.address,
                port: real.port,
            });
            reals.map(move |key| (key, kind)).collect::<Vec<_>>()
        };
        let keys = config.services.iter().flat_map(of);
        let checks = keys.filter_map(|(key, kind)| {
            let serves = self.ids.get(&key).and_then(|id| plan.real(*id));
            let serves = serves
                .is_some_and(|real| real.health_state == HealthState::Serves && real.weight > 0);
            by_key.get(&key).map(|shown| checked(shown, kind, serves))
        });
        model::Health { checks: checks.collect(), restarts: self.runner.restarts() }
    }
}

impl Daemon {
    /// Puts a revision of the running plan in force: no route depends on what it changes.
    pub fn revise(&mut self, plan: Plan) {
        self.dataplane.plan = Arc::new(plan);
        let published = Arc::new(self.kernel.networks.revised(&self.dataplane.plan));
        self.publish(Arc::clone(&published));
        self.health.keep(published);
    }
}

/// Takes what the checks have found: the plan changes, the workers hear of it, and it is noted.
pub(crate) fn hear(daemon: &mut Daemon) {
    daemon.health.wake.awake();
    let news: Vec<News> = daemon.health.news.try_iter().collect();
    let of = |found: &News| {
        let id = daemon.health.ids.get(&found.key)?;
        Some((*id, found.to == State::Down))
    };
    let found: Vec<(RealId, bool)> = news.iter().filter_map(of).collect();
    let turned = |(id, down): &(RealId, bool)| {
        daemon.dataplane.plan.real(*id).is_some_and(|real| real.found_down != *down)
    };
    if found.iter().any(turned) {
        daemon.revise(daemon.dataplane.plan.with_health(&found));
    }
    let told = Instant::now();
    for found in &news {
        daemon.operator.server.events().note(event(found, told));
        let (service, real, port) = (&found.key.service, found.key.address, found.key.port);
        let (check, reason) = (&found.check, &found.reason);
        match (found.from, found.to) {
            (_, State::Down) => {
                warn!(%service, %real, port, %check, %reason, "a real server is down");
            }
            (State::Unknown, _) => {
                info!(%service, %real, port, %check, %reason, "a real server was found up");
            }
            _ => info!(%service, %real, port, %check, %reason, "a real server is up again"),
        }
    }
}

fn event(found: &News, told: Instant) -> model::Event {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = now.saturating_sub(found.at.elapsed());
    model::Event {
        at_unix_ms: at.as_millis() as u64,
        service: found.key.service.to_string(),
        address: Some(found.key.address),
        port: Some(found.key.port),
        from: Some(state(found.from)),
        to: Some(state(found.to)),
        told_after_us: Some(told.saturating_duration_since(found.at).as_micros() as u64),
        ..model::Event::new(model::EventKind::Health, found.reason.clone())
    }
}

/// The real servers of a plan's services, by what the configuration calls them.
fn ids(plan: &Plan) -> HashMap<Key, RealId> {
    let mut ids = HashMap::with_capacity(plan.reals.len());
    for (_, service) in plan.live_services() {
        let name: Arc<str> = service.name.as_str().into();
        for id in &service.reals {
            let Some(real) = plan.real(*id) else { continue };
            let (address, port) = (real.address, real.port);
            ids.insert(Key { service: Arc::clone(&name), address, port }, *id);
        }
    }
    ids
}

fn state(state: State) -> model::HealthState {
    match state {
        State::Unknown => model::HealthState::Unknown,
        State::Up => model::HealthState::Up,
        State::Down => model::HealthState::Down,
    }
}

fn checked(shown: &Shown, kind: Option<CheckKind>, serves: bool) -> model::Checked {
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let last = shown.last.as_ref().map(|(finding, took)| model::Probe {
        outcome: match (finding.blind, finding.passed) {
            (true, _) => model::ProbeOutcome::Blind,
            (false, true) => model::ProbeOutcome::Passed,
            (false, false) => model::ProbeOutcome::Failed,
        },
        text: finding.text.clone(),
        took_ms: ms(*took),
    });
    let until = |at: Instant| at.saturating_duration_since(Instant::now()).as_millis() as u64;
    model::Checked {
        service: shown.spec.key.service.to_string(),
        address: shown.spec.key.address,
        port: shown.spec.key.port,
        check: shown.spec.check.to_string(),
        kind: kind.map_or("", CheckKind::word).to_owned(),
        state: state(shown.state),
        for_s: shown.since.elapsed().as_secs_f64(),
        reason: shown.reason.clone(),
        serves,
        last,
        next_in_ms: shown.next.map(until),
        probes: shown.probes,
    }
}

/// What is assumed until the first finding.
fn initial(initial: Initial) -> State {
    match initial {
        Initial::Up => State::Up,
        Initial::Down => State::Down,
    }
}
