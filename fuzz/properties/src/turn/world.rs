//! The networks that scripts are played in: a front and a back port, in both IP versions, and
//! services of every mode and kind beside each other, with what a script's first bytes change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_director::fib::{Fib, FibBuilder, Link, PortId, Target};
use sluice_director::plan::Plan;
use sluice_director::spec::{
    ClientAddress, HashKey, LocalPool, Mapping, Mode, Network, NoSession, Orphans, Persistence,
    Ports, Protocol, RealServer, Scheduling, SnatRule, Spec, Timeouts, TunnelOptions,
    TunnelSources, VirtualService,
};
use sluice_testkit::world::{BACK_MAC, FRONT_MAC, host_mac};
pub use sluice_testkit::world::{back, front};

/// MAC addresses of the two ports.
pub const MACS: [[u8; 6]; 2] = [FRONT_MAC, BACK_MAC];
/// Last byte of the virtual addresses: of the services proper, of any protocol, of all ports.
const VIPS: [u8; 3] = [200, 201, 202];
/// Last byte of the local addresses.
const LOCAL: u8 = 10;

/// Hosts of the real servers' network that are there.
const NEIGHBOURS: std::ops::RangeInclusive<u8> = 11..=17;

/// Whether somebody is at an address: whoever sent from another is no neighbour of anybody.
pub fn is_there(address: IpAddr) -> bool {
    let six = address.is_ipv6();
    address == front(six, 254) || NEIGHBOURS.into_iter().any(|number| address == back(six, number))
}

/// Where a client may send to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub protocol: Protocol,
    pub vip: IpAddr,
    pub ports: Ports,
}

/// One network.
#[derive(Clone, Copy, Debug)]
pub struct World {
    switches: u8,
    more: u8,
    /// Number of workers.
    pub workers: u16,
    prefixed: bool,
    /// Sessions of a worker.
    pub sessions: u32,
}

impl World {
    /// The network that three bytes' bits choose.
    pub fn new([switches, more, last]: [u8; 3]) -> Self {
        let workers = if last >> 7 == 1 { 3 } else { 1 + u16::from(switches >> 2 & 1) };
        // What both tables share goes first to the one that a turn begins with: only there may it
        // run out where a burst shall be what its packets are one at a time.
        let sessions = if more & 1 == 0 { 1024 } else { u32::from(last % 64) + 1 };
        Self { switches, more, workers, prefixed: last >> 6 & 1 == 1, sessions }
    }

    fn is(&self, bit: u8) -> bool {
        self.switches >> bit & 1 == 1
    }

    fn has(&self, bit: u8) -> bool {
        self.more >> bit & 1 == 1
    }

    /// Whether there are only IPv4 services whose sessions fit the IPv4 table.
    fn is_compact(&self) -> bool {
        self.has(0) && !self.has(5)
    }

    /// Whether there are only IPv6 services.
    fn is_extended(&self) -> bool {
        self.has(0) && self.has(5)
    }

