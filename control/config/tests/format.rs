//! What a configuration file may say and what comes of it: defaults, every key, the spec,
//! warnings, reading from disk.

use std::fs;
use std::net::IpAddr;

use sluice_config::{
    AllDown, ClientAddress, Config, ConfigErrors, Device, HashKey, HugePages, Idle, LogLevel,
    Mapping, Memif, MemifRole, Mode, NoSession, Orphans, Persistence, Ports, Protocol, RealServer,
    Refusal, Scheduling, Spreading, Timeouts, VirtualService,
};
use sluice_director::spec::{Network, Spec, TunnelOptions};

const SMALL: &str = r#"
[[port]]
name = "front"
device = "af_xdp:eth0"

[[pool]]
name = "lan"
addresses = ["192.0.2.10"]

[[service]]
name = "web"
protocol = "tcp"
vip = "198.51.100.200"
port = 80
pool = "lan"

[[service.real]]
address = "192.0.2.11"
"#;

const WHOLE: &str = r#"
[director]
cores = [2, 3]
idle = "busy"
huge_pages = "required"
log_level = "trace"
control_socket = "/tmp/s.sock"
hash_seed = 9_007_199_254_740_991

[limits]
sessions = 0x1000
held_frames = 0
fragments = 16

[timeouts]
tcp_syn_recv_s = 1
tcp_established_s = 2
tcp_fin_wait_s = 3
tcp_close_wait_s = 4
tcp_last_ack_s = 5
tcp_time_wait_s = 6
tcp_close_s = 7
udp_s = 8
one_packet_s = 9
sctp_s = 10
icmp_s = 11
other_s = 12

[icmp]
errors_per_s = 13
refused = "drop"

[elephants]
mode = "spread"
packets_per_s = 14
bits_per_s = 15
worker_percent = 19
leave_after_s = 16
max_flows = 7
workers = 18
[ipip]
source_v4 = "192.0.2.100"
source_v6 = "2001:db8:2::100/120"

[tcp]
no_session = "reset"
accept_mid_stream = true

[[port]]
name = "front"
device = "pci:3b:00.1"
queues = 4
twin = "sluice0"
mac = "02:00:00:00:00:0A"
mtu = 9000
flow_rules = false

[[port]]
name = "back"
device = "memif:/run/m.sock,role=server,id=7"

[[pool]]
name = "lan"
addresses = ["192.0.2.33", "192.0.2.10-192.0.2.12", "192.0.2.64/30", "2001:db8:2::a/127"]
ports = "2000-2999"

[[service]]
name = "dns"
protocol = "udp"
vip = "198.51.100.53"
port = 53
mode = "fnat"
scheduler = "rr"
pool = "lan"

[[service.real]]
address = "192.0.2.21"
port = 5353
weight = 0

[[service.real]]
address = "192.0.2.22"

[[service]]
name = "everything"
protocol = "udp"
vip = "2001:db8:1::53"
port = "8000-8099"
mode = "nat"
scheduler = "mh"
hash = "client_port"
mh_table = 251
pool = "lan"
one_packet = true
persistence_s = 300
persistence_prefix = 64
on_removed = "reschedule"
on_down = "reset"
max_sessions = 1000
max_new_per_s = 100
slow_start_s = 30
idle_timeout_s = 2_678_400
deny = ["2001:db8:9::/48"]
allow = ["2001:db8::/32"]

[[service.real]]
address = "2001:db8:2::21"

[[service.real]]
address = "2001:db8:2::22"
port = 53
mode = "fnat"
weight = 65535
upper_sessions = 20
lower_sessions = 10
down = true

[[service.real]]
address = "2001:db8:2::23"
mode = "ipip"

[[snat]]
name = "out"
sources = ["192.0.2.0/25", "2001:db8:2::/64"]
destinations = ["0.0.0.0/0", "2001:db8:3::/48"]
protocols = ["icmp", "tcp"]
egress = "back"
pool = "lan"
mapping = "per_session"

[[snat]]
name = "rest"
sources = ["192.0.2.128/25"]
pool = "lan"

[[route]]
prefix = "0.0.0.0/0"
via = "198.51.100.1"
port = "front"

[[route]]
prefix = "192.0.2.0/24"
port = "back"

[[route]]
prefix = "::/0"
via = "fe80::1"
port = "front"

[[neighbour]]
address = "192.0.2.21"
mac = "02:00:00:00:01:11"
port = "back"
vlan = 10

[[neighbour]]
address = "fe80::1"
mac = "02:00:00:00:00:fe"
port = "front"
"#;

fn parse(text: &str) -> Config {
    Config::parse("sluice.toml", text).expect("a right configuration").config
}

