//! Services: ports, persistence, modes and families, and keys that say nothing beside others.

use sluice_config::{Config, Persistence, VirtualService};

/// A service with these lines and real servers in a file that has all else it may need.
fn with_service(lines: &str, reals: &[&str]) -> VirtualService {
    let reals: String = reals.iter().map(|real| format!("[[service.real]]\n{real}\n")).collect();
    let text = format!(
        "[ipip]\nsource_v4 = \"192.0.2.100\"\n[[port]]\nname = \"a\"\ndevice = \"tap:a\"\n\
         [[pool]]\nname = \"lan\"\naddresses = [\"192.0.2.10\", \"2001:db8:2::10\"]\n\
         [[service]]\nname = \"s\"\n{lines}\n{reals}"
    );
    let loaded = Config::parse("sluice.toml", &text).expect("a right configuration");
    loaded.config.services.into_iter().next().expect("the service")
}

#[test]
fn ports_are_one_a_range_or_all() {
    let ports = |protocol: &str, port: &str| {
        let lines =
            format!("protocol = \"{protocol}\"\nvip = \"198.51.100.1\"\nmode = \"nat\"\n{port}");
        let service = with_service(&lines, &["address = \"192.0.2.11\""]);
        (service.ports.to_string(), service.reals[0].port)
    };
    assert_eq!(ports("tcp", "port = 80"), ("80".to_owned(), 80));
    assert_eq!(ports("tcp", "port = \"80-80\""), ("80".to_owned(), 80));
    assert_eq!(ports("udp", "port = \"8000 - 8099\""), ("8000-8099".to_owned(), 0));
    assert_eq!(ports("sctp", ""), ("*".to_owned(), 0));
    assert_eq!(ports("any", ""), ("*".to_owned(), 0));
}

#[test]
fn persistence_is_of_all_bits_unless_told() {
    let persistence = |vip: &str, lines: &str| {
        with_service(&format!("protocol = \"tcp\"\nvip = \"{vip}\"\n{lines}"), &[]).persistence
    };
    let some = |timeout_s, prefix| Some(Persistence { timeout_s, prefix });
    assert_eq!(persistence("198.51.100.1", "persistence_s = 300"), some(300, 32));
    assert_eq!(persistence("2001:db8::1", "persistence_s = 300"), some(300, 128));
    let lines = "persistence_s = 1\npersistence_prefix = 64";
    assert_eq!(persistence("2001:db8::1", lines), some(1, 64));
    let lines = "persistence_s = 0\npersistence_prefix = 24";
    assert_eq!(persistence("198.51.100.1", lines), None);
    assert_eq!(persistence("198.51.100.1", ""), None);
}

#[test]
fn what_is_right_of_modes_and_families() {
    let (v4, v6) = ("address = \"192.0.2.11\"", "address = \"2001:db8:2::11\"");
    let other_port = format!("{v4}\nport = 8080");
    for (protocol, vip, lines, reals) in [
        ("tcp", "198.51.100.1", "port = 80\npool = \"lan\"", vec![v4, v6, &other_port]),
        ("udp", "2001:db8::1", "port = 80\npool = \"lan\"", vec![v4, v6]),
        ("tcp", "198.51.100.1", "mode = \"dr\"", vec![v4]),
        (
            "tcp",
            "198.51.100.1",
            "port = 80\nmode = \"dr\"",
            vec!["address = \"192.0.2.11\"\nport = 80"],
        ),
        ("tcp", "2001:db8::1", "port = 80\nmode = \"ipip\"", vec![v4]),
        ("sctp", "198.51.100.1", "port = 80\nmode = \"nat\"", vec![&other_port]),
        ("any", "198.51.100.1", "mode = \"ipip\"", vec![v4]),
        ("udp", "198.51.100.1", "pool = \"lan\"\nclient_address = \"proxy_v2\"", vec![v4]),
    ] {
        let service =
            with_service(&format!("protocol = \"{protocol}\"\nvip = \"{vip}\"\n{lines}"), &reals);
        assert_eq!(service.reals.len(), reals.len());
    }
}

#[test]
fn keys_that_say_nothing_are_told() {
    let text = r#"
[icmp]
errors_per_s = 0

[[port]]
name = "a"
device = "tap:a"

[[pool]]
name = "lan"
addresses = ["192.0.2.10"]

[[service]]
name = "hashless"
protocol = "tcp"
vip = "198.51.100.1"
port = "80-90"
mode = "nat"
hash = "client_port"
mh_table = 251
pool = "lan"
real = [{ address = "192.0.2.11" }, { address = "192.0.2.12", port = 80 }]

[[service]]
name = "uneven"
protocol = "tcp"
vip = "198.51.100.2"
port = 80
mode = "dr"
scheduler = "mh"
mh_table = 199
real = [
    { address = "192.0.2.11", down = true },
    { address = "192.0.2.12", weight = 0 },
    { address = "198.51.100.2", weight = 0 },
]
"#;
    let loaded = Config::parse("sluice.toml", text).expect("a right configuration");
    let told: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(told.join("\n"));
}
