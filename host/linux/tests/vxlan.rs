//! VXLAN devices and their forwarding entries are what `ip` and `bridge` say, from a fresh dump as
//! well as after following changes.

mod bed;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use bed::{
    Host, SOON, addr, batch, bridge, equals_fresh, in_namespace, index, ip, ip_json, json, try_run,
    until,
};
use serde_json::Value;
use sluice_linux::{Changed, FdbDestination, FdbEntry, Kernel, Mirror, Vxlan};

const DEVICE: &str = "link add vx100 type vxlan id 100 dstport 4789 local 192.0.2.1 nolearning";
const FLOOD: [u8; 6] = [0; 6];
const ZERO: &str = "00:00:00:00:00:00";
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

const DEVICES: &[&str] = &[
    "link set lo up",
    DEVICE,
    "link add vx5 type vxlan id 5 dstport 4790 local 192.0.2.1 remote 192.0.2.9 \
     srcport 1000 2000 ttl 9 tos inherit learning noudpcsum udp6zerocsumrx dev lo",
    "link add vx6 type vxlan id 6 dstport 4791 local 2001:db8::1 group ff05::9 dev lo gbp \
     ttl inherit udp6zerocsumtx",
    "link add vxe type vxlan dstport 4792 external",
    "link add vxg type vxlan dstport 4793 external gpe",
    "link add vxm type vxlan id 16777215 dstport 8472 group 239.1.1.1 dev lo tos 0x10",
];

