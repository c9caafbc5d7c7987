//! Source NAT further out: names asked of a DNS server outside, and the path's MTU as inside hosts
//! learn it by `ping -M do`, from the director's own narrow egress and from a router behind it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use sluice_e2e::capture::{Capture, counts, judge_and};
use sluice_e2e::error::expect;
use sluice_e2e::family::{FAMILIES, url};
use sluice_e2e::lab::End;
use sluice_e2e::load::{ping, upload_sha256};
use sluice_e2e::web::{self, SINK_PORT, make_blob_of};
use sluice_e2e::{Bed, Driver, Family, LabError, Netns, process, wait_until};

use crate::dns::{dnsperf, query_list, start_nsd};
use crate::fixture::{Fixture, SOON, Setup, here};
use crate::snat::{PORTS, on_outward, outside, pool};

macro_rules! row {
    ($($test:ident: $driver:ident, $workers:literal, $mapping:literal, $run:expr;)+) => {
        $(
            #[test]
            fn $test() {
                let setup = Setup::new(Driver::$driver, $workers);
                on_outward(here!($test), setup, $mapping, PORTS, $run);
            }
        )+
    };
}

row! {
    names_per_session: AfXdp, 1, "per_session", |fixture| names(fixture, false);
    names_endpoint_independent: AfXdp, 1, "endpoint_independent", |fixture| names(fixture, true);
    names_two_workers: AfXdp, 2, "endpoint_independent", |fixture| names(fixture, true);
    names_by_packet_sockets: AfPacket, 1, "per_session", |fixture| names(fixture, false);
    a_narrow_egress_per_session: AfXdp, 1, "per_session", a_narrow_egress;
    a_narrow_egress_endpoint_independent: AfXdp, 1, "endpoint_independent", a_narrow_egress;
    a_narrow_egress_two_workers: AfXdp, 2, "per_session", a_narrow_egress;
    a_narrow_link_beyond_per_session: AfXdp, 1, "per_session", a_narrow_link_beyond;
    a_narrow_link_beyond_endpoint_independent: AfXdp, 1, "endpoint_independent",
        a_narrow_link_beyond;
    a_narrow_link_beyond_two_workers: AfXdp, 2, "endpoint_independent", a_narrow_link_beyond;
}

/// The port that every inside host asks from.
const ASKS_FROM: &str = "5353";

/// Every real server asks both hosts outside from the same port of its own, over UDP and, from any
/// port, over TCP. All is answered, and outside hosts hear only the pool's address.
fn names(fixture: &mut Fixture, endpoint_independent: bool) -> Result<(), LabError> {
    let hosts: Vec<String> =
        FAMILIES.map(outside).as_flattened().iter().map(|h| (*h).to_owned()).collect();
    let nsd = start_nsd(&fixture.bed.client, "nsd", &hosts)?;
    fixture.bed.peers.push(nsd);
    let list = query_list(&fixture.bed.lab)?;
    for family in FAMILIES {
        for real in &fixture.bed.reals {
            // The addresses of a twin are given while the director runs already, and only so many
            // packets wait for a neighbour.
            let host = outside(family)[0];
            wait_until("a ping to the outside", SOON, || Ok(ping(real, host, 1)?.then_some(())))?;
        }
        let seen = Capture::start(&fixture.bed.client, "eth0", &format!("names{}", family.bits()))?;
        let asked = ask_all(fixture, family, &list);
        let file = seen.stop()?;
        // Where something is lost it matters on which side of the outside network.
        asked.map_err(|error| match heard(&file) {
            Ok((asked, answered)) => LabError::Wrong(format!(
                "{error}; outside, UDP carried {asked} questions and {answered} answers"
            )),
            Err(_) => error,
        })?;
        let ip = if family == Family::V4 { "ip" } else { "ipv6" };
        let asked = "dns.flags.response == 0";
        let ours = format!("{ip}.src == {}", pool(family));
        let filters = [
            format!("udp && {asked} && {ours}"),
            format!("tcp && {asked} && {ours}"),
            format!("{asked} && !({ours})"),
        ];
        let (verdict, [sent, streams, leaked]) =
            judge_and(&file, filters.each_ref().map(|f| &**f))?;
        expect(verdict.bad == 0 && verdict.good_udp >= 1800, || format!("{verdict:?}"))?;
        expect(sent == 900 && streams > 0 && leaked == 0, || {
            format!("{family}: {sent} by UDP, {streams} by TCP, {leaked} not from the pool")
        })?;
        // Three inside endpoints: each has one port outside, if that does not depend on the host.
        let mapped = ports_of(&file, &format!("udp && {asked}"))?;
        let right = if endpoint_independent { mapped.len() == 3 } else { mapped.len() >= 3 };
        expect(right, || format!("{family}: mapped to {mapped:?}"))?;
    }
    Ok(())
}