    /// The configuration; `variant`'s bits drain the first real server of each service, remove
    /// the second, remove the UDP services, move the last real server, add a service, have the
    /// second down, have another rule for orphans, remove source NAT.
    pub fn spec(&self, variant: u8) -> Spec {
        let mut services = self.services();
        let is = |bit: u8| variant >> bit & 1 == 1;
        if is(2) {
            services.retain(|service| service.protocol != Protocol::Udp);
        }
        if is(4) {
            let reals = reals(false, Mode::Fnat, 8080);
            services.push(service("more", (Protocol::Tcp, 89), false, Mode::Fnat, reals));
        }
        for service in &mut services {
            self.shape(service, variant);
        }
        let mut timeouts = Timeouts::default();
        if self.is(6) {
            timeouts = Timeouts { tcp_time_wait_s: 5, tcp_close_s: 5, udp_s: 10, ..timeouts };
        }
        let ports = 1024..=if self.is(7) { 1027 } else { 65_535 };
        let both = |of: fn(bool, u8) -> IpAddr| vec![of(false, LOCAL), of(true, LOCAL)];
        let pool = |name: &str, addresses| LocalPool {
            network: String::new(),
            name: name.to_owned(),
            addresses,
            ports: ports.clone(),
            peer_addresses: Vec::new(),
        };
        let outer = |address, prefix| Network { address, prefix };
        let (v4, v6) = if self.prefixed { (28, 120) } else { (32, 128) };
        Spec {
            services,
            pools: vec![pool("lan", both(back)), pool("wan", both(front))],
            snat: if is(7) || self.is_compact() { Vec::new() } else { self.rules() },
            tunnel: TunnelSources {
                v4: Some(outer(Ipv4Addr::new(192, 0, 2, 64).into(), v4)),
                v6: Some(outer(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0xff00).into(), v6)),
            },
            icmp_errors_per_s: if self.has(3) && self.has(0) { 2 } else { 1000 },
            timeouts,
            no_session: if self.is(0) { NoSession::Reset } else { NoSession::Drop },
            accept_mid_stream: self.is(1),
            ..Spec::default()
        }
    }

    /// Where clients may send to, in the order of the services.
    pub fn places(&self) -> Vec<Place> {
        let of = |s: &VirtualService| Place { protocol: s.protocol, vip: s.vip, ports: s.ports };
        self.services().iter().map(of).collect()
    }

    /// Every service as it is without a variant.
    fn services(&self) -> Vec<VirtualService> {
        let mut all = Vec::new();
        for six in [false, true] {
            all.extend(of_modes(six));
            if !self.is_compact() {
                all.extend(of_the_wide_table(six));
            }
        }
        // Behind the others, whose places the seeds name.
        for six in [false, true] {
            all.extend(of_tunnels(six, !self.is_compact()));
        }
        if self.is_compact() {
            all.retain(|service| service.vip.is_ipv4());
        }
        if self.is_extended() {
            all.retain(|service| service.vip.is_ipv6());
        }
        all
    }

    /// What switches and a variant change about a service.
    fn shape(&self, service: &mut VirtualService, variant: u8) {
        let is = |bit: u8| variant >> bit & 1 == 1;
        let number = usize::from(service.ports.first) + usize::from(service.vip.is_ipv6());
        if self.has(1) {
            service.scheduler = Scheduling::ALL[number % Scheduling::ALL.len()];
            service.hash = if number % 2 == 0 { HashKey::Client } else { HashKey::ClientPort };
            // So small because it is made for every script.
            service.mh_table = 1009;
            service.slow_start_s = 10 * u32::from(number % 3 == 0);
        }
        if self.has(2) && !service.one_packet {
            let prefix = if service.vip.is_ipv4() { 30 } else { 64 };
            service.persistence = Some(Persistence { timeout_s: 30, prefix });
        }
        if self.has(3) {
            (service.max_sessions, service.max_new_per_s) = (3, 2);
            service.reals.iter_mut().for_each(|real| real.upper_sessions = 2);
        }
        let rules = [Orphans::Reschedule, Orphans::Reset, Orphans::Reschedule, Orphans::Keep];
        let rule = usize::from(self.more >> 6) + usize::from(is(6));
        (service.on_removed, service.on_down) = (rules[(rule + 3) % 4], rules[rule % 4]);
        if is(0) {
            service.reals[0].weight = 0;
        }
        service.reals[1].down = is(5);
        if let Some(last) = service.reals.last_mut().filter(|_| is(3)) {
            last.address = back(last.address.is_ipv6(), 14);
        }
        if is(1) {
            service.reals.remove(1);
        }
    }

    fn rules(&self) -> Vec<SnatRule> {
        let rule = |six: bool| SnatRule {
            network: String::new(),
            name: format!("out{}", u8::from(six)),
            sources: vec![Network { address: back(six, 0), prefix: if six { 64 } else { 24 } }],
            pool: "wan".to_owned(),
            egress: (self.more >> 6 == 3).then_some(0),
            mapping: match self.has(4) {
                true => Mapping::PerSession,
                false => Mapping::EndpointIndependent,
            },
            ..SnatRule::default()
        };
        let rules = [false, true].into_iter().filter(|six| *six || !self.is_extended());
        rules.map(rule).collect()
    }

    /// Largest IP packet that may leave by a port.
    pub fn mtu(&self, port: PortId) -> u16 {
        match (port.0, self.is(5), self.has(5)) {
            (1, true, _) => 600,
            (0, _, true) => 1280,
            _ => 1500,
        }
    }

    /// The VLAN of frames that leave by a port.
    pub fn vlan(&self, port: PortId) -> u16 {
        if port.0 == 1 && self.is(3) { 20 } else { 0 }
    }

    /// Routes and neighbours: everything is reachable but, by one of the bits, the second real
    /// server's MAC is unknown, unless `known`; by another the real servers are on a VLAN.
    pub fn fib(&self, plan: &Plan, before: Option<&Fib>, known: bool) -> Fib {
        let mut builder = FibBuilder::default();
        let link = |port: PortId, of: fn(bool, u8) -> IpAddr| Link {
            port,
            mac: MACS[usize::from(port.0)],
            vlan: self.vlan(port),
            mtu: self.mtu(port),
            v4: match of(false, 1) {
                IpAddr::V4(own) if !self.is_compact() => Some(own),
                _ => None,
            },
            v6: None,
        };
        let (outside, inside) = (link(PortId(0), front), link(PortId(1), back));
        let (outside, inside) = (builder.link(outside), builder.link(inside));
        builder.route(Ipv4Addr::new(203, 0, 113, 0).into(), 24, Target::Nowhere);
        for six in [false, true] {
            let gateway = front(six, 254);
            let net = back(six, 0);
            let none = if six { IpAddr::V6(0.into()) } else { IpAddr::V4(0.into()) };
            builder.route(none, 0, Target::Via(outside, gateway));
            builder.route(net, if six { 64 } else { 24 }, Target::OnLink(inside));
            builder.neighbour(outside, gateway, [2, 0, 0, 0, 2, 0xfe]);
            for number in NEIGHBOURS {
                if number != 12 || !self.is(4) || known {
                    builder.neighbour(inside, back(six, number), host_mac(number));
                }
            }
        }
        builder.build(plan, before)
    }
}