fn vxlans_of_ip() -> Vec<(String, Vxlan)> {
    let mut all: Vec<_> = ip_json("-j -d link show type vxlan").iter().map(vxlan_of_ip).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn vxlan_of_ip(link: &Value) -> (String, Vxlan) {
    let data = &link["linkinfo"]["info_data"];
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let short = |value: &Value| u16::try_from(number(value)).expect("16 bits");
    let ip = |v4: &str, v6: &str| data[v4].as_str().or(data[v6].as_str()).map(addr);
    let on = |key: &str| data[key].as_bool() == Some(true);
    let tos = data["tos"].as_str().unwrap_or("0").trim_start_matches("0x");
    let (low, high) = (short(&data["port_range"]["low"]), short(&data["port_range"]["high"]));
    let links = data["link"].as_str().map(|name| ip_json(&format!("-j link show dev {name}")));
    let below = links.and_then(|links| links.into_iter().next());
    let vxlan = Vxlan {
        vni: u32::try_from(number(&data["id"])).expect("24 bits"),
        local: ip("local", "local6"),
        remote: ip("remote", "remote6").or(ip("group", "group6")),
        port: short(&data["port"]),
        source_ports: (high != 0).then_some((low, high)),
        ttl: u8::try_from(number(&data["ttl"])).expect("8 bits"),
        // `ip` leaves the number out then.
        ttl_inherit: data["ttl"].is_null(),
        tos: u8::from_str_radix(tos, 16).expect("hexadecimal"),
        link: below.map(|link| u32::try_from(number(&link["ifindex"])).expect("an index")),
        udp_checksum: on("udp_csum"),
        udp6_zero_tx: on("udp_zero_csum6_tx"),
        udp6_zero_rx: on("udp_zero_csum6_rx"),
        learning: on("learning"),
        collect_metadata: on("external"),
        gbp: on("gbp"),
        gpe: on("gpe"),
    };
    (link["ifname"].as_str().expect("a name").to_owned(), vxlan)
}

fn vxlans_of(kernel: &Kernel) -> Vec<(String, Vxlan)> {
    let described = kernel.links().filter_map(|link| Some((link.name.clone(), link.vxlan?)));
    let mut all: Vec<_> = described.collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// The rows of VXLAN devices as `bridge` has them, each as a line.
fn rows_of_bridge() -> BTreeSet<String> {
    let rows = json("bridge", "-j fdb show");
    let leads = |row: &&Value| row["dst"].is_string() || row["nhid"].is_u64();
    let number = |value: &Value| value.as_u64().map(|number| number.to_string());
    rows.iter()
        .filter(leads)
        .map(|row| {
            let of = |key: &str| number(&row[key]).unwrap_or_default();
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            format!(
                "{} {} [{}] port {} vni {} via {} nhid {}",
                text("ifname"),
                text("mac"),
                text("dst"),
                of("port"),
                of("vni"),
                text("viaIf"),
                of("nhid"),
            )
        })
        .collect()
}

fn rows_of(kernel: &Kernel) -> BTreeSet<String> {
    let name = |index: u32| kernel.link(index).expect("the link").name.clone();
    let number = |number: Option<u32>| number.map(|it| it.to_string()).unwrap_or_default();
    let line = |entry: &FdbEntry, to: Option<&FdbDestination>| {
        let mac = entry.mac.map(|byte| format!("{byte:02x}")).join(":");
        format!(
            "{} {mac} [{}] port {} vni {} via {} nhid {}",
            name(entry.ifindex),
            to.map(|to| to.ip.to_string()).unwrap_or_default(),
            number(to.and_then(|to| to.port).map(u32::from)),
            number(to.and_then(|to| to.vni)),
            to.and_then(|to| to.ifindex).map(name).unwrap_or_default(),
            number(entry.nexthop_id),
        )
    };
    let lines = |entry: &FdbEntry| match entry.nexthop_id {
        Some(_) => vec![line(entry, None)],
        None => entry.destinations.iter().map(|to| line(entry, Some(to))).collect(),
    };
    kernel.fdb().flat_map(lines).collect()
}

#[track_caller]
fn agrees(mirror: &mut Mirror, when: &str) {
    mirror.process().expect("the mirror follows");
    assert_eq!(rows_of(mirror.state()), rows_of_bridge(), "{when}");
    assert_eq!(vxlans_of(mirror.state()), vxlans_of_ip(), "{when}");
    equals_fresh(mirror, when);
}

fn hosts(kernel: &Kernel, ifindex: u32, mac: [u8; 6]) -> Vec<IpAddr> {
    let entry = kernel.fdb_of(ifindex, mac);
    entry.iter().flat_map(|entry| &entry.destinations).map(|to| to.ip).collect()
}

#[test]
fn vxlan_devices_are_what_ip_says() {
    in_namespace(|| {
        let mut follower = Mirror::open().expect("the mirror opens");
        for line in DEVICES {
            ip(line);
        }
        let mut fresh = Mirror::open().expect("the mirror opens");
        for mirror in [&mut follower, &mut fresh] {
            agrees(mirror, "all devices");
            assert_eq!(vxlans_of(mirror.state()).len(), DEVICES.len() - 1);
        }
        let lo = index(&follower, "lo");
        let described = |mirror: &Mirror, name: &str| {
            mirror.state().link_by_name(name).and_then(|link| link.vxlan)
        };
        let vx5 = described(&follower, "vx5").expect("a description");
        assert_eq!((vx5.vni, vx5.port, vx5.ttl, vx5.tos), (5, 4790, 9, 1));
        assert_eq!((vx5.source_ports, vx5.link), (Some((1000, 2000)), Some(lo)));
        assert_eq!(vx5.remote, Some(addr("192.0.2.9")));
        assert!(vx5.learning && !vx5.udp_checksum && vx5.udp6_zero_rx && !vx5.udp6_zero_tx);

        // Of a device that is down the kernel would say nothing until it is set up.
        ip("link set vx5 up");
        ip("link set vx5 type vxlan id 5 remote 192.0.2.77 ttl 3");
        let changed = follower.process().expect("the mirror follows");
        assert!(changed.links && changed.fdb, "{changed:?}");
        agrees(&mut follower, "after the device changed");

        // Moved elsewhere, a device goes on sending from where it was made.
        let there = Host::new();
        there.run(|| ip("link add vx9 type vxlan id 9 dstport 4789 local 192.0.2.1"));
        let here = rustix::thread::gettid().as_raw_nonzero();
        there.ip(&format!("link set vx9 netns {here}"));
        until(&mut follower, SOON, "the device is here", |k| k.link_by_name("vx9").is_some());
        assert_eq!(described(&follower, "vx9"), None);
        drop(there);
    });
}

#[test]
fn each_change_of_a_forwarding_entry_comes_through_and_is_told_as_one() {
    in_namespace(|| {
        ip("link set lo up");
        ip(DEVICE);
        ip("link set vx100 up");
        let mut mirror = Mirror::open().expect("the mirror opens");
        let vx100 = index(&mirror, "vx100");
        assert_eq!(mirror.state().fdb().count(), 0);
        let fdb = Changed { fdb: true, ..Changed::default() };
        let mut step = |command: &str, mac: [u8; 6], expected: &[&str]| {
            bridge(&format!("fdb {command}"));
            let changed = mirror.process().expect("the mirror follows");
            let expected: Vec<_> = expected.iter().map(|text| addr(text)).collect();
            assert_eq!(hosts(mirror.state(), vx100, mac), expected, "{command}");
            agrees(&mut mirror, command);
            changed
        };
        let (a, b, c) = ("192.0.2.10", "192.0.2.11", "192.0.2.12");
        let mut flood = |command: &str, expected: &[&str]| {
            step(&command.replace("ZERO", &format!("{ZERO} dev vx100 dst")), FLOOD, expected)
        };
        assert_eq!(flood("append ZERO 192.0.2.11", &[b]), fdb);
        assert_eq!(flood("append ZERO 192.0.2.10", &[a, b]), fdb);
        assert_eq!(flood("append ZERO 192.0.2.12 port 5000 vni 7 via lo", &[a, b, c]), fdb);
        assert_eq!(flood("append ZERO 192.0.2.10", &[a, b, c]), Changed::default());
        assert_eq!(flood("del ZERO 192.0.2.10", &[b, c]), fdb);
        assert_eq!(flood("del ZERO 192.0.2.11", &[c]), fdb);
        assert_eq!(flood("del ZERO 192.0.2.12 port 5000 vni 7 via lo", &[]), fdb);

        let mut station = |command: &str, expected: &[&str]| {
            let station = "02:00:00:00:00:01 dev vx100 dst";
            step(&command.replace("STATION", station), STATION, expected)
        };
        assert_eq!(station("add STATION 192.0.2.10", &[a]), fdb);
        assert_eq!(station("replace STATION 192.0.2.10", &[a]), Changed::default());
        // The kernel says nothing of the destination that is replaced.
        assert_eq!(station("replace STATION 192.0.2.11", &[b]), fdb);
        // Another state of it is no other destination.
        assert_eq!(station("replace STATION 192.0.2.11 dynamic", &[b]), Changed::default());
        assert_eq!(station("replace STATION 192.0.2.12 port 4790", &[c]), fdb);
        assert_eq!(station("del STATION 192.0.2.12 port 4790", &[]), fdb);
        station("add STATION 192.0.2.10", &[a]);
        assert_eq!(step("flush dev vx100", STATION, &[]), fdb);
    });
}

#[test]
fn entries_go_with_their_device_and_a_bridges_own_are_none() {
    in_namespace(|| {
        for line in DEVICES {
            ip(line);
        }
        ip("link add br0 type bridge");
        ip("link set vx100 master br0 up");
        ip("link set br0 up");
        let mut mirror = Mirror::open().expect("the mirror opens");
        let vx100 = index(&mirror, "vx100");
        let before = mirror.state().fdb().count();
        assert_eq!(before, 3, "the remotes of three devices");
        bridge("fdb add 02:00:00:00:00:05 dev vx100 master");
        bridge("fdb add 33:33:00:00:00:09 dev br0 self");
        assert!(!mirror.process().expect("the mirror follows").fdb);
        assert_eq!(mirror.state().fdb().count(), before);
        bridge(&format!("fdb append {ZERO} dev vx100 dst 192.0.2.10"));
        bridge("fdb add 02:00:00:00:00:01 dev vx100 dst 192.0.2.10");
        bridge(&format!("fdb append {ZERO} dev vxe dst 192.0.2.10 src_vni 7 vni 8"));
        bridge(&format!("fdb append {ZERO} dev vxe dst 192.0.2.11 src_vni 9 vni 10"));
        agrees(&mut mirror, "with entries");
        let vxe = index(&mirror, "vxe");
        let networks = mirror.state().fdb().filter(|entry| entry.ifindex == vxe);
        let networks: Vec<_> = networks
            .map(|entry| (entry.vni, entry.destinations.first().and_then(|to| to.vni)))
            .collect();
        assert_eq!(networks, [(Some(7), Some(8)), (Some(9), Some(10))]);

        ip("link del vx100");
        let changed = mirror.process().expect("the mirror follows");
        assert!(changed.fdb && changed.links, "{changed:?}");
        assert_eq!(mirror.state().fdb().filter(|entry| entry.ifindex == vx100).count(), 0);
        agrees(&mut mirror, "after the device went");
        mirror.distrust();
        assert!(!mirror.process().expect("the mirror follows").any());
    });
}

#[test]
fn entries_by_next_hop_objects_are_followed_to_their_hosts() {
    in_namespace(|| {
        ip("link set lo up");
        ip(DEVICE);
        ip("nexthop add id 1 via 192.0.2.20 fdb");
        ip("nexthop add id 2 via 192.0.2.21 fdb");
        ip("nexthop add id 10 group 1,3/2 fdb");
        let mut mirror = Mirror::open().expect("the mirror opens");
        let vx100 = index(&mirror, "vx100");
        let to = |ip: &str, weight| FdbDestination { weight, ..FdbDestination::new(addr(ip)) };
        let mut step = |command: &str, expected: &[FdbDestination]| {
            let (program, arguments) = command.split_once(' ').expect("a program");
            try_run(program, arguments).expect("it succeeds");
            assert!(mirror.process().expect("the mirror follows").fdb, "{command}");
            let entry = mirror.state().fdb_of(vx100, STATION).cloned();
            let found = entry.map(|entry| entry.destinations).unwrap_or_default();
            assert_eq!(found, BTreeSet::from_iter(expected.iter().copied()), "{command}");
            agrees(&mut mirror, command);
        };
        let (first, second) = (to("192.0.2.20", 3), to("192.0.2.21", 1));
        step("bridge fdb add 02:00:00:00:00:01 dev vx100 nhid 10", &[first, second]);
        let other = to("192.0.2.30", 3);
        step("ip nexthop replace id 1 via 192.0.2.30 fdb", &[other, second]);
        step("ip nexthop del id 2", &[other]);
        // The kernel says nothing of the entry.
        step("ip nexthop del id 10", &[]);
        assert_eq!(mirror.state().fdb().count(), 0);
    });
}

/// The kernel lists entries by their place, and goes on at that place when some are gone.
#[test]
fn entries_that_go_while_they_are_listed_take_no_others_with_them() {
    const COUNT: u32 = 8000;
    let lines = |verb: &str, numbers: &mut dyn Iterator<Item = u32>| {
        let mut lines = String::new();
        for number in numbers {
            let (high, low) = (number >> 8, number & 0xff);
            let to = "dev vx100 dst 192.0.2.10";
            writeln!(lines, "fdb {verb} 02:00:00:00:{high:02x}:{low:02x} {to}").expect("a string");
        }
        lines
    };
    in_namespace(move || {
        ip(DEVICE);
        batch("bridge", &lines("add", &mut (0..COUNT)));
        // The newest are listed first.
        let going = lines("del", &mut (0..COUNT).rev().filter(|number| number % 2 == 0));
        let mut mirrors = std::thread::scope(|scope| {
            let deleting = scope.spawn(|| batch("bridge", &going));
            let mut mirrors = Vec::new();
            while !deleting.is_finished() {
                mirrors.push(Mirror::open().expect("the mirror opens"));
            }
            deleting.join().expect("the entries go");
            mirrors
        });
        println!("{} mirrors were opened meanwhile", mirrors.len());
        assert!(!mirrors.is_empty());
        for mirror in &mut mirrors {
            mirror.process().expect("the mirror follows");
            while mirror.is_stale() {
                mirror.process().expect("the mirror follows");
            }
            assert_eq!(mirror.state().fdb().count(), COUNT as usize / 2);
        }
    });
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
}

fn random_command(random: &mut Random) -> (&'static str, String) {
    let mut pick = |choices: &[&'static str]| -> &'static str {
        choices[usize::try_from(random.below(choices.len() as u64)).expect("small")]
    };
    let device = pick(&["vx100", "vx100", "vx200"]);
    let mac = pick(&[ZERO, ZERO, "02:00:00:00:00:01", "02:00:00:00:00:02", "01:00:5e:00:00:01"]);
    let verb = pick(&["add", "append", "append", "replace", "del"]);
    let host = pick(&["192.0.2.10", "192.0.2.11", "192.0.2.12"]);
    let more = pick(&["", "", "", "port 5000", "vni 7", "via lo", "static"]);
    let id = pick(&["1", "2", "3"]);
    let action = pick(&["replace", "replace", "del"]);
    match pick(&["a", "a", "a", "a", "a", "a", "b", "c", "d", "e", "f"]) {
        "a" => ("bridge", format!("fdb {verb} {mac} dev {device} dst {host} {more}")),
        "b" => ("bridge", format!("fdb {verb} {mac} dev {device} nhid {}", pick(&["1", "10"]))),
        "c" if action == "del" => ("ip", format!("nexthop del id {id}")),
        "c" => ("ip", format!("nexthop replace id {id} via {host} fdb")),
        "d" if action == "del" => ("ip", "nexthop del id 10".to_owned()),
        "d" => ("ip", format!("nexthop replace id 10 group {id},2/1 fdb")),
        "e" => ("bridge", format!("fdb {verb} {mac} dev {device}")),
        _ => (
            "ip",
            pick(&[
                "link del vx200",
                "link add vx200 up type vxlan id 200 dstport 4790 remote 192.0.2.10",
                "link add vx200 up type vxlan id 200 dstport 4790 remote 192.0.2.10",
                "link set vx200 up type vxlan id 200 remote 192.0.2.11",
                "link set vx100 down",
                "link set vx100 up",
            ])
            .to_owned(),
        ),
    }
}

#[test]
fn after_any_sequence_of_changes_the_entries_are_those_of_a_fresh_dump() {
    let seed = std::env::var("SLUICE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(0x5eed_1e55);
    in_namespace(move || {
        ip("link set lo up");
        ip(DEVICE);
        let mut mirror = Mirror::open().expect("the mirror opens");
        let mut random = Random(seed);
        let (mut succeeded, mut most) = (0, 0);
        let mut history = Vec::new();
        for round in 0..400 {
            let (program, arguments) = random_command(&mut random);
            if try_run(program, &arguments).is_ok() {
                succeeded += 1;
                history.push(format!("{program} {arguments}"));
            }
            if round % 3 == 0 {
                let recent = &history[history.len().saturating_sub(12)..];
                agrees(&mut mirror, &format!("SLUICE_SEED={seed} round {round}: {recent:#?}"));
                most = most.max(mirror.state().fdb().count());
            }
        }
        println!("{succeeded} of 400 random commands succeeded (SLUICE_SEED={seed})");
        assert!(succeeded > 130 && most > 4, "the generator makes sense");
    });
}
