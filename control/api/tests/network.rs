//! The API over the network: TLS, tokens, roles, limits, and threads that are replaced.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sluice_api::model::{Drops, Ports};
use sluice_api::{
    ApiError, Call, Change, Client, Holder, Network, NewToken, Options, Remote, Role, Server, Verb,
};
use sluice_state::{Applied, Author};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);

/// A folder with a socket, certificates and tokens, and an address that was free a moment ago.
struct Place {
    folder: TempDir,
    at: SocketAddr,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("sluice-api-").tempdir().expect("a folder");
        let at = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        Self { folder, at: at.expect("a free port") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
        path
    }

    /// A certificate for the address, signed by itself.
    fn certify(&self, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) =
            (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")])
            .args(["-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .expect("openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("set");
        (certificate, key)
    }

    /// Tokens of each role, in files by its name; and the file that knows them.
    fn tokens(&self) -> PathBuf {
        let lines = Role::ALL.map(|role| {
            let holder = Holder { name: format!("the-{}", role.name()), role };
            let made = NewToken::generate(&holder).expect("a token");
            self.write(role.name(), &made.token, 0o600);
            made.line
        });
        self.write("tokens", &lines.join("\n"), 0o640)
    }

    fn network(&self, identity: Option<(PathBuf, PathBuf)>) -> Network {
        let (listen, tokens) = (vec![self.at], Some(self.tokens()));
        Network { listen, identity, tokens, names: Vec::new() }
    }

    fn serve(&self, network: &Network) -> Server {
        let (call, options) = (Box::new(answer), Options::default());
        let mut server = Server::start_with(&self.path("s"), call, options).expect("a server");
        let prepared = server.prepare(network).expect("files and addresses");
        server.reach(prepared);
        server
    }

    fn client(&self, role: Role, scheme: &str, ca: Option<&str>) -> Client {
        let ca = ca.map(|name| self.path(name));
        let url = format!("{scheme}://{}", self.at);
        Client::remote(Remote::new(&url, &self.path(role.name()), ca.as_deref()).expect("a remote"))
    }

    /// Status line, header and body of what is answered to plain bytes.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.at).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("set");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read to the end");
        text
    }

    fn get(&self, target: &str, authorization: &str) -> String {
        self.raw(&format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{authorization}\r\n"
        ))
    }
}

/// A director that knows its ports and drops, and applies whatever is asked for.
fn answer(call: Call) {
    let _ = match call {
        Call::Ports(reply) => reply.send(Ports::default()).is_ok(),
        Call::Drops(reply) => reply.send(Drops::default()).is_ok(),
        Call::Change(request, reply) => {
            let Author { name, .. } = request.by;
            let summary = name.unwrap_or_else(|| "nobody".to_owned());
            let changes = Vec::new();
            reply.send(Ok(Applied { epoch: 1, summary, changes, durable: true })).is_ok()
        }
        other => panic!("{other:?}"),
    };
}

fn status_of(error: &ApiError) -> u16 {
    match error {
        ApiError::Refused(problem) => problem.status,
        other => panic!("{other}"),
    }
}

#[test]
fn roles_reach_as_far_as_they_say_and_authors_are_named() {
    let place = Place::new();
    let _server = place.serve(&place.network(Some(place.certify("one"))));
    let client = |role| place.client(role, "https", Some("one.crt"));
    let path = ["services", "web", "reals", "192.0.2.11:80"];
    let drain = Change::new(Verb::Patch, &path, Some(serde_json::json!({ "state": "drain" })));
    let delete = Change::new(Verb::Delete, &["services", "web"], None);
    for (role, operates, administers) in
        [(Role::Read, false, false), (Role::Operate, true, false), (Role::Admin, true, true)]
    {
        let client = client(role);
        assert_eq!(client.ports().expect("everybody may look"), Ports::default());
        for (change, may) in [(&drain, operates), (&delete, administers)] {
            match client.change(change) {
                Ok(changed) => {
                    assert!(may, "{role:?} may {change:?}");
                    assert_eq!(changed.summary, format!("the-{}", role.name()));
                }
                Err(error) => {
                    assert!(!may, "{role:?}: {error}");
                    assert_eq!(status_of(&error), 403);
                    assert!(error.to_string().contains(role.name()), "{error}");
                }
            }
        }
    }
    let local = Client::new(place.path("s")).change(&delete).expect("the socket is admin");
    assert_eq!(local.summary, "nobody");
}

