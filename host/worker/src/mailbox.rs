//! Messages between the control side and the workers.
//!
//! Down: a published snapshot, queues of a port that came or shall go, requests to report. Up:
//! events that need somebody who may make system calls. A worker looks into its mailbox between
//! turns; a worker that sleeps is woken through its descriptor.

use crate::capture_point::CapturePoint;
use crate::outbox::Outbox;
use crate::queue::Queue;
use crate::spread::{Ended, SpreadRequest};
use crate::stages::StageCounts;
use crate::worker::Published;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use sluice_director::Reason;
use sluice_director::counters::Counters;
use sluice_director::fib::{LinkId, PortId};
use sluice_director::path::{
    Batch, Elephant, FlowName, Imported, Imports, Restored, SessionFilter, SessionInfo,
};
use sluice_director::plan::RealId;
use sluice_director::spec::NetworkId;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Wakes a thread that sleeps in poll(2): an eventfd that is only written when its owner sleeps.
#[derive(Clone, Debug)]
pub struct Wake(Arc<WakeInner>);

#[derive(Debug)]
struct WakeInner {
    fd: OwnedFd,
    sleeping: AtomicBool,
}

impl Wake {
    /// A new one.
    pub fn new() -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(WakeInner { fd, sleeping: AtomicBool::new(false) })))
    }

    /// Makes the descriptor readable, whether or not anybody sleeps.
    pub fn wake(&self) {
        match rustix::io::write(&self.0.fd, &1u64.to_ne_bytes()) {
            // A full counter is as readable as any.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => debug_assert!(false, "eventfd: {error}"),
        }
    }

    /// Wakes the owner if it sleeps. What was to be seen must be visible before the call.
    #[inline]
    pub fn wake_if_sleeping(&self) {
        // What was written before must not overtake this look: the owner writes `sleeping` and
        // looks for work in the opposite order, and one of the two has to see the other.
        fence(Ordering::SeqCst);
        if self.0.sleeping.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The owner says that it is about to sleep; it must look once more for work before it does.
    pub fn about_to_sleep(&self) {
        self.0.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake; takes back earlier wakes.
    pub fn awake(&self) {
        self.0.sleeping.store(false, Ordering::SeqCst);
        let mut count = [0; 8];
        // Nothing to read is fine.
        let _ = rustix::io::read(&self.0.fd, &mut count);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// A worker's state at one moment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its number.
    pub worker: u16,
    /// Epoch of the plan it runs.
    pub epoch: u64,
    /// The counters of all its networks.
    pub counters: Counters,
    /// Real servers that are full here: each reached this worker's part of its upper limit, and has
    /// not come below that of the lower one since.
    pub full: Vec<RealId>,
    /// Open sessions.
    pub sessions: u32,
    /// The most sessions there can be.
    pub session_capacity: u32,
    /// Half-open sessions among them.
    pub half_open: u32,
    /// Whether these press for room.
    pub pressed: bool,
    /// Bytes of its session tables.
    pub table_bytes: usize,
    /// The pages they lie in.
    pub table_pages: &'static str,
    /// Whether its sessions outlive the process.
    pub kept: bool,
    /// Ends of sessions that other directors were not told of.
    pub untold: u64,
    /// Changes of sessions that wait here to be told to other directors: listed, or in the ring and
    /// not read.
    pub untaken: u64,
    /// Each network by itself, if there is any besides the default one; what is said above is the
    /// sum of all.
    pub networks: Vec<NetworkReport>,
    /// What was carried by virtual ports; nothing of those without traffic.
    pub tunnels: Vec<(PortId, Carried)>,
    /// Frames that wait for a neighbour.
    pub held: usize,
    /// Flows of its that other workers help with.
    pub spread_flows: usize,
    /// Packets that it has dealt to these.
    pub spread_packets: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Turns in which there was nothing to do.
    pub empty_turns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Packets received.
    pub packets: u64,
    /// Times that a port had frames.
    pub bursts: u64,
    /// Where its time went.
    pub stages: StageCounts,
    /// Ticks a second of what that is told in; 0 without a clock.
    pub ticks_per_s: u64,
    /// Milliseconds of its turns with work, over its life.
    pub busy_ms: u64,
    /// Milliseconds of its life.
    pub life_ms: u64,
}

/// What a worker has carried by a virtual port, without the outer headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Frames that came out of the tunnel.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that were put into the tunnel.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
}

/// A network's state at a worker at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkReport {
    /// Which.
    pub network: NetworkId,
    /// Open sessions.
    pub sessions: u32,
    /// The most there can be.
    pub session_capacity: u32,
    /// Half-open ones among them.
    pub half_open: u32,
    /// Whether these press for room.
    pub pressed: bool,
    /// Packets by reason.
    pub reasons: [u64; Reason::COUNT],
}

