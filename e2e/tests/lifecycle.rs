//! Starting, idling, ending: what the director says to systemd, what it costs when nothing happens,
//! and what it leaves behind.

use std::cell::OnceCell;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::recipe::Recipe;
use sluice_e2e::{Bed, Director, Driver, LabError, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on, on_bed, on_every_setup};
use crate::handover::end;

/// An idle director uses less of a core. An optimised one stays below 5 % (`make figures`), one
/// that is not takes 5 to 6; a worker that does not sleep takes all.
const IDLE_PERCENT: f64 = 15.0;

on_every_setup!(sigterm_leaves_nothing, alone_idle_costs_little);

fn sigterm_leaves_nothing(fixture: &mut Fixture) -> Result<(), LabError> {
    fixture.answers(3)?;
    let ended = fixture.director.stop()?;
    expect(ended.success(), || format!("ended with {ended}"))?;
    nothing_left(fixture)
}

/// No XDP program on a port, no TAP twin, no control socket.
fn nothing_left(fixture: &Fixture) -> Result<(), LabError> {
    for port in fixture.bed.ports() {
        let shown = fixture.bed.director.ip(&["-d", "link", "show", "dev", port])?.stdout;
        expect(!shown.contains("xdp"), || format!("an XDP program is left: {shown}"))?;
        let twin = Bed::twin_of(port);
        expect(!fixture.bed.director.has_device(&twin), || format!("{twin} is left"))?;
    }
    let socket = fixture.director.socket();
    expect(!socket.exists(), || format!("{} is left", socket.display()))
}

fn alone_idle_costs_little(fixture: &mut Fixture) -> Result<(), LabError> {
    fixture.answers(3)?;
    let percent = fixture.director.cpu_percent(Duration::from_secs(6))?;
    expect(percent < IDLE_PERCENT, || format!("idle, it used {percent:.1} % of a core"))?;
    // It slept, and wakes at once: within curl's patience for all of them.
    fixture.answers(3).map(drop)
}

#[test]
fn killed_and_started_again_af_xdp() {
    on(here!(killed_and_started_again_af_xdp), Setup::usual(), killed_and_started_again);
}

#[test]
fn killed_and_started_again_af_packet() {
    let setup = Setup::new(Driver::AfPacket, 1);
    on(here!(killed_and_started_again_af_packet), setup, killed_and_started_again);
}

/// After SIGKILL its XDP program and control socket may be there still; the next one takes over.
fn killed_and_started_again(fixture: &mut Fixture) -> Result<(), LabError> {
    fixture.answers(3)?;
    fixture.director.kill()?;
    fixture.director = Director::start(&fixture.bed, &fixture.recipe.text(&fixture.bed))?;
    fixture.wait_for_answer(SOON)?;
    fixture.answers(6)?;
    fixture.director.stop()?;
    nothing_left(fixture)
}

/// The switch `NOTIFY_SOCKET` of sd_notify(3): ready once it serves, another process
/// once that has taken over, stopping when it ends.
#[test]
fn systemd_is_told() {
    let told = OnceCell::new();
    on_bed(
        here!(systemd_is_told),
        Setup::usual(),
        |bed, recipe| {
            let path = bed.lab.dir().join("notify.sock");
            let socket = UnixDatagram::bind(&path).map_err(LabError::file("binding"))?;
            let patience = socket.set_read_timeout(Some(SOON));
            patience.map_err(LabError::file("setting a time limit"))?;
            let environment = [("NOTIFY_SOCKET", &*path.to_string_lossy())];
            let director = Director::launch(bed, &recipe.text(bed), &environment)?;
            let _ = told.set(socket);
            Ok((director, recipe))
        },
        |fixture| {
            let socket = told.get().ok_or_else(|| LabError::Wrong("no socket".into()))?;
            wait_for_notice(socket, "READY=1")?;
            // Ready means ready: the first question is answered.
            fixture.director.ask("status")?;
            fixture.answers(1)?;
            fixture.director.sluice(&["ha", "upgrade"])?;
            let pid = fixture.director.ask("status")?["pid"].as_i64().unwrap_or(0);
            // The old process says whose service it is now, the new one goes on from there.
            wait_for_notice(socket, &format!("MAINPID={pid}"))?;
            wait_for_notice(socket, "READY=1")?;
            let pid = rustix::process::Pid::from_raw(pid as i32);
            let pid = pid.ok_or_else(|| LabError::Wrong("no process".into()))?;
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .map_err(|error| LabError::Wrong(error.to_string()))?;
            wait_for_notice(socket, "STOPPING=1")
        },
    );
}

