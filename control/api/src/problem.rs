//! What went wrong with a request, as RFC 9457 has it: `application/problem+json`.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::query::WrongValue;

/// Media type of a [`Problem`].
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Which kind of problem: a URI that names it and leads nowhere.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status code.
    pub status: u16,
    /// What happened this time, and what to do about it.
    pub detail: String,
    /// The parameter that is to blame, if one is.
    #[serde(flatten)]
    pub blame: Option<Box<Blame>>,
}

/// The parameter that is to blame for a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blame {
    /// Its name.
    pub parameter: String,
    /// Its value; absent when there is no such parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What would be right.
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

    /// Only reading is possible.
    pub(crate) fn method(method: &str) -> Self {
        let detail = format!("{method} is not possible here; GET is");
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self::new(status, "method-not-allowed", "Method not allowed", detail)
    }

    /// The daemon did not answer in time.
    pub(crate) fn no_answer(after_s: f64) -> Self {
        let detail = format!(
            "the director did not answer within {after_s} s; it is overloaded or stuck, see its log"
        );
        Self::new(StatusCode::GATEWAY_TIMEOUT, "no-answer", "No answer", detail)
    }

    /// The daemon will not answer.
    pub(crate) fn stopping() -> Self {
        let detail = "the director gave no answer: it is stopping";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "Stopping", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let allow =
            (status == StatusCode::METHOD_NOT_ALLOWED).then_some([(header::ALLOW, "GET, HEAD")]);
        // Strings and numbers can always be written as JSON.
        let body = serde_json::to_string(&self).unwrap_or_default();
        (status, allow, [(header::CONTENT_TYPE, MEDIA_TYPE)], body).into_response()
    }
}
