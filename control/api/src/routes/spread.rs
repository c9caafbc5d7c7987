//! Elephants: `GET /v1/elephants`, and `POST /v1/elephants/pin` and `/v1/elephants/unpin`, by which
//! an operator has a flow spread over several workers.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router, middleware};

use super::{Answer, Asked, Desk, no_parameters, pairs};
use crate::access::Caller;
use crate::call::Call;
use crate::model::{Elephants, FlowPin, SpreadFlows};
use crate::problem::Problem;
use crate::query::parse_limit;
use crate::repeat;

/// Largest body of a request, in bytes.
const BODY_BYTES: usize = 4096;

pub(super) fn router(desk: &Arc<Desk>) -> Router<Arc<Desk>> {
    let once = || middleware::from_fn_with_state(Arc::clone(desk), repeat::once);
    Router::new()
        .route("/v1/elephants", get(elephants))
        .route("/v1/elephants/pin", post(pin).route_layer(once()))
        .route("/v1/elephants/unpin", post(unpin).route_layer(once()))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}

async fn elephants(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Elephants> {
    let mut limit = Elephants::DEFAULT_LIMIT;
    for (parameter, value) in pairs(query.as_deref()) {
        match &*parameter {
            "limit" => {
                let wrong = |wrong| Problem::wrong_value("limit", wrong);
                limit = parse_limit(&value, Elephants::MAX_LIMIT).map_err(wrong)?;
            }
            other => return Err(Problem::unknown_parameter(other, &["limit"])),
        }
    }
    desk.ask(|reply| Call::Elephants(limit, reply)).await.map(Json)
}

async fn pin(
    asked: Asked,
    caller: Extension<Caller>,
    query: RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Answer<SpreadFlows> {
    change(true, asked, caller, query, body).await
}

async fn unpin(
    asked: Asked,
    caller: Extension<Caller>,
    query: RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Answer<SpreadFlows> {
    change(false, asked, caller, query, body).await
}

async fn change(
    pinned: bool,
    State(desk): Asked,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Answer<SpreadFlows> {
    no_parameters(query.as_deref())?;
    let bytes = body.map_err(|_| Problem::too_large(BODY_BYTES))?;
    let flow: FlowPin = serde_json::from_slice(&bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Problem::no_request(&error.to_string()),
        _ => Problem::no_json(&error.to_string()),
    })?;
    let by = caller.author;
    let answer = desk.ask(|reply| Call::Pin { flow, pinned, by, reply }).await?;
    answer.map(Json).map_err(|why| Problem::not_spread(&why))
}
