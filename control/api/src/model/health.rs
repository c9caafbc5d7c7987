//! Health of real servers, and what has happened.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_state::Author;

/// All health checks: `GET /v1/health`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// By service and real server, in the configuration's order.
    pub checks: Vec<Checked>,
    /// How often the thread that runs them had to be replaced.
    pub restarts: u64,
}

/// The health of one real server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// What it found.
    pub outcome: ProbeOutcome,
    /// The evidence.
    pub text: String,
    /// Milliseconds that it took.
    pub took_ms: f64,
}

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// At most the last [`Events::KEPT`].
    pub events: Vec<Event>,
}

impl Events {
    /// Events that are kept.
    pub const KEPT: usize = 1000;
}

/// What kind of thing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A check found a real server in another state.
    Health,
    /// A change of the desired state is in force.
    Config,
    /// An operator weighed a real server or set its state, or took that back.
    Override,
    /// A reload of the file was refused.
    Reload,
    /// A port came up, went down, or vanished.
    Port,
    /// Packets are dropped because a resource is exhausted.
    Drops,
    /// An operator ended sessions; or pressure by half-open sessions began or ended.
    Sessions,
    /// A virtual address came to this machine, or left it.
    Ha,
    /// A flow is spread over several workers, or no more.
    Elephants,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Health,
        Self::Config,
        Self::Override,
        Self::Reload,
        Self::Port,
        Self::Drops,
        Self::Sessions,
        Self::Ha,
        Self::Elephants,
    ];

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Config => "config",
            Self::Override => "override",
            Self::Reload => "reload",
            Self::Port => "port",
            Self::Drops => "drops",
            Self::Sessions => "sessions",
            Self::Ha => "ha",
            Self::Elephants => "elephants",
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its number; each has one more than that before.
    pub id: u64,
    /// When: milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
    /// What kind of event.
    pub kind: EventKind,
    /// The service; empty when it is about none or several.
    #[serde(default)]
    pub service: String,
    /// The real server's address, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its port; 0 for the one that the client sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Of `health`: the state before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<HealthState>,
    /// Of `health`: the state now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<HealthState>,
    /// What happened, in words; of `health` the evidence.
    pub reason: String,
    /// Who did it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// Of `config` and `override`: the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Of `health`: microseconds from the finding until the workers were told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_after_us: Option<u64>,
}

impl Event {
    /// An event that gets its number and time when it is noted.
    pub fn new(kind: EventKind, reason: impl Into<String>) -> Self {
        Self {
            id: 0,
            at_unix_ms: 0,
            kind,
            service: String::new(),
            address: None,
            port: None,
            from: None,
            to: None,
            reason: reason.into(),
            author: None,
            epoch: None,
            told_after_us: None,
        }
    }
}
