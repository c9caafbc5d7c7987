//! The desired state: reading it, changing it, its history.
//!
//! A request becomes edits here and is judged by the daemon as a whole; what is wrong with it
//! comes back with JSON pointers into its body. `If-Match` with an epoch's number makes a change
//! hold only if nobody made another in between; every answer has the epoch as its ETag.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router, middleware};
use serde::Serialize;
use serde_json::Value;
use sluice_state::{
    Edit, Entry, Epoch, FieldFault, Key, Kind, OverridePatch, RealState, Request, View, What,
};

use super::{Asked, Desk, no_parameters, pairs};
use crate::access::Caller;
use crate::call::Call;
use crate::model::{Changed, HistoryLine, HistoryPage};
use crate::problem::Problem;
use crate::query::{Endpoint, WrongValue, parse_limit};
use crate::repeat;

/// Largest body of a request, in bytes.
const BODY_BYTES: usize = 4 << 20;

/// An answer with the epoch that it tells of.
type Tagged<T> = Result<([(HeaderName, String); 1], Json<T>), Problem>;
type Who = Extension<Caller>;
type Body = Result<Bytes, BytesRejection>;

/// The resources below `/v1/config`.
pub(super) fn router(desk: &Arc<Desk>) -> Router<Arc<Desk>> {
    let once = middleware::from_fn_with_state(Arc::clone(desk), repeat::once);
    let object = get(show_object).put(put_object).delete(delete_object);
    let real = put(put_real).delete(delete_real).patch(patch_real);
    Router::new()
        .route("/v1/config", get(show))
        .route("/v1/config/{kind}/{name}", object.route_layer(once.clone()))
        .route("/v1/config/services/{name}/reals/{real}", real.route_layer(once.clone()))
        .route("/v1/config/apply", post(apply).route_layer(once.clone()))
        .route("/v1/config/reload", post(reload).route_layer(once.clone()))
        .route("/v1/config/rollback", post(rollback).route_layer(once))
        .route("/v1/config/history", get(history))
        .route("/v1/config/history/{epoch}", get(epoch))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}

fn tagged<T: Serialize>(epoch: u64, value: T) -> Tagged<T> {
    Ok(([(header::ETAG, format!("\"{epoch}\""))], Json(value)))
}

async fn show(State(desk): Asked, RawQuery(query): RawQuery) -> Tagged<View> {
    no_parameters(query.as_deref())?;
    let view = desk.ask(Call::Config).await?;
    tagged(view.epoch, view)
}

async fn show_object(
    State(desk): Asked,
    RawQuery(query): RawQuery,
    Path((kind, name)): Path<(String, String)>,
) -> Tagged<Entry> {
    no_parameters(query.as_deref())?;
    let key = key(&kind, name)?;
    let (epoch, entry) = desk.ask(|reply| Call::ConfigObject(key, reply)).await??;
    tagged(epoch, entry)
}

/// What a change asks for besides the change itself.
struct Terms {
    if_epoch: Option<u64>,
    dry_run: bool,
    force: bool,
}

fn terms(query: Option<&str>, headers: &HeaderMap) -> Result<Terms, Problem> {
    let (mut dry_run, mut force) = (false, false);
    for (parameter, value) in pairs(query) {
        let said = match &*parameter {
            "dry_run" => &mut dry_run,
            "force" => &mut force,
            other => return Err(Problem::unknown_parameter(other, &["dry_run", "force"])),
        };
        let wrong = || WrongValue::one_of(&value, &["true", "false"]);
        *said = value.parse().map_err(|_| Problem::wrong_value(&parameter, wrong()))?;
    }
    let any = Terms { if_epoch: None, dry_run, force };
    let Some(tag) = headers.get(header::IF_MATCH) else { return Ok(any) };
    let text = tag.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(any);
    }
    let number = text.trim_start_matches("W/").trim_matches('"');
    let if_epoch = number.parse().map_err(|_| {
        let expected = "the number of an epoch in quotes, such as \"12\", or *";
        Problem::wrong_value("If-Match", WrongValue::new(text, expected))
    })?;
    Ok(Terms { if_epoch: Some(if_epoch), ..any })
}

async fn change(desk: &Desk, terms: Terms, caller: Caller, what: What) -> Tagged<Changed> {
    let Terms { if_epoch, dry_run, force } = terms;
    let request = Request { by: caller.author, if_epoch, dry_run, force, what };
    let applied = desk.ask(|reply| Call::Change(request, reply)).await??;
    tagged(applied.epoch, Changed::of(applied, dry_run))
}

