//! Server and client together, over real sockets, with a director that is played by a closure.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
use serde_json::Value;
use sluice_api::model::{
    Balanced, Checked, Drops, Elephant, Elephants, Event, EventKind, Health, HealthState, IdleMode,
    Memory, Ports, Probe, ProbeOutcome, Protocol, Rate, Service, Services, Session, SessionCounts,
    SessionState, Sessions, StageTicks, Stages, Status, WorkerStages,
};
use sluice_api::{ApiError, Call, Client, EventQuery, Options, Resource, Server, SessionQuery};
use sluice_director::Reason;
use tempfile::TempDir;

use crate::networks::{drops_in, networks};
use crate::rules::rules;

const SOON: Duration = Duration::from_secs(10);

/// A folder that is removed at the end, also of a test that fails.
pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("sluice-api-").tempdir().expect("a folder") }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/deep/sluice.sock")
    }

    pub fn serve(&self) -> Server {
        Server::start(&self.socket(), Box::new(answer)).expect("a server")
    }

    pub fn client(&self) -> Client {
        Client::new(self.socket())
    }

    /// An exchange in plain bytes: the client's own words cannot be wrong enough.
    fn raw(&self, request: &str) -> (String, Value) {
        let mut stream = UnixStream::connect(self.socket()).expect("connected");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read to the end");
        let (head, body) = text.split_once("\r\n\r\n").expect("a header and a body");
        (head.to_owned(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    pub fn get(&self, target: &str) -> (String, Value) {
        self.raw(&format!("GET {target} HTTP/1.1\r\nHost: director\r\n\r\n"))
    }
}

fn status() -> Status {
    Status {
        version: "0.1.0".to_owned(),
        pid: 4711,
        uptime_s: 12.5,
        config: "/etc/sluice/sluice.toml".into(),
        plan_epoch: 3,
        config_epoch: 3,
        durable: true,
        differs_from_file: false,
        last_reload: None,
        idle: IdleMode::Adaptive,
        huge_pages: true,
        memory: Memory { bytes: 1 << 30, pages: "2 MiB".to_owned(), kept: true },
        sessions: SessionCounts {
            live: 2,
            capacity: u64::MAX,
            created: 3,
            closed: 1,
            expired: 0,
            killed: 0,
            evicted: 0,
            half_open: 0,
            pressed_workers: 0,
            ignored_ends: 0,
        },
        handed_off: 0,
        workers: Vec::new(),
    }
}

fn service(name: &str, port: u16) -> Service {
    Service {
        name: name.to_owned(),
        network: None,
        protocol: Protocol::Tcp,
        vip: "198.51.100.200".parse().expect("an address"),
        ports: port.to_string(),
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

fn session(client_port: u16, service: &str) -> Session {
    let at = |text: &str| text.parse().expect("an address and a port");
    Session {
        protocol: Protocol::Tcp,
        client: at(&format!("198.51.100.48:{client_port}")),
        virtual_: at("198.51.100.200:80"),
        local: Some(at("192.0.2.10:1024")),
        real: at("192.0.2.11:80"),
        mode: "fnat".to_owned(),
        state: SessionState::Established,
        idle_ms: 10,
        expires_ms: 899_990,
        service: service.to_owned(),
        network: None,
        worker: 0,
    }
}

fn stages() -> Stages {
    let stages = vec![StageTicks { stage: "track".to_owned(), ticks: u64::MAX }];
    let worker = WorkerStages { packets: 9, stages, ..WorkerStages::default() };
    Stages { ticks_per_s: 2_000_000_000, workers: vec![worker] }
}

fn elephant() -> Elephant {
    let rate = |packets_per_s| Rate { packets_per_s, bytes_per_s: 60 * packets_per_s };
    let session = session(40_000, "web");
    Elephant { session, inbound: rate(1000), outbound: rate(2000), samples: 23 }
}

fn health() -> Health {
    let last = Probe { outcome: ProbeOutcome::Blind, text: "no files".to_owned(), took_ms: 0.5 };
    let check = Checked {
        service: "web".to_owned(),
        address: "192.0.2.11".parse().expect("an address"),
        port: 80,
        check: "page".to_owned(),
        kind: "http".to_owned(),
        state: HealthState::Down,
        for_s: 1.5,
        reason: "HTTP status 503".to_owned(),
        serves: false,
        last: Some(last),
        next_in_ms: None,
        probes: 7,
    };
    Health { checks: vec![check], restarts: 1 }
}

fn event() -> Event {
    Event {
        service: "web".to_owned(),
        address: "2001:db8::11".parse().ok(),
        port: Some(0),
        from: Some(HealthState::Up),
        to: Some(HealthState::Down),
        told_after_us: Some(90),
        ..Event::new(EventKind::Health, "HTTP status 503")
    }
}

/// A director with two services and three sessions, which answers at once.
fn answer(call: Call) {
    let in_time = match call {
        Call::Status(reply) => reply.send(status()).is_ok(),
        Call::Services(reply) => {
            let services = vec![service("web", 80), service("a&b", 81)];
            reply.send(Services { services, snat: Vec::new() }).is_ok()
        }
        Call::Sessions(query, reply) => {
            let all = [session(40_000, "web"), session(40_001, "web"), session(40_002, "a&b")];
            let mut sessions: Vec<_> = all.into_iter().filter(|s| query.matches(s)).collect();
            let more = sessions.len() > query.limit as usize;
            sessions.truncate(query.limit as usize);
            let next = more.then(|| "0.1".to_owned());
            reply.send(Sessions { sessions, more, next }).is_ok()
        }
        Call::Ports(reply) => reply.send(Ports::default()).is_ok(),
        Call::PortsRules(reply) => reply.send(rules()).is_ok(),
        Call::Networks(reply) => reply.send(networks()).is_ok(),
        Call::DropsIn(name, reply) => reply.send(drops_in(&name)).is_ok(),
        Call::Drops(reply) => reply.send(Drops::from_counts(&[0; Reason::COUNT])).is_ok(),
        Call::Stages(reply) => reply.send(stages()).is_ok(),
        Call::Elephants(limit, reply) => {
            let elephants = vec![elephant(); limit.min(3) as usize];
            reply.send(Elephants { elephants, spread: Vec::new() }).is_ok()
        }
        Call::Health(reply) => reply.send(health()).is_ok(),
        // The desired state has tests of its own.
        other => panic!("{other:?}"),
    };
    assert!(in_time, "the server gave up on an answer that came at once");
}

#[test]
fn what_the_director_says_arrives_as_it_was_said() {
    let place = Place::new();
    let server = place.serve();
    let client = place.client();
    assert_eq!(client.status().expect("a status"), status());
    let services = client.services(&[]).expect("services").services;
    assert_eq!(services, [service("web", 80), service("a&b", 81)]);
    let services = client.services(&["a&b".to_owned()]).expect("services").services;
    assert_eq!(services, [service("a&b", 81)]);
    assert_eq!(client.ports().expect("ports"), Ports::default());
    assert_eq!(client.ports_rules().expect("rules"), rules());
    let drops = client.drops().expect("drops");
    assert_eq!(drops, Drops::from_counts(&[0; Reason::COUNT]));
    assert_eq!(client.stages().expect("stages"), stages());
    let elephants = client.elephants(2).expect("elephants").elephants;
    assert_eq!(elephants, [elephant(), elephant()]);
    assert_eq!(client.health().expect("health"), health());
    server.note_all([event(), event()]);
    let after = EventQuery { after: Some(1), ..EventQuery::default() };
    let events = client.events(&after).expect("events").events;
    assert!(events[0].at_unix_ms > 1_700_000_000_000, "{events:?}");
    let at_unix_ms = events[0].at_unix_ms;
    assert_eq!(events, [Event { id: 2, at_unix_ms, ..event() }]);
    let text = client.text(&Resource::Status).expect("a text");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["sessions"]["capacity"].as_u64(), Some(u64::MAX));
    server.stop();
}

#[test]
fn sessions_are_found_by_what_is_asked() {
    let place = Place::new();
    let _server = place.serve();
    let ports = |query: SessionQuery| {
        let found = place.client().sessions(&query).expect("sessions");
        let ports: Vec<_> = found.sessions.iter().map(|s| s.client.port()).collect();
        (ports, found.more)
    };
    let all = SessionQuery::default;
    assert_eq!(ports(all()), (vec![40_000, 40_001, 40_002], false));
    assert_eq!(ports(SessionQuery { limit: 2, ..all() }), (vec![40_000, 40_001], true));
    let service = Some("a&b".to_owned());
    assert_eq!(ports(SessionQuery { service, ..all() }), (vec![40_002], false));
    let client = "198.51.100.48:40001".parse().ok();
    assert_eq!(ports(SessionQuery { client, ..all() }), (vec![40_001], false));
    let real = "192.0.2.12".parse().ok();
    assert_eq!(ports(SessionQuery { real, ..all() }), (vec![], false));
    let protocol = Some(Protocol::Udp);
    assert_eq!(ports(SessionQuery { protocol, ..all() }), (vec![], false));
    let state = Some(SessionState::Established);
    assert_eq!(ports(SessionQuery { state, limit: 1, ..all() }), (vec![40_000], true));
}

#[test]
fn a_service_that_is_not_there_is_named_with_those_that_are() {
    let place = Place::new();
    let _server = place.serve();
    let query = SessionQuery { service: Some("wbe".to_owned()), ..SessionQuery::default() };
    let by_sessions = place.client().sessions(&query).expect_err("no such service");
    let by_services = place.client().services(&["wbe".to_owned()]).expect_err("no such service");
    for (error, parameter) in [(by_sessions, "service"), (by_services, "name")] {
        let ApiError::Refused(problem) = error else { panic!("{error}") };
        let blame = problem.blame.as_ref().expect("a parameter is to blame");
        assert_eq!((&*blame.parameter, &*blame.expected), (parameter, "one of web, a&b"));
        assert_eq!(blame.found.as_deref(), Some("wbe"));
    }
}

#[test]
fn wrong_requests_get_a_problem_that_says_what_is_wrong() {
    let place = Place::new();
    let _server = place.serve();
    let check = |(head, body): (String, Value), status: u16, words: &[&str]| {
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.to_lowercase().contains("content-type: application/problem+json"), "{head}");
        assert_eq!(body["status"], status, "{body}");
        assert!(body["type"].as_str().is_some_and(|t| t.starts_with("urn:sluice:problem:")));
        let detail = body["detail"].as_str().expect("a detail");
        assert!(words.iter().all(|word| detail.contains(word)), "{detail}");
    };
    check(place.get("/v1/sessions?limit=many"), 400, &["limit", "many", "1 to 100000"]);
    check(place.get("/v1/sessions?limit=100001"), 400, &["limit", "100001", "1 to 100000"]);
    check(place.get("/v1/sessions?state=%FF"), 400, &["state", "ESTABLISHED"]);
    check(place.get("/v1/sessions?client"), 400, &["client", "an address"]);
    check(place.get("/v1/sessions?foo=1"), 400, &["foo", "service, network"]);
    check(place.get("/v1/status?x=1"), 400, &["x", "no parameter"]);
    check(place.get("/v1/services?nam=web"), 400, &["nam", "name"]);
    check(place.get("/v1/nothing"), 404, &["/v1/nothing", "/v1/status"]);
    check(place.get("/v1"), 404, &["/v1/sessions"]);
    let posted = place.raw("POST /v1/status HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n");
    assert!(posted.0.to_lowercase().contains("allow: get"), "{}", posted.0);
    check(posted, 405, &["POST", "Allow"]);
    assert!(place.raw("nonsense\r\n\r\n").0.starts_with("HTTP/1.1 400 "));
    assert!(place.client().status().is_ok(), "the server is well after all that");
}

#[test]
fn an_answer_that_does_not_come_is_said_to_be_missing() {
    let place = Place::new();
    let held = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&held);
    let call = move |call| keep.lock().expect("no panic").push(call);
    let options = Options { patience: Duration::from_millis(50), ..Options::default() };
    let server = Server::start_with(&place.socket(), Box::new(call), options).expect("a server");
    let error = place.client().status().expect_err("nobody answers");
    let ApiError::Refused(problem) = error else { panic!("{error}") };
    assert_eq!(problem.status, 504);
    assert!(problem.detail.contains("0.05 s"), "{}", problem.detail);
    // An answer that comes too late goes nowhere and harms nobody.
    match held.lock().expect("no panic").pop().expect("the call") {
        Call::Status(reply) => assert!(reply.send(status()).is_err()),
        other => panic!("{other:?}"),
    }
    server.stop();
}

#[test]
fn a_director_that_will_not_answer_is_said_to_be_stopping() {
    let place = Place::new();
    let _server = Server::start(&place.socket(), Box::new(drop)).expect("a server");
    let error = place.client().drops().expect_err("the call is dropped");
    let ApiError::Refused(problem) = error else { panic!("{error}") };
    assert_eq!(problem.status, 503);
}

#[test]
fn the_client_gives_up_on_a_server_that_hangs() {
    let place = Place::new();
    std::fs::create_dir_all(place.socket().parent().expect("a folder")).expect("made");
    let _silent = UnixListener::bind(place.socket()).expect("bound");
    let client = place.client().with_patience(Duration::from_millis(50));
    let error = client.status().expect_err("nobody answers");
    assert!(matches!(error, ApiError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("did not answer within 0.05 s"), "{error}");
}

/// Answers one connection with `bytes`.
fn impostor(socket: &Path, bytes: &'static [u8]) -> std::thread::JoinHandle<()> {
    std::fs::create_dir_all(socket.parent().expect("a folder")).expect("made");
    let listener = UnixListener::bind(socket).expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).expect("a request") > 0);
        stream.write_all(bytes).expect("sent");
    })
}

