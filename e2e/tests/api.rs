//! The API over the network, used by real programs: curl and openssl in the client's namespace,
//! `sluice` with a URL, certificates and tokens that change under a running director.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::lab::Netns;
use sluice_e2e::recipe::Recipe;
use sluice_e2e::web::LINES_PORT;
use sluice_e2e::{Bed, Director, LabError, Running, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on_bed};

const PORT: u16 = 8443;

fn write(path: &Path, text: &str, mode: u32) -> Result<(), LabError> {
    let failed = |error| LabError::file(path.display().to_string())(error);
    fs::write(path, text).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)
}

/// A certificate for the director's address, signed by itself.
fn certify(space: &Netns, name: &str, address: &str) -> Result<(), LabError> {
    let at = |end: &str| space.dir().join(format!("{name}.{end}")).display().to_string();
    let (subject, name_of) = (format!("/CN={name}"), format!("subjectAltName=IP:{address}"));
    let args = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        &subject,
        "-addext",
        &name_of,
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        &at("key"),
        "-out",
        &at("crt"),
    ];
    space.run("openssl", &args)?.ok().map(drop)
}

/// Makes a token by the operator's command, keeps it in a file by the role's name, and gives the
/// line for the file of tokens.
fn token(space: &Netns, role: &str) -> Result<String, LabError> {
    let sluice = program("sluice")?.display().to_string();
    let made = space.run(&sluice, &["token", "new", &format!("the-{role}"), "--role", role])?;
    let made = made.ok()?;
    write(&space.dir().join(format!("{role}.token")), &made.stdout, 0o600)?;
    let line = made.stderr.lines().find(|line| line.contains("sha256:"));
    line.map(str::to_owned).ok_or_else(|| LabError::Wrong(made.stderr.clone()))
}

fn tokens(space: &Netns) -> Result<(), LabError> {
    let lines: Result<Vec<String>, LabError> =
        ["read", "operate", "admin"].into_iter().map(|role| token(space, role)).collect();
    write(&space.dir().join("tokens"), &lines?.join("\n"), 0o640)
}

/// A director that listens where the client can reach it.
pub fn on_network(name: &str, test: impl FnOnce(&mut Fixture) -> Result<(), LabError>) {
    let start = |bed: &mut Bed, mut recipe: Recipe| {
        let (space, at) = (bed.director.clone(), bed.front_address());
        certify(&space, "one", at)?;
        tokens(&space)?;
        let file = |name: &str| space.dir().join(name).display().to_string();
        recipe.more += &format!(
            "\n[api]\nlisten = [\"{at}:{PORT}\"]\ncertificate = \"{}\"\nkey = \"{}\"\n\
             tokens = \"{}\"\n",
            file("one.crt"),
            file("one.key"),
            file("tokens"),
        );
        let director = Director::start(bed, &recipe.text(bed))?;
        Ok((director, recipe))
    };
    on_bed(name, Setup::usual(), start, test);
}

/// What `curl` in the client's namespace gets: status and body.
fn curl(
    fixture: &Fixture,
    role: &str,
    more: &[&str],
    path: &str,
) -> Result<(String, String), LabError> {
    let dir = fixture.bed.director.dir();
    let url = format!("https://{}:{PORT}{path}", fixture.bed.front_address());
    let ca = dir.join("one.crt").display().to_string();
    let mut args = vec!["-sS", "-m", "10", "-w", "\n%{http_code}", "--cacert", &ca];
    let header = match role {
        "" => String::new(),
        role => {
            let file = dir.join(format!("{role}.token"));
            let token = fs::read_to_string(&file).map_err(LabError::file(role.to_owned()))?;
            format!("Authorization: Bearer {}", token.trim())
        }
    };
    if !header.is_empty() {
        args.extend(["-H", &header]);
    }
    args.extend(more);
    args.push(&url);
    let ran = fixture.bed.client.run("curl", &args)?.ok()?;
    let (body, status) = ran.stdout.rsplit_once('\n').unwrap_or_default();
    Ok((status.to_owned(), body.to_owned()))
}

