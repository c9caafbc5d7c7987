//! What a director's file has before what was imported.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_import::Imported;

/// Outer addresses of tunnels, and ports: one, and those that rules of source NAT name.
pub fn base(imported: &Imported) -> String {
    let rules = imported.document().get("snat").and_then(Value::as_array).into_iter().flatten();
    let named = rules.filter_map(|rule| rule.get("egress")?.as_str());
    let ports: BTreeSet<&str> = named.chain(["one"]).collect();
    let mut text =
        "[ipip]\nsource_v4 = \"203.0.113.250\"\nsource_v6 = \"2001:db8:ffff::1\"\n\n".to_owned();
    for (at, name) in ports.into_iter().enumerate() {
        text += &format!("[[port]]\nname = \"{name}\"\ndevice = \"af_packet:one{at}\"\n\n");
    }
    text
}
