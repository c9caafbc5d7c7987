//! Snapshots of what is shown, from fixed values.

use sluice::replay;
use sluice_api::SessionQuery;
use sluice_api::model::{
    Balanced, Copies, Drop, Drops, Fate, Ha, HaAddress, HaAnnounce, HaDatagrams, HaPeer, HaReports,
    HaRole, HaStanding, HaSync, IdleMode, Memory, Persistence, Port, PortState, Ports, Protocol,
    Real, RealState, Received, Reload, Sent, Service, Services, Session, SessionCounts,
    SessionState, Sessions, SnatRule, Status, Steering, SteeringMode, Ways, Worker,
};
use sluice_director::Reason;

use super::Shown;
use crate::advice::Reached;

const NOW_UNIX_S: u64 = 1_800_000_000;

/// The text as it is without a terminal, and the remark below it.
fn plain(shown: &Shown) -> String {
    let text = anstream::adapter::strip_str(&shown.text).to_string();
    let ends_well = text.lines().all(|line| line == line.trim_end());
    assert!(ends_well, "a line ends in spaces: {text}");
    match &shown.remark {
        Some(remark) => format!("{text}(remark) {remark}\n"),
        None => text,
    }
}

fn worker(worker: u16, sessions: u64, held_frames: u64) -> Worker {
    Worker {
        worker,
        core: worker + 2,
        sessions,
        session_capacity: 500_000,
        packets: 1_234_567 * u64::from(worker + 1),
        turns: 9_876_543,
        empty_turns: 9_000_000,
        sleeps: 4_321,
        held_frames,
        busy_share: 0.0316 * f64::from(worker + 1),
    }
}

fn status() -> Status {
    Status {
        version: "0.1.0".to_owned(),
        pid: 4711,
        uptime_s: 273_912.4,
        config: "/etc/sluice/sluice.toml".into(),
        plan_epoch: 3,
        config_epoch: 3,
        durable: true,
        differs_from_file: false,
        last_reload: Some(Reload { at_unix_s: NOW_UNIX_S - 125, ok: true, error: None }),
        idle: IdleMode::Adaptive,
        huge_pages: true,
        memory: Memory { bytes: 64_225_280, pages: "2 MiB".to_owned(), kept: true },
        sessions: SessionCounts {
            live: 12_345,
            capacity: 1_000_000,
            created: 7_654_321,
            closed: 7_600_000,
            expired: 41_976,
            killed: 0,
            evicted: 0,
            half_open: 0,
            pressed_workers: 0,
            ignored_ends: 0,
        },
        handed_off: 1_024,
        workers: vec![worker(0, 6_172, 0), worker(1, 6_173, 17)],
    }
}

#[test]
fn status_of_a_director_that_is_well() {
    insta::assert_snapshot!(plain(&super::status(&status(), NOW_UNIX_S, &Reached::default())));
}

#[test]
fn status_after_a_refused_reload_and_nearly_full() {
    let error = "/etc/sluice/sluice.toml:14:8: port: 70000 is too large\n  right: 1 to 65535";
    let mut status = status();
    status.last_reload =
        Some(Reload { at_unix_s: NOW_UNIX_S - 3, ok: false, error: Some(error.to_owned()) });
    status.sessions.live = 950_000;
    status.idle = IdleMode::Busy;
    status.huge_pages = false;
    let shown = super::status(&status, NOW_UNIX_S, &Reached::default());
    insta::assert_snapshot!(plain(&shown));
    assert_eq!(shown.text.matches("\u{1b}[31m").count(), 1, "only the refusal is red");
}

fn counted(sessions: u64) -> Balanced {
    Balanced {
        sessions_total: sessions,
        sessions_active: sessions / 100,
        sessions_established: sessions / 150,
        sessions_closing: sessions / 500,
        clients_bound: sessions / 1000,
        packets: Ways { inbound: sessions * 12, outbound: sessions * 9 },
        bytes: Ways { inbound: sessions * 1_234, outbound: sessions * 98_765 },
    }
}

