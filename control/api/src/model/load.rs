//! Where time goes, and whom it is for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Session, SpreadFlow};

/// Where the workers' time goes: `GET /v1/stages`. Everything is counted since the start: the
/// difference of two answers is what was between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stages {
    /// Ticks a second of the clock that stages are timed by: the processor's time stamp counter.
    pub ticks_per_s: u64,
    /// Workers, by number.
    pub workers: Vec<WorkerStages>,
}

/// Where one worker's time goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerStages {
    /// Its number.
    pub worker: u16,
    /// The core it runs on, by the kernel's CPU number.
    pub core: u16,
    /// Packets received.
    pub packets: u64,
    /// Bursts that they came in, of at most 256 packets.
    pub bursts: u64,
    /// Packets of the timed bursts, one burst in 32 on average.
    pub timed_packets: u64,
    /// Those bursts.
    pub timed_bursts: u64,
    /// Session lookups among them.
    pub looked_up: u64,
    /// Lookups that found a candidate at once, nearly always packets of open sessions.
    pub found: u64,
    /// Stages in the order of a burst.
    pub stages: Vec<StageTicks>,
}

/// What a stage took of the bursts that were timed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageTicks {
    /// Its name: `receive`, `parse`, `find`, `track` or `send`.
    pub stage: String,
    /// Ticks of the clock.
    pub ticks: u64,
}

/// The sessions with the most traffic: `GET /v1/elephants`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Elephants {
    /// Those with the most packets first.
    pub elephants: Vec<Elephant>,
    /// The flows that several workers process, whether they are among those or not.
    #[serde(default)]
    pub spread: Vec<SpreadFlow>,
}

impl Elephants {
    /// How many are shown unless more are asked for.
    pub const DEFAULT_LIMIT: u32 = 20;
    /// The most that can be asked for.
    pub const MAX_LIMIT: u32 = 1000;
}

/// A session with much traffic. Rates are estimates over the last second or so, from one packet in
/// 128: they are right to about one part in the square root of `samples`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Elephant {
    /// Which.
    pub session: Session,
    /// From the client.
    pub inbound: Rate,
    /// To the client.
    pub outbound: Rate,
    /// Packets that were looked at.
    pub samples: u32,
}

/// How much passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Packets a second.
    pub packets_per_s: u64,
    /// Bytes of IP packets a second.
    pub bytes_per_s: u64,
}
