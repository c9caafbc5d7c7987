//! What there is around the directors of a cluster: services, real servers, clients. All of it
//! follows from the seed, and every director has the same configuration in an order of its own.

use crate::cluster::judge::MOST;
use crate::rng::Rng;
use crate::wire::{Addr, TCP, UDP, is_v4, to_ip, v4};
use sluice_director::fib::{Fib, FibBuilder, Link, PortId, Target};
use sluice_director::plan::Plan;
use sluice_director::spec::{
    LocalPool, Mapping, Mode, Network, NoSession, Orphans, Persistence, Ports, Protocol,
    RealServer, Scheduling, SnatRule, Spec, Timeouts, TunnelSources, VirtualService,
};
use std::net::IpAddr;

pub(super) const FRONT: PortId = PortId(0);
pub(super) const BACK: PortId = PortId(1);
pub(super) const FRONT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const BACK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The documentation's IPv6 prefix.
const DOCUMENTATION: Addr = 0x2001_0db8 << 96;
const CLIENTS: [(Addr, u8); 2] = [(v4([198, 51, 100, 0]), 24), (DOCUMENTATION | 1 << 64, 64)];
const REALS: [(Addr, u8); 2] = [(v4([192, 0, 2, 0]), 24), (DOCUMENTATION | 2 << 64, 64)];

/// Networks of hosts inside, and the first addresses of the pool that they have outside.
const INSIDE: [(Addr, u8); 2] =
    [(v4([192, 0, 2, 48]), 28), (DOCUMENTATION | 2 << 64 | 0x5000, 116)];
const POOLED: Addr = 150;

/// Whether an address is a host's inside.
pub(super) fn is_inside(address: Addr) -> bool {
    let bits = |(net, prefix): (Addr, u8)| if is_v4(net) { 32 - prefix } else { 128 - prefix };
    INSIDE.iter().any(|net| (net.0 ^ address) >> bits(*net) == 0)
}

/// A virtual service, or a host outside.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub protocol: u8,
    pub vip: Addr,
    pub port: u16,
    pub mode: Mode,
    pub scheduler: Scheduling,
    pub persistence: Option<Persistence>,
    /// Indices of hosts, each with the port there; 0 for the one that the client sent to.
    pub reals: Vec<(usize, u16)>,
}

impl Service {
    /// Whether answers come by the director.
    pub const fn answers_come_by(&self) -> bool {
        matches!(self.mode, Mode::Fnat | Mode::Nat | Mode::Snat)
    }

    /// Whether its clients are hosts inside, which open connections to a host outside.
    pub const fn is_outward(&self) -> bool {
        matches!(self.mode, Mode::Snat)
    }
}

/// What a director's configuration lacks for a while: a service, or a real server of it.
pub(super) type Lacks = Option<(usize, Option<usize>)>;

/// The surroundings.
#[derive(Debug)]
pub(super) struct Site {
    pub services: Vec<Service>,
    /// Addresses of real servers, and behind them of hosts outside.
    pub hosts: Vec<Addr>,
    /// Addresses of clients, by family.
    pub clients: [Vec<Addr>; 2],
    /// Hosts inside that open connections to the outside, by family.
    pub insiders: [Vec<Addr>; 2],
    /// What a rule of source NAT gives them, where there is one.
    pub mapping: Option<Mapping>,
    pub timeouts: Timeouts,
    no_session: NoSession,
    first_port: u16,
    /// Whether each director has local addresses of its own, and knows the others'.
    own_pools: bool,
    seed: u64,
}

/// Hosts of each family.
const HOSTS: usize = 6;

