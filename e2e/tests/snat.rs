//! Source NAT: real servers reach a web server, a DNS server and hosts outside, by ping too, under
//! an address of the pool; what maps to what is seen by reflecting hosts outside.

use sluice_e2e::capture::{Capture, counts, judge_and};
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::family::{FAMILIES, endpoint, url};
use sluice_e2e::load::{curl, download_sha256, ping};
use sluice_e2e::web::{self, ECHO_PORT, make_blob_of};
use sluice_e2e::{Bed, Driver, Family, LabError, Mode, Netns, wait_until};

use crate::dual_stack::on_dual;
use crate::fixture::{Fixture, PYTHON, SOON, Setup, here};

/// Where reflecting hosts listen.
const REFLECT_PORT: u16 = 3478;

/// The two hosts outside: the client's machine by two of its addresses.
pub fn outside(family: Family) -> [&'static str; 2] {
    match family {
        Family::V4 => ["198.51.100.48", "198.51.100.49"],
        Family::V6 => ["2001:db8:1::48", "2001:db8:1::49"],
    }
}

/// The pool's address of a family.
pub fn pool(family: Family) -> &'static str {
    match family {
        Family::V4 => "198.51.100.10",
        Family::V6 => "2001:db8:1::10",
    }
}

/// The pool and the rule for the real servers.
pub fn rule(mapping: &str, ports: &str) -> String {
    format!(
        "[[pool]]\nname = \"outside\"\naddresses = [\"198.51.100.10\", \"2001:db8:1::10\"]\n\
         ports = \"{ports}\"\n\n[[snat]]\nname = \"servers\"\n\
         sources = [\"192.0.2.0/24\", \"2001:db8:2::/64\"]\negress = \"front\"\n\
         pool = \"outside\"\nmapping = \"{mapping}\"\n"
    )
}

/// Gives the director's front the pool's addresses.
pub fn hold_pool(bed: &Bed) -> Result<(), LabError> {
    let front = bed.kernel_device("front");
    FAMILIES.into_iter().try_for_each(|family| {
        bed.director.address(&front, &format!("{}/{}", pool(family), family.bits()))
    })
}

/// A bed whose real servers go out by a rule, with servers outside.
pub fn on_outward(
    name: &str,
    setup: Setup,
    mapping: &str,
    ports: &str,
    test: impl FnOnce(&mut Fixture) -> Result<(), LabError>,
) {
    let services = |_: &Bed| rule(mapping, ports);
    on_dual(name, setup, Mode::Nat, services, |fixture| {
        let bed = &mut fixture.bed;
        for family in FAMILIES {
            let second = format!("{}/{}", outside(family)[1], family.bits());
            bed.client.address("eth0", &second)?;
        }
        hold_pool(bed)?;
        bed.peers.push(web::start_nginx(&bed.client, 9)?);
        let peer = program("sluice-peer")?;
        let hosts = FAMILIES.map(|family| outside(family).map(|host| endpoint(host, REFLECT_PORT)));
        let mut args = vec!["reflect"];
        args.extend(hosts.as_flattened().iter().map(String::as_str));
        let mut reflect = bed.client.start("reflect", &peer.to_string_lossy(), &args)?;
        reflect.wait_for_words("listening", SOON)?;
        bed.peers.push(reflect);
        test(fixture)
    });
}

/// Ports of the pool that most tests have.
pub const PORTS: &str = "20000-29999";

#[test]
fn servers_reach_the_outside() {
    let name = here!(servers_reach_the_outside);
    on_outward(name, Setup::usual(), "endpoint_independent", PORTS, reaches);
}

#[test]
fn servers_reach_the_outside_per_session() {
    let name = here!(servers_reach_the_outside_per_session);
    on_outward(name, Setup::usual(), "per_session", PORTS, reaches);
}

#[test]
fn servers_reach_the_outside_two_workers() {
    let name = here!(servers_reach_the_outside_two_workers);
    on_outward(name, Setup::new(Driver::AfXdp, 2), "endpoint_independent", PORTS, reaches);
}

#[test]
fn servers_reach_the_outside_by_packet_sockets() {
    let name = here!(servers_reach_the_outside_by_packet_sockets);
    on_outward(name, Setup::new(Driver::AfPacket, 1), "per_session", PORTS, reaches);
}

