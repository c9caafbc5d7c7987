//! High availability: `GET /v1/ha`, `POST /v1/ha/drain`, by which a director says that another is
//! to take over, and `POST /v1/ha/upgrade`, by which a new process of it is to.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router, middleware};

use super::{Answer, Asked, Desk, no_parameters};
use crate::access::Caller;
use crate::call::Call;
use crate::model::{Ha, HaDrain};
use crate::problem::Problem;
use crate::repeat;

/// Largest body of a request, in bytes.
const BODY_BYTES: usize = 4096;

pub(super) fn router(desk: &Arc<Desk>) -> Router<Arc<Desk>> {
    let once = middleware::from_fn_with_state(Arc::clone(desk), repeat::once);
    Router::new()
        .route("/v1/ha", get(show))
        .route("/v1/ha/drain", post(drain).route_layer(once.clone()))
        .route("/v1/ha/upgrade", post(upgrade).route_layer(once))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}

async fn show(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Ha> {
    no_parameters(query.as_deref())?;
    desk.ask(Call::Ha).await.map(Json)
}

async fn upgrade(
    State(desk): Asked,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Answer<Ha> {
    no_parameters(query.as_deref())?;
    desk.ask(|reply| Call::Upgrade { by: caller.author, reply }).await.map(Json)
}

async fn drain(
    State(desk): Asked,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Ha> {
    no_parameters(query.as_deref())?;
    let bytes = body.map_err(|_| Problem::too_large(BODY_BYTES))?;
    let HaDrain { draining } =
        serde_json::from_slice(&bytes).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Problem::no_request(&error.to_string()),
            _ => Problem::no_json(&error.to_string()),
        })?;
    desk.ask(|reply| Call::Drain { draining, by: caller.author, reply }).await.map(Json)
}
