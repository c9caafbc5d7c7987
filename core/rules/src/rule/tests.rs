//! Rules of each kind in words, and the property that a difference leads from old to new.

use super::*;
use crate::matches::{InnerMatch, VxlanMatch};
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str, prefix: u8) -> Network {
    Network { address: ip(text), prefix }
}

fn shown(matches: &Matches) -> Vec<String> {
    rules_of(matches, 0, |_| Vec::new()).iter().map(|it| format!("{}: {it}", name(it))).collect()
}

fn name(rule: &Rule) -> &'static str {
    rule.kind.name()
}

/// One of each, in an order that is not the rules', and one twice.
fn one_of_each() -> Matches {
    let web = EndpointMatch::port(6, ip("198.51.100.200"), 80);
    let every = EndpointMatch { protocol: 0, address: ip("2001:db8::1"), ports: 0..=u16::MAX };
    let local = LocalMatch { address: ip("192.0.2.10"), ports: 1024..=65535, echo: true };
    Matches {
        services: vec![every, web.clone(), web],
        locals: vec![local.clone()],
        reals: vec![EndpointMatch { protocol: 17, address: ip("192.0.2.11"), ports: 50..=59 }],
        snat: vec![SnatMatch {
            sources: vec![net("192.0.2.77", 24), net("2001:db8:1::", 48)],
            destinations: vec![net("203.0.113.0", 24)],
            except: vec![net("203.0.113.9", 32)],
            tcp: true,
            ..SnatMatch::default()
        }],
        tunnels: vec![net("192.0.2.1", 32)],
        vxlan: vec![VxlanMatch { local: ip("192.0.2.1"), port: 4789, vni: 42, network: 1 }],
        inner: vec![InnerMatch {
            network: 1,
            locals: vec![local],
            tunnels: vec![net("192.0.2.1", 32)],
            ..InnerMatch::default()
        }],
        ..Matches::default()
    }
}

#[test]
fn matches_become_ordered_rules_each_once() {
    assert_eq!(
        shown(&one_of_each()),
        [
            "service: any to 2001:db8::1",
            "service: tcp to 198.51.100.200:80",
            "local: icmp to 192.0.2.10:1024-65535",
            "local: tcp to 192.0.2.10:1024-65535",
            "local: udp to 192.0.2.10:1024-65535",
            "local: icmp to 192.0.2.10:1024-65535 inside vxlan",
            "local: tcp to 192.0.2.10:1024-65535 inside vxlan",
            "local: udp to 192.0.2.10:1024-65535 inside vxlan",
            "vxlan: udp to 192.0.2.1:4789 vni 42",
            "real: udp from 192.0.2.11:50-59",
            "snat: tcp from 192.0.2.0/24 to 203.0.113.0/24 but not to 203.0.113.9",
            "tunnel_error: icmp errors to 192.0.2.1",
            "tunnel_error: icmp errors to 192.0.2.1 inside vxlan",
        ]
    );
}

/// What an address says of the bits behind its prefix is no difference.
#[test]
fn a_rule_is_what_it_says() {
    let of = |source: &str| {
        let rule = SnatMatch { sources: vec![net(source, 24)], udp: true, ..SnatMatch::default() };
        rules_of(&Matches { snat: vec![rule], ..Matches::default() }, 0, |_| Vec::new())
    };
    assert_eq!(of("192.0.2.1"), of("192.0.2.200"));
    assert_ne!(of("192.0.2.1"), of("198.51.100.1"));
}

#[test]
fn other_owners_replace_a_rule() {
    let matches = Matches {
        locals: vec![LocalMatch { address: ip("192.0.2.10"), ports: 1024..=65535, echo: false }],
        ..Matches::default()
    };
    let owned = |worker| Owned { ports: Ports { first: 1024, last: 65535 }, worker };
    let old = rules_of(&matches, 0, |_| vec![owned(0)]);
    let new = rules_of(&matches, 0, |_| vec![owned(1)]);
    let diff = diff(&old, &new);
    assert_eq!((diff.create.len(), diff.destroy.len()), (0, 0));
    let pairs: Vec<(Rule, Rule)> = old.into_iter().zip(new).collect();
    assert_eq!(diff.replace, pairs);
}

/// Few rules, so that lists share some.
fn some_rules() -> impl Strategy<Value = Vec<Rule>> {
    let rule = (1..5_u16, 0..3_u16, any::<bool>()).prop_map(|(port, worker, tcp)| Rule {
        destination: Some(net("192.0.2.1", 32)),
        destination_ports: Ports { first: port, last: port },
        owners: vec![Owned { ports: Ports::ALL, worker }],
        ..Rule::new(Kind::Local, 0, Protocol::Number(if tcp { TCP } else { UDP }))
    });
    prop::collection::vec(rule, 0..12)
}

proptest! {
    /// What a difference says leads from one set to the other, and touches nothing else.
    #[test]
    fn a_difference_leads_from_old_to_new(old in some_rules(), new in some_rules()) {
        let diff = diff(&old, &new);
        let (old, new): (BTreeSet<Rule>, BTreeSet<Rule>) =
            (old.into_iter().collect(), new.into_iter().collect());
        let (before, after): (Vec<Rule>, Vec<Rule>) = diff.replace.into_iter().unzip();
        prop_assert!(before.iter().zip(&after).all(|(old, new)| old.same_packets(new)));
        let gone: BTreeSet<Rule> = diff.destroy.into_iter().chain(before).collect();
        let come: BTreeSet<Rule> = diff.create.into_iter().chain(after).collect();
        prop_assert!(gone.is_subset(&old) && gone.is_disjoint(&new));
        prop_assert!(come.is_subset(&new) && come.is_disjoint(&old));
        let reached: BTreeSet<Rule> = old.difference(&gone).cloned().chain(come).collect();
        prop_assert_eq!(reached, new);
    }
}
