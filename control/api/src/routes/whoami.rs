//! Who asks: `GET /v1/whoami`. A client that shows what may be done, such as the dashboard, asks
//! this first, rather than offering what would be refused.

use std::sync::Arc;

use axum::extract::RawQuery;
use axum::routing::get;
use axum::{Extension, Json, Router};

use super::{Answer, Desk, no_parameters};
use crate::access::Caller;
use crate::model::WhoAmI;

/// The resource.
pub(super) fn router() -> Router<Arc<Desk>> {
    Router::new().route("/v1/whoami", get(whoami))
}

async fn whoami(Extension(caller): Extension<Caller>, RawQuery(query): RawQuery) -> Answer<WhoAmI> {
    no_parameters(query.as_deref())?;
    let Caller { author, role, .. } = caller;
    Ok(Json(WhoAmI { name: author.name, role: role.name().to_owned() }))
}
