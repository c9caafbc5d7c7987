//! The page, read back: every family with the labels that its description says, and nothing else;
//! and `docs/metrics.md`, of the same descriptions: `UPDATE_DOCS=1 cargo test -p sluice-meter`.
#![forbid(unsafe_code)]

mod networks;
mod packaging;

use sluice_api::{Exposition, model};
use sluice_config::Config;
use sluice_director::counters::{Counters, RealCounters, ServiceDrops};
use sluice_director::path::Stage;
use sluice_director::plan::{Plan, Retired};
use sluice_director::reason::Reason;
use sluice_director::spec::NetworkId;
use sluice_meter::{
    Check, Identity, Meter, NetworkFigures, Process, Sample, Work, WorkerFigures, WorkerSample,
    families,
};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io::Write, path::Path};

const CONFIG: &str = r#"
    [[port]]
    name = "front"
    device = "af_xdp:eth0"
    [[network]]
    name = "blue"
    table = 1001
    sessions = 1000
    [[port]]
    name = "inside"
    device = "af_xdp:eth1"
    network = "blue"
    [[pool]]
    name = "lan"
    addresses = ["192.0.2.10", "2001:db8::10"]
    [[service]]
    name = "web"
    protocol = "tcp"
    vip = "198.51.100.200"
    port = 80
    mode = "fnat"
    pool = "lan"
    real = [
        { address = "192.0.2.11", port = 80, upper_sessions = 10 },
        { address = "192.0.2.12", port = 80, weight = 0 },
        { address = "192.0.2.13", port = 80, down = true },
        { address = "2001:db8::14", port = 8080, weight = 7 },
        { address = "192.0.2.15", port = 80, fallback = true },
    ]
    [[snat]]
    name = "outbound"
    sources = ["192.0.2.0/25"]
    pool = "lan"
"#;

fn port() -> model::Port {
    model::Port {
        name: "front".to_owned(),
        device: "af_xdp:eth0".to_owned(),
        network: None,
        driver: "net_af_xdp".to_owned(),
        interface: Some("eth0".to_owned()),
        mac: None,
        mtu: Some(1500),
        state: model::PortState::Up,
        queues: 1,
        twin: None,
        rx: model::Received { packets: 4, bytes: 400, missed: 3, errors: 2 },
        tx: model::Sent { packets: 5, bytes: 500, errors: 1 },
        trouble: None,
        steering: Some(model::Steering {
            mode: model::SteeringMode::Native,
            taken: 21,
            passed: 22,
            unowned: 23,
        }),
        copies: Some(model::Copies { offloaded: 24, full: 25, failed: 26 }),
    }
}

fn peer(last: u8, up: bool) -> model::HaPeer {
    model::HaPeer {
        address: ([192, 0, 2, last], 8848).into(),
        name: "other".to_owned(),
        up,
        for_s: 5.0,
        synchronised: up,
        differs: !up,
        behind: !up,
        lag_ms: 2.5,
        unacknowledged: last.into(),
        key: "00c0ffee".to_owned(),
        standing: None,
    }
}

fn sync() -> model::HaSync {
    model::HaSync {
        listen: ([192, 0, 2, 1], 8848).into(),
        synchronised: true,
        pulling_from: None,
        pulled: 31,
        peers: vec![peer(2, true), peer(3, false)],
        reports_waiting: 30,
        reports_sent: 32,
        reports_received: model::HaReports {
            new: 33,
            newer: 34,
            ended: 35,
            older: 36,
            unknown: 37,
            refused: 38,
        },
        ends_unreported: 39,
        datagrams: model::HaDatagrams {
            sent: 40,
            bytes_sent: 41,
            received: 42,
            bytes_received: 43,
            to_group: 43,
            repaired: 44,
            lost: 45,
            forged: 46,
            replayed: 47,
            malformed: 48,
        },
    }
}

