//! Why there is no result.

use sluice_director::path::RegionError;
use thiserror::Error;

/// Why there is no result.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Options that contradict each other.
    #[error("{0}")]
    Usage(String),
    /// No memory for tables or frames.
    #[error("{0}")]
    Memory(RegionError),
    /// The plan could not be compiled.
    #[error("the plan: {0}")]
    Plan(sluice_director::plan::CompileError),
    /// The machine does not give what is needed.
    #[error("{what}: {source}")]
    Machine {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Packets were dropped: what was measured is not forwarding.
    #[error("worker {worker} lost packets while {doing}: {got} of {expected} came out; {reasons}")]
    Lost {
        /// The worker.
        worker: u16,
        /// Opening sessions or measuring.
        doing: &'static str,
        /// Frames that should have come out.
        expected: usize,
        /// Frames that did.
        got: usize,
        /// The worker's own account.
        reasons: String,
    },
    /// A frame came out wrong.
    #[error("worker {worker}: a frame of flow {flow} came out wrong: {what}")]
    Wrong {
        /// The worker.
        worker: u16,
        /// The flow as the frame's payload names it.
        flow: u32,
        /// What is wrong.
        what: String,
    },
    /// The counters do not add up.
    #[error("worker {worker}: its counters say {got} {what}, but it was given {expected}")]
    Counters {
        /// The worker.
        worker: u16,
        /// What was counted.
        what: &'static str,
        /// By the generator.
        expected: u64,
        /// By the worker.
        got: u64,
    },
    /// A port of the generator.
    #[error(transparent)]
    Port(#[from] sluice_dpdk::Error),
    /// A port's link did not come up.
    #[error(
        "{device}: the link is down: does the director run, and a memif's end with the other role?"
    )]
    Link {
        /// The port.
        device: String,
    },
    /// Sessions could not be opened.
    #[error(
        "{opened} of {sessions} sessions could be opened, then nothing came to the real servers' \
         port any more: are --vip and --director-mac right, does the director know a next hop to \
         198.18.0.0/16 and its real servers' addresses, and has it room for as many sessions? \
         `sluice drops` tells"
    )]
    Silent {
        /// So many were.
        opened: usize,
        /// Of so many.
        sessions: usize,
    },
    /// A frame came that is not as it was sent, or not as the director must make it.
    #[error("a frame came out wrong: {what}")]
    Forged {
        /// What is wrong.
        what: String,
    },
    /// A run in a process of its own failed, and has said why.
    #[error("{what}: the run ended with {status}")]
    Run {
        /// Which one.
        what: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// A file is no result.
    #[error("{file}: {what}")]
    Result {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// A plot could not be drawn.
    #[error("drawing: {0}")]
    Drawing(String),
    /// Another worker failed first.
    #[error("another worker failed")]
    Aborted,
}

impl From<RegionError> for BenchError {
    fn from(error: RegionError) -> Self {
        Self::Memory(error)
    }
}
