//! Health checks: real servers that die, hang and come back under traffic, every kind of check
//! against a real program, fallbacks.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use sluice_e2e::bed::REALS;
use sluice_e2e::error::expect;
use sluice_e2e::load::{curl, download_sha256};
use sluice_e2e::web::{make_blob_of, start_nginx, start_script};
use sluice_e2e::{Bed, Family, LabError, Mode, Netns, Real, Running, Service, wait_until};

use crate::dns::start_nsd;
use crate::dual_stack::{on_dual, service};
use crate::fixture::{Fixture, SOON, Setup, here};

/// A check that decides within half a second.
fn check(name: &str, kind: &str, more: &str) -> String {
    format!(
        "[[check]]\nname = \"{name}\"\nkind = \"{kind}\"\ninterval_ms = 200\ntimeout_ms = 200\n\
         rise = 2\nfall = 2\njitter_percent = 0\n{more}\n\n"
    )
}

fn web(bed: &Bed, keys: &[(&str, &str)], reals: impl IntoIterator<Item = Real>) -> String {
    let service = service("web", "tcp", bed.vip(), Mode::Fnat, Family::V4).set("port", 80);
    let service = keys.iter().fold(service, |service, (key, value)| service.set(key, value));
    service.reals(reals).to_string()
}

pub fn reals() -> impl Iterator<Item = Real> {
    (0..REALS).map(|index| Real::at(Bed::real_address(index)))
}

/// All processes of a peer: nginx has several.
pub fn signal_all(peer: &Running, signal: &str) -> Result<(), LabError> {
    let group = format!("-{}", peer.pid());
    let mut kill = std::process::Command::new("kill");
    sluice_e2e::process::run(kill.args([signal, "--", &group]))?.ok().map(drop)
}

/// The nginx of a real server, among the bed's peers.
pub fn nginx(fixture: &mut Fixture, index: usize) -> &mut Running {
    &mut fixture.bed.peers[index * 3]
}

/// The checks of a service, as `sluice health` has them.
pub fn health(fixture: &Fixture, service: &str) -> Result<Vec<Value>, LabError> {
    let said = fixture.director.ask("health")?;
    let checks = said["checks"].as_array().cloned().unwrap_or_default();
    Ok(checks.into_iter().filter(|check| check["service"] == service).collect())
}

/// Waits until the only, or the first, real server of a service is in a state; gives the check.
pub fn wait_for(
    fixture: &Fixture,
    service: &str,
    index: usize,
    state: &str,
) -> Result<Value, LabError> {
    let mut last = Value::Null;
    let came = wait_until(&format!("{service} to be {state}"), SOON, || {
        let checks = health(fixture, service)?;
        last = checks.get(index).cloned().unwrap_or_default();
        Ok((last["state"] == state).then(|| last.clone()))
    });
    came.map_err(|error| LabError::Wrong(format!("{error}: {last}")))
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What `knock.py` saw: when, how it went, who answered.
fn knocks(log: &str) -> Vec<(f64, String, String)> {
    let read = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let at = words.next()?.parse().ok()?;
        Some((at, words.next()?.to_owned(), words.next().unwrap_or_default().to_owned()))
    };
    log.lines().filter_map(read).collect()
}

/// The last event of a service that ends in a state.
fn event(fixture: &Fixture, to: &str) -> Result<Value, LabError> {
    let said = fixture.director.ask("events")?;
    let events = said["events"].as_array().cloned().unwrap_or_default();
    let found = events.into_iter().rev().find(|event| event["to"] == to);
    found.ok_or_else(|| LabError::Wrong(format!("no event of {to}: {said}")))
}

#[test]
fn a_killed_real_server_gets_no_new_sessions() {
    let services = |bed: &Bed| check("port", "tcp", "") + &web(bed, &[("check", "port")], reals());
    let name = here!(a_killed_real_server_gets_no_new_sessions);
    on_dual(name, Setup::usual(), Mode::Fnat, services, killed);
}

