//! Which rule a packet counts for: exactly the one that takes it, and the counts over changes.

mod bench;

use std::collections::BTreeMap;
use std::net::IpAddr;

use bench::scene::{
    ALL_UDP, ANY, ANY_REAL, CLIENT, Carried, ESP, HALF_INSIDE, INSIDE, LADDR, OUTSIDE, OWN,
    PLAIN_LADDR, RANGE_REAL, REAL, SCTP, TCP, TUNNEL, UDP, VIP, at, ethernet, matches, packet,
};
use bench::scene::{Icmp, Other, Ping, Pong, Ports};
use bench::{Bench, needs_root};
use sluice_rules::{Kind, Network, Owned, Protocol, Rule, rules_of};
use sluice_steer::{EndpointMatch, InnerMatch, LocalMatch, Matches, VxlanMatch};

/// What each rule has counted, by its words.
fn hits(bench: &Bench, matches: &Matches) -> BTreeMap<String, Option<u64>> {
    let rules = rules_of(matches, 0, |_| Vec::new());
    rules.iter().map(|rule| (rule.to_string(), bench.steer.hits(rule))).collect()
}

/// The rules that count a frame, in their order.
fn counts(bench: &mut Bench, matches: &Matches, frame: &[u8]) -> Vec<String> {
    let before = hits(bench, matches);
    bench.fate(frame);
    let after = hits(bench, matches).into_iter();
    let grown = after.filter_map(|(rule, after)| {
        let by = after? - before[&rule]?;
        assert!(by <= 1, "{rule} counted one frame {by} times");
        (by == 1).then_some(rule)
    });
    grown.collect()
}

/// A service of each kind, where others take the rest of the same address.
fn nested(v6: bool) -> Matches {
    let service = |protocol, ports| EndpointMatch { protocol, address: at(v6, VIP), ports };
    let mut matches = matches(v6);
    matches.services.push(service(0, 0..=u16::MAX));
    matches.services.push(service(TCP, 8050..=8050));
    matches
}

