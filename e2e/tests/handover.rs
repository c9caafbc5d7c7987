//! What an upgrade costs: a new process takes over while connections and datagrams go on.
//!
//! Established connections, a download and a steady flow of numbered datagrams are held over the
//! change; then each must go on. Resets are counted by the kernels of both ends, the gap by the
//! kernel that receives the answers. A new process that does not come up must cost nothing.

use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::load::download_sha256;
use sluice_e2e::web::{ECHO_PORT, LINES_PORT, make_blob_of};
use sluice_e2e::{Director, Family, LabError, Netns, Running, wait_until};

use crate::fixture::{Fixture, PYTHON, SOON, Setup, here, on, on_every_setup, script};
use crate::restart::resets_of;

#[path = "handover/everything.rs"]
mod everything;
#[path = "handover/leaks.rs"]
mod leaks;
#[path = "handover/programs.rs"]
mod programs;
#[path = "handover/stand_in.rs"]
mod stand_in;
#[path = "handover/told.rs"]
mod told;
#[path = "handover/virtual_links.rs"]
mod virtual_links;

on_every_setup!(connections_go_on_over_two_upgrades);

/// Seconds of datagrams, over two upgrades.
const PACED_S: u32 = 12;
/// Connections are held for so much longer.
const LONGER_S: u32 = 3;
/// Connections that are held.
const CONNECTIONS: usize = 5;
const BLOB: u64 = 200_000_000;
/// The most that a machine with other work may take; what it takes is printed.
const LONGEST_GAP_MS: f64 = 1000.0;

/// Traffic over a change of the director.
struct Held {
    lines: Vec<Running>,
    paced: Paced,
    resets: [(u64, u64); 2],
}

impl Held {
    /// Begins datagrams for so many seconds, and connections.
    fn begin(fixture: &Fixture, seconds: u32) -> Result<Self, LabError> {
        let (server, held_s) = (fixture.server(LINES_PORT), seconds + LONGER_S);
        let lines =
            (0..CONNECTIONS).map(|_| fixture.hold(&server, held_s)).collect::<Result<_, _>>()?;
        let paced = paced(&fixture.bed.client, fixture.bed.vip(), seconds, &["1"])?;
        Ok(Self { lines, paced, resets: resets(fixture)? })
    }

    /// Everything has gone on, whatever else was reset; gives what became of the datagrams.
    fn go_on(&mut self) -> Result<Value, LabError> {
        let paced = self.paced.end()?;
        for one in &mut self.lines {
            let ended = one.wait(SOON)?;
            expect(ended.success(), || format!("a connection broke: {}", one.log_tail(3)))?;
        }
        Ok(paced)
    }

    /// Everything has gone on; gives what became of the datagrams.
    fn end(&mut self, fixture: &Fixture) -> Result<Value, LabError> {
        let paced = self.go_on()?;
        let (before, now) = (self.resets, resets(fixture)?);
        expect(now == before, || format!("resets at client and real server: {before:?}, {now:?}"))?;
        Ok(paced)
    }
}

/// Numbered datagrams to the echo and back, one after the other.
pub struct Paced(Running);

/// Begins them: so many seconds, then the interval in ms and the size.
pub fn paced(client: &Netns, vip: &str, seconds: u32, more: &[&str]) -> Result<Paced, LabError> {
    let (path, port, seconds) = (script("paced.py"), ECHO_PORT.to_string(), seconds.to_string());
    let args = [&[&*path, "0", vip, &port, &seconds][..], more].concat();
    let name = format!("paced{}", Family::of(vip).bits());
    let mut running = client.start(&name, PYTHON, &args)?;
    running.wait_for_words("open", SOON)?;
    Ok(Paced(running))
}

impl Paced {
    /// What became of them.
    pub fn end(&mut self) -> Result<Value, LabError> {
        self.0.wait(SOON)?;
        let said = self.0.log_tail(1);
        serde_json::from_str(&said)
            .map_err(|_| LabError::Unreadable { what: "paced.py".to_owned(), text: said })
    }
}

fn resets(fixture: &Fixture) -> Result<[(u64, u64); 2], LabError> {
    Ok([resets_of(&fixture.bed.client)?, resets_of(&fixture.bed.reals[0])?])
}

