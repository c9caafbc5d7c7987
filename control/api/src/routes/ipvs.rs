//! IPVS's view of the director: `POST /v1/ipvs` with one request of `sluice_ipvs`.
//!
//! Whatever a request asks for, that it was understood is 200, and the errno is in the answer: who
//! asks is a program that knows IPVS, not HTTP. Looking takes the role `read`; weights and counters
//! take `operate`, as by the other ways, and everything else `admin`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::routing::post;
use axum::{Extension, Json, Router, middleware};
use sluice_ipvs::{Answer, Request};
use sluice_state::{Author, Source};

use super::{Asked, Desk, no_parameters};
use crate::access::Caller;
use crate::call::Call;
use crate::problem::Problem;
use crate::repeat;
use crate::tokens::Role;

/// Largest body of a request, in bytes.
const BODY_BYTES: usize = 4 << 20;

pub(super) fn router(desk: &Arc<Desk>) -> Router<Arc<Desk>> {
    let once = middleware::from_fn_with_state(Arc::clone(desk), repeat::once);
    Router::new()
        .route("/v1/ipvs", post(ask).route_layer(once))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}

async fn ask(
    State(desk): Asked,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Answer>, Problem> {
    no_parameters(query.as_deref())?;
    let bytes = body.map_err(|_| Problem::too_large(BODY_BYTES))?;
    let request: Request =
        serde_json::from_slice(&bytes).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Problem::no_request(&error.to_string()),
            _ => Problem::no_json(&error.to_string()),
        })?;
    let needed = needed(&request);
    if caller.role < needed {
        let name = caller.author.name.unwrap_or_default();
        return Err(Problem::forbidden(&name, caller.role, needed));
    }
    let by = Author { source: Source::Ipvsadm, name: caller.author.name };
    desk.ask(|reply| Call::Ipvs(Box::new(request), by, reply)).await.map(Json)
}

/// The role that a request needs: what makes or takes away services, real servers, local addresses
/// or lists, or is about all of the director, needs the highest.
fn needed(request: &Request) -> Role {
    match request {
        Request::EditDestination(..) | Request::Zero(_) => Role::Operate,
        Request::Many(all) => all.iter().map(needed).max().unwrap_or(Role::Read),
        other if other.changes() => Role::Admin,
        _ => Role::Read,
    }
}
