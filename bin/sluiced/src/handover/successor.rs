//! The director that takes over.

use super::predecessor::is_readable;
use super::stand_in::StandIn;
use super::{Channel, Offer, ToPredecessor, ToSuccessor, VARIABLE, monotonic_ns};
use crate::crew::Crew;
use crate::daemon::Daemon;
use crate::errors::{Error, system};
use crate::kept::{self, Kept, RunningSessions, Which};
use crate::ports::Wanted;
use crate::sync::Plans;
use crate::{change, health, notices};
use sd_notify::NotifyState;
use sluice_api::Network;
use sluice_api::model::{Event, EventKind, HaUpgrade, HaUpgradeState, HaUpgradeTold};
use sluice_config::{Config, HugePages, Loaded};
use sluice_director::path::Restored;
use sluice_director::plan::Plan;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// How long the other process may take to say what it has, or to stop.
const PATIENCE: Duration = Duration::from_secs(10);
const COPY: &str = "copy the sessions of the running director";

/// What this process takes over, and from whom.
pub(crate) struct Successor {
    channel: Channel,
    offer: Offer,
    fds: Vec<OwnedFd>,
    sessions: RunningSessions,
    wants: Vec<Wanted>,
}

/// The process before, which has handed over and is about to end.
pub(crate) struct Before {
    channel: Channel,
    since: Instant,
    loaded: Box<Loaded>,
    /// What was read of the state while the other one had it.
    assumed: Box<Config>,
    place: Which,
    synchronised: bool,
}

impl AsFd for Before {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// The channel that this process was started with, if it is to take over.
pub(crate) fn channel() -> Result<Option<Channel>, Error> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(None);
    }
    let what = "take the channel of the running director";
    let stdin = sluice_dpdk::take_stdin().map_err(system(what))?;
    let kind = rustix::net::sockopt::socket_domain(&stdin);
    if kind != Ok(rustix::net::AddressFamily::UNIX) {
        return Err(Error::TakeOver(format!(
            "{VARIABLE} is set, and standard input is no channel"
        )));
    }
    Ok(Some(Channel::from(UnixStream::from(stdin))))
}

/// Says why this process does not take over.
pub(crate) fn tell_failure(channel: &Channel, failure: &Error) {
    // If it has gone, so will this one.
    let _ = channel.send(&ToPredecessor::Failed { why: failure.to_string() }, &[]);
}

impl Successor {
    /// Hears what there is to take over.
    ///
    /// # Errors
    /// When it cannot be understood.
    pub fn meet(channel: &Channel) -> Result<Self, Error> {
        let what = "hear of the running director";
        let (said, mut fds) = channel.receive(PATIENCE).map_err(system(what))?;
        let ToSuccessor::Offer(offer) = said else {
            return Err(Error::TakeOver("the running director begins with its end".to_owned()));
        };
        let channel = channel.copy().map_err(system(what))?;
        // One that cannot export its sessions has no descriptor for that.
        let stream = (offer.records != 0).then(|| fds.pop()).flatten();
        let stream = stream.filter(|_| offer.records == sluice_sync::records::RECORDS);
        let sessions = RunningSessions::of(&offer.names, offer.placing.clone(), stream);
        let sessions = sessions.map_err(Error::TakeOver)?;
        info!(pid = offer.pid, version = offer.version, "takes over from the running director");
        Ok(Self { channel, offer: *offer, fds, sessions, wants: Vec::new() })
    }

    /// Where to listen until the other one's socket can be replaced.
    pub fn socket(path: &Path) -> PathBuf {
        let mut name = OsString::from(path.as_os_str());
        name.push(".next");
        name.into()
    }

    /// Huge pages are not given up because two directors need them at once.
    pub fn demand(&self, config: &mut Config) {
        if self.offer.huge.0 && config.director.huge_pages == HugePages::Auto {
            config.director.huge_pages = HugePages::Required;
        }
    }

    /// The sessions that are to be taken up.
    pub const fn sessions(&self) -> &RunningSessions {
        &self.sessions
    }

