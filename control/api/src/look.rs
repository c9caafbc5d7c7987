//! Answers that go on while a director looks at packets: bytes that the daemon makes, as they come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Extension, RawQuery, State};
use axum::http::{HeaderName, header};
use axum::routing::post;
use hyper::body::Frame;
use sluice_state::FieldFault;
use tokio::sync::mpsc;

use crate::access::Way;
use crate::call::Call;
use crate::model::{LookKind, LookRequest};
use crate::problem::Problem;
use crate::routes::{Asked, Desk, no_parameters};

/// Largest body of a request, in bytes: the longest program is smaller.
const BODY_BYTES: usize = 1 << 20;

/// Where the daemon's pieces come from. The daemon notices that nobody reads any more when its end
/// says that it is closed.
pub type Pieces = mpsc::Receiver<Bytes>;

/// Why nobody looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookRefusal {
    /// What was asked for is wrong.
    Wrong(Vec<FieldFault>),
    /// So many look already, and no more may.
    Busy(usize),
    /// A worker did not answer.
    NoAnswer,
}

impl From<LookRefusal> for Problem {
    fn from(refusal: LookRefusal) -> Self {
        match refusal {
            LookRefusal::Wrong(faults) => Self::fields(faults),
            LookRefusal::Busy(count) => Self::busy(count),
            LookRefusal::NoAnswer => Self::no_answer(2.0),
        }
    }
}

/// `/v1/trace` and `/v1/capture`.
pub(crate) fn router() -> Router<Arc<Desk>> {
    Router::new()
        .route(LookKind::Trace.path(), post(trace))
        .route(LookKind::Capture.path(), post(capture))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}

type Streamed = Result<([(HeaderName, &'static str); 1], Body), Problem>;
type Sent = Result<Bytes, BytesRejection>;

async fn trace(
    State(desk): Asked,
    Extension(way): Extension<Way>,
    RawQuery(query): RawQuery,
    body: Sent,
) -> Streamed {
    no_parameters(query.as_deref())?;
    look(&desk, &way, LookKind::Trace, body).await
}

async fn capture(
    State(desk): Asked,
    Extension(way): Extension<Way>,
    RawQuery(query): RawQuery,
    body: Sent,
) -> Streamed {
    no_parameters(query.as_deref())?;
    look(&desk, &way, LookKind::Capture, body).await
}

async fn look(desk: &Desk, way: &Way, kind: LookKind, body: Sent) -> Streamed {
    let body = body.map_err(|_| Problem::too_large(BODY_BYTES))?;
    let request = if body.is_empty() { LookRequest::default() } else { read(&body)? };
    let pieces = desk.ask(|reply| Call::Look(kind, request, reply)).await??;
    way.keep();
    let headers = [(header::CONTENT_TYPE, kind.media_type())];
    Ok((headers, Body::new(Streaming(pieces))))
}

fn read(body: &Bytes) -> Result<LookRequest, Problem> {
    let value: serde_json::Value =
        serde_json::from_slice(body).map_err(|error| Problem::no_json(&error.to_string()))?;
    serde_json::from_value(value).map_err(|wrong| {
        let hint = "docs/trace.md lists the fields".to_owned();
        let fault = FieldFault { pointer: String::new(), detail: wrong.to_string(), hint };
        Problem::fields(vec![fault])
    })
}

/// A body of pieces.
struct Streaming(Pieces);

impl hyper::body::Body for Streaming {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