/// HTTP, a download, ping; outside nothing is seen but the pool's addresses.
fn reaches(fixture: &mut Fixture) -> Result<(), LabError> {
    let sum = make_blob_of(&fixture.bed.client, 5_000_000)?;
    let seen = Capture::start(&fixture.bed.client, "eth0", "outside")?;
    for family in FAMILIES {
        for (real, host) in fixture.bed.reals.iter().zip(outside(family).iter().cycle()) {
            let answer = curl(real, &url(host, 80))?;
            expect(answer == "Real Server 09", || answer.clone())?;
            expect(ping(real, host, 4)?, || format!("no answer to pings of {host}"))?;
        }
        let blob = format!("{}/blob", url(outside(family)[0], 80));
        let got = download_sha256(&fixture.bed.reals[1], &blob, "")?;
        expect(got == sum, || format!("sent {sum}, got {got}"))?;
    }
    let file = seen.stop()?;
    let inside = "ip.addr == 192.0.2.0/24 || (ipv6.addr == 2001:db8:2::/64)";
    let pings = "icmp.type == 8 || icmpv6.type == 128";
    let (verdict, [leaked, pings]) = judge_and(&file, [inside, pings])?;
    expect(verdict.bad == 0 && verdict.good_tcp > 100, || format!("{verdict:?}"))?;
    expect(leaked == 0, || format!("{leaked} frames of inside addresses were seen outside"))?;
    // 3 real servers, 4 pings each, in both families.
    expect(pings == 24, || format!("{pings} of 24 pings came out"))
}

fn ask(real: &Netns, from: u16, family: Family, hosts: &[&str]) -> Result<Vec<String>, LabError> {
    let peer = program("sluice-peer")?;
    let servers: Vec<String> = hosts.iter().map(|host| endpoint(host, REFLECT_PORT)).collect();
    let from = from.to_string();
    let mut args = vec!["ask", &*from];
    args.extend(servers.iter().map(String::as_str));
    let said = real.run(&peer.to_string_lossy(), &args)?.ok()?.stdout;
    let all: Vec<String> = said.lines().map(str::to_owned).collect();
    let start = endpoint(pool(family), 0);
    let start = start.trim_end_matches('0');
    expect(all.iter().all(|one| one.starts_with(start)), || format!("{all:?}"))?;
    Ok(all)
}

/// Two connections at a time from one local port; a mapping goes with its last connection.
const TWO_CONNECTIONS: &str = "
import socket, sys
own, port, *hosts = sys.argv[1:]
family = socket.AF_INET6 if ':' in hosts[0] else socket.AF_INET
both = [socket.socket(family, socket.SOCK_STREAM) for _ in hosts]
for one, host in zip(both, hosts):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.settimeout(3)
    one.bind(('', int(own)))
    one.connect((host, int(port)))
for one in both:
    one.send(b'GET / HTTP/1.0\\r\\n\\r\\n')
    print(one.makefile().read().splitlines()[-1])
";

/// RFC 4787, 4.1: from one inside address and port, two hosts outside see the same endpoint; from
/// another port another one. TCP likewise (RFC 5382, 4.1).
#[test]
fn mappings_are_endpoint_independent() {
    let name = here!(mappings_are_endpoint_independent);
    on_outward(name, Setup::usual(), "endpoint_independent", PORTS, |fixture| {
        let real = &fixture.bed.reals[0];
        for family in FAMILIES {
            let hosts = outside(family);
            let one = ask(real, 5000, family, &hosts)?;
            let other = ask(real, 5001, family, &hosts)?;
            let right = one[0] == one[1] && other[0] == other[1] && one[0] != other[0];
            expect(right, || format!("UDP: {one:?}, {other:?}"))?;
            let port = REFLECT_PORT.to_string();
            let args = ["-c", TWO_CONNECTIONS, "6000", &port, hosts[0], hosts[1]];
            let seen = real.run(PYTHON, &args)?.ok()?.stdout;
            let seen: Vec<&str> = seen.lines().collect();
            expect(seen.len() == 2 && seen[0] == seen[1], || format!("TCP: {seen:?}"))?;
        }
        Ok(())
    });
}

