//! Lists sessions for the operator on a thread of its own: asks the workers for one part of their
//! tables after the other, so that neither they nor the control loop wait for a long list.

use crate::queues::PortQueue;
use crate::report;
use sluice_api::{Reply, SessionQuery, model};
use sluice_director::path::SessionFilter;
use sluice_director::plan::Plan;
use sluice_worker::{Inbox, Message};
use std::sync::Arc;
use std::sync::mpsc::channel;
use tracing::warn;

/// Starts to list; the answer goes to `reply`.
pub fn start(
    workers: Vec<Inbox<PortQueue>>,
    plan: Arc<Plan>,
    query: SessionQuery,
    reply: Reply<model::Sessions>,
) {
    let work = move || {
        // A client that no longer waits is no error.
        let _ = reply.send(list(&workers, &plan, &query));
    };
    if let Err(error) = std::thread::Builder::new().name("sessions".into()).spawn(work) {
        warn!(%error, "cannot start a thread to list sessions");
    }
}

fn list(workers: &[Inbox<PortQueue>], plan: &Plan, query: &SessionQuery) -> model::Sessions {
    let filter = filter(plan, query);
    let limit = query.limit as usize;
    let mut sessions = Vec::new();
    for (number, worker) in workers.iter().enumerate() {
        let mut next = Some(0);
        while let Some(cursor) = next.filter(|_| sessions.len() <= limit) {
            let (reply, answer) = channel();
            worker.send(Message::Sessions { filter: filter.clone(), cursor, reply });
            let Ok((found, more)) = answer.recv() else { break };
            let shown = found.iter().filter_map(|s| report::session(plan, number as u16, s));
            sessions.extend(shown.filter(|session| query.matches(session)));
            next = more;
        }
    }
    let more = sessions.len() > limit;
    sessions.truncate(limit);
    model::Sessions { sessions, more }
}

/// What the workers can tell apart themselves; ports and names are compared afterwards.
fn filter(plan: &Plan, query: &SessionQuery) -> SessionFilter {
    let named = |name: &String| plan.live_services().find(|(_, s)| s.name == *name);
    SessionFilter {
        service: query.service.as_ref().and_then(named).map(|(id, _)| id),
        client: query.client.map(|endpoint| endpoint.address),
        real: query.real.map(|endpoint| endpoint.address),
        state: query.state.map(Into::into),
        protocol: query
            .protocol
            .map(|protocol| sluice_director::blueprint::Protocol::from(protocol).number()),
    }
}
