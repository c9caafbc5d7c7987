//! govpp's gomemif as the peer: `peers/gomemif`, one process at each link. It is woken by the
//! rings' eventfds, and so are we.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_e2e::capture::judge_and;
use sluice_e2e::error::expect;
use sluice_e2e::process::run;
use sluice_e2e::{LabError, Running, wait_until};

use super::ground::{Ground, PORT, ROUTER_MAC, Role, Shape, VIP, judge_translated, on};
use crate::fixture::{SOON, here};

/// Fewer than its rings have descriptors.
const FRAMES: u32 = 500;

#[test]
fn gomemif_as_client() {
    exchange(here!(gomemif_as_client), Role::Server, 1);
}

/// Its one ring is for both of the director's queues.
#[test]
fn gomemif_as_client_of_two_workers() {
    exchange(here!(gomemif_as_client_of_two_workers), Role::Server, 2);
}

#[test]
fn gomemif_as_server() {
    exchange(here!(gomemif_as_server), Role::Client, 1);
}

#[test]
fn gomemif_as_client_in_ip_mode() {
    in_ip_mode(here!(gomemif_as_client_in_ip_mode), Role::Server);
}

#[test]
fn gomemif_as_server_in_ip_mode() {
    in_ip_mode(here!(gomemif_as_server_in_ip_mode), Role::Client);
}

/// Packets are carried without headers, and the kernel's questions answered for the peer.
fn in_ip_mode(name: &str, director: Role) {
    let Some(program) = built(name) else { return };
    let shape = Shape { secret: false, sockets: true, ip: true, ..Shape::of(director) };
    on(name, shape, |ground| {
        goes_and_comes(ground, &program)?;
        // Nobody answers, but where it would be is known.
        let stranger = "192.0.2.99";
        ground.space.run("ping", &["-c", "1", "-W", "1", stranger])?;
        wait_until("the kernel to know where an address is", SOON, || {
            let known = ground.space.run("ip", &["neighbour", "show", stranger])?.ok()?.stdout;
            Ok(known.contains("lladdr").then_some(()))
        })
    });
}

/// As a client it shows no secret, so none is asked for.
fn exchange(name: &str, director: Role, workers: usize) {
    let Some(program) = built(name) else { return };
    let shape = Shape { secret: false, sockets: true, workers, ..Shape::of(director) };
    on(name, shape, |ground| (0..3).try_for_each(|_| goes_and_comes(ground, &program)));
}

/// Builds the program; `None`, with the reason, where that cannot be done and need not.
fn built(name: &str) -> Option<PathBuf> {
    let needed = std::env::var("CI").as_deref() == Ok("true");
    let why = match build() {
        Ok(program) => return Some(program),
        Err(error) => error.to_string(),
    };
    assert!(!needed, "{name}: {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
    None
}

/// What it needs is fetched and kept beside it, and nothing is written elsewhere.
fn build() -> Result<PathBuf, LabError> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = here.join("../target/gomemif");
    let program = target.join("gomemif");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut go = Command::new("timeout");
    go.args(["300", "go", "build", "-o"]).arg(&program).arg(".");
    go.current_dir(here.join("peers/gomemif"));
    go.env("PATH", format!("{path}:/usr/local/go/bin"));
    go.envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local"), ("GOWORK", "off")]);
    go.env("GOFLAGS", "-mod=readonly -modcacherw -trimpath");
    go.env("GOCACHE", target.join("cache")).env("GOMODCACHE", target.join("modules"));
    run(&mut go)?.ok()?;
    Ok(program)
}

