//! Ports over memif against peers that share no code with us: DPDK's own driver in
//! `dpdk-testpmd`, and govpp's in a small program of Go. Each in both roles, and also leaving in
//! the middle of traffic.

#[path = "memif/gomemif.rs"]
mod gomemif;
#[path = "memif/ground.rs"]
pub mod ground;
#[path = "memif/testpmd.rs"]
pub mod testpmd;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_e2e::error::expect;
use sluice_e2e::load::ping;
use sluice_e2e::web::PYTHON;
use sluice_e2e::{LabError, wait_until};

use self::ground::{Ground, PORT, Role, Shape, VIP, judge_translated, on};
use self::testpmd::{BACK, FRONT, Game, Testpmd, came};
use crate::fixture::{SOON, here};

const LINKS: [&str; 2] = ["front", "back"];
/// More than a ring's indexes can count.
const MANY: u32 = 70_000;
/// Packets that show that traffic flows: a ring several times over.
const FLOWING: u64 = 8_000;

#[test]
fn testpmd_as_client_and_every_packet_is_accounted_for() {
    let name = here!(testpmd_as_client_and_every_packet_is_accounted_for);
    on(name, Shape::of(Role::Server), plays_a_capture);
}

#[test]
fn testpmd_as_server_and_every_packet_is_accounted_for() {
    let name = here!(testpmd_as_server_and_every_packet_is_accounted_for);
    on(name, Shape::of(Role::Client), plays_a_capture);
}

/// A capture is played once, as fast as both can.
fn plays_a_capture(ground: &mut Ground) -> Result<(), LabError> {
    let file = ground.flows(MANY)?;
    let mut testpmd = Testpmd::start(ground, Game::Once(&file))?;
    ground.wait_links(&LINKS, true)?;
    testpmd.lose_nothing();
    testpmd.say("start");
    let many = u64::from(MANY);
    let done = wait_until("all packets to be through", SOON, || {
        let (front, back) = (ground.count("front", "rx")?, ground.count("back", "tx")?);
        let all = front == many && front == back + ground.fate("dropped")?;
        Ok((all && testpmd.counters(BACK)?.0 == back).then_some(()))
    });
    let (_, sent) = testpmd.counters(FRONT)?;
    let (received, _) = testpmd.counters(BACK)?;
    let said = testpmd.said();
    let detail = |error| LabError::Wrong(format!("{error}: sent {sent}, got {received}:\n{said}"));
    done.map_err(detail)?;
    ground.accounted()?;
    let (came_in, left) = (ground.count("front", "rx")?, ground.count("back", "tx")?);
    expect(sent == many && came_in == sent && received == left, || {
        format!("testpmd sent {sent}, {came_in} came, {left} left, testpmd got {received}")
    })?;
    testpmd.quit()?;
    let judged = judge_translated(ground, &came(ground))?;
    expect(judged == left && left > many / 2, || format!("{judged} of {left} were captured"))
}

#[test]
fn a_client_that_leaves_under_traffic() {
    let name = here!(a_client_that_leaves_under_traffic);
    on(name, Shape::of(Role::Server), |ground| leaves(ground, 12));
}

#[test]
fn a_server_that_leaves_under_traffic() {
    let name = here!(a_server_that_leaves_under_traffic);
    on(name, Shape::of(Role::Client), |ground| leaves(ground, 12));
}

/// The peer comes, traffic flows, and it leaves: killed, or told to end. Nothing stays behind.
fn leaves(ground: &mut Ground, times: u32) -> Result<(), LabError> {
    let file = ground.flows(500)?;
    let (pid, descriptors) = (ground.director.pid(), ground.descriptors()?);
    let mappings = ground.mappings()?;
    for time in 0..times {
        let turns = ground.turns()?;
        let left = come_and_leave(ground, &file, time % 2 == 0);
        left.map_err(|error| LabError::Wrong(format!("time {time}: {error}")))?;
        let runs = ground.director.runs()? && ground.director.ask("status")?["pid"] == pid;
        expect(runs, || format!("the director ended at time {time}"))?;
        wait_until("the worker to go on", SOON, || Ok((ground.turns()? > turns).then_some(())))?;
    }
    let mut open = (BTreeMap::new(), 0);
    let settled = wait_until("what was open to be closed", SOON, || {
        open = (ground.descriptors()?, ground.mappings()?);
        // Fewer are no wonder: it has just started.
        let more = open.0.iter().any(|(kind, now)| now > descriptors.get(kind).unwrap_or(&0));
        Ok((!more && open.1 == mappings).then_some(()))
    });
    settled.map_err(|error| {
        LabError::Wrong(format!("{error}: before {mappings} {descriptors:?}, now {open:?}"))
    })?;
    ground.accounted()
}