fn killed(fixture: &mut Fixture) -> Result<(), LabError> {
    for index in 0..REALS {
        wait_for(fixture, "web", index, "up")?;
    }
    let vip = fixture.bed.vip();
    let mut traffic = start_script(&fixture.bed.client, "knock", "knock.py", &[vip, "80", "6"])?;
    wait_until("traffic", SOON, || {
        Ok((knocks(&traffic.log()).iter().filter(|k| k.1 == "ok").count() > 20).then_some(()))
    })?;
    let died = now_s();
    signal_all(nginx(fixture, 0), "-KILL")?;
    let down = wait_for(fixture, "web", 0, "down")?;
    expect(down["reason"] == "connect: connection refused", || down.to_string())?;
    traffic.wait(SOON)?;
    let seen = knocks(&traffic.log());
    let found = event(fixture, "down")?;
    let found_at = found["at_unix_ms"].as_f64().unwrap_or_default() / 1000.0;
    let lost: Vec<f64> = seen.iter().filter(|k| k.0 > died && k.1 != "ok").map(|k| k.0).collect();
    let last = lost.iter().copied().fold(died, f64::max);
    let figure = format!(
        "{} of {} connections failed; the last began {:.0} ms after the death and {:.1} ms after \
         it was found; the workers were told {} us after that",
        lost.len(),
        seen.len(),
        (last - died) * 1e3,
        (last - found_at) * 1e3,
        found["told_after_us"],
    );
    eprintln!("{figure}");
    expect(last - died < 2.0, || figure.clone())?;
    // The clock of an event has milliseconds; a knock may have begun before its SYN was sent.
    expect(last - found_at < 0.05, || figure.clone())?;
    let shown = fixture.director.sluice(&["services"])?;
    expect(shown.contains("weight 1, down"), || shown.clone())?;
    let again = start_nginx(&fixture.bed.reals[0], 1)?;
    *nginx(fixture, 0) = again;
    wait_for(fixture, "web", 0, "up")?;
    let back = event(fixture, "up")?;
    expect(back["from"] == "down" && back["reason"] == "connected", || back.to_string())?;
    let url = fixture.url();
    wait_until("it to get sessions again", SOON, || {
        Ok((curl(&fixture.bed.client, &url)? == "Real Server 01").then_some(()))
    })
}

#[test]
fn a_hung_real_server_keeps_its_sessions_and_gets_no_new_ones() {
    let services = |bed: &Bed| {
        check("page", "http", "path = \"/\"\nexpect = \"Real Server\"")
            + &web(bed, &[("check", "page"), ("on_down", "keep")], reals())
    };
    let name = here!(a_hung_real_server_keeps_its_sessions_and_gets_no_new_ones);
    on_dual(name, Setup::usual(), Mode::Fnat, services, hung);
}

fn hung(fixture: &mut Fixture) -> Result<(), LabError> {
    for index in 0..REALS {
        wait_for(fixture, "web", index, "up")?;
    }
    let sum = make_blob_of(&fixture.bed.reals[0], 9_000_000)?;
    let (client, blob) = (fixture.bed.client.clone(), format!("{}/blob", fixture.url()));
    let download = std::thread::spawn(move || download_sha256(&client, &blob, "1M"));
    let busy = wait_until("the download to run", SOON, || {
        for (index, real) in fixture.bed.reals.iter().enumerate() {
            // From the local address: probes come from the director's own.
            let filter = ["-tnH", "state", "established", "sport = :80 and dst 192.0.2.10"];
            if !real.run("ss", &filter)?.stdout.is_empty() {
                return Ok(Some(index));
            }
        }
        Ok(None)
    })?;
    signal_all(nginx(fixture, busy), "-STOP")?;
    let down = wait_for(fixture, "web", busy, "down")?;
    expect(down["reason"] == "no answer within 0.2 s", || down.to_string())?;
    let own = format!("Real Server {:02}", busy + 1);
    let answers = fixture.answers(12)?;
    expect(answers.iter().all(|answer| *answer != own), || format!("{answers:?}"))?;
    signal_all(nginx(fixture, busy), "-CONT")?;
    let got = download.join().map_err(|_| LabError::Wrong("it panicked".into()))??;
    expect(got == sum, || format!("sent {sum}, got {got}"))?;
    wait_for(fixture, "web", busy, "up")?;
    let answers = fixture.answers(REALS)?;
    expect(answers.contains(&own), || format!("{answers:?}"))
}

