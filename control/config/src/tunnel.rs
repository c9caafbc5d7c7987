//! What services and real servers say about the headers of tunnels: keys, read and checked.

use sluice_director::spec::TunnelOptions;

use crate::Mode;
use crate::path::Path;
use crate::read::Table;
use crate::report::Report;
use crate::schema::Kind::{Boolean, Integer};
use crate::schema::{Key, Without};

pub(crate) static PORT: Key = Key {
    name: "tunnel_port",
    kind: Integer { min: 1, max: 65_535 },
    without: Without::Unset("the service's, or 6080"),
    example: "5555",
    about: "The UDP port that packets in `gue` tunnels are sent to.",
};
pub(crate) static CHECKSUM: Key = Key {
    name: "tunnel_checksum",
    kind: Boolean,
    without: Without::Unset("the service's, or none"),
    example: "true",
    about: "Whether the tunnel's own header has a checksum over the whole packet, of `gue` the UDP \
            header, of `gre` its own. It costs a look at each byte.",
};
pub(crate) static KEY: Key = Key {
    name: "tunnel_key",
    kind: Integer { min: 0, max: 0xffff_ffff },
    without: Without::Unset("the service's, or none"),
    example: "7",
    about: "The key in the header of `gre` tunnels (RFC 2890).",
};

/// The choices of one section.
pub(crate) fn read(table: Table<'_>, report: &mut Report) -> TunnelOptions {
    TunnelOptions {
        port: table.integer_if_given(&PORT, report),
        checksum: table.boolean_if_given(&CHECKSUM, report),
        key: table.integer_if_given(&KEY, report),
    }
}

/// Reports choices that tunnels of none of these modes have, the first of which is the section's.
pub(crate) fn check(modes: &[Mode], given: TunnelOptions, path: Path, report: &mut Report) {
    let choices: &[(_, _, &[Mode])] = &[
        (&PORT, given.port.is_some(), &[Mode::Gue]),
        (&CHECKSUM, given.checksum.is_some(), &[Mode::Gue, Mode::Gre]),
        (&KEY, given.key.is_some(), &[Mode::Gre]),
    ];
    for (key, is_given, of) in choices {
        if *is_given && !modes.iter().any(|mode| of.contains(mode)) {
            let names: Vec<_> = of.iter().map(|mode| mode.name()).collect();
            let (names, mode) = (names.join(" and "), modes.first().map_or("", |mode| mode.name()));
            let found = format!("it is for {names}, and the mode is {mode}");
            report.error(path.key(key.name), found, "leave it out");
        }
    }
}
