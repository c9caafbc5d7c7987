//! The command as it is run: what it prints where, and how it ends. The director is played by the
//! API's server with fixed answers.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_api::model::{
    Drops, Elephant, Elephants, Health, IdleMode, Memory, Protocol, Rate, Service, Services,
    Session, SessionCounts, SessionState, Sessions, StageTicks, Stages, Status, WorkerStages,
};
use sluice_api::{Call, Server};
use sluice_director::Reason;
use sluice_director::counters::ServiceDrops;
use tempfile::TempDir;

use crate::networks::{drops_in, networks};

/// A folder, and a director behind a socket in it.
pub struct Place {
    folder: TempDir,
    server: Option<Server>,
}

impl Place {
    fn without_director() -> Self {
        let folder = tempfile::Builder::new().prefix("sluice-command-").tempdir();
        Self { folder: folder.expect("a folder"), server: None }
    }

    pub fn new() -> Self {
        let mut place = Self::without_director();
        let server = Server::start(&place.path("sluice.sock"), Box::new(answer));
        place.server = Some(server.expect("a server"));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.env("SLUICE_SOCKET", self.path("sluice.sock")).args(args);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().expect("runs"))
    }
}

pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let Output { status, stdout, stderr } = output;
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

pub fn status() -> Status {
    Status {
        version: "9.8.7".to_owned(),
        pid: 4711,
        uptime_s: 12.5,
        config: "/etc/sluice/sluice.toml".into(),
        plan_epoch: 1,
        config_epoch: 1,
        durable: true,
        differs_from_file: false,
        last_reload: None,
        idle: IdleMode::Adaptive,
        huge_pages: false,
        memory: Memory { bytes: 1 << 20, pages: "ordinary".to_owned(), kept: true },
        sessions: SessionCounts::default(),
        handed_off: 0,
        workers: Vec::new(),
    }
}

fn services() -> Services {
    let service = |name: &str, port: u16| Service {
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
        counted: Default::default(),
        reals: Vec::new(),
    };
    Services { services: vec![service("web", 80), service("mail", 25)], snat: Vec::new() }
}

/// As many sessions as are asked for.
fn sessions(limit: u32) -> Sessions {
    let at = |text: &str| text.parse().expect("an address and a port");
    let session = Session {
        protocol: Protocol::Tcp,
        client: at("198.51.100.48:40000"),
        virtual_: at("198.51.100.200:80"),
        local: Some(at("192.0.2.10:1024")),
        real: at("192.0.2.11:80"),
        mode: "fnat".to_owned(),
        state: SessionState::Established,
        idle_ms: 10,
        expires_ms: 899_990,
        service: "web".to_owned(),
        network: None,
        worker: 0,
    };
    Sessions { sessions: vec![session; limit as usize], more: true, next: Some("0.7".to_owned()) }
}

pub fn drops() -> Drops {
    let mut counts = [0; Reason::COUNT];
    counts[Reason::NoSession as usize] = 1_234;
    Drops::from_counts(&counts)
}

/// The service `mail` has refused 7 clients.
fn drops_of(name: &str) -> Result<Drops, Vec<String>> {
    if name != "mail" {
        return Err(vec!["mail".to_owned()]);
    }
    let mut refused = ServiceDrops::default();
    (0..7).for_each(|_| refused.count(Reason::ClientDenied));
    Ok(Drops::of_service(&refused))
}

/// A worker that took a thousand packets between any two answers.
fn stages() -> Stages {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let asked = 1 + ASKED.fetch_add(1, Ordering::Relaxed);
    let stage =
        |(stage, ticks): (&str, u64)| StageTicks { stage: stage.to_owned(), ticks: ticks * asked };
    let stages = [("parse", 3000), ("find", 1000), ("track", 6000)].map(stage).to_vec();
    let worker = WorkerStages {
        packets: 1000 * asked,
        bursts: 20 * asked,
        timed_packets: 100 * asked,
        timed_bursts: 2 * asked,
        looked_up: 80 * asked,
        found: 60 * asked,
        stages,
        ..WorkerStages::default()
    };
    Stages { ticks_per_s: 2_000_000_000, workers: vec![worker] }
}

