//! What there is in a world: links, hosts, routers, services, pools, limits. All of it follows
//! from the seed and never changes; what changes while traffic runs is in [`crate::status`].

mod outside;
mod trouble;

pub(crate) use outside::{Rule, is_in};
pub(crate) use trouble::{Spreading, is_elephant};

use crate::recipe::{Feature, Recipe};
use crate::rng::Rng;
use crate::wire::{Addr, SCTP, TCP, UDP, is_v4, to_ip, v4};
use sluice_director::spec::{
    ClientAddress, HashKey, Mode, NoSession, Orphans, Persistence, Protocol, Refusal, Scheduling,
    Timeouts, TunnelOptions,
};
use std::fmt;

/// A port, or a VLAN on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub port: u16,
    pub vlan: u16,
    pub mtu: u16,
    /// The director's own addresses there, IPv4 and IPv6, as far as it says that it has some.
    pub own: [Option<Addr>; 2],
}

/// A host or a router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub address: Addr,
    /// Index of its link.
    pub link: usize,
    /// The router it is behind.
    pub gateway: Option<usize>,
    /// Whether it is a client.
    pub client: bool,
}

/// Where a prefix leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub prefix: Addr,
    /// Bits of the 128 that count.
    pub bits: u32,
    pub link: usize,
    /// The router, if it is not on the link itself.
    pub via: Option<usize>,
}

impl Route {
    pub const fn contains(&self, address: Addr) -> bool {
        self.bits == 0 || (self.prefix ^ address) >> (128 - self.bits) == 0
    }
}

/// A real server of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Real {
    pub node: usize,
    /// 0 for the one that the client sent to.
    pub port: u16,
    pub weight: u16,
    pub mode: Mode,
}

/// What of a service is bounded; 0 for no limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub sessions: u32,
    pub new_per_s: u32,
    /// Sessions of each of its real servers.
    pub upper: u32,
    pub slow_start_s: u32,
}

impl Limits {
    /// Whether real servers take fewer sessions than their weights say.
    pub const fn bend_weights(&self) -> bool {
        self.upper != 0 || self.slow_start_s != 0
    }
}

/// The protocol of a service that takes all.
pub(crate) const ANY: u8 = 0;

/// A virtual service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub protocol: u8,
    pub vip: Addr,
    pub ports: (u16, u16),
    pub mode: Mode,
    /// What its tunnels have besides.
    pub tunnel: TunnelOptions,
    pub scheduler: Scheduling,
    pub hash: HashKey,
    pub mh_table: u32,
    pub pool: usize,
    pub on_removed: Orphans,
    pub on_down: Orphans,
    pub one_packet: bool,
    pub persistence: Option<Persistence>,
    pub idle_s: u32,
    pub limits: Limits,
    /// How real servers learn their client's address.
    pub client_address: ClientAddress,
    pub reals: Vec<Real>,
    /// It is a rule of source NAT, whose real server stands for the outside.
    pub rule: Option<Rule>,
}

impl Service {
    /// What of a client's endpoint says which worker it belongs to, if it belongs to one.
    pub fn client(&self, (address, port): (Addr, u16)) -> (Addr, u16) {
        match self.persistence {
            Some(_) => (self.masked(address), 0),
            None => (address, port),
        }
    }

    /// What of a client's address is remembered.
    pub fn masked(&self, address: Addr) -> Addr {
        let bits = self.persistence.map_or(128, |persistence| u32::from(persistence.prefix));
        let bits = if is_v4(self.vip) { bits + 96 } else { bits };
        address & Addr::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0)
    }

    /// Whether its real servers are told who the client is.
    pub fn tells_client(&self) -> bool {
        self.client_address != ClientAddress::Hidden
    }

    /// Whether packets of a protocol may be for it.
    pub const fn takes(&self, protocol: u8) -> bool {
        self.protocol == protocol || self.protocol == ANY
    }

    pub const fn protocol_name(&self) -> Protocol {
        match self.protocol {
            TCP => Protocol::Tcp,
            SCTP => Protocol::Sctp,
            ANY => Protocol::Any,
            _ => Protocol::Udp,
        }
    }
}

/// A local pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub addresses: Vec<Addr>,
    pub first_port: u16,
    pub ports: u32,
}

impl Pool {
    /// Offsets of the ports that belong to a worker: the first, and one behind the last.
    pub const fn share(&self, worker: u16, workers: u16) -> (u32, u32) {
        let (worker, workers) = (worker as u32, workers as u32);
        (self.ports * worker / workers, self.ports * (worker + 1) / workers)
    }

    /// The worker that a port belongs to.
    pub fn owner(&self, port: u16, workers: u16) -> Option<u16> {
        let offset = u32::from(port.checked_sub(self.first_port)?);
        (0..workers).find(|worker| {
            let (start, end) = self.share(*worker, workers);
            (start..end).contains(&offset)
        })
    }
}

