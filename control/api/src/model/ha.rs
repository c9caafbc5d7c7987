//! Which virtual addresses this machine has.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// High availability as it shows here: `GET /v1/ha`. Who has a virtual address answers for it, so
/// VRRP and routing daemons move services by moving addresses; the director takes the packets of
/// a service whoever has its address, as soon as they come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ha {
    /// The role that results from all addresses.
    pub role: HaRole,
    /// Each virtual address of a service, in order.
    pub addresses: Vec<HaAddress>,
}

/// What a director is among those with the same services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HaRole {
    /// There are no services.
    #[default]
    Idle,
    /// The machine has all virtual addresses.
    Active,
    /// It has none of them.
    Standby,
    /// It has some of them.
    Partial,
}

impl HaRole {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Partial => "partial",
        }
    }
}

/// A virtual address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HaAddress {
    /// The address.
    pub vip: IpAddr,
    /// The interface of this machine that has it; absent when none has.
    pub interface: Option<String>,
    /// Seconds for which that is so; since the start or the service's first configuration at most.
    pub for_s: f64,
    /// How often it came or went in that time.
    pub changes: u64,
    /// Services that have it.
    pub services: u64,
}
