//! Traffic of real programs, on AF_XDP and AF_PACKET, with one and with two workers, and in one
//! arm: answers, integrity, checksums.

use std::collections::BTreeMap;

use sluice_e2e::bed::REALS;
use sluice_e2e::capture::{Capture, judge};
use sluice_e2e::error::expect;
use sluice_e2e::load::{self, Until, download_sha256};
use sluice_e2e::web::{ECHO_PORT, make_blob};
use sluice_e2e::{Director, Driver, LabError, Shape};

use crate::fixture::{Fixture, PYTHON, Setup, here, on, on_bed, on_every_setup, script};

on_every_setup!(
    answers_go_round,
    a_thousand_short_connections,
    a_download_arrives_whole,
    udp_comes_back,
    udp_without_checksums_stays_so,
    iperf3_both_ways,
    wrk_without_errors,
    checksums_hold_on_both_sides,
);

#[test]
fn two_workers_share_the_work_af_xdp() {
    let setup = Setup::new(Driver::AfXdp, 2);
    on(here!(two_workers_share_the_work_af_xdp), setup, work_is_shared);
}

#[test]
fn two_workers_share_the_work_af_packet() {
    let setup = Setup::new(Driver::AfPacket, 2);
    on(here!(two_workers_share_the_work_af_packet), setup, work_is_shared);
}

/// Both get connections, and answers that reach the other worker's queue are handed over.
fn work_is_shared(fixture: &mut Fixture) -> Result<(), LabError> {
    a_thousand_short_connections(fixture)?;
    let status = fixture.director.ask("status")?;
    let workers = status["workers"].as_array().cloned().unwrap_or_default();
    let packets: Vec<u64> = workers.iter().filter_map(|row| row["packets"].as_u64()).collect();
    let all: u64 = packets.iter().sum();
    let shared = packets.len() == 2 && packets.iter().all(|own| own * 5 > all);
    expect(shared, || format!("packets of each worker: {packets:?}"))?;
    let handed = status["handed_off"].as_u64().unwrap_or(0);
    expect(handed > 0, || "nothing was handed over".to_owned())
}

/// An interface may have more queues than there are workers: one worker serves all of them.
#[test]
fn one_worker_serves_two_queues() {
    on_bed(
        here!(one_worker_serves_two_queues),
        Setup::new(Driver::AfXdp, 2),
        |bed, recipe| {
            let both = recipe.text(bed);
            let (head, rest) = both.split_once("cores = [").unwrap_or_default();
            let (cores, rest) = rest.split_once(']').unwrap_or_default();
            let last = cores.rsplit(", ").next().unwrap_or(cores);
            let one = format!("{head}cores = [{last}]{rest}");
            Ok((Director::start(bed, &one)?, recipe))
        },
        |fixture| {
            let ports = fixture.director.ask("ports")?;
            expect(ports["ports"][0]["queues"] == 2, || ports.to_string())?;
            a_thousand_short_connections(fixture)?;
            let unowned = &fixture.director.ask("ports")?["ports"][0]["steering"]["unowned"];
            expect(*unowned == 0, || format!("{unowned} frames went past the director"))
        },
    );
}

#[test]
fn one_arm_af_xdp() {
    on(here!(one_arm_af_xdp), one_arm(Driver::AfXdp), everything_briefly);
}

#[test]
fn one_arm_af_packet() {
    on(here!(one_arm_af_packet), one_arm(Driver::AfPacket), everything_briefly);
}

fn one_arm(driver: Driver) -> Setup {
    Setup { shape: Shape::OneArm, ..Setup::new(driver, 1) }
}

fn everything_briefly(fixture: &mut Fixture) -> Result<(), LabError> {
    answers_go_round(fixture)?;
    a_download_arrives_whole(fixture)?;
    checksums_hold_on_both_sides(fixture)
}