#[test]
fn a_packet_counts_for_the_rule_that_takes_it() {
    needs_root!();
    for v6 in [false, true] {
        let matches = nested(v6);
        let mut bench = Bench::configured(&matches);
        let to = |text: &str, ports: &str| match (v6, ports) {
            (false, _) | (true, "") => format!("{}{ports}", at(v6, text)),
            (true, _) => format!("[{}]{ports}", at(v6, text)),
        };
        let (prefix, wide) = if v6 { (121, 124) } else { (25, 28) };
        let (inside, of_inside) = (at(v6, "192.0.2.128"), if v6 { "icmpv6" } else { "icmp" });
        let half = if v6 { 123 } else { 27 };
        let (half_from, half_to) = (at(v6, "192.0.2.96"), at(v6, "203.0.113.0"));
        let all_inside = |protocol: &str| {
            format!("{protocol} from {inside}/{prefix} but not to {inside}/{prefix}")
        };
        let quoted = packet(v6, TUNNEL, REAL, &Other(4));
        let about = packet(v6, VIP, CLIENT, &Ports(TCP, 80, 40_000));
        let tunnel = at(v6, TUNNEL);
        let half_rule =
            format!("tcp from {half_from}/{half} to {half_to}/{}", if v6 { 120 } else { 24 });
        let rows: Vec<(&str, &str, Carried, String)> = vec![
            (CLIENT, VIP, Ports(TCP, 40_000, 80), format!("tcp to {}", to(VIP, ":80"))),
            (CLIENT, VIP, Ports(TCP, 40_000, 8050), format!("tcp to {}", to(VIP, ":8050"))),
            (CLIENT, VIP, Ports(TCP, 40_000, 8051), format!("tcp to {}", to(VIP, ":8000-8099"))),
            (CLIENT, VIP, Ports(SCTP, 40_000, 7), format!("sctp to {}", to(VIP, ""))),
            (CLIENT, VIP, Ports(TCP, 40_000, 22), format!("any to {}", to(VIP, ""))),
            (CLIENT, VIP, Other(ESP), format!("any to {}", to(VIP, ""))),
            (CLIENT, ALL_UDP, Ports(UDP, 40_000, 9), format!("udp to {}", to(ALL_UDP, ""))),
            (CLIENT, ANY, Ports(TCP, 40_000, 9), format!("any to {}", to(ANY, ""))),
            (REAL, LADDR, Ports(TCP, 80, 1500), format!("tcp to {}", to(LADDR, ":1024-2047"))),
            (REAL, LADDR, Ports(UDP, 80, 1500), format!("udp to {}", to(LADDR, ":1024-2047"))),
            (REAL, LADDR, Pong(1500), format!("{of_inside} to {}", to(LADDR, ":1024-2047"))),
            (
                REAL,
                PLAIN_LADDR,
                Ports(TCP, 80, 1500),
                format!("tcp to {}", to(PLAIN_LADDR, ":1024-2047")),
            ),
            (REAL, CLIENT, Ports(TCP, 8080, 9), format!("tcp from {}", to(REAL, ":8080"))),
            (
                RANGE_REAL,
                CLIENT,
                Ports(UDP, 5002, 9),
                format!("udp from {}", to(RANGE_REAL, ":5000-5003")),
            ),
            (ANY_REAL, CLIENT, Other(ESP), format!("any from {}", to(ANY_REAL, ""))),
            (INSIDE, OUTSIDE, Ports(TCP, 9, 80), all_inside("tcp")),
            (INSIDE, OUTSIDE, Ports(UDP, 9, 80), all_inside("udp")),
            (INSIDE, OUTSIDE, Ping(9), all_inside(of_inside)),
            (HALF_INSIDE, OUTSIDE, Ports(TCP, 9, 80), half_rule),
            (CLIENT, VIP, Icmp(3, 1, about), format!("tcp to {}", to(VIP, ":80"))),
            (REAL, TUNNEL, Icmp(3, 1, quoted), format!("{of_inside} errors to {}/{wide}", tunnel)),
        ];
        for (from, to, carried, rule) in rows {
            let frame = ethernet(v6, from, to, &carried);
            assert_eq!(counts(&mut bench, &matches, &frame), [rule], "{from} > {to}");
        }
        let kernels = [(CLIENT, OWN[0], Ports(TCP, 9, 80)), (CLIENT, LADDR, Ports(TCP, 9, 22))];
        for (from, to, carried) in kernels {
            let frame = ethernet(v6, from, to, &carried);
            assert!(counts(&mut bench, &matches, &frame).is_empty(), "{from} > {to}");
        }
    }
}

/// A frame in a VXLAN counts for the VXLAN, and for what takes it there.
#[test]
fn a_vxlan_counts_beside_what_is_in_it() {
    needs_root!();
    let vip = at(false, VIP);
    let local = LocalMatch { address: at(false, LADDR), ports: 1024..=2047, echo: false };
    let inner = InnerMatch {
        network: 7,
        services: vec![EndpointMatch::port(TCP, vip, 8443)],
        locals: vec![local],
        own: vec![at(false, OWN[1])],
        ..InnerMatch::default()
    };
    let vxlan = VxlanMatch { local: at(false, OWN[0]), port: 4789, vni: 42, network: 7 };
    let matches = Matches { vxlan: vec![vxlan], inner: vec![inner], ..matches(false) };
    let mut bench = Bench::configured(&matches);
    let wrapped = |frame: &[u8]| {
        let header = [&[8, 0, 0, 0, 0, 0, 42, 0], frame].concat();
        let mut outer = ethernet(false, CLIENT, OWN[0], &Ports(UDP, 50_000, 4789));
        outer.truncate(14 + 20 + 8);
        [outer, header].concat()
    };
    let of_vxlan = "udp to 198.51.100.1:4789 vni 42".to_owned();
    for (to, port, rules) in [
        (VIP, 8443, vec!["tcp to 198.51.100.200:8443 inside vxlan".to_owned(), of_vxlan.clone()]),
        (
            LADDR,
            1500,
            vec!["tcp to 192.0.2.10:1024-2047 inside vxlan".to_owned(), of_vxlan.clone()],
        ),
        (CLIENT, 80, vec![of_vxlan.clone()]),
        (OWN[1], 80, vec![]),
    ] {
        let frame = wrapped(&ethernet(false, CLIENT, to, &Ports(TCP, 9, port)));
        assert_eq!(counts(&mut bench, &matches, &frame), rules, "{to}:{port}");
    }
}

