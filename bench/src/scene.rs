//! The network around the director: a service and its real servers, or a rule of source NAT and
//! what is outside, a pool with room for all sessions, and a next hop for everything.
//!
//! Clients open connections; of source NAT they are the hosts inside, and what they connect to is
//! outside. The far side of a session is its real server, or its outside endpoint.

use crate::args::{Family, Mode, Protocol, Throughput};
use crate::clients::{self, Endpoint};
use crate::error::BenchError;
use crate::traffic::Way;
use sluice_director::fib::{Fib, FibBuilder, Link, PortId, Target};
use sluice_director::plan::{Plan, Retired};
use sluice_director::spec::{
    LocalPool, Network, Ports, RealServer, SnatRule, Spec, Timeouts, TunnelSources, VirtualService,
};
use sluice_testkit::world::{BACK_MAC, FRONT_MAC};
use sluice_worker::{Published, Snapshot};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The port towards the outside.
pub const FRONT: PortId = PortId(0);
/// The port towards the inside.
pub const BACK: PortId = PortId(1);
/// The director's MACs, by port.
pub const MACS: [[u8; 6]; 2] = [FRONT_MAC, BACK_MAC];
/// The MAC of the router towards the clients.
pub const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The port of the service, of the real servers and of what is outside.
const PORT: u16 = 80;
/// Local ports of an address.
const PORTS: std::ops::RangeInclusive<u16> = 1024..=65535;
/// The first real server and the first outside endpoint of their networks.
const FIRST: u128 = 11;
/// Of IP in IP, the outer source addresses: so many of a prefix.
const TUNNEL_SOURCES: u128 = 16;

/// Networks and hosts of one family.
struct Addresses {
    bits: u8,
    vip: u128,
    router: u128,
    reals: (u128, u8),
    inside_router: u128,
    outside: (u128, u8),
    first_local: u128,
    tunnel: u128,
}

/// 198.51.100.0/24, 192.0.2.0/24 and 203.0.113.0/24, and half of the range for benchmarks.
const V4: Addresses = Addresses {
    bits: 32,
    vip: 0xc633_64c8,
    router: 0xc633_6401,
    reals: (0xc000_0200, 24),
    inside_router: 0xc000_0201,
    outside: (0xcb00_7100, 24),
    first_local: 0xc613_0000,
    tunnel: 0xc000_02e0,
};

/// Networks of 2001:db8::/32.
const V6: Addresses = Addresses {
    bits: 128,
    vip: DOCUMENTATION + 0xc8,
    router: DOCUMENTATION + 1,
    reals: (DOCUMENTATION + (2 << 64), 64),
    inside_router: DOCUMENTATION + (2 << 64) + 1,
    outside: (DOCUMENTATION + (3 << 64), 64),
    first_local: DOCUMENTATION + (1 << 64),
    tunnel: DOCUMENTATION + (4 << 64),
};

const DOCUMENTATION: u128 = 0x2001_0db8 << 96;

/// What of the network a mode and a family decide.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub mode: Mode,
    pub family: Family,
    /// Real servers, or outside endpoints.
    pub far: u16,
}

impl Scene {
    pub const fn new(args: &Throughput) -> Self {
        Self { mode: args.mode, family: args.family, far: args.reals }
    }

