//! The thread that speaks on the control sockets, for all links of the process.
//!
//! It never blocks on a peer: sockets are non-blocking, handshakes have a deadline, and few may be
//! under way at a time. It maps and unmaps memory, so that workers do not.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tracing::{info, warn};

use crate::counters::Counters;
use crate::handshake::{Joining, Pending, left};
use crate::link::{Connection, LinkConfig, Role, Shared};
use crate::message::Message;
use crate::negotiation::{Client, Refused, Server, Wish};
use crate::socket::{self, Address};

/// Time from a client's connection to the end of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// The same from ours: it costs nothing, and DPDK's server ends its process when a client leaves
/// that it has not answered yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between attempts of a client to connect.
const RETRY: Duration = Duration::from_millis(250);
/// Time between looks for connections that nobody holds any more.
const CLEANING: Duration = Duration::from_millis(50);
/// Handshakes under way on a server's socket at most.
const MOST_PENDING: usize = 8;
/// Clients of a socket that are accepted in a row, so that one that connects again and again does
/// not keep this thread from the other links.
const MOST_ACCEPTED: usize = 16;

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Hub {
    orders: Mutex<mpsc::Sender<Order>>,
    wake: Arc<OwnedFd>,
}

/// What the thread is told.
enum Order {
    Add(Box<LinkConfig>, Arc<Shared>, SyncSender<io::Result<u64>>),
    Remove(u64, SyncSender<()>),
}

impl Hub {
    /// The process's hub, which is started at the first call.
    pub fn get() -> io::Result<&'static Self> {
        static HUB: OnceLock<Hub> = OnceLock::new();
        static STARTING: Mutex<()> = Mutex::new(());
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = HUB.get() {
            return Ok(hub);
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, inbox) = mpsc::channel();
        let woken = Arc::clone(&wake);
        std::thread::Builder::new()
            .name("memif".into())
            .spawn(move || State::default().run(&inbox, &woken))?;
        Ok(HUB.get_or_init(|| Self { orders: Mutex::new(orders), wake }))
    }

    /// What wakes the thread.
    pub fn wake(&self) -> &Arc<OwnedFd> {
        &self.wake
    }

    fn order(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread lives as long as the process.
        let _ = orders.send(order);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes care of a link from now on. Returns its number.
    pub fn add(&self, config: LinkConfig, shared: Arc<Shared>) -> io::Result<u64> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.order(Order::Add(Box::new(config), shared, reply));
        answer.recv().map_err(io::Error::other)?
    }

    /// Ends a link; its socket is closed when this returns.
    pub fn remove(&self, number: u64) {
        let (reply, answer) = mpsc::sync_channel(1);
        self.order(Order::Remove(number, reply));
        let _ = answer.recv();
    }
}

/// A link and where it stands.
pub(crate) struct Entry {
    pub config: LinkConfig,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    pub phase: Phase,
}

/// Where a link stands.
pub(crate) enum Phase {
    /// A server waits for a client; a client tries again at the moment given.
    Alone(Instant),
    /// A client's handshake.
    Joining(Box<Joining>),
    /// A peer is there.
    Joined(OwnedFd),
}

#[derive(Default)]
struct State {
    last: u64,
    links: HashMap<u64, Entry>,
    listeners: HashMap<Address, OwnedFd>,
    pending: Vec<Pending>,
    /// Connections that ended, until no queue holds them.
    retired: Vec<Arc<Connection>>,
}

/// What a descriptor that became readable belongs to.
#[derive(Clone, Copy)]
enum Source {
    Wake,
    Listener,
    Pending,
    Link,
}

impl State {
    fn run(mut self, inbox: &mpsc::Receiver<Order>, wake: &OwnedFd) {
        loop {
            let ready = self.wait(wake);
            if ready.contains(&(Source::Wake as u8)) {
                let _ = rustix::io::read(wake, &mut [0; 8]);
            }
            while let Ok(order) = inbox.try_recv() {
                self.obey(order);
            }
            self.accept();
            self.negotiate();
            self.listen_to_links();
            self.retired.retain(|connection| Arc::strong_count(connection) > 1);
        }
    }

