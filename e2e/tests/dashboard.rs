//! The dashboard in Chromium, over a real director with traffic: `e2e/browser/dashboard.py` uses it
//! as an operator would and judges what it sees.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_e2e::bed::REALS;
use sluice_e2e::bed::pair::{Kind, Pair};
use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::{Bed, Director, Family, LabError, Mode, Running, wait_until};

use crate::dual_stack::{bare, reals, service};
use crate::failover::Knocking;
use crate::fixture::{Fixture, SOON, Setup, here, on_bed};
use crate::sync::on_synchronised_with;

/// Where the dashboard is, inside the director's namespace.
const AT: &str = "127.0.0.1:8443";
/// How long the browser may take for all of it on a busy machine.
const LIMIT: Duration = Duration::from_secs(900);

/// The Python environment that `packaging/browser.sh` makes.
fn python() -> Result<PathBuf, LabError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = std::process::Command::new(root.join("packaging/browser.sh")).status();
    let made = made.map_err(LabError::file("running packaging/browser.sh"))?;
    expect(made.success(), || "packaging/browser.sh failed: see above".to_owned())?;
    Ok(root.join("target/browser/bin/python"))
}

/// Makes a token of a role and adds it to the director's file; gives the token.
fn token(file: &Path, role: &str) -> Result<String, LabError> {
    let sluice = sluice_e2e::director::program("sluice")?;
    let mut command = std::process::Command::new(sluice);
    let ran =
        sluice_e2e::process::run(command.args(["token", "new", role, "--role", role]))?.ok()?;
    let line = ran.stderr.lines().rfind(|line| line.starts_with(role)).unwrap_or_default();
    let mut known = std::fs::read_to_string(file).unwrap_or_default();
    known += &format!("{line}\n");
    std::fs::write(file, known).map_err(LabError::file("writing tokens"))?;
    let mut chmod = std::process::Command::new("chmod");
    sluice_e2e::process::run(chmod.arg("640").arg(file))?.ok()?;
    Ok(ran.stdout.trim().to_owned())
}

/// Services of several kinds, so that the pages have something to show.
fn services(bed: &Bed) -> String {
    let check = "[[check]]\nname = \"page\"\nkind = \"http\"\npath = \"/\"\ninterval_ms = 500\n\
                 timeout_ms = 400\nrise = 2\nfall = 2\n\n";
    let four = |name: &str, protocol: &str, port: u16, count: usize| {
        service(name, protocol, bed.vip(), Mode::Fnat, Family::V4)
            .set("port", port)
            .reals(reals(Family::V4, count))
    };
    let web = four("web", "tcp", 80, REALS).set("check", "page").set("scheduler", "wlc");
    let echo = four("echo", "udp", sluice_e2e::web::ECHO_PORT, REALS);
    let bulk = four("iperf", "tcp", crate::dual_stack::IPERF_PORT, 1);
    let six = service("web-ipv6", "tcp", bed.vip_of(Family::V6), Mode::Fnat, Family::V6)
        .set("port", 80)
        .reals(reals(Family::V6, REALS));
    [check.to_owned(), web.to_string(), echo.to_string(), bulk.to_string(), six.to_string()]
        .concat()
}

#[test]
fn an_operator_uses_it_in_chromium() {
    let name = here!(an_operator_uses_it_in_chromium);
    let setup = Setup { recipe: bare(), ..Setup::new(sluice_e2e::Driver::AfXdp, 2) };
    on_bed(
        name,
        setup,
        |bed, mut recipe| {
            bed.add_ipv6()?;
            let tokens = bed.lab.dir().join("tokens");
            for role in ["read", "operate"] {
                let made = token(&tokens, role)?;
                let kept = bed.lab.dir().join(format!("token-{role}"));
                std::fs::write(kept, made).map_err(LabError::file("writing a token"))?;
            }
            recipe.more += &services(bed);
            recipe.more +=
                &format!("[api]\nlisten = [\"{AT}\"]\ntokens = \"{}\"\n", tokens.display());
            let director = Director::start(bed, &recipe.text(bed))?;
            Ok((director, recipe))
        },
        used,
    );
}

/// Traffic that goes on until it is ended: many short connections, a long one, and a flow that is
/// spread. All of it together leaves the browser the most of the processors.
fn traffic(field: &Fixture) -> Result<[Running; 3], LabError> {
    let url = field.url();
    let wrk = format!("nice -n 15 wrk -t1 -c8 -d3 -H 'Connection: close' {url}");
    let short = format!("while :; do {wrk}; sleep 0.5; done");
    let long = format!("while :; do iperf3 -c {} -t 20 -b 60M; sleep 0.5; done", field.bed.vip());
    let client = &field.bed.client;
    let echo = sluice_e2e::web::ECHO_PORT;
    let script = format!("{}/peers/numbered.py", env!("CARGO_MANIFEST_DIR"));
    let args = [&*script, "40000", field.bed.vip(), &echo.to_string(), "1800", "1000"];
    let mut numbers = client.start("numbers", "python3", &args)?;
    numbers.wait_for_words("open", SOON)?;
    let ends = [format!("{}:40000", field.bed.client_address()), field.server(echo)];
    // Its rate is known from then on: that of before it is spread.
    wait_until("the flow to be seen", SOON, || {
        let said = field.director.ask("elephants")?;
        let mut all = said["elephants"].as_array().into_iter().flatten();
        let packets = |one: &serde_json::Value| one["inbound"]["packets_per_s"].as_u64();
        let is_it = |one: &serde_json::Value| one["session"]["client"] == *ends[0];
        Ok(all.any(|one| is_it(one) && packets(one) > Some(0)).then_some(()))
    })?;
    field.director.sluice(&["elephants", "pin", "udp", &ends[0], &ends[1]])?;
    let short = client.start("short", "sh", &["-c", &short])?;
    Ok([short, client.start("long", "sh", &["-c", &long])?, numbers])
}

