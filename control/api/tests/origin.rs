//! What a page elsewhere has a browser send is refused, and what is no browser's goes on working.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use sluice_api::model::{Drops, Ports};
use sluice_api::{Call, Holder, Network, NewToken, Role, Server};
use sluice_state::Applied;
use tempfile::TempDir;

/// Applies whatever is asked for.
fn answer(call: Call) {
    let _ = match call {
        Call::Ports(reply) => reply.send(Ports::default()).is_ok(),
        Call::Drops(reply) => reply.send(Drops::default()).is_ok(),
        Call::Change(_, reply) => {
            let (summary, changes) = ("done".to_owned(), Vec::new());
            reply.send(Ok(Applied { epoch: 1, summary, changes, durable: true })).is_ok()
        }
        other => panic!("{other:?}"),
    };
}

struct Place {
    folder: TempDir,
    at: SocketAddr,
    token: String,
    _server: Server,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("sluice-api-").tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let at = free.expect("a free port");
        let holder = Holder { name: "ops".to_owned(), role: Role::Admin };
        let made = NewToken::generate(&holder).expect("a token");
        let tokens = folder.path().join("tokens");
        std::fs::write(&tokens, made.line).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&tokens, mode).expect("set");
        let mut server =
            Server::start(&folder.path().join("s"), Box::new(answer)).expect("a server");
        let names = vec!["lb.example.com".to_owned()];
        let network = Network { listen: vec![at], tokens: Some(tokens), names, identity: None };
        let prepared = server.prepare(&network).expect("an address");
        server.reach(prepared);
        Self { folder, at, token: made.token, _server: server }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Header and body of what the control socket answers.
    fn local(&self, request: &str) -> String {
        let stream = UnixStream::connect(self.socket()).expect("connected");
        exchange(stream, request)
    }

    /// The same over the network, with a token.
    fn remote(&self, method: &str, more: &str, body: &str) -> String {
        let authorization =
            format!("Authorization: Bearer {}\r\nConnection: close\r\n", self.token);
        let stream = TcpStream::connect(self.at).expect("connected");
        exchange(stream, &request(method, &format!("{authorization}{more}"), body))
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("read to the end");
    text
}

fn request(target: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{target} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

fn status(text: &str) -> u16 {
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}

const PUT: &str = "PUT /v1/config/services/own";
const APPLY: &str = "POST /v1/config/apply";
const JSON: &str = "Content-Type: application/json\r\n";
/// A browser to which `ssh -L 8080:…/sluice.sock` brings the control socket.
const FORWARDED: &str = "Host: localhost:8080\r\n";

#[test]
fn a_body_that_a_page_may_send_unasked_is_refused() {
    let place = Place::new();
    for kind in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: text/plain; application/json\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=x\r\n",
        "Content-Type: application/json\r\nContent-Type: text/plain\r\n",
    ] {
        for target in [PUT, APPLY, "POST /v1/ipvs", "POST /v1/trace", "POST /v1/config/reload"] {
            let text = place.local(&request(target, &format!("Host: director\r\n{kind}"), "{}"));
            assert_eq!(status(&text), 415, "{target} {kind}: {text}");
            assert!(text.contains("application/json"), "{text}");
        }
        let text = place.remote(PUT, &format!("Host: localhost\r\n{kind}"), "{}");
        assert_eq!(status(&text), 415, "{kind}: {text}");
    }
    for kind in [JSON, "content-type: Application/JSON; charset=utf-8\r\n"] {
        let text = place.local(&request(PUT, &format!("Host: director\r\n{kind}"), "{}"));
        assert_eq!(status(&text), 200, "{text}");
    }
    // What has no body needs no type.
    let text = place.local(&request("DELETE /v1/config/services/own", "Host: director\r\n", ""));
    assert_eq!(status(&text), 200, "{text}");
}

