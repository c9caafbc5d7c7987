//! What is measured, over real sockets, with a director that is played by a closure.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use sluice_api::model::{Rates, RatesQuery};
use sluice_api::{Call, Client, Server};

fn serve() -> (tempfile::TempDir, PathBuf, Server) {
    let folder = tempfile::Builder::new().prefix("sluice-api-").tempdir().expect("a folder");
    let socket = folder.path().join("sluice.sock");
    let server = Server::start(&socket, Box::new(answer)).expect("a server");
    (folder, socket, server)
}

fn answer(call: Call) {
    let in_time = match call {
        Call::Metrics(exposition, reply) => {
            reply.send(exposition.media_type().to_owned().into()).is_ok()
        }
        Call::Rates(query, reply) => reply.send(rates(query)).is_ok(),
        other => panic!("{other:?}"),
    };
    assert!(in_time, "the server gave up on an answer that came at once");
}

fn rates(query: RatesQuery) -> Result<Rates, Vec<String>> {
    let at = query.since_unix_ms.unwrap_or_default() as f64 / 1e3 + 2.0;
    match query.service.as_deref() {
        None | Some("web") => Ok(Rates {
            service: query.service,
            step_s: query.step_s.unwrap_or(2),
            at_unix_s: vec![at],
            sessions: vec![7.0],
            ..Rates::default()
        }),
        Some(_) => Err(vec!["dns".to_owned(), "web".to_owned()]),
    }
}

#[test]
fn rates_are_asked_for_by_service_time_and_step() {
    let (_folder, socket, _server) = serve();
    let client = Client::new(socket);
    let since_unix_ms = Some(1_790_000_000_500);
    let query = RatesQuery { service: Some("web".to_owned()), since_unix_ms, step_s: Some(60) };
    let found = client.rates(&query).expect("rates");
    assert_eq!((found.service.as_deref(), found.step_s), (Some("web"), 60));
    assert_eq!((found.at_unix_s, found.sessions), (vec![1_790_000_002.5], vec![7.0]));
    let query = RatesQuery { service: Some("wep".to_owned()), ..RatesQuery::default() };
    let wrong = client.rates(&query).expect_err("no such service").to_string();
    assert!(wrong.contains("service") && wrong.contains("one of dns, web"), "{wrong}");
}

/// The format is in the header; the page is whatever the daemon wrote.
#[test]
fn the_page_for_prometheus_is_in_the_format_that_is_asked_for() {
    let (_folder, socket, _server) = serve();
    for (accept, wanted) in [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ] {
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: director\r\nAccept: {accept}\r\n\r\n");
        let mut stream = UnixStream::connect(&socket).expect("a connection");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("an answer");
        let (head, body) = said.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("content-type: {wanted}")), "{head}");
        assert_eq!(body, wanted);
    }
}
