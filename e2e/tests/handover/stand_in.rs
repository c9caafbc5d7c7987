//! A process that stands in while a service manager restarts the director: who may take over from
//! it, and who not. What systemd makes of it is in `systemd.rs`.

use rustix::process::Signal;
use sluice_e2e::error::expect;
use sluice_e2e::{Director, LabError, wait_until};

use super::{Held, Last, fails, is_alive, pid};
use crate::fixture::{Fixture, SOON, Setup, here, on, on_every_setup};

on_every_setup!(connections_go_on_over_a_stand_in);

/// Has a process stand in; gives its id, when the one before has ended.
fn stand_in(fixture: &mut Fixture) -> Result<u64, LabError> {
    let before = pid(&fixture.director)?;
    fixture.director.sluice(&["ha", "upgrade", "--stand-in"])?;
    let ended = || Ok((!fixture.director.runs()?).then_some(()));
    wait_until("the end of the process before", SOON, ended)?;
    let now = pid(&fixture.director)?;
    expect(now != before && is_alive(now), || format!("{before}, then {now}"))?;
    Ok(now)
}

/// Starts a director by itself, as a service manager does; it is not waited for.
fn start(fixture: &Fixture, config: &str) -> Result<Director, LabError> {
    Director::launch(&fixture.bed, config, &[])
}

/// Waits until a process takes over from another one.
fn takes_over(next: &mut Director, from: u64) -> Result<(), LabError> {
    wait_until("the next process to take over", SOON, || {
        expect(next.runs()?, || format!("it ended:\n{}", next.said(20)))?;
        Ok((pid(next).ok() == Some(u64::from(next.pid())) && !is_alive(from)).then_some(()))
    })
}

/// Connections go on over both handovers, and over starts that fail between.
fn connections_go_on_over_a_stand_in(fixture: &mut Fixture) -> Result<(), LabError> {
    let mut held = Held::begin(fixture, 10)?;
    let right = fixture.recipe.text(&fixture.bed);
    let between = stand_in(fixture)?;
    let _last = Stopped(between);
    fails(fixture, between, "only stands in")?;
    // A start that never gets as far as to ask for anything.
    let wrong = right.replace("[director]", "[director]\nno_such_key = 1");
    let mut next = start(fixture, &wrong)?;
    wait_until("its end", SOON, || Ok((!next.runs()?).then_some(())))?;
    // One that asks, and dies before it takes over.
    let mut next = start(fixture, &right)?;
    next.wait_for_words("takes over from the running director", SOON)?;
    next.kill()?;
    expect(pid(&fixture.director)? == between, || "another process runs".to_owned())?;
    let mut next = start(fixture, &right)?;
    takes_over(&mut next, between)?;
    let paced = held.end(fixture)?;
    println!("datagrams: {paced}");
    expect(paced["longest_run"].as_u64() < Some(100), || format!("{paced}"))?;
    let ha = next.ask("ha")?;
    expect(ha["upgrade"]["state"] == "done", || ha["upgrade"].to_string())?;
    fixture.answers(3)?;
    // It is a director as any other.
    fixture.director = next;
    let upgraded = super::upgrade(&fixture.director)?;
    let _last = Last(&fixture.director);
    expect(upgraded["from_pid"] == fixture.director.pid(), || upgraded.to_string())
}

/// Ends a process with the test, unless it has ended already.
struct Stopped(u64);

impl Drop for Stopped {
    fn drop(&mut self) {
        if is_alive(self.0) {
            super::end(self.0);
        }
    }
}

/// A process that stands in and is killed is a crash as any other: sessions go on from its files.
#[test]
fn one_that_is_killed_is_followed_as_any_other() {
    on(here!(one_that_is_killed_is_followed_as_any_other), Setup::usual(), |fixture| {
        let mut held = fixture.hold(&fixture.server(sluice_e2e::web::LINES_PORT), 10)?;
        let between = stand_in(fixture)?;
        kill(between)?;
        fixture.director = Director::start(&fixture.bed, &fixture.recipe.text(&fixture.bed))?;
        let log = fixture.director.log();
        expect(log.contains("sessions go on from before"), || format!("none went on:\n{log}"))?;
        let ended = held.wait(SOON)?;
        expect(ended.success(), || format!("the connection broke: {}", held.log_tail(3)))
    });
}

fn kill(pid: u64) -> Result<(), LabError> {
    let known = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let known = known.ok_or_else(|| LabError::Wrong("no process".to_owned()))?;
    rustix::process::kill_process(known, Signal::KILL)
        .map_err(|error| LabError::Wrong(error.to_string()))?;
    wait_until("its end", SOON, || Ok((!is_alive(pid)).then_some(())))
}

/// A director that is stopped takes a process along that it has started to follow it.
#[test]
fn a_stop_ends_an_upgrade_that_is_under_way() {
    on(here!(a_stop_ends_an_upgrade_that_is_under_way), Setup::usual(), |fixture| {
        fixture.director.signal(Signal::USR2);
        fixture.director.wait_for_words("takes over from the running director", SOON)?;
        let ended = fixture.director.stop()?;
        let log = fixture.director.log();
        expect(ended.success(), || format!("{ended}:\n{log}"))?;
        expect(log.contains("the director was stopped"), || log.clone())?;
        let link = fixture.bed.director.run("ip", &["-details", "link"])?.ok()?.stdout;
        expect(!link.contains("prog/xdp"), || format!("a program is left: {link}"))?;
        let none = pid(&fixture.director).is_err() && !fixture.director.socket().exists();
        expect(none, || "a director runs".to_owned())?;
        fixture.director = start(fixture, &fixture.recipe.text(&fixture.bed))?;
        fixture.director.wait_ready()?;
        fixture.bed.settle_twins()?;
        fixture.answers(3).map(drop)
    });
}

/// For `make test-all`.
mod faults {
    use super::*;

    /// A process that stands in for nobody stops, and leaves nothing.
    #[test]
    fn nobody_comes() {
        on(here!(nobody_comes), Setup::usual(), |fixture| {
            let between = stand_in(fixture)?;
            let _last = Stopped(between);
            fixture.answers(3)?;
            wait_until("its end", 4 * SOON, || Ok((!is_alive(between)).then_some(())))?;
            let log = fixture.director.log();
            expect(log.contains("none has come to take over"), || log)?;
            let left = std::fs::read_dir(fixture.bed.director.dir());
            let left = left.map_err(LabError::file("listing"))?.flatten();
            let sockets = left.filter(|it| it.file_name().to_string_lossy().contains(".sock"));
            let sockets: Vec<_> = sockets.map(|it| it.file_name()).collect();
            expect(sockets.is_empty(), || format!("{sockets:?} are left"))
        });
    }
}
