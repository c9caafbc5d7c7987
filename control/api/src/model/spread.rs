//! Flows that several workers process.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Protocol;

/// Which of a session's two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FlowDirection {
    /// From the client.
    #[default]
    Inbound,
    /// To the client.
    Outbound,
}

impl FlowDirection {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        }
    }
}

impl std::str::FromStr for FlowDirection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "inbound" => Ok(Self::Inbound),
            "outbound" => Ok(Self::Outbound),
            _ => Err("inbound or outbound".to_owned()),
        }
    }
}

/// What brings the packets of a spread flow to the worker that owns its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Redirect {
    /// A NIC's flow rule.
    Hardware,
    /// The hash of the port, and a handoff where that brings them to another worker.
    #[default]
    Software,
}

impl Redirect {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Software => "software",
        }
    }
}

/// One direction of a session: the body of `POST /v1/elephants/pin` and `/v1/elephants/unpin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowPin {
    /// IP protocol: `tcp` or `udp`.
    pub protocol: Protocol,
    /// Client's address and port.
    pub client: SocketAddr,
    /// Virtual address and port.
    #[serde(rename = "virtual")]
    pub virtual_: SocketAddr,
    /// Which way; from the client unless it says otherwise.
    #[serde(default)]
    pub direction: FlowDirection,
    /// Name of the network that the session is in; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Over how many workers, its owner included; all unless it says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u16>,
}

/// The flows that several workers process: the answer to `POST /v1/elephants/pin` and
/// `/v1/elephants/unpin`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadFlows {
    /// Each of them.
    pub spread: Vec<SpreadFlow>,
}

/// What a flow comes to in a second, an estimate from one packet in 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowLoad {
    /// Packets a second.
    pub packets_per_s: u64,
    /// Bytes of IP packets a second.
    pub bytes_per_s: u64,
    /// The share of the second that the worker which owns the session was busy, with all that it
    /// does, 0 to 1.
    pub owner_busy_share: f64,
}

/// A flow that several workers process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadFlow {
    /// IP protocol.
    pub protocol: Protocol,
    /// Client's address and port.
    pub client: SocketAddr,
    /// Virtual address and port.
    #[serde(rename = "virtual")]
    pub virtual_: SocketAddr,
    /// Which way.
    pub direction: FlowDirection,
    /// Name of the network that the session is in; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The worker that owns the session, deals the packets and sends them.
    pub worker: u16,
    /// The workers that it deals to.
    pub helpers: Vec<u16>,
    /// Whether an operator wants it, rather than the policy of `[elephants]`.
    pub pinned: bool,
    /// Seconds since it began.
    pub for_s: f64,
    /// Packets that were dealt to other workers.
    pub dealt: u64,
    /// Packets that the owner rewrote itself because no other worker had room.
    pub own: u64,
    /// Packets that took the owner's ordinary path, in their place: FIN, options, fragments, and
    /// what comes while a change of the configuration is waited for.
    pub kept: u64,
    /// Packets that were dropped because a worker was late (`spread_late`).
    pub late: u64,
    /// What it came to in the last second before it was spread; absent if nothing was seen of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FlowLoad>,
    /// What it came to in the last second; absent if nothing was seen of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<FlowLoad>,
    /// What brings its packets to its owner.
    #[serde(default)]
    pub redirect: Redirect,
    /// Why no NIC does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_reason: Option<String>,
}
