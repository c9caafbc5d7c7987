//! What is so at a time: which services and real servers there are, which neighbours answer; and
//! the snapshot that is compiled from it and given to the workers.
//!
//! A snapshot keeps the model's own view of what it says beside the compiled plan, so that the
//! checker never asks the plan.

mod networks;
mod rules;

use crate::universe::{ANY, Service, Universe};
use crate::wire::{Addr, Seen, is_v4, to_ip};
use rustc_hash::FxHashMap;
use sluice_director::fib::{Fib, FibBuilder, Link, LinkId, PortId, Target};
use sluice_director::plan::{CompileError, Plan, Retired};
use sluice_director::spec::{
    LocalPool, Mode, Network, Orphans, Ports, RealServer, Spec, TunnelSources, VirtualService,
};
use std::net::{IpAddr, Ipv6Addr};

/// Whether and how a real server is configured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealStatus {
    pub present: bool,
    pub weight: u16,
    pub down: bool,
}

/// Whether a service is configured, and its real servers.
#[derive(Clone, Debug)]
pub(crate) struct ServiceStatus {
    pub present: bool,
    /// How often it came again after it had been taken away.
    pub returns: u32,
    pub reals: Vec<RealStatus>,
}

impl ServiceStatus {
    /// It is configured from now on, or no more.
    pub fn set(&mut self, present: bool) {
        self.returns += u32::from(present && !self.present);
        self.present = present;
    }
}

/// What changes.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub services: Vec<ServiceStatus>,
    /// By pool and address: whether it is in its pool.
    pub locals: Vec<Vec<bool>>,
    /// By node: whether its MAC address is known.
    pub known: Vec<bool>,
    /// By node: how often its MAC address has changed.
    pub macs: Vec<u8>,
    /// By route: whether it is there.
    pub routes: Vec<bool>,
}

impl Status {
    /// Everything there, everybody well.
    pub fn new(universe: &Universe) -> Self {
        let services = universe.services.iter().map(|service| ServiceStatus {
            present: true,
            returns: 0,
            reals: service
                .reals
                .iter()
                .map(|real| RealStatus { present: true, weight: real.weight, down: false })
                .collect(),
        });
        Self {
            services: services.collect(),
            locals: universe.pools.iter().map(|pool| vec![true; pool.addresses.len()]).collect(),
            known: vec![true; universe.nodes.len()],
            macs: vec![0; universe.nodes.len()],
            routes: vec![true; universe.routes.len()],
        }
    }

    /// The MAC address of a node now.
    pub fn mac(&self, node: usize) -> [u8; 6] {
        let [high, low] = (node as u16).to_be_bytes();
        [2, 0x10, self.macs[node], 0, high, low]
    }
}

/// The node that a MAC address is, or was, of.
pub(crate) fn node_of(mac: [u8; 6]) -> Option<usize> {
    (mac[..2] == [2, 0x10]).then(|| usize::from(u16::from_be_bytes([mac[4], mac[5]])))
}

/// The director's MAC address on a link.
pub(crate) const fn link_mac(link: usize) -> [u8; 6] {
    [2, 1, 0, 0, 0, link as u8]
}

/// Where packets to an address go next: the link, and the neighbour there.
pub(crate) type Next = Option<(usize, Addr)>;

/// What workers run with.
pub(crate) struct Snapshot {
    pub epoch: u64,
    /// What the world's network has of it,
    pub plan: Plan,
    /// and all of it.
    pub whole: Plan,
    pub fib: Fib,
    pub status: Status,
    /// By service: places of the real servers that take new sessions.
    pub eligible: Vec<Vec<usize>>,
    /// Local addresses that are or once were configured, with their pool and whether they are
    /// in it.
    pub locals: FxHashMap<Addr, (usize, bool)>,
    /// By service: whether a client's sessions belong to one worker.
    pub owned: Vec<bool>,
    /// By service: whether that is or once was so.
    pub once_owned: Vec<bool>,
    nexts: Vec<Next>,
    numbers: FxHashMap<Addr, usize>,
}

impl Snapshot {
    /// Compiles a status.
    pub fn compile(
        universe: &Universe,
        status: &Status,
        before: Option<&Self>,
        retired: &Retired,
    ) -> Result<Self, CompileError> {
        let mut spec = spec(universe, status);
        let place = networks::isolate(&mut spec, universe.seed);
        let whole = Plan::compile(&spec, before.map(|before| &before.whole), retired)?;
        let plan = whole.of_network(place);
        let fib = fib(universe, status, &plan, before.map(|before| &before.fib));
        let mut locals = before.map(|before| before.locals.clone()).unwrap_or_default();
        locals.values_mut().for_each(|(_, present)| *present = false);
        for (number, pool) in universe.pools.iter().enumerate() {
            for (address, present) in pool.addresses.iter().zip(&status.locals[number]) {
                if *present {
                    locals.insert(*address, (number, true));
                }
            }
        }
        let owned = owned(universe, status);
        let once = before.map(|before| &before.once_owned);
        let is_or_was = |(at, now): (usize, &bool)| *now || once.is_some_and(|once| once[at]);
        let next = |address| next(universe, status, address);
        Ok(Self {
            epoch: plan.epoch,
            plan,
            whole,
            fib,
            eligible: status.services.iter().map(eligible).collect(),
            locals,
            once_owned: owned.iter().enumerate().map(is_or_was).collect(),
            owned,
            nexts: universe.nodes.iter().map(|node| next(node.address)).collect(),
            numbers: universe.nodes.iter().enumerate().map(|(at, n)| (n.address, at)).collect(),
            status: status.clone(),
        })
    }

