//! Whom a service serves: its `deny` and `allow` lists, looked at when a session is opened.
//!
//! Networks are cut into ranges when the plan is made, so that a look is a search over them,
//! thousands or not, and takes nothing of packets whose session is there.

use crate::family::mapped;
use crate::fib::ranges::Ranges;
use crate::spec::Network;
use std::net::IpAddr;

/// IPv4 in IPv6's form has so many bits in front.
const MAPPED_BITS: u8 = 96;

/// The lists of one service.
#[derive(Clone, Debug)]
pub struct Clients {
    deny: Ranges<u128, ()>,
    /// None for everybody.
    allow: Option<Ranges<u128, ()>>,
}

impl Clients {
    /// None if everybody is served.
    pub(super) fn of(deny: &[Network], allow: &[Network]) -> Option<Self> {
        let listed = !deny.is_empty() || !allow.is_empty();
        let allow = (!allow.is_empty()).then(|| ranges(allow));
        listed.then(|| Self { deny: ranges(deny), allow })
    }

    /// Whether a client may open a session: it is not denied, and allowed if anybody has to be.
    pub fn admits(&self, client: IpAddr) -> bool {
        let client = number(client);
        let allowed = self.allow.as_ref().is_none_or(|allow| allow.get(client).is_some());
        allowed && self.deny.get(client).is_none()
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => mapped(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn ranges(networks: &[Network]) -> Ranges<u128, ()> {
    Ranges::of(networks.iter().map(|network| {
        let bits = if network.address.is_ipv4() { MAPPED_BITS } else { 0 };
        (number(network.address), bits + network.prefix, ())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn any_network() -> impl Strategy<Value = Network> {
        // Few addresses, so that they meet.
        let v4 = (0u32..64, 26u8..=32).prop_map(|(host, prefix)| Network {
            address: Ipv4Addr::from_bits(0xc000_0200 | host).into(),
            prefix,
        });
        let v6 = (0u128..64, 122u8..=128).prop_map(|(host, prefix)| Network {
            address: Ipv6Addr::from_bits(0x2001_0db8 << 96 | host).into(),
            prefix,
        });
        let all = Network { address: [0, 0, 0, 0].into(), prefix: 0 };
        prop_oneof![9 => v4, 9 => v6, 1 => Just(all)]
    }

    proptest! {
        /// As a walk through both lists has it.
        #[test]
        fn lists_are_looked_through(
            deny in prop::collection::vec(any_network(), 0..12),
            allow in prop::collection::vec(any_network(), 0..12),
        ) {
            let clients = Clients::of(&deny, &allow);
            prop_assert_eq!(clients.is_none(), deny.is_empty() && allow.is_empty());
            for host in 0..64u32 {
                let v6 = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(host));
                for client in [Ipv4Addr::from_bits(0xc000_0200 | host).into(), IpAddr::from(v6)] {
                    let is_in = |list: &[Network]| list.iter().any(|net| net.contains(client));
                    let right = !is_in(&deny) && (allow.is_empty() || is_in(&allow));
                    let admitted = clients.as_ref().is_none_or(|clients| clients.admits(client));
                    prop_assert_eq!(admitted, right, "{}", client);
                }
            }
        }
    }
}
