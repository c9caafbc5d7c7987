//! `[limits]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Limits,
    name: "limits",
    heading: "[limits]",
    about: "Limits for which memory is reserved when the director starts. May be left out.",
    keys: &[&SESSIONS, &HELD_FRAMES, &FRAGMENTS],
    sections: &[],
};

pub(crate) static SESSIONS: Key = Key {
    name: "sessions",
    kind: Integer { min: 1, max: 1 << 30 },
    without: Without::Integer(1_000_000),
    example: "10_000_000",
    about: "Sessions of the whole director, divided evenly between the workers, at least one for \
            each. When a worker's part is full, new sessions are refused or evict others \
            (docs/sessions.md), and are counted.",
};
pub(crate) static HELD_FRAMES: Key = Key {
    name: "held_frames",
    kind: Integer { min: 0, max: 65_536 },
    without: Without::Integer(512),
    example: "1024",
    about: "Frames that one worker may hold while the MAC address of a neighbour is being \
            resolved; more are dropped and counted. 0 holds none.",
};
pub(crate) static FRAGMENTS: Key = Key {
    name: "fragments",
    kind: Integer { min: 0, max: 1 << 20 },
    without: Without::Integer(4096),
    example: "16384",
    about: "Fragmented datagrams that one worker tracks at a time, so that later fragments follow \
            the first. Fragments of more are dropped and counted; 0 tracks none.",
};