fn warnings(text: &str) -> String {
    let loaded = Config::parse("sluice.toml", text).expect("a right configuration");
    rendered(&loaded.warnings)
}

fn rendered(diagnostics: &[sluice_config::Diagnostic]) -> String {
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse(SMALL);
    assert_eq!(config.director, Config::default().director);
    assert_eq!(config.director.cores, None);
    assert_eq!(config.workers(), 1);
    assert_eq!(config.director.idle, Idle::Adaptive);
    assert_eq!(config.director.huge_pages, HugePages::Auto);
    assert_eq!(config.director.log_level, LogLevel::Info);
    assert_eq!(config.director.control_socket.to_str(), Some("/run/sluice/sluice.sock"));
    assert_eq!((config.limits.sessions, config.limits.held_frames), (1_000_000, 512));
    assert_eq!(config.limits.fragments, 4096);
    assert_eq!(config.tcp.no_session, NoSession::Drop);
    assert!(!config.tcp.accept_mid_stream);
    let port = &config.ports[0];
    assert_eq!((port.queues, &port.twin, port.mac, port.mtu), (None, &None, None, None));
    assert!(port.flow_rules);
    assert_eq!(config.pools[0].ports, 1024..=65_535);
    let real = RealServer { address: address("192.0.2.11"), port: 80, ..RealServer::default() };
    let service = VirtualService {
        name: "web".to_owned(),
        vip: address("198.51.100.200"),
        ports: Ports::one(80),
        pool: "lan".to_owned(),
        reals: vec![real],
        ..VirtualService::default()
    };
    assert_eq!(config.services, [service]);
    assert_eq!(warnings(SMALL), "");
}

#[test]
fn default_timeouts_are_the_specs() {
    assert_eq!(Config::default().timeouts, Timeouts::default());
    assert_eq!(Config::default().tcp.no_session, NoSession::default());
    assert_eq!(Config::default().spec(), Spec::default());
}

#[test]
fn every_key_is_read() {
    let config = parse(WHOLE);
    assert_eq!(config.director.cores, Some(vec![2, 3]));
    assert_eq!((config.workers(), config.sessions_per_worker()), (2, 0x800));
    let director = &config.director;
    let set = (director.idle, director.huge_pages, director.log_level);
    assert_eq!(set, (Idle::Busy, HugePages::Required, LogLevel::Trace));
    let (socket, seed) = (director.control_socket.to_str(), director.hash_seed);
    assert_eq!((socket, seed), (Some("/tmp/s.sock"), (1 << 53) - 1));
    assert_eq!((config.limits.sessions, config.limits.held_frames), (4096, 0));
    assert_eq!((config.limits.fragments, config.icmp.errors_per_s), (16, 13));
    let of = &config.elephants;
    assert_eq!((of.mode, of.packets_per_s, of.bits_per_s), (Spreading::Spread, 14, 15));
    assert_eq!((of.worker_percent, of.leave_after_s, of.max_flows, of.workers), (19, 16, 7, 18));
    let timeouts = Timeouts {
        tcp_syn_recv_s: 1,
        tcp_established_s: 2,
        tcp_fin_wait_s: 3,
        tcp_close_wait_s: 4,
        tcp_last_ack_s: 5,
        tcp_time_wait_s: 6,
        tcp_close_s: 7,
        udp_s: 8,
        one_packet_s: 9,
        sctp_s: 10,
        icmp_s: 11,
        other_s: 12,
    };
    assert_eq!(config.timeouts, timeouts);
    assert_eq!(config.tcp.no_session, NoSession::Reset);
    assert!(config.tcp.accept_mid_stream);
    let port = &config.ports[0];
    assert_eq!(port.device.to_string(), "pci:0000:3b:00.1");
    let shown = (port.queues, port.twin.as_deref(), port.mtu, port.flow_rules);
    assert_eq!(shown, (Some(4), Some("sluice0"), Some(9000), false));
    assert_eq!(port.mac.map(|mac| mac.bytes()), Some([2, 0, 0, 0, 0, 10]));
    let memif = Memif { id: 7, role: MemifRole::Server, ..Memif::new("/run/m.sock") };
    assert_eq!(config.ports[1].device, Device::Memif(memif));
    assert_eq!((config.port_id("back"), config.port_id("left")), (Some(1), None));
    assert_eq!(config.routes[0].prefix.to_string(), "0.0.0.0/0");
    assert_eq!(config.routes[0].via, Some(address("198.51.100.1")));
    assert_eq!((config.routes[1].via, config.routes[1].port.as_str()), (None, "back"));
    assert_eq!(config.routes[1].prefix.length(), 24);
    let neighbour = &config.neighbours[0];
    assert_eq!((neighbour.address, neighbour.vlan), (address("192.0.2.21"), Some(10)));
    assert_eq!(neighbour.mac.to_string(), "02:00:00:00:01:11");
}

