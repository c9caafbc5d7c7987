//! The networks that scripts are played in: the golden rows' (front and back, one TCP and one UDP
//! service, three real servers), with what a script's first byte changes.

use std::net::{IpAddr, Ipv4Addr};

use sluice_director::blueprint::{
    Blueprint, LocalPool, Mode, NoSession, Ports, Protocol, RealServer, Scheduling, Timeouts,
    VirtualService,
};
use sluice_director::fib::{Fib, FibBuilder, Link, PortId, Target};
use sluice_director::plan::Plan;

/// The virtual address.
pub const VIP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 200);
/// The local address.
pub const LADDR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// MAC addresses of the two ports.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 254));

/// One network.
#[derive(Clone, Copy, Debug)]
pub struct World {
    switches: u8,
    /// Number of workers.
    pub workers: u16,
}

impl World {
    /// The network that the byte's bits choose; none set: the golden rows' own.
    pub fn new(switches: u8) -> Self {
        Self { switches, workers: 1 + u16::from(switches >> 2 & 1) }
    }

    fn is(&self, bit: u8) -> bool {
        self.switches >> bit & 1 == 1
    }

    /// The configuration; `variant`'s bits drain the first real server, remove the second, remove
    /// the UDP service, move the third real server, add a service.
    pub fn blueprint(&self, variant: u8) -> Blueprint {
        let has = |bit: u8| variant >> bit & 1 == 1;
        let mut reals = vec![real(11, u16::from(!has(0))), real(if has(3) { 14 } else { 13 }, 2)];
        if !has(1) {
            reals.insert(1, real(12, 1));
        }
        let mut services = vec![service("web", Protocol::Tcp, 80, &reals)];
        if !has(2) {
            services.push(service("dns", Protocol::Udp, 53, &reals));
        }
        if has(4) {
            services.push(service("more", Protocol::Tcp, 81, &reals));
        }
        let mut timeouts = Timeouts::default();
        if self.is(6) {
            timeouts = Timeouts { tcp_time_wait_s: 5, tcp_close_s: 5, udp_s: 10, ..timeouts };
        }
        let last = if self.is(7) { 1027 } else { 65_535 };
        Blueprint {
            services,
            pools: vec![LocalPool {
                name: "lan".to_owned(),
                addresses: vec![LADDR.into()],
                ports: 1024..=last,
            }],
            timeouts,
            no_session: if self.is(0) { NoSession::Reset } else { NoSession::Drop },
            accept_mid_stream: self.is(1),
            ..Blueprint::default()
        }
    }

    /// Largest IP packet that may leave by the back port.
    pub fn back_mtu(&self) -> u16 {
        if self.is(5) { 600 } else { 1500 }
    }

    /// Routes and neighbours: everything is reachable but, by one of the bits, the second real
    /// server's MAC is unknown; by another the real servers are on a VLAN.
    pub fn fib(&self, plan: &Plan, before: Option<&Fib>) -> Fib {
        let mut builder = FibBuilder::default();
        let front = builder.link(Link {
            port: PortId(0),
            mac: MACS[0],
            vlan: 0,
            mtu: 1500,
            ..Link::default()
        });
        let vlan = if self.is(3) { 20 } else { 0 };
        let mtu = self.back_mtu();
        let back =
            builder.link(Link { port: PortId(1), mac: MACS[1], vlan, mtu, ..Link::default() });
        builder.route(Ipv4Addr::UNSPECIFIED.into(), 0, Target::Via(front, GATEWAY));
        builder.route(Ipv4Addr::new(192, 0, 2, 0).into(), 24, Target::OnLink(back));
        builder.route(Ipv4Addr::new(203, 0, 113, 0).into(), 24, Target::Nowhere);
        builder.neighbour(front, GATEWAY, [2, 0, 0, 0, 2, 0xfe]);
        for number in [11, 12, 13, 14] {
            if number != 12 || !self.is(4) {
                builder.neighbour(back, real_address(number), [2, 0, 0, 0, 1, number]);
            }
        }
        builder.build(plan, before)
    }
}

fn real_address(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

fn real(number: u8, weight: u16) -> RealServer {
    RealServer { address: real_address(number), port: 8080, weight, ..RealServer::default() }
}

fn service(name: &str, protocol: Protocol, port: u16, reals: &[RealServer]) -> VirtualService {
    VirtualService {
        name: name.to_owned(),
        protocol,
        vip: VIP.into(),
        ports: Ports::one(port),
        mode: Mode::Fnat,
        scheduler: Scheduling::Rr,
        pool: "lan".to_owned(),
        reals: reals.to_vec(),
        ..VirtualService::default()
    }
}
