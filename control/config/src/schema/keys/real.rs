//! `[[service.real]]`

use super::*;
use crate::Mode;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Real,
    name: "real",
    heading: "[[service.real]]",
    about: "A real server of the service above it. At most 16777216 in all services together. A \
            service without real servers refuses its clients.",
    keys: &[
        &ADDRESS,
        &PORT,
        &WEIGHT,
        &MODE,
        &crate::tunnel::PORT,
        &crate::tunnel::CHECKSUM,
        &crate::tunnel::KEY,
        &UPPER_SESSIONS,
        &LOWER_SESSIONS,
        &DOWN,
        &FALLBACK,
        &CHECK_ADDRESS,
        &CHECK_PORT,
    ],
    sections: &[],
};

pub(crate) static ADDRESS: Key = Key {
    name: "address",
    kind: Text(AN_ADDRESS),
    without: Without::Required,
    example: "\"192.0.2.11\"",
    about: "Its address, not link-local. For `nat` and `dr` of the VIP's family; for `fnat` and \
            tunnels of either.",
};
pub(crate) static PORT: Key = Key {
    name: "port",
    kind: Integer { min: 1, max: 65_535 },
    without: Without::Unset("the port that the client sent to"),
    example: "8080",
    about: "Its port, for `fnat` and `nat`; `dr` and tunnels leave ports as they are. (address, \
            port) is unique within a service.",
};
pub(crate) static WEIGHT: Key = Key {
    name: "weight",
    kind: Integer { min: 0, max: 65_535 },
    without: Without::Integer(1),
    example: "2",
    about: "Its share of new sessions, for schedulers that use weights (`rr` and `lc` do not). 0 \
            drains it with every scheduler: live sessions stay, new ones go elsewhere.",
};
pub(crate) static MODE: Key = Key {
    name: "mode",
    kind: Word(words_of::<Mode>),
    without: Without::Unset("the service's mode"),
    example: "\"dr\"",
    about: "How packets reach this real server.",
};
pub(crate) static UPPER_SESSIONS: Key = Key {
    name: "upper_sessions",
    kind: Integer { min: 0, max: 1 << 30 },
    without: Without::Integer(0),
    example: "50_000",
    about: "Number of sessions at which it is full and gets no new ones; 0 for no limit.",
};
pub(crate) static LOWER_SESSIONS: Key = Key {
    name: "lower_sessions",
    kind: Integer { min: 0, max: 1 << 30 },
    without: Without::Integer(0),
    example: "40_000",
    about: "Number of sessions below which it gets new ones again after it was full; 0 for three \
            quarters of `upper_sessions`.",
};
pub(crate) static DOWN: Key = Key {
    name: "down",
    kind: Boolean,
    without: Without::Boolean(false),
    example: "true",
    about: "Whether it is administratively down: it gets no new sessions, and the service's \
            `on_down` decides about existing ones.",
};
pub(crate) static FALLBACK: Key = Key {
    name: "fallback",
    kind: Boolean,
    without: Without::Boolean(false),
    example: "true",
    about: "Whether it is a fallback (a sorry server): it gets new sessions only while no other \
            real server of the service is up and has a weight. Existing sessions stay with it \
            afterwards.",
};
pub(crate) static CHECK_ADDRESS: Key = Key {
    name: "check_address",
    kind: Text(AN_ADDRESS),
    without: Without::Unset("its address"),
    example: "\"192.0.2.111\"",
    about: "The address that its health checks probe.",
};
pub(crate) static CHECK_PORT: Key = Key {
    name: "check_port",
    kind: Integer { min: 1, max: 65_535 },
    without: Without::Unset("the check's `port`, or its own"),
    example: "8081",
    about: "The port that its health checks probe.",
};