/// `sluice ha upgrade`, which must work; gives what it says.
fn upgrade(director: &Director) -> Result<Value, LabError> {
    let text = director.sluice(&["ha", "upgrade", "--json"])?;
    serde_json::from_str(&text)
        .map_err(|_| LabError::Unreadable { what: "`sluice ha upgrade`".to_owned(), text })
}

/// Whether a process is there, or a thread of it. One that has ended and was not waited for yet is
/// not.
fn is_alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    threads > 1
        || stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn pid(director: &Director) -> Result<u64, LabError> {
    Ok(director.ask("status")?["pid"].as_u64().unwrap_or(0))
}

/// A director whose process is another one than the test has started ends with the test.
struct Last<'d>(&'d Director);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        if let Ok(pid) = pid(self.0) {
            end(pid);
        }
    }
}

/// Ends a director that the test has not started itself.
pub fn end(pid: u64) {
    let known = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(known) = known {
        let _ = rustix::process::kill_process(known, rustix::process::Signal::TERM);
    }
    let _ = wait_until("the end of the last director", SOON, || Ok((!is_alive(pid)).then_some(())));
}

fn connections_go_on_over_two_upgrades(fixture: &mut Fixture) -> Result<(), LabError> {
    let sum = make_blob_of(&fixture.bed.reals[0], BLOB)?;
    let mut held = Held::begin(fixture, PACED_S)?;
    let url = format!("{}/blob", fixture.url().trim_end_matches('/'));
    let client = fixture.bed.client.clone();
    let download = std::thread::spawn(move || download_sha256(&client, &url, "20M"));
    let fixture = &*fixture;
    let _last = Last(&fixture.director);
    let mut before = pid(&fixture.director)?;
    for round in 1..=2 {
        let said = upgrade(&fixture.director)?;
        let gap_ms = said["gap_ms"].as_f64().unwrap_or(f64::MAX);
        println!("upgrade {round}: {gap_ms:.1} ms by the director");
        expect(gap_ms < LONGEST_GAP_MS, || format!("{said}"))?;
        let now = pid(&fixture.director)?;
        expect(said["pid"] == now && now != before, || format!("{before}, now {now}: {said}"))?;
        wait_until(
            "the end of the process before",
            SOON,
            || Ok((!is_alive(before)).then_some(())),
        )?;
        before = now;
    }
    let paced = held.end(fixture)?;
    println!("datagrams: {paced}");

    let run_ms = paced["longest_run"].as_f64().unwrap_or(f64::MAX);
    expect(run_ms < LONGEST_GAP_MS, || format!("datagrams were lost: {paced}"))?;
    let got = download.join().unwrap_or_else(|_| Err(LabError::Wrong("panicked".into())))?;
    expect(got == sum, || format!("sent {sum}, got {got}"))?;
    let ha = fixture.director.ask("ha")?;
    expect(ha["upgrade"]["state"] == "done", || format!("{ha}"))?;
    let uptime = fixture.director.ask("status")?["uptime_s"].as_f64().unwrap_or(f64::MAX);
    expect(uptime < 60.0, || format!("it runs for {uptime} s"))?;
    fixture.answers(3).map(drop)
}

/// `sluice ha upgrade`, which must fail for a reason: the same process goes on.
fn fails(fixture: &Fixture, before: u64, why: &str) -> Result<(), LabError> {
    let said = fixture.director.sluice(&["ha", "upgrade"]);
    let text = said.map_or_else(|error| error.to_string(), |text| format!("works: {text}"));
    expect(text.contains("goes on") && text.contains(why), || text)?;
    expect(pid(&fixture.director)? == before, || "another process runs".to_owned())
}