impl Site {
    /// That of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::of(&[seed, 200]);
        let hosts = |family: usize| (0..HOSTS as u128).map(move |n| REALS[family].0 + 11 + n);
        let clients = |family: usize, count: u128| {
            (0..count).map(|number| CLIENTS[family].0 + 20 + number).collect()
        };
        let count = *rng.pick(&[2, 10, 60]);
        let mut site = Self {
            services: Vec::new(),
            hosts: hosts(0).chain(hosts(1)).collect(),
            clients: [clients(0, count), clients(1, count)],
            insiders: Default::default(),
            mapping: None,
            timeouts: Timeouts {
                tcp_established_s: *rng.pick(&[60, 120, 900]),
                udp_s: *rng.pick(&[6, 30, 60, 300]),
                tcp_fin_wait_s: 40,
                tcp_close_wait_s: 40,
                ..Timeouts::default()
            },
            no_session: *rng.pick(&[NoSession::Drop, NoSession::Reset]),
            first_port: *rng.pick(&[1024, 20_000]),
            own_pools: Rng::of(&[seed, 202]).chance(300),
            seed,
        };
        for number in 0..rng.range(2, 6) {
            let service = service(&mut rng, number as u16);
            site.services.push(service);
        }
        site.open_outside(&mut Rng::of(&[seed, 203]));
        site
    }

    /// In some clusters hosts inside open connections to hosts outside, each a service behind the
    /// others whose real server it is.
    fn open_outside(&mut self, rng: &mut Rng) {
        if !rng.chance(400) {
            return;
        }
        self.mapping = Some(*rng.pick(&[Mapping::EndpointIndependent, Mapping::PerSession]));
        for family in [0, 1] {
            let inside = INSIDE[family].0 + 2;
            self.insiders[family] = (0..rng.range(1, 4) as u128).map(|it| inside + it).collect();
        }
        for number in 0..rng.range(2, 5) as u16 {
            let family = rng.below(2) as usize;
            let far = CLIENTS[family].0 + 100 + u128::from(number);
            let protocol = *rng.pick(&[TCP, UDP]);
            self.hosts.push(far);
            let reals = vec![(self.hosts.len() - 1, 0)];
            let (scheduler, persistence) = (Scheduling::Rr, None);
            let (mode, port) = (Mode::Snat, 50 + number);
            let service = Service { protocol, vip: far, port, mode, scheduler, persistence, reals };
            self.services.push(service);
        }
    }

    /// How many services have virtual addresses: the first ones.
    pub fn virtual_services(&self) -> usize {
        self.services.iter().filter(|service| !service.is_outward()).count()
    }

    /// Whether a host inside has an address outside as its own.
    pub fn is_pooled(&self, address: Addr) -> bool {
        CLIENTS.iter().any(|(net, _)| (POOLED..POOLED + 8).contains(&address.wrapping_sub(*net)))
    }

    fn rule(&self) -> Option<SnatRule> {
        let net = |(address, prefix)| Network { address: to_ip(address), prefix };
        self.mapping.map(|mapping| SnatRule {
            name: "out".to_owned(),
            sources: INSIDE.map(net).to_vec(),
            pool: "wan".to_owned(),
            mapping,
            hairpinning: false,
            ..SnatRule::default()
        })
    }

    /// The configuration of a director, which lacks something.
    pub fn spec(&self, director: usize, lacks: Lacks) -> Spec {
        let mut rng = Rng::of(&[self.seed, 201, director as u64]);
        let mut services = Vec::new();
        for (number, service) in self.services.iter().enumerate() {
            let without = lacks.filter(|(lacking, _)| *lacking == number);
            if service.is_outward() || without.is_some_and(|(_, real)| real.is_none()) {
                continue;
            }
            let without = without.and_then(|(_, real)| real);
            let service = self.virtual_service((number, service), without, &mut rng);
            let at = rng.below(services.len() as u64 + 1) as usize;
            services.insert(at, service);
        }
        let pool = |name: &str, of: [Addr; 2]| {
            let (addresses, peer_addresses) = self.local_addresses(director, of);
            let (name, ports) = (name.to_owned(), self.first_port..=65_535);
            LocalPool { network: String::new(), name, addresses, ports, peer_addresses }
        };
        let outside = CLIENTS.map(|(net, _)| net + POOLED);
        let wan = self.mapping.map(|_| pool("wan", outside));
        let [v4, v6] = [0, 1].map(|family: usize| {
            let (bits, prefix) = [(112, 28), (0x600, 120)][family];
            Some(Network { address: to_ip(REALS[family].0 + bits), prefix })
        });
        Spec {
            services,
            pools: std::iter::once(pool("lan", REALS.map(|(net, _)| net + 100)))
                .chain(wan)
                .collect(),
            snat: self.rule().into_iter().collect(),
            timeouts: self.timeouts,
            no_session: self.no_session,
            tunnel: TunnelSources { v4, v6 },
            hash_seed: self.seed,
            ..Spec::default()
        }
    }

    /// The local addresses of a director, and those of the others as far as it knows them.
    fn local_addresses(&self, director: usize, first: [Addr; 2]) -> (Vec<IpAddr>, Vec<IpAddr>) {
        let of = |number: usize| first.map(|first| to_ip(first + number as Addr));
        if self.own_pools {
            let others = (0..MOST).filter(|other| *other != director).flat_map(of);
            return (of(director).to_vec(), others.collect());
        }
        let mut addresses = vec![of(0)[0], of(1)[0], of(0)[1]];
        addresses.rotate_left(director % 3);
        (addresses, Vec::new())
    }

    fn virtual_service(
        &self,
        (number, service): (usize, &Service),
        without: Option<usize>,
        rng: &mut Rng,
    ) -> VirtualService {
        let mut reals = Vec::new();
        for (at, (host, port)) in service.reals.iter().enumerate() {
            let place = rng.below(reals.len() as u64 + 1) as usize;
            if without != Some(at) {
                let address = to_ip(self.hosts[*host]);
                reals.insert(
                    place.min(reals.len()),
                    RealServer { address, port: *port, ..RealServer::default() },
                );
            }
        }
        VirtualService {
            name: format!("s{number}"),
            protocol: if service.protocol == TCP { Protocol::Tcp } else { Protocol::Udp },
            vip: to_ip(service.vip),
            ports: Ports::one(service.port),
            mode: service.mode,
            scheduler: service.scheduler,
            mh_table: 251,
            pool: "lan".to_owned(),
            on_removed: Orphans::Keep,
            persistence: service.persistence,
            reals,
            ..VirtualService::default()
        }
    }

    /// Routes and neighbours: everybody is on one of two links.
    pub fn fib(&self, plan: &Plan, before: Option<&Fib>) -> Fib {
        let mut builder = FibBuilder::default();
        let mut link = |port, mac| {
            builder.own_mac(port, mac);
            builder.link(Link { port, mac, mtu: 1500, ..Link::default() })
        };
        let (front, back) = (link(FRONT, FRONT_MAC), link(BACK, BACK_MAC));
        for family in [0, 1] {
            for ((prefix, bits), link) in [(CLIENTS[family], front), (REALS[family], back)] {
                builder.route(to_ip(prefix), bits, Target::OnLink(link));
            }
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let link = if number < 2 * HOSTS { back } else { front };
            builder.neighbour(link, to_ip(*host), host_mac(number));
        }
        for insider in self.insiders.iter().flatten() {
            builder.neighbour(back, to_ip(*insider), [2, 0, 0, 4, 0, *insider as u8]);
        }
        for client in self.clients.iter().flatten() {
            builder.neighbour(front, to_ip(*client), [2, 0, 0, 2, 0, *client as u8]);
        }
        builder.build(plan, before)
    }

    /// The host that a frame goes to.
    pub fn host_of(&self, mac: [u8; 6]) -> Option<usize> {
        (0..self.hosts.len()).find(|number| host_mac(*number) == mac)
    }
}

