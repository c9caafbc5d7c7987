//! Lists and ends sessions for the operator on a thread of its own: asks the workers for one part
//! of their tables after the other, so that neither they nor the control loop wait for a long list.

use crate::queues::PortQueue;
use crate::report;
use sluice_api::model::{Event, EventKind, Killed, Network};
use sluice_api::{Cursor, EventLog, Reply, SessionQuery, model};
use sluice_director::path::{SessionFilter, SessionInfo};
use sluice_director::plan::Plan;
use sluice_director::spec::NetworkId;
use sluice_state::Author;
use sluice_worker::{Inbox, Message};
use std::sync::Arc;
use std::sync::mpsc::channel;
use tracing::{info, warn};

/// Whom to ask, and what they work with.
pub struct Lister {
    /// The workers.
    pub workers: Vec<Inbox<PortQueue>>,
    /// Their plan.
    pub plan: Arc<Plan>,
}

impl Lister {
    /// Starts to list; the answer goes to `reply`.
    pub fn list(self, query: SessionQuery, reply: Reply<model::Sessions>) {
        // A client that no longer waits is no error.
        aside(move || drop(reply.send(list(&self.workers, &self.plan, &query))));
    }

    /// Starts to end, or to count; the answer goes to `reply`, and into the log of events.
    pub fn kill(
        self,
        query: SessionQuery,
        (dry_run, by): (bool, Author),
        events: Arc<EventLog>,
        reply: Reply<Option<Killed>>,
    ) {
        aside(move || {
            let counted = self.end(&query, dry_run);
            if let (false, Some(sessions @ 1..)) = (dry_run, counted) {
                let text = format!("{sessions} sessions were ended");
                info!(%by, sessions, "{text}");
                let (service, author) = (query.service.unwrap_or_default(), Some(by));
                events.note(Event { service, author, ..Event::new(EventKind::Sessions, text) });
            }
            // A client that no longer waits is no error.
            let _ = reply.send(counted.map(|sessions| Killed { sessions, dry_run }));
        });
    }

    /// How many were ended, or are there to be. `None` when a worker did not answer.
    fn end(&self, query: &SessionQuery, dry_run: bool) -> Option<u64> {
        let (filter, mut ended) = (filter(&self.plan, query), 0);
        // Of a service or network that there is not there are no sessions; and never are all of
        // them meant.
        if query.service.is_some() && filter.service.is_none()
            || query.network.is_some() && filter.network.is_none()
        {
            return Some(0);
        }
        for worker in &self.workers {
            let mut next = Some(0);
            while let Some(cursor) = next {
                let filter = filter.clone();
                let count;
                (count, next) = if dry_run {
                    let (reply, answer) = channel();
                    worker.send(Message::Sessions { filter, cursor, reply });
                    let (found, next) = answer.recv().ok()?;
                    (found.len() as u64, next)
                } else {
                    let (reply, answer) = channel();
                    worker.send(Message::Kill { filter, cursor, reply });
                    let (count, next) = answer.recv().ok()?;
                    (u64::from(count), next)
                };
                ended += count;
            }
        }
        Some(ended)
    }
}

/// Works on a thread of its own.
pub fn aside(work: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name("sessions".into()).spawn(work) {
        warn!(%error, "cannot start a thread to go through the sessions");
    }
}

fn list(workers: &[Inbox<PortQueue>], plan: &Plan, query: &SessionQuery) -> model::Sessions {
    let (filter, limit) = (filter(plan, query), query.limit as usize);
    let shown = |worker, info: &SessionInfo| {
        report::session(plan, worker, info).filter(|session| query.matches(session))
    };
    let (sessions, next) = page(workers, &filter, (query.cursor.unwrap_or_default(), limit), shown);
    model::Sessions { sessions, more: next.is_some(), next }
}

/// Goes through the workers' sessions from a place on until there are `limit` that `shown` makes
/// something of; gives the place to go on at, if there are more.
pub fn page<T>(
    workers: &[Inbox<PortQueue>],
    filter: &SessionFilter,
    (begin, limit): (Cursor, usize),
    shown: impl Fn(u16, &SessionInfo) -> Option<T>,
) -> (Vec<T>, Option<String>) {
    let mut sessions = Vec::new();
    let mut places = Vec::new();
    for (number, worker) in workers.iter().enumerate().skip(begin.worker.into()) {
        let number = number as u16;
        let mut next = Some(if number == begin.worker { begin.slot } else { 0 });
        while let Some(cursor) = next.filter(|_| sessions.len() <= limit) {
            let (reply, answer) = channel();
            worker.send(Message::Sessions { filter: filter.clone(), cursor, reply });
            let Ok((found, more)) = answer.recv() else { break };
            for info in &found {
                if let Some(session) = shown(number, info) {
                    sessions.push(session);
                    places.push(Cursor { worker: number, slot: info.slot });
                }
            }
            next = more;
        }
    }
    let next = places.get(limit).map(ToString::to_string);
    sessions.truncate(limit);
    (sessions, next)
}

/// The number of the network with a name.
pub fn network_id(plan: &Plan, name: &str) -> Option<NetworkId> {
    if name == Network::DEFAULT {
        return Some(NetworkId::DEFAULT);
    }
    (1..plan.network_count()).map(NetworkId).find(|id| plan.network_name(*id) == Some(name))
}

/// What the workers can tell apart themselves: everything but the name of a service that left.
fn filter(plan: &Plan, query: &SessionQuery) -> SessionFilter {
    let named = |name: &String| plan.live_services().find(|(_, s)| s.name == *name);
    SessionFilter {
        network: query.network.as_ref().and_then(|name| network_id(plan, name)),
        service: query.service.as_ref().and_then(named).map(|(id, _)| id),
        client: query.client.map(|endpoint| endpoint.address),
        client_port: query.client.and_then(|endpoint| endpoint.port),
        real: query.real.map(|endpoint| endpoint.address),
        real_port: query.real.and_then(|endpoint| endpoint.port),
        state: query.state.map(Into::into),
        protocol: query
            .protocol
            .map(|protocol| sluice_director::spec::Protocol::from(protocol).number()),
        bound: false,
    }
}
