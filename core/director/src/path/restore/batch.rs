//! Sessions on their way from the one who reads them to the worker whose they are now.

use crate::family::{Family, Ipv4, Ipv6};
use crate::session::SessionOf;
use std::ops::AddAssign;

/// Sessions for one worker, by the ids of the present plan.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(super) narrow: Part<Ipv4>,
    pub(super) extended: Part<Ipv6>,
    /// Whether they take the place of those with their endpoints.
    pub(super) replaces: bool,
}

/// Those of one table.
#[derive(Clone, Debug)]
pub(super) struct Part<F: Family> {
    pub(super) live: Vec<SessionOf<F>>,
    /// Taken up before, and over.
    pub(super) gone: Vec<SessionOf<F>>,
}

impl<F: Family> Default for Part<F> {
    fn default() -> Self {
        Self { live: Vec::new(), gone: Vec::new() }
    }
}

impl<F: Family> Part<F> {
    pub(super) const fn of(&mut self, gone: bool) -> &mut Vec<SessionOf<F>> {
        if gone { &mut self.gone } else { &mut self.live }
    }
}

impl Batch {
    /// An empty one, whose sessions will take the place of those with their endpoints.
    pub fn replacing() -> Self {
        Self { replaces: true, ..Self::default() }
    }

    /// Adds a session of the IPv4 table, or the end of one.
    pub(in crate::path) fn add_narrow(&mut self, session: SessionOf<Ipv4>, gone: bool) {
        self.narrow.of(gone).push(session);
    }

    /// Adds a session of the extended table, or the end of one.
    pub(in crate::path) fn add_extended(&mut self, session: SessionOf<Ipv6>, gone: bool) {
        self.extended.of(gone).push(session);
    }

    /// How many sessions and ends there are in it.
    pub const fn len(&self) -> usize {
        let Self { narrow, extended, .. } = self;
        narrow.live.len() + narrow.gone.len() + extended.live.len() + extended.gone.len()
    }

    /// Whether it changes nothing.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What became of sessions that were found in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Sessions that go on, and clients that stay bound to their real servers.
    pub sessions: u64,
    /// Not taken up: their time was over.
    pub expired: u64,
    /// Not taken up: the configuration has no such service, real server or local address now.
    pub unknown: u64,
    /// Not taken up: the table is full, or another session has their endpoints.
    pub refused: u64,
    /// Slots that hold nothing that a session could be.
    pub damaged: u64,
}

impl AddAssign for Restored {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.expired += other.expired;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.damaged += other.damaged;
    }
}
