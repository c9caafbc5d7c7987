//! The recorded limits as a table, and what a rule becomes: ports and addresses under masks.

use super::*;
use crate::limits::{Capability, FieldSets};
use crate::matches::{EndpointMatch, LocalMatch, Matches, SnatMatch, VxlanMatch};
use crate::rule::rules_of;

mod recorded;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A service of IPv4, one of IPv6, one with a range, a pool of two workers, source NAT of both
/// families, and a VXLAN.
fn rules() -> Vec<(&'static str, Rule)> {
    let net = |text, prefix| Network { address: ip(text), prefix };
    let one = |source| SnatMatch { sources: vec![source], tcp: true, ..SnatMatch::default() };
    let matches = Matches {
        services: vec![
            EndpointMatch::port(6, ip("198.51.100.200"), 80),
            EndpointMatch::port(6, ip("2001:db8::200"), 80),
            EndpointMatch { protocol: 6, address: ip("198.51.100.201"), ports: 8000..=8099 },
            EndpointMatch { protocol: 0, address: ip("198.51.100.202"), ports: 0..=0 },
        ],
        locals: vec![LocalMatch { address: ip("192.0.2.10"), ports: 1024..=3071, echo: false }],
        snat: vec![one(net("192.0.2.0", 24)), one(net("2001:db8:1::", 48))],
        vxlan: vec![VxlanMatch { local: ip("192.0.2.1"), port: 4789, vni: 42, network: 1 }],
        ..Matches::default()
    };
    let owned = |first, last, worker| Owned { ports: Ports { first, last }, worker };
    let owners = |_| vec![owned(1024, 2047, 0), owned(2048, 3071, 1)];
    let names = |rule: &Rule| match (rule.kind, rule.to_string()) {
        (Kind::Service, text) if text.starts_with("any") => Some("every"),
        (Kind::Service, text) if text.contains("8000") => Some("range"),
        (Kind::Service, text) if text.contains("2001") => Some("v6"),
        (Kind::Service, _) => Some("v4"),
        (Kind::Local, text) if text.starts_with("tcp") => Some("local"),
        (Kind::Snat, text) if text.contains("2001") => Some("net6"),
        (Kind::Snat, _) => Some("net4"),
        (Kind::Vxlan, _) => Some("vxlan"),
        _ => None,
    };
    let rules = rules_of(&matches, 0, owners).into_iter();
    rules.filter_map(|rule| Some((names(&rule)?, rule))).collect()
}

/// A column of the table: how many entries, or a word of the reason.
fn placed(driver: &str, name: &str, queues: u16) -> String {
    let (_, rule) = rules().into_iter().find(|(it, _)| *it == name).unwrap();
    match compile(&rule, &Limits::of(driver), queues) {
        Ok(flows) => flows.len().to_string(),
        Err(reason) => {
            let words = [
                "not needed",
                "whole addresses",
                "single ports",
                "one queue",
                "ports of IPv6",
                "VXLAN",
                "except",
            ];
            let word = words.iter().find(|word| reason.contains(*word));
            word.unwrap_or_else(|| panic!("{driver}, {name}: {reason}")).to_string()
        }
    }
}

/// Which rule goes where, by the limits that are recorded.
#[test]
fn recorded_limits_decide() {
    let names = ["v4", "v6", "range", "local", "net4", "net6", "vxlan", "every"];
    let (single, whole, idle) = ("single ports", "whole addresses", "not needed");
    let exact = ["1", "1", single, single, whole, whole, "VXLAN", "except"];
    let table = [
        ("net_ice", exact),
        ("net_iavf", exact),
        ("net_i40e", [idle, idle, single, single, whole, whole, "VXLAN", "except"]),
        (
            "net_ixgbe",
            ["one queue", "one queue", "one queue", single, whole, whole, "VXLAN", "except"],
        ),
        ("mlx5_pci", ["1", "1", "3", "2", "1", "1", "1", "except"]),
        ("mlx5_auxiliary", ["1", "1", "3", "2", "1", "1", "1", "except"]),
        ("net_tap", [idle, idle, single, single, idle, idle, "VXLAN", "except"]),
        ("net_none", exact),
    ];
    for (driver, wanted) in table {
        let found = names.map(|name| placed(driver, name, 2));
        assert_eq!(found, wanted.map(str::to_owned), "{driver}: {names:?}");
    }
}

