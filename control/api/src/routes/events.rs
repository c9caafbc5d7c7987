//! What has happened: as a list, or as a stream of server-sent events
//! (HTML Living Standard, 9.2) for who asks for `text/event-stream`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::{StreamExt, stream};

use super::{Asked, pairs};
use crate::access::{Caller, Way};
use crate::events::{EventQuery, Feed};
use crate::problem::Problem;
use crate::query::WrongValue;

/// Media type of a stream.
pub(crate) const STREAM: &str = "text/event-stream";
/// How many may follow at a time.
pub(crate) const FOLLOWERS: usize = 64;
const PARAMETERS: [&str; 3] = ["kind", "service", "after"];

pub(super) async fn events(
    State(desk): Asked,
    Extension(caller): Extension<Caller>,
    Extension(way): Extension<Way>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = event_query(query.as_deref())?;
    let accepted = headers.get_all(header::ACCEPT).iter();
    let follows = accepted.filter_map(|value| value.to_str().ok()).any(|all| all.contains(STREAM));
    if !follows {
        return Ok(Json(desk.events.list(&query)).into_response());
    }
    let place = Arc::clone(&desk.followers).try_acquire_owned();
    let place = place.map_err(|_| Problem::too_many(FOLLOWERS))?;
    let wrong = |wrong| Problem::wrong_value("Last-Event-ID", wrong);
    let last = headers.get("last-event-id").map(|value| {
        let expected = "the id of an event that this stream has sent";
        value.to_str().map_err(|_| wrong(WrongValue::new("(not text)", expected)))
    });
    let feed = Feed::new(&desk.events, query, last.transpose()?, caller.expires, place);
    let parts = stream::unfold(feed.map_err(wrong)?, Feed::next);
    way.keep();
    let body = Body::from_stream(parts.map(Ok::<_, std::convert::Infallible>));
    let head = [(header::CONTENT_TYPE, STREAM), (header::CACHE_CONTROL, "no-store")];
    Ok((head, body).into_response())
}

fn event_query(text: Option<&str>) -> Result<EventQuery, Problem> {
    let mut query = EventQuery::default();
    for (parameter, value) in pairs(text) {
        let wrong = |wrong| Problem::wrong_value(&parameter, wrong);
        match &*parameter {
            "kind" => query.kinds.push(value.parse().map_err(wrong)?),
            "service" => query.service = Some(value.into_owned()),
            "after" => {
                let number = value.parse();
                let number = number.map_err(|_| wrong(WrongValue::new(&value, "a number")))?;
                query.after = Some(number);
            }
            other => return Err(Problem::unknown_parameter(other, &PARAMETERS)),
        }
    }
    Ok(query)
}