#[test]
fn a_fallback_serves_when_all_others_are_down() {
    let services = |bed: &Bed| {
        let last = |real: Real, index| if index == 2 { real.set("fallback", "true") } else { real };
        let reals = reals().enumerate().map(|(index, real)| last(real, index));
        check("port", "tcp", "") + &web(bed, &[("check", "port")], reals)
    };
    let name = here!(a_fallback_serves_when_all_others_are_down);
    on_dual(name, Setup::new(sluice_e2e::Driver::AfXdp, 2), Mode::Fnat, services, |fixture| {
        for index in 0..REALS {
            wait_for(fixture, "web", index, "up")?;
        }
        let sorry = "Real Server 03".to_owned();
        let answers = fixture.answers(8)?;
        expect(!answers.contains(&sorry), || format!("{answers:?}"))?;
        let shown = fixture.director.sluice(&["services"])?;
        expect(shown.contains("stands by"), || shown.clone())?;
        for index in 0..2 {
            signal_all(nginx(fixture, index), "-KILL")?;
            wait_for(fixture, "web", index, "down")?;
        }
        let answers = fixture.answers(4)?;
        expect(answers.iter().all(|answer| *answer == sorry), || format!("{answers:?}"))?;
        // A reload takes along what is known.
        let text = std::fs::read_to_string(fixture.director.config());
        let text = text.map_err(LabError::file("reading the configuration"))?;
        fixture.director.reload(&(text + "\n# again\n"))?;
        fixture.director.wait_for_words("was read again", SOON)?;
        let answers = fixture.answers(4)?;
        expect(answers.iter().all(|answer| *answer == sorry), || format!("{answers:?}"))?;
        let again = start_nginx(&fixture.bed.reals[1], 2)?;
        *nginx(fixture, 1) = again;
        wait_for(fixture, "web", 1, "up")?;
        let answers = fixture.answers(4)?;
        expect(answers.iter().all(|answer| answer == "Real Server 02"), || format!("{answers:?}"))
    });
}

/// A service for one check of the first real server.
fn one(bed: &Bed, name: &str, port: u16, real_port: u16) -> Service {
    service(name, "tcp", bed.vip(), Mode::Fnat, Family::V4)
        .set("port", port)
        .set("check", name)
        .real(Real::at(Bed::real_address(0)).set("port", real_port))
}

const TLS_PORT: u16 = 8443;
const GRPC_PORT: u16 = 50051;

fn kinds(bed: &Bed) -> String {
    let dir = bed.lab.dir().display().to_string();
    let ca = format!("tls_authorities = \"{dir}/cert.pem\"\ntls_name = \"www.example.com\"");
    let script = format!("command = [\"{dir}/check.sh\", \"{dir}/broken\"]");
    let checks = [
        ("tcp", 80, String::new()),
        ("http", 80, "path = \"/x\"\nexpect_regex = \"^Real Server 0[0-9]$\"".to_owned()),
        ("tls", TLS_PORT, ca.clone()),
        ("https", TLS_PORT, ca),
        ("udp", 7, "send = \"are you there\"\nexpect = \"there\"".to_owned()),
        ("dns", 53, "dns_name = \"www.example.test\"\ndns_address = \"203.0.113.80\"".to_owned()),
        ("grpc", GRPC_PORT, "grpc_service = \"web\"".to_owned()),
        ("ping", 80, String::new()),
        ("script", 80, script),
    ];
    let mut text = String::new();
    for (number, (kind, port, more)) in (0..).zip(checks) {
        // Handshakes and programs take their time on a busy machine.
        let slow = check(kind, kind, &more).replace("timeout_ms = 200", "timeout_ms = 1500");
        text += &slow;
        text += &one(bed, kind, 1000 + number, port).to_string();
    }
    text
}

/// A certificate of its own authority, that ends in 5 days, and its key.
fn certificate(bed: &Bed) -> Result<(), LabError> {
    let dir = bed.lab.dir().display().to_string();
    let (key, cert) = (format!("{dir}/key.pem"), format!("{dir}/cert.pem"));
    let args = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "5",
        "-subj",
        "/CN=www.example.com",
        "-addext",
        "subjectAltName=DNS:www.example.com",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        &key,
        "-out",
        &cert,
    ];
    bed.director.run("openssl", &args)?.ok().map(drop)
}

