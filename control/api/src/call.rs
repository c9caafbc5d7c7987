//! What the server asks of the daemon.

use axum::body::Bytes;
use tokio::sync::oneshot;

use sluice_ipvs::Answer;
use sluice_state::{Applied, Author, Entry, Epoch, Key, Refusal, Request, View};

use crate::look::{LookRefusal, Pieces};
use crate::model::{
    Drops, Elephants, FlowPin, Ha, HaNotify, Health, HistoryPage, Killed, Networks, Ports,
    PortsRules, Rates, RatesQuery, Services, Sessions, SpreadFlows, Stages, Status,
};
use crate::model::{LookKind, LookRequest};
use crate::query::SessionQuery;

/// Where an answer goes: `reply.send(answer)`, from any thread, at most once. Dropping it without
/// an answer tells the client that the director is stopping. An answer that comes too late is
/// given back by `send` and may be ignored.
pub type Reply<T> = oneshot::Sender<T>;

/// How the page for Prometheus is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Exposition {
    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A request for the daemon, with the place for its answer.
#[derive(Debug)]
pub enum Call {
    /// How the director is doing.
    Status(Reply<Status>),
    /// All virtual services.
    Services(Reply<Services>),
    /// At most `limit` open sessions that the query admits.
    Sessions(SessionQuery, Reply<Sessions>),
    /// Sessions that the query admits are to end, whatever its limit; or to be counted.
    Kill {
        /// Which.
        query: SessionQuery,
        /// Whether it is only asked how many there are.
        dry_run: bool,
        /// Who asks.
        by: Author,
        /// For the answer; `None` when a worker did not answer.
        reply: Reply<Option<Killed>>,
    },
    /// All ports.
    Ports(Reply<Ports>),
    /// Steering rules of all ports.
    PortsRules(Reply<PortsRules>),
    /// All networks.
    Networks(Reply<Networks>),
    /// All reasons.
    Drops(Reply<Drops>),
    /// The reasons of one service, or the names of all.
    DropsOf(String, Reply<Result<Drops, Vec<String>>>),
    /// The reasons of one network, or the names of all.
    DropsIn(String, Reply<Result<Drops, Vec<String>>>),
    /// All health checks.
    Health(Reply<Health>),
    /// Virtual addresses.
    Ha(Reply<Ha>),
    /// Whether another director is to take over.
    Drain {
        /// Whether it is.
        draining: bool,
        /// Who asks.
        by: Author,
        /// For what high availability is then.
        reply: Reply<Ha>,
    },
    /// A program that moves addresses says what a group of them has become.
    Notify {
        /// What.
        said: HaNotify,
        /// Who asks.
        by: Author,
        /// For what high availability is then.
        reply: Reply<Ha>,
    },
    /// A new process is to take over.
    Upgrade {
        /// Whether it is only to stand in for one that the service manager starts.
        stand_in: bool,
        /// Who asks.
        by: Author,
        /// For what high availability is then.
        reply: Reply<Ha>,
    },
    /// Where the workers' time goes.
    Stages(Reply<Stages>),
    /// At most so many of the sessions with the most traffic.
    Elephants(u32, Reply<Elephants>),
    /// A flow is to be spread over several workers, or no more.
    Pin {
        /// Which.
        flow: FlowPin,
        /// Whether it is to be.
        pinned: bool,
        /// Who asks.
        by: Author,
        /// For those that are spread then, or why it cannot be.
        reply: Reply<Result<SpreadFlows, String>>,
    },
    /// Look at packets.
    Look(LookKind, LookRequest, Reply<Result<Pieces, LookRefusal>>),
    /// The page for Prometheus.
    Metrics(Exposition, Reply<Bytes>),
    /// Part of the last hour; or the names of services that there are.
    Rates(RatesQuery, Reply<Result<Rates, Vec<String>>>),
    /// The desired state.
    Config(Reply<View>),
    /// One object of it, and the epoch that is in force.
    ConfigObject(Key, Reply<Result<(u64, Entry), Refusal>>),
    /// A change of it.
    Change(Request, Reply<Result<Applied, Refusal>>),
    /// The file is to be read again.
    Reload {
        /// Who asks.
        by: Author,
        /// The epoch that must be in force.
        if_epoch: Option<u64>,
        /// Whether it is only asked what would change.
        dry_run: bool,
        /// For the answer.
        reply: Reply<Result<Applied, Refusal>>,
    },
    /// A request of a program that knows IPVS, and who asks.
    Ipvs(Box<sluice_ipvs::Request>, Author, Reply<Answer>),
    /// At most so many of the last epochs.
    History(u32, Reply<HistoryPage>),
    /// One epoch; or the first and the last that are known.
    Epoch(u64, Reply<Result<Epoch, (u64, u64)>>),
}
