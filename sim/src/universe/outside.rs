//! In some worlds hosts behind the director open connections to the outside, by rules of source
//! NAT. A rule is kept among the services, behind all of these: it is for no address of its own,
//! and its only real server stands for everybody outside.

use super::{ANY, BACK, FRONT, Limits, Pool, REMOTE, Real, Service, Universe};
use crate::recipe::{Feature, Recipe};
use crate::rng::Rng;
use crate::wire::{Addr, TCP, Tuple, UDP, v4};
use sluice_director::spec::{
    ClientAddress, HashKey, Mapping, Mode, Orphans, Scheduling, TunnelOptions,
};

/// What a rule says besides what services do.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Networks that connections come from.
    pub sources: Vec<(Addr, u32)>,
    /// Networks that they go to; everywhere without one.
    pub destinations: Vec<(Addr, u32)>,
    /// Protocols; TCP and UDP without one.
    pub protocols: Vec<u8>,
    pub mapping: Mapping,
    /// Seconds that an established TCP connection may be silent; 0 for as long as any.
    pub established_s: u32,
}

/// Whether an address is in one of some networks.
pub(crate) fn is_in(networks: &[(Addr, u32)], address: Addr) -> bool {
    networks.iter().any(|(net, bits)| (net ^ address) >> (128 - bits) == 0)
}

impl Rule {
    /// Whether it is for packets with this tuple as far as they and it alone say.
    pub fn matches(&self, tuple: Tuple) -> bool {
        matches!(tuple.protocol, TCP | UDP)
            && (self.protocols.is_empty() || self.protocols.contains(&tuple.protocol))
            && is_in(&self.sources, tuple.src)
            && (self.destinations.is_empty() || is_in(&self.destinations, tuple.dst))
    }

    /// Whether an inside endpoint has one outside, wherever it sends to (RFC 4787 4.1).
    pub fn shares(&self) -> bool {
        self.mapping == Mapping::EndpointIndependent
    }
}

/// Where hosts inside are in the networks of the back.
const INSIDE: [(Addr, u32); 2] = [(0x50, 124), (0x5000, 116)];

/// Adds hosts on both sides, and rules for them.
pub(super) fn open(recipe: &Recipe, families: &[usize], universe: &mut Universe) {
    let mut rng = Rng::of(&[recipe.seed, 60]);
    if !recipe.has(Feature::Outside) || !rng.chance(350) {
        return;
    }
    let families: Vec<_> = families.iter().copied().filter(|_| rng.chance(800)).collect();
    let Some(first) = families.first().copied() else { return };
    // Whether a closed session lingers is not known where others may take its port, and what comes
    // for it may not open another one that looks the same.
    universe.mid_stream &= universe.timeouts.tcp_time_wait_s != 0;
    let mut sources = Vec::new();
    for family in &families {
        let routers = universe.nodes.iter().position(|n| n.address == FRONT[*family].0 + 1);
        let (offset, bits) = INSIDE[*family];
        sources.extend((0..2).map(|back| (BACK[family * 2 + back].0 + offset, bits)));
        for number in 0..u128::from(rng.range(1, 6)) {
            let back = rng.below(2) as usize;
            let address = BACK[family * 2 + back].0 + offset + number;
            let node = universe.add(address, back + 1, None);
            universe.nodes[node].client = true;
            universe.insiders.push(node);
        }
        for number in 0..u128::from(rng.range(1, 5)) {
            let far = routers.filter(|_| rng.chance(500));
            let net = if far.is_some() { REMOTE[*family].0 } else { FRONT[*family].0 };
            let node = universe.add(net + 100 + number, 0, far);
            universe.outsiders.push(node);
        }
    }
    let pool = pool(universe, &families, &mut rng);
    for number in 0..rng.range(1, 3) {
        let pool = match number {
            0 => pool,
            _ => rng.below(universe.pools.len() as u64) as usize,
        };
        let rule = Rule {
            sources: sources.clone(),
            destinations: destinations(&families, &mut rng),
            protocols: rng.pick(&[&[][..], &[], &[TCP], &[UDP]]).to_vec(),
            mapping: *rng.pick(&[Mapping::EndpointIndependent, Mapping::PerSession]),
            established_s: *rng.pick(&[0, 0, 2, 30]),
        };
        let outside = universe.nodes.iter().position(|n| n.address == FRONT[first].0 + 1);
        universe.services.push(service(rule, pool, outside.unwrap_or(0)));
    }
}

/// A part of the outside, or all of it.
fn destinations(families: &[usize], rng: &mut Rng) -> Vec<(Addr, u32)> {
    let near = rng.chance(500);
    let net = |family: &usize| if near { FRONT[*family] } else { REMOTE[*family] };
    if rng.chance(600) { Vec::new() } else { families.iter().map(net).collect() }
}

/// A pool of its own for the first rule, or one that services use too.
fn pool(universe: &mut Universe, families: &[usize], rng: &mut Rng) -> usize {
    if rng.chance(300) {
        return rng.below(universe.pools.len() as u64) as usize;
    }
    let number = universe.pools.len() as u128;
    let addresses = (0..rng.range(1, 2) as u128 * families.len() as u128).map(|at| {
        let family = families[at as usize % families.len()];
        BACK[family * 2].0 + 100 + number * 8 + at
    });
    let addresses = addresses.collect();
    let ports = *rng.pick(&[6, 20, 100, 30_000]);
    let first_port = rng.range(1024, 65_536 - u64::from(ports)) as u16;
    universe.pools.push(Pool { addresses, first_port, ports });
    universe.pools.len() - 1
}

fn service(rule: Rule, pool: usize, node: usize) -> Service {
    Service {
        protocol: ANY,
        vip: v4([0; 4]),
        ports: (0, 0),
        mode: Mode::Snat,
        tunnel: TunnelOptions::default(),
        scheduler: Scheduling::Rr,
        hash: HashKey::Client,
        mh_table: 251,
        pool,
        on_removed: Orphans::Keep,
        on_down: Orphans::Keep,
        one_packet: false,
        persistence: None,
        idle_s: 0,
        limits: Limits::default(),
        client_address: ClientAddress::Hidden,
        reals: vec![Real { node, port: 0, weight: 1, mode: Mode::Snat }],
        rule: Some(rule),
    }
}
