//! How far a peer is in the stream of this end: what to send it, first and again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time without progress after which the oldest datagrams are sent again, at first and at most.
const RETRANSMIT: Duration = Duration::from_millis(50);
const RETRANSMIT_MOST: Duration = Duration::from_secs(1);
/// Time without progress after which the peer is not waited for.
const BEHIND: Duration = Duration::from_secs(2);
/// A datagram that is reported missing again within this time is still on its way.
const REPAIR: Duration = Duration::from_millis(20);
/// Datagrams under way to the peer, at least, at first and at most. No more than the peer holds out
/// of order. Between them it grows with what is acknowledged and halves with loss, so that a full
/// socket buffer is not filled over and over.
const FLIGHT_LEAST: u64 = 16;
const FLIGHT_FIRST: u64 = 64;
const FLIGHT_MOST: u64 = 1024;
/// Losses within this time are one.
const HALVING: Duration = Duration::from_millis(50);
/// How long a peer gets datagrams of its own after those to the group did not arrive.
const ALONE: Duration = Duration::from_secs(30);
/// Datagrams by which the group is judged. It is not used if all but an eighth had to be repaired:
/// reordering and loss cost less.
const JUDGED: u64 = 32;

/// How far a peer is.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The peer has everything below.
    acked: u64,
    /// The next to send.
    cursor: u64,
    /// Above everything that was ever sent.
    high: u64,
    repairs: VecDeque<u64>,
    /// When datagrams were last put among the repairs.
    repaired_at: BTreeMap<u64, Duration>,
    flight: u64,
    halved_at: Option<Duration>,
    timeout: Duration,
    due: Option<Duration>,
    progress_at: Duration,
    behind: bool,
    /// Above everything that went to the group.
    group_high: u64,
    /// Datagrams that were acknowledged lately, and those of them that had to be repaired.
    arrived: (u64, u64),
    /// Until when it gets datagrams of its own.
    alone_until: Duration,
}

impl Progress {
    /// Of a peer that takes part in the stream from a sequence number on.
    pub(crate) const fn new(now: Duration, from: u64) -> Self {
        Self {
            acked: from,
            cursor: from,
            high: from,
            repairs: VecDeque::new(),
            repaired_at: BTreeMap::new(),
            flight: FLIGHT_FIRST,
            halved_at: None,
            timeout: RETRANSMIT,
            due: None,
            progress_at: now,
            behind: false,
            group_high: 0,
            arrived: (0, 0),
            alone_until: Duration::ZERO,
        }
    }

    pub(crate) const fn acked(&self) -> u64 {
        self.acked
    }

    pub(crate) const fn behind(&self) -> bool {
        self.behind
    }

    /// Begins anew at what was acknowledged last: the peer came back.
    pub(crate) fn resume(&mut self, now: Duration) {
        self.repairs.clear();
        self.repaired_at.clear();
        self.cursor = self.acked;
        self.flight = FLIGHT_LEAST;
        self.timeout = RETRANSMIT;
        self.due = None;
        self.progress_at = now;
        self.behind = false;
    }

    /// The peer has everything below `expected`; `next` is the next that the stream will have.
    pub(crate) fn acknowledge(&mut self, now: Duration, expected: u64, next: u64) {
        if expected <= self.acked || expected > next {
            return;
        }
        self.flight = (self.flight + (expected - self.acked)).min(FLIGHT_MOST);
        if self.acked < self.group_high {
            self.judge_group(now, expected);
        }
        self.acked = expected;
        self.cursor = self.cursor.max(expected);
        self.high = self.high.max(expected);
        self.repaired_at = self.repaired_at.split_off(&expected);
        self.timeout = RETRANSMIT;
        self.progress_at = now;
        self.behind = false;
        self.due = (self.high > expected).then_some(now + RETRANSMIT);
    }

