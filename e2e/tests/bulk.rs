//! Super-packets: peers that leave checksums and segmentation to others, and a director on packet
//! sockets that passes on what they sent as it came. Its own wires leave nothing to anybody, so
//! that what it sent shows complete at the far end, where tshark judges it.

use sluice_e2e::bed::REALS;
use sluice_e2e::capture::{BAD, Capture, count, counts, judge_and};
use sluice_e2e::error::expect;
use sluice_e2e::family::{FAMILIES, endpoint, url};
use sluice_e2e::load::{Until, download_sha256, iperf3_tcp, upload_sha256};
use sluice_e2e::web::{self, ECHO_PORT, SINK_PORT, make_blob_of};
use sluice_e2e::{Bed, Director, Driver, Family, LabError, Mode};

use crate::dual_stack::{bare, on_modes, reals, service, usual_services};
use crate::fixture::{Fixture, Setup, here, on_bed};

/// More than any wire carries in one frame.
const SUPER: &str = "frame.len > 10000";

/// The usual services, and a sink for uploads.
fn services(bed: &Bed, mode: Mode, outer: Family, inner: Family) -> String {
    let sink = service("sink", "tcp", bed.vip_of(outer), mode, inner).set("port", SINK_PORT);
    let sink = sink.reals(reals(inner, 1)).to_string();
    usual_services(bed, mode, outer, inner) + &sink
}

on_modes! {
    services, bulk;
    fnat_ipv4: AfPacket, 1, Fnat, V4, V4;
    fnat_ipv6: AfPacket, 1, Fnat, V6, V6;
    fnat_ipv6_to_ipv4: AfPacket, 1, Fnat, V6, V4;
    fnat_ipv4_to_ipv6: AfPacket, 1, Fnat, V4, V6;
    nat_ipv4: AfPacket, 1, Nat, V4, V4;
    nat_ipv6_by_two_workers: AfPacket, 2, Nat, V6, V6;
    dr_ipv4: AfPacket, 1, Dr, V4, V4;
    ipip_ipv4: AfPacket, 1, Ipip, V4, V4;
    ipip_ipv4_in_ipv6: AfPacket, 1, Ipip, V4, V6;
}

#[test]
fn fnat_at_mtu_9000() {
    let setup = Setup { recipe: bare(), ..Setup::new(Driver::AfPacket, 1) };
    on_bed(
        here!(fnat_at_mtu_9000),
        setup,
        |bed, mut recipe| {
            bed.add_ipv6()?;
            for (space, device) in ends(bed).chain(own(bed)).chain([(&bed.lan, "sw")]) {
                space.ip(&["link", "set", "dev", device, "mtu", "9000"])?;
            }
            recipe.more += &services(bed, Mode::Fnat, Family::V4, Family::V4);
            let director = Director::start(bed, &recipe.text(bed))?;
            Ok((director, recipe))
        },
        |fixture| bulk(fixture, Mode::Fnat, Family::V4),
    );
}

/// Jumbo frames by AF_XDP, each over several buffers of the sockets (Linux 6.6).
#[test]
fn jumbo_frames_by_af_xdp() {
    on_bed(
        here!(jumbo_frames_by_af_xdp),
        Setup { recipe: bare(), ..Setup::new(Driver::AfXdp, 1) },
        |bed, mut recipe| {
            bed.add_ipv6()?;
            for (space, device) in ends(bed).chain(own(bed)).chain([(&bed.lan, "sw")]) {
                space.ip(&["link", "set", "dev", device, "mtu", "9000"])?;
            }
            let of = |family| usual_services(bed, Mode::Fnat, family, family);
            recipe.more += &FAMILIES.map(of).concat();
            let text =
                recipe.text(bed).replace("device = \"af_xdp:", "mtu = 9000\ndevice = \"af_xdp:");
            let director = Director::start(bed, &text)?;
            Ok((director, recipe))
        },
        |fixture| FAMILIES.into_iter().try_for_each(|family| jumbo(fixture, family)),
    );
}