fn used(field: &mut Fixture) -> Result<(), LabError> {
    let python = python()?.display().to_string();
    let dir = field.bed.lab.dir().to_owned();
    let held = |role: &str| {
        let text = std::fs::read_to_string(dir.join(format!("token-{role}")));
        text.map_err(LabError::file("reading a token"))
    };
    let page = curl(&field.bed.director, &format!("http://{AT}/"))?;
    expect(page.contains("<title>Sluice</title>"), || page.clone())?;
    let flows = traffic(field)?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/browser/dashboard.py");
    let shots = shots();
    let (read, operate, url) = (held("read")?, held("operate")?, format!("http://{AT}"));
    let mut args = vec![script, &url, "--read", &read, "--operate", &operate];
    args.extend(["--service", "web", "--shots", &shots, "--restart"]);
    // Who asks for them by name.
    args.extend(std::env::var_os(SHOTS).map(|_| "--pictures"));
    let mut browser = field.bed.director.start("browser", &python, &args)?;
    says(&mut browser, "stop the director")?;
    for flow in &flows {
        // The shells and what they run.
        let group = format!("-{}", flow.pid());
        sluice_e2e::process::run(std::process::Command::new("kill").args(["-KILL", "--", &group]))?;
    }
    field.director.stop()?;
    browser.wait_for_words("start the director", SOON * 6)?;
    field.director = Director::start(&field.bed, &field.recipe.text(&field.bed))?;
    ended_well(&mut browser)
}

/// Both of two synchronised directors, each on the dashboard of either, and what it says when the
/// other one dies and comes back.
#[test]
fn both_directors_are_on_the_page() {
    let name = here!(both_directors_are_on_the_page);
    let more = |pair: &Pair, index: usize| {
        let tokens = pair.nodes[index].lab.dir().join("tokens");
        let made = token(&tokens, "read")?;
        let kept = pair.nodes[index].lab.dir().join("token-read");
        std::fs::write(kept, made).map_err(LabError::file("writing a token"))?;
        Ok(format!("\n[api]\nlisten = [\"{AT}\"]\ntokens = \"{}\"\n", tokens.display()))
    };
    on_synchronised_with(Kind::default(), name, more, |pair| {
        let knocking = Knocking::start(pair)?;
        let mut browser = look(pair, 0, ("active", "standby"), &["--faults"])?;
        says(&mut browser, "stop the peer")?;
        pair.nodes[1].kill_director()?;
        says(&mut browser, "start the peer")?;
        pair.nodes[1].start_director()?;
        ended_well(&mut browser)?;
        ended_well(&mut look(pair, 1, ("standby", "active"), &[])?)?;
        knocking.gaps().map(drop)
    });
}

/// Starts the browser beside a director, which has a role as the other one has.
fn look(
    pair: &Pair,
    index: usize,
    (own, peers): (&str, &str),
    more: &[&str],
) -> Result<Running, LabError> {
    let node = &pair.nodes[index];
    let token = std::fs::read_to_string(node.lab.dir().join("token-read"));
    let token = token.map_err(LabError::file("reading a token"))?;
    let (url, peer, shots) = (format!("http://{AT}"), Pair::between(1 - index), shots());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/browser/pair.py");
    let usual = [script, &url, "--read", &token, "--peer", &peer, "--role", own];
    let rest = ["--peer-role", peers, "--shots", &shots];
    let args = [&usual[..], &rest, more].concat();
    node.space.start(&format!("browser{index}"), &python()?.display().to_string(), &args)
}

/// Waits until the browser asks for something; it may have failed before.
fn says(browser: &mut Running, words: &str) -> Result<(), LabError> {
    let said = wait_until("the browser's steps", LIMIT, || {
        let log = browser.log();
        let over = log.contains(words) || browser.ended()?.is_some();
        Ok(over.then_some(log))
    })?;
    expect(said.contains(words), || said.clone())
}

fn ended_well(browser: &mut Running) -> Result<(), LabError> {
    let status = browser.wait(LIMIT)?;
    expect(status.success(), || browser.log())?;
    eprintln!("{}", browser.log());
    Ok(())
}

/// Where screenshots are put.
const SHOTS: &str = "SLUICE_SHOTS";

fn shots() -> String {
    std::env::var(SHOTS)
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../target/dashboard").to_owned())
}

/// Pages elsewhere, in Chromium, beside an `ssh -L` to the control socket.
#[test]
fn pages_elsewhere_change_and_read_nothing() {
    let name = here!(pages_elsewhere_change_and_read_nothing);
    crate::fixture::on(name, Setup::usual(), |field| {
        let (python, dir) = (python()?.display().to_string(), field.bed.director.clone());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/browser/foreign.py");
        let socket = field.director.socket().display().to_string();
        let mut browser = dir.start("browser", &python, &[script, &socket])?;
        let status = browser.wait(LIMIT)?;
        expect(status.success(), || browser.log())?;
        eprintln!("{}", browser.log());
        Ok(())
    });
}
