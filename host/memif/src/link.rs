//! A link: what the rest of the program has of a memif interface.
//!
//! A thread of its own (the hub) speaks on the control sockets, for all links of the process.
//! When a peer has come it puts a [`Connection`] into the link, when it has left it takes it away,
//! and moves the link's *generation* each time; an end of a queue that sees another generation than
//! its own looks again. An end holds the connection as long as it uses it, so no memory is unmapped
//! under it, however a peer leaves; the hub frees connections that nobody holds any more, so no
//! worker spends time on it.
//!
//! A peer may have fewer rings than the link has queues. Then several queues send by one ring,
//! which is behind a lock; while there are enough, each queue has its own ([`Turnstile`]). Where it
//! has more, a queue empties several.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::counters::{AllCounters, Stats};
use crate::ends::{self, Receiver, Sender};
use crate::hub::Hub;
use crate::ip::Addresses;
use crate::message::SECRET_BYTES;
use crate::negotiation::{Limits, MAX_LOG2, MIN_LOG2};
use crate::ring::Ring;
use crate::socket::Address;
use crate::transfer::{Lie, RxRing, TxRing};
use crate::turnstile::Turnstile;

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Connects to the socket, tries again until it can, and brings the memory.
    Client,
    /// Listens on the socket. Several links of a process may listen on one, told apart by their id.
    Server,
}

/// What the link carries; both ends must say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Ethernet frames.
    Ethernet,
    /// IP packets without Ethernet headers. The ends of queues have frames nevertheless, with these
    /// addresses.
    Ip(Addresses),
}

impl Mode {
    /// The protocol's number for it.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Ethernet => 0,
            Self::Ip(_) => 1,
        }
    }
}

/// How a link is to be.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Our name for it, which the peer and messages show.
    pub name: String,
    /// The control socket.
    pub socket: Address,
    /// Which interface of the socket.
    pub id: u32,
    /// Which end we are.
    pub role: Role,
    /// What it carries.
    pub mode: Mode,
    /// What a client must know, zero bytes at its end; all zero asks for nothing.
    pub secret: [u8; SECRET_BYTES],
    /// Queues: rings a direction that we use at most, 1 or more.
    pub queues: u16,
    /// Logarithm of a ring's descriptors at most, 8 to 14.
    pub log2: u8,
    /// Bytes of each buffer that we lend as the client, a multiple of 64.
    pub buffer_bytes: u32,
}

/// Rings a direction that a server takes of a client at least, however few queues it has.
const RINGS: u16 = 16;

impl LinkConfig {
    /// What we offer as the client, and take as the server. A queue empties several rings where
    /// the client has more than we have queues. (gomemif takes the highest index that is announced
    /// for a number, and makes no ring where it is 0.)
    pub(crate) fn limits(&self) -> Limits {
        let rings = match self.role {
            Role::Client => self.queues.max(1),
            Role::Server => self.queues.max(RINGS),
        };
        Limits { rings, log2: self.log2.clamp(MIN_LOG2, MAX_LOG2) }
    }
}

/// A ring, its words by themselves, and the eventfd that wakes whoever empties it.
#[derive(Debug)]
pub(crate) struct Line<R> {
    pub ring: Turnstile<R>,
    pub words: Ring,
    pub event: OwnedFd,
}

/// What two processes share while both are there.
#[derive(Debug)]
pub(crate) struct Connection {
    pub rx: Vec<Line<RxRing>>,
    pub tx: Vec<Line<TxRing>>,
    /// The peer's name.
    pub peer: String,
}

/// What the hub and the ends of a link share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Moves whenever the connection changes.
    pub generation: AtomicU64,
    pub connection: Mutex<Option<Arc<Connection>>>,
    /// Raised when the generation moves; workers that sleep wait for it.
    pub changed: OwnedFd,
    /// A worker caught the peer in a lie.
    lied: AtomicBool,
    hub: Arc<OwnedFd>,
    pub counters: AllCounters,
    /// Why there is no connection.
    trouble: Mutex<String>,
}

/// The memory under these locks is whole after a panic too: each holder changes it in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(hub: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self {
            generation: AtomicU64::new(1),
            connection: Mutex::new(None),
            changed: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            lied: AtomicBool::new(false),
            hub,
            counters: AllCounters::default(),
            trouble: Mutex::new("nobody has come yet".into()),
        })
    }

    /// Puts another connection in place, and returns the one before.
    pub fn replace(&self, connection: Option<Arc<Connection>>) -> Option<Arc<Connection>> {
        let before = std::mem::replace(&mut *lock(&self.connection), connection);
        self.lied.store(false, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
        let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
        before
    }

    /// Says why there is no connection; `true` if it is news.
    pub fn explain(&self, why: &str) -> bool {
        let mut trouble = lock(&self.trouble);
        let news = *trouble != why;
        *trouble = why.to_owned();
        news
    }

    /// Whether a worker has caught the peer in a lie.
    pub fn has_lied(&self) -> bool {
        self.lied.load(Ordering::Relaxed)
    }

    /// Ends the link of a peer that a worker has caught in a lie.
    #[cold]
    pub fn accuse(&self, lie: Lie) {
        if !self.lied.swap(true, Ordering::Relaxed) {
            self.explain(&lie.to_string());
            let _ = rustix::io::write(&*self.hub, &1_u64.to_ne_bytes());
        }
    }
}

/// An open link. Dropping it closes it.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    number: u64,
}

impl Link {
    /// Opens a link with so many queues. Fails when a server's socket cannot be listened on; a
    /// client whose server is not there is no failure: it goes on trying.
    pub fn open(config: LinkConfig) -> io::Result<(Self, Vec<(Receiver, Sender)>)> {
        let hub = Hub::get()?;
        let shared = Arc::new(Shared::new(Arc::clone(hub.wake()))?);
        let ends = (0..config.queues)
            .map(|index| ends::pair(&shared, (index, config.queues), config.mode))
            .collect::<io::Result<_>>()?;
        let number = hub.add(config, Arc::clone(&shared))?;
        Ok((Self { shared, number }, ends))
    }

    /// Whether a peer is there.
    pub fn is_up(&self) -> bool {
        lock(&self.shared.connection).is_some()
    }

    /// The peer's name, if it is there.
    pub fn peer(&self) -> Option<String> {
        lock(&self.shared.connection).as_ref().map(|connection| connection.peer.clone())
    }

    /// Why no peer is there; empty while one is.
    pub fn trouble(&self) -> String {
        lock(&self.shared.trouble).clone()
    }

    /// What it has carried.
    pub fn stats(&self) -> Stats {
        self.shared.counters.sum()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Ok(hub) = Hub::get() {
            hub.remove(self.number);
        }
    }
}
