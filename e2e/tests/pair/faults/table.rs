//! The table of faults: the gap in traffic, resets and connections lost, of each kind of port, in
//! one run together, under load.
//!
//! Of each family: a datagram every two milliseconds, whose session outlives the fault, measures
//! the gap; four connections with lines and a download are held; `wrk` keeps eight busy. Resets are
//! those that the kernels of clients and real servers have seen, of which there are to be none, and
//! sent (`nstat`).

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sluice_e2e::bed::pair::{Kind, Pair};
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::load::parse_wrk;
use sluice_e2e::web::{PYTHON, script};
use sluice_e2e::{Driver, Family, LabError, Running};

use super::{boot, signal_keepalived, vanish};
use crate::failover::{arrived, master};
use crate::fixture::{SOON, here};
use crate::sync::{held, on_synchronised_of};

/// Where datagrams come back.
const ECHO_PORT: u16 = 5060;
/// Between two datagrams.
const EVERY_MS: u64 = 2;
/// How long datagrams are sent over a fault, and over the return.
const SENT_S: [u32; 2] = [6, 12];
/// The longest gap that is right on a machine that has other work, too.
const GAP_LIMIT: Duration = Duration::from_secs(3);

type Step = fn(&mut Pair) -> Result<(), LabError>;

/// What happens to the primary, and how it comes back.
const FAULTS: [(&str, [(&str, Step); 2]); 8] = [
    ("director", [("killed", kill_director), ("returns", start_director)]),
    ("director", [("frozen", freeze_director), ("goes on", thaw_director)]),
    ("keepalived", [("killed", kill_keepalived), ("returns", start_keepalived)]),
    ("keepalived", [("frozen", freeze_keepalived), ("goes on", thaw_keepalived)]),
    ("director and keepalived", [("killed", kill_both), ("return", start_both)]),
    ("wire", [("cut", cut), ("laid", lay)]),
    ("machine", [("gone", gone), ("boots", boots)]),
    ("planned move", [("there", drain), ("back", undo)]),
];

fn kill_director(pair: &mut Pair) -> Result<(), LabError> {
    super::die(pair)?;
    master(pair, 1)
}

fn start_director(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].start_director()?;
    master(pair, 0)
}

fn freeze_director(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].director()?.signal(Signal::STOP);
    master(pair, 1)
}

fn thaw_director(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].director()?.signal(Signal::CONT);
    master(pair, 0)
}

fn kill_keepalived(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].kill_keepalived()?;
    arrived(pair, 1, true)
}

fn start_keepalived(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].start_keepalived(&[])?;
    master(pair, 0)
}

fn freeze_keepalived(pair: &mut Pair) -> Result<(), LabError> {
    signal_keepalived(&pair.nodes[0], "STOP")?;
    arrived(pair, 1, true)
}

fn thaw_keepalived(pair: &mut Pair) -> Result<(), LabError> {
    signal_keepalived(&pair.nodes[0], "CONT")?;
    master(pair, 0)
}

fn kill_both(pair: &mut Pair) -> Result<(), LabError> {
    super::die(pair)?;
    pair.nodes[0].kill_keepalived()?;
    arrived(pair, 1, true)
}

fn start_both(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].start_director()?;
    start_keepalived(pair)
}

fn cut(pair: &mut Pair) -> Result<(), LabError> {
    pair.set_wire(0, "down")?;
    // The twin of an AF_PACKET port keeps its carrier: there the machine that is cut off goes on as
    // a master of nobody.
    arrived(pair, 1, true)
}

fn lay(pair: &mut Pair) -> Result<(), LabError> {
    pair.set_wire(0, "up")?;
    master(pair, 0)
}

fn gone(pair: &mut Pair) -> Result<(), LabError> {
    vanish(pair)?;
    arrived(pair, 1, true)
}

fn boots(pair: &mut Pair) -> Result<(), LabError> {
    boot(pair)?;
    master(pair, 0)
}

fn drain(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].director()?.sluice(&["ha", "drain", "--deadline", "20"])?;
    master(pair, 1)
}

fn undo(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].director()?.sluice(&["ha", "drain", "--undo"])?;
    master(pair, 0)
}

/// Datagrams of both families, one every two milliseconds.
struct Paced(Vec<Running>);

impl Paced {
    fn start(pair: &Pair, seconds: u32) -> Result<Self, LabError> {
        let start = |family: Family| {
            let (port, every) = (ECHO_PORT.to_string(), EVERY_MS.to_string());
            let (path, seconds) = (script("paced.py"), seconds.to_string());
            let args = [&path, "0", Pair::vip(family), &port, &seconds, &every];
            let name = format!("paced{}", family.bits());
            let mut one = pair.client.start(&name, PYTHON, &args)?;
            one.wait_for_words("open", SOON).map(|()| one)
        };
        FAMILIES.into_iter().map(start).collect::<Result<_, _>>().map(Self)
    }

