//! A socket on a queue of an interface: opening it, its system calls and its counters.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::debug;

use crate::adopt::Rings;
use crate::frames::Frames;
use crate::memory::{Mapping, Memory};
use crate::receive::Receiver;
use crate::ring::{Consumer, Producer};
use crate::send::Sender;

// Not in the libc crate: linux/if_xdp.h and asm-generic/socket.h.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const SO_BUSY_POLL: libc::c_int = 46;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Bytes that the kernel keeps free in front of a received packet.
const HEADROOM: u32 = 256;
/// Frames that the kernel sends by one call in copy mode, where it lets one choose (Linux 6.17).
const SENDS_AT_ONCE: u32 = 256;
/// Bytes that may be on their way out, as the kernel counts.
const SOCKET_ROOM: libc::c_int = 32 << 20;
/// How long a socket that was closed before may still be bound to the queue.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a call of the preferred busy polling looks, in microseconds.
const BUSY_POLL_US: libc::c_int = 20;

/// How a queue is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// The interface's index.
    pub interface: u32,
    /// The queue's number.
    pub queue: u32,
    /// Descriptors of each ring, a power of two.
    pub ring: u32,
    /// Bytes of the largest packet with its Ethernet header and tags.
    pub largest: u32,
    /// Whether to use huge pages, if there are enough.
    pub huge_pages: bool,
    /// Packets of a round of preferred busy polling; `None`: the kernel's interrupts deliver.
    pub busy_poll: Option<u16>,
}

impl QueueConfig {
    /// Whether a packet may need several frames; needs Linux 6.6 and a program that can have such
    /// packets.
    pub const fn spreads(&self) -> bool {
        self.frame().1
    }

    /// Bytes of a frame, and whether a packet may need several.
    const fn frame(&self) -> (u32, bool) {
        match self.largest + HEADROOM {
            0..=2048 => (2048, false),
            2049..=4096 => (4096, false),
            _ => (4096, true),
        }
    }
}

/// How a queue is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Whether the driver reads and writes frames itself; otherwise the kernel copies them.
    pub zero_copy: bool,
    /// Whether a packet may be spread over several frames.
    pub spreads: bool,
    /// Whether frames lie in huge pages.
    pub huge_pages: bool,
}

/// What a queue carried since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames that were received.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that the kernel had for this queue and no room to put.
    pub rx_missed: u64,
    /// Frames that did not fit a packet buffer, or were none.
    pub rx_errors: u64,
    /// Times that frames had to wait for want of packet buffers.
    pub rx_no_buffer: u64,
    /// Frames that were sent.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that cannot be sent: too short or too long.
    pub tx_errors: u64,
}

/// Counters, each written by one thread only.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub rx_frames: AtomicU64,
    pub rx_bytes: AtomicU64,
    pub rx_errors: AtomicU64,
    pub rx_no_buffer: AtomicU64,
    pub tx_frames: AtomicU64,
    pub tx_bytes: AtomicU64,
    pub tx_errors: AtomicU64,
}

/// Adds to a counter that no other thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// What the ends of a queue and its owner have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub socket: Socket,
    pub counters: Counters,
    pub memory: Arc<Memory>,
    /// The frames that the sending end had when it was dropped.
    pub left: Mutex<Option<Vec<u32>>>,
}

/// What the kernel said when it was told to send.
pub(crate) enum Told {
    /// It has sent what there was, or does so meanwhile.
    Done,
    /// Frames are left: tell it again.
    Again,
    /// It cannot now.
    Never,
}

/// An open queue. The ends are handed out when it is opened.
#[derive(Debug)]
pub struct Queue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) kind: Kind,
    /// Descriptors of each ring, bytes of a frame, and whether the driver is polled.
    pub(crate) sizes: (u32, u32, bool),
}

