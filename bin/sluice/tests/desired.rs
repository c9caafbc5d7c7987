//! `sluice config`, `service`, `pool` and `real` as they are run, with a real desired state behind
//! the socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde_json::json;
use sluice_api::model::{HistoryLine, HistoryPage, Services};
use sluice_api::{Call, Server};
use sluice_config::Config;
use sluice_state::{
    self as state, Applied, Author, Desired, FileContent, Refusal, Request, Source, What,
};
use tempfile::TempDir;

const FILE: &str = "\
[director]
log_level = \"warn\"

[[port]]
name = \"front\"
device = \"tap:a\"

[[pool]]
name = \"lan\"
addresses = [\"192.0.2.10\"]

[[service]]
name = \"web\"
protocol = \"tcp\"
vip = \"198.51.100.200\"
port = 80
pool = \"lan\"

[[service.real]]
address = \"192.0.2.11\"
weight = 2

[[service.real]]
address = \"192.0.2.12\"
down = true
";

struct Place {
    folder: TempDir,
    _server: Server,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sluice.toml");
        fs::write(&file, FILE).expect("written");
        let mut desired = Desired::open(&folder.path().join("state")).expect("a state");
        reload(&mut desired, &file, Author::of(Source::File), None, false).expect("right");
        let desired = Mutex::new(desired);
        let call = Box::new(move |call| answer(&mut desired.lock().expect("sound"), &file, call));
        let server = Server::start(&folder.path().join("sluice.sock"), call).expect("a server");
        Self { folder, _server: server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code, standard output, standard error.
    fn run(&self, line: &str) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.env("SLUICE_SOCKET", self.path("sluice.sock")).args(line.split(' '));
        let ran = command.current_dir(self.folder.path()).stdin(Stdio::null()).output();
        let ran = ran.expect("runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (ran.status.code().unwrap_or(-1), text(ran.stdout), text(ran.stderr))
    }

    fn works(&self, line: &str) -> String {
        let (code, out, err) = self.run(line);
        assert_eq!(code, 0, "{line}: {out}{err}");
        out
    }

    fn fails(&self, line: &str) -> String {
        let (code, out, err) = self.run(line);
        assert_eq!((code, &*out), (1, ""), "{line}: {err}");
        err
    }
}

fn commit(desired: &mut Desired, request: Request) -> Result<Applied, Refusal> {
    desired.commit(&[request], 1000, &mut |_: &Config| Ok(())).answers.remove(0)
}

fn reload(
    desired: &mut Desired,
    file: &PathBuf,
    by: Author,
    if_epoch: Option<u64>,
    dry_run: bool,
) -> Result<Applied, Refusal> {
    let loaded = Config::load(file).map_err(|errors| Refusal::of_file(&errors))?;
    let what = What::File(FileContent::of(&loaded.document));
    commit(desired, Request { by, if_epoch, dry_run, force: false, what })
}

fn answer(desired: &mut Desired, file: &PathBuf, call: Call) {
    let in_time = match call {
        Call::Config(reply) => reply.send(desired.view()).is_ok(),
        Call::Change(request, reply) => reply.send(commit(desired, request)).is_ok(),
        Call::Reload { by, if_epoch, dry_run, reply } => {
            reply.send(reload(desired, file, by, if_epoch, dry_run)).is_ok()
        }
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
        Call::Services(reply) => reply.send(running(desired)).is_ok(),
        other => panic!("{other:?}"),
    };
    assert!(in_time);
}

/// What a director tells of "web" whose first real server has three sessions; its plan does not
/// have the second one yet.
fn running(desired: &Desired) -> Services {
    let view = desired.view();
    let web = view.objects.iter().find(|entry| entry.key.name == "web").expect("web");
    let drained =
        web.overrides.iter().any(|placed| placed.over.state == Some(state::RealState::Drain));
    let real = json!({
        "address": "192.0.2.11", "port": 80, "mode": "fnat", "full_at": [],
        "weight": if drained { 0 } else { 2 },
        "state": if drained { "draining" } else { "up" },
        "upper_sessions": 0, "lower_sessions": 0,
        "sessions_total": 4, "sessions_active": 3, "sessions_established": 2,
        "sessions_closing": 1, "clients_bound": 0,
        "packets": { "inbound": 9, "outbound": 8 }, "bytes": { "inbound": 900, "outbound": 800 },
    });
    let service = json!({
        "name": "web", "protocol": "tcp", "vip": "198.51.100.200", "ports": "80",
        "mode": "fnat", "scheduler": "rr", "pool": "lan", "persistence": null,
        "one_packet": false, "client_address": "hidden", "sessions_total": 4,
        "sessions_active": 3, "packets": { "inbound": 9, "outbound": 8 },
        "bytes": { "inbound": 900, "outbound": 800 }, "reals": [real],
    });
    serde_json::from_value(json!({ "services": [service] })).expect("services")
}

#[test]
fn what_is_shown_is_a_file_that_says_the_same() {
    let place = Place::new();
    fs::write(place.path("shown.toml"), place.works("config show")).expect("written");
    assert_eq!(place.works("config diff shown.toml"), "no difference\n");
    place.works("real drain web 192.0.2.11");
    let shown = place.works("config show --origin");
    let expected =
        "# owner: file\n# override of 192.0.2.11:80: drain\n[[service]]\nname = \"web\"\n";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn real_servers_are_drained_and_weighed() {
    let place = Place::new();
    let drained = place.works("real drain web 192.0.2.11:80");
    let expected = "epoch 2:\n  service \"web\": real 192.0.2.11:80: override (none) -> drain\n";
    assert_eq!(drained, expected);
    place.works("real enable web 192.0.2.12");
    place.works("real set web 192.0.2.12 --weight 9");
    let table = "\
REAL SERVER    WEIGHT  CONFIGURED  STATE     OVERRIDE      ACTIVE  ESTABLISHED  CLOSING  BOUND
192.0.2.11:80       0           2  draining  drain              3            2        1      0
192.0.2.12:80       9           1  up        weight 9, up       -            -        -      -
";
    assert_eq!(place.works("real show web"), table);
    let json = place.works("real show web --json");
    let shown: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(shown["value"]["real"][0]["weight"], 2);
    let real = &shown["reals"][0];
    assert_eq!((&real["state"], &real["real"]), (&"draining".into(), &"192.0.2.11:80".into()));
    assert_eq!((&real["weight"], &real["configured_weight"]), (&0.into(), &2.into()));
    assert_eq!(real["override"]["state"], "drain");
    assert_eq!((&real["sessions_active"], &real["sessions_closing"]), (&3.into(), &1.into()));
    assert_eq!(shown["reals"][1]["state"], "up");
    place.works("real reset web 192.0.2.12");
    let last = place.works("config history 5");
    let step = "\n  service \"web\": real 192.0.2.12:80: override weight 9, up -> (none)\n";
    assert!(last.ends_with(step), "{last}");
    let told = place.fails("real drain web 192.0.2.99");
    let expected = "sluice: service \"web\" has no real server 192.0.2.99; it has 192.0.2.11:80, \
                    192.0.2.12:80\n";
    assert_eq!(told, expected);
}

#[test]
fn services_are_made_and_taken_away() {
    let place = Place::new();
    let add = "service add dns --protocol udp --vip 198.51.100.200 --port 53 --pool lan \
               --real 192.0.2.11:5353 --set one_packet=true --set scheduler=wlc";
    let dry = place.works(&format!("{add} --dry-run"));
    assert_eq!(dry, "would change:\n  service \"dns\": added\n");
    place.works(add);
    let shown = place.works("service show dns");
    for line in ["# owner: api", "one_packet = true", "scheduler = \"wlc\"", "port = 5353"] {
        assert!(shown.lines().any(|it| it == line), "no {line} in:\n{shown}");
    }
    assert!(place.fails(add).contains("service \"dns\" is there already and belongs to api"));
    place.works("real add dns 192.0.2.12:5353 --weight 3");
    place.works("pool add more 192.0.2.20-192.0.2.29 --ports 2000-3000");
    assert!(place.fails("service delete web").contains("belongs to file: change it in the"));
    assert!(place.fails("service delete wbe").contains("there is no service \"wbe\""));
    let told =
        place.fails("service add x --protocol tpc --vip 198.51.100.9 --port 1 --set mode=nat");
    assert!(told.contains("/service/0/protocol: \"tpc\" is not a protocol"), "{told}");
    place.works("service delete dns");
    let told = place.fails("service delete web --if-epoch 3");
    assert!(told.contains("epoch 5 is in force and not 3"), "{told}");
}

#[test]
fn changes_are_told_and_taken_back() {
    let place = Place::new();
    fs::write(place.path("sluice.toml"), FILE.replace("weight = 2", "weight = 5"))
        .expect("written");
    let (code, out, _) = place.run("config diff sluice.toml");
    let step = "  service \"web\": real 192.0.2.11:80: weight: 2 -> 5\n";
    assert_eq!((code, &*out), (1, step));
    assert_eq!(place.works("config reload --dry-run"), format!("would change:\n{step}"));
    assert_eq!(place.works("config reload"), format!("epoch 2:\n{step}"));
    assert_eq!(place.works("config reload"), "nothing to change (epoch 2)\n");
    place.works("config rollback 1");
    let (_, _, remark) = place.run("config show");
    assert!(remark.starts_with("this is not what the file says"), "{remark}");
    let (_, told, remark) = place.run("config history");
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("EPOCH"), "{told}");
    assert!(lines[1].contains("api     back to epoch 1: service \"web\": real"), "{told}");
    assert!(lines[2].contains("api     the file read again: service \"web\""), "{told}");
    assert!(lines[3].contains("file    "), "{told}");
    assert_eq!(remark, "epoch 3 is in force; one can go back as far as 0\n");
    let told = place.fails("config rollback 7");
    assert!(told.contains("there is no way back to epoch 7: epochs 0 to 3 are known"), "{told}");
    fs::write(place.path("sluice.toml"), "port = 3\n").expect("written");
    assert!(place.fails("config reload").contains("error: "));
}

#[test]
fn fragments_are_applied_and_files_checked() {
    let place = Place::new();
    let fragment = "[[service]]\nname = \"extra\"\nprotocol = \"tcp\"\nvip = \"198.51.100.200\"\n\
                    port = 8080\nmode = \"nat\"\n[[service.real]]\naddress = \"192.0.2.13\"\n";
    fs::write(place.path("extra.toml"), fragment).expect("written");
    assert_eq!(place.works("config apply extra.toml"), "epoch 2:\n  service \"extra\": added\n");
    let (_, json, _) = place.run("config apply extra.toml --json");
    assert!(json.contains("\"changes\": []"), "{json}");
    let checked = place.works("config check sluice.toml");
    assert_eq!(
        checked,
        "sluice.toml: right (1 services, 2 real servers, 1 local addresses, 1 ports)\n"
    );
    fs::write(place.path("wrong.toml"), FILE.replace("port = 80", "prot = 80")).expect("written");
    let (code, told, _) = place.run("config check wrong.toml --json");
    assert!(code == 1 && told.contains("\"key\": \"service[0].prot\""), "{told}");
    let told = place.works("config check sluice.toml --json");
    assert!(told.contains("\"right\": true"), "{told}");
    let told = place.fails("config check wrong.toml");
    assert!(told.contains("wrong.toml:16:1: service \"web\": `service[0].prot`"), "{told}");
    assert!(place.fails("config diff wrong.toml").contains("did you mean `port`?"));
    assert!(place.fails("config apply missing.toml").contains("missing.toml: No such file"));
}

/// What would keep a director from starting is found by the check, at the key that names the file.
#[test]
fn files_of_the_api_are_checked_as_a_director_that_starts_would() {
    let place = Place::new();
    let [certificate, key, tokens] = ["api.crt", "api.key", "tokens"].map(|name| place.path(name));
    let api = format!(
        "\n[api]\nlisten = [\"127.0.0.1:8443\"]\ncertificate = {certificate:?}\nkey = {key:?}\n\
         tokens = {tokens:?}\n"
    );
    let whole = format!("{FILE}{api}");
    fs::write(place.path("api.toml"), &whole).expect("written");
    let told = place.fails("config check api.toml");
    assert!(told.contains("`api.certificate`: ") && told.contains("`api.tokens`: "), "{told}");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let line = place.works("token new ops --role read --json");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    fs::write(&tokens, line["line"].as_str().expect("a line")).expect("written");
    let set = |file: &PathBuf, mode| {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("set");
    };
    set(&key, 0o640);
    set(&tokens, 0o640);
    assert!(place.works("config check api.toml").contains("right"));
    for (file, key) in [(&key, "api.key"), (&tokens, "api.tokens")] {
        set(file, 0o644);
        let told = place.fails("config check api.toml");
        assert!(told.contains(&format!("`{key}`: ")) && told.contains("chmod 640"), "{told}");
        let (code, json, _) = place.run("config check api.toml --json");
        let said: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((code, &said["right"]), (1, &false.into()), "{json}");
        assert_eq!(said["diagnostics"][0]["key"], key);
        set(file, 0o600);
    }
    // Nobody listens, nothing is read.
    let quiet = whole.replace("listen = [\"127.0.0.1:8443\"]\n", "");
    fs::write(place.path("quiet.toml"), quiet).expect("written");
    fs::remove_file(&key).expect("removed");
    place.works("config check quiet.toml");
}
