//! Grammar and output, without a kernel.

use std::net::IpAddr;

use sluice_api::model::Worker;
use sluice_linux::{GreHeader, ListedAddress, ListedRoute, Tunnel, TunnelMode};

use super::link::Counts;
use super::words::{Family, Line, Parsed, parse};
use super::{addr, is_named, link, route, tunnel};

fn line(text: &str) -> Line {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    match parse(&words).unwrap_or_else(|wrong| panic!("{text}: {wrong}")) {
        Parsed::Line(line) => line,
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    match parse(&words) {
        Err(wrong) => wrong.to_string(),
        Ok(Parsed::Line(mut line)) => match line.object.as_str() {
            "addr" => addr::read(&mut line.rest).expect_err(text).to_string(),
            "tunnel" => tunnel::read(&mut line.rest).expect_err(text).to_string(),
            _ => route::read(&mut line.rest).expect_err(text).to_string(),
        },
        Ok(other) => panic!("{text}: {other:?}"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn options_stand_anywhere() {
    let found = line("-s link -i 2 show -c 3 front");
    assert_eq!((found.object.as_str(), found.command.as_str()), ("link", "show"));
    assert_eq!((found.statistics, found.interval_s, found.count), (true, Some(2), Some(3)));
    assert_eq!(line("addr show -6").family, Some(Family::Ipv6));
    assert_eq!(line("-f inet route show").family, Some(Family::Ipv4));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for help in ["", "-h", "help", "addr help", "addr add -h"] {
        assert_eq!(parse(&words(help)).ok(), Some(Parsed::Help), "{help}");
    }
    assert_eq!(parse(&words("-V")).ok(), Some(Parsed::Version));
    assert!(refused("-x addr show").starts_with("invalid parameter\n"));
    assert!(refused("addr show -i").contains("-i needs a value"));
}

#[test]
fn an_address_of_dpvs_is_understood() {
    let mut found = line("addr add 192.0.2.10/32 dev dpdk0 sapool");
    let said = addr::read(&mut found.rest).expect("right");
    assert_eq!(said.address, Some((ip("192.0.2.10"), 32)));
    assert_eq!((said.device.as_deref(), said.sapool), (Some("dpdk0"), true));
    let mut bare = line("addr add 2001:db8::1 dev dpdk0 scope link valid_lft forever");
    let said = addr::read(&mut bare.rest).expect("right");
    assert_eq!(said.address, Some((ip("2001:db8::1"), 128)), "all bits without a length");
    assert!(refused("addr add 192.0.2.10/33 dev x").contains("at most 32"));
    assert!(refused("addr add 192.0.2.300 dev x").contains("no address"));
    assert!(refused("addr add 192.0.2.10 dev").contains("dev needs a value"));
    assert!(refused("addr add 192.0.2.10 dev x scope far").contains("no scope"));
    assert!(refused("addr add 192.0.2.10 dev x what").contains("what is not understood"));
}

#[test]
fn a_route_of_dpvs_is_understood() {
    let mut found = line("route add default via 192.0.2.1 src 192.0.2.2 dev dpdk0 mtu 1400");
    let said = route::read(&mut found.rest).expect("right");
    assert_eq!((said.to, said.via), (Some(None), Some(ip("192.0.2.1"))));
    let mut host = line("route add 192.0.2.9/32 scope kni_host dev dpdk0");
    assert!(route::read(&mut host.rest).expect("right").for_kernel);
    assert!(refused("route add 192.0.2.0/24 via nobody").contains("via nobody"));
    assert!(refused("route add 192.0.2.0/24 mtu 10").contains("from 68"));
    assert!(refused("route add 192.0.2.0/24 default").contains("default is not understood"));
}

#[test]
fn a_tunnel_of_dpvs_is_understood_and_shown() {
    let mut plain = line("tunnel add mode ipip ipip1 local 198.51.100.1 remote 203.0.113.1");
    let said = tunnel::read(&mut plain.rest).expect("right");
    assert_eq!((said.name.as_deref(), said.mode), (Some("ipip1"), Some(TunnelMode::Ipip)));
    let ends = Tunnel {
        local: "198.51.100.1".parse().ok(),
        remote: "203.0.113.1".parse().ok(),
        ..Tunnel::default()
    };
    assert_eq!(said.rest, ends);
    assert_eq!(
        tunnel::one("ipip1", &said.rest, None),
        "ipip1: ipip remote 203.0.113.1 local 198.51.100.1 ttl inherit \n"
    );
    let mut keyed = line(
        "tunnel change gre1 type gre remote any local 198.51.100.1 dev dpdk0 ttl 64 tos inherit \
         icsum okey 1.2.3.4 oseq",
    );
    let said = tunnel::read(&mut keyed.rest).expect("right");
    assert_eq!((said.device.as_deref(), said.rest.ttl), (Some("dpdk0"), Some(64)));
    let received = GreHeader { checksum: true, key: None, sequence: false };
    let sent = GreHeader { checksum: false, key: Some(0x0102_0304), sequence: true };
    assert_eq!((said.rest.received, said.rest.sent), (received, sent));
    let gre = Tunnel { mode: TunnelMode::Gre, ..said.rest };
    assert_eq!(
        tunnel::one("gre1", &gre, said.device),
        "gre1:  gre remote 0.0.0.0 local 198.51.100.1 dev dpdk0 ttl 64 tos 0x1 i_flags 0x1 \
         o_flags 0xc o_key 0x1020304 \n"
    );
    let mut both = line("tunnel add mode gre key 7 seq csum ttl inherit tos 8");
    let said = tunnel::read(&mut both.rest).expect("right").rest;
    let all = GreHeader { checksum: true, key: Some(7), sequence: true };
    assert_eq!((said.received, said.sent, said.ttl, said.tos), (all, all, None, 8));
    assert!(refused("tunnel add x mode sit").contains("ipip or gre"));
    assert!(refused("tunnel add x remote 2001:db8::1").contains("ip6tnl"));
    assert!(refused("tunnel add x ttl 0").contains("from 1 to 255"));
    assert!(refused("tunnel add x tos 256").contains("from 0 to 255"));
    assert!(refused("tunnel add x ikey what").contains("ikey what: a number"));
    assert!(refused("tunnel add x okey").contains("okey needs a value"));
    assert!(refused("tunnel add x y").contains("y is not understood"));
}

#[test]
fn lines_are_those_of_dpvs() {
    let address = ListedAddress {
        ifindex: 1,
        ip: ip("192.0.2.100"),
        prefix_len: 32,
        scope: 0,
        valid_s: None,
        preferred_s: None,
    };
    assert_eq!(
        addr::one(&address, "dpdk1"),
        "inet 192.0.2.100/32 scope global dpdk1\n     valid_lft forever preferred_lft forever\n"
    );
    let plain = ListedRoute {
        prefix: ip("198.51.100.0"),
        prefix_len: 24,
        local: false,
        via: None,
        source: None,
        ifindex: 1,
        mtu: None,
        tos: 0,
        scope: 253,
        metric: 0,
        protocol: 2,
    };
    assert_eq!(
        route::one(&plain, "dpdk0", 1500),
        "inet 198.51.100.0/24 via 0.0.0.0 src 0.0.0.0 dev dpdk0 mtu 1500 tos 0 scope link \
         metric 0 proto auto \n"
    );
    let via = Some(ip("2001:db8::1"));
    let six = ListedRoute { prefix: ip("::"), prefix_len: 0, via, scope: 0, ..plain };
    assert_eq!(
        route::one(&six, "dpdk0", 1500),
        "inet6 default via 2001:db8::1 dev dpdk0 mtu 1500 scope global\n"
    );
    let host = ListedRoute { local: true, ..plain };
    assert!(route::one(&host, "dpdk0", 1500).contains(" scope host "));
}

#[test]
fn counters_stand_below_their_names() {
    let text = link::rows(Counts([1, 22, 333, 4444, 5, 6, 7, 8]));
    let lines: Vec<&str> = text.lines().collect();
    let names = "    ipackets            opackets            ibytes              obytes";
    let values = "    1                   22                  333                 4444";
    assert_eq!((lines[0].trim_end(), lines[1].trim_end()), (names, values));
    assert_eq!(lines[2].split_whitespace().next(), Some("ierrors"));
    assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["5", "6", "7", "8"]);
}

#[test]
fn workers_are_the_cores() {
    let worker = Worker {
        worker: 0,
        core: 3,
        sessions: 7,
        session_capacity: 10,
        packets: 99,
        turns: 1000,
        empty_turns: 900,
        sleeps: 5,
        held_frames: 0,
        busy_share: 0.1,
    };
    let text = link::core_rows(std::slice::from_ref(&worker), None, true);
    assert!(text.contains("3: cpu3: worker 0"), "{text}");
    let values = text.lines().nth(3).expect("values").split_whitespace().collect::<Vec<_>>();
    assert_eq!(values, ["1000", "100", "900"], "turns, those with packets, those without");
    assert!(!link::core_rows(&[worker], Some(4), true).contains("cpu3"));
}

#[test]
fn the_name_decides() {
    use std::ffi::OsStr;
    for (name, is) in [("dpip", true), ("/usr/sbin/dpip", true), ("sluice", false), ("", false)] {
        assert_eq!(is_named(Some(OsStr::new(name))), is, "{name}");
    }
    assert!(!is_named(None));
}
