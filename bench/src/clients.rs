//! Random numbers that a seed decides, and the clients: one endpoint for each session, all
//! different, in no order that a table could profit from.

use crate::args::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address, of IPv4 in the lower half of the lower half, and a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub address: u128,
    pub port: u16,
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline(always)]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`.
    #[inline(always)]
    pub const fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * limit as u64) >> 32) as u32
    }
}

/// Clients' addresses of a family.
const ADDRESSES: u64 = 1 << 16;
const FIRST_PORT: u64 = 1024;
const PORTS: u64 = 65_536 - FIRST_PORT;
/// Different endpoints: 2²⁶ · 3² · 7.
pub const ENDPOINTS: u64 = ADDRESSES * PORTS;

/// The clients: a number becomes an endpoint by a linear congruence, which gives each endpoint
/// once and needs no memory (addresses and ports as RFC 4814 wants them: spread, not in order).
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    factor: u64,
    start: u64,
    family: Family,
}

/// The prefix that all clients of a family are in: half of the range for benchmarks (RFC 2544
/// C.2.2), and that of RFC 5180 section 8.
pub const fn prefix(family: Family) -> (u128, u8) {
    match family {
        Family::V4 => (0xc612_0000, 16),
        Family::V6 => (0x2001_0002 << 96, 48),
    }
}

/// The address with a number: of IPv6 one in each network of 64 bits.
const fn address(family: Family, number: u64) -> u128 {
    let (first, _) = prefix(family);
    match family {
        Family::V4 => first + number as u128,
        Family::V6 => first + ((number as u128) << 64) + 0x100,
    }
}

impl Clients {
    pub const fn new(seed: u64, family: Family) -> Self {
        let mut random = Random::new(seed);
        let mut factor = (random.next() % ENDPOINTS) | 1;
        // Coprime to the number of endpoints, so that no endpoint comes twice.
        while factor.is_multiple_of(3) || factor.is_multiple_of(7) {
            factor += 2;
        }
        Self { factor, start: random.next() % ENDPOINTS, family }
    }

    /// The address of a client.
    pub fn address(&self, client: Endpoint) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(client.address as u32)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(client.address)),
        }
    }

    /// The endpoint of client `number`, below 2³².
    #[inline(always)]
    pub const fn endpoint(&self, number: u32) -> Endpoint {
        let place = (number as u64 * self.factor + self.start) % ENDPOINTS;
        Endpoint {
            address: address(self.family, place / PORTS),
            port: (FIRST_PORT + place % PORTS) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn no_two_clients_are_the_same(seed in any::<u64>(), a in any::<u32>(), b in any::<u32>()) {
            let clients = Clients::new(seed, Family::V6);
            let few = ENDPOINTS as u32;
            let (a, b) = (a % few, b % few);
            prop_assert_eq!(clients.endpoint(a) == clients.endpoint(b), a == b);
        }

        #[test]
        fn clients_are_where_they_should_be(seed in any::<u64>(), number in any::<u32>()) {
            for (family, bits) in [(Family::V4, 32), (Family::V6, 128)] {
                let Endpoint { address, port } = Clients::new(seed, family).endpoint(number);
                let (first, len) = prefix(family);
                prop_assert_eq!(address >> (bits - len), first >> (bits - len));
                prop_assert!(port >= 1024);
            }
        }

        #[test]
        fn below_is_below(seed in any::<u64>(), limit in 1u32..) {
            prop_assert!(Random::new(seed).below(limit) < limit);
        }
    }

    #[test]
    fn a_run_of_clients_has_no_repetition() {
        let clients = Clients::new(1, Family::V4);
        let all: HashSet<_> = (0..200_000).map(|n| clients.endpoint(n)).collect();
        assert_eq!(all.len(), 200_000);
        let addresses: HashSet<_> = all.iter().map(|e| e.address).collect();
        assert!(addresses.len() > 30_000, "{} addresses", addresses.len());
    }
}