/// The queue of its socket is full from before the start. A start, an upgrade and an end have a
/// notice or two each: each waits for a bounded time and is given up.
#[test]
fn a_systemd_that_reads_nothing_stops_nothing() {
    let full = OnceCell::new();
    on_bed(
        here!(a_systemd_that_reads_nothing_stops_nothing),
        Setup::usual(),
        |bed, recipe| {
            let path = bed.lab.dir().join("notify.sock");
            let socket = UnixDatagram::bind(&path).map_err(LabError::file("binding"))?;
            fill(&path)?;
            let _ = full.set(socket);
            let path = path.to_string_lossy();
            let environment = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "30000000")];
            let mut director = Director::launch(bed, &recipe.text(bed), &environment)?;
            director.wait_ready()?;
            Ok((director, recipe))
        },
        |fixture| {
            fixture.answers(1)?;
            let before = fixture.director.ask("status")?["pid"].clone();
            fixture.director.sluice(&["ha", "upgrade"])?;
            let after = fixture.director.ask("status")?["pid"].clone();
            expect(before != after, || format!("process {before} goes on"))?;
            fixture.answers(1)?;
            let said = fixture.director.said(400);
            let why = "cannot tell the service manager";
            expect(said.contains(why), || format!("the queue was not full: {said}"))?;
            end(after.as_u64().unwrap_or(0));
            nothing_left(fixture)
        },
    );
}

/// Its standard error is a pipe that is full from the start, as behind a log driver that stands
/// still. It does all it is for, and says afterwards how much was lost.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    on_bed(
        here!(a_log_that_nobody_reads_stops_nothing),
        Setup::usual(),
        |bed, recipe| {
            let script = bed.lab.dir().join("sluiced-unread");
            let text = format!(
                "#!/bin/sh\nmkfifo \"$0.log\" && exec 2<>\"$0.log\" || exit\n\
                 head -c {PIPE} /dev/zero >&2\nexec {} \"$@\"\n",
                program("sluiced")?.display()
            );
            write_script(&script, &text)?;
            let text = recipe.text(bed);
            let mut director = Director::launch_program(&bed.director, &script, &text, &[])?;
            director.wait_ready()?;
            Ok((director, recipe))
        },
        |fixture| {
            fixture.answers(3)?;
            let config = fixture.recipe.text(&fixture.bed);
            fixture.director.reload(&config)?;
            fixture.director.sluice(&["ha", "upgrade"])?;
            fixture.answers(3)?;
            let log = fixture.bed.lab.dir().join("sluiced-unread.log");
            let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            let log = OpenOptions::new().read(true).custom_flags(nonblocking).open(log);
            let mut log = log.map_err(LabError::file("opening the log"))?;
            log.read_exact(&mut [0; PIPE]).map_err(LabError::file("emptying the log"))?;
            let mut said = String::new();
            wait_until("the director to tell what was lost", SOON, || {
                let mut part = [0; 4096];
                // Nothing is there yet, or it has come.
                let len = log.read(&mut part).unwrap_or(0);
                said += &String::from_utf8_lossy(&part[..len]);
                Ok(said.contains("messages were lost: nobody read the log").then_some(()))
            })?;
            let last = fixture.director.ask("status")?["pid"].as_u64();
            end(last.unwrap_or(0));
            nothing_left(fixture)
        },
    );
}

/// Bytes that a pipe holds.
const PIPE: usize = 65_536;

/// Fills the queue of the socket at this path.
fn fill(path: &Path) -> Result<(), LabError> {
    let sender = UnixDatagram::unbound().map_err(LabError::file("making a socket"))?;
    sender.set_nonblocking(true).map_err(LabError::file("a socket that does not wait"))?;
    loop {
        match sender.send_to(b"WATCHDOG=1", path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(LabError::file("filling the queue")(error)),
        }
    }
}

fn wait_for_notice(socket: &UnixDatagram, wanted: &str) -> Result<(), LabError> {
    let mut buffer = [0; 4096];
    loop {
        let what = format!("waiting for {wanted}");
        let len = socket.recv(&mut buffer).map_err(LabError::file(what))?;
        if String::from_utf8_lossy(&buffer[..len]).lines().any(|line| line == wanted) {
            return Ok(());
        }
    }
}

#[test]
fn ordinary_pages_will_do() {
    let recipe = Recipe { huge_pages: "off", ..Recipe::default() };
    let setup = Setup { recipe, ..Setup::usual() };
    on(here!(ordinary_pages_will_do), setup, |fixture| {
        let before = huge_pages_free()?;
        fixture.answers(6)?;
        // Others on the machine may come and go; what is shown is that this one holds none.
        let status = format!("/proc/{}/status", fixture.director.pid());
        let text = std::fs::read_to_string(&status).map_err(LabError::file(status))?;
        let held = text.lines().find(|line| line.starts_with("HugetlbPages:"));
        let none = held.is_some_and(|line| line.split_whitespace().nth(1) == Some("0"));
        expect(none, || format!("it holds huge pages: {held:?}, free before {before}"))
    });
}

