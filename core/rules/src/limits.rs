//! What drivers are known to do with rules, so that nothing is asked of one that it would do wrong.
//!
//! A driver that refuses a rule says so itself when the rule is validated or made. Here is what no
//! driver says: rules that it would widen without an error, and what one rule costs others. The
//! entries are from DPDK 22.11's tables of features and its drivers' sources; see docs/ports.md.

/// What masks a driver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masks {
    /// All bits count, or none.
    Exact,
    /// Any.
    Any,
}

/// What combinations of fields the rules of a port may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSets {
    /// Any.
    Free,
    /// The same fields for all rules of a family and protocol.
    OnePerType,
    /// The same fields for all rules.
    One,
}

/// How a rule leaves the choice of the queue to the hash, as it is without the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadBy {
    /// By an RSS action over all queues.
    Rss,
    /// By no action but a mark, which such drivers want and nobody reads.
    MarkOnly,
    /// It names one queue always.
    Nothing,
}

/// Whether a driver has an action or an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// It has.
    Yes,
    /// It has not.
    No,
}

impl Capability {
    /// Whether it has.
    pub const fn is_there(self) -> bool {
        matches!(self, Self::Yes)
    }
}

/// A driver's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// DPDK's name of the driver; empty for one that is not known.
    pub driver: &'static str,
    /// Whether it counts what a rule matches.
    pub count: Capability,
    /// Masks of addresses.
    pub addresses: Masks,
    /// Masks of ports.
    pub ports: Masks,
    /// Whether rules of IPv6 may name ports.
    pub ports_of_v6: Capability,
    /// Whether a VXLAN's number can be matched.
    pub vni: Capability,
    /// Combinations of fields.
    pub field_sets: FieldSets,
    /// How packets are left to the hash.
    pub spread: SpreadBy,
    /// Whether of two entries for a packet the one of the lower priority number counts. Elsewhere
    /// the driver refuses or ignores priorities, and which entry counts is not defined.
    pub priorities: Capability,
    /// Whether it still receives in vectors once it has rules.
    pub vectors: Capability,
}

use Capability::{No, Yes};

/// A driver that nothing is known of: exact rules, and the driver decides.
const UNKNOWN: Limits = Limits {
    driver: "",
    count: Yes,
    addresses: Masks::Exact,
    ports: Masks::Exact,
    ports_of_v6: Yes,
    vni: No,
    field_sets: FieldSets::Free,
    spread: SpreadBy::Rss,
    priorities: No,
    vectors: Yes,
};

/// A rule with other fields of the same type of packets conflicts with the first one's.
const I40E: Limits = Limits {
    driver: "net_i40e",
    count: No,
    field_sets: FieldSets::OnePerType,
    spread: SpreadBy::MarkOnly,
    ..UNKNOWN
};

const MLX5: Limits = Limits {
    driver: "mlx5_pci",
    addresses: Masks::Any,
    ports: Masks::Any,
    vni: Yes,
    priorities: Yes,
    ..UNKNOWN
};

const KNOWN: [Limits; 9] = [
    // An IPv6 mask that is not all ones leaves the match without an error, so no prefixes; masks of
    // IPv4 go to the switch engine, which cannot mark. An RSS action takes a power of two of
    // queues; a mark alone passes packets on to the hash.
    Limits { driver: "net_ice", spread: SpreadBy::MarkOnly, ..UNKNOWN },
    Limits { driver: "net_iavf", spread: SpreadBy::MarkOnly, ..UNKNOWN },
    I40E,
    Limits { driver: "net_i40e_vf", ..I40E },
    // One mask for all rules, no ports of IPv6, and a queue in each rule.
    Limits {
        driver: "net_ixgbe",
        count: No,
        ports_of_v6: No,
        field_sets: FieldSets::One,
        spread: SpreadBy::Nothing,
        vectors: No,
        ..UNKNOWN
    },
    MLX5,
    Limits { driver: "mlx5_auxiliary", ..MLX5 },
    Limits { driver: "net_tap", count: No, addresses: Masks::Any, priorities: Yes, ..UNKNOWN },
    // Every device below must have each rule; what those are is not known here.
    Limits { driver: "net_failsafe", ..UNKNOWN },
];

impl Limits {
    /// The limits of a driver by DPDK's name.
    pub fn of(driver: &str) -> Self {
        KNOWN.into_iter().find(|known| known.driver == driver).unwrap_or(UNKNOWN)
    }
}
