//! Steering rules as the daemon could have them.

use sluice_api::model::{HitsBy, PortRules, PortsRules, RuleBackend, SteeringRule};

/// One of a NIC's, with everything that there may be of it.
pub fn rules() -> PortsRules {
    let rule = SteeringRule {
        kind: "service".to_owned(),
        network: Some("blue".to_owned()),
        matches: "tcp to 198.51.100.200:80".to_owned(),
        protocol: "tcp".to_owned(),
        source: None,
        destination: Some("198.51.100.200:80".to_owned()),
        backend: RuleBackend::RteFlow,
        queues: vec![0, 1],
        hits: Some(u64::MAX),
        hits_by: Some(HitsBy::Rule),
        reason: None,
    };
    let port = PortRules {
        port: "front".to_owned(),
        driver: "net_ice".to_owned(),
        backend: RuleBackend::RteFlow,
        in_hardware: 1,
        no_room: 0,
        refused_full: 3,
        stuck: 0,
        rules: vec![rule],
    };
    PortsRules { ports: vec![port] }
}