fn network(network: u16, sessions: u64, too_big: u64) -> NetworkFigures {
    let mut reasons = [0; Reason::COUNT];
    reasons[Reason::TooBig as usize] = too_big;
    NetworkFigures { network: NetworkId(network), sessions, session_capacity: 1000, reasons }
}

fn sample() -> Sample {
    sample_of(CONFIG)
}

fn transition() -> model::HaTransition {
    let last = model::HaNotify {
        program: "keepalived".to_owned(),
        kind: model::HaGroupKind::Group,
        name: "sluice".to_owned(),
        state: model::HaGroupState::Master,
        priority: 0,
    };
    model::HaTransition { last, at_unix_s: 1, changes: 3 }
}

fn sample_of(config: &str) -> Sample {
    let config = Config::parse("file", config).expect("a configuration").config;
    let plan = Plan::compile(&config.spec(), None, &Retired::default()).expect("a plan");
    let real = |at: u64| RealCounters {
        packets: [at * 10 + 1, at * 10 + 2],
        bytes: [at * 1000 + 3, at * 1000 + 4],
        sessions: at * 10 + 5,
        active: at + 6,
        ..RealCounters::default()
    };
    let mut reasons = [0; Reason::COUNT];
    reasons[Reason::TooBig as usize] = 17;
    let mut refused = ServiceDrops::default();
    (0..3).for_each(|_| refused.count(Reason::ClientDenied));
    let reals = (0..plan.reals.len() as u64).map(real).collect();
    let counters = Counters { reals, reasons, killed: 5, evicted: 3, ..Counters::default() };
    let counters = Counters { created: 9, closed: 8, expired: 7, ignored_ends: 4, ..counters };
    let services = vec![refused; plan.services.len()];
    let counters = Counters { services, handed_off: 6, ..counters };
    let figures = WorkerFigures {
        packets: 1_000,
        bursts: 100,
        spread_flows: 2,
        spread_packets: 300,
        work: Work { busy_ms: 1_500, life_ms: 6_000 },
        stage_s: Stage::ALL.map(|stage| if stage == Stage::Track { 1e-9 } else { 0.5 }),
        networks: vec![network(0, 30, 15), network(1, 12, 2)],
        ..WorkerFigures::default()
    };
    Sample {
        at: Duration::from_millis(61_500),
        full: vec![plan.services[0].reals[0]],
        plan: Arc::new(plan),
        counters: Some(counters),
        workers: vec![
            WorkerSample { core: 3, figures: Some(figures) },
            WorkerSample { core: 5, figures: None },
        ],
        ports: model::Ports { ports: vec![port()] },
        ha: model::Ha {
            transitions: vec![transition()],
            disagreement: None,
            draining: false,
            upgrade: None,
            announce: vec![announce()],
            sync: Some(sync()),
            role: model::HaRole::Active,
            addresses: vec![model::HaAddress {
                vip: [198, 51, 100, 200].into(),
                interface: Some("front".to_owned()),
                for_s: 12.0,
                changes: 3,
                services: 2,
            }],
        },
        config_epoch: 4,
        durable: true,
        real_servers: true,
        ..Sample::default()
    }
}

fn announce() -> model::HaAnnounce {
    model::HaAnnounce {
        interface: "sluice".to_owned(),
        vips: 51,
        unserved: vec![[198, 51, 100, 7].into()],
        pool_addresses: 52,
        ..model::HaAnnounce::default()
    }
}

fn checks() -> Vec<Check> {
    let check = |last: u8, up, passed| Check {
        service: "web".into(),
        address: [192, 0, 2, last].into(),
        port: 80,
        check: "http".into(),
        up,
        took_s: Some(0.0125),
        passed,
        probes: 12,
    };
    vec![
        check(11, Some(true), Some(true)),
        check(12, Some(false), Some(false)),
        check(13, None, None),
    ]
}

fn process() -> Option<Process> {
    Some(Process { max_fds: Some(1024), ..Process::default() })
}

fn page(sample: Sample, exposition: Exposition) -> String {
    let mut meter = Meter::new(Identity { version: "1.2.3", began_unix_ms: 1_790_000_000_000 });
    meter.take(sample);
    let page = meter.page(exposition, checks, process).expect("a page");
    String::from_utf8(page.into()).expect("text")
}

