//! The director that hands over.

use super::stand_in::StandIn;
use super::{Channel, Offer, Successor, ToPredecessor, ToSuccessor, VARIABLE, monotonic_ns};
use crate::daemon::Daemon;
use crate::kept::{self, Kept, SessionExport, Which};
use crate::notices;
use crate::ports::{Given, Wanted};
use crate::sync::Plans;
use sd_notify::NotifyState;
use sluice_api::Call;
use sluice_api::model::{Event, EventKind, HaUpgrade, HaUpgradeState};
use sluice_config::LogFormat;
use sluice_state::Author;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{error, info, warn};

/// How long a new process may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take from there until it forwards. Nothing is forwarded meanwhile; a hundred
/// million sessions are compared in half of it.
const UP_WITHIN: Duration = Duration::from_secs(3);
/// For the rest of a message of which the beginning has come.
const MESSAGE: Duration = Duration::from_secs(2);

/// Attempts to hand over, and what this process waits for that another handed over to.
#[derive(Default)]
pub(crate) struct Upgrades {
    /// How the program was told to log.
    log_format: Option<LogFormat>,
    attempt: Option<Attempt>,
    /// The last one, from this process or to it.
    pub last: Option<HaUpgrade>,
    /// The one before, until it has ended.
    pub before: Option<super::successor::Before>,
    /// Where this process waits, if it only stands in.
    pub(super) stand_in: Option<StandIn>,
    /// What is asked meanwhile and changes something.
    pub waiting: Vec<Call>,
}

/// Who is to follow this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follower {
    /// A director as this one is.
    Successor,
    /// One that stands in for the director that systemd is about to start.
    StandIn,
}

/// A new process that is not up.
struct Attempt {
    /// Its id.
    pid: u32,
    /// It, if this one has started it.
    child: Option<Child>,
    follower: Follower,
    channel: Channel,
    until: Instant,
    ports: Vec<Given>,
    /// Where it keeps its sessions.
    place: Which,
    /// Exports the sessions to it, if it cannot read them.
    export: SessionExport,
}

/// What goes to a process that is to follow, and what stays for it here.
struct Prepared {
    offer: Offer,
    fds: Vec<OwnedFd>,
    export: SessionExport,
    place: Which,
}

impl Upgrades {
    /// None yet, of a program that was told to log so.
    pub fn new(log_format: Option<LogFormat>) -> Self {
        Self { log_format, ..Self::default() }
    }

    /// Readable when the other process has something to say, or has ended.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        let attempt = self.attempt.as_ref().map(|attempt| attempt.channel.as_fd());
        let before = self.before.as_ref().map(AsFd::as_fd);
        attempt.or(before).or(self.stand_in.as_ref().map(AsFd::as_fd))
    }

    /// Whether the process before has not ended: what it holds is not this one's yet.
    pub const fn waits(&self) -> bool {
        self.before.is_some()
    }

    /// Follows plans that are about to be published.
    pub fn follow(&self, plans: impl FnOnce() -> Plans) {
        if let Some(attempt) = &self.attempt {
            attempt.export.follow(plans());
        }
    }

    /// An attempt begins.
    fn begins(&mut self) {
        self.last = Some(HaUpgrade {
            state: HaUpgradeState::Running,
            at_unix_s: unix_s(),
            pid: 0,
            from_pid: std::process::id(),
            from_version: env!("CARGO_PKG_VERSION").to_owned(),
            gap_ms: None,
            told: None,
            reopened: Vec::new(),
            why: None,
        });
    }

    /// The channel to a process that has taken over, which is to be closed when all that this one
    /// holds is free: that tells it. No other one is to come.
    pub fn take_channel(&mut self) -> Option<Channel> {
        self.stand_in = None;
        self.attempt.take().map(|attempt| attempt.channel)
    }
}

impl Daemon {
    /// Starts a new process that is to take over. What comes of it is told by events and by
    /// `GET /v1/ha`.
    pub fn upgrade(&mut self, by: Option<Author>, follower: Follower) {
        if self.upgrades.attempt.is_some() || self.upgrades.waits() {
            warn!("an upgrade is under way already");
            return;
        }
        let reason = match follower {
            Follower::Successor => "a new process is started, which is to take over",
            Follower::StandIn => "a process is started that stands in during a restart",
        };
        info!("{reason}");
        let event = Event { author: by, ..Event::new(EventKind::Ha, reason.to_owned()) };
        self.operator.server.note_all([event]);
        self.upgrades.begins();
        let attempt = match self.upgrades.stand_in {
            None => self.start_successor(follower),
            Some(_) => Err("this process only stands in for one that systemd starts".to_owned()),
        };
        self.attempted(attempt);
    }