async fn put_object(
    State(desk): Asked,
    Extension(caller): Who,
    RawQuery(query): RawQuery,
    Path((kind, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Tagged<Changed> {
    let (terms, key) = (terms(query.as_deref(), &headers)?, key(&kind, name)?);
    let value = json(body)?;
    let edit = Edit::Put { key, value, pointer: String::new() };
    change(&desk, terms, caller, What::Edits(vec![edit])).await
}

async fn delete_object(
    State(desk): Asked,
    Extension(caller): Who,
    RawQuery(query): RawQuery,
    Path((kind, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Tagged<Changed> {
    let (terms, key) = (terms(query.as_deref(), &headers)?, key(&kind, name)?);
    change(&desk, terms, caller, What::Edits(vec![Edit::Delete(key)])).await
}

async fn put_real(
    State(desk): Asked,
    Extension(caller): Who,
    RawQuery(query): RawQuery,
    Path((service, real)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Tagged<Changed> {
    let (terms, real) = (terms(query.as_deref(), &headers)?, real_name(&real)?);
    let edit = Edit::PutReal { service, real, value: json(body)? };
    change(&desk, terms, caller, What::Edits(vec![edit])).await
}

async fn delete_real(
    State(desk): Asked,
    Extension(caller): Who,
    RawQuery(query): RawQuery,
    Path((service, real)): Path<(String, String)>,
    headers: HeaderMap,
) -> Tagged<Changed> {
    let (terms, real) = (terms(query.as_deref(), &headers)?, real_name(&real)?);
    change(&desk, terms, caller, What::Edits(vec![Edit::DeleteReal { service, real }])).await
}

async fn patch_real(
    State(desk): Asked,
    Extension(caller): Who,
    RawQuery(query): RawQuery,
    Path((service, real)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Tagged<Changed> {
    let (terms, real) = (terms(query.as_deref(), &headers)?, real_name(&real)?);
    let patch = patch(&json(body)?)?;
    change(&desk, terms, caller, What::Edits(vec![Edit::Override { service, real, patch }])).await
}

async fn apply(
    State(desk): Asked,
    Extension(caller): Who,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Tagged<Changed> {
    let terms = terms(query.as_deref(), &headers)?;
    change(&desk, terms, caller, What::Edits(edits(&json(body)?)?)).await
}

async fn rollback(
    State(desk): Asked,
    Extension(caller): Who,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Tagged<Changed> {
    let (terms, body) = (terms(query.as_deref(), &headers)?, json(body)?);
    let only = body.as_object().is_some_and(|body| body.keys().all(|key| key == "epoch"));
    let Some(number) = body.get("epoch").and_then(Value::as_u64).filter(|_| only) else {
        return Err(field("/epoch", "it is missing or no number", "use {\"epoch\": 12}"));
    };
    change(&desk, terms, caller, What::Rollback(number)).await
}

async fn reload(
    State(desk): Asked,
    Extension(caller): Who,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Tagged<Changed> {
    let Terms { if_epoch, dry_run, .. } = terms(query.as_deref(), &headers)?;
    let applied = desk.ask(|reply| Call::Reload { by: caller.author, if_epoch, dry_run, reply });
    let applied = applied.await??;
    tagged(applied.epoch, Changed::of(applied, dry_run))
}

async fn history(State(desk): Asked, RawQuery(query): RawQuery) -> Tagged<HistoryPage> {
    let mut limit = HistoryLine::DEFAULT_LIMIT;
    for (parameter, value) in pairs(query.as_deref()) {
        match &*parameter {
            "limit" => {
                let wrong = |wrong| Problem::wrong_value("limit", wrong);
                limit = parse_limit(&value, HistoryLine::MAX_LIMIT).map_err(wrong)?;
            }
            other => return Err(Problem::unknown_parameter(other, &["limit"])),
        }
    }
    let page = desk.ask(|reply| Call::History(limit, reply)).await?;
    tagged(page.epoch, page)
}

async fn epoch(
    State(desk): Asked,
    RawQuery(query): RawQuery,
    Path(number): Path<String>,
) -> Tagged<Epoch> {
    no_parameters(query.as_deref())?;
    let wrong = || Problem::wrong_value("epoch", WrongValue::new(&number, "a number"));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let found = desk.ask(|reply| Call::Epoch(number, reply)).await?;
    match found {
        Ok(epoch) => tagged(epoch.epoch, epoch),
        Err((first, last)) => Err(Problem::no_epoch(number, first, last)),
    }
}

/// Which object a path is about.
fn key(kind: &str, name: String) -> Result<Key, Problem> {
    let kind = match kind {
        "services" => Kind::Service,
        "checks" => Kind::Check,
        "pools" => Kind::Pool,
        "snat" => Kind::Snat,
        other => {
            let path = format!("/v1/config/{other}/{name}");
            return Err(Problem::not_found(&path, &["services", "checks", "pools", "snat"]));
        }
    };
    Ok(Key::new(kind, name))
}

/// Which real server a path is about.
fn real_name(text: &str) -> Result<(IpAddr, Option<u16>), Problem> {
    let wrong = |wrong| Problem::wrong_value("real", wrong);
    let Endpoint { address, port } = text.parse().map_err(wrong)?;
    Ok((address, port))
}

fn json(body: Body) -> Result<Value, Problem> {
    let bytes = body.map_err(|_| Problem::too_large(BODY_BYTES))?;
    serde_json::from_slice(&bytes).map_err(|error| Problem::no_json(&error.to_string()))
}

fn field(pointer: &str, detail: &str, hint: &str) -> Problem {
    let (pointer, detail, hint) = (pointer.to_owned(), detail.to_owned(), hint.to_owned());
    Problem::fields(vec![FieldFault { pointer, detail, hint }])
}

/// What is said of a real server: each key that is there, `null` to take it back.
fn patch(body: &Value) -> Result<OverridePatch, Problem> {
    const USE: &str = "use {\"weight\": 0 to 65535} or {\"state\": \"up\", \"drain\" or \"down\"}, \
                       null to take it back";
    let Some(body) = body.as_object().filter(|body| !body.is_empty()) else {
        return Err(field("", "nothing is said here", USE));
    };
    let mut patch = OverridePatch::default();
    for (key, value) in body {
        let wrong = |what: &str| field(&format!("/{key}"), what, USE);
        match (key.as_str(), value) {
            ("weight", Value::Null) => patch.weight = Some(None),
            ("weight", value) => {
                let weight = value.as_u64().and_then(|weight| u16::try_from(weight).ok());
                let weight = weight.ok_or_else(|| wrong(&format!("{value} is no weight")))?;
                patch.weight = Some(Some(weight));
            }
            ("state", Value::Null) => patch.state = Some(None),
            ("state", value) => {
                let states = [RealState::Up, RealState::Drain, RealState::Down];
                let found = states.into_iter().find(|it| value.as_str() == Some(it.name()));
                let state = found.ok_or_else(|| wrong(&format!("{value} is no state")))?;
                patch.state = Some(Some(state));
            }
            _ => return Err(wrong("only weight and state can be overridden")),
        }
    }
    Ok(patch)
}

/// The edits of a document with objects to put, and under `delete` names of those to take away.
fn edits(body: &Value) -> Result<Vec<Edit>, Problem> {
    const USE: &str = "use {\"service\": […], \"pool\": […], \"snat\": […], \"delete\": \
                       {\"service\": [\"name\"]}}";
    let kind_of = |name: &str| Kind::NAMED.into_iter().find(|kind| kind.name() == name);
    let Some(body) = body.as_object() else { return Err(field("", "this is no object", USE)) };
    let mut edits = Vec::new();
    let each = |pointer: &str, value: &Value| match value {
        Value::Array(items) => Ok(items.clone()),
        _ => Err(field(pointer, "this is no list", USE)),
    };
    for (kind, names) in body.get("delete").and_then(Value::as_object).into_iter().flatten() {
        let pointer = format!("/delete/{kind}");
        let Some(kind) = kind_of(kind) else { return Err(field(&pointer, "no such kind", USE)) };
        for (at, name) in each(&pointer, names)?.iter().enumerate() {
            let text = name.as_str();
            let wrong = || field(&format!("{pointer}/{at}"), "this is no name", USE);
            edits.push(Edit::Delete(Key::new(kind, text.ok_or_else(wrong)?)));
        }
    }
    for (section, items) in body.iter().filter(|(section, _)| *section != "delete") {
        let pointer = format!("/{section}");
        let Some(kind) = kind_of(section) else {
            let what = "only pools, services and rules of source NAT can be changed here; the \
                        other sections are the file's";
            return Err(field(&pointer, what, USE));
        };
        for (at, value) in each(&pointer, items)?.into_iter().enumerate() {
            let pointer = format!("{pointer}/{at}");
            let name = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if name.is_empty() {
                return Err(field(&format!("{pointer}/name"), "the name is missing", "add one"));
            }
            edits.push(Edit::Put { key: Key::new(kind, name), value, pointer });
        }
    }
    Ok(edits)
}