fn sluice(fixture: &Fixture, role: &str, args: &[&str]) -> Result<String, LabError> {
    let dir = fixture.bed.director.dir();
    let url = format!("https://{}:{PORT}", fixture.bed.front_address());
    let file = |name: &str| dir.join(name).display().to_string();
    let (token, ca) = (file(&format!("{role}.token")), file("one.crt"));
    let mut all = vec!["--url", &url, "--token-file", &token, "--ca", &ca];
    all.extend(args);
    let program: PathBuf = program("sluice")?;
    Ok(fixture.bed.client.run(&program.to_string_lossy(), &all)?.ok()?.stdout)
}

#[test]
fn real_programs_use_it_over_tls() {
    on_network(here!(real_programs_use_it_over_tls), |fixture| {
        let told = |(status, body): &(String, String)| format!("{status}: {body}");
        for (role, method, path, right) in [
            ("", "GET", "/healthz", "200"),
            ("", "GET", "/v1/status", "401"),
            ("read", "GET", "/v1/status", "200"),
            ("read", "POST", "/v1/config/reload", "403"),
            ("operate", "POST", "/v1/config/reload", "200"),
            ("operate", "DELETE", "/v1/config/services/absent", "403"),
            ("admin", "DELETE", "/v1/config/services/absent", "404"),
        ] {
            let got = curl(fixture, role, &["-X", method], path)?;
            expect(got.0 == right, || format!("{role} {method} {path}: {}", told(&got)))?;
        }
        let real = format!("{}:80", Bed::real_address(0));
        sluice(fixture, "operate", &["real", "drain", "web", &real])?;
        let history = sluice(fixture, "read", &["config", "history"])?;
        expect(history.contains("api:the-operate"), || format!("no author: {history}"))?;
        expect(sluice(fixture, "read", &["real", "enable", "web", &real]).is_err(), || {
            "who may only read has changed something".to_owned()
        })?;
        fixture.answers(6)?;
        // The handshake as another program sees it.
        let at = format!("{}:{PORT}", fixture.bed.front_address());
        let script = format!("echo | openssl s_client -connect {at} -alpn http/1.1 2>&1");
        let seen = fixture.bed.client.run("sh", &["-c", &script])?.stdout;
        for words in ["TLSv1.3", "CN = one", "ALPN protocol: http/1.1"] {
            expect(seen.contains(words), || format!("no {words:?} in: {seen}"))?;
        }
        let script = format!("echo | openssl s_client -connect {at} -tls1_1 2>&1");
        let seen = fixture.bed.client.run("sh", &["-c", &script])?.stdout;
        expect(!seen.contains("CN = one"), || format!("TLS 1.1 is spoken: {seen}"))
    });
}

#[test]
fn a_reload_takes_a_new_certificate_and_new_tokens() {
    on_network(here!(a_reload_takes_a_new_certificate_and_new_tokens), |fixture| {
        let (space, at) = (fixture.bed.director.clone(), fixture.bed.front_address());
        let dir = space.dir().to_path_buf();
        let old = fs::read_to_string(dir.join("read.token")).map_err(LabError::file("a token"))?;
        certify(&space, "two", at)?;
        tokens(&space)?;
        // A certificate whose key is another's: refused as a whole.
        let copy = |from: &str, to: &str| {
            fs::copy(dir.join(from), dir.join(to)).map(drop).map_err(LabError::file(from))
        };
        copy("two.crt", "one.crt")?;
        expect(fixture.director.sluice(&["config", "reload"]).is_err(), || {
            "a certificate without its key was taken".to_owned()
        })?;
        copy("two.key", "one.key")?;
        fixture.director.sluice(&["config", "reload"])?;
        wait_until("the new certificate", SOON, || {
            Ok(curl(fixture, "read", &[], "/v1/status").ok().filter(|(status, _)| status == "200"))
        })?;
        write(&dir.join("old.token"), &old, 0o600)?;
        let (status, body) = curl(fixture, "old", &[], "/v1/status")?;
        expect(status == "401", || format!("the old token still opens: {status} {body}"))?;
        let (log, token) = (fixture.director.log(), old.trim());
        expect(!log.contains(token) && !log.contains("sha256:"), || {
            "a token or its hash is in the log".to_owned()
        })
    });
}

