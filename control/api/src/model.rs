//! What a director shows of itself, as the API's JSON has it.
//!
//! Plain data with public fields: the daemon fills them in, the server writes them, the client
//! reads them back. Units are in the names; inbound is client to real server, outbound the way
//! back. A reader ignores fields that it does not know, so fields may be added.

mod balance;
mod config;
mod ha;
mod health;
mod load;
mod look;
mod network;
mod rates;
mod rules;
mod session;
mod spread;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_director::Reason;
use sluice_director::counters::ServiceDrops;
use sluice_director::reason;

pub use balance::{
    Balanced, Persistence, Protocol, Real, RealState, Service, Services, SnatRule, Ways, mode_of,
};
pub use config::{Changed, HistoryLine, HistoryPage};
pub use ha::{
    Ha, HaAddress, HaAnnounce, HaDatagrams, HaDrain, HaGroupKind, HaGroupState, HaNotify, HaPeer,
    HaReports, HaRole, HaStanding, HaSync, HaTransition, HaUpgrade, HaUpgradeState, HaUpgradeTold,
};
pub use health::{Checked, Event, EventKind, Events, Health, HealthState, Probe, ProbeOutcome};
pub use load::{Elephant, Elephants, Rate, StageTicks, Stages, WorkerStages};
pub use look::{
    LookEnd, LookKind, LookRequest, PacketFate, TraceLine, TraceStep, TracedPacket, Way,
};
pub use network::{Network, Networks};
pub use rates::{RateColumns, Rates, RatesQuery, WorkerRates};
pub use rules::{HitsBy, PortRules, PortsRules, RuleBackend, SteeringRule};
pub use session::{Killed, Session, SessionState, Sessions};
pub use spread::{FlowDirection, FlowLoad, FlowPin, Redirect, SpreadFlow, SpreadFlows};

/// The director as a whole: `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// The configuration file.
    pub config: PathBuf,
    /// Number of the plan that runs; it grows with each that was compiled, by whatever change.
    pub plan_epoch: u64,
    /// Number of the last change of the desired state that was applied, whoever made it.
    #[serde(default)]
    pub config_epoch: u64,
    /// Whether changes made at run time survive a restart.
    #[serde(default)]
    pub durable: bool,
    /// Whether what runs is not what the file says: the director went back to an earlier epoch.
    #[serde(default)]
    pub differs_from_file: bool,
    /// How the last reload went; absent before the first.
    pub last_reload: Option<Reload>,
    /// What idle workers do.
    pub idle: IdleMode,
    /// Whether packet memory lies in huge pages.
    pub huge_pages: bool,
    /// Memory of the session tables.
    pub memory: Memory,
    /// Sessions of all workers together.
    pub sessions: SessionCounts,
    /// Packets handed off to the owner worker of their session.
    pub handed_off: u64,
    /// Workers, by number.
    pub workers: Vec<Worker>,
}

/// Who asks: `GET /v1/whoami`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhoAmI {
    /// The name that belongs to the token; absent over the control socket, which needs none.
    pub name: Option<String>,
    /// What it may do: `read`, `operate` or `admin`.
    pub role: String,
}

/// That the API answers: `GET /healthz`, which takes no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Alive {
    /// Always.
    pub alive: bool,
}

/// How a reload of the configuration went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reload {
    /// When: seconds since 1970-01-01 UTC.
    pub at_unix_s: u64,
    /// Whether the new configuration was accepted. If not, the old plan still runs.
    pub ok: bool,
    /// Why it was not, as it was logged.
    pub error: Option<String>,
}

/// What idle workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdleMode {
    /// They sleep, and wake on traffic.
    Adaptive,
    /// They continue to poll.
    Busy,
}

/// Memory of the session tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Bytes of address space.
    pub bytes: u64,
    /// The pages they lie in, by `sluice_table::Pages`' names: `1 GiB`, `2 MiB` or `ordinary`.
    pub pages: String,
    /// Whether they outlive the process, so that sessions go on after a restart.
    #[serde(default)]
    pub kept: bool,
}

/// Sessions of all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionCounts {
    /// Open now.
    pub live: u64,
    /// The maximum.
    pub capacity: u64,
    /// Opened since the start.
    pub created: u64,
    /// Ended by themselves, with a four-way close or a reset.
    pub closed: u64,
    /// Timed out.
    pub expired: u64,
    /// Ended by an operator.
    #[serde(default)]
    pub killed: u64,
    /// Ended early, so that new ones had their place: half-open ones, and those of services above
    /// their share.
    #[serde(default)]
    pub evicted: u64,
    /// Half-open ones: TCP whose handshake is not complete, UDP that nobody has answered.
    #[serde(default)]
    pub half_open: u64,
    /// Workers under pressure from half-open sessions, which then expire after three seconds.
    #[serde(default)]
    pub pressed_workers: u16,
    /// Resets and FINs that were forwarded but ended no session, since their numbers do not fit.
    #[serde(default)]
    pub ignored_ends: u64,
}

