//! What happens in a world, as a numbered list: action `n` follows from the seed and `n` alone, so
//! any of them can be left out without changing the others.

use crate::recipe::{Feature, Recipe};
use crate::rng::Rng;
use crate::universe::{ANY, Pool, Service, Universe};
use crate::wire::{
    ACK, Addr, FIN, OTHERS, Packet, RST, SCTP, SYN, Stream, TCP, Tuple, UDP, is_v4, v4,
};
use sluice_director::spec::Mode;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// A client begins.
    Flow { node: usize, tuple: Tuple, token: u32 },
    /// A packet out of nowhere.
    Misdirected { node: usize, packet: Packet },
    /// A service comes or goes.
    Service(usize, bool),
    /// A real server comes or goes.
    Real(usize, usize, bool),
    /// A real server gets another weight; 0 drains it.
    Weight(usize, usize, u16),
    /// A real server is found dead, or alive again.
    Down(usize, usize, bool),
    /// A local address joins or leaves its pool.
    Local(usize, usize, bool),
    /// A neighbour's MAC address is known or not.
    Neighbour(usize, bool),
    /// A neighbour gets another MAC address.
    Mac(usize),
    /// A route is there or not.
    Route(usize, bool),
    /// A host answers or not.
    Silence(usize, bool),
    /// A flow is spread over so many workers: that of a client's tuple, or one of those there are
    /// by then.
    Spread { flow: Option<Tuple>, pick: u32, outbound: bool, workers: u16 },
    /// One of a worker's is spread no more.
    GatherIn { worker: u16, pick: u32 },
}

/// An action and when it happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action {
    pub number: u32,
    pub at_us: u64,
    pub act: Act,
    /// When the opposite happens, if it does.
    pub until_ms: Option<u64>,
}

/// The list, one after the other.
pub(crate) struct Actions {
    number: u32,
    at_us: u64,
}

impl Actions {
    pub const fn new(now_ms: u64) -> Self {
        Self { number: 0, at_us: now_ms * 1000 }
    }

    /// The next one.
    pub fn next(&mut self, universe: &Universe, recipe: &Recipe) -> Action {
        let mut rng = Rng::of(&[universe.seed, 5, self.number.into()]);
        // Geometric by halves: bursts and lulls.
        let gap = universe.gap_us * rng.range(0, 2) * rng.range(0, 2);
        self.at_us += gap;
        self.number += 1;
        let mut act = flow(universe, &mut rng);
        if rng.chance(universe.unrest)
            && let Some(other) = unrest(universe, recipe, &mut rng)
        {
            act = other;
        }
        let mut aside = Rng::of(&[universe.seed, 42, self.number.into()]);
        if aside.chance(universe.spreading.orders) {
            act = spread(universe, &mut aside);
        }
        let lasts = self.at_us / 1000 + *rng.pick(&[3, 100, 1000, 4000, 20_000]);
        // Somebody must go on talking.
        let ends = rng.chance(900) || matches!(act, Act::Silence(..));
        let until_ms = match act {
            // Soon after it began it is known for what it is.
            Act::Flow { token, .. } if universe.is_elephant(token) => {
                Some(self.at_us / 1000 + *aside.pick(&[3, 8, 30, 100]))
            }
            _ => ends.then_some(lasts),
        };
        Action { number: self.number - 1, at_us: self.at_us, act, until_ms }
    }
}

impl Act {
    /// What takes it back.
    pub fn opposite(self, universe: &Universe) -> Option<Self> {
        Some(match self {
            Self::Service(service, on) => Self::Service(service, !on),
            Self::Real(service, real, on) => Self::Real(service, real, !on),
            Self::Weight(service, real, _) => {
                Self::Weight(service, real, universe.services[service].reals[real].weight)
            }
            Self::Down(service, real, on) => Self::Down(service, real, !on),
            Self::Local(pool, address, on) => Self::Local(pool, address, !on),
            Self::Neighbour(node, on) => Self::Neighbour(node, !on),
            Self::Route(route, on) => Self::Route(route, !on),
            Self::Silence(node, on) => Self::Silence(node, !on),
            Self::Flow { tuple, token, .. } if universe.is_elephant(token) => {
                // What is much of a connection comes from its real server.
                let outbound = (token & 3 == 0) != (tuple.protocol == TCP);
                let workers = (token >> 2) as u16 % 5;
                Self::Spread { flow: Some(tuple), pick: 0, outbound, workers }
            }
            Self::Flow { .. } | Self::Misdirected { .. } | Self::Mac(_) => return None,
            Self::Spread { .. } | Self::GatherIn { .. } => return None,
        })
    }
}

/// A flow is spread, or gathered in.
fn spread(universe: &Universe, rng: &mut Rng) -> Act {
    let pick = rng.next() as u32;
    if rng.chance(100) {
        return Act::GatherIn { worker: rng.below(universe.workers.into()) as u16, pick };
    }
    Act::Spread { flow: None, pick, outbound: rng.chance(300), workers: rng.below(5) as u16 }
}

