//! What a world's network does to packets, how long its director keeps silent sessions, and how
//! much comes at a time.

use super::{BACK, FRONT, Limits, Link, Network, Real, Universe};
use crate::recipe::{Feature, Recipe};
use crate::rng::Rng;
use crate::wire::{Addr, TCP, is_v4};
use sluice_director::spec::{ClientAddress, Mode, Persistence, Timeouts, TunnelOptions};

/// Flows that several workers process; all in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spreading {
    /// Of actions: to spread one, or to gather one in.
    pub orders: u32,
    /// Of new flows: with very much traffic.
    pub elephants: u32,
    /// Of times: when a worker does not help; and how long such a time is.
    pub late: u32,
    pub late_ms: u64,
    /// Of times: when somebody looks at a worker's packets.
    pub watched: u32,
    /// Of times: that a NIC's rule for a spread flow begins to change.
    pub redirects: u32,
    /// Of times while one does: when a worker does not get to its receive queues; and how long.
    pub backlog: u32,
    pub backlog_ms: u64,
}

pub(super) fn network(rng: &mut Rng, recipe: &Recipe) -> Network {
    let mut when = |feature, values: &[u32]| {
        let value = *rng.pick(values);
        if recipe.has(feature) { value } else { 0 }
    };
    Network {
        loss: when(Feature::Loss, &[0, 1, 10, 100]),
        duplicates: when(Feature::Duplicates, &[0, 1, 50]),
        spoilt: when(Feature::Spoilt, &[0, 0, 2, 20]),
        jitter_ms: when(Feature::Jitter, &[0, 3, 10, 60]).into(),
        pieces: 0,
        errors: 0,
        delay_ms: rng.range(1, 8),
    }
}

pub(super) fn timeouts(rng: &mut Rng) -> Timeouts {
    let mut aside = *rng;
    let mut some = |few: &[u32]| *rng.pick(few);
    Timeouts {
        tcp_syn_recv_s: some(&[1, 3, 60]),
        tcp_established_s: some(&[2, 10, 900]),
        tcp_fin_wait_s: some(&[1, 2, 120]),
        tcp_close_wait_s: some(&[1, 2, 60]),
        tcp_last_ack_s: some(&[1, 30]),
        tcp_time_wait_s: some(&[0, 0, 1, 60]),
        tcp_close_s: some(&[0, 0, 1, 10]),
        udp_s: some(&[1, 5, 300]),
        one_packet_s: some(&[1, 10]),
        sctp_s: *aside.pick(&[1, 5, 300]),
        other_s: *aside.pick(&[1, 5, 300]),
        ..Timeouts::default()
    }
}

/// The less happens at a time, the longer it is gathered in most worlds, so that bursts are bursts.
pub(super) fn tick(recipe: &Recipe, gap_us: u64) -> u64 {
    let mut rng = Rng::of(&[recipe.seed, 23]);
    *rng.pick(match gap_us {
        5000.. => &[2, 16, 16, 32],
        500.. => &[1, 8, 8, 16],
        _ => &[1, 2, 4, 4],
    })
}

pub(super) fn persistence(rng: &mut Rng, vip: Addr) -> Persistence {
    let prefixes = if is_v4(vip) { [32, 28, 24] } else { [128, 124, 64] };
    Persistence { timeout_s: *rng.pick(&[1, 5, 300]), prefix: *rng.pick(&prefixes) }
}

pub(super) fn limits(rng: &mut Rng) -> Limits {
    let mut some = |few: &[u32]| if rng.chance(80) { *rng.pick(few) } else { 0 };
    Limits {
        sessions: some(&[5, 40, 300]),
        new_per_s: some(&[3, 50, 500]),
        upper: some(&[4, 20, 100]),
        slow_start_s: some(&[1, 10]),
    }
}

