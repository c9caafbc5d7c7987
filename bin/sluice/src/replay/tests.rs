//! Reading and merging captures, and what is told when something is wrong with them. The captures
//! are written byte by byte as the formats' documents say, not with the library that reads them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

const CONFIG: &str = r#"
[[port]]
name = "front"
device = "tap:front"

[[port]]
name = "back"
device = "tap:back"

[[pool]]
name = "lan"
addresses = ["192.0.2.10"]

[[service]]
name = "echo"
protocol = "udp"
vip = "198.51.100.200"
port = 7
mode = "fnat"
scheduler = "rr"
pool = "lan"

[[service.real]]
address = "192.0.2.11"

[[route]]
prefix = "0.0.0.0/0"
port = "front"

[[route]]
prefix = "192.0.2.0/24"
port = "back"

[[neighbour]]
address = "192.0.2.11"
mac = "02:00:00:00:01:11"
port = "back"
"#;

/// A folder with a configuration that goes away with it.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().expect("a folder for the test"));
        bench.put("config.toml", CONFIG.as_bytes());
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).expect("writes to its own folder");
        self.path(name)
    }

    fn job(&self, inputs: &[(&str, &str)]) -> Job {
        let inputs = inputs
            .iter()
            .map(|(port, file)| Input { port: (*port).to_owned(), file: self.path(file) });
        Job {
            config: self.path("config.toml"),
            inputs: inputs.collect(),
            out_dir: self.path("out"),
            burst: 1,
            rules: false,
        }
    }

    fn message(&self, inputs: &[(&str, &str)]) -> String {
        let error = run(&self.job(inputs)).expect_err("the input is wrong").to_string();
        error.replace(&*self.0.path().to_string_lossy(), "DIR")
    }
}

