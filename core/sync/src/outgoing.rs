//! The stream of this end: sealed datagrams by sequence number, and the one being filled.

use crate::clock::stamp;
use crate::codec::{Body, is_sendable};
use crate::message::DATA;
use crate::record::{Real, Session};
use crate::seal::{Counter, HEADER, Keyring, TAG};
use std::collections::VecDeque;
use std::time::Duration;

/// Most datagrams that are held for peers.
pub(crate) const WINDOW: usize = 2048;

/// How long records wait for others to share a datagram with.
const FLUSH: Duration = Duration::from_millis(1);

struct Held {
    bytes: Box<[u8]>,
    sealed_at: Duration,
}

struct Open {
    body: Body,
    since: Duration,
}

/// What came of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Done,
    /// There is no room.
    Full,
    /// It cannot be written.
    Unsendable,
}

/// The stream of this end.
pub(crate) struct Outgoing {
    /// Largest datagram.
    limit: usize,
    /// Sequence number of the first one held.
    first: u64,
    held: VecDeque<Held>,
    /// Will have the next sequence number.
    open: Option<Open>,
    /// To fill the next datagram in.
    spare: Vec<u8>,
    /// Ends of pulls that have not found room yet.
    markers: VecDeque<u64>,
    /// Whether records have been left out since the last one that was written. The sequence number
    /// in their place is never sent, so that peers notice.
    broken: bool,
}

impl Outgoing {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            first: 1,
            held: VecDeque::new(),
            open: None,
            spare: Vec::new(),
            markers: VecDeque::new(),
            broken: false,
        }
    }

    /// The first sequence number that is held.
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// The next sequence number to seal.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.held.len() as u64
    }

    /// Bytes of all datagrams held, for tests of the bound.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.held.iter().map(|held| held.bytes.len()).sum::<usize>() + self.spare.capacity()
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<&[u8]> {
        self.held(sequence).map(|held| &*held.bytes)
    }

    /// When a datagram was sealed, if it is held.
    pub(crate) fn sealed_at(&self, sequence: u64) -> Option<Duration> {
        self.held(sequence).map(|held| held.sealed_at)
    }

    fn held(&self, sequence: u64) -> Option<&Held> {
        let place = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.held.get(place)
    }

    /// How many datagrams may yet be begun when all from `waited` on must be kept.
    pub(crate) fn room(&self, waited: u64) -> usize {
        let kept = self.next() - waited.clamp(self.first, self.next());
        let taken = kept as usize + usize::from(self.open.is_some()) + self.markers.len();
        WINDOW.saturating_sub(taken)
    }

    /// Forgets what is below a sequence number.
    pub(crate) fn release(&mut self, below: u64) {
        while self.first < below && self.held.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Leaves out a record, and all that is held: there is nobody to send it to.
    pub(crate) fn leave_out(&mut self) {
        if !self.broken {
            self.first = self.next() + 1;
            self.held.clear();
            self.open = None;
            self.markers.clear();
            self.broken = true;
        }
    }

    /// Adds a record. `waited` is as in [`Self::room`], `key` is the one to seal with.
    pub(crate) fn push(
        &mut self,
        now: Duration,
        (real, session): (&Real, &Session),
        waited: u64,
        (keyring, key): (&Keyring, usize),
    ) -> Pushed {
        if self.room(waited) == 0 {
            return Pushed::Full;
        }
        if !is_sendable(real) {
            return Pushed::Unsendable;
        }
        let limit = self.limit - TAG;
        if !self.opened(now).body.add(real, session, limit) {
            self.seal(now, keyring, key);
            // The largest record is smaller than the smallest datagram.
            let added = self.opened(now).body.add(real, session, limit);
            debug_assert!(added);
        }
        self.broken = false;
        Pushed::Done
    }

    /// The datagram being filled; one more must have room.
    fn opened(&mut self, now: Duration) -> &mut Open {
        if self.open.is_none() && self.held.len() >= WINDOW {
            self.held.pop_front();
            self.first += 1;
        }
        let spare = &mut self.spare;
        self.open.get_or_insert_with(|| {
            let mut bytes = std::mem::take(spare);
            bytes.clear();
            bytes.resize(HEADER, 0);
            bytes.push(DATA);
            bytes.extend_from_slice(&stamp(now).to_be_bytes());
            Open { body: Body::after(bytes), since: now }
        })
    }

    /// Seals the datagram being filled.
    fn seal(&mut self, now: Duration, keyring: &Keyring, key: usize) {
        let Some(open) = self.open.take() else { return };
        let mut bytes = open.body.bytes;
        keyring.seal(key, Counter::Data(self.next()), &mut bytes);
        self.held.push_back(Held { bytes: bytes.as_slice().into(), sealed_at: now });
        self.spare = bytes;
    }

    /// Ends a pull after what has been given until now.
    pub(crate) fn mark(&mut self, pull: u64) {
        self.markers.push_back(pull);
    }

    /// Writes what waited for room, and seals the datagram being filled when its time has come.
    pub(crate) fn tick(&mut self, now: Duration, waited: u64, keyring: &Keyring, key: usize) {
        let limit = self.limit - TAG;
        while let Some(pull) = self.markers.pop_front() {
            if self.open.is_none() && self.room(waited) == 0 {
                self.markers.push_front(pull);
                break;
            }
            if !self.opened(now).body.add_marker(pull, limit) {
                self.markers.push_front(pull);
                self.seal(now, keyring, key);
            } else {
                self.broken = false;
            }
        }
        if self.flush_at().is_some_and(|at| now >= at) {
            self.seal(now, keyring, key);
        }
    }

    /// When the datagram being filled is to be sealed at the latest.
    pub(crate) fn flush_at(&self) -> Option<Duration> {
        self.open.as_ref().map(|open| open.since + FLUSH)
    }
}