fn elephants(limit: u32) -> Elephants {
    let rate = Rate { packets_per_s: 1_500_000, bytes_per_s: 90_000_000 };
    let session = sessions(1).sessions[0].clone();
    let elephant = Elephant { session, inbound: rate, outbound: Rate::default(), samples: 11_718 };
    Elephants { elephants: vec![elephant; limit as usize], spread: Vec::new() }
}

/// Answers everything but `ports`.
fn answer(call: Call) {
    let in_time = match call {
        Call::Status(reply) => reply.send(status()).is_ok(),
        Call::Services(reply) => reply.send(services()).is_ok(),
        Call::Sessions(query, reply) => reply.send(sessions(query.limit)).is_ok(),
        Call::Ports(_) => true,
        Call::Drops(reply) => reply.send(drops()).is_ok(),
        Call::Networks(reply) => reply.send(networks()).is_ok(),
        Call::DropsIn(name, reply) => reply.send(drops_in(&name)).is_ok(),
        Call::DropsOf(name, reply) => reply.send(drops_of(&name)).is_ok(),
        Call::Stages(reply) => reply.send(stages()).is_ok(),
        Call::Elephants(limit, reply) => reply.send(elephants(limit)).is_ok(),
        Call::Health(reply) => reply.send(Health::default()).is_ok(),
        // The desired state has tests of its own.
        other => panic!("{other:?}"),
    };
    assert!(in_time, "the server gave up on an answer that came at once");
}

#[test]
fn answers_are_on_standard_output_without_colours() {
    let place = Place::new();
    for (args, expected) in [
        (&["status"][..], "sluiced 9.8.7, pid 4711, up 12.5 s\n"),
        (&["services", "mail"], "mail     tcp 198.51.100.200:25  fnat rr, pool lan"),
        (&["sessions", "--limit", "2"], "tcp       198.51.100.48:40000"),
        (&["drops"], "no_session    1,234  dropped"),
        (&["stages", "--interval", "0.1"], "     0     0     10,000        50.0    100    75.0 %"),
        (&["stages", "--interval", "0.1"], "track"),
        (&["elephants", "--limit", "1"], "1,500,000  720.0 Mbit/s"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.contains(expected), "{args:?}: {}", ran.stdout);
        assert!(!ran.stdout.contains('\u{1b}'), "{args:?}: {}", ran.stdout);
    }
    assert_eq!(place.run(&["services", "mail"]).stdout.lines().count(), 2);
    assert_eq!(place.run(&["drops"]).stdout.lines().count(), 2);
    assert_eq!(place.run(&["drops", "--all"]).stdout.lines().count(), Reason::COUNT + 1);
    let ran = place.run(&["sessions", "--limit", "2"]);
    assert_eq!(ran.stdout.lines().count(), 3, "the remark is elsewhere");
    assert!(ran.stderr.contains("there are more than these 2"), "{}", ran.stderr);
}

/// Only the service's own, only reasons that a service can have, and a wrong name is told.
#[test]
fn drops_of_one_service() {
    let place = Place::new();
    let ran = place.run(&["drops", "--service", "mail"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), 2), "{}", ran.stderr);
    assert!(ran.stdout.contains("client_denied        7  dropped"), "{}", ran.stdout);
    let all = place.run(&["drops", "--service", "mail", "--all"]).stdout;
    assert_eq!(all.lines().count(), Reason::OF_SERVICE.len() + 1);
    let json: Drops =
        serde_json::from_str(&place.run(&["drops", "--service=mail", "--json"]).stdout)
            .expect("drops as JSON");
    assert_eq!(Ok(json), drops_of("mail"));
    let ran = place.run(&["drops", "--service", "mial"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("mial") && ran.stderr.contains("mail"), "{}", ran.stderr);
}

#[test]
fn json_is_what_the_api_says() {
    let place = Place::new();
    let pretty = |value: serde_json::Result<String>| value.expect("JSON") + "\n";
    let ran = place.run(&["status", "--json"]);
    assert_eq!(ran.stdout, pretty(serde_json::to_string_pretty(&status())));
    let ran = place.run(&["services", "--json"]);
    assert_eq!(ran.stdout, pretty(serde_json::to_string_pretty(&services())));
    let ran = place.run(&["sessions", "--json"]);
    assert_eq!(ran.stdout, pretty(serde_json::to_string_pretty(&sessions(100))));
    assert_eq!(ran.stderr, "");
    let ran = place.run(&["drops", "--json"]);
    assert_eq!(ran.stdout, pretty(serde_json::to_string_pretty(&drops())));
}

