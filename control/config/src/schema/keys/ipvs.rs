//! `[ipvs]` and what is in it.

use super::*;
use crate::Scheduling;
use crate::words::{Family, Role};

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Ipvs,
    name: "ipvs",
    heading: "[ipvs]",
    about: "Settings of `ipvsadm` for the director as a whole (state.md). IPVS programs create and \
            change it; if the file has this section, the file owns it. What they make is in the \
            default network, and services of other networks are not shown to them.",
    keys: &[&TCP, &TCP_FIN, &UDP],
    sections: &[&MARK_SECTION, &DAEMON_SECTION],
};

const fn seconds(name: &'static str, about: &'static str) -> Key {
    let kind = Integer { min: 0, max: 86_400 };
    Key { name, kind, without: Without::Integer(0), example: "900", about }
}

pub(crate) static TCP: Key =
    seconds("tcp_s", "In place of `tcp_established_s` of `[timeouts]`; 0 for what that says.");
pub(crate) static TCP_FIN: Key =
    seconds("tcp_fin_s", "In place of `tcp_fin_wait_s`; 0 for what that says.");
pub(crate) static UDP: Key = seconds("udp_s", "In place of `udp_s`; 0 for what that says.");

/// A service by a firewall mark.
pub(crate) static MARK_SECTION: Section = Section {
    place: Place::Mark,
    name: "mark",
    heading: "[[ipvs.mark]]",
    about: "A service by firewall mark. It is stored and listed, and receives no packets: the \
            director sees them before netfilter could mark any.",
    keys: &[
        &MARK,
        &FAMILY,
        &SCHEDULER,
        &super::service::HASH,
        &super::service::ONE_PACKET,
        &super::service::PERSISTENCE_S,
        &super::service::PERSISTENCE_PREFIX,
        &DESTINATIONS,
        &super::service::LABELS,
    ],
    sections: &[],
};

pub(crate) static MARK: Key = Key {
    name: "mark",
    kind: Integer { min: 1, max: u32::MAX as i64 },
    without: Without::Required,
    example: "7",
    about: "The mark; unique with the family.",
};
pub(crate) static FAMILY: Key = Key {
    name: "family",
    kind: Word(words_of::<Family>),
    without: Without::Text("ipv4"),
    example: "\"ipv6\"",
    about: "The address family of the packets.",
};
pub(crate) static SCHEDULER: Key = Key {
    name: "scheduler",
    kind: Word(words_of::<Scheduling>),
    without: Without::Text("rr"),
    example: "\"wlc\"",
    about: "As of a `[[service]]`.",
};
pub(crate) static DESTINATIONS: Key = Key {
    name: "destinations",
    kind: Texts(A_DESTINATION),
    without: Without::Unset("none"),
    example: "[\"192.0.2.11:80 nat 1\"]",
    about: "Real servers: address and port (0 for that of the packet), mode, weight, and upper and \
            lower session thresholds if any.",
};

/// A daemon that synchronises sessions.
pub(crate) static DAEMON_SECTION: Section = Section {
    place: Place::Daemon,
    name: "daemon",
    heading: "[[ipvs.daemon]]",
    about: "A session synchronisation daemon as the kernel has it. It is stored and listed; the \
            director does not synchronise sessions yet.",
    keys: &[&ROLE, &INTERFACE, &SYNC_ID, &MAXIMUM_LENGTH, &GROUP, &DAEMON_PORT, &TTL],
    sections: &[],
};

pub(crate) static ROLE: Key = Key {
    name: "role",
    kind: Word(words_of::<Role>),
    without: Without::Required,
    example: "\"master\"",
    about: "Whether it would send or receive; each role at most once.",
};
pub(crate) static INTERFACE: Key = Key {
    name: "interface",
    kind: Text(AN_INTERFACE),
    without: Without::Required,
    example: "\"eth0\"",
    about: "The interface for its multicast.",
};
pub(crate) static SYNC_ID: Key = Key {
    name: "sync_id",
    kind: Integer { min: 0, max: 255 },
    without: Without::Integer(0),
    example: "5",
    about: "Only messages with the same ID would be received.",
};
pub(crate) static MAXIMUM_LENGTH: Key = Key {
    name: "maximum_length",
    kind: Integer { min: 0, max: 65_535 },
    without: Without::Integer(0),
    example: "1400",
    about: "The longest datagram's payload in bytes; 0 for what the MTU allows.",
};
pub(crate) static GROUP: Key = Key {
    name: "group",
    kind: Text(AN_ADDRESS),
    without: Without::Unset("224.0.0.81"),
    example: "\"224.0.0.81\"",
    about: "The multicast group.",
};
pub(crate) static DAEMON_PORT: Key = Key {
    name: "port",
    kind: Integer { min: 0, max: 65_535 },
    without: Without::Integer(0),
    example: "8848",
    about: "The UDP port; 0 for 8848.",
};
pub(crate) static TTL: Key = Key {
    name: "ttl",
    kind: Integer { min: 0, max: 255 },
    without: Without::Integer(0),
    example: "1",
    about: "The TTL; 0 for 1.",
};
