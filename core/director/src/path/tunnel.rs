//! IP in IP: what a tunnel leaves of an MTU, and the way into it.

use super::Shared;
use super::burst::Lane;
use super::rewrite;
use crate::blueprint::Network;
use crate::family::Family;
use crate::fib::Hop;
use crate::frame::Frame;
use crate::plan::{Plan, RealId};
use crate::reason::Reason;
use sluice_wire::ipip;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The largest packet that fits into a tunnel to a real server.
pub(super) fn room(plan: &Plan, real: RealId, hop: &Hop) -> u16 {
    let v6 = plan.real(real).is_some_and(|real| real.address.is_ipv6());
    let overhead = if v6 { ipip::OVERHEAD_V6 } else { ipip::OVERHEAD_V4 };
    hop.mtu.saturating_sub(overhead as u16)
}

/// Encapsulates a packet towards its real server, whose id its lane carries as its flow.
pub(super) fn enter<F: Family, B: Frame>(
    shared: &mut Shared,
    plan: &Plan,
    lane: &Lane<F::Addr>,
    frame: &mut B,
) -> Option<Reason> {
    let Some(real) = plan.real(RealId(lane.flow.0)) else { return Some(Reason::NoReal) };
    let source = match real.address {
        IpAddr::V4(_) => plan.tunnel.v4,
        IpAddr::V6(_) => plan.tunnel.v6,
    };
    let Some(source) = source else { return Some(Reason::NoTunnelSource) };
    let from = one_of(&source, lane.hash);
    shared.tunnel_id = shared.tunnel_id.wrapping_add(1);
    let l3 = usize::from(lane.parsed.l3);
    match rewrite::encapsulate(frame, l3, (from, real.address), shared.tunnel_id) {
        Some(()) => None,
        None => Some(Reason::Headroom),
    }
}

/// The address of a prefix that a hash chooses: a flow's packets always the same one, so that
/// they stay in order, and different flows different ones, so that the real server's NIC spreads
/// them over its queues.
fn one_of(network: &Network, hash: u64) -> IpAddr {
    // At most 16 bits of it: more addresses than any NIC has queues.
    let host = |bits: u32| (hash >> 16) as u16 & (1u32 << bits.min(16)).wrapping_sub(1) as u16;
    match network.address {
        IpAddr::V4(base) => {
            let bits = 32 - u32::from(network.prefix.min(32));
            IpAddr::V4(Ipv4Addr::from_bits(base.to_bits() | u32::from(host(bits))))
        }
        IpAddr::V6(base) => {
            let bits = 128 - u32::from(network.prefix.min(128));
            IpAddr::V6(Ipv6Addr::from_bits(base.to_bits() | u128::from(host(bits))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_spreads_and_an_address_does_not() {
        let net = |address: &str, prefix| Network { address: address.parse().unwrap(), prefix };
        for (network, count) in [
            (net("192.0.2.64", 28), 16),
            (net("192.0.2.9", 32), 1),
            (net("2001:db8::", 124), 16),
            (net("2001:db8::", 64), 1000),
        ] {
            let of = |hash: u64| one_of(&network, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let all: std::collections::HashSet<_> = (1..2000).map(of).collect();
            assert!(all.len() >= count, "{network:?}: {}", all.len());
            assert!(all.iter().all(|address| network.contains(*address)), "{network:?}");
        }
    }
}