#[test]
fn every_kind_of_check_against_a_real_program() {
    let name = here!(every_kind_of_check_against_a_real_program);
    let prepared = |bed: &Bed| {
        certificate(bed).expect("a certificate");
        let script = bed.lab.dir().join("check.sh");
        let open = bed.lab.dir().join("open");
        let text =
            format!("#!/bin/sh\nls -l /proc/self/fd > {0}.new && mv {0}.new {0}\n", open.display());
        let text = text
            + "if test -e \"$1\"; then echo \"$SLUICE_REAL_ADDRESS is broken\"; \
                    exit 3; fi\necho \"$SLUICE_SERVICE at port $SLUICE_REAL_PORT is fine\"\n";
        std::fs::write(&script, text).expect("a script");
        std::process::Command::new("chmod").arg("755").arg(&script).status().expect("chmod");
        kinds(bed)
    };
    on_dual(name, Setup::usual(), Mode::Fnat, prepared, each_kind);
}

/// The answer of gRPC's health service, as a file that nginx gives to whoever asks.
fn serving(dir: &Path, serves: bool) -> Result<(), LabError> {
    let folder = dir.join("grpc/grpc.health.v1.Health");
    let made = std::fs::create_dir_all(&folder);
    made.map_err(LabError::file("making a folder"))?;
    // A message of 2 bytes, not compressed: HealthCheckResponse{status: 1 or 2}.
    let answer = [0, 0, 0, 0, 2, 8, if serves { 1 } else { 2 }];
    // As a whole or not at all: a probe may read it right now.
    let new = dir.join("answer");
    let put =
        std::fs::write(&new, answer).and_then(|()| std::fs::rename(&new, folder.join("Check")));
    put.map_err(LabError::file("writing an answer"))
}

/// nginx as a gRPC server: HTTP/2, the message, and the status in a trailer.
fn start_grpc(real: &Netns) -> Result<Running, LabError> {
    let dir = real.dir();
    serving(dir, true)?;
    let (file, own) = (dir.join("grpc.conf"), dir.display());
    let text = format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {own}/grpc.pid;\n\
         error_log stderr warn;\nevents {{ worker_connections 64; }}\n\
         http {{\n  access_log off;\n  client_body_temp_path {own}/g-body;\n\
         \x20 proxy_temp_path {own}/g-proxy;\n  fastcgi_temp_path {own}/g-fcgi;\n\
         \x20 uwsgi_temp_path {own}/g-uwsgi;\n  scgi_temp_path {own}/g-scgi;\n\
         \x20 server {{\n    listen {GRPC_PORT} http2;\n    root {own}/grpc;\n\
         \x20   default_type application/grpc;\n    add_trailer grpc-status 0;\n\
         \x20   error_page 405 =200 $uri;\n  }}\n}}\n"
    );
    std::fs::write(&file, text).map_err(LabError::file("writing nginx's configuration"))?;
    let (own, file) = (own.to_string(), file.display().to_string());
    real.start("grpc", "nginx", &["-e", "stderr", "-p", &own, "-c", &file])
}

/// A program that checks has standard input, output and error: what its shell passes on to a
/// command, which itself opens the folder that lists them.
fn nothing_was_inherited(dir: &Path) -> Result<(), LabError> {
    let open = std::fs::read_to_string(dir.join("open"));
    let open = open.map_err(LabError::file("reading what the script had open"))?;
    let links = open.lines().filter_map(|line| line.rsplit_once(" -> "));
    let foreign: Vec<_> = links
        .filter(|(entry, to)| {
            let number = entry.rsplit(' ').next().and_then(|it| it.parse::<u32>().ok());
            number.is_none_or(|number| number > 2) && !to.starts_with("/proc/")
        })
        .collect();
    expect(foreign.is_empty() && open.contains(" 0 -> "), || format!("inherited: {foreign:?}"))
}