/// Makes some of a service's tunnels others, and gives what these have besides.
pub(super) fn tunnels(recipe: &Recipe, number: u16, reals: &mut [Real]) -> TunnelOptions {
    let mut rng = Rng::of(&[recipe.seed, 48, number.into()]);
    if !recipe.has(Feature::Tunnels) {
        return TunnelOptions::default();
    }
    for real in reals.iter_mut().filter(|real| real.mode == Mode::Ipip) {
        real.mode = *rng.pick(&[Mode::Ipip, Mode::Gue, Mode::Gre]);
    }
    TunnelOptions {
        port: *rng.pick(&[None, Some(7000)]),
        checksum: *rng.pick(&[None, Some(false), Some(true), Some(true)]),
        key: *rng.pick(&[None, Some(0xfeed_0007)]),
    }
}

/// In some worlds real servers are told who their clients are. No packet is cut there and nobody
/// complains: what becomes of fragments and of quoted packets of such streams is not in the model.
pub(super) fn tell_clients(recipe: &Recipe, universe: &mut Universe) {
    let mut rng = Rng::of(&[recipe.seed, 49]);
    if !recipe.has(Feature::Told) || !rng.chance(350) {
        return;
    }
    let Universe { services, nodes, network, links, .. } = universe;
    (network.pieces, network.errors) = (0, 0);
    links.iter_mut().for_each(|link| link.mtu = 1500);
    let hows = [ClientAddress::Toa, ClientAddress::ProxyV1, ClientAddress::ProxyV2];
    for service in services.iter_mut().filter(|service| service.protocol == TCP) {
        let v4 = is_v4(service.vip);
        if service.reals.iter().all(|real| is_v4(nodes[real.node].address) == v4) {
            service.client_address = *rng.pick(&hows);
            service.mode = Mode::Fnat;
            service.reals.iter_mut().for_each(|real| real.mode = Mode::Fnat);
        }
    }
}

/// How often flows are spread, and how many of them are elephants.
pub(super) fn spreading(recipe: &Recipe) -> Spreading {
    let mut rng = Rng::of(&[recipe.seed, 41]);
    let mut some = |often: &[u32]| *rng.pick(often);
    let is_nic = recipe.has(Feature::Redirects);
    let drawn = Spreading {
        orders: some(&[0, 20, 100, 300]),
        elephants: some(&[5, 20, 60]),
        late: some(&[0, 100, 500, 900]),
        late_ms: some(&[16, 64]).into(),
        watched: some(&[0, 0, 0, 100]),
        redirects: if is_nic { some(&[0, 200, 900, 900]) } else { 0 },
        backlog: some(&[0, 300, 700]),
        backlog_ms: some(&[2, 8, 40]).into(),
    };
    if recipe.has(Feature::Spread) { drawn } else { Spreading::default() }
}

/// Whether a flow with this token has very much traffic.
pub(crate) fn is_elephant(seed: u64, token: u32, elephants: u32) -> bool {
    Rng::of(&[seed, 46, token.into()]).chance(elephants)
}

/// Sessions that hardly any worker of a run can have, in tables that are no larger than that:
/// their memory is fresh for each world.
pub(super) fn ample(recipe: &Recipe) -> u32 {
    (recipe.steps / 2).clamp(64, 16_384) as u32
}

/// Two arms or one, with VLANs or without: the first link is in front, two are in the back.
pub(super) fn links(rng: &mut Rng, recipe: &Recipe) -> Vec<Link> {
    let tagged = recipe.has(Feature::Vlans);
    let back = u16::from(rng.chance(700));
    let mut vlan = |chance, id| if rng.chance(chance) && tagged { id } else { 0 };
    let front = vlan(300, 9);
    let second = vlan(500, 7);
    let mtu = *rng.pick(&[1500, 1500, 1500, 1280]);
    let owns = rng.chance(500);
    let place = |port: u16, vlan: u16, mtu, own: [Addr; 2]| {
        let own = own.map(|own| owns.then_some(own + 2));
        Link { port, vlan, mtu, own }
    };
    // No two links are the same VLAN of one port.
    let second = if back == 0 && second == front { 7 } else { second };
    vec![
        place(0, front, 1500, [FRONT[0].0, FRONT[1].0]),
        place(back, second, mtu, [BACK[0].0, BACK[2].0]),
        place(back, 8, 1500, [BACK[1].0, BACK[3].0]),
    ]
}
