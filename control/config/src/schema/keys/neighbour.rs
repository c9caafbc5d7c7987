//! `[[neighbour]]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Neighbour,
    name: "neighbour",
    heading: "[[neighbour]]",
    about: "A static neighbour, for `sluice replay` only: a running director follows the kernel's \
            neighbours and ignores these.",
    keys: &[&ADDRESS, &MAC, &PORT, &VLAN],
    sections: &[],
};

pub(crate) static ADDRESS: Key = Key {
    name: "address",
    kind: Text(AN_ADDRESS),
    without: Without::Required,
    example: "\"192.0.2.11\"",
    about: "Its address; unique for each port.",
};
pub(crate) static MAC: Key = Key {
    name: "mac",
    kind: Text(A_MAC),
    without: Without::Required,
    example: "\"02:00:00:00:01:11\"",
    about: "Its MAC address.",
};
pub(crate) static PORT: Key = Key {
    name: "port",
    kind: Text(A_PORT),
    without: Without::Required,
    example: "\"back\"",
    about: "The port that leads to it.",
};
pub(crate) static VLAN: Key = Key {
    name: "vlan",
    kind: Integer { min: 1, max: 4094 },
    without: Without::Unset("untagged"),
    example: "10",
    about: "Its 802.1Q VLAN.",
};
