//! The two ends of a port that a worker holds.
//!
//! Invariant: for each (port, queue, direction) there is at most one handle, made by
//! [`crate::Port::open`], and its methods take `&mut self`; so no two threads are in the same queue
//! at once, which is what DPDK's drivers demand. A handle keeps its device open.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrayvec::ArrayVec;
use sluice_dpdk_sys as sys;
use sluice_lanes::prefetch;

use crate::eal::Eal;
use crate::ends::{RxEnd, Shelf, TxEnd};
use crate::finish::{self, Finisher};
use crate::mbuf::Mbuf;
use crate::packet::Intake;
use crate::pool::FramePool;
use crate::port::OpenDevice;

/// Most frames of one poll of a socket.
pub const BURST: usize = 64;
/// As many frames or more may be all that a driver gives at once, although others wait: the
/// vectorised ones have such a limit.
const MORE: usize = 32;

/// The frames of one poll of a socket.
pub type Burst = ArrayVec<Mbuf, BURST>;

/// The receive and the transmit queue of the same index, for one worker.
#[derive(Debug)]
pub struct QueuePair {
    /// Frames come from here.
    pub rx: RxQueue,
    /// Frames go here.
    pub tx: TxQueue,
}

/// A receive queue.
#[derive(Debug)]
pub struct RxQueue {
    device: Arc<OpenDevice>,
    index: u16,
    /// DPDK's numbers, of the device and in it.
    end: (u16, u16),
    wake: Option<RawFd>,
    chains_dropped: u64,
    /// Where a TAP interface's frames are read into, and spare frames are from; DPDK's devices
    /// have their own handle on it.
    pool: FramePool,
    /// Polls that found nothing.
    idle: u32,
    /// Where unfinished frames are received, if the device has any.
    intake: Option<Box<Intake>>,
    /// The end of a memif or an AF_XDP socket of our own, and buffers for it.
    own: Option<Box<(RxEnd, Shelf)>>,
    /// Where spare frames are from that do not fit the others' buffers.
    large: Option<FramePool>,
}

impl RxQueue {
    /// Its index among the port's queues.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Frames that came in several buffers and did not fit one; they were dropped.
    pub fn chains_dropped(&self) -> u64 {
        self.chains_dropped
    }

    /// Appends the frames that wait in the queue, as many as the vector still has room for.
    /// Returns how many. Never blocks; returns 0 once the interface behind the port has vanished.
    #[inline]
    pub fn rx<const N: usize>(&mut self, frames: &mut ArrayVec<Mbuf, N>) -> usize {
        let len = frames.len();
        let room = frames.remaining_capacity();
        match &*self.device {
            OpenDevice::Ethdev(_) => {}
            OpenDevice::Memif(_) | OpenDevice::Xdp(_) => {
                let Some(own) = &mut self.own else { return 0 };
                let (end, shelf) = &mut **own;
                return shelf.receive(end, frames, room);
            }
            OpenDevice::Packet(packet) => {
                let Some(intake) = &mut self.intake else { return 0 };
                return packet.rx(self.index, intake, frames, room.min(BURST));
            }
            OpenDevice::Tap(tap) => {
                let into = (self.pool, self.intake.as_deref_mut());
                return tap.rx(self.index, into, &mut self.idle, frames, room.min(BURST));
            }
        }
        let (device, queue) = self.end;
        // SAFETY: the device is open (`self.device`) and nobody else is in this queue (the
        // module's invariant). An `Mbuf` is one pointer (`repr(transparent)`), the slots from
        // `len` on are within the capacity, and only those that were filled are taken over.
        // A driver hands over buffers with one owner whose data lies inside them; chains are
        // dealt with before anybody can see them.
        let count = unsafe {
            let slots = frames.as_mut_ptr().add(len).cast::<*mut sys::Mbuf>();
            let mut count = 0;
            loop {
                let asked = (room - count).min(usize::from(u16::MAX)) as u16;
                let got = sys::sluice_rx_burst(device, queue, slots.add(count), asked);
                count += usize::from(got);
                if usize::from(got) < MORE || count == room {
                    break;
                }
            }
            for slot in 0..count {
                prefetch::at((*slots.add(slot)).cast());
            }
            frames.set_len(len + count);
            count
        };
        if frames[len..].iter().any(|frame| frame.segments() != 1) {
            return self.join_chains(frames, len);
        }
        count
    }