/// Samples of a page: their name, labels and value. Labels here have no comma in their values.
fn samples(page: &str) -> Vec<(String, BTreeMap<String, String>, String)> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect(line);
        let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
        let pairs = rest.strip_suffix('}').expect(line).split(',').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').expect(pair);
            (name.to_owned(), value.trim_matches('"').to_owned())
        };
        (name.to_owned(), pairs.map(pair).collect(), value.to_owned())
    };
    lines.map(sample).collect()
}

#[test]
fn every_family_has_samples_with_its_labels() {
    let page = page(sample(), Exposition::Text);
    let mut left: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for family in families::ALL.iter().flat_map(|(_, families)| *families) {
        let labels = family.labels.iter().map(|label| (*label).to_owned()).collect();
        left.insert(format!("{}{}", family.name, family.suffix()), labels);
    }
    let described = left.clone();
    let mut seen = BTreeSet::new();
    for (name, labels, value) in samples(&page) {
        let wanted = described.get(&name).unwrap_or_else(|| panic!("{name} is not described"));
        assert_eq!(&labels.keys().cloned().collect::<BTreeSet<_>>(), wanted, "{name}");
        assert!(value.parse::<f64>().is_ok(), "{name} is {value}");
        assert!(seen.insert((name.clone(), labels)), "{name} has a series twice");
        left.remove(&name);
    }
    assert!(left.is_empty(), "without samples: {:?}", left.keys());
}

#[test]
fn figures_are_where_they_belong() {
    let page = page(sample(), Exposition::Text);
    for line in [
        "sluice_build_info{version=\"1.2.3\"} 1",
        "sluice_sample_timestamp_seconds 1790000061.5",
        "sluice_sessions_opened_total 9",
        "sluice_packets_dropped_total{reason=\"too_big\"} 17",
        "sluice_service_info{service=\"web\",protocol=\"tcp\",vip=\"198.51.100.200\",port=\"80\",\
         mode=\"fnat\",scheduler=\"rr\"} 1",
        // 0 + 1 + 2 + 3 + 4 of ten, and one each.
        "sluice_service_incoming_packets_total{service=\"web\"} 105",
        "sluice_service_real_servers{service=\"web\",state=\"up\"} 1",
        "sluice_service_real_servers{service=\"web\",state=\"down\"} 1",
        "sluice_real_state{service=\"web\",real=\"192.0.2.11:80\",state=\"full\"} 1",
        "sluice_real_state{service=\"web\",real=\"192.0.2.12:80\",state=\"draining\"} 1",
        "sluice_real_state{service=\"web\",real=\"192.0.2.13:80\",state=\"down\"} 1",
        "sluice_real_state{service=\"web\",real=\"[2001:db8::14]:8080\",state=\"up\"} 1",
        "sluice_real_state{service=\"web\",real=\"192.0.2.15:80\",state=\"standby\"} 1",
        "sluice_real_up{service=\"web\",real=\"192.0.2.12:80\"} 1",
        "sluice_real_up{service=\"web\",real=\"192.0.2.13:80\"} 0",
        "sluice_real_weight{service=\"web\",real=\"[2001:db8::14]:8080\"} 7",
        "sluice_real_outgoing_bytes_total{service=\"web\",real=\"192.0.2.12:80\"} 1004",
        "sluice_check_up{service=\"web\",real=\"192.0.2.12:80\",check=\"http\"} 0",
        "sluice_check_last_probe_duration_seconds{service=\"web\",real=\"192.0.2.11:80\",\
         check=\"http\"} 0.0125",
        "sluice_worker_info{worker=\"1\",core=\"5\"} 1",
        "sluice_worker_up{worker=\"0\"} 1",
        "sluice_worker_up{worker=\"1\"} 0",
        "sluice_worker_seconds_total{worker=\"0\",mode=\"busy\"} 1.5",
        "sluice_worker_seconds_total{worker=\"0\",mode=\"idle\"} 4.5",
        "sluice_worker_timed_stage_seconds_total{worker=\"0\",stage=\"track\"} 0.000000001",
        "sluice_port_receive_missed_total{port=\"front\"} 3",
        "sluice_port_steered_packets_total{port=\"front\",verdict=\"passed\"} 22",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
    }
    // The rule's own, by its own label.
    assert!(page.contains("sluice_snat_sessions{rule=\"outbound\"} "));
    assert!(!page.contains("service=\"outbound\""));
}