/// The MAC address of what is next to a port on the way to an address.
pub fn next_mac(port: PortId, to: IpAddr) -> [u8; 6] {
    let known = (11..=17).find(|number| back(to.is_ipv6(), *number) == to);
    match (port.0, known) {
        (1, Some(number)) => host_mac(number),
        _ => [2, 0, 0, 0, 2, 0xfe],
    }
}

fn service(
    name: &str,
    (protocol, port): (Protocol, u16),
    six: bool,
    mode: Mode,
    reals: Vec<RealServer>,
) -> VirtualService {
    VirtualService {
        name: format!("{name}{}", u8::from(six)),
        protocol,
        vip: front(six, VIPS[0]),
        ports: Ports::one(port),
        mode,
        pool: "lan".to_owned(),
        reals,
        ..VirtualService::default()
    }
}

/// Three real servers of a version; port 0 where packets keep theirs.
fn reals(six: bool, mode: Mode, port: u16) -> Vec<RealServer> {
    let keeps = mode.keeps_destination();
    let real = |number: u8| RealServer {
        address: back(six, number),
        port: if keeps { 0 } else { port },
        weight: u16::from(number - 10),
        ..RealServer::default()
    };
    vec![real(11), real(12), real(13)]
}

/// Services of each mode, of one version on both sides.
fn of_modes(six: bool) -> Vec<VirtualService> {
    use Protocol::{Any, Sctp, Tcp, Udp};
    let plain =
        |name: &str, place, mode, port| service(name, place, six, mode, reals(six, mode, port));
    let mut all = vec![
        plain("web", (Tcp, 80), Mode::Fnat, 8080),
        plain("dns", (Udp, 53), Mode::Fnat, 8080),
        plain("nat", (Tcp, 81), Mode::Nat, 8080),
        plain("nat_udp", (Udp, 54), Mode::Nat, 8080),
        plain("dr", (Tcp, 82), Mode::Dr, 0),
        plain("dr_udp", (Udp, 55), Mode::Dr, 0),
        plain("ipip", (Tcp, 83), Mode::Ipip, 0),
        plain("ipip_udp", (Udp, 56), Mode::Ipip, 0),
        plain("sctp", (Sctp, 90), Mode::Fnat, 8080),
        plain("sctp_nat", (Sctp, 91), Mode::Nat, 0),
    ];
    for (name, mode, port) in [("each", Mode::Fnat, 59), ("each_nat", Mode::Nat, 60)] {
        all.push(VirtualService { one_packet: true, ..plain(name, (Udp, port), mode, 8080) });
    }
    let range = Ports { first: 8000, last: 8099 };
    all.push(VirtualService { ports: range, ..plain("range", (Tcp, 0), Mode::Nat, 0) });
    // By the way of each real server, in the same service; port 8080 as `nat` has it.
    let mut mixed = plain("mixed", (Tcp, 88), Mode::Fnat, 8080);
    for (real, mode) in mixed.reals.iter_mut().zip([Mode::Nat, Mode::Fnat, Mode::Nat]) {
        real.mode = Some(mode);
    }
    all.push(mixed);
    for (vip, name, protocol, mode) in
        [(1, "any", Any, Mode::Fnat), (1, "any_udp", Udp, Mode::Ipip), (2, "all", Tcp, Mode::Nat)]
    {
        let vip = front(six, VIPS[vip]);
        let ports = Ports::ALL;
        all.push(VirtualService { vip, ports, ..plain(name, (protocol, 0), mode, 0) });
    }
    let vip = front(six, VIPS[2]);
    all.push(VirtualService { vip, ports: Ports::ALL, ..plain("any_dr", (Any, 0), Mode::Dr, 0) });
    all
}