fn real(host: u8, weight: u16, sessions: u64) -> Real {
    Real {
        address: std::net::Ipv4Addr::new(192, 0, 2, host).into(),
        port: 8080,
        mode: "fnat".to_owned(),
        weight,
        state: if weight == 0 { RealState::Draining } else { RealState::Up },
        full_at: Vec::new(),
        upper_sessions: 0,
        lower_sessions: 0,
        counted: counted(sessions),
    }
}

fn service(name: &str, protocol: Protocol, ports: &str, reals: Vec<Real>) -> Service {
    Service {
        name: name.to_owned(),
        network: None,
        protocol,
        vip: "198.51.100.200".parse().expect("an address"),
        ports: ports.to_owned(),
        mode: "fnat".to_owned(),
        scheduler: "rr".to_owned(),
        pool: Some("lan".to_owned()),
        persistence: None,
        one_packet: false,
        client_address: "hidden".to_owned(),
        counted: counted(reals.iter().map(|real| real.counted.sessions_total).sum()),
        reals,
    }
}

fn services_shown() -> Services {
    let web = vec![real(11, 1, 123_456), real(12, 10, 7), real(13, 0, 0)];
    let services = vec![
        service("web", Protocol::Tcp, "80", web),
        service("a-service-with-a-long-name", Protocol::Udp, "53", Vec::new()),
    ];
    Services { services, snat: Vec::new() }
}

/// Every mode and state, both families, ranges and all ports, and source NAT.
fn services_of_all_kinds() -> Services {
    let at = |text: &str| text.parse().expect("an address");
    let of_mode = |mode: &str, real: Real| Real { mode: mode.to_owned(), ..real };
    let in_state = |state, real: Real| Real { state, ..real };
    let real6 = Real { address: at("2001:db8:2::11"), port: 0, ..real(1, 1, 500) };
    let six = Service {
        vip: at("2001:db8:1::200"),
        scheduler: "mh".to_owned(),
        persistence: Some(Persistence { timeout_s: 300, prefix: 64 }),
        client_address: "proxy_v2".to_owned(),
        ..service("six", Protocol::Tcp, "8000-8099", vec![real6.clone(), real(12, 1, 0)])
    };
    let dns = Service { one_packet: true, ..service("dns", Protocol::Udp, "53", Vec::new()) };
    let some_full = Real { full_at: vec![1, 3], ..real(14, 1, 800) };
    let full = Real { full_at: vec![0, 1], lower_sessions: 6_000, ..real(12, 1, 800) };
    let reals = vec![
        in_state(RealState::Down, of_mode("dr", real(11, 1, 900))),
        in_state(RealState::Full, of_mode("dr", full)),
        of_mode("dr", some_full),
        of_mode("ipip", real6),
    ];
    let all = Service {
        mode: "dr".to_owned(),
        scheduler: "wlc".to_owned(),
        pool: None,
        ..service("all", Protocol::Any, "*", reals)
    };
    let rule = SnatRule {
        name: "outbound".to_owned(),
        network: None,
        sources: vec!["192.0.2.0/25".to_owned(), "2001:db8:2::/64".to_owned()],
        destinations: Vec::new(),
        protocols: Vec::new(),
        egress: None,
        pool: "outside".to_owned(),
        mapping: "endpoint_independent".to_owned(),
        counted: counted(77),
    };
    let narrow = SnatRule {
        name: "resolver".to_owned(),
        destinations: vec!["203.0.113.0/24".to_owned()],
        protocols: vec![Protocol::Tcp, Protocol::Udp],
        egress: Some("front".to_owned()),
        mapping: "per_session".to_owned(),
        sources: vec!["192.0.2.53/32".to_owned()],
        ..rule.clone()
    };
    Services { services: vec![six, dns, all], snat: vec![narrow, rule] }
}

