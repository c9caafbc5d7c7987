//! `[[snat]]`

use super::*;
use crate::Mapping;
use crate::words::SnatProtocol;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Snat,
    name: "snat",
    heading: "[[snat]]",
    about: "A source NAT rule for connections that hosts behind the director open to the outside: \
            their source becomes an address and port of a pool. The director must be their \
            gateway. The first matching rule applies; packets that match none stay with the \
            kernel.",
    keys: &[
        &NAME,
        &NETWORK,
        &SOURCES,
        &DESTINATIONS,
        &PROTOCOLS,
        &EGRESS,
        &POOL,
        &MAPPING,
        &HAIRPINNING,
        &ESTABLISHED,
        &super::service::LABELS,
    ],
    sections: &[],
};

pub(crate) static NAME: Key = Key {
    name: "name",
    kind: Text(A_NAME),
    without: Without::Required,
    example: "\"outbound\"",
    about: "The name in output and counters; unique.",
};
pub(crate) static NETWORK: Key =
    super::network::named_by("The network that its connections are in, and its pool and its port.");
pub(crate) static SOURCES: Key = Key {
    name: "sources",
    kind: Texts(A_PREFIX),
    without: Without::Required,
    example: "[\"192.0.2.0/25\", \"2001:db8:0:2::/64\"]",
    about: "Networks that the connections come from, at least one.",
};
pub(crate) static DESTINATIONS: Key = Key {
    name: "destinations",
    kind: Texts(A_PREFIX),
    without: Without::Unset("everywhere"),
    example: "[\"203.0.113.0/24\"]",
    about: "Networks that the connections go to.",
};
pub(crate) static PROTOCOLS: Key = Key {
    name: "protocols",
    kind: Words(words_of::<SnatProtocol>),
    without: Without::Unset("all three"),
    example: "[\"tcp\", \"udp\"]",
    about: "IP protocols. `icmp` is echo (ping), also that of ICMPv6.",
};
pub(crate) static EGRESS: Key = Key {
    name: "egress",
    kind: Text(A_PORT),
    without: Without::Unset("any port"),
    example: "\"front\"",
    about: "The port by which the connections leave.",
};
pub(crate) static POOL: Key = Key {
    name: "pool",
    kind: Text(A_POOL),
    // By IPVS's source rules come before their first address.
    without: Without::Awaited,
    example: "\"outside\"",
    about: "The local pool of source addresses and ports. It needs addresses of each family of the \
            sources.",
};
pub(crate) static MAPPING: Key = Key {
    name: "mapping",
    kind: Word(words_of::<Mapping>),
    without: Without::Text("endpoint_independent"),
    example: "\"per_session\"",
    about: "The scope of a pool address and port. `endpoint_independent`: one inside address and \
            port keeps it for all destinations, which peer-to-peer programs need (RFC 4787, 4.1). \
            `per_session`: each connection has its own, so that a pool port serves many inside \
            hosts that connect to different destinations.",
};
pub(crate) static HAIRPINNING: Key = Key {
    name: "hairpinning",
    kind: Boolean,
    without: Without::Boolean(true),
    example: "false",
    about: "Whether inside hosts reach each other by their pool addresses and ports, and see each \
            other under these (RFC 4787 REQ-9, RFC 5382 REQ-8). For TCP and UDP, with `mapping = \
            \"endpoint_independent\"`, a pool that no service uses, and `sources` other than all \
            addresses.",
};
pub(crate) static ESTABLISHED: Key = Key {
    name: "tcp_established_s",
    kind: Integer { min: 1, max: 86_400 },
    without: Without::Integer(7440),
    example: "900",
    about: "Idle timeout in seconds of an established TCP connection of this rule, in place of \
            that of [timeouts]. RFC 5382 REQ-5 requires at least 7,440; a busy rule may need less \
            to stay within `limits.sessions`.",
};
