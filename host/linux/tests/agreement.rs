//! The mirror says what `ip` says, from a fresh dump as well as after following changes.

mod bed;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bed::{
    Host, LATER, addr, equals_fresh, in_namespace, index, ip, ip_json, pair, sysctl, try_ip,
};
use serde_json::Value;
use sluice_linux::{Kernel, Mirror, RouteKind, Table};

/// The table that is followed beside `main` and `default`; table 101 is used, but not followed.
const FOLLOWED: &str = "100";

fn follow(mirror: &mut Mirror) {
    let number = FOLLOWED.parse().expect("a number");
    mirror.follow_tables(BTreeSet::from([number])).expect("the mirror follows");
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn mac_text(mac: Option<[u8; 6]>) -> String {
    mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":")).unwrap_or_default()
}

fn links_of_ip() -> BTreeSet<String> {
    let flag = |link: &Value, flag: &str| {
        link["flags"].as_array().is_some_and(|flags| flags.iter().any(|f| f == flag))
    };
    ip_json("-j -d link")
        .iter()
        .map(|link| {
            format!(
                "{} {} {} mtu {} up {} carrier {} kind {:?} master {} rxq {}",
                link["ifindex"],
                text(link, "ifname"),
                text(link, "address"),
                link["mtu"],
                flag(link, "UP"),
                flag(link, "LOWER_UP"),
                text(&link["linkinfo"], "info_kind"),
                text(link, "master"),
                link["num_rx_queues"],
            )
        })
        .collect()
}

fn links_of(kernel: &Kernel) -> BTreeSet<String> {
    let name = |index: Option<u32>| {
        index.and_then(|index| kernel.link(index)).map(|link| link.name.clone()).unwrap_or_default()
    };
    kernel
        .links()
        .map(|link| {
            format!(
                "{} {} {} mtu {} up {} carrier {} kind {:?} master {} rxq {}",
                link.index,
                link.name,
                mac_text(link.mac),
                link.mtu,
                link.admin_up,
                link.carrier,
                link.kind.as_deref().unwrap_or_default(),
                name(link.master),
                link.num_rx_queues.expect("the kernel tells"),
            )
        })
        .collect()
}

fn addresses_of_ip() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for link in ip_json("-j addr") {
        for address in link["addr_info"].as_array().into_iter().flatten() {
            all.insert(format!(
                "{} {}/{} peer {} tentative {}",
                link["ifindex"],
                text(address, "local"),
                address["prefixlen"],
                text(address, "address"),
                address["tentative"].as_bool() == Some(true),
            ));
        }
    }
    all
}

fn addresses_of(kernel: &Kernel) -> BTreeSet<String> {
    kernel
        .addresses()
        .map(|address| {
            format!(
                "{} {}/{} peer {} tentative {}",
                address.ifindex,
                address.ip,
                address.prefix_len,
                address.peer.map(|peer| peer.to_string()).unwrap_or_default(),
                address.tentative,
            )
        })
        .collect()
}

/// Routes as "prefix metric kind hop hop…".
fn routes_of_ip() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (family, width) in [("-4", 32), ("-6", 128)] {
        let any = if family == "-4" { "0.0.0.0" } else { "::" };
        for table in ["main", "default", FOLLOWED] {
            // `ip` fails when the table was never used.
            if try_ip(&format!("{family} route show table {table}")).is_err() {
                continue;
            }
            for route in ip_json(&format!("-j -d {family} route show table {table}")) {
                all.insert(route_line(&route, table, any, width));
            }
        }
    }
    all
}

fn route_line(route: &Value, table: &str, any: &str, width: u8) -> String {
    let mut to = text(route, "dst").replace("default", &format!("{any}/0"));
    if !to.contains('/') {
        to = format!("{to}/{width}");
    }
    let hop = |hop: &Value| {
        let via = hop["via"]["host"].as_str().unwrap_or_else(|| text(hop, "gateway"));
        let onlink =
            hop["flags"].as_array().is_some_and(|flags| flags.iter().any(|f| f == "onlink"));
        let weight = hop["weight"].as_u64().unwrap_or(1);
        format!("[{via} dev {} weight {weight} onlink {onlink}]", text(hop, "dev"))
    };
    let hops = match route["nexthops"].as_array() {
        Some(hops) => hops.iter().map(hop).collect::<Vec<_>>().join(" "),
        None if text(route, "type") == "unicast" => hop(route),
        None => String::new(),
    };
    let metric = route["metric"].as_u64().unwrap_or(0);
    format!("{table} {to} metric {metric} {} {hops}", text(route, "type"))
}