    /// Hands over to a process that has come by itself, if this one stands in; or stops, if none
    /// has come for too long: whether that is so.
    fn follow_stand_in(&mut self) -> bool {
        let waits = self.upgrades.waits() || self.upgrades.attempt.is_some();
        let Some(stand_in) = self.upgrades.stand_in.as_mut().filter(|_| !waits) else {
            return false;
        };
        let Some((channel, pid)) = stand_in.accept() else {
            let over = stand_in.is_over();
            if over {
                error!("this process stood in during a restart, and none has come to take over");
            }
            return over;
        };
        info!(pid, "a process has come to take over");
        self.upgrades.begins();
        let peer = (pid, None, Follower::Successor);
        let attempt = self.prepare(false).and_then(|ready| self.attempt(ready, channel, peer));
        self.attempted(attempt);
        false
    }

    fn attempted(&mut self, attempt: Result<Attempt, String>) {
        match attempt {
            Ok(attempt) => {
                if let Some(last) = &mut self.upgrades.last {
                    last.pid = attempt.pid;
                }
                self.upgrades.attempt = Some(attempt);
            }
            Err(why) => self.upgrade_failed(&why),
        }
    }

    /// This process is to stop: what it has started is not to take over any more.
    pub fn stop_upgrade(&mut self) {
        self.give_up("the director was stopped".to_owned());
    }

    fn start_successor(&self, follower: Follower) -> Result<Attempt, String> {
        let program = program()?;
        let prepared = self.prepare(follower == Follower::StandIn)?;
        let (own, other) = UnixStream::pair().map_err(|error| format!("no channel: {error}"))?;
        let mut command = Command::new(&program);
        command.arg("--config").arg(&self.configured.file);
        if let Some(format) = self.upgrades.log_format {
            let word = if format == LogFormat::Json { "json" } else { "text" };
            command.args(["--log-format", word]);
        }
        command.env(VARIABLE, std::process::id().to_string());
        if follower == Follower::StandIn {
            // It is none of systemd's, which would refuse each word of it, and log that.
            command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        }
        command.stdin(Stdio::from(OwnedFd::from(other)));
        sluice_dpdk::close_on_exec();
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        drop(command);
        self.attempt(prepared, Channel::from(own), (child.id(), Some(child), follower))
    }

    /// What is offered to a process that is to follow this one.
    fn prepare(&self, stand_in: bool) -> Result<Prepared, String> {
        let Some(kept) = &self.dataplane.kept else {
            return Err(
                "sessions are not kept (keep_sessions, or no room for them), so that they \
                        cannot be handed over: restart instead"
                    .to_owned(),
            );
        };
        let (offer, mut fds) = self.offer(kept)?;
        let plans = Plans::new(&self.dataplane.plan, &self.published());
        let export = SessionExport::start(kept, plans);
        let (export, descriptor) = export.map_err(|error| format!("no thread: {error}"))?;
        fds.push(descriptor);
        let place = match kept.which() {
            Which::First => Which::Second,
            Which::Second => Which::First,
        };
        Ok(Prepared { offer: Offer { stand_in, ..offer }, fds, export, place })
    }

    /// Offers it.
    fn attempt(
        &self,
        prepared: Prepared,
        channel: Channel,
        (pid, child, follower): (u32, Option<Child>, Follower),
    ) -> Result<Attempt, String> {
        let Prepared { offer, fds, export, place } = prepared;
        let (ports, until) = (offer.ports.clone(), Instant::now() + READY_WITHIN);
        let attempt = Attempt { pid, child, follower, channel, until, ports, place, export };
        // One that has ended already says why below.
        let sent = attempt.channel.send(&ToSuccessor::Offer(Box::new(offer)), &fds);
        // The end of the new process is to be seen by the exporting thread.
        drop(fds);
        if let Err(error) = sent {
            return Err(self.end_attempt(attempt, format!("it took no offer: {error}")));
        }
        Ok(attempt)
    }

    fn offer(&self, kept: &Kept) -> Result<(Offer, Vec<OwnedFd>), String> {
        let (ports, mut fds) = self.dataplane.ports.offer(self.kernel.mirror.state());
        let announcer = self.kernel.announcer.as_ref();
        let holders = announcer.map(|announcer| announcer.offer()).transpose();
        let holders = holders.map_err(|error| format!("no descriptor: {error}"))?;
        let (names, of_holders): (Vec<_>, Vec<_>) = holders.unwrap_or_default().into_iter().unzip();
        fds.extend(of_holders);
        let sync = self.dataplane.sync.as_ref();
        let offer = Offer {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ports,
            holders: names,
            names: kept.names_file(),
            placing: kept.placing(),
            records: sluice_sync::records::RECORDS,
            huge: (self.dataplane.eal.huge_pages(), kept.is_huge()),
            down: self.health.down(&self.dataplane.plan),
            draining: self.kernel.addresses.is_draining(),
            transitions: self.kernel.addresses.transitions(),
            synchronised: sync.is_some_and(|sync| sync.is_synchronised()),
            stand_in: false,
        };
        Ok((offer, fds))
    }

    /// Follows handovers from and to this process. Whether it is to end.
    pub fn follow_handovers(&mut self) -> bool {
        if self.follow_upgrade() {
            return true;
        }
        self.follow_former();
        self.follow_stand_in()
    }

