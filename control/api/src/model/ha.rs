//! Which virtual addresses this machine has.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// High availability as it shows here: `GET /v1/ha`. Who has a virtual address answers for it, so
/// VRRP and routing daemons move services by moving addresses; the director takes the packets of
/// a service whoever has its address, as soon as they come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ha {
    /// The role that results from all addresses.
    pub role: HaRole,
    /// Whether another director is to take over: `sluice ha check` fails, while packets are
    /// forwarded as ever. It ends with the process.
    #[serde(default)]
    pub draining: bool,
    /// Each virtual address of a service, in order.
    pub addresses: Vec<HaAddress>,
    /// What routing daemons are to announce of each network that says by which interface.
    #[serde(default)]
    pub announce: Vec<HaAnnounce>,
    /// Session synchronisation; absent when `[sync]` is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<HaSync>,
    /// What a program that moves addresses says of its groups, the one with the latest news last;
    /// absent when none has said anything since this director began. Nothing is decided by it: the
    /// role is by the kernel's addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<HaTransition>,
    /// How that and the kernel's addresses disagree; absent when they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
    /// The last handover to a new process of this director, or the one that is under way; absent
    /// when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<HaUpgrade>,
}

/// What `POST /v1/ha/notify` is told: how a group of addresses stands, by a program that moves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaNotify {
    /// The program: 1 to 32 letters, digits and signs of ASCII.
    pub program: String,
    /// What the name is of.
    pub kind: HaGroupKind,
    /// Its name: 1 to 64 letters, digits and signs of ASCII.
    pub name: String,
    /// What it has become.
    pub state: HaGroupState,
    /// Its VRRP priority; 0 of a group.
    pub priority: u8,
}

/// What a program moves together.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HaGroupKind {
    /// Several instances.
    Group,
    /// A VRRP instance.
    Instance,
}

/// How a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HaGroupState {
    /// The addresses are this machine's.
    Master,
    /// They are another machine's.
    Backup,
    /// A check fails, or a link is down.
    Fault,
    /// The program has ended.
    Stop,
    /// The group is not configured any more; it is not shown then.
    Deleted,
}

impl HaGroupState {
    /// The word of it that keepalived has.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Master => "MASTER",
            Self::Backup => "BACKUP",
            Self::Fault => "FAULT",
            Self::Stop => "STOP",
            Self::Deleted => "DELETED",
        }
    }
}

/// What a group became last, by a program that moves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HaTransition {
    /// What the program said.
    #[serde(flatten)]
    pub last: HaNotify,
    /// When: seconds since 1970.
    pub at_unix_s: u64,
    /// How often the group has become something else.
    pub changes: u64,
}

/// A handover from one process of a director to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HaUpgrade {
    /// How it stands.
    pub state: HaUpgradeState,
    /// When it began, or the new process took over: seconds since 1970.
    pub at_unix_s: u64,
    /// The new process; 0 when none could be started.
    pub pid: u32,
    /// The process before.
    pub from_pid: u32,
    /// The version of that.
    pub from_version: String,
    /// Milliseconds for which no packet was forwarded: what arrived meanwhile waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<f64>,
    /// How sessions came, if the new process could not read them as they lay in memory; absent
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<HaUpgradeTold>,
    /// Ports that could not be handed over and were opened again, which takes longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reopened: Vec<String>,
    /// Why it failed; the process before goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Sessions that the process before told by their addresses, as it would tell another director.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HaUpgradeTold {
    /// Why they could not be read: their layout is that of another version, say.
    pub why: String,
    /// Sessions that were told at first.
    pub sessions: u64,
    /// Sessions that were told later, since they had changed.
    pub changed: u64,
    /// Milliseconds that it took in all, most of them while packets were forwarded.
    pub took_ms: f64,
}

/// How a handover stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HaUpgradeState {
    /// The new process is being started, or the one before has not ended.
    Running,
    /// The new process forwards.
    Done,
    /// The process before goes on.
    Failed,
}

