//! The steps of `make demo` and of its figures.
//!
//! Direct kernel routing through the same namespaces comes first, before the director runs: its
//! XDP program on the interfaces would otherwise be part of what it is compared with.

pub mod networks;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::bed::{Bed, Driver, REALS, Shape};
use crate::director::{Director, program};
use crate::error::{LabError, expect};
use crate::load::{self, Iperf3, Until, Wrk, curl, human_rate, median};
use crate::sweep;
use crate::web::ECHO_PORT;

/// How the labs of the demo are called.
pub const PREFIX: &str = "sl-demo";
const CONFIG: &str = include_str!("../../demo/sluice.toml");
const CONNECTIONS: u32 = 32;
const CURLS: usize = 6;
const ECHOES: u32 = 30;

/// What the command line asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Leave it running.
    pub keep: bool,
    /// Runs for the medians.
    pub runs: u32,
    /// Seconds of each load.
    pub seconds: u32,
    /// How long idle processor time is measured.
    pub idle_span: Duration,
}

/// What one path carried.
#[derive(Debug, Default)]
struct Load {
    wrk: Wrk,
    tcp: Iperf3,
}

/// Ends every demo that was left running.
pub fn stop() {
    let names = sweep::kept(PREFIX);
    if names.is_empty() {
        println!("No demo is running.");
    }
    for name in names {
        sweep::remove(&name);
        println!("Stopped and removed {name}.");
    }
    sweep::residue(PREFIX);
}

/// The namespaces by themselves: direct kernel routing, no director.
///
/// # Errors
/// When something fails.
pub fn direct_only(options: &Options) -> Result<(), LabError> {
    let bed = bed()?;
    bed.route_directly()?;
    for index in 0..REALS {
        let url = format!("http://{}/", Bed::real_address(index));
        println!("curl {url}  {}", curl(&bed.client, &url)?);
    }
    print_load("direct", &direct_load(&bed, options.seconds)?);
    Ok(())
}

/// The demo.
///
/// # Errors
/// When something fails or an answer is wrong.
pub fn show(options: &Options) -> Result<(), LabError> {
    println!("Five machines (network namespaces) and a switch, joined by veth pairs:\n");
    CONFIG.lines().skip(2).take(3).for_each(|line| println!("{}", line.trim_start_matches('#')));
    let mut bed = bed()?;
    step("Direct, by the kernel's routing: client → director → rs1");
    let direct = direct_load(&bed, options.seconds)?;
    print_load("direct", &direct);

    step("The director starts");
    let mut director = start(&bed)?;
    println!("{}", director.sluice(&["status"])?.trim_end());
    let answers = show_curl(&bed)?;
    show_echo(&bed)?;
    step("Load through the director");
    let through = load_by(&bed, bed.vip(), &format!("http://{}/", bed.vip()), options.seconds)?;
    print_load("director", &through);
    let udp = load::iperf3_udp(&bed.client, bed.vip(), options.seconds, "100M")?;
    println!(
        "  iperf3 UDP   {} received, {:.2} % lost",
        human_rate(udp.bits_per_s),
        udp.lost_percent
    );
    print_comparison(&direct, &through);
    let counted = show_counters(&director, &through, &udp);
    let verdict = check(&answers, &through, &udp).and(counted);
    if options.keep && verdict.is_ok() {
        return leave(&mut bed, &mut director);
    }
    step("The director ends");
    let ended = director.stop()?;
    expect(ended.success(), || format!("the director ended with {ended}: {}", director.said(20)))?;
    drop(bed);
    verdict?;
    println!("\nAll answers were right. Everything is removed again.");
    Ok(())
}

/// Medians over several runs, the two paths in turn, and idle processor time.
///
/// # Errors
/// When something fails.
pub fn figures(options: &Options) -> Result<(), LabError> {
    let bed = bed()?;
    let mut direct = Vec::new();
    let mut through = Vec::new();
    let mut idle = Vec::new();
    for run in 1..=options.runs {
        direct.push(direct_load(&bed, options.seconds)?);
        let mut director = start(&bed)?;
        idle.push(director.cpu_percent(options.idle_span)?);
        let url = format!("http://{}:8080/", bed.vip());
        through.push(load_by(&bed, bed.vip(), &url, options.seconds)?);
        director.stop()?;
        eprintln!("run {run} of {} done", options.runs);
    }
    println!("Medians of {} runs of {} s each:\n", options.runs, options.seconds);
    print_load("direct", &medians(&direct));
    print_load("director", &medians(&through));
    print_comparison(&medians(&direct), &medians(&through));
    println!("\n  idle director {:.1} % of a core", median(&idle));
    Ok(())
}

