//! Changes that may be asked for twice: a request with an `Idempotency-Key` is made once, and who
//! repeats it is told what became of it.
//!
//! A director that is starved may answer "no answer yet" and make the change a second later. So
//! such a request goes on whoever still waits, and its outcome is kept for a while: a number of
//! them, of a number of bytes. A key belongs to who used it; with another request it is refused.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, Response as Answer, StatusCode, header, response};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ring::digest::{Context, SHA256};
use tokio::sync::watch;

use crate::access::Caller;
use crate::problem::Problem;
use crate::query::WrongValue;
use crate::routes::Desk;

/// The header with the key.
pub(crate) const HEADER: &str = "idempotency-key";
/// The longest key, in bytes.
const KEY_BYTES: usize = 128;
/// Outcomes that are kept.
const KEPT: usize = 256;
/// Bytes that they take; the last one is kept whatever it takes.
const KEPT_BYTES: usize = 16 << 20;
/// How long they are kept.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// How long the daemon may take over a request that can be asked about.
const PATIENCE: Duration = Duration::from_secs(120);
/// The largest body of such a request, as of every other.
const BODY_BYTES: usize = 4 << 20;
/// The largest answer: it tells of what the body changed, before and after.
const ANSWER_BYTES: usize = 64 << 20;

tokio::task_local! {
    /// How long the daemon may take over what this task asks.
    static LIMIT: Duration;
}

/// How long the daemon may take, unless it is `usual`.
pub(crate) fn patience(usual: Duration) -> Duration {
    LIMIT.try_with(|limit| *limit).unwrap_or(usual)
}

/// What was answered.
type Told = Arc<(response::Parts, Bytes)>;

/// A request and what became of it.
#[derive(Debug)]
struct Known {
    /// Of whom, and its key.
    name: (Option<String>, String),
    request: [u8; 32],
    since: Instant,
    outcome: watch::Receiver<Option<Told>>,
}

impl Known {
    fn bytes(&self) -> usize {
        self.outcome.borrow().as_ref().map_or(0, |told| told.1.len())
    }

    /// Whether it still goes on.
    fn is_open(&self) -> bool {
        self.outcome.borrow().is_none() && self.outcome.has_changed().is_ok()
    }
}

/// The requests that may be repeated, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Mutex<VecDeque<Known>>);

/// What a request is to those before it.
enum Place {
    /// The first of its key: whoever makes it puts the outcome here.
    First(watch::Sender<Option<Told>>, watch::Receiver<Option<Told>>),
    /// The same was asked before.
    Again(watch::Receiver<Option<Told>>),
}

impl Repeats {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, name: (Option<String>, String), request: [u8; 32]) -> Result<Place, Problem> {
        let mut all = self.lock();
        Self::forget(&mut all);
        if let Some(at) = all.iter().position(|it| it.name == name) {
            let known = &all[at];
            if known.request != request {
                return Err(Problem::other_request());
            }
            // One whose thread ended is asked anew: nothing is known of it.
            if known.is_open() || known.outcome.borrow().is_some() {
                return Ok(Place::Again(known.outcome.clone()));
            }
            all.remove(at);
        }
        if all.len() >= KEPT {
            return Err(Problem::too_many_open(KEPT));
        }
        let (sender, outcome) = watch::channel(None);
        let known = Known { name, request, since: Instant::now(), outcome: outcome.clone() };
        all.push_back(known);
        Ok(Place::First(sender, outcome))
    }

    /// Makes way for one more: what is old goes, and what is too much.
    fn forget(all: &mut VecDeque<Known>) {
        all.retain(|it| it.is_open() || it.since.elapsed() < KEPT_FOR);
        let mut bytes: usize = all.iter().map(Known::bytes).sum();
        while all.len() >= KEPT || bytes > KEPT_BYTES {
            let Some(at) = all.iter().position(|it| !it.is_open()) else { return };
            if bytes > KEPT_BYTES && all.len() == 1 {
                return;
            }
            bytes -= all.remove(at).map_or(0, |it| it.bytes());
        }
    }
}

/// Makes a request with a key once. Others go on as they are. It is around the methods that a
/// resource has, not around those that it refuses.
pub(crate) async fn once(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    if request.method().is_safe() || !request.headers().contains_key(HEADER) {
        return next.run(request).await;
    }
    match keyed(&desk, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn keyed(desk: &Desk, request: Request, next: Next) -> Result<Response, Problem> {
    let key = key(&request)?;
    let caller = request.extensions().get::<Caller>();
    let name = (caller.and_then(|caller| caller.author.name.clone()), key);
    let (head, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES).await.map_err(|_| Problem::too_large(BODY_BYTES))?;
    let mut digest = Context::new(&SHA256);
    let target = head.uri.to_string();
    let conditions = head.headers.get_all(header::IF_MATCH).iter().map(|it| it.as_bytes());
    let said = [head.method.as_str().as_bytes(), target.as_bytes(), &body];
    // Behind a fixed number of parts, so that an empty condition is another request than none.
    for part in said.into_iter().chain(conditions) {
        digest.update(&part.len().to_le_bytes());
        digest.update(part);
    }
    let mut known = [0; 32];
    known.copy_from_slice(digest.finish().as_ref());
    let outcome = match desk.repeats.place(name, known)? {
        Place::Again(outcome) => outcome,
        Place::First(sender, outcome) => {
            let request = Request::from_parts(head, Body::from(body));
            // It goes on when this connection ends.
            tokio::spawn(LIMIT.scope(PATIENCE, async move {
                let (head, body) = next.run(request).await.into_parts();
                if let Ok(body) = to_bytes(body, ANSWER_BYTES).await {
                    // Nobody may wait any more.
                    let _ = sender.send(Some(Arc::new((head, body))));
                }
            }));
            outcome
        }
    };
    told(desk.patience, outcome).await
}

/// Waits for an outcome as long as for any answer.
async fn told(
    patience: Duration,
    mut outcome: watch::Receiver<Option<Told>>,
) -> Result<Response, Problem> {
    let waited = tokio::time::timeout(patience, outcome.wait_for(Option::is_some)).await;
    let told = match waited {
        Err(_) => return Err(Problem::unfinished(patience.as_secs_f64())),
        Ok(Err(_)) => return Err(Problem::internal()),
        Ok(Ok(told)) => told.clone(),
    };
    let Some(told) = told else { return Err(Problem::internal()) };
    let mut answer = Answer::new(Body::from(told.1.clone()));
    *answer.status_mut() = told.0.status;
    *answer.headers_mut() = told.0.headers.clone();
    Ok(answer)
}

fn key(request: &Request) -> Result<String, Problem> {
    let mut all = request.headers().get_all(HeaderName::from_static(HEADER)).iter();
    let (value, more) = (all.next(), all.next());
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let fits = (1..=KEY_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if fits && more.is_none() {
        return Ok(text.to_owned());
    }
    let expected = format!("one of 1 to {KEY_BYTES} visible characters, such as a UUID");
    Err(Problem::wrong_value("Idempotency-Key", WrongValue::new(text, expected)))
}

/// Whether an answer says that the request goes on.
pub(crate) fn is_unfinished(problem: &Problem) -> bool {
    problem.status == StatusCode::GATEWAY_TIMEOUT.as_u16() && problem.kind.ends_with(":unfinished")
}