/// Datagrams go from the peer at `front` to the one at `back`, and their answers return.
fn goes_and_comes(ground: &mut Ground, program: &Path) -> Result<(), LabError> {
    let ways = [("front", "rx"), ("back", "tx"), ("back", "rx"), ("front", "tx")];
    let counts = |ground: &Ground| {
        ways.iter().map(|(port, way)| ground.count(port, way)).collect::<Result<Vec<_>, _>>()
    };
    let before = counts(ground)?;
    let frames = ground.lab.dir().join("frames");
    write(&frames, &to_hex(&ground.flows(FRAMES)?)?)?;
    let mut back = start(ground, program, 1, &["-echo"])?;
    back.wait_for_words("up", SOON)?;
    let mut front = start(ground, program, 0, &["-frames", &frames.display().to_string()])?;
    front.wait_for_words("sent", SOON)?;
    let all = wait_until("all answers", SOON, || {
        let came = front.log().matches("frame ").count();
        Ok((came >= FRAMES as usize).then_some(()))
    });
    let many = u64::from(FRAMES);
    let after = counts(ground)?;
    let added: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let said = || format!("{added:?} packets; {}; {}", front.log_tail(3), back.log_tail(3));
    all.map_err(|error| LabError::Wrong(format!("{error}: {}", said())))?;
    expect(added.iter().all(|count| *count == many), said)?;
    let (gone, answers) = (to_pcap(ground, &back, "gone")?, to_pcap(ground, &front, "answers")?);
    let judged = judge_translated(ground, &gone)?;
    expect(judged == many, || format!("{judged} of {many} came to the real servers"))?;
    judge_answers(ground, &answers)?;
    for peer in [&mut front, &mut back] {
        peer.kill()?;
    }
    ground.wait_links(&["front", "back"], false)
}

fn judge_answers(ground: &Ground, file: &Path) -> Result<(), LabError> {
    let mac = ground.space.mac("tfront")?;
    let link = format!("eth.src == {mac} && eth.dst == {ROUTER_MAC}");
    let link = if ground.shape.ip { "eth" } else { &*link };
    let right = format!(
        "{link} && ip.src == {VIP} && udp.srcport == {PORT} \
         && ip.dst == 203.0.113.0/24 && udp.dstport >= 1024 && udp.length == 26"
    );
    let (verdict, [all, right]) = judge_and(file, ["frame", &right])?;
    let many = u64::from(FRAMES);
    expect(verdict.bad == 0 && verdict.good_udp == many && (all, right) == (many, many), || {
        format!("of {all} answers {right} have the right addresses: {verdict:?}")
    })
}

fn start(ground: &Ground, program: &Path, link: usize, more: &[&str]) -> Result<Running, LabError> {
    let role = if ground.shape.director == Role::Server { "client" } else { "server" };
    let (socket, id) = (ground.socket(link), link.to_string());
    let mut args = vec!["-role", role, "-socket", &*socket, "-id", &*id];
    args.extend(more);
    args.extend(ground.shape.ip.then_some("-ip"));
    ground.space.start(&format!("gomemif{link}"), &program.to_string_lossy(), &args)
}

fn write(file: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(file, text).map_err(LabError::file(file.display().to_string()))
}

/// The frames of a capture of this machine's byte order, a line in hexadecimal each.
fn to_hex(file: &Path) -> Result<String, LabError> {
    let bytes = std::fs::read(file).map_err(LabError::file(file.display().to_string()))?;
    let (mut text, mut rest) = (String::new(), bytes.get(24..).unwrap_or_default());
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let length = header[8..12].iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte));
        let Some((frame, after)) = behind.split_at_checked(length) else { break };
        text.extend(frame.iter().map(|byte| format!("{byte:02x}")));
        text.push('\n');
        rest = after;
    }
    Ok(text)
}

/// The frames that a peer said it received, as a capture.
fn to_pcap(ground: &Ground, peer: &Running, name: &str) -> Result<PathBuf, LabError> {
    let folder = ground.lab.dir();
    let (text, file) = (folder.join(format!("{name}.txt")), folder.join(format!("{name}.pcap")));
    let log = peer.log();
    let frames = log.lines().filter_map(|line| line.strip_prefix("frame "));
    let spaced = |frame: &str| {
        let bytes = frame.as_bytes().chunks(2).map(|two| String::from_utf8_lossy(two).into_owned());
        format!("000000 {}\n", bytes.collect::<Vec<_>>().join(" "))
    };
    write(&text, &frames.map(spaced).collect::<String>())?;
    let paths = [&text, &file].map(|path| path.display().to_string());
    ground.space.run("text2pcap", &["-q", &paths[0], &paths[1]])?.ok()?;
    Ok(file)
}
