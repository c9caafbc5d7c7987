//! `sluice trace` and `sluice capture`: each decision of a handshake is named; captures are read by
//! tshark, tcpdump and scapy; and whoever looks, or does not read, holds nobody up.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sluice_e2e::bed::REALS;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::load::{Until, iperf3_tcp};
use sluice_e2e::web::PYTHON;
use sluice_e2e::{Bed, Driver, LabError, Running, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on};

const LIMIT: Duration = Duration::from_secs(30);

/// Starts `sluice` beside the director; its output is in the log.
fn start(fixture: &Fixture, name: &str, args: &[&str]) -> Result<Running, LabError> {
    let socket = fixture.director.socket().to_string_lossy().into_owned();
    let all = [&["--socket", &socket][..], args].concat();
    fixture.bed.director.start(name, &program("sluice")?.to_string_lossy(), &all)
}

/// Runs `sluice` where it has to fail, and gives what it said.
fn refused(fixture: &Fixture, args: &[&str]) -> Result<String, LabError> {
    let socket = fixture.director.socket().to_string_lossy().into_owned();
    let all = [&["--socket", &socket][..], args].concat();
    let ran = fixture.bed.director.run(&program("sluice")?.to_string_lossy(), &all)?;
    expect(!ran.status.success(), || format!("{args:?} succeeded: {}", ran.stdout))?;
    Ok(ran.stderr)
}

/// Has all neighbours resolved, so that no packet waits for one.
fn warm(fixture: &Fixture) -> Result<(), LabError> {
    fixture.answers(2 * REALS).map(drop)
}

/// The packets of a trace's log.
fn packets(log: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == "packet").collect()
}

/// The text of a packet's step.
fn step<'a>(packet: &'a Value, step: &str) -> &'a str {
    let steps = packet["steps"].as_array().map_or(&[][..], Vec::as_slice);
    let found = steps.iter().find(|one| one["step"] == step);
    found.and_then(|found| found["text"].as_str()).unwrap_or_default()
}

#[test]
fn a_trace_names_each_decision_of_a_handshake() {
    let name = here!(a_trace_names_each_decision_of_a_handshake);
    on(name, Setup::usual(), handshake);
}

fn handshake(fixture: &mut Fixture) -> Result<(), LabError> {
    warm(fixture)?;
    let args = ["trace", "--json", "--filter", "tcp port 80", "--count", "4"];
    let mut trace = start(fixture, "trace", &args)?;
    trace.wait_for_words("\"watching\"", SOON)?;
    fixture.answers(1)?;
    let ended = trace.wait(LIMIT)?;
    let log = trace.log();
    let told = packets(&log);
    expect(ended.success() && told.len() == 4, || log.clone())?;
    let (vip, client) = (fixture.bed.vip(), fixture.bed.client_address());
    let [syn, answer, ack, request] = &told[..] else { unreachable!() };
    let has = |packet: &Value, name: &str, words: &[&str]| {
        let text = step(packet, name).to_owned();
        let missing = words.iter().find(|word| !text.contains(**word));
        expect(missing.is_none(), || format!("{name}: {missing:?} is not in {text:?}: {packet}"))
    };
    has(syn, "receive", &["by front (af_xdp:front)", "bytes"])?;
    has(syn, "parse", &[client, vip, ":80", "SYN", "TTL"])?;
    has(syn, "match", &["service web"])?;
    has(syn, "session", &["none"])?;
    has(syn, "schedule", &["rr chose 192.0.2."])?;
    has(syn, "open", &["SYN_RECV", "local 192.0.2.10:"])?;
    has(syn, "translate", &["fnat: becomes tcp 192.0.2.10:", " → 192.0.2.", "SYN"])?;
    has(syn, "send", &["by back"])?;
    has(answer, "receive", &["by back"])?;
    has(answer, "match", &["local address of pool lan", "worker 0's"])?;
    has(answer, "session", &["outbound of web", client, "SYN_RECV"])?;
    has(answer, "translate", &[&format!("becomes tcp {vip}:80 → {client}"), "SYN ACK"])?;
    has(ack, "session", &["inbound of web", "SYN_RECV"])?;
    has(ack, "state", &["SYN_RECV → ESTABLISHED"])?;
    has(request, "session", &["ESTABLISHED"])?;
    // The next hop is the one that was chosen.
    let real = step(syn, "schedule").rsplit(' ').next().unwrap_or_default();
    let address = real.rsplit_once(':').map_or("", |(address, _)| address);
    let known = (0..3).any(|index| Bed::real_address(index) == address);
    has(syn, "next hop", &[address, " at "])?;
    expect(known && syn["fate"] == "sent" && syn["reason"].is_null(), || syn.to_string())?;
    as_text(fixture)
}