    /// Follows an attempt. Whether another process has taken over.
    fn follow_upgrade(&mut self) -> bool {
        let Some(attempt) = &self.upgrades.attempt else { return false };
        if !is_readable(attempt.channel.as_fd()) {
            if Instant::now() >= attempt.until {
                self.give_up(format!("it was not ready within {} s", READY_WITHIN.as_secs()));
            }
            return false;
        }
        match attempt.channel.receive(MESSAGE) {
            Ok((ToPredecessor::Ready { wants, stands_in }, _)) => {
                // Systemd could not start another one beside it.
                if attempt.follower == Follower::StandIn && !stands_in {
                    self.give_up("it is of a version that cannot stand in".to_owned());
                    return false;
                }
                self.hand_over(&wants)
            }
            Ok((ToPredecessor::Failed { why }, _)) => {
                self.give_up(why);
                false
            }
            Ok((ToPredecessor::Up, _)) => {
                self.give_up("it forwards though it was given nothing".to_owned());
                false
            }
            Err(error) => {
                self.give_up(format!("it ended, or cannot be understood ({error})"));
                false
            }
        }
    }

    /// Gives the queues to the new process, and waits until it forwards.
    fn hand_over(&mut self, wants: &[Wanted]) -> bool {
        // What peers tell from now on they tell the new one.
        let synchronised = self.dataplane.sync.take().is_some();
        let Some(attempt) = &self.upgrades.attempt else { return false };
        let since_ns = monotonic_ns();
        let released = self.dataplane.ports.release(&attempt.ports, wants, &self.dataplane.crew);
        let outcome = released.and_then(|left| {
            let message = ToSuccessor::Released { since_ns, left };
            attempt.channel.send(&message, &[]).map_err(|error| error.to_string())?;
            self.dataplane.ports.close_others(&attempt.ports, wants);
            match attempt.channel.receive(UP_WITHIN) {
                Ok((ToPredecessor::Up, _)) => Ok(()),
                Ok((ToPredecessor::Failed { why }, _)) => Err(why),
                Ok((ToPredecessor::Ready { .. }, _)) => Err("it is ready twice".to_owned()),
                Err(error) => Err(format!("it did not take over: {error}")),
            }
        });
        match outcome {
            Ok(()) => {
                info!(pid = attempt.pid, "another process has taken over");
                // Whom systemd starts it knows, and one that stands in is none of its.
                if attempt.follower == Follower::Successor && attempt.child.is_some() {
                    notices::tell(&[NotifyState::MainPid(attempt.pid)]);
                }
                true
            }
            Err(why) => {
                self.give_up(why);
                self.go_on(synchronised);
                false
            }
        }
    }

    /// Goes on after the new process has failed at the last moment.
    fn go_on(&mut self, synchronised: bool) {
        let data = &mut self.dataplane;
        data.ports.resume(&data.crew);
        data.ports.look_after(self.kernel.mirror.state(), &data.crew);
        data.ports.raise_twins(&mut self.kernel.mirror);
        if let Err(failure) = self.kernel.mirror.process() {
            warn!(%failure, "the kernel's tables are looked at later");
        }
        self.follow_kernel();
        self.steer();
        if synchronised {
            self.synchronise(true);
        }
    }

    /// Ends the attempt.
    fn give_up(&mut self, why: String) {
        let Some(attempt) = self.upgrades.attempt.take() else { return };
        let why = self.end_attempt(attempt, why);
        self.upgrade_failed(&why);
    }

    /// Ends a new process and removes what it left. Gives why, with how it ended by itself.
    fn end_attempt(&self, attempt: Attempt, why: String) -> String {
        let Attempt { child, channel, place, export, .. } = attempt;
        // One that this process has not started ends when it hears nothing more.
        drop((channel, export));
        if let Some(mut child) = child {
            let _ = child.kill();
            // It ends at once: it was killed.
            let _ = child.wait();
        }
        let director = &self.configured.config.director;
        kept::clear(&director.state_dir, place);
        // It may have been killed.
        let _ = std::fs::remove_file(Successor::socket(&director.control_socket));
        why
    }

    fn upgrade_failed(&mut self, why: &str) {
        error!("the new process does not take over, this one goes on: {why}");
        let reason = format!("the upgrade failed, and the running process goes on: {why}");
        self.operator.server.note_all([Event::new(EventKind::Ha, reason)]);
        if let Some(last) = &mut self.upgrades.last {
            (last.state, last.why) = (HaUpgradeState::Failed, Some(why.to_owned()));
        }
    }
}

/// The program that runs, as it is at its place now: a newer version, if it was replaced.
fn program() -> Result<PathBuf, String> {
    let found = std::fs::read_link("/proc/self/exe");
    let path = found.map_err(|error| format!("this program's place is not known: {error}"))?;
    let text = path.to_string_lossy();
    let path = PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(&text));
    match std::fs::metadata(&path) {
        Ok(found) if found.is_file() => Ok(path),
        Ok(_) => Err(format!("{}: it is no program", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

pub(super) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(count) if count > 0)
}

pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