/// A pcap: byte order, whether nanoseconds, link type, and (seconds, fraction, frame).
fn pcap(big: bool, nano: bool, link: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let u32s = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let u16s = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut out = Vec::new();
    out.extend(u32s(if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
    out.extend([u16s(2), u16s(4)].concat());
    out.extend([u32s(0), u32s(0), u32s(65_535), u32s(link)].concat());
    for (seconds, fraction, frame) in packets {
        let length = u32s(frame.len() as u32);
        out.extend([u32s(*seconds), u32s(*fraction), length, length].concat());
        out.extend(*frame);
    }
    out
}

/// A little-endian pcapng block.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, &body, &length].concat()
}

/// A pcapng with one interface whose time unit is `resolution` (`if_tsresol`; `None`: the default,
/// microseconds), and (time, frame).
fn pcapng(resolution: Option<u8>, packets: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = block(
        0x0a0d_0d0a,
        &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat(),
    );
    let mut interface = vec![1, 0, 0, 0, 0, 0, 0, 0];
    if let Some(resolution) = resolution {
        interface.extend([9, 0, 1, 0, resolution, 0, 0, 0, 0, 0, 0, 0]);
    }
    out.extend(block(1, &interface));
    for (at, frame) in packets {
        let (high, low) = ((at >> 32) as u32, *at as u32);
        let length = frame.len() as u32;
        let words = [0, high, low, length, length].map(u32::to_le_bytes).concat();
        out.extend(block(6, &[&words, *frame].concat()));
    }
    out
}

fn question(client_port: u16) -> Vec<u8> {
    let client = format!("198.51.100.48:{client_port}");
    sluice_testkit::udp(&client, "198.51.100.200:7").payload(b"echo").bytes()
}

fn records(path: &std::path::Path) -> Vec<Record> {
    let mut capture = Capture::open(path).expect("an output is a capture");
    std::iter::from_fn(|| capture.next_record().expect("an output is whole")).collect()
}

#[test]
fn every_format_gives_the_same() {
    let bench = Bench::new();
    let frame = question(40_000);
    let (seconds, micros) = (1_700_000_000u32, 123_456u32);
    let at_us = u64::from(seconds) * 1_000_000 + u64::from(micros);
    let captures = [
        pcap(false, false, 1, &[(seconds, micros, &frame)]),
        pcap(true, false, 1, &[(seconds, micros, &frame)]),
        pcap(false, true, 1, &[(seconds, micros * 1000, &frame)]),
        pcap(true, true, 1, &[(seconds, micros * 1000, &frame)]),
        pcapng(None, &[(at_us, &frame)]),
        pcapng(Some(6), &[(at_us, &frame)]),
        pcapng(Some(9), &[(at_us * 1000, &frame)]),
    ];
    let mut first = None;
    for (number, capture) in captures.iter().enumerate() {
        bench.put("in", capture);
        let summary = run(&bench.job(&[("front", "in")])).expect("a right capture");
        assert_eq!((summary.report.sessions.created, summary.cut), (1, 0), "capture {number}");
        let sent = records(&bench.path("out/back.pcap"));
        assert_eq!(sent[0].at, Duration::from_micros(at_us), "capture {number}");
        assert_eq!(sluice_testkit::verify(&sent[0].bytes), Ok(()));
        assert_eq!(*first.get_or_insert(sent.clone()), sent, "capture {number}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let bench = Bench::new();
    let frames: Vec<_> = (0..100).map(|n| question(30_000 + n)).collect();
    let packets: Vec<_> = frames.iter().map(|f| (5, 0, &f[..])).collect();
    bench.put("in", &pcap(false, false, 1, &packets));
    let read = |burst| {
        let mut job = bench.job(&[("front", "in")]);
        job.burst = burst;
        run(&job).expect("a right capture");
        ["front.pcap", "back.pcap", "counters.json"]
            .map(|file| fs::read(bench.path("out").join(file)).expect("it was written"))
    };
    let first = read(1);
    assert_eq!(records(&bench.path("out/back.pcap")).len(), 100);
    for burst in [1, 2, 64, 1000] {
        assert_eq!(read(burst), first, "bursts of {burst}");
    }
}

/// A frame with its IPv4 header's checksum made right.
fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = sluice_wire::checksum::full(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Fragments whose first comes last leave with it and then; the last one of another datagram never
/// does; what is too large leaves in pieces. No matter how long bursts are.
#[test]
fn fragments_are_followed_and_made() {
    let bench = Bench::new();
    let whole = |length| {
        let udp = sluice_testkit::udp("198.51.100.48:4000", "198.51.100.200:7");
        let mut frame = udp.payload(&vec![7; length]).bytes();
        frame[20] = 0;
        summed(frame)
    };
    let (parted, large) = (whole(1400), whole(4000));
    let cut = |frame: &[u8], mtu| super::player::pieces(frame, mtu).expect("it has no DF");
    let pieces = cut(&parted, 528);
    assert_eq!(pieces.len(), 3);
    let mut orphan = pieces[2].clone();
    orphan[18..20].copy_from_slice(&[9, 9]);
    let orphan = summed(orphan);
    let packets = [
        (5, 0, &orphan[..]),
        (6, 0, &pieces[2]),
        (6, 1000, &pieces[1]),
        (6, 1000, &pieces[0]),
        (7, 0, &large),
        (9, 0, &large),
    ];
    bench.put("in", &pcap(false, false, 1, &packets));
    for burst in [1, 64] {
        let mut job = bench.job(&[("front", "in")]);
        job.burst = burst;
        let report = run(&job).expect("a right capture").report;
        assert_eq!(report.reasons["fragment_orphan"], 1);
        assert_eq!((report.sessions.created, report.ports[1].sent), (1, 9));
        let sent = records(&bench.path("out/back.pcap"));
        let mut parts: Vec<_> = sent[..3].iter().map(|r| r.bytes[20..22].to_vec()).collect();
        assert_eq!(parts.remove(0), [0x20, 0], "the first before those that waited for it");
        assert!(sent[..3].iter().all(|record| record.at == Duration::from_millis(6001)));
        for (record, offset) in sent[3..6].iter().zip([0u16, 185, 370]) {
            assert!(record.bytes.len() <= 1514);
            let place = u16::from_be_bytes([record.bytes[20], record.bytes[21]]);
            assert_eq!(place & 0x1fff, offset);
        }
    }
}

/// Fragments in any order between whole packets, all within a millisecond, leave in the same order
/// and at the same times however long bursts are.
#[test]
fn parked_fragments_leave_at_the_same_place_in_any_burst() {
    let bench = Bench::new();
    let datagram = |id: u8| {
        let udp = sluice_testkit::udp("198.51.100.48:4000", "198.51.100.200:7");
        let mut frame = udp.payload(&[id; 1400]).bytes();
        frame[18..21].copy_from_slice(&[0, id, 0]);
        super::player::pieces(&summed(frame), 528).expect("it has no DF")
    };
    let mut frames: Vec<_> = (1..=12).flat_map(datagram).collect();
    frames.extend((0..36).map(|n| question(50_000 + n)));
    // A generator of 64 bits (Knuth), so that each round is another order.
    let mut state = 1u64;
    for round in 0..20u32 {
        for left in (1..frames.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            frames.swap(left, (state >> 33) as usize % (left + 1));
        }
        let packets: Vec<_> = frames.iter().zip(0..).map(|(f, at)| (round, at, &f[..])).collect();
        bench.put("in", &pcap(false, false, 1, &packets));
        let play = |burst| {
            let mut job = bench.job(&[("front", "in")]);
            job.burst = burst;
            assert_eq!(run(&job).expect("a right capture").report.ports[1].sent, 72);
            fs::read(bench.path("out/back.pcap")).expect("the output")
        };
        let one = play(1);
        for burst in [2, 3, 7, 16, 64] {
            assert!(play(burst) == one, "round {round}: bursts of {burst} give another order");
        }
    }
}

#[test]
fn captures_are_merged_by_time_and_then_by_order() {
    let bench = Bench::new();
    let frames: Vec<_> = (0..6).map(|n| question(40_000 + n)).collect();
    let late = [(10, 0, &frames[0][..]), (20, 0, &frames[1]), (20, 0, &frames[2])];
    let early = [(9, 0, &frames[3][..]), (20, 0, &frames[4]), (15, 0, &frames[5])];
    bench.put("late", &pcap(false, false, 1, &late));
    bench.put("early", &pcap(false, false, 1, &early));
    run(&bench.job(&[("front", "late"), ("front", "early")])).expect("right captures");
    let client_port = |record: &Record| u16::from_be_bytes([record.bytes[34], record.bytes[35]]);
    let sent = records(&bench.path("out/back.pcap"));
    // Local ports count up from 1024 in the order of arrival, so they tell it.
    assert_eq!(
        sent.iter().map(client_port).collect::<Vec<_>>(),
        [1024, 1025, 1026, 1027, 1028, 1029]
    );
    let times: Vec<_> = sent.iter().map(|record| record.at.as_secs()).collect();
    assert_eq!(times, [9, 10, 20, 20, 20, 15], "a capture's own order is kept");
}

#[test]
fn a_cut_packet_is_counted() {
    let bench = Bench::new();
    let mut capture = pcap(false, false, 1, &[(1, 0, &question(1)[..30])]);
    capture[24 + 12..][..4].copy_from_slice(&46u32.to_le_bytes());
    bench.put("in", &capture);
    let summary = run(&bench.job(&[("front", "in")])).expect("a right capture");
    assert_eq!(summary.cut, 1);
    assert_eq!(summary.report.reasons["truncated"], 1);
}

#[test]
fn sessions_end_on_the_captures_clock() {
    let bench = Bench::new();
    let frame = question(40_000);
    let day = 86_400;
    let packets = [(0, 0, &frame[..]), (299, 0, &frame), (600, 0, &frame), (60 * day, 0, &frame)];
    bench.put("in", &pcap(false, false, 1, &packets));
    let report = run(&bench.job(&[("front", "in")])).expect("a right capture").report;
    let counted = (report.sessions.created, report.sessions.expired, report.sessions.live);
    assert_eq!(counted, (3, 2, 1));
}

#[test]
fn wrong_inputs_are_told() {
    let bench = Bench::new();
    let frame = question(1);
    let good = pcap(false, false, 1, &[(1, 0, &frame), (2, 0, &frame)]);
    bench.put("good", &good);
    assert_eq!(
        bench.message(&[("side", "good")]),
        "--in side=…: the configuration has no port `side`; it has: front, back"
    );
    let missing = bench.message(&[("front", "none")]);
    assert!(missing.starts_with("DIR/none: No such file"), "{missing}");
    for (bytes, told) in [
        (&b""[..], "DIR/in: neither pcap nor pcapng: "),
        (b"hello, world, this is a text file", "DIR/in: neither pcap nor pcapng: "),
        (b"\x1f\x8b\x08\0\0\0\0\0", "DIR/in: compressed: unpack it first"),
        (&good[..good.len() - 1], "DIR/in: packet 2: "),
        (&pcap(false, false, 113, &[]), "DIR/in: link type LINUX_SLL, expected Ethernet frames"),
        (&[pcapng(None, &[]), block(3, &[0; 4])].concat(), "DIR/in: packet 1: a simple packet"),
    ] {
        bench.put("in", bytes);
        let message = bench.message(&[("front", "in")]);
        assert!(message.starts_with(told), "{message}");
    }
    for text in ["front", "=file", "front="] {
        let message = text.parse::<Input>().expect_err("no PORT=FILE").to_string();
        assert!(message.contains("expected PORT=FILE"), "{message}");
    }
    assert_eq!("a=b=c".parse::<Input>().expect("PORT=FILE").file, PathBuf::from("b=c"));
}

#[test]
fn an_input_is_never_overwritten() {
    let bench = Bench::new();
    let good = pcap(false, false, 1, &[(1, 0, &question(1))]);
    bench.put("front.pcap", &good);
    let mut job = bench.job(&[("front", "front.pcap")]);
    job.out_dir = bench.path("");
    let message = run(&job).expect_err("would overwrite").to_string();
    assert!(message.contains("would overwrite it; choose another --out-dir"), "{message}");
    assert_eq!(fs::read(bench.path("front.pcap")).expect("it is there"), good);
}

#[test]
fn a_wrong_configuration_is_told_with_its_place() {
    let bench = Bench::new();
    bench.put("config.toml", CONFIG.replace("udp", "upd").as_bytes());
    let message = bench.message(&[]);
    assert!(message.contains("config.toml:16:12"), "{message}");
}

/// The same addresses in two networks: each capture's packets leave by their own network's port.
#[test]
fn networks_are_replayed_apart() {
    let bench = Bench::new();
    let in_blue = |text: &str| {
        let text = text.replace("name = \"", "name = \"blue-");
        let text = text.replace("port = \"", "port = \"blue-");
        let text = text.replace("pool = \"", "pool = \"blue-");
        let text = text.replace("tap:", "tap:blue-");
        ["[[port]]", "[[pool]]", "[[service]]"].into_iter().fold(text, |text, section| {
            text.replace(section, &format!("{section}\nnetwork = \"blue\""))
        })
    };
    let both = format!("{CONFIG}\n[[network]]\nname = \"blue\"\ntable = 7\n{}", in_blue(CONFIG));
    bench.put("config.toml", both.as_bytes());
    let (one, two) = (question(40_000), question(40_001));
    bench.put("default", &pcap(false, false, 1, &[(5, 0, &one)]));
    bench.put("blue", &pcap(false, false, 1, &[(5, 0, &one), (6, 0, &two)]));
    let inputs = [("front", "default"), ("blue-front", "blue")];
    let report = run(&bench.job(&inputs)).expect("right captures").report;
    let sent: Vec<_> = report.ports.iter().map(|port| port.sent).collect();
    assert_eq!((report.sessions.created, sent), (3, vec![0, 1, 0, 2]));
    let services: Vec<_> = report.services.iter().map(|it| it.counted.sessions).collect();
    assert_eq!(services, [1, 2]);
    for (file, packets) in [("out/back.pcap", 1), ("out/blue-back.pcap", 2)] {
        let sent = records(&bench.path(file));
        assert!(sent.iter().all(|record| sluice_testkit::verify(&record.bytes) == Ok(())));
        assert_eq!(sent.len(), packets);
    }
}

/// Each frame is told of by the rule that takes it, and by the port that received it; an ICMP error
/// by the rule that takes answers to what it quotes.
#[test]
fn packets_are_told_by_rule() {
    use etherparse::PacketBuilder;
    let builder =
        |from: [u8; 4], to: [u8; 4]| PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64);
    let datagram = |from: ([u8; 4], u16), to: ([u8; 4], u16)| {
        let mut bytes = Vec::new();
        builder(from.0, to.0).udp(from.1, to.1).write(&mut bytes, b"question").unwrap();
        bytes
    };
    let (client, vip) = ([198, 51, 100, 48], [198, 51, 100, 200]);
    let (local, real) = ([192, 0, 2, 10], [192, 0, 2, 11]);
    let to_real = datagram((local, 2000), (real, 7));
    let mut error = Vec::new();
    let unreachable = builder([192, 0, 2, 1], local).icmpv4_raw(3, 3, [0; 4]);
    unreachable.write(&mut error, &to_real[14..]).unwrap();
    let asked = [
        datagram((client, 1000), (vip, 7)),
        datagram((client, 1001), (vip, 7)),
        datagram((client, 1000), (vip, 8)),
        b"\x02\x02\x02\x02\x02\x02\x04\x04\x04\x04\x04\x04\x08\x06ARP".to_vec(),
    ];
    let answers = [datagram((real, 7), (local, 2000)), error, datagram((real, 7), (local, 80))];
    let bench = Bench::new();
    let put = |name: &str, frames: &[Vec<u8>]| {
        let frames: Vec<(u32, u32, &[u8])> = frames.iter().map(|it| (1, 0, &it[..])).collect();
        bench.put(name, &pcap(false, false, 1, &frames));
    };
    put("asked.pcap", &asked);
    put("answers.pcap", &answers);
    let inputs = [("front", "asked.pcap"), ("back", "answers.pcap")];
    let summary = run(&Job { rules: true, ..bench.job(&inputs) }).unwrap();
    let report = summary.rules.unwrap();
    let shown: Vec<String> = report
        .rules
        .iter()
        .map(|rule| format!("{} {} {:?}", rule.kind, rule.matches, rule.hits))
        .collect();
    let expected = [
        r#"service udp to 198.51.100.200:7 {"front": 2}"#,
        r"local tcp to 192.0.2.10:1024-65535 {}",
        r#"local udp to 192.0.2.10:1024-65535 {"back": 2}"#,
    ];
    assert_eq!(shown, expected);
    let unmatched = [("back", 1), ("front", 2)].map(|(port, count)| (port.to_owned(), count));
    assert_eq!(report.unmatched, unmatched.into());
    // What the path has forwarded to the service is what its rule took.
    assert_eq!(summary.report.services[0].counted.packets.inbound, 2);
    assert_eq!(run(&bench.job(&inputs)).unwrap().rules, None, "nobody asked");
}