/// What a person reads, with conditions other than the filter; and errors that help.
fn as_text(fixture: &Fixture) -> Result<(), LabError> {
    let mut trace = start(fixture, "text", &["trace", "--service", "web", "-c", "1"])?;
    trace.wait_for_words("will tell the next 1 packets", SOON)?;
    fixture.answers(1)?;
    let ended = trace.wait(LIMIT)?;
    let log = trace.log();
    let lines = ["1  tcp ", "   match      service web", "   send       by back", "1 told"];
    let all = lines.iter().all(|line| log.contains(line));
    expect(ended.success() && all, || log.clone())?;
    for (args, words) in [
        (&["--filter", "tcp prot 80"][..], "understood: `tcp`; not understood: `prot 80`"),
        (&["--service", "wob"], "there is no service \"wob\"; there is web, echo"),
        (&["--port", "left"], "there is no port \"left\"; there is front, back"),
        (&["--reason", "bad_luck"], "there is no reason \"bad_luck\""),
    ] {
        let said = refused(fixture, &[&["trace"][..], args].concat())?;
        expect(said.contains(words), || format!("{args:?}: {said}"))?;
    }
    Ok(())
}

#[test]
fn a_capture_is_read_by_tshark_and_scapy() {
    on(here!(a_capture_is_read_by_tshark_and_scapy), Setup::usual(), capture);
}

#[test]
fn two_workers_capture_into_one_file() {
    let setup = Setup::new(Driver::AfPacket, 2);
    on(here!(two_workers_capture_into_one_file), setup, capture);
}

fn capture(fixture: &mut Fixture) -> Result<(), LabError> {
    warm(fixture)?;
    let file = fixture.bed.lab.dir().join("web.pcapng").to_string_lossy().into_owned();
    let args = ["capture", "-w", &file, "--filter", "tcp port 80"];
    let mut capture = start(fixture, "capture", &args)?;
    // The file is made when the workers look.
    let begun = || Ok(std::fs::metadata(&file).ok().filter(|file| file.len() > 0).map(drop));
    wait_until("the capture", SOON, begun)?;
    let answers = fixture.answers(3)?.len();
    let stray = format!(
        "from scapy.all import IP, TCP, send\n\
         send(IP(dst='{}')/TCP(sport=4444, dport=80, flags='A'), verbose=0)",
        fixture.bed.vip()
    );
    fixture.bed.client.run(PYTHON, &["-c", &stray])?.ok()?;
    wait_until("the stray to be dropped", SOON, || {
        let drops = fixture.director.ask("drops")?;
        let drops = drops["drops"].as_array().cloned().unwrap_or_default();
        let seen = drops.iter().any(|d| d["reason"] == "no_session" && d["packets"] != 0);
        Ok(seen.then_some(()))
    })?;
    let written = || {
        let seen = tshark(fixture, &file, &["-Y", "frame.comment contains \"no_session\""])?;
        Ok((seen.lines().count() == 1).then_some(()))
    };
    wait_until("the stray in the capture", SOON, written)?;
    capture.signal(Signal::INT);
    let ended = capture.wait(SOON)?;
    let said = capture.log();
    expect(ended.success() && said.contains("frames written"), || said.clone())?;
    judged_by_tshark(fixture, &file, answers)?;
    judged_by_scapy(fixture, &file)
}

fn tshark(fixture: &Fixture, file: &str, args: &[&str]) -> Result<String, LabError> {
    let all = [&["-n", "-r", file][..], args].concat();
    Ok(fixture.bed.director.run("tshark", &all)?.ok()?.stdout)
}

