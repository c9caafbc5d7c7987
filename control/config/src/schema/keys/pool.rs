//! `[[pool]]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Pool,
    name: "pool",
    heading: "[[pool]]",
    about: "A local pool: source addresses and ports for packets of Full NAT to real servers, and \
            of source NAT to the outside. Each (address, port) carries one session per remote \
            endpoint at a time. The addresses must be routed to the director (with AF_XDP: be \
            addresses of its interfaces).",
    keys: &[&NAME, &NETWORK, &ADDRESSES, &PEER_ADDRESSES, &PORTS],
    sections: &[],
};

pub(crate) static NAME: Key = Key {
    name: "name",
    kind: Text(A_NAME),
    without: Without::Required,
    example: "\"lan\"",
    about: "The name by which services and source NAT rules refer to it; unique.",
};
pub(crate) static NETWORK: Key =
    super::network::named_by("The network that its addresses are in, that of all who use it.");
pub(crate) static ADDRESSES: Key = Key {
    name: "addresses",
    kind: Texts("an address, a range or a prefix"),
    without: Without::Required,
    example: "[\"192.0.2.10\", \"192.0.2.32-192.0.2.39\", \"192.0.2.64/29\"]",
    about: "Its addresses, of either family or both: at least one, and at most 65535 in all pools \
            together. A prefix stands for all its addresses, including the first and the last. An \
            address is in one pool of its network only and is not a VIP of it.",
};
pub(crate) static PEER_ADDRESSES: Key = Key {
    name: "peer_addresses",
    kind: Texts("an address, a range or a prefix"),
    without: Without::Unset("none"),
    example: "[\"192.0.2.11\"]",
    about: "What other directors have as `addresses` in their pool of this name, for directors \
            that are active at the same time and synchronise their sessions: these go on here when \
            their packets come here. No session of this director takes one. They count as \
            `addresses` do, and are in no other pool of the network.",
};
pub(crate) static PORTS: Key = Key {
    name: "ports",
    kind: Text("FIRST-LAST, such as \"1024-65535\""),
    without: Without::Text("1024-65535"),
    example: "\"10000-59999\"",
    about: "Its ports, the same for each address. The director takes all packets to them: exclude \
            ports that programs on this machine use.",
};