#[test]
fn sessions_are_ended_and_followers_hear_of_it() {
    on_network(here!(sessions_are_ended_and_followers_hear_of_it), |fixture| {
        let (url, dir) = (fixture.bed.front_address(), fixture.bed.director.dir().to_path_buf());
        let file = |name: &str| dir.join(name).display().to_string();
        let mut command = fixture.bed.client.command(&program("sluice")?.to_string_lossy());
        command
            .args(["--url", &format!("https://{url}:{PORT}"), "--token-file", &file("read.token")])
            .args(["--ca", &file("one.crt"), "events", "--follow", "--json"]);
        let follower = Running::start("events", &mut command, &dir.join("events.log"))?;
        let mut held = fixture.hold(&fixture.server(LINES_PORT), 30)?;
        let open = |fixture: &Fixture| fixture.sessions(&["--service", "lines"]);
        wait_until("the session", SOON, || Ok((open(fixture)?.len() == 1).then_some(())))?;
        let told =
            sluice(fixture, "operate", &["sessions", "kill", "--service", "lines", "--dry-run"])?;
        expect(told.contains("1 sessions would be ended"), || told.clone())?;
        expect(open(fixture)?.len() == 1, || "a dry run has ended it".to_owned())?;
        for (role, args) in [
            ("read", &["sessions", "kill", "--service", "lines"][..]),
            ("operate", &["sessions", "kill"]),
            ("operate", &["sessions", "kill", "--service", "lime"]),
        ] {
            let refused = sluice(fixture, role, args).is_err();
            expect(refused, || format!("{role} may {args:?}"))?;
        }
        expect(open(fixture)?.len() == 1, || "it was ended by whoever may not".to_owned())?;
        let told = sluice(fixture, "operate", &["sessions", "kill", "--service", "lines"])?;
        expect(told.contains("1 sessions ended"), || told.clone())?;
        expect(open(fixture)?.is_empty(), || "it is still there".to_owned())?;
        let counted = fixture.director.ask("status")?["sessions"]["killed"].clone();
        expect(counted == 1, || format!("counted: {counted}"))?;
        // What comes next belongs to no session, and is dropped.
        wait_until("drops", SOON, || {
            let drops = fixture.director.ask("drops")?;
            let drops = drops["drops"].as_array().cloned().unwrap_or_default();
            let none = drops.iter().find(|drop| drop["reason"] == "no_session");
            Ok(none.filter(|it| it["packets"].as_u64() > Some(0)).map(|_| ()))
        })?;
        expect(held.ended()?.is_none(), || "somebody was told".to_owned())?;
        held.kill()?;
        fixture.answers(6)?;
        wait_until("the follower to hear of it", SOON, || {
            let log = follower.log();
            let told = log.lines().filter(|line| line.contains("\"kind\":\"sessions\"")).count();
            Ok((told == 1 && log.contains("the-operate")).then_some(()))
        })
    });
}

/// The tester of APIs, which `make setup` installs.
fn schemathesis() -> Option<PathBuf> {
    let place =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/schemathesis/bin/schemathesis");
    let found = place.is_file();
    let needed = std::env::var("CI").as_deref() == Ok("true");
    assert!(found || !needed, "schemathesis is not installed; run `make setup`");
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: openapi: run `make setup` for schemathesis");
    }
    found.then_some(place)
}

