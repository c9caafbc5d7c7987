//! `[director]`

use super::*;
use crate::{HugePages, Idle, LogFormat, LogLevel};

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Director,
    name: "director",
    heading: "[director]",
    about: "The process as a whole. May be left out.",
    keys: &[
        &CORES,
        &IDLE,
        &HUGE_PAGES,
        &LOG_LEVEL,
        &LOG_FORMAT,
        &CONTROL_SOCKET,
        &CONTROL_GROUP,
        &STATE_DIR,
        &KEEP_SESSIONS,
        &HOLD_S,
        &HASH_SEED,
        &PROBE_ADDRESSES,
    ],
    sections: &[],
};

pub(crate) static CORES: Key = Key {
    name: "cores",
    kind: Integers { min: 0, max: 1023 },
    without: Without::Unset("one worker, on the last core that the process may use"),
    example: "[1, 2]",
    about: "One worker runs on each of these cores, by the kernel's CPU numbers (`lscpu -e`). \
            At most 64, each once. Leave at least one core to everything else.",
};
pub(crate) static IDLE: Key = Key {
    name: "idle",
    kind: Word(words_of::<Idle>),
    without: Without::Text("adaptive"),
    example: "\"busy\"",
    about: "What an idle worker does. `adaptive`: it sleeps and wakes on traffic. `busy`: it \
            continues to poll, which uses a whole core and gives the lowest latency.",
};
pub(crate) static HUGE_PAGES: Key = Key {
    name: "huge_pages",
    kind: Word(words_of::<HugePages>),
    without: Without::Text("auto"),
    example: "\"required\"",
    about: "`auto`: memory comes from huge pages if enough are free and the kernel gives them, \
            otherwise from ordinary pages, which are slower. \
            `required`: the director does not start without huge pages. \
            `off`: ordinary pages.",
};
pub(crate) static LOG_LEVEL: Key = Key {
    name: "log_level",
    kind: Word(words_of::<LogLevel>),
    without: Without::Text("info"),
    example: "\"debug\"",
    about: "The lowest level of messages that are logged.",
};
pub(crate) static LOG_FORMAT: Key = Key {
    name: "log_format",
    kind: Word(words_of::<LogFormat>),
    without: Without::Text("text"),
    example: "\"json\"",
    about: "The format of log messages. `text`: one line for people. `json`: one object per line, \
            with OpenTelemetry's names (docs/metrics.md). `--log-format` on the command line \
            overrides it.",
};
pub(crate) static CONTROL_SOCKET: Key = Key {
    name: "control_socket",
    kind: Text("an absolute path of at most 107 bytes"),
    without: Without::Text("/run/sluice/sluice.sock"),
    example: "\"/run/sluice/blue.sock\"",
    about: "The Unix socket on which the `sluice` command reaches the director. Two directors on \
            one machine need two.",
};
pub(crate) static CONTROL_GROUP: Key = Key {
    name: "control_group",
    kind: Text("the name of a group of `/etc/group`, or its number"),
    without: Without::Text("sluice"),
    example: "\"netops\"",
    about: "The group whose members may use `control_socket` for everything (role `admin`) without \
            being root, including capturing packets. If the machine does not have the group, only \
            root may.",
};
pub(crate) static STATE_DIR: Key = Key {
    name: "state_dir",
    kind: Text("an absolute path"),
    without: Without::Text("/var/lib/sluice"),
    example: "\"/var/lib/sluice/blue\"",
    about: "The directory in which the director keeps changes made at run time and the history of \
            all changes; created if it is missing. Two directors on one machine need two. If it \
            cannot be written, the director runs, reports this, and forgets such changes when it \
            ends.",
};
pub(crate) static KEEP_SESSIONS: Key = Key {
    name: "keep_sessions",
    kind: Boolean,
    without: Without::Boolean(true),
    example: "false",
    about: "Whether sessions outlive the process, so that connections go on after a restart or a \
            crash. Session tables then lie in files: on a hugetlbfs that is mounted, if \
            `huge_pages` allows it and there is room, otherwise in `/dev/shm`. All of their memory \
            is taken at the start. Without room there, the director runs and reports this.",
};
pub(crate) static HOLD_S: Key = Key {
    name: "hold_s",
    kind: Integer { min: 0, max: 3600 },
    without: Without::Integer(60),
    example: "10",
    about: "Seconds after the end of the director during which the kernel drops packets that are \
            the director's, by a table of nftables, so that it resets no connection that goes on \
            after a restart. 0: the kernel gets them at once.",
};
pub(crate) static HASH_SEED: Key = Key {
    name: "hash_seed",
    // Numbers up to here survive every program that holds numbers as floating point.
    kind: Integer { min: 0, max: (1 << 53) - 1 },
    without: Without::Integer(0),
    example: "20260101",
    about: "Seed of the schedulers `sh` and `mh`: directors with the same configuration and seed \
            choose the same real server for a client.",
};
pub(crate) static PROBE_ADDRESSES: Key = Key {
    name: "probe_addresses",
    kind: Texts("an IPv4 or IPv6 address"),
    without: Without::Unset("no check goes through the data path"),
    example: "[\"192.0.2.9\", \"2001:db8:2::9\"]",
    about: "Source addresses of checks with `through = \"service\"`, at most one of each family. \
            They are addresses of the director's interfaces, as those of a pool, that nothing else \
            uses. Real servers answer them as they answer clients. The director then has an \
            additional port `probe`, a veth pair into its own network namespace.",
};