    /// Joins each chain into its first buffer, and drops the frames that do not fit.
    #[cold]
    fn join_chains<const N: usize>(
        &mut self,
        frames: &mut ArrayVec<Mbuf, N>,
        from: usize,
    ) -> usize {
        let mut kept = ArrayVec::<Mbuf, N>::new();
        for frame in frames.drain(from..) {
            let raw = frame.into_raw();
            // SAFETY: the buffer was ours. A successful call leaves one buffer without a chain;
            // otherwise the whole chain is freed and not used again.
            unsafe {
                if sys::sluice_frame_linearize(raw.as_ptr()) == 0 {
                    kept.push(Mbuf::from_raw(raw));
                } else {
                    let mut chain = raw.as_ptr();
                    sys::sluice_frames_free(&mut chain, 1);
                    self.chains_dropped += 1;
                }
            }
        }
        let count = kept.len();
        frames.extend(kept);
        count
    }

    /// An empty frame from where the port's received frames are from; `None` when there is none
    /// free.
    pub fn spare(&self) -> Option<Mbuf> {
        self.large.unwrap_or(self.pool).alloc()
    }

    /// A descriptor that poll(2) and epoll(7), level-triggered, find readable while frames wait in
    /// this queue. `None` when the device has none: then a worker can only look.
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the driver keeps the descriptor open as long as the device is, which is at least
        // as long as the borrow of `self`.
        let device = self.wake.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        device.or_else(|| Some(self.own.as_ref()?.0.wake_fd()))
    }

    /// Called before waiting on [`Self::wake_fd`], and [`Self::disarm`] after it. `false` when
    /// there are frames already: do not wait.
    pub fn arm(&mut self) -> bool {
        self.own.as_mut().is_none_or(|own| !own.0.is_busy() && own.0.arm())
    }

    /// Called after waiting on [`Self::wake_fd`].
    pub fn disarm(&mut self) {
        if let Some(own) = &mut self.own {
            own.0.disarm();
        }
    }

    /// The error that makes poll(2) report `POLLERR` on [`Self::wake_fd`], taken from the socket.
    /// Any is a sign that the interface vanished: stop waiting on the descriptor, it may report
    /// the error again at once.
    pub fn take_wake_error(&mut self) -> Option<io::Error> {
        let fd = self.wake_fd()?.as_raw_fd();
        let mut error: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the descriptor is open (see `wake_fd`) and the buffer has the length given.
        let status = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                ptr::from_mut(&mut error).cast(),
                &mut length,
            )
        };
        match (status, error) {
            (0, 0) => None,
            (0, code) => Some(io::Error::from_raw_os_error(code)),
            _ => Some(io::Error::last_os_error()),
        }
    }
}

/// A transmit queue.
#[derive(Debug)]
pub struct TxQueue {
    device: Arc<OpenDevice>,
    index: u16,
    /// DPDK's numbers, of the device and in it.
    end: (u16, u16),
    /// The end of a memif or an AF_XDP socket of our own.
    own: Option<Box<TxEnd>>,
    /// For unfinished frames, if there are any in the process and the device takes none.
    finisher: Option<Finisher>,
}

impl TxQueue {
    /// Its index among the port's queues.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Lets go of what a memif's peer left behind, and sends what the kernel had no room for; to be
    /// called where nothing is sent.
    #[inline]
    pub fn refresh(&mut self) {
        if let Some(own) = &mut self.own {
            own.refresh();
        }
    }