#[test]
fn the_spec_has_the_addresses_in_order() {
    let spec = parse(WHOLE).spec();
    let v4 = [33, 10, 11, 12, 64, 65, 66, 67].map(|last| address(&format!("192.0.2.{last}")));
    let v6 = ["2001:db8:2::a", "2001:db8:2::b"].map(address);
    assert_eq!(spec.pools[0].addresses, [&v4[..], &v6[..]].concat());
    assert_eq!((spec.pools[0].name.as_str(), &spec.pools[0].ports), ("lan", &(2000..=2999)));
    let service = &spec.services[0];
    assert_eq!(
        (service.protocol, service.vip, service.ports.first),
        (Protocol::Udp, address("198.51.100.53"), 53)
    );
    let reals: Vec<_> =
        service.reals.iter().map(|real| (real.address, real.port, real.weight)).collect();
    assert_eq!(reals, [(address("192.0.2.21"), 5353, 0), (address("192.0.2.22"), 53, 1)]);
    assert_eq!((spec.timeouts.udp_s, spec.no_session), (8, NoSession::Reset));
    assert_eq!(spec.refused, Refusal::Drop);
    assert!(spec.accept_mid_stream);
}

#[test]
fn every_key_of_a_service_reaches_the_spec() {
    let spec = parse(WHOLE).spec();
    let real = |last| RealServer { address: address(last), ..RealServer::default() };
    let expected = VirtualService {
        network: String::new(),
        name: "everything".to_owned(),
        protocol: Protocol::Udp,
        vip: address("2001:db8:1::53"),
        ports: Ports { first: 8000, last: 8099 },
        mode: Mode::Nat,
        tunnel: TunnelOptions::default(),
        scheduler: Scheduling::Mh,
        hash: HashKey::ClientPort,
        mh_table: 251,
        pool: "lan".to_owned(),
        one_packet: true,
        persistence: Some(Persistence { timeout_s: 300, prefix: 64 }),
        on_removed: Orphans::Reschedule,
        on_down: Orphans::Reset,
        all_down: AllDown::Drop,
        probed: false,
        check: String::new(),
        max_sessions: 1000,
        max_new_per_s: 100,
        slow_start_s: 30,
        client_address: ClientAddress::Hidden,
        idle_timeout_s: 2_678_400,
        deny: vec![Network { address: address("2001:db8:9::"), prefix: 48 }],
        allow: vec![Network { address: address("2001:db8::"), prefix: 32 }],
        reals: vec![
            real("2001:db8:2::21"),
            RealServer {
                port: 53,
                mode: Some(Mode::Fnat),
                weight: 65_535,
                upper_sessions: 20,
                lower_sessions: 10,
                down: true,
                ..real("2001:db8:2::22")
            },
            RealServer { mode: Some(Mode::Ipip), ..real("2001:db8:2::23") },
        ],
    };
    assert_eq!(spec.services[1], expected);
    assert_eq!((spec.hash_seed, spec.icmp_errors_per_s), ((1 << 53) - 1, 13));
    let network = |text, prefix| Network { address: address(text), prefix };
    assert_eq!(spec.tunnel.v4, Some(network("192.0.2.100", 32)));
    assert_eq!(spec.tunnel.v6, Some(network("2001:db8:2::100", 120)));
    let [out, rest] = &spec.snat[..] else { panic!("{:?}", spec.snat) };
    assert_eq!((&out.name[..], &out.pool[..], out.egress), ("out", "lan", Some(1)));
    assert_eq!(out.sources, [network("192.0.2.0", 25), network("2001:db8:2::", 64)]);
    assert_eq!(out.destinations, [network("0.0.0.0", 0), network("2001:db8:3::", 48)]);
    assert_eq!(out.protocols, [Protocol::Icmp, Protocol::Tcp]);
    assert_eq!((out.mapping, rest.mapping), (Mapping::PerSession, Mapping::EndpointIndependent));
    assert!(rest.destinations.is_empty() && rest.protocols.is_empty() && rest.egress.is_none());
}

