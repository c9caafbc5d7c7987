//! `[sync]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Sync,
    name: "sync",
    heading: "[sync]",
    about: "Session synchronisation with other directors, so that connections go on when another \
            takes over. Takes effect at a start only. See docs/high-availability.md.",
    keys: &[&LISTEN, &PEERS, &GROUP, &KEY_FILES, &DATAGRAM],
    sections: &[],
};

pub(crate) static LISTEN: Key = Key {
    name: "listen",
    kind: Text("an address and a port such as \"192.0.2.1:8848\" or \"[2001:db8::1]:8848\""),
    without: Without::Unset("sessions are not synchronised"),
    example: "\"192.0.2.1:8848\"",
    about: "Address of this director and UDP port for session synchronisation. It is an address \
            that stays with the machine, best on an interface of its own.",
};
pub(crate) static PEERS: Key = Key {
    name: "peers",
    kind: Texts("an address and a port such as \"192.0.2.2:8848\""),
    without: Without::Unset("none; needed with `listen`"),
    example: "[\"192.0.2.2:8848\"]",
    about: "What the other directors have as `listen`: one to seven. Datagrams from elsewhere are \
            ignored.",
};
pub(crate) static GROUP: Key = Key {
    name: "group",
    kind: Text(
        "a multicast address and a port such as \"239.192.88.48:8848\" or \"[ff15::8848]:8848\"",
    ),
    without: Without::Unset("each peer gets a copy of its own"),
    example: "\"239.192.88.48:8848\"",
    about: "Multicast group that all directors have here, for two peers or more on one link: what \
            is for several of them is sent once. It is joined on the interface that has the \
            address of `listen`. A peer that receives nothing by it gets copies of its own; \
            repairs always are.",
};
pub(crate) static KEY_FILES: Key = Key {
    name: "key_files",
    kind: Texts("the absolute path of a file"),
    without: Without::Unset("none; needed with `listen`"),
    example: "[\"/etc/sluice/sync.key\"]",
    about: "Files with the shared secret: 64 hexadecimal digits, as `openssl rand -hex 32` prints \
            them, readable by their owner and group only. All datagrams are encrypted and \
            authenticated by it. The first of up to four is used to send as soon as every peer \
            has it; all are accepted.",
};
pub(crate) static DATAGRAM: Key = Key {
    name: "datagram",
    kind: Integer { min: 512, max: 8900 },
    without: Without::Integer(1400),
    example: "8900",
    about: "Most bytes of UDP payload in a datagram. At most the MTU of the way to the peers less \
            28 (IPv4) or 48 (IPv6).",
};
