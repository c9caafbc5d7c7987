//! Every finding by the one fact that brings it: a machine that is well, one thing changed, and
//! what is found then, with its mark and its fix. Facts are data, so that no machine is needed.

use std::net::IpAddr;

use sluice_api::model::{
    Ha, HaDatagrams, HaPeer, HaReports, HaRole, HaStanding, HaSync, IdleMode, Memory as Tables,
    Port as ShownPort, PortState, Ports, Received, Reload, Sent, SessionCounts, Status, Steering,
    SteeringMode,
};
use sluice_config::{Config, HugePages as Wish, Idle, Port, SessionSync};
use sluice_linux::survey::{Clock, Cpu, HugePages, Memory, Process};

use crate::advice::Reached;

use super::facts::{Facts, Folder, Hop, Interface, Running, Underlay, Way, WorkQueue};
use super::finding::{Finding, Mark, Section};
use super::judge;

const FILE: &str = r#"
[director]
cores = [2, 3]
[limits]
sessions = 100000
[[port]]
name = "front"
device = "af_xdp:eth0"
[[port]]
name = "back"
device = "af_packet:eth1"
[[pool]]
name = "lan"
addresses = ["192.0.2.10"]
[[service]]
name = "web"
protocol = "tcp"
vip = "198.51.100.200"
port = 80
mode = "fnat"
scheduler = "rr"
pool = "lan"
[[service.real]]
address = "192.0.2.11"
"#;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn config(text: &str) -> Config {
    Config::parse("test", text).expect("a configuration").config
}

fn interface(addresses: &[(&str, u8)]) -> Interface {
    Interface {
        up: true,
        carrier: true,
        mtu: 1500,
        driver: Some("ice".to_owned()),
        node: Some(0),
        queues: Some(2),
        offloads: Some(["rx-gro".to_owned()].into()),
        addresses: addresses.iter().map(|(at, length)| (ip(at), *length, false)).collect(),
        rp_filter: Some(0),
        ..Interface::default()
    }
}

fn hop(interface: &str, to: &str) -> Way {
    let interface = interface.to_owned();
    Way::Hops(vec![Hop { interface, neighbour: ip(to), answers: Some(true) }])
}

/// A machine on which nothing is to be found.
fn well() -> Facts {
    let cpu = |number: u16| {
        let governor = Some("performance".to_owned());
        (number, Cpu { node: 0, siblings: vec![number], governor })
    };
    let mut facts = Facts {
        wanted: Some(config(FILE)),
        origin: "test".to_owned(),
        director: None,
        root: true,
        kernel: "6.1.0-18-amd64".to_owned(),
        memory: Some(Memory { total_kib: 8 << 20, available_kib: 6 << 20, huge_page_kib: 2048 }),
        huge_pages: vec![HugePages { node: 0, size_kib: 2048, total: 512, free: 512 }],
        clock: Some(Clock { current: "tsc".to_owned(), available: vec!["tsc".to_owned()] }),
        time_keepers: vec!["chronyd".to_owned()],
        network_seen: true,
        forwards_v4: Some(false),
        forwards_v6: Some(false),
        probed: true,
        state_dir: Some(Folder {
            path: "/var/lib/sluice".into(),
            exists: true,
            kind: "ext4".to_owned(),
            free_bytes: Some(1 << 40),
            ..Folder::default()
        }),
        ..Facts::default()
    };
    facts.cpus.by_number = (0..4).map(cpu).collect();
    let front = interface(&[("198.51.100.1", 24), ("198.51.100.200", 32)]);
    facts.interfaces.insert("eth0".to_owned(), front);
    let back = interface(&[("192.0.2.1", 24), ("192.0.2.10", 32)]);
    facts.interfaces.insert("eth1".to_owned(), back);
    facts.ways.insert(ip("192.0.2.11"), hop("eth1", "192.0.2.11"));
    facts.director = Some(running());
    facts
}

fn running() -> Running {
    let port = |name: &str, interface: &str, steering| ShownPort {
        name: name.to_owned(),
        device: String::new(),
        network: None,
        driver: String::new(),
        interface: Some(interface.to_owned()),
        mac: None,
        mtu: Some(1500),
        state: PortState::Up,
        trouble: None,
        queues: 2,
        twin: None,
        rx: Received::default(),
        tx: Sent::default(),
        steering,
        copies: None,
    };
    let native = Steering { mode: SteeringMode::Native, taken: 1, passed: 1, unowned: 0 };
    Running {
        status: Status {
            version: "1".to_owned(),
            pid: 12,
            uptime_s: 1.0,
            config: "/etc/sluice/sluice.toml".into(),
            plan_epoch: 1,
            config_epoch: 1,
            durable: true,
            differs_from_file: false,
            last_reload: None,
            idle: IdleMode::Adaptive,
            huge_pages: true,
            memory: Tables { bytes: 1, pages: "2 MiB".to_owned(), kept: true },
            sessions: SessionCounts { live: 1, capacity: 100, ..SessionCounts::default() },
            handed_off: 0,
            workers: Vec::new(),
        },
        ports: Ports {
            ports: vec![port("front", "eth0", Some(native)), port("back", "eth1", None)],
        },
        ha: Some(Ha::default()),
        process: Some(Process { locked_bytes: None, capabilities: u64::MAX, filtered: false }),
        elsewhere: false,
    }
}