#[test]
fn session_synchronisation_is_shown_where_it_is_configured() {
    let said = page(sample(), Exposition::Text);
    for line in [
        "sluice_sync_synchronised 1",
        "sluice_sync_peer_up{peer=\"192.0.2.2:8848\"} 1",
        "sluice_sync_peer_up{peer=\"192.0.2.3:8848\"} 0",
        "sluice_sync_peer_synchronised{peer=\"192.0.2.3:8848\"} 0",
        "sluice_sync_peer_differs{peer=\"192.0.2.3:8848\"} 1",
        "sluice_sync_peer_behind{peer=\"192.0.2.3:8848\"} 1",
        "sluice_sync_peer_lag_seconds{peer=\"192.0.2.2:8848\"} 0.0025",
        "sluice_sync_peer_unacknowledged_datagrams{peer=\"192.0.2.3:8848\"} 3",
        "sluice_sync_reports_waiting 30",
        "sluice_sync_reports_sent_total 32",
        "sluice_sync_reports_received_total{result=\"new\"} 33",
        "sluice_sync_reports_received_total{result=\"newer\"} 34",
        "sluice_sync_reports_received_total{result=\"ended\"} 35",
        "sluice_sync_reports_received_total{result=\"older\"} 36",
        "sluice_sync_reports_received_total{result=\"unknown\"} 37",
        "sluice_sync_reports_received_total{result=\"refused\"} 38",
        "sluice_sync_ends_unreported_total 39",
        "sluice_sync_sent_datagrams_total 40",
        "sluice_announced_addresses{kind=\"vip\"} 51",
        "sluice_announced_addresses{kind=\"pool\"} 52",
        "sluice_unserved_vips 1",
        "sluice_draining 0",
        "sluice_sync_sent_bytes_total 41",
        "sluice_sync_received_datagrams_total 42",
        "sluice_sync_received_bytes_total 43",
        "sluice_sync_group_datagrams_total 43",
        "sluice_sync_repaired_datagrams_total 44",
        "sluice_sync_lost_datagrams_total 45",
        "sluice_sync_rejected_datagrams_total{reason=\"forged\"} 46",
        "sluice_sync_rejected_datagrams_total{reason=\"replayed\"} 47",
        "sluice_sync_rejected_datagrams_total{reason=\"malformed\"} 48",
    ] {
        assert!(said.lines().any(|found| found == line), "no {line} in\n{said}");
    }
    let open = page(sample(), Exposition::OpenMetrics);
    assert!(open.contains("# TYPE sluice_sync_reports_received counter\n"), "{open}");
    let mut alone = sample();
    alone.ha.sync = None;
    assert!(!page(alone, Exposition::Text).contains("sluice_sync_"));
}

#[test]
fn real_servers_can_be_left_out() {
    let page = page(Sample { real_servers: false, ..sample() }, Exposition::Text);
    assert!(!page.contains("sluice_real_") && !page.contains("sluice_check_up"));
    assert!(page.contains("sluice_service_real_servers{service=\"web\",state=\"full\"} 1"));
}

