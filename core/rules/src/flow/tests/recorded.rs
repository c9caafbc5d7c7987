//! What each driver is asked for, recorded under `recorded/` in the words of dpdk-testpmd, so that
//! it can be tried on a card. `UPDATE_RECORDED=1` writes it anew.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::*;

const DRIVERS: [&str; 6] = ["net_ice", "net_iavf", "net_i40e", "net_ixgbe", "mlx5_pci", "net_tap"];
const QUEUES: u16 = 2;

fn address(addresses: Addresses, bytes: &[u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = *bytes;
    match addresses {
        Addresses::V4 => Ipv4Addr::new(a, b, c, d).into(),
        Addresses::V6 => Ipv6Addr::from(*bytes).into(),
    }
}

/// The items as the shim makes them (host/dpdk-sys/src/flow.c).
fn pattern(flow: &Flow) -> String {
    let ends = [("src", &flow.source), ("dst", &flow.destination)];
    let mut network = match flow.addresses {
        Addresses::V4 => "ipv4".to_owned(),
        Addresses::V6 => "ipv6".to_owned(),
    };
    let mut transport = match flow.protocol {
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        other => panic!("no rule has protocol {other}"),
    };
    for (name, end) in ends {
        let [value, mask] = [end.address, end.address_mask].map(|it| address(flow.addresses, &it));
        if !mask.is_unspecified() {
            write!(network, " {name} spec {value} {name} mask {mask}").unwrap();
        }
        if end.port_mask != 0 {
            let (value, mask) = (end.port, end.port_mask);
            write!(transport, " {name} spec {value} {name} mask {mask}").unwrap();
        }
    }
    let vxlan = flow.vni.map(|vni| format!("vxlan vni spec {vni} vni mask 16777215 / "));
    format!("eth / {network} / {transport} / {}end", vxlan.unwrap_or_default())
}

fn actions(flow: &Flow) -> String {
    let target = match flow.target {
        Target::Queue(queue) => format!("queue index {queue}"),
        Target::Spread(queues) => {
            let queues: Vec<String> = (0..queues).map(|queue| queue.to_string()).collect();
            format!("rss queues {} end", queues.join(" "))
        }
        Target::Unchanged(_) => "mark id 1".to_owned(),
    };
    format!("{target} / {}end", if flow.count { "count / " } else { "" })
}

/// All rules of the table's port, and one of a single flow.
fn dump(driver: &str) -> String {
    let mut text = format!("# What {driver} is asked for on a port with {QUEUES} queues.\n");
    let flow = Rule::of_flow(0, 17, (ip("203.0.113.9"), 4000), (ip("198.51.100.203"), 53), 1);
    for rule in rules().into_iter().map(|(_, rule)| rule).chain([flow]) {
        writeln!(text, "# {} {rule}", rule.kind.name()).unwrap();
        match compile(&rule, &Limits::of(driver), QUEUES) {
            Err(reason) => writeln!(text, "#   {reason}").unwrap(),
            Ok(flows) => flows.iter().for_each(|flow| {
                let (priority, pattern, actions) = (flow.priority, pattern(flow), actions(flow));
                let about = format!("ingress priority {priority} pattern {pattern}");
                writeln!(text, "flow validate 0 {about} actions {actions}").unwrap();
            }),
        }
    }
    text
}

#[test]
fn each_driver_is_asked_for_what_is_recorded() {
    for driver in DRIVERS {
        let name = format!("{driver}.txt");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded").join(name);
        let now = dump(driver);
        if std::env::var_os("UPDATE_RECORDED").is_some() {
            std::fs::write(&path, &now).unwrap();
        }
        let recorded = std::fs::read_to_string(&path).unwrap();
        assert_eq!(recorded, now, "{driver}: UPDATE_RECORDED=1 writes {}", path.display());
    }
}