/// Every real server asks both hosts outside, over UDP and over TCP.
fn ask_all(fixture: &Fixture, family: Family, list: &Path) -> Result<(), LabError> {
    for real in &fixture.bed.reals {
        for host in outside(family) {
            dnsperf(real, host, list, 50, &["-x", ASKS_FROM])
                .and_then(|()| dnsperf(real, host, list, 5, &["-m", "tcp"]))
                .map_err(|error| LabError::Wrong(format!("asking {host}: {error}")))?;
        }
    }
    Ok(())
}

/// Questions and answers by UDP in a capture.
fn heard(file: &Path) -> Result<(u64, u64), LabError> {
    let of = ["udp && dns.flags.response == 0", "udp && dns.flags.response == 1"];
    counts(file, of).map(|[asked, answered]| (asked, answered))
}

/// The source ports of the UDP datagrams that match a filter.
fn ports_of(file: &Path, filter: &str) -> Result<BTreeSet<String>, LabError> {
    let mut tshark = Command::new("timeout");
    tshark.args(["60", "tshark", "-n", "-r"]).arg(file).args(["-Y", filter]);
    tshark.args(["-T", "fields", "-e", "udp.srcport"]);
    Ok(process::run(&mut tshark)?.ok()?.stdout.lines().map(str::to_owned).collect())
}

/// What ping says of a packet too large.
fn too_large(family: Family, mtu: u32) -> String {
    match family {
        Family::V4 => format!("Frag needed and DF set (mtu = {mtu})"),
        Family::V6 => format!("Packet too big: mtu={mtu}"),
    }
}

/// How many bytes of an echo's data make a packet of a size.
fn data_of(family: Family, packet: u32) -> u32 {
    packet - if family == Family::V4 { 28 } else { 48 }
}

/// One ping of a packet size that may or may not be cut, and all that is said of it.
fn ping_of(real: &Netns, host: &str, packet: u32, cut: &str) -> Result<(bool, String), LabError> {
    let size = data_of(Family::of(host), packet).to_string();
    let args = ["-n", "-c", "1", "-W", "10", "-M", cut, "-s", &size, host];
    let ran = real.run("ping", &args)?;
    Ok((ran.status.success(), ran.stdout + &ran.stderr))
}

/// A packet of the Ethernet's size gets an error with the right number, from `teller` if that is
/// known; the inside host's kernel believes it; what fits gets through, and what may be cut too.
fn learns(real: &Netns, host: &str, mtu: u32, teller: Option<&str>) -> Result<(), LabError> {
    let family = Family::of(host);
    wait_until("a ping to the outside", SOON, || Ok(ping(real, host, 1)?.then_some(())))?;
    let (passed, said) = ping_of(real, host, 1500, "do")?;
    let told = said.contains(&too_large(family, mtu))
        && teller.is_none_or(|teller| said.contains(&format!("From {teller}")));
    expect(!passed && told, || format!("to {host}, the first: {said}"))?;
    let (passed, said) = ping_of(real, host, mtu + 1, "do")?;
    let believed = said.contains(&format!("message too long, mtu={mtu}"))
        || said.contains(&format!("mtu: {mtu}"));
    expect(!passed && believed, || format!("to {host}, one byte too many: {said}"))?;
    for (packet, cut) in [(mtu, "do"), (mtu + 1, "dont"), (1500, "dont"), (4000, "dont")] {
        let (passed, said) = ping_of(real, host, packet, cut)?;
        expect(passed, || format!("to {host}, {packet} bytes, -M {cut}: {said}"))?;
    }
    Ok(())
}