/// A message to a worker.
pub enum Message<Q: Queue> {
    /// Run with this from now on.
    Publish(Arc<Published>),
    /// A port's queue, and that of its twin, from now on this worker's.
    Attach(PortId, Q, Option<Q>),
    /// The same of several ports, between which packets go: all of them at once.
    AttachAll(Vec<(PortId, Q, Option<Q>)>),
    /// Give up a port's queues and say so.
    Detach(PortId, Sender<u16>),
    /// Say how things stand.
    Report(Sender<Report>),
    /// List sessions from a place on; answered with the place to go on with. Begins at 0; a place
    /// is the number of a network, and in the lower 32 bits a slot of its table.
    Sessions {
        /// Which.
        filter: SessionFilter,
        /// Place to begin with.
        cursor: u64,
        /// Sessions found, and where to go on.
        reply: Sender<(Vec<SessionInfo>, Option<u64>)>,
    },
    /// End sessions from a place on; answered with how many were, and the place to go on with.
    Kill {
        /// Which.
        filter: SessionFilter,
        /// Place to begin with.
        cursor: u64,
        /// Sessions ended, and where to go on.
        reply: Sender<(u32, Option<u64>)>,
    },
    /// Take up sessions of a director that ran before: see [`Path::restore`].
    ///
    /// [`Path::restore`]: sluice_director::path::Path::restore
    Restore {
        /// Where they are.
        network: NetworkId,
        /// Those for this worker.
        batch: Batch,
        /// Whether some may be at workers that their packets do not come to by themselves.
        scattered: bool,
        /// What became of them.
        reply: Sender<Restored>,
    },
    /// Take up sessions that another director has told: see [`Path::import`]. Answered with the
    /// worker and what became of them.
    ///
    /// [`Path::import`]: sluice_director::path::Path::import
    Import {
        /// Where they are.
        network: NetworkId,
        /// Those for this worker.
        batch: Imports,
        /// What became of them.
        reply: Sender<(u16, Imported)>,
    },
    /// Tell what changes from now on, by this.
    TellBy(Outbox),
    /// Tell all sessions, and [`Told::Walked`] with this number.
    ///
    /// [`Told::Walked`]: crate::Told::Walked
    Walk(u64),
    /// List the sessions with the most traffic.
    Elephants {
        /// How many at most.
        limit: usize,
        /// Those there are.
        reply: Sender<Vec<Elephant>>,
    },
    /// Something about flows that are spread.
    Spread(SpreadRequest),
    /// Look out for packets; a capture point that is one too many is given back.
    LookOut(Box<CapturePoint>, Sender<Result<(), Box<CapturePoint>>>),
    /// Give back the capture point with this number, for whoever may take the time to free it.
    LookAway(u64, Sender<Option<Box<CapturePoint>>>),
    /// End the loop.
    Stop,
}

/// Something a worker cannot do itself, or that is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbour's MAC is wanted, on a link of this network.
    Resolve(NetworkId, LinkId, IpAddr),
    /// A packet of so many bytes gets to this remote of a VXLAN port, and none that is longer.
    PathMtu(IpAddr, u16),
    /// A flow of this network is not spread any more.
    SpreadEnded(NetworkId, FlowName, Ended),
}

/// The control side's end of a worker's mailbox.
pub struct Inbox<Q: Queue> {
    sender: Sender<Message<Q>>,
    wake: Wake,
}

impl<Q: Queue> Inbox<Q> {
    /// A mailbox: the end to write to, the end to read from, and what wakes the reader.
    pub fn new() -> std::io::Result<(Self, Receiver<Message<Q>>, Wake)> {
        let (sender, receiver) = channel();
        let wake = Wake::new()?;
        Ok((Self { sender, wake: wake.clone() }, receiver, wake))
    }

    /// Another end to write to.
    pub fn another(&self) -> Self {
        Self { sender: self.sender.clone(), wake: self.wake.clone() }
    }

    /// Leaves a message. `false` when the worker has ended.
    pub fn send(&self, message: Message<Q>) -> bool {
        let sent = self.sender.send(message).is_ok();
        self.wake.wake_if_sleeping();
        sent
    }

    /// What wakes the worker.
    pub const fn wake(&self) -> &Wake {
        &self.wake
    }
}
