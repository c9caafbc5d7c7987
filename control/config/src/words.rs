//! Settings that are one word out of few: the words, once, for reading and for the reference.

use sluice_director::spec::{
    AllDown, ClientAddress, HashKey, Mapping, Mode, NoSession, Orphans, Protocol, Refusal,
    Scheduling,
};

use crate::{
    CheckKind, HugePages, Idle, Initial, LogFormat, LogLevel, Method, Question, Spreading, Through,
};

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

/// The schedulers that a service can have, by name.
pub fn schedulers() -> Vec<&'static str> {
    words_of::<Scheduling>()
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

impl Word for LogFormat {
    const NOUN: &str = "a log format";
    const ALL: &[(&str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Word for Family {
    const NOUN: &str = "a version of IP";
    const ALL: &[(&str, Self)] = &[("ipv4", Self::V4), ("ipv6", Self::V6)];
}

/// Which end of IPVS's synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Master,
    Backup,
}

impl Word for Role {
    const NOUN: &str = "an end of the synchronisation";
    const ALL: &[(&str, Self)] = &[("master", Self::Master), ("backup", Self::Backup)];
}

impl Word for NoSession {
    const NOUN: &str = "an answer to a packet without a session";
    const ALL: &[(&str, Self)] = &[("drop", Self::Drop), ("reset", Self::Reset)];
}

impl Word for Spreading {
    const NOUN: &str = "a mode";
    const ALL: &[(&str, Self)] =
        &[("off", Self::Off), ("observe", Self::Observe), ("spread", Self::Spread)];
}

impl Word for Refusal {
    const NOUN: &str = "an answer to a refused connection";
    const ALL: &[(&str, Self)] = &[("answer", Self::Answer), ("drop", Self::Drop)];
}

/// A protocol that a service may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceProtocol(pub Protocol);

impl Word for ServiceProtocol {
    const NOUN: &str = "a protocol of services";
    const ALL: &[(&str, Self)] = &[
        (Protocol::Tcp.name(), Self(Protocol::Tcp)),
        (Protocol::Udp.name(), Self(Protocol::Udp)),
        (Protocol::Sctp.name(), Self(Protocol::Sctp)),
        (Protocol::Any.name(), Self(Protocol::Any)),
    ];
}

/// A protocol that source NAT translates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnatProtocol(pub Protocol);

impl Word for SnatProtocol {
    const NOUN: &str = "a protocol of source NAT";
    const ALL: &[(&str, Self)] = &[
        (Protocol::Tcp.name(), Self(Protocol::Tcp)),
        (Protocol::Udp.name(), Self(Protocol::Udp)),
        (Protocol::Icmp.name(), Self(Protocol::Icmp)),
    ];
}

impl Word for CheckKind {
    const NOUN: &str = "a kind of check";
    const ALL: &[(&str, Self)] = &[
        ("tcp", Self::Tcp),
        ("tls", Self::Tls),
        ("http", Self::Http),
        ("https", Self::Https),
        ("udp", Self::Udp),
        ("dns", Self::Dns),
        ("grpc", Self::Grpc),
        ("grpcs", Self::Grpcs),
        ("ping", Self::Ping),
        ("passive", Self::Passive),
        ("script", Self::Script),
    ];
}

impl Word for Initial {
    const NOUN: &str = "a state to begin with";
    const ALL: &[(&str, Self)] = &[("up", Self::Up), ("down", Self::Down)];
}

impl Word for Through {
    const NOUN: &str = "a way of probes";
    const ALL: &[(&str, Self)] = &[("direct", Self::Direct), ("service", Self::Service)];
}

impl Word for Method {
    const NOUN: &str = "a method of HTTP checks";
    const ALL: &[(&str, Self)] =
        &[("GET", Self::Get), ("HEAD", Self::Head), ("OPTIONS", Self::Options)];
}

impl Word for Question {
    const NOUN: &str = "a type of DNS questions";
    const ALL: &[(&str, Self)] = &[
        ("A", Self::A),
        ("AAAA", Self::Aaaa),
        ("NS", Self::Ns),
        ("SOA", Self::Soa),
        ("PTR", Self::Ptr),
        ("MX", Self::Mx),
        ("TXT", Self::Txt),
        ("SRV", Self::Srv),
    ];
}

impl Word for Mode {
    const NOUN: &str = "a forwarding mode";
    const ALL: &[(&str, Self)] = &{
        let mut all = [("", Self::Fnat); Self::OF_REALS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = (Self::OF_REALS[at].name(), Self::OF_REALS[at]);
            at += 1;
        }
        all
    };
}

impl Word for Scheduling {
    const NOUN: &str = "a scheduler";
    const ALL: &[(&str, Self)] = &{
        let mut all = [("", Self::Rr); Self::ALL.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = (Self::ALL[at].name(), Self::ALL[at]);
            at += 1;
        }
        all
    };
}

/// A setting whose words are the names that the spec gives its values.
macro_rules! named {
    ($kind:ty, $noun:literal, $($value:ident),+) => {
        impl Word for $kind {
            const NOUN: &str = $noun;
            const ALL: &[(&str, Self)] = &[$((Self::$value.name(), Self::$value)),+];
        }
    };
}
named!(HashKey, "something to hash", Client, ClientPort);
named!(Orphans, "a fate of sessions", Keep, Reset, Reschedule);
named!(AllDown, "a rule for when all are down", Drop, Keep, FailOpen);
named!(ClientAddress, "a way to tell the client's address", Hidden, Toa, ProxyV1, ProxyV2);
named!(Mapping, "a mapping", EndpointIndependent, PerSession);

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
word_of!(Idle, HugePages, LogFormat, LogLevel, CheckKind, Method);
