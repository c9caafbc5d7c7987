//! Everything at once goes over: both families, frames of 9000 bytes, addresses that are announced,
//! health checks past the director and through it.

use std::process::Command;

use sluice_e2e::bed::REALS;
use sluice_e2e::error::expect;
use sluice_e2e::family::{FAMILIES, endpoint, url};
use sluice_e2e::load::download_sha256;
use sluice_e2e::web::{LINES_PORT, make_blob_of};
use sluice_e2e::{Bed, Director, Driver, Family, LabError, Mode, Running, Service, wait_until};

use super::{BLOB, LONGEST_GAP_MS, Last, is_alive, paced, pid, upgrade};
use crate::dual_stack::{bare, reals, service, usual_services};
use crate::fixture::{Fixture, SOON, Setup, here, on_bed};
use crate::health::health;
use crate::restart::resets_of;

/// Seconds of datagrams and connections, over two upgrades.
const LASTS_S: u32 = 6;
/// Bytes of a datagram, which goes in one frame.
const LARGE: &str = "8900";
/// Where probes through the data path come from.
const PROBES: [&str; 2] = ["198.51.100.9", "2001:db8:1::9"];
/// What holds the addresses that are announced.
const ANNOUNCED: &str = "sluice";
const MARK: &str = "203.0.113.77";

const CHECKS: &str = "[announce]\ninterface = \"sluice\"\n\n\
     [[check]]\nname = \"through\"\nkind = \"http\"\nthrough = \"service\"\ninterval_ms = 100\n\
     timeout_ms = 1000\nrise = 2\nfall = 1\njitter_percent = 0\nexpect = \"Real Server\"\n\n\
     [[check]]\nname = \"past\"\nkind = \"http\"\ninterval_ms = 100\ntimeout_ms = 1000\nrise = 2\n\
     fall = 1\njitter_percent = 0\nexpect = \"Real Server\"\n\n";

#[test]
fn everything_goes_over_by_af_xdp() {
    goes_over(here!(everything_goes_over_by_af_xdp), Driver::AfXdp, 1);
}

/// For `make test-all`.
mod faults {
    use super::*;

    #[test]
    fn everything_goes_over_by_af_xdp_with_two_workers() {
        goes_over(here!(everything_goes_over_by_af_xdp_with_two_workers), Driver::AfXdp, 2);
    }

    #[test]
    fn everything_goes_over_by_af_packet() {
        goes_over(here!(everything_goes_over_by_af_packet), Driver::AfPacket, 2);
    }
}

fn goes_over(name: &str, driver: Driver, workers: u32) {
    let setup = Setup { recipe: bare(), ..Setup::new(driver, workers) };
    on_bed(
        name,
        setup,
        |bed, mut recipe| {
            bed.add_ipv6()?;
            widen(bed)?;
            recipe.more = format!("{CHECKS}{}", recipe.more);
            for family in FAMILIES {
                recipe.more += &usual_services(bed, Mode::Fnat, family, family);
                recipe.more += &lines(bed, family).to_string();
                for (check, port) in [("through", 81), ("past", 82)] {
                    recipe.more += &checked(bed, check, port, family).to_string();
                }
            }
            let with = format!("[director]\nprobe_addresses = {PROBES:?}\n");
            let text = recipe.text(bed).replacen("[director]\n", &with, 1);
            let text = text.replace("device = \"af_xdp:", "mtu = 9000\ndevice = \"af_xdp:");
            let director = Director::start(bed, &text)?;
            for (family, from) in FAMILIES.into_iter().zip(PROBES) {
                let address = format!("{from}/{}", family.bits());
                bed.director.address(&bed.kernel_device("front"), &address)?;
            }
            Ok((director, recipe))
        },
        two_upgrades,
    );
}

/// Has all wires carry packets of 9000 bytes.
fn widen(bed: &Bed) -> Result<(), LabError> {
    let hosts = bed.reals.iter().chain([&bed.client]).map(|space| (space, "eth0"));
    let switch = ["p1", "p2", "p3", "director", "sw"].map(|device| (&bed.lan, device));
    let own = bed.ports().iter().map(|port| (&bed.director, *port));
    for (space, device) in hosts.chain(switch).chain(own) {
        space.ip(&["link", "set", "dev", device, "mtu", "9000"])?;
    }
    Ok(())
}

fn lines(bed: &Bed, family: Family) -> Service {
    let name = format!("lines{}", family.bits());
    let service = service(&name, "tcp", bed.vip_of(family), Mode::Fnat, family);
    service.set("port", LINES_PORT).reals(reals(family, 1))
}

/// A service that a check looks after: to the web servers, by another port.
fn checked(bed: &Bed, check: &str, port: u16, family: Family) -> Service {
    let name = format!("{check}{}", family.bits());
    let service = service(&name, "tcp", bed.vip_of(family), Mode::Fnat, family);
    let service = service.set("port", port).set("check", check);
    service.reals(reals(family, REALS).map(|real| real.set("port", 80)))
}