fn flow(universe: &Universe, rng: &mut Rng) -> Act {
    let service = rng.pick(&universe.services);
    if service.rule.is_some() {
        return outward(universe, rng);
    }
    let node = client_of(universe, rng, service);
    let sport = 2000 + rng.below(universe.client_ports.into()) as u16;
    let (first, last) = service.ports;
    let mut tuple = Tuple {
        src: universe.nodes[node].address,
        dst: service.vip,
        sport,
        dport: rng.range(first.into(), last.min(first.saturating_add(2000)).into()) as u16,
        protocol: service.protocol,
    };
    let token = rng.next() as u32;
    if service.protocol == ANY {
        let [a, b, c] = OTHERS;
        tuple.protocol = *rng.pick(&[TCP, UDP, SCTP, a, b, c]);
    }
    if OTHERS.contains(&tuple.protocol) {
        (tuple.sport, tuple.dport) = (0, 0);
    }
    Act::Flow { node, tuple, token }
}

/// A host inside opens a connection to the outside, often from a port that others are from.
fn outward(universe: &Universe, rng: &mut Rng) -> Act {
    let node = *rng.pick(&universe.insiders);
    let src = universe.nodes[node].address;
    let token = rng.next() as u32;
    let ports = u64::from(universe.client_ports.min(*rng.pick(&[3, 40, 2000])));
    let tuple = Tuple {
        src,
        dst: far_of(universe, rng, src),
        sport: 2000 + rng.below(ports) as u16,
        dport: *rng.pick(&[53, 80, 443, 8080]),
        protocol: *rng.pick(&[TCP, UDP]),
    };
    Act::Flow { node, tuple, token }
}

/// A host outside, of the family of an address.
fn far_of(universe: &Universe, rng: &mut Rng, like: Addr) -> Addr {
    let all = universe.outsiders.iter().map(|node| universe.nodes[*node].address);
    let all: Vec<_> = all.filter(|address| is_v4(*address) == is_v4(like)).collect();
    *rng.pick(&all)
}

/// A client of a service's family.
fn client_of(universe: &Universe, rng: &mut Rng, service: &Service) -> usize {
    let clients = &universe.clients[usize::from(!is_v4(service.vip))];
    clients.get(rng.below(clients.len() as u64) as usize).copied().unwrap_or(0)
}

/// What is not a new flow, of what the recipe has.
fn unrest(universe: &Universe, recipe: &Recipe, rng: &mut Rng) -> Option<Act> {
    let kinds = [
        (Feature::Changes, 20),
        (Feature::Down, 10),
        (Feature::Pools, 6),
        (Feature::Neighbours, 12),
        (Feature::Routes, 4),
        (Feature::Silence, 8),
        (Feature::Misdirected, 40),
    ];
    let (feature, _) = kinds[rng.weighted(&kinds.map(|(_, weight)| weight))];
    let service = rng.below(universe.services.len() as u64) as usize;
    let real = rng.below(universe.services[service].reals.len() as u64) as usize;
    let node = rng.below(universe.nodes.len() as u64) as usize;
    let ruled = universe.services[service].rule.is_some();
    let act = match feature {
        Feature::Changes if ruled => Act::Service(service, rng.chance(300)),
        Feature::Down if ruled => return None,
        Feature::Changes => match rng.below(6) {
            0 if !recipe.has(Feature::Mixed) && universe.has(Mode::Nat) => return None,
            0 => Act::Service(service, rng.chance(300)),
            1..4 => Act::Real(service, real, rng.chance(300)),
            _ => Act::Weight(service, real, rng.below(4) as u16),
        },
        Feature::Down => Act::Down(service, real, true),
        Feature::Pools => {
            let pool = rng.below(universe.pools.len() as u64) as usize;
            let address = rng.below(universe.pools[pool].addresses.len() as u64) as usize;
            Act::Local(pool, address, rng.chance(300))
        }
        Feature::Neighbours if rng.chance(300) => Act::Mac(node),
        Feature::Neighbours => Act::Neighbour(node, false),
        Feature::Routes => {
            let route = rng.below(universe.routes.len() as u64) as usize;
            // Direct routing reaches nobody behind a router.
            if universe.routes[route].link > 0 && universe.has(Mode::Dr) {
                return None;
            }
            Act::Route(route, false)
        }
        Feature::Silence => Act::Silence(node, true),
        _ => stray(universe, rng)?,
    };
    recipe.has(feature).then_some(act)
}

