//! What went wrong with a request, as RFC 9457 has it: `application/problem+json`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sluice_state::{Author, FieldFault, Refusal, RefusalKind};

use crate::query::WrongValue;
use crate::tokens::Role;

/// Media type of a [`Problem`].
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Which kind of problem: a URI that names it and leads nowhere.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status code.
    pub status: u16,
    /// What happened, and the remedy.
    pub detail: String,
    /// The parameter that is to blame, if one is.
    #[serde(flatten)]
    pub blame: Option<Box<Blame>>,
    /// What is wrong with a change.
    #[serde(flatten)]
    pub change: Box<WrongChange>,
}

/// What is wrong with a change of the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WrongChange {
    /// Fields of the body that are wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldFault>,
    /// Who owns what was to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Author>,
    /// The epoch that is in force, when the request was made for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// The parameter that is to blame for a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blame {
    /// Its name.
    pub parameter: String,
    /// Its value; absent when there is no such parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What would be valid.
    pub expected: String,
}

impl Problem {
    fn new(status: StatusCode, kind: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:sluice:problem:{kind}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            blame: None,
            change: Box::default(),
        }
    }

    /// A parameter's value cannot be used.
    pub(crate) fn wrong_value(parameter: &str, wrong: WrongValue) -> Self {
        let WrongValue { found, expected } = wrong;
        let detail = format!("{parameter}: {found:?} will not do; it must be {expected}");
        let status = StatusCode::BAD_REQUEST;
        let blame = Blame { parameter: parameter.to_owned(), found: Some(found), expected };
        Self {
            blame: Some(Box::new(blame)),
            ..Self::new(status, "wrong-parameter", "Wrong parameter", detail)
        }
    }

    /// There is no such parameter here.
    pub(crate) fn unknown_parameter(parameter: &str, known: &[&str]) -> Self {
        let expected = match known {
            [] => "no parameter".to_owned(),
            known => format!("one of {}", known.join(", ")),
        };
        let detail = format!("there is no parameter {parameter:?} here; right would be {expected}");
        let status = StatusCode::BAD_REQUEST;
        let blame = Blame { parameter: parameter.to_owned(), found: None, expected };
        Self {
            blame: Some(Box::new(blame)),
            ..Self::new(status, "unknown-parameter", "Unknown parameter", detail)
        }
    }

    /// There is nothing at this path.
    pub(crate) fn not_found(path: &str, known: &[&str]) -> Self {
        let detail = format!("there is nothing at {path}; there is {}", known.join(", "));
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// Something else is possible here: what, the answer's `Allow` says.
    pub(crate) fn method(method: &str) -> Self {
        let detail = format!("{method} is not possible here; the header Allow says what is");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self::new(status, "method-not-allowed", "Method not allowed", detail)
    }

    /// The body has wrong fields, at least one.
    pub(crate) fn fields(errors: Vec<FieldFault>) -> Self {
        let told = errors.iter().map(|fault| match fault.pointer.is_empty() {
            true => format!("{}; {}", fault.detail, fault.hint),
            false => format!("{}: {}; {}", fault.pointer, fault.detail, fault.hint),
        });
        let detail = told.collect::<Vec<_>>().join("\n");
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let change = Box::new(WrongChange { errors, ..WrongChange::default() });
        Self { change, ..Self::new(status, "invalid", "Invalid", detail) }
    }

    /// The body is not JSON.
    pub(crate) fn no_json(error: &str) -> Self {
        let detail = format!("the body is not JSON: {error}");
        Self::new(StatusCode::BAD_REQUEST, "no-json", "Not JSON", detail)
    }

    /// The body is JSON, but no request.
    pub(crate) fn no_request(error: &str) -> Self {
        let detail = format!("the body is no request: {error}; `/v1/openapi.json` describes them");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Invalid", detail)
    }

    /// The body is too large, or broke off.
    pub(crate) fn too_large(limit: usize) -> Self {
        let detail =
            format!("the body broke off or has more than {limit} bytes; use smaller parts");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large", detail)
    }

    /// That epoch is not known.
    pub(crate) fn no_epoch(number: u64, first: u64, last: u64) -> Self {
        let detail = match first > last {
            true => format!("epoch {number} is not known: there is none yet"),
            false => format!("epoch {number} is not known; those from {first} to {last} are"),
        };
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// Nobody has said who asks.
    pub(crate) fn unauthorized(what: &str) -> Self {
        let detail = format!(
            "{what}; show one of the director's file of tokens, as `Authorization: Bearer TOKEN`"
        );
        Self::new(StatusCode::UNAUTHORIZED, "no-token", "No valid token", detail)
    }

    /// Who asks may not do that.
    pub(crate) fn forbidden(name: &str, role: Role, needed: Role) -> Self {
        let (role, needed) = (role.name(), needed.name());
        let detail = format!("{name} has the role {role}; this takes the role {needed}");
        Self::new(StatusCode::FORBIDDEN, "role", "Not allowed", detail)
    }

    /// The request calls the director by a name that is not its own.
    pub(crate) fn foreign_host(host: &str) -> Self {
        let detail = format!(
            "Host: {host:?} is no name of this director, and a page of that name could be behind \
             it; use localhost, an address of the director, a name of its certificate, or one of \
             `names` of [api]"
        );
        Self::new(StatusCode::FORBIDDEN, "foreign-host", "Foreign host", detail)
    }

    /// A browser sends this for a page that is not the director's.
    pub(crate) fn foreign_page(header: &str, value: &HeaderValue) -> Self {
        let value = String::from_utf8_lossy(value.as_bytes());
        let detail = format!(
            "{header}: {value:?} is another page's; only the director's own pages, and programs \
             that are no browsers, may ask for this"
        );
        Self::new(StatusCode::FORBIDDEN, "foreign-page", "Foreign page", detail)
    }

    /// The body is not said to be JSON.
    pub(crate) fn media_type(found: &str) -> Self {
        let detail = format!(
            "Content-Type is {found:?}; a body must come with Content-Type: application/json"
        );
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(status, "media-type", "Unsupported media type", detail)
    }

    /// The server has a bug.
    pub(crate) fn internal() -> Self {
        let detail = "answering this failed; the director goes on, and its log says more";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error", detail)
    }

    /// Too many look at packets already.
    pub(crate) fn busy(count: usize) -> Self {
        let detail = format!(
            "{count} traces and captures run already, and no more may at a time; end one of them"
        );
        Self::new(StatusCode::CONFLICT, "busy", "Busy", detail)
    }

    /// A flow is not spread, or not to be.
    pub(crate) fn not_spread(why: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "not-spread", "Not spread", why)
    }

    /// The daemon did not answer in time.
    pub(crate) fn no_answer(after_s: f64) -> Self {
        let detail = format!(
            "the director did not answer within {after_s} s; it is overloaded or stuck, see its log"
        );
        Self::new(StatusCode::GATEWAY_TIMEOUT, "no-answer", "No answer", detail)
    }

    /// The request goes on, and may be asked about.
    pub(crate) fn unfinished(after_s: f64) -> Self {
        let detail = format!(
            "the director has not finished this within {after_s} s and goes on with it; the same \
             request with the same Idempotency-Key asks what became of it"
        );
        Self::new(StatusCode::GATEWAY_TIMEOUT, "unfinished", "Not finished", detail)
    }

    /// A key was used for something else.
    pub(crate) fn other_request() -> Self {
        let detail = "this Idempotency-Key was used for another request; use a new one for each";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "other-request", "Another request", detail)
    }

    /// Too many requests with a key are not finished.
    pub(crate) fn too_many_open(most: usize) -> Self {
        let detail = format!("{most} requests with an Idempotency-Key are not finished; try later");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too-many", "Too many requests", detail)
    }

    /// Nobody more may follow events.
    pub(crate) fn too_many(most: usize) -> Self {
        let detail = format!("{most} clients follow events already; end one, or try again later");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too-many", "Too many followers", detail)
    }

    /// The daemon will not answer.
    pub(crate) fn stopping() -> Self {
        let detail = "the director gave no answer: it is stopping";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "Stopping", detail)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let Refusal { kind, detail, faults, owner, epoch } = refusal;
        let (status, kind, title) = match kind {
            RefusalKind::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Invalid"),
            RefusalKind::NotFound => (StatusCode::NOT_FOUND, "not-found", "Not found"),
            RefusalKind::Conflict => (StatusCode::CONFLICT, "conflict", "Conflict"),
            RefusalKind::Stale => (StatusCode::PRECONDITION_FAILED, "stale", "Stale"),
            RefusalKind::Storage => (StatusCode::INSUFFICIENT_STORAGE, "storage", "Not written"),
        };
        let change = Box::new(WrongChange { errors: faults, owner, epoch });
        Self { change, ..Self::new(status, kind, title, detail) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Strings and numbers can always be written as JSON.
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, MEDIA_TYPE)], body).into_response();
        let challenge = match status {
            StatusCode::UNAUTHORIZED => "Bearer realm=\"sluice\"",
            StatusCode::FORBIDDEN if self.kind.ends_with(":role") => {
                "Bearer realm=\"sluice\", error=\"insufficient_scope\""
            }
            _ => return response,
        };
        let challenge = HeaderValue::from_static(challenge);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        response
    }
}
