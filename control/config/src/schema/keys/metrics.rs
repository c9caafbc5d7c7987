//! `[metrics]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Metrics,
    name: "metrics",
    heading: "[metrics]",
    about: "What `GET /metrics` shows (docs/metrics.md). May be left out.",
    keys: &[&REAL_SERVERS],
    sections: &[],
};

pub(crate) static REAL_SERVERS: Key = Key {
    name: "real_servers",
    kind: Boolean,
    without: Without::Boolean(true),
    example: "false",
    about: "Whether each real server and health check has series of its own: some dozen each. \
            Without, there are those of services, with how many real servers are in each state.",
};