impl Queue {
    /// Opens the queue. Nothing is received before a program gives packets to [`Self::fd`].
    ///
    /// # Errors
    /// When the process may not, the interface is not there, or another socket has the queue.
    pub fn open(config: &QueueConfig) -> io::Result<(Self, Receiver, Sender)> {
        let (bytes, spreads) = config.frame();
        let count = config.ring;
        let length = 2 * count as usize * bytes as usize;
        let memory = Arc::new(Memory::new(length, config.huge_pages)?);
        let socket = Socket::new()?;
        socket.register(&memory, length, bytes)?;
        for option in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            socket.set(libc::SOL_XDP, option, &count)?;
        }
        socket.tune(config);
        let Rings { rx, mut fill, tx, completion } = socket.rings(count)?;
        // Before it is bound: a driver may look for frames to receive into at once.
        let mut frames = Frames::new(&memory, 0, count, bytes);
        let mut lent = 0;
        while let Some((address, _)) = frames.lend() {
            fill.put(lent, address);
            lent += 1;
        }
        fill.submit(lent);
        socket.bind(config, spreads)?;
        let kind = Kind { zero_copy: socket.is_zero_copy(), spreads, huge_pages: memory.huge };
        debug!(?config, ?kind, "an AF_XDP socket is bound");
        let (counters, left) = (Counters::default(), Mutex::new(None));
        let shared = Arc::new(Shared { socket, counters, memory: Arc::clone(&memory), left });
        let busy_poll = config.busy_poll.is_some();
        let receiver = Receiver { shared: Arc::clone(&shared), rx, fill, frames, busy_poll };
        let frames = Frames::new(&memory, count, count, bytes);
        let to = Arc::clone(&shared);
        let sender = Sender { shared: to, tx, completion, frames, spreads, owes: false };
        Ok((Self { shared, kind, sizes: (count, bytes, busy_poll) }, receiver, sender))
    }

    /// The socket's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.socket.as_fd()
    }

    /// How it is served.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What it carried.
    pub fn stats(&self) -> Stats {
        let Counters {
            rx_frames,
            rx_bytes,
            rx_errors,
            rx_no_buffer,
            tx_frames,
            tx_bytes,
            tx_errors,
        } = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            rx_frames: read(rx_frames),
            rx_bytes: read(rx_bytes),
            rx_missed: self.shared.socket.missed(),
            rx_errors: read(rx_errors),
            rx_no_buffer: read(rx_no_buffer),
            tx_frames: read(tx_frames),
            tx_bytes: read(tx_bytes),
            tx_errors: read(tx_errors),
        }
    }
}

const RX: u64 = libc::XDP_PGOFF_RX_RING as u64;
const TX: u64 = 0x8000_0000;

