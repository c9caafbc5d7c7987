//! `[[check]]`

use super::*;
use crate::{CheckKind, Initial, Method, Question, Through};

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Check,
    name: "check",
    heading: "[[check]]",
    about: "A health check, for the services that name it. Probes go from the director's own \
            addresses directly to the real server. `sluice health` shows results and reasons.",
    keys: &[
        &NAME,
        &KIND,
        &INTERVAL_MS,
        &FAST_INTERVAL_MS,
        &TIMEOUT_MS,
        &RISE,
        &FALL,
        &DEAD_AFTER_MS,
        &JITTER_PERCENT,
        &INITIAL,
        &PORT,
        &METHOD,
        &PATH,
        &HOST,
        &STATUS,
        &EXPECT,
        &EXPECT_REGEX,
        &SEND,
        &DNS_NAME,
        &DNS_TYPE,
        &DNS_CODE,
        &DNS_ADDRESS,
        &GRPC_SERVICE,
        &TLS_NAME,
        &TLS_VERIFY,
        &TLS_AUTHORITIES,
        &TLS_EXPIRY_DAYS,
        &THROUGH,
        &PASSIVE_FAILURES,
        &PASSIVE_HOLD_S,
        &COMMAND,
        &SOURCE,
        &MARK,
        &INTERFACE,
    ],
    sections: &[],
};