    const fn addresses(&self) -> &'static Addresses {
        match self.family {
            Family::V4 => &V4,
            Family::V6 => &V6,
        }
    }

    /// An address in the general form.
    fn ip(&self, address: u128) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(address as u32)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(address)),
        }
    }

    /// The port that packets of a way come in by; the other one is what they leave by.
    pub fn port(&self, way: Way) -> PortId {
        if (way == Way::In) == (self.mode == Mode::Snat) { BACK } else { FRONT }
    }

    /// The real server or the outside endpoint with a number.
    pub const fn far_endpoint(&self, number: u16) -> Endpoint {
        let network = match self.mode {
            Mode::Snat => self.addresses().outside.0,
            _ => self.addresses().reals.0,
        };
        Endpoint { address: network + FIRST + number as u128, port: PORT }
    }

    /// The number of a real server or an outside endpoint.
    pub fn far_number(&self, address: u128) -> Option<u16> {
        let number = address.checked_sub(self.far_endpoint(0).address)?;
        (number < u128::from(self.far)).then_some(number as u16)
    }

    /// The MAC of the next hop towards the far side.
    pub const fn far_mac(&self, number: u16) -> [u8; 6] {
        let [high, low] = match self.mode {
            // A router on the way.
            Mode::Snat => [0xff, 0xff],
            _ => number.to_be_bytes(),
        };
        [2, 0, 0, 1, high, low]
    }

    /// What a client's connection is to.
    pub const fn target(&self, flow: u32) -> Endpoint {
        match self.mode {
            Mode::Snat => self.far_endpoint((flow % self.far as u32) as u16),
            _ => Endpoint { address: self.addresses().vip, port: PORT },
        }
    }

    /// A local address by its number, which counts from 1.
    pub const fn local_address(&self, number: u16) -> u128 {
        self.addresses().first_local + number as u128
    }

    /// The number of a local address.
    pub fn local_number(&self, address: u128) -> Option<u16> {
        let number = address.checked_sub(self.addresses().first_local)?;
        u16::try_from(number).ok().filter(|number| *number > 0)
    }

    /// Whether an outer header may have this source.
    pub fn is_tunnel_source(&self, address: u128) -> bool {
        address.checked_sub(self.addresses().tunnel).is_some_and(|at| at < TUNNEL_SOURCES)
    }

    /// Local addresses with a quarter more places than there are sessions.
    fn local_addresses(&self, args: &Throughput) -> Vec<IpAddr> {
        let weights: Vec<_> = (0..args.reals).map(weight).collect();
        let (most, all) = (weights.iter().max(), weights.iter().sum::<u16>());
        let share = f64::from(most.copied().unwrap_or(1)) / f64::from(all.max(1));
        let share = match self.mode {
            // Each inside endpoint has a port for itself.
            Mode::Snat => 1.0,
            _ => share.max(1.0 / f64::from(args.reals)),
        };
        let sessions = (args.sessions + u64::from(args.spare) + args.to_come) as f64;
        let sessions = sessions * share * 1.25;
        let count = (sessions / PORTS.len() as f64).ceil().clamp(1.0, 60_000.0) as u16;
        (1..=count).map(|number| self.ip(self.local_address(number))).collect()
    }

    fn spec(&self, args: &Throughput, timeouts: Timeouts) -> Spec {
        let pool = LocalPool {
            network: String::new(),
            name: "bench".into(),
            addresses: self.local_addresses(args),
            ports: PORTS,
            peer_addresses: Vec::new(),
        };
        let sources = Network {
            address: self.ip(self.addresses().tunnel),
            prefix: self.addresses().bits - TUNNEL_SOURCES.ilog2() as u8,
        };
        let snat = self.mode == Mode::Snat;
        Spec {
            services: if snat { Vec::new() } else { self.services(args) },
            snat: if snat { vec![self.rule(args)] } else { Vec::new() },
            pools: if self.mode.has_pool() { vec![pool] } else { Vec::new() },
            tunnel: TunnelSources {
                v4: Some(sources).filter(|n| n.address.is_ipv4()),
                v6: Some(sources).filter(|n| n.address.is_ipv6()),
            },
            timeouts,
            // All sessions are opened before any is answered.
            gives_way: false,
            ..Spec::default()
        }
    }

    /// One, or of a mix one of each protocol.
    fn services(&self, args: &Throughput) -> Vec<VirtualService> {
        let of = |name: &str, protocol: Protocol| VirtualService {
            name: name.into(),
            protocol: protocol.of_spec(),
            ..self.service(args)
        };
        match args.mix {
            true => vec![of("bench-udp", Protocol::Udp), of("bench-tcp", Protocol::Tcp)],
            false => vec![of("bench", args.protocol)],
        }
    }

    fn service(&self, args: &Throughput) -> VirtualService {
        let real = |number| {
            let Endpoint { address, port } = self.far_endpoint(number);
            // A packet that is forwarded as it is keeps its port.
            let port = if self.mode.answers() { port } else { 0 };
            let address = self.ip(address);
            RealServer { address, port, weight: weight(number), ..RealServer::default() }
        };
        VirtualService {
            vip: self.ip(self.addresses().vip),
            ports: Ports::one(PORT),
            mode: self.mode.of_spec(),
            scheduler: args.scheduler,
            pool: if self.mode.has_pool() { "bench".into() } else { String::new() },
            reals: (0..args.reals).map(real).collect(),
            ..VirtualService::default()
        }
    }

    fn rule(&self, args: &Throughput) -> SnatRule {
        let (address, prefix) = clients::prefix(self.family);
        SnatRule {
            name: "bench".into(),
            sources: vec![Network { address: self.ip(address), prefix }],
            egress: Some(FRONT.0),
            pool: "bench".into(),
            mapping: args.mapping.of_spec(),
            ..SnatRule::default()
        }
    }

    fn fib(&self, plan: &Plan) -> Fib {
        let (mut builder, addresses) = (FibBuilder::default(), self.addresses());
        // Room for an outer header, as one gives the link towards the ends of tunnels, or for what
        // tells a real server its client.
        let mtu = if matches!(self.mode, Mode::Ipip | Mode::Fnat) { 1540 } else { 1500 };
        let mac = |port: PortId| MACS[usize::from(port.0)];
        let link = |port: PortId| Link { port, mac: mac(port), vlan: 0, mtu, ..Link::default() };
        let (front, back) = (builder.link(link(FRONT)), builder.link(link(BACK)));
        [FRONT, BACK].into_iter().for_each(|port| builder.own_mac(port, mac(port)));
        let (clients, prefix) = clients::prefix(self.family);
        let (link, router) = match self.mode {
            Mode::Snat => (back, addresses.inside_router),
            _ => (front, addresses.router),
        };
        builder.route(self.ip(clients), prefix, Target::Via(link, self.ip(router)));
        builder.neighbour(link, self.ip(router), ROUTER_MAC);
        if self.mode == Mode::Snat {
            let router = self.ip(addresses.router);
            let (outside, prefix) = addresses.outside;
            builder.route(self.ip(outside), prefix, Target::Via(front, router));
            builder.neighbour(front, router, self.far_mac(0));
        } else {
            builder.route(self.ip(addresses.reals.0), addresses.reals.1, Target::OnLink(back));
            for number in 0..self.far {
                let address = self.ip(self.far_endpoint(number).address);
                builder.neighbour(back, address, self.far_mac(number));
            }
        }
        builder.build(plan, None)
    }
}

