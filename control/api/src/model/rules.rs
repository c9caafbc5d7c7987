//! Steering rules of ports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Steering rules of all ports: `GET /v1/ports/rules`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortsRules {
    /// In the configuration's order, without VXLAN ports: what they receive comes by others.
    pub ports: Vec<PortRules>,
}

/// The steering rules of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortRules {
    /// The port's name.
    pub port: String,
    /// Its driver; empty while the device is gone.
    pub driver: String,
    /// What its rules are compiled for.
    pub backend: RuleBackend,
    /// How many rules are in the NIC's table.
    pub in_hardware: u64,
    /// Rules that the NIC has no room for.
    pub no_room: u64,
    /// Times that the NIC had no room since the port was opened.
    pub refused_full: u64,
    /// Entries that the driver did not take away when told to, since the port was opened.
    pub stuck: u64,
    /// The rules: services, local addresses, VXLANs, NAT's real servers, source NAT, tunnels.
    pub rules: Vec<SteeringRule>,
}

/// What takes the packets of a rule from a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuleBackend {
    /// The XDP program.
    Xdp,
    /// The NIC's own table of flow rules.
    RteFlow,
    /// The director's own lookup.
    Software,
}

impl RuleBackend {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::RteFlow => "rte_flow",
            Self::Software => "software",
        }
    }
}

/// What the hits of a rule are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HitsBy {
    /// The NIC or the XDP program: packets that the rule has matched since it was made.
    Rule,
    /// The director: packets to the service, by whatever port they came.
    Service,
}

/// A steering rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SteeringRule {
    /// What it is for: `service`, `local`, `vxlan`, `real`, `snat`, `tunnel_error`, `elephant`.
    pub kind: String,
    /// Name of the network that its packets are in; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// What it matches, in words: `tcp to 198.51.100.200:80`.
    pub matches: String,
    /// IP protocol: `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`; `any` for all but ICMP, IGMP, OSPF and
    /// VRRP.
    pub protocol: String,
    /// Address or prefix and ports of the source; absent where any will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Address or prefix and ports of the destination; absent where any will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// What takes its packets.
    pub backend: RuleBackend,
    /// Queues that the NIC brings its packets to; empty where it does not have the rule.
    #[serde(default)]
    pub queues: Vec<u16>,
    /// Packets; absent where nobody counts them. In software only a service's are counted: others
    /// have no counter on the packet path, and one for each rule would cost every packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// What counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits_by: Option<HitsBy>,
    /// Why it is not in the NIC's table, or not in the XDP program's maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
