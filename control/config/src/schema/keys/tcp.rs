//! `[tcp]`

use super::*;
use crate::NoSession;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Tcp,
    name: "tcp",
    heading: "[tcp]",
    about: "TCP packets that belong to no session. May be left out.",
    keys: &[&NO_SESSION, &ACCEPT_MID_STREAM],
    sections: &[],
};

pub(crate) static NO_SESSION: Key = Key {
    name: "no_session",
    kind: Word(words_of::<NoSession>),
    without: Without::Text("drop"),
    example: "\"reset\"",
    about: "The answer to a TCP packet that belongs to no session and may not open one: nothing, \
            or a reset. Both are counted.",
};
pub(crate) static ACCEPT_MID_STREAM: Key = Key {
    name: "accept_mid_stream",
    kind: Boolean,
    without: Without::Boolean(false),
    example: "true",
    about: "Whether any TCP packet may open a session, not only a SYN. After a restart of the \
            director connections then continue, but to a newly chosen real server, which most \
            likely resets them.",
};
