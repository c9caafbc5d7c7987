//! The desired state over HTTP, with a real one behind the socket: methods, ETags, problems.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value, json};
use sluice_api::model::{HistoryLine, HistoryPage};
use sluice_api::{Call, Change, Client, Server, Verb};
use sluice_config::Config;
use sluice_state::{Author, Desired, FileContent, Request, Source, What};
use tempfile::TempDir;

const FILE: &str = r#"
port = [{ name = "front", device = "tap:a" }]
pool = [{ name = "lan", addresses = ["192.0.2.10"] }]
service = [{ name = "web", protocol = "tcp", vip = "198.51.100.200", port = 80, pool = "lan",
    real = [{ address = "192.0.2.11" }, { address = "192.0.2.12" }] }]
"#;

struct Place {
    folder: TempDir,
    _server: Server,
}

/// An answer: status, ETag, body.
type Answer = (u16, Option<String>, Value);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut desired = Desired::open(&folder.path().join("state")).expect("a state");
        let document = Config::parse("sluice.toml", FILE).expect("right").document;
        let what = What::File(FileContent::of(&document));
        commit(
            &mut desired,
            &Request {
                by: Author::of(Source::File),
                if_epoch: None,
                dry_run: false,
                force: false,
                what,
            },
        )
        .expect("right");
        let desired = Mutex::new(desired);
        let call = Box::new(move |call| answer(&mut desired.lock().expect("sound"), call));
        let socket = folder.path().join("sluice.sock");
        Self { _server: Server::start(&socket, call).expect("a server"), folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sluice.sock")
    }

    fn ask(&self, method: &str, path: &str, header: &str, body: &str) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).expect("connected");
        let length = body.len();
        let kind = if length == 0 { "" } else { "Content-Type: application/json\r\n" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: d\r\n{header}{kind}Content-Length: {length}\r\n\r\n\
             {body}"
        );
        // The server may answer, and close, before it has read all of it.
        let _ = stream.write_all(request.as_bytes());
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        let (head, body) = text.split_once("\r\n\r\n").expect("a header and a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let etag = head.lines().find_map(|line| line.strip_prefix("etag: "));
        let is_problem = head.contains("application/problem+json");
        assert_eq!(status >= 400, is_problem, "{head}");
        (status, etag.map(str::to_owned), serde_json::from_str(body).unwrap_or_default())
    }

    fn json(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.ask(method, path, "", &body.to_string())
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }
}

fn commit(
    desired: &mut Desired,
    request: &Request,
) -> Result<sluice_state::Applied, sluice_state::Refusal> {
    let mut compile = |_: &Config| Ok(());
    desired.commit(std::slice::from_ref(request), 1000, &mut compile).answers.remove(0)
}

fn answer(desired: &mut Desired, call: Call) {
    let in_time = match call {
        Call::Config(reply) => reply.send(desired.view()).is_ok(),
        Call::ConfigObject(key, reply) => {
            let epoch = desired.epoch();
            reply.send(desired.entry(&key).map(|entry| (epoch, entry))).is_ok()
        }
        Call::Change(request, reply) => reply.send(commit(desired, &request)).is_ok(),
        Call::History(limit, reply) => {
            let lines = desired.history().epochs().iter().rev().take(limit as usize);
            let epochs = lines.map(HistoryLine::from).collect();
            let (reaches_back_to, epoch) = desired.history().reach();
            reply.send(HistoryPage { epoch, reaches_back_to, epochs }).is_ok()
        }
        Call::Epoch(number, reply) => {
            let found = desired.history().get(number).cloned().ok_or((1, desired.epoch()));
            reply.send(found).is_ok()
        }
        other => panic!("{other:?}"),
    };
    assert!(in_time);
}

fn service(port: u16) -> Value {
    json!({ "protocol": "tcp", "vip": "198.51.100.200", "port": port, "pool": "lan" })
}

#[test]
fn an_object_is_made_shown_and_taken_away() {
    let place = Place::new();
    let path = "/v1/config/services/extra";
    let (status, _, problem) = place.get(path);
    assert_eq!((status, &problem["type"]), (404, &json!("urn:sluice:problem:not-found")));
    let (status, etag, made) = place.json("PUT", path, &service(81));
    assert_eq!((status, etag.as_deref()), (200, Some("\"2\"")), "{made}");
    assert_eq!(made["summary"], "service \"extra\": added");
    assert_eq!(made["changes"][0]["after"]["owner"]["source"], "api");
    let (status, etag, shown) = place.get(path);
    assert_eq!((status, etag.as_deref()), (200, Some("\"2\"")));
    assert_eq!(shown["value"]["port"], 81);
    let real = format!("{path}/reals/192.0.2.15:8080");
    let (status, _, made) = place.json("PUT", &real, &json!({ "weight": 4 }));
    assert_eq!(status, 200, "{made}");
    assert_eq!(place.get(path).2["value"]["real"][0]["weight"], 4);
    assert_eq!(place.ask("DELETE", &real, "", "").0, 200);
    assert_eq!(place.ask("DELETE", path, "", "").0, 200);
    assert_eq!(place.get(path).0, 404);
    let (_, etag, all) = place.get("/v1/config");
    assert_eq!((etag.as_deref(), &all["epoch"]), (Some("\"5\""), &json!(5)));
    let names: Vec<_> = all["objects"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["port", "lan", "web"]);
}

