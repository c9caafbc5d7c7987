//! Every other world is an isolated network among two others, which have the same virtual and
//! local addresses and ports as it has, and real servers of theirs. Whatever of theirs reaches its
//! packets, the checker finds where it finds all else that is wrong: it knows nothing of them.

use sluice_director::spec::{LocalPool, Mode, NetworkId, SnatRule, Spec, VirtualService};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The world's network, and its neighbour's. The third one is the default network.
const NAMES: [&str; 2] = ["blue", "red"];

/// Puts what is configured into a network among others, by the world's seed; gives the network.
pub(super) fn isolate(spec: &mut Spec, seed: u64) -> NetworkId {
    if seed.is_multiple_of(2) {
        return NetworkId::DEFAULT;
    }
    let (default, red) = (like(spec, ""), like(spec, NAMES[1]));
    let others = [rules_like(spec, ""), rules_like(spec, NAMES[1])];
    spec.snat.iter_mut().for_each(|rule| NAMES[0].clone_into(&mut rule.network));
    spec.snat.extend(others.into_iter().flatten());
    let own = (std::mem::take(&mut spec.services), std::mem::take(&mut spec.pools));
    let (mut services, mut pools) = own;
    services.iter_mut().for_each(|service| NAMES[0].clone_into(&mut service.network));
    pools.iter_mut().for_each(|pool| NAMES[0].clone_into(&mut pool.network));
    spec.networks = NAMES.map(str::to_owned).to_vec();
    spec.network_tunnels = vec![spec.tunnel; NAMES.len()];
    // Ids of the world's own lie between those of the others.
    for (more, more_pools) in [default, (services, pools), red] {
        spec.services.extend(more);
        spec.pools.extend(more_pools);
    }
    NetworkId(1)
}

/// The same services and pools in a network: in the default one with real servers that the world
/// does not have, in the other with its own by NAT.
fn like(spec: &Spec, network: &str) -> (Vec<VirtualService>, Vec<LocalPool>) {
    let named = |name: &str| format!("{name}-of-{network}");
    let service = |service: &VirtualService| {
        let mut service = service.clone();
        service.name = named(&service.name);
        service.pool = named(&service.pool);
        network.clone_into(&mut service.network);
        for real in &mut service.reals {
            match network {
                // Who has its packets has gone astray,
                "" => real.address = elsewhere(real.address),
                // and whose answers are translated was never asked.
                _ if real.address.is_ipv4() == service.vip.is_ipv4() => real.mode = Some(Mode::Nat),
                _ => {}
            }
            real.down = false;
        }
        service
    };
    let pool = |pool: &LocalPool| {
        let mut pool = pool.clone();
        pool.name = named(&pool.name);
        network.clone_into(&mut pool.network);
        pool
    };
    (spec.services.iter().map(service).collect(), spec.pools.iter().map(pool).collect())
}

/// The same rules of source NAT in a network.
fn rules_like(spec: &Spec, network: &str) -> Vec<SnatRule> {
    let named = |name: &str| format!("{name}-of-{network}");
    let rule = |rule: &SnatRule| SnatRule {
        name: named(&rule.name),
        pool: named(&rule.pool),
        network: network.to_owned(),
        ..rule.clone()
    };
    spec.snat.iter().map(rule).collect()
}

/// An address on the same link that no host has.
fn elsewhere(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() ^ 0x80).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() ^ 0x8000).into(),
    }
}