/// A pool with a single port: per session it serves two inside hosts that talk to different hosts
/// outside, and refuses the second that wants the same one.
#[test]
fn per_session_mappings_share_a_port() {
    let name = here!(per_session_mappings_share_a_port);
    on_outward(name, Setup::usual(), "per_session", "20000-20000", |fixture| {
        for family in FAMILIES {
            let hosts = outside(family);
            let one = ask(&fixture.bed.reals[0], 5000, family, &hosts[..1])?;
            let other = ask(&fixture.bed.reals[1], 5000, family, &hosts[1..])?;
            expect(one == other, || format!("{one:?} and {other:?}"))?;
            let third = ask(&fixture.bed.reals[2], 5000, family, &hosts[..1]);
            expect(third.is_err(), || format!("a third was served: {third:?}"))?;
        }
        Ok(())
    });
}

/// The same pool, endpoint independent: the one port is the first host's, wherever others go.
#[test]
fn endpoint_independent_mappings_do_not_share_a_port() {
    let name = here!(endpoint_independent_mappings_do_not_share_a_port);
    on_outward(name, Setup::usual(), "endpoint_independent", "20000-20000", |fixture| {
        for family in FAMILIES {
            let hosts = outside(family);
            let both = ask(&fixture.bed.reals[0], 5000, family, &hosts)?;
            expect(both[0] == both[1], || format!("{both:?}"))?;
            let other = ask(&fixture.bed.reals[1], 5000, family, &hosts[1..]);
            expect(other.is_err(), || format!("another was served: {other:?}"))?;
        }
        Ok(())
    });
}

/// Hosts that nobody has talked to before, for each family.
const STRANGERS: usize = 100;
/// Datagrams to each at once.
const AT_ONCE: usize = 20;

/// The first datagrams to a host whose link-layer address is not known wait for it: none is lost,
/// however they meet with the kernel's answer.
fn strangers(fixture: &mut Fixture) -> Result<(), LabError> {
    let peer = program("sluice-peer")?;
    for (family, net) in FAMILIES.into_iter().zip(["198.51.100.", "2001:db8:1::5:"]) {
        let hosts: Vec<String> = (0..STRANGERS).map(|at| format!("{net}{}", 60 + at)).collect();
        for host in &hosts {
            fixture.bed.client.address("eth0", &format!("{host}/{}", family.bits()))?;
        }
        let port = ECHO_PORT.to_string();
        let mut args = vec!["udp-echo", &*port];
        args.extend(hosts.iter().map(String::as_str));
        let name = format!("echo{}", family.bits());
        let mut echo = fixture.bed.client.start(&name, &peer.to_string_lossy(), &args)?;
        echo.wait_for_words("listening", SOON)?;
        fixture.bed.peers.push(echo);
        let known = outside(family)[0];
        let ping_once = || Ok(ping(&fixture.bed.reals[0], known, 1)?.then_some(()));
        wait_until("a ping to the outside", SOON, ping_once)?;
        let at_once = AT_ONCE.to_string();
        let servers: Vec<String> = hosts.iter().map(|host| endpoint(host, ECHO_PORT)).collect();
        let mut args = vec!["udp-bursts", "5353", &*at_once];
        args.extend(servers.iter().map(String::as_str));
        let seen = Capture::start(&fixture.bed.client, "eth0", &name)?;
        let said = fixture.bed.reals[0].run(&peer.to_string_lossy(), &args)?.ok()?.stdout;
        let file = seen.stop()?;
        let lost: Vec<&str> = said.lines().filter(|line| !line.ends_with(" answered")).collect();
        let carried = ["dstport", "srcport"].map(|way| format!("udp.{way} == {ECHO_PORT}"));
        let [asked, answered] = counts(&file, carried.each_ref().map(|filter| &**filter))?;
        expect(lost.is_empty() && said.lines().count() == STRANGERS, || {
            format!("{lost:?}; outside, there were {asked} questions and {answered} answers")
        })?;
    }
    Ok(())
}

#[test]
fn strangers_get_all() {
    on_outward(here!(strangers_get_all), Setup::usual(), "endpoint_independent", PORTS, strangers);
}

#[test]
fn strangers_get_all_two_workers() {
    let setup = Setup::new(Driver::AfXdp, 2);
    let name = here!(strangers_get_all_two_workers);
    on_outward(name, setup, "per_session", PORTS, strangers);
}

#[test]
fn strangers_get_all_by_packet_sockets() {
    let setup = Setup::new(Driver::AfPacket, 1);
    let name = here!(strangers_get_all_by_packet_sockets);
    on_outward(name, setup, "endpoint_independent", PORTS, strangers);
}