#[test]
fn updates_are_not_lost() {
    let place = Place::new();
    let put = |tag: &str, port| {
        let header = format!("If-Match: {tag}\r\n");
        place.ask("PUT", "/v1/config/services/extra", &header, &service(port).to_string())
    };
    assert_eq!(put("\"1\"", 81).0, 200);
    let (status, _, problem) = put("\"1\"", 82);
    assert_eq!((status, &problem["epoch"]), (412, &json!(2)), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("epoch 2 is in force and not 1"));
    assert_eq!(put("\"2\"", 82).0, 200);
    assert_eq!(put("*", 83).0, 200);
    assert_eq!(put("soon", 84).0, 400);
}

#[test]
fn what_is_wrong_is_told_by_pointer() {
    let place = Place::new();
    let mut wrong = service(81);
    wrong["schedular"] = json!("rr");
    let (status, _, problem) = place.json("PUT", "/v1/config/services/extra", &wrong);
    assert_eq!(status, 422);
    assert_eq!(problem["errors"][0]["pointer"], "/schedular");
    assert_eq!(problem["errors"][0]["hint"], "did you mean `scheduler`?");
    let body = json!({ "service": [{ "name": "a" }, { "name": "b" }], "director": {} });
    let (status, _, problem) = place.json("POST", "/v1/config/apply", &body);
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!("/director")));
    let body = json!({ "service": [{ "name": "a" }] });
    let (_, _, problem) = place.json("POST", "/v1/config/apply", &body);
    let pointers: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|it| &it["pointer"]).collect();
    assert_eq!(pointers, ["/service/0/protocol", "/service/0/vip"]);
    let (status, _, problem) = place.ask("POST", "/v1/config/apply", "", "{\"service\": [");
    assert_eq!(status, 400, "{problem}");
    let real = "/v1/config/services/web/reals/192.0.2.11:80";
    for (body, pointer) in [
        (json!({ "weight": 65_536 }), "/weight"),
        (json!({ "weight": "5" }), "/weight"),
        (json!({ "state": "asleep" }), "/state"),
        (json!({ "wieght": 5 }), "/wieght"),
        (json!({}), ""),
        (json!([]), ""),
    ] {
        let (status, _, problem) = place.json("PATCH", real, &body);
        assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!(pointer)), "{body}");
    }
    let (status, ..) = place.json("PATCH", "/v1/config/services/web/reals/here", &json!({}));
    assert_eq!(status, 400);
    let (status, _, problem) = place.json("PUT", "/v1/config/services/web", &service(80));
    assert_eq!((status, &problem["owner"]["source"]), (409, &json!("file")));
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat(5 << 20));
    assert_eq!(place.ask("PUT", "/v1/config/services/x", "", &large).0, 413);
    let (status, ..) = place.json("POST", "/v1/config/services/web", &json!({}));
    assert_eq!(status, 405);
    assert_eq!(place.get("/v1/config").2["epoch"], 1);
}

#[test]
fn several_at_once_are_tried_and_made() {
    let place = Place::new();
    let mut extra = service(81);
    extra["name"] = json!("extra");
    let body = json!({
        "pool": [{ "name": "second", "addresses": ["192.0.2.20"] }], "service": [extra],
    });
    let (status, _, told) = place.json("POST", "/v1/config/apply?dry_run=true", &body);
    assert_eq!((status, &told["epoch"], &told["dry_run"]), (200, &json!(1), &json!(true)));
    assert_eq!(told["changes"].as_array().unwrap().len(), 2);
    assert_eq!(place.get("/v1/config").2["epoch"], 1);
    assert_eq!(place.json("POST", "/v1/config/apply", &body).2["epoch"], 2);
    let gone = json!({ "delete": { "service": ["extra"], "pool": ["second"] } });
    assert_eq!(place.json("POST", "/v1/config/apply", &gone).2["epoch"], 3);
}

#[test]
fn history_is_told_and_gone_back_in() {
    let place = Place::new();
    let client = Client::new(place.socket());
    let real = ["services", "web", "reals", "192.0.2.11:80"];
    let drain = Change::new(Verb::Patch, &real, Some(json!({ "state": "drain" })));
    assert_eq!(client.change(&drain).expect("made").epoch, 2);
    let page = client.history(10).expect("told");
    let told: Vec<_> = page.epochs.iter().map(|it| (it.epoch, it.author.source)).collect();
    assert_eq!(told, [(2, Source::Api), (1, Source::File)]);
    let summary = &page.epochs[0].summary;
    assert_eq!(summary, "service \"web\": real 192.0.2.11:80: override (none) -> drain");
    assert_eq!(client.epoch(2).expect("told").changes.len(), 1);
    assert!(client.epoch(9).expect_err("to come").to_string().contains("those from 1 to 2 are"));
    assert_eq!(client.config().expect("told").objects[2].overrides.len(), 1);
    let back = Change::new(Verb::Post, &["rollback"], Some(json!({ "epoch": 1 })));
    assert_eq!(client.change(&back).expect("made").epoch, 3);
    assert!(client.config().expect("told").objects[2].overrides.is_empty());
    let (status, _, problem) = place.json("POST", "/v1/config/rollback", &json!({ "epoch": -1 }));
    assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!("/epoch")));
}
