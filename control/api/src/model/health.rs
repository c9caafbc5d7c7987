//! Health of real servers, and what has happened.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// All health checks: `GET /v1/health`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// By service and real server, in the configuration's order.
    pub checks: Vec<Checked>,
    /// How often the thread that runs them had to be replaced.
    pub restarts: u64,
}

/// The health of one real server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The service.
    pub service: String,
    /// The real server's address.
    pub address: IpAddr,
    /// Its port; 0 for the one that the client sent to.
    pub port: u16,
    /// Name of the check.
    pub check: String,
    /// What it does, by the configuration's word.
    pub kind: String,
    /// What is known.
    pub state: HealthState,
    /// Seconds for which that is so; since the check began for `unknown`.
    pub for_s: f64,
    /// The evidence of the last change; empty before the first.
    pub reason: String,
    /// Whether it gets new sessions for all that: others may be down too, or up.
    pub serves: bool,
    /// The last probe; absent before the first.
    pub last: Option<Probe>,
    /// Milliseconds until the next probe; absent while one is under way.
    pub next_in_ms: Option<u64>,
    /// Probes so far.
    pub probes: u64,
}

/// What is known of a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// Nothing yet.
    Unknown,
    /// It answers as it should.
    Up,
    /// It does not.
    Down,
}

impl HealthState {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// A probe that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// What it found.
    pub outcome: ProbeOutcome,
    /// The evidence.
    pub text: String,
    /// Milliseconds that it took.
    pub took_ms: f64,
}

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// The real server answered as it should.
    Passed,
    /// It did not.
    Failed,
    /// The director could not look, which changes nothing.
    Blind,
}

/// What has happened, the latest at the end: `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// At most the last [`Events::KEPT`].
    pub events: Vec<Event>,
}

impl Events {
    /// Events that are kept.
    pub const KEPT: usize = 1000;
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number; each has one more than that before.
    pub id: u64,
    /// When: milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// What kind of event: `health`.
    pub kind: String,
    /// The service.
    pub service: String,
    /// The real server's address.
    pub address: IpAddr,
    /// Its port; 0 for the one that the client sent to.
    pub port: u16,
    /// The state before.
    pub from: HealthState,
    /// The state now.
    pub to: HealthState,
    /// The evidence.
    pub reason: String,
    /// Microseconds from the finding until the workers were told.
    pub told_after_us: u64,
}
