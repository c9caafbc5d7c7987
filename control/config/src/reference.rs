//! The reference of the configuration file, made from the same descriptions that it is read by.

mod manual;

use std::fmt::{self, Write};

use crate::device::KINDS;
use crate::schema::keys::FILE;
use crate::schema::{Key, Kind, Section, Without};

pub use manual::manual;

const HEAD: &str = "\
# Configuration reference

<!-- Generated from control/config: change it there, then
     UPDATE_DOCS=1 cargo test -p sluice-config -->

`sluiced` and `sluice replay` read one file in [TOML](https://toml.io). `sluice config check FILE`
checks it without starting; a running director reads it again on SIGHUP or `sluice config reload`,
and keeps what it has when the file is wrong. `sluice config diff FILE` tells what a reload changes.
Ready-made files are in [`examples/`](../examples). With the first line
`#:schema PATH/TO/sluice.schema.json` editors that know TOML schemas complete keys
([`sluice.schema.json`](sluice.schema.json)). The API takes the same keys in JSON, see
[state.md](state.md).

A message about a wrong file names file, line, column and key, what was found and what would be
right, for all errors of the file at once. A key that is not in this reference is an error, not
ignored. Keys are counted from 0 in messages: `service[2].real[0].port` is the port of the first
real server of the third service.

Wherever an address or a prefix stands it may be IPv4 or IPv6. IPv6 addresses are written as in
RFC 5952, without brackets: `2001:db8::10`. Link-local ones (`fe80::/10`) are refused where they
would need to say on which link.
";

/// The whole reference in Markdown.
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for section in FILE.flatten().into_iter().filter(|section| !section.heading.is_empty()) {
        // Writing to a string does not fail.
        let _ = write_section(&mut text, section);
    }
    let _ = write_devices(&mut text);
    text
}

fn write_section(out: &mut String, section: &Section) -> fmt::Result {
    let more = if section.repeats() { " (any number)" } else { "" };
    writeln!(out, "\n## `{}`{more}\n\n{}\n", section.heading, section.about)?;
    writeln!(out, "| key | value | without it | example | meaning |")?;
    writeln!(out, "| --- | --- | --- | --- | --- |")?;
    for key in section.keys {
        let Key { name, kind, without, example, about } = key;
        let (kind, without) = (describe(kind), default(without));
        writeln!(out, "| `{name}` | {kind} | {without} | `{example}` | {about} |")?;
    }
    Ok(())
}

fn write_devices(out: &mut String) -> fmt::Result {
    writeln!(out, "\n## Devices\n\nThe `device` of a port is `KIND:WHAT`:\n")?;
    writeln!(out, "| kind | example | what it is |\n| --- | --- | --- |")?;
    for (kind, example, about) in KINDS {
        writeln!(out, "| `{kind}` | `{example}` | {about} |")?;
    }
    writeln!(
        out,
        "\nOptions are parted by commas, so that no name may hold one. An interface name has 1 to \
         15 characters. `af_packet`, `pci`, `memif` and `dpdk` may have a `twin`.\n\n\
         **Which of the two for a kernel interface.** `af_xdp` costs least for each packet: \
         requests, connections, datagrams. `af_packet` costs least for each byte of TCP: it takes \
         and gives super-frames, up to 64 KiB of a stream behind one header, as the kernel \
         itself does (GSO, GRO), and needs neither XDP in the driver nor offloads switched off \
         on virtual interfaces; any MTU goes. While such a port is open its interface joins \
         received segments (`ethtool -k`: generic-receive-offload). Super-frames that leave by \
         another device, or in a tunnel (`ipip`), are cut by the director, and so are those of \
         UDP on arrival. A super-frame that is too long for its way and may be cut gets smaller \
         segments. \
         Each queue of an `af_packet` port has 160 buffers of 64 KiB for them, 10 MB; when all \
         are in use (with many waiting for neighbours), what comes is cut at once. A super-frame's \
         segments are counted, not the frame. Both kinds may be mixed."
    )
}

fn describe(kind: &Kind) -> String {
    match kind {
        Kind::Word(words) => listed(&words()),
        Kind::Words(words) => format!("a list of some of {}", listed(&words())),
        Kind::Boolean => "`true`, `false`".to_owned(),
        other => other.expects(),
    }
}

fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

fn default(without: &Without) -> String {
    match without {
        Without::Required | Without::Awaited => "required".to_owned(),
        Without::Integer(value) => format!("`{value}`"),
        Without::Boolean(value) => format!("`{value}`"),
        Without::Text(value) => format!("`\"{value}\"`"),
        Without::Unset(what) => (*what).to_owned(),
    }
}