#[test]
fn the_socket_may_be_named_before_and_after_the_subcommand() {
    let place = Place::new();
    let socket = place.path("sluice.sock").display().to_string();
    for args in [["--socket", &*socket, "status"], ["status", "--socket", &*socket]] {
        let ran = place.command(&args).env_remove("SLUICE_SOCKET").output().expect("runs");
        assert_eq!(ran.status.code(), Some(0), "{args:?}");
    }
    let ran = place.run(&["--socket", "/nowhere/a.sock", "status", "--socket", &*socket]);
    assert_eq!(ran.code, Some(0), "the nearer one counts: {}", ran.stderr);
}

#[test]
fn what_fails_is_told_on_standard_error_and_ends_with_1() {
    let place = Place::new();
    for (args, expected) in [
        (&["ports"][..], "sluice: the director gave no answer: it is stopping"),
        (&["services", "wbe"], "sluice: name: \"wbe\" will not do; it must be one of web, mail"),
        (&["--socket", "/nowhere/a.sock", "status"], "no director listens on /nowhere/a.sock: is"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.stdout);
        assert_eq!(ran.stdout, "", "{args:?}");
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let place = Place::new();
    for (args, expected) in [
        (&[][..], "Usage: sluice"),
        (&["stats"], "some similar subcommands exist: 'stages', 'status'"),
        (&["stages", "--interval", "0"], "a number of seconds from 0.1 to 3600"),
        (&["elephants", "--limit", "1001"], "it must be a number from 1 to 1000"),
        (&["sessions", "--state", "open"], "it must be one of SYN_RECV, ESTABLISHED"),
        (&["sessions", "--limit", "0"], "it must be a number from 1 to 100000"),
        (&["sessions", "--client", "web"], "it must be an address, or an address and a port"),
        (&["sessions", "--protocol", "gre"], "it must be one of tcp, udp, sctp, icmp, any"),
        (&["replay", "--config", "c.toml", "--out-dir", "out"], "--in <PORT=FILE>"),
        (&["replay", "--config", "c", "--out-dir", "o", "--in", "front"], "expected PORT=FILE"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn an_older_director_is_told_from_a_wrong_question() {
    let place = Place::without_director();
    let listener = UnixListener::bind(place.path("sluice.sock")).expect("listens");
    let director = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("asked");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            request.extend(byte);
        }
        let body = r#"{"type":"urn:sluice:problem:not-found","title":"Not found","status":404,
            "detail":"there is nothing at /v1/events; there is /v1/status"}"#;
        let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json";
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).expect("answered");
    });
    let ran = place.run(&["events"]);
    director.join().expect("it answered");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("there is nothing at /v1/events"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the director is of another version"), "{}", ran.stderr);
    let place = Place::new();
    let ran = place.run(&["services", "wbe"]);
    assert!(!ran.stderr.contains("another version"), "{}", ran.stderr);
}

