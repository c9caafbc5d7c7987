//! Rings between workers: one for each ordered pair, so that each has one producer and one
//! consumer and needs no lock.
//!
//! What a turn hands over goes into a ring at once, and comes out of it at once: the two workers
//! pass the cache lines that say how full it is to and fro, which costs more than all the rest.

use arrayvec::ArrayVec;
use rtrb::{Consumer, Producer, RingBuffer};
use sluice_director::fib::PortId;
use sluice_director::path::{BURST, Round};

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

/// A ring's end to put parcels in, and those that wait for the end of the turn.
pub(crate) struct Sender<F> {
    ring: Producer<Parcel<F>>,
    pending: ArrayVec<Parcel<F>, BURST>,
}

impl<F> Sender<F> {
    /// Adds a parcel; gives how many had to be dropped for it.
    pub fn push(&mut self, parcel: Parcel<F>) -> usize {
        let dropped = if self.pending.is_full() { self.flush() } else { 0 };
        self.pending.push(parcel);
        dropped
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Puts what waits into the ring; gives how many had to be dropped because it is full.
    pub fn flush(&mut self) -> usize {
        let room = self.pending.len().min(self.ring.slots());
        if let Ok(chunk) = self.ring.write_chunk_uninit(room) {
            chunk.fill_from_iter(self.pending.drain(..room));
        }
        self.pending.drain(..).count()
    }
}

/// A ring's end to take parcels out of.
pub(crate) struct Receiver<F>(Consumer<Parcel<F>>);

impl<F> Receiver<F> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes as many as there is room for.
    pub fn take(&mut self, parcels: &mut ArrayVec<Parcel<F>, BURST>) {
        let count = self.0.slots().min(parcels.remaining_capacity());
        if let Ok(chunk) = self.0.read_chunk(count) {
            parcels.extend(chunk);
        }
    }
}

/// One worker's ends of the rings: by the other worker's number, its own place empty.
pub struct Rings<F> {
    pub(crate) to: Vec<Option<Sender<F>>>,
    pub(crate) from: Vec<Option<Receiver<F>>>,
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
            rings[sender].to[receiver] = Some(Sender { ring: producer, pending: ArrayVec::new() });
            rings[receiver].from[sender] = Some(Receiver(consumer));
        }
    }
    rings
}