    /// Sleeps until there is something to do; says of what kind.
    fn wait(&self, wake: &OwnedFd) -> Vec<u8> {
        let sockets = self.links.values().filter_map(|entry| match &entry.phase {
            Phase::Joined(socket) => Some(socket),
            Phase::Joining(joining) => Some(&joining.socket),
            Phase::Alone(_) => None,
        });
        let all = std::iter::once((wake, Source::Wake))
            .chain(self.listeners.values().map(|socket| (socket, Source::Listener)))
            .chain(self.pending.iter().map(|one| (&one.socket, Source::Pending)))
            .chain(sockets.map(|socket| (socket, Source::Link)));
        let (mut fds, sources): (Vec<_>, Vec<_>) = all
            .map(|(fd, source)| (PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN), source))
            .unzip();
        let now = Instant::now();
        let longest = self.deadlines(now).map(|at| at.saturating_duration_since(now)).min();
        let timeout = longest.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready = fds.iter().zip(sources).filter(|(fd, _)| !fd.revents().is_empty());
        ready.map(|(_, source)| source as u8).collect()
    }

    /// The moments at which something has to be done unasked.
    fn deadlines(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let links = self.links.values().filter_map(|entry| match &entry.phase {
            Phase::Alone(at) if entry.config.role == Role::Client => Some(*at),
            Phase::Joining(joining) => Some(joining.deadline),
            _ => None,
        });
        let cleaning = (!self.retired.is_empty()).then(|| now + CLEANING);
        links.chain(self.pending.iter().map(|one| one.deadline)).chain(cleaning)
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Add(config, shared, reply) => {
                let _ = reply.send(self.add(*config, shared));
            }
            Order::Remove(number, reply) => {
                self.remove(number);
                let _ = reply.send(());
            }
        }
    }

    fn add(&mut self, config: LinkConfig, shared: Arc<Shared>) -> io::Result<u64> {
        let same = |other: &Entry| {
            (other.config.role, other.config.id) == (Role::Server, config.id)
                && other.config.socket == config.socket
        };
        if config.role == Role::Server {
            if self.links.values().any(same) {
                let text = format!("id {} of {} is in use", config.id, config.socket);
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            if !self.listeners.contains_key(&config.socket) {
                let socket = config.socket.listen()?;
                self.listeners.insert(config.socket.clone(), socket);
            }
        }
        self.last += 1;
        let (counters, phase) = (shared.counters.add(), Phase::Alone(Instant::now()));
        self.links.insert(self.last, Entry { config, shared, counters, phase });
        Ok(self.last)
    }

    fn remove(&mut self, number: u64) {
        let Some(mut entry) = self.links.remove(&number) else { return };
        let left = entry.end("the port was closed");
        self.retired.extend(left);
        let address = &entry.config.socket;
        let used = self
            .links
            .values()
            .any(|other| other.config.role == Role::Server && other.config.socket == *address);
        if entry.config.role == Role::Server && !used {
            self.listeners.remove(address);
            address.remove();
            self.pending.retain(|one| one.address != *address);
        }
    }

    /// Takes clients that wait.
    fn accept(&mut self) {
        for (address, listener) in &self.listeners {
            for socket in std::iter::from_fn(|| socket::accept(listener)).take(MOST_ACCEPTED) {
                let under_way = self.pending.iter().filter(|one| one.address == *address).count();
                if under_way >= MOST_PENDING {
                    // Closed: the client tries again.
                    continue;
                }
                let of_it = self.links.values().filter(|entry| {
                    entry.config.role == Role::Server && entry.config.socket == *address
                });
                let Some(widest) = of_it.map(|entry| entry.config.limits()).reduce(|a, b| {
                    crate::negotiation::Limits {
                        rings: a.rings.max(b.rings),
                        log2: a.log2.max(b.log2),
                    }
                }) else {
                    continue;
                };
                let (server, hello) = Server::new("sluice", widest);
                if socket::send(&socket, &hello, None).is_ok() {
                    let deadline = Instant::now() + HANDSHAKE;
                    let address = address.clone();
                    self.pending.push(Pending { socket, server, address, deadline });
                }
            }
        }
    }

    /// Goes on with clients' handshakes.
    fn negotiate(&mut self) {
        let now = Instant::now();
        let mut at = 0;
        while let Some(one) = self.pending.get_mut(at) {
            let result = if one.deadline <= now {
                Err(Refused("the handshake took too long".into()))
            } else {
                one.go_on(&self.links)
            };
            match result {
                Ok(None) => at += 1,
                Ok(Some((number, connection))) => {
                    let one = self.pending.swap_remove(at);
                    if let Some(entry) = self.links.get_mut(&number) {
                        entry.join(one.socket, connection);
                    }
                }
                Err(refused) => {
                    let one = self.pending.swap_remove(at);
                    let text = refused.to_string();
                    warn!(socket = %one.address, reason = text, "a memif client was refused");
                    // It may have left.
                    let _ = socket::send(&one.socket, &Message::Disconnect { code: 1, text }, None);
                }
            }
        }
    }

    /// Looks at each link: whether its peer left, whether it is time to connect.
    fn listen_to_links(&mut self) {
        let now = Instant::now();
        for entry in self.links.values_mut() {
            let result = match &mut entry.phase {
                Phase::Alone(at) => {
                    if entry.config.role == Role::Client && *at <= now {
                        entry.connect(now);
                    }
                    continue;
                }
                Phase::Joining(joining) if joining.deadline <= now => {
                    Err(Refused("the server does not answer".into()))
                }
                Phase::Joining(joining) => match joining.go_on(&entry.config) {
                    Ok(None) => continue,
                    Ok(Some(connection)) => {
                        let alone = Phase::Alone(now);
                        if let Phase::Joining(joining) = std::mem::replace(&mut entry.phase, alone)
                        {
                            entry.join(joining.socket, connection);
                        }
                        continue;
                    }
                    Err(refused) => Err(refused),
                },
                Phase::Joined(_) if entry.shared.has_lied() => {
                    Err(Refused("what it wrote into shared memory cannot be".into()))
                }
                Phase::Joined(socket) => hear(socket),
            };
            if let Err(refused) = result {
                let left = entry.end(&refused.0);
                self.retired.extend(left);
            }
        }
    }
}