/// Huge pages are free, and a limit that is not seen in that forbids them, as in a container. It
/// starts with ordinary ones, and so does the one that follows it.
#[test]
fn huge_pages_that_are_refused_are_done_without() {
    let name = here!(huge_pages_that_are_refused_are_done_without);
    on_bed(
        name,
        Setup::usual(),
        |bed, recipe| {
            let script = bed.lab.dir().join("sluiced-limited");
            let sluiced = program("sluiced")?.display().to_string();
            let run = format!("{}\nexec {sluiced} \"$@\"\n", without_huge_pages(bed));
            write_script(&script, &run)?;
            let text = recipe.text(bed);
            let mut director = Director::launch_program(&bed.director, &script, &text, &[])?;
            director.wait_ready()?;
            Ok((director, recipe))
        },
        |fixture| {
            let before = fixture.director.ask("status")?;
            expect(before["huge_pages"] == false, || format!("it has huge pages: {before}"))?;
            let said = fixture.director.said(400);
            let why = "the kernel gave too few huge pages";
            expect(said.contains(why), || format!("none were free: {said}"))?;
            fixture.answers(3)?;
            fixture.director.sluice(&["ha", "upgrade"])?;
            let after = fixture.director.ask("status")?;
            expect(before["pid"] != after["pid"], || format!("{before} goes on"))?;
            expect(after["huge_pages"] == false, || format!("it has huge pages: {after}"))?;
            fixture.answers(3)?;
            end(after["pid"].as_u64().unwrap_or(0));
            nothing_left(fixture)?;
            // The group outlives the mount.
            let leave = "echo $$ >$place/cgroup.procs\nrmdir $place/$group";
            let leave = format!("{}\n{leave}", without_huge_pages(&fixture.bed));
            fixture.bed.director.run("sh", &["-c", &leave])?.ok().map(drop)
        },
    );
}

/// Commands of a shell after which the kernel gives it no huge pages: it is in a group of the
/// hugetlb controller, which it mounts in a mount namespace of its own (`ip netns exec` makes one).
fn without_huge_pages(bed: &Bed) -> String {
    format!(
        "#!/bin/sh
set -e
place={} group=sluice-{}
mkdir -p $place
if mount -t cgroup -o hugetlb none $place 2>/dev/null
then limit=limit_in_bytes
else
    mount -t cgroup2 none $place
    echo +hugetlb >$place/cgroup.subtree_control
    limit=max
fi
mkdir -p $place/$group
echo 0 >$place/$group/hugetlb.2MB.$limit
echo $$ >$place/$group/cgroup.procs",
        bed.lab.dir().join("cgroup").display(),
        std::process::id()
    )
}

fn write_script(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(LabError::file("writing a script"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
        .map_err(LabError::file("making a script executable"))
}

/// Without the right to open raw sockets it says which right it is, and ends.
#[test]
fn a_missing_capability_is_named() {
    on(here!(a_missing_capability_is_named), Setup::usual(), |fixture| {
        fixture.director.stop()?;
        let sluiced = program("sluiced")?;
        let file = fixture.director.config().to_string_lossy().into_owned();
        let args = ["--bounding-set", "-net_raw", &sluiced.to_string_lossy(), "--config", &file];
        let ran = fixture.bed.director.run("setpriv", &args)?;
        let said = format!("{}{}", ran.stdout, ran.stderr);
        expect(!ran.status.success(), || format!("it started: {said}"))?;
        expect(said.contains("CAP_NET_RAW"), || format!("no word of CAP_NET_RAW in: {said}"))?;
        nothing_left(fixture)
    });
}

fn huge_pages_free() -> Result<String, LabError> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(LabError::file("meminfo"))?;
    Ok(text.lines().find(|line| line.starts_with("HugePages_Free")).unwrap_or_default().to_owned())
}

#[test]
fn a_file_is_checked_without_starting() {
    on(here!(a_file_is_checked_without_starting), Setup::usual(), |fixture| {
        let sluiced = program("sluiced")?;
        let check = |text: &str| {
            let file = fixture.bed.lab.dir().join("checked.toml");
            std::fs::write(&file, text).map_err(LabError::file("writing a file"))?;
            let path = file.to_string_lossy();
            fixture.bed.director.run(&sluiced.to_string_lossy(), &["--check", &path])
        };
        let good = fixture.recipe.text(&fixture.bed);
        check(&good)?.ok()?;
        let wrong = good.replacen("port = 80\n", "port = 80000\n", 1);
        let line = 1 + wrong.lines().position(|line| line.contains("80000")).unwrap_or_default();
        let ran = check(&wrong)?;
        let said = format!("{}{}", ran.stdout, ran.stderr);
        expect(!ran.status.success(), || format!("accepted: {said}"))?;
        for part in ["checked.toml", "port", "65535", &line.to_string()] {
            expect(said.contains(part), || format!("no word of `{part}` in: {said}"))?;
        }
        Ok(())
    });
}
