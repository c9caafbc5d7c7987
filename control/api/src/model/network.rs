//! Isolated networks, and the default one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All networks: `GET /v1/networks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Networks {
    /// The default one, then the isolated ones in the configuration's order.
    pub networks: Vec<Network>,
}

impl Networks {
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.networks.iter().map(|network| network.name.as_str())
    }
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Network {
    /// Its name; `default` for the default one.
    pub name: String,
    /// Number of the kernel's routing table that it goes by, where the configuration says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The kernel's VRF device that it goes by, where the configuration says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Prefixes that its addresses are in; empty where they may be any.
    pub cidr: Vec<String>,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// Open sessions of all workers together.
    pub sessions: u64,
    /// The maximum.
    pub session_capacity: u64,
    /// Half-open ones among the open.
    pub half_open: u64,
    /// How many virtual services it has.
    pub services: u64,
    /// Packets dropped in it, for whatever reason.
    pub dropped: u64,
    /// Whether half-open sessions press for room at any worker; they expire after three seconds
    /// then.
    pub pressed: bool,
}

impl Network {
    /// The default network's name.
    pub const DEFAULT: &str = "default";

    /// Whether a name is that of the network that something is in, which tells none where it is in
    /// the default one.
    pub fn is(name: &str, shown: &Option<String>) -> bool {
        shown.as_deref().unwrap_or(Self::DEFAULT) == name
    }
}
