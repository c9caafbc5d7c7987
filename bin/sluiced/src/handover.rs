//! Handing over to a new process, of the same or of another version, while connections go on.
//!
//! On SIGUSR2, or by `sluice ha upgrade`, a director starts its program again. The new one gets a
//! [`Channel`] as its standard input and readies itself beside the running one: configuration,
//! packet memory, the kernel's tables, workers, steering programs, and the sessions, which it reads
//! while the other one still changes them. Then, in order:
//!
//! | who | does | says |
//! | --- | --- | --- |
//! | old | offers its sockets and interfaces, by their descriptors | [`ToSuccessor::Offer`] |
//! | new | is ready but for these | [`ToPredecessor::Ready`] |
//! | old | takes the queues from its workers | [`ToSuccessor::Released`] |
//! | new | takes up what sessions have become, and the queues | [`ToPredecessor::Up`] |
//! | old | ends, and leaves everything as it is | closes the channel |
//! | new | takes the journal, the API's addresses, session synchronisation | |
//!
//! If the new program has another layout of sessions it cannot read them; then the old one tells
//! them by addresses whenever the new one asks, over a socket pair of its own
//! ([`crate::kept::Teller`]).
//!
//! Between `Released` and `Up` nothing is forwarded; what arrives waits in the sockets. Until `Up`
//! the old one can go on, and does if the new one ends, says that it failed, or takes too long. A
//! new one that dies later is a crash as any other: the sessions lie in its files.

mod channel;
mod predecessor;
mod successor;

use crate::kept::Placing;
use crate::ports::{Given, LeftBehind, Wanted};
pub(crate) use channel::Channel;
pub(crate) use predecessor::{Upgrades, unix_s};
use serde::{Deserialize, Serialize};
use sluice_api::model::HaTransition;
use std::net::SocketAddr;
use std::path::PathBuf;
pub(crate) use successor::{Successor, channel, tell_failure};

/// The environment variable that says that standard input is a channel.
pub const VARIABLE: &str = "SLUICED_TAKES_OVER";

/// What a director tells the one that is to follow it.
#[derive(Debug, Serialize, Deserialize)]
enum ToSuccessor {
    /// This is there; the descriptors are those of the ports, then those of the interfaces that
    /// hold addresses, then that by which sessions are told.
    Offer(Box<Offer>),
    /// The queues are nobody's now.
    Released {
        /// When that began: nanoseconds of the monotonic clock.
        since_ns: u64,
        /// What the queues of the ports that are wanted left.
        left: Vec<LeftBehind>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    pid: u32,
    version: String,
    ports: Vec<Given>,
    /// Interfaces that hold addresses for routing daemons.
    holders: Vec<String>,
    /// The file of names of its sessions.
    names: PathBuf,
    /// How they are placed.
    placing: Placing,
    /// The form of records in which it can tell its sessions: the last descriptor is for that.
    records: u8,
    /// Whether packets, and whether sessions lie in huge pages.
    huge: (bool, bool),
    /// Real servers that are found down, by their services.
    down: Vec<(String, SocketAddr)>,
    /// Whether another director is to take over.
    draining: bool,
    /// What programs said that move addresses.
    #[serde(default)]
    transitions: Vec<HaTransition>,
    /// Whether it has the sessions of its peers.
    synchronised: bool,
}

/// What the one that follows tells.
#[derive(Debug, Serialize, Deserialize)]
enum ToPredecessor {
    /// It can take over, these ports by their descriptors.
    Ready { wants: Vec<Wanted> },
    /// It forwards.
    Up,
    /// It cannot.
    Failed { why: String },
}

/// Nanoseconds of the monotonic clock, which all processes share.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