#[test]
fn services() {
    let shown = super::services(&services_shown(), None);
    insta::assert_snapshot!(plain(&shown));
    insta::assert_snapshot!("all_kinds", plain(&super::services(&services_of_all_kinds(), None)));
    let rules = Services { services: Vec::new(), ..services_of_all_kinds() };
    assert_eq!(plain(&super::services(&rules, None)).lines().count(), 3, "titles and two rules");
    let mut two = services_shown();
    two.services[1].network = Some("blue".to_owned());
    insta::assert_snapshot!("services_in_networks", plain(&super::services(&two, None)));
    insta::assert_snapshot!("no_services", plain(&super::services(&Services::default(), None)));
}

#[test]
fn sessions() {
    let at = |text: &str| text.parse().expect("an address and a port");
    let session = |protocol, client: &str, state, idle_ms, expires_ms| Session {
        protocol,
        client: at(client),
        virtual_: at("198.51.100.200:80"),
        local: Some(at("192.0.2.10:1024")),
        real: at("192.0.2.11:8080"),
        mode: "fnat".to_owned(),
        state,
        idle_ms,
        expires_ms,
        service: "web".to_owned(),
        network: None,
        worker: 1,
    };
    let sessions = vec![
        session(Protocol::Tcp, "198.51.100.48:40000", SessionState::Established, 340, 899_660),
        session(Protocol::Tcp, "203.0.113.7:1", SessionState::SynRecv, 59_000, 1_000),
        session(Protocol::Udp, "198.51.100.48:65535", SessionState::Udp, 0, 300_000),
    ];
    let six = Session {
        client: at("[2001:db8::48]:40000"),
        virtual_: at("[2001:db8:1::200]:80"),
        local: None,
        real: at("[2001:db8:2::11]:80"),
        mode: "dr".to_owned(),
        ..sessions[0].clone()
    };
    let sessions = [sessions, vec![six]].concat();
    let blue = Session { network: Some("blue".to_owned()), ..sessions[0].clone() };
    let both = Sessions { sessions: vec![blue, sessions[1].clone()], ..Sessions::default() };
    let both = super::sessions(&both, &SessionQuery::default(), None);
    insta::assert_snapshot!("sessions_in_networks", plain(&both));
    let query = SessionQuery { limit: 4, ..SessionQuery::default() };
    let some = Sessions { sessions, more: true, next: Some("0.7".to_owned()) };
    insta::assert_snapshot!(plain(&super::sessions(&some, &query, None)));
    let none = Sessions::default();
    let remark = |query: &SessionQuery| super::sessions(&none, query, None).remark;
    assert_eq!(remark(&query).as_deref(), Some("no sessions"));
    let query = SessionQuery { protocol: Some(Protocol::Tcp), ..query };
    assert_eq!(remark(&query).as_deref(), Some("no session is like that"));
}

/// A memif port without a peer, with a copy engine.
fn memif(gone: &Port) -> Port {
    Port {
        copies: Some(Copies { offloaded: 45_678_901, full: 12, failed: 0 }),
        name: "fourth".to_owned(),
        device: "memif:/run/vpp/memif.sock,id=0,role=client".to_owned(),
        driver: "memif".to_owned(),
        state: PortState::Down,
        trouble: Some("cannot connect to /run/vpp/memif.sock: No such file".to_owned()),
        ..gone.clone()
    }
}

