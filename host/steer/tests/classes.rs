//! Every class of what the program takes, and what it leaves beside it, the same for both families:
//! each row is run with IPv4 addresses and with these at the end of 2001:db8::/96.

mod bench;

use std::net::{IpAddr, Ipv4Addr};

use bench::Fate::{Director, Kernel};
use bench::scene::{
    ALL_UDP, ANY, ANY_REAL, CLIENT, Carried, ESP, HALF_INSIDE, INSIDE, LADDR, OUTSIDE, OWN,
    PLAIN_LADDR, RANGE_REAL, REAL, SCTP, TCP, UDP, VIP, at, ethernet, matches, run,
};
use bench::scene::{Other, Ping, Pong, Ports};
use bench::{Bench, needs_root};
use sluice_steer::{EndpointMatch, Error, Matches, Network, SnatMatch};

#[test]
fn services_of_ports_ranges_and_protocols() {
    needs_root!();
    run(|_| {
        let mut rows = vec![
            ("one port", CLIENT, VIP, Ports(TCP, 40_000, 80), Director),
            ("beside it", CLIENT, VIP, Ports(TCP, 40_000, 81), Kernel),
            ("the first of a range", CLIENT, VIP, Ports(TCP, 40_000, 8000), Director),
            ("in a range", CLIENT, VIP, Ports(TCP, 40_000, 8063), Director),
            ("the last of a range", CLIENT, VIP, Ports(TCP, 40_000, 8099), Director),
            ("before a range", CLIENT, VIP, Ports(TCP, 40_000, 7999), Kernel),
            ("behind a range", CLIENT, VIP, Ports(TCP, 40_000, 8100), Kernel),
            ("the range's ports by UDP", CLIENT, VIP, Ports(UDP, 40_000, 8050), Kernel),
            ("SCTP, all ports", CLIENT, VIP, Ports(SCTP, 40_000, 38_412), Director),
            ("SCTP elsewhere", CLIENT, ALL_UDP, Ports(SCTP, 40_000, 38_412), Kernel),
            ("ssh", CLIENT, VIP, Ports(TCP, 40_000, 22), Kernel),
            ("ping", CLIENT, VIP, Ping(1500), Kernel),
            ("ESP to services of ports", CLIENT, VIP, Other(ESP), Kernel),
            ("UDP, all ports", CLIENT, ALL_UDP, Ports(UDP, 40_000, 1), Director),
            ("UDP, all ports: the last", CLIENT, ALL_UDP, Ports(UDP, 40_000, 65_535), Director),
            ("TCP there", CLIENT, ALL_UDP, Ports(TCP, 40_000, 80), Kernel),
            ("ping to all UDP ports", CLIENT, ALL_UDP, Ping(1500), Kernel),
            ("everything: TCP", CLIENT, ANY, Ports(TCP, 40_000, 22), Director),
            ("everything: UDP", CLIENT, ANY, Ports(UDP, 40_000, 22), Director),
            ("everything: SCTP", CLIENT, ANY, Ports(SCTP, 40_000, 22), Director),
            ("everything: ESP", CLIENT, ANY, Other(ESP), Director),
            ("everything: GRE", CLIENT, ANY, Other(47), Director),
            ("everything: IP in IP", CLIENT, ANY, Other(4), Director),
            ("but ping", CLIENT, ANY, Ping(1500), Kernel),
            ("but answers to ping", CLIENT, ANY, Pong(1500), Kernel),
            ("from an own port to a service", OWN[0], VIP, Ports(TCP, 40_000, 80), Director),
        ];
        for never in [1, 2, 58, 89, 112] {
            rows.push(("but what the kernel lives by", CLIENT, ANY, Other(never), Kernel));
        }
        rows
    });
}