/// A count goes on while the rule stays, whatever happens to others and to who owns its ports. One
/// that is taken away and comes back begins anew.
#[test]
fn counts_go_on_over_changes() {
    needs_root!();
    let service = |port| EndpointMatch::port(TCP, at(false, VIP), port);
    let with = |ports: &[u16]| Matches {
        services: ports.iter().map(|port| service(*port)).collect(),
        ..matches(false)
    };
    let rule = |port: u16| -> Rule {
        let matches = Matches { services: vec![service(port)], ..Matches::default() };
        rules_of(&matches, 0, |_| Vec::new()).remove(0)
    };
    let mut bench = Bench::configured(&with(&[80, 443]));
    let send = |bench: &mut Bench, port, times| {
        let frame = ethernet(false, CLIENT, VIP, &Ports(TCP, 9, port));
        (0..times).for_each(|_| assert_eq!(bench.fate(&frame), bench::Fate::Director));
    };
    send(&mut bench, 80, 3);
    send(&mut bench, 443, 2);
    assert_eq!([80, 443].map(|port| bench.steer.hits(&rule(port))), [Some(3), Some(2)]);
    bench.steer.set(&with(&[443, 8443, 22])).unwrap();
    send(&mut bench, 443, 1);
    let said = [80, 443, 8443].map(|port| bench.steer.hits(&rule(port)));
    assert_eq!(said, [None, Some(3), Some(0)]);
    bench.steer.set(&with(&[80, 443])).unwrap();
    send(&mut bench, 80, 1);
    assert_eq!([80, 443].map(|port| bench.steer.hits(&rule(port))), [Some(1), Some(3)]);

    let pool = rules_of(&matches(false), 0, |_| {
        let ports = sluice_rules::Ports { first: 1024, last: 2047 };
        vec![Owned { ports, worker: 1 }]
    });
    let frame = ethernet(false, REAL, LADDR, &Ports(TCP, 80, 1500));
    bench.fate(&frame);
    let found = pool.iter().find(|rule| rule.to_string() == "tcp to 192.0.2.10:1024-2047");
    assert_eq!(bench.steer.hits(found.expect("a pool")), Some(1), "whoever owns the ports");
}

/// A packet as rules see it: protocol, ends, and whether it is a ping or the answer to one.
struct Seen {
    protocol: u8,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    ping: Option<bool>,
}

fn is_in(network: Option<Network>, address: IpAddr) -> bool {
    let Some(Network { address: of, prefix }) = network else { return true };
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, true),
        IpAddr::V6(v6) => (v6.to_bits(), false),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    let (one, other) = (bits(of), bits(address));
    one.1 == other.1 && (one.0 ^ other.0) & mask == 0
}

impl Seen {
    /// Whether the words of a rule are true of it.
    fn is_said_by(&self, rule: &Rule) -> bool {
        let control = matches!(self.protocol, 1 | 2 | 58 | 89 | 112);
        let protocol = match rule.protocol {
            Protocol::AllButControl => !control,
            Protocol::Number(number) => number == self.protocol,
        };
        let ping = match (self.ping, rule.kind) {
            (None, _) => true,
            (Some(is_request), Kind::Snat) => is_request,
            (Some(is_request), _) => !is_request,
        };
        let ends = is_in(rule.source, self.from.0) && is_in(rule.destination, self.to.0);
        let ports = rule.source_ports.range().contains(&self.from.1)
            && rule.destination_ports.range().contains(&self.to.1);
        let excepted = rule.except.iter().any(|net| is_in(Some(*net), self.to.0));
        protocol && ping && ends && ports && !excepted && rule.kind != Kind::TunnelError
    }
}

