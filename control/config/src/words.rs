//! Settings that are one word out of few: the words, once, for reading and for the reference.

use sluice_director::blueprint::{Mode, NoSession, Protocol, Scheduling};

use crate::{HugePages, Idle, LogLevel};

/// A setting that is one word out of few.
pub(crate) trait Word: Copy + 'static {
    /// What one is called in a message: `"rrr" is not NOUN`.
    const NOUN: &str;
    /// Every word and what it means.
    const ALL: &[(&str, Self)];
}

/// The words of a setting, in the order they are documented.
pub(crate) fn words_of<W: Word>() -> Vec<&'static str> {
    W::ALL.iter().map(|(word, _)| *word).collect()
}

impl Word for Idle {
    const NOUN: &str = "an idle behaviour";
    const ALL: &[(&str, Self)] = &[("adaptive", Self::Adaptive), ("busy", Self::Busy)];
}

impl Word for HugePages {
    const NOUN: &str = "a choice for huge pages";
    const ALL: &[(&str, Self)] =
        &[("auto", Self::Auto), ("required", Self::Required), ("off", Self::Off)];
}

impl Word for LogLevel {
    const NOUN: &str = "a log level";
    const ALL: &[(&str, Self)] = &[
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

impl Word for NoSession {
    const NOUN: &str = "an answer to a packet without a session";
    const ALL: &[(&str, Self)] = &[("drop", Self::Drop), ("reset", Self::Reset)];
}

impl Word for Protocol {
    const NOUN: &str = "a protocol";
    const ALL: &[(&str, Self)] = &[(Self::Tcp.name(), Self::Tcp), (Self::Udp.name(), Self::Udp)];
}

impl Word for Mode {
    const NOUN: &str = "a forwarding mode";
    const ALL: &[(&str, Self)] = &[(Self::Fnat.name(), Self::Fnat)];
}

impl Word for Scheduling {
    const NOUN: &str = "a scheduler";
    const ALL: &[(&str, Self)] = &[(Self::Rr.name(), Self::Rr)];
}

macro_rules! word_of {
    ($($kind:ty),*) => {$(
        impl $kind {
            /// The word for it in a configuration file.
            pub fn word(self) -> &'static str {
                Self::ALL.iter().find(|(_, meaning)| *meaning == self).map_or("", |(word, _)| word)
            }
        }
    )*};
}
word_of!(Idle, HugePages, LogLevel);
