//! `[ipip]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Ipip,
    name: "ipip",
    heading: "[ipip]",
    about: "Outer source addresses of packets in tunnels of every kind, one for each \
            family that such real servers have. Of a prefix each flow gets an address of its own, \
            so that the real server's NIC spreads tunnelled flows over its receive queues; routers \
            and real servers must then accept the whole prefix as a source.",
    keys: &[&SOURCE_V4, &SOURCE_V6],
    sections: &[],
};

pub(crate) static SOURCE_V4: Key = Key {
    name: "source_v4",
    kind: Text("an IPv4 address or prefix"),
    without: Without::Unset("no real server with an IPv4 address may be behind a tunnel"),
    example: "\"192.0.2.64/28\"",
    about: "For real servers with IPv4 addresses, whatever the family of the VIP.",
};
pub(crate) static SOURCE_V6: Key = Key {
    name: "source_v6",
    kind: Text("an IPv6 address or prefix"),
    without: Without::Unset("no real server with an IPv6 address may be behind a tunnel"),
    example: "\"2001:db8:0:1::100/120\"",
    about: "For real servers with IPv6 addresses, whatever the family of the VIP.",
};
