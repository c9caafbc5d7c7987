//! Whether a browser was sent here by a page that is not the director's own.
//!
//! A web page may have its reader's browser ask any address that the browser reaches, among them
//! the control socket once `ssh -L` forwards a port to it, where whoever connects may do
//! everything. Three things tell such a request from an operator's: a body that a page may send
//! unasked is not `application/json`; a browser names the page in `Origin` and `Sec-Fetch-Site`;
//! and a page whose name was pointed at the director's address (DNS rebinding) has its own name in
//! `Host`. An address in `Host` cannot be rebound, and is always taken.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use crate::access::{Gate, Way};
use crate::problem::Problem;

/// What the director's own programs and documented commands send as `Host` over the control socket.
/// None of them is in the public DNS, and a browser that is forwarded to the socket adds a port.
const SOCKET_NAMES: [&str; 3] = ["director", "sluice", "d"];
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names that network clients may call the director by, besides its addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// As configured, in small letters.
    pub(crate) names: Vec<String>,
    /// A browser has checked already that the name is one of this.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl Hosts {
    fn knows(&self, name: &str) -> bool {
        let certified = || {
            let parsed = ParsedCertificate::try_from(self.certificate.as_ref()?).ok()?;
            verify_server_name(&parsed, &ServerName::try_from(name).ok()?).ok()
        };
        self.names.iter().any(|known| known == name) || certified().is_some()
    }
}

/// Refuses what a page elsewhere had a browser send, before anything else looks at the request.
pub(crate) async fn guard(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    match judge(&gate.hosts(), &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// What every answer says besides: it is what its type says, nobody keeps it, and who came by TLS
/// comes by nothing else from then on.
pub(crate) async fn mark(request: Request, next: Next) -> Response {
    let secure = request.extensions().get::<Way>().is_some_and(|way| way.secure);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(fixed("no-store"));
    if secure {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, fixed("max-age=31536000"));
    }
    response
}

fn judge(hosts: &Hosts, request: &Request) -> Result<(), Problem> {
    let path = request.uri().path();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    // Whoever watches a director may call it as they like: there is nothing to learn.
    if is_read && path == "/healthz" {
        return Ok(());
    }
    let on_socket = request.extensions().get::<Way>().is_some_and(|way| way.peer.is_none());
    let host = host(request)?;
    if let Some(host) = host.as_ref().filter(|host| !is_known(host, hosts, on_socket)) {
        return Err(Problem::foreign_host(host.as_str()));
    }
    // Files without data, which any page may link to.
    if is_read && (path == "/" || path.starts_with("/assets/")) {
        return Ok(());
    }
    from_here(request.headers(), host.as_ref(), hosts)?;
    check_type(request)
}

/// What the request calls the director; `None` for HTTP/1.0, which need not say.
fn host(request: &Request) -> Result<Option<Authority>, Problem> {
    let missing = || Problem::foreign_host("");
    let mut all = request.headers().get_all(header::HOST).iter();
    let (said, more) = (all.next(), all.next());
    if more.is_some() {
        return Err(missing());
    }
    let said = match said {
        None if request.version() == axum::http::Version::HTTP_10 => None,
        None => return Err(missing()),
        Some(value) => {
            Some(Authority::try_from(value.as_bytes()).map_err(|_| Problem::foreign_host("it"))?)
        }
    };
    // A target with a host stands above the header (RFC 9112, 3.2.2).
    Ok(request.uri().authority().cloned().or(said))
}

fn is_known(host: &Authority, hosts: &Hosts, on_socket: bool) -> bool {
    let name = host.host().to_ascii_lowercase();
    if host.as_str().contains('@') {
        return false;
    }
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if name == "localhost" || bare.parse::<IpAddr>().is_ok() {
        return true;
    }
    match on_socket {
        true => SOCKET_NAMES.contains(&&*name) && host.port().is_none(),
        false => hosts.knows(&name),
    }
}

/// Whether no other page's name is on the request.
fn from_here(headers: &HeaderMap, host: Option<&Authority>, hosts: &Hosts) -> Result<(), Problem> {
    for site in headers.get_all(FETCH_SITE) {
        if !matches!(site.as_bytes(), b"same-origin" | b"none") {
            return Err(Problem::foreign_page("Sec-Fetch-Site", site));
        }
    }
    for origin in headers.get_all(header::ORIGIN) {
        let authority = origin.to_str().ok().and_then(|origin| {
            origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"))
        });
        let own = authority.is_some_and(|authority| {
            let same = host.is_some_and(|host| host.as_str().eq_ignore_ascii_case(authority));
            // What stands before the director may have written `Host` anew.
            let name = authority.parse::<Authority>();
            let name = name.map(|it| it.host().to_ascii_lowercase());
            same || name.is_ok_and(|name| hosts.names.contains(&name))
        });
        if !own {
            return Err(Problem::foreign_page("Origin", origin));
        }
    }
    Ok(())
}

/// Whether a body is said to be JSON, which no page may send elsewhere without being asked first.
fn check_type(request: &Request) -> Result<(), Problem> {
    let mut types = request.headers().get_all(header::CONTENT_TYPE).iter().peekable();
    if types.peek().is_none() && !request.body().is_end_stream() {
        return Err(Problem::media_type("nothing"));
    }
    for kind in types {
        let text = kind.to_str().unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(Problem::media_type(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use std::process::Command;

    #[test]
    fn names_of_the_certificate_are_the_directors() {
        let folder = tempfile::tempdir().expect("a folder");
        let [key, made] = ["key", "crt"].map(|name| folder.path().join(name));
        let ran = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=unnamed.example"])
            .args(["-addext", "subjectAltName=DNS:lb1.example.com,DNS:*.lb.example.com"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&made)
            .output()
            .expect("openssl");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let certificate = CertificateDer::from_pem_file(&made).expect("a certificate");
        let hosts = Hosts { names: vec!["lb".to_owned()], certificate: Some(certificate) };
        for (name, known) in [
            ("lb", true),
            ("lb1.example.com", true),
            ("a.lb.example.com", true),
            ("unnamed.example", false),
            ("example.com", false),
            ("lb1.example.com.evil.example", false),
            ("", false),
        ] {
            assert_eq!(hosts.knows(name), known, "{name:?}");
        }
    }
}