fn bed() -> Result<Bed, LabError> {
    let mut bed = Bed::new(PREFIX, Shape::TwoArm, Driver::AfXdp, 1)?;
    bed.start_reals()?;
    Ok(bed)
}

/// The demo's configuration with the lab's own control socket and state.
fn config(dir: &Path) -> String {
    let socket = Director::socket_in(dir);
    let line = |line: &str| match line.starts_with("control_socket") {
        true => format!(
            "control_socket = \"{}\"\nstate_dir = \"{}\"\n",
            socket.display(),
            socket.with_file_name("state").display()
        ),
        false => format!("{line}\n"),
    };
    CONFIG.lines().map(line).collect()
}

fn start(bed: &Bed) -> Result<Director, LabError> {
    Director::start(bed, &config(bed.lab.dir()))
}

fn step(title: &str) {
    println!("\n== {title}");
}

fn direct_load(bed: &Bed, seconds: u32) -> Result<Load, LabError> {
    bed.route_directly()?;
    let real = Bed::real_address(0);
    load_by(bed, &real, &format!("http://{real}/"), seconds)
}

fn load_by(bed: &Bed, server: &str, url: &str, seconds: u32) -> Result<Load, LabError> {
    Ok(Load {
        wrk: load::wrk(&bed.client, url, CONNECTIONS, seconds)?,
        tcp: load::iperf3_tcp(&bed.client, server, Until::Seconds(seconds), false)?,
    })
}

fn medians(loads: &[Load]) -> Load {
    let of = |figure: fn(&Load) -> f64| median(&loads.iter().map(figure).collect::<Vec<_>>());
    let mut middle = Load::default();
    middle.wrk.requests_per_s = of(|load| load.wrk.requests_per_s);
    middle.wrk.p50_us = of(|load| load.wrk.p50_us);
    middle.wrk.p99_us = of(|load| load.wrk.p99_us);
    middle.wrk.requests = loads.iter().map(|load| load.wrk.requests).sum();
    middle.wrk.socket_errors = loads.iter().map(|load| load.wrk.socket_errors).sum();
    middle.tcp.bits_per_s = of(|load| load.tcp.bits_per_s);
    middle.tcp.retransmits = loads.iter().map(|load| load.tcp.retransmits).sum();
    middle
}

fn print_load(path: &str, load: &Load) {
    let Load { wrk, tcp } = load;
    println!(
        "  wrk ({path})  {:.0} requests/s, latency p50 {:.0} us, p99 {:.0} us, {} socket errors",
        wrk.requests_per_s, wrk.p50_us, wrk.p99_us, wrk.socket_errors
    );
    println!(
        "  iperf3 TCP ({path})  {}, {} segments sent again",
        human_rate(tcp.bits_per_s),
        tcp.retransmits
    );
}

fn print_comparison(direct: &Load, through: &Load) {
    let percent = |part: f64, whole: f64| 100.0 * part / whole.max(1.0);
    println!("\n  {:<22}{:>14}{:>14}", "", "direct", "director");
    let row = |what: &str, one: String, other: String, share: f64| {
        println!("  {what:<22}{one:>14}{other:>14}   {share:.0} %");
    };
    let (one, other) = (&direct.wrk, &through.wrk);
    let share = percent(other.requests_per_s, one.requests_per_s);
    let whole = |value: f64| format!("{value:.0}");
    row("wrk, requests/s", whole(one.requests_per_s), whole(other.requests_per_s), share);
    row("wrk, p50 us", whole(one.p50_us), whole(other.p50_us), percent(other.p50_us, one.p50_us));
    row("wrk, p99 us", whole(one.p99_us), whole(other.p99_us), percent(other.p99_us, one.p99_us));
    let (one, other) = (direct.tcp.bits_per_s, through.tcp.bits_per_s);
    row("iperf3 TCP", human_rate(one), human_rate(other), percent(other, one));
}

fn show_curl(bed: &Bed) -> Result<Vec<String>, LabError> {
    let url = format!("http://{}", bed.vip());
    step(&format!("curl {url}, six times"));
    let mut answers = Vec::new();
    for _ in 0..CURLS {
        let answer = curl(&bed.client, &url)?;
        println!("  {answer}");
        answers.push(answer);
    }
    Ok(answers)
}

