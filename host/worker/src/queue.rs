//! What a worker needs of a port: one receive and one transmit queue of its own.

use arrayvec::ArrayVec;
use sluice_director::Frame;
use sluice_director::path::BURST;
use std::os::fd::BorrowedFd;

/// The frames of one poll.
pub type Burst<F> = ArrayVec<F, BURST>;

/// A worker's own end of a port.
pub trait Queue: Send {
    /// The port's packet buffers.
    type Frame: Frame + Send;

    /// Appends frames that wait, as many as there is room for. Never blocks.
    fn receive(&mut self, frames: &mut Burst<Self::Frame>) -> usize;

    /// Takes frames from the front to send them; what the port has no room for stays.
    fn transmit(&mut self, frames: &mut Burst<Self::Frame>) -> usize;

    /// An empty frame for a piece of a packet that is to be cut, with room for what the port
    /// sends. `None` when there is none now, or the port has no buffers of its own.
    fn spare(&mut self) -> Option<Self::Frame> {
        None
    }

    /// A descriptor that poll(2) finds readable while frames wait; `None` when there is none.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called before poll(2) on [`Queue::wake_fd`], and [`Queue::disarm`] after it. `false` when
    /// frames wait already.
    fn arm(&mut self) -> bool {
        true
    }

    /// Called after poll(2) on [`Queue::wake_fd`].
    fn disarm(&mut self) {}

    /// Called when poll(2) reports an error on [`Queue::wake_fd`]: takes the error off it.
    fn clear_wake_error(&mut self) {}
}