/// Downloads and datagrams of nearly 9000 bytes, whole at both ends.
fn jumbo(fixture: &Fixture, family: Family) -> Result<(), LabError> {
    let bed = &fixture.bed;
    let vip = bed.vip_of(family);
    let sum = make_blob_of(&bed.client, 5_000_000)?;
    let at_client = Capture::start_of_long(&bed.client, "eth0", "client")?;
    let at_reals = bed.reals.iter().zip(["real1", "real2", "real3"]);
    let at_reals = at_reals.map(|(real, name)| Capture::start_of_long(real, "eth0", name));
    let at_reals = at_reals.collect::<Result<Vec<_>, _>>()?;
    for real in 0..REALS {
        let got = download_sha256(&bed.client, &format!("{}/blob", url(vip, 80)), "")?;
        expect(got == sum, || format!("{real}: sent {sum}, got {got}"))?;
    }
    fixture.peer(&["udp-probe", &endpoint(vip, ECHO_PORT), "9", "8900"])?.ok()?;
    let file = at_client.stop()?;
    let whole = "udp && frame.len > 8900 && !ip.flags.mf == 1";
    let (verdict, [back]) = judge_and(&file, [whole])?;
    expect(verdict.bad == 0 && verdict.good_tcp > 100, || format!("{verdict:?}"))?;
    expect(back == 18, || format!("{back} of 9 datagrams and their answers were whole"))?;
    for file in at_reals {
        let sent = count(&file.stop()?, "tcp.len > 8000")?;
        expect(sent > 100, || format!("a real server sent {sent} large segments"))?;
    }
    Ok(())
}

/// What leaves by AF_XDP is cut and completed by the director itself.
#[test]
fn fnat_from_packet_sockets_to_af_xdp() {
    on_bed(
        here!(fnat_from_packet_sockets_to_af_xdp),
        Setup { recipe: bare(), ..Setup::new(Driver::AfPacket, 1) },
        |bed, mut recipe| {
            bed.mix()?;
            recipe.more = services(bed, Mode::Fnat, Family::V4, Family::V4);
            let director = Director::start(bed, &recipe.text(bed))?;
            Ok((director, recipe))
        },
        |fixture| bulk(fixture, Mode::Fnat, Family::V4),
    );
}

/// The ends of wires that others than the director send by.
fn ends(bed: &Bed) -> impl Iterator<Item = (&sluice_e2e::Netns, &'static str)> {
    let hosts = bed.reals.iter().chain([&bed.client]).map(|space| (space, "eth0"));
    hosts.chain(["p1", "p2", "p3", "director"].map(|socket| (&bed.lan, socket)))
}

/// The director's.
fn own(bed: &Bed) -> impl Iterator<Item = (&sluice_e2e::Netns, &'static str)> {
    bed.ports().iter().map(|port| (&bed.director, *port))
}

fn bulk(fixture: &mut Fixture, mode: Mode, outer: Family) -> Result<(), LabError> {
    // AF_XDP has nobody who would complete what comes unfinished: then only the client does so.
    let client = fixture.bed.client.name();
    for (space, device) in ends(&fixture.bed) {
        if !fixture.bed.mixed || space.name() == client {
            space.offloading_wire(device)?;
        }
    }
    fixture.bed.peers.push(web::start_sink(&fixture.bed.reals[0], "sink")?);
    let bed = &fixture.bed;
    let vip = bed.vip_of(outer);
    let watch = |space, device, name| Capture::start_of_long(space, device, name);
    let (at_client, at_real) =
        (watch(&bed.client, "eth0", "client")?, watch(&bed.reals[0], "eth0", "real")?);
    let at_front = watch(&bed.director, "front", "front")?;
    let sum = make_blob_of(&bed.client, 3_000_000)?;
    let blob = bed.lab.dir().join("blob").display().to_string();
    let put = upload_sha256(&bed.client, &format!("{}/", url(vip, SINK_PORT)), &blob)?;
    expect(put == sum, || format!("put {sum}, got {put}"))?;
    for real in 0..REALS {
        let got = download_sha256(&bed.client, &format!("{}/blob", url(vip, 80)), "")?;
        expect(got == sum, || format!("{real}: sent {sum}, got {got}"))?;
    }
    // Without translation the echo would answer from another address than it was asked at.
    if matches!(mode, Mode::Fnat | Mode::Nat) {
        fixture.peer(&["udp-probe", &endpoint(vip, ECHO_PORT), "9", "1000"])?.ok()?;
    }
    let bed = &fixture.bed;
    let came = count(&at_front.stop()?, SUPER)?;
    expect(came > 0, || "no super-packet came to the director".to_owned())?;
    for (side, file, port) in [("client", at_client, "front"), ("real server", at_real, "back")] {
        let (file, mac) = (file.stop()?, bed.director.mac(port)?);
        // What an error quotes is not whole, so that tshark's sum over it says nothing.
        let own = format!("eth.src == {mac} && !icmp && !icmpv6");
        let [all, wrong] = counts(&file, [&own, &format!("{own} && ({BAD})")])?;
        let past = side == "client" && mode.answers_past();
        expect(wrong == 0 && (all > 100 || past), || {
            format!("at the {side}: {wrong} of {all} frames of the director are wrong")
        })?;
    }
    for reverse in [false, true] {
        let tcp = iperf3_tcp(&bed.client, vip, Until::Megabytes(24), reverse)?;
        expect(tcp.bytes > 2_000_000, || format!("iperf3, reverse {reverse}: {tcp:?}"))?;
    }
    Ok(())
}
