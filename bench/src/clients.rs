//! Random numbers that a seed decides, and the clients: one endpoint for each session, all
//! different, in no order that a table could profit from.

/// An address and a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub address: u32,
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

/// First of the clients' addresses: half of the range for benchmarks (RFC 2544 C.2.2).
pub const FIRST_ADDRESS: u32 = 0xc612_0000;
/// Length of the clients' prefix.
pub const PREFIX_LEN: u8 = 16;
const ADDRESSES: u64 = 1 << (32 - PREFIX_LEN);
const FIRST_PORT: u64 = 1024;
const PORTS: u64 = 65_536 - FIRST_PORT;
/// Different endpoints: 2²⁶ · 3² · 7.
const ENDPOINTS: u64 = ADDRESSES * PORTS;

/// The clients: a number becomes an endpoint by a linear congruence, which gives each endpoint
/// once and needs no memory (addresses and ports as RFC 4814 wants them: spread, not in order).
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    factor: u64,
    start: u64,
}

impl Clients {
    pub const fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut factor = (random.next() % ENDPOINTS) | 1;
        // Coprime to the number of endpoints, so that no endpoint comes twice.
        while factor.is_multiple_of(3) || factor.is_multiple_of(7) {
            factor += 2;
        }
        Self { factor, start: random.next() % ENDPOINTS }
    }

    /// The endpoint of client `number`, below 2³².
    #[inline(always)]
    pub const fn endpoint(&self, number: u32) -> Endpoint {
        let place = (number as u64 * self.factor + self.start) % ENDPOINTS;
        Endpoint {
            address: FIRST_ADDRESS + (place / PORTS) as u32,
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
            let clients = Clients::new(seed);
            let few = ENDPOINTS as u32;
            let (a, b) = (a % few, b % few);
            prop_assert_eq!(clients.endpoint(a) == clients.endpoint(b), a == b);
        }

        #[test]
        fn clients_are_where_they_should_be(seed in any::<u64>(), number in any::<u32>()) {
            let Endpoint { address, port } = Clients::new(seed).endpoint(number);
            prop_assert_eq!(address >> (32 - PREFIX_LEN), FIRST_ADDRESS >> (32 - PREFIX_LEN));
            prop_assert!(port >= 1024);
        }

        #[test]
        fn below_is_below(seed in any::<u64>(), limit in 1u32..) {
            prop_assert!(Random::new(seed).below(limit) < limit);
        }
    }

    #[test]
    fn a_run_of_clients_has_no_repetition() {
        let clients = Clients::new(1);
        let all: HashSet<_> = (0..200_000).map(|n| clients.endpoint(n)).collect();
        assert_eq!(all.len(), 200_000);
        let addresses: HashSet<_> = all.iter().map(|e| e.address).collect();
        assert!(addresses.len() > 30_000, "{} addresses", addresses.len());
    }
}
