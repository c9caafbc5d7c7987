//! `[[pool]]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Pool,
    name: "pool",
    heading: "[[pool]]",
    about: "A local pool: the source addresses and ports that Full NAT gives to packets towards \
            the real servers, and source NAT to packets towards the outside. Each (address, port) \
            carries one session to one remote endpoint at a time. The addresses must be routed to \
            the director (in AF_XDP mode: be addresses of its interfaces).",
    keys: &[&NAME, &ADDRESSES, &PORTS],
    sections: &[],
};

pub(crate) static NAME: Key = Key {
    name: "name",
    kind: Text(A_NAME),
    without: Without::Required,
    example: "\"lan\"",
    about: "What services and rules of source NAT call it; unique.",
};
pub(crate) static ADDRESSES: Key = Key {
    name: "addresses",
    kind: Texts("an address, a range or a prefix"),
    without: Without::Required,
    example: "[\"192.0.2.10\", \"192.0.2.32-192.0.2.39\", \"192.0.2.64/29\"]",
    about: "Its addresses, of either family or both, at least one, in all pools together at most \
            65535. A prefix stands for all its addresses, the first and the last too. An address \
            is in one pool only and is no VIP.",
};
pub(crate) static PORTS: Key = Key {
    name: "ports",
    kind: Text("FIRST-LAST, such as \"1024-65535\""),
    without: Without::Text("1024-65535"),
    example: "\"10000-59999\"",
    about: "Its ports, the same for each address. Packets to them are the director's: keep \
            the ports of programs on this machine out.",
};
