//! What a worker tells of its sessions, for other directors: a bounded ring that one thread reads.
//!
//! A busy worker gives it little of each turn, an idle one more. What does not fit stays listed, or
//! is listed again by the sweep: see [`sluice_director::path::Path::take_changes`].

use crate::mailbox::Wake;
use crate::queue::Queue;
use crate::worker::Worker;
use rtrb::{Consumer, Producer, RingBuffer};
use sluice_director::Time;
use sluice_director::path::Change;

/// Places of the ring.
const RING: usize = 16_384;
/// Changes that are told in a turn with frames,
const BUSY: usize = 64;
/// and in one without.
const IDLE: usize = 1024;

/// What a worker tells.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// A session has changed.
    Change(Change),
    /// All sessions of this worker have been told since the walk with this number began.
    Walked(u64),
}

/// A worker's end of the ring.
pub struct Outbox {
    ring: Producer<Told>,
    /// Wakes the reader.
    wake: Wake,
    /// The walk that goes on, or was the last.
    walk: u64,
}

impl Outbox {
    /// A ring, and the end to read from; `wake` wakes the reader.
    pub fn new(wake: Wake) -> (Self, Consumer<Told>) {
        let (ring, reader) = RingBuffer::new(RING);
        (Self { ring, wake, walk: 0 }, reader)
    }
}

impl<Q: Queue> Worker<Q> {
    /// Tells what changes from now on, by this outbox. Without memory for it nothing is told, and
    /// the outbox is closed.
    pub fn tell_by(&mut self, outbox: Outbox) {
        self.outbox = self.net.path.note_changes().is_ok().then(|| Box::new(outbox));
    }

    /// Begins to tell all sessions.
    pub(crate) fn begin_walk(&mut self, number: u64) {
        if let Some(outbox) = &mut self.outbox {
            outbox.walk = number;
            self.net.path.begin_walk();
        }
    }

    /// Whether there is something to tell.
    pub(crate) fn has_changes(&self) -> bool {
        self.outbox.is_some() && self.net.path.has_changes()
    }

    /// Tells some of what has changed.
    #[cold]
    pub(crate) fn tell(&mut self, now: Time, came: usize) {
        let Some(outbox) = self.outbox.as_mut().filter(|_| self.net.path.has_changes()) else {
            return;
        };
        let most = if came > 0 { BUSY } else { IDLE };
        // A place is left for the end of a walk.
        let room = outbox.ring.slots().min(most + 1).saturating_sub(1);
        if room == 0 {
            return;
        }
        let view = (&*self.net.snapshot.plan, now);
        let walked = self.net.path.take_changes(view, room, |change| {
            // There is room.
            let _ = outbox.ring.push(Told::Change(change));
        });
        if walked {
            let _ = outbox.ring.push(Told::Walked(outbox.walk));
        }
        outbox.wake.wake_if_sleeping();
    }
}
