//! A peer: its start that is accepted, and the handshake that leads there.

use crate::clock::Clock;
use crate::incoming::Incoming;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::seal::{Challenge, Counter, Keyring, Opener, StartId};
use crate::settings::MOST_KEYS;
use crate::status::{Reject, Standing};
use std::collections::VecDeque;
use std::time::Duration;

/// How often Hello is sent to a peer that is up, and to one that is not.
pub(crate) const HELLO: Duration = Duration::from_secs(1);
pub(crate) const HELLO_FAST: Duration = Duration::from_millis(100);
/// Silence after which a peer is down.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);
/// Former starts of a peer that are rejected without any decryption.
const MOST_FORMER: usize = 8;

/// The start of a peer that is accepted.
pub(crate) struct Remote {
    pub(crate) start: StartId,
    openers: [Option<Opener>; MOST_KEYS],
    /// The keys that it has shown to have, a bit each.
    pub(crate) keys: u8,
    pub(crate) replay: Replay,
    /// Counter of the last Hello that was heeded.
    pub(crate) hello: u64,
    pub(crate) challenge: Challenge,
    pub(crate) heard_at: Duration,
    pub(crate) clock: Clock,
    /// The pull that it asked for last, and the one that was answered last.
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// Whether it has not been up yet.
    pub(crate) fresh: bool,
    pub(crate) incoming: Incoming,
    /// Present since this end told it that it is accepted.
    pub(crate) progress: Option<Progress>,
}

/// A start that has not shown yet that it is alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) start: StartId,
    pub(crate) challenge: Challenge,
    pub(crate) keys: u8,
    /// Of its last Hello.
    pub(crate) counter: u64,
}

/// A peer.
#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) remote: Option<Remote>,
    pub(crate) pending: Option<Pending>,
    former: VecDeque<StartId>,
    /// Of the challenge to it: another one after each start that was accepted.
    pub(crate) generation: u64,
    pub(crate) up: bool,
    /// When it came up or went down.
    pub(crate) since: Duration,
    /// When Hello is due.
    pub(crate) hello_at: Duration,
    /// When the last one was sent.
    pub(crate) hello_sent_at: Option<Duration>,
    /// When an answer to the pending start is due, and was sent last.
    pub(crate) answer_at: Option<Duration>,
    pub(crate) answered_at: Option<Duration>,
    /// The key whose turn it is while the peer is not heard.
    turn: usize,
    /// Whether everything that it has is to be asked for.
    pub(crate) needs_pull: bool,
    pub(crate) name: String,
    pub(crate) fingerprint: u64,
    /// Whether it says that it is synchronised.
    pub(crate) synchronised: bool,
    /// What it says that it is.
    pub(crate) standing: Option<Standing>,
}

impl Remote {
    pub(crate) fn new(start: StartId, now: Duration) -> Self {
        Self {
            start,
            openers: Default::default(),
            keys: 0,
            replay: Replay::new(),
            hello: 0,
            challenge: Challenge::default(),
            heard_at: now,
            clock: Clock::default(),
            asked: 0,
            answered: 0,
            fresh: true,
            incoming: Incoming::default(),
            progress: None,
        }
    }

    /// What opens its datagrams sealed with a key; made once.
    pub(crate) fn opener(&mut self, keyring: &Keyring, key: usize) -> Result<&Opener, Reject> {
        let opener = self.openers.get_mut(key).ok_or(Reject::Key)?;
        if opener.is_none() {
            *opener = keyring.opener(key, &self.start);
        }
        opener.as_ref().ok_or(Reject::Key)
    }
}

impl Peer {
    pub(crate) fn is_former(&self, start: &StartId) -> bool {
        self.former.contains(start)
    }

    pub(crate) fn is_current(&self, start: &StartId) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.start == *start)
    }

    /// Accepts a start from now on instead of the one before.
    pub(crate) fn accept(&mut self, now: Duration, start: StartId) {
        if let Some(former) = self.remote.replace(Remote::new(start, now)) {
            self.former.push_back(former.start);
            if self.former.len() > MOST_FORMER {
                self.former.pop_front();
            }
        }
        self.generation += 1;
        self.pending = None;
        self.answer_at = None;
        self.needs_pull = false;
        self.hello_at = now;
    }

    /// A Hello came from a start that is not accepted; gives whether it is newer than the last one.
    pub(crate) fn note_pending(&mut self, now: Duration, pending: Pending) -> bool {
        let before = self.pending.filter(|before| before.start == pending.start);
        if before.is_some_and(|before| before.counter >= pending.counter) {
            return false;
        }
        self.pending = Some(pending);
        let earliest = self.answered_at.map_or(now, |at| now.max(at + HELLO_FAST));
        self.answer_at = Some(self.answer_at.map_or(earliest, |at| at.min(earliest)));
        true
    }

    /// The key to use towards it, unless it is not heard and all are to be tried.
    pub(crate) fn key(&self, now: Duration) -> Option<usize> {
        let remote = self.remote.as_ref().filter(|it| now < it.heard_at + SILENCE)?;
        newest(remote.keys)
    }

    /// The key to try now.
    pub(crate) fn try_key(&mut self, keys: usize) -> usize {
        let key = self.turn % keys.max(1);
        self.turn = key + 1;
        key
    }

    /// The key that was tried last.
    pub(crate) const fn tried(&self) -> usize {
        self.turn.saturating_sub(1)
    }

    /// A counter of Hello or acknowledgement, if it has not been seen.
    pub(crate) fn control(remote: &Remote, counter: Counter) -> Result<u64, Reject> {
        match counter {
            Counter::Control(counter) if remote.replay.is_new(counter) => Ok(counter),
            _ => Err(Reject::Replay),
        }
    }
}

/// The newest key of a set.
pub(crate) fn newest(keys: u8) -> Option<usize> {
    (keys != 0).then(|| keys.trailing_zeros() as usize)
}
