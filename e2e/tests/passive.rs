//! Passive checks: what becomes of clients' connections condemns a real server that probes find
//! well, or that nobody probes.

use sluice_e2e::bed::REALS;
use sluice_e2e::error::expect;
use sluice_e2e::web::{start_nginx, start_script};
use sluice_e2e::{Bed, Family, LabError, Mode, wait_until};

use crate::dual_stack::{on_dual, service};
use crate::fixture::{Fixture, SOON, Setup, here};
use crate::health::{health, nginx, reals, signal_all, wait_for};

const WATCH: &str = "[[check]]\nname = \"watch\"\nkind = \"passive\"\npassive_failures = 3\n\
                     passive_hold_s = 2\ninterval_ms = 500\njitter_percent = 0\nrise = 1\n\n";
/// Its probes pass whatever becomes of clients.
const ELSEWHERE: &str = "[[check]]\nname = \"watch\"\nkind = \"ping\"\ninterval_ms = 500\n\
                         passive_failures = 3\npassive_hold_s = 2\njitter_percent = 0\n\n";

fn on(name: &str, mode: Mode, check: &str, test: fn(&mut Fixture) -> Result<(), LabError>) {
    let services = |bed: &Bed| {
        let web = service("web", "tcp", bed.vip(), mode, Family::V4);
        check.to_owned() + &web.set("port", 80).set("check", "watch").reals(reals()).to_string()
    };
    on_dual(name, Setup::usual(), mode, services, test);
}

#[test]
fn one_that_refuses_clients_is_condemned() {
    let name = here!(one_that_refuses_clients_is_condemned);
    on(name, Mode::Fnat, WATCH, |fixture| {
        let vip = fixture.bed.vip();
        for index in 0..REALS {
            wait_for(fixture, "web", index, "up")?;
        }
        let mut traffic =
            start_script(&fixture.bed.client, "knock", "knock.py", &[vip, "80", "9"])?;
        signal_all(nginx(fixture, 0), "-KILL")?;
        let down = wait_for(fixture, "web", 0, "down")?;
        let reason = down["reason"].as_str().unwrap_or_default();
        expect(reason.contains("connections of clients in a row"), || down.to_string())?;
        let again = start_nginx(&fixture.bed.reals[0], 1)?;
        *nginx(fixture, 0) = again;
        wait_for(fixture, "web", 0, "up")?;
        traffic.wait(SOON).map(drop)
    });
}

/// The real server answers pings; clients' segments are lost on the way.
fn silent(fixture: &mut Fixture) -> Result<(), LabError> {
    let (real, vip) = (fixture.bed.reals[0].clone(), fixture.bed.vip());
    for index in 0..REALS {
        wait_for(fixture, "web", index, "up")?;
    }
    real.run("nft", &["add", "table", "ip", "hole"])?.ok()?;
    let hook = "{ type filter hook prerouting priority -300 ; }";
    real.run("nft", &["add", "chain", "ip", "hole", "lost", hook])?.ok()?;
    real.run("nft", &["add", "rule", "ip", "hole", "lost", "tcp", "dport", "80", "drop"])?.ok()?;
    let mut traffic = start_script(&fixture.bed.client, "knock", "knock.py", &[vip, "80", "9"])?;
    let down = wait_for(fixture, "web", 0, "down")?;
    let reason = down["reason"].as_str().unwrap_or_default();
    expect(reason.contains("connections of clients in"), || down.to_string())?;
    expect(down["last"]["outcome"] == "passed", || format!("probes pass: {down}"))?;
    // It is given another try every few seconds: what is asked meanwhile may meet it.
    let answers = wait_until("answers while it is down", SOON, || {
        let before = wait_for(fixture, "web", 0, "down")?;
        let answers = fixture.answers(9);
        let after = health(fixture, "web")?.first().cloned().unwrap_or_default();
        let throughout =
            after["state"] == "down" && after["for_s"].as_f64() > before["for_s"].as_f64();
        throughout.then_some(answers).transpose()
    })?;
    expect(answers.iter().all(|it| it != "Real Server 01"), || format!("{answers:?}"))?;
    real.run("nft", &["delete", "table", "ip", "hole"])?.ok()?;
    wait_for(fixture, "web", 0, "up")?;
    traffic.wait(SOON).map(drop)
}

#[test]
fn one_that_never_answers_clients_is_condemned_fnat() {
    on(here!(one_that_never_answers_clients_is_condemned_fnat), Mode::Fnat, ELSEWHERE, silent);
}

#[test]
fn one_that_never_answers_clients_is_condemned_dr() {
    on(here!(one_that_never_answers_clients_is_condemned_dr), Mode::Dr, ELSEWHERE, silent);
}
