//! Changes are followed: links that come and go, routes that vanish in silence, floods of changes.

mod bed;

use std::fmt::Write;
use std::time::{Duration, Instant};

use bed::{
    Host, LATER, SOON, addr, equals_fresh, in_namespace, index, ip, ip_batch, pair, sysctl, until,
};
use sluice_linux::{
    Commands, Kernel, Link, Mirror, RouteKind, RouteResult, Table, Target, lookup, rx_queue_count,
};

fn next_hops(kernel: &Kernel, to: &str) -> Vec<Target> {
    match lookup(kernel, addr(to)) {
        RouteResult::NextHops(targets) => targets,
        _ => Vec::new(),
    }
}

#[test]
fn each_kind_of_change_comes_through_and_says_what_it_was() {
    in_namespace(|| {
        let there = Host::new();
        sysctl("net/ipv6/conf/default/accept_dad", "0");
        pair(&there);
        let mut mirror = Mirror::open().expect("the mirror opens");
        let slx0 = index(&mirror, "slx0");
        let mut slowest = Duration::ZERO;
        let mut step = |command: &str, so: &dyn Fn(&Kernel) -> bool| {
            mirror.process().expect("the mirror follows");
            ip(command);
            let (took, changed) = until(&mut mirror, SOON, command, so);
            slowest = slowest.max(took);
            changed
        };
        let link = |kernel: &Kernel| kernel.link(slx0).cloned().unwrap_or_default();

        assert!(step("link set slx0 mtu 1400", &|k| link(k).mtu == 1400).links);
        assert!(
            step("link set slx0 address 02:00:00:00:00:77", &|k| {
                link(k).mac == Some([2, 0, 0, 0, 0, 0x77])
            })
            .links
        );
        let changed =
            step("addr add 203.0.113.1/24 dev slx0", &|k| k.is_local(addr("203.0.113.1")));
        assert!(changed.addresses && changed.routes && !changed.links, "{changed:?}");
        let to = "198.51.100.7";
        let changed =
            step("route add 198.51.100.0/24 via 192.0.2.2", &|k| !next_hops(k, to).is_empty());
        assert!(changed.routes && !changed.addresses && !changed.links, "{changed:?}");
        step("route replace 198.51.100.0/24 via 203.0.113.2", &|k| {
            next_hops(k, to).iter().any(|target| target.ip == addr("203.0.113.2"))
        });
        // The kernel flushes the route with the address it goes by, and says nothing of it.
        ip("route add 198.51.100.128/25 via 192.0.2.2 src 203.0.113.1");
        let changed = step("addr del 203.0.113.1/24 dev slx0", &|k| {
            k.routes_of(Table::Main, addr("198.51.100.128"), 25).is_empty()
        });
        assert!(changed.addresses && changed.routes, "{changed:?}");
        let changed = step("neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev slx0", &|k| {
            k.neighbour(slx0, addr("192.0.2.9")).is_some()
        });
        assert!(changed.neighbours && !changed.routes, "{changed:?}");
        assert!(step("link set slx0 down", &|k| !link(k).admin_up).links);
        println!("the slowest change came through {slowest:?} after its command");
    });
}

#[test]
fn routes_that_a_link_takes_down_in_silence_are_gone_every_time() {
    in_namespace(|| {
        let there = Host::new();
        pair(&there);
        let mut mirror = Mirror::open().expect("the mirror opens");
        for round in 0..100 {
            ip("route add 198.51.100.0/24 via 192.0.2.2");
            ip("nexthop add id 1 via 192.0.2.2 dev slx0");
            ip("route add 203.0.113.0/24 nhid 1");
            mirror.process().expect("the mirror follows");
            assert_eq!(next_hops(mirror.state(), "203.0.113.9").len(), 1, "round {round}");
            // Followed without a pause, so that the kernel is still at it when the link's change
            // is read: it announces that first and flushes the routes afterwards.
            std::thread::scope(|scope| {
                let down = scope.spawn(|| ip("link set slx0 down"));
                let start = Instant::now();
                while !mirror.process().expect("the mirror follows").links {
                    assert!(start.elapsed() < LATER, "round {round}");
                }
                down.join().expect("ip runs");
            });
            mirror.process().expect("the mirror follows");
            let left: Vec<_> =
                mirror.state().routes().filter(|route| route.prefix.is_ipv4()).collect();
            assert!(left.is_empty(), "round {round}: {left:#?}");
            ip("link set slx0 up");
            mirror.process().expect("the mirror follows");
            assert_eq!(next_hops(mirror.state(), "192.0.2.2").len(), 1, "round {round}");
        }
    });
}

