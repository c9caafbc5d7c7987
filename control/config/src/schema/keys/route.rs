//! `[[route]]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Route,
    name: "route",
    heading: "[[route]]",
    about: "A static route, for `sluice replay` only: a running director follows the kernel's \
            routes and ignores these.",
    keys: &[&PREFIX, &VIA, &PORT],
    sections: &[],
};

pub(crate) static PREFIX: Key = Key {
    name: "prefix",
    kind: Text(A_PREFIX),
    without: Without::Required,
    example: "\"0.0.0.0/0\"",
    about: "The destinations; unique in the network of the port.",
};
pub(crate) static VIA: Key = Key {
    name: "via",
    kind: Text(AN_ADDRESS),
    without: Without::Unset("the destinations are on the link"),
    example: "\"198.51.100.1\"",
    about: "The next hop.",
};
pub(crate) static PORT: Key = Key {
    name: "port",
    kind: Text(A_PORT),
    without: Without::Required,
    example: "\"front\"",
    about: "The port that leads there.",
};