/// One worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Worker {
    /// Its number.
    pub worker: u16,
    /// The core it runs on, by the kernel's CPU number.
    pub core: u16,
    /// Its open sessions.
    pub sessions: u64,
    /// Its maximum.
    pub session_capacity: u64,
    /// Packets received.
    pub packets: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Turns without work.
    pub empty_turns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Frames that wait for a neighbour.
    pub held_frames: u64,
    /// Share of the last two to three seconds spent on turns with work, 0 to 1; over the last hour:
    /// `GET /v1/rates`.
    pub busy_share: f64,
}

/// All ports: `GET /v1/ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ports {
    /// In the configuration's order.
    pub ports: Vec<Port>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What it is, as configured: `af_xdp:eth0`.
    pub device: String,
    /// Name of the network that its packets are of; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// DPDK's driver: `net_af_xdp`; empty while the device is gone.
    pub driver: String,
    /// The kernel's interface that the kernel sees its traffic on: the device itself or the twin.
    pub interface: Option<String>,
    /// MAC address: `02:00:00:00:00:01`; absent while the device is gone.
    pub mac: Option<String>,
    /// Largest IP packet in bytes; absent while the device is gone.
    pub mtu: Option<u16>,
    /// Whether it can carry frames.
    pub state: PortState,
    /// Why it cannot, where the device says: a memif without a peer.
    pub trouble: Option<String>,
    /// Queue pairs.
    pub queues: u16,
    /// TAP interface that hands to the kernel what the director does not take.
    pub twin: Option<String>,
    /// What was received.
    pub rx: Received,
    /// What was sent.
    pub tx: Sent,
    /// What the XDP program did; absent where there is none.
    pub steering: Option<Steering>,
    /// What the copy engine of a memif did; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
}

/// What a copy engine of a port did since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Copies {
    /// Copies that it was given.
    pub offloaded: u64,
    /// Copies that it had no room for, done by the processor.
    pub full: u64,
    /// Copies that it failed to do, done by the processor.
    pub failed: u64,
}

/// Whether a port can carry frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortState {
    /// It can.
    Up,
    /// It is there, but down or without a carrier.
    Down,
    /// The device is not there.
    Gone,
}

/// What a port received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Received {
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Frames lost at a full queue.
    pub missed: u64,
    /// Frames received in error.
    pub errors: u64,
}

/// What a port sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Frames that could not be sent.
    pub errors: u64,
}

/// What the XDP program of a port did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steering {
    /// Where it runs.
    pub mode: SteeringMode,
    /// Frames given to the director.
    pub taken: u64,
    /// Frames left to the kernel because they are not the director's.
    pub passed: u64,
    /// Frames that are the director's but went to the kernel: none of its queues was bound where
    /// they arrived.
    pub unowned: u64,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteeringMode {
    /// In the driver.
    Native,
    /// In the kernel's generic receive path: works with every driver, slower.
    Generic,
}

/// Why packets were dropped or handed to the kernel: `GET /v1/drops`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drops {
    /// Every reason, also those that never happened. Of one service, those with which a service
    /// refuses new sessions or ends one.
    pub drops: Vec<Drop>,
}

impl Drops {
    /// Every reason with its count, which are in the order of [`Reason::ALL`].
    pub fn from_counts(counts: &[u64; Reason::COUNT]) -> Self {
        Self::of(Reason::ALL.iter().copied().zip(counts.iter().copied()))
    }

    /// The reasons of one service.
    pub fn of_service(drops: &ServiceDrops) -> Self {
        Self::of(drops.by_reason())
    }

    fn of(counted: impl Iterator<Item = (Reason, u64)>) -> Self {
        let drops = counted.map(|(reason, packets)| Drop {
            reason: reason.name().to_owned(),
            fate: reason.fate().into(),
            packets,
            meaning: reason.text().to_owned(),
        });
        Self { drops: drops.collect() }
    }
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drop {
    /// Its name.
    pub reason: String,
    /// What happened to the packets.
    pub fate: Fate,
    /// How many there were.
    pub packets: u64,
    /// Its meaning and the remedy.
    pub meaning: String,
}

/// What happened to packets with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// They were dropped.
    Dropped,
    /// They were given to the kernel.
    Kernel,
}

impl From<reason::Fate> for Fate {
    fn from(fate: reason::Fate) -> Self {
        match fate {
            reason::Fate::Dropped => Self::Dropped,
            reason::Fate::Kernel => Self::Kernel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed_with_its_count() {
        let mut counts = [0; Reason::COUNT];
        counts[Reason::TooBig as usize] = 7;
        let Drops { drops } = Drops::from_counts(&counts);
        assert_eq!(drops.len(), Reason::COUNT);
        let counted: Vec<_> = drops.iter().filter(|drop| drop.packets > 0).collect();
        assert_eq!(counted.len(), 1);
        assert_eq!((&*counted[0].reason, counted[0].packets), (Reason::TooBig.name(), 7));
        assert_eq!(counted[0].meaning, Reason::TooBig.text());
    }
}