#[test]
fn a_link_that_is_deleted_and_returns_is_another_one() {
    in_namespace(|| {
        let there = Host::new();
        pair(&there);
        let mut mirror = Mirror::open().expect("the mirror opens");
        let first = index(&mirror, "slx0");
        ip("neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev slx0");
        ip("route add 198.51.100.0/24 via 192.0.2.2");
        mirror.process().expect("the mirror follows");
        assert_eq!(next_hops(mirror.state(), "198.51.100.1")[0].ifindex, first);

        ip("link del slx0");
        let (_, changed) = until(&mut mirror, SOON, "the link is gone", |kernel| {
            kernel.link_by_name("slx0").is_none()
        });
        assert!(changed.links && changed.addresses && changed.routes, "{changed:?}");
        let state = mirror.state();
        assert_eq!(state.addresses().filter(|address| address.ifindex == first).count(), 0);
        assert_eq!(state.neighbours().filter(|neighbour| neighbour.ifindex == first).count(), 0);
        assert_eq!(lookup(state, addr("198.51.100.1")), RouteResult::NoRoute);

        pair(&there);
        let (_, changed) = until(&mut mirror, SOON, "the link is back", |kernel| {
            kernel.link_by_name("slx0").is_some_and(|link| link.admin_up)
                && !next_hops(kernel, "192.0.2.2").is_empty()
        });
        assert!(changed.links && changed.addresses && changed.routes, "{changed:?}");
        assert_ne!(index(&mirror, "slx0"), first);

        there.ip("link set slx1 down");
        let second = index(&mirror, "slx0");
        until(&mut mirror, LATER, "the carrier is lost", |kernel| {
            kernel.link(second).is_some_and(|link| link.admin_up && !link.carrier)
        });
        there.ip("link set slx1 up");
        until(&mut mirror, LATER, "the carrier is back", |kernel| {
            kernel.link(second).is_some_and(Link::is_up)
        });
    });
}

/// Commands that add so many IPv6 routes.
fn many_ipv6_routes(count: u32) -> String {
    let mut lines = String::new();
    for number in 1..=count {
        writeln!(lines, "route add 2001:db8:{number:x}::/48 via 2001:db8::2").expect("a string");
    }
    lines
}

/// Commands that add so many IPv4 routes: documentation prefixes are few, so many metrics each.
fn many_ipv4_routes(count: u32) -> String {
    let mut lines = String::new();
    for number in 0..count {
        let (host, metric) = (number % 250, number / 250);
        let to = format!("203.0.113.{host}/32 via 192.0.2.2 metric {metric}");
        writeln!(lines, "route add {to}").expect("a string");
    }
    lines
}

#[test]
fn lost_announcements_are_made_up_for_by_reading_afresh() {
    in_namespace(|| {
        let there = Host::new();
        pair(&there);
        let mut mirror = Mirror::open_with(4096).expect("the mirror opens");
        assert_eq!(mirror.overruns(), 0);
        ip_batch(&many_ipv6_routes(2000));
        ip("addr add 203.0.113.1/24 dev slx0");
        ip("neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev slx0");
        ip("link set slx0 mtu 1400");
        let changed = mirror.process().expect("the mirror follows");
        assert!(changed.overrun && changed.routes && changed.links, "{changed:?}");
        assert!(changed.addresses && changed.neighbours, "{changed:?}");
        assert_eq!(mirror.overruns(), 1, "one overrun is told once");
        assert!(!mirror.is_stale());
        equals_fresh(&mut mirror, "after an overrun");
        assert!(!mirror.process().expect("the mirror follows").overrun);

        // And it follows again afterwards, one change at a time.
        ip("-6 route del 2001:db8:7::/48");
        let changed = mirror.process().expect("the mirror follows");
        assert!(changed.routes && !changed.overrun, "{changed:?}");
        assert_eq!(lookup(mirror.state(), addr("2001:db8:7::1")), RouteResult::NoRoute);
        assert_eq!(next_hops(mirror.state(), "2001:db8:8::1").len(), 1);
    });
}

/// Commands that change everything at once; they end with most of it there.
fn storm() -> String {
    let mut lines = String::new();
    for round in 0..4 {
        lines += &many_ipv6_routes(500);
        lines += &many_ipv4_routes(500);
        for host in 1..200 {
            writeln!(lines, "addr add 203.0.113.{host}/32 dev slx0").expect("a string");
        }
        if round == 3 {
            break;
        }
        for host in 1..200 {
            writeln!(lines, "addr del 203.0.113.{host}/32 dev slx0").expect("a string");
        }
        // Takes the routes and the IPv6 addresses with it.
        lines += "link set slx0 down\nlink set slx0 up\n";
        lines += "addr add 2001:db8::1/64 dev slx0 nodad\n";
    }
    lines
}

