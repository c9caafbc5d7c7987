//! `sluice ports --rules`.

use sluice_api::model::{PortRules, PortsRules, SteeringRule};

use super::figures::count;
use super::networks::network_of;
use super::table::{Align, Cell, Table};
use super::{NOTE, Shown};

/// What stands for nothing.
const NONE: &str = "-";

/// The rules of all ports, each with its place and, in software, the reason; then what a NIC's
/// table had no room for. Reasons are broken to fit `width` columns.
pub fn ports_rules(ports: &PortsRules, width: Option<usize>) -> Shown {
    let ports = &ports.ports;
    let any = ports.iter().any(|port| !port.rules.is_empty());
    if !any {
        let remark = "nothing is taken from any port: there are no services and no pools";
        return Shown { text: String::new(), remark: Some(remark.to_owned()) };
    }
    let mut text = table_of(ports).flowing(width);
    for port in ports {
        if let Some(full) = fullness(port) {
            text.push_str(&full);
        }
    }
    Shown::new(text)
}

fn table_of(ports: &[PortRules]) -> Table<8> {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("PORT", Left),
        ("KIND", Left),
        ("NETWORK", Left),
        ("MATCHES", Left),
        ("BACK-END", Left),
        ("QUEUE", Left),
        ("HITS", Right),
        ("WHY NOT IN HARDWARE", Left),
    ]);
    for port in ports {
        for rule in &port.rules {
            table.row(row(port, rule));
        }
    }
    let in_default = |rule: &SteeringRule| rule.network.is_none();
    let nothing = ports.iter().flat_map(|port| &port.rules).all(in_default);
    table.without("NETWORK", nothing)
}

fn row(port: &PortRules, rule: &SteeringRule) -> [Cell; 8] {
    let number = |number: Option<u64>| number.map_or_else(|| NONE.to_owned(), count);
    // A port with a NIC's table has it elsewhere: that is worth a look.
    let falls_back = port.backend != rule.backend;
    [
        port.port.as_str().into(),
        rule.kind.as_str().into(),
        network_of(&rule.network).into(),
        rule.matches.as_str().into(),
        Cell::from(rule.backend.name()).style_if(falls_back, NOTE),
        queues(&rule.queues).into(),
        number(rule.hits).into(),
        rule.reason.as_deref().unwrap_or(NONE).into(),
    ]
}

/// Queues with runs as ranges: `0-3,8`.
fn queues(queues: &[u16]) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for queue in queues {
        match runs.last_mut() {
            Some((_, last)) if u32::from(*queue) == u32::from(*last) + 1 => *last = *queue,
            _ => runs.push((*queue, *queue)),
        }
    }
    let run = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    if runs.is_empty() {
        NONE.to_owned()
    } else {
        runs.iter().map(run).collect::<Vec<_>>().join(",")
    }
}

/// What a NIC's table had no room for, or keeps.
fn fullness(port: &PortRules) -> Option<String> {
    let mut said = Vec::new();
    if port.refused_full > 0 {
        said.push(format!(
            "no room in the NIC for {} of {} rules; refused {} times",
            count(port.no_room),
            count(port.rules.len() as u64),
            count(port.refused_full)
        ));
    }
    if port.stuck > 0 {
        said.push(format!("the driver kept {} entries that were to go", count(port.stuck)));
    }
    (!said.is_empty()).then(|| format!("{}: {}\n", port.port, said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::model::{HitsBy, RuleBackend};

    fn rule(kind: &str, matches: &str, backend: RuleBackend) -> SteeringRule {
        SteeringRule {
            kind: kind.to_owned(),
            network: None,
            matches: matches.to_owned(),
            protocol: "tcp".to_owned(),
            source: None,
            destination: None,
            backend,
            queues: Vec::new(),
            hits: None,
            hits_by: None,
            reason: None,
        }
    }

    fn port(name: &str, backend: RuleBackend, rules: Vec<SteeringRule>) -> PortRules {
        PortRules {
            port: name.to_owned(),
            driver: "net_ice".to_owned(),
            backend,
            in_hardware: 0,
            no_room: 0,
            refused_full: 0,
            stuck: 0,
            rules,
        }
    }

    fn ports() -> PortsRules {
        use RuleBackend::{RteFlow, Software, Xdp};
        let made = SteeringRule {
            queues: vec![0, 1, 2, 3],
            hits: Some(12_345),
            hits_by: Some(HitsBy::Rule),
            ..rule("service", "tcp to 198.51.100.200:80", RteFlow)
        };
        let full = SteeringRule {
            hits: Some(7),
            hits_by: Some(HitsBy::Service),
            reason: Some("rte_flow_create: no room (handle)".to_owned()),
            ..rule("service", "tcp to 198.51.100.200:443", Software)
        };
        let nic = port("nic", RteFlow, vec![made, full]);
        let nic = PortRules { in_hardware: 1, no_room: 1, refused_full: 3, stuck: 1, ..nic };
        let taken = SteeringRule {
            hits: Some(9),
            hits_by: Some(HitsBy::Rule),
            ..rule("service", "tcp to 198.51.100.200:80", Xdp)
        };
        let local = rule("local", "udp to 192.0.2.10:1024-65535", Xdp);
        let idle = port("idle", Software, Vec::new());
        PortsRules { ports: vec![nic, port("front", Xdp, vec![taken, local]), idle] }
    }

    fn plain(ports: &PortsRules, width: Option<usize>) -> String {
        anstream::adapter::strip_str(&ports_rules(ports, width).text).to_string()
    }

    #[test]
    fn rules_of_ports() {
        insta::assert_snapshot!(plain(&ports(), None));
    }

    #[test]
    fn a_network_has_a_column_where_there_is_one() {
        let mut ports = ports();
        assert!(!plain(&ports, None).contains("NETWORK"));
        ports.ports[1].rules[0].network = Some("blue".to_owned());
        assert!(plain(&ports, None).contains("NETWORK") && plain(&ports, None).contains("blue"));
    }

    #[test]
    fn without_rules_there_is_a_remark() {
        let shown = ports_rules(&PortsRules::default(), None);
        assert!(shown.text.is_empty() && shown.remark.is_some());
    }

    #[test]
    fn queues_are_runs() {
        assert_eq!(queues(&[]), "-");
        assert_eq!(queues(&[3]), "3");
        assert_eq!(queues(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