fn routes_of(kernel: &Kernel) -> BTreeSet<String> {
    let via = |gateway: Option<IpAddr>| gateway.map(|ip| ip.to_string()).unwrap_or_default();
    kernel
        .routes()
        .map(|route| {
            let hops: Vec<String> = route
                .hops
                .iter()
                .map(|hop| {
                    let link = kernel.link(hop.ifindex).expect("the link of a route");
                    format!(
                        "[{} dev {} weight {} onlink {}]",
                        via(hop.gateway),
                        link.name,
                        hop.weight,
                        hop.onlink
                    )
                })
                .collect();
            let kind = match route.kind {
                RouteKind::Unicast => "unicast",
                RouteKind::Blackhole => "blackhole",
                RouteKind::Unreachable => "unreachable",
                RouteKind::Prohibit => "prohibit",
                RouteKind::Throw => "throw",
                RouteKind::Foreign => "foreign",
            };
            let table = match route.table {
                Table::Main => "main".to_owned(),
                Table::Default => "default".to_owned(),
                Table::Other(number) => number.to_string(),
            };
            let (prefix, len) = (route.prefix, route.prefix_len);
            format!("{table} {prefix}/{len} metric {} {kind} {}", route.metric, hops.join(" "))
        })
        .collect()
}

fn neighbours_of_ip() -> BTreeSet<String> {
    ip_json("-j neigh")
        .iter()
        .map(|n| format!("{} {} {}", text(n, "dev"), text(n, "dst"), text(n, "lladdr")))
        .collect()
}

fn neighbours_of(kernel: &Kernel) -> BTreeSet<String> {
    kernel
        .neighbours()
        .filter(|n| n.state != sluice_linux::NeighbourState::NoArp)
        .map(|n| {
            let link = kernel.link(n.ifindex).expect("the link of a neighbour");
            format!("{} {} {}", link.name, n.ip, mac_text(n.mac))
        })
        .collect()
}

/// Links and addresses settle by themselves (link state, duplicate address detection), perhaps
/// between a look at the mirror and one at `ip`: what differs is compared until a deadline.
#[track_caller]
fn agrees_with_ip(mirror: &mut Mirror) {
    comes_to_agree(mirror, links_of, links_of_ip);
    comes_to_agree(mirror, addresses_of, addresses_of_ip);
    comes_to_agree(mirror, routes_of, routes_of_ip);
    comes_to_agree(mirror, neighbours_of, neighbours_of_ip);
}

#[track_caller]
fn comes_to_agree(
    mirror: &mut Mirror,
    of: impl Fn(&Kernel) -> BTreeSet<String>,
    of_ip: impl Fn() -> BTreeSet<String>,
) {
    let deadline = Instant::now() + LATER;
    loop {
        mirror.process().expect("the mirror follows");
        let (followed, said) = (of(mirror.state()), of_ip());
        if followed == said {
            return;
        }
        if Instant::now() > deadline {
            assert_eq!(followed, said);
        }
        bed::wait_readable(mirror, Duration::from_millis(10));
    }
}

/// Everything at once: kinds of links, addresses and routes.
const SETUP: &[&str] = &[
    "link add slxb type bridge",
    "link add slxm link slx0 type macvlan",
    "link add slxp type veth peer name slxq",
    "link set slxp master slxb up",
    "link set slxq up mtu 1400",
    "link set slxb up",
    "addr add 203.0.113.1/25 dev slxb",
    "addr add 203.0.113.129 peer 203.0.113.130/32 dev slxb",
    "addr add 2001:db8:b::1/64 dev slxb",
    "route add default via 192.0.2.2",
    "route add default via 192.0.2.3 metric 100",
    "route add 198.51.100.0/25 nexthop via 192.0.2.2 weight 3 nexthop dev slxb weight 1",
    "route add blackhole 198.51.100.128/26",
    "route add unreachable 198.51.100.192/27",
    "route add prohibit 198.51.100.224/28",
    "route add throw 198.51.100.240/28 table default",
    "route add 198.51.100.7 via 192.0.2.77 dev slxb onlink",
    "route append 198.51.100.8 via 192.0.2.5 metric 9",
    "route append 198.51.100.8 via 192.0.2.6 metric 9",
    "route prepend 198.51.100.8 via 192.0.2.4 metric 9",
    "route add 198.51.100.9 via inet6 2001:db8::9 dev slx0",
    "route add default via 192.0.2.9 table 100",
    "route add 198.51.100.0/25 table 100 nexthop via 192.0.2.2 nexthop via 192.0.2.5 weight 4",
    "route add blackhole 198.51.100.0/24 table 100",
    "route add 198.51.100.0/24 via 192.0.2.7 table 101",
    "-6 route add 2001:db8:1::/48 table 100 nexthop via 2001:db8::4 nexthop via 2001:db8::5",
    "-6 route append 2001:db8:1::/48 table 100 via 2001:db8::6",
    "-6 route add 2001:db8:4::/48 table 101 via 2001:db8::6",
    "-6 route add default via 2001:db8::2",
    "-6 route add 2001:db8:1::/48 nexthop via 2001:db8::2 nexthop via 2001:db8::3 weight 2",
    "-6 route add 2001:db8:2::/48 dev slx0 metric 7",
    "-6 route add blackhole 2001:db8:3::/48",
    "neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev slx0 nud permanent",
    "neigh add 2001:db8::99 lladdr 02:00:00:00:00:98 dev slx0 nud stale",
    "neigh add proxy 192.0.2.98 dev slx0",
];