pub(crate) static NAME: Key = Key {
    name: "name",
    kind: Text(A_NAME),
    without: Without::Required,
    example: "\"web\"",
    about: "The name by which services refer to it; unique.",
};
pub(crate) static KIND: Key = Key {
    name: "kind",
    kind: Word(words_of::<CheckKind>),
    without: Without::Required,
    example: "\"http\"",
    about: "The kind of probe. `tcp`: connects. `tls`: connects and performs a handshake. `http`, \
            `https`: requests a path. `udp`: sends a datagram. `dns`: queries a name server over \
            UDP. `grpc`, `grpcs`: queries the service grpc.health.v1.Health, plain or over TLS. \
            `ping`: ICMP echo. `passive`: sends nothing and relies on `passive_failures`. \
            `script`: runs a program.",
};
pub(crate) static INTERVAL_MS: Key = Key {
    name: "interval_ms",
    kind: Integer { min: 100, max: 3_600_000 },
    without: Without::Integer(2_000),
    example: "1_000",
    about: "Milliseconds from the start of one probe to the start of the next.",
};
pub(crate) static FAST_INTERVAL_MS: Key = Key {
    name: "fast_interval_ms",
    kind: Integer { min: 50, max: 3_600_000 },
    without: Without::Unset("`interval_ms`"),
    example: "200",
    about: "The same while the last probes contradict the current state.",
};
pub(crate) static TIMEOUT_MS: Key = Key {
    name: "timeout_ms",
    kind: Integer { min: 10, max: 600_000 },
    without: Without::Integer(1_000),
    example: "500",
    about: "Milliseconds after which a probe has failed.",
};
pub(crate) static RISE: Key = Key {
    name: "rise",
    kind: Integer { min: 1, max: 100 },
    without: Without::Integer(2),
    example: "3",
    about: "Consecutive passes that make a real server up.",
};
pub(crate) static FALL: Key = Key {
    name: "fall",
    kind: Integer { min: 1, max: 100 },
    without: Without::Integer(3),
    example: "2",
    about: "Consecutive failures that make it down. The first probe alone decides, either way.",
};
pub(crate) static DEAD_AFTER_MS: Key = Key {
    name: "dead_after_ms",
    kind: Integer { min: 100, max: 3_600_000 },
    without: Without::Unset("`fall` decides"),
    example: "8_000",
    about: "Replaces `fall`: the real server is down when no probe has passed for this many \
            milliseconds.",
};
pub(crate) static JITTER_PERCENT: Key = Key {
    name: "jitter_percent",
    kind: Integer { min: 0, max: 50 },
    without: Without::Integer(10),
    example: "0",
    about: "Random variation of the interval, so that checks that started together spread out.",
};
pub(crate) static INITIAL: Key = Key {
    name: "initial",
    kind: Word(words_of::<Initial>),
    without: Without::Text("up"),
    example: "\"down\"",
    about: "The state assumed until the first probe has finished.",
};
pub(crate) static PORT: Key = Key {
    name: "port",
    kind: Integer { min: 1, max: 65_535 },
    without: Without::Unset("the real server's port"),
    example: "8081",
    about: "The port that probes go to; `check_port` of a real server takes precedence.",
};
pub(crate) static METHOD: Key = Key {
    name: "method",
    kind: Word(words_of::<Method>),
    without: Without::Text("GET"),
    example: "\"HEAD\"",
    about: "HTTP: the method.",
};
pub(crate) static PATH: Key = Key {
    name: "path",
    kind: Text("a path that begins with `/`"),
    without: Without::Text("/"),
    example: "\"/health\"",
    about: "HTTP: the path, with a query if there is one.",
};
pub(crate) static HOST: Key = Key {
    name: "host",
    kind: Text("the name of a host"),
    without: Without::Unset("the address and port"),
    example: "\"www.example.com\"",
    about: "HTTP: the `Host` field.",
};
pub(crate) static STATUS: Key = Key {
    name: "status",
    kind: Texts("a status or a range of them"),
    without: Without::Unset("200 to 299"),
    example: "[\"200-299\", \"401\"]",
    about: "HTTP: statuses that pass.",
};
pub(crate) static EXPECT: Key = Key {
    name: "expect",
    kind: Text("any text"),
    without: Without::Unset("anything will do"),
    example: "\"alive\"",
    about: "HTTP: text that the first 64 KiB of the body must contain. UDP: text that the answer \
            must contain.",
};
pub(crate) static EXPECT_REGEX: Key = Key {
    name: "expect_regex",
    kind: Text("a regular expression of at most 512 bytes"),
    without: Without::Unset("anything will do"),
    example: "\"^status: (ok|fine)$\"",
    about: "The same as a regular expression that must match somewhere; `^` and `$` match at the \
            start and the end of a line.",
};
pub(crate) static SEND: Key = Key {
    name: "send",
    kind: Text("any text"),
    without: Without::Unset("an empty datagram"),
    example: "\"ping\\n\"",
    about: "UDP: the payload of the probe. Without `expect` and `expect_regex` no answer is \
            needed, and only an ICMP error is a failure.",
};
pub(crate) static DNS_NAME: Key = Key {
    name: "dns_name",
    kind: Text("a name in the DNS"),
    without: Without::Unset("`dns` needs it"),
    example: "\"example.com\"",
    about: "DNS: the name to query.",
};
pub(crate) static DNS_TYPE: Key = Key {
    name: "dns_type",
    kind: Word(words_of::<Question>),
    without: Without::Text("A"),
    example: "\"SOA\"",
    about: "DNS: the record type to query.",
};
pub(crate) static DNS_CODE: Key = Key {
    name: "dns_code",
    kind: Integer { min: 0, max: 15 },
    without: Without::Integer(0),
    example: "3",
    about: "DNS: the expected response code. 0 is NOERROR, with at least one record; 3 is \
            NXDOMAIN.",
};
pub(crate) static DNS_ADDRESS: Key = Key {
    name: "dns_address",
    kind: Text(AN_ADDRESS),
    without: Without::Unset("any records will do"),
    example: "\"192.0.2.80\"",
    about: "DNS: an address that must be among the records.",
};
pub(crate) static GRPC_SERVICE: Key = Key {
    name: "grpc_service",
    kind: Text("any text"),
    without: Without::Unset("the server as a whole"),
    example: "\"shop.Cart\"",
    about: "gRPC: the service to query. Its status must be SERVING.",
};
pub(crate) static TLS_NAME: Key = Key {
    name: "tls_name",
    kind: Text("the name of a host"),
    without: Without::Unset("the address"),
    example: "\"www.example.com\"",
    about: "TLS: the server name (SNI), which the certificate must match.",
};
pub(crate) static TLS_VERIFY: Key = Key {
    name: "tls_verify",
    kind: Boolean,
    without: Without::Boolean(true),
    example: "false",
    about: "TLS: whether the certificate must be valid.",
};
pub(crate) static TLS_AUTHORITIES: Key = Key {
    name: "tls_authorities",
    kind: Text("an absolute path"),
    without: Without::Unset("the system's"),
    example: "\"/etc/sluice/ca.pem\"",
    about: "TLS: a PEM file of certificate authorities.",
};
pub(crate) static TLS_EXPIRY_DAYS: Key = Key {
    name: "tls_expiry_days",
    kind: Integer { min: 0, max: 3_650 },
    without: Without::Integer(14),
    example: "30",
    about: "TLS: days before expiry from which `sluice health` warns about a certificate.",
};
pub(crate) static THROUGH: Key = Key {
    name: "through",
    kind: Word(words_of::<Through>),
    without: Without::Text("direct"),
    example: "\"service\"",
    about: "The path of probes. `direct`: from the director's own addresses directly to the real \
            server. `service`: from `probe_addresses` of [director] to the service's address and \
            port through the data path, to this real server in its own mode, with the tunnel, \
            translation, PROXY header and local address that clients get.",
};
pub(crate) static PASSIVE_FAILURES: Key = Key {
    name: "passive_failures",
    kind: Integer { min: 0, max: 10_000 },
    without: Without::Integer(0),
    example: "5",
    about: "TCP: a real server is down at once when this many client connections in a row have \
            failed, each refused by it or unanswered for 3.5 seconds, with none completed in \
            between; 0 disables this. Where answers bypass the director (`dr`, `ipip`), clients \
            that leave all their connections half-open look the same.",
};
pub(crate) static PASSIVE_HOLD_S: Key = Key {
    name: "passive_hold_s",
    kind: Integer { min: 1, max: 86_400 },
    without: Without::Integer(30),
    example: "10",
    about: "Seconds after that in which passing probes are ignored; then `rise` passes bring the \
            real server back.",
};
pub(crate) static COMMAND: Key = Key {
    name: "command",
    kind: Texts("an argument"),
    without: Without::Unset("`script` needs it"),
    example: "[\"/usr/local/bin/check-web\", \"--fast\"]",
    about: "Script: the program, by its absolute path, and its arguments. It runs without a \
            shell, with SLUICE_SERVICE, SLUICE_REAL_ADDRESS, SLUICE_REAL_PORT, \
            SLUICE_CHECK_ADDRESS and SLUICE_CHECK_PORT in its environment, and in an isolated \
            network SLUICE_NETWORK and SLUICE_DEVICE, its name and the device to bind sockets to; \
            exit code 0 is a pass, and the first line it prints is the reason. What runs longer \
            than `timeout_ms` is killed, with all that it started. Only its owner (root, or the \
            user of the director) may be able to write the program.",
};
pub(crate) static SOURCE: Key = Key {
    name: "source",
    kind: Text(AN_ADDRESS),
    without: Without::Unset("the kernel chooses"),
    example: "\"192.0.2.2\"",
    about: "Source address of probes.",
};
pub(crate) static MARK: Key = Key {
    name: "mark",
    kind: Integer { min: 0, max: 0xffff_ffff },
    without: Without::Integer(0),
    example: "7",
    about: "Mark of probes' packets (fwmark), for policy routing.",
};
pub(crate) static INTERFACE: Key = Key {
    name: "interface",
    kind: Text(AN_INTERFACE),
    without: Without::Unset("the kernel chooses; in an isolated network the network's device"),
    example: "\"back\"",
    about: "Interface that probes leave by, also in an isolated network.",
};