    /// Where packets to an address go next, and whether the neighbour's MAC address is known.
    pub fn next(
        &self,
        universe: &Universe,
        address: Addr,
    ) -> Option<(usize, Addr, Option<[u8; 6]>)> {
        let (link, neighbour) = match self.numbers.get(&address) {
            Some(node) => self.nexts[*node],
            None => next(universe, &self.status, address),
        }?;
        let node = self.numbers.get(&neighbour).filter(|node| self.status.known[**node]);
        Some((link, neighbour, node.map(|node| self.status.mac(*node))))
    }

    /// The node that has an address.
    pub fn node_at(&self, address: Addr) -> Option<usize> {
        self.numbers.get(&address).copied()
    }

    /// Services that, now or once, have a packet's client belong to one worker.
    pub fn owned_at<'a>(
        &'a self,
        universe: &'a Universe,
        protocol: u8,
        to: (Addr, u16),
    ) -> impl Iterator<Item = usize> + 'a {
        let services = universe.services.iter().zip(&self.once_owned).enumerate();
        let fits = services.filter(move |(_, (service, owned))| {
            let (first, last) = service.ports;
            let covers = (first..=last).contains(&to.1) && service.vip == to.0;
            **owned && covers && service.takes(protocol)
        });
        fits.map(|(number, _)| number)
    }

    /// What becomes of the sessions of a service's real server.
    pub fn rule(&self, universe: &Universe, service: usize, real: usize) -> Orphans {
        let (spec, status) = (&universe.services[service], &self.status.services[service]);
        let there = status.present && status.reals[real].present;
        match (there, status.reals[real].down) {
            (false, _) => spec.on_removed,
            (true, true) => spec.on_down,
            (true, false) => Orphans::Keep,
        }
    }

    /// The service that a packet is for: the one with the narrowest ports.
    pub fn service_at(&self, universe: &Universe, protocol: u8, to: (Addr, u16)) -> Option<usize> {
        let fits = universe.services.iter().enumerate().filter(|(at, service)| {
            self.status.services[*at].present
                && service.rule.is_none()
                && service.takes(protocol)
                && service.vip == to.0
                && (service.ports.0..=service.ports.1).contains(&to.1)
        });
        let width = |(_, service): &(usize, &Service)| {
            (service.protocol == ANY, service.ports.1 - service.ports.0)
        };
        fits.min_by_key(width).map(|(at, _)| at)
    }
}

/// Which services' clients belong to one worker: those that NAT is used for.
fn owned(universe: &Universe, status: &Status) -> Vec<bool> {
    let services = universe.services.iter().zip(&status.services);
    let nat = services.map(|(service, status)| {
        let mut there = service.reals.iter().zip(&status.reals).filter(|(_, s)| s.present);
        let by_client = matches!(service.mode, Mode::Nat | Mode::Snat);
        let owned = by_client || service.persistence.is_some();
        owned || there.any(|(real, _)| real.mode == Mode::Nat)
    });
    nat.collect()
}

/// Real servers that take new sessions.
fn eligible(service: &ServiceStatus) -> Vec<usize> {
    let takes = |real: &RealStatus| real.present && real.weight > 0 && !real.down;
    service.reals.iter().enumerate().filter(|(_, real)| takes(real)).map(|(at, _)| at).collect()
}

/// The longest prefix.
fn next(universe: &Universe, status: &Status, address: Addr) -> Next {
    let there = universe.routes.iter().zip(&status.routes).filter(|(_, there)| **there);
    let fits = there.map(|(route, _)| route).filter(|route| route.contains(address));
    let route = fits.max_by_key(|route| route.bits)?;
    Some((route.link, route.via.map_or(address, |node| universe.nodes[node].address)))
}

