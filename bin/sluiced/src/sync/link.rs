//! The loop of the thread: workers' rings on one side, sockets on the other.

use super::records::{self, Reals};
use super::sockets::Sockets;
use super::{Board, Command, Plans};
use crate::queues::PortQueue;
use rtrb::Consumer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_api::EventLog;
use sluice_api::model::{
    Event, EventKind, HaDatagrams, HaPeer, HaReports, HaRole, HaStanding, HaSync,
};
use sluice_config::SessionSync;
use sluice_director::path::{Change, Imported, Importer, Imports, Owners};
use sluice_director::plan::{RealId, Resolver};
use sluice_director::spec::NetworkId;
use sluice_sync::Endpoint;
use sluice_sync::record::{Real, Session};
use sluice_worker::{Inbox, Message, Told, Wake};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Datagrams that are read before anything else is done.
const READ: usize = 512;
/// Sessions of one message to a worker.
const BATCH: usize = 1024;
/// Messages to a worker that it has not answered.
const UNANSWERED: usize = 4;
/// Records that wait for workers before the protocol is to stop.
const APPETITE: usize = 32_768;
/// The longest wait.
const LONGEST: Duration = Duration::from_millis(100);
/// How often what is shown is renewed.
const SHOW: Duration = Duration::from_millis(200);

/// A worker, as the thread sees it.
struct Worker {
    inbox: Inbox<PortQueue>,
    ring: Consumer<Told>,
    /// Sessions for it, by the number of their network.
    batches: Vec<Imports>,
    unanswered: usize,
    /// The walk that it has come to the end of.
    walked: u64,
}

/// The networks that sessions have come for. From the first session on all workers are to look for
/// sessions at each other, also those that get none: a session lies at the worker of its port.
#[derive(Default)]
struct Begun(Vec<bool>);

impl Begun {
    /// Whether these are the first of a network.
    fn begins(&mut self, network: usize, any: bool) -> bool {
        if self.0.len() <= network {
            self.0.resize(network + 1, false);
        }
        any && !std::mem::replace(&mut self.0[network], true)
    }
}

/// One end of the protocol between the workers and the other directors.
pub struct Link {
    sockets: Sockets,
    listen: Option<SocketAddr>,
    peers: Vec<SocketAddr>,
    endpoint: Endpoint,
    workers: Vec<Worker>,
    owners: Owners,
    epoch: Option<u64>,
    reals: Reals,
    plans: Plans,
    resolver: Resolver,
    begun: Begun,
    imported: Imported,
    /// How many of them were unknown when the plan before came.
    unknown: u64,
    /// Pulls of peers that workers walk for, and those for which they are to walk next.
    pulls: [Vec<u64>; 2],
    /// The number of the last walk.
    walk: u64,
    replies: Sender<(u16, Imported)>,
    answers: Receiver<(u16, Imported)>,
    start: Instant,
    shown: Option<Instant>,
    /// Changes as they are taken from the rings.
    changes: Vec<Change>,
    datagram: Vec<u8>,
}

impl Link {
    /// One that has done nothing yet.
    pub fn new(
        sockets: Sockets,
        config: &SessionSync,
        endpoint: Endpoint,
        (inboxes, rings): (Vec<Inbox<PortQueue>>, Vec<Consumer<Told>>),
        owners: Owners,
    ) -> Self {
        let workers = inboxes.into_iter().zip(rings).map(|(inbox, ring)| Worker {
            inbox,
            ring,
            batches: Vec::new(),
            unanswered: 0,
            walked: 0,
        });
        let plans = Plans { whole: Arc::default(), of_networks: Vec::new() };
        let (replies, answers) = channel();
        Self {
            sockets,
            listen: config.listen,
            peers: config.peers.clone(),
            endpoint,
            workers: workers.collect(),
            owners,
            epoch: None,
            reals: Reals::of(&plans.whole),
            resolver: Resolver::new(&plans.whole),
            plans,
            begun: Begun::default(),
            imported: Imported::default(),
            unknown: 0,
            pulls: Default::default(),
            walk: 0,
            replies,
            answers,
            start: Instant::now(),
            shown: None,
            changes: Vec::new(),
            datagram: Vec::new(),
        }
    }

    /// Follows plans. Health and weights change no ids, and no epoch.
    pub fn follow(&mut self, plans: Plans) {
        let plan = &plans.whole;
        if self.epoch.replace(plan.epoch) != Some(plan.epoch) {
            (self.reals, self.resolver) = (Reals::of(plan), Resolver::new(plan));
            self.endpoint.set_fingerprint(plan.fingerprint());
            for worker in &mut self.workers {
                // Networks keep their numbers.
                worker.batches.resize_with(plans.of_networks.len(), Imports::default);
            }
            self.plans = plans;
            // One of them may be another network by the same number.
            self.begun = Begun::default();
            // What peers told in vain before may be of a service that is there now.
            if std::mem::replace(&mut self.unknown, self.imported.unknown) != self.imported.unknown
            {
                self.endpoint.pull_again(self.now());
            }
        }
    }

