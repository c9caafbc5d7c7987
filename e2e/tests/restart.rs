//! What a restart costs: connections go on, whatever way the director has ended.
//!
//! Established connections in both directions, a download and silent ones are held over the end of
//! a director and the start of the next one; then each must go on. Resets are counted by the
//! kernels of both ends. The gap is what a steady flow of datagrams notices.

use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::load::download_sha256;
use sluice_e2e::web::{LINES_PORT, make_blob_of};
use sluice_e2e::{Director, LabError, Netns};

use crate::fixture::{Fixture, SOON, Setup, here, on, on_every_setup};
use crate::handover::paced;

on_every_setup!(
    connections_survive_a_restart,
    connections_survive_kill_9,
    traffic_goes_on_as_soon_as_the_director_is_ready,
);

/// Seconds that connections are held: over the restart, and some time after.
const HELD_S: u32 = 12;
/// Connections that are held.
const CONNECTIONS: usize = 5;
/// Some seconds of the usual throughput.
const BLOB: u64 = 200_000_000;
/// Between two datagrams, and for how long they are sent.
const EVERY_MS: u64 = 2;
const PACED_S: u32 = 6;

fn connections_survive_a_restart(fixture: &mut Fixture) -> Result<(), LabError> {
    survive(fixture, |director| director.stop().map(drop))
}

fn connections_survive_kill_9(fixture: &mut Fixture) -> Result<(), LabError> {
    survive(fixture, |director| director.kill().map(drop))
}

fn survive(
    fixture: &mut Fixture,
    end: impl FnOnce(&mut Director) -> Result<(), LabError>,
) -> Result<(), LabError> {
    // Before connections are held, which end by themselves: it may take its time.
    let sum = make_blob_of(&fixture.bed.reals[0], BLOB)?;
    let server = fixture.server(LINES_PORT);
    let mut held =
        (0..CONNECTIONS).map(|_| fixture.hold(&server, HELD_S)).collect::<Result<Vec<_>, _>>()?;
    let before = sessions(fixture)?;
    expect(before >= CONNECTIONS, || format!("{before} sessions of {CONNECTIONS}"))?;
    let resets = [resets_of(&fixture.bed.client)?, resets_of(&fixture.bed.reals[0])?];
    let url = format!("{}/blob", fixture.url().trim_end_matches('/'));
    let client = fixture.bed.client.clone();
    // Slow enough to last over the restart.
    let download = std::thread::spawn(move || download_sha256(&client, &url, "20M"));
    std::thread::sleep(Duration::from_secs(1));
    // For the record, not judged: machines that run tests have other work too.
    gap(fixture, end)?;
    let log = fixture.director.log();
    expect(log.contains("sessions go on from before"), || format!("none were taken over:\n{log}"))?;
    let after = sessions(fixture)?;
    expect(after >= CONNECTIONS, || format!("{after} sessions of {before} are left"))?;
    for one in &mut held {
        let ended = one.wait(SOON)?;
        expect(ended.success(), || format!("a connection broke: {}", one.log_tail(3)))?;
    }
    let got = download.join().unwrap_or_else(|_| Err(LabError::Wrong("panicked".into())))?;
    expect(got == sum, || format!("sent {sum}, got {got}"))?;
    let now = [resets_of(&fixture.bed.client)?, resets_of(&fixture.bed.reals[0])?];
    expect(now == resets, || format!("resets at client and real server: {resets:?}, now {now:?}"))?;
    fixture.answers(3).map(drop)
}

/// Ends the director and starts it again, under datagrams. Gives for how long none came back, and
/// how long it took until the director said that it was ready.
fn gap(
    fixture: &mut Fixture,
    end: impl FnOnce(&mut Director) -> Result<(), LabError>,
) -> Result<[Duration; 2], LabError> {
    let every = EVERY_MS.to_string();
    let mut paced = paced(&fixture.bed.client, fixture.bed.vip(), PACED_S, &[&every])?;
    std::thread::sleep(Duration::from_secs(1));
    let ended = Instant::now();
    end(&mut fixture.director)?;
    let stopped = ended.elapsed();
    fixture.director = Director::launch(&fixture.bed, &fixture.recipe.text(&fixture.bed), &[])?;
    // As the machine's network configuration would, as soon as they appear.
    fixture.bed.settle_twins()?;
    fixture.director.wait_ready()?;
    let ready = ended.elapsed();
    let said = paced.end()?;
    let lost = said["longest_run"].as_u64().unwrap_or(u64::MAX);
    let gap = Duration::from_millis(lost.saturating_mul(EVERY_MS));
    println!(
        "gap {} ms (ended after {} ms, ready after {} ms): {said}",
        gap.as_millis(),
        stopped.as_millis(),
        ready.as_millis()
    );
    Ok([gap, ready])
}

/// How long a start takes is for `bench/upgrade.sh` to say: here other tests run as well.
fn traffic_goes_on_as_soon_as_the_director_is_ready(fixture: &mut Fixture) -> Result<(), LabError> {
    /// From the first frames that are forwarded to the director's word, or back.
    const ABOUT: Duration = Duration::from_millis(300);
    let killed = gap(fixture, |director| director.kill().map(drop))?;
    let stopped = gap(fixture, |director| director.stop().map(drop))?;
    for [gap, ready] in [killed, stopped] {
        // Without any the director was not away.
        let right = Duration::from_millis(10)..ready + ABOUT;
        expect(right.contains(&gap), || format!("killed {killed:?}, stopped {stopped:?}"))?;
    }
    Ok(())
}

/// The kernel knows none of the director's connections: unless it is kept quiet it resets them.
#[test]
fn without_hold_the_kernel_resets_connections() {
    on(here!(without_hold_the_kernel_resets_connections), Setup::usual(), |fixture| {
        let held = fixture.recipe.text(&fixture.bed);
        let text = held.replacen("[director]\n", "[director]\nhold_s = 0\n", 1);
        fixture.director.stop()?;
        fixture.director = Director::start(&fixture.bed, &text)?;
        let mut held = fixture.hold(&fixture.server(LINES_PORT), HELD_S)?;
        fixture.director.kill()?;
        // Between two lines of the connection there are some 50 ms.
        let ended = held.wait(SOON)?;
        expect(!ended.success(), || format!("it went on: {}", held.log_tail(3)))?;
        let said = held.log_tail(3);
        expect(said.contains("reset"), || format!("it was not reset: {said}"))
    });
}

fn sessions(fixture: &Fixture) -> Result<usize, LabError> {
    let said = fixture.director.ask("status")?;
    Ok(said["sessions"]["live"].as_u64().unwrap_or(0) as usize)
}

/// Connections that a kernel has seen reset, and resets that it has sent.
pub fn resets_of(space: &Netns) -> Result<(u64, u64), LabError> {
    let text = space.run("nstat", &["-as", "-j"])?.ok()?.stdout;
    let read: Value = serde_json::from_str(&text)
        .map_err(|_| LabError::Unreadable { what: "nstat".to_owned(), text })?;
    let of = |name: &str| read["kernel"][name].as_u64().unwrap_or(0);
    Ok((of("TcpEstabResets"), of("TcpOutRsts")))
}
