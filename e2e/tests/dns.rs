//! A real DNS server (NSD) behind the director and dnsperf in front of it, over UDP: every query
//! answered, and spread as `one_packet` says.

use std::path::{Path, PathBuf};

use sluice_e2e::bed::REALS;
use sluice_e2e::capture::{Capture, count};
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::{Bed, Driver, Family, Lab, LabError, Mode, Netns, Running, wait_until};

use crate::dual_stack::{on_dual, reals, service};
use crate::fixture::{Fixture, SOON, Setup, here};

const ZONE: &str = "$ORIGIN example.test.\n$TTL 60\n\
    @ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.11\n\
    www A 203.0.113.80\nwww AAAA 2001:db8:3::80\n";

/// The questions, one a line.
const QUERIES: &str = "www.example.test A\nwww.example.test AAAA\nnobody.example.test A\n";

/// Writes the list of [`QUERIES`] for [`dnsperf`].
pub fn query_list(lab: &Lab) -> Result<PathBuf, LabError> {
    let list = lab.dir().join("queries");
    std::fs::write(&list, QUERIES).map_err(LabError::file("writing the queries"))?;
    Ok(list)
}

/// NSD for `example.test` on some addresses; waits until it serves.
pub fn start_nsd(space: &Netns, name: &str, addresses: &[String]) -> Result<Running, LabError> {
    let dir = space.dir();
    let write = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).map_err(LabError::file(file.display().to_string()))
    };
    write("example.test.zone", ZONE)?;
    let own = dir.join(name).display().to_string();
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
    let running = space.start(name, "nsd", &["-d", "-c", &config.to_string_lossy()])?;
    // It listens some time before it serves.
    let ask =
        "echo 'www.example.test A' | dnsperf -s \"$1\" -n 1 -c 1 -t 1 | grep -q 'completed:  *1 '";
    wait_until("nsd to answer", SOON, || {
        Ok(space.run("sh", &["-c", ask, "sh", &addresses[0]])?.status.success().then_some(()))
    })?;
    Ok(running)
}

/// The addresses of a real server, and the virtual ones if it is to answer from them.
fn addresses(bed: &Bed, number: usize, mode: Mode) -> Vec<String> {
    let own = FAMILIES.map(|family| Bed::real_of(family, number)).into_iter();
    let held = FAMILIES.map(|family| bed.vip_of(family).to_owned()).into_iter();
    own.chain(held.filter(|_| mode.answers_past())).collect()
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
                on_dual(here!($test), setup, mode, services, |fixture| queries(fixture, mode, one));
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
fn queries(fixture: &mut Fixture, mode: Mode, one_packet: bool) -> Result<(), LabError> {
    for index in 0..REALS {
        let addresses = addresses(&fixture.bed, index, mode);
        let nsd = start_nsd(&fixture.bed.reals[index], &format!("nsd{}", index + 1), &addresses)?;
        fixture.bed.peers.push(nsd);
    }
    let list = query_list(&fixture.bed.lab)?;
    for family in FAMILIES {
        let vip = fixture.bed.vip_of(family);
        let ask = |times| dnsperf(&fixture.bed.client, vip, &list, times, &[]);
        // The first datagrams may find neighbours unresolved, and only so many wait for one.
        ask(3)?;
        let captures = fixture
            .bed
            .reals
            .iter()
            .enumerate()
            .map(|(index, real)| Capture::start(real, "eth0", &format!("dns{family}{index}")))
            .collect::<Result<Vec<_>, _>>()?;
        let done = ask(200);
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
pub fn dnsperf(
    client: &Netns,
    server: &str,
    list: &Path,
    times: u32,
    more: &[&str],
) -> Result<(), LabError> {
    let (times, queries) = (times.to_string(), (times * 3).to_string());
    let list = list.to_string_lossy();
    let family = if Family::of(server) == Family::V4 { "inet" } else { "inet6" };
    let usual = ["-s", server, "-d", &list, "-n", &times, "-f", family];
    let calm = ["-c", "1", "-T", "1", "-q", "20", "-t", "2"];
    let said = wait_until("dnsperf to connect", SOON, || {
        let ran = client.run("dnsperf", &[&usual[..], &calm, more].concat())?;
        // It gives up where a connection is not there at once: no SYN may be late on the way, or
        // lost. Nothing was asked then.
        let gave_up = ran.stderr.contains("all sockets reported failure");
        Ok(if gave_up { None } else { Some(ran.ok()?.stdout) })
    })?;
    let whole = said.lines().any(|line| {
        line.contains("Queries completed:") && line.contains(&format!(" {queries} (100.00%)"))
    });
    expect(whole, || said)
}
