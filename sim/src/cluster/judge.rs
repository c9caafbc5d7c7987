//! Who must know a session by now: worked out from what was sent, what came out and when links
//! were quiet, never from a director's tables.

/// The most directors.
pub(super) const MOST: usize = 8;

/// What is told over a quiet link is known after this time: the sweep's two seconds and a little.
pub(super) const LAG_MS: u64 = 2500;
/// So long after a link or a director has come back everything has been told again.
pub(super) const HEAL_MS: u64 = 8000;
/// A session in use is told again so often at the least. Until then others take it to have been
/// idle for as long.
const REFRESH_MS: u64 = 11_000;
/// How long an end takes besides: a session lingers for a second until the sweep finds it.
const LINGER_MS: u64 = 3500;

/// No time.
const NEVER: u64 = u64::MAX;

/// What is certain of a director's knowledge of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The last packet that it knows of.
    pub seen: u64,
    /// Since when that is certain.
    since: u64,
}

/// What is known of a session by whom.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Knowledge {
    pub known: [Option<Known>; MOST],
    /// When a director last had something to tell the others of it, and which, if it still runs.
    fact_at: u64,
    fact_by: Option<usize>,
    used_at: u64,
    /// The director that its last packet passed, and when the last one passed another.
    used_by: Option<usize>,
    elsewhere_at: u64,
}

/// The state of links and directors, as far as time matters.
#[derive(Debug)]
pub(super) struct Judge {
    count: usize,
    /// Since when both ends of a link run and hear each other.
    quiet_since: [[u64; MOST]; MOST],
    runs: [bool; MOST],
    started: [u64; MOST],
    /// Since when a director's configuration has a service as the others have it.
    configured: [Vec<u64>; MOST],
}

impl Judge {
    pub fn new(count: usize, services: usize, now: u64) -> Self {
        let mut quiet_since = [[NEVER; MOST]; MOST];
        quiet_since.iter_mut().take(count).for_each(|row| row[..count].fill(now));
        Self {
            count,
            quiet_since,
            runs: std::array::from_fn(|at| at < count),
            started: [now; MOST],
            configured: std::array::from_fn(|_| vec![0; services]),
        }
    }

    /// A link is cut, or mended, or one of its ends came or went.
    pub fn set_quiet(&mut self, (one, other): (usize, usize), quiet: bool, now: u64) {
        let since = if quiet { now } else { NEVER };
        (self.quiet_since[one][other], self.quiet_since[other][one]) = (since, since);
    }

    /// A director starts, or is killed.
    pub fn set_runs(&mut self, director: usize, runs: bool, now: u64) {
        self.runs[director] = runs;
        self.started[director] = now;
    }

    /// A director's configuration has a service as it is to be, or not.
    pub fn set_configured(&mut self, director: usize, service: usize, good: bool, now: u64) {
        self.configured[director][service] = if good { now } else { NEVER };
    }

    /// Whether what one director told at a time has reached another.
    fn told(&self, (from, to): (usize, usize), at: u64, now: u64, lag: u64) -> bool {
        let quiet = self.quiet_since[from][to];
        // Those who have just come back do not take part in the stream yet.
        let is_new = quiet.saturating_add(LAG_MS) > at;
        let heals = if is_new { quiet.saturating_add(HEAL_MS) } else { 0 };
        quiet != NEVER && now >= at + lag && now >= heals
    }

    /// Works out who has come to know a session until now. To be called before anything changes
    /// that this depends on.
    pub fn settle(&self, knowledge: &mut Knowledge, service: usize, now: u64) {
        let Knowledge { fact_at, fact_by, .. } = *knowledge;
        for to in (0..self.count).filter(|to| self.runs[*to]) {
            let configured = self.configured[to][service];
            if let Some(from) = fact_by.filter(|from| *from != to)
                && fact_at >= configured
                && self.told((from, to), fact_at, now, LAG_MS)
                && knowledge.known[to].is_none_or(|known| known.seen < fact_at)
            {
                knowledge.known[to] = Some(Known { seen: fact_at, since: now });
            }
            if knowledge.known[to].is_none() && self.started[to] >= fact_at {
                knowledge.known[to] = self.pulled(knowledge, (to, configured), now);
            }
        }
    }

    /// What a director that has started since then has learned of whomever it has asked.
    fn pulled(
        &self,
        knowledge: &Knowledge,
        (to, configured): (usize, u64),
        now: u64,
    ) -> Option<Known> {
        let mut least: Option<Known> = None;
        for from in (0..self.count).filter(|from| *from != to && self.runs[*from]) {
            let quiet = self.quiet_since[from][to];
            let known = knowledge.known[from].filter(|known| {
                quiet != NEVER
                    && known.since <= quiet
                    && configured <= quiet
                    && now >= quiet + HEAL_MS
            })?;
            let seen = least.map_or(known.seen, |least| least.seen.min(known.seen));
            least = Some(Known { seen, since: now });
        }
        least
    }

    /// A packet of a session has passed a director; `changed` if it changed the session's state.
    pub fn passed(
        &self,
        knowledge: &mut Knowledge,
        (director, service): (usize, usize),
        changed: bool,
        now: u64,
    ) {
        self.settle(knowledge, service, now);
        knowledge.known[director] = Some(Known { seen: now, since: now });
        if knowledge.used_by != Some(director) {
            (knowledge.used_by, knowledge.elsewhere_at) = (Some(director), knowledge.used_at);
        }
        // A session in use is told again some seconds after others were told of it, or have told.
        let told_at = knowledge.fact_at.max(knowledge.elsewhere_at);
        let again = now.saturating_sub(told_at) >= REFRESH_MS;
        // What was imported and has not changed is not told again, also where its teller is gone.
        if changed || again {
            (knowledge.fact_at, knowledge.fact_by) = (now, Some(director));
        }
        knowledge.used_at = now;
    }

    /// Whether a director must know a session that lasts so long without a packet.
    pub fn must_know(
        &self,
        knowledge: &mut Knowledge,
        (director, service): (usize, usize),
        timeout_ms: u64,
        now: u64,
    ) -> bool {
        self.settle(knowledge, service, now);
        let by_itself = knowledge.used_by == Some(director);
        let margin = if by_itself { 1500 } else { REFRESH_MS };
        knowledge.known[director].is_some_and(|known| now + margin < known.seen + timeout_ms)
    }

    /// Whether a director must know that a session has ended.
    pub fn must_know_end(&self, knowledge: &Knowledge, director: usize, now: u64) -> bool {
        let Some(by) = knowledge.fact_by.filter(|by| *by != director) else { return false };
        let quiet = self.quiet_since[by][director];
        self.runs[director]
            && quiet <= knowledge.fact_at
            && self.told((by, director), knowledge.fact_at, now, LAG_MS + LINGER_MS)
    }
}

impl Knowledge {
    /// A director has lost its memory.
    pub fn forget(&mut self, director: usize) {
        self.known[director] = None;
        self.fact_by = self.fact_by.filter(|by| *by != director);
        self.used_by = self.used_by.filter(|by| *by != director);
    }

    /// Whoever has it had a session of the same ends before, and has nothing new to tell of it.
    pub fn is_old(&mut self) {
        self.fact_by = None;
    }

    /// It is not certain any more that a director knows it.
    pub fn forget_at(&mut self, director: usize) {
        self.known[director] = None;
    }

    /// When the last packet passed.
    pub const fn used_at(&self) -> u64 {
        self.used_at
    }
}