/// The first ports of an address are looked up another way than those beyond.
#[test]
fn services_of_many_ports_at_one_address() {
    needs_root!();
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let ports = [22, 53, 80, 443, 8080, 8443, 9000];
        for count in 0..=ports.len() {
            let of = |protocol, port| EndpointMatch::port(protocol, at(v6, VIP), port);
            let tcp = ports[..count].iter().map(|port| of(TCP, *port));
            let services = tcp.chain([of(UDP, 5353), of(SCTP, 38_412)]).collect();
            bench.steer.set(&Matches { services, ..Matches::default() }).unwrap();
            for (number, port) in ports.into_iter().enumerate() {
                let mut fate = |protocol| {
                    bench.fate(&ethernet(v6, CLIENT, VIP, &Ports(protocol, 40_000, port)))
                };
                let expected = if number < count { Director } else { Kernel };
                assert_eq!(fate(TCP), expected, "port {port} of {count}");
                assert_eq!((fate(UDP), fate(SCTP)), (Kernel, Kernel), "port {port} of {count}");
            }
            for (protocol, port) in [(UDP, 5353), (SCTP, 38_412)] {
                let frame = ethernet(v6, CLIENT, VIP, &Ports(protocol, 40_000, port));
                assert_eq!(bench.fate(&frame), Director, "beside {count} ports");
            }
            if !v6 {
                // Unused places of the short list have protocol 0 and port 0.
                let nothing = ethernet(v6, CLIENT, VIP, &Other(0));
                assert_eq!(bench.fate(&nothing), Kernel);
            }
        }
    }
}

#[test]
fn replies_to_local_addresses() {
    needs_root!();
    run(|_| {
        vec![
            ("TCP to the pool", REAL, LADDR, Ports(TCP, 80, 1024), Director),
            ("UDP to the pool", REAL, LADDR, Ports(UDP, 80, 2047), Director),
            ("SCTP to the pool", REAL, LADDR, Ports(SCTP, 80, 1024), Kernel),
            ("below the pool", REAL, LADDR, Ports(TCP, 80, 1023), Kernel),
            ("above the pool", REAL, LADDR, Ports(TCP, 80, 2048), Kernel),
            ("ESP", REAL, LADDR, Other(ESP), Kernel),
            ("an answer to ping", OUTSIDE, LADDR, Pong(1500), Director),
            ("an answer to the host's own ping", OUTSIDE, LADDR, Pong(3000), Kernel),
            ("ping", OUTSIDE, LADDR, Ping(1500), Kernel),
            ("an answer to ping, no source NAT", OUTSIDE, PLAIN_LADDR, Pong(1500), Kernel),
        ]
    });
}

#[test]
fn replies_of_nat_real_servers() {
    needs_root!();
    run(|_| {
        vec![
            ("from the service's port", REAL, CLIENT, Ports(TCP, 8080, 40_000), Director),
            ("from another port", REAL, CLIENT, Ports(TCP, 22, 40_000), Kernel),
            ("by another protocol", REAL, CLIENT, Ports(UDP, 8080, 40_000), Kernel),
            ("from another host", "192.0.2.14", CLIENT, Ports(TCP, 8080, 40_000), Kernel),
            ("to the machine itself", REAL, OWN[1], Ports(TCP, 8080, 40_000), Kernel),
            ("to its other address", REAL, OWN[0], Ports(TCP, 8080, 40_000), Kernel),
            ("to the VIP's own services", REAL, VIP, Ports(TCP, 8080, 22), Kernel),
            ("to a service", REAL, VIP, Ports(TCP, 8080, 80), Director),
            ("from a range", RANGE_REAL, CLIENT, Ports(UDP, 5002, 40_000), Director),
            ("behind a range", RANGE_REAL, CLIENT, Ports(UDP, 5004, 40_000), Kernel),
            ("of every protocol", ANY_REAL, CLIENT, Other(ESP), Director),
            ("of every protocol: TCP", ANY_REAL, CLIENT, Ports(TCP, 22, 40_000), Director),
            ("but ping", ANY_REAL, CLIENT, Ping(1), Kernel),
            ("but OSPF", ANY_REAL, CLIENT, Other(89), Kernel),
            ("every protocol to the machine", ANY_REAL, OWN[0], Ports(TCP, 22, 22), Kernel),
        ]
    });
}

