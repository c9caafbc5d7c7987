//! Networks, and what of other resources is in one of them.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::routing::get;
use axum::{Json, Router};

use super::{Answer, Asked, Desk, no_parameters, no_such_name, pairs};
use crate::call::Call;
use crate::model::{Drops, Networks};
use crate::problem::Problem;
use crate::query::WrongValue;

/// The resources.
pub(super) fn router() -> Router<Arc<Desk>> {
    Router::new().route("/v1/networks", get(networks)).route("/v1/drops", get(drops))
}

async fn networks(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Networks> {
    no_parameters(query.as_deref())?;
    desk.ask(Call::Networks).await.map(Json)
}

/// Refuses a network that there is not.
pub(super) async fn know(desk: &Desk, name: &str) -> Result<(), Problem> {
    let networks = desk.ask(Call::Networks).await?;
    match networks.names().any(|known| known == name) {
        true => Ok(()),
        false => Err(no_such_network(name, &networks.names().collect::<Vec<_>>())),
    }
}

fn no_such_network(name: &str, known: &[&str]) -> Problem {
    Problem::wrong_value("network", no_such_name(name, known))
}

/// The reasons of all packets, or of those of one service or one network.
async fn drops(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Drops> {
    let (mut service, mut network) = (None, None);
    for (parameter, value) in pairs(query.as_deref()) {
        match &*parameter {
            "service" => service = Some(value.into_owned()),
            "network" => network = Some(value.into_owned()),
            other => return Err(Problem::unknown_parameter(other, &["service", "network"])),
        }
    }
    match (service, network) {
        (None, None) => desk.ask(Call::Drops).await.map(Json),
        (Some(name), None) => {
            let found = desk.ask(|reply| Call::DropsOf(name.clone(), reply)).await?;
            found.map(Json).map_err(|known| {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                Problem::wrong_value("service", no_such_name(&name, &known))
            })
        }
        (None, Some(name)) => {
            let found = desk.ask(|reply| Call::DropsIn(name.clone(), reply)).await?;
            found.map(Json).map_err(|known| {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                no_such_network(&name, &known)
            })
        }
        (Some(_), Some(name)) => {
            let wrong = WrongValue::new(&name, "left out where there is a service");
            Err(Problem::wrong_value("network", wrong))
        }
    }
}