/// The interfaces that hold what a routing daemon is to announce as connected routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HaAnnounce {
    /// Name of the network whose addresses they are; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// That of virtual addresses and pool addresses.
    pub interface: String,
    /// That of other directors' pool addresses; absent when it is not configured.
    pub peer_interface: Option<String>,
    /// Virtual addresses that are announced.
    pub vips: u64,
    /// Those that are not since none of their services has a real server that gets new sessions.
    pub unserved: Vec<IpAddr>,
    /// Pool addresses that are announced, of this director and of others.
    pub pool_addresses: u64,
    /// Why no virtual address is announced; absent when some may be.
    pub withdrawn: Option<String>,
}

/// What `POST /v1/ha/drain` is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaDrain {
    /// Whether another director is to take over.
    pub draining: bool,
}

/// Session synchronisation with other directors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HaSync {
    /// The address and UDP port of this director.
    pub listen: SocketAddr,
    /// Whether this director has the sessions that the others had when it started, or found nobody
    /// to ask. Until then it should not take over from another.
    pub synchronised: bool,
    /// The peer that is being asked for all of its sessions; absent when none is.
    pub pulling_from: Option<SocketAddr>,
    /// Reports of sessions that came in during that pull, or during the last one.
    pub pulled: u64,
    /// The other directors.
    pub peers: Vec<HaPeer>,
    /// Changes of sessions that wait at the workers to be reported. No peer's lag includes them: it
    /// begins when a report is sent.
    #[serde(default)]
    pub reports_waiting: u64,
    /// Reports of sessions sent, once however many peers there are.
    pub reports_sent: u64,
    /// Reports of sessions received, by what became of them.
    pub reports_received: HaReports,
    /// Ends of sessions that could not be reported: the copies of peers age.
    pub ends_unreported: u64,
    /// Datagrams, by what became of them.
    pub datagrams: HaDatagrams,
}

/// Another director.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HaPeer {
    /// Its address and UDP port.
    pub address: SocketAddr,
    /// Its host name; empty before it was heard.
    pub name: String,
    /// Whether it is heard, and hears this director.
    pub up: bool,
    /// Seconds for which that is so.
    pub for_s: f64,
    /// Whether it says that it is synchronised.
    pub synchronised: bool,
    /// Whether its services, rules of source NAT, real servers or local addresses were others than
    /// here when it was last heard: connections of these break at a failover.
    #[serde(default)]
    pub differs: bool,
    /// Whether it acknowledged nothing for so long that it is not waited for. It asks for
    /// everything when it is back.
    pub behind: bool,
    /// Milliseconds since the oldest report was sent that it has not acknowledged; 0 when it has
    /// everything.
    pub lag_ms: f64,
    /// Datagrams that it has not acknowledged.
    pub unacknowledged: u64,
    /// Id of the key that is used towards it, in hexadecimal.
    pub key: String,
    /// What it is, as it says once a second; absent while it is not heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<HaStanding>,
}

/// What another director is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HaStanding {
    /// Its role. Two that are `active` for long are a split brain.
    pub role: HaRole,
    /// Virtual addresses of its services that its machine has.
    pub addresses: u64,
    /// Whether another director is to take over from it.
    pub draining: bool,
    /// Its sessions.
    pub sessions: u64,
}

/// Reports of sessions that were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HaReports {
    /// The session was not known before.
    pub new: u64,
    /// It was known, and the report is newer.
    pub newer: u64,
    /// It has ended.
    pub ended: u64,
    /// What is known here is as new or newer.
    pub older: u64,
    /// The configuration here has no such service, real server or local address.
    pub unknown: u64,
    /// The table is full, another session has its endpoints, or its time is over.
    pub refused: u64,
}

/// Datagrams of session synchronisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HaDatagrams {
    /// Sent.
    pub sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Those of them that went to the multicast group.
    #[serde(default)]
    pub to_group: u64,
    /// Received, with those rejected.
    pub received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Sent again.
    pub repaired: u64,
    /// Lost for good: everything was asked for again.
    pub lost: u64,
    /// Rejected: not authentic, or of a key that this director does not have.
    pub forged: u64,
    /// Rejected: received before, or of a former start of the peer.
    pub replayed: u64,
    /// Rejected: of another protocol or version, or not understood.
    pub malformed: u64,
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
    /// That of a machine that has so many of so many virtual addresses.
    pub const fn of(held: u64, all: u64) -> Self {
        match (held, all) {
            (_, 0) => Self::Idle,
            (0, _) => Self::Standby,
            (held, all) if held >= all => Self::Active,
            _ => Self::Partial,
        }
    }

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
