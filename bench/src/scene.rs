//! The network around the director: a service, its real servers, a pool with room for all
//! sessions, and a next hop for everything.

use crate::args::Throughput;
use crate::clients::{self, Endpoint};
use crate::error::BenchError;
use sluice_director::blueprint::{
    Blueprint, LocalPool, Mode, Ports, RealServer, Scheduling, VirtualService,
};
use sluice_director::fib::{Fib, FibBuilder, Link, PortId, Target};
use sluice_director::plan::{Plan, Retired};
use sluice_worker::Snapshot;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The port towards the clients.
pub const FRONT: PortId = PortId(0);
/// The port towards the real servers.
pub const BACK: PortId = PortId(1);
/// The director's MACs, by port.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// The MAC of the router towards the clients.
pub const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The service.
pub const SERVICE: Endpoint = Endpoint { address: 0xc633_64c8, port: 80 };
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const REALS_PREFIX: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 0);
const FIRST_REAL: u8 = 11;
/// The other half of the range for benchmarks.
const FIRST_LOCAL: u32 = clients::FIRST_ADDRESS + (1 << (32 - clients::PREFIX_LEN));
/// Local ports of an address.
const PORTS: std::ops::RangeInclusive<u16> = 1024..=65535;

/// The endpoint of a real server, by its place in the round robin.
pub fn real(number: u16) -> Endpoint {
    let address = REALS_PREFIX.to_bits() + u32::from(FIRST_REAL) + u32::from(number);
    Endpoint { address, port: SERVICE.port }
}

/// The place of a real server in the round robin.
pub fn number_of_real(endpoint: Endpoint) -> Option<u16> {
    let number = endpoint.address.checked_sub(real(0).address)?;
    (number < 256 && endpoint.port == SERVICE.port).then_some(number as u16)
}

/// The MAC of a real server.
pub fn real_mac(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [2, 0, 0, 1, high, low]
}

/// Local addresses with a quarter more places than there are sessions.
fn local_addresses(args: &Throughput) -> Vec<IpAddr> {
    let places = PORTS.len() as u64 * u64::from(args.reals);
    let count = (args.sessions + args.sessions / 4).div_ceil(places).max(1) as u32;
    (1..=count).map(|n| IpAddr::V4(Ipv4Addr::from_bits(FIRST_LOCAL + n))).collect()
}

fn ip(address: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(address))
}

/// What the workers run against.
pub fn snapshot(args: &Throughput) -> Result<Arc<Snapshot>, BenchError> {
    let reals = (0..args.reals).map(|number| {
        let Endpoint { address, port } = real(number);
        RealServer { address: ip(address), port, ..RealServer::default() }
    });
    let blueprint = Blueprint {
        services: vec![VirtualService {
            name: "bench".into(),
            protocol: args.protocol.of_blueprint(),
            vip: ip(SERVICE.address),
            ports: Ports::one(SERVICE.port),
            mode: Mode::Fnat,
            scheduler: Scheduling::Rr,
            pool: "bench".into(),
            reals: reals.collect(),
            ..VirtualService::default()
        }],
        pools: vec![LocalPool {
            name: "bench".into(),
            addresses: local_addresses(args),
            ports: PORTS,
        }],
        ..Blueprint::default()
    };
    let plan = Plan::compile(&blueprint, None, &Retired::default()).map_err(BenchError::Plan)?;
    let fib = fib(&plan, args.reals);
    Ok(Arc::new(Snapshot { plan: Arc::new(plan), fib: Arc::new(fib) }))
}

fn fib(plan: &Plan, reals: u16) -> Fib {
    let mut builder = FibBuilder::default();
    let link = |port: PortId| Link {
        port,
        mac: MACS[usize::from(port.0)],
        vlan: 0,
        mtu: 1500,
        ..Link::default()
    };
    let front = builder.link(link(FRONT));
    let back = builder.link(link(BACK));
    let via_router = Target::Via(front, ROUTER.into());
    builder.route(ip(clients::FIRST_ADDRESS), clients::PREFIX_LEN, via_router);
    builder.route(REALS_PREFIX.into(), 24, Target::OnLink(back));
    builder.neighbour(front, ROUTER.into(), ROUTER_MAC);
    for number in 0..reals {
        builder.neighbour(back, ip(real(number).address), real_mac(number));
    }
    builder.build(plan, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_servers_are_found_by_their_endpoints() {
        for number in [0, 1, 199] {
            assert_eq!(number_of_real(real(number)), Some(number));
        }
        assert_eq!(number_of_real(SERVICE), None);
        assert_eq!(number_of_real(Endpoint { port: 81, ..real(0) }), None);
    }
}