/// Every operation of the description, with values that fit it and values that do not, over the
/// network, as the administrator: answers are as described, nothing fails on the server's side, and
/// traffic goes on.
#[test]
fn openapi_holds_what_it_says() {
    let Some(tester) = schemathesis() else { return };
    on_network(here!(openapi_holds_what_it_says), |fixture| {
        let dir = fixture.bed.director.dir().to_path_buf();
        let token =
            fs::read_to_string(dir.join("admin.token")).map_err(LabError::file("a token"))?;
        let url = format!("https://{}:{PORT}", fixture.bed.front_address());
        let settings = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/schemathesis.toml");
        let (ca, header) = (dir.join("one.crt"), format!("Authorization: Bearer {}", token.trim()));
        let mut command = fixture.bed.director.command(&tester.to_string_lossy());
        command
            .arg("--config-file")
            .arg(&settings)
            .args(["run", &format!("{url}/v1/openapi.json"), "--tls-verify"])
            .arg(&ca)
            .args(["-H", &header]);
        // Other than the file's, of each operation.
        if let Ok(examples) = std::env::var("SLUICE_EXAMPLES") {
            command.args(["--max-examples", &examples]);
        }
        let mut running = Running::start("schemathesis", &mut command, &dir.join("tester.log"))?;
        let ended = running.wait(Duration::from_secs(1200))?;
        let said = running.log_tail(600);
        print!("{}", running.log_tail(25));
        expect(ended.success(), || format!("schemathesis is not content:\n{said}"))?;
        expect(fixture.director.runs()?, || "the director has ended".to_owned())?;
        fixture.answers(6).map(drop)
    });
}

/// One request took the API away from everybody, and `operate` was enough for it.
#[test]
fn no_service_takes_what_the_machine_listens_on_unless_forced() {
    on_network(here!(no_service_takes_what_the_machine_listens_on_unless_forced), |fixture| {
        let at = fixture.bed.front_address().to_owned();
        let told = |(status, body): &(String, String)| format!("{status}: {body}");
        let add = |port: u16| {
            let address = serde_json::json!({ "protocol": "tcp", "address": at, "port": port });
            let key = serde_json::json!({ "address": address });
            let spec = serde_json::json!({ "key": key, "scheduler": "rr", "netmask": u32::MAX });
            serde_json::json!({ "add_service": spec }).to_string()
        };
        let got = curl(fixture, "operate", &["--json", &add(9999)], "/v1/ipvs")?;
        expect(got.0 == "403", || told(&got))?;
        let got = curl(fixture, "admin", &["--json", &add(PORT)], "/v1/ipvs")?;
        let refused = got.1.contains("EINVAL") && got.1.contains("itself listens");
        expect(refused, || told(&got))?;
        let got = curl(fixture, "admin", &["--json", &add(9999)], "/v1/ipvs")?;
        expect(got.1.contains("done"), || told(&got))?;
        let taken =
            serde_json::json!({ "protocol": "tcp", "vip": at, "port": PORT, "mode": "nat" });
        let put = ["-X", "PUT", "--json", &taken.to_string()];
        let got = curl(fixture, "admin", &put, "/v1/config/services/taken")?;
        expect(got.0 == "422" && got.1.contains("force"), || told(&got))?;
        let port = PORT.to_string();
        let add = ["service", "add", "taken", "--protocol", "tcp", "--vip", &at, "--port", &port];
        let forced = [&add[..], &["--mode", "nat", "--force"]].concat();
        fixture.director.sluice(&forced)?;
        let events = fixture.director.sluice(&["events"])?;
        expect(events.contains("itself listens"), || events.clone())?;
        fixture.director.sluice(&["service", "delete", "taken"])?;
        wait_until("the API to be reached again", SOON, || {
            Ok((curl(fixture, "read", &[], "/v1/status")?.0 == "200").then_some(()))
        })
    });
}
