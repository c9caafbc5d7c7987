//! One end of the protocol with all its peers.

mod hello;
mod receive;
mod transmit;

use crate::codec::Runs;
use crate::outgoing::{Outgoing, Pushed};
use crate::peer::{Peer, newest};
use crate::pull::{Candidate, Pulls, Step};
use crate::record::{Real, Session};
use crate::seal::Keyring;
use crate::settings::{Settings, SettingsError};
use crate::status::{Counters, PeerStatus, Standing, Status};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Records that are kept for [`Endpoint::poll_event`] before peers have to wait.
pub(crate) const BACKLOG: usize = 65_536;
/// Events that are kept before peers have to wait.
const MOST_EVENTS: usize = 8192;

/// What came of the peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Sessions of a peer, in the order that it sent them.
    Sessions {
        /// The peer.
        peer: usize,
        /// Sessions in a row of the same real server.
        runs: Vec<(Real, Vec<Session>)>,
    },
    /// A peer wants everything: begin a walk over all sessions, and call
    /// [`Endpoint::pull_complete`] after it. Another one does not end this one.
    Pull {
        /// The peer.
        peer: usize,
        /// The id to complete it with.
        pull: u64,
    },
    /// A peer is heard and hears this end. A start of a peer that takes the place of one that was
    /// up comes after a [`Event::PeerDown`].
    PeerUp {
        /// The peer.
        peer: usize,
        /// Its name.
        name: String,
    },
    /// A peer has fallen silent, or has started anew.
    PeerDown {
        /// The peer.
        peer: usize,
    },
    /// The first full pull of this start is done, or there was nobody to ask.
    Synchronised {
        /// The peer that was asked.
        peer: Option<usize>,
    },
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a peer.
    Peer(usize),
    /// To all that are in the group. Only with [`Settings::group`].
    Group,
}

/// What an endpoint has in memory: datagrams for peers, bytes of them, datagrams of peers, and
/// records among the events.
#[cfg(test)]
pub(crate) struct Memory {
    pub(crate) window: usize,
    pub(crate) bytes: usize,
    pub(crate) reordered: usize,
    pub(crate) backlog: usize,
}

