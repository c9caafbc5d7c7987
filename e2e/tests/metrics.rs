//! What is measured, and what is logged: a real Prometheus scrapes a director under traffic and has
//! its alerts from the packaged rules; the last hour shows the same traffic; logs are what they are
//! said to be.

use std::path::Path;

use serde_json::Value;
use sluice_e2e::bed::REALS;
use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::process::run;
use sluice_e2e::web::start_script;
use sluice_e2e::{Bed, Director, Driver, Family, LabError, Mode, Netns, Real, Running, wait_until};

use crate::dual_stack::{on_dual, service};
use crate::fixture::{Fixture, SOON, Setup, here, on_bed};

const CHECK: &str = "[[check]]\nname = \"port\"\nkind = \"tcp\"\ninterval_ms = 200\n\
                     timeout_ms = 200\nrise = 1\nfall = 2\njitter_percent = 0\n\n";

fn web(bed: &Bed) -> String {
    let reals = (0..REALS).map(|index| Real::at(Bed::real_address(index)));
    let service = service("web", "tcp", bed.vip(), Mode::Fnat, Family::V4);
    CHECK.to_owned() + &service.set("port", 80).set("check", "port").reals(reals).to_string()
}

/// Prometheus with the packaged alerts, in the director's namespace.
fn start_prometheus(fixture: &Fixture) -> Result<(Running, Running), LabError> {
    let (space, dir) = (&fixture.bed.director, fixture.bed.lab.dir());
    let socket = Director::socket_in(dir).display().to_string();
    let relay = start_script(space, "relay", "relay.py", &["9410", &socket])?;
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus");
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [ {}/sluice.rules.yml ]\n\
         scrape_configs:\n  - job_name: sluice\n    static_configs:\n      \
         - targets: [ 127.0.0.1:9410 ]\n",
        rules.display()
    );
    let file = dir.join("prometheus.yml");
    std::fs::write(&file, config).map_err(LabError::file("prometheus.yml"))?;
    let args = [
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", dir.join("tsdb").display()),
        "--web.listen-address=127.0.0.1:9090".to_owned(),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut prometheus = space.start("prometheus", "prometheus", &args)?;
    prometheus.wait_for_words("Server is ready to receive web requests", SOON * 3)?;
    Ok((relay, prometheus))
}

/// The value of an expression that has one; `None` while it has none.
fn query(space: &Netns, expression: &str) -> Result<Option<f64>, LabError> {
    let expression = format!("query={expression}");
    let url = "http://127.0.0.1:9090/api/v1/query";
    let args = ["-sS", "-m", "5", "--data-urlencode", &expression, url];
    let text = space.run("curl", &args)?.ok()?.stdout;
    let what = "Prometheus' answer".to_owned();
    let answer: Value =
        serde_json::from_str(&text).map_err(|_| LabError::Unreadable { what, text })?;
    expect(answer["status"] == "success", || answer.to_string())?;
    let value = answer["data"]["result"][0]["value"][1].as_str();
    Ok(value.and_then(|value| value.parse().ok()))
}

fn wait_for(space: &Netns, expression: &str, wanted: f64) -> Result<(), LabError> {
    let mut last = None;
    let came = wait_until(&format!("{expression} to be {wanted}"), SOON * 2, || {
        last = query(space, expression)?;
        Ok((last == Some(wanted)).then_some(()))
    });
    came.map_err(|error| LabError::Wrong(format!("{error}: it was {last:?}")))
}

#[test]
fn prometheus_scrapes_a_director() {
    let name = here!(prometheus_scrapes_a_director);
    on_dual(name, Setup::new(Driver::AfXdp, 2), Mode::Fnat, web, scraped);
}

fn scraped(fixture: &mut Fixture) -> Result<(), LabError> {
    let (_relay, _prometheus) = start_prometheus(fixture)?;
    let space = fixture.bed.director.clone();
    wait_for(&space, "up{job=\"sluice\"}", 1.0)?;
    wait_for(&space, "sum(sluice_check_up)", REALS as f64)?;
    let url = fixture.url();
    for _ in 0..30 {
        curl(&fixture.bed.client, &url)?;
    }
    wait_for(&space, "sluice_service_sessions_opened_total{service=\"web\"}", 30.0)?;
    wait_for(&space, "sum(sluice_real_sessions_opened_total)", 30.0)?;
    // Round robin of two workers: about ten each.
    wait_for(&space, "min(sluice_real_sessions_opened_total) > bool 6", 1.0)?;
    wait_for(&space, "count(sluice_worker_up == 1)", 2.0)?;
    let joined = "sum(sluice_real_incoming_packets_total * on (service) group_left (vip) \
                  sluice_service_info{port=\"80\", protocol=\"tcp\"}) > bool 90";
    wait_for(&space, joined, 1.0)?;
    shown_by_rates(fixture)?;
    promtool_agrees(fixture)?;
    // Two of them die: down within a moment, and the alert of the packaged rules comes up.
    wait_for(&space, "count(ALERTS{alertname=\"SluiceRealServersDown\"}) or vector(0)", 0.0)?;
    for index in 0..2 {
        let group = format!("-{}", fixture.bed.peers[index * 3].pid());
        run(std::process::Command::new("kill").args(["-KILL", "--", &group]))?.ok()?;
    }
    wait_for(&space, "count(sluice_real_up == 0)", 2.0)?;
    wait_for(&space, "sluice_service_real_servers{state=\"down\"}", 2.0)?;
    wait_for(&space, "count(ALERTS{alertname=\"SluiceRealServersDown\"})", 1.0)
}

