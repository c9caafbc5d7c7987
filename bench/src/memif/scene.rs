//! The network around the director: a service and its real servers between two shared-memory
//! ports, in the default network or in an isolated one whose real servers are behind VXLAN.

use crate::args::Network;
use crate::clients::{self, Endpoint};
use crate::error::BenchError;
use sluice_director::fib::{Fib, FibBuilder, Link, PortId, Target};
use sluice_director::plan::{Plan, Retired};
use sluice_director::spec::{
    LocalPool, NetworkId, Ports, Protocol, RealServer, Spec, Timeouts, VirtualService,
};
use sluice_director::vxlan::{Remote, Tunnel, Tunnels};
use sluice_wire::vxlan;
use sluice_worker::{NetworksConfig, Published, Snapshot};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The port towards the clients, the one towards the real servers, and the VXLAN port upon it.
pub const FRONT: PortId = PortId(0);
pub const BACK: PortId = PortId(1);
const TUNNEL: PortId = PortId(2);
/// The director's MACs, by port.
pub const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
/// The MAC of the router towards the clients.
pub const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// What clients connect to.
pub const VIP: Endpoint = Endpoint { address: 0xc633_64c8, port: 80 };
/// IP's MTU, inside and outside.
const MTU: u16 = 1500;
pub const UNDERLAY_MTU: u16 = 1600;
/// Local ports of an address.
const PORTS: std::ops::RangeInclusive<u16> = 1024..=65535;
const REALS: u8 = 16;
/// Far ends of tunnels: so many nodes have the real servers.
pub const VTEPS: u8 = 4;
pub const VNI: u32 = 4097;

/// A real server.
const fn real(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 11 + number)
}

/// The MAC of a real server.
pub const fn real_mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 1, 0, number]
}

/// The outer address of the director, then those of its remotes.
pub const fn vtep(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, 10 + number)
}

/// The MAC of a remote's node.
pub const fn vtep_mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 2, 0, number]
}

fn spec(network: Network, sessions: u64) -> Spec {
    // A quarter more than there are sessions; each real server has all ports for itself, but rr
    // need not be even.
    let places = sessions.div_ceil(u64::from(REALS)) * 5 / 4;
    let count = places.div_ceil(PORTS.len() as u64).max(1);
    let name = if network == Network::Vxlan { "blue" } else { "" };
    let pool = LocalPool {
        network: name.into(),
        name: "bench".into(),
        addresses: (1..=count).map(|n| IpAddr::V4((0xc613_0000 + n as u32).into())).collect(),
        ports: PORTS,
        peer_addresses: Vec::new(),
    };
    let reals = (0..REALS).map(|number| RealServer {
        address: real(number).into(),
        port: VIP.port,
        ..RealServer::default()
    });
    let service = VirtualService {
        network: name.into(),
        name: "bench".into(),
        protocol: Protocol::Udp,
        vip: IpAddr::V4((VIP.address as u32).into()),
        ports: Ports::one(VIP.port),
        pool: "bench".into(),
        reals: reals.collect(),
        ..VirtualService::default()
    };
    Spec {
        networks: if name.is_empty() { Vec::new() } else { vec![name.into()] },
        services: vec![service],
        pools: vec![pool],
        // All sessions are opened before any is answered.
        gives_way: false,
        timeouts: Timeouts { udp_s: 3600, ..Timeouts::default() },
        ..Spec::default()
    }
}

fn link(port: PortId, mtu: u16) -> Link {
    Link { port, mac: MACS[usize::from(port.0)], vlan: 0, mtu, ..Link::default() }
}

/// Clients behind a router at the front, real servers on the link at `back`.
fn fib(plan: &Plan, back: PortId) -> Fib {
    let mut builder = FibBuilder::default();
    let (front, back_link) = (builder.link(link(FRONT, MTU)), builder.link(link(back, MTU)));
    [FRONT, back].into_iter().for_each(|port| builder.own_mac(port, MACS[usize::from(port.0)]));
    let (clients, prefix) = clients::prefix(crate::args::Family::V4);
    let (clients, router) = (Ipv4Addr::from_bits(clients as u32), Ipv4Addr::new(198, 51, 100, 1));
    builder.route(clients.into(), prefix, Target::Via(front, router.into()));
    builder.neighbour(front, router.into(), ROUTER_MAC);
    builder.route(Ipv4Addr::new(192, 0, 2, 0).into(), 24, Target::OnLink(back_link));
    for number in 0..REALS {
        builder.neighbour(back_link, real(number).into(), real_mac(number));
    }
    builder.build(plan, None)
}

/// The tunnels to the nodes of the real servers, upon the back port.
fn tunnels() -> Tunnels {
    let mut builder = FibBuilder::default();
    let back = builder.link(link(BACK, UNDERLAY_MTU));
    builder.route(Ipv4Addr::new(203, 0, 113, 0).into(), 24, Target::OnLink(back));
    for number in 1..=VTEPS {
        builder.neighbour(back, vtep(number).into(), vtep_mac(number));
    }
    let fib = builder.build(&Plan::default(), None);
    let mut tunnel = Tunnel::new(TUNNEL, VNI, vtep(0).into());
    tunnel.remotes = (0..REALS)
        .map(|number| {
            let address = IpAddr::V4(vtep(1 + number % VTEPS));
            let hop = fib.lookup(address).ok().and_then(|hop| fib.hop(hop)).copied();
            (real_mac(number), Remote { address, udp_port: vxlan::PORT, vni: VNI, hop })
        })
        .collect();
    Tunnels::new(&[tunnel], &[(BACK, vec![MACS[usize::from(BACK.0)]])])
}

/// What a worker runs against, and which networks it has.
pub fn published(
    network: Network,
    sessions: u64,
    capacity: u32,
) -> Result<(Published, NetworksConfig), BenchError> {
    let spec = spec(network, sessions);
    let plan = Plan::compile(&spec, None, &Retired::default()).map_err(BenchError::Plan)?;
    if network == Network::None {
        let fib = Arc::new(fib(&plan, BACK));
        let published = Snapshot { plan: Arc::new(plan), fib }.into();
        return Ok((published, NetworksConfig::default()));
    }
    let blue = NetworkId(1);
    let of = |network, fib| Snapshot { plan: Arc::new(plan.of_network(network)), fib };
    let published = Published {
        default: of(NetworkId::DEFAULT, Arc::default()),
        isolated: vec![of(blue, Arc::new(fib(&plan.of_network(blue), TUNNEL)))],
        tunnels: Arc::new(tunnels()),
    };
    let of_port = vec![blue, NetworkId::DEFAULT, blue];
    Ok((published, NetworksConfig { sessions: vec![capacity], twins: false, of_port }))
}
