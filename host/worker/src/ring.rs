//! Rings between workers: one for each ordered pair, so that each has one producer and one
//! consumer and needs no lock.

use rtrb::{Consumer, Producer, RingBuffer};
use sluice_director::fib::PortId;
use sluice_director::path::Round;

/// Frames that one ring can hold.
const RING: usize = 1024;

/// What the receiving worker shall do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Run it through its path, as received from the port, with what it has behind it.
    Process(Round),
    /// Send it by the port, which the sender has no queue of.
    Send,
    /// The same, in fragments of at most so many bytes of IP packet.
    Cut(u16),
    /// Give it to the kernel by the port's twin, which the sender has no queue of.
    Kernel,
}

/// A frame on its way to another worker.
pub(crate) struct Parcel<F> {
    pub frame: F,
    pub port: PortId,
    pub errand: Errand,
}

/// One worker's ends of the rings: by the other worker's number, its own place empty.
pub struct Rings<F> {
    pub(crate) to: Vec<Option<Producer<Parcel<F>>>>,
    pub(crate) from: Vec<Option<Consumer<Parcel<F>>>>,
}

impl<F> Default for Rings<F> {
    fn default() -> Self {
        Self { to: Vec::new(), from: Vec::new() }
    }
}

/// Rings between all of `workers` workers; the n-th entry is for worker n.
pub fn mesh<F>(workers: usize) -> Vec<Rings<F>> {
    let mut rings: Vec<Rings<F>> = (0..workers)
        .map(|_| Rings {
            to: (0..workers).map(|_| None).collect(),
            from: (0..workers).map(|_| None).collect(),
        })
        .collect();
    for sender in 0..workers {
        for receiver in (0..workers).filter(|receiver| *receiver != sender) {
            let (producer, consumer) = RingBuffer::new(RING);
            rings[sender].to[receiver] = Some(producer);
            rings[receiver].from[sender] = Some(consumer);
        }
    }
    rings
}
