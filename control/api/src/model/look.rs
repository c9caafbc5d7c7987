//! What traces and captures are asked for, and what a trace tells: `POST /v1/trace`,
//! `POST /v1/capture`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which packets to look at, and how far. What is absent does not restrict, or is the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LookRequest {
    /// A program in classic BPF, as `tcpdump -ddd` prints it: code, jt, jf and k of each
    /// instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Vec<[u32; 4]>>,
    /// Name of a virtual service or of a rule of source NAT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// A real server: its address, or address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real: Option<String>,
    /// Name of a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Names of reasons, as `sluice drops` has them; `dropped` for all that drop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The form of a packet that must match: as received (`in`), as sent (`out`), either if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Way>,
    /// Packets, up to [`Self::MAX_PACKETS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Seconds, up to [`Self::MAX_SECONDS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Bytes of packets, up to [`Self::MAX_BYTES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes of each packet that are kept, up to [`Self::MAX_SNAP`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snap: Option<u32>,
}

impl LookRequest {
    /// The most packets.
    pub const MAX_PACKETS: u64 = 10_000_000;
    /// The most seconds.
    pub const MAX_SECONDS: f64 = 3600.0;
    /// The most bytes.
    pub const MAX_BYTES: u64 = 16 << 30;
    /// The most bytes of each packet: all of a super-packet.
    pub const MAX_SNAP: u32 = 65_600;
    /// Packets of a trace.
    pub const TRACE_PACKETS: u64 = 10;
    /// Packets of a capture.
    pub const CAPTURE_PACKETS: u64 = 100_000;
    /// Seconds of either.
    pub const SECONDS: f64 = 60.0;
    /// Bytes of either.
    pub const BYTES: u64 = 256 << 20;
    /// Bytes of each packet.
    pub const SNAP: u32 = 2048;
}

/// A form of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// As received.
    In,
    /// As sent.
    Out,
}

impl std::str::FromStr for Way {
    type Err = crate::WrongValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "in" => Ok(Self::In),
            "out" => Ok(Self::Out),
            _ => Err(crate::WrongValue::one_of(text, &["in", "out"])),
        }
    }
}

/// Which of the two is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookKind {
    /// Decisions, as lines of JSON: [`TraceLine`]s.
    Trace,
    /// Packets, as pcapng.
    Capture,
}

impl LookKind {
    /// The path that it is asked for at.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Trace => "/v1/trace",
            Self::Capture => "/v1/capture",
        }
    }

    /// Media type of the answer.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Trace => "application/x-ndjson",
            Self::Capture => "application/x-pcapng",
        }
    }
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TraceLine {
    /// From now on so many workers look.
    Watching {
        /// How many.
        workers: u64,
    },
    /// A packet.
    Packet(Box<TracedPacket>),
    /// There will be no more.
    End(LookEnd),
}

/// One packet and what was decided about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// Its number in this trace, from 1; what another worker tells of it has its own.
    pub number: u64,
    /// When: seconds since 1970.
    pub at_unix_s: f64,
    /// The worker that tells.
    pub worker: u16,
    /// The packet in one line.
    pub packet: String,
    /// What became of it.
    pub fate: PacketFate,
    /// Why, if it was not simply forwarded: a name that `sluice drops` has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What happened, in order.
    pub steps: Vec<TraceStep>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketFate {
    /// It was sent.
    Sent,
    /// Its sender was answered in its place.
    Answered,
    /// It was left to the kernel.
    Kernel,
    /// It was handed to the worker that owns it.
    HandedOff,
    /// It waits for its next hop's address, or for the first fragment of its datagram.
    Waits,
    /// It was dropped.
    Dropped,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// Which: `receive`, `parse`, `match`, `session`, `schedule`, `open`, `state`, `translate`,
    /// `next hop`, `send`, `answer`, `kernel`, `hand off`, `wait`, `drop`.
    pub step: String,
    /// What was decided.
    pub text: String,
}

/// How a trace or a capture ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookEnd {
    /// Why: `packets`, `bytes`, `seconds` or `stopped`.
    pub why: String,
    /// Packets that were told.
    pub packets: u64,
    /// Packets that fitted and were not told, because the reader was slow.
    pub lost: u64,
}
