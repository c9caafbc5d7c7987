//! `[[service]]`

use super::*;
use crate::words::ServiceProtocol;
use crate::{AllDown, ClientAddress, HashKey, Mode, Orphans, Scheduling};

/// 31 days, as IPVS's tools have it. A session's clock goes round in 49.
const MONTH_S: i64 = 31 * 86_400;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Service,
    name: "service",
    heading: "[[service]]",
    about: "A virtual service: what clients connect to. At most 65535. Of services that a packet \
            fits the most specific takes it: the exact port, then the narrowest range, then all \
            ports of the protocol, then `protocol = \"any\"`.",
    keys: &[
        &NAME,
        &NETWORK,
        &PROTOCOL,
        &VIP,
        &PORT,
        &MODE,
        &crate::tunnel::PORT,
        &crate::tunnel::CHECKSUM,
        &crate::tunnel::KEY,
        &SCHEDULER,
        &HASH,
        &MH_TABLE,
        &POOL,
        &ONE_PACKET,
        &PERSISTENCE_S,
        &PERSISTENCE_PREFIX,
        &ON_REMOVED,
        &ON_DOWN,
        &CHECK,
        &ALL_DOWN,
        &MAX_SESSIONS,
        &MAX_NEW_PER_S,
        &SLOW_START_S,
        &CLIENT_ADDRESS,
        &LABELS,
        &IDLE_TIMEOUT_S,
        &DENY,
        &ALLOW,
    ],
    sections: &[&super::real::SECTION],
};