#[test]
fn something_else_behind_the_socket_is_told_apart() {
    for (bytes, expected) in [
        (&b"220 mail.example.org ESMTP\r\n"[..], "is not a director"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "missing field"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "it answered 500"),
        (b"", "broke"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", "broke"),
    ] {
        let place = Place::new();
        let thread = impostor(&place.socket(), bytes);
        let error = place.client().status().expect_err("not a director").to_string();
        assert!(error.contains(expected), "{error}");
        thread.join().expect("no panic");
    }
}

#[test]
fn without_a_director_the_error_says_what_to_do() {
    let place = Place::new();
    let error = place.client().status().expect_err("nothing there");
    assert!(matches!(error, ApiError::Absent(_)), "{error}");
    for part in [&*place.socket().to_string_lossy(), "is sluiced running?", "--socket"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    std::fs::create_dir_all(place.socket().parent().expect("a folder")).expect("made");
    drop(UnixListener::bind(place.socket()).expect("bound"));
    let error = place.client().status().expect_err("nobody there");
    assert!(matches!(error, ApiError::Dead(_)), "{error}");
}

#[test]
fn the_socket_is_for_owner_and_group_and_goes_with_the_server() {
    let place = Place::new();
    let server = place.serve();
    let mode = std::fs::metadata(place.socket()).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    server.stop();
    let folder = place.socket().parent().expect("a folder").to_owned();
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0, "nothing is left");
    drop(place.serve());
    assert!(!place.socket().exists(), "a dropped server stops too");
}

#[test]
fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
    let place = Place::new();
    std::fs::create_dir_all(place.socket().parent().expect("a folder")).expect("made");
    // What kill -9 leaves: a socket file that nobody listens on.
    drop(UnixListener::bind(place.socket()).expect("bound"));
    let server = place.serve();
    let error = Server::start(&place.socket(), Box::new(answer)).expect_err("a second one");
    assert!(matches!(error, ApiError::AnotherDirector(_)), "{error}");
    assert!(error.to_string().starts_with("another director listens on /"), "{error}");
    assert!(place.client().status().is_ok(), "the first one is not disturbed");
    server.stop();
    place.serve().stop();
}