#[test]
fn a_dump_and_followed_changes_agree_with_ip() {
    in_namespace(|| {
        let there = Host::new();
        sysctl("net/ipv6/conf/default/accept_dad", "0");
        let mut follower = Mirror::open().expect("the mirror opens");
        follow(&mut follower);
        pair(&there);
        for line in SETUP {
            ip(line);
        }
        let mut fresh = Mirror::open().expect("the mirror opens");
        follow(&mut fresh);
        agrees_with_ip(&mut fresh);
        agrees_with_ip(&mut follower);

        let macvlan = fresh.state().link_by_name("slxm").expect("the macvlan");
        assert_eq!(macvlan.parent, Some(index(&fresh, "slx0")));
        assert_eq!(fresh.state().link_by_name("slxp").expect("the veth").parent, None);
        assert!(fresh.state().link_by_name("lo").expect("loopback").loopback);
        assert!(fresh.state().is_local(addr("203.0.113.1")));
        assert!(!fresh.state().is_local(addr("203.0.113.2")));
    });
}

#[test]
fn next_hop_objects_are_followed_with_and_without_compatible_routes() {
    for compatible in ["1", "0"] {
        in_namespace(move || {
            let there = Host::new();
            sysctl("net/ipv4/nexthop_compat_mode", compatible);
            pair(&there);
            let mut mirror = Mirror::open().expect("the mirror opens");
            for line in [
                "nexthop add id 1 via 192.0.2.3 dev slx0",
                "nexthop add id 2 via 192.0.2.4 dev slx0",
                "nexthop add id 3 blackhole",
                "nexthop add id 10 group 1,4/2,2",
                "route add 198.51.100.0/25 nhid 10",
                "route add 198.51.100.128/25 nhid 1",
                "route add 203.0.113.0/24 nhid 3",
                "nexthop add id 6 via 2001:db8::6 dev slx0",
                "-6 route add 2001:db8:6::/48 nhid 6",
            ] {
                ip(line);
            }
            let gateways = |mirror: &Mirror, prefix: &str, len| -> Vec<(String, u32)> {
                let routes = mirror.state().routes_of(Table::Main, addr(prefix), len);
                let hops = routes.iter().flat_map(|route| &route.hops);
                hops.map(|hop| (hop.gateway.expect("a router").to_string(), hop.weight)).collect()
            };
            let of = |text: &str, weight| (text.to_owned(), weight);
            mirror.process().expect("the mirror follows");
            assert_eq!(
                gateways(&mirror, "198.51.100.0", 25),
                [of("192.0.2.3", 4), of("192.0.2.4", 2)]
            );
            assert_eq!(gateways(&mirror, "2001:db8:6::", 48), [of("2001:db8::6", 1)]);
            let dropping = mirror.state().routes_of(Table::Main, addr("203.0.113.0"), 24);
            assert_eq!(dropping[0].kind, RouteKind::Blackhole);

            // The kernel announces the group alone.
            ip("nexthop del id 2");
            assert!(mirror.process().expect("the mirror follows").routes);
            assert_eq!(gateways(&mirror, "198.51.100.0", 25), [of("192.0.2.3", 4)]);

            ip("nexthop replace id 1 via 192.0.2.9 dev slx0");
            assert!(mirror.process().expect("the mirror follows").routes);
            assert_eq!(gateways(&mirror, "198.51.100.0", 25), [of("192.0.2.9", 4)]);
            assert_eq!(gateways(&mirror, "198.51.100.128", 25), [of("192.0.2.9", 1)]);
            equals_fresh(&mut mirror, "after the objects changed");

            ip("nexthop del id 1");
            assert!(mirror.process().expect("the mirror follows").routes);
            assert!(mirror.state().routes_of(Table::Main, addr("198.51.100.128"), 25).is_empty());
            equals_fresh(&mut mirror, "after the object went");
        });
    }
}

/// A small generator of pseudo-random numbers (xorshift64), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[usize::try_from(self.below(choices.len() as u64)).expect("small")]
    }
}

