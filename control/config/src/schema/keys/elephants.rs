//! `[elephants]`

use super::*;
use crate::Spreading;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Elephants,
    name: "elephants",
    heading: "[elephants]",
    about: "Elephant flows: whether one flow may be processed by several workers. See \
            docs/elephants.md before using it. May be left out.",
    keys: &[
        &MODE,
        &PACKETS_PER_S,
        &BITS_PER_S,
        &WORKER_PERCENT,
        &LEAVE_AFTER_S,
        &MAX_FLOWS,
        &WORKERS,
    ],
    sections: &[],
};

pub(crate) static MODE: Key = Key {
    name: "mode",
    kind: Word(words_of::<Spreading>),
    without: Without::Text("observe"),
    example: "\"spread\"",
    about: "Who may spread a flow. `off`: nobody. `observe`: an operator, by `sluice elephants \
            pin`. `spread`: also the director, by the thresholds below. Elephants are listed in \
            each mode.",
};
pub(crate) static PACKETS_PER_S: Key = Key {
    name: "packets_per_s",
    kind: Integer { min: 0, max: 1_000_000_000 },
    without: Without::Integer(1_000_000),
    example: "500_000",
    about: "A flow is spread that has exceeded this rate in each of the last two seconds, in one \
            direction. 0 disregards packets.",
};
pub(crate) static BITS_PER_S: Key = Key {
    name: "bits_per_s",
    kind: Integer { min: 0, max: 1_000_000_000_000 },
    without: Without::Integer(0),
    example: "10_000_000_000",
    about: "The same for bits of IP packets; either suffices. 0 disregards them.",
};
pub(crate) static WORKER_PERCENT: Key = Key {
    name: "worker_percent",
    kind: Integer { min: 0, max: 100 },
    without: Without::Integer(0),
    example: "60",
    about: "The same for the flow's share of what its worker can process in a second, in percent: \
            the packets that it did process, divided by the part of the second that it was busy. \
            Either suffices. 0 disregards the share.",
};
pub(crate) static LEAVE_AFTER_S: Key = Key {
    name: "leave_after_s",
    kind: Integer { min: 1, max: 3600 },
    without: Without::Integer(10),
    example: "30",
    about: "A flow that the director has spread is gathered in again after so many seconds below \
            half of the thresholds.",
};
pub(crate) static MAX_FLOWS: Key = Key {
    name: "max_flows",
    kind: Integer { min: 1, max: 16 },
    without: Without::Integer(4),
    example: "8",
    about: "Flows that the director spreads at a time, the largest first; pinned ones do not \
            count.",
};
pub(crate) static WORKERS: Key = Key {
    name: "workers",
    kind: Integer { min: 0, max: 64 },
    without: Without::Integer(0),
    example: "4",
    about: "Workers that process a flow that the director spreads, its owner included; 0 for all.",
};