fn remarkable(facts: &Facts) -> Vec<Finding> {
    judge(facts).into_iter().filter(|finding| finding.mark != Mark::Ok).collect()
}

#[test]
fn nothing_is_found_on_a_machine_that_is_well() {
    assert_eq!(remarkable(&well()), []);
    let mut idle = well();
    idle.director = None;
    let found: Vec<_> = remarkable(&idle).iter().map(|finding| finding.id).collect();
    assert_eq!(found, ["director"], "only that it does not run");
}

type Break = fn(&mut Facts);

fn front(facts: &mut Facts) -> &mut Interface {
    facts.interfaces.get_mut("eth0").expect("eth0")
}

fn back(facts: &mut Facts) -> &mut Interface {
    facts.interfaces.get_mut("eth1").expect("eth1")
}

fn shown(facts: &mut Facts) -> &mut ShownPort {
    &mut facts.director.as_mut().expect("one").ports.ports[1]
}

fn status(facts: &mut Facts) -> &mut Status {
    &mut facts.director.as_mut().expect("a director").status
}

fn process(facts: &mut Facts) -> &mut Process {
    facts.director.as_mut().and_then(|it| it.process.as_mut()).expect("a process")
}

fn steering(facts: &mut Facts) -> &mut Steering {
    let ports = &mut facts.director.as_mut().expect("a director").ports.ports;
    ports[0].steering.as_mut().expect("steering")
}

fn wanted(facts: &mut Facts) -> &mut Config {
    facts.wanted.as_mut().expect("a configuration")
}

/// Makes the director one of a pair, if it is not yet.
fn pair(facts: &mut Facts) -> &mut HaSync {
    let listen = "192.0.2.1:8848".parse().expect("an address");
    let address = "192.0.2.2:8848".parse().expect("an address");
    wanted(facts).sync = SessionSync {
        listen: Some(listen),
        peers: vec![address],
        group: None,
        key_files: vec!["/etc/sluice/sync.key".into()],
        datagram: 1400,
    };
    let peer = HaPeer {
        address,
        name: "other".to_owned(),
        up: true,
        for_s: 90.0,
        synchronised: true,
        differs: false,
        behind: false,
        lag_ms: 0.5,
        unacknowledged: 1,
        key: "00c0ffee".to_owned(),
        standing: None,
    };
    let ha = facts.director.as_mut().and_then(|it| it.ha.as_mut()).expect("a director");
    ha.sync.get_or_insert_with(|| HaSync {
        listen,
        synchronised: true,
        pulling_from: None,
        pulled: 0,
        peers: vec![peer],
        reports_waiting: 0,
        reports_sent: 1,
        reports_received: HaReports::default(),
        ends_unreported: 0,
        datagrams: HaDatagrams::default(),
    })
}

mod rows;

use rows::rows;

fn way(facts: &mut Facts, way: Way) {
    facts.ways.insert(ip("192.0.2.11"), way);
}

#[test]
fn each_thing_that_is_wrong_is_found_with_its_fix() {
    for (at, (wreck, id, mark, fix)) in rows().into_iter().enumerate() {
        let mut facts = well();
        wreck(&mut facts);
        let found = remarkable(&facts);
        let finding = found.iter().find(|finding| finding.id == id && finding.mark == mark);
        let finding = finding.unwrap_or_else(|| panic!("row {at}, {id}: {found:#?}"));
        let said = format!("{} {}", finding.advice, finding.fix.join("\n"));
        assert!(said.contains(fix), "row {at}, {id}: {fix:?} is not in {finding:#?}");
        let mends = !finding.fix.is_empty() || !finding.advice.is_empty();
        assert!(mends || mark == Mark::Unseen, "row {at}: {id} does not say what to do");
    }
}

#[test]
fn what_others_do_is_not_held_against_this_machine() {
    let mut backup = well();
    front(&mut backup).addresses.pop();
    backup.keepalived = Some("virtual_ipaddress {\n 198.51.100.200/32 dev eth0\n}".to_owned());
    backup.keepalived_runs = true;
    assert_eq!(remarkable(&backup), [], "keepalived has the address elsewhere now");
    backup.keepalived = Some("# 198.51.100.200\n".to_owned());
    assert!(remarkable(&backup).iter().any(|finding| finding.id == "vip_absent"));

    let mut routed = well();
    wanted(&mut routed).pools[0].addresses = vec!["203.0.113.9".parse().expect("a range")];
    assert_eq!(remarkable(&routed), [], "an address that is routed here needs no answer");
}