#[test]
fn ports() {
    let front = Port {
        name: "front".to_owned(),
        device: "af_xdp:eth0".to_owned(),
        network: None,
        driver: "net_af_xdp".to_owned(),
        interface: Some("eth0".to_owned()),
        mac: Some("02:00:00:00:00:01".to_owned()),
        mtu: Some(1500),
        state: PortState::Up,
        trouble: None,
        queues: 2,
        twin: None,
        rx: Received { packets: 123_456_789, bytes: 98_765_432_100, missed: 12, errors: 0 },
        tx: Sent { packets: 123_456_000, bytes: 987_654_321_000, errors: 0 },
        steering: Some(Steering {
            mode: SteeringMode::Generic,
            taken: 123_456_789,
            passed: 4_321,
            unowned: 0,
        }),
        copies: None,
    };
    let back = Port {
        name: "back".to_owned(),
        device: "pci:0000:3b:00.0".to_owned(),
        interface: Some("sluice1".to_owned()),
        twin: Some("sluice1".to_owned()),
        state: PortState::Down,
        steering: None,
        copies: None,
        ..front.clone()
    };
    let gone = Port {
        name: "third".to_owned(),
        driver: String::new(),
        interface: None,
        mac: None,
        mtu: None,
        state: PortState::Gone,
        queues: 0,
        rx: Received::default(),
        tx: Sent::default(),
        steering: None,
        copies: None,
        ..front.clone()
    };
    let without_steering = Ports { ports: vec![gone.clone()] };
    assert!(!super::ports(&without_steering).text.contains("XDP"));
    let memif = memif(&gone);
    let blue = Port {
        name: "blue".to_owned(),
        device: "vxlan:vx42".to_owned(),
        network: Some("blue".to_owned()),
        driver: "vxlan".to_owned(),
        interface: Some("vx42".to_owned()),
        mac: Some("02:00:00:00:00:2a".to_owned()),
        state: PortState::Down,
        trouble: Some("vx42 is set down".to_owned()),
        ..gone.clone()
    };
    let in_networks = Ports { ports: vec![front.clone(), blue] };
    insta::assert_snapshot!("ports_in_networks", plain(&super::ports(&in_networks)));
    let ports = Ports { ports: vec![front, back, gone, memif] };
    insta::assert_snapshot!(plain(&super::ports(&ports)));
}

#[test]
fn ha() {
    let address = |vip: &str, interface: Option<&str>, for_s| HaAddress {
        vip: vip.parse().expect("an address"),
        interface: interface.map(str::to_owned),
        for_s,
        changes: 3,
        services: 2,
    };
    let ha = Ha {
        transitions: Vec::new(),
        disagreement: None,
        draining: false,
        announce: Vec::new(),
        sync: None,
        upgrade: None,
        role: HaRole::Partial,
        addresses: vec![
            address("198.51.100.200", Some("front"), 12.0),
            address("2001:db8:1::200", None, 86_500.0),
        ],
    };
    let shown = super::ha(&ha);
    insta::assert_snapshot!(plain(&shown));
    assert_eq!(super::ha(&Ha::default()).text, "");
}

#[test]
fn ha_that_announces() {
    let remark = |announce| {
        let ha = Ha { announce: vec![announce], ..Ha::default() };
        super::ha(&ha).remark.unwrap_or_default()
    };
    let announce = HaAnnounce {
        network: None,
        interface: "sluice".to_owned(),
        peer_interface: Some("sluice-peers".to_owned()),
        vips: 1234,
        unserved: (1..=7).map(|last| ([198, 51, 100, last]).into()).collect(),
        pool_addresses: 2,
        withdrawn: None,
    };
    insta::assert_snapshot!(remark(announce.clone()));
    let blue = HaAnnounce { network: Some("blue".to_owned()), ..announce.clone() };
    assert!(remark(blue).contains("to announce of blue on sluice"));
    let withdrawn = Some("port front is not up".to_owned());
    let said = remark(HaAnnounce { withdrawn, peer_interface: None, ..announce });
    assert!(said.contains("on sluice: 1,234 virtual"), "{said}");
    assert!(said.ends_with("no virtual address is announced: port front is not up"), "{said}");
}