/// One worker: strictly in turn, and from the first real server on where nothing can have come
/// before. (The addresses of a twin are given while the director runs already: a first attempt may
/// find no route yet and take a turn.) Two workers each keep their own turn, and which one a
/// connection meets is the network's choice: then all that holds is that each real server gets a
/// fair part.
fn answers_go_round(fixture: &mut Fixture) -> Result<(), LabError> {
    if fixture.bed.workers == 1 {
        let answers = fixture.answers(6)?;
        let first = match fixture.bed.driver {
            Driver::AfXdp => 0,
            Driver::AfPacket => (0..REALS).find(|at| answers[0] == answer_of(*at)).unwrap_or(0),
        };
        let expected: Vec<String> =
            (first..first + 6).map(|turn| answer_of(turn % REALS)).collect();
        return expect(answers == expected, || format!("answers came from {answers:?}"));
    }
    let mut counts = BTreeMap::new();
    for answer in fixture.answers(30)? {
        *counts.entry(answer).or_insert(0) += 1;
    }
    let fair = counts.len() == 3 && counts.values().all(|count| (8..=12).contains(count));
    expect(fair, || format!("of 30 answers: {counts:?}"))
}

fn answer_of(real: usize) -> String {
    format!("Real Server {:02}", real + 1)
}

fn a_thousand_short_connections(fixture: &mut Fixture) -> Result<(), LabError> {
    let ran = fixture.peer(&["connects", &fixture.server(80), "1000", "8"])?.ok()?;
    expect(ran.stdout.trim() == "answered 1000", || ran.stdout)
}

fn a_download_arrives_whole(fixture: &mut Fixture) -> Result<(), LabError> {
    let sum = make_blob(&fixture.bed.reals[0])?;
    let got = download_sha256(&fixture.bed.client, &format!("{}/blob", fixture.url()), "")?;
    expect(got == sum, || format!("sent {sum}, got {got}"))
}

fn udp_comes_back(fixture: &mut Fixture) -> Result<(), LabError> {
    for size in ["1", "64", "1471"] {
        let ran = fixture.peer(&["udp-probe", &fixture.server(ECHO_PORT), "60", size])?.ok()?;
        expect(ran.stdout.trim() == "answered 60", || ran.stdout)?;
    }
    Ok(())
}

/// RFC 768: zero means "no checksum", and a translator must leave it so. The real server's echo
/// makes checksums, so here it is stopped and one that makes none takes its port.
fn udp_without_checksums_stays_so(fixture: &mut Fixture) -> Result<(), LabError> {
    const COUNT: u64 = 30;
    let script = script("zero_checksum.py");
    let port = ECHO_PORT.to_string();
    let mut echoes = Vec::new();
    for (index, real) in fixture.bed.reals.iter().enumerate() {
        real.run(
            "sh",
            &["-c", "kill $(ss -lunpH 'sport = :7' | grep -o 'pid=[0-9]*' | cut -d= -f2)"],
        )?
        .ok()?;
        let mut echo = real.start(&format!("zero{index}"), PYTHON, &[&script, "echo", &port])?;
        echo.wait_for_words("listening", crate::fixture::SOON)?;
        echoes.push(echo);
    }
    let client_side = Capture::start(&fixture.bed.client, "eth0", "zero-client")?;
    let real_side = Capture::start(&fixture.bed.reals[0], "eth0", "zero-real")?;
    let count = COUNT.to_string();
    let ran =
        fixture.bed.client.run(PYTHON, &[&script, "probe", fixture.bed.vip(), &port, &count])?;
    expect(ran.clone().ok()?.stdout.trim() == format!("answered {COUNT}"), || ran.stdout)?;
    let client = judge(&client_side.stop()?)?;
    let real = judge(&real_side.stop()?)?;
    expect(client.zero_udp == 2 * COUNT && client.bad == 0 && client.good_udp == 0, || {
        format!("at the client: {client:?}")
    })?;
    // With two workers the first real server's part is not exactly a third.
    expect(real.zero_udp >= 8 && real.bad == 0 && real.good_udp == 0, || {
        format!("at the real server: {real:?}")
    })
}

