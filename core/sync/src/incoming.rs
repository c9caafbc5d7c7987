//! The stream of a peer: what came out of order, what is missing, and when to say so.

use crate::message::MOST_RANGES;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most datagrams that are held until those before them came or there is appetite.
pub(crate) const REORDER: u64 = 1024;

/// Datagrams after which an acknowledgement is sent, and the time after which it is sent anyway.
const ACK_EVERY: u32 = 32;
const ACK_AFTER: Duration = Duration::from_millis(2);
/// Acknowledgements because of a gap are at least this far apart.
const ACK_GAP: Duration = Duration::from_millis(1);
/// How often a gap that stays is reported.
const ACK_REPEAT: Duration = Duration::from_millis(10);

/// What is next in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The items of a datagram.
    Data(Vec<u8>),
    /// So many datagrams that cannot be had.
    Lost(u64),
}

/// What is known of a sequence number before its datagram is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is the next.
    Next,
    /// It will be needed.
    Later,
    /// It came before.
    Seen,
    /// It is so far ahead that it will have to be sent again.
    Beyond,
}

/// The stream of a peer's start.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// The next to deliver; 0 before this end takes part.
    expected: u64,
    held: BTreeMap<u64, Vec<u8>>,
    /// The peer has nothing below this any more.
    floor: u64,
    unacknowledged: u32,
    ack_at: Option<Duration>,
    acked_at: Option<Duration>,
}

impl Incoming {
    pub(crate) const fn expected(&self) -> u64 {
        self.expected
    }

    /// Takes part from a sequence number on, the first time only.
    pub(crate) fn begin(&mut self, next: u64) {
        if self.expected == 0 {
            self.expected = next.max(1);
        }
    }

    /// The peer is down.
    pub(crate) fn forget(&mut self) {
        self.held.clear();
        self.ack_at = None;
    }

    /// The peer holds nothing below `first`.
    pub(crate) fn raise(&mut self, first: u64) {
        self.floor = self.floor.max(first);
    }

    pub(crate) fn place(&self, sequence: u64) -> Place {
        if self.expected == 0 || sequence >= self.expected.saturating_add(REORDER) {
            Place::Beyond
        } else if sequence < self.expected || self.held.contains_key(&sequence) {
            Place::Seen
        } else if sequence == self.expected {
            Place::Next
        } else {
            Place::Later
        }
    }

    /// Holds the items of a datagram.
    pub(crate) fn hold(&mut self, sequence: u64, items: &[u8]) {
        self.held.insert(sequence, items.to_vec());
    }

    /// Passes over the next one: it was delivered.
    pub(crate) const fn advance(&mut self) {
        self.expected += 1;
    }

    /// Whether [`Self::next`] has something.
    pub(crate) fn ready(&self) -> bool {
        self.expected != 0 && (self.held.contains_key(&self.expected) || self.expected < self.floor)
    }

    /// What is next in order, which is passed over.
    pub(crate) fn next(&mut self) -> Option<Next> {
        if self.expected == 0 {
            return None;
        }
        if let Some(items) = self.held.remove(&self.expected) {
            self.expected += 1;
            return Some(Next::Data(items));
        }
        if self.expected >= self.floor {
            return None;
        }
        let held = self.held.first_key_value().map_or(self.floor, |(sequence, _)| *sequence);
        let lost = held.min(self.floor) - self.expected;
        self.expected += lost;
        Some(Next::Lost(lost))
    }

    /// A datagram came, so that an acknowledgement is due some time.
    pub(crate) fn came(&mut self, now: Duration) {
        self.unacknowledged += 1;
        let gap = !self.held.is_empty() && !self.held.contains_key(&self.expected);
        let at = if gap {
            self.acked_at.map_or(now, |at| now.max(at + ACK_GAP))
        } else if self.unacknowledged >= ACK_EVERY {
            now
        } else {
            now + ACK_AFTER
        };
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
    }

    /// When an acknowledgement is due.
    pub(crate) const fn ack_at(&self) -> Option<Duration> {
        self.ack_at
    }

    /// An acknowledgement goes out: what is missing, as first and count.
    pub(crate) fn acknowledge(&mut self, now: Duration) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut from = self.expected;
        for sequence in self.held.keys() {
            if *sequence > from {
                missing.push((from, sequence - from));
                if missing.len() == MOST_RANGES {
                    break;
                }
            }
            from = sequence + 1;
        }
        self.unacknowledged = 0;
        self.acked_at = Some(now);
        self.ack_at = (!missing.is_empty()).then_some(now + ACK_REPEAT);
        missing
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }
}
