//! A port that the director owns has a TAP twin, through which the kernel keeps what is not
//! balanced: ARP, ping, an ssh-like service.

use sluice_e2e::bed::ADMIN_PORT;
use sluice_e2e::capture::{BAD, Capture, count, counts};
use sluice_e2e::error::expect;
use sluice_e2e::load::{download_sha256, ping, upload_sha256, wrk};
use sluice_e2e::web::{self, SINK_PORT};
use sluice_e2e::{Bed, Driver, LabError};

use crate::fixture::{Fixture, SOON, Setup, here, on};

#[test]
fn the_kernel_lives_on_the_twin() {
    on(here!(the_kernel_lives_on_the_twin), Setup::new(Driver::AfPacket, 1), beside_under_load);
}

fn beside_under_load(fixture: &mut Fixture) -> Result<(), LabError> {
    fixture.bed.start_admin()?;
    let own = fixture.bed.front_address();
    // Anew by ARP through the twin, not from what was learnt before.
    fixture.bed.client.ip(&["neigh", "flush", "dev", "eth0"])?;
    expect(ping(&fixture.bed.client, own, 5)?, || "no answer to ping".to_owned())?;
    let vip = fixture.bed.vip();
    expect(ping(&fixture.bed.client, vip, 5)?, || "the VIP does not answer ping".to_owned())?;
    let mut held = fixture.hold(&format!("{own}:{ADMIN_PORT}"), 4)?;
    let load = wrk(&fixture.bed.client, &format!("{}/", fixture.url()), 16, 2)?;
    expect(load.socket_errors == 0 && load.requests > 100, || format!("{load:?}"))?;
    let ended = held.wait(SOON)?;
    expect(ended.success(), || held.log_tail(5))
}

/// The other way round: the kernel on the director's machine opens connections through the twin.
#[test]
fn the_kernel_reaches_out_through_the_twin() {
    on(
        here!(the_kernel_reaches_out_through_the_twin),
        Setup::new(Driver::AfPacket, 1),
        |fixture| {
            let answer = sluice_e2e::load::curl(&fixture.bed.director, "http://192.0.2.13/")?;
            expect(answer == "Real Server 03", || answer.clone())
        },
    );
}

/// Super-packets of the kernel's own connections go through the twin in both directions, and leave
/// the port complete.
#[test]
fn the_kernel_carries_bulk_through_the_twin() {
    let setup = Setup::new(Driver::AfPacket, 1);
    on(here!(the_kernel_carries_bulk_through_the_twin), setup, |fixture| {
        for device in ["p3", "director"] {
            fixture.bed.lan.offloading_wire(device)?;
        }
        let real = fixture.bed.reals[2].clone();
        real.offloading_wire("eth0")?;
        fixture.bed.peers.push(web::start_sink(&real, "sink")?);
        let here = &fixture.bed.director;
        let sum = web::make_blob_of(here, 5_000_000)?;
        let (port, twin) = (
            Capture::start_of_long(here, "back", "port")?,
            Capture::start_of_long(here, "tback", "twin")?,
        );
        let far = Capture::start_of_long(&real, "eth0", "far")?;
        let got = download_sha256(here, "http://192.0.2.13/blob", "")?;
        expect(got == sum, || format!("sent {sum}, got {got}"))?;
        let blob = fixture.bed.lab.dir().join("blob").display().to_string();
        let put = upload_sha256(here, &format!("http://192.0.2.13:{SINK_PORT}/"), &blob)?;
        expect(put == sum, || format!("put {sum}, got {put}"))?;
        let mac = here.mac("back")?;
        let (port, twin, far) = (port.stop()?, twin.stop()?, far.stop()?);
        let large = |way: &str| format!("frame.len > 10000 && eth.{way} == {mac}");
        let (came, went) = (large("dst"), large("src"));
        let at_port = count(&port, &came)?;
        let at_twin = counts(&twin, [&came, &went])?;
        expect(at_port > 0 && at_twin.iter().all(|count| *count > 0), || {
            format!("super-packets: {at_port} came by the port, at the twin {at_twin:?}")
        })?;
        let own = format!("eth.src == {mac}");
        let [all, wrong] = counts(&far, [&own, &format!("{own} && ({BAD})")])?;
        expect(wrong == 0 && all > 1000, || format!("{wrong} of {all} frames are wrong"))
    });
}

/// The twin speaks with the port's own MAC address, or nobody would answer it.
#[test]
fn the_twin_has_the_ports_mac() {
    on(here!(the_twin_has_the_ports_mac), Setup::new(Driver::AfPacket, 1), |fixture| {
        for port in fixture.bed.ports() {
            let (own, twin) =
                (fixture.bed.director.mac(port)?, fixture.bed.director.mac(&Bed::twin_of(port))?);
            expect(own == twin, || format!("{port} has {own}, its twin {twin}"))?;
        }
        Ok(())
    });
}
