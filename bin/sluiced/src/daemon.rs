//! The control loop: one thread that owns everything but the packets.
//!
//! It waits on the kernel's announcements, the workers' events, the operator's calls and signals,
//! and publishes a new snapshot whenever the configuration or the kernel's tables have changed.

use crate::announce::Announcer;
use crate::capture::CapturePoints;
use crate::crew::Crew;
use crate::errors::{Error, system};
use crate::ha::Addresses;
use crate::handover::{Channel, Follower, Successor, Upgrades};
use crate::health::{self, Health};
use crate::kept::Kept;
use crate::log::Log;
use crate::meter::Samples;
use crate::networks::Networks;
use crate::ports::Ports;
use crate::prober::Prober;
use crate::signals::Signals;
use crate::sync::{Plans, Synchroniser};
use crate::{change, counter_log, ipvs, news, notices, pages, report, start, steering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;
use sluice_api::{Call, Network, Options, Prepared, Server, group_id, model};
use sluice_config::{Config, Loaded, LogFormat};
use sluice_director::plan::Plan;
use sluice_dpdk::Eal;
use sluice_linux::Mirror;
use sluice_meter::RecentWork;
use sluice_state::Desired;
use sluice_worker::{Event, Published, Wake};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tracing::{debug, error, info, warn};

/// The longest wait: vanished interfaces are noticed within it.
const TICK: Duration = Duration::from_millis(100);
/// How often neighbours are kept fresh and the counters looked at.
const UPKEEP: Duration = Duration::from_secs(1);

/// The running director.
pub(crate) struct Daemon {
    pub log: Log,
    pub started: Instant,
    pub configured: Configured,
    pub dataplane: Dataplane,
    pub kernel: Kernel,
    pub health: Health,
    pub prober: Prober,
    pub operator: Operator,
    pub upgrades: Upgrades,
}

/// What the director is to do.
pub(crate) struct Configured {
    pub file: PathBuf,
    pub config: Config,
    pub desired: Desired,
    pub last_reload: Option<model::Reload>,
}

/// What forwards packets, and what it goes by.
pub(crate) struct Dataplane {
    pub eal: Eal,
    pub crew: Crew,
    pub ports: Ports,
    pub plan: Arc<Plan>,
    /// Where its sessions are kept, if they are.
    pub kept: Option<Kept>,
    /// What tells other directors of its sessions, if there are any.
    pub sync: Option<Synchroniser>,
    /// Secret of the session hash.
    pub seed: u64,
}

/// What the kernel says of routes, neighbours and addresses.
pub(crate) struct Kernel {
    pub mirror: Mirror,
    pub networks: Networks,
    pub addresses: Addresses,
    /// What holds addresses for routing daemons, if there is anything to announce.
    pub announcer: Option<Announcer>,
}

impl Kernel {
    fn new(mirror: Mirror, networks: Networks, announcer: Option<Announcer>) -> Self {
        Self { mirror, networks, addresses: Addresses::default(), announcer }
    }
}

/// What operators and their programs see and ask.
pub(crate) struct Operator {
    pub server: Server,
    pub capture_points: CapturePoints,
    pub samples: Samples,
    pub spreading: crate::spreading::State,
    pub recent_work: RecentWork,
    pub figures: ipvs::Figures,
    pub refused_events: ipvs::RefusedEvents,
}

/// Runs until SIGTERM or SIGINT, or until another process has taken over. With a channel, takes
/// over itself from the process at its other end.
pub fn run(
    file: &Path,
    loaded: Loaded,
    (log, log_format): (Log, Option<LogFormat>),
    channel: Option<&Channel>,
) -> Result<(), Error> {
    warn_of(&loaded);
    let mut signals = Signals::catch()?;
    let steering = steering::prepare(&loaded.config);
    let mut from = channel.map(Successor::meet).transpose()?;
    let mut health = Health::start()?;
    let samples = Samples::start(health.board())?;
    // Before any device is touched: another director on this socket is not to be disturbed.
    // Calls that come early are answered once everything is open.
    let (calls, calls_wake, server) = serve(&loaded.config, samples.clone(), from.is_some())?;
    let begin = if from.is_none() { change::begin } else { change::begin_beside };
    let (mut desired, mut config, plan) = begin(&loaded)?;
    let assumed = config.clone();
    pages::choose(&mut config, from.as_ref());
    // Before the kernel's links are looked at: some of them are its.
    let prober = Prober::join(&mut config, &mut health)?;
    // The API's addresses are another process's still where there is one.
    let prepare = || server.prepare(&Network::from(&config.api));
    let prepared = from.is_none().then(prepare).transpose()?;
    change::tell_notes(&mut desired, &server);
    let mirror = Mirror::open()?;
    let (eal, former) = start::eal(&config, &mirror, from.is_some())?;
    let plan = health.follow(&config, Arc::new(plan));
    let plan = from.iter().fold(plan, |plan, from| from.with_health(&health, plan));
    let networks = Networks::new(&config);
    let published = Arc::new(networks.revised(&plan));
    let (crew, kept, seed) =
        start::crew(&config, &eal, (&plan, &published), (former, from.as_mut()))?;
    let mut ports = Ports::new(&config, &eal, &crew);
    // Not while ports are opened, which tell their descriptors from others by when they appear.
    steering.map(std::thread::JoinHandle::join);
    let (sync, announcer, handed) = match &mut from {
        None => {
            let announcer = Announcer::open(&config, &plan)?;
            let plans = (Plans::new(&plan, &published), seed, false);
            let sync = Synchroniser::start(&config.sync, plans, (&crew, &mirror), server.events())?;
            ports.open_all(mirror.state(), &crew)?;
            (sync, announcer, Vec::new())
        }
        Some(from) => {
            let ((handed, holders), kernel) = (from.split(), mirror.state());
            (None, Announcer::adopt(&config, &plan, kernel, holders)?, handed)
        }
    };
    let mut daemon = Daemon {
        log,
        started: Instant::now(),
        configured: Configured { file: file.to_owned(), config, desired, last_reload: None },
        dataplane: Dataplane { eal, crew, ports, plan, kept, sync, seed },
        kernel: Kernel::new(mirror, networks, announcer),
        health,
        prober,
        operator: Operator::new(server, samples),
        upgrades: Upgrades::new(log_format),
    };
    match (from, prepared) {
        (Some(from), _) => from.take_over(&mut daemon, handed, loaded, assumed)?,
        (None, prepared) => daemon.begin(prepared)?,
    }
    let outcome = daemon.serve(&mut signals, &calls, &calls_wake);
    daemon.end();
    outcome
}

fn warn_of(loaded: &Loaded) {
    for warning in loaded.warnings.iter().cloned().chain(loaded.check_live()) {
        warn!("{warning}");
    }
}

impl Operator {
    fn new(server: Server, samples: Samples) -> Self {
        Self {
            server,
            capture_points: CapturePoints::default(),
            samples,
            spreading: crate::spreading::State::default(),
            recent_work: RecentWork::default(),
            figures: ipvs::Figures::default(),
            refused_events: ipvs::RefusedEvents::default(),
        }
    }
}

/// Serves the operator's socket; calls come by the channel, and the wake tells of them.
fn serve(
    config: &Config,
    samples: Samples,
    beside: bool,
) -> Result<(Receiver<Call>, Wake, Server), Error> {
    let (socket, group) = (&config.director.control_socket, &config.director.control_group);
    let socket = if beside { Successor::socket(socket) } else { socket.clone() };
    let options = Options { group: group_id(group), ..Options::default() };
    if options.group.is_none() {
        info!(group, "this machine has no such group: only root may use the control socket");
    }
    let (sender, calls) = channel();
    let wake = Wake::new().map_err(system("make an eventfd"))?;
    let waker = wake.clone();
    let server = Server::start_with(
        &socket,
        Box::new(move |call| {
            let Some(call) = samples.divert(call) else { return };
            // Fails only when the daemon is stopping: the reply is dropped, and says so.
            let _ = sender.send(call);
            waker.wake();
        }),
        options,
    )?;
    Ok((calls, wake, server))
}

impl Daemon {
    /// Begins to forward, with all ports open.
    fn begin(&mut self, prepared: Option<Prepared>) -> Result<(), Error> {
        self.dataplane.ports.raise_twins(&mut self.kernel.mirror);
        self.kernel.mirror.process()?;
        self.follow_kernel();
        self.keep_neighbours();
        self.steer();
        self.health.begin();
        if let Some(prepared) = prepared {
            self.operator.server.reach(prepared);
        }
        change::warn_of_own_ports(self);
        self.upkeep(&mut Default::default(), &mut Default::default());
        notices::tell(&[NotifyState::Ready, NotifyState::Status("forwarding")]);
        let socket = &self.configured.config.director.control_socket;
        let config = self.configured.file.display();
        info!(%config, socket = %socket.display(), "the director is ready");
        Ok(())
    }

    /// Ends, and leaves nothing behind but to another process that has taken over.
    fn end(mut self) {
        let handed_over = self.upgrades.take_channel();
        if handed_over.is_none() {
            notices::tell(&[NotifyState::Stopping]);
            info!("stopping");
        }
        let Self { dataplane, kernel, operator, configured, .. } = self;
        let Dataplane { crew, mut ports, sync, .. } = dataplane;
        // Before it takes its time for the memory of tables: what the other one waits for.
        drop(configured);
        match &handed_over {
            // Others are to take over before this one's workers end.
            None => drop(kernel.announcer),
            Some(_) => std::mem::forget(kernel.announcer),
        }
        operator.server.stop();
        drop(sync);
        if handed_over.is_some() {
            ports.leave();
            drop(handed_over);
            drop(crew);
        } else {
            drop(crew);
            ports.close_all();
        }
    }

    fn serve(
        &mut self,
        signals: &mut Signals,
        calls: &Receiver<Call>,
        calls_wake: &Wake,
    ) -> Result<(), Error> {
        let (mut watch, mut seen) = Default::default();
        let mut upkeep = Instant::now() + UPKEEP;
        loop {
            self.wait(signals, calls_wake);
            if Signals::came(&mut signals.stop) {
                self.stop_upgrade();
                return Ok(());
            }
            let changed = self.kernel.mirror.process()?;
            if changed.any() {
                self.follow_kernel();
            }
            if changed.links || changed.addresses {
                self.steer();
            }
            health::hear(self);
            self.dataplane.crew.events_wake.awake();
            while let Ok(event) = self.dataplane.crew.events.try_recv() {
                self.obey(event);
            }
            calls_wake.awake();
            self.answer_all(calls);
            // A signal that comes while the journal is another process's waits for it.
            if !self.upgrades.waits() && Signals::came(&mut signals.reload) {
                // What came of it is in the log, and in the status.
                let _ = change::reload(self, None, None, false);
            }
            if !self.upgrades.waits() && Signals::came(&mut signals.upgrade) {
                self.upgrade(None, Follower::Successor);
            }
            if self.follow_handovers() {
                return Ok(());
            }
            // What the process before holds still is opened when that has ended.
            let data = &mut self.dataplane;
            if !self.upgrades.waits()
                && data.ports.look_after(self.kernel.mirror.state(), &data.crew)
            {
                self.dataplane.ports.raise_twins(&mut self.kernel.mirror);
                self.kernel.mirror.process()?;
                self.follow_kernel();
                self.steer();
            }
            if let Some(worker) = self.dataplane.crew.lost() {
                return Err(Error::WorkerEnded(worker));
            }
            self.dataplane.ports.work_on_rules();
            self.go_on_redirecting();
            self.announce();
            if Instant::now() >= upkeep {
                upkeep = Instant::now() + UPKEEP;
                self.upkeep(&mut watch, &mut seen);
                notices::tell_alive();
            }
        }
    }

    /// What is to be done once a second.
    fn upkeep(&mut self, watch: &mut counter_log::Watch, seen: &mut news::Seen) {
        self.log.look_after();
        if self.kernel.networks.forget(Instant::now()) {
            self.follow_kernel();
        }
        self.keep_neighbours();
        self.health.look_after();
        self.operator.server.look_after();
        self.operator.samples.look_after();
        let reports = self.dataplane.crew.reports();
        let total = report::total(&reports);
        self.operator.server.note_all(news::dropped(&watch.look(&total)));
        self.operator.server.note_all(seen.pressure.look(&report::sessions(&reports, &total)));
        let ports = report::ports(&self.dataplane.ports, self.kernel.mirror.state(), &reports);
        self.operator.server.note_all(seen.ports.look(&ports));
        if let Some(sync) = &self.dataplane.sync {
            let sessions = reports.iter().map(|report| u64::from(report.sessions)).sum();
            sync.stand(self.kernel.addresses.standing(sessions));
        }
        self.health.look_at(&total);
        self.dataplane.ports.steer(&self.dataplane.plan, self.kernel.mirror.state(), &total);
        self.spread_elephants(&reports);
        self.redirect(reports.iter().any(|report| report.spread_flows > 0));
        self.take_figures(&reports);
        self.measure(reports, total);
    }

    fn wait(&self, signals: &Signals, calls_wake: &Wake) {
        let sources = [
            self.kernel.mirror.fd(),
            self.health.wake.as_fd(),
            self.dataplane.crew.events_wake.as_fd(),
            calls_wake.as_fd(),
            signals.reload.as_fd(),
            signals.upgrade.as_fd(),
            signals.stop.as_fd(),
        ];
        let sources = sources.into_iter().chain(self.upgrades.fd());
        let mut fds: Vec<_> =
            sources.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Compiles the kernel's tables for the present plan and publishes both.
    pub fn follow_kernel(&mut self) {
        let interfaces = self.dataplane.ports.interfaces();
        let tables = self.kernel.networks.tables(self.kernel.mirror.state());
        if let Err(error) = self.kernel.mirror.follow_tables(tables) {
            warn!(%error, "cannot read the routes of a network");
        }
        let (kernel, plan) = (self.kernel.mirror.state(), &self.dataplane.plan);
        let published = self.kernel.networks.follow(kernel, plan, &interfaces);
        self.health.follow_kernel(&self.kernel.networks, kernel);
        self.follow_addresses();
        if let Some(sync) = &self.dataplane.sync {
            sync.follow(Plans::new(&self.dataplane.plan, &published));
        }
        self.upgrades.follow(|| Plans::new(&self.dataplane.plan, &published));
        self.publish(Arc::new(published));
    }

    /// What workers run with.
    pub fn published(&self) -> Arc<Published> {
        Arc::new(self.kernel.networks.revised(&self.dataplane.plan))
    }

    /// Starts session synchronisation, after another process of this director, or this one, had to
    /// give it up. `inherited` says that the sessions of the others are here.
    pub fn synchronise(&mut self, inherited: bool) {
        let data = &mut self.dataplane;
        let published = self.kernel.networks.revised(&data.plan);
        let plans = (Plans::new(&data.plan, &published), data.seed, inherited);
        let config = &self.configured.config.sync;
        let around = (&data.crew, &self.kernel.mirror);
        match Synchroniser::start(config, plans, around, self.operator.server.events()) {
            Ok(sync) => data.sync = sync,
            Err(failure) => error!("sessions are not synchronised: {failure}"),
        }
    }

    /// Gives the workers what they run with from now on.
    pub fn publish(&self, published: Arc<Published>) {
        self.operator.capture_points.publish(&self.dataplane.plan, &published);
        self.dataplane.crew.publish(&published);
    }

    /// Makes the steering programs take what is the director's.
    pub fn steer(&mut self) {
        let counted = report::total(&self.dataplane.crew.reports());
        self.dataplane.ports.steer(&self.dataplane.plan, self.kernel.mirror.state(), &counted);
    }

    /// Has the kernel resolve and check again the neighbours that the path relies on.
    pub fn keep_neighbours(&mut self) {
        for (ifindex, address) in self.kernel.networks.wanted().collect::<Vec<_>>() {
            if let Err(error) = self.kernel.mirror.keep(ifindex, address) {
                debug!(%address, %error, "cannot keep a neighbour fresh");
            }
        }
    }

    fn obey(&mut self, event: Event) {
        let (network, link, address) = match event {
            Event::Resolve(network, link, address) => (network, link, address),
            Event::SpreadEnded(network, flow, why) => {
                return self.spread_ended(network, &flow, why);
            }
            Event::PathMtu(remote, mtu) => {
                if self.kernel.networks.learn(remote, mtu, Instant::now()) {
                    self.follow_kernel();
                }
                return;
            }
        };
        let Some(ifindex) = self.kernel.networks.ifindex(network, link) else { return };
        if let Err(error) = self.kernel.mirror.resolve(ifindex, address) {
            debug!(%address, %error, "cannot have a neighbour resolved");
        }
    }
}