fn judged_by_tshark(fixture: &Fixture, file: &str, answers: usize) -> Result<(), LabError> {
    let fields = [
        "frame.interface_name",
        "frame.packet_flags_direction",
        "ip.src",
        "ip.dst",
        "tcp.flags",
        "frame.comment",
    ];
    let columns: Vec<_> = fields.iter().flat_map(|fixture| ["-e", fixture]).collect();
    let text = tshark(fixture, file, &[&["-T", "fields"][..], &columns].concat())?;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let (vip, client) = (fixture.bed.vip(), fixture.bed.client_address());
    let count = |wanted: &dyn Fn(&[&str]) -> bool| rows.iter().filter(|row| wanted(row)).count();
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0);
    let is_syn = |row: &[&str]| number(row[4]) & 0x12 == 2;
    let (inward, outward) =
        (|row: &[&str]| number(row[1]) == 1, |row: &[&str]| number(row[1]) == 2);
    // Each SYN as it came by the front and as it left by the back, with what was decided.
    let came = count(&|row| {
        is_syn(row) && inward(row) && row[0] == "front" && (row[2], row[3]) == (client, vip)
    });
    let left = count(&|row| {
        let told =
            row[5].contains("forwarded by back") && row[5].contains("web, fnat, real server");
        is_syn(row) && outward(row) && row[0] == "back" && row[2] == "192.0.2.10" && told
    });
    expect(came == answers && left == answers, || format!("{came} {left} of {answers}: {text}"))?;
    let dropped: Vec<_> = rows.iter().filter(|row| row[5].starts_with("dropped: ")).collect();
    let right = dropped.len() == 1
        && dropped[0][5].starts_with("dropped: no_session")
        && (dropped[0][0], dropped[0][2]) == ("front", client);
    expect(right, || text.clone())?;
    // What is not dropped is there in both forms.
    let forwarded = |row: &[&str]| row[5].starts_with("forwarded");
    let (received, sent) =
        (count(&|row| forwarded(row) && inward(row)), count(&|row| forwarded(row) && outward(row)));
    expect(received == sent && received > 8 * answers, || format!("{received} {sent}: {text}"))
}

/// Another reader finds the same frames, the stray once. (It reads only comments with a line feed.)
fn judged_by_scapy(fixture: &Fixture, file: &str) -> Result<(), LabError> {
    let script = format!(
        "from scapy.all import PcapNgReader, TCP\n\
         seen = [p for p in PcapNgReader('{file}') if p.haslayer(TCP)]\n\
         print(len(seen), sum(p[TCP].sport == 4444 for p in seen))"
    );
    let said = fixture.bed.director.run(PYTHON, &["-c", &script])?.ok()?.stdout;
    let all = tshark(fixture, file, &["-Y", "tcp"])?.lines().count();
    expect(said.trim() == format!("{all} 1"), || format!("scapy sees {said}; tshark {all}"))
}

#[test]
fn whoever_does_not_read_holds_nobody_up() {
    on(here!(whoever_does_not_read_holds_nobody_up), Setup::usual(), unread);
}

fn unread(fixture: &mut Fixture) -> Result<(), LabError> {
    warm(fixture)?;
    // A reader by another program, down a pipe.
    let socket = fixture.director.socket().to_string_lossy().into_owned();
    let sluice = program("sluice")?.to_string_lossy().into_owned();
    let pipe = format!(
        "'{sluice}' --socket '{socket}' capture -w - --filter 'tcp[tcpflags] & tcp-syn != 0' -c 2 \
         | tcpdump -n -r - 2>&1"
    );
    let mut piped = fixture.bed.director.start("piped", "sh", &["-c", &pipe])?;
    piped.wait_for_words("reading from file -", SOON)?;
    fixture.answers(1)?;
    piped.wait(LIMIT)?;
    let lines = piped.log().matches("Flags [S").count();
    expect(lines == 4, || piped.log())?;
    // One that never reads: everything is caught for it and finds no room.
    let mut child = fixture
        .bed
        .director
        .command(&sluice)
        .args(["--socket", &socket, "capture", "-w", "-", "--snap", "65535"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| LabError::Start { command: "sluice capture".to_owned(), source })?;
    let answers = (0..4).map(|_| fixture.answers(10)).collect::<Result<Vec<_>, _>>();
    // A director that waited for the reader would carry nothing at all, and this would not end.
    let load = iperf3_tcp(&fixture.bed.client, fixture.bed.vip(), Until::Megabytes(16), false);
    let still = fixture.answers(5);
    let _ = child.kill();
    let _ = child.wait();
    answers?;
    still?;
    let load = load?;
    expect(load.bytes > 8 << 20, || format!("{} bytes went through", load.bytes))?;
    places(fixture)
}

/// There are four places; whoever goes without a word gives its own back.
fn places(fixture: &Fixture) -> Result<(), LabError> {
    let mut running = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let taken = wait_until("a place", SOON, || {
            let mut trace = start(fixture, name, &["trace", "--json", "--filter", "port 9"])?;
            Ok(trace.wait_for_words("\"watching\"", SOON).ok().map(|()| trace))
        });
        running.push(taken?);
    }
    let said = refused(fixture, &["trace"])?;
    expect(said.contains("4 traces and captures run already"), || said.clone())?;
    for trace in &mut running {
        trace.kill()?;
    }
    wait_until("a free place", SOON, || {
        let free = fixture.director.sluice(&["trace", "--filter", "port 9", "--seconds", "0.1"]);
        Ok(free.ok().map(drop))
    })?;
    fixture.answers(3).map(drop)
}
