//! What the director shows of its load: the session with the most traffic, at the rate that iperf3
//! measured, and where the workers' cycles go.

use std::time::Duration;

use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::load::{Until, iperf3_tcp};
use sluice_e2e::{Director, Driver, LabError, Mode, wait_until};

use crate::dual_stack::on_mode;
use crate::fixture::{Fixture, SOON, Setup, here};

#[test]
fn an_elephant_is_seen() {
    on_mode(here!(an_elephant_is_seen), Setup::usual(), Mode::Fnat, elephants);
}

#[test]
fn an_elephant_is_seen_by_one_of_two_workers() {
    let setup = Setup::new(Driver::AfXdp, 2);
    on_mode(here!(an_elephant_is_seen_by_one_of_two_workers), setup, Mode::Dr, elephants);
}

fn elephants(fixture: &mut Fixture) -> Result<(), LabError> {
    for family in FAMILIES {
        let (vip, client) = (fixture.bed.vip_of(family), &fixture.bed.client);
        let (ran, most) = std::thread::scope(|scope| {
            let iperf = scope.spawn(|| iperf3_tcp(client, vip, Until::Seconds(4), false));
            let mut most = 0.0_f64;
            while !iperf.is_finished() {
                most = most.max(first_rate(&fixture.director, vip)?);
                std::thread::sleep(Duration::from_millis(100));
            }
            let ran = iperf.join().map_err(|_| LabError::Wrong("iperf3 panicked".to_owned()))??;
            Ok::<_, LabError>((ran, most))
        })?;
        // The best second, with headers, told from one packet in 128: no worse than the average
        // one, and no more than all of them together.
        let all = ran.bytes as f64 * 8.0;
        expect(most > ran.bits_per_s * 0.6 && most < all * 1.3, || {
            format!("{family}: iperf3 sent {} bit/s, {most} were seen", ran.bits_per_s)
        })?;
    }
    stages(&fixture.director)?;
    workers_are_idle_again(&fixture.director)
}

/// How busy a worker is said to be is how busy it is now: seconds after the load not at all, while
/// the average since the start goes down over minutes.
fn workers_are_idle_again(director: &Director) -> Result<(), LabError> {
    let mut last = Value::Null;
    let idle = wait_until("the workers to be idle", SOON, || {
        last = json(director, &["status", "--json"])?["workers"].take();
        let workers = last.as_array().map_or(&[][..], Vec::as_slice);
        let share = |worker: &Value| worker["busy_share"].as_f64().unwrap_or(1.0);
        Ok((!workers.is_empty() && workers.iter().all(|it| share(it) < 0.02)).then_some(()))
    });
    idle.map_err(|error| LabError::Wrong(format!("{error}: {last}")))
}

/// Bits a second of the session at the top of the list, if it is one of iperf3 to this address.
fn first_rate(director: &Director, vip: &str) -> Result<f64, LabError> {
    let list = json(director, &["elephants", "--limit", "1", "--json"])?;
    let first = &list["elephants"][0];
    let session = &first["session"];
    let ours = session["service"].as_str().is_some_and(|name| name.starts_with("iperf"))
        && session["virtual"].as_str().is_some_and(|text| text.contains(vip));
    let rate = first["inbound"]["bytes_per_s"].as_f64().unwrap_or(0.0) * 8.0;
    Ok(if ours { rate } else { 0.0 })
}

/// Some bursts were timed; most packets were of open sessions (iperf3 resets its connection while
/// data is on the way); what all bursts would have taken, were they like those that were timed, is
/// some of the time that there was.
fn stages(director: &Director) -> Result<(), LabError> {
    let shown = json(director, &["stages", "--json"])?;
    let up_s = json(director, &["status", "--json"])?["uptime_s"].as_f64().unwrap_or(0.0);
    let hz = shown["ticks_per_s"].as_f64().unwrap_or(0.0);
    let workers = shown["workers"].as_array().cloned().unwrap_or_default();
    let (mut timed, mut looked_up, mut found) = (0.0, 0.0, 0.0);
    for worker in &workers {
        let number = |name: &str| worker[name].as_f64().unwrap_or(-1.0);
        let stages = worker["stages"].as_array().cloned().unwrap_or_default();
        let ticks: f64 = stages.iter().filter_map(|stage| stage["ticks"].as_f64()).sum();
        let right = stages.len() == 11
            && number("bursts") <= number("packets")
            && number("timed_packets") <= number("packets")
            && number("found") <= number("looked_up")
            && number("looked_up") <= number("timed_packets");
        let spent_s = ticks / number("timed_packets").max(1.0) * number("packets") / hz;
        expect(right && spent_s < up_s * 1.5, || format!("{spent_s} of {up_s} s: {shown}"))?;
        timed += number("timed_packets");
        looked_up += number("looked_up");
        found += number("found");
    }
    // Of all workers together: one may have had nothing but the beginning of a connection.
    let hits = found >= looked_up * 0.5;
    expect(timed > 1000.0 && hits && hz > 1e8, || shown.to_string())?;
    let text = director.sluice(&["stages", "--interval", "0.1"])?;
    expect(text.starts_with("WORKER  CORE  PACKETS/S"), || text.clone())
}

fn json(director: &Director, args: &[&str]) -> Result<Value, LabError> {
    let text = director.sluice(args)?;
    let what = || args.join(" ");
    serde_json::from_str(&text)
        .map_err(|_| LabError::Unreadable { what: what(), text: text.clone() })
}
