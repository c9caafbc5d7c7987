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
        &PROTOCOL,
        &VIP,
        &PORT,
        &MODE,
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
    about: "What it is called in output and counters; unique.",
};
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
            unique.",
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
            `[ipip]`.",
};
pub(crate) static SCHEDULER: Key = Key {
    name: "scheduler",
    kind: Word(words_of::<Scheduling>),
    without: Without::Text("rr"),
    example: "\"wlc\"",
    about: "How a real server is chosen for a new session, by IPVS's names. `rr`: in turn, each \
            alike. `wrr`: in turn by weight. `lc`: the one with the fewest sessions. `wlc`: the \
            one with the fewest sessions for its weight. `sed`: the same with the new session \
            counted, so that the strongest get the first ones. `nq`: one that has none, else as \
            `sed`. `fo`: the highest weight that is available. `ovf`: the highest weight that has \
            fewer open sessions than its weight. `lblc`, `lblcr`: the same one, or the same few, \
            for a virtual address until it is overloaded. `dh`: by a hash of the virtual address. \
            `sh`: by a hash of the client, over a table filled by weight. `mh`: by Maglev's \
            consistent hash of the client: few clients move when a real server comes or goes. \
            `p2c`: of two chosen at random the one with fewer sessions for its weight.",
};
pub(crate) static HASH: Key = Key {
    name: "hash",
    kind: Word(words_of::<HashKey>),
    without: Without::Text("client"),
    example: "\"client_port\"",
    about: "What `sh` and `mh` hash: the client's address, or its address and port.",
};
pub(crate) static MH_TABLE: Key = Key {
    name: "mh_table",
    kind: Integer { min: 2, max: 16_777_213 },
    without: Without::Integer(65_537),
    example: "655_373",
    about: "Entries of the table of `mh`: a prime, at least the number of real servers and better \
            a hundred times that.",
};
pub(crate) static POOL: Key = Key {
    name: "pool",
    kind: Text(A_POOL),
    without: Without::Unset("no real server of the service may be `fnat`"),
    example: "\"lan\"",
    about: "The local pool that sessions of `fnat` take their source address and port from. It \
            needs addresses of each family that such real servers have.",
};
pub(crate) static ONE_PACKET: Key = Key {
    name: "one_packet",
    kind: Boolean,
    without: Without::Boolean(false),
    example: "true",
    about: "Whether each datagram is scheduled by itself, also when one client port sends many, \
            as resolvers do. For `udp` only.",
};
pub(crate) static PERSISTENCE_S: Key = Key {
    name: "persistence_s",
    kind: Integer { min: 0, max: MONTH_S },
    without: Without::Integer(0),
    example: "300",
    about: "Persistence: for so many seconds from a client's last new session on, its new \
            sessions go to the same real server. 0 for none.",
};
pub(crate) static PERSISTENCE_PREFIX: Key = Key {
    name: "persistence_prefix",
    kind: Integer { min: 1, max: 128 },
    without: Without::Unset("all bits"),
    example: "24",
    about: "Leading bits of the client's address that make a client for persistence: at most 32 \
            for an IPv4 VIP, 128 for IPv6.",
};
pub(crate) static ON_REMOVED: Key = Key {
    name: "on_removed",
    kind: Word(words_of::<Orphans>),
    without: Without::Text("keep"),
    example: "\"reset\"",
    about: "What becomes of the sessions of a real server that left the configuration. `keep`: \
            they go on until they end. `reset`: they end with the next packet of their client, \
            which for TCP is answered with a reset. `reschedule`: the next packet of their client \
            goes to another real server, where UDP goes on and TCP is most likely reset.",
};
pub(crate) static ON_DOWN: Key = Key {
    name: "on_down",
    kind: Word(words_of::<Orphans>),
    without: Without::Text("reschedule"),
    example: "\"reset\"",
    about: "The same for a real server that is `down`, or that its health check found down. Where \
            checks may fail under load while TCP connections still go on, `keep` spares these.",
};
pub(crate) static CHECK: Key = Key {
    name: "check",
    kind: Text(A_CHECK),
    without: Without::Unset("nobody looks: real servers are up unless they are `down`"),
    example: "\"web\"",
    about: "The health check of its real servers. One that fails it gets no new sessions until it \
            passes again.",
};
pub(crate) static ALL_DOWN: Key = Key {
    name: "all_down",
    kind: Word(words_of::<AllDown>),
    without: Without::Text("drop"),
    example: "\"fail_open\"",
    about: "What becomes of new sessions when every real server was found down, and no `fallback` \
            is up. `drop`: they are refused. `keep`: they go to those that were up last, as if \
            they still were. `fail_open`: they go to all, as if all were up. Real servers that are \
            configured `down` never get any.",
};
pub(crate) static MAX_SESSIONS: Key = Key {
    name: "max_sessions",
    kind: Integer { min: 0, max: 1 << 30 },
    without: Without::Integer(0),
    example: "100_000",
    about: "The most sessions at a time; more are refused and counted. 0 for no limit.",
};
pub(crate) static MAX_NEW_PER_S: Key = Key {
    name: "max_new_per_s",
    kind: Integer { min: 0, max: 1_000_000_000 },
    without: Without::Integer(0),
    example: "20_000",
    about: "The most new sessions in a second; more are refused and counted. 0 for no limit.",
};
pub(crate) static SLOW_START_S: Key = Key {
    name: "slow_start_s",
    kind: Integer { min: 0, max: 86_400 },
    without: Without::Integer(0),
    example: "60",
    about: "Seconds in which the weight of a real server that was added or came back rises to \
            what is configured. 0 for at once.",
};
pub(crate) static CLIENT_ADDRESS: Key = Key {
    name: "client_address",
    kind: Word(words_of::<ClientAddress>),
    without: Without::Text("hidden"),
    example: "\"proxy_v2\"",
    about: "How real servers of `fnat` learn the client's address. `hidden`: not at all. `toa`: \
            TCP option 254 in the segments that open the connection, for the `toa` kernel module. \
            `proxy_v1`, `proxy_v2`: a header of the PROXY protocol at the front of the stream; \
            `proxy_v2` also for `udp`, at the front of each datagram.",
};
pub(crate) static LABELS: Key = Key {
    name: "labels",
    kind: Labels,
    without: Without::Unset("none"),
    example: "{ team = \"web\" }",
    about: "What people and programs want to remember of it, by names of letters, digits, `.`, `_` \
            and `-`. The director makes nothing of them, but for those that begin with `ipvs.`: \
            what `ipvsadm` said and the director has no key for (see state.md).",
};
pub(crate) static IDLE_TIMEOUT_S: Key = Key {
    name: "idle_timeout_s",
    kind: Integer { min: 0, max: MONTH_S },
    without: Without::Integer(0),
    example: "3600",
    about: "Seconds without a packet after which an open session of this service is over: of TCP \
            while neither side has closed it, of UDP, of SCTP, and of other protocols. 0 for what \
            `[timeouts]` says of each. It holds for sessions that are open already, too.",
};
pub(crate) static DENY: Key = Key {
    name: "deny",
    kind: Texts(A_PREFIX),
    without: Without::Unset("nobody is denied"),
    example: "[\"203.0.113.0/24\"]",
    about: "Networks of clients that may open no sessions: what they send is dropped without an \
            answer and counted (`client_denied`). Sessions that are open when a network is added \
            go on; `sluice sessions kill --client ADDRESS` ends them.",
};
pub(crate) static ALLOW: Key = Key {
    name: "allow",
    kind: Texts(A_PREFIX),
    without: Without::Unset("everybody is allowed"),
    example: "[\"198.51.100.0/24\"]",
    about: "Networks of the only clients that may open sessions, but for those in `deny`. It \
            makes no difference for sessions that are open.",
};
