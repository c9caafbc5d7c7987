//! Programs that do not take over, in the place of the director's own: missing, ending, silent, or
//! failing when the running director has let go of its ports already. It goes on each time, and no
//! connection notices.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::{Bed, Director, LabError, wait_until};

use super::{Held, Last, fails, pid, upgrade};
use crate::fixture::{Fixture, PYTHON, SOON, Setup, here, on_bed, script};

/// Where the director's program is in these tests: a copy, which can be replaced.
fn place(bed: &Bed) -> PathBuf {
    bed.director.dir().join("sluiced")
}

/// Puts the true program in its place, as a package does: a new file by the old one's name.
fn put_true(bed: &Bed) -> Result<(), LabError> {
    let (new, place) = (place(bed).with_extension("new"), place(bed));
    std::fs::copy(program("sluiced")?, &new).map_err(LabError::file("copying the program"))?;
    std::fs::rename(new, place).map_err(LabError::file("placing the program"))
}

/// Puts one in its place that does not take over.
fn put(bed: &Bed, what: &str) -> Result<(), LabError> {
    let (new, place) = (place(bed).with_extension("new"), place(bed));
    let text = format!("#!/bin/sh\nexec {PYTHON} {} {what} \"$@\"\n", script("successor.py"));
    let mode = Permissions::from_mode(0o755);
    std::fs::write(&new, text)
        .and_then(|()| std::fs::set_permissions(&new, mode))
        .and_then(|()| std::fs::rename(&new, place))
        .map_err(LabError::file("placing a program"))
}

fn on_copy(name: &str, setup: Setup, test: impl FnOnce(&mut Fixture) -> Result<(), LabError>) {
    on_bed(
        name,
        setup,
        |bed, recipe| {
            put_true(bed)?;
            let mut director =
                Director::launch_program(&bed.director, &place(bed), &recipe.text(bed), &[])?;
            director.wait_ready()?;
            bed.settle_twins()?;
            Ok((director, recipe))
        },
        test,
    );
}

#[test]
fn programs_that_do_not_take_over() {
    let name = here!(programs_that_do_not_take_over);
    on_copy(name, Setup::usual(), |fixture| {
        let mut held = Held::begin(fixture, 5)?;
        let before = pid(&fixture.director)?;
        for (what, why) in [("ends", "ended"), ("nonsense", "cannot be understood")] {
            put(&fixture.bed, what)?;
            fails(fixture, before, why)?;
        }
        std::fs::remove_file(place(&fixture.bed)).map_err(LabError::file("removing it"))?;
        fails(fixture, before, "No such file")?;
        std::fs::create_dir(place(&fixture.bed)).map_err(LabError::file("a directory"))?;
        fails(fixture, before, "no program")?;
        std::fs::remove_dir(place(&fixture.bed)).map_err(LabError::file("removing it"))?;
        put_true(&fixture.bed)?;
        upgrade(&fixture.director)?;
        let _last = Last(&fixture.director);
        unnoticed(&held.end(fixture)?)
    });
}

/// Of a datagram each millisecond so many were lost in a row as a busy machine may lose.
fn unnoticed(paced: &Value) -> Result<(), LabError> {
    println!("datagrams: {paced}");
    expect(paced["longest_run"].as_u64() < Some(100), || format!("datagrams were lost: {paced}"))
}

/// For `make test-all`.
mod faults {
    use super::*;

    /// It is waited for as long as one that takes its time, and traffic goes on.
    #[test]
    fn a_program_that_says_nothing() {
        on_copy(here!(a_program_that_says_nothing), Setup::usual(), |fixture| {
            put(&fixture.bed, "silent")?;
            let before = pid(&fixture.director)?;
            fixture.director.signal(rustix::process::Signal::USR2);
            fixture.director.wait_for_words("a new process is started", SOON)?;
            let mut held = Held::begin(fixture, 5)?;
            unnoticed(&held.end(fixture)?)?;
            fixture.director.wait_for_words("was not ready within 30 s", 2 * SOON)?;
            expect(pid(&fixture.director)? == before, || "another one runs".to_owned())?;
            fixture.answers(3).map(drop)
        });
    }
}

/// Makes a test of each way to fail late, on each kind of ports; and the others once.
macro_rules! programs {
    ($($module:ident: $driver:ident, $workers:literal;)+) => {
        $(
            mod $module {
                use crate::fixture::{Setup, here};
                use sluice_e2e::Driver;

                #[test]
                fn late_failures_are_survived() {
                    let setup = Setup::new(Driver::$driver, $workers);
                    super::on_copy(here!(late_failures_are_survived), setup, super::late);
                }
            }
        )+
    };
}

programs! {
    af_xdp_one_worker: AfXdp, 1;
    af_xdp_two_workers: AfXdp, 2;
    af_packet_one_worker: AfPacket, 1;
    af_packet_two_workers: AfPacket, 2;
}

/// The new process dies, says that it fails, or hangs after the running one has let go of its
/// ports: that one takes everything back.
fn late(fixture: &mut Fixture) -> Result<(), LabError> {
    let mut held = Held::begin(fixture, 10)?;
    let before = pid(&fixture.director)?;
    let mut longest_ms = 0;
    for (what, why) in [
        ("dies-late", "did not take over"),
        ("fails-late", "told to fail"),
        ("hangs-late", "did not take over"),
    ] {
        put(&fixture.bed, what)?;
        let began = Instant::now();
        fails(fixture, before, why)?;
        println!("{what}: the director goes on after {} ms", began.elapsed().as_millis());
        wait_for_ports(fixture)?;
        fixture.answers(1)?;
        longest_ms = longest_ms.max(began.elapsed().as_millis());
    }
    put_true(&fixture.bed)?;
    upgrade(&fixture.director)?;
    let _last = Last(&fixture.director);
    expect(pid(&fixture.director)? != before, || "the true one did not take over".to_owned())?;
    let paced = held.end(fixture)?;
    println!("datagrams: {paced}");
    // One each millisecond: none is lost but while the ports are let go. How long that is, the
    // machine decides; one that hangs is given three seconds.
    let run_ms = paced["longest_run"].as_u64().map_or(u128::MAX, u128::from);
    expect(run_ms <= longest_ms, || format!("of {longest_ms} ms datagrams were lost: {paced}"))?;
    fixture.answers(3).map(drop)
}

fn wait_for_ports(fixture: &Fixture) -> Result<(), LabError> {
    wait_until("all ports to be up", SOON, || {
        let said = fixture.director.ask("ports")?;
        let ports = said["ports"].as_array().cloned().unwrap_or_default();
        let up = |port: &Value| port["state"] == "up";
        Ok((!ports.is_empty() && ports.iter().all(up)).then_some(()))
    })
}
