//! Routing tables that are named are followed as `main` is, and those that are not are left out.

mod bed;

use std::collections::BTreeSet;
use std::net::IpAddr;

use bed::{Host, addr, equals_fresh, in_namespace, index, ip, pair, sysctl};
use sluice_linux::{Error, Kernel, Mirror, RouteResult, Table, Target, lookup, lookup_in};

/// One that the header of a route has room for, and one that only the attribute has.
const TABLES: [u32; 2] = [100, 70_000];

fn gateways(kernel: &Kernel, table: u32, prefix: &str, len: u8) -> Vec<(IpAddr, u32)> {
    let routes = kernel.routes_of(Table::Other(table), addr(prefix), len);
    let hops = routes.iter().flat_map(|route| &route.hops);
    hops.map(|hop| (hop.gateway.expect("a router"), hop.weight)).collect()
}

fn numbers(kernel: &Kernel) -> BTreeSet<u32> {
    kernel
        .routes()
        .filter_map(|route| match route.table {
            Table::Other(number) => Some(number),
            _ => None,
        })
        .collect()
}

/// A pair here, and a mirror that follows nothing but `main` and `default`.
fn bed() -> (Host, Mirror) {
    let there = Host::new();
    sysctl("net/ipv6/conf/default/accept_dad", "0");
    pair(&there);
    (there, Mirror::open().expect("the mirror opens"))
}