#[test]
fn what_is_questionable_is_told_beside_the_configuration() {
    let text = r#"
[limits]
sessions = 1_073_741_824
held_frames = 65536

[director]
cores = [0, 1]

[[port]]
name = "front"
device = "memif:/run/m.sock"

[[pool]]
name = "lan"
addresses = ["192.0.2.10"]

[[pool]]
name = "idle"
addresses = ["192.0.2.20"]

[[service]]
name = "nobody"
protocol = "tcp"
vip = "198.51.100.200"
port = 80
pool = "lan"

[[service]]
name = "drained"
protocol = "tcp"
vip = "198.51.100.200"
port = 81
pool = "lan"
real = [
    { address = "192.0.2.11", weight = 0 },
    { address = "198.51.100.200", port = 80, weight = 0 },
]
"#;
    insta::assert_snapshot!(warnings(text));
    let no_service = "[[port]]\nname = \"a\"\ndevice = \"tap:t0\"\n";
    insta::assert_snapshot!(warnings(no_service), @r"
    warning: sluice.toml:1:1: there is no service
       1 | [[port]]
         | ^
      = add a [[service]] section: without one every packet stays with the kernel
    ");
}

#[test]
fn a_running_director_ignores_static_routes_and_says_so() {
    let loaded = Config::parse("sluice.toml", WHOLE).expect("a right configuration");
    insta::assert_snapshot!(rendered(&loaded.check_live()));
    let loaded = Config::parse("sluice.toml", SMALL).expect("a right configuration");
    assert!(loaded.check_live().is_empty());
}

#[test]
fn cores_are_compared_with_the_machine() {
    let loaded = Config::parse("sluice.toml", WHOLE).expect("a right configuration");
    insta::assert_snapshot!(rendered(&loaded.check_machine(3)), @r#"
    warning: sluice.toml:3:13: `director.cores[1]`: this machine has no core 3
       3 | cores = [2, 3]
         |             ^
      = use cores from 0 to 2
    "#);
    assert!(loaded.check_machine(4).is_empty());
    assert_eq!(loaded.check_machine(2).len(), 3, "two cores missing, none left");
    assert!(rendered(&loaded.check_machine(2)).contains("leave at least one core to the kernel"));
}

#[test]
fn a_file_is_read_from_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sluice.toml");
    fs::write(&file, SMALL).expect("written");
    assert_eq!(Config::load(&file).expect("a right file").config, parse(SMALL));

    fs::write(&file, SMALL.replace("= 80", "= 0")).expect("written");
    let refused = Config::load(&file).expect_err("a wrong file");
    let begins = format!("error: {}:14:8: service \"web\": ", file.display());
    assert!(refused.to_string().starts_with(&begins), "{refused}");

    fs::write(&file, b"[limits]\n# \xff\n").expect("written");
    let refused = Config::load(&file).expect_err("not text");
    assert!(refused.to_string().contains("line 2 is not UTF-8 (at byte 11)"), "{refused}");

    let refused = Config::load(folder.path().join("missing.toml")).expect_err("no file");
    assert!(matches!(refused, ConfigErrors::Unreadable { source: Some(_), .. }), "{refused}");
    assert!(refused.to_string().contains("missing.toml: cannot be read: No such file"));
    assert!(refused.diagnostics().is_empty() && Config::load(folder.path()).is_err(), "a folder");
}

#[test]
fn more_errors_than_fit_are_counted() {
    let text = (0..150).fold(SMALL.to_owned(), |text, _| text + "\n[[service.real]]\nport = 0\n");
    let refused = Config::parse("sluice.toml", &text).expect_err("a wrong file");
    assert_eq!(refused.diagnostics().len(), 100);
    assert!(refused.to_string().ends_with("\n\nand 200 more"), "{refused}");
}

#[test]
fn a_large_file_is_read_in_reasonable_time() {
    use std::fmt::Write;
    let mut text = SMALL.to_owned();
    for service in 0..5000_u32 {
        let (high, low) = (service / 250, service % 250);
        let vip = format!("10.0.{high}.{low}");
        write!(text, "\n[[service]]\nname = \"s{service}\"\nprotocol = \"udp\"\nvip = \"{vip}\"\n")
            .expect("writing to a string");
        text.push_str("port = 53\npool = \"lan\"\nreal = [");
        for real in 0..10 {
            write!(text, "{{ address = \"10.1.{real}.{low}\" }}, ").expect("writing to a string");
        }
        text.push_str("]\n");
    }
    let begun = std::time::Instant::now();
    let config = parse(&text);
    assert_eq!(config.services.len(), 5001);
    assert!(begun.elapsed().as_secs() < 60, "took {:?}", begun.elapsed());
    let refused = Config::parse("sluice.toml", &text.replace("port = 53", "port = 0"));
    assert!(refused.expect_err("every service is wrong").to_string().ends_with("and 4900 more"));
}