#[test]
fn a_page_of_another_origin_is_refused() {
    let place = Place::new();
    for foreign in [
        "Origin: http://evil.example\r\n",
        "Origin: http://evil.example:8080\r\n",
        "Origin: null\r\n",
        "Origin: http://localhost:3000\r\n",
        "Origin: http://localhost:8080@evil.example\r\n",
        "Origin: http://localhost:8080\r\nOrigin: http://evil.example\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        let headers = format!("{FORWARDED}{JSON}{foreign}");
        for target in [PUT, APPLY, "GET /v1/ports", "GET /metrics", "DELETE /v1/config/snat/x"] {
            let body = if target.starts_with('P') { "{}" } else { "" };
            let text = place.local(&request(target, &headers, body));
            assert_eq!(status(&text), 403, "{target} {foreign}: {text}");
            assert!(!text.to_lowercase().contains("www-authenticate"), "{text}");
        }
        let text = place.remote("GET /v1/ports", &headers, "");
        assert_eq!(status(&text), 403, "{foreign}: {text}");
    }
    for own in [
        "",
        "Origin: http://localhost:8080\r\nSec-Fetch-Site: same-origin\r\n",
        "Sec-Fetch-Site: none\r\n",
    ] {
        let text = place.local(&request(PUT, &format!("{FORWARDED}{JSON}{own}"), "{}"));
        assert_eq!(status(&text), 200, "{own}: {text}");
    }
    // Behind a proxy that writes `Host` anew.
    let proxied = "Host: 127.0.0.1:8443\r\nOrigin: https://lb.example.com\r\n";
    let text = place.remote(PUT, &format!("{proxied}{JSON}"), "{}");
    assert_eq!(status(&text), 200, "{text}");
}

#[test]
fn a_name_that_was_pointed_here_is_refused() {
    let place = Place::new();
    for host in [
        "Host: evil.example\r\n",
        "Host: evil.example:8080\r\n",
        "Host: localhost.evil.example\r\n",
        "Host: localhost@evil.example\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
        "Host: director:8080\r\n",
        "Host: d:80\r\n",
        "Host: \r\n",
        "",
        "Host: localhost\r\nHost: evil.example\r\n",
    ] {
        for target in ["GET /v1/ports", "GET /", "GET /assets/app.js", "GET /v1/nothing"] {
            let text = place.local(&request(target, host, ""));
            // hyper itself refuses what is no host.
            assert!(matches!(status(&text), 400 | 403), "{target} {host}: {text}");
        }
        let text = place.remote("GET /v1/ports", host, "");
        assert!(matches!(status(&text), 400 | 403), "{host}: {text}");
    }
    let aimed = "GET http://evil.example/v1/ports";
    assert_eq!(status(&place.local(&request(aimed, "Host: localhost\r\n", ""))), 403);
    // Names of the control socket are none over the network, and the other way round.
    assert_eq!(status(&place.remote("GET /v1/ports", "Host: director\r\n", "")), 403);
    let named = "Host: LB.example.com:8443\r\n";
    assert_eq!(status(&place.local(&request("GET /v1/ports", named, ""))), 403);
    assert_eq!(status(&place.remote("GET /v1/ports", named, "")), 200);
    for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.0.2.1", "director", "d"] {
        let text = place.local(&request("GET /v1/ports", &format!("Host: {host}\r\n"), ""));
        assert_eq!(status(&text), 200, "{host}: {text}");
    }
    // Whoever watches it may call it anything.
    assert_eq!(status(&place.local(&request("GET /healthz", "Host: probe.example\r\n", ""))), 200);
}

#[test]
fn the_dashboard_may_be_reached_from_any_page() {
    let place = Place::new();
    let foreign = format!("{FORWARDED}Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n");
    for path in ["/", "/assets/app.js"] {
        assert_eq!(status(&place.local(&request(&format!("GET {path}"), &foreign, ""))), 200);
    }
}

#[test]
fn answers_are_neither_kept_nor_guessed_at() {
    let place = Place::new();
    for target in
        ["GET /v1/ports", "GET /v1/nothing", "PUT /v1/config/services/own", "GET /healthz"]
    {
        let text = place.remote(target, &format!("{FORWARDED}{JSON}"), "").to_lowercase();
        assert!(text.contains("x-content-type-options: nosniff"), "{text}");
        assert!(text.contains("cache-control: no-store"), "{text}");
        // A browser would take it for nothing over plain HTTP.
        assert!(!text.contains("strict-transport-security"), "{text}");
    }
    let page = place.remote("GET /", FORWARDED, "").to_lowercase();
    assert!(page.contains("cache-control: no-cache"), "{page}");
}