    /// Whether frames that were taken are still being copied: go on calling [`Self::refresh`] or
    /// [`Self::tx`], and do not sleep.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.is_busy())
    }

    /// Hands frames to the device, from the front, and removes them from the vector. Returns how
    /// many. The rest stays, in order: the queue is full, or the interface has vanished. Whoever
    /// calls decides whether to try again or to drop them, and counts.
    #[inline]
    pub fn tx<const N: usize>(&mut self, frames: &mut ArrayVec<Mbuf, N>) -> usize {
        match &self.finisher {
            Some(finisher) if finish::is_due(frames) => {
                let (device, ends) = (&*self.device, (self.index, self.end));
                finisher.tx(frames, |frames| {
                    give(device, ends, self.own.as_deref_mut(), frames);
                })
            }
            _ => {
                let own = self.own.as_deref_mut();
                give(&self.device, (self.index, self.end), own, frames)
            }
        }
    }
}

/// Hands frames to a device as they are.
#[inline]
fn give<const N: usize>(
    device: &OpenDevice,
    (index, end): (u16, (u16, u16)),
    own: Option<&mut TxEnd>,
    frames: &mut ArrayVec<Mbuf, N>,
) -> usize {
    match device {
        OpenDevice::Ethdev(_) => {}
        OpenDevice::Memif(_) | OpenDevice::Xdp(_) => {
            return own.map_or(0, |end| end.send(frames));
        }
        OpenDevice::Packet(packet) => return packet.tx(index, frames),
        OpenDevice::Tap(tap) => return tap.tx(index, frames),
    }
    let (device, queue) = end;
    let len = frames.len();
    let asked = len.min(usize::from(u16::MAX)) as u16;
    // SAFETY: the device is open, and nobody else is in this queue (the module's invariant: only
    // [`TxQueue::tx`] calls this). An `Mbuf` is one pointer (`repr(transparent)`). The driver owns
    // the first `sent` buffers afterwards: they leave the vector without being dropped, and the
    // rest moves to the front.
    unsafe {
        let start = frames.as_mut_ptr();
        let mut sent = 0;
        // Some drivers take so many at once and no more.
        while sent < asked {
            let more = sys::sluice_tx_burst(
                device,
                queue,
                start.add(usize::from(sent)).cast(),
                asked - sent,
            );
            sent += more;
            if more == 0 {
                break;
            }
        }
        let sent = usize::from(sent);
        frames.set_len(0);
        if sent < len {
            ptr::copy(start.add(sent), start, len - sent);
            frames.set_len(len - sent);
        }
        sent
    }
}

/// What the handles of a port's queues are made of.
pub(crate) struct Made<'a> {
    pub device: &'a Arc<OpenDevice>,
    pub eal: &'a Eal,
    pub mtu: u16,
    pub lost: &'a Arc<AtomicU64>,
}

impl Made<'_> {
    /// Makes the one pair of handles of a queue.
    pub fn pair(&self, index: u16, wake: Option<RawFd>, own: Option<(RxEnd, TxEnd)>) -> QueuePair {
        let (pool, large) = (self.eal.frames(), self.eal.large_frames());
        let end = match &**self.device {
            OpenDevice::Ethdev(ethdev) => ethdev.queue(index),
            _ => (0, index),
        };
        let unfinished = match &**self.device {
            OpenDevice::Ethdev(_) | OpenDevice::Memif(_) | OpenDevice::Xdp(_) => false,
            OpenDevice::Packet(_) => true,
            OpenDevice::Tap(tap) => tap.unfinished(),
        };
        let most = self.eal.max_frame();
        let intake = unfinished.then(|| Box::new(Intake::new((pool, large), most)));
        let finishes = !unfinished && large.is_some();
        let finisher = finishes.then(|| Finisher::new(pool, Arc::clone(self.lost)));
        let device = Arc::clone(self.device);
        let (receiver, sender) = own.unzip();
        let tx = TxQueue { device, index, end, own: sender.map(Box::new), finisher };
        let own = receiver.map(|receiver| Box::new((receiver, Shelf::new(pool))));
        let large = large.filter(|_| unfinished && u32::from(self.mtu) + LINK > u32::from(most));
        let device = Arc::clone(self.device);
        let (chains_dropped, idle) = (0, 0);
        let rx =
            RxQueue { device, index, end, wake, chains_dropped, pool, idle, intake, own, large };
        QueuePair { rx, tx }
    }
}

/// Bytes of an Ethernet header with two tags.
const LINK: u32 = 22;
