//! `sluice networks`, and the column that says which network something is in.

use sluice_api::model::{Network, Networks};

use super::figures::count;
use super::table::{Align, Cell, Table};
use super::{NOTE, Shown};

/// What stands for nothing.
const NONE: &str = "-";

/// All networks.
pub fn networks(networks: &Networks) -> Shown {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("NETWORK", Left),
        ("ROUTES", Left),
        ("PORTS", Left),
        ("SERVICES", Right),
        ("SESSIONS", Right),
        ("LIMIT", Right),
        ("HALF-OPEN", Right),
        ("DROPPED", Right),
        ("ADDRESSES", Left),
    ]);
    for network in &networks.networks {
        let half_open = match network.pressed {
            true => Cell::from(format!("{} (pressed)", count(network.half_open))).style(NOTE),
            false => count(network.half_open).into(),
        };
        table.row([
            network.name.as_str().into(),
            routes(network).into(),
            listed(&network.ports, NONE).into(),
            count(network.services).into(),
            count(network.sessions).into(),
            count(network.session_capacity).into(),
            half_open,
            count(network.dropped).into(),
            listed(&network.cidr, "any").into(),
        ]);
    }
    Shown::new(table.text())
}

/// Whose routes it goes by.
fn routes(network: &Network) -> String {
    match (network.table, &network.vrf) {
        (Some(table), _) => format!("table {table}"),
        (None, Some(vrf)) => format!("VRF {vrf}"),
        (None, None) => "main".to_owned(),
    }
}

fn listed(words: &[String], none: &str) -> String {
    if words.is_empty() { none.to_owned() } else { words.join(", ") }
}

/// The network that something is in, which tells none where it is in the default one.
pub(super) fn network_of(network: &Option<String>) -> &str {
    network.as_deref().unwrap_or(Network::DEFAULT)
}
