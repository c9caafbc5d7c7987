//! What a worker tells of its sessions, for other directors: a bounded ring that one thread reads.
//!
//! A busy worker gives it little of each turn, an idle one more; its networks take turns. What does
//! not fit stays listed, or is listed again by the sweep: see
//! [`sluice_director::path::Path::take_changes`].

use crate::mailbox::Wake;
use crate::queue::Queue;
use crate::worker::{Net, Worker};
use rtrb::{Consumer, Producer, RingBuffer};
use sluice_director::Time;
use sluice_director::path::Change;
use sluice_director::spec::NetworkId;

/// Places of the ring.
const RING: usize = 16_384;
/// Sessions of a walk that are told in a turn with frames; changes as well, and as many more as
/// there were frames. Each frame may change a session, and what waits in the worker's list is in no
/// peer's lag: see [`Report::untaken`](crate::Report::untaken).
const BUSY: usize = 64;
/// What is told in a turn without frames.
const IDLE: usize = 1024;

/// What a worker tells.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// A session has changed, of the network that its real server is in.
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
    /// Networks whose sessions it has not told yet.
    walking: usize,
    /// The network that comes first in this turn.
    first: usize,
}

impl Outbox {
    /// A ring, and the end to read from; `wake` wakes the reader.
    pub fn new(wake: Wake) -> (Self, Consumer<Told>) {
        let (ring, reader) = RingBuffer::new(RING);
        (Self { ring, wake, walk: 0, walking: 0, first: 0 }, reader)
    }

    /// Tells at most so many changes of a network. Returns how many.
    fn take_from<F>(&mut self, net: &mut Net<F>, now: Time, most: usize) -> usize {
        if !net.path.has_changes() {
            return 0;
        }
        let before = self.ring.slots();
        let walked = net.path.take_changes((&net.snapshot.plan, now), most, |change| {
            // There is room.
            let _ = self.ring.push(Told::Change(change));
        });
        let told = before.saturating_sub(self.ring.slots());
        if walked {
            self.walking = self.walking.saturating_sub(1);
            if self.walking == 0 {
                let _ = self.ring.push(Told::Walked(self.walk));
            }
        }
        told
    }
}

impl<Q: Queue> Worker<Q> {
    /// Tells what changes from now on, by this outbox. Without memory for it nothing is told, and
    /// the outbox is closed.
    pub fn tell_by(&mut self, outbox: Outbox) {
        let mut noted = true;
        self.in_each(|worker| noted &= worker.net.path.note_changes().is_ok());
        self.outbox = noted.then(|| Box::new(outbox));
    }

    /// Begins to tell all sessions.
    pub fn begin_walk(&mut self, number: u64) {
        let networks = self.network_count();
        if let Some(outbox) = &mut self.outbox {
            (outbox.walk, outbox.walking) = (number, networks);
            self.in_each(|worker| worker.net.path.begin_walk());
        }
    }

    /// Whether there is something to tell.
    pub(crate) fn has_changes(&self) -> bool {
        self.outbox.is_some() && self.nets().any(|net| net.path.has_changes())
    }

    /// How many changes wait to be told, in the ring too. What a walk has not come to is none.
    pub fn untaken(&self) -> u64 {
        let Some(outbox) = &self.outbox else { return 0 };
        let listed: usize = self.nets().map(|net| net.path.listed()).sum();
        (listed + RING - outbox.ring.slots()) as u64
    }

    /// Tells some of what has changed.
    #[cold]
    pub(crate) fn tell(&mut self, now: Time, came: usize) {
        if !self.has_changes() {
            return;
        }
        let Some(mut outbox) = self.outbox.take() else { return };
        let listed: usize = self.nets().map(|net| net.path.listed()).sum();
        let most = if came > 0 { BUSY + listed.min(came) } else { IDLE };
        // A place is left for the end of a walk.
        let mut room = outbox.ring.slots().min(most + 1).saturating_sub(1);
        let networks = self.network_count();
        for turn in 0..networks {
            let network = NetworkId(((outbox.first + turn) % networks) as u16);
            if let Some(net) = self.net_mut(network).filter(|_| room > 0) {
                room -= outbox.take_from(net, now, room);
            }
        }
        outbox.first = (outbox.first + 1) % networks;
        outbox.wake.wake_if_sleeping();
        self.outbox = Some(outbox);
    }
}