fn random_command(random: &mut Random) -> String {
    match random.below(22) {
        0..=7 => random_ipv4_route(random),
        8..=14 => random_ipv6_route(random),
        _ => random_other(random),
    }
}

fn random_table(random: &mut Random) -> &'static str {
    random.of(&["", "", "", "table 100", "table 100", "table 101"])
}

fn random_ipv4_route(random: &mut Random) -> String {
    let verb = random.of(&["add", "append", "prepend", "replace", "replace", "change", "del"]);
    let metric = random.of(&["", "metric 5", "metric 1024", "metric 70"]);
    let metric = format!("{metric} {}", random_table(random));
    let to = random.of(&["198.51.100.0/25", "198.51.100.0/24", "203.0.113.7", "default"]);
    let (one, two) = (1 + random.below(5), 1 + random.below(5));
    match random.below(9) {
        0..=2 => format!("route {verb} {to} via 192.0.2.{one} {metric}"),
        3 => format!("route {verb} {to} dev {} {metric}", random.of(&["slx0", "slx2"])),
        4 => format!(
            "route {verb} {to} {metric} nexthop via 192.0.2.{one} nexthop via 192.0.2.{two}"
        ),
        5 => format!("route {verb} blackhole {to} {metric}"),
        6 | 7 => format!("route {verb} {to} nhid {one} {metric}"),
        _ => format!("route {verb} {to} via 192.0.2.{one} src 203.0.113.{two} {metric}"),
    }
}

/// Routes with and without gateways get metrics of their own: a route without a gateway that lies
/// between the members of a multipath route is left out of the kernel's dumps (seen on 6.18), so
/// there is nothing to compare with.
fn random_ipv6_route(random: &mut Random) -> String {
    let verb = random.of(&["add", "append", "replace", "change", "del", "del"]);
    let metric = random.of(&["", "metric 5", "metric 70"]);
    let table = random_table(random);
    let metric = format!("{metric} {table}");
    let to = random.of(&["2001:db8:1::/48", "2001:db8:1::/64", "2001:db8:2::9", "default"]);
    let (one, two) = (1 + random.below(5), 1 + random.below(5));
    match random.below(7) {
        0..=3 => format!("-6 route {verb} {to} via 2001:db8::{one} {metric}"),
        4 => format!(
            "-6 route {verb} {to} {metric} nexthop via 2001:db8::{one} nexthop via 2001:db8::{two}"
        ),
        5 => format!("-6 route {verb} {to} dev {} metric 6 {table}", random.of(&["slx0", "slx2"])),
        _ => format!("-6 route {verb} unreachable {to} metric 7 {table}"),
    }
}

fn random_other(random: &mut Random) -> String {
    let link = random.of(&["slx0", "slx2"]);
    let add = random.of(&["add", "del"]);
    let replace = random.of(&["replace", "del"]);
    let (one, two) = (1 + random.below(5), 1 + random.below(5));
    match random.below(8) {
        0 => format!("addr {add} 203.0.113.{one}/32 dev {link}"),
        1 => format!("addr {add} 192.0.2.1{one}/24 dev {link}"),
        2 => format!("addr {add} 2001:db8::1{one}/64 dev {link}"),
        3 => format!("link set {link} {}", random.of(&["up", "up", "down"])),
        4 => format!("neigh {replace} 192.0.2.{one} lladdr 02:00:00:00:00:0{two} dev slx0"),
        5 | 6 => format!("nexthop {replace} id {one} via 192.0.2.{two} dev slx0"),
        _ => random.of(&["addr flush dev slx2", "addr replace 192.0.2.1/24 dev slx0"]).to_owned(),
    }
}

#[test]
fn after_any_sequence_of_changes_the_mirror_equals_a_fresh_dump() {
    let seed = std::env::var("SLUICE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(0x5eed_1e55);
    in_namespace(move || {
        let there = Host::new();
        sysctl("net/ipv6/conf/default/accept_dad", "0");
        pair(&there);
        ip("link add slx2 type veth peer name slx3");
        ip("link set slx3 up");
        ip("link set slx2 up");
        let mut mirror = Mirror::open().expect("the mirror opens");
        follow(&mut mirror);
        let mut random = Random(seed);
        let mut succeeded = 0;
        let mut history = Vec::new();
        for round in 0..600 {
            let command = random_command(&mut random);
            if try_ip(&command).is_ok() {
                succeeded += 1;
                history.push(command);
            }
            if round % 3 == 0 {
                let recent = &history[history.len().saturating_sub(12)..];
                equals_fresh(
                    &mut mirror,
                    &format!("SLUICE_SEED={seed} round {round}, after {recent:#?}"),
                );
            }
        }
        println!("{succeeded} of 600 random commands succeeded (SLUICE_SEED={seed})");
        assert!(succeeded > 200, "the generator makes sense");
    });
}
