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
//! which is behind a lock; while there are enough, each queue has its own ([`Turnstile`]).
//!
//! Whether the peer sleeps is looked at a turn after frames were given to it ([`Debt`]): to look at
//! once, a full barrier would have to wait until the peer's cache lines are written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::event::Signal;
use crate::hub::Hub;
use crate::message::SECRET_BYTES;
use crate::negotiation::{Limits, MAX_LOG2, MIN_LOG2};
use crate::ring::Ring;
use crate::socket::Address;
use crate::transfer::{Landing, Lie, RxRing, TxRing};
use crate::turnstile::Turnstile;

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Connects to the socket, tries again until it can, and brings the memory.
    Client,
    /// Listens on the socket. Several links of a process may listen on one, told apart by their id.
    Server,
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
    /// What a client must know, zero bytes at its end; all zero asks for nothing.
    pub secret: [u8; SECRET_BYTES],
    /// Queues: rings a direction that we use at most, 1 or more.
    pub queues: u16,
    /// Logarithm of a ring's descriptors at most, 8 to 14.
    pub log2: u8,
    /// Bytes of each buffer that we lend as the client, a multiple of 64.
    pub buffer_bytes: u32,
}

impl LinkConfig {
    pub(crate) fn limits(&self) -> Limits {
        Limits { rings: self.queues.max(1), log2: self.log2.clamp(MIN_LOG2, MAX_LOG2) }
    }
}

/// Frames that a link has carried since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames received.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that were malformed, or too long for our buffers.
    pub rx_errors: u64,
    /// Times that frames were left in the ring for want of a buffer.
    pub rx_no_buffer: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that are too long for the peer's rings.
    pub tx_errors: u64,
    /// Times that a peer came.
    pub connects: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    rx_frames: AtomicU64,
    rx_bytes: AtomicU64,
    rx_errors: AtomicU64,
    rx_no_buffer: AtomicU64,
    tx_frames: AtomicU64,
    tx_bytes: AtomicU64,
    tx_errors: AtomicU64,
    pub(crate) connects: AtomicU64,
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
    generation: AtomicU64,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Raised when the generation moves; workers that sleep wait for it.
    changed: OwnedFd,
    /// A worker caught the peer in a lie.
    lied: AtomicBool,
    hub: Arc<OwnedFd>,
    pub(crate) counters: Counters,
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
            counters: Counters::default(),
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

    #[cold]
    fn accuse(&self, lie: Lie) {
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
            .map(|index| {
                let debt = Arc::new(Debt { owes: AtomicBool::new(false), signal: Signal::new()? });
                let receiver = Receiver::new(&shared, &debt, index)?;
                Ok((receiver, Sender::new(&shared, debt, index)))
            })
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

    /// Why no peer is there.
    pub fn trouble(&self) -> String {
        lock(&self.shared.trouble).clone()
    }

    /// What it has carried.
    pub fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            rx_frames: read(&counters.rx_frames),
            rx_bytes: read(&counters.rx_bytes),
            rx_errors: read(&counters.rx_errors),
            rx_no_buffer: read(&counters.rx_no_buffer),
            tx_frames: read(&counters.tx_frames),
            tx_bytes: read(&counters.tx_bytes),
            tx_errors: read(&counters.tx_errors),
            connects: read(&counters.connects),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Ok(hub) = Hub::get() {
            hub.remove(self.number);
        }
    }
}

/// What an end knows of the connection.
#[derive(Debug)]
struct View {
    shared: Arc<Shared>,
    generation: u64,
    connection: Option<Arc<Connection>>,
}

impl View {
    fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), generation: 0, connection: None }
    }

    /// Whether another connection is in place than this end knows.
    #[inline]
    fn is_old(&self) -> bool {
        self.shared.generation.load(Ordering::Acquire) != self.generation
    }

    #[cold]
    fn renew(&mut self) {
        let current = lock(&self.shared.connection);
        // Under the lock, so that both belong together.
        self.generation = self.shared.generation.load(Ordering::Acquire);
        self.connection.clone_from(&current);
    }
}

/// Frames that were given to a peer which was not looked after yet: it may sleep. Both ends of a
/// queue have it: whoever is called next pays.
#[derive(Debug)]
struct Debt {
    owes: AtomicBool,
    signal: Signal,
}

impl Debt {
    /// Wakes the peer if it sleeps.
    #[inline]
    fn settle(&self, connection: Option<&Arc<Connection>>, index: usize) {
        if self.owes.load(Ordering::Relaxed) {
            self.pay(connection, index);
        }
    }

    fn pay(&self, connection: Option<&Arc<Connection>>, index: usize) {
        self.owes.store(false, Ordering::Relaxed);
        if let Some(line) = connection.and_then(|connection| connection.tx_line(index))
            && line.words.wants_interrupt()
        {
            self.signal.raise(&line.event);
        }
    }
}

impl Connection {
    /// The ring that a queue sends by.
    #[inline]
    fn tx_line(&self, index: usize) -> Option<&Line<TxRing>> {
        self.tx.get(index).or_else(|| self.tx.get(index % self.tx.len().max(1)))
    }
}