#[test]
fn a_doctor_without_a_director_reads_a_file() {
    let place = Place::without_director();
    let file = CONFIG.replace("tap:front", "af_xdp:slx-no-such0").replace("[[neigh", "#[[neigh");
    let file = file.split("[[route]]").next().expect("the beginning");
    fs::write(place.path("sluice.toml"), file).expect("written");
    let ran = place.run(&["doctor", "--config", "sluice.toml", "--json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let findings: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let of = |id: &str| findings.as_array().into_iter().flatten().find(|it| it["id"] == id);
    assert_eq!(of("port_absent").map(|it| &it["mark"]), Some(&"fail".into()), "{findings}");
    assert!(of("director").is_some_and(|it| it["mark"] == "warn"), "{findings}");
    let ran = place.run(&["doctor", "--config", "sluice.toml"]);
    assert!(
        ran.stdout.contains("FAIL  port front: there is no interface slx-no-such0"),
        "{}",
        ran.stdout
    );
    let script = place.run(&["doctor", "--config", "sluice.toml", "--fix-script"]).stdout;
    assert!(script.lines().all(|line| !line.contains("FAIL")), "{script}");
    fs::write(place.path("fix.sh"), script).expect("written");
    let checked =
        Command::new("sh").args(["-n", "fix.sh"]).current_dir(place.folder.path()).status();
    assert!(checked.expect("sh runs").success());
    let ran = place.run(&["doctor", "--config", "missing.toml"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("missing.toml"), "{}", ran.stderr);
}

#[test]
fn only_what_shows_something_is_watched() {
    let place = Place::new();
    for args in [&["config", "rollback", "1", "--watch"][..], &["top", "--watch=1"]] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.stderr.contains("--watch is for commands that show something"), "{args:?}");
    }
    let mut command = place.command(&["status", "--json", "--watch=0.1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let stdout = child.stdout.take().expect("a pipe");
    let looks = serde_json::Deserializer::from_reader(stdout).into_iter::<serde_json::Value>();
    let pids: Vec<_> = looks.take(2).map(|look| look.expect("JSON")["pid"].clone()).collect();
    assert_eq!(pids, [4711, 4711]);
    // Nobody reads any more: it ends by itself.
    assert_eq!(Ran::from(child.wait_with_output().expect("ends")).code, Some(0));
}

/// As `sluice sessions | head -1`: far more is written than a pipe holds.
#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let place = Place::new();
    for args in [&["sessions", "--limit", "20000"][..], &["sessions", "--limit", "20000", "--json"]]
    {
        let mut command = place.command(args);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        let mut start = [0; 16];
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_exact(&mut start).expect("the beginning");
        drop(stdout);
        let ran = Ran::from(child.wait_with_output().expect("ends"));
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{args:?}");
    }
}

const CONFIG: &str = r#"
[[port]]
name = "front"
device = "tap:front"

[[pool]]
name = "lan"
addresses = ["192.0.2.10"]

[[service]]
name = "echo"
protocol = "udp"
vip = "198.51.100.200"
port = 7
mode = "fnat"
scheduler = "rr"
pool = "lan"

[[service.real]]
address = "192.0.2.11"

[[route]]
prefix = "0.0.0.0/0"
port = "front"

[[neighbour]]
address = "192.0.2.11"
mac = "02:00:00:00:01:11"
port = "front"
"#;

/// A capture of one datagram to the service, in the form of pcap's specification.
fn capture() -> Vec<u8> {
    let frame = sluice_testkit::udp("198.51.100.48:1000", "198.51.100.200:7").bytes();
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        out.extend(word.to_le_bytes());
    }
    let length = u32::try_from(frame.len()).expect("short");
    for word in [1_800_000_000, 0, length, length] {
        out.extend(word.to_le_bytes());
    }
    out.extend(frame);
    out
}

#[test]
fn a_capture_is_replayed_and_summed_up() {
    let place = Place::without_director();
    fs::write(place.path("sluice.toml"), CONFIG).expect("written");
    fs::write(place.path("a.pcap"), capture()).expect("written");
    let args = ["replay", "--config", "sluice.toml", "--in", "front=a.pcap", "--out-dir", "out"];
    let ran = place.run(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("front         1     1  out/front.pcap\n"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("1 sessions opened, 0 closed, 0 expired, 1 open"),
        "{}",
        ran.stdout
    );
    let counters = fs::read_to_string(place.path("out/counters.json")).expect("counters");
    let json = place.run(&[&args[..], &["--json"]].concat());
    assert_eq!((json.code, json.stdout), (Some(0), counters));
    let rules = [&args[..], &["--rules"]].concat();
    let shown = place.run(&rules).stdout;
    let row = "service  udp to 198.51.100.200:7  front        1\n";
    assert!(shown.contains(row) && shown.contains("2 of 3 rules took no packet"), "{shown}");
    let json = place.run(&[&rules[..], &["--json"]].concat()).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("json");
    assert_eq!(json["rules"][0]["hits"]["front"], 1, "{json}");
}

#[test]
fn a_replay_that_cannot_be_ends_with_1() {
    let place = Place::without_director();
    fs::write(place.path("sluice.toml"), CONFIG.replace("udp", "upd")).expect("written");
    fs::write(place.path("a.pcap"), capture()).expect("written");
    let args = ["replay", "--config", "sluice.toml", "--in", "front=a.pcap", "--out-dir", "out"];
    let ran = place.run(&args);
    assert_eq!((ran.code, &*ran.stdout), (Some(1), ""));
    assert!(ran.stderr.contains("sluice.toml:12:12"), "{}", ran.stderr);
}