/// A new process that cannot come up, for several reasons: nothing changes.
#[test]
fn a_new_process_that_fails_leaves_the_running_one() {
    on(here!(a_new_process_that_fails_leaves_the_running_one), Setup::usual(), |fixture| {
        let mut held = Held::begin(fixture, PACED_S)?;
        let (right, before) = (fixture.recipe.text(&fixture.bed), pid(&fixture.director)?);
        let write = |text: &str| {
            std::fs::write(fixture.director.config(), text).map_err(LabError::file("writing"))
        };
        write(&right.replace("[director]", "[director]\nno_such_key = 1"))?;
        fails(fixture, before, "no_such_key")?;
        // More sessions than there is room for.
        write(&right.replace("sessions = 100000", "sessions = 900000000"))?;
        fails(fixture, before, "")?;
        write(&right)?;
        let kept = Director::kept_in(fixture.bed.director.dir());
        let second = kept
            .with_file_name(format!("{}+", kept.file_name().unwrap_or_default().to_string_lossy()));
        expect(!second.exists(), || format!("{} is left", second.display()))?;
        let paced = held.end(fixture)?;
        println!("datagrams: {paced}");
        expect(paced["longest_run"].as_u64() < Some(100), || format!("{paced}"))?;
        let events = fixture.director.sluice(&["events", "--kind", "ha"])?;
        expect(events.contains("the upgrade failed"), || events)
    });
}

/// By a signal; a new process that is killed before it takes over changes nothing, and the next
/// one takes over. After that `kill -9` and a start are what they were.
#[test]
fn a_new_process_may_be_killed_and_so_may_the_one_after() {
    on(here!(a_new_process_may_be_killed_and_so_may_the_one_after), Setup::usual(), |fixture| {
        let mut held = fixture.hold(&fixture.server(LINES_PORT), 20)?;
        let first = pid(&fixture.director)?;
        let text = fixture.director.sluice(&["ha", "--json"])?;
        expect(!text.contains("\"upgrade\""), || text)?;
        fixture.director.signal(rustix::process::Signal::USR2);
        let child = wait_until("the new process", SOON, || {
            let path = format!("/proc/{first}/task/{first}/children");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let mut all = text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
            let is_director = |pid: &i32| {
                std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|it| it == b"sluiced\n")
            };
            Ok(all.find(is_director))
        })?;
        let child = rustix::process::Pid::from_raw(child);
        let child = child.ok_or_else(|| LabError::Wrong("no process".to_owned()))?;
        rustix::process::kill_process(child, rustix::process::Signal::KILL)
            .map_err(|error| LabError::Wrong(error.to_string()))?;
        fixture.director.wait_for_words("this one goes on", SOON)?;
        expect(pid(&fixture.director)? == first, || "another one runs".to_owned())?;
        upgrade(&fixture.director)?;
        let second = pid(&fixture.director)?;
        expect(second != first, || "none has taken over".to_owned())?;
        let end = rustix::process::Pid::from_raw(second as i32);
        let end = end.ok_or_else(|| LabError::Wrong("no process".to_owned()))?;
        rustix::process::kill_process(end, rustix::process::Signal::KILL)
            .map_err(|error| LabError::Wrong(error.to_string()))?;
        wait_until("its end", SOON, || Ok((!is_alive(second)).then_some(())))?;
        fixture.director = Director::start(&fixture.bed, &fixture.recipe.text(&fixture.bed))?;
        let log = fixture.director.log();
        expect(log.contains("sessions go on from before"), || format!("none went on:\n{log}"))?;
        let ended = held.wait(SOON)?;
        expect(ended.success(), || format!("the connection broke: {}", held.log_tail(3)))?;
        fixture.answers(3).map(drop)
    });
}

/// What was changed by the API is in force after an upgrade, and can be changed again.
#[test]
fn changes_made_at_run_time_last_over_an_upgrade() {
    on(here!(changes_made_at_run_time_last_over_an_upgrade), Setup::usual(), |fixture| {
        let fixture = &*fixture;
        let _last = Last(&fixture.director);
        fixture.director.sluice(&["real", "drain", "web", "192.0.2.12"])?;
        let epoch = fixture.director.ask("status")?["config_epoch"].clone();
        upgrade(&fixture.director)?;
        let is = |word: &str| {
            let shown = fixture.director.sluice(&["real", "show", "web"])?;
            let line = shown.lines().find(|line| line.starts_with("192.0.2.12")).unwrap_or("");
            expect(line.contains(word), || shown.clone())
        };
        let status = fixture.director.ask("status")?;
        expect(status["config_epoch"] == epoch && status["durable"] == true, || {
            format!("epoch {epoch}, now {status}")
        })?;
        is("drain")?;
        fixture.director.sluice(&["real", "enable", "web", "192.0.2.12"])?;
        upgrade(&fixture.director)?;
        is("up")?;
        fixture.answers(3).map(drop)
    });
}
