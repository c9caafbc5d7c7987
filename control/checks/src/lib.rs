//! Runs health checks: brings sockets, processes and time to the state machines of `sluice-health`,
//! thousands of them on one thread, and tells what changes.
//!
//! The thread can fail or hang without harm to anything else: it owns nothing but its probes, what
//! it found is in [`Shown`] cells that outlive it, and [`Runner::look_after`] starts another one
//! that goes on from there.
#![forbid(unsafe_code)]

mod network;
mod probe;
mod runner;
mod socket;
mod spec;
mod task;

pub use network::{Exit, Exits, Network};
pub use runner::{Board, News, Runner};
pub use socket::{Maker, Sources, Way};
pub use spec::{Key, Kind, Spec, Tls};
pub use task::Shown;
