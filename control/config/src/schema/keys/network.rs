//! `[[network]]`, and the key by which other sections name one.

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Network,
    name: "network",
    heading: "[[network]]",
    about: "An isolated network: a VRF with ports, routes, neighbours, pools, services, source NAT \
            rules and sessions of its own. At most 255. Ports, services, pools and rules are in it \
            that name it as their `network`; all others are in the default network, which has no \
            section. Nothing of one network reaches another, and the same addresses may be in use \
            in several. Takes effect at a start only. Direct checks leave by the network's own \
            devices, see `vrf` and `table`; without a route in the network they fail, and nothing \
            is sent.",
    keys: &[
        &NAME,
        &TABLE,
        &VRF,
        &CIDR,
        &SOURCE_V4,
        &SOURCE_V6,
        &SESSIONS,
        &PROBE_ADDRESSES,
        &ANNOUNCE,
        &ANNOUNCE_PEERS,
    ],
    sections: &[],
};

pub(crate) static NAME: Key = Key {
    name: "name",
    kind: Text(A_NAME),
    without: Without::Required,
    example: "\"blue\"",
    about: "The name by which all else refers to it; unique, and not `default`.",
};
pub(crate) static TABLE: Key = Key {
    name: "table",
    kind: Integer { min: 1, max: u32::MAX as i64 },
    without: Without::Unset("that of `vrf`, which is needed then"),
    example: "100",
    about: "Number of the kernel's routing table that has its routes (`ip route show table 100`); \
            unique, and none of 253, 254 and 255, which are the default network's. Either this or \
            `vrf`. Health checks are bound to the interface by which this table reaches the real \
            server. For them the kernel itself must go by the table, which takes a rule for each \
            such interface and family: `ip rule add oif back lookup 100`, `ip -6 rule add oif \
            back lookup 100`. Without it IPv4 reaches neighbours only (others give no answer), \
            and IPv6 nobody unless the main table has a route by the interface (`network is \
            unreachable`).",
};
pub(crate) static VRF: Key = Key {
    name: "vrf",
    kind: Text(AN_INTERFACE),
    without: Without::Unset("`table` is needed"),
    example: "\"vrf-blue\"",
    about: "Name of the kernel's VRF device whose table has its routes (`ip vrf show`); unique. \
            Either this or `table`. Health checks are bound to the device, and need no rule.",
};
pub(crate) static CIDR: Key = Key {
    name: "cidr",
    kind: Texts(A_PREFIX),
    without: Without::Unset("all addresses"),
    example: "[\"10.0.0.0/16\", \"2001:db8:b::/48\"]",
    about: "Prefixes that the network uses. A file in which a `vip` or a real server's `address` \
            of a service of the network, or one of the `addresses` and `peer_addresses` of a pool \
            of it, lies outside is refused; of a family without a prefix all do. Nothing else is \
            held against them: packets come from and go to other addresses as well, and so may \
            `sources` and `destinations` of its source NAT rules.",
};
pub(crate) static SOURCE_V4: Key = Key {
    name: "source_v4",
    kind: Text("an IPv4 address or prefix"),
    without: Without::Unset("no real server with an IPv4 address may be behind a tunnel"),
    example: "\"192.0.2.64/28\"",
    about: "Outer source address of packets in tunnels to its real servers with IPv4 addresses, as \
            `source_v4` in `[ipip]` is for those of the default network. Outer packets leave by \
            the network's own routes and ports.",
};
pub(crate) static SOURCE_V6: Key = Key {
    name: "source_v6",
    kind: Text("an IPv6 address or prefix"),
    without: Without::Unset("no real server with an IPv6 address may be behind a tunnel"),
    example: "\"2001:db8:0:1::100/120\"",
    about: "The same for real servers with IPv6 addresses.",
};
pub(crate) static SESSIONS: Key = Key {
    name: "sessions",
    kind: Integer { min: 1, max: 1 << 30 },
    without: Without::Integer(65_536),
    example: "1_000_000",
    about: "Maximum number of its sessions over all workers, at least one for each worker.",
};
pub(crate) static PROBE_ADDRESSES: Key = Key {
    name: "probe_addresses",
    kind: Texts("an IPv4 or IPv6 address"),
    without: Without::Unset("no check of the network goes through the data path"),
    example: "[\"10.0.0.9\"]",
    about: "Source addresses of checks of its services with `through = \"service\"`, as \
            `probe_addresses` in [director] are for the default network. The director then has an \
            additional port `probe-NAME` in the network.",
};
pub(crate) static ANNOUNCE: Key = Key {
    name: "announce_interface",
    kind: Text(AN_INTERFACE),
    without: Without::Unset("nothing of the network is announced"),
    example: "\"sluice-blue\"",
    about: "Name of an interface for its VIPs and pool addresses, as `interface` in [announce] is \
            for those of the default network. With `vrf` it is put into that device. With `table` \
            the routing daemon has to be told which network the interface is of.",
};
pub(crate) static ANNOUNCE_PEERS: Key = Key {
    name: "announce_peer_interface",
    kind: Text(AN_INTERFACE),
    without: Without::Unset("they are not announced"),
    example: "\"peers-blue\"",
    about: "The same for `peer_addresses` of its pools, as `peer_interface` in [announce].",
};

/// In which network something is.
pub(crate) const fn named_by(about: &'static str) -> Key {
    Key {
        name: "network",
        kind: Text(A_NETWORK),
        without: Without::Unset("the default network"),
        example: "\"blue\"",
        about,
    }
}
