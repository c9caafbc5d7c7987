//! Which addresses packets of the IPv4 table have: a set that may name too many, never too few.
//!
//! Where IPv4 packets may be the extended table's, most of what the IPv4 table looks up in vain
//! need not be looked up at all: every key of its sessions, and every service of its own, has an
//! address of the plan's. Two bits of a small table tell, one for each end of a packet, for less
//! than a hash map would cost, since a wrong yes only takes the long way.

use super::{Plan, Side};

/// Bits for an address that is in the set: one other address in so many is taken for it.
const BITS_EACH: usize = 64;
/// The most bits: what the first-level cache has room for beside everything else.
const MOST_BITS: usize = 1 << 16;

/// A set of addresses.
#[derive(Clone, Debug)]
struct Addresses {
    bits: Box<[u64]>,
    /// The upper bits of a hash beyond this are the address's place.
    shift: u32,
}

impl Addresses {
    fn of(addresses: &[u32]) -> Self {
        let size = (addresses.len() * BITS_EACH).next_power_of_two().clamp(64, MOST_BITS);
        let mut set =
            Self { bits: vec![0; size / 64].into_boxed_slice(), shift: 64 - size.ilog2() };
        for address in addresses {
            let place = set.place(*address);
            set.bits[place / 64] |= 1 << (place % 64);
        }
        set
    }

    #[inline(always)]
    fn place(&self, address: u32) -> usize {
        // Fibonacci hashing: neighbours in an address range are far apart.
        (u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline(always)]
    fn may_have(&self, address: u32) -> bool {
        let place = self.place(address);
        self.bits.get(place / 64).is_none_or(|word| word >> (place % 64) & 1 != 0)
    }
}

/// The addresses of packets that the IPv4 table may have something for.
#[derive(Clone, Debug)]
pub(crate) struct AddressFilter {
    from: Addresses,
    to: Addresses,
}

impl AddressFilter {
    /// That of a plan; `None` where every IPv4 packet is the IPv4 table's.
    pub(super) fn of(plan: &Plan, side: &Side<u32>) -> Option<Self> {
        if !plan.wide_v4 {
            return None;
        }
        // Zero for those that have no tuple of their own: ICMP errors and fragments.
        let mut to = vec![0];
        to.extend(side.vips());
        let narrow = |(_, narrow): &(_, &bool)| **narrow;
        let locals = plan.locals.iter().zip(&plan.narrow_locals).filter(narrow);
        to.extend(locals.filter_map(|(local, _)| match local {
            std::net::IpAddr::V4(local) => Some(local.to_bits()),
            std::net::IpAddr::V6(_) => None,
        }));
        let nat = side.reals().filter(|real| real.forwarding.answers_client() && real.is_known());
        let from: Vec<_> = nat.map(|real| u32::from_be(real.wire_address)).collect();
        Some(Self { from: Addresses::of(&from), to: Addresses::of(&to) })
    }

    /// Whether the IPv4 table may have anything for a packet between these.
    #[inline(always)]
    pub(crate) fn passes(&self, from: u32, to: u32) -> bool {
        self.to.may_have(to) | self.from.may_have(from)
    }
}
