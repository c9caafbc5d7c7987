//! The kernel's tables as the path's.

use super::*;
use sluice_linux::{Neighbour, NeighbourState, NextHop, Route};

const PORT: PortId = PortId(3);
const DEFAULT: Scope = Scope::Default { foreign: BTreeSet::new() };

fn link(index: u32, name: &str, up: bool) -> sluice_linux::Link {
    sluice_linux::Link {
        index,
        name: name.into(),
        mac: Some([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        admin_up: up,
        carrier: up,
        ..sluice_linux::Link::default()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn route(prefix: &str, len: u8, metric: u32, via: Option<&str>, ifindex: u32) -> Route {
    Route {
        prefix: ip(prefix),
        prefix_len: len,
        table: Table::Main,
        metric,
        kind: RouteKind::Unicast,
        hops: vec![NextHop { gateway: via.map(ip), ifindex, weight: 1, onlink: false }],
        source: None,
        nexthop_id: None,
        protocol: 4,
    }
}

fn neighbour(ifindex: u32, address: &str) -> Neighbour {
    let state = NeighbourState::Reachable;
    Neighbour { ifindex, ip: ip(address), mac: Some([4; 6]), state }
}

fn build(kernel: &Kernel) -> (Fib, NextHops) {
    let mut hops = NextHops::default();
    let interfaces = [(PORT, "eth0".to_owned())];
    let fib = hops.build((kernel, &DEFAULT), &Plan::default(), &interfaces, &Fib::default());
    (fib, hops)
}

#[test]
fn the_kernels_choice_is_the_paths() {
    let mut kernel = Kernel::default();
    kernel.insert_link(link(1, "eth0", true));
    kernel.insert_link(link(2, "eth1", true));
    kernel.insert_route(route("198.51.100.0", 24, 0, None, 1));
    kernel.insert_route(route("0.0.0.0", 0, 20, Some("198.51.100.9"), 1));
    kernel.insert_route(route("0.0.0.0", 0, 10, Some("198.51.100.1"), 1));
    kernel.insert_route(route("203.0.113.0", 24, 0, None, 2));
    kernel.insert_neighbour(neighbour(1, "198.51.100.1"));
    kernel.insert_neighbour(neighbour(1, "198.51.100.48"));
    let (fib, hops) = build(&kernel);
    for address in ["198.51.100.48", "192.0.2.1"] {
        let hop = fib.hop(fib.lookup(ip(address)).unwrap()).unwrap();
        assert_eq!((hop.port, hop.macs[1]), (PORT, [2, 0, 0, 0, 0, 1]), "{address}");
    }
    let elsewhere = fib.lookup(ip("203.0.113.5"));
    assert_eq!(elsewhere, Err(sluice_director::fib::NoHop::NoRoute), "no port of ours");
    assert_eq!(hops.ifindex(LinkId(0)), Some(1));
    let gateways: Vec<_> = hops.wanted().collect();
    assert_eq!(gateways, [(1, ip("198.51.100.1")), (1, ip("198.51.100.9"))]);
}

#[test]
fn a_link_that_is_down_gives_way() {
    let mut kernel = Kernel::default();
    kernel.insert_link(link(1, "eth0", true));
    kernel.insert_link(link(2, "eth1", false));
    kernel.insert_route(route("0.0.0.0", 0, 10, Some("203.0.113.1"), 2));
    kernel.insert_route(route("0.0.0.0", 0, 20, Some("198.51.100.9"), 1));
    kernel.insert_neighbour(neighbour(1, "198.51.100.9"));
    assert!(build(&kernel).0.lookup(ip("192.0.2.1")).is_ok());
}

#[test]
fn a_vlan_is_a_link_of_its_port() {
    let mut kernel = Kernel::default();
    kernel.insert_link(link(1, "eth0", true));
    let mut vlan = link(5, "eth0.12", true);
    vlan.parent = Some(1);
    vlan.vlan = Some(sluice_linux::Vlan { id: 12, ethertype: 0x8100 });
    kernel.insert_link(vlan);
    kernel.insert_route(route("192.0.2.0", 24, 0, None, 5));
    kernel.insert_neighbour(neighbour(5, "192.0.2.11"));
    let (fib, _) = build(&kernel);
    let hop = fib.hop(fib.lookup(ip("192.0.2.11")).unwrap()).unwrap();
    assert_eq!((hop.port, hop.vlan), (PORT, 12));
}

/// The usual IPv6 default route, by a router's link-local address; other such neighbours, and
/// the routes to them that each link has, are nobody's next hop.
#[test]
fn a_link_local_router_is_a_next_hop() {
    let mut kernel = Kernel::default();
    kernel.insert_link(link(1, "eth0", true));
    kernel.insert_link(link(2, "eth1", true));
    kernel.insert_route(route("fe80::", 64, 256, None, 1));
    kernel.insert_route(route("2001:db8:1::", 64, 256, None, 1));
    kernel.insert_route(route("::", 0, 1024, Some("fe80::1"), 1));
    kernel.insert_neighbour(neighbour(1, "fe80::1"));
    // The same address on another link is another router.
    kernel.insert_neighbour(neighbour(2, "fe80::1"));
    kernel.insert_neighbour(neighbour(1, "2001:db8:1::48"));
    let (fib, hops) = build(&kernel);
    for address in ["2001:db8:9::1", "2001:db8:1::48"] {
        let hop = fib.hop(fib.lookup(ip(address)).unwrap()).unwrap();
        assert_eq!((hop.port, hop.macs[1]), (PORT, [2, 0, 0, 0, 0, 1]), "{address}");
    }
    assert_eq!(hops.wanted().collect::<Vec<_>>(), [(1, ip("fe80::1"))]);

    let generation = fib.generation();
    let again = |kernel: &Kernel| {
        let interfaces = [(PORT, "eth0".to_owned())];
        NextHops::default()
            .build((kernel, &DEFAULT), &Plan::default(), &interfaces, &fib)
            .generation()
    };
    kernel.insert_neighbour(neighbour(1, "fe80::9"));
    let with_host = again(&kernel);
    assert_eq!(with_host, generation, "a host's link-local address is no news");
    kernel.insert_route(route("2001:db8:7::", 48, 1024, Some("fe80::9"), 1));
    assert_ne!(again(&kernel), generation, "a route is");
}

#[test]
fn an_ipv6_route_that_drops_leads_nowhere() {
    let mut kernel = Kernel::default();
    kernel.insert_link(link(1, "eth0", true));
    kernel.insert_route(route("::", 0, 1024, Some("fe80::1"), 1));
    kernel.insert_neighbour(neighbour(1, "fe80::1"));
    for (prefix, kind) in [
        ("2001:db8:1::", RouteKind::Blackhole),
        ("2001:db8:2::", RouteKind::Unreachable),
        ("2001:db8:3::", RouteKind::Prohibit),
    ] {
        kernel.insert_route(Route { kind, hops: Vec::new(), ..route(prefix, 48, 1024, None, 1) });
    }
    let (fib, _) = build(&kernel);
    for address in ["2001:db8:1::1", "2001:db8:2::1", "2001:db8:3::1"] {
        let nowhere = Err(sluice_director::fib::NoHop::NoRoute);
        assert_eq!(fib.lookup(ip(address)), nowhere, "{address}");
    }
    assert!(fib.lookup(ip("2001:db8:4::1")).is_ok());
}

#[test]
fn a_multipath_route_takes_a_link_that_is_up() {
    let mut kernel = Kernel::default();
    kernel.insert_link(link(1, "eth0", true));
    kernel.insert_link(link(2, "eth1", false));
    let mut both = route("2001:db8:7::", 48, 1024, Some("fe80::2"), 2);
    both.hops.extend(route("::", 0, 0, Some("fe80::1"), 1).hops);
    kernel.insert_route(both);
    kernel.insert_neighbour(neighbour(1, "fe80::1"));
    let (fib, hops) = build(&kernel);
    assert!(fib.lookup(ip("2001:db8:7::1")).is_ok());
    assert_eq!(hops.wanted().collect::<Vec<_>>(), [(1, ip("fe80::1"))]);
}

fn address(kernel: &mut Kernel, text: &str, prefix_len: u8, tentative: bool) {
    let ip = ip(text);
    let address = sluice_linux::Address { ifindex: 1, ip, prefix_len, peer: None, tentative };
    kernel.insert_address(address);
}

#[test]
fn the_machines_own_addresses_are_routed_nowhere() {
    let mut kernel = Kernel::default();
    kernel.insert_link(link(1, "eth0", true));
    kernel.insert_route(route("198.51.100.0", 24, 0, None, 1));
    kernel.insert_route(route("2001:db8:1::", 64, 256, None, 1));
    address(&mut kernel, "198.51.100.1", 24, false);
    address(&mut kernel, "2001:db8:1::1", 64, false);
    let (fib, _) = build(&kernel);
    for (own, other) in [("198.51.100.1", "198.51.100.2"), ("2001:db8:1::1", "2001:db8:1::2")] {
        use sluice_director::fib::NoHop;
        assert_eq!(fib.lookup(ip(own)), Err(NoHop::NoRoute), "{own}");
        let unresolved = Err(NoHop::Unresolved(LinkId(0), ip(other)));
        assert_eq!(fib.lookup(ip(other)), unresolved, "{other}");
    }
}

/// The interface's own address, not a virtual one beside it; link-local ones and those that
/// are not in use yet are none.
#[test]
fn a_link_answers_with_its_own_address() {
    use sluice_director::spec::{Spec, VirtualService};
    let vip = VirtualService { vip: ip("198.51.100.2"), ..VirtualService::default() };
    let spec = Spec { services: vec![vip], ..Spec::default() };
    let plan = Plan::compile(&spec, None, &sluice_director::plan::Retired::default());
    let plan = plan.unwrap();
    let mut kernel = Kernel::default();
    kernel.insert_link(link(1, "eth0", true));
    let own = |kernel: &Kernel| OwnAddresses::of(kernel, &plan).on(1);
    address(&mut kernel, "198.51.100.2", 24, false);
    address(&mut kernel, "fe80::1", 64, false);
    address(&mut kernel, "2001:db8:1::1", 64, true);
    assert_eq!(own(&kernel), (Some([198, 51, 100, 2].into()), None), "for want of another");
    address(&mut kernel, "198.51.100.1", 32, false);
    address(&mut kernel, "198.51.100.9", 24, false);
    address(&mut kernel, "2001:db8:1::9", 128, false);
    address(&mut kernel, "2001:db8:1::2", 64, false);
    let v6 = "2001:db8:1::2".parse().unwrap();
    assert_eq!(own(&kernel), (Some([198, 51, 100, 9].into()), Some(v6)));
    let mut hops = NextHops::default();
    let fib = hops.build((&kernel, &DEFAULT), &plan, &[(PORT, "eth0".to_owned())], &Fib::default());
    assert_eq!(fib.link(LinkId(0)).unwrap().v6, Some(v6));
    let stand_ins: Vec<_> = hops.stand_ins().iter().collect();
    assert_eq!(stand_ins, [(&ip("198.51.100.2"), &ip("198.51.100.9"))]);
}

/// FRR's EVPN wants a VXLAN device in a bridge: addresses, routes and neighbours are the bridge's,
/// and so is the Ethernet address that frames come from. A route of type 5 has the other end of the
/// tunnel as its router, with that one's Ethernet address.
#[test]
fn a_vxlan_device_in_a_bridge_has_the_bridges_routes() {
    let mut kernel = Kernel::default();
    let mut device = link(1, "vxblue", true);
    device.vxlan = Some(sluice_linux::Vxlan { vni: 100, ..Default::default() });
    device.master = Some(2);
    let mut bridge = link(2, "brblue", true);
    bridge.kind = Some("bridge".into());
    kernel.insert_link(device.clone());
    kernel.insert_link(bridge);
    for (prefix, len, via) in [("10.0.0.0", 24, None), ("10.7.0.0", 16, Some("192.0.2.2"))] {
        let table = Table::Other(100);
        kernel.insert_route(Route { table, ..route(prefix, len, 0, via, 2) });
    }
    kernel.insert_neighbour(neighbour(2, "10.0.0.2"));
    kernel.insert_neighbour(neighbour(2, "192.0.2.2"));
    let build = |kernel: &Kernel, limit: u16| {
        let mut hops = NextHops::default();
        hops.limit(&BTreeMap::from([(1, limit)]));
        let interfaces = [(PORT, "vxblue".to_owned())];
        let scope = Scope::Table(100);
        let fib = hops.build((kernel, &scope), &Plan::default(), &interfaces, &Fib::default());
        (fib, hops)
    };
    let (fib, hops) = build(&kernel, 1430);
    for address in ["10.0.0.2", "10.7.0.9"] {
        let hop = fib.hop(fib.lookup(ip(address)).expect("a route")).expect("a hop");
        assert_eq!((hop.port, hop.mtu), (PORT, 1430), "{address}");
        assert_eq!(hop.macs, [[4; 6], [2, 0, 0, 0, 0, 2]], "{address}");
    }
    assert_eq!(hops.ifindex(LinkId(0)), Some(2), "neighbours are looked for on the bridge");
    let wide = build(&kernel, 9000).0;
    let hop = wide.hop(wide.lookup(ip("10.0.0.2")).expect("a route"));
    assert_eq!(hop.map(|hop| hop.mtu), Some(1500), "no more than the bridge takes");
    // Out of the bridge it stands for itself.
    device.master = None;
    kernel.insert_link(device);
    assert!(build(&kernel, 1430).0.lookup(ip("10.0.0.2")).is_err());
}
