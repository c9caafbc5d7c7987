//! `[icmp]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Icmp,
    name: "icmp",
    heading: "[icmp]",
    about: "ICMP and ICMPv6 errors that the director sends by itself: packet too big, \
            fragmentation needed, time exceeded. May be left out.",
    keys: &[&ERRORS_PER_S],
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