#[test]
fn ha_with_peers() {
    let peer = |last: u8, up, synchronised, behind| HaPeer {
        address: ([192, 0, 2, last], 8848).into(),
        name: if up { format!("lb{last}") } else { String::new() },
        up,
        for_s: 77.0,
        synchronised,
        differs: last == 6,
        behind,
        lag_ms: 1.25,
        unacknowledged: 3,
        key: "0a1b2c3d".to_owned(),
        standing: up.then_some(HaStanding {
            role: HaRole::Standby,
            addresses: 0,
            draining: last == 5,
            sessions: 1_234_000,
        }),
    };
    let sync = HaSync {
        listen: ([192, 0, 2, 1], 8848).into(),
        synchronised: false,
        pulling_from: Some(([192, 0, 2, 2], 8848).into()),
        pulled: 1_234_567,
        peers: vec![
            peer(2, true, true, false),
            peer(3, false, false, false),
            peer(4, true, false, false),
            peer(5, true, true, true),
            peer(6, true, true, false),
        ],
        reports_waiting: 4321,
        reports_sent: 1000,
        reports_received: HaReports {
            new: 1,
            newer: 2,
            ended: 3,
            older: 4,
            unknown: 5,
            refused: 6,
        },
        ends_unreported: 7,
        datagrams: HaDatagrams { sent: 8, received: 9, repaired: 10, ..HaDatagrams::default() },
    };
    let ha = Ha { sync: Some(sync.clone()), ..Ha::default() };
    insta::assert_snapshot!(plain(&super::ha(&ha)));
    let done = HaSync { synchronised: true, ..sync.clone() };
    let remark = super::ha(&Ha { sync: Some(done), ..Ha::default() }).remark.unwrap_or_default();
    assert!(remark.contains("synchronised: this director has"), "{remark}");
    let alone = HaSync { pulling_from: None, ..sync };
    let remark = super::ha(&Ha { sync: Some(alone), ..Ha::default() }).remark.unwrap_or_default();
    assert!(remark.contains("no peer has been heard"), "{remark}");
}

fn drops_shown() -> Drops {
    let drop = |reason: &str, fate, packets, meaning: &str| Drop {
        reason: reason.to_owned(),
        fate,
        packets,
        meaning: meaning.to_owned(),
    };
    let long = "The worker's session table is full: raise limits.sessions or lower the timeouts.";
    let drops = vec![
        drop("not_ip", Fate::Kernel, 31, "Neither IPv4 nor IPv6 (ARP, LLDP and the like)."),
        drop("truncated", Fate::Dropped, 0, "The frame ends within a header."),
        drop("sessions_full", Fate::Dropped, 1_234_567, long),
    ];
    Drops { drops }
}

#[test]
fn drops() {
    let drops = drops_shown();
    insta::assert_snapshot!(plain(&super::drops(&drops, false, None)));
    insta::assert_snapshot!("drops_all_narrow", plain(&super::drops(&drops, true, Some(72))));
    insta::assert_snapshot!("no_drops", plain(&super::drops(&Drops::default(), false, None)));
}

#[test]
fn a_replay() {
    let balanced = |sessions| replay::Balanced {
        sessions,
        active: 0,
        packets: replay::Ways { inbound: 10 * sessions, outbound: 8 * sessions },
        bytes: replay::Ways { inbound: 1_500 * sessions, outbound: 150_000 * sessions },
    };
    let real = |host: u8, sessions| replay::RealReport {
        address: format!("192.0.2.{host}"),
        port: 80,
        counted: balanced(sessions),
    };
    let port =
        |name: &str, received, sent| replay::PortReport { name: name.to_owned(), received, sent };
    let service = replay::ServiceReport {
        name: "web".to_owned(),
        counted: balanced(3),
        reals: vec![real(11, 2), real(12, 1)],
    };
    let report = replay::Report {
        services: vec![service],
        reasons: serde_json::Map::new(),
        to_kernel: 4,
        sessions: replay::SessionReport { created: 3, expired: 1, closed: 2, evicted: 0, live: 0 },
        ports: vec![port("front", 36, 24), port("back", 24, 30)],
    };
    let mut summary = replay::Summary { report, rules: None, warnings: Vec::new(), cut: 5 };
    insta::assert_snapshot!(plain(&super::replay(&summary, "out".as_ref(), None)));
    let reason = Reason::NoSession;
    summary.report.reasons.insert(reason.name().to_owned(), 2.into());
    let text = super::replay(&summary, "out".as_ref(), None).text;
    assert!(text.contains(reason.name()) && text.contains(reason.text()), "{text}");
}