fn each_kind(fixture: &mut Fixture) -> Result<(), LabError> {
    let (real, dir) = (fixture.bed.reals[0].clone(), fixture.bed.lab.dir().to_path_buf());
    let file = |name: &str| dir.join(name).display().to_string();
    let port = TLS_PORT.to_string();
    let tls = [
        "s_server",
        "-accept",
        &port,
        "-cert",
        &file("cert.pem"),
        "-key",
        &file("key.pem"),
        "-www",
    ];
    let mut openssl = real.start("openssl", "openssl", &tls)?;
    let mut nsd = start_nsd(&real, "nsd", &[Bed::real_address(0)])?;
    let mut grpc = start_grpc(&real)?;
    for (kind, text) in [
        ("tcp", "connected"),
        ("http", "HTTP status 200 OK"),
        ("tls", "TLS 1.3, its certificate ends in 4 days"),
        ("https", "HTTP status 200 ok, its certificate ends in 4 days"),
        ("udp", "13 bytes came back"),
        ("dns", "DNS NOERROR, 203.0.113.80"),
        ("grpc", "gRPC SERVING"),
        ("ping", "echo reply"),
        ("script", "exit code 0: script at port 80 is fine"),
    ] {
        // A certificate that was made within this second ends in 5 days still.
        wait_until(&format!("{kind}: {text}"), SOON, || {
            let up = wait_for(fixture, kind, 0, "up")?;
            Ok((up["last"]["text"] == text).then_some(()))
        })?;
    }
    nothing_was_inherited(&dir)?;
    serving(&dir, false)?;
    std::fs::write(file("broken"), "").map_err(LabError::file("breaking the script"))?;
    nsd.kill()?;
    openssl.kill()?;
    signal_all(&fixture.bed.peers[1], "-KILL")?;
    for (kind, reason) in [
        ("grpc", "gRPC NOT_SERVING, expected SERVING"),
        ("script", "exit code 3: 192.0.2.11 is broken"),
        ("dns", "ICMP port unreachable"),
        ("udp", "ICMP port unreachable"),
        ("tls", "connect: connection refused"),
        ("https", "connect: connection refused"),
    ] {
        let down = wait_for(fixture, kind, 0, "down")?;
        expect(down["reason"] == reason, || format!("{kind}: {down}"))?;
    }
    real.ip(&["link", "set", "dev", "eth0", "down"])?;
    let down = wait_for(fixture, "ping", 0, "down")?;
    let reason = down["reason"].as_str().unwrap_or_default();
    expect(reason == "no answer within 1.5 s" || reason.contains("unreachable"), || {
        down.to_string()
    })?;
    for kind in ["tcp", "http"] {
        wait_for(fixture, kind, 0, "down")?;
    }
    real.ip(&["link", "set", "dev", "eth0", "up"])?;
    serving(&dir, true)?;
    let mended = std::fs::remove_file(file("broken"));
    mended.map_err(LabError::file("mending the script"))?;
    for kind in ["ping", "tcp", "http", "grpc", "script"] {
        wait_for(fixture, kind, 0, "up")?;
    }
    signal_all(&grpc, "-KILL")?;
    grpc.wait(SOON).map(drop)
}

/// Every probe that is not answered must have left nothing behind.
#[test]
fn checks_leave_no_connection_behind() {
    let services = |bed: &Bed| {
        check("port", "tcp", "").replace("interval_ms = 200", "interval_ms = 100")
            + &web(bed, &[("check", "port")], reals())
    };
    let name = here!(checks_leave_no_connection_behind);
    on_dual(name, Setup::usual(), Mode::Fnat, services, |fixture| {
        wait_until("a hundred probes", Duration::from_secs(30), || {
            let checks = health(fixture, "web")?;
            let probes: u64 = checks.iter().filter_map(|check| check["probes"].as_u64()).sum();
            Ok((probes >= 100).then_some(()))
        })?;
        for space in [&fixture.bed.director, &fixture.bed.reals[0]] {
            let shown = space.run("ss", &["-tanH", "state", "time-wait"])?.ok()?.stdout;
            // What started the web servers asked them by loopback whether they are there.
            let left = shown.lines().filter(|line| !line.contains("127.0.0.1:")).count();
            expect(left == 0, || format!("{}:\n{shown}", space.name()))?;
        }
        Ok(())
    });
}
