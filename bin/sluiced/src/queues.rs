//! DPDK's queues as a worker's.

use sluice_dpdk::{Mbuf, QueuePair};
use sluice_worker::{Burst, Queue};
use std::os::fd::BorrowedFd;

/// A port's queue pair.
pub struct PortQueue(pub QueuePair);

impl Queue for PortQueue {
    type Frame = Mbuf;

    #[inline]
    fn receive(&mut self, frames: &mut Burst<Mbuf>) -> usize {
        let came = self.0.rx.rx(frames);
        if came == 0 || self.0.tx.is_busy() {
            self.0.tx.refresh();
        }
        came
    }

    #[inline]
    fn transmit(&mut self, frames: &mut Burst<Mbuf>) -> usize {
        self.0.tx.tx(frames)
    }

    #[inline]
    fn spare(&mut self) -> Option<Mbuf> {
        self.0.rx.spare()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.rx.wake_fd()
    }

    fn arm(&mut self) -> bool {
        !self.0.tx.is_busy() && self.0.rx.arm()
    }

    fn disarm(&mut self) {
        self.0.rx.disarm();
    }

    fn clear_wake_error(&mut self) {
        // The control side notices that the interface is gone by itself.
        let _ = self.0.rx.take_wake_error();
    }
}
