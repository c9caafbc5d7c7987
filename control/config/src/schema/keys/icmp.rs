//! `[icmp]`

use super::*;
use crate::Refusal;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Icmp,
    name: "icmp",
    heading: "[icmp]",
    about: "What the director itself tells senders: ICMP and ICMPv6 errors (packet too big, \
            fragmentation needed, time exceeded), and that a connection is refused. May be left \
            out.",
    keys: &[&ERRORS_PER_S, &REFUSED],
    sections: &[],
};

pub(crate) static ERRORS_PER_S: Key = Key {
    name: "errors_per_s",
    kind: Integer { min: 0, max: 1_000_000 },
    without: Without::Integer(1000),
    example: "100",
    about: "The most that a worker sends in a second; what would be more is left out and counted. \
            0 sends none, and senders then do not learn the path's MTU. Errors of others that \
            belong to a session are translated and passed on without this limit.",
};
pub(crate) static REFUSED: Key = Key {
    name: "refused",
    kind: Word(words_of::<Refusal>),
    without: Without::Text("answer"),
    example: "\"drop\"",
    about: "The answer to a new connection to a service that has no real server for it, or is \
            full (`no_real`, `reals_full`, `service_full`): a reset to TCP and port unreachable \
            to UDP and SCTP, or nothing. A worker sends as many in a second as `errors_per_s` \
            says, besides the errors. Both are counted.",
};
