//! What does not fit, and what lives too long: path MTU discovery through the director, fragments
//! in both directions and out of order, and time that is exceeded.

use sluice_e2e::bed::REALS;
use sluice_e2e::capture::{Capture, counts, judge};
use sluice_e2e::error::expect;
use sluice_e2e::family::{FAMILIES, endpoint, url};
use sluice_e2e::load::upload_sha256;
use sluice_e2e::web::{self, ECHO_PORT, SINK_PORT, make_blob_of};
use sluice_e2e::{Bed, Family, LabError, Mode, wait_until};

use crate::dual_stack::{on_dual, reals, service};
use crate::fixture::{Fixture, PYTHON, SOON, Setup, here, script};

/// What the link to the real servers takes in tests of a narrow one.
const NARROW: u64 = 1400;

/// A sink and an echo on both families.
fn services(bed: &Bed, mode: Mode) -> String {
    FAMILIES
        .map(|family| {
            [("sink", "tcp", SINK_PORT), ("echo", "udp", ECHO_PORT)]
                .map(|(name, protocol, port)| {
                    let name = format!("{name}{}", family.bits());
                    service(&name, protocol, bed.vip_of(family), mode, family)
                        .set("port", port)
                        .reals(reals(family, REALS))
                        .to_string()
                })
                .concat()
        })
        .concat()
}

macro_rules! row {
    ($($test:ident: $driver:ident, $workers:literal, $mode:ident, $run:expr;)+) => {
        $(
            #[test]
            fn $test() {
                let services = |bed: &Bed| services(bed, Mode::$mode);
                let setup = Setup::new(sluice_e2e::Driver::$driver, $workers);
                on_dual(here!($test), setup, Mode::$mode, services, $run);
            }
        )+
    };
}

row! {
    an_upload_fits_into_the_tunnel: AfXdp, 1, Ipip, through_the_tunnel;
    an_upload_fits_into_the_tunnel_by_packet_sockets: AfPacket, 1, Ipip, through_the_tunnel;
    an_upload_fits_through_a_narrow_link_by_fnat: AfXdp, 1, Fnat, through_a_narrow_link;
    an_upload_fits_through_a_narrow_link_by_nat: AfXdp, 1, Nat, through_a_narrow_link;
    large_datagrams_by_fnat: AfXdp, 1, Fnat, large_datagrams;
    large_datagrams_by_nat: AfXdp, 1, Nat, large_datagrams;
    fragments_out_of_order_by_fnat: AfXdp, 1, Fnat, out_of_order;
    fragments_out_of_order_by_nat: AfXdp, 1, Nat, out_of_order;
    time_is_exceeded_by_fnat: AfXdp, 1, Fnat, time_is_exceeded;
    time_is_exceeded_by_nat: AfXdp, 1, Nat, time_is_exceeded;
}

/// Whole segments of 1500 bytes do not fit beside another header; the client is told, and by how
/// much, and sends smaller ones.
fn through_the_tunnel(fixture: &mut Fixture) -> Result<(), LabError> {
    uploads(fixture, &[(Family::V4, 1480), (Family::V6, 1460)])
}

/// The director's link to the real servers takes 1400 bytes, and they announce segments of 1460
/// all the same, as behind a router further on.
fn through_a_narrow_link(fixture: &mut Fixture) -> Result<(), LabError> {
    narrow(fixture)?;
    uploads(fixture, &[(Family::V4, NARROW), (Family::V6, NARROW)])
}

fn narrow(fixture: &Fixture) -> Result<(), LabError> {
    let mtu = NARROW.to_string();
    fixture.bed.director.ip(&["link", "set", "dev", "back", "mtu", &mtu])?;
    for real in &fixture.bed.reals {
        real.ip(&["link", "set", "dev", "eth0", "mtu", &mtu])?;
        for family in FAMILIES {
            let (gateway, mss) = match family {
                Family::V4 => ("192.0.2.1", "1460"),
                Family::V6 => ("2001:db8:2::1", "1440"),
            };
            let route = ["route", "replace", "default", "via", gateway, "advmss", mss];
            real.ip(&[&[family.flag()], &route[..]].concat())?;
            // Full NAT's clients are on the link itself.
            let local = match family {
                Family::V4 => "192.0.2.10/32",
                Family::V6 => "2001:db8:2::10/128",
            };
            let route = ["route", "replace", local, "dev", "eth0", "advmss", mss];
            real.ip(&[&[family.flag()], &route[..]].concat())?;
        }
    }
    Ok(())
}

