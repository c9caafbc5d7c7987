//! By which devices the machine itself reaches what is in an isolated network.

use super::*;
use sluice_linux::{Address, Link, NextHop, Route, RouteKind};

const BLUE: NetworkId = NetworkId(1);
const RED: NetworkId = NetworkId(2);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn route(kernel: &mut Kernel, table: u32, (prefix, prefix_len): (&str, u8), via: (&str, u32)) {
    let (gateway, ifindex) = via;
    let gateway = (!gateway.is_empty()).then(|| ip(gateway));
    kernel.insert_route(Route {
        prefix: ip(prefix),
        prefix_len,
        table: Table::Other(table),
        metric: 0,
        kind: RouteKind::Unicast,
        hops: vec![NextHop { gateway, ifindex, weight: 1, onlink: false }],
        source: None,
        nexthop_id: None,
        protocol: 4,
    });
}

/// Ports `blue` of a network with a table, and `red` of one with a VRF, which have the same routes
/// and addresses.
fn bed() -> (Networks, Kernel) {
    let mut kernel = Kernel::default();
    for (index, name) in [(1, "blue"), (2, "red"), (3, "vrf-red")] {
        let vrf_table = (index == 3).then_some(200);
        let (name, up) = (name.into(), true);
        let link = Link { index, name, admin_up: up, carrier: up, vrf_table, ..Link::default() };
        kernel.insert_link(link);
    }
    for (table, ifindex) in [(100, 1), (200, 2)] {
        route(&mut kernel, table, ("10.0.0.0", 24), ("", ifindex));
        route(&mut kernel, table, ("10.1.0.0", 16), ("10.0.0.254", ifindex));
        route(&mut kernel, table, ("fd00::", 64), ("", ifindex));
        let ip = ip("10.0.0.1");
        let (prefix_len, peer, tentative) = (24, None, false);
        kernel.insert_address(Address { ifindex, ip, prefix_len, peer, tentative });
    }
    let isolated = |routes| Network { routes, ..Network::default() };
    let mut networks = Networks {
        all: vec![
            Network::default(),
            isolated(Routes::Table(100)),
            isolated(Routes::Vrf("vrf-red".to_owned())),
        ],
        of_port: vec![BLUE, RED],
        virtual_ports: Vec::new(),
        announced: Vec::new(),
        tunnels: Arc::default(),
        paths: PathMtus::default(),
    };
    let interfaces = [(PortId(0), "blue".to_owned()), (PortId(1), "red".to_owned())];
    networks.follow(&kernel, &Arc::default(), &interfaces);
    (networks, kernel)
}

#[test]
fn the_same_address_is_reached_by_each_networks_own_device() {
    let (networks, kernel) = bed();
    for address in ["10.0.0.5", "10.1.2.3", "fd00::5"] {
        let exit = |network| networks.exit(&kernel, network, ip(address));
        let blue = Exit { device: "blue".to_owned(), table: Some(100) };
        assert_eq!(exit(BLUE), Some(blue), "{address}");
        let red = Exit { device: "vrf-red".to_owned(), table: None };
        assert_eq!(exit(RED), Some(red), "{address}");
        assert_eq!(exit(NetworkId::DEFAULT), None, "{address}: the kernel's own choice");
    }
}

#[test]
fn there_is_no_way_but_by_the_networks_ports() {
    let (networks, mut kernel) = bed();
    assert_eq!(networks.exit(&kernel, BLUE, ip("192.0.2.1")), None, "no route");
    assert_eq!(networks.exit(&kernel, BLUE, ip("10.0.0.1")), None, "the machine's own address");
    route(&mut kernel, 100, ("192.0.2.0", 24), ("", 2));
    assert_eq!(networks.exit(&kernel, BLUE, ip("192.0.2.1")), None, "another network's port");
    kernel.insert_link(Link { index: 3, name: "vrf-red".into(), ..Link::default() });
    assert_eq!(networks.exit(&kernel, RED, ip("10.0.0.5")), None, "no VRF any more");
}
