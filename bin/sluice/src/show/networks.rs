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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let main = Network {
            name: Network::DEFAULT.to_owned(),
            ports: vec!["front".to_owned(), "back".to_owned()],
            sessions: 12_345,
            session_capacity: 1_000_000,
            services: 2,
            dropped: 17,
            ..Network::default()
        };
        let blue = Network {
            name: "blue".to_owned(),
            table: Some(1001),
            cidr: vec!["192.0.2.0/24".to_owned(), "2001:db8::/64".to_owned()],
            ports: vec!["blue".to_owned()],
            half_open: 4_711,
            pressed: true,
            ..main.clone()
        };
        let red = Network {
            name: "red".to_owned(),
            vrf: Some("vrf-red".to_owned()),
            session_capacity: 4096,
            ..Network::default()
        };
        let all = Networks { networks: vec![main, blue, red] };
        insta::assert_snapshot!(
            anstream::adapter::strip_str(&super::networks(&all).text).to_string()
        );
    }
}
