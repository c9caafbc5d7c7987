//! The clock of a peer, as far as its datagrams tell.
//!
//! A session is told with how long it has been idle, which is true when its datagram is sealed.
//! That may arrive much later: it was lost, the link was cut, or an end stood still. Then the
//! session would look newer than what has become of it since. So datagrams say when they were
//! sealed by the clock of their sender, and the shortest time that any took lately shows how the
//! two clocks are to each other; what another took longer is its age.

use std::time::Duration;

/// Clocks drift: what is older than two of these does not count any more.
const SPAN: Duration = Duration::from_secs(60);

/// How far a peer's clock is behind this end's, in milliseconds, with the shortest time that a
/// datagram takes: of this span and of the last one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    behind: Option<i64>,
    before: Option<i64>,
    since: Duration,
}

/// A time as datagrams have it.
pub(crate) const fn stamp(now: Duration) -> u64 {
    now.as_millis() as u64
}

const fn behind(now: Duration, sent: u64) -> i64 {
    stamp(now).wrapping_sub(sent).cast_signed()
}

impl Clock {
    /// A datagram came that was made at this time of the peer's.
    pub(crate) fn note(&mut self, now: Duration, sent: u64) {
        if self.behind.is_some() && now >= self.since + SPAN {
            // A span in which nothing came has nothing to say.
            self.before = self.behind.take();
        }
        let behind = behind(now, sent);
        if self.behind.is_none() {
            self.since = now;
        }
        self.behind = Some(self.behind.map_or(behind, |least| least.min(behind)));
    }

    /// Milliseconds since a datagram was sealed, as far as it took longer than others.
    pub(crate) fn age(&self, now: Duration, sealed: u64) -> u32 {
        let least = self.behind.into_iter().chain(self.before).min();
        let age = behind(now, sealed).saturating_sub(least.unwrap_or(i64::MAX));
        u32::try_from(age.max(0)).unwrap_or(u32::MAX)
    }
}