/// One end of the protocol.
pub struct Endpoint {
    name: String,
    fingerprint: u64,
    group: bool,
    standing: Option<Standing>,
    keyring: Keyring,
    peers: Vec<Peer>,
    stream: Outgoing,
    pulls: Pulls,
    events: VecDeque<Event>,
    /// Records among the events.
    backlog: usize,
    appetite: usize,
    /// Whether something of peers waits for events to be taken, or for appetite.
    stalled: bool,
    counters: Counters,
    now: Duration,
    /// The peer whose turn it is.
    turn: usize,
    scratch: Vec<u8>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Endpoint").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// One that has not heard anybody. Its start is the first time that it is told.
    ///
    /// # Errors
    ///
    /// When a setting is out of range.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        let keyring = Keyring::new(&settings)?;
        let mut peers = Vec::new();
        peers.resize_with(settings.peers, Peer::default);
        Ok(Self {
            name: settings.name,
            fingerprint: settings.fingerprint,
            group: settings.group,
            standing: None,
            keyring,
            peers,
            stream: Outgoing::new(settings.datagram),
            pulls: Pulls::default(),
            events: VecDeque::new(),
            backlog: 0,
            appetite: usize::MAX,
            stalled: false,
            counters: Counters::default(),
            now: Duration::ZERO,
            turn: 0,
            scratch: Vec::with_capacity(settings.datagram),
        })
    }

    /// That of the configuration.
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The configuration has another fingerprint from now on.
    pub fn set_fingerprint(&mut self, fingerprint: u64) {
        self.fingerprint = fingerprint;
    }

    /// This director stands so from now on: peers learn of it within a second.
    pub fn set_standing(&mut self, standing: Standing) {
        self.standing = Some(standing);
    }

    /// A datagram came from a peer.
    pub fn handle(&mut self, now: Duration, peer: usize, datagram: &[u8]) {
        self.now = self.now.max(now);
        self.counters.received += 1;
        self.counters.bytes_received += datagram.len() as u64;
        if let Err(reject) = self.receive(peer, datagram) {
            self.counters.reject(reject);
        }
        self.tick(now);
    }

    /// Puts the next datagram to send into `buffer` and says where it goes. `None` when nothing is
    /// due now.
    pub fn poll_transmit(&mut self, now: Duration, buffer: &mut Vec<u8>) -> Option<Destination> {
        self.tick(now);
        let count = self.peers.len();
        for step in 0..count {
            let peer = (self.turn + step) % count;
            if let Some(to) = self.transmit(peer, buffer) {
                self.turn = (peer + 1) % count;
                self.counters.sent += 1;
                self.counters.bytes_sent += buffer.len() as u64;
                return Some(to);
            }
        }
        None
    }

    /// When [`Self::poll_transmit`] is to be asked again at the latest, also when nothing comes. It
    /// is to be asked after every other call that changes something, too.
    pub fn poll_timeout(&self, now: Duration) -> Duration {
        let mut at = now + crate::peer::HELLO;
        let mut sooner = |other: Option<Duration>| at = other.map_or(at, |other| at.min(other));
        sooner(self.stream.flush_at());
        sooner(self.pulls.deadline(now));
        for peer in &self.peers {
            sooner(Some(peer.hello_at));
            sooner(peer.answer_at);
            let Some(remote) = peer.remote.as_ref().filter(|_| peer.up) else { continue };
            sooner(Some(remote.heard_at + crate::peer::SILENCE));
            sooner(remote.incoming.ack_at());
            if let Some(progress) = &remote.progress {
                sooner(progress.deadline());
                let ready = progress.ready(self.stream.first(), self.stream.next());
                sooner(ready.then_some(now));
            }
        }
        at.max(now)
    }

    /// The next event, the oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Sessions { runs, .. } = &event {
            let records = records_of(runs);
            self.backlog -= records;
            if self.appetite != usize::MAX {
                self.appetite = self.appetite.saturating_sub(records);
            }
        }
        if self.stalled {
            self.resume_delivery();
        }
        Some(event)
    }

    /// How many sessions may be given right now, whatever they are; 0 = wait.
    pub fn room(&self) -> usize {
        self.stream.room(self.waited())
    }

    /// Gives a changed session to all peers. False when there is no room, and nothing was queued.
    /// While no peer is up there is nobody to give it to, which peers notice when they come up.
    pub fn send(&mut self, now: Duration, real: &Real, session: &Session) -> bool {
        self.now = self.now.max(now);
        if !self.peers.iter().any(|peer| peer.up) {
            self.stream.leave_out();
            return true;
        }
        let waited = self.waited();
        let seal = (&self.keyring, self.data_key());
        match self.stream.push(self.now, (real, session), waited, seal) {
            Pushed::Done => self.counters.records_sent += 1,
            Pushed::Unsendable => self.counters.unsendable += 1,
            Pushed::Full => return false,
        }
        true
    }

    /// Everything that the director had when the pull began has been given to [`Self::send`].
    pub fn pull_complete(&mut self, now: Duration, pull: u64) {
        self.now = self.now.max(now);
        let asked = |peer: &&mut Peer| peer.remote.as_ref().is_some_and(|it| it.asked == pull);
        let Some(peer) = self.peers.iter_mut().find(asked).filter(|peer| peer.up) else { return };
        if let Some(remote) = peer.remote.as_mut().filter(|remote| remote.answered != pull) {
            remote.answered = pull;
            self.stream.mark(pull);
        }
        self.tick(now);
    }

    /// Asks all peers that are up for everything once more, one after the other: some of what they
    /// told meant nothing to this director then, and does now. Calls before that has begun are one.
    pub fn pull_again(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for peer in &mut self.peers {
            peer.needs_pull |= peer.up;
        }
        self.step();
    }

    /// How many more records this end is willing to take. Those of [`Self::poll_event`] count from
    /// now on. Datagrams beyond are kept, a bounded number of them, and not acknowledged. Without
    /// this there is no limit but that of events not taken.
    pub fn set_appetite(&mut self, records: usize) {
        self.appetite = records;
        self.resume_delivery();
    }

    /// Whether this end has what its peers had when it started, or had nobody to ask.
    pub fn synchronised(&self) -> bool {
        self.pulls.synchronised
    }

    /// How it stands.
    pub fn status(&self, now: Duration) -> Status {
        Status {
            synchronised: self.pulls.synchronised,
            pulling_from: self.pulls.active.map(|active| active.peer),
            pull_records: self.pulls.records,
            peers: self.peers.iter().map(|peer| self.peer_status(now, peer)).collect(),
            counters: self.counters.clone(),
        }
    }

    /// What is in memory.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> Memory {
        let remotes = self.peers.iter().filter_map(|peer| peer.remote.as_ref());
        Memory {
            window: (self.stream.next() - self.stream.first()) as usize,
            bytes: self.stream.bytes(),
            reordered: remotes.map(|remote| remote.incoming.held()).sum(),
            backlog: self.backlog,
        }
    }

    fn peer_status(&self, now: Duration, peer: &Peer) -> PeerStatus {
        let remote = peer.remote.as_ref();
        let progress = remote.and_then(|remote| remote.progress.as_ref());
        let acked = progress.map_or(self.stream.next(), |progress| progress.acked());
        let oldest = self.stream.sealed_at(acked.max(self.stream.first()));
        PeerStatus {
            up: peer.up,
            name: peer.name.clone(),
            synchronised: peer.synchronised,
            standing: peer.standing,
            fingerprint: peer.fingerprint,
            behind: progress.is_some_and(|progress| progress.behind()),
            unacknowledged: self.stream.next() - acked,
            lag: oldest.map_or(Duration::ZERO, |sealed_at| now.saturating_sub(sealed_at)),
            key: self.keyring.id(peer.key(now).unwrap_or(peer.tried())),
            since: now.saturating_sub(peer.since),
        }
    }

    /// Everything from here on must be kept: the peers that are waited for do not have it.
    fn waited(&self) -> u64 {
        let waited = self.peers.iter().filter(|peer| peer.up).filter_map(|peer| {
            let progress = peer.remote.as_ref()?.progress.as_ref()?;
            (!progress.behind()).then_some(progress.acked())
        });
        waited.min().unwrap_or(self.stream.next())
    }

    /// The newest key that every peer has that is heard.
    fn data_key(&self) -> usize {
        // One that is about to come up takes part in the stream already.
        let takes_part = |peer: &&Peer| peer.up || peer.key(self.now).is_some();
        let remotes = self.peers.iter().filter(takes_part).filter_map(|it| it.remote.as_ref());
        let keys = remotes.map(|remote| remote.keys);
        // Peers without a common key are a mistake of the operator's. The first peer is served.
        let common = keys.clone().fold(u8::MAX, |all, keys| all & keys);
        newest(common).or_else(|| keys.clone().find_map(newest)).unwrap_or(0)
    }

    /// Does what time alone calls for.
    fn tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for peer in 0..self.peers.len() {
            self.tick_peer(peer);
        }
        let (waited, key) = (self.waited(), self.data_key());
        self.stream.tick(self.now, waited, &self.keyring, key);
        let acked = self.peers.iter().filter_map(|peer| {
            peer.remote.as_ref()?.progress.as_ref().map(|progress| progress.acked())
        });
        let released = acked.min().unwrap_or(self.stream.next());
        self.stream.release(released);
        self.step();
    }

    fn tick_peer(&mut self, index: usize) {
        let Some(peer) = self.peers.get_mut(index).filter(|peer| peer.up) else { return };
        let Some(remote) = &mut peer.remote else { return };
        if self.now >= remote.heard_at + crate::peer::SILENCE {
            self.down(index);
            return;
        }
        if let Some(progress) = &mut remote.progress
            && progress.tick(self.now)
        {
            self.counters.behind += 1;
        }
    }

    /// Begins a pull when one is due.
    fn step(&mut self) {
        let candidates = self.peers.iter().map(|peer| Candidate {
            up: peer.up,
            synchronised: peer.synchronised,
            wanted: peer.needs_pull,
        });
        match self.pulls.step(self.now, candidates) {
            Some(Step::Begin(index)) => {
                self.pulls.begin(index, self.keyring.pull_id(self.pulls.count));
                if let Some(peer) = self.peers.get_mut(index) {
                    peer.needs_pull = false;
                    peer.hello_at = self.now;
                }
            }
            Some(Step::Alone) => self.synchronise(None),
            None => {}
        }
    }

    fn synchronise(&mut self, peer: Option<usize>) {
        self.pulls.synchronised = true;
        self.events.push_back(Event::Synchronised { peer });
    }
}

fn records_of(runs: &Runs) -> usize {
    runs.iter().map(|(_, sessions)| sessions.len()).sum()
}