/// The receiving end of a queue.
#[derive(Debug)]
pub struct Receiver {
    view: View,
    debt: Arc<Debt>,
    index: usize,
    /// Readable when frames may have come. It waits for edges, so that nothing of the peer's is
    /// ever read.
    wake: OwnedFd,
}

impl Receiver {
    fn new(shared: &Arc<Shared>, debt: &Arc<Debt>, index: u16) -> io::Result<Self> {
        let wake = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&wake, &shared.changed)?;
        let (view, debt) = (View::new(shared), Arc::clone(debt));
        Ok(Self { view, debt, index: usize::from(index), wake })
    }

    /// Waits for the ring's interrupts no more. The peer has the eventfd too, so that closing ours
    /// would not end it.
    fn forget(&self) {
        if let Some(line) = self.line() {
            let _ = epoll::delete(&self.wake, &line.event);
        }
    }

    #[cold]
    fn renew(&mut self) {
        self.forget();
        self.view.renew();
        if let Some(line) = self.line() {
            let _ = watch(&self.wake, &line.event);
        }
    }

    #[inline]
    fn line(&self) -> Option<&Line<RxRing>> {
        self.view.connection.as_ref()?.rx.get(self.index)
    }

    /// Receives the frames that wait, `most` at most. Returns how many.
    #[inline]
    pub fn receive(&mut self, most: usize, landing: &mut impl Landing) -> usize {
        if self.view.is_old() {
            self.renew();
        }
        self.debt.settle(self.view.connection.as_ref(), self.index);
        let Some(line) = self.line() else { return 0 };
        let came = line.ring.with(|ring| ring.receive(most, landing));
        let counters = &self.view.shared.counters;
        match came {
            Ok(came) => {
                let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
                if came.frames > 0 {
                    add(&counters.rx_frames, came.frames as u64);
                    add(&counters.rx_bytes, came.bytes);
                }
                if came.errors > 0 || came.no_room {
                    add(&counters.rx_errors, came.errors);
                    add(&counters.rx_no_buffer, u64::from(came.no_room));
                }
                came.frames
            }
            Err(lie) => {
                self.leave(lie);
                0
            }
        }
    }

    #[cold]
    fn leave(&mut self, lie: Lie) {
        self.forget();
        self.view.shared.accuse(lie);
        self.view.connection = None;
    }

    /// The descriptor that is readable when frames may have come since [`Self::arm`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Called before sleeping: asks the peer for interrupts. `false` when there is something to
    /// receive already: do not sleep.
    pub fn arm(&mut self) -> bool {
        if self.view.is_old() {
            self.renew();
        }
        self.debt.settle(self.view.connection.as_ref(), self.index);
        let Some(line) = self.line() else { return true };
        line.words.want_interrupts(true);
        let sleeps = line.ring.with(|ring| ring.waiting() == Ok(0));
        if !sleeps {
            line.words.want_interrupts(false);
        }
        sleeps
    }

    /// Called after sleeping.
    pub fn disarm(&mut self) {
        if let Some(line) = self.line() {
            line.words.want_interrupts(false);
        }
        let mut events =
            [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 4];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.wake, &mut events[..], Some(&now));
    }
}

/// Waits for edges of an eventfd.
fn watch(set: &OwnedFd, event: &OwnedFd) -> rustix::io::Result<()> {
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(set, event, EventData::new_u64(0), flags)
}

/// The sending end of a queue.
#[derive(Debug)]
pub struct Sender {
    view: View,
    debt: Arc<Debt>,
    index: usize,
}

impl Sender {
    fn new(shared: &Arc<Shared>, debt: Arc<Debt>, index: u16) -> Self {
        Self { view: View::new(shared), debt, index: usize::from(index) }
    }

    /// Sends frames from the front. Returns how many need not be offered again. None without a
    /// peer. One that sleeps is woken at the next call of this or of [`Receiver::receive`], so one
    /// of them has to be called again and again.
    #[inline]
    pub fn send<'a>(&mut self, frames: impl ExactSizeIterator<Item = &'a [u8]>) -> usize {
        if self.view.is_old() {
            self.view.renew();
        }
        self.debt.settle(self.view.connection.as_ref(), self.index);
        let connection = self.view.connection.as_ref();
        let Some(line) = connection.and_then(|connection| connection.tx_line(self.index)) else {
            return 0;
        };
        let sent = line.ring.with(|ring| ring.send(frames));
        let counters = &self.view.shared.counters;
        match sent {
            Ok(sent) => {
                let frames = sent.taken as u64 - sent.errors;
                counters.tx_frames.fetch_add(frames, Ordering::Relaxed);
                counters.tx_bytes.fetch_add(sent.bytes, Ordering::Relaxed);
                if sent.errors > 0 {
                    counters.tx_errors.fetch_add(sent.errors, Ordering::Relaxed);
                }
                if frames > 0 {
                    self.debt.owes.store(true, Ordering::Relaxed);
                }
                sent.taken
            }
            Err(lie) => {
                self.view.shared.accuse(lie);
                self.view.connection = None;
                0
            }
        }
    }
}