#[test]
fn without_a_valid_token_nothing_is_told() {
    let place = Place::new();
    let _server = place.serve(&place.network(None));
    for authorization in [
        "",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Basic YTpi\r\n",
        "Authorization: Bearer sluice_0000\r\n",
        "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
    ] {
        for target in ["/v1/ports", "/v1/whoami", "/v1/nothing", "/elsewhere", "/assets/none.js"] {
            let text = place.get(target, authorization);
            assert!(text.starts_with("HTTP/1.1 401 "), "{authorization:?}: {text}");
            let lower = text.to_lowercase();
            assert!(lower.contains("www-authenticate: bearer realm=\"sluice\""), "{text}");
            assert!(lower.contains("content-type: application/problem+json"), "{text}");
        }
    }
    let alive = place.get("/healthz", "");
    assert!(alive.starts_with("HTTP/1.1 200 ") && alive.contains("{\"alive\":true}"), "{alive}");
    let token = fs::read_to_string(place.path("read")).expect("a token");
    let asked = format!("authorization: bEARER {token}\r\n");
    assert!(place.get("/v1/ports", &asked).starts_with("HTTP/1.1 200 "));
    assert!(place.get("/v1/nothing", &asked).starts_with("HTTP/1.1 404 "));
}

#[test]
fn the_dashboard_needs_no_token_and_learns_who_asks() {
    let place = Place::new();
    let _server = place.serve(&place.network(None));
    for (path, kind) in [("/", "text/html"), ("/assets/app.js", "text/javascript")] {
        let text = place.get(path, "");
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        assert!(text.to_lowercase().contains(&format!("content-type: {kind}")), "{text}");
    }
    for role in Role::ALL {
        let token = fs::read_to_string(place.path(role.name())).expect("a token");
        let text = place.get("/v1/whoami", &format!("Authorization: Bearer {token}\r\n"));
        let name = role.name();
        let told = format!("{{\"name\":\"the-{name}\",\"role\":\"{name}\"}}");
        assert!(text.ends_with(&told), "{text}");
    }
}