/// Services by the tunnels that have headers of their own, with and without what may be chosen; to
/// the other version, too, if it is wanted.
fn of_tunnels(six: bool, across: bool) -> Vec<VirtualService> {
    use Protocol::{Tcp, Udp};
    let chosen = TunnelOptions { port: None, checksum: Some(true), key: Some(7) };
    let mut all = Vec::new();
    for (name, place, mode, tunnel) in [
        ("gue", (Tcp, 95), Mode::Gue, TunnelOptions { key: None, ..chosen }),
        ("gue_udp", (Udp, 63), Mode::Gue, TunnelOptions { key: None, ..chosen }),
        ("gre", (Tcp, 96), Mode::Gre, chosen),
        ("gre_udp", (Udp, 64), Mode::Gre, TunnelOptions::default()),
    ] {
        let plain = service(name, place, six, mode, reals(six, mode, 0));
        all.push(VirtualService { tunnel, ..plain });
        if across {
            let place = (place.0, place.1 + 100);
            let name = format!("{name}_across");
            let plain = service(&name, place, six, mode, reals(!six, mode, 0));
            all.push(VirtualService { tunnel, ..plain });
        }
    }
    all
}

/// Services whose real servers learn the client's address, or are of the other version.
fn of_the_wide_table(six: bool) -> Vec<VirtualService> {
    use Protocol::{Any, Tcp, Udp};
    let mut all = Vec::new();
    for (name, place, client_address) in [
        ("toa", (Tcp, 84), ClientAddress::Toa),
        ("v1", (Tcp, 85), ClientAddress::ProxyV1),
        ("v2", (Tcp, 86), ClientAddress::ProxyV2),
        ("v2_udp", (Udp, 57), ClientAddress::ProxyV2),
        ("v2_across", (Udp, 61), ClientAddress::ProxyV2),
        ("v1_across", (Tcp, 92), ClientAddress::ProxyV1),
        ("toa_across", (Tcp, 93), ClientAddress::Toa),
    ] {
        let reals = reals(six != name.ends_with("across"), Mode::Fnat, 8080);
        let plain = service(name, place, six, Mode::Fnat, reals);
        all.push(VirtualService { client_address, ..plain });
    }
    for (name, place, mode) in [
        ("across", (Tcp, 87), Mode::Fnat),
        ("across_udp", (Udp, 58), Mode::Fnat),
        ("tunnel", (Tcp, 94), Mode::Ipip),
        ("tunnel_udp", (Udp, 62), Mode::Ipip),
    ] {
        all.push(service(name, place, six, mode, reals(!six, mode, 8080)));
    }
    let vip = front(six, VIPS[1] + 2);
    let tunnel = service("any_tunnel", (Any, 0), six, Mode::Ipip, reals(!six, Mode::Ipip, 0));
    all.push(VirtualService { vip, ports: Ports::ALL, ..tunnel });
    all
}
