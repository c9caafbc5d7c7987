//! Limits, with small ones in place of those in force.

use super::{BOUNDS, Bounds, errors};
use crate::path::Path;
use crate::report::Report;
use crate::{AddressRange, Config, Pool, RealServer};

const TEXT: &str = r#"
port = [{ name = "a", device = "tap:a" }, { name = "b", device = "tap:b" }]
director = { cores = [1, 2, 3] }
network = [{ name = "blue", table = 100 }]

[[pool]]
name = "lan"
addresses = ["192.0.2.10-192.0.2.12", "192.0.2.20"]

[[service]]
name = "one"
protocol = "tcp"
vip = "198.51.100.1"
port = 80
pool = "lan"
real = [{ address = "192.0.2.1" }, { address = "192.0.2.2" }]

[[service]]
name = "two"
protocol = "tcp"
vip = "198.51.100.2"
port = 80
pool = "lan"
real = [{ address = "192.0.2.1" }, { address = "192.0.2.2" }, { address = "192.0.2.3" }]
"#;

/// Keys and messages of what is wrong with `config` within `bounds`.
fn wrong(config: &Config, bounds: &Bounds) -> Vec<(String, String)> {
    let mut report = Report::new("sluice.toml", "");
    errors(config, bounds, &mut report);
    let found = report.take_diagnostics(config);
    found.into_iter().map(|found| (found.key, found.message)).collect()
}

fn config() -> Config {
    Config::parse("sluice.toml", TEXT).expect("a right configuration").config
}

#[test]
fn as_many_as_allowed_is_right() {
    let bounds =
        Bounds { workers: 3, ports: 2, networks: 1, services: 2, local_addresses: 4, reals: 5 };
    assert_eq!(wrong(&config(), &bounds), []);
}

#[test]
fn one_more_of_anything_is_wrong_where_it_begins_to_be() {
    let bounds =
        Bounds { workers: 2, ports: 1, networks: 0, services: 1, local_addresses: 3, reals: 4 };
    let expected = [
        ("director.cores", "3 cores are named"),
        ("network[0]", "1 networks are defined"),
        ("port[1]", "2 ports are defined"),
        ("pool[0].addresses[1]", "with 192.0.2.20 there are 4 local addresses in all pools"),
        ("service[1]", "2 services are defined"),
        ("service[1].real[2]", "there are more than 4 real servers"),
    ];
    // What is wrong with a whole service hides what is wrong inside it.
    let reals = Bounds { reals: 4, ..BOUNDS };
    let mut found = wrong(&config(), &bounds);
    found.extend(wrong(&config(), &reals));
    let found: Vec<_> = found.iter().map(|(key, message)| (&key[..], &message[..])).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_limits_in_force_are_as_documented() {
    let reference = crate::reference::markdown();
    for sentence in [
        format!("At most {}, each once", BOUNDS.workers),
        format!("At least one, at most {}.", BOUNDS.ports),
        format!("sessions of its own. At most {}.", BOUNDS.networks),
        format!("what clients connect to. At most {}.", BOUNDS.services),
        format!("at most {} in all pools together", BOUNDS.local_addresses),
        format!("At most {} in all services together", BOUNDS.reals),
    ] {
        assert!(reference.contains(&sentence), "the reference does not say {sentence:?}");
    }
}

#[test]
fn real_servers_of_all_services_count() {
    let mut config = config();
    let real = |number: u32| RealServer {
        address: std::net::IpAddr::V4((0x0a00_0000 + number).into()),
        port: 80,
        ..RealServer::default()
    };
    config.services[0].reals = (0..1000).map(real).collect();
    let bounds = Bounds { reals: 1000, ..BOUNDS };
    let found = wrong(&config, &bounds);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "service[1].real[0]");
}

#[test]
fn a_whole_family_of_addresses_is_counted_not_expanded() {
    let mut config = config();
    let all: AddressRange = "1.0.0.0-126.255.255.255".parse().expect("a range");
    let (name, addresses) = ("all".to_owned(), vec![all]);
    let (network, peer_addresses) = (String::new(), Vec::new());
    config.pools.push(Pool { name, network, addresses, peer_addresses, ports: 1..=2 });
    let found = wrong(&config, &BOUNDS);
    assert_eq!(found[0].0, "pool[1].addresses[0]");
    assert!(found[0].1.contains("2113929220 local addresses"), "{found:?}");
}

#[test]
fn a_thousand_repeats_are_reported_a_hundred_times() {
    let mut config = config();
    let port = config.ports[0].clone();
    config.ports = vec![port; 1000];
    let mut report = Report::new("sluice.toml", "");
    errors(&config, &Bounds { ports: 1000, ..BOUNDS }, &mut report);
    assert!(
        report.is_full()
            && report.is_broken(Path::table(crate::path::Place::Port, 999).key("name"))
    );
    let told = report.into_errors(&config).to_string();
    assert!(told.ends_with("and 1898 more"), "{}", &told[told.len() - 40..]);
}