/// An upload by TCP that has to find out likewise; from another real server, which has not learned.
fn uploads(fixture: &mut Fixture, place: &Netns, hosts: [&str; 2]) -> Result<(), LabError> {
    fixture.bed.peers.push(web::start_sink(place, "sink")?);
    let sum = make_blob_of(place, 3_000_000)?;
    let blob = fixture.bed.lab.dir().join("blob").display().to_string();
    for host in hosts {
        let url = format!("{}/", url(host, SINK_PORT));
        let got = upload_sha256(&fixture.bed.reals[2], &url, &blob)?;
        expect(got == sum, || format!("to {host}: sent {sum}, got {got}"))?;
    }
    Ok(())
}

/// The director's own link to the outside takes 1400 bytes: it is the one to say so.
fn a_narrow_egress(fixture: &mut Fixture) -> Result<(), LabError> {
    for (space, device) in [(&fixture.bed.director, "front"), (&fixture.bed.client, "eth0")] {
        space.ip(&["link", "set", "dev", device, "mtu", "1400"])?;
    }
    for (family, teller) in FAMILIES.into_iter().zip(["192.0.2.1", "2001:db8:2::1"]) {
        learns(&fixture.bed.reals[0], outside(family)[0], 1400, Some(teller))?;
    }
    let place = fixture.bed.client.clone();
    uploads(fixture, &place, FAMILIES.map(|family| outside(family)[0]))
}

/// A host behind a router outside, over a link of 1300 bytes: the router's error quotes the packet
/// as the pool's address sent it, and the director turns it into what the inside host sent.
fn a_narrow_link_beyond(fixture: &mut Fixture) -> Result<(), LabError> {
    let far = beyond(&mut fixture.bed)?;
    for family in FAMILIES {
        learns(&fixture.bed.reals[0], far_host(family), 1300, None)?;
    }
    uploads(fixture, &far, FAMILIES.map(far_host))
}

/// The host beyond.
fn far_host(family: Family) -> &'static str {
    match family {
        Family::V4 => "203.0.113.2",
        Family::V6 => "2001:db8:3::2",
    }
}

/// Makes the host beyond, with the client's machine as the router to it.
fn beyond(bed: &mut Bed) -> Result<Netns, LabError> {
    let far = bed.lab.space("far")?;
    let router = End { space: &bed.client, device: "further", mac: None };
    bed.lab.veth(router, End { space: &far, device: "eth0", mac: None }, 1)?;
    for (space, device) in [(&bed.client, "further"), (&far, "eth0")] {
        space.ip(&["link", "set", "dev", device, "mtu", "1300"])?;
    }
    far.sysctl("net.ipv6.conf.all.disable_ipv6", "0")?;
    for (family, own, net) in [
        (Family::V4, "203.0.113.1", "203.0.113.0/24"),
        (Family::V6, "2001:db8:3::1", "2001:db8:3::/64"),
    ] {
        let (_, bits) = net.split_once('/').unwrap_or_default();
        bed.client.address("further", &format!("{own}/{bits}"))?;
        far.address("eth0", &format!("{}/{bits}", far_host(family)))?;
        far.route("default", own)?;
        bed.director.route(net, bed.client_of(family))?;
    }
    bed.client.sysctl("net.ipv4.ip_forward", "1")?;
    bed.client.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    Ok(far)
}