fn iperf3_both_ways(fixture: &mut Fixture) -> Result<(), LabError> {
    let (client, vip) = (&fixture.bed.client, fixture.bed.vip());
    for reverse in [false, true] {
        let tcp = load::iperf3_tcp(client, vip, Until::Megabytes(64), reverse)?;
        expect(tcp.bytes > 10_000_000, || format!("TCP, reverse {reverse}: {tcp:?}"))?;
    }
    let udp = load::iperf3_udp(client, vip, 2, "20M")?;
    expect(udp.bytes > 1_000_000 && udp.lost_percent < 5.0, || format!("UDP: {udp:?}"))
}

fn wrk_without_errors(fixture: &mut Fixture) -> Result<(), LabError> {
    let wrk = load::wrk(&fixture.bed.client, &format!("{}/", fixture.url()), 16, 2)?;
    let clean = wrk.requests > 100 && wrk.socket_errors == 0 && wrk.bad_answers == 0;
    expect(clean, || format!("{wrk:?}"))
}

/// The judge looks at both sides while TCP and UDP pass in both directions. The kernel would not
/// complete the exchanges with wrong checksums either; tshark also sees those it would forgive.
fn checksums_hold_on_both_sides(fixture: &mut Fixture) -> Result<(), LabError> {
    let client_side = Capture::start(&fixture.bed.client, "eth0", "client")?;
    let real_side = Capture::start(&fixture.bed.reals[0], "eth0", "real")?;
    fixture.answers(12)?;
    fixture.peer(&["udp-probe", &fixture.server(ECHO_PORT), "60", "333"])?.ok()?;
    fixture.peer(&["connects", &fixture.server(80), "60", "4"])?.ok()?;
    for (side, file) in [("client", client_side.stop()?), ("real server", real_side.stop()?)] {
        let verdict = judge(&file)?;
        let seen = verdict.good_tcp >= 50 && verdict.good_udp >= 10;
        expect(verdict.bad == 0 && seen, || format!("at the {side}: {verdict:?}"))?;
    }
    Ok(())
}

/// The judge itself: of two frames that differ in one byte of payload, it condemns one; so it does
/// with two segments whose checksum is 0xffff for 0x0000, of which one adds up.
#[test]
fn the_judge_condemns_a_wrong_checksum() -> Result<(), LabError> {
    let dir = std::env::temp_dir().join(format!("sl-judge-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(LabError::file("making a directory"))?;
    let file = dir.join("four.pcap");
    let make = format!(
        "from scapy.all import *\n\
         good = Ether(bytes(Ether()/IP(src='192.0.2.1',dst='192.0.2.2')/UDP()/b'abcd'))\n\
         bad = Ether(bytes(good)[:-1] + b'x')\n\
         tcp = lambda end: IP(bytes(IP(src='192.0.2.1', dst='192.0.2.2')/TCP()/end))\n\
         nothing = bytes(Ether()/tcp(tcp(bytes(2))[TCP].chksum.to_bytes(2, 'big')))\n\
         assert nothing[50:52] == bytes(2)\n\
         full = Ether(nothing[:50] + b'\\xff\\xff' + nothing[52:])\n\
         fuller = Ether(bytes(full)[:-1] + bytes([nothing[-1] ^ 1]))\n\
         wrpcap({:?}, [good, bad, full, fuller])",
        file.display().to_string()
    );
    let ran = sluice_e2e::process::run(
        std::process::Command::new("timeout").args(["60", PYTHON, "-c", &make]),
    )?;
    let verdict = ran.ok().and_then(|_| judge(&file));
    std::fs::remove_dir_all(&dir).map_err(LabError::file("removing a directory"))?;
    let verdict = verdict?;
    let shown = verdict.worst.as_deref().is_some_and(|frame| frame.contains("61 62 63 78"));
    let counts = [verdict.bad, verdict.good_udp, verdict.good_tcp];
    expect(counts == [2, 1, 1] && shown, || format!("{verdict:?}"))
}
