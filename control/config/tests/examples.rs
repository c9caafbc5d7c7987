//! Every example is right, and says nothing questionable that it does not mean.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sluice_config::Config;

#[test]
fn every_example_is_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut warned = BTreeMap::new();
    let mut loaded = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder of examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        match Config::load(&path) {
            Ok(found) => {
                let messages: Vec<_> = found.warnings.iter().map(|it| it.message.clone()).collect();
                if !messages.is_empty() {
                    warned.insert(name.clone(), messages);
                }
            }
            Err(refused) => panic!("{refused}"),
        }
        let text = fs::read_to_string(&path).expect("a readable file");
        let begins = "#:schema ../docs/sluice.schema.json\n# ";
        assert!(text.starts_with(begins), "{name} names the schema and says what it is for");
        loaded.push(name);
    }
    loaded.sort();
    let expected = [
        "af-packet-twin.toml",
        "client-address.toml",
        "cross-family.toml",
        "dns-one-packet.toml",
        "dr.toml",
        "health.toml",
        "ipip.toml",
        "ipv6.toml",
        "maglev.toml",
        "memif.toml",
        "nat.toml",
        "networks.toml",
        "one-arm.toml",
        "pci-two-workers.toml",
        "replay.toml",
        "snat.toml",
        "two-arm.toml",
        "udp-dns.toml",
    ];
    assert_eq!(loaded, expected);
    assert_eq!(warned, BTreeMap::new());
}
