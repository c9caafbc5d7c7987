//! Between the families: an IPv6 client and IPv4 real servers, and the reverse, by full NAT (which
//! translates) and by tunnels (which only carry).

use sluice_e2e::capture::{Capture, judge};
use sluice_e2e::error::expect;
use sluice_e2e::family::{endpoint, url};
use sluice_e2e::load::{Until, curl, download_sha256, iperf3_tcp};
use sluice_e2e::web::{ECHO_PORT, make_blob_of};
use sluice_e2e::{Driver, Family, LabError, Mode};

use crate::dual_stack::{on_modes, usual_services};
use crate::fixture::Fixture;

on_modes! {
    usual_services, all;
    ipv6_clients_of_ipv4_servers: AfXdp, 1, Fnat, V6, V4;
    ipv4_clients_of_ipv6_servers: AfXdp, 1, Fnat, V4, V6;
    ipv6_clients_of_ipv4_servers_two_workers: AfXdp, 2, Fnat, V6, V4;
    ipv4_clients_of_ipv6_servers_by_packet_sockets: AfPacket, 1, Fnat, V4, V6;
    ipv6_in_ipv4: AfXdp, 1, Ipip, V6, V4;
    ipv4_in_ipv6: AfXdp, 1, Ipip, V4, V6;
}

fn all(fixture: &mut Fixture, mode: Mode, outer: Family) -> Result<(), LabError> {
    let vip = fixture.bed.vip_of(outer);
    let client_side = Capture::start(&fixture.bed.client, "eth0", "client")?;
    let real_side = Capture::start(&fixture.bed.reals[0], "eth0", "real")?;
    for turn in 0..9 {
        let answer = curl(&fixture.bed.client, &url(vip, 80))?;
        expect(answer.starts_with("Real Server 0"), || format!("answer {turn}: {answer}"))?;
    }
    if mode == Mode::Fnat {
        // The third is the largest that fits into the smaller of the two once its header has
        // grown; the last come in fragments. (On packet sockets the kernel puts those together.)
        let sizes = ["1", "700", "1440", "4000", "20000"];
        let count = if fixture.bed.driver == Driver::AfPacket { 3 } else { 5 };
        for size in sizes.into_iter().take(count) {
            fixture.peer(&["udp-probe", &endpoint(vip, ECHO_PORT), "20", size])?.ok()?;
        }
    }
    for (side, file) in [("client", client_side.stop()?), ("real server", real_side.stop()?)] {
        let verdict = judge(&file)?;
        expect(verdict.bad == 0 && verdict.good_tcp > 0, || format!("at the {side}: {verdict:?}"))?;
    }
    let sum = make_blob_of(&fixture.bed.reals[0], 20_000_000)?;
    let got = download_sha256(&fixture.bed.client, &format!("{}/blob", url(vip, 80)), "")?;
    expect(got == sum, || format!("sent {sum}, got {got}"))?;
    for reverse in [false, true] {
        let tcp = iperf3_tcp(&fixture.bed.client, vip, Until::Megabytes(24), reverse)?;
        expect(tcp.bytes > 2_000_000, || format!("iperf3, reverse {reverse}: {tcp:?}"))?;
    }
    Ok(())
}
