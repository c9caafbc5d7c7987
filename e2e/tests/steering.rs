//! Only balanced traffic is taken: everything else on the same interface stays the kernel's.

use std::time::Duration;

use sluice_e2e::bed::{ADMIN_PORT, Bed};
use sluice_e2e::error::expect;
use sluice_e2e::family::{FAMILIES, url};
use sluice_e2e::lab::Netns;
use sluice_e2e::load::{curl, ping, wrk};
use sluice_e2e::process::wait_until;
use sluice_e2e::{Director, Driver, Family, LabError, Mode};

use crate::dual_stack::{on_dual, reals, service};
use crate::fixture::{Fixture, PYTHON, REFUSED, SOON, Setup, here, on, on_bed};
use crate::snat;

#[test]
fn an_ssh_like_service_and_ping_keep_working() {
    on(here!(an_ssh_like_service_and_ping_keep_working), Setup::usual(), beside_under_load);
}

/// A session to the director's own machine lives through load on the services, and ping too.
fn beside_under_load(fixture: &mut Fixture) -> Result<(), LabError> {
    fixture.bed.start_admin()?;
    let own = fixture.bed.front_address();
    let mut held = fixture.hold(&format!("{own}:{ADMIN_PORT}"), 4)?;
    let load = wrk(&fixture.bed.client, &format!("{}/", fixture.url()), 16, 2)?;
    expect(load.socket_errors == 0, || format!("{load:?}"))?;
    expect(ping(&fixture.bed.client, own, 10)?, || "no answer to ping".to_owned())?;
    let ended = held.wait(SOON)?;
    expect(ended.success(), || held.log_tail(5))
}

#[test]
fn ping_to_the_virtual_address_is_answered() {
    on(here!(ping_to_the_virtual_address_is_answered), Setup::usual(), |fixture| {
        let answered = ping(&fixture.bed.client, fixture.bed.vip(), 10)?;
        expect(answered, || "no answer to ping".to_owned())
    });
}

/// A port of the virtual address that is no service is the kernel's: it refuses the connection.
#[test]
fn other_ports_of_the_virtual_address_are_the_kernels() {
    on(here!(other_ports_of_the_virtual_address_are_the_kernels), Setup::usual(), |fixture| {
        let url = format!("http://{}:81/", fixture.bed.vip());
        let ran = fixture.bed.client.run("curl", &["-sS", "--max-time", "5", &url])?;
        expect(ran.status.code() == Some(REFUSED), || format!("{ran:?}"))
    });
}

/// Traffic that the director's machine only routes passes by the program too.
#[test]
fn routed_traffic_passes_by() {
    on(here!(routed_traffic_passes_by), Setup::usual(), |fixture| {
        fixture.bed.route_directly()?;
        let answer = sluice_e2e::load::curl(&fixture.bed.client, "http://192.0.2.12/")?;
        expect(answer == "Real Server 02", || answer.clone())
    });
}

/// A driver may know XDP and refuse it all the same (here veth, whose peer sends by more queues
/// than it receives by; on virtual machines virtio_net): the generic form serves then.
#[test]
fn a_driver_that_refuses_xdp_gets_the_generic_form() {
    on_bed(
        here!(a_driver_that_refuses_xdp_gets_the_generic_form),
        Setup::new(Driver::AfXdp, 2),
        |bed, recipe| {
            let fewer = bed.director.run("ethtool", &["-L", "front", "rx", "1"])?;
            expect(fewer.status.success(), || format!("{fewer:?}"))?;
            let director = Director::start(bed, &recipe.text(bed))?;
            Ok((director, recipe))
        },
        |fixture| {
            let ports = fixture.director.ask("ports")?;
            let mode = |port: usize| ports["ports"][port]["steering"]["mode"].clone();
            expect(mode(0) == "generic" && mode(1) == "native", || ports.to_string())?;
            fixture.wait_for_answer(SOON)?;
            expect(ping(&fixture.bed.client, fixture.bed.vip(), 10)?, || "no answer".to_owned())?;
            let ended = fixture.director.stop()?;
            expect(ended.success(), || format!("{ended:?}"))?;
            let link = fixture.bed.director.ip(&["-d", "link", "show", "front"])?;
            expect(!format!("{link:?}").contains("xdp"), || format!("{link:?}"))
        },
    );
}

/// The director's own addresses, at the front and at the back.
fn own(family: Family) -> [&'static str; 2] {
    match family {
        Family::V4 => ["198.51.100.1", "192.0.2.1"],
        Family::V6 => ["2001:db8:1::1", "2001:db8:2::1"],
    }
}

/// Full NAT to a port that somebody listens on and to one that nobody does, and NAT by ports of a
/// range, all to the first real server.
fn services(bed: &Bed, family: Family) -> String {
    let of = |name: &str, protocol, port: &str, mode, real_port: u16| {
        let name = format!("{name}{}", family.bits());
        service(&name, protocol, bed.vip_of(family), mode, family)
            .set("port", port)
            .reals(reals(family, 1).map(|real| real.set("port", real_port)))
            .to_string()
    };
    let web = of("web", "tcp", "80", Mode::Fnat, 80);
    let closed = of("closed", "udp", "9", Mode::Fnat, 9);
    web + &closed + &of("range", "tcp", "8000-8099", Mode::Nat, 80)
}

