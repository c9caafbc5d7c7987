//! The dashboard: a handful of static files inside the program, and the routes that serve them.
//!
//! What a browser gets is the same for everybody and holds no data: the pages ask the API, with the
//! token that their user enters. So these routes need no permission, and the header
//! [`SECURITY_POLICY`] keeps whatever a page shows from being run: scripts and styles come from
//! here alone, none is inline, nothing is asked of other hosts, and no page may frame this one.
#![forbid(unsafe_code)]

mod files;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

pub use files::{FILES, File};

/// The `Content-Security-Policy` of every answer. Trusted types without a policy mean that text can
/// be no HTML, whatever a script does with it.
pub const SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The headers that every answer has besides its type and tag. Browsers ask each time whether a
/// file is still the same: after an upgrade nobody runs old scripts against a new API.
const HEADERS: [(header::HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-cache"),
];

/// The routes of the dashboard: `/` and `/assets/…`. They answer GET and HEAD.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        let tag = file.tag();
        router.route(file.path, get(async move |headers: HeaderMap| answer(file, &tag, &headers)))
    })
}

fn answer(file: &'static File, tag: &str, asked: &HeaderMap) -> Response {
    let mut answer = match known(asked, tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, file.media_type())], file.content).into_response(),
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    answer
}

/// Whether the browser has the file already (RFC 9110, 13.1.2: a weak comparison of any of a list).
fn known(asked: &HeaderMap, tag: &str) -> bool {
    let lists = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
    let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
    tags.any(|theirs| theirs == "*" || theirs.trim_start_matches("W/") == tag)
}