pub(crate) static NAME: Key = Key {
    name: "name",
    kind: Text(A_NAME),
    without: Without::Required,
    example: "\"web\"",
    about: "The name in output and counters; unique.",
};
pub(crate) static NETWORK: Key = super::network::named_by(
    "The network that its clients, its VIP, its pool and its real servers are in.",
);
pub(crate) static PROTOCOL: Key = Key {
    name: "protocol",
    kind: Word(words_of::<ServiceProtocol>),
    without: Without::Required,
    example: "\"tcp\"",
    about: "The IP protocol. `any` is all of them and all their ports; the VIP's ICMP, IGMP, OSPF \
            and VRRP stay with the kernel. `sctp` and `any` cannot be `fnat`.",
};
pub(crate) static VIP: Key = Key {
    name: "vip",
    kind: Text(AN_ADDRESS),
    without: Without::Required,
    example: "\"198.51.100.200\"",
    about: "The virtual address. One address may carry several services; (protocol, vip, port) is \
            unique in a network.",
};
pub(crate) static PORT: Key = Key {
    name: "port",
    kind: PortOrRange,
    without: Without::Unset("all ports"),
    example: "80",
    about: "The virtual port, or a range such as `\"8000-8099\"`. Ranges may lie inside one \
            another; two of the same width may not overlap. Left out with `protocol = \"any\"`.",
};
pub(crate) static MODE: Key = Key {
    name: "mode",
    kind: Word(words_of::<Mode>),
    without: Without::Text("fnat"),
    example: "\"dr\"",
    about: "How packets reach the real servers that name no mode of their own. `fnat` (Full NAT): \
            the real servers see a local address as the source, so answers come back through the \
            director whatever their routes are; VIP and real servers may be of different \
            families. `nat`: only the destination changes, and the director must be the real \
            servers' gateway. `dr` (direct routing): only the MAC address changes; real servers \
            share a link with the director, hold the VIP themselves and answer past the director. \
            `ipip`: the packet is put into another IP packet to the real server, which unpacks \
            it, holds the VIP and answers past the director; the families may differ, see \
            `[ipip]`. `gue`: the same in a UDP datagram (Generic UDP Encapsulation). `gre`: the \
            same behind a GRE header.",
};
pub(crate) static SCHEDULER: Key = Key {
    name: "scheduler",
    kind: Word(words_of::<Scheduling>),
    without: Without::Text("rr"),
    example: "\"wlc\"",
    about: Scheduling::ABOUT,
};
pub(crate) static HASH: Key = Key {
    name: "hash",
    kind: Word(words_of::<HashKey>),
    without: Without::Text("client"),
    example: "\"client_port\"",
    about: "The input of the hash of `sh` and `mh`: the client's address, or its address and port.",
};
pub(crate) static MH_TABLE: Key = Key {
    name: "mh_table",
    kind: Integer { min: 2, max: 16_777_213 },
    without: Without::Integer(65_537),
    example: "655_373",
    about: "Entries of the table of `mh`: a prime number, at least the number of real servers and \
            preferably a hundred times that.",
};
pub(crate) static POOL: Key = Key {
    name: "pool",
    kind: Text(A_POOL),
    without: Without::Unset("no real server of the service may be `fnat`"),
    example: "\"lan\"",
    about: "The local pool from which sessions of `fnat` take their source address and port. It \
            needs addresses of each family of such real servers.",
};
pub(crate) static ONE_PACKET: Key = Key {
    name: "one_packet",
    kind: Boolean,
    without: Without::Boolean(false),
    example: "true",
    about: "Whether each datagram is scheduled separately, even when one client port sends many, \
            as resolvers do. For `udp` only.",
};
pub(crate) static PERSISTENCE_S: Key = Key {
    name: "persistence_s",
    kind: Integer { min: 0, max: MONTH_S },
    without: Without::Integer(0),
    example: "300",
    about: "Persistence: for this many seconds after a client's last new session, its new sessions \
            go to the same real server. 0 for none.",
};
pub(crate) static PERSISTENCE_PREFIX: Key = Key {
    name: "persistence_prefix",
    kind: Integer { min: 1, max: 128 },
    without: Without::Unset("all bits"),
    example: "24",
    about: "Leading bits of the client's address that identify a client for persistence: at most \
            32 for an IPv4 VIP, 128 for IPv6.",
};
pub(crate) static ON_REMOVED: Key = Key {
    name: "on_removed",
    kind: Word(words_of::<Orphans>),
    without: Without::Text("keep"),
    example: "\"reset\"",
    about: "The fate of sessions when their real server leaves the configuration. `keep`: they \
            continue until they end. `reset`: they end with the client's next packet, which for \
            TCP is answered with a reset. `reschedule`: the client's next packet goes to another \
            real server, where UDP continues and TCP is most likely reset.",
};
pub(crate) static ON_DOWN: Key = Key {
    name: "on_down",
    kind: Word(words_of::<Orphans>),
    without: Without::Text("reschedule"),
    example: "\"reset\"",
    about: "The same for a real server that is configured `down`, or that its health check found \
            down. Use `keep` if checks may fail under load while TCP connections still work.",
};
pub(crate) static CHECK: Key = Key {
    name: "check",
    kind: Text(A_CHECK),
    without: Without::Unset("no checks: real servers are up unless they are `down`"),
    example: "\"web\"",
    about: "The health check of its real servers. A real server that fails it gets no new sessions \
            until it passes again.",
};
pub(crate) static ALL_DOWN: Key = Key {
    name: "all_down",
    kind: Word(words_of::<AllDown>),
    without: Without::Text("drop"),
    example: "\"fail_open\"",
    about: "The fate of new sessions when every real server was found down and no `fallback` is \
            up. `drop`: they are refused. `keep`: they go to those that were up last, as if they \
            still were. `fail_open`: they go to all, as if all were up. Real servers that are \
            configured `down` never get any.",
};
pub(crate) static MAX_SESSIONS: Key = Key {
    name: "max_sessions",
    kind: Integer { min: 0, max: 1 << 30 },
    without: Without::Integer(0),
    example: "100_000",
    about: "Maximum number of sessions at a time; more are refused and counted. 0 for no limit.",
};
pub(crate) static MAX_NEW_PER_S: Key = Key {
    name: "max_new_per_s",
    kind: Integer { min: 0, max: 1_000_000_000 },
    without: Without::Integer(0),
    example: "20_000",
    about: "Maximum number of new sessions per second; more are refused and counted. 0 for no \
            limit.",
};
pub(crate) static SLOW_START_S: Key = Key {
    name: "slow_start_s",
    kind: Integer { min: 0, max: 86_400 },
    without: Without::Integer(0),
    example: "60",
    about: "Seconds over which the weight of a real server that was added or came back rises to \
            the configured value. 0 for at once.",
};
pub(crate) static CLIENT_ADDRESS: Key = Key {
    name: "client_address",
    kind: Word(words_of::<ClientAddress>),
    without: Without::Text("hidden"),
    example: "\"proxy_v2\"",
    about: "How real servers of `fnat` learn the client's address (docs/client-address.md). \
            `hidden`: not at all. `toa`: TCP option 254 in the segments that open the connection, \
            for the `toa` kernel module. `proxy_v1`, `proxy_v2`: a PROXY protocol header at the \
            start of the stream; `proxy_v2` also for `udp`, at the start of each datagram.",
};
pub(crate) static LABELS: Key = Key {
    name: "labels",
    kind: Labels,
    without: Without::Unset("none"),
    example: "{ team = \"web\" }",
    about: "Labels for people and programs; names consist of letters, digits, `.`, `_` and `-`. \
            The director does not interpret them, except names that begin with `ipvs.`: settings \
            of `ipvsadm` for which the director has no key (see state.md).",
};
pub(crate) static IDLE_TIMEOUT_S: Key = Key {
    name: "idle_timeout_s",
    kind: Integer { min: 0, max: MONTH_S },
    without: Without::Integer(0),
    example: "3600",
    about: "Idle timeout in seconds of open sessions of this service: of TCP while neither side \
            has closed, of UDP, SCTP and other protocols. 0 for the values of `[timeouts]`. It \
            also applies to sessions that are already open.",
};
pub(crate) static DENY: Key = Key {
    name: "deny",
    kind: Texts(A_PREFIX),
    without: Without::Unset("no client is denied"),
    example: "[\"203.0.113.0/24\"]",
    about: "Networks of clients that may not open sessions: their packets are dropped without an \
            answer and counted (`client_denied`). Sessions that are open when a network is added \
            continue; `sluice sessions kill --client ADDRESS` ends them.",
};
pub(crate) static ALLOW: Key = Key {
    name: "allow",
    kind: Texts(A_PREFIX),
    without: Without::Unset("all clients are allowed"),
    example: "[\"198.51.100.0/24\"]",
    about: "If set, only clients in these networks may open sessions, except those in `deny`. Open \
            sessions are not affected.",
};