/// A worker that does not answer shows, and counters stay what they were.
#[test]
fn a_silent_worker_shows() {
    let mut meter = Meter::new(Identity { version: "1.2.3", began_unix_ms: 0 });
    meter.take(sample());
    let silent = WorkerSample { core: 3, figures: None };
    let mut later = Sample {
        at: Duration::from_secs(70),
        counters: None,
        workers: vec![silent.clone(), silent],
        ..sample()
    };
    later.ha.sync = Some(model::HaSync { ends_unreported: 0, ..sync() });
    meter.take(later);
    let page = meter.page(Exposition::Text, checks, process).expect("a page");
    let page = String::from_utf8(page.into()).expect("text");
    for line in [
        "sluice_worker_up{worker=\"0\"} 0",
        "sluice_worker_received_packets_total{worker=\"0\"} 1000",
        "sluice_service_incoming_packets_total{service=\"web\"} 105",
        "sluice_sample_timestamp_seconds 70",
        "sluice_sync_ends_unreported_total 39",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
    }
}

/// Prometheus' own judge, which also has opinions about names.
#[test]
fn promtool_finds_nothing_wrong() {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, of Debian's package prometheus: run `make setup`");
    let page = page(sample(), Exposition::Text);
    promtool.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("it reads");
    let said = promtool.wait_with_output().expect("it ends");
    let words = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(said.status.success() && words.concat().trim().is_empty(), "{words:?}");
}

/// 10,000 services of ten real servers: how large, written once for all scrapers. How long it takes
/// is only printed, for no machine is idle; the figure is in docs/metrics.md.
#[test]
fn a_hundred_thousand_real_servers_have_one_page_for_all_scrapers() {
    let mut text = String::from("[[port]]\nname = \"front\"\ndevice = \"af_xdp:eth0\"\n");
    for service in 0..10_000 {
        let real = |at: u32| {
            let number = service * 10 + at;
            let (a, b, c) = (number >> 16, number >> 8 & 255, number & 255);
            format!("{{ address = \"10.{a}.{b}.{c}\", port = 8080 }}")
        };
        let reals: Vec<String> = (0..10).map(real).collect();
        text += &format!(
            "[[service]]\nname = \"service-{service}\"\nprotocol = \"tcp\"\n\
             vip = \"198.51.100.200\"\nport = {}\nmode = \"nat\"\nreal = [{}]\n",
            service + 1,
            reals.join(", ")
        );
    }
    let config = Config::parse("file", &text).expect("a configuration").config;
    let plan = Plan::compile(&config.spec(), None, &Retired::default()).expect("a plan");
    let counted = RealCounters {
        packets: [1_234_567_890; 2],
        bytes: [1_234_567_890_123; 2],
        sessions: 12_345_678,
        active: 1_234,
        ..RealCounters::default()
    };
    let reals = vec![counted; plan.reals.len()];
    let counters = Some(Counters { reals, ..Counters::default() });
    let sample = Sample { plan: Arc::new(plan), counters, ..sample() };
    let mut meter = Meter::new(Identity { version: "1.2.3", began_unix_ms: 0 });
    let timed = |what: &str, begun: Instant| {
        println!("{what}: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    };
    let first = sample.clone();
    let begun = Instant::now();
    meter.take(first);
    timed("the first sample of a plan", begun);
    let mut page = None;
    for _ in 0..3 {
        let next = sample.clone();
        let begun = Instant::now();
        meter.take(next);
        timed("a sample", begun);
        let begun = Instant::now();
        page = meter.page(Exposition::Text, Vec::new, || None);
        timed("a page", begun);
    }
    let page = page.expect("a page");
    let lines = page.iter().filter(|byte| **byte == b'\n').count();
    println!("{} MB, {lines} lines", page.len() >> 20);
    assert!(lines > 1_000_000 && page.len() < 128 << 20, "{lines} lines, {} bytes", page.len());
    let begun = Instant::now();
    let again = meter.page(Exposition::Text, || panic!("written again"), || None);
    assert!(again.is_some_and(|again| again.len() == page.len()));
    timed("the same page for another scraper", begun);
}

const HEAD: &str = include_str!("head.md");

#[test]
fn the_documentation_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let wanted = format!("{HEAD}{}", families::markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &wanted).expect("docs/metrics.md can be written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "docs/metrics.md is out of date: see the head of this test");
}
