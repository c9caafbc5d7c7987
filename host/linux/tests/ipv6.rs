//! What is particular to IPv6: routers by their link-local addresses, routes that routers announce,
//! addresses that are probed before they are used.

mod bed;

use std::net::IpAddr;

use bed::{Host, LATER, SOON, addr, equals_fresh, in_namespace, index, ip, pair, sysctl, until};
use sluice_linux::{Kernel, Mirror, RouteResult, Table, lookup};

const ROUTER: &str = "fe80::1";
const FIRST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
const SECOND_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x22];

/// Where a destination's packets go, as links and neighbours.
fn next_hops(kernel: &Kernel, to: &str) -> Vec<(u32, IpAddr)> {
    match lookup(kernel, addr(to)) {
        RouteResult::NextHops(targets) => targets.iter().map(|t| (t.ifindex, t.ip)).collect(),
        _ => Vec::new(),
    }
}

fn mac_of(kernel: &Kernel, ifindex: u32, ip: &str) -> Option<[u8; 6]> {
    kernel.neighbour(ifindex, addr(ip))?.usable_mac()
}

/// A pair whose addresses are in use at once, the far end with the first MAC and a router's
/// link-local address; and a mirror.
fn bed() -> (Host, Mirror, u32) {
    let there = Host::new();
    sysctl("net/ipv6/conf/default/accept_dad", "0");
    there.sysctl("net/ipv6/conf/default/accept_dad", "0");
    pair(&there);
    there.ip("link set slx1 address 02:00:00:00:00:11");
    there.ip(&format!("addr add {ROUTER}/64 dev slx1 nodad"));
    let mut mirror = Mirror::open().expect("the mirror opens");
    let ifindex = index(&mirror, "slx0");
    until(&mut mirror, LATER, "the link is up and has its addresses", |kernel| {
        let own = kernel.addresses().filter(|address| address.ifindex == ifindex);
        kernel.link(ifindex).is_some_and(sluice_linux::Link::is_up)
            && own.filter(|address| !address.tentative).count() == 3
    });
    (there, mirror, ifindex)
}

/// Has the kernel resolve the router, which may not listen yet just after it got its address.
fn resolve_router(mirror: &mut Mirror, ifindex: u32, mac: [u8; 6]) {
    mirror.resolve(ifindex, addr(ROUTER)).expect("the kernel takes the request");
    until(mirror, LATER, "the router is resolved", |kernel| {
        mac_of(kernel, ifindex, ROUTER) == Some(mac)
    });
}

#[test]
fn a_route_by_a_link_local_router_is_followed_to_its_mac() {
    in_namespace(|| {
        let (there, mut mirror, ifindex) = bed();
        ip(&format!("-6 route add default via {ROUTER} dev slx0"));
        let (_, changed) = until(&mut mirror, SOON, "the default route is there", |kernel| {
            next_hops(kernel, "2001:db8:9::1") == [(ifindex, addr(ROUTER))]
        });
        assert!(changed.routes);
        let route = &mirror.state().routes_of(Table::Main, addr("::"), 0)[0];
        assert_eq!((route.metric, route.hops.len()), (1024, 1));

        resolve_router(&mut mirror, ifindex, FIRST_MAC);
        there.sysctl("net/ipv6/conf/slx1/ndisc_notify", "1");
        there.ip("link set slx1 address 02:00:00:00:00:22");
        let (_, changed) = until(&mut mirror, LATER, "the router's new MAC is known", |kernel| {
            mac_of(kernel, ifindex, ROUTER) == Some(SECOND_MAC)
        });
        assert!(changed.neighbours && !changed.routes, "{changed:?}");

        ip("-6 route del default");
        until(&mut mirror, SOON, "the default route is gone", |kernel| {
            lookup(kernel, addr("2001:db8:9::1")) == RouteResult::NoRoute
        });
    });
}

/// One link-local address may be another router on each link.
#[test]
fn link_local_routers_are_told_apart_by_their_links() {
    in_namespace(|| {
        let (there, mut mirror, first) = bed();
        let other = Host::new();
        other.sysctl("net/ipv6/conf/default/accept_dad", "0");
        ip(&format!("link add slx2 type veth peer name slx3 netns {}", other.id));
        ip("link set slx2 up");
        other.ip("link set slx3 address 02:00:00:00:00:22 up");
        other.ip(&format!("addr add {ROUTER}/64 dev slx3 nodad"));
        ip(&format!(
            "-6 route add 2001:db8:7::/48 nexthop via {ROUTER} dev slx0 \
             nexthop via {ROUTER} dev slx2"
        ));
        mirror.process().expect("the mirror follows");
        let second = index(&mirror, "slx2");
        let both = [(first, addr(ROUTER)), (second, addr(ROUTER))];
        until(&mut mirror, LATER, "a link-local address of our own", |kernel| {
            next_hops(kernel, "2001:db8:7::1") == both
                && kernel.addresses().any(|own| own.ifindex == second && !own.tentative)
                && kernel.link(second).is_some_and(sluice_linux::Link::is_up)
        });
        resolve_router(&mut mirror, first, FIRST_MAC);
        resolve_router(&mut mirror, second, SECOND_MAC);
        assert_eq!(mac_of(mirror.state(), first, ROUTER), Some(FIRST_MAC));

        ip("link set slx0 down");
        until(&mut mirror, SOON, "the other router is left", |kernel| {
            next_hops(kernel, "2001:db8:7::1") == [(second, addr(ROUTER))]
        });
        equals_fresh(&mut mirror, "after a link of a multipath route went down");
        drop(there);
    });
}

