//! Every forwarding mode in both families: HTTP that goes round, a large download, iperf3, UDP,
//! and checksums on both sides of the director.

use sluice_e2e::bed::REALS;
use sluice_e2e::capture::{Capture, judge, judge_and};
use sluice_e2e::error::expect;
use sluice_e2e::family::{endpoint, url};
use sluice_e2e::load::{Until, curl, download_sha256, iperf3_tcp};
use sluice_e2e::web::{ECHO_PORT, make_blob_of};
use sluice_e2e::{Bed, Driver, Family, LabError, Mode, Shape};

use crate::dual_stack::on_mode;
use crate::fixture::{Fixture, Setup, here};

/// Many times the largest TCP window, and a small part of a second.
const BLOB: u64 = 5_000_000;

/// Makes a module of tests of one mode, family and setup.
macro_rules! row {
    ($module:ident, $driver:ident, $workers:literal, $shape:ident, $mode:ident, $family:ident) => {
        #[test]
        fn $module() {
            let setup = Setup { shape: Shape::$shape, ..Setup::new(Driver::$driver, $workers) };
            on_mode(here!($module), setup, Mode::$mode, |fixture| {
                all(fixture, Mode::$mode, Family::$family)
            });
        }
    };
}

row!(fnat_ipv4, AfXdp, 1, TwoArm, Fnat, V4);
row!(fnat_ipv6, AfXdp, 1, TwoArm, Fnat, V6);
row!(nat_ipv4, AfXdp, 1, TwoArm, Nat, V4);
row!(nat_ipv6, AfXdp, 1, TwoArm, Nat, V6);
row!(dr_ipv4, AfXdp, 1, TwoArm, Dr, V4);
row!(dr_ipv6, AfXdp, 1, TwoArm, Dr, V6);
row!(ipip_ipv4, AfXdp, 1, TwoArm, Ipip, V4);
row!(ipip_ipv6, AfXdp, 1, TwoArm, Ipip, V6);

row!(fnat_ipv6_by_packet_sockets, AfPacket, 1, TwoArm, Fnat, V6);
row!(nat_ipv4_by_packet_sockets, AfPacket, 1, TwoArm, Nat, V4);
row!(dr_ipv6_by_packet_sockets, AfPacket, 1, TwoArm, Dr, V6);
row!(ipip_ipv4_by_packet_sockets, AfPacket, 1, TwoArm, Ipip, V4);

row!(gue_ipv4, AfXdp, 1, TwoArm, Gue, V4);
row!(gue_ipv6_by_packet_sockets, AfPacket, 1, TwoArm, Gue, V6);
row!(gue_ipv6_in_one_arm, AfXdp, 1, OneArm, Gue, V6);
row!(gre_ipv6, AfXdp, 1, TwoArm, Gre, V6);
row!(gre_ipv4_by_packet_sockets, AfPacket, 1, TwoArm, Gre, V4);
row!(gre_ipv4_by_two_workers, AfXdp, 2, TwoArm, Gre, V4);

row!(dr_ipv4_in_one_arm, AfXdp, 1, OneArm, Dr, V4);
row!(ipip_ipv6_in_one_arm, AfXdp, 1, OneArm, Ipip, V6);
row!(fnat_ipv6_in_one_arm, AfXdp, 1, OneArm, Fnat, V6);

row!(nat_ipv4_by_two_workers, AfXdp, 2, TwoArm, Nat, V4);
row!(nat_ipv6_by_two_workers, AfXdp, 2, TwoArm, Nat, V6);
row!(fnat_ipv6_by_two_workers, AfXdp, 2, TwoArm, Fnat, V6);
row!(ipip_ipv4_by_two_workers, AfXdp, 2, TwoArm, Ipip, V4);
row!(dr_ipv6_by_two_workers, AfXdp, 2, TwoArm, Dr, V6);