fn spec(universe: &Universe, status: &Status) -> Spec {
    let present = universe.services.iter().zip(&status.services).enumerate();
    let present = present.filter(|(_, (service, status))| status.present && service.rule.is_none());
    let services = present.map(|(number, (service, status))| VirtualService {
        name: format!("s{number}"),
        protocol: service.protocol_name(),
        vip: to_ip(service.vip),
        ports: Ports { first: service.ports.0, last: service.ports.1 },
        mode: service.mode,
        scheduler: service.scheduler,
        hash: service.hash,
        mh_table: service.mh_table,
        pool: format!("p{}", service.pool),
        on_removed: service.on_removed,
        on_down: service.on_down,
        one_packet: service.one_packet,
        persistence: service.persistence,
        max_sessions: service.limits.sessions,
        max_new_per_s: service.limits.new_per_s,
        slow_start_s: service.limits.slow_start_s,
        idle_timeout_s: service.idle_s,
        tunnel: service.tunnel,
        client_address: service.client_address,
        reals: service
            .reals
            .iter()
            .zip(&status.reals)
            .filter(|(_, status)| status.present)
            .map(|(real, status)| RealServer {
                address: to_ip(universe.nodes[real.node].address),
                port: real.port,
                weight: status.weight,
                down: status.down,
                mode: Some(real.mode),
                upper_sessions: service.limits.upper,
                ..RealServer::default()
            })
            .collect(),
        ..VirtualService::default()
    });
    let pools = universe.pools.iter().zip(&status.locals).enumerate();
    let pools = pools.map(|(number, (pool, present))| LocalPool {
        network: String::new(),
        name: format!("p{number}"),
        addresses: pool
            .addresses
            .iter()
            .zip(present)
            .filter(|(_, present)| **present)
            .map(|(address, _)| to_ip(*address))
            .collect(),
        ports: pool.first_port..=(u32::from(pool.first_port) + pool.ports - 1) as u16,
        peer_addresses: Vec::new(),
    });
    Spec {
        services: services.collect(),
        pools: pools.collect(),
        snat: rules::spec(universe, status),
        timeouts: universe.timeouts,
        no_session: universe.no_session,
        refused: universe.refused,
        // The model does not follow which session gives way.
        gives_way: false,
        accept_mid_stream: universe.mid_stream,
        icmp_errors_per_s: universe.errors_per_s,
        tunnel: tunnel(universe),
        hash_seed: universe.seed,
        ..Spec::default()
    }
}

fn tunnel(universe: &Universe) -> TunnelSources {
    let [(v4, v4_bits), (v6, v6_bits)] = universe.tunnel;
    let net = |address, prefix: u32| Network { address: to_ip(address), prefix: prefix as u8 };
    TunnelSources { v4: Some(net(v4, v4_bits - 96)), v6: Some(net(v6, v6_bits)) }
}

fn fib(universe: &Universe, status: &Status, plan: &Plan, before: Option<&Fib>) -> Fib {
    let mut builder = FibBuilder::default();
    for (number, link) in universe.links.iter().enumerate() {
        let mac = link_mac(number);
        builder.own_mac(PortId(link.port), mac);
        builder.link(Link {
            port: PortId(link.port),
            mac,
            vlan: link.vlan,
            mtu: link.mtu,
            v4: link.own[0].and_then(|own| match to_ip(own) {
                IpAddr::V4(own) => Some(own),
                IpAddr::V6(_) => None,
            }),
            v6: link.own[1].map(Ipv6Addr::from_bits),
        });
    }
    for (route, there) in universe.routes.iter().zip(&status.routes) {
        let link = LinkId(route.link as u16);
        let target = match route.via {
            Some(node) => Target::Via(link, to_ip(universe.nodes[node].address)),
            None => Target::OnLink(link),
        };
        let bits = if is_v4(route.prefix) { route.bits - 96 } else { route.bits };
        if *there {
            builder.route(to_ip(route.prefix), bits as u8, target);
        }
    }
    for (number, node) in universe.nodes.iter().enumerate() {
        if status.known[number] && node.gateway.is_none() {
            let link = LinkId(node.link as u16);
            builder.neighbour(link, to_ip(node.address), status.mac(number));
        }
    }
    builder.build(plan, before)
}

impl Snapshot {
    /// Whether a neighbour's MAC address is known.
    pub fn knows(&self, universe: &Universe, (link, neighbour): (usize, Addr)) -> bool {
        self.numbers
            .get(&neighbour)
            .is_some_and(|node| self.status.known[*node] && universe.nodes[*node].link == link)
    }

    /// Whether a frame that was held goes to the neighbour that it waited for.
    pub fn check_release(
        &self,
        universe: &Universe,
        (link, neighbour): (usize, Addr),
        seen: &Seen,
        port: u16,
    ) -> Result<(), String> {
        let place = &universe.links[link];
        let mac = self.numbers.get(&neighbour).map(|node| self.status.mac(*node));
        let right = self.knows(universe, (link, neighbour))
            && Some(seen.to) == mac
            && (seen.from, seen.vlan, port) == (link_mac(link), place.vlan, place.port);
        if right { Ok(()) } else { Err(format!("a held frame went to {:?}", seen.to)) }
    }
}
