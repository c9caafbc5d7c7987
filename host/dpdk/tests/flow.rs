//! Flow rules by drivers that need no NIC. `net_failsafe` without a device below copies rules,
//! keeps them for the device to come and gives them up again; `net_tap` accepts them and makes them
//! if the kernel has `cls_flower`; `net_null` has none. What a NIC's table does is not shown.

mod bed;

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_dpdk::{Device, Eal, EalConfig, FlowId, HugePages, Port, PortConfig};
use sluice_rules::{
    EndpointMatch, FlowPort, Limits, LocalMatch, Matches, Network, Owned, Placed, Ports, Rule,
    RuleTable, SnatMatch, VxlanMatch, rules_of,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn rules(services: &[(&str, u16)]) -> Vec<Rule> {
    let web = |(vip, port): &(&str, u16)| EndpointMatch::port(6, ip(vip), *port);
    let matches = Matches {
        services: services.iter().map(web).collect(),
        locals: vec![LocalMatch { address: ip("192.0.2.10"), ports: 1024..=2047, echo: false }],
        snat: vec![SnatMatch {
            sources: vec![Network { address: ip("192.0.2.0"), prefix: 24 }],
            udp: true,
            ..SnatMatch::default()
        }],
        ..Matches::default()
    };
    rules_of(&matches, 0, |_| Vec::new())
}

/// What has become of each rule: its number in the NIC, or the reason.
fn placed(table: &RuleTable<FlowId>) -> BTreeMap<String, Result<Vec<FlowId>, String>> {
    let of = |(rule, row): (&Rule, Option<&sluice_rules::Row<FlowId>>)| {
        let row = row.expect("nothing waits");
        let placed = match &row.placed {
            Placed::Hardware(entries) => Ok(entries.iter().map(|(_, id)| *id).collect()),
            Placed::Software { reason, .. } => Err(reason.clone()),
        };
        (rule.to_string(), placed)
    };
    table.listed().map(of).collect()
}

fn open(eal: &Eal, devargs: &str) -> (Port, RuleTable<FlowId>) {
    let device = Device::Dpdk { devargs: devargs.to_owned() };
    let (port, _) = Port::open(eal, &PortConfig::new("nic", device)).unwrap();
    let table = RuleTable::new(Limits::of(port.driver()), port.queues());
    (port, table)
}

fn want(port: &Port, table: &mut RuleTable<FlowId>, rules: Vec<Rule>) {
    table.want(rules);
    table.work(&mut port.flows().expect("a DPDK device"), || true);
    assert!(!table.is_behind());
}

/// One test: the environment layer starts once in a process.
#[test]
fn drivers_have_rules_or_say_why_not() {
    needs_root!();
    let config = EalConfig {
        huge_pages: HugePages::Off,
        frames: 16384,
        memory_mb: Some(128),
        ..EalConfig::default()
    };
    let eal = Eal::init(&config).unwrap();
    rules_follow_a_configuration(&eal);
    every_kind_of_entry_is_well_formed(&eal);
    a_flow_is_redirected_and_calms_down(&eal);
    a_refusal_has_the_drivers_words(&eal);
}

const FIRST: &str = "tcp to 198.51.100.200:80";
const SECOND: &str = "tcp to [2001:db8::1]:80";
const THIRD: &str = "tcp to 198.51.100.200:443";

fn rules_follow_a_configuration(eal: &Eal) {
    let devargs = "net_failsafe0,mac=02:00:00:00:00:01,exec(true)";
    let (port, mut table) = open(eal, devargs);
    assert_eq!(port.driver(), "net_failsafe");
    want(&port, &mut table, rules(&[("198.51.100.200", 80), ("2001:db8::1", 80)]));
    let before = placed(&table);
    let gone = before[FIRST].clone().expect("a rule that was made")[0];
    let stays = before[SECOND].clone().expect("a rule that was made");
    let reason = |rule: &str| before[rule].clone().expect_err("a rule in software");
    assert!(reason("tcp to 192.0.2.10:1024-2047").contains("single ports"));
    assert!(reason("udp from 192.0.2.0/24").contains("whole addresses"));
    assert_eq!((table.totals().hardware, table.totals().software), (2, 3));

    want(&port, &mut table, rules(&[("2001:db8::1", 80), ("198.51.100.200", 443)]));
    let after = placed(&table);
    assert_eq!(after[SECOND], Ok(stays.clone()), "what stays is not touched");
    let new = after[THIRD].clone().expect("a rule that was made")[0];
    assert!(new != gone && !after.contains_key(FIRST), "{after:?}");
    // A number of what is gone names nothing.
    let mut flows = port.flows().expect("a DPDK device");
    assert_eq!((flows.destroy(gone), flows.hits(&gone)), (Ok(()), None));
    assert_eq!(table.totals().stuck, 0);

    // The port closes with rules in it; the next start makes all of them.
    drop(port);
    let (port, mut table) = open(eal, devargs);
    let mut flows = port.flows().expect("a DPDK device");
    assert_eq!(flows.destroy(stays[0]), Ok(()), "a number of before names nothing");
    want(&port, &mut table, rules(&[("2001:db8::1", 80), ("198.51.100.200", 443)]));
    assert_eq!(table.totals().hardware, 2);
    want(&port, &mut table, Vec::new());
    assert_eq!((table.totals().hardware, table.totals().stuck), (0, 0));
}

/// The driver copies items and actions by DPDK's own function, which knows the size of each. So it
/// is given all that a NIC with masks is asked for: prefixes, ranges, RSS, queues, counts, VXLAN.
fn every_kind_of_entry_is_well_formed(eal: &Eal) {
    let devargs = "net_failsafe1,mac=02:00:00:00:00:02,exec(true)".to_owned();
    let config = PortConfig { queues: 2, ..PortConfig::new("nic", Device::Dpdk { devargs }) };
    let (port, _) = Port::open(eal, &config).unwrap();
    let net = |text, prefix| Network { address: ip(text), prefix };
    let from = |source| SnatMatch { sources: vec![source], tcp: true, ..SnatMatch::default() };
    let v6 = EndpointMatch { protocol: 132, address: ip("2001:db8::1"), ports: 0..=u16::MAX };
    let matches = Matches {
        services: vec![
            EndpointMatch { protocol: 17, address: ip("198.51.100.200"), ports: 8000..=8099 },
            v6.clone(),
        ],
        reals: vec![v6],
        locals: vec![LocalMatch { address: ip("192.0.2.10"), ports: 1024..=3071, echo: false }],
        snat: vec![from(net("192.0.2.0", 24)), from(net("2001:db8:1::", 48))],
        vxlan: vec![VxlanMatch { local: ip("192.0.2.1"), port: 4789, vni: 42, network: 1 }],
        ..Matches::default()
    };
    let owned = |first, last, worker| Owned { ports: Ports { first, last }, worker };
    let owners = |_| vec![owned(1024, 2047, 0), owned(2048, 3071, 1)];
    let mut table = RuleTable::new(Limits::of("mlx5_pci"), 2);
    want(&port, &mut table, rules_of(&matches, 0, owners));
    let entries: usize = placed(&table).values().map(|ids| ids.as_ref().map_or(0, Vec::len)).sum();
    // A range of three blocks, two blocks of local ports by two protocols, and five more.
    assert_eq!((table.totals().hardware, entries), (8, 12), "{:?}", placed(&table));
    want(&port, &mut table, Vec::new());
    assert_eq!(table.totals().stuck, 0);

    // A mark alone, as Intel's drivers leave packets to the hash.
    let mut table = RuleTable::new(Limits::of("net_ice"), 2);
    want(&port, &mut table, rules(&[("198.51.100.200", 80)]));
    assert_eq!(placed(&table)[FIRST].as_ref().map(Vec::len), Ok(1));
    want(&port, &mut table, Vec::new());
    assert_eq!(table.totals().stuck, 0);
}

/// Two local ports, a worker's each.
fn of_two_workers() -> Vec<Rule> {
    let local = LocalMatch { address: ip("192.0.2.10"), ports: 7..=8, echo: false };
    let matches = Matches { locals: vec![local], ..Matches::default() };
    let owned = |port, worker| Owned { ports: Ports { first: port, last: port }, worker };
    rules_of(&matches, 0, |_| vec![owned(7, 0), owned(8, 1)])
}

/// The rule of a flow is made and goes, and those of services before and after it stay.
fn a_flow_is_redirected_and_calms_down(eal: &Eal) {
    let devargs = "net_failsafe2,mac=02:00:00:00:00:03,exec(true)".to_owned();
    let config = PortConfig { queues: 2, ..PortConfig::new("nic", Device::Dpdk { devargs }) };
    let (port, _) = Port::open(eal, &config).unwrap();
    let flow = |client: &str, vip: &str| Rule::of_flow(0, 17, (ip(client), 4000), (ip(vip), 53), 1);
    let flows = vec![flow("203.0.113.9", "198.51.100.200"), flow("2001:db8::9", "2001:db8::1")];
    // Those of a NIC with priorities, and of one without.
    for driver in ["mlx5_pci", "net_ice"] {
        let mut table = RuleTable::new(Limits::of(driver), port.queues());
        let base = rules(&[("198.51.100.200", 80)]);
        want(&port, &mut table, base.clone());
        let before = placed(&table)[FIRST].clone().expect("a service's rule");
        want(&port, &mut table, [base.clone(), flows.clone()].concat());
        for flow in &flows {
            assert_eq!(table.row(flow).map(sluice_rules::Row::queues), Some(vec![1]), "{flow}");
        }
        want(&port, &mut table, base);
        assert!(flows.iter().all(|flow| table.row(flow).is_none()));
        assert_eq!(placed(&table)[FIRST], Ok(before), "what stays is not touched");
        want(&port, &mut table, Vec::new());
        assert_eq!(table.totals().stuck, 0);
    }
}

fn a_refusal_has_the_drivers_words(eal: &Eal) {
    let device = Device::Dpdk { devargs: "net_tap0,iface=sluiceflow0".to_owned() };
    let config = PortConfig { queues: 2, ..PortConfig::new("nic", device) };
    let (port, _) = Port::open(eal, &config).unwrap();
    let mut table = RuleTable::new(Limits::of(port.driver()), port.queues());
    want(&port, &mut table, of_two_workers());
    // The driver validates what the kernel then does not have.
    match &placed(&table)["tcp to 192.0.2.10:7-8"] {
        Ok(ids) => assert_eq!(ids.len(), 2),
        Err(reason) => assert!(reason.starts_with("rte_flow_create: "), "{reason}"),
    }
    let flow = Rule::of_flow(0, 6, (ip("203.0.113.9"), 4000), (ip("198.51.100.200"), 80), 1);
    want(&port, &mut table, vec![flow.clone()]);
    match &table.row(&flow).expect("nothing waits").placed {
        Placed::Hardware(entries) => assert_eq!(entries.len(), 1),
        Placed::Software { reason, .. } => {
            assert!(reason.starts_with("rte_flow_create: "), "{reason}");
        }
    }
    want(&port, &mut table, Vec::new());
    assert_eq!(table.totals().stuck, 0);

    let (port, mut table) = open(eal, "net_null0");
    want(&port, &mut table, rules(&[("198.51.100.200", 80)]));
    let reason = placed(&table)[FIRST].clone().expect_err("it has no rules");
    assert_eq!(reason, "rte_flow_validate: Function not implemented (unspecified)");
    assert!(port.flows().is_some());
}
