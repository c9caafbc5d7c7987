//! Upgrades between programs with different layouts of sessions: the running one tells them by
//! addresses. The head of its sessions is given another layout's number, with a right checksum, as
//! a program with that layout would have written it; and then a byte of it flips.

use std::fs;
use std::path::PathBuf;

use sluice_e2e::error::expect;
use sluice_e2e::load::download_sha256;
use sluice_e2e::web::make_blob_of;
use sluice_e2e::{Director, LabError, Running, wait_until};

use super::{Held, LONGEST_GAP_MS, Last, is_alive, pid, resets, upgrade};
use crate::fixture::{Fixture, PYTHON, SOON, Setup, here, on, on_every_setup, script};
use crate::rollback::NEWER_LAYOUT;

on_every_setup!(connections_go_on_over_layouts);

/// Seconds of datagrams, over two upgrades.
const PACED_S: u32 = 12;
const BLOB: u64 = 200_000_000;

/// The file of names of the running director's sessions.
fn names(fixture: &Fixture) -> Result<PathBuf, LabError> {
    let first = Director::kept_in(fixture.bed.director.dir());
    let mut second = first.clone().into_os_string();
    second.push("+");
    let files = [first, second.into()].map(|dir| dir.join("names"));
    let found = files.into_iter().find(|file| file.exists());
    found.ok_or_else(|| LabError::Wrong("no names of sessions".to_owned()))
}

/// Gives the sessions of the running director another layout's number.
fn change_layout(fixture: &Fixture) -> Result<(), LabError> {
    let kept = Director::kept_in(fixture.bed.director.dir());
    let text = format!("KEPT='{}'\n{NEWER_LAYOUT}", kept.display());
    fixture.bed.director.run("bash", &["-c", &text])?.ok().map(drop)
}

/// Flips a bit in the middle of their names.
fn damage(fixture: &Fixture) -> Result<(), LabError> {
    let (file, wrong) = (names(fixture)?, || LabError::file("damaging names"));
    let mut bytes = fs::read(&file).map_err(wrong())?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&file, bytes).map_err(wrong())
}

/// Opens one connection after the other, as many as come: some are half-open at any time.
fn knock(fixture: &Fixture, number: usize) -> Result<Running, LabError> {
    let (path, seconds) = (script("knock.py"), PACED_S.to_string());
    let args = [&path, fixture.bed.vip(), "80", &seconds, "0", "2000"];
    fixture.bed.client.start(&format!("knock-{number}"), PYTHON, &args)
}

/// What is done to the head of the running director's sessions.
type Change = fn(&Fixture) -> Result<(), LabError>;

fn connections_go_on_over_layouts(fixture: &mut Fixture) -> Result<(), LabError> {
    let sum = make_blob_of(&fixture.bed.reals[0], BLOB)?;
    let mut held = Held::begin(fixture, PACED_S)?;
    let url = format!("{}/blob", fixture.url().trim_end_matches('/'));
    let client = fixture.bed.client.clone();
    let download = std::thread::spawn(move || download_sha256(&client, &url, "20M"));
    let mut knocking = (0..2).map(|at| knock(fixture, at)).collect::<Result<Vec<_>, _>>()?;
    let fixture = &*fixture;
    let _last = Last(&fixture.director);
    let mut before = pid(&fixture.director)?;
    let changes: [(Change, &str); 2] =
        [(change_layout, "its sessions have layout 7, not 1"), (damage, "it is damaged")];
    for (change, why) in changes {
        change(fixture)?;
        let said = upgrade(&fixture.director)?;
        println!("{said}; established, all: {:?}", resets(fixture)?);
        let told = &said["told"];
        let reason = told["why"].as_str().unwrap_or_default();
        // Lines, datagrams and the download.
        let sessions = told["sessions"].as_u64().unwrap_or(0);
        expect(reason.contains(why) && sessions >= 7, || format!("{said}"))?;
        expect(said["gap_ms"].as_f64() < Some(LONGEST_GAP_MS), || format!("{said}"))?;
        let now = pid(&fixture.director)?;
        expect(said["pid"] == now && now != before, || format!("{before}, now {now}: {said}"))?;
        wait_until(
            "the end of the process before",
            SOON,
            || Ok((!is_alive(before)).then_some(())),
        )?;
        before = now;
    }
    // The last one reads slots again.
    let said = upgrade(&fixture.director)?;
    expect(said["told"].is_null(), || format!("{said}"))?;
    println!("by slots; established, all: {:?}", resets(fixture)?);
    for one in &mut knocking {
        one.wait(SOON)?;
        let log = one.log();
        let (all, served) = (log.lines().count(), log.matches(" ok ").count());
        println!("{served} connections, one after the other");
        // The first line says that it has begun.
        expect(served > 100 && served + 1 == all, || log)?;
    }
    let paced = held.go_on()?;
    println!("datagrams: {paced}");
    expect(paced["longest_run"].as_f64() < Some(LONGEST_GAP_MS), || format!("{paced}"))?;
    let got = download.join().unwrap_or_else(|_| Err(LabError::Wrong("panicked".into())))?;
    expect(got == sum, || format!("sent {sum}, got {got}"))?;
    // A client resets what answers an opening with the port of a connection that has ended lately,
    // and opens it again: a director begins elsewhere among its local ports.
    let (before, now) = (held.resets, resets(fixture)?);
    let established = |of: [(u64, u64); 2]| of.map(|(established, _)| established);
    expect(established(now) == established(before), || format!("resets: {before:?}, {now:?}"))?;
    let events = fixture.director.sluice(&["events", "--kind", "ha"])?;
    expect(!events.contains("by addresses"), || events)?;
    fixture.answers(3).map(drop)
}

/// A process that is gone can tell nothing: sessions of another layout begin anew, the log says so,
/// and clients are served.
#[test]
fn after_kill_9_sessions_of_another_layout_are_lost_and_that_is_said() {
    let name = here!(after_kill_9_sessions_of_another_layout_are_lost_and_that_is_said);
    on(name, Setup::usual(), |fixture| {
        fixture.director.kill()?;
        let first = names(fixture)?;
        change_layout(fixture)?;
        fixture.director = Director::start(&fixture.bed, &fixture.recipe.text(&fixture.bed))?;
        let log = fixture.director.log();
        expect(log.contains("its sessions have layout 7, not 1"), || log.clone())?;
        expect(!log.contains("sessions go on from before"), || log.clone())?;
        expect(names(fixture)? == first, || "another place".to_owned())?;
        wait_until("clients to be served", SOON, || Ok(fixture.answers(1).ok()))?;
        fixture.answers(3).map(drop)
    });
}