/// A rule that only would end vector reception, or cost otherwise, is not made: with one queue
/// there is none to choose, and with several a service's packets come to all.
#[test]
fn a_rule_that_changes_nothing_is_not_needed() {
    let (_, rule) = rules().into_iter().find(|(name, _)| *name == "v4").unwrap();
    let reason = |driver: &str, queues| {
        compile(&rule, &Limits::of(driver), queues).expect_err("nothing to be done")
    };
    for driver in ["net_ixgbe", "net_i40e", "net_i40e_vf", "net_tap"] {
        let wanted = format!("not needed: one queue, and {driver} does not count");
        assert_eq!(reason(driver, 1), wanted);
    }
    assert!(reason("net_i40e", 2).starts_with("not needed: all queues receive"));
    // Elsewhere a rule counts, at least.
    for driver in ["net_ice", "net_iavf", "mlx5_pci", "net_failsafe", "net_none"] {
        let flows = compile(&rule, &Limits::of(driver), 1).expect("a rule that counts");
        assert_eq!((flows[0].target, flows[0].count), (Target::Queue(0), true), "{driver}");
    }
    // A worker's local ports choose a queue.
    let pool = LocalMatch { address: ip("192.0.2.10"), ports: 7..=8, echo: false };
    let matches = Matches { locals: vec![pool], ..Matches::default() };
    let owned = |port, worker| Owned { ports: Ports { first: port, last: port }, worker };
    let rules = rules_of(&matches, 0, |_| vec![owned(7, 0), owned(8, 1)]);
    assert_eq!(compile(&rules[0], &Limits::of("net_i40e"), 2).map(|flows| flows.len()), Ok(2));
    assert!(compile(&rules[0], &Limits::of("net_i40e"), 1).is_err());
}

/// A single flow comes to its owner's queue, where that is worth the rule.
#[test]
fn a_flow_comes_to_its_owners_queue() {
    let of = |driver: &str, queues, v6| {
        let (from, to) =
            if v6 { ("2001:db8::9", "2001:db8::1") } else { ("203.0.113.9", "192.0.2.1") };
        let rule = Rule::of_flow(0, 17, (ip(from), 4000), (ip(to), 53), 1);
        compile(&rule, &Limits::of(driver), queues)
    };
    for (driver, v6) in [("net_ice", false), ("net_i40e", true), ("mlx5_pci", true), ("", false)] {
        let flows = of(driver, 2, v6).expect("an entry");
        let [flow] = flows[..] else { panic!("{flows:?}") };
        assert_eq!((flow.target, flow.priority), (Target::Queue(1), 0), "{driver}");
        assert_eq!(flow.fields(), [true; 4], "{driver}");
        assert_eq!((flow.source.port, flow.destination.port), (4000, 53));
        assert_eq!(of(driver, 1, v6), Err("not needed: one queue".to_owned()));
    }
    let reason = |driver, queues| of(driver, queues, false).expect_err("no entry");
    assert!(reason("net_ixgbe", 2).contains("end vector reception"));
    let rule = Rule::of_flow(0, 6, (ip("192.0.2.1"), 1), (ip("192.0.2.2"), 2), 2);
    let reason = compile(&rule, &Limits::of("net_ice"), 2).expect_err("a third worker");
    assert!(reason.contains("no queue of its own"), "{reason}");
    // Others are behind it where there is an order, and where not all are alike.
    let (_, service) = rules().into_iter().find(|(name, _)| *name == "v4").unwrap();
    let priority = |driver| compile(&service, &Limits::of(driver), 2).map(|it| it[0].priority);
    assert_eq!((priority("mlx5_pci"), priority("net_ice")), (Ok(1), Ok(0)));
}