#[test]
fn certificate_and_tokens_change_under_a_listener_that_stays() {
    let place = Place::new();
    let network = place.network(Some(place.certify("one")));
    let mut server = place.serve(&network);
    place.client(Role::Read, "https", Some("one.crt")).ports().expect("trusted");
    let old = place.client(Role::Read, "https", Some("one.crt"));
    // One that idles on it shows that the listener was not made anew.
    let mut idle = TcpStream::connect(place.at).expect("connected");
    let other = Network { identity: Some(place.certify("two")), ..place.network(None) };
    let prepared = server.prepare(&other).expect("files");
    assert!(old.ports().is_ok(), "what was only prepared does not hold");
    server.reach(prepared);
    place.client(Role::Read, "https", Some("two.crt")).ports().expect("trusted");
    let error = old.ports().expect_err("another certificate").to_string();
    assert!(error.contains("--ca"), "{error}");
    fs::copy(place.path("two.crt"), place.path("one.crt")).expect("copied");
    idle.write_all(b"\x16").expect("still connected");
    // Whoever has a token that is no longer there stays outside.
    place.tokens();
    let known = place.client(Role::Read, "https", Some("two.crt"));
    assert_eq!(status_of(&known.ports().expect_err("not read yet")), 401);
    server.reach(server.prepare(&other).expect("files"));
    known.ports().expect("read");
    // Nothing listens any more once nothing is to.
    server.reach(server.prepare(&Network::default()).expect("nothing"));
    let deadline = Instant::now() + SOON;
    while TcpStream::connect(place.at).is_ok() {
        assert!(Instant::now() < deadline, "it still listens");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn files_and_addresses_that_will_not_do_are_told_and_change_nothing() {
    let place = Place::new();
    let network = place.network(Some(place.certify("one")));
    let server = place.serve(&network);
    let (other, _) = place.certify("two");
    let (certificate, key) = network.identity.clone().expect("an identity");
    let open = place.write("open.key", &fs::read_to_string(&key).expect("a key"), 0o644);
    let none = place.write("none.pem", "nothing", 0o600);
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = free.local_addr().expect("an address");
    let of = |certificate: &PathBuf, key: &PathBuf| Network {
        identity: Some((certificate.clone(), key.clone())),
        ..network.clone()
    };
    for (network, told) in [
        (of(&certificate, &open), "chmod 640"),
        (of(&certificate, &none), "no private key"),
        (of(&none, &key), "no certificate"),
        (of(&other, &key), "does not go with the key"),
        (of(&certificate, &place.path("absent")), "absent"),
        (Network { tokens: Some(none.clone()), ..network.clone() }, "line 1"),
        (Network { listen: vec![taken], ..network.clone() }, "the port free"),
    ] {
        let error = server.prepare(&network).expect_err(told).to_string();
        assert!(error.contains(told), "{error}");
    }
    place.client(Role::Read, "https", Some("one.crt")).ports().expect("as before");
}

#[test]
fn clients_that_dawdle_are_let_go_and_large_headers_refused() {
    let place = Place::new();
    let _server = place.serve(&place.network(None));
    let huge = format!("X-Long: {}\r\n", "x".repeat(20_000));
    assert!(place.get("/healthz", &huge).starts_with("HTTP/1.1 431 "));
    let many: String = (0..100).map(|at| format!("X-{at}: 1\r\n")).collect();
    assert!(place.get("/healthz", &many).starts_with("HTTP/1.1 431 "));
    let begun = Instant::now();
    let mut slow = TcpStream::connect(place.at).expect("connected");
    slow.set_read_timeout(Some(SOON)).expect("set");
    slow.write_all(b"GET /healthz HTTP/1.1\r\nX: ").expect("sent");
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).expect("closed by the server");
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_client_is_careful_with_its_token() {
    let place = Place::new();
    place.tokens();
    let remote = |url: &str, name: &str| Remote::new(url, &place.path(name), None);
    for (url, told) in [
        ("http://192.0.2.1:8443", "in the clear"),
        ("ftp://127.0.0.1", "https"),
        ("127.0.0.1:8443", "https://HOST:PORT"),
        ("https://127.0.0.1:8443/v1/status", "nothing behind"),
        ("", "https://HOST:PORT"),
    ] {
        let error = remote(url, "read").expect_err(url).to_string();
        assert!(error.contains(told), "{error}");
    }
    place.write("open", "sluice_x", 0o644);
    let error = remote("http://127.0.0.1:1", "open").expect_err("open").to_string();
    assert!(error.contains("chmod"), "{error}");
    let nobody = place.client(Role::Read, "http", None).ports().expect_err("nobody there");
    assert!(nobody.to_string().contains(&place.at.to_string()), "{nobody}");
}

/// Panics when asked for drops, and is stuck when asked for stages until told to go on.
fn troubled(go: Arc<Mutex<Option<Sender<()>>>>) -> Box<dyn Fn(Call) + Send + Sync> {
    Box::new(move |call| match call {
        Call::Drops(_) => panic!("on purpose"),
        Call::Stages(_) => {
            let (sender, stuck) = channel();
            *go.lock().expect("no panic") = Some(sender);
            let _ = stuck.recv();
        }
        other => answer(other),
    })
}

#[test]
fn a_panic_is_a_request_that_failed_and_nothing_more() {
    let place = Place::new();
    let mut server = Server::start(&place.path("s"), troubled(Arc::default())).expect("a server");
    server.reach(server.prepare(&place.network(None)).expect("files"));
    for client in [Client::new(place.path("s")), place.client(Role::Read, "http", None)] {
        for _ in 0..3 {
            assert_eq!(status_of(&client.drops().expect_err("a panic")), 500);
            client.ports().expect("all is well");
        }
    }
    server.look_after();
    assert_eq!(server.restarts(), 0, "no thread was harmed");
}

#[test]
fn a_thread_that_hangs_is_replaced() {
    let (place, go) = (Place::new(), Arc::default());
    let options = Options { silence: Duration::from_millis(500), ..Options::default() };
    let call = troubled(Arc::clone(&go));
    let mut server = Server::start_with(&place.path("s"), call, options).expect("a server");
    server.reach(server.prepare(&place.network(None)).expect("files"));
    let (local, remote) = (Client::new(place.path("s")), place.client(Role::Read, "http", None));
    remote.ports().expect("all is well");
    let mut stuck = UnixStream::connect(place.path("s")).expect("connected");
    stuck.write_all(b"GET /v1/stages HTTP/1.1\r\nHost: d\r\n\r\n").expect("sent");
    let deadline = Instant::now() + SOON;
    while server.restarts() == 0 {
        assert!(Instant::now() < deadline, "nobody noticed");
        server.look_after();
        std::thread::sleep(Duration::from_millis(20));
    }
    local.ports().expect("another thread answers");
    remote.ports().expect("over the network too");
    // The one that hung finds that it is not needed any more, and answers nobody by mistake.
    let sender = go.lock().expect("no panic").take().expect("it is stuck");
    sender.send(()).expect("it waits");
    for _ in 0..20 {
        local.ports().expect("an answer");
        remote.ports().expect("an answer");
    }
    assert_eq!(server.restarts(), 1);
    server.stop();
}
