//! The ends of queues that are our own and carry frames as bytes (memif, AF_XDP), with packet
//! buffers around them.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;

use crate::mbuf::Mbuf;
use crate::pool::FramePool;
use crate::queue::BURST;
use crate::xdp::Joiner;

/// Where a queue's frames come from.
#[derive(Debug)]
pub(crate) enum RxEnd {
    Memif(sluice_memif::Receiver),
    /// By a copy engine.
    Offload(sluice_memif::OffloadReceiver<Mbuf>),
    Xdp(sluice_xdp::Receiver),
}

/// Where a queue's frames go.
#[derive(Debug)]
pub(crate) enum TxEnd {
    Memif(sluice_memif::Sender),
    /// By a copy engine.
    Offload(sluice_memif::OffloadSender<Mbuf>),
    /// With a way out for streams.
    Xdp(sluice_xdp::Sender, Option<Joiner>),
}

impl RxEnd {
    /// Receives frames that wait, `most` at most; fewer than [`BURST`] and than `most` only if no
    /// more were there.
    #[inline]
    fn receive<const N: usize>(&mut self, most: usize, landing: &mut Filling<'_, N>) -> usize {
        match self {
            Self::Memif(end) => end.receive(most, landing),
            Self::Offload(end) => end.receive(most, landing),
            Self::Xdp(end) => end.receive(most, landing),
        }
    }

    /// See [`crate::RxQueue::wake_fd`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Memif(end) => end.wake_fd(),
            Self::Offload(end) => end.as_end().wake_fd(),
            Self::Xdp(end) => end.wake_fd(),
        }
    }

    /// See [`crate::RxQueue::arm`].
    pub fn arm(&mut self) -> bool {
        match self {
            Self::Memif(end) => end.arm(),
            Self::Offload(end) => end.end().arm(),
            Self::Xdp(end) => end.arm(),
        }
    }

    /// See [`crate::RxQueue::disarm`].
    pub fn disarm(&mut self) {
        match self {
            Self::Memif(end) => end.disarm(),
            Self::Offload(end) => end.end().disarm(),
            Self::Xdp(_) => {}
        }
    }

    /// Whether frames are being copied.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Offload(end) if end.is_busy())
    }
}

impl TxEnd {
    /// See [`crate::TxQueue::refresh`].
    #[inline]
    pub fn refresh(&mut self) {
        match self {
            Self::Memif(end) => end.refresh(),
            Self::Offload(end) => end.refresh(),
            Self::Xdp(end, _) => end.refresh(),
        }
    }

    /// Whether frames are being copied.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Offload(end) if end.is_busy())
    }

    /// Sends frames from the front; those that were taken leave the vector.
    #[inline]
    pub fn send<const N: usize>(&mut self, frames: &mut ArrayVec<Mbuf, N>) -> usize {
        let bytes = frames.iter().map(Frame::bytes);
        let taken = match self {
            Self::Memif(end) => end.send(bytes),
            Self::Offload(end) => return end.send(frames),
            Self::Xdp(end, None) => end.send(bytes),
            Self::Xdp(end, Some(joiner)) => joiner.send(end, frames),
        };
        Mbuf::free_front(frames, taken);
        taken
    }
}

/// Buffers to receive into.
#[derive(Debug)]
pub(crate) struct Shelf {
    pool: FramePool,
    spares: ArrayVec<Mbuf, BURST>,
}

impl Shelf {
    pub fn new(pool: FramePool) -> Self {
        Self { pool, spares: ArrayVec::new() }
    }

    /// Receives the frames that wait, `most` at most.
    #[inline]
    pub fn receive<const N: usize>(
        &mut self,
        from: &mut RxEnd,
        frames: &mut ArrayVec<Mbuf, N>,
        most: usize,
    ) -> usize {
        if let RxEnd::Offload(from) = from {
            return from.receive(most, &mut Filling { shelf: self, frames });
        }
        let mut count = 0;
        while count < most {
            let got = from.receive(most - count, &mut Filling { shelf: self, frames });
            count += got;
            // Fewer than are looked at in one go: no more were there.
            if got < BURST {
                break;
            }
        }
        count
    }
}

/// Buffers of a shelf on their way into a burst.
struct Filling<'a, const N: usize> {
    shelf: &'a mut Shelf,
    frames: &'a mut ArrayVec<Mbuf, N>,
}

impl<const N: usize> Filling<'_, N> {
    /// The room for the next frame.
    #[inline]
    fn room(&mut self) -> Option<&mut [u8]> {
        let Shelf { pool, spares } = &mut *self.shelf;
        if spares.is_empty() && pool.alloc_burst(spares, BURST) == 0 {
            // Fewer may be left.
            spares.push(pool.alloc()?);
        }
        spares.last_mut().map(Mbuf::whole)
    }

    /// The next frame lies in the room.
    #[inline]
    fn landed(&mut self, length: usize) -> bool {
        let Some(mut frame) = self.shelf.spares.pop() else { return false };
        let fits = frame.set_len(length);
        debug_assert!(fits, "it landed in it");
        self.frames.push(frame);
        true
    }
}

impl<const N: usize> sluice_memif::Landing for Filling<'_, N> {
    #[inline]
    fn room(&mut self) -> Option<&mut [u8]> {
        Self::room(self)
    }

    #[inline]
    fn landed(&mut self, length: usize) -> bool {
        Self::landed(self, length)
    }
}

impl<const N: usize> sluice_memif::Dock<Mbuf> for Filling<'_, N> {
    fn buffer(&mut self) -> Option<Mbuf> {
        Self::room(self)?;
        self.shelf.spares.pop()
    }

    fn landed(&mut self, mut frame: Mbuf, length: usize) {
        let fits = frame.set_len(length);
        debug_assert!(fits, "it landed in it");
        self.frames.push(frame);
    }
}

impl<const N: usize> sluice_xdp::Landing for Filling<'_, N> {
    #[inline]
    fn room(&mut self) -> Option<&mut [u8]> {
        Self::room(self)
    }

    #[inline]
    fn landed(&mut self, length: usize) -> bool {
        Self::landed(self, length)
    }
}
