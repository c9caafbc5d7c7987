//! A change that is asked for twice is made once, whatever became of the first answer; and one peer
//! does not keep others out.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sluice_api::model::Ports;
use sluice_api::{
    Call, Change, Client, Holder, Network, NewToken, Options, Remote, Role, Server, Verb,
};
use sluice_state::Applied;
use tempfile::TempDir;

/// A director that takes a while for each change, and counts them.
#[derive(Default)]
struct Slow {
    changes: AtomicU64,
    takes: Mutex<Duration>,
}

impl Slow {
    fn answer(self: &Arc<Self>, call: Call) {
        match call {
            Call::Ports(reply) => drop(reply.send(Ports::default())),
            Call::Change(_, reply) => {
                let this = Arc::clone(self);
                std::thread::spawn(move || {
                    let epoch = this.changes.fetch_add(1, Ordering::SeqCst) + 1;
                    let takes = *this.takes.lock().expect("sound");
                    std::thread::sleep(takes);
                    let (summary, changes) = ("done".to_owned(), Vec::new());
                    let _ = reply.send(Ok(Applied { epoch, summary, changes, durable: true }));
                });
            }
            other => panic!("{other:?}"),
        }
    }
}

struct Place {
    folder: TempDir,
    at: SocketAddr,
    slow: Arc<Slow>,
    _server: Server,
}

