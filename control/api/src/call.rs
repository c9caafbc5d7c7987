//! What the server asks of the daemon.

use tokio::sync::oneshot;

use crate::model::{Drops, Elephants, Events, Health, Ports, Services, Sessions, Stages, Status};
use crate::query::SessionQuery;

/// Where an answer goes: `reply.send(answer)`, from any thread, at most once. Dropping it without
/// an answer tells the client that the director is stopping. An answer that comes too late is
/// given back by `send` and may be ignored.
pub type Reply<T> = oneshot::Sender<T>;

/// A request for the daemon, with the place for its answer.
#[derive(Debug)]
pub enum Call {
    /// How the director is doing.
    Status(Reply<Status>),
    /// All virtual services.
    Services(Reply<Services>),
    /// At most `limit` open sessions that the query admits.
    Sessions(SessionQuery, Reply<Sessions>),
    /// All ports.
    Ports(Reply<Ports>),
    /// All reasons.
    Drops(Reply<Drops>),
    /// All health checks.
    Health(Reply<Health>),
    /// What has happened.
    Events(Reply<Events>),
    /// Where the workers' time goes.
    Stages(Reply<Stages>),
    /// At most so many of the sessions with the most traffic.
    Elephants(u32, Reply<Elephants>),
}