/// The socket.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl Socket {
    fn new() -> io::Result<Self> {
        // SAFETY: opens a socket, owned at once.
        unsafe {
            let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    fn fd(&self) -> libc::c_int {
        self.0.as_raw_fd()
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: the value has the length given, and the kernel copies it.
        let status = unsafe {
            let length = size_of::<T>() as libc::socklen_t;
            libc::setsockopt(self.fd(), level, option, ptr::from_ref(value).cast(), length)
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Asks for a structure of plain integers; the kernel may know a shorter one.
    fn get<T: Copy>(&self, option: libc::c_int, value: &mut T) -> io::Result<usize> {
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most as many bytes as the value has, and any are valid.
        let status = unsafe {
            let value = ptr::from_mut(value).cast();
            libc::getsockopt(self.fd(), libc::SOL_XDP, option, value, &mut length)
        };
        if status == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes memory the socket's packet memory.
    fn register(&self, memory: &Memory, length: usize, bytes: u32) -> io::Result<()> {
        let memory = libc::xdp_umem_reg {
            addr: memory.map.start() as u64,
            len: length as u64,
            chunk_size: bytes,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)
    }

    fn offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        const NONE: libc::xdp_ring_offset =
            libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
        let mut offsets = libc::xdp_mmap_offsets { rx: NONE, tx: NONE, fr: NONE, cr: NONE };
        match self.get(libc::XDP_MMAP_OFFSETS, &mut offsets)? {
            len if len == size_of::<libc::xdp_mmap_offsets>() => Ok(offsets),
            // Linux before 5.4 knows no flags.
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "Linux 5.4 or later is needed")),
        }
    }

    /// Maps all rings, of so many entries, as they are.
    pub fn rings(&self, count: u32) -> io::Result<Rings> {
        let offsets = self.offsets()?;
        let fill = self.ring::<u64>(libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, count)?;
        let done = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let done = self.ring::<u64>(done, &offsets.cr, count)?;
        let rx = self.ring::<libc::xdp_desc>(RX, &offsets.rx, count)?;
        let tx = self.ring::<libc::xdp_desc>(TX, &offsets.tx, count)?;
        Ok(Rings {
            rx: Consumer::new(rx, &offsets.rx, count)?,
            fill: Producer::new(fill, &offsets.fr, count)?,
            tx: Producer::new(tx, &offsets.tx, count)?,
            completion: Consumer::new(done, &offsets.cr, count)?,
        })
    }

    /// Maps a ring of entries of type `T`.
    fn ring<T>(
        &self,
        place: u64,
        offsets: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Mapping> {
        let length = offsets.desc as usize + count as usize * size_of::<T>();
        Mapping::of(self.as_fd(), length, place)
    }

    /// Sets what is good to have; everything works without.
    fn tune(&self, config: &QueueConfig) {
        let _ = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SOCKET_ROOM);
        let at_once = SENDS_AT_ONCE.min(config.ring);
        let _ = self.set(libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &at_once);
        let Some(budget) = config.busy_poll else { return };
        let options = [
            (SO_PREFER_BUSY_POLL, 1),
            (SO_BUSY_POLL, BUSY_POLL_US),
            (SO_BUSY_POLL_BUDGET, libc::c_int::from(budget)),
        ];
        for (option, value) in options {
            if let Err(error) = self.set(libc::SOL_SOCKET, option, &value) {
                debug!(%error, option, "no preferred busy polling");
            }
        }
    }

    /// Binds to the queue: without copies if the driver can, else with.
    fn bind(&self, config: &QueueConfig, spreads: bool) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | if spreads { libc::XDP_USE_SG } else { 0 },
            sxdp_ifindex: config.interface,
            sxdp_queue_id: config.queue,
            sxdp_shared_umem_fd: 0,
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            // SAFETY: the address has the length given.
            let status = unsafe {
                let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
                libc::bind(self.fd(), ptr::from_ref(&address).cast(), length)
            };
            if status == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            // A closed socket leaves its queue a little later.
            if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > deadline {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_zero_copy(&self) -> bool {
        let mut options = libc::xdp_options { flags: 0 };
        let asked = self.get(libc::XDP_OPTIONS, &mut options);
        asked.is_ok() && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
    }

    /// Frames that were for this socket and got lost in front of it.
    fn missed(&self) -> u64 {
        let mut stats = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        // What the kernel did not say stays 0.
        let _ = self.get(libc::XDP_STATISTICS, &mut stats);
        stats.rx_dropped + stats.rx_ring_full
    }

    /// Has the driver receive.
    pub fn receive_now(&self) {
        // SAFETY: no memory is named. The call does not block.
        unsafe {
            let (none, flags) = (ptr::null_mut(), libc::MSG_DONTWAIT);
            libc::recvfrom(self.fd(), none, 0, flags, ptr::null_mut(), ptr::null_mut());
        }
    }

    /// Has the driver send.
    pub fn send_now(&self) -> Told {
        // SAFETY: no memory is named. The call does not block.
        let status =
            unsafe { libc::sendto(self.fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if status >= 0 {
            return Told::Done;
        }
        match io::Error::last_os_error().raw_os_error() {
            // In this order: more are left; a frame was dropped behind the socket; a signal.
            Some(libc::EAGAIN | libc::EBUSY | libc::EINTR) => Told::Again,
            _ => Told::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_fits_its_frame_or_is_spread() {
        let config = |largest| QueueConfig {
            interface: 1,
            queue: 0,
            ring: 2048,
            largest,
            huge_pages: false,
            busy_poll: None,
        };
        for (largest, frame) in [(1522, (2048, false)), (1792, (2048, false))] {
            assert_eq!(config(largest).frame(), frame);
            assert!(largest + HEADROOM <= frame.0);
        }
        assert_eq!(config(1793).frame(), (4096, false));
        assert_eq!(config(4096 - HEADROOM).frame(), (4096, false));
        assert_eq!(config(4096 - HEADROOM + 1).frame(), (4096, true));
    }
}
