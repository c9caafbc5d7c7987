//! What is said of spread flows: orders, refusals, how they stand and why they end.

use crate::path::{FlowName, NotSpreadable};
use crate::spec::NetworkId;
use std::net::IpAddr;

/// The most flows that one worker spreads at a time.
pub const MOST: usize = 16;

/// A flow that is to be spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadOrder {
    /// The network that its session is in.
    pub network: NetworkId,
    /// Which.
    pub flow: FlowName,
    /// Over how many workers, its owner included; 0 for all.
    pub workers: u16,
    /// Whether an operator wants it, rather than the policy.
    pub pinned: bool,
}

/// Why a worker does not spread a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its packets cannot be processed by others, or its session is not here.
    Flow(NotSpreadable),
    /// There is no other worker.
    OneWorker,
    /// [`MOST`] flows are spread already.
    TooMany,
    /// It is spread already.
    Already,
}

impl Refused {
    /// What to tell an operator.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Flow(why) => why.text(),
            Self::OneWorker => "there is no other worker to spread it over",
            Self::TooMany => "the worker already spreads as many flows as it can",
            Self::Already => "it is spread already",
        }
    }
}

/// Why a flow is not spread any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// An operator or the policy wanted so.
    Asked,
    /// Its packets cannot be processed by others any more; most often its session has ended.
    Flow(NotSpreadable),
}

impl Ended {
    /// What to tell an operator.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Asked => "as requested",
            Self::Flow(NotSpreadable::NoSession | NotSpreadable::State) => "the session has ended",
            Self::Flow(why) => why.text(),
        }
    }
}

/// A flow that a worker spreads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spreading {
    /// The network that its session is in.
    pub network: NetworkId,
    /// Which.
    pub flow: FlowName,
    /// Source address and port of its packets as they arrive, which outbound are no client's.
    pub from: (IpAddr, u16),
    /// Their destination.
    pub to: (IpAddr, u16),
    /// Over which workers besides its owner.
    pub helpers: Vec<u16>,
    /// Whether an operator wants it, rather than the policy.
    pub pinned: bool,
    /// Since when, in milliseconds.
    pub age_ms: u64,
    /// Frames that were dealt to helpers.
    pub dealt: u64,
    /// Frames that the owner rewrote itself, since no helper had room.
    pub own: u64,
    /// Frames that had to go through the owner's path.
    pub kept: u64,
    /// Frames that were dropped because a helper was late.
    pub late: u64,
    /// Whether some came here through more than one other worker, so that no fence could tell when
    /// the last of them has come.
    pub goes_round: bool,
}
