//! `[metrics]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Metrics,
    name: "metrics",
    heading: "[metrics]",
    about: "The content of `GET /metrics` (docs/metrics.md). May be left out.",
    keys: &[&REAL_SERVERS],
    sections: &[],
};

pub(crate) static REAL_SERVERS: Key = Key {
    name: "real_servers",
    kind: Boolean,
    without: Without::Boolean(true),
    example: "false",
    about: "Whether each real server and health check has its own series, about a dozen each. \
            Otherwise there are only those of services, with the number of real servers in each \
            state.",
};