/// What the network does to packets, in thousandths and milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub loss: u32,
    pub duplicates: u32,
    pub spoilt: u32,
    pub delay_ms: u64,
    pub jitter_ms: u64,
    /// Packets that are cut although they need not be.
    pub pieces: u32,
    /// Packets that somebody complains about.
    pub errors: u32,
}

/// A world.
#[derive(Clone, Debug)]
pub(crate) struct Universe {
    pub seed: u64,
    pub workers: u16,
    pub links: Vec<Link>,
    pub nodes: Vec<Node>,
    /// Of IPv4 and of IPv6.
    pub clients: [Vec<usize>; 2],
    /// Hosts behind the director that open connections, and those outside that these are to.
    pub insiders: Vec<usize>,
    pub outsiders: Vec<usize>,
    pub routes: Vec<Route>,
    /// Virtual services, and behind them rules of source NAT in their order.
    pub services: Vec<Service>,
    pub pools: Vec<Pool>,
    /// Networks of outer source addresses, IPv4 and IPv6, with their bits of the 128.
    pub tunnel: [(Addr, u32); 2],
    pub network: Network,
    pub timeouts: Timeouts,
    /// Sessions of each worker's table.
    pub capacity: u32,
    pub no_session: NoSession,
    pub refused: Refusal,
    pub mid_stream: bool,
    /// ICMP errors that a worker may send in a second.
    pub errors_per_s: u32,
    /// Mean time between two actions in microseconds.
    pub gap_us: u64,
    /// The machine and everybody else get to it so often, in milliseconds.
    pub tick_ms: u64,
    /// Actions of a thousand that are not a new flow.
    pub unrest: u32,
    pub ring: usize,
    pub held: usize,
    /// Largest burst.
    pub burst: usize,
    /// Source ports that clients use.
    pub client_ports: u16,
    /// Datagrams in pieces that a worker follows.
    pub fragments: u32,
    pub spreading: Spreading,
}

/// Networks with hosts: prefix, and bits of the 128. The documentation's IPv6 prefix begins all.
const DOCUMENTATION: Addr = 0x2001_0db8 << 96;
const FRONT: [(Addr, u32); 2] = [(v4([198, 51, 100, 0]), 120), (DOCUMENTATION | 1 << 64, 64)];
const REMOTE: [(Addr, u32); 2] = [(v4([203, 0, 113, 0]), 120), (DOCUMENTATION | 9 << 64, 64)];
const BACK: [(Addr, u32); 4] = [
    (v4([192, 0, 2, 0]), 121),
    (v4([192, 0, 2, 128]), 121),
    (DOCUMENTATION | 2 << 64, 64),
    (DOCUMENTATION | 3 << 64, 64),
];

impl Universe {
    /// The world of a recipe.
    pub fn new(recipe: &Recipe) -> Self {
        let mut rng = Rng::of(&[recipe.seed, 1]);
        let drawn = rng.range(1, 4) as u16;
        let workers = recipe.workers.unwrap_or(drawn).clamp(1, 4);
        let mut universe = Self {
            seed: recipe.seed,
            workers,
            links: trouble::links(&mut rng, recipe),
            nodes: Vec::new(),
            clients: Default::default(),
            insiders: Vec::new(),
            outsiders: Vec::new(),
            routes: Vec::new(),
            services: Vec::new(),
            pools: Vec::new(),
            tunnel: [(BACK[0].0 + 96, rng.range(126, 128) as u32), (BACK[2].0 + 0x600, 120)],
            network: trouble::network(&mut rng, recipe),
            timeouts: trouble::timeouts(&mut rng),
            capacity: if rng.chance(300) {
                rng.range(8, 200) as u32
            } else {
                trouble::ample(recipe)
            },
            no_session: *rng.pick(&[NoSession::Drop, NoSession::Reset]),
            refused: if recipe.seed.is_multiple_of(4) { Refusal::Drop } else { Refusal::Answer },
            mid_stream: rng.chance(100),
            errors_per_s: *rng.pick(&[0, 5, 1000]),
            gap_us: *rng.pick(&[30, 60, 100, 150, 500, 5000]),
            tick_ms: 1,
            unrest: *rng.pick(&[1, 5, 20, 60]),
            ring: if rng.chance(200) { rng.range(1, 32) as usize } else { 1024 },
            held: *rng.pick(&[0, 4, 64, 1024]),
            burst: *rng.pick(&[1, 7, 32, 64, 64, 64]),
            client_ports: *rng.pick(&[3, 50, 2000, 20_000]),
            fragments: 4096,
            spreading: trouble::spreading(recipe),
        };
        let families: &[usize] = [&[0][..], &[0], &[1], &[0, 1]][rng.below(4) as usize];
        universe.tick_ms = trouble::tick(recipe, universe.gap_us);
        universe.people(&mut rng, families);
        universe.found(recipe, &mut rng, families);
        if recipe.has(Feature::Errors) {
            let mut rng = Rng::of(&[recipe.seed, 22]);
            universe.network.errors = *rng.pick(&[0, 0, 5, 40]);
        }
        if recipe.has(Feature::Pieces) {
            let mut rng = Rng::of(&[recipe.seed, 21]);
            universe.network.pieces = *rng.pick(&[0, 0, 20, 200]);
            universe.fragments = *rng.pick(&[8, 256, 4096, 4096]);
        }
        trouble::tell_clients(recipe, &mut universe);
        outside::open(recipe, families, &mut universe);
        universe
    }