#[test]
fn a_pair_that_is_well_gives_no_finding() {
    let mut facts = well();
    let peers = &mut pair(&mut facts).peers;
    let other =
        HaPeer { address: "192.0.2.3:8848".parse().expect("an address"), ..peers[0].clone() };
    peers.push(other);
    assert_eq!(remarkable(&facts), []);
    let findings = judge(&facts);
    let found = findings.iter().find(|finding| finding.id == "sync").expect("found");
    assert_eq!(found.text, "sessions are synchronised; peers that are up: 2");
    pair(&mut facts).datagrams.replayed = 9;
    assert_eq!(remarkable(&facts), [], "networks double datagrams");
    facts.director = None;
    assert!(judge(&facts).iter().all(|it| it.section != Section::Sync), "nobody to ask");
}

#[test]
fn tunnels_that_fit_and_engines_that_are_ready_give_no_finding() {
    let mut facts = well();
    let device = "vxlan:eth1".parse().expect("a device");
    wanted(&mut facts).ports[1].device = device;
    back(&mut facts).mtu = 1450;
    let underlay = Underlay { interface: "eth0".to_owned(), mtu: 1500, overhead: 50 };
    back(&mut facts).underlay = Some(underlay);
    let found = remarkable(&facts);
    assert_eq!(found.len(), 1, "only that clients may send more: {found:?}");
    assert_eq!(found[0].fix, ["ip link set eth0 mtu 1550", "ip link set eth1 mtu 1500"]);
    back(&mut facts).underlay = None;
    back(&mut facts).mtu = 1500;
    let memif = "memif:/run/m,id=0,role=client,copy=dma,dma_device=wq0.0";
    let port =
        Port { device: memif.parse().expect("a device"), ..wanted(&mut facts).ports[1].clone() };
    wanted(&mut facts).ports[1].device = "af_packet:eth1".parse().expect("a device");
    wanted(&mut facts).ports.push(Port { name: "guest".to_owned(), ..port });
    let [state, kind, mode, name] = ["enabled", "user", "dedicated", "dpdk_a"].map(str::to_owned);
    facts.work_queues.insert("wq0.0".to_owned(), Some(WorkQueue { state, kind, mode, name }));
    assert_eq!(remarkable(&facts), []);
}

#[test]
fn of_many_real_servers_only_some_are_told() {
    let mut facts = well();
    for last in 20..220 {
        let real = ip(&format!("192.0.2.{last}"));
        let mut one = wanted(&mut facts).services[0].reals[0].clone();
        one.address = real;
        wanted(&mut facts).services[0].reals.push(one);
        facts.ways.insert(real, Way::None);
    }
    let found = remarkable(&facts);
    assert_eq!(found.len(), 17);
    assert!(found[16].text.contains("184 more"), "{:?}", found[16]);
}

#[test]
fn the_worst_finding_is_the_exit_code() {
    let order = [Mark::Ok, Mark::Unseen, Mark::Warn, Mark::Fail];
    assert!(order.is_sorted());
    assert_eq!(order.map(Mark::exit_code), [0, 0, 1, 2]);
}

#[test]
fn findings_read_well() {
    let mut facts = well();
    back(&mut facts).rp_filter = Some(1);
    way(&mut facts, Way::None);
    facts.probed = false;
    let findings = judge(&facts);
    let plain = |text: &str| anstream::adapter::strip_str(text).to_string();
    insta::assert_snapshot!(
        "findings",
        plain(&crate::show::doctor(&findings, false, Some(80)).text)
    );
    insta::assert_snapshot!("all", plain(&crate::show::doctor(&findings, true, None).text));
    insta::assert_snapshot!("fix_script", crate::show::fix_script(&findings));
}

/// Every command of ours that is advised asks the director that the doctor asked.
#[test]
fn advised_commands_ask_the_director_that_was_asked() {
    let option = "--socket /run/sluice/blue.sock";
    let ours = |text: &str| -> Vec<String> {
        text.match_indices("sluice ").map(|(at, _)| text[at..].to_owned()).collect()
    };
    let mut seen = 0;
    for (break_it, id, ..) in rows::rows() {
        let mut facts = well();
        facts.reached = Reached::by_socket("/run/sluice/blue.sock".as_ref());
        break_it(&mut facts);
        for finding in judge(&facts) {
            let texts = finding.fix.iter().chain([&finding.advice]);
            for command in texts.flat_map(|text| ours(text)) {
                // It needs no director.
                if command.starts_with("sluice config check ") {
                    continue;
                }
                seen += 1;
                assert!(command.starts_with(&format!("sluice {option} ")), "{id}: {command}");
            }
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn a_doctor_in_another_namespace_looks_for_the_same_file() {
    let mut facts = well();
    facts.file = Some("/etc/sluice/blue.toml".into());
    facts.director.as_mut().expect("one").elsewhere = true;
    let findings = judge(&facts);
    let found = findings.iter().find(|it| it.id == "namespace").expect("found");
    assert_eq!(found.fix, ["nsenter -t 12 -n sluice doctor --config /etc/sluice/blue.toml"]);
}