#[test]
fn routes_that_drop_come_and_go() {
    in_namespace(|| {
        let (_there, mut mirror, ifindex) = bed();
        ip(&format!("-6 route add default via {ROUTER} dev slx0"));
        for (kind, expected) in [
            ("blackhole", RouteResult::Blackhole),
            ("unreachable", RouteResult::Unreachable),
            ("prohibit", RouteResult::Unreachable),
        ] {
            ip(&format!("-6 route add {kind} 2001:db8:7::/48"));
            until(&mut mirror, SOON, kind, |kernel| {
                lookup(kernel, addr("2001:db8:7::1")) == expected
            });
            assert_eq!(next_hops(mirror.state(), "2001:db8:8::1"), [(ifindex, addr(ROUTER))]);
            ip(&format!("-6 route del {kind} 2001:db8:7::/48"));
            until(&mut mirror, SOON, "the default route counts again", |kernel| {
                next_hops(kernel, "2001:db8:7::1") == [(ifindex, addr(ROUTER))]
            });
        }
    });
}

/// An address counts as the machine's from the start, and is known to be unused until duplicate
/// address detection is through.
#[test]
fn an_added_address_is_tentative_first() {
    in_namespace(|| {
        let (there, mut mirror, ifindex) = bed();
        sysctl("net/ipv6/conf/slx0/accept_dad", "1");
        let find = |kernel: &Kernel, ip: &str| -> Option<bool> {
            let mut own = kernel.addresses().filter(|own| own.ifindex == ifindex);
            own.find(|own| own.ip == addr(ip)).map(|own| own.tentative)
        };
        ip("addr add 2001:db8::5/64 dev slx0");
        let (_, changed) = until(&mut mirror, SOON, "the address is there", |kernel| {
            find(kernel, "2001:db8::5").is_some()
        });
        assert!(changed.addresses);
        assert_eq!(find(mirror.state(), "2001:db8::5"), Some(true), "it is probed first");
        let (_, changed) = until(&mut mirror, LATER, "the address is in use", |kernel| {
            find(kernel, "2001:db8::5") == Some(false)
        });
        assert!(changed.addresses);

        // One that the other end has already stays unused.
        there.ip("addr add 2001:db8::6/64 dev slx1 nodad");
        ip("addr add 2001:db8::6/64 dev slx0");
        let failed = || {
            bed::ip_json("-j addr show dev slx0")[0]["addr_info"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["dadfailed"] == true))
        };
        until(&mut mirror, LATER, "the duplicate is found", |_| failed());
        mirror.process().expect("the mirror follows");
        assert_eq!(find(mirror.state(), "2001:db8::6"), Some(true));
        ip("addr del 2001:db8::6/64 dev slx0");
        until(&mut mirror, SOON, "the address is gone", |kernel| {
            find(kernel, "2001:db8::6").is_none()
        });
    });
}

/// A router advertisement as scapy makes it.
const ADVERTISE: &str = "
from scapy.all import Ether, IPv6, ICMPv6ND_RA, ICMPv6NDOptPrefixInfo, ICMPv6NDOptSrcLLAddr, sendp
lifetime = int(__import__('sys').argv[1])
sendp(Ether(src='02:00:00:00:00:11', dst='33:33:00:00:00:01') / IPv6(src='fe80::1', dst='ff02::1')
      / ICMPv6ND_RA(routerlifetime=lifetime) / ICMPv6NDOptSrcLLAddr(lladdr='02:00:00:00:00:11')
      / ICMPv6NDOptPrefixInfo(prefix='2001:db8:77::', prefixlen=64), iface='slx1', verbose=False)
";

fn advertise(there: &Host, lifetime_s: u32) {
    there.run(move || {
        let run = std::process::Command::new("/usr/bin/python3")
            .args(["-c", ADVERTISE, &lifetime_s.to_string()])
            .output()
            .expect("python runs");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    });
}

/// What a router announces: the default route, its MAC, a prefix and with it an address.
#[test]
fn a_router_advertisement_is_followed() {
    in_namespace(|| {
        let (there, mut mirror, ifindex) = bed();
        sysctl("net/ipv6/conf/slx0/accept_ra", "2");
        advertise(&there, 1800);
        let (_, changed) = until(&mut mirror, LATER, "the announced default route", |kernel| {
            next_hops(kernel, "2001:db8:9::1") == [(ifindex, addr(ROUTER))]
                && mac_of(kernel, ifindex, ROUTER) == Some(FIRST_MAC)
                && next_hops(kernel, "2001:db8:77::7") == [(ifindex, addr("2001:db8:77::7"))]
        });
        assert!(changed.routes && changed.neighbours, "{changed:?}");
        let prefix = addr("2001:db8:77::");
        let is_of_prefix = |ip: IpAddr| match (ip, prefix) {
            (IpAddr::V6(ip), IpAddr::V6(prefix)) => ip.segments()[..4] == prefix.segments()[..4],
            _ => false,
        };
        until(&mut mirror, LATER, "an address of the announced prefix", |kernel| {
            kernel.addresses().any(|own| is_of_prefix(own.ip) && !own.tentative)
        });
        // The router says that it is none any more.
        advertise(&there, 0);
        until(&mut mirror, LATER, "the default route is gone", |kernel| {
            lookup(kernel, addr("2001:db8:9::1")) == RouteResult::NoRoute
        });
        equals_fresh(&mut mirror, "after the router left");
    });
}
