//! One director with more workers than there are cores: the kernel stops a worker whenever it
//! likes, also one that others wait for. Order holds, and nothing is lost.

use super::{
    Moment, Numbers, PORT, SOON, gains, pin, read, spread, wait_until_dealt, wait_until_none,
    wait_until_seen,
};
use crate::fixture::{Fixture, Setup, here, on_bed};
use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::web::ECHO_PORT;
use sluice_e2e::{Director, Driver, LabError, wait_until};
use std::time::Duration;

#[test]
fn three_workers_keep_the_order() {
    on_workers(here!(three_workers_keep_the_order), 3);
}

mod faults {
    use crate::fixture::here;

    #[test]
    fn four_workers_keep_the_order() {
        super::on_workers(here!(four_workers_keep_the_order), 4);
    }

    #[test]
    fn five_workers_keep_the_order() {
        super::on_workers(here!(five_workers_keep_the_order), 5);
    }
}

/// So many workers and queues, whatever cores there are: a worker whose core this machine has not
/// runs where the kernel likes.
fn on_workers(name: &str, workers: u32) {
    let start = |bed: &mut _, recipe: sluice_e2e::recipe::Recipe| {
        let text = recipe.text(bed);
        let cores = text.lines().find(|line| line.starts_with("cores = ")).unwrap_or_default();
        let all: Vec<u32> = (0..workers).collect();
        let text = text.replacen(cores, &format!("cores = {all:?}"), 1);
        Ok((Director::start(bed, &text)?, recipe))
    };
    on_bed(name, Setup::new(Driver::AfXdp, workers), start, |fixture| {
        let helpers = workers as usize - 1;
        datagrams(fixture, helpers)?;
        streams(fixture, helpers)
    });
}

/// Spreads both directions of a flow; every other worker is a helper.
fn pin_both(fixture: &Fixture, protocol: &str, port: u16, helpers: usize) -> Result<(), LabError> {
    pin(fixture, "pin", protocol, port, "inbound")?;
    let said = pin(fixture, "pin", protocol, port, "outbound")?;
    let all = |flow: &Value| flow["helpers"].as_array().is_some_and(|all| all.len() == helpers);
    let flows = said["spread"].as_array().map_or(&[][..], Vec::as_slice);
    expect(flows.len() == 2 && flows.iter().all(all), || said.to_string())
}

/// Each datagram comes back, in order, while both directions are spread, gathered in and spread
/// again.
fn datagrams(fixture: &mut Fixture, helpers: usize) -> Result<(), LabError> {
    let numbers = Numbers::start(fixture)?;
    wait_until_seen(fixture)?;
    for packets in [2000, 500] {
        pin_both(fixture, "udp", ECHO_PORT, helpers)?;
        wait_until_dealt(fixture, 2, packets)?;
        let all = spread(fixture)?;
        expect(all.iter().all(|flow| flow["late"] == 0), || format!("{all:?}"))?;
        pin(fixture, "unpin", "udp", ECHO_PORT, "inbound")?;
        pin(fixture, "unpin", "udp", ECHO_PORT, "outbound")?;
        wait_until_none(fixture)?;
    }
    pin_both(fixture, "udp", ECHO_PORT, helpers)?;
    gains(fixture)?;
    let said = numbers.all_came()?;
    eprintln!("{} workers: {said}", helpers + 1);
    pin(fixture, "unpin", "udp", ECHO_PORT, "inbound")?;
    pin(fixture, "unpin", "udp", ECHO_PORT, "outbound")?;
    wait_until_none(fixture)
}

/// The same stream of a steady rate, by its owner alone and spread.
fn streams(fixture: &mut Fixture, helpers: usize) -> Result<(), LabError> {
    for (port, is_spread) in [("40001", false), (PORT, true)] {
        let before = Moment::of(fixture)?;
        let args = ["-c", fixture.bed.vip(), "-t", "5", "-b", "50M", "--cport", port, "-J"];
        let mut iperf3 = fixture.bed.client.start("iperf3", "iperf3", &args)?;
        if is_spread {
            wait_until("the stream to be spread", SOON, || {
                Ok(pin(fixture, "pin", "tcp", 5201, "inbound").ok())
            })?;
            pin(fixture, "pin", "tcp", 5201, "outbound")?;
            wait_until_dealt(fixture, 2, 200)?;
            let all = spread(fixture)?;
            let of = |flow: &Value| flow["helpers"].as_array().map(Vec::len) == Some(helpers);
            expect(all.iter().all(of), || format!("{all:?}"))?;
        }
        iperf3.wait(Duration::from_secs(40))?;
        wait_until_none(fixture)?;
        let said = read(&iperf3.log())?;
        let bytes = said["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
        expect(bytes > 1_000_000, || format!("{bytes} bytes"))?;
        let since = Moment::of(fixture)?.since(&before);
        eprintln!("{} workers, spread {is_spread}: {bytes} bytes, {since:?}", helpers + 1);
        since.is_in_order()?;
    }
    Ok(())
}
