//! What the network does under a running director: neighbours unknown, changed and forgotten,
//! interfaces deleted and made again.

use std::time::Duration;

use sluice_e2e::error::expect;
use sluice_e2e::web::LINES_PORT;
use sluice_e2e::{Driver, LabError};

use crate::fixture::{Fixture, SOON, Setup, here, on};

/// Longer than curl's own patience, shorter than a kernel's connection attempt.
const MENDED: Duration = Duration::from_secs(20);

#[test]
fn alone_an_unknown_neighbour_is_resolved_af_xdp() {
    on(here!(alone_an_unknown_neighbour_is_resolved_af_xdp), Setup::usual(), unknown_neighbour);
}

#[test]
fn alone_an_unknown_neighbour_is_resolved_af_packet() {
    let setup = Setup::new(Driver::AfPacket, 1);
    on(here!(alone_an_unknown_neighbour_is_resolved_af_packet), setup, unknown_neighbour);
}

/// The very first packet waits for the address and is not lost: curl connects at once, not after
/// the second that a client's kernel waits before it sends its SYN again.
fn unknown_neighbour(fixture: &mut Fixture) -> Result<(), LabError> {
    for round in 0..3 {
        for port in fixture.bed.ports() {
            let device = fixture.bed.kernel_device(port);
            fixture.bed.director.ip(&["neigh", "flush", "dev", &device])?;
        }
        let format = "%{time_connect}";
        let args = ["-sS", "--fail", "-o", "/dev/null", "-w", format, "--max-time", "5"];
        let url = fixture.url();
        let ran = fixture.bed.client.run("curl", &[&args[..], &[&url]].concat())?.ok()?;
        let seconds: f64 = ran.stdout.trim().parse().unwrap_or(f64::MAX);
        expect(seconds < 0.9, || format!("round {round}: connected after {seconds} s"))?;
    }
    Ok(())
}

#[test]
fn a_neighbours_new_mac_is_followed() {
    on(here!(a_neighbours_new_mac_is_followed), Setup::usual(), |fixture| {
        fixture.answers(6)?;
        let real = &fixture.bed.reals[1];
        // As a machine that took over the address would: it announces itself.
        real.sysctl("net.ipv4.conf.eth0.arp_notify", "1")?;
        real.ip(&["link", "set", "dev", "eth0", "address", "02:00:00:00:02:12"])?;
        fixture.wait_for_answer(SOON)?;
        sluice_e2e::wait_until("three answers in a row", MENDED, || {
            Ok(fixture.answers(3).ok().map(drop))
        })?;
        fixture.answers(6).map(drop)
    });
}

#[test]
fn a_session_outlives_its_neighbour_entries() {
    on(here!(a_session_outlives_its_neighbour_entries), Setup::usual(), |fixture| {
        // The kernel forgets quickly here: within the session's seconds each entry goes stale
        // many times, while the kernel itself never sees the traffic that would confirm it.
        for port in fixture.bed.ports() {
            let key = |name: &str| format!("net.ipv4.neigh.{port}.{name}");
            fixture.bed.director.sysctl(&key("base_reachable_time_ms"), "500")?;
            fixture.bed.director.sysctl(&key("gc_stale_time"), "1")?;
            fixture.bed.director.sysctl(&key("delay_first_probe_time"), "1")?;
        }
        let mut held = fixture.hold(&fixture.server(LINES_PORT), 8)?;
        let ended = held.wait(MENDED)?;
        expect(ended.success(), || format!("the session broke: {}", held.log_tail(5)))
    });
}

#[test]
fn an_interface_vanishes_and_returns_af_xdp() {
    on(here!(an_interface_vanishes_and_returns_af_xdp), Setup::usual(), vanishes_and_returns);
}

#[test]
fn an_interface_vanishes_and_returns_af_packet() {
    let setup = Setup::new(Driver::AfPacket, 1);
    on(here!(an_interface_vanishes_and_returns_af_packet), setup, vanishes_and_returns);
}

#[test]
fn an_interface_vanishes_and_returns_two_workers() {
    let setup = Setup::new(Driver::AfXdp, 2);
    on(here!(an_interface_vanishes_and_returns_two_workers), setup, vanishes_and_returns);
}

fn vanishes_and_returns(fixture: &mut Fixture) -> Result<(), LabError> {
    fixture.answers(3)?;
    fixture.bed.cut_front()?;
    // It goes on and says so while the interface is away; asked for a while, not once.
    for _ in 0..10 {
        fixture.director.ask("ports")?;
        expect(fixture.director.runs()?, || "the director ended".to_owned())?;
    }
    fixture.bed.restore_front()?;
    fixture.wait_for_answer(MENDED)?;
    fixture.answers(6)?;
    expect(fixture.director.runs()?, || "the director ended".to_owned())
}

/// Down and up again is no different from a cable pulled.
#[test]
fn a_link_goes_down_and_up() {
    on(here!(a_link_goes_down_and_up), Setup::usual(), |fixture| {
        fixture.answers(3)?;
        fixture.bed.director.ip(&["link", "set", "dev", "back", "down"])?;
        let url = fixture.url();
        let ran = fixture.bed.client.run("curl", &["-s", "--max-time", "1", &url])?;
        expect(!ran.status.success(), || "answered without a link".to_owned())?;
        fixture.bed.director.ip(&["link", "set", "dev", "back", "up"])?;
        fixture.wait_for_answer(MENDED)?;
        fixture.answers(6).map(drop)
    });
}