/// Hears a peer that is connected: it has nothing to say but that it leaves.
fn hear(socket: &OwnedFd) -> Result<(), Refused> {
    match socket::receive(socket)? {
        None => Ok(()),
        Some((Message::Disconnect { text, .. }, _)) => Err(Refused(left(&text))),
        Some((message, _)) => Err(Refused(format!("{} after the handshake", message.name()))),
    }
}

impl Entry {
    /// Begins to connect.
    fn connect(&mut self, now: Instant) {
        match self.config.socket.connect() {
            Ok(socket) => {
                let LinkConfig { name, id, mode, secret, .. } = self.config.clone();
                let mode = mode.number();
                let wish = Wish { name, id, mode, secret, limits: self.config.limits() };
                self.phase = Phase::Joining(Box::new(Joining {
                    socket,
                    client: Client::new(wish),
                    shares: None,
                    deadline: now + PATIENCE,
                }));
            }
            Err(error) => {
                let why = format!("cannot connect to {}: {error}", self.config.socket);
                self.alone(now, &why);
            }
        }
    }

    fn alone(&mut self, now: Instant, why: &str) {
        self.phase = Phase::Alone(now + RETRY);
        if self.shared.explain(why) {
            let LinkConfig { name, socket, id, .. } = &self.config;
            warn!(port = name, %socket, id, reason = why, "memif has no peer");
        }
    }

    /// A peer is there.
    fn join(&mut self, socket: OwnedFd, connection: Connection) {
        let LinkConfig { name, id, .. } = &self.config;
        let (rx, tx) = (connection.rx.len(), connection.tx.len());
        info!(port = name, id, peer = connection.peer, rx_rings = rx, tx_rings = tx, "memif is up");
        self.counters.connects.add(1);
        self.shared.explain("");
        self.phase = Phase::Joined(socket);
        self.shared.replace(Some(Arc::new(connection)));
    }

    /// The peer is gone, or to go. Returns the connection that ends.
    fn end(&mut self, why: &str) -> Option<Arc<Connection>> {
        let before = std::mem::replace(&mut self.phase, Phase::Alone(Instant::now()));
        let socket = match before {
            Phase::Joined(socket) => Some(socket),
            Phase::Joining(joining) => Some(joining.socket),
            Phase::Alone(_) => None,
        };
        if let Some(socket) = socket {
            let text = why.to_owned();
            let _ = socket::send(&socket, &Message::Disconnect { code: 0, text }, None);
        }
        self.alone(Instant::now(), why);
        self.shared.replace(None)
    }
}