/// A packet that nobody is prepared for: it may still hit a session by chance.
fn stray(universe: &Universe, rng: &mut Rng) -> Option<Act> {
    let service = rng.pick(&universe.services);
    if service.rule.is_some() {
        return Some(stray_of_rule(universe, rng, &universe.pools[service.pool]));
    }
    let client = client_of(universe, rng, service);
    let pool = rng.pick(&universe.pools);
    let real = rng.pick(&service.reals);
    let v4_real = is_v4(universe.nodes[real.node].address);
    let locals: Vec<_> = pool.addresses.iter().copied().filter(|a| is_v4(*a) == v4_real).collect();
    let from_real = rng.chance(400) && !locals.is_empty();
    let local = if from_real { *rng.pick(&locals) } else { service.vip };
    let node = if from_real { real.node } else { client };
    let mut tuple = Tuple {
        src: universe.nodes[client].address,
        dst: service.vip,
        sport: 2000 + rng.below(universe.client_ports.into()) as u16,
        dport: service.ports.0.max(1),
        protocol: service.protocol,
    };
    if from_real {
        tuple.src = universe.nodes[real.node].address;
        (tuple.dst, tuple.sport) = (local, real.port);
        let near = pool.first_port.saturating_sub(3);
        tuple.dport = near.saturating_add(rng.below(u64::from(pool.ports) + 6) as u16);
    }
    let mut aborts = false;
    if tuple.protocol == ANY {
        tuple.protocol = *rng.pick(&[TCP, SCTP]);
    }
    match rng.below(12) {
        0 => tuple.dport ^= 1 << rng.below(16),
        1 => tuple.protocol = if tuple.protocol == TCP { UDP } else { TCP },
        2 if tuple.protocol == SCTP => aborts = true,
        2 if is_v4(tuple.src) => tuple.src = exception_source(rng, &tuple),
        3 if is_v4(tuple.src) == is_v4(service.vip) => {
            tuple.dst = universe.nodes[client].address;
        }
        _ => {}
    }
    let flags = *rng.pick(&[SYN, ACK, RST, RST | ACK, FIN | ACK, SYN | ACK, 0, SYN | FIN, 0x3f]);
    let len = *rng.pick(&[8, 20, 1200]);
    let token = rng.next() as u32;
    let headed = tuple.protocol != TCP;
    if tuple.protocol == SCTP {
        return Some(Act::Misdirected { node, packet: chunk(tuple, token, len, aborts) });
    }
    let packet = odd_packet(rng, tuple, flags, Stream { token, at: 0, len, headed });
    Some(Act::Misdirected { node, packet })
}

/// A packet whose TTL and numbers fit nothing; `flags` are of TCP only.
fn odd_packet(rng: &mut Rng, tuple: Tuple, flags: u8, payload: Stream) -> Packet {
    let tcp = |value: u32| if tuple.protocol == TCP { value } else { 0 };
    Packet {
        tuple,
        ttl: *rng.pick(&[0, 1, 2, 64, 64, 64]),
        seq: tcp(rng.next() as u32),
        ack: if flags & ACK != 0 { tcp(rng.next() as u32) } else { 0 },
        flags: tcp(flags.into()) as u8,
        checksum: true,
        payload,
        ..Packet::default()
    }
}

/// A packet from outside to an address and port of a rule's pool, which nobody may have asked for,
/// or one from inside that may open nothing.
fn stray_of_rule(universe: &Universe, rng: &mut Rng, pool: &Pool) -> Act {
    let inside = rng.chance(400);
    let node = *rng.pick(if inside { &universe.insiders } else { &universe.outsiders });
    let src = universe.nodes[node].address;
    let locals: Vec<_> =
        pool.addresses.iter().copied().filter(|a| is_v4(*a) == is_v4(src)).collect();
    let protocol = *rng.pick(&[TCP, TCP, UDP]);
    let near = u64::from(pool.first_port.saturating_sub(3));
    let port = near + rng.below(u64::from(pool.ports.min(300)) + 6);
    let known = *rng.pick(&[53, 80, 443, 8080]);
    let tuple = if inside || locals.is_empty() {
        let sport = 2000 + rng.below(40) as u16;
        Tuple { src, dst: far_of(universe, rng, src), sport, dport: known, protocol }
    } else {
        let dport = port.min(65_535) as u16;
        Tuple { src, dst: *rng.pick(&locals), sport: known, dport, protocol }
    };
    let flags = *rng.pick(&[SYN, ACK, RST, RST | ACK, FIN | ACK, SYN | ACK, 0, SYN | FIN]);
    let len = *rng.pick(&[8, 20, 1200]);
    let token = rng.next() as u32;
    let payload = Stream { token, at: 0, len, headed: protocol != TCP };
    Act::Misdirected { node, packet: odd_packet(rng, tuple, flags, payload) }
}

/// An SCTP packet with data, or one that ends an association.
fn chunk(tuple: Tuple, token: u32, len: u16, aborts: bool) -> Packet {
    let headed = Stream { token, at: 0, len, headed: true };
    Packet {
        tuple,
        ttl: 64,
        seq: token,
        ack: if aborts { 0 } else { 1 },
        flags: if aborts { RST } else { 0 },
        window: if aborts { 1 } else { 3 },
        checksum: true,
        payload: if aborts { Stream::default() } else { headed },
        ..Packet::default()
    }
}

/// Addresses that no packet comes from, or that nobody knows the way to.
fn exception_source(rng: &mut Rng, tuple: &Tuple) -> Addr {
    *rng.pick(&[
        tuple.dst,
        v4([127, 0, 0, 1]),
        v4([0, 0, 0, 0]),
        v4([224, 0, 0, 5]),
        v4([255, 255, 255, 255]),
        v4([240, 1, 2, 3]),
        v4([203, 0, 113, 250]),
        v4([100, 64, 1, 1]),
    ])
}