    /// Takes up the sessions as they are now, after workers were started with these files.
    ///
    /// # Errors
    /// When they would not be kept as they were.
    pub fn copy_sessions(
        &mut self,
        crew: &Crew,
        kept: Option<&Kept>,
        plans: &Plans,
    ) -> Result<(), Error> {
        let is_kept = crew.reports().iter().all(|report| report.kept);
        let is_huge = kept.is_some_and(Kept::is_huge);
        if kept.is_none() || !is_kept || (self.offer.huge.1 && !is_huge) {
            let why = "there is no room for the session tables of two directors at once";
            return Err(Error::TakeOver(why.to_owned()));
        }
        let all = self.sessions.catch_up(crew, plans).map_err(system(COPY))?;
        let Restored { sessions, expired, unknown, refused, damaged } = all;
        info!(sessions, expired, unknown, refused, damaged, "sessions are copied");
        Ok(())
    }

    /// A plan with what is known of its real servers.
    pub fn with_health(&self, health: &health::Health, plan: Arc<Plan>) -> Arc<Plan> {
        health.with_down(plan, &self.offer.down)
    }

    /// The descriptors of ports, and those of interfaces that hold addresses, by their names.
    pub fn split(&mut self) -> (Vec<OwnedFd>, Vec<(String, OwnedFd)>) {
        let mut ports = std::mem::take(&mut self.fds);
        let first = ports.len().saturating_sub(self.offer.holders.len());
        let holders = ports.split_off(first);
        (ports, self.offer.holders.iter().cloned().zip(holders).collect())
    }

    /// Takes over, when all that can be done beside the other one is done.
    ///
    /// # Errors
    /// When it has gone, or something cannot be taken; it goes on then.
    pub fn take_over(
        mut self,
        daemon: &mut Daemon,
        ports: Vec<OwnedFd>,
        loaded: Loaded,
        assumed: Config,
    ) -> Result<(), Error> {
        let what = "take over";
        let data = &mut daemon.dataplane;
        self.wants = data.ports.expect(&self.offer.ports, ports, daemon.kernel.mirror.state())?;
        let transitions = std::mem::take(&mut self.offer.transitions);
        daemon.kernel.addresses.begin(self.offer.draining, transitions);
        daemon.kernel.mirror.process()?;
        daemon.follow_kernel();
        daemon.keep_neighbours();
        let plans = Plans::new(&daemon.dataplane.plan, &daemon.published());
        self.sessions.catch_up(&daemon.dataplane.crew, &plans).map_err(system(COPY))?;
        let stands_in = self.offer.stand_in;
        if stands_in {
            // Who comes before this one forwards waits there.
            let socket = &daemon.configured.config.director.control_socket;
            let stand_in = StandIn::begin(socket).map_err(system("wait for a successor"))?;
            daemon.upgrades.stand_in = Some(stand_in);
        }
        let ready = ToPredecessor::Ready { wants: self.wants.clone(), stands_in };
        self.channel.send(&ready, &[]).map_err(system(what))?;
        let (said, _) = self.channel.receive(PATIENCE).map_err(system(what))?;
        let ToSuccessor::Released { since_ns, left } = said else {
            return Err(Error::TakeOver("the running director offers itself twice".to_owned()));
        };
        let data = &mut daemon.dataplane;
        let released_us = (monotonic_ns() - since_ns) / 1000;
        let all = self.sessions.catch_up(&data.crew, &plans).map_err(system(COPY))?;
        let copied_us = (monotonic_ns() - since_ns) / 1000;
        if let Some(kept) = &mut data.kept {
            kept.take_effect().map_err(system("make the sessions this director's"))?;
        }
        data.ports.complete(&self.wants, &left, &data.crew)?;
        let gap_us = (monotonic_ns() - since_ns) / 1000;
        daemon.operator.server.move_to(&daemon.configured.config.director.control_socket)?;
        self.channel.send(&ToPredecessor::Up, &[]).map_err(system(what))?;
        info!(gap_us, released_us, copied_us, changed = all.sessions, "this director forwards");
        self.tell(daemon, gap_us);
        daemon.upgrades.before = Some(Before {
            channel: self.channel,
            since: Instant::now(),
            loaded: Box::new(loaded),
            assumed: Box::new(assumed),
            place: self.sessions.place(),
            synchronised: self.offer.synchronised,
        });
        Ok(())
    }