/// Reading afresh while everything changes: dumps are interrupted, announcements are lost again
/// meanwhile, and in the end the mirror is exact.
#[test]
fn a_storm_of_changes_ends_in_an_exact_mirror() {
    in_namespace(|| {
        let there = Host::new();
        sysctl("net/ipv6/conf/default/accept_dad", "0");
        pair(&there);
        let mut mirror = Mirror::open_with(2048).expect("the mirror opens");
        let storm = storm();
        let calls = std::thread::scope(|scope| {
            let blowing = scope.spawn(|| ip_batch(&storm));
            let mut calls = 0;
            while !blowing.is_finished() {
                mirror.process().expect("the mirror follows");
                calls += 1;
                // Too slow on purpose for the little room it has.
                std::thread::sleep(Duration::from_millis(2));
            }
            blowing.join().expect("the storm passes");
            calls
        });
        equals_fresh(&mut mirror, "after the storm");
        println!("{} overruns in {calls} calls during the storm", mirror.overruns());
        assert!(mirror.overruns() > 0, "the storm was one");
    });
}

#[test]
fn ten_thousand_routes_of_each_family_are_loaded_and_followed() {
    const COUNT: u32 = 10_000;
    in_namespace(|| {
        let there = Host::new();
        pair(&there);
        // The routes may not all fit into the kernel's own limit for IPv6 routes otherwise.
        sysctl("net/ipv6/route/max_size", "1000000");
        let mut mirror = Mirror::open().expect("the mirror opens");
        for (lines, to) in
            [(many_ipv4_routes(COUNT), "203.0.113.7"), (many_ipv6_routes(COUNT), "2001:db8:7::1")]
        {
            let before = mirror.state().routes().count();
            ip_batch(&lines);
            let start = Instant::now();
            let changed = mirror.process().expect("the mirror follows");
            println!("{COUNT} announced routes ({to}) followed in {:?}", start.elapsed());
            assert!(changed.routes && !changed.overrun, "{changed:?}");
            assert_eq!(mirror.state().routes().count(), before + COUNT as usize);
            let start = Instant::now();
            let hops = next_hops(mirror.state(), to);
            println!("one lookup took {:?}", start.elapsed());
            assert_eq!(hops.len(), 1);
        }
        let start = Instant::now();
        Mirror::open().expect("the mirror opens");
        println!("a mirror with {} routes opened in {:?}", COUNT * 2, start.elapsed());
        equals_fresh(&mut mirror, "after many routes");

        ip("link set slx0 down");
        let start = Instant::now();
        mirror.process().expect("the mirror follows");
        println!("the loss of {} routes was noticed in {:?}", COUNT * 2, start.elapsed());
        assert_eq!(next_hops(mirror.state(), "203.0.113.7"), []);
        assert_eq!(next_hops(mirror.state(), "2001:db8:7::1"), []);
        assert_eq!(mirror.state().routes().filter(|route| route.prefix.is_ipv4()).count(), 0);
    });
}

#[test]
fn lookups_follow_prefix_metric_and_what_routes_do() {
    in_namespace(|| {
        let there = Host::new();
        pair(&there);
        for line in [
            "route add default via 192.0.2.254 metric 10",
            "route add default via 192.0.2.253 metric 5",
            "route add blackhole 198.51.100.0/24",
            "route add unreachable 198.51.100.0/25",
            "route add 198.51.100.64/26 nexthop via 192.0.2.3 weight 3 nexthop via 192.0.2.4",
            "route add throw 203.0.113.0/24",
            "route add 203.0.113.0/25 via 192.0.2.5 table default",
        ] {
            ip(line);
        }
        let mirror = Mirror::open().expect("the mirror opens");
        let (state, ifindex) = (mirror.state(), index(&mirror, "slx0"));
        let to = |ip: &str, weight| Target { ifindex, ip: addr(ip), weight };
        assert_eq!(next_hops(state, "192.0.2.7"), [to("192.0.2.7", 1)]);
        assert_eq!(next_hops(state, "192.0.3.7"), [to("192.0.2.253", 1)]);
        assert_eq!(next_hops(state, "198.51.100.65"), [to("192.0.2.3", 3), to("192.0.2.4", 1)]);
        assert_eq!(next_hops(state, "203.0.113.1"), [to("192.0.2.5", 1)]);
        assert_eq!(lookup(state, addr("203.0.113.200")), RouteResult::NoRoute);
        assert_eq!(lookup(state, addr("198.51.100.200")), RouteResult::Blackhole);
        assert_eq!(lookup(state, addr("198.51.100.1")), RouteResult::Unreachable);
        assert_eq!(lookup(state, addr("192.0.2.1")), RouteResult::Local);
        assert_eq!(lookup(state, addr("127.0.0.9")), RouteResult::Local);
        assert_eq!(lookup(state, addr("224.0.0.1")), RouteResult::NoRoute);
        assert_eq!(next_hops(state, "2001:db8::7"), [to("2001:db8::7", 1)]);
        assert_eq!(lookup(state, addr("2001:db8:1::1")), RouteResult::NoRoute);
    });
}

