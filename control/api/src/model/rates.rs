//! The last hour, in columns that a plot can take as they are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happened over the last hour: `GET /v1/rates`. All columns are equally long; the rates of a
/// place are those of the time that ended at its `at_unix_s`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// The service or rule of source NAT; absent for the whole director.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Seconds from one place to the next. Places may be missing: then the next tells of a longer
    /// time.
    pub step_s: u32,
    /// The director's clock, in seconds since 1970-01-01 UTC.
    pub now_unix_s: f64,
    /// When each time ended, in seconds since 1970-01-01 UTC, rising.
    pub at_unix_s: Vec<f64>,
    /// What was forwarded from clients to real servers.
    pub inbound: RateColumns,
    /// What was forwarded from real servers to clients.
    pub outbound: RateColumns,
    /// Sessions opened, a second.
    pub new_sessions_per_s: Vec<f64>,
    /// Sessions that were open.
    pub sessions: Vec<f64>,
    /// Packets that workers received, a second; only of the whole director.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_packets_per_s: Option<Vec<f64>>,
    /// Packets dropped, a second; only of the whole director.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops_per_s: Option<Vec<f64>>,
    /// Workers, by number; only of the whole director.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerRates>,
}

/// What was forwarded in a direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateColumns {
    /// Packets a second.
    pub packets_per_s: Vec<f64>,
    /// Bytes of IP packets a second.
    pub bytes_per_s: Vec<f64>,
}

/// A worker over the last hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerRates {
    /// Its number.
    pub worker: u16,
    /// Share of its time that it spent on turns with work, 0 to 1.
    pub busy_share: Vec<f64>,
}

/// Which part of the last hour: the parameters of `GET /v1/rates`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RatesQuery {
    /// Of this service or rule of source NAT; of the whole director if none is named.
    pub service: Option<String>,
    /// Only what ended later than this, in milliseconds since 1970-01-01 UTC. The parameter is in
    /// seconds.
    pub since_unix_ms: Option<u64>,
    /// Seconds from one place to the next, at least; see [`Self::MAX_STEP_S`].
    pub step_s: Option<u32>,
}

impl RatesQuery {
    /// The longest step: all of it in one place.
    pub const MAX_STEP_S: u32 = 3_600;

    /// The parameters that are given.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("service", self.service.clone()),
            ("since", self.since_unix_ms.map(|since| (since as f64 / 1e3).to_string())),
            ("step", self.step_s.map(|step| step.to_string())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}