/// What the table of limits says besides masks.
#[test]
fn recorded_actions() {
    let of = |driver: &str| {
        let limits = Limits::of(driver);
        let is_there = [limits.count, limits.priorities, limits.vectors].map(Capability::is_there);
        (is_there, limits.field_sets)
    };
    assert_eq!(of("net_ice"), ([true, false, true], FieldSets::Free));
    assert_eq!(of("net_iavf"), ([true, false, true], FieldSets::Free));
    assert_eq!(of("net_i40e"), ([false, false, true], FieldSets::OnePerType));
    assert_eq!(of("net_ixgbe"), ([false, false, false], FieldSets::One));
    assert_eq!(of("mlx5_pci"), ([true, true, true], FieldSets::Free));
    assert_eq!(of("net_tap"), ([false, true, true], FieldSets::Free));
}

/// Each driver leaves packets of any queue to the hash in its own way.
#[test]
fn packets_are_left_to_the_hash() {
    let (_, rule) = rules().into_iter().find(|(name, _)| *name == "v4").unwrap();
    // As if all counted, or some had none of these rules.
    let target = |driver: &str, queues| {
        let limits = Limits { count: Capability::Yes, ..Limits::of(driver) };
        compile(&rule, &limits, queues).map(|flows| flows[0].target)
    };
    for driver in ["net_ice", "net_iavf", "net_i40e"] {
        assert_eq!(target(driver, 3), Ok(Target::Unchanged(3)));
    }
    assert_eq!(target("mlx5_pci", 3), Ok(Target::Spread(3)));
    assert_eq!(target("net_ixgbe", 1), Ok(Target::Queue(0)));
    assert!(target("net_ixgbe", 2).unwrap_err().contains("names one queue"));
}

/// A worker's ports come to its queue, where it has one of its own.
#[test]
fn local_ports_come_to_their_owners() {
    let (_, rule) = rules().into_iter().find(|(name, _)| *name == "local").unwrap();
    let of = |queues| -> Vec<(u16, u16, Target)> {
        let flows = compile(&rule, &Limits::of("mlx5_pci"), queues).unwrap();
        flows.iter().map(|it| (it.destination.port, it.destination.port_mask, it.target)).collect()
    };
    let (first, second) = (Target::Queue(0), Target::Queue(1));
    assert_eq!(of(2), [(1024, 0xfc00, first), (2048, 0xfc00, second)]);
    let both = Target::Queue(0);
    assert_eq!(of(1), [(1024, 0xfc00, both), (2048, 0xfc00, both)], "one queue has all");
}

/// Masks match the range's ports and no other.
#[test]
fn masks_are_the_range() {
    let any = Limits::of("mlx5_pci");
    for range in [80..=80, 8000..=8099, 1..=65535, 1024..=65534, 0..=65535] {
        let blocks = port_blocks(Ports::from(&range), &any).unwrap();
        for port in 0..=u16::MAX {
            let hits = blocks.iter().filter(|(value, mask)| port & mask == *value).count();
            assert_eq!(hits, usize::from(range.contains(&port)), "{range:?}, {port}");
        }
    }
}

#[test]
fn addresses_are_masked_by_their_prefix() {
    let any = Limits::of("mlx5_pci");
    let of = |text, prefix| masked(Some(Network { address: ip(text), prefix }), &any).unwrap();
    let v4 = of("192.0.2.0", 23);
    assert_eq!(v4.address_mask[..5], [255, 255, 254, 0, 0]);
    assert_eq!(v4.address[..4], [192, 0, 2, 0]);
    assert_eq!(of("2001:db8::1", 128).address_mask, [255; 16]);
    assert_eq!(of("::", 0), Endpoint::default());
    assert_eq!(of("0.0.0.0", 0).address_mask, [0; 16]);
}
