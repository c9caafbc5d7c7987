//! A worker: one polling loop over its queues, its packet path and its hand-off rings.
//!
//! A worker owns everything that it touches for a packet. The rest of the process talks to it by
//! messages ([`mailbox`]): published snapshots go down, reports and requests come up. Workers talk
//! to each other by single-producer rings ([`ring`]). Ports are behind the [`Queue`] trait, so that
//! the same loop runs over DPDK, over memory in a benchmark, and in tests.
#![forbid(unsafe_code)]

pub mod capture_point;
mod chunks;
mod held;
pub mod mailbox;
mod outbox;
mod outlet;
mod pieces;
mod queue;
mod ring;
mod run;
pub mod spread;
mod stages;
mod worker;

pub use mailbox::{Carried, Event, Inbox, Message, NetworkReport, Report, Wake};
pub use outbox::{Outbox, Told};
pub use queue::{Burst, Queue};
pub use ring::{Rings, mesh};
pub use run::{Idle, run};
pub use stages::{Clock, StageCounts};
pub use worker::{NetworksConfig, Published, Snapshot, Worker, WorkerConfig};
