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
//! If the new program has another layout of sessions it cannot read them; then the old one exports
//! them by addresses whenever the new one asks, over a socket pair of its own
//! ([`crate::kept::SessionExport`]).
//!
//! Between `Released` and `Up` nothing is forwarded; what arrives waits in the sockets. Until `Up`
//! the old one can go on, and does if the new one ends, says that it failed, or takes too long. A
//! new one that dies later is a crash as any other: the sessions lie in its files.
//!
//! A restart by systemd is two handovers, with a process in between that stands in: see
//! [`stand_in`].

mod channel;
mod predecessor;
mod stand_in;
mod successor;

use crate::kept::Placing;
use crate::ports::{Given, LeftBehind, Wanted};
pub(crate) use channel::Channel;
pub(crate) use predecessor::{Follower, Upgrades, unix_s};
use serde::{Deserialize, Serialize};
use sluice_api::model::HaTransition;
pub(crate) use stand_in::find as find_stand_in;
use std::net::SocketAddr;
use std::path::PathBuf;
pub(crate) use successor::{Successor, channel, tell_failure};

/// The environment variable that says that standard input is a channel.
pub const VARIABLE: &str = "SLUICED_TAKES_OVER";

/// What a director tells the one that is to follow it.
#[derive(Debug, Serialize, Deserialize)]
enum ToSuccessor {
    /// This is there; the descriptors are those of the ports, then those of the interfaces that
    /// hold addresses, then that by which sessions are exported.
    Offer(Box<Offer>),
    /// The queues are nobody's now.
    Released {
        /// When that began: nanoseconds of the monotonic clock.
        since_ns: u64,
        /// What the queues of the ports that are wanted left.
        left: Vec<LeftBehind>,
    },
}

/// What a director has to hand over. The one that follows may be of a later version: a field that
/// is added has a default, or it cannot be upgraded to from versions before the field. A default
/// stands for a director that has no such thing.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    pid: u32,
    version: String,
    ports: Vec<Given>,
    /// Interfaces that hold addresses for routing daemons.
    #[serde(default)]
    holders: Vec<String>,
    /// The file of names of its sessions.
    names: PathBuf,
    /// How they are placed.
    placing: Placing,
    /// The form of records in which it can export its sessions: the last descriptor is for that.
    /// Zero if it cannot, and there is no such descriptor.
    #[serde(default)]
    records: u8,
    /// Whether packets, and whether sessions lie in huge pages.
    #[serde(default)]
    huge: (bool, bool),
    /// Real servers that are found down, by their services.
    #[serde(default)]
    down: Vec<(String, SocketAddr)>,
    /// Whether another director is to take over.
    #[serde(default)]
    draining: bool,
    /// What programs said that move addresses.
    #[serde(default)]
    transitions: Vec<HaTransition>,
    /// Whether it has the sessions of its peers.
    #[serde(default)]
    synchronised: bool,
    /// Whether the new process is only to stand in for the one that systemd starts.
    #[serde(default)]
    stand_in: bool,
}

/// What the one that follows tells.
#[derive(Debug, Serialize, Deserialize)]
enum ToPredecessor {
    /// It can take over, these ports by their descriptors.
    Ready {
        wants: Vec<Wanted>,
        /// Whether it stands in, as it was asked to: one of an older version does not know how.
        #[serde(default)]
        stands_in: bool,
    },
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The least that a director of any version has said.
    const LEAST: &str = r#"{"Offer": {
        "pid": 4242,
        "version": "0.0.9",
        "ports": [{"name": "front"}],
        "names": "/dev/shm/sluice/var-lib-sluice/names",
        "placing": {
            "state_dir": "/var/lib/sluice", "workers": 2, "seed": 7, "generation": 3
        }
    }}"#;

    #[test]
    fn a_program_without_later_fields_can_be_followed() {
        let ToSuccessor::Offer(offer) = serde_json::from_str(LEAST).unwrap() else {
            panic!("it is an offer")
        };
        assert_eq!((offer.pid, offer.ports.len()), (4242, 1));
        assert_eq!((offer.records, offer.huge), (0, (false, false)));
        assert!(offer.holders.is_empty() && offer.down.is_empty() && offer.transitions.is_empty());
        assert!(!offer.draining && !offer.synchronised);
        // Where its sessions are is not known: all workers are asked.
        assert!(serde_json::to_value(&offer.placing).unwrap()["scattered"] == true);
    }

    /// What a later version adds does not keep it from being followed by this one.
    #[test]
    fn fields_that_this_version_does_not_know_are_left_out() {
        let text = LEAST.replace("\"pid\"", "\"of_later\": [1], \"pid\"");
        assert!(serde_json::from_str::<ToSuccessor>(&text).is_ok());
    }

    /// Whose sessions they are has no default.
    #[test]
    fn an_offer_without_sessions_is_refused() {
        for field in ["names", "placing", "seed"] {
            let text = LEAST.replace(&format!("\"{field}\""), "\"of_later\"");
            assert!(serde_json::from_str::<ToSuccessor>(&text).is_err(), "{field}");
        }
    }
}
