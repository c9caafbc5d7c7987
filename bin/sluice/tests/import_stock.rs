//! What `sluice import` makes of a file, against what stock keepalived and ipvsadm ask IPVS for
//! when they read the same file: the preloaded library takes their calls to a director that writes
//! them down. Needs root, keepalived and ipvsadm.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_api::{Call, Server};
use sluice_ipvs::{Answer, Family, Info, Method, Reply, Request, ServiceKey, flags};

/// How long keepalived has to ask for everything.
const PATIENCE: Duration = Duration::from_secs(30);
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../control/import/tests/keepalived");
const SAMPLES: &str = "/usr/share/doc/keepalived/samples";

/// A service as IPVS has it: scheduler, seconds of persistence, bits of a client, whether datagrams
/// are scheduled alone, whether the hash is of ports.
type Service = (String, u64, u64, bool, bool);
/// A real server: address, port, method, weight, thresholds.
type Real = (String, u64, String, u64, u64, u64);
/// Services by protocol, address and port, with their real servers.
type Picture = BTreeMap<String, (Service, BTreeSet<Real>)>;

fn library() -> PathBuf {
    // `make test` has built it, with the features that everything else is built with.
    if let Some(built) = std::env::var_os("SLUICE_PRELOAD") {
        return built.into();
    }
    let built = Command::new(env!("CARGO")).args(["build", "-p", "sluice-preload"]).status();
    assert!(built.is_ok_and(|status| status.success()), "the library can be built");
    let beside = Path::new(env!("CARGO_BIN_EXE_sluice")).parent().expect("a folder");
    // The program may be of another profile than what `cargo build` makes.
    let library = beside.parent().expect("target").join("debug/libsluice_preload.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

/// What is asked, as long as it adds something.
type Asked = Arc<Mutex<Vec<Request>>>;

/// A director that does nothing and writes everything down.
fn director(socket: &Path) -> (Server, Asked) {
    let asked = Asked::default();
    let written = asked.clone();
    let answer = move |call: Call| match call {
        Call::Ipvs(request, _, reply) => {
            let done = match *request {
                Request::Info => {
                    Reply::Info(Info { version: 0x01_02_01, table_size: 4096, services: 0 })
                }
                Request::Services | Request::Service(_) => Reply::Services(Vec::new()),
                _ => Reply::Done,
            };
            written.lock().unwrap_or_else(PoisonError::into_inner).push(*request);
            drop(reply.send(Answer::Ok(done)));
        }
        other => panic!("{other:?}"),
    };
    (Server::start(socket, Box::new(answer)).expect("a server"), asked)
}

struct Keepalived(Child);

impl Keepalived {
    fn start(file: &Path, folder: &Path, library: &Path, socket: &Path) -> Self {
        let place = |name: &str| folder.join(name).display().to_string();
        // Checks of every address fail at once where there is no network, and later than servers
        // are added: only what is added counts.
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "keepalived", "--check", "--log-console"]);
        command.args(["--no-syslog", "--dont-fork", "--config-id", "main"]);
        command.args(["--pid", &place("k.pid"), "--checkers_pid", &place("c.pid"), "--use-file"]);
        command.arg(file).env("LD_PRELOAD", library).env("SLUICE_SOCKET", socket);
        let log = fs::File::create(folder.join("keepalived.log")).expect("a log");
        command.stdout(log.try_clone().expect("a log")).stderr(log).stdin(Stdio::null());
        Self(command.spawn().expect("keepalived starts"))
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn named(key: &ServiceKey) -> Option<String> {
    match key {
        ServiceKey::Mark { .. } | ServiceKey::Match(_) => None,
        ServiceKey::Address { protocol, address, port } => {
            Some(format!("{protocol:?} {address} {port}").to_lowercase())
        }
    }
}

/// What a stock program asked for.
fn of_stock(asked: &Asked, sorry: &BTreeSet<String>) -> Picture {
    let mut picture = Picture::new();
    for request in asked.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        match request {
            Request::AddService(spec) => {
                let Some(name) = named(&spec.key) else { continue };
                let persistent = spec.flags & flags::PERSISTENT != 0;
                let bits = match spec.key.family() {
                    Family::Ipv4 => spec.netmask.leading_ones(),
                    Family::Ipv6 => spec.netmask,
                };
                let whole = if spec.key.family() == Family::Ipv4 { 32 } else { 128 };
                let service = (
                    spec.scheduler.clone(),
                    if persistent { spec.timeout_s.into() } else { 0 },
                    if persistent { bits.into() } else { whole },
                    spec.flags & flags::ONE_PACKET != 0,
                    spec.flags & flags::SCHEDULER_2 != 0,
                );
                picture.entry(name).or_insert((service, BTreeSet::new()));
            }
            Request::AddDestination(key, it) => {
                let address = it.address.to_string();
                let Some(name) = named(key).filter(|_| !sorry.contains(&address)) else { continue };
                let method = match it.method {
                    Method::Masq => "nat",
                    Method::Route => "dr",
                    Method::Tunnel => "ipip",
                    other => panic!("{other:?}"),
                };
                let (upper, lower) = (it.upper.into(), it.lower.into());
                let weight = it.weight.into();
                let real = (address, it.port.into(), method.to_owned(), weight, upper, lower);
                picture.get_mut(&name).expect("a service").1.insert(real);
            }
            _ => {}
        }
    }
    picture
}

/// What the importer made, and the addresses of its sorry servers.
fn of_ours(what: &[&str], file: &Path) -> (Picture, BTreeSet<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("import").args(what).arg("--json").arg(file);
    let output = command.output().expect("runs");
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |table: &Value, key: &str| table[key].as_str().unwrap_or_default().to_owned();
    let number = |table: &Value, key: &str, or: u64| table[key].as_u64().unwrap_or(or);
    let list = |table: &Value, key: &str| table[key].as_array().cloned().unwrap_or_default();
    let (mut picture, mut sorry) = (Picture::new(), BTreeSet::new());
    for it in list(&all["config"], "service") {
        let (vip, port) = (text(&it, "vip"), number(&it, "port", 0));
        let whole = if vip.contains(':') { 128 } else { 32 };
        let service = (
            text(&it, "scheduler"),
            number(&it, "persistence_s", 0),
            number(&it, "persistence_prefix", whole),
            it["one_packet"] == true,
            it["hash"] == "client_port",
        );
        let mut reals = BTreeSet::new();
        for real in list(&it, "real") {
            if real["fallback"] == true {
                sorry.insert(text(&real, "address"));
                continue;
            }
            let own = real.get("mode").and_then(Value::as_str).map(str::to_owned);
            reals.insert((
                text(&real, "address"),
                number(&real, "port", port),
                own.unwrap_or_else(|| text(&it, "mode")),
                number(&real, "weight", 1),
                number(&real, "upper_sessions", 0),
                number(&real, "lower_sessions", 0),
            ));
        }
        picture.insert(format!("{} {vip} {port}", text(&it, "protocol")), (service, reals));
    }
    (picture, sorry)
}

/// Files that keepalived understands whole; without those whose servers it adds later (alpha).
fn files() -> Vec<PathBuf> {
    let folder = |path: &str| fs::read_dir(path).map(|all| all.flatten().map(|it| it.path()));
    let mut files: Vec<PathBuf> = folder(CASES).expect("cases").collect();
    files.extend(folder(SAMPLES).into_iter().flatten());
    files.retain(|path| {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_file = name.ends_with(".conf") || name.contains("keepalived.conf.");
        let plain = !["broken", "dpvs-", ".vrrp"].iter().any(|other| name.contains(other));
        is_file && plain && text.contains("virtual_server") && !text.contains("alpha")
    });
    files.sort();
    files
}

#[test]
fn stock_keepalived_asks_ipvs_for_what_is_imported() {
    let is_there = Command::new("keepalived").arg("--version").output().is_ok();
    if !is_there || !rustix::process::geteuid().is_root() {
        println!("needs keepalived and root");
        return;
    }
    let library = library();
    let (mut services, mut reals) = (0, 0);
    for file in files() {
        let folder = tempfile::Builder::new().prefix("sluice-keepalived-").tempdir().expect("made");
        let socket = folder.path().join("sluice.sock");
        let (_server, asked) = director(&socket);
        let (ours, sorry) = of_ours(&["keepalived", "--config-id", "main"], &file);
        let keepalived = Keepalived::start(&file, folder.path(), &library, &socket);
        let deadline = Instant::now() + PATIENCE;
        while of_stock(&asked, &sorry) != ours && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        let theirs = of_stock(&asked, &sorry);
        let log = fs::read_to_string(folder.path().join("keepalived.log")).unwrap_or_default();
        assert_eq!(theirs, ours, "{}: left keepalived, right Sluice\n{log}", file.display());
        drop(keepalived);
        services += ours.len();
        reals += ours.values().map(|(_, reals)| reals.len()).sum::<usize>();
    }
    println!("{services} services, {reals} real servers");
    assert!(services >= 40 && reals >= 50, "{services} services, {reals} real servers");
}

/// Lists with every scheduler, flag, method, mask and family in turn.
fn saved() -> String {
    let mut text = String::new();
    let schedulers = ["rr", "wrr -p", "lc -p 60", "wlc -p 300 -M 255.255.255.0", "sh -b sh-port"];
    let more = ["mh -b mh-fallback,mh-port", "sh -b sh-fallback", "mh", "wlc -p 7 -M 255.240.0.0"];
    let six = ["rr", "wlc -p 300 -M 64", "mh -b mh-port", "lc -p -M 128"];
    let real = |number: usize, method: &str| match method {
        "-m" => format!("192.0.2.{}:{} -m", number % 250 + 1, 8000 + number),
        other => format!("192.0.2.{}:80 {other}", number % 250 + 1),
    };
    for (number, scheduler) in schedulers.iter().chain(&more).enumerate() {
        for (at, service) in ["-t", "-u", "--sctp-service"].into_iter().enumerate() {
            let vip = format!("{service} 198.51.100.{}:80", number * 3 + at + 1);
            let ops = if service == "-u" && at == 1 && number == 0 { " -o" } else { "" };
            text.push_str(&format!("-A {vip} -s {scheduler}{ops}\n"));
            for (index, method) in ["-m", "-g", "-i"].into_iter().enumerate() {
                let number = number * 10 + index;
                let limits = if index == 0 { " -x 100 -y 50" } else { "" };
                let real = real(number, method);
                text.push_str(&format!("-a {vip} -r {real} -w {}{limits}\n", number * 7));
            }
        }
    }
    for (number, scheduler) in six.iter().enumerate() {
        let vip = format!("-t [2001:db8:0:1::{number}]:443");
        text.push_str(&format!("-A {vip} -s {scheduler}\n"));
        text.push_str(&format!("-a {vip} -r [2001:db8::{number}]:8443 -m -w 1\n"));
        text.push_str(&format!("-a {vip} -r [2001:db8::1{number}]:443 -g -w 65535\n"));
    }
    text
}

#[test]
fn stock_ipvsadm_asks_ipvs_for_what_is_imported() {
    let is_there = Command::new("ipvsadm").arg("--version").output().is_ok();
    if !is_there || !rustix::process::geteuid().is_root() {
        println!("needs ipvsadm and root");
        return;
    }
    let folder = tempfile::Builder::new().prefix("sluice-ipvsadm-").tempdir().expect("made");
    let socket = folder.path().join("sluice.sock");
    let (_server, asked) = director(&socket);
    let file = folder.path().join("saved.rules");
    fs::write(&file, saved()).expect("written");
    let mut command = Command::new("ipvsadm");
    command.arg("--restore").env("LD_PRELOAD", library()).env("SLUICE_SOCKET", &socket);
    let output = command.stdin(fs::File::open(&file).expect("it")).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    let (ours, _) = of_ours(&["ipvsadm-save"], &file);
    assert_eq!(of_stock(&asked, &BTreeSet::new()), ours, "left ipvsadm, right Sluice");
    assert!(ours.len() >= 31, "{}", ours.len());
}
