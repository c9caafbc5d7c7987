//! `POST /v1/ipvs`: who may ask what, and what is no request.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_api::{Call, Holder, Network, NewToken, Role, Server};
use sluice_ipvs::{Answer, Errno, Reply, Request};
use sluice_state::Source;
use tempfile::TempDir;

/// A director that refuses changes by the name of who asks, and does the rest.
fn answer(call: Call) {
    let Call::Ipvs(request, by, reply) = call else { panic!("{call:?}") };
    assert_eq!(by.source, Source::Ipvsadm);
    let answer = match *request {
        Request::Daemons => Answer::Ok(Reply::Daemons(Vec::new())),
        _ => Answer::Refused { errno: Errno::Perm, detail: by.name.unwrap_or_default() },
    };
    let _ = reply.send(answer);
}

struct Place {
    folder: TempDir,
    at: SocketAddr,
    _server: Server,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("sluice-api-").tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let at = free.expect("a free port");
        let write = |name: &str, text: &str| -> PathBuf {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
            path
        };
        let lines = Role::ALL.map(|role| {
            let holder = Holder { name: format!("the-{}", role.name()), role };
            let made = NewToken::generate(&holder).expect("a token");
            write(role.name(), &made.token);
            made.line
        });
        let tokens = Some(write("tokens", &lines.join("\n")));
        let mut server =
            Server::start(&folder.path().join("s"), Box::new(answer)).expect("a server");
        let network = Network { listen: vec![at], tokens, ..Network::default() };
        let prepared = server.prepare(&network).expect("an address");
        server.reach(prepared);
        Self { folder, at, _server: server }
    }

    fn request(&self, header: &str, body: &str) -> String {
        format!(
            "POST /v1/ipvs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn here(&self, body: &str) -> (u16, Value) {
        let stream = UnixStream::connect(self.folder.path().join("s")).expect("connected");
        exchange(stream, &self.request("", body))
    }

    fn as_role(&self, role: Role, body: &Value) -> (u16, Value) {
        let token = fs::read_to_string(self.folder.path().join(role.name())).expect("a token");
        let stream = TcpStream::connect(self.at).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let header = format!("Authorization: Bearer {}\r\n", token.trim());
        exchange(stream, &self.request(&header, &body.to_string()))
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> (u16, Value) {
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("read to the end");
    let (head, body) = text.split_once("\r\n\r\n").expect("a header and a body");
    let status: u16 = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    assert_eq!(status >= 400, head.contains("application/problem+json"), "{head}");
    (status, serde_json::from_str(body).expect("JSON"))
}

#[test]
fn each_command_takes_the_role_that_it_takes_by_the_other_ways() {
    let place = Place::new();
    let key = json!({ "address": { "protocol": "tcp", "address": "198.51.100.1", "port": 80 } });
    let spec = json!({ "key": key, "scheduler": "rr", "netmask": u32::MAX });
    let to = json!({ "address": "192.0.2.11", "port": 80, "method": "masq", "weight": 0 });
    let edit = json!({ "edit_destination": [key, to] });
    let delete = json!({ "delete_service": key });
    for (least, request) in [
        (Role::Read, json!("daemons")),
        (Role::Operate, edit.clone()),
        (Role::Operate, json!({ "zero": null })),
        (Role::Operate, json!({ "many": [edit] })),
        (Role::Admin, json!({ "many": [edit, delete] })),
        (Role::Admin, json!({ "many": [{ "many": [delete] }] })),
        (Role::Admin, delete.clone()),
        (Role::Admin, json!({ "add_service": spec })),
        (Role::Admin, json!({ "edit_service": spec })),
        (Role::Admin, json!("flush")),
        (Role::Admin, json!({ "add_destination": [key, to] })),
        (Role::Admin, json!({ "delete_destination": [key, ["192.0.2.11", 80]] })),
        (Role::Admin, json!({ "add_local": [key, "192.0.2.10"] })),
        (Role::Admin, json!({ "add_listed": [key, "deny", "192.0.2.0/24"] })),
        (Role::Admin, json!({ "stop_daemon": "master" })),
    ] {
        for role in Role::ALL {
            let (status, said) = place.as_role(role, &request);
            let detail = said["detail"].as_str().unwrap_or_default().to_owned();
            let wanted = if role < least { 403 } else { 200 };
            assert_eq!(status, wanted, "{role:?}: {request}: {said}");
            let told = format!("takes the role {}", least.name());
            assert!(wanted == 200 || detail.contains(&told), "{detail}");
        }
    }
}

#[test]
fn what_is_no_request_is_a_problem() {
    let place = Place::new();
    assert_eq!(place.here("\"daemons\"").0, 200);
    let unknown = place.here("{\"delete_everything\": 1}");
    assert_eq!(unknown.0, 422);
    assert!(unknown.1["detail"].as_str().is_some_and(|it| it.contains("delete_service")));
    let key = json!({ "address": { "protocol": "tcp", "address": "here", "port": 80 } });
    assert_eq!(place.here(&json!({ "service": key }).to_string()).0, 422);
    assert_eq!(place.here("{\"service\":").0, 400);
    assert_eq!(place.here("").0, 400);
}
