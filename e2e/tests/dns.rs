//! A real DNS server (NSD) behind the director and dnsperf in front of it, over UDP: every query
//! answered, and spread as `one_packet` says.

use std::path::Path;

use sluice_e2e::bed::REALS;
use sluice_e2e::capture::{Capture, count};
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::{Bed, Driver, Family, LabError, Mode, Netns, Running, wait_until};

use crate::arena::{on_dual, reals, service};
use crate::field::{Field, SOON, Setup, here};

const ZONE: &str = "$ORIGIN example.test.\n$TTL 60\n\
    @ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.11\n\
    www A 203.0.113.80\nwww AAAA 2001:db8:3::80\n";

/// NSD for `example.test`; with the virtual addresses, if it is to answer from them.
fn start_nsd(bed: &Bed, real: &Netns, number: usize, mode: Mode) -> Result<Running, LabError> {
    let dir = bed.lab.dir();
    let write = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).map_err(LabError::file(file.display().to_string()))
    };
    write("example.test.zone", ZONE)?;
    let mut addresses = vec![Bed::real_of(Family::V4, number), Bed::real_of(Family::V6, number)];
    if mode.answers_past() {
        addresses.extend(FAMILIES.map(|family| bed.vip_of(family).to_owned()));
    }
    let name = format!("nsd{}", number + 1);
    let own = dir.join(&name).display().to_string();
    let listen: String =
        addresses.iter().map(|address| format!("  ip-address: {address}\n")).collect();
    let text = format!(
        "server:\n{listen}  server-count: 1\n  rrl-ratelimit: 0\n\
         \x20 username: \"\"\n  zonesdir: {zones:?}\n\
         \x20 database: \"\"\n  pidfile: \"\"\n  xfrdfile: \"{own}.xfrd\"\n\
         \x20 zonelistfile: \"{own}.list\"\n  xfrdir: {zones:?}\n\
         remote-control:\n  control-enable: no\n\
         zone:\n  name: example.test\n  zonefile: example.test.zone\n",
        zones = dir.display().to_string(),
    );
    let file = format!("{name}.conf");
    write(&file, &text)?;
    let config = dir.join(file);
    let running = real.start(&name, "nsd", &["-d", "-c", &config.to_string_lossy()])?;
    // It listens some time before it serves.
    let ask =
        "echo 'www.example.test A' | dnsperf -s \"$1\" -n 1 -c 1 -t 1 | grep -q 'completed:  *1 '";
    let own = Bed::real_of(Family::V4, number);
    wait_until("nsd to answer", SOON, || {
        Ok(real.run("sh", &["-c", ask, "sh", &own])?.status.success().then_some(()))
    })?;
    Ok(running)
}

macro_rules! row {
    ($($test:ident: $driver:ident, $workers:literal, $mode:ident, $one_packet:literal;)+) => {
        $(
            #[test]
            fn $test() {
                let (mode, one) = (Mode::$mode, $one_packet);
                let services = |bed: &Bed| {
                    FAMILIES
                        .map(|family| {
                            let name = format!("dns{}", family.bits());
                            service(&name, "udp", bed.vip_of(family), mode, family)
                                .set("port", 53)
                                .set("one_packet", one)
                                .reals(reals(family, REALS))
                                .to_string()
                        })
                        .concat()
                };
                let setup = Setup::new(Driver::$driver, $workers);
                on_dual(here!($test), setup, mode, services, |field| queries(field, mode, one));
            }
        )+
    };
}

row! {
    fnat: AfXdp, 1, Fnat, false;
    fnat_one_packet: AfXdp, 1, Fnat, true;
    nat_one_packet: AfXdp, 1, Nat, true;
    nat_one_packet_two_workers: AfXdp, 2, Nat, true;
    dr: AfXdp, 1, Dr, false;
    dr_one_packet: AfXdp, 1, Dr, true;
    ipip_one_packet: AfXdp, 1, Ipip, true;
    fnat_by_packet_sockets: AfPacket, 1, Fnat, true;
}

/// dnsperf with one socket: without `one_packet` one real server gets all its queries, with it all
/// of them get a third each.
fn queries(field: &mut Field, mode: Mode, one_packet: bool) -> Result<(), LabError> {
    for index in 0..REALS {
        let nsd = start_nsd(&field.bed, &field.bed.reals[index], index, mode)?;
        field.bed.peers.push(nsd);
    }
    let list = field.bed.lab.dir().join("queries");
    let text = "www.example.test A\nwww.example.test AAAA\nnobody.example.test A\n";
    std::fs::write(&list, text).map_err(LabError::file("writing the queries"))?;
    for family in FAMILIES {
        // The first datagrams may find neighbours unresolved, and only so many wait for one.
        dnsperf(field, family, &list, 3)?;
        let captures = field
            .bed
            .reals
            .iter()
            .enumerate()
            .map(|(index, real)| Capture::start(real, "eth0", &format!("dns{family}{index}")))
            .collect::<Result<Vec<_>, _>>()?;
        let done = dnsperf(field, family, &list, 200);
        let mut got = Vec::new();
        for capture in captures {
            got.push(count(&capture.stop()?, "dns.flags.response == 0 && !icmp")?);
        }
        done.map_err(|error| LabError::Wrong(format!("{error}\nreal servers got {got:?}")))?;
        let all: u64 = got.iter().sum();
        let shared = got.iter().all(|got| got.abs_diff(200) <= 2);
        let alone = got.iter().filter(|got| **got > 0).count() == 1;
        let right = all == 600 && if one_packet { shared } else { alone };
        expect(right, || format!("{family}: real servers got {got:?} queries"))?;
    }
    Ok(())
}

/// Runs through the list of three queries some times, by one socket, and wants all answered.
fn dnsperf(field: &Field, family: Family, list: &Path, times: u32) -> Result<(), LabError> {
    let (times, queries) = (times.to_string(), (times * 3).to_string());
    let list = list.to_string_lossy();
    let mut args = vec!["-s", field.bed.vip_of(family), "-d", &list, "-n", &times];
    args.extend(["-c", "1", "-T", "1", "-q", "20", "-t", "2", "-f"]);
    args.push(if family == Family::V4 { "inet" } else { "inet6" });
    let said = field.bed.client.run("dnsperf", &args)?.ok()?.stdout;
    let whole = said.lines().any(|line| {
        line.contains("Queries completed:") && line.contains(&format!(" {queries} (100.00%)"))
    });
    expect(whole, || said)
}