/// The weight of a real server, which rr and lc take no notice of.
const fn weight(number: u16) -> u16 {
    1 + number % 4
}

/// What the workers run against.
pub fn snapshot(args: &Throughput, timeouts: Timeouts) -> Result<Arc<Published>, BenchError> {
    snapshot_with(args, timeouts, |_| {})
}

/// The same with a configuration that was changed.
pub fn snapshot_with(
    args: &Throughput,
    timeouts: Timeouts,
    change: impl FnOnce(&mut Spec),
) -> Result<Arc<Published>, BenchError> {
    let scene = Scene::new(args);
    let mut spec = scene.spec(args, timeouts);
    change(&mut spec);
    let plan = Plan::compile(&spec, None, &Retired::default()).map_err(BenchError::Plan)?;
    let fib = scene.fib(&plan);
    let snapshot = Snapshot { plan: Arc::new(plan), fib: Arc::new(fib) };
    Ok(Arc::new(snapshot.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_side_and_local_addresses_are_found() {
        for mode in [Mode::Fnat, Mode::Snat] {
            for family in [Family::V4, Family::V6] {
                let scene = Scene { mode, family, far: 200 };
                for number in [0, 1, 199] {
                    assert_eq!(scene.far_number(scene.far_endpoint(number).address), Some(number));
                }
                assert_eq!(scene.far_number(scene.far_endpoint(200).address), None);
                assert_eq!(scene.far_number(scene.local_address(1)), None);
                assert_eq!(scene.local_number(scene.local_address(7)), Some(7));
                assert_eq!(scene.local_number(scene.local_address(0)), None);
            }
        }
    }
}