    /// The longest time in which none came back, in milliseconds.
    fn gap(self) -> Result<u64, LabError> {
        let mut longest = 0;
        for mut one in self.0 {
            one.wait(SOON)?;
            let log = one.log();
            let said = log.lines().last().and_then(|it| serde_json::from_str::<Value>(it).ok());
            let run = said.and_then(|said| said["longest_run"].as_u64());
            let run = run.ok_or(LabError::Unreadable { what: "paced.py".to_owned(), text: log })?;
            longest = longest.max(run * EVERY_MS);
        }
        Ok(longest)
    }
}

/// `wrk` of each family, for longer than any fault takes.
fn load(pair: &Pair) -> Result<Vec<Running>, LabError> {
    let start = |family: Family| {
        let url = Pair::url(family);
        let args = ["-t1", "-c8", "-d120s", "--latency", "--timeout", "30s", &url];
        pair.client.start(&format!("wrk{}", family.bits()), "wrk", &args)
    };
    FAMILIES.into_iter().map(start).collect()
}

/// A fault and the return from it: two rows.
fn rows(pair: &mut Pair, kind: &str, what: &str, steps: [(&str, Step); 2]) -> Result<(), LabError> {
    let mut wrk = load(pair)?;
    let held = held(pair)?;
    let (all, mut gaps) = (held.count(), Vec::new());
    for ((step, run), seconds) in steps.into_iter().zip(SENT_S) {
        let paced = Paced::start(pair, seconds)?;
        let begun = std::time::Instant::now();
        run(pair)?;
        // What is not over when the datagrams are is not measured.
        expect(begun.elapsed() < Duration::from_secs(seconds.into()), || {
            format!("{what} {step}: it took {:?}", begun.elapsed())
        })?;
        gaps.push((step, paced.gap()?));
    }
    let (lost, [seen, sent]) = held.broken_and_resets()?;
    let mut errors = 0;
    for one in &mut wrk {
        one.signal(Signal::INT);
        one.wait(SOON)?;
        errors += parse_wrk(&one.log())?.socket_errors;
    }
    for (step, gap) in &gaps {
        let resets = format!("{seen}, {sent}");
        eprintln!("| {kind} | {what} {step} | {gap} ms | {resets} | {lost} of {all} | {errors} |");
    }
    expect(gaps.iter().all(|(_, gap)| u128::from(*gap) < GAP_LIMIT.as_millis()), || {
        format!("{kind}: {what}: {gaps:?}")
    })?;
    let none = (lost, seen, errors) == (0, 0, 0);
    expect(none, || format!("{kind}: {what}: {lost} lost, {seen} resets seen, {errors} of wrk"))
}

/// What answers datagrams, at each real server.
fn start_echoes(pair: &mut Pair) -> Result<(), LabError> {
    let (peer, port) = (sluice_e2e::director::program("sluice-peer")?, ECHO_PORT.to_string());
    for (index, real) in pair.reals.iter().enumerate() {
        let args = ["udp-echo", &port];
        let mut echo = real.start(&format!("echo{index}"), &peer.to_string_lossy(), &args)?;
        echo.wait_for_words("listening", SOON)?;
        pair.peers.push(echo);
    }
    Ok(())
}

/// Each fault happens to a pair of its own: what one leaves behind is not measured by the next.
fn table(name: &str, driver: Driver, workers: u32) {
    let kind = Kind { driver, workers, ..Kind::default() };
    eprintln!("\n| ports, workers | primary's | gap | resets seen, sent | lost | wrk's errors |");
    eprintln!("| --- | --- | --- | --- | --- | --- |");
    let mut wrong = Vec::new();
    for (what, steps) in FAULTS {
        on_synchronised_of(kind, name, |pair| {
            start_echoes(pair)?;
            let done = rows(pair, &format!("{driver:?}, {workers}"), what, steps);
            // The figures of the others are wanted too.
            wrong.extend(done.err().map(|error| {
                eprintln!("{driver:?}, {workers}: {what}: {error}");
                error.to_string()
            }));
            Ok(())
        });
    }
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

#[test]
fn alone_af_xdp_one_worker() {
    table(here!(alone_af_xdp_one_worker), Driver::AfXdp, 1);
}

#[test]
fn alone_af_xdp_two_workers() {
    table(here!(alone_af_xdp_two_workers), Driver::AfXdp, 2);
}

#[test]
fn alone_af_packet_one_worker() {
    table(here!(alone_af_packet_one_worker), Driver::AfPacket, 1);
}

#[test]
fn alone_af_packet_two_workers() {
    table(here!(alone_af_packet_two_workers), Driver::AfPacket, 2);
}
