//! Schedulers: which real server gets a new session. One file each.
//!
//! A scheduler is asked on a worker for a service; what it remembers (a cursor, counts) belongs
//! to that worker alone.

mod rr;

use crate::plan::{RealId, Service};

/// What one worker's schedulers remember about a service.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Position of the next real server among the eligible ones.
    cursor: u32,
}

/// The real server for a new session, or `None` when no real server takes new ones.
pub(crate) fn pick(service: &Service, memory: &mut Memory) -> Option<RealId> {
    match service.scheduler {
        _ => rr::pick(&service.eligible, &mut memory.cursor),
    }
}