/// `GET /v1/rates` has the connections that curl made: their number is the sum of the rates.
fn shown_by_rates(fixture: &Fixture) -> Result<(), LabError> {
    let socket = Director::socket_in(fixture.bed.lab.dir()).display().to_string();
    let url = "http://director/v1/rates";
    let mut last = String::new();
    wait_until("the last hour to have the connections", SOON, || {
        let args = ["-sS", "-m", "5", "--unix-socket", &socket, url];
        last = fixture.bed.director.run("curl", &args)?.ok()?.stdout;
        let rates: Value = serde_json::from_str(&last).unwrap_or_default();
        let column = |name: &str| -> Vec<f64> {
            let column = rates[name].as_array().into_iter().flatten();
            column.filter_map(Value::as_f64).collect()
        };
        let (at, new) = (column("at_unix_s"), column("new_sessions_per_s"));
        // The first place's length is not told; nothing was opened in it.
        let opened: f64 =
            at.windows(2).zip(&new[1.min(new.len())..]).map(|(w, n)| (w[1] - w[0]) * n).sum();
        let workers = rates["workers"].as_array().map_or(0, Vec::len);
        Ok(((opened - 30.0).abs() < 3.0 && workers == 2).then_some(()))
    })
    .map_err(|error| LabError::Wrong(format!("{error}: {last}")))
}

fn promtool_agrees(fixture: &Fixture) -> Result<(), LabError> {
    let page = fixture.director.sluice(&["metrics"])?;
    let file = fixture.bed.lab.dir().join("page.txt");
    std::fs::write(&file, page).map_err(LabError::file("page.txt"))?;
    let check = format!("promtool check metrics < {}", file.display());
    let said = fixture.bed.director.run("sh", &["-c", &check])?.ok()?;
    expect(said.stdout.is_empty(), || said.stdout.clone())
}

const SECRET: &str = "s3cr3t-of-the-test";

/// At the level `debug`, with requests and files that have secrets in them, in JSON.
#[test]
fn logs_are_json_and_have_no_secrets() {
    let name = here!(logs_are_json_and_have_no_secrets);
    on_bed(
        name,
        Setup::usual(),
        |bed, recipe| {
            let log = "log_level = \"debug\"\nlog_format = \"json\"";
            let text = recipe.text(bed).replace("log_level = \"info\"", log);
            let web = "name = \"web\"\n";
            let text = text.replacen(web, &format!("{web}check = \"page\"\n"), 1);
            let check = format!(
                "\n[[check]]\nname = \"page\"\nkind = \"http\"\npath = \"/x?token={SECRET}\"\n\
                 interval_ms = 200\ntimeout_ms = 200\nexpect = \"nobody says this\"\n"
            );
            Ok((Director::start(bed, &(text + &check))?, recipe))
        },
        no_secrets,
    );
}

fn no_secrets(fixture: &mut Fixture) -> Result<(), LabError> {
    let socket = Director::socket_in(fixture.bed.lab.dir()).display().to_string();
    let header = format!("Authorization: Bearer {SECRET}");
    for url in ["http://director/v1/status", "http://director/v1/no?password=x"] {
        let args = ["-sS", "-m", "5", "--unix-socket", &socket, "-H", &header, url];
        fixture.bed.director.run("curl", &args)?.ok()?;
    }
    // A probe has failed, so the path has been used.
    fixture.director.wait_for_words("a real server is down", SOON)?;
    let text = std::fs::read_to_string(fixture.director.config());
    let text = text.map_err(LabError::file("reading the configuration"))?;
    fixture.director.reload(&format!("{text}\n[director.x]\ntoken = \"{SECRET}\"\n"))?;
    fixture.director.wait_for_words("the configuration stays as it was", SOON)?;
    let said = fixture.director.said(10_000);
    expect(!said.contains(SECRET), || said.clone())?;
    // DPDK writes lines of its own.
    let lines: Vec<Value> = said
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let of = |level: &str, number: u64, words: &str| {
        lines.iter().any(|line| {
            line["severity_text"] == level
                && line["severity_number"] == number
                && line["body"].as_str().is_some_and(|body| body.contains(words))
                && line["resource"]["service.name"] == "sluiced"
        })
    };
    expect(of("INFO", 9, "the director is ready"), || said.clone())?;
    expect(of("WARN", 13, "a real server is down"), || said.clone())?;
    expect(of("ERROR", 17, "the configuration stays as it was"), || said.clone())
}
