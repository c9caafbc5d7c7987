//! A worker without others, on the thread that measures.

use super::{Cables, Station, Yard};
use crate::args::Throughput;
use crate::error::BenchError;
use crate::machine;
use crate::scene;
use sluice_director::spec::Timeouts;
use sluice_worker::{Rings, Wake};
use std::sync::mpsc::channel;

impl Station {
    /// The only worker of its director. No session is open yet.
    pub fn alone(args: &Throughput, timeouts: Timeouts, hz: f64) -> Result<Self, BenchError> {
        args.check()?;
        let eventfd = |source| BenchError::Machine { what: "eventfd".into(), source };
        let wake = Wake::new().map_err(eventfd)?;
        let cables = Cables {
            snapshot: scene::snapshot(args, timeouts)?,
            rings: Rings::default(),
            wakes: vec![wake.clone()],
            // Nobody listens: no neighbour is ever missing.
            events: (channel().0, wake),
        };
        Self::new(args, 0, cables, Yard::new(args, 0)?, hz)
    }
}

/// The core that was asked for, or the last one that the process may use; the calling thread is
/// bound to it.
pub fn pin(core: Option<usize>) -> Result<usize, BenchError> {
    let core = match core {
        Some(core) => core,
        None => machine::usable_cores()?.last().copied().unwrap_or(0),
    };
    machine::pin(core)?;
    Ok(core)
}