#[test]
fn a_lightweight_tunnel_is_not_taken_for_a_next_hop() {
    in_namespace(|| {
        let there = Host::new();
        pair(&there);
        let Ok(()) = bed::try_ip(
            "route add 198.51.100.0/24 encap ip id 7 dst 192.0.2.2 via 192.0.2.2 dev slx0",
        ) else {
            println!("this kernel has no lightweight tunnels; nothing to see");
            return;
        };
        let mirror = Mirror::open().expect("the mirror opens");
        let routes = mirror.state().routes_of(Table::Main, addr("198.51.100.0"), 24);
        assert_eq!(routes[0].kind, RouteKind::Foreign);
        assert_eq!(lookup(mirror.state(), addr("198.51.100.1")), RouteResult::Foreign);
    });
}

#[test]
fn commands_change_links_and_addresses_and_may_be_repeated() {
    in_namespace(|| {
        ip("tuntap add slxt mode tap");
        let mut mirror = Mirror::open().expect("the mirror opens");
        let ifindex = index(&mirror, "slxt");
        for _ in 0..2 {
            let commands = mirror.commands();
            commands.set_mac(ifindex, [2, 0, 0, 0, 0, 0x55]).expect("set the MAC");
            commands.set_mtu(ifindex, 1400).expect("set the MTU");
            commands.set_up(ifindex, true).expect("set up");
            commands.add_address(ifindex, addr("203.0.113.5"), 24).expect("add IPv4");
            commands.add_address(ifindex, addr("2001:db8:5::5"), 64).expect("add IPv6");
        }
        mirror.process().expect("the mirror follows");
        let link = mirror.state().link(ifindex).expect("the TAP").clone();
        assert_eq!((link.mac, link.mtu), (Some([2, 0, 0, 0, 0, 0x55]), 1400));
        assert!(link.admin_up && !link.carrier, "nobody has the TAP open");
        assert!(mirror.state().is_local(addr("203.0.113.5")));
        assert!(mirror.state().is_local(addr("2001:db8:5::5")));

        let mut commands = Commands::open().expect("a socket");
        for _ in 0..2 {
            commands.remove_address(ifindex, addr("203.0.113.5"), 24).expect("remove IPv4");
            commands.remove_address(ifindex, addr("2001:db8:5::5"), 64).expect("remove IPv6");
            commands.set_up(ifindex, false).expect("set down");
        }
        mirror.process().expect("the mirror follows");
        assert!(!mirror.state().is_local(addr("203.0.113.5")));
        assert!(!mirror.state().is_local(addr("2001:db8:5::5")));
        assert!(!mirror.state().link(ifindex).expect("the TAP").admin_up);

        let refused = commands.set_up(9999, true).expect_err("no such link");
        assert_eq!(refused.errno(), Some(libc::ENODEV), "{refused}");
        let refused = commands.set_mtu(ifindex, 10).expect_err("too small");
        assert!(refused.to_string().contains("mtu"), "the kernel's own words: {refused}");
        commands.add_address(ifindex, addr("203.0.113.5"), 33).expect_err("no prefix length");
    });
}

#[test]
fn receive_queues_in_use_are_counted() {
    in_namespace(|| {
        ip("link add slxq numrxqueues 4 numtxqueues 4 type veth peer name slxr");
        ip("tuntap add slxt mode tap");
        let mirror = Mirror::open().expect("the mirror opens");
        let link = |name: &str| mirror.state().link_by_name(name).expect("the link").clone();
        assert_eq!(link("slxq").num_rx_queues, Some(4));
        for queues in [3, 1] {
            let set = std::process::Command::new("ethtool")
                .args(["-L", "slxq", "rx", &queues.to_string(), "tx", &queues.to_string()])
                .status();
            assert!(set.expect("ethtool runs").success());
            assert_eq!(rx_queue_count(&link("slxq")).expect("the kernel tells"), queues);
        }
        // Neither tells of channels.
        assert_eq!(rx_queue_count(&link("slxt")).expect("the kernel tells"), 1);
        assert_eq!(rx_queue_count(&link("lo")).expect("the kernel tells"), 1);
        let gone = Link { index: 9999, ..link("slxq") };
        assert_eq!(rx_queue_count(&gone).expect_err("no such link").errno(), Some(libc::ENODEV));
    });
}