    fn add(&mut self, address: Addr, link: usize, gateway: Option<usize>) -> usize {
        self.nodes.push(Node { address, link, gateway, client: false });
        self.nodes.len() - 1
    }

    /// Whether a flow with this token has very much traffic.
    pub fn is_elephant(&self, token: u32) -> bool {
        is_elephant(self.seed, token, self.spreading.elephants)
    }

    /// Whether any real server is reached like this.
    pub fn has(&self, mode: Mode) -> bool {
        self.services.iter().flat_map(|service| &service.reals).any(|real| real.mode == mode)
    }

    /// Networks, routers and clients.
    fn people(&mut self, rng: &mut Rng, families: &[usize]) {
        for family in [0, 1] {
            let router = self.add(FRONT[family].0 + 1, 0, None);
            let (prefix, bits) = FRONT[family];
            self.routes.push(Route { prefix, bits, link: 0, via: None });
            for (at, (prefix, bits)) in BACK[family * 2..family * 2 + 2].iter().enumerate() {
                self.routes.push(Route { prefix: *prefix, bits: *bits, link: at + 1, via: None });
            }
            let all = [(v4([0; 4]), 96), (0x2000 << 112, 3)][family];
            let (prefix, bits) = if rng.chance(300) { all } else { REMOTE[family] };
            self.routes.push(Route { prefix, bits, link: 0, via: Some(router) });
            if !families.contains(&family) {
                continue;
            }
            for number in 0..*rng.pick(&[2, 8, 40]) {
                let client = if rng.chance(500) {
                    self.add(REMOTE[family].0 + 10 + number, 0, Some(router))
                } else {
                    self.add(FRONT[family].0 + 10 + number, 0, None)
                };
                self.nodes[client].client = true;
                self.clients[family].push(client);
            }
        }
    }

    /// Pools, real servers and services.
    fn found(&mut self, recipe: &Recipe, rng: &mut Rng, families: &[usize]) {
        let first = self.nodes.len();
        let hosts = rng.range(1, 10);
        for number in 0..u128::from(hosts) {
            let back = rng.below(2) as usize;
            let family = *rng.pick(families);
            self.add(BACK[family * 2 + back].0 + 11 + number, back + 1, None);
        }
        for number in 0..rng.range(1, 2) as u128 {
            let count = rng.range(1, 3) as u128;
            let addresses = (0..count * families.len() as u128).map(|at| {
                let family = families[at as usize % families.len()];
                BACK[family * 2 + at as usize / 2 % 2].0 + 100 + number * 8 + at
            });
            let few = rng.chance(300);
            let ports = if few { rng.range(8, 300) } else { rng.range(20_000, 60_000) };
            let first_port = rng.range(1024, 65_536 - ports) as u16;
            let addresses = addresses.collect();
            self.pools.push(Pool { addresses, first_port, ports: ports as u32 });
        }
        for number in 0..rng.range(1, 6) as u16 {
            let family = *rng.pick(families);
            let service = self.service(recipe, rng, number, family, (first, hosts as usize));
            self.services.extend(service);
        }
        while self.services.is_empty() {
            let family = usize::from(!is_v4(self.nodes[first].address));
            let service = self.service(recipe, rng, 9, family, (first, 1));
            self.services.extend(service);
        }
    }

    /// What a service is of that is neither of TCP nor of UDP, if it is.
    fn other(&self, recipe: &Recipe, number: u16, vip: Addr) -> Option<u8> {
        let mut rng = Rng::of(&[recipe.seed, 12, number.into()]);
        let other = *rng.pick(&[SCTP, ANY]);
        let taken = self.services.iter().any(|s| (s.protocol, s.vip) == (other, vip));
        (recipe.has(Feature::Protocols) && rng.chance(500) && !taken).then_some(other)
    }