/// A director that hangs takes no connections: its queue is full, and it is alive all the same.
#[test]
fn a_director_that_hangs_is_not_replaced() {
    let place = Place::new();
    std::fs::create_dir_all(place.socket().parent().expect("a folder")).expect("made");
    let silent = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    bind(&silent, &SocketAddrUnix::new(place.socket()).expect("an address")).expect("bound");
    listen(&silent, 1).expect("listens");
    let _queued: Vec<_> =
        (0..2).map(|_| UnixStream::connect(place.socket()).expect("queued")).collect();
    let error = Server::start(&place.socket(), Box::new(answer)).expect_err("it lives");
    assert!(matches!(error, ApiError::AnotherDirector(_)), "{error}");
    let client = place.client().with_patience(Duration::from_millis(50));
    let error = client.status().expect_err("nobody answers");
    assert!(matches!(error, ApiError::Timeout { .. }), "{error}");
}

#[test]
fn of_many_that_start_at_once_over_a_dead_socket_one_wins() {
    let place = Place::new();
    std::fs::create_dir_all(place.socket().parent().expect("a folder")).expect("made");
    drop(UnixListener::bind(place.socket()).expect("bound"));
    let start = || Server::start(&place.socket(), Box::new(answer));
    let started: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(started.iter().filter(|server| server.is_ok()).count(), 1);
    let losers = started.iter().filter_map(|server| server.as_ref().err());
    assert!(losers.clone().all(|e| matches!(e, ApiError::AnotherDirector(_))), "{started:?}");
    assert!(place.client().status().is_ok());
}