#[test]
fn connections_of_source_nat() {
    needs_root!();
    run(|_| {
        vec![
            ("TCP to the outside", INSIDE, OUTSIDE, Ports(TCP, 40_000, 443), Director),
            ("UDP to the outside", INSIDE, OUTSIDE, Ports(UDP, 40_000, 53), Director),
            ("ping to the outside", INSIDE, OUTSIDE, Ping(7), Director),
            ("an answer to ping", INSIDE, OUTSIDE, Pong(7), Kernel),
            ("SCTP", INSIDE, OUTSIDE, Ports(SCTP, 40_000, 443), Kernel),
            ("ESP", INSIDE, OUTSIDE, Other(ESP), Kernel),
            ("to its own network", INSIDE, "192.0.2.131", Ports(TCP, 40_000, 443), Kernel),
            ("to the machine", INSIDE, OWN[1], Ports(UDP, 40_000, 53), Kernel),
            ("ping to the machine", INSIDE, OWN[0], Ping(7), Kernel),
            ("ping to the VIP", INSIDE, VIP, Ping(7), Kernel),
            ("to a service", INSIDE, VIP, Ports(TCP, 40_000, 80), Director),
            ("to the VIP's ssh", INSIDE, VIP, Ports(TCP, 40_000, 22), Kernel),
            ("from outside", OUTSIDE, INSIDE, Ports(TCP, 443, 40_000), Kernel),
            ("the other rule", HALF_INSIDE, OUTSIDE, Ports(TCP, 40_000, 443), Director),
            ("its other protocol", HALF_INSIDE, OUTSIDE, Ports(UDP, 40_000, 443), Kernel),
            ("its ping", HALF_INSIDE, OUTSIDE, Ping(7), Kernel),
            ("its other destinations", HALF_INSIDE, CLIENT, Ports(TCP, 40_000, 443), Kernel),
            ("inside to inside", HALF_INSIDE, INSIDE, Ports(TCP, 40_000, 443), Kernel),
        ]
    });
}

/// A frame's fragments: first (more to come) or later ones.
fn fragment(v6: bool, from: &str, to: &str, carried: &Carried, id: u8, first: bool) -> Vec<u8> {
    let mut frame = ethernet(v6, from, to, carried);
    if !v6 {
        frame[19] = id;
        let field: u16 = if first { 0x2000 } else { 185 };
        frame[20..22].copy_from_slice(&field.to_be_bytes());
        return frame;
    }
    let next = std::mem::replace(&mut frame[20], 44);
    let field: u16 = if first { 1 } else { 185 << 3 };
    let [high, low] = field.to_be_bytes();
    frame.splice(54..54, [next, 0, high, low, 0, 0, 0, id]);
    frame
}

/// Later fragments have no ports: they follow the first one, or else what is taken at all.
#[test]
fn fragments_follow_the_first() {
    needs_root!();
    for v6 in [false, true] {
        let mut bench = Bench::configured(&matches(v6));
        let rows = [
            ("a range", CLIENT, VIP, Ports(TCP, 1, 8001), Director),
            ("beside a range", CLIENT, VIP, Ports(TCP, 1, 9001), Kernel),
            ("everything", CLIENT, ANY, Ports(TCP, 1, 9001), Director),
            ("the pool", REAL, LADDR, Ports(UDP, 1, 1500), Director),
            ("the host's port of a local address", REAL, LADDR, Ports(UDP, 1, 22), Kernel),
            ("answers to ping", OUTSIDE, LADDR, Pong(1500), Director),
            ("answers to the host's ping", OUTSIDE, LADDR, Pong(3000), Kernel),
            ("ping to a local address", OUTSIDE, LADDR, Ping(1500), Kernel),
            ("a NAT real server", REAL, CLIENT, Ports(TCP, 8080, 1), Director),
            ("its other port", REAL, CLIENT, Ports(TCP, 22, 1), Kernel),
            ("its port, to the machine", REAL, OWN[0], Ports(TCP, 8080, 1), Kernel),
            ("source NAT", INSIDE, OUTSIDE, Ports(UDP, 1, 53), Director),
            ("ping by source NAT", INSIDE, OUTSIDE, Ping(7), Director),
            ("to its own network", INSIDE, "192.0.2.131", Ports(UDP, 1, 53), Kernel),
        ];
        for (id, (what, from, to, carried, fate)) in (1..).zip(rows) {
            let part = |first| fragment(v6, from, to, &carried, id, first);
            assert_eq!(bench.fate(&part(true)), fate, "first: {what}");
            assert_eq!(bench.fate(&part(false)), fate, "later: {what}");
            assert_eq!(bench.fate(&part(false)), fate, "once more: {what}");
        }
        // Before its first one, a fragment goes where its protocol may be taken.
        let later = |port| fragment(v6, REAL, CLIENT, &Ports(TCP, port, 1), 99, false);
        assert_eq!(bench.fate(&later(22)), Director);
        // An identification that is used again means another datagram.
        let first = |port| fragment(v6, REAL, CLIENT, &Ports(TCP, port, 1), 99, true);
        assert_eq!(bench.fate(&first(22)), Kernel);
        assert_eq!(bench.fate(&later(22)), Kernel);
        assert_eq!(bench.fate(&first(8080)), Director);
        assert_eq!(bench.fate(&later(8080)), Director);
    }
}

