//! What the control loop knows at a moment, as it gives it away: copied or shared, not formatted.

use crate::busy::Work;
use sluice_api::model;
use sluice_director::counters::Counters;
use sluice_director::path::Stage;
use sluice_director::plan::{Plan, RealId};
use sluice_director::reason::Reason;
use sluice_director::spec::NetworkId;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How things stood at a moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// When: since the director's start, by a clock that never goes back.
    pub at: Duration,
    /// The plan that the counters are of.
    pub plan: Arc<Plan>,
    /// Everything counted, over all workers; absent if one of them did not answer, or had not
    /// taken the plan over.
    pub counters: Option<Counters>,
    /// Real servers that are full at all workers.
    pub full: Vec<RealId>,
    /// All workers, by number.
    pub workers: Vec<WorkerSample>,
    /// Ports.
    pub ports: model::Ports,
    /// Virtual addresses, and session synchronisation.
    pub ha: model::Ha,
    /// Number of the last change of the desired state.
    pub config_epoch: u64,
    /// Whether changes survive a restart.
    pub durable: bool,
    /// Whether what runs is not what the file says.
    pub differs_from_file: bool,
    /// The last reload.
    pub last_reload: Option<model::Reload>,
    /// Whether packet memory lies in huge pages.
    pub huge_pages: bool,
    /// How often the health checks' thread was replaced.
    pub check_restarts: u64,
    /// Whether there are series of each real server and health check.
    pub real_servers: bool,
}

/// A worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerSample {
    /// The core that it runs on.
    pub core: u16,
    /// What it said; nothing if it did not answer in time.
    pub figures: Option<WorkerFigures>,
}

/// What a worker says of itself: counts since its start, and how it stands.
#[derive(Clone, Debug, Default)]
pub struct WorkerFigures {
    /// Open sessions.
    pub sessions: u64,
    /// The most sessions there can be.
    pub session_capacity: u64,
    /// Half-open sessions among them.
    pub half_open: u64,
    /// Whether these press for room.
    pub pressed: bool,
    /// Bytes of its session tables.
    pub table_bytes: u64,
    /// Frames that wait for a neighbour.
    pub held: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Turns in which there was nothing to do.
    pub empty_turns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Packets received.
    pub packets: u64,
    /// Bursts that they came in.
    pub bursts: u64,
    /// Packets handed to another worker.
    pub handed_off: u64,
    /// Flows of its that other workers help with.
    pub spread_flows: u64,
    /// Packets that it has dealt to these.
    pub spread_packets: u64,
    /// What its time went into.
    pub work: Work,
    /// Bursts that were timed.
    pub timed_bursts: u64,
    /// Packets in them.
    pub timed_packets: u64,
    /// Packets among these that a session was looked for.
    pub looked_up: u64,
    /// Of these, the ones that had a candidate at the first look.
    pub found: u64,
    /// Seconds that each stage took of the bursts that were timed.
    pub stage_s: [f64; Stage::COUNT],
    /// Each network by itself, if there is any besides the default one.
    pub networks: Vec<NetworkFigures>,
}

/// What a worker says of a network.
#[derive(Clone, Debug)]
pub struct NetworkFigures {
    /// Which.
    pub network: NetworkId,
    /// Open sessions.
    pub sessions: u64,
    /// The most there can be.
    pub session_capacity: u64,
    /// Packets by reason.
    pub reasons: [u64; Reason::COUNT],
}

/// How all health checks stand.
pub type Checks = Vec<Check>;

/// How a health check stands.
#[derive(Clone, Debug)]
pub struct Check {
    /// Name of the service.
    pub service: Arc<str>,
    /// Address of the real server.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Name of the check.
    pub check: Arc<str>,
    /// Whether the real server is up; `None` while that is not known.
    pub up: Option<bool>,
    /// Seconds that the last probe took.
    pub took_s: Option<f64>,
    /// Whether the last probe passed; `None` if there was none, or if it found nothing out.
    pub passed: Option<bool>,
    /// Probes so far.
    pub probes: u64,
}