const fn host_mac(number: usize) -> [u8; 6] {
    [2, 0, 0, 1, 0, number as u8]
}

fn service(rng: &mut Rng, number: u16) -> Service {
    let family = rng.below(2) as usize;
    let mode = *rng.pick(&[Mode::Fnat, Mode::Fnat, Mode::Nat, Mode::Dr, Mode::Ipip]);
    let across = mode == Mode::Fnat && rng.chance(200);
    let behind = if across { 1 - family } else { family };
    let passes = matches!(mode, Mode::Dr | Mode::Ipip);
    let mut hosts: Vec<_> = (behind * HOSTS..(behind + 1) * HOSTS).collect();
    let reals = (0..rng.range(2, 4)).map(|_| {
        let host = hosts.swap_remove(rng.below(hosts.len() as u64) as usize);
        let port = if passes { 0 } else { *rng.pick(&[0, 80, 8080]) };
        (host, port)
    });
    Service {
        reals: reals.collect(),
        protocol: *rng.pick(&[TCP, TCP, UDP]),
        vip: CLIENTS[family].0 + 200 + u128::from(number % 2),
        port: 1000 + number,
        mode,
        scheduler: *rng.pick(&[Scheduling::Rr, Scheduling::Wlc, Scheduling::Mh]),
        persistence: rng.chance(250).then(|| Persistence {
            timeout_s: *rng.pick(&[60, 300]),
            prefix: if family == 0 { *rng.pick(&[24, 32]) } else { *rng.pick(&[64, 128]) },
        }),
    }
}
