//! The resources and their parameters: requests become calls, answers become JSON.

mod config;
mod events;
mod ha;
mod ipvs;
mod measures;
mod networks;
mod sessions;
mod spread;
mod whoami;

pub(crate) use events::FOLLOWERS;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{Method, Uri, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router, middleware};
use tokio::sync::{Semaphore, oneshot};

use crate::access::{self, Gate};
use crate::call::{Call, Reply};
use crate::events::EventLog;
use crate::model::{Alive, Health, Network, Ports, PortsRules, Services, Stages, Status};
use crate::openapi;
use crate::origin;
use crate::problem::Problem;
use crate::query::WrongValue;
use crate::repeat::{self, Repeats};

/// Every resource.
pub(crate) const PATHS: [&str; 30] = [
    "/v1/status",
    "/v1/services",
    "/v1/sessions",
    "/v1/ports",
    "/v1/drops",
    "/v1/stages",
    "/v1/elephants",
    "/v1/health",
    "/v1/events",
    "/v1/config",
    "/v1/config/apply",
    "/v1/config/history",
    "/v1/config/reload",
    "/v1/config/rollback",
    "/v1/ipvs",
    "/v1/trace",
    "/v1/capture",
    "/v1/rates",
    "/metrics",
    "/v1/whoami",
    "/v1/openapi.json",
    "/healthz",
    "/v1/ha",
    "/v1/ha/drain",
    "/v1/ha/notify",
    "/v1/ha/upgrade",
    "/v1/networks",
    "/v1/elephants/pin",
    "/v1/elephants/unpin",
    "/v1/ports/rules",
];
/// Names that a message lists before it says how many more there are.
const NAMES_LISTED: usize = 20;

/// What a request needs: where calls go, and how long an answer may take.
pub(crate) struct Desk {
    /// Takes a call.
    pub(crate) call: Box<dyn Fn(Call) + Send + Sync>,
    /// How long the daemon may take to answer.
    pub(crate) patience: Duration,
    /// What has happened.
    pub(crate) events: Arc<EventLog>,
    /// How many more may follow it.
    pub(crate) followers: Arc<Semaphore>,
    /// Requests that may be repeated.
    pub(crate) repeats: Repeats,
}

impl Desk {
    pub(crate) async fn ask<T>(&self, make: impl FnOnce(Reply<T>) -> Call) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        (self.call)(make(reply));
        let patience = repeat::patience(self.patience);
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Problem::stopping()),
            Err(_) => Err(Problem::no_answer(patience.as_secs_f64())),
        }
    }
}

type Answer<T> = Result<Json<T>, Problem>;
pub(crate) type Asked = State<Arc<Desk>>;

/// The service behind the sockets.
pub(crate) fn router(desk: Arc<Desk>, gate: Arc<Gate>) -> Router {
    let [
        status_path,
        services_path,
        sessions_path,
        ports_path,
        _,
        stages_path,
        _,
        health_path,
        events_path,
        ..,
    ] = PATHS;
    let once = middleware::from_fn_with_state(Arc::clone(&desk), repeat::once);
    let sessions = get(sessions::list).delete(sessions::kill).route_layer(once);
    Router::new()
        .route(status_path, get(status))
        .route(services_path, get(services))
        .route(sessions_path, sessions)
        .route(ports_path, get(ports))
        .route("/v1/ports/rules", get(ports_rules))
        .route(stages_path, get(stages))
        .merge(spread::router(&desk))
        .merge(config::router(&desk))
        .merge(crate::look::router())
        .merge(measures::router())
        .merge(networks::router())
        .merge(ipvs::router(&desk))
        .merge(ha::router(&desk))
        .route(health_path, get(health))
        .route(events_path, get(events::events))
        .method_not_allowed_fallback(async |method: Method| Problem::method(method.as_str()))
        .fallback(async |uri: Uri| Problem::not_found(uri.path(), &PATHS))
        .route("/v1/openapi.json", get(described))
        .route("/healthz", get(alive))
        .merge(whoami::router())
        .layer(middleware::from_fn_with_state(Arc::clone(&gate), access::admit))
        .layer(middleware::from_fn(access::survive))
        .with_state(desk)
        // Files without data, which anybody may have: outside the gate.
        .merge(sluice_web::router())
        .layer(middleware::from_fn_with_state(gate, origin::guard))
        .layer(middleware::from_fn(origin::mark))
}

