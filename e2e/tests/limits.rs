//! What does not fit, or belongs nowhere, is refused in the configured way and counted.

use sluice_e2e::capture::{Capture, judge};
use sluice_e2e::error::expect;
use sluice_e2e::recipe::Recipe;
use sluice_e2e::web::LINES_PORT;
use sluice_e2e::{Driver, LabError, Running};

use crate::fixture::{Fixture, PYTHON, Setup, here, on, script};

#[test]
fn no_session_is_answered_by_a_reset_af_xdp() {
    let recipe = Recipe { no_session: "reset", ..Recipe::default() };
    let setup = Setup { recipe, ..Setup::usual() };
    on(here!(no_session_is_answered_by_a_reset_af_xdp), setup, reset);
}

#[test]
fn no_session_is_answered_by_a_reset_af_packet() {
    let recipe = Recipe { no_session: "reset", ..Recipe::default() };
    let setup = Setup { recipe, ..Setup::new(Driver::AfPacket, 1) };
    on(here!(no_session_is_answered_by_a_reset_af_packet), setup, reset);
}

/// RFC 9293 3.10.7.1: the reset takes its sequence number from the segment's acknowledgement.
fn reset(fixture: &mut Fixture) -> Result<(), LabError> {
    let capture = Capture::start(&fixture.bed.client, "eth0", "reset")?;
    let answer = mid_stream(fixture)?;
    expect(answer == "R 1000", || format!("the answer was: {answer}"))?;
    let verdict = judge(&capture.stop()?)?;
    expect(verdict.bad == 0 && verdict.good_tcp >= 2, || format!("{verdict:?}"))?;
    let counted = dropped(fixture, "no_session_reset")?;
    expect(counted == 1, || format!("counted {counted} times"))?;
    fixture.answers(3).map(drop)
}

#[test]
fn no_session_is_dropped_in_silence() {
    on(here!(no_session_is_dropped_in_silence), Setup::usual(), |fixture| {
        let before = dropped(fixture, "no_session")?;
        let answer = mid_stream(fixture)?;
        expect(answer == "nothing", || format!("the answer was: {answer}"))?;
        let counted = dropped(fixture, "no_session")? - before;
        expect(counted == 1, || format!("counted {counted} times"))
    });
}

fn mid_stream(fixture: &Fixture) -> Result<String, LabError> {
    let args = [&*script("mid_stream.py"), fixture.bed.vip(), "80", "2"];
    Ok(fixture.bed.client.run(PYTHON, &args)?.ok()?.stdout.trim().to_owned())
}

/// The director's count of one reason.
fn dropped(fixture: &Fixture, reason: &str) -> Result<u64, LabError> {
    let answer = fixture.director.ask("drops")?;
    let rows = answer["drops"].as_array().into_iter().flatten();
    let row = rows.into_iter().find(|row| row["reason"] == reason);
    row.and_then(|row| row["packets"].as_u64())
        .ok_or_else(|| LabError::Wrong(format!("no reason `{reason}` in {answer}")))
}

/// Eight local ports to one real server: eight sessions at once, the ninth is refused and counted;
/// when one ends, its port serves the next.
#[test]
fn an_exhausted_pool_refuses_and_recovers() {
    let recipe = Recipe { pool_ports: "2000-2007", ..Recipe::default() };
    let setup = Setup { recipe, ..Setup::usual() };
    on(here!(an_exhausted_pool_refuses_and_recovers), setup, |fixture| {
        let mut held = hold_many(fixture, 8)?;
        let before = dropped(fixture, "local_ports_exhausted")?;
        expect(!one_more(fixture)?, || "a ninth session was let in".to_owned())?;
        let counted = dropped(fixture, "local_ports_exhausted")? - before;
        expect(counted > 0, || "the refusal was not counted".to_owned())?;
        held.clear();
        let answers = sluice_e2e::wait_until("room again", crate::fixture::SOON, || {
            Ok(one_more(fixture)?.then_some(()))
        });
        answers?;
        fixture.answers(3).map(drop)
    });
}

/// A full session table: as the pool, with room for eight sessions in all.
#[test]
fn a_full_session_table_refuses_and_recovers() {
    let recipe = Recipe { sessions: 8, ..Recipe::default() };
    let setup = Setup { recipe, ..Setup::usual() };
    on(here!(a_full_session_table_refuses_and_recovers), setup, |fixture| {
        let mut held = Vec::new();
        // The table may round its capacity up to its own grain; it may not grow without end.
        while held.len() < 200 && one_more(fixture)? {
            held.push(hold_one(fixture, held.len())?);
        }
        expect((7..200).contains(&held.len()), || format!("{} sessions", held.len()))?;
        let counted = dropped(fixture, "sessions_full")?;
        expect(counted > 0, || "the refusal was not counted".to_owned())?;
        held.clear();
        sluice_e2e::wait_until("room again", crate::fixture::SOON, || {
            Ok(one_more(fixture)?.then_some(()))
        })
    });
}

fn hold_one(fixture: &Fixture, number: usize) -> Result<Running, LabError> {
    let peer = sluice_e2e::director::program("sluice-peer")?;
    let server = fixture.server(LINES_PORT);
    let args = ["hold", &server, "60"];
    let name = format!("hold{number}");
    let mut held = fixture.bed.client.start(&name, &peer.to_string_lossy(), &args)?;
    held.wait_for_words("line 1", crate::fixture::SOON)?;
    Ok(held)
}

fn hold_many(fixture: &Fixture, count: usize) -> Result<Vec<Running>, LabError> {
    (0..count).map(|number| hold_one(fixture, number)).collect()
}

/// Whether one more short line session gets through.
fn one_more(fixture: &Fixture) -> Result<bool, LabError> {
    Ok(fixture.peer(&["hold", &fixture.server(LINES_PORT), "0"])?.status.success())
}
