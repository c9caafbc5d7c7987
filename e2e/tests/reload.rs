//! SIGHUP: a wrong file changes nothing, a right one takes effect, sessions live on.

use sluice_e2e::error::expect;
use sluice_e2e::load::{curl, download_sha256};
use sluice_e2e::recipe::EXTRA;
use sluice_e2e::web::{LINES_PORT, make_blob};
use sluice_e2e::{Driver, LabError, wait_until};

use crate::fixture::{Fixture, REFUSED, SOON, Setup, here, on};

#[test]
fn a_wrong_file_is_refused_under_a_running_download() {
    on(here!(a_wrong_file_is_refused_under_a_running_download), Setup::usual(), wrong_file);
}

/// The message names the file, the line and the key; a download of several seconds that runs
/// across it arrives whole; new connections are served as before.
fn wrong_file(fixture: &mut Fixture) -> Result<(), LabError> {
    let sum = make_blob(&fixture.bed.reals[0])?;
    let url = format!("{}/blob", fixture.url());
    let client = fixture.bed.client.clone();
    let download = std::thread::spawn(move || download_sha256(&client, &url, "12M"));
    let good = fixture.recipe.text(&fixture.bed);
    let wrong = good.replacen("scheduler = \"rr\"", "scheduler = \"rrr\"", 1);
    let line = 1 + wrong.lines().position(|line| line.contains("rrr")).unwrap_or_default();
    let file = fixture.director.config().display().to_string();
    fixture.director.reload(&wrong)?;
    fixture.director.wait_for_words("scheduler", SOON)?;
    fixture.director.wait_for_words(&file, SOON)?;
    let told = fixture.director.log();
    let placed = [format!(":{line}"), format!("line {line}")];
    expect(placed.iter().any(|place| told.contains(place)), || {
        format!("no word of line {line} in:\n{told}")
    })?;
    fixture.answers(3)?;
    let got = download.join().map_err(|_| LabError::Wrong("the download panicked".into()))??;
    expect(got == sum, || format!("sent {sum}, got {got}"))?;
    expect(fixture.director.runs()?, || "the director ended".to_owned())
}

#[test]
fn a_service_is_added_af_xdp() {
    on(here!(a_service_is_added_af_xdp), Setup::usual(), service_is_added);
}

#[test]
fn a_service_is_added_af_packet() {
    on(here!(a_service_is_added_af_packet), Setup::new(Driver::AfPacket, 1), service_is_added);
}

#[test]
fn a_service_is_added_two_workers() {
    on(here!(a_service_is_added_two_workers), Setup::new(Driver::AfXdp, 2), service_is_added);
}

/// The new service answers, the old one still does, and a session that was open stays busy across.
fn service_is_added(fixture: &mut Fixture) -> Result<(), LabError> {
    let url = format!("http://{}:{}", fixture.bed.vip(), EXTRA.port);
    let before = fixture.bed.client.run("curl", &["-sS", "--max-time", "2", &url])?;
    expect(!before.status.success(), || "answered before it was added".to_owned())?;
    let mut held = fixture.hold(&fixture.server(LINES_PORT), 5)?;
    let mut recipe = fixture.recipe.clone();
    recipe.services.push(EXTRA);
    fixture.director.reload(&recipe.text(&fixture.bed))?;
    wait_until("the added service to answer", SOON, || {
        let ran = fixture.bed.client.run("curl", &["-s", "--fail", "--max-time", "1", &url])?;
        Ok(ran.status.success().then_some(()))
    })?;
    for _ in 0..6 {
        curl(&fixture.bed.client, &url)?;
    }
    fixture.answers(6)?;
    let ended = held.wait(SOON)?;
    expect(ended.success(), || format!("the open session broke: {}", held.log_tail(5)))
}

/// What is no service any more is no longer taken from the kernel, which has no listener there.
#[test]
fn a_removed_service_is_the_kernels_again() {
    on(here!(a_removed_service_is_the_kernels_again), Setup::usual(), |fixture| {
        fixture.answers(1)?;
        let mut recipe = fixture.recipe.clone();
        recipe.services.retain(|service| service.name != "web");
        fixture.director.reload(&recipe.text(&fixture.bed))?;
        let url = fixture.url();
        wait_until("the kernel to refuse", SOON, || {
            let ran = fixture.bed.client.run("curl", &["-sS", "--max-time", "1", &url])?;
            Ok((ran.status.code() == Some(REFUSED)).then_some(()))
        })
    });
}