/// A bed with IPv6 beside IPv4, and the director with services of all kinds, and source NAT for
/// the real servers.
fn on_both_families(name: &str, test: impl FnOnce(&mut Fixture) -> Result<(), LabError>) {
    let all = |bed: &Bed| {
        FAMILIES.map(|family| services(bed, family)).concat()
            + &snat::rule("endpoint_independent", snat::PORTS)
    };
    on_dual(name, Setup::usual(), Mode::Nat, all, |fixture| {
        snat::hold_pool(&fixture.bed)?;
        for family in FAMILIES {
            let port = ADMIN_PORT.to_string();
            let args = ["-m", "http.server", &port, "--bind", own(family)[0]];
            let name = format!("admin{}", family.bits());
            fixture.bed.peers.push(fixture.bed.director.start(&name, PYTHON, &args)?);
        }
        test(fixture)
    });
}

/// Frames that the front's and the back's program gave to the director.
fn taken(fixture: &Fixture) -> Result<[u64; 2], LabError> {
    let ports = fixture.director.ask("ports")?;
    let of = |port: usize| ports["ports"][port]["steering"]["taken"].as_u64().unwrap_or(0);
    Ok([of(0), of(1)])
}

/// What is taken while something is done.
fn taken_by(
    fixture: &mut Fixture,
    act: impl FnOnce(&mut Fixture) -> Result<(), LabError>,
) -> Result<[u64; 2], LabError> {
    let before = taken(fixture)?;
    act(fixture)?;
    let after = taken(fixture)?;
    Ok([after[0] - before[0], after[1] - before[1]])
}

fn must_answer(space: &Netns, address: &str) -> Result<(), LabError> {
    expect(ping(space, address, 5)?, || format!("no answer to ping from {address}"))
}

macro_rules! of_each_family {
    ($($test:ident: $family:ident, $run:ident;)+) => {
        $(
            #[test]
            fn $test() {
                on_both_families(here!($test), |fixture| $run(fixture, Family::$family));
            }
        )+
    };
}

of_each_family! {
    the_kernel_keeps_what_is_its_own_of_ipv4: V4, keeps;
    the_kernel_keeps_what_is_its_own_of_ipv6: V6, keeps;
    the_director_takes_what_is_its_own_of_ipv4: V4, takes;
    the_director_takes_what_is_its_own_of_ipv6: V6, takes;
}

/// Ping, address resolution, ssh, ports without a service: not one frame is taken.
fn keeps(fixture: &mut Fixture, family: Family) -> Result<(), LabError> {
    let ([front, back], vip) = (own(family), fixture.bed.vip_of(family));
    let frames = taken_by(fixture, |fixture| {
        let (client, real) = (&fixture.bed.client, &fixture.bed.reals[0]);
        for address in [vip, front] {
            must_answer(client, address)?;
        }
        // Everybody asks for everybody's address again.
        for (space, device) in [(client, "eth0"), (real, "eth0"), (&fixture.bed.director, "back")] {
            space.ip(&[family.flag(), "neigh", "flush", "dev", device])?;
        }
        must_answer(client, vip)?;
        // A real server of NAT mode and of source NAT to the director's machine.
        for address in [back, front, vip] {
            must_answer(real, address)?;
        }
        for space in [client, real] {
            wait_until("the machine's own service to answer", SOON, || {
                Ok(curl(space, &url(front, ADMIN_PORT)).ok().map(drop))
            })?;
            let ran = space.run("curl", &["-sS", "--max-time", "5", &url(vip, 81)])?;
            expect(ran.status.code() == Some(REFUSED), || format!("{ran:?}"))?;
        }
        Ok(())
    })?;
    expect(frames == [0, 0], || format!("{frames:?} frames were taken"))
}

/// A datagram to a closed port of a real server: the client says what it hears.
const CLOSED: &str = "
import socket, sys
server = sys.argv[1]
one = socket.socket(socket.AF_INET6 if ':' in server else socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(2)
one.connect((server, 9))
one.send(b'is anybody there?')
try:
    one.recv(100)
except ConnectionRefusedError:
    print('refused')
except TimeoutError:
    print('silence')
";

/// A connection each through full NAT, and NAT by a port of a range; an ICMP error of a real
/// server; its own pings to the outside: request and answer of each by the port where they arrive.
fn takes(fixture: &mut Fixture, family: Family) -> Result<(), LabError> {
    let (vip, client) = (fixture.bed.vip_of(family), fixture.bed.client_of(family));
    for port in [80, 8042] {
        let connection =
            |fixture: &mut Fixture| curl(&fixture.bed.client, &url(vip, port)).map(drop);
        // The first one may find neighbours unresolved and is not counted on.
        wait_until("the service to answer", SOON, || Ok(connection(fixture).ok()))?;
        let frames = taken_by(fixture, connection)?;
        // SYN, request and FIN at the least; SYN, answer and FIN.
        let whole = frames.iter().all(|frames| (3..100).contains(frames));
        expect(whole, || format!("port {port}: {frames:?} frames were taken"))?;
    }
    let frames = taken_by(fixture, |fixture| {
        let ran = fixture.bed.client.run(PYTHON, &["-c", CLOSED, vip])?.ok()?;
        expect(ran.stdout.trim() == "refused", || format!("{ran:?}"))
    })?;
    expect(frames == [1, 1], || format!("datagram and error: {frames:?} frames were taken"))?;
    wait_until("a ping to the outside", Duration::from_secs(20), || {
        Ok(ping(&fixture.bed.reals[0], client, 1)?.then_some(()))
    })?;
    let frames = taken_by(fixture, |fixture| must_answer(&fixture.bed.reals[0], client))?;
    expect(frames == [5, 5], || format!("pings and answers: {frames:?} frames were taken"))
}
