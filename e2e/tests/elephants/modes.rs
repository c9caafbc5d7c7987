//! Who may spread a flow: nobody, an operator, or also the director, by what a flow takes of its
//! worker. And that a reload decides for flows that run.

use super::{Numbers, SOON, pin, read, spread, wait_until_dealt, wait_until_none, wait_until_seen};
use crate::fixture::{Fixture, Setup, here, on};
use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::web::ECHO_PORT;
use sluice_e2e::{Driver, LabError, wait_until};

fn section(mode: &str, thresholds: &str) -> String {
    format!("[elephants]\nmode = \"{mode}\"\n{thresholds}leave_after_s = 60\n")
}

const PACKETS: &str = "packets_per_s = 200\n";

fn setup(more: String) -> Setup {
    let mut setup = Setup::new(Driver::AfXdp, 2);
    setup.recipe.more = more;
    setup
}

#[test]
fn a_reload_decides_about_a_running_flow() {
    let setup = setup(section("off", PACKETS));
    on(here!(a_reload_decides_about_a_running_flow), setup, reloads);
}

#[test]
fn alone_a_share_of_its_worker_has_a_flow_spread() {
    let setup = setup(section("spread", &share(100)));
    on(here!(alone_a_share_of_its_worker_has_a_flow_spread), setup, by_share);
}

fn share(percent: u32) -> String {
    format!("packets_per_s = 0\nworker_percent = {percent}\n")
}

/// Datagrams, whose session both directions of were seen.
fn numbers(fixture: &Fixture) -> Result<Numbers, LabError> {
    let numbers = Numbers::start(fixture)?;
    wait_until_seen(fixture)?;
    Ok(numbers)
}

fn reload(fixture: &mut Fixture, more: String) -> Result<(), LabError> {
    fixture.recipe.more = more;
    let text = fixture.recipe.text(&fixture.bed);
    let epoch = fixture.director.ask("status")?["config_epoch"].as_u64().unwrap_or(0);
    fixture.director.reload(&text)?;
    wait_until("the file to be read again", SOON, || {
        let now = fixture.director.ask("status")?["config_epoch"].as_u64();
        Ok((now > Some(epoch)).then_some(()))
    })
}

/// For four seconds, twice what the policy waits, the flow is listed above the threshold and is not
/// spread.
fn stays_unspread(fixture: &Fixture) -> Result<(), LabError> {
    let up = || Ok::<_, LabError>(fixture.director.ask("status")?["uptime_s"].as_f64());
    let until = up()?.unwrap_or(0.0) + 4.0;
    let mut above = 0;
    wait_until("four seconds", SOON, || {
        let said = read(&fixture.director.sluice(&["elephants", "--json"])?)?;
        expect(said["spread"].as_array().is_some_and(Vec::is_empty), || said.to_string())?;
        let rate = |elephant: &Value| elephant["inbound"]["packets_per_s"].as_u64().unwrap_or(0);
        let all = said["elephants"].as_array().into_iter().flatten();
        above += usize::from(all.map(rate).any(|rate| rate > 200));
        Ok(up()?.filter(|now| *now >= until))
    })?;
    expect(above > 0, || "the flow never was above the threshold".to_owned())
}

/// Nobody, an operator, the director, and back.
fn reloads(fixture: &mut Fixture) -> Result<(), LabError> {
    let numbers = numbers(fixture)?;
    let refused = |fixture: &Fixture| {
        let error = pin(fixture, "pin", "udp", ECHO_PORT, "inbound").expect_err("refused");
        let words = "mode = \"off\" of [elephants] forbids it";
        expect(error.to_string().contains(words), || error.to_string())
    };
    refused(fixture)?;
    stays_unspread(fixture)?;
    reload(fixture, section("observe", PACKETS))?;
    stays_unspread(fixture)?;
    pin(fixture, "pin", "udp", ECHO_PORT, "outbound")?;
    wait_until_dealt(fixture, 1, 200)?;
    reload(fixture, section("spread", PACKETS))?;
    // The pinned direction, and by itself the other one.
    wait_until_dealt(fixture, 2, 200)?;
    let pinned = |flows: &[Value]| flows.iter().filter(|flow| flow["pinned"] == true).count();
    let flows = spread(fixture)?;
    expect(pinned(&flows) == 1, || format!("{flows:?}"))?;
    reload(fixture, section("observe", PACKETS))?;
    // Only what the operator wants is left.
    wait_until("the director's flow to be gathered in", SOON, || {
        let flows = spread(fixture)?;
        Ok((flows.len() == 1 && pinned(&flows) == 1).then_some(()))
    })?;
    reload(fixture, section("off", PACKETS))?;
    wait_until_none(fixture)?;
    refused(fixture)?;
    numbers.all_came().map(drop)
}

/// A flow that takes some of its worker's time, but not all of it.
fn by_share(fixture: &mut Fixture) -> Result<(), LabError> {
    let numbers = numbers(fixture)?;
    stays_unspread(fixture)?;
    reload(fixture, section("spread", &share(1)))?;
    wait_until("the flow to be spread", SOON, || {
        let all = spread(fixture)?;
        Ok((!all.is_empty() && all.iter().all(|flow| flow["pinned"] == false)).then_some(()))
    })?;
    let flows = spread(fixture)?;
    wait_until_dealt(fixture, flows.len().max(1), 200)?;
    reload(fixture, section("observe", ""))?;
    wait_until_none(fixture)?;
    numbers.all_came().map(drop)
}