fn uploads(fixture: &mut Fixture, expected: &[(Family, u64)]) -> Result<(), LabError> {
    for (index, real) in fixture.bed.reals.iter().enumerate() {
        fixture.bed.peers.push(web::start_sink(real, &format!("sink{index}"))?);
    }
    let sum = make_blob_of(&fixture.bed.client, 3_000_000)?;
    let blob = fixture.bed.lab.dir().join("blob").display().to_string();
    for (family, mtu) in expected {
        let seen =
            Capture::start(&fixture.bed.client, "eth0", &format!("upload{}", family.bits()))?;
        let url = format!("{}/", url(fixture.bed.vip_of(*family), SINK_PORT));
        let got = upload_sha256(&fixture.bed.client, &url, &blob)?;
        expect(got == sum, || format!("{family}: sent {sum}, got {got}"))?;
        let file = seen.stop()?;
        let told = match family {
            Family::V4 => format!("icmp.type == 3 && icmp.code == 4 && icmp.mtu == {mtu}"),
            Family::V6 => format!("icmpv6.type == 2 && icmpv6.mtu == {mtu}"),
        };
        let wrong = "icmp.checksum.status == 0 || icmpv6.checksum.status == 0";
        let [told, wrong] = counts(&file, [&told, wrong])?;
        expect(told > 0, || format!("{family}: nobody told the client of {mtu} bytes"))?;
        expect(wrong == 0, || format!("{family}: {wrong} wrong checksums"))?;
    }
    Ok(())
}

/// Datagrams of several fragments, there and back.
fn large_datagrams(fixture: &mut Fixture) -> Result<(), LabError> {
    for family in FAMILIES {
        let vip = endpoint(fixture.bed.vip_of(family), ECHO_PORT);
        // The addresses of a twin are given while the director runs already.
        wait_until("the echo to answer", SOON, || {
            Ok(fixture.peer(&["udp-probe", &vip, "3", "10"])?.status.success().then_some(()))
        })?;
        let seen = Capture::start(&fixture.bed.client, "eth0", &format!("large{}", family.bits()))?;
        for size in ["1500", "4000", "20000"] {
            fixture.peer(&["udp-probe", &vip, "9", size])?.ok()?;
        }
        let verdict = judge(&seen.stop()?)?;
        expect(verdict.bad == 0, || format!("{family}: {verdict:?}"))?;
    }
    Ok(())
}

/// The last fragment first: the director has the first one decide, whenever it comes.
fn out_of_order(fixture: &mut Fixture) -> Result<(), LabError> {
    for family in FAMILIES {
        let client = &fixture.bed.client;
        let (own, vip) = (fixture.bed.client_of(family), fixture.bed.vip_of(family));
        // Neighbours are known afterwards.
        fixture.peer(&["udp-probe", &endpoint(vip, ECHO_PORT), "3", "10"])?.ok()?;
        let mac = fixture.bed.director.mac("front")?;
        let port = ECHO_PORT.to_string();
        for order in ["reversed", "mixed", "twice"] {
            let shuffle = script("fragments.py");
            let args = [&*shuffle, "eth0", &mac, own, vip, &port, order];
            let said = client.run(PYTHON, &args)?.ok()?.stdout;
            expect(said.trim() == "whole", || format!("{family}, {order}: {said}"))?;
        }
    }
    Ok(())
}

/// A datagram with one hop to live does not pass; its sender hears of it, as traceroute wants, and
/// with two hops it arrives.
fn time_is_exceeded(fixture: &mut Fixture) -> Result<(), LabError> {
    let port = ECHO_PORT.to_string();
    for family in FAMILIES {
        let ask = |hops: &str| {
            let vip = fixture.bed.vip_of(family);
            let ran = fixture.bed.client.run(PYTHON, &["-c", HOPS, vip, &port, hops])?;
            Ok::<_, LabError>(ran.ok()?.stdout.trim().to_owned())
        };
        for (hops, wanted) in [("2", "answered"), ("1", "EHOSTUNREACH"), ("2", "answered")] {
            let said = ask(hops)?;
            expect(said == wanted, || format!("{family}, {hops} hops: {said}"))?;
        }
    }
    Ok(())
}

/// Sends a datagram with so many hops to live, and says what comes of it.
const HOPS: &str = "
import errno, socket, sys
host, port, hops = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
IP_RECVERR, IPV6_RECVERR = 11, 25  # linux/in.h, linux/in6.h
six = ':' in host
one = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
if six:
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
    one.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
else:
    one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
    one.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
one.settimeout(3)
one.connect((host, port))
one.send(b'how far?')
try:
    one.recv(100)
    print('answered')
except TimeoutError:
    print('silence')
except OSError as error:
    print(errno.errorcode[error.errno])
";
