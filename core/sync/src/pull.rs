//! Asking peers for everything that they have: at the start, and after something was lost.

use std::time::Duration;

/// How long to look for a peer that is synchronised, or for any peer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// How long to wait for all peers to come up before the first pull. What a third director tells
/// the one that is asked, but not yet this end, would otherwise be missed.
const SETTLE: Duration = Duration::from_millis(200);

/// The pull that is going on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) peer: usize,
    pub(crate) id: u64,
}

/// A peer as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) up: bool,
    pub(crate) synchronised: bool,
    pub(crate) wanted: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Begin a pull from this peer.
    Begin(usize),
    /// There is nobody to ask.
    Alone,
}

/// Pulls of this end.
#[derive(Debug, Default)]
pub(crate) struct Pulls {
    pub(crate) synchronised: bool,
    pub(crate) active: Option<Active>,
    /// Records that came from the peer during this pull or the last one.
    pub(crate) records: u64,
    /// How many pulls there have been.
    pub(crate) count: u64,
    /// Since when some peer has been up, or none.
    some_up: bool,
    since: Option<Duration>,
}

impl Pulls {
    /// What is to be done now.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        peers: impl Iterator<Item = Candidate> + Clone,
    ) -> Option<Step> {
        let some_up = peers.clone().any(|peer| peer.up);
        if some_up != self.some_up || self.since.is_none() {
            self.some_up = some_up;
            self.since = Some(now);
        }
        if self.active.is_some() {
            return None;
        }
        let up = |wanted: fn(&Candidate) -> bool| {
            peers.clone().position(|peer| peer.up && wanted(&peer)).map(Step::Begin)
        };
        if self.synchronised {
            return up(|peer| peer.wanted);
        }
        let age = now.saturating_sub(self.since.unwrap_or(now));
        if some_up && age < SETTLE && !peers.clone().all(|peer| peer.up) {
            return None;
        }
        let patient = peers.clone().next().is_some() && age < PATIENCE;
        match up(|peer| peer.synchronised) {
            Some(step) => Some(step),
            None if patient => None,
            None => Some(up(|_| true).unwrap_or(Step::Alone)),
        }
    }

    /// Begins a pull.
    pub(crate) const fn begin(&mut self, peer: usize, id: u64) {
        self.count += 1;
        self.records = 0;
        self.active = Some(Active { peer, id });
    }

    /// Ends the pull of this id, if it is going on with this peer; gives whether it was.
    pub(crate) fn finish(&mut self, peer: usize, id: u64) -> bool {
        self.active.take_if(|active| active.peer == peer && active.id == id).is_some()
    }

    /// Gives up the pull from a peer; gives whether there was one.
    pub(crate) fn give_up(&mut self, peer: usize) -> bool {
        self.active.take_if(|active| active.peer == peer).is_some()
    }

    /// The id that a peer is asked for; 0 for none.
    pub(crate) fn asked(&self, peer: usize) -> u64 {
        self.active.filter(|active| active.peer == peer).map_or(0, |active| active.id)
    }

    /// When [`Self::step`] will do something by itself.
    pub(crate) fn deadline(&self, now: Duration) -> Option<Duration> {
        let waits = !self.synchronised && self.active.is_none();
        let since = self.since.filter(|_| waits)?;
        Some(if now < since + SETTLE { since + SETTLE } else { since + PATIENCE })
    }
}