    /// A service of one family; none if no host can serve it.
    fn service(
        &self,
        recipe: &Recipe,
        rng: &mut Rng,
        number: u16,
        family: usize,
        hosts: (usize, usize),
    ) -> Option<Service> {
        let modes = [Mode::Fnat, Mode::Fnat, Mode::Nat, Mode::Dr, Mode::Ipip];
        let mode = *rng.pick(&modes);
        let (mut mixed, mut across) = (rng.chance(200), rng.chance(300));
        let other = rng.chance(100);
        if !recipe.has(Feature::Mixed) {
            (mixed, across) = (false, false);
        }
        let vip = FRONT[family].0 + 200 + u128::from(rng.below(2));
        let mut nodes: Vec<_> = (hosts.0..hosts.0 + hosts.1).collect();
        let mut reals = Vec::new();
        for _ in 0..rng.range(1, 8).min(hosts.1 as u64) {
            let node = nodes.swap_remove(rng.below(nodes.len() as u64) as usize);
            let mode = if mixed { *rng.pick(&modes) } else { mode };
            let same = is_v4(self.nodes[node].address) == is_v4(vip);
            let port = *rng.pick(&[80, 80, 8080, 53, 0]);
            // Who is reached with the packet as it is has the port of the packet.
            let port = if matches!(mode, Mode::Dr | Mode::Ipip) { 0 } else { port };
            let weight = rng.range(1, 5) as u16;
            let all_other = other && !same && mode != Mode::Nat;
            if all_other || !other && (same || across && mode != Mode::Nat) {
                reals.push(Real { node, port, weight, mode });
            }
        }
        let base = 1000 + number * 10;
        let port = base + rng.below(10) as u16;
        let mut ports = *rng.pick(&[(port, port), (port, port), (base, base + 9), (0, u16::MAX)]);
        let protocol = *rng.pick(&[TCP, TCP, UDP]);
        let key = |s: &Service| (s.protocol, s.vip, s.ports);
        if self.services.iter().any(|other| key(other) == (protocol, vip, ports)) {
            ports = (port, port);
        }
        let blind = reals.iter().all(|real| real.mode != Mode::Fnat);
        let other = self.other(recipe, number, vip).filter(|_| blind);
        let protocol = other.unwrap_or(protocol);
        if protocol == ANY {
            ports = (0, u16::MAX);
            reals.iter_mut().for_each(|real| real.port = 0);
        }
        let tunnel = trouble::tunnels(recipe, number, &mut reals);
        let rules = [Orphans::Keep, Orphans::Reset, Orphans::Reschedule];
        (!reals.is_empty()).then(|| Service {
            protocol,
            vip,
            ports,
            mode,
            tunnel,
            scheduler: *rng.pick(Scheduling::ALL),
            hash: *rng.pick(&[HashKey::Client, HashKey::ClientPort]),
            mh_table: *rng.pick(&[251, 251, 251, 251, 251, 251, 1009, 4099]),
            pool: rng.below(self.pools.len() as u64) as usize,
            on_removed: *rng.pick(&rules),
            on_down: *rng.pick(&rules),
            one_packet: protocol == UDP && rng.chance(200),
            persistence: rng.chance(150).then(|| trouble::persistence(rng, vip)),
            idle_s: *rng.pick(&[0, 0, 0, 2, 30, 600]),
            limits: trouble::limits(rng),
            client_address: ClientAddress::Hidden,
            reals,
            rule: None,
        })
    }
}

impl fmt::Display for Universe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {} workers, {} sessions each", self.workers, self.capacity)?;
        for (number, link) in self.links.iter().enumerate() {
            let Link { port, vlan, mtu, .. } = link;
            writeln!(f, "  link {number}: port {port}, VLAN {vlan}, MTU {mtu}")?;
        }
        for (number, pool) in self.pools.iter().enumerate() {
            let locals: Vec<_> = pool.addresses.iter().map(|a| to_ip(*a).to_string()).collect();
            let (first, ports) = (pool.first_port, pool.ports);
            writeln!(f, "  pool {number}: {} from {first}, {ports} ports", locals.join(" "))?;
        }
        for (number, service) in self.services.iter().enumerate() {
            let Service { protocol, vip, ports, mode, scheduler, pool, limits, .. } = service;
            let Service { one_packet, persistence, .. } = service;
            let (vip, mode, scheduler) = (to_ip(*vip), mode.name(), scheduler.name());
            let rules = (service.on_removed.name(), service.on_down.name());
            writeln!(
                f,
                "  service {number}: protocol {protocol} {vip} {ports:?} {mode} {scheduler} \
                 pool {pool} {rules:?} {limits:?} \
                 one packet {one_packet} {persistence:?}"
            )?;
            for (number, real) in service.reals.iter().enumerate() {
                let address = to_ip(self.nodes[real.node].address);
                let Real { port, weight, mode, .. } = real;
                let mode = mode.name();
                writeln!(f, "    real {number}: {address} {port} weight {weight} {mode}")?;
            }
        }
        Ok(())
    }
}