/// What this API is.
async fn described(RawQuery(query): RawQuery) -> Result<impl IntoResponse, Problem> {
    no_parameters(query.as_deref())?;
    Ok(([(header::CONTENT_TYPE, "application/json")], openapi::COMMITTED))
}

/// That the API answers; anybody may know.
async fn alive(RawQuery(query): RawQuery) -> Answer<Alive> {
    no_parameters(query.as_deref())?;
    Ok(Json(Alive { alive: true }))
}

async fn status(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Status> {
    no_parameters(query.as_deref())?;
    desk.ask(Call::Status).await.map(Json)
}

async fn ports(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Ports> {
    no_parameters(query.as_deref())?;
    desk.ask(Call::Ports).await.map(Json)
}

async fn ports_rules(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<PortsRules> {
    no_parameters(query.as_deref())?;
    desk.ask(Call::PortsRules).await.map(Json)
}

async fn stages(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Stages> {
    no_parameters(query.as_deref())?;
    desk.ask(Call::Stages).await.map(Json)
}

async fn health(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Health> {
    no_parameters(query.as_deref())?;
    desk.ask(Call::Health).await.map(Json)
}

/// All services, or those that `name` names, or those of a network, in the order of the
/// configuration.
async fn services(State(desk): Asked, RawQuery(query): RawQuery) -> Answer<Services> {
    let (mut names, mut network) = (Vec::new(), None);
    for (parameter, value) in pairs(query.as_deref()) {
        match &*parameter {
            "name" => names.push(value),
            "network" => network = Some(value),
            other => return Err(Problem::unknown_parameter(other, &["name", "network"])),
        }
    }
    let mut found = desk.ask(Call::Services).await?;
    if let Some(name) = names.iter().find(|name| !has_service(&found, name)) {
        return Err(Problem::wrong_value("name", no_such_service(name, &found)));
    }
    let wanted = |name: &str| names.is_empty() || names.contains(&name.into());
    found.services.retain(|service| wanted(&service.name));
    found.snat.retain(|rule| wanted(&rule.name));
    if let Some(network) = network {
        networks::know(&desk, &network).await?;
        found.services.retain(|service| Network::is(&network, &service.network));
        found.snat.retain(|rule| Network::is(&network, &rule.network));
    }
    Ok(Json(found))
}

fn pairs(query: Option<&str>) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes())
}

pub(crate) fn no_parameters(query: Option<&str>) -> Result<(), Problem> {
    match pairs(query).next() {
        Some((parameter, _)) => Err(Problem::unknown_parameter(&parameter, &[])),
        None => Ok(()),
    }
}

fn has_service(services: &Services, name: &str) -> bool {
    services.names().any(|known| known == name)
}

fn no_such_service(name: &str, services: &Services) -> WrongValue {
    no_such_name(name, &services.names().collect::<Vec<_>>())
}

fn no_such_name(name: &str, known: &[&str]) -> WrongValue {
    match known.len() {
        0 => WrongValue::new(name, "the name of a service, and there is none configured"),
        1..=NAMES_LISTED => WrongValue::one_of(name, known),
        all => {
            let (first, rest) = (known[..NAMES_LISTED].join(", "), all - NAMES_LISTED);
            WrongValue::new(name, format!("one of {first} or {rest} more"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;

    #[test]
    fn a_long_list_of_names_is_cut() {
        let service = |number: u16| crate::model::Service {
            name: format!("s{number}"),
            network: None,
            protocol: Protocol::Udp,
            vip: std::net::Ipv4Addr::new(198, 51, 100, 200).into(),
            ports: number.to_string(),
            mode: "fnat".to_owned(),
            scheduler: "rr".to_owned(),
            pool: Some("lan".to_owned()),
            persistence: None,
            one_packet: false,
            client_address: "hidden".to_owned(),
            counted: crate::model::Balanced::default(),
            reals: Vec::new(),
        };
        let expected = |count| {
            let services = (1..=count).map(service).collect();
            let services = Services { services, snat: Vec::new() };
            no_such_service("x", &services).expected
        };
        assert_eq!(expected(0), "the name of a service, and there is none configured");
        assert_eq!(expected(2), "one of s1, s2");
        assert!(expected(20).ends_with("s19, s20"));
        assert!(expected(1_000).ends_with("s20 or 980 more"));
    }
}
