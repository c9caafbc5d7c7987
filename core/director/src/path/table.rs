//! What one family remembers between packets: its sessions, and what ages, evicts and reports them.
//!
//! The stages of the vector path read sessions by themselves; all else goes through the functions
//! of the modules beside this one, which take a table, and of the general path those that take the
//! packet's lane too.

use super::changes::Changes;
use super::fragments::Fragments;
use super::half_open::HalfOpen;
use super::linger::Linger;
use super::parse::Parse;
use crate::hash::Seed;
use crate::session::{Flow, Sessions};
use crate::time::Time;
use arrayvec::ArrayVec;
use sluice_lanes::level::LANES;
use sluice_table::{MemoryFile, PagePolicy, RegionError};

/// One of a path's two tables.
pub(super) struct Table<F: Parse> {
    pub sessions: Sessions<F>,
    pub fragments: Fragments<F::Addr>,
    /// The session that was looked at last.
    pub touched: Flow,
    /// The session that the packet has opened which is followed now: what it is itself moves
    /// nothing on.
    pub fresh: Flow,
    /// The sessions that ended last.
    pub ended: Linger,
    /// Half-open sessions by age.
    pub half_open: HalfOpen,
    /// What other directors are to be told.
    pub changes: Changes<F>,
    /// Where among the routes the last client's was.
    pub near: u32,
    /// Hashes whose buckets sessions that are opened some time later will need: asked for together
    /// with others, since a request by itself holds everything up.
    pub wanted: ArrayVec<u64, LANES>,
    /// Where the sweep's cursor is, and when it was moved.
    pub cursor: u32,
    pub swept: Time,
}

impl<F: Parse> Table<F> {
    /// An empty one for so many sessions and datagrams in fragments.
    pub fn new(
        (sessions, fragments): (u32, u32),
        seed: Seed,
        pages: PagePolicy,
        file: Option<&MemoryFile>,
    ) -> Result<Self, RegionError> {
        let (places, ended) = ((sessions, Linger::most(sessions)), Linger::new(sessions));
        let sessions: Sessions<F> = Sessions::new(places, seed, pages, file)?;
        Ok(Self {
            half_open: HalfOpen::new(sessions.slab().capacity(), pages)?,
            changes: Changes::off(),
            sessions,
            ended,
            fragments: Fragments::new(fragments),
            touched: Flow::NONE,
            fresh: Flow::NONE,
            near: 0,
            wanted: ArrayVec::new(),
            cursor: 0,
            swept: Time::default(),
        })
    }
}
