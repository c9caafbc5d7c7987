//! `[icmp]`

use super::*;
use crate::Refusal;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Icmp,
    name: "icmp",
    heading: "[icmp]",
    about: "ICMP and ICMPv6 errors that the director itself sends (packet too big, fragmentation \
            needed, time exceeded), and answers to refused connections. May be left out.",
    keys: &[&ERRORS_PER_S, &REFUSED],
    sections: &[],
};

pub(crate) static ERRORS_PER_S: Key = Key {
    name: "errors_per_s",
    kind: Integer { min: 0, max: 1_000_000 },
    without: Without::Integer(1000),
    example: "100",
    about: "Maximum number of errors that a worker sends per second; more are suppressed and \
            counted. 0 sends none, and senders then do not learn the path MTU. Errors from others \
            that belong to a session are translated and forwarded without this limit.",
};
pub(crate) static REFUSED: Key = Key {
    name: "refused",
    kind: Word(words_of::<Refusal>),
    without: Without::Text("answer"),
    example: "\"drop\"",
    about: "The answer to a new connection to a service that has no real server for it or is full \
            (`no_real`, `reals_full`, `service_full`): a reset for TCP and port unreachable for \
            UDP and SCTP, or nothing. A worker sends at most `errors_per_s` of these per second, \
            in addition to the errors. Both are counted.",
};
