//! Ending sessions, over a real socket, of a director that is played by a closure.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;
use sluice_api::model::{Balanced, Killed, Network, Networks, Protocol, Service, Services};
use sluice_api::{Call, Client, Server, SessionQuery};
use sluice_state::{Author, Source};
use tempfile::TempDir;

/// Clients and services of the open sessions.
const OPEN: [(&str, &str); 3] = [
    ("198.51.100.48:40000", "web"),
    ("198.51.100.48:40001", "web"),
    ("198.51.100.48:40002", "a&b"),
];

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::Builder::new().prefix("sluice-api-").tempdir().expect("a folder"))
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("s")
    }

    fn serve(&self) -> Server {
        Server::start(&self.socket(), Box::new(answer)).expect("a server")
    }

    fn client(&self) -> Client {
        Client::new(self.socket())
    }

    fn raw(&self, request: &str) -> (String, Value) {
        let mut stream = UnixStream::connect(self.socket()).expect("connected");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read to the end");
        let (head, body) = text.split_once("\r\n\r\n").expect("a header and a body");
        (head.to_owned(), serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

fn service(name: &str) -> Service {
    Service {
        name: name.to_owned(),
        network: None,
        protocol: Protocol::Tcp,
        vip: "198.51.100.200".parse().expect("an address"),
        ports: "80".to_owned(),
        mode: "fnat".to_owned(),
        scheduler: "rr".to_owned(),
        pool: Some("lan".to_owned()),
        persistence: None,
        one_packet: false,
        client_address: "hidden".to_owned(),
        counted: Balanced::default(),
        reals: Vec::new(),
    }
}

/// All sessions go to one real server.
fn admits(query: &SessionQuery, (client, service): (&str, &str)) -> bool {
    let (client, real) = (client.parse().expect("an endpoint"), "192.0.2.11:80".parse());
    query.service.as_ref().is_none_or(|name| name == service)
        && query.network.as_ref().is_none_or(|name| name == Network::DEFAULT)
        && query.client.is_none_or(|wanted| wanted.is_at(client))
        && query.real.is_none_or(|wanted| wanted.is_at(real.expect("an endpoint")))
}

fn answer(call: Call) {
    let in_time = match call {
        Call::Services(reply) => {
            let services = vec![service("web"), service("a&b")];
            reply.send(Services { services, snat: Vec::new() }).is_ok()
        }
        Call::Networks(reply) => {
            let network = |name: &str| Network { name: name.to_owned(), ..Network::default() };
            let networks = vec![network(Network::DEFAULT), network("blue")];
            reply.send(Networks { networks }).is_ok()
        }
        Call::Kill { query, dry_run, by, reply } => {
            assert_eq!(by, Author::of(Source::Api));
            let sessions = OPEN.iter().filter(|one| admits(&query, **one)).count() as u64;
            reply.send(Some(Killed { sessions, dry_run })).is_ok()
        }
        other => panic!("{other:?}"),
    };
    assert!(in_time, "the server gave up on an answer that came at once");
}

#[test]
fn sessions_are_ended_by_a_filter_or_when_all_is_said() {
    let place = Place::new();
    let _server = place.serve();
    let delete = |target: &str| {
        place.raw(&format!("DELETE {target} HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n"))
    };
    for (query, sessions, dry_run) in [
        ("service=web", 2, false),
        ("client=198.51.100.48:40002&dry_run=true", 1, true),
        ("all=true", 3, false),
        ("network=default", 3, false),
        ("network=blue", 0, false),
        ("real=192.0.2.12", 0, false),
    ] {
        let (head, body) = delete(&format!("/v1/sessions?{query}"));
        assert!(head.starts_with("HTTP/1.1 200 "), "{query}: {head} {body}");
        assert_eq!(body, serde_json::json!({ "sessions": sessions, "dry_run": dry_run }));
    }
    for (query, told) in [
        ("", "all"),
        ("?dry_run=true", "all"),
        ("?all=false", "all"),
        ("?all=true&service=web", "left out where there is a filter"),
        ("?service=wob", "one of web, a&b"),
        ("?network=bleu", "one of default, blue"),
        ("?all=true&network=blue", "left out where there is a filter"),
        ("?service=web&limit=1", "limit"),
        ("?service=web&cursor=0.1", "cursor"),
        ("?all=1", "one of true, false"),
    ] {
        let (head, body) = delete(&format!("/v1/sessions{query}"));
        assert!(head.starts_with("HTTP/1.1 400 "), "{query}: {head}");
        assert!(body["detail"].as_str().is_some_and(|text| text.contains(told)), "{body}");
    }
    let killed = place
        .client()
        .kill(&SessionQuery { service: Some("web".to_owned()), ..SessionQuery::default() });
    assert_eq!(killed.expect("an answer"), Killed { sessions: 2, dry_run: false });
    assert!(place.client().kill(&SessionQuery::default()).is_err(), "nobody said all");
}
