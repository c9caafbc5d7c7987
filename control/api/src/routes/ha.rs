//! High availability: `GET /v1/ha`; `POST /v1/ha/drain`, by which a director says that another is
//! to take over; `POST /v1/ha/notify`, by which who moves addresses says what it has done; `POST
//! /v1/ha/upgrade`, by which a new process is to take over.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router, middleware};
use serde::de::DeserializeOwned;

use super::{Answer, Asked, Desk, no_parameters, pairs};
use crate::access::Caller;
use crate::call::Call;
use crate::model::{Ha, HaDrain, HaNotify};
use crate::problem::Problem;
use crate::query::WrongValue;
use crate::repeat;

/// Largest body of a request, in bytes.
const BODY_BYTES: usize = 4096;
/// Longest name of a program that moves addresses,
const LONGEST_PROGRAM: usize = 32;
/// and of what it moves.
const LONGEST_NAME: usize = 64;

pub(super) fn router(desk: &Arc<Desk>) -> Router<Arc<Desk>> {
    let once = middleware::from_fn_with_state(Arc::clone(desk), repeat::once);
    Router::new()
        .route("/v1/ha", get(show))
        .route("/v1/ha/drain", post(drain).route_layer(once.clone()))
        .route("/v1/ha/notify", post(notify).route_layer(once.clone()))
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
    let mut stand_in = false;
    for (parameter, value) in pairs(query.as_deref()) {
        if parameter != "stand_in" {
            return Err(Problem::unknown_parameter(&parameter, &["stand_in"]));
        }
        let wrong = || WrongValue::one_of(&value, &["true", "false"]);
        stand_in = value.parse().map_err(|_| Problem::wrong_value(&parameter, wrong()))?;
    }
    desk.ask(|reply| Call::Upgrade { stand_in, by: caller.author, reply }).await.map(Json)
}

async fn drain(
    State(desk): Asked,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Ha> {
    no_parameters(query.as_deref())?;
    let HaDrain { draining } = read(body)?;
    desk.ask(|reply| Call::Drain { draining, by: caller.author, reply }).await.map(Json)
}

async fn notify(
    State(desk): Asked,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Ha> {
    no_parameters(query.as_deref())?;
    let said: HaNotify = read(body)?;
    // They go into events and the log.
    let is_word = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if !is_word(&said.program, LONGEST_PROGRAM) || !is_word(&said.name, LONGEST_NAME) {
        return Err(Problem::no_request("`program` and `name` are words of ASCII"));
    }
    desk.ask(|reply| Call::Notify { said, by: caller.author, reply }).await.map(Json)
}

/// What a body says.
fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Problem> {
    let bytes = body.map_err(|_| Problem::too_large(BODY_BYTES))?;
    serde_json::from_slice(&bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Problem::no_request(&error.to_string()),
        _ => Problem::no_json(&error.to_string()),
    })
}
