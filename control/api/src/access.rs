//! Who may do what: each request is let in by the source it came through, and by its token.
//!
//! Whoever may open the control socket is the operator of the machine and may do everything. Over
//! the network a request shows a token; its holder's role must reach as far as the request does.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sluice_state::{Author, Source};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, warn};

use crate::origin::Hosts;
use crate::problem::Problem;
use crate::tokens::{Role, Tokens};

/// What anybody may ask for.
const OPEN: [&str; 1] = ["/healthz"];
/// What `operate` may do besides looking: method and route.
const OPERATED: [(Method, &str); 8] = [
    (Method::PATCH, "/v1/config/services/{name}/reals/{real}"),
    (Method::POST, "/v1/config/reload"),
    (Method::POST, "/v1/ha/drain"),
    (Method::POST, "/v1/ha/notify"),
    (Method::POST, "/v1/ha/upgrade"),
    (Method::POST, "/v1/elephants/pin"),
    (Method::POST, "/v1/elephants/unpin"),
    (Method::DELETE, "/v1/sessions"),
];
/// What takes the role of looking though it is no `GET`: what is asked for says whether more.
const ASKED: [(Method, &str); 1] = [(Method::POST, "/v1/ipvs")];
/// Refused tokens are logged at most once in this time.
const QUIET: Duration = Duration::from_secs(5);

/// The role that a request needs; `None` when anybody may make it. What is not known needs the
/// highest.
pub(crate) fn needed(method: &Method, route: &str) -> Option<Role> {
    if OPEN.contains(&route) {
        return None;
    }
    let is_in =
        |list: &[(Method, &str)]| list.iter().any(|(known, at)| known == method && *at == route);
    if matches!(*method, Method::GET | Method::HEAD) || is_in(&ASKED) {
        return Some(Role::Read);
    }
    Some(if is_in(&OPERATED) { Role::Operate } else { Role::Admin })
}

/// The connection that a request came by.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The peer; `None` for the control socket.
    pub(crate) peer: Option<SocketAddr>,
    /// Whether it is encrypted.
    pub(crate) secure: bool,
    streams: Arc<AtomicBool>,
    /// Whether a request has come: its line and its header.
    heard: Arc<AtomicBool>,
    /// Whether one of them had a valid token.
    known: Arc<AtomicBool>,
}

impl Way {
    pub(crate) fn new(peer: Option<SocketAddr>, secure: bool) -> Self {
        let (streams, heard, known) = Default::default();
        Self { peer, secure, streams, heard, known }
    }

    /// The same, where others ask whether a token was shown.
    pub(crate) fn of_place(self, known: Arc<AtomicBool>) -> Self {
        Self { known, ..self }
    }

    /// Says that a request has come.
    pub(crate) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Says that the answer has no end: the connection may last.
    pub(crate) fn keep(&self) {
        self.streams.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// As the history has it.
    pub(crate) author: Author,
    /// What it may do.
    pub(crate) role: Role,
    /// Changes when the tokens do: what was allowed then may not be any more.
    pub(crate) expires: Option<watch::Receiver<u64>>,
}

/// Lets in whom the tokens know.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    tokens: RwLock<Arc<Tokens>>,
    /// What the director is called.
    hosts: RwLock<Arc<Hosts>>,
    /// How often there were others.
    changes: watch::Sender<u64>,
    /// When a refusal was logged last, and how many there were since.
    refused: Mutex<(Option<Instant>, u64)>,
}