    /// Runs until it is told to stop.
    pub fn run(
        mut self,
        wake: &Wake,
        commands: &Receiver<Command>,
        board: &Board,
        events: &EventLog,
    ) {
        loop {
            loop {
                match commands.try_recv() {
                    Ok(Command::Plans(plans)) => self.follow(plans),
                    Ok(Command::Stand(standing)) => self.endpoint.set_standing(standing),
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => break,
                }
            }
            self.receive();
            self.hear(events);
            self.take_answers();
            self.give_to_workers();
            let more = self.take_changes();
            self.transmit();
            if self.shown.is_none_or(|shown| shown.elapsed() >= SHOW) {
                self.shown = Some(Instant::now());
                *board.lock().unwrap_or_else(PoisonError::into_inner) = self.show();
            }
            if !more {
                self.wait(wake);
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&self, wake: &Wake) {
        let now = self.now();
        let due = self.endpoint.poll_timeout(now).saturating_sub(now);
        // Workers answer without waking anybody.
        let busy = self.workers.iter().any(|worker| worker.unanswered > 0);
        let longest = if busy { Duration::from_millis(1) } else { LONGEST };
        let timeout = due.clamp(Duration::from_micros(200), longest);
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as i64 };
        wake.about_to_sleep();
        if self.endpoint.room() == 0 || self.workers.iter().all(|worker| worker.ring.is_empty()) {
            let wake = PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN);
            let mut fds: Vec<_> = self.sockets.poll_fds().chain([wake]).collect();
            // An interrupted wait is a short one.
            let _ = poll(&mut fds, Some(&timeout));
        }
        wake.awake();
    }

    /// Reads datagrams of peers. Others' are nobody's.
    fn receive(&mut self) {
        let mut bytes = [0; 9216];
        let mut most = READ;
        while let Some((peer, length)) = self.sockets.receive(&mut bytes, &mut most) {
            self.endpoint.handle(self.start.elapsed(), peer, &bytes[..length]);
        }
    }

