//! A queue that another process opened: its socket and its packet memory, by their descriptors.
//!
//! The kernel goes on receiving into the rings while nobody reads them, so that nothing is lost
//! from the moment when one process stops until another goes on, as long as the rings have room.
//!
//! Invariant: one process at a time uses the rings. The other one has dropped the queue's ends
//! before [`Queue::adopt`] is called, and says which frames for sending were its own then
//! ([`Queue::left`]). Frames for receiving are all lent at any such moment: what is taken back is
//! lent again at once. The process is trusted as the kernel is: it is our own predecessor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::frames::Frames;
use crate::memory::{Mapping, Memory};
use crate::receive::Receiver;
use crate::ring::{Consumer, Producer};
use crate::send::Sender;
use crate::socket::{Counters, Kind, Queue, Shared, Socket};

/// How a queue was opened, for another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Descriptors of each ring.
    pub ring: u32,
    /// Bytes of a frame.
    pub frame: u32,
    /// Whether a packet may be spread over several frames.
    pub spreads: bool,
    /// Whether the driver reads and writes frames itself.
    pub zero_copy: bool,
    /// Whether frames lie in huge pages.
    pub huge_pages: bool,
    /// Whether the driver is polled.
    pub busy_poll: bool,
}

/// What another process gets of a queue at first: nothing that changes.
#[derive(Debug)]
pub struct Heirloom {
    opened: Opened,
    socket: Socket,
    memory: Arc<Memory>,
}

impl Heirloom {
    /// Maps the memory of a queue. The rings are not touched.
    ///
    /// # Errors
    /// When the memory is not what the queue was opened with, or cannot be mapped.
    pub fn new(opened: Opened, socket: OwnedFd, memory: OwnedFd) -> io::Result<Self> {
        let size = opened.ring.is_power_of_two() && opened.frame.is_power_of_two();
        let length = 2 * opened.ring as usize * opened.frame as usize;
        if !size || length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = Memory::adopt(memory, length, opened.huge_pages)?;
        Ok(Self { opened, socket: Socket::from(socket), memory: Arc::new(memory) })
    }

    /// The socket's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Queue {
    /// How it was opened, and the descriptors of its socket and of its memory.
    pub fn offer(&self) -> (Opened, [BorrowedFd<'_>; 2]) {
        let Shared { socket, memory, .. } = &*self.shared;
        let Kind { zero_copy, spreads, huge_pages } = self.kind;
        let (ring, frame, busy_poll) = self.sizes;
        let opened = Opened { ring, frame, spreads, zero_copy, huge_pages, busy_poll };
        (opened, [socket.as_fd(), memory.file.as_fd()])
    }

    /// The frames for sending that were not lent when the sending end was dropped. `None` before.
    pub fn left(&self) -> Option<Vec<u32>> {
        self.shared.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Goes on with a queue from where another process stopped, which has left these frames
    /// ([`Self::left`]).
    ///
    /// # Errors
    /// When the rings cannot be mapped.
    pub fn adopt(from: Heirloom, left: &[u32]) -> io::Result<(Self, Receiver, Sender)> {
        let Heirloom { opened, socket, memory } = from;
        let Opened { ring: count, frame: bytes, spreads, zero_copy, huge_pages, busy_poll } =
            opened;
        let rings = socket.rings(count)?;
        let shared = Shared {
            socket,
            counters: Counters::default(),
            memory: Arc::clone(&memory),
            left: Mutex::new(None),
        };
        let shared = Arc::new(shared);
        let frames = Frames::lent_but(&memory, 0, count, (bytes, &[]));
        let mut receiver = Receiver {
            shared: Arc::clone(&shared),
            rx: rings.rx,
            fill: rings.fill,
            frames,
            busy_poll,
        };
        receiver.refill();
        let frames = Frames::lent_but(&memory, count, count, (bytes, left));
        // What was put into the ring may not have been told of.
        let sender = Sender {
            shared: Arc::clone(&shared),
            tx: rings.tx,
            completion: rings.completion,
            frames,
            spreads,
            owes: true,
        };
        let kind = Kind { zero_copy, spreads, huge_pages };
        debug!(?opened, left = left.len(), "an AF_XDP socket is taken over");
        Ok((Self { shared, kind, sizes: (count, bytes, busy_poll) }, receiver, sender))
    }
}

impl Memory {
    /// Maps memory that another process has made.
    fn adopt(file: OwnedFd, len: usize, huge: bool) -> io::Result<Self> {
        // SAFETY: all zero bytes are a valid answer, which the kernel overwrites.
        let size = unsafe {
            let mut about: libc::stat = std::mem::zeroed();
            if libc::fstat(file.as_raw_fd(), &mut about) < 0 {
                return Err(io::Error::last_os_error());
            }
            about.st_size
        };
        // Beyond its end there is nothing that could be touched.
        if usize::try_from(size).is_ok_and(|size| size >= len) {
            let map = Mapping::of(file.as_fd(), size as usize, 0)?;
            return Ok(Self { map, huge, file });
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "packet memory is too short"))
    }
}

/// The four rings of a socket.
pub(crate) struct Rings {
    pub rx: Consumer<crate::ring::Descriptor>,
    pub fill: Producer<u64>,
    pub tx: Producer<crate::ring::Descriptor>,
    pub completion: Consumer<u64>,
}