fn all(fixture: &mut Fixture, mode: Mode, family: Family) -> Result<(), LabError> {
    let client_side = Capture::start(&fixture.bed.client, "eth0", "client")?;
    let real_side = Capture::start(&fixture.bed.reals[0], "eth0", "real")?;
    goes_round(fixture, family)?;
    echoes(fixture, mode, family)?;
    let (client_side, real_side) = (client_side.stop()?, real_side.stop()?);
    let (like, all) = arrives(fixture, mode, family);
    let (real, [like, other]) = judge_and(&real_side, [&like, &all])?;
    for (side, verdict) in [("client", judge(&client_side)?), ("real server", real)] {
        expect(verdict.bad == 0 && verdict.good_tcp > 0, || format!("at the {side}: {verdict:?}"))?;
    }
    expect(like == other && like > 0, || {
        format!("{like} of {other} requests arrived by {mode:?}")
    })?;
    downloads(fixture, family)?;
    let vip = fixture.bed.vip_of(family);
    for reverse in [false, true] {
        let tcp = iperf3_tcp(&fixture.bed.client, vip, Until::Megabytes(24), reverse)?;
        expect(tcp.bytes > 2_000_000, || format!("iperf3, reverse {reverse}: {tcp:?}"))?;
    }
    Ok(())
}

/// What a request looks like at the real server, in tshark's words, and what any request does. What
/// GUE carries tshark does not decode: there these are the packets to its port, with a right
/// checksum, and all that are sent to the real server or the virtual address.
fn arrives(fixture: &Fixture, mode: Mode, family: Family) -> (String, String) {
    let (client, vip) = (fixture.bed.client_of(family), fixture.bed.vip_of(family));
    let real = Bed::real_of(family, 0);
    let (ip, local, inside) = match family {
        Family::V4 => ("ip", "192.0.2.10", "ip.proto == 4"),
        Family::V6 => ("ipv6", "2001:db8:2::10", "ipv6.nxt == 41"),
    };
    let way = match mode {
        Mode::Fnat => format!("{ip}.src == {local} && {ip}.dst == {real}"),
        Mode::Nat => format!("{ip}.src == {client} && {ip}.dst == {real}"),
        Mode::Dr => format!("{ip}.src == {client} && {ip}.dst == {vip} && !({ip}.dst == {real})"),
        Mode::Ipip => format!("{inside} && {ip}.dst == {real} && {ip}.dst == {vip}"),
        Mode::Gre => format!("gre.checksum.status == 1 && gre.key == 7 && {ip}.dst == {real}"),
        Mode::Gue => {
            let like =
                format!("{ip}.dst == {real} && udp.dstport == 6081 && udp.checksum.status == 1");
            return (like, format!("({ip}.dst == {real} || {ip}.dst == {vip}) && (udp || tcp)"));
        }
    };
    (format!("http.request && {way}"), "http.request".to_owned())
}

/// One worker: strictly in turn, and from the first on where nothing can have come before (see
/// `traffic`). Two workers each keep their own turn: then each real server gets a part.
fn goes_round(fixture: &Fixture, family: Family) -> Result<(), LabError> {
    let url = url(fixture.bed.vip_of(family), 80);
    let count = if fixture.bed.workers == 1 { 6 } else { 24 };
    let asked =
        (0..count).map(|_| curl(&fixture.bed.client, &url)).collect::<Result<Vec<_>, _>>()?;
    let numbers: Vec<usize> =
        asked.iter().filter_map(|text| text.rsplit('0').next()?.parse().ok()).collect();
    let fair = if fixture.bed.workers == 1 {
        let first = if fixture.bed.driver == Driver::AfXdp { 1 } else { numbers[0] };
        (0..count).all(|turn| numbers[turn] == (first - 1 + turn) % REALS + 1)
    } else {
        (1..=REALS)
            .all(|number| (6..=10).contains(&numbers.iter().filter(|got| **got == number).count()))
    };
    expect(numbers.len() == count && fair, || format!("answers of {asked:?}"))
}

fn downloads(fixture: &Fixture, family: Family) -> Result<(), LabError> {
    let sum = make_blob_of(&fixture.bed.reals[0], BLOB)?;
    let blob = format!("{}/blob", url(fixture.bed.vip_of(family), 80));
    let got = download_sha256(&fixture.bed.client, &blob, "")?;
    expect(got == sum, || format!("sent {sum}, got {got}"))
}

/// A real server that holds the virtual address answers from that only if its echo says so; the
/// usual one takes the address that is the nearest to the client.
fn echoes(fixture: &Fixture, mode: Mode, family: Family) -> Result<(), LabError> {
    if mode.answers_past() {
        return Ok(());
    }
    let server = endpoint(fixture.bed.vip_of(family), ECHO_PORT);
    for size in ["1", "1400"] {
        fixture.peer(&["udp-probe", &server, "30", size])?.ok()?;
    }
    Ok(())
}