    /// Acts on what came of the peers.
    fn hear(&mut self, events: &EventLog) {
        let batches = self.workers.iter().flat_map(|worker| &worker.batches);
        let waiting: usize = batches.map(Imports::len).sum();
        self.endpoint.set_appetite(APPETITE.saturating_sub(waiting));
        if waiting >= APPETITE {
            return;
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                sluice_sync::Event::Sessions { runs, .. } => self.sort(&runs),
                sluice_sync::Event::Pull { pull, .. } => {
                    self.pulls[1].push(pull);
                    self.begin_walk();
                }
                sluice_sync::Event::PeerUp { peer, name } => {
                    let peer = self.peers[peer];
                    note(events, format!("{name} ({peer}) is heard: sessions are synchronised"));
                }
                sluice_sync::Event::PeerDown { peer } => {
                    let peer = self.peers[peer];
                    warn!(%peer, "a peer is not heard any more");
                    let reason = format!("{peer} is not heard any more: no synchronisation");
                    events.note(Event::new(EventKind::Ha, reason));
                }
                sluice_sync::Event::Synchronised { peer } => note(
                    events,
                    match peer.map(|peer| self.peers[peer]) {
                        Some(peer) => format!("this director has all sessions of {peer}"),
                        None => "no other director to ask for its sessions".to_owned(),
                    },
                ),
            }
        }
    }

    /// Has the workers tell everything, if a peer has asked for it, and no walk goes on.
    fn begin_walk(&mut self) {
        if self.pulls[0].is_empty() && !self.pulls[1].is_empty() {
            self.pulls.swap(0, 1);
            self.walk += 1;
            for worker in &self.workers {
                worker.inbox.send(Message::Walk(self.walk));
            }
        }
    }

    /// Sorts sessions of a peer by network, and by the worker whose they are.
    fn sort(&mut self, runs: &[(Real, Vec<Session>)]) {
        for (real, sessions) in runs {
            self.imported.unknown += self.sort_run(real, sessions);
        }
    }

    /// The same of those of one real server. Returns how many can be nobody's.
    fn sort_run(&mut self, real: &Real, sessions: &[Session]) -> u64 {
        let id: Option<RealId> = records::real_name(real)
            .and_then(|name| self.resolver.real(&records::service_name(&real.service), name));
        let network = id.and_then(|id| self.plans.network_of(id));
        let network = network.map(|network| usize::from(network.0));
        let plan = network.and_then(|network| self.plans.of_networks.get(network));
        let (Some(id), Some(network), Some(plan)) = (id, network, plan) else {
            return sessions.len() as u64;
        };
        let importer = Importer::new(plan, &self.resolver, self.owners);
        let batches = self.workers.iter_mut().map(|worker| &mut worker.batches[network]);
        let mut batches: Vec<&mut Imports> = batches.collect();
        let mut unknown = 0;
        for session in sessions {
            let (session, ended) = records::session(session);
            unknown += u64::from(!importer.place(id, &session, ended, &mut batches));
        }
        unknown
    }

    fn take_answers(&mut self) {
        while let Ok((worker, imported)) = self.answers.try_recv() {
            self.imported += imported;
            if let Some(worker) = self.workers.get_mut(usize::from(worker)) {
                worker.unanswered = worker.unanswered.saturating_sub(1);
            }
        }
    }

    fn give_to_workers(&mut self) {
        for (at, network) in (0..self.plans.of_networks.len()).zip((0..).map(NetworkId)) {
            let waits = |worker: &Worker| worker.batches.get(at).is_some_and(|it| !it.is_empty());
            if self.begun.begins(at, self.workers.iter().any(waits)) {
                for worker in &mut self.workers {
                    let (batch, reply) = (Imports::default(), self.replies.clone());
                    worker.unanswered += 1;
                    worker.inbox.send(Message::Import { network, batch, reply });
                }
            }
        }
        for worker in &mut self.workers {
            for (network, waiting) in (0..).map(NetworkId).zip(&mut worker.batches) {
                while !waiting.is_empty() && worker.unanswered < UNANSWERED {
                    let (batch, reply) = (waiting.take(BATCH), self.replies.clone());
                    worker.unanswered += 1;
                    worker.inbox.send(Message::Import { network, batch, reply });
                }
            }
        }
    }

    /// Gives the protocol what workers tell, as much as it has room for. Whether there is more of
    /// it that it has room for.
    fn take_changes(&mut self) -> bool {
        let now = self.start.elapsed();
        let mut room = self.endpoint.room();
        let mut changes = std::mem::take(&mut self.changes);
        for worker in &mut self.workers {
            while room > 0
                && let Ok(told) = worker.ring.pop()
            {
                match told {
                    Told::Change(change) => {
                        changes.push(change);
                        room -= 1;
                    }
                    Told::Walked(walk) => worker.walked = walk,
                }
            }
        }
        // Those of one real server in a row take less room on the wire. Which of two reports of a
        // session comes first makes no difference: the newer one holds.
        changes.sort_by_key(|change| change.real);
        for change in changes.drain(..) {
            if let Some(real) = self.reals.get(change.real) {
                self.endpoint.send(now, real, &records::session_record(&change));
            }
        }
        self.changes = changes;
        if self.workers.iter().all(|worker| worker.walked == self.walk) {
            self.pulls[0].drain(..).for_each(|pull| self.endpoint.pull_complete(now, pull));
            self.begin_walk();
        }
        self.endpoint.room() > 0 && self.workers.iter().any(|worker| !worker.ring.is_empty())
    }

    /// Sends what is due.
    fn transmit(&mut self) {
        let now = self.start.elapsed();
        while let Some(to) = self.endpoint.poll_transmit(now, &mut self.datagram) {
            self.sockets.send(&self.datagram, to);
        }
    }

    fn show(&self) -> Option<HaSync> {
        let status = self.endpoint.status(self.now());
        let Imported { new, newer, ended, older, unknown, refused } = self.imported;
        let (counters, own) = (&status.counters, self.endpoint.fingerprint());
        let peers = self.peers.iter().zip(&status.peers).map(|(address, peer)| HaPeer {
            address: *address,
            name: peer.name.clone(),
            up: peer.up,
            for_s: peer.since.as_secs_f64(),
            synchronised: peer.synchronised,
            // Without one it was not heard, or does not tell.
            differs: ![0, own].contains(&peer.fingerprint),
            behind: peer.behind,
            lag_ms: peer.lag.as_secs_f64() * 1e3,
            unacknowledged: peer.unacknowledged,
            key: format!("{:08x}", peer.key),
            standing: peer.standing.map(|standing| HaStanding {
                role: HaRole::of(standing.held.into(), standing.addresses.into()),
                addresses: standing.held.into(),
                draining: standing.draining,
                sessions: standing.sessions,
            }),
        });
        Some(HaSync {
            listen: self.listen?,
            synchronised: status.synchronised,
            pulling_from: status.pulling_from.and_then(|peer| self.peers.get(peer).copied()),
            pulled: status.pull_records,
            peers: peers.collect(),
            reports_waiting: 0,
            reports_sent: counters.records_sent,
            reports_received: HaReports { new, newer, ended, older, unknown, refused },
            ends_unreported: 0,
            datagrams: HaDatagrams {
                sent: counters.sent,
                bytes_sent: counters.bytes_sent,
                to_group: counters.to_group,
                received: counters.received,
                bytes_received: counters.bytes_received,
                repaired: counters.repaired,
                lost: counters.lost,
                forged: counters.rejected_tag + counters.rejected_key,
                replayed: counters.rejected_replay + counters.rejected_start,
                malformed: counters.rejected_malformed + counters.rejected_version,
            },
        })
    }
}

fn note(events: &EventLog, reason: String) {
    info!("{reason}");
    events.note(Event::new(EventKind::Ha, reason));
}

#[cfg(test)]
mod tests {
    use super::Begun;

    /// All workers are told once for each network, with its first sessions and not before.
    #[test]
    fn a_network_begins_with_its_first_sessions() {
        let mut begun = Begun::default();
        let calls = [(2, false), (2, true), (2, true), (0, false), (0, true), (2, false)];
        let begins = calls.map(|(network, any)| begun.begins(network, any));
        assert_eq!(begins, [false, true, false, false, true, false]);
    }
}