impl Place {
    fn new(patience: Duration) -> Self {
        let folder = tempfile::Builder::new().prefix("sluice-api-").tempdir().expect("a folder");
        let free = TcpListener::bind("0.0.0.0:0").and_then(|free| free.local_addr());
        let at = free.expect("a free port");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
            path
        };
        let holder = Holder { name: "ops".to_owned(), role: Role::Admin };
        let made = NewToken::generate(&holder).expect("a token");
        write("token", &made.token);
        let tokens = Some(write("tokens", &made.line));
        let slow = Arc::new(Slow::default());
        let (asked, options) = (Arc::clone(&slow), Options { patience, ..Options::default() });
        let call = Box::new(move |call| asked.answer(call));
        let mut server =
            Server::start_with(&folder.path().join("s"), call, options).expect("a server");
        let network = Network { listen: vec![at], tokens, ..Network::default() };
        let prepared = server.prepare(&network).expect("an address");
        server.reach(prepared);
        Self { folder, at, slow, _server: server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Status and body of a change with a key.
    fn put(&self, key: &str, name: &str, body: &str) -> (u16, String) {
        self.ask("PUT", key, name, body)
    }

    fn ask(&self, method: &str, key: &str, name: &str, body: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.path("s")).expect("connected");
        write!(
            stream,
            "{method} /v1/config/services/{name} HTTP/1.1\r\nHost: d\r\n\
             Content-Type: application/json\r\nIdempotency-Key: {key}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = text.split_once("\r\n\r\n").expect("a body").1.to_owned();
        (status.expect("a status"), body)
    }

    fn changes(&self) -> u64 {
        self.slow.changes.load(Ordering::SeqCst)
    }
}

#[test]
fn a_change_that_is_repeated_is_made_once() {
    let place = Place::new(Duration::from_millis(200));
    *place.slow.takes.lock().expect("sound") = Duration::from_secs(1);
    let (status, body) = place.put("k1", "web", "{}");
    assert_eq!((status, body.contains("Idempotency-Key")), (504, true), "{body}");
    let begun = Instant::now();
    let mut last = (status, body);
    while last.0 == 504 && begun.elapsed() < Duration::from_secs(20) {
        last = place.put("k1", "web", "{}");
    }
    assert_eq!((last.0, last.1.contains("\"epoch\":1")), (200, true), "{}", last.1);
    assert_eq!(place.put("k1", "web", "{}"), last, "another outcome");
    assert_eq!(place.changes(), 1);
    for (name, body) in [("web", "{\"a\": 1}"), ("other", "{}")] {
        let (status, said) = place.put("k1", name, body);
        assert_eq!((status, said.contains("another request")), (422, true), "{said}");
    }
    for method in ["POST", "TRACE"] {
        assert_eq!(place.ask(method, "k1", "web", "{}").0, 405, "{method} is not there to repeat");
    }
    *place.slow.takes.lock().expect("sound") = Duration::ZERO;
    assert_eq!(place.put("k2", "web", "{}").0, 200);
    assert_eq!(place.changes(), 2);
    for key in ["", "a b", &"x".repeat(129)] {
        assert_eq!(place.put(key, "web", "{}").0, 400, "{key:?}");
    }
}

/// The body is refused before it has come; whoever still sends it is to see why.
#[test]
fn a_refusal_reaches_a_client_that_still_sends() {
    let place = Place::new(Duration::from_secs(5));
    let large = "x".repeat(3 << 20);
    for _ in 0..20 {
        let (status, body) = place.put("", "web", &large);
        assert_eq!((status, body.contains("Idempotency-Key")), (400, true), "{body}");
        let mut stream = TcpStream::connect(place.at).expect("connected");
        let head = "PUT /v1/config/services/web HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: \
                    application/json\r\nConnection: close\r\nContent-Length: 3145728\r\n\r\n";
        write!(stream, "{head}{large}").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
    }
}

#[test]
fn outcomes_are_kept_for_so_many() {
    let place = Place::new(Duration::from_secs(5));
    let first = place.put("first", "web", "{}");
    for number in 0..300 {
        assert_eq!(place.put(&format!("k{number}"), "web", "{}").0, 200);
    }
    assert_eq!(place.changes(), 301);
    assert_eq!(place.put("k299", "web", "{}").0, 200);
    assert_eq!(place.changes(), 301);
    assert_ne!(place.put("first", "web", "{}"), first, "it was kept for ever");
}

#[test]
fn the_client_asks_what_became_of_a_change() {
    let place = Place::new(Duration::from_millis(200));
    *place.slow.takes.lock().expect("sound") = Duration::from_millis(1500);
    let change = Change::new(Verb::Delete, &["services", "web"], None);
    let url = format!("http://127.0.0.1:{}", place.at.port());
    let remote = Remote::new(&url, &place.path("token"), None).expect("a remote");
    // Its own limit is shorter than the change, too.
    let hasty = Client::new(place.path("s")).with_patience(Duration::from_millis(100));
    for client in [Client::new(place.path("s")), Client::remote(remote), hasty] {
        let before = place.changes();
        let changed = client.change(&change).expect("what became of it");
        assert_eq!(changed.epoch, before + 1);
        assert_eq!(place.changes(), before + 1);
    }
}

/// 4,000 connections that say nothing, of one peer: another is answered, and so is one that has a
/// connection already.
#[test]
fn idle_connections_of_one_peer_keep_nobody_out() {
    let place = Place::new(Duration::from_secs(5));
    let port = place.at.port();
    let token = fs::read_to_string(place.path("token")).expect("a token");
    let ask = |stream: &mut TcpStream| {
        write!(
            stream,
            "GET /v1/ports HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        .expect("sent");
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).expect("read");
        let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    };
    let connect = |address: &str| {
        let stream = TcpStream::connect(address.to_owned()).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        stream
    };
    // Each of them is a descriptor here.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: most.maximum, ..most };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("set");
    let mut kept = connect(&format!("127.0.0.1:{port}"));
    ask(&mut kept);
    let mut idle = Vec::new();
    for number in 0..4000 {
        idle.push(connect(&format!("127.0.0.1:{port}")));
        if number % 200 == 199 {
            // From another address to another one of the listener's.
            let mut other = from("127.0.0.2", port);
            let begun = Instant::now();
            ask(&mut other);
            ask(&mut kept);
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
    }
    ask(&mut kept);
    let client = Client::remote(
        Remote::new(&format!("http://127.0.0.1:{port}"), &place.path("token"), None)
            .expect("a remote"),
    );
    client.ports().expect("the same peer, with a token");
}

/// A connection from another address of this machine.
fn from(address: &str, port: u16) -> TcpStream {
    let at: SocketAddr = format!("{address}:0").parse().expect("an address");
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket.bind(&at.into()).expect("bound");
    let to: SocketAddr = format!("127.0.0.1:{port}").parse().expect("an address");
    socket.connect(&to.into()).expect("connected");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    stream
}

#[test]
fn who_says_nothing_is_let_go_within_seconds() {
    let place = Place::new(Duration::from_secs(5));
    for begins in ["", "GET /healthz HTTP/1.1\r\nX: "] {
        let mut stream = TcpStream::connect(("127.0.0.1", place.at.port())).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        stream.write_all(begins.as_bytes()).expect("sent");
        let begun = Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        let took = begun.elapsed();
        assert!((4..8).contains(&took.as_secs()), "{begins:?}: {took:?}");
    }
}