/// Each check has found all its real servers up, by `least` probes at least.
fn all_are_up(fixture: &Fixture, least: u64) -> Result<bool, LabError> {
    let mut all = Vec::new();
    for family in FAMILIES {
        for check in ["through", "past"] {
            all.extend(health(fixture, &format!("{check}{}", family.bits()))?);
        }
    }
    let is_up = |check: &serde_json::Value| {
        check["state"] == "up" && check["probes"].as_u64() >= Some(least)
    };
    Ok(all.len() == 4 * REALS && all.iter().all(is_up))
}

/// What the log says of real servers that were found down.
fn down(fixture: &Fixture) -> Vec<String> {
    let log = fixture.director.log();
    let lines = log.lines().filter(|line| line.contains("a real server is down"));
    lines.map(str::to_owned).collect()
}

/// What the kernel says of addresses and interfaces, in the director's namespace.
fn follow_kernel(fixture: &Fixture) -> Result<Running, LabError> {
    let space = &fixture.bed.director;
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "ip", "-o", "-n", space.name(), "monitor", "address", "link"]);
    let log = space.dir().join("kernel.log");
    let mut running = Running::start("ip monitor", &mut command, &log)?;
    let mark = format!("{MARK}/32");
    wait_until("the kernel's news", SOON, || {
        space.ip(&["address", "add", &mark, "dev", "lo"])?;
        space.ip(&["address", "del", &mark, "dev", "lo"])?;
        Ok(running.log().contains(MARK).then_some(()))
    })?;
    expect(running.ended()?.is_none(), || "`ip monitor` ended".to_owned())?;
    Ok(running)
}

fn two_upgrades(fixture: &mut Fixture) -> Result<(), LabError> {
    let fixture = &*fixture;
    let bed = &fixture.bed;
    wait_until("all checks to have passed", SOON, || Ok(all_are_up(fixture, 3)?.then_some(())))?;
    for family in FAMILIES {
        let vip = bed.vip_of(family).to_owned();
        wait_until("the addresses to be announced", SOON, || {
            let shown = bed.director.ip(&["address", "show", "dev", ANNOUNCED])?;
            Ok(shown.stdout.contains(&vip).then_some(()))
        })?;
    }
    let sum = make_blob_of(&bed.reals[0], BLOB)?;
    let (mut held, mut flows, mut downloads) = (Vec::new(), Vec::new(), Vec::new());
    for family in FAMILIES {
        let vip = bed.vip_of(family);
        held.push(fixture.hold(&endpoint(vip, LINES_PORT), LASTS_S + 2)?);
        let (url, client) = (format!("{}/blob", url(vip, 80)), bed.client.clone());
        downloads.push(std::thread::spawn(move || download_sha256(&client, &url, "20M")));
        flows.push(paced(&fixture.bed.client, vip, LASTS_S, &["2", LARGE])?);
    }
    let (before, at_start) = (resets_of(&bed.client)?, down(fixture));
    let kernel = follow_kernel(fixture)?;
    let _last = Last(&fixture.director);
    for round in 1..=2 {
        let former = pid(&fixture.director)?;
        let said = upgrade(&fixture.director)?;
        println!("upgrade {round}: {} ms by the director", said["gap_ms"]);
        expect(said["reopened"].as_array().is_some_and(Vec::is_empty), || said.to_string())?;
        wait_until("its end", SOON, || Ok((!is_alive(former)).then_some(())))?;
        wait_until("the checks to go on", SOON, || Ok(all_are_up(fixture, 3)?.then_some(())))?;
        // Its own events are the new one's alone; the log is of all of them.
        let down = down(fixture).split_off(at_start.len());
        expect(down.is_empty(), || format!("taken for dead: {}", down.join("\n")))?;
    }
    for (family, flow) in FAMILIES.into_iter().zip(&mut flows) {
        let said = flow.end()?;
        println!("{family}: {said}");
        let run_ms = 2.0 * said["longest_run"].as_f64().unwrap_or(f64::MAX);
        expect(run_ms < LONGEST_GAP_MS, || format!("datagrams were lost: {said}"))?;
    }
    for one in &mut held {
        expect(one.wait(SOON)?.success(), || format!("it broke: {}", one.log_tail(3)))?;
    }
    for download in downloads {
        let got = download.join().unwrap_or_else(|_| Err(LabError::Wrong("panicked".into())))?;
        expect(got == sum, || format!("sent {sum}, got {got}"))?;
    }
    // At the real servers probes are reset that were under way when their process ended.
    let now = resets_of(&bed.client)?;
    expect(now == before, || format!("resets: {before:?}, {now:?}"))?;
    nothing_went(&kernel.log(), bed)
}

/// No address of a service and no interface that holds them was taken away for a moment.
fn nothing_went(log: &str, bed: &Bed) -> Result<(), LabError> {
    let devices = [ANNOUNCED.to_owned(), bed.kernel_device("front"), bed.kernel_device("back")];
    for line in log.lines().filter(|line| line.contains("Deleted")) {
        let mut words = line.split([' ', ':', '@', '/']);
        let ours = words.any(|word| devices.iter().any(|device| device == word));
        expect(!ours, || format!("the kernel says: {line}"))?;
    }
    Ok(())
}
