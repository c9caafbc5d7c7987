//! `[[snat]]`

use super::*;
use crate::Mapping;
use crate::words::SnatProtocol;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Snat,
    name: "snat",
    heading: "[[snat]]",
    about: "A rule of source NAT for connections that machines behind the director open to the \
            outside: their source becomes an address and port of a pool. The director must be \
            their gateway. Of several rules that match the first counts; what matches none stays \
            with the kernel.",
    keys: &[
        &NAME,
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
    about: "What it is called in output and counters; unique.",
};
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
    about: "The port that the connections leave by.",
};
pub(crate) static POOL: Key = Key {
    name: "pool",
    kind: Text(A_POOL),
    // By IPVS's door rules come before their first address.
    without: Without::Awaited,
    example: "\"outside\"",
    about: "The local pool that source addresses and ports come from. It needs addresses of each \
            family that the sources have.",
};
pub(crate) static MAPPING: Key = Key {
    name: "mapping",
    kind: Word(words_of::<Mapping>),
    without: Without::Text("endpoint_independent"),
    example: "\"per_session\"",
    about: "What shares a pool address and port. `endpoint_independent`: everything from one \
            inside address and port, wherever it goes, which peer-to-peer programs need (RFC 4787, \
            4.1). `per_session`: each connection has its own, so that a pool port serves many \
            inside hosts when they talk to different machines.",
};
pub(crate) static HAIRPINNING: Key = Key {
    name: "hairpinning",
    kind: Boolean,
    without: Without::Boolean(true),
    example: "false",
    about: "Whether machines inside reach each other by the pool addresses and ports that they \
            have outside, and see each other under these (RFC 4787 REQ-9, RFC 5382 REQ-8). For \
            TCP and UDP, with `mapping = \"endpoint_independent\"`, a pool that no service \
            uses, and `sources` that are not everybody.",
};
pub(crate) static ESTABLISHED: Key = Key {
    name: "tcp_established_s",
    kind: Integer { min: 1, max: 86_400 },
    without: Without::Integer(7440),
    example: "900",
    about: "Seconds without a packet after which an established TCP connection by this rule is \
            forgotten, in place of that of [timeouts]. RFC 5382 REQ-5 wants 7,440 or more; a busy \
            rule may need less to find room in `limits.sessions`.",
};