impl Gate {
    /// From now on these tokens and names hold.
    pub(crate) fn set(&self, tokens: Arc<Tokens>, hosts: Hosts) {
        *self.hosts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(hosts);
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn hosts(&self) -> Arc<Hosts> {
        Arc::clone(&self.hosts.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn admit(&self, request: &Request) -> Result<Caller, Problem> {
        let way = request.extensions().get::<Way>();
        // What came no known way is not let in.
        let Some(way) = way else { return Err(Problem::unauthorized("there is no token")) };
        let Some(peer) = way.peer else {
            let author = Author::of(Source::Api);
            return Ok(Caller { author, role: Role::Admin, expires: None });
        };
        let route = request.extensions().get::<MatchedPath>();
        let route = route.map_or("", MatchedPath::as_str);
        let expires = Some(self.changes.subscribe());
        let author = Author::of(Source::Api);
        let anybody = Caller { author, role: Role::Read, expires: expires.clone() };
        let Some(needed) = needed(request.method(), route) else { return Ok(anybody) };
        // What is nowhere is told to everybody whom something is told.
        let needed = if route.is_empty() { Role::Read } else { needed };
        let tokens = Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner));
        let token = bearer(request).inspect_err(|_| self.note(peer))?;
        let Some(holder) = tokens.holder(token) else {
            self.note(peer);
            return Err(Problem::unauthorized("the director does not know this token"));
        };
        way.known.store(true, Ordering::Relaxed);
        if holder.role < needed {
            return Err(Problem::forbidden(&holder.name, holder.role, needed));
        }
        let name = Some(holder.name.clone());
        Ok(Caller { author: Author { source: Source::Api, name }, role: holder.role, expires })
    }

    /// Logs that somebody was refused, once in a while.
    fn note(&self, peer: SocketAddr) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.1 += 1;
        if refused.0.is_none_or(|at| at.elapsed() >= QUIET) {
            warn!(%peer, requests = refused.1, "a request over the network had no valid token");
            *refused = (Some(Instant::now()), 0);
        }
    }
}

fn bearer(request: &Request) -> Result<&str, Problem> {
    let mut all = request.headers().get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return Err(Problem::unauthorized("there is no token, or more than one"));
    };
    let split = value.to_str().ok().and_then(|text| text.split_once(' '));
    match split {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(Problem::unauthorized("the header Authorization has no Bearer token")),
    }
}

/// Asks the gate before anything else, and tells the handlers who asks.
pub(crate) async fn admit(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    match gate.admit(&request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// A handler that panics is a request that failed, and nothing more.
pub(crate) async fn survive(request: Request, next: Next) -> Response {
    // Dropped with the connection, and the handler with it.
    let mut tasks = JoinSet::new();
    let what = format!("{} {}", request.method(), request.uri().path());
    tasks.spawn(next.run(request));
    match tasks.join_next().await {
        Some(Ok(response)) => response,
        _ => {
            error!(what, "answering a request failed; this is a bug");
            Problem::internal().into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_needs_the_highest_role() {
        let real = "/v1/config/services/{name}/reals/{real}";
        for (method, route, role) in [
            (Method::GET, "/healthz", None),
            (Method::GET, "/v1/status", Some(Role::Read)),
            (Method::HEAD, "/v1/status", Some(Role::Read)),
            (Method::GET, "/v1/config", Some(Role::Read)),
            (Method::PATCH, real, Some(Role::Operate)),
            (Method::PUT, real, Some(Role::Admin)),
            (Method::DELETE, real, Some(Role::Admin)),
            (Method::POST, "/v1/config/reload", Some(Role::Operate)),
            (Method::POST, "/v1/ha/drain", Some(Role::Operate)),
            (Method::POST, "/v1/ha/notify", Some(Role::Operate)),
            (Method::POST, "/v1/ha/upgrade", Some(Role::Operate)),
            (Method::POST, "/v1/elephants/pin", Some(Role::Operate)),
            (Method::POST, "/v1/elephants/unpin", Some(Role::Operate)),
            (Method::POST, "/v1/config/rollback", Some(Role::Admin)),
            (Method::POST, "/v1/ipvs", Some(Role::Read)),
            (Method::DELETE, "/v1/sessions", Some(Role::Operate)),
            (Method::from_bytes(b"BREW").expect("a method"), "/v1/x", Some(Role::Admin)),
        ] {
            assert_eq!(needed(&method, route), role, "{method} {route}");
        }
    }
}