/// Nothing is taken by source that is sent to a group or to a link's own addresses.
#[test]
fn groups_and_links_are_the_kernels() {
    needs_root!();
    let all = |v6| Matches {
        reals: vec![EndpointMatch { protocol: 0, address: at(v6, REAL), ports: 0..=u16::MAX }],
        snat: vec![SnatMatch {
            sources: vec![if v6 { Network::ALL_V6 } else { Network::ALL_V4 }],
            tcp: true,
            udp: true,
            icmp: true,
            ..SnatMatch::default()
        }],
        ..Matches::default()
    };
    let v4 = ["224.0.0.5", "255.255.255.255", "169.254.1.1", "127.0.0.1", "0.0.0.0"];
    let v6 = ["ff02::5", "ff0e::1", "fe80::1", "febf::1", "::1", "::"];
    let put = |to: IpAddr, group: bool| {
        let mut frame = ethernet(to.is_ipv6(), REAL, CLIENT, &Ports(UDP, 1, 2));
        match to {
            IpAddr::V4(to) => frame[30..34].copy_from_slice(&to.octets()),
            IpAddr::V6(to) => frame[38..54].copy_from_slice(&to.octets()),
        }
        // etherparse's frames go to 04:04:04:04:04:04.
        frame[0] |= u8::from(group);
        frame
    };
    for (is_v6, special) in [(false, &v4[..]), (true, &v6[..])] {
        let mut bench = Bench::configured(&all(is_v6));
        for to in special {
            assert_eq!(bench.fate(&put(to.parse().unwrap(), false)), Kernel, "{to}");
        }
        let ordinary = at(is_v6, CLIENT);
        assert_eq!(bench.fate(&put(ordinary, false)), Director);
        assert_eq!(bench.fate(&put(ordinary, true)), Kernel, "to a group of stations");
        let other = ethernet(!is_v6, INSIDE, OUTSIDE, &Ports(UDP, 1, 2));
        assert_eq!(bench.fate(&other), Kernel, "all addresses are those of one family");
    }
}

/// Rules that stay go on while others come and go.
#[test]
fn changes_leave_nothing_behind() {
    needs_root!();
    for v6 in [false, true] {
        let mut bench = Bench::configured(&matches(v6));
        let frame = |from, to, carried| ethernet(v6, from, to, &carried);
        let inside = frame(INSIDE, OUTSIDE, Ports(TCP, 1, 443));
        let half = frame(HALF_INSIDE, OUTSIDE, Ports(TCP, 1, 443));
        let mut fewer = matches(v6);
        fewer.snat.remove(0);
        bench.steer.set(&fewer).unwrap();
        assert_eq!((bench.fate(&inside), bench.fate(&half)), (Kernel, Director));
        fewer.own.push(at(v6, OUTSIDE));
        bench.steer.set(&fewer).unwrap();
        assert_eq!(bench.fate(&half), Kernel, "an address that became the machine's own");
        let changed = bench.steer.set(&Matches::default()).unwrap();
        assert_eq!(changed.added, 0);
        let held = bench.steer.set(&matches(v6)).unwrap();
        assert_eq!(held.removed, 0, "nothing was left");
        assert_eq!((bench.fate(&inside), bench.fate(&half)), (Director, Director));
    }
}

/// A map that is full says so, and what was there stays.
#[test]
fn a_full_map_says_so() {
    needs_root!();
    let mut bench = Bench::configured(&matches(false));
    let networks =
        (0..70_000_u32).map(|n| Network { address: Ipv4Addr::from(n << 8).into(), prefix: 24 });
    let mut too_many = matches(false);
    too_many.snat[1].destinations = networks.collect();
    let error = bench.steer.set(&too_many).unwrap_err();
    assert!(matches!(error, Error::Full { map: "outside", limit: 65_536 }), "{error}");
    assert!(error.to_string().contains("65536 entries"), "{error}");
    let service = ethernet(false, CLIENT, VIP, &Ports(TCP, 1, 80));
    assert_eq!(bench.fate(&service), Director);
    bench.steer.set(&matches(false)).unwrap();
    let half = ethernet(false, HALF_INSIDE, OUTSIDE, &Ports(TCP, 1, 443));
    assert_eq!(bench.fate(&half), Director);
}