    /// The peer misses what is in these ranges of first and count.
    pub(crate) fn missing(&mut self, now: Duration, first: u64, ranges: &[(u64, u64)]) {
        let from = self.acked.max(first);
        let mut lossy = false;
        for (start, count) in ranges {
            let end = start.saturating_add(*count).min(self.cursor);
            for sequence in (*start).max(from)..end {
                let last = self.repaired_at.get(&sequence);
                if last.is_none_or(|last| now >= *last + REPAIR)
                    && (self.repairs.len() as u64) < FLIGHT_MOST
                {
                    self.repaired_at.insert(sequence, now);
                    self.repairs.push_back(sequence);
                    lossy = true;
                }
            }
        }
        if lossy && self.halved_at.is_none_or(|at| now >= at + HALVING) {
            self.flight = (self.flight / 2).max(FLIGHT_LEAST);
            self.halved_at = Some(now);
        }
    }

    /// Whether [`Self::take`] has something.
    pub(crate) fn ready(&self, first: u64, next: u64) -> bool {
        let floor = self.acked.max(first);
        let cursor = self.cursor.max(floor);
        !self.repairs.is_empty() || cursor < next && cursor - floor < self.flight
    }

    /// The next datagram to send, and whether it is sent again.
    pub(crate) fn take(&mut self, now: Duration, first: u64, next: u64) -> Option<(u64, bool)> {
        let floor = self.acked.max(first);
        while let Some(sequence) = self.repairs.pop_front() {
            if sequence >= floor && sequence < next {
                return Some((sequence, true));
            }
        }
        self.cursor = self.cursor.max(floor);
        if self.cursor >= next || self.cursor - floor >= self.flight {
            return None;
        }
        let sequence = self.cursor;
        let again = sequence < self.high;
        self.advance(now, sequence);
        Some((sequence, again))
    }

    fn advance(&mut self, now: Duration, sequence: u64) {
        if self.due.is_none() {
            self.due = Some(now + self.timeout);
            self.progress_at = now;
        }
        self.cursor = sequence + 1;
        self.high = self.high.max(self.cursor);
    }

    /// Whether a datagram that is sent for the first time may go to a group that the peer is in.
    pub(crate) fn hears_group(&self, now: Duration) -> bool {
        !self.behind && now >= self.alone_until
    }

    /// Notes that the datagram last taken goes to the group.
    pub(crate) const fn note_group(&mut self) {
        self.group_high = self.cursor;
    }

    /// The peer has everything below `expected`: did it come by the group?
    fn judge_group(&mut self, now: Duration, expected: u64) {
        let repaired = self.repaired_at.range(..expected).count() as u64;
        self.arrived = (self.arrived.0 + expected - self.acked, self.arrived.1 + repaired);
        if self.arrived.0 >= JUDGED {
            if self.arrived.1 * 8 > self.arrived.0 * 7 {
                self.leave_group(now);
            }
            self.arrived = (0, 0);
        }
    }

    /// From now on the peer gets its own for a while: the network loses what goes to the group.
    fn leave_group(&mut self, now: Duration) {
        self.alone_until = now + ALONE;
        self.group_high = 0;
    }

    /// Takes this datagram for the first time, if it is the next.
    pub(crate) fn take_this(&mut self, now: Duration, first: u64, next: u64, this: u64) -> bool {
        let floor = self.acked.max(first);
        let is_next = self.cursor.max(floor) == this && this >= self.high && this < next;
        if !is_next || this - floor >= self.flight || !self.hears_group(now) {
            return false;
        }
        self.advance(now, this);
        true
    }

    /// Lets time pass. Gives whether the peer has just been given up waiting for.
    pub(crate) fn tick(&mut self, now: Duration) -> bool {
        let Some(due) = self.due else { return false };
        if now >= due {
            if self.acked < self.group_high {
                self.leave_group(now);
            }
            self.repairs.clear();
            self.repaired_at.clear();
            self.cursor = self.acked;
            self.flight = FLIGHT_LEAST;
            self.timeout = (self.timeout * 2).min(RETRANSMIT_MOST);
            self.due = Some(now + self.timeout);
        }
        if self.behind || now < self.progress_at + BEHIND {
            return false;
        }
        self.behind = true;
        true
    }

    /// When [`Self::tick`] will do something.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let due = self.due?;
        Some(if self.behind { due } else { due.min(self.progress_at + BEHIND) })
    }
}