/// Datagrams through the UDP service; wrong when one does not come back unchanged.
fn show_echo(bed: &Bed) -> Result<(), LabError> {
    step(&format!("UDP echo, {ECHOES} datagrams from as many ports"));
    let server = format!("{}:{ECHO_PORT}", bed.vip());
    let peer = program("sluice-peer")?;
    let count = ECHOES.to_string();
    let args = ["udp-probe", &server, &count, "300"];
    let said = bed.client.run(&peer.to_string_lossy(), &args)?.ok()?.stdout.trim().to_owned();
    println!("  {said}");
    Ok(())
}

/// The director's counters of a service, from `sluice services --json`.
fn counter(services: &Value, name: &str, path: &str) -> u64 {
    let rows = services["services"].as_array().into_iter().flatten();
    let row = rows.into_iter().find(|row| row["name"] == name);
    row.and_then(|row| row.pointer(path)).and_then(Value::as_u64).unwrap_or(0)
}

/// Two columns, the programs' words and the director's; wrong when the director counted less than
/// they carried.
fn show_counters(director: &Director, through: &Load, udp: &Iperf3) -> Result<(), LabError> {
    step("What the programs say, and what the director counted");
    let services = director.ask("services")?;
    let (sessions, inbound) = ("/sessions_total", "/bytes/inbound");
    let of = |name: &str, path: &str| counter(&services, name, path);
    let echoes = u64::from(ECHOES);
    let connections = CURLS as u64 + u64::from(CONNECTIONS);
    let rows = [
        ("connections of curl and wrk", connections, "sessions of web", of("web", sessions)),
        ("UDP echo, questions", echoes, "packets in of echo", of("echo", "/packets/inbound")),
        ("UDP echo, answers", echoes, "packets out of echo", of("echo", "/packets/outbound")),
        ("iperf3 TCP, payload bytes", through.tcp.bytes, "bytes in", of("iperf-tcp", inbound)),
        ("iperf3 UDP, payload bytes", udp.bytes, "bytes in", of("iperf-udp", inbound)),
    ];
    for (theirs, said, ours, counted) in rows {
        println!("  {theirs:<28}{said:>14}   {ours:<20}{counted:>14}");
    }
    for command in ["services", "drops"] {
        println!("\n  $ sluice {command}");
        director.sluice(&[command])?.lines().for_each(|line| println!("  {line}"));
    }
    rows.iter().try_for_each(|(theirs, said, ours, counted)| {
        expect(counted >= said, || format!("{theirs}: {said}, but {ours}: {counted}"))
    })
}

fn check(answers: &[String], through: &Load, udp: &Iperf3) -> Result<(), LabError> {
    let expected: Vec<String> =
        (0..CURLS).map(|number| format!("Real Server {:02}", number % REALS + 1)).collect();
    expect(answers == expected, || format!("curl was answered by {answers:?}"))?;
    let wrk = &through.wrk;
    expect(wrk.socket_errors + wrk.bad_answers == 0 && wrk.requests > 0, || format!("{wrk:?}"))?;
    expect(through.tcp.bytes > 0 && udp.bytes > 0, || format!("{:?} {udp:?}", through.tcp))
}

/// Leaves everything running and says what can be tried.
fn leave(bed: &mut Bed, director: &mut Director) -> Result<(), LabError> {
    bed.lab.keep()?;
    bed.peers.iter_mut().for_each(crate::process::Running::leave);
    director.leave();
    let (client, vip) = (bed.client.name(), bed.vip());
    let sluice = format!(
        "{} --socket {}",
        program("sluice")?.display(),
        Director::socket_in(bed.lab.dir()).display()
    );
    println!("\nAll answers were right. It stays running; try:\n");
    println!("  ip netns exec {client} curl http://{vip}");
    println!("  ip netns exec {client} wrk -t1 -c32 -d5s --latency http://{vip}");
    println!("  ip netns exec {client} iperf3 -c {vip}");
    println!("  {sluice} status     # services, sessions, ports, drops; each with --json");
    println!("  ip netns exec {} ip -d link show front   # the XDP program", bed.director.name());
    let config = Director::config_in(bed.lab.dir());
    println!("  $EDITOR {} && kill -HUP {}", config.display(), director.pid());
    println!("\nStop and remove it with:\n\n  make demo-stop");
    Ok(())
}