    fn tell(&self, daemon: &mut Daemon, gap_us: u64) {
        let Offer { pid, version, .. } = &self.offer;
        let gap_ms = gap_us as f64 / 1000.0;
        let reason =
            format!("took over from process {pid} of version {version} within {gap_ms} ms");
        let told = self.sessions.imported().map(|imported| HaUpgradeTold {
            why: imported.why.clone(),
            sessions: imported.sessions,
            changed: imported.changed,
            took_ms: imported.took.as_secs_f64() * 1000.0,
        });
        let by_addresses = told.iter().map(|told| Event::new(EventKind::Ha, by_addresses(told)));
        let events = [Event::new(EventKind::Ha, reason)].into_iter().chain(by_addresses);
        daemon.operator.server.note_all(events);
        daemon.upgrades.last = Some(HaUpgrade {
            // Done when the other one has ended, and what it had is here.
            state: HaUpgradeState::Running,
            at_unix_s: super::predecessor::unix_s(),
            pid: std::process::id(),
            from_pid: *pid,
            from_version: version.clone(),
            gap_ms: Some(gap_ms),
            told,
            reopened: Vec::new(),
            why: None,
        });
    }
}

/// Says how sessions came that could not be copied.
fn by_addresses(told: &HaUpgradeTold) -> String {
    let HaUpgradeTold { why, sessions, changed, took_ms } = told;
    format!(
        "{sessions} sessions were told by addresses within {took_ms:.1} ms, and {changed} that \
         changed meanwhile: {why}"
    )
}

impl Daemon {
    /// Takes what only one process can have, once the one before has ended.
    pub fn follow_former(&mut self) {
        let Some(before) = &self.upgrades.before else { return };
        // It says nothing more: it is readable when it has ended.
        if !is_readable(before.as_fd()) {
            if before.since.elapsed() < PATIENCE {
                return;
            }
            warn!("the process before does not end");
        }
        let Some(before) = self.upgrades.before.take() else { return };
        let took_ms = before.since.elapsed().as_millis() as u64;
        let state_dir = self.configured.config.director.state_dir.clone();
        kept::clear(&state_dir, before.place);
        // The programs know what to take before they are put in place.
        self.steer();
        let data = &mut self.dataplane;
        let reopened = data.ports.settle(self.kernel.mirror.state(), &data.crew);
        if !reopened.is_empty() {
            self.dataplane.ports.raise_twins(&mut self.kernel.mirror);
            let _ = self.kernel.mirror.process();
            self.follow_kernel();
            self.steer();
        }
        if let Some(last) = &mut self.upgrades.last {
            last.state = HaUpgradeState::Done;
            last.reopened =
                reopened.iter().filter(|name| !crate::prober::is_port(name)).cloned().collect();
        }
        self.take_state(&before.loaded, &before.assumed);
        self.health.begin();
        if self.configured.config.sync.listen.is_some() {
            self.synchronise(before.synchronised);
        }
        let network = Network::from(&self.configured.config.api);
        match self.operator.server.prepare(&network) {
            Ok(prepared) => self.operator.server.reach(prepared),
            Err(error) => error!("the API over the network is not served: {error}"),
        }
        notices::tell(&[NotifyState::Ready, NotifyState::Status("forwarding")]);
        info!(took_ms, ?reopened, "the process before has ended; this director is ready");
        for call in std::mem::take(&mut self.upgrades.waiting) {
            self.answer(call);
        }
    }

    /// Opens the journal, and applies what the other process changed after it was read here.
    fn take_state(&mut self, loaded: &Loaded, assumed: &Config) {
        let (desired, config, _) = match change::begin(loaded) {
            Ok(begun) => begun,
            Err(failure) => {
                error!("changes made at run time will not survive this process: {failure}");
                return;
            }
        };
        self.configured.desired = desired;
        change::tell_notes(&mut self.configured.desired, &self.operator.server);
        if config != *assumed {
            info!("what was changed meanwhile is applied");
            change::catch_up(self, config);
        }
    }
}

impl Channel {
    /// Another handle on the same end.
    fn copy(&self) -> io::Result<Self> {
        Ok(Self::from(UnixStream::from(self.as_fd().try_clone_to_owned()?)))
    }
}