/// How narrow a rule is; the narrowest has the least.
fn width(rule: &Rule) -> (Kind, bool, u32) {
    let ports = [rule.source_ports, rule.destination_ports];
    let ports = ports.map(|it| u32::from(it.last - it.first)).into_iter().sum();
    (rule.kind, rule.protocol == Protocol::AllButControl, ports)
}

/// The rule that a packet counts for, by the rules' words alone: by its destination, or else, if
/// that is no address of the director's or the machine's, by its source.
fn narrowest<'r>(rules: &'r [Rule], own: &[IpAddr], seen: &Seen) -> Option<&'r Rule> {
    let is_known = own.contains(&seen.to.0)
        || rules.iter().any(|it| {
            matches!(it.kind, Kind::Service | Kind::Local)
                && it.destination.is_some_and(|net| net.address == seen.to.0)
        });
    let by_destination = |rule: &Rule| matches!(rule.kind, Kind::Service | Kind::Local);
    let said = rules.iter().filter(|rule| seen.is_said_by(rule));
    said.filter(|rule| by_destination(rule) || !is_known).min_by_key(|rule| width(rule))
}

/// Every protocol, end and port near the edge of one, against the rules' words.
#[test]
fn the_program_counts_what_the_rules_say() {
    needs_root!();
    let addresses = [
        CLIENT,
        VIP,
        ALL_UDP,
        ANY,
        OWN[0],
        LADDR,
        PLAIN_LADDR,
        REAL,
        RANGE_REAL,
        ANY_REAL,
        INSIDE,
        HALF_INSIDE,
        OUTSIDE,
        TUNNEL,
    ];
    let ports = [1, 80, 1023, 1024, 2047, 2048, 5000, 5003, 5004, 7999, 8000, 8050, 8099, 8100];
    for v6 in [false, true] {
        let matches = nested(v6);
        let rules = rules_of(&matches, 0, |_| Vec::new());
        let mut bench = Bench::configured(&matches);
        let (mut taken, mut state) = (0, 0x2545_f491_u32);
        let mut draw = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for _ in 0..1500 {
            let [from, to] = [(); 2].map(|()| addresses[draw(addresses.len())]);
            let [sport, dport] = [(); 2].map(|()| ports[draw(ports.len())]);
            let (carried, protocol, ends, ping) = match draw(8) {
                0 => (Ping(dport), if v6 { 58 } else { 1 }, (dport, dport), Some(true)),
                1 => (Pong(dport), if v6 { 58 } else { 1 }, (dport, dport), Some(false)),
                2 => (Other(ESP), ESP, (0, 0), None),
                at => {
                    let protocol = [TCP, UDP, SCTP][at % 3];
                    (Ports(protocol, sport, dport), protocol, (sport, dport), None)
                }
            };
            let (from, to) = ((at(v6, from), ends.0, from), (at(v6, to), ends.1, to));
            let seen = Seen { protocol, from: (from.0, from.1), to: (to.0, to.1), ping };
            let expected = narrowest(&rules, &matches.own, &seen).map(ToString::to_string);
            let frame = ethernet(v6, from.2, to.2, &carried);
            let counted = counts(&mut bench, &matches, &frame);
            let what = format!("protocol {protocol}, {from:?} > {to:?}");
            assert_eq!(counted, expected.iter().cloned().collect::<Vec<_>>(), "{what}");
            taken += usize::from(expected.is_some());
        }
        assert!((200..1200).contains(&taken), "{taken} of 1500 frames");
    }
}