#[test]
fn only_tables_that_are_named_are_followed() {
    in_namespace(|| {
        let (_there, mut mirror) = bed();
        for table in TABLES {
            ip(&format!("route add 198.51.100.0/24 via 192.0.2.2 table {table}"));
            ip(&format!("-6 route add 2001:db8:7::/48 via 2001:db8::2 table {table}"));
        }
        assert!(!mirror.process().expect("the mirror follows").routes);
        assert_eq!(numbers(mirror.state()), BTreeSet::new());

        // Naming a table reads what is there, and what comes is announced.
        let named = BTreeSet::from([70_000]);
        assert!(mirror.follow_tables(named.clone()).expect("the mirror follows").routes);
        assert_eq!(mirror.followed_tables(), &named);
        assert_eq!(numbers(mirror.state()), named);
        assert_eq!(gateways(mirror.state(), 70_000, "2001:db8:7::", 48).len(), 1);
        assert!(!mirror.follow_tables(named).expect("the mirror follows").any());
        for (table, followed) in [(70_000, true), (100, false), (70_001, false), (356, false)] {
            ip(&format!("route add 203.0.113.0/24 via 192.0.2.3 table {table}"));
            let changed = mirror.process().expect("the mirror follows");
            assert_eq!(changed.routes, followed, "table {table}");
            assert_eq!(gateways(mirror.state(), table, "203.0.113.0", 24).len() == 1, followed);
        }
        equals_fresh(&mut mirror, "after changes of a table");
        ip("route flush table 70000");
        assert!(mirror.process().expect("the mirror follows").routes);
        assert!(gateways(mirror.state(), 70_000, "198.51.100.0", 24).is_empty());

        // One that is no longer named is forgotten.
        let changed = mirror.follow_tables(BTreeSet::from([100, 356])).expect("it follows");
        assert!(changed.routes);
        assert_eq!(numbers(mirror.state()), BTreeSet::from([100, 356]));
        // Also through a reading of everything.
        mirror.distrust();
        assert!(!mirror.process().expect("the mirror follows").any());
        assert_eq!(numbers(mirror.state()), BTreeSet::from([100, 356]));

        for wrong in [0, 253, 254, 255] {
            let error = mirror.follow_tables(BTreeSet::from([1, wrong])).expect_err("no table");
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
        assert_eq!(mirror.followed_tables(), &BTreeSet::from([100, 356]));
    });
}

#[test]
fn multipath_routes_of_a_named_table_are_followed_piece_by_piece() {
    in_namespace(|| {
        let (_there, mut mirror) = bed();
        mirror.follow_tables(TABLES.into()).expect("the mirror follows");
        for table in TABLES {
            let mut step = |command: &str, prefix: &str, len: u8, expected: &[(&str, u32)]| {
                ip(&format!("{command} table {table}"));
                assert!(mirror.process().expect("the mirror follows").routes, "{command}");
                let expected: Vec<_> = expected.iter().map(|(ip, w)| (addr(ip), *w)).collect();
                assert_eq!(gateways(mirror.state(), table, prefix, len), expected, "{command}");
                equals_fresh(&mut mirror, command);
            };
            let (v6, v4) = ("2001:db8:7::", "198.51.100.0");
            let (a, b, c) = (("2001:db8::2", 1), ("2001:db8::3", 1), ("2001:db8::4", 1));
            step("-6 route add 2001:db8:7::/48 via 2001:db8::2", v6, 48, &[a]);
            step("-6 route append 2001:db8:7::/48 via 2001:db8::4", v6, 48, &[a, c]);
            step("-6 route append 2001:db8:7::/48 via 2001:db8::3", v6, 48, &[a, b, c]);
            step("-6 route del 2001:db8:7::/48 via 2001:db8::2", v6, 48, &[b, c]);
            step("-6 route replace 2001:db8:7::/48 via 2001:db8::2", v6, 48, &[a]);
            step("-6 route del 2001:db8:7::/48", v6, 48, &[]);

            // `ip` wants the table before the next hops.
            ip(&format!(
                "route add 198.51.100.0/24 table {table} \
                 nexthop via 192.0.2.2 weight 3 nexthop via 192.0.2.3"
            ));
            let hops = [("192.0.2.2", 3), ("192.0.2.3", 1)];
            step("route add 203.0.113.0/24 via 192.0.2.2", v4, 24, &hops);
            step("route change 203.0.113.0/24 via 192.0.2.3", v4, 24, &hops);
        }
        // The kernel flushes the routes of every table with the link; of IPv4 it says nothing.
        ip("link set slx0 down");
        assert!(mirror.process().expect("the mirror follows").routes);
        assert_eq!(numbers(mirror.state()), BTreeSet::new());
        equals_fresh(&mut mirror, "after the link went down");
    });
}

/// Two networks with the same addresses, each with a table and a link.
#[test]
fn a_lookup_in_one_table_counts_the_addresses_of_its_network_alone() {
    in_namespace(|| {
        let (_there, mut mirror) = bed();
        for line in [
            "link add slxp type veth peer name slxq",
            "link set slxp up",
            "link set slxq up",
            "addr add 192.0.2.2/24 dev slxp noprefixroute",
            "route add 192.0.2.0/24 dev slx0 table 100",
            "route add 192.0.2.0/24 dev slxp table 70000",
            "route add default via 192.0.2.254 table 70000",
            "route add throw 198.51.100.0/24 table 70000",
            "route add unreachable 203.0.113.0/24 table 100",
        ] {
            ip(line);
        }
        mirror.follow_tables(TABLES.into()).expect("the mirror follows");
        let (front, back) = (index(&mirror, "slx0"), index(&mirror, "slxp"));
        let state = mirror.state();
        let of = |ifindex: u32, table: u32, to: &str| {
            lookup_in(state, Table::Other(table), addr(to), |link| link == ifindex)
        };
        let to =
            |ifindex, ip| RouteResult::NextHops(vec![Target { ifindex, ip: addr(ip), weight: 1 }]);
        assert_eq!(of(front, 100, "192.0.2.1"), RouteResult::Local);
        assert_eq!(of(front, 100, "192.0.2.2"), to(front, "192.0.2.2"));
        assert_eq!(of(back, 70_000, "192.0.2.2"), RouteResult::Local);
        assert_eq!(of(back, 70_000, "192.0.2.1"), to(back, "192.0.2.1"));
        assert_eq!(of(back, 70_000, "203.0.113.1"), to(back, "192.0.2.254"));
        assert_eq!(of(front, 100, "203.0.113.1"), RouteResult::Unreachable);
        assert_eq!(of(back, 70_000, "198.51.100.1"), RouteResult::NoRoute);
        assert_eq!(of(front, 100, "198.51.100.1"), RouteResult::NoRoute);
        assert_eq!(of(front, 100, "127.0.0.1"), RouteResult::Local);
        assert_eq!(of(front, 100, "224.0.0.1"), RouteResult::NoRoute);
        assert_eq!(of(front, 101, "192.0.2.9"), RouteResult::NoRoute);
        // What the other tables say is nothing to `main`, and `main` alone is a table too.
        assert_eq!(lookup(state, addr("203.0.113.1")), RouteResult::NoRoute);
        assert_eq!(lookup(state, addr("192.0.2.2")), RouteResult::Local);
        let main = lookup_in(state, Table::Main, addr("192.0.2.2"), |link| link == front);
        assert_eq!(main, to(front, "192.0.2.2"));
        assert!(state.is_local_on(addr("192.0.2.2"), |link| link == back));
        assert!(!state.is_local_on(addr("192.0.2.2"), |link| link == front));
    });
}