#[test]
fn a_file_in_the_sockets_place_is_not_touched() {
    let place = Place::new();
    std::fs::create_dir_all(place.socket().parent().expect("a folder")).expect("made");
    std::fs::write(place.socket(), "precious").expect("written");
    let error = Server::start(&place.socket(), Box::new(answer)).expect_err("no room");
    assert!(matches!(error, ApiError::NotASocket(_)), "{error}");
    assert_eq!(std::fs::read_to_string(place.socket()).expect("still there"), "precious");
}

#[test]
fn a_server_removes_its_own_socket_only() {
    let place = Place::new();
    let server = place.serve();
    std::fs::remove_file(place.socket()).expect("somebody removes it");
    let _other = UnixListener::bind(place.socket()).expect("and makes another");
    server.stop();
    assert!(place.socket().exists());
}

/// Idle connections fill every place; the next client waits, and is served when one goes away.
#[test]
fn more_connections_than_places_wait_and_are_served() {
    let place = Place::new();
    let server = place.serve();
    let idle: Vec<_> =
        (0..64).map(|_| UnixStream::connect(place.socket()).expect("connected")).collect();
    let client = place.client().with_patience(SOON);
    let asking = std::thread::spawn(move || client.status());
    drop(idle);
    asking.join().expect("no panic").expect("served");
    let _still_idle = UnixStream::connect(place.socket()).expect("connected");
    let before = Instant::now();
    server.stop();
    assert!(before.elapsed() < SOON, "an idle client does not hold up the end");
}

#[test]
fn many_clients_at_once_are_all_served() {
    let place = Place::new();
    let _server = place.serve();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let client = place.client();
                    (0..25).filter(|_| client.status().is_ok()).count()
                })
            })
            .collect();
        let served: usize = threads.into_iter().map(|t| t.join().expect("no panic")).sum();
        assert_eq!(served, 200);
    });
}
