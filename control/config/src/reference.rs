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

`sluiced` and `sluice replay` read one configuration file in [TOML](https://toml.io).

```
sluice config check FILE     # checks it, without a director
sluice config diff FILE      # prints what a reload would change
sluice config reload         # rereads it, as SIGHUP does; an invalid file changes nothing
```

- Example files are in [`examples/`](../examples).
- With the first line `#:schema PATH/TO/sluice.schema.json`, editors that support TOML schemas
  complete keys ([`sluice.schema.json`](sluice.schema.json)).
- The API takes the same keys in JSON ([state.md](state.md)).

An error message names file, line, column and key, what was found and what would be valid, for all
errors of the file at once. A key that is not in this reference is an error. Messages count entries
from 0: `service[2].real[0].port` is the port of the first real server of the third service.

Addresses and prefixes may be IPv4 or IPv6. IPv6 addresses are written as in RFC 5952, without
brackets: `2001:db8::10`. Link-local addresses (`fe80::/10`) are refused where they would need a
link.
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
    writeln!(out, "| key | value | default | example | meaning |")?;
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
        "\nCommas separate options, so that no name may contain one. An interface name has 1 to 15 \
         characters. `af_packet`, `pci`, `memif` and `dpdk` may have a `twin`.\n\n\
         ### VXLAN\n\n\
         A `vxlan` port is a `[[network]]`'s; its own packets (the underlay) travel by the \
         ports of the default network, by that network's routes. Make the kernel's device first \
         (`ip link add vxlan100 type vxlan id 100 local 192.0.2.1 dstport 4789`), and tell it the \
         other ends (`bridge fdb append`). It has no `queues`, `twin`, `mac` or `mtu`.\n\n\
         ### AF_XDP or AF_PACKET\n\n\
         A kernel interface can be driven in two ways, also mixed within one director. `af_xdp` \
         has the lowest cost per packet: use it for requests, connections and datagrams. \
         `af_packet` has the lowest cost per byte of TCP: use it for bulk transfers. It needs \
         neither XDP in the driver nor offloads disabled on virtual interfaces.\n\n\
         An `af_packet` port receives and sends super-packets: up to 64 KiB of a stream behind one \
         header, as the kernel itself does (GSO, GRO). While the port is open its interface merges \
         received segments (`ethtool -k`: generic-receive-offload).\n\n\
         The director segments a super-packet that leaves by another kind of device or in a \
         tunnel, and one of UDP on arrival. If it exceeds the path MTU and may be \
         segmented, it gets smaller segments. Counters count the segments.\n\n\
         Each queue of an `af_packet` port has 160 buffers of 64 KiB for super-packets, 10 MB in \
         total. If all are in use, for instance by packets that wait for neighbours, arriving \
         super-packets are segmented at once."
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
