//! `[announce]`

use super::*;

/// The section.
pub(crate) static SECTION: Section = Section {
    place: Place::Announce,
    name: "announce",
    heading: "[announce]",
    about: "Interfaces that hold the addresses which a routing daemon (BIRD, FRR) is to announce \
            as connected routes. The director makes them, adds and removes addresses, and they \
            vanish with it however it ends. Takes effect at a start only. See \
            docs/high-availability.md.",
    keys: &[&INTERFACE, &PEER_INTERFACE],
    sections: &[],
};

pub(crate) static INTERFACE: Key = Key {
    name: "interface",
    kind: Text(AN_INTERFACE),
    without: Without::Unset("nothing is announced"),
    example: "\"sluice\"",
    about: "Name of the interface for VIPs and pool addresses. A VIP is there while the director \
            may take over (`sluice ha check`) and one of its services has a real server that gets \
            new sessions; a pool address from when the director first may.",
};
pub(crate) static PEER_INTERFACE: Key = Key {
    name: "peer_interface",
    kind: Text(AN_INTERFACE),
    without: Without::Unset("they are not announced"),
    example: "\"sluice-peers\"",
    about: "Name of the interface for `peer_addresses` of pools, which are there as pool addresses \
            are. Announce it with a lower preference: it is for when the director is gone whose \
            addresses they are.",
};