fn come_and_leave(ground: &Ground, file: &Path, killed: bool) -> Result<(), LabError> {
    let before = (ground.count("front", "rx")?, ground.count("back", "tx")?);
    let mut testpmd = Testpmd::start(ground, Game::Endless(file))?;
    ground.wait_links(&LINKS, true)?;
    testpmd.say("start");
    let flows = wait_until("traffic", SOON, || {
        let now = (ground.count("front", "rx")?, ground.count("back", "tx")?);
        Ok((now.0 > before.0 + FLOWING && now.1 > before.1 + FLOWING).then_some(()))
    });
    flows.map_err(|error| LabError::Wrong(format!("{error}; testpmd:\n{}", testpmd.said())))?;
    expect(ground.mappings()? > 0, || "no memory is shared".to_owned())?;
    if killed {
        testpmd.kill()?
    } else {
        testpmd.quit()?
    }
    ground.wait_links(&LINKS, false)
}

#[test]
fn a_client_that_stands_still_stops_nobody_else() {
    let shape = Shape { aside: true, ..Shape::of(Role::Server) };
    on(here!(a_client_that_stands_still_stops_nobody_else), shape, stands_still);
}

#[test]
fn a_server_that_stands_still_stops_nobody_else() {
    let shape = Shape { aside: true, ..Shape::of(Role::Client) };
    on(here!(a_server_that_stands_still_stops_nobody_else), shape, stands_still);
}

/// More than its ring holds is sent to a peer that does not take it; then it goes on.
fn stands_still(ground: &mut Ground) -> Result<(), LabError> {
    let file = ground.flows(1)?;
    let mut testpmd = Testpmd::start(ground, Game::Endless(&file))?;
    ground.wait_links(&LINKS, true)?;
    testpmd.say("set fwd rxonly");
    testpmd.say("start");
    datagrams(ground, 100)?;
    all_came(ground, &mut testpmd, 1)?;
    let own = "203.0.113.1";
    expect(ping(&ground.client, own, 5)?, || "no answer to ping".to_owned())?;
    testpmd.freeze(true);
    let dropped = ground.fate("dropped")?;
    wait_until("the peer's ring to be full", SOON, || {
        datagrams(ground, 2000)?;
        Ok((ground.fate("dropped")? > dropped).then_some(()))
    })?;
    expect(ping(&ground.client, own, 20)?, || "no answer beside a peer that stands".to_owned())?;
    expect(ground.is_up("back")?, || "the link went down".to_owned())?;
    let before = ground.count("back", "tx")?;
    testpmd.freeze(false);
    wait_until("the peer to take more", SOON, || {
        datagrams(ground, 100)?;
        Ok((ground.count("back", "tx")? > before).then_some(()))
    })?;
    all_came(ground, &mut testpmd, before)?;
    testpmd.quit()
}

/// Waits until testpmd has got all that left by `back`, which is so many at least.
fn all_came(ground: &Ground, testpmd: &mut Testpmd, least: u64) -> Result<(), LabError> {
    wait_until("testpmd to have got all", SOON, || {
        let (left, got) = (ground.count("back", "tx")?, testpmd.counters(BACK)?.0);
        Ok((left >= least && left == got).then_some(()))
    })
}

/// Datagrams of the client to the service.
fn datagrams(ground: &Ground, count: u32) -> Result<(), LabError> {
    let script = format!(
        "import socket\nto = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         for _ in range({count}): to.sendto(bytes(18), ('{VIP}', {PORT}))"
    );
    ground.client.run(PYTHON, &["-c", &script])?.ok().map(drop)
}

/// For `make test-all`: it takes minutes.
mod faults {
    use super::*;

    /// The same five hundred times.
    #[test]
    fn alone_a_peer_that_leaves_five_hundred_times() {
        let name = here!(alone_a_peer_that_leaves_five_hundred_times);
        let started = Instant::now();
        for role in [Role::Server, Role::Client] {
            on(name, Shape::of(role), |ground| leaves(ground, 250));
        }
        let took = started.elapsed();
        assert!(took < Duration::from_secs(1500), "{name} took {took:?}");
    }
}
